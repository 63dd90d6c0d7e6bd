"""One row read by its key, in both ways: from a key file, and by the executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gitops.core.errors import GitopsError
from gitops.database.graph.query.by_key import read_by_key
from gitops.database.graph.query.key_writer import note_read_by_key
from gitops.database.graph.query.options import QueryOptions
from gitops.database.graph.query.run import run_query
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from tests.support.query_graphs import NOW


class ByKey:
    """A graph, and a cache folder."""

    def __init__(self, root: str, cache: Path) -> None:
        self.root = root
        self.options = QueryOptions(now=NOW, cache_dir=cache)

    @property
    def files(self) -> list[Path]:
        """The key files."""
        return sorted((self.options.cache_dir or Path()).glob("keys/*.keys"))

    def fast(self, text: str, params: Any = None, target: ReadTarget | None = None) -> str | None:
        """What a key file answers, as JSON; None if there is no answer in one."""
        snapshot = open_snapshot(self.root, target)
        found = read_by_key(snapshot, self._checked(snapshot, text), params, self.options)
        return None if found is None else json.dumps([found.manifest_version, found.columns, found.rows])

    def slow(self, text: str, params: Any = None, target: ReadTarget | None = None) -> str:
        """What the executor answers, as JSON, or the code of its error."""
        try:
            snapshot = open_snapshot(self.root, target)
            found = run_query(snapshot, self._checked(snapshot, text), params, self.options)
            return json.dumps([found.manifest_version, found.columns, found.rows()])
        except GitopsError as error:
            return error.code.value

    def note(self, text: str, params: Any = None, target: ReadTarget | None = None) -> None:
        """What a command does after the executor answered."""
        snapshot = open_snapshot(self.root, target)
        note_read_by_key(snapshot, self._checked(snapshot, text), params, self.options)

    def written(self, text: str, params: Any = None, target: ReadTarget | None = None) -> str:
        """Read twice, which makes a file; its answer, which must be the executor's."""
        for _ in range(2):
            self.note(text, params, target)
        found = self.fast(text, params, target)
        assert found == self.slow(text, params, target)
        return found

    def _checked(self, snapshot: Any, text: str) -> CheckedQuery:
        return check_query(parse_queries(text.encode())[0], snapshot.schema().catalog)
