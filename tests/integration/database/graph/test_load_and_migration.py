"""A load whose schema changes while it is read publishes nothing, also when the schema is the same again in the end."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from tests.support.histories import SCHEMA, History, lives, person, town


class Meanwhile(io.BytesIO):
    """A stream at whose end a property is dropped and declared again, which makes it another column."""

    def __init__(self, data: bytes, history: History) -> None:
        super().__init__(data)
        self._history = history

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line:
            for source in (SCHEMA.replace(b" since: I32? ", b""), SCHEMA):
                engine = LanceEngine(self._history.clock, self._history.ids)
                engine.prepare_migration(self._history.uri, source, actor=None).publish()
        return line


def test_a_column_that_went_and_came_again_is_another_one(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"))
    people = [person("ann"), person("bob")]
    history.put(
        "main", {"node:Person": people, "node:Town": [town("oslo")], "edge:Lives": [lives("l", "bob", "oslo", 1)]}
    )
    records = Meanwhile(b'{"edge": "Lives", "from": "ann", "to": "oslo", "data": {"since": 2019}}\n', history)
    with pytest.raises(GitopsError) as failure:
        load_records(LoadRequest(history.uri, records), WriteContext(history.clock, history.ids))
    assert failure.value.code == "graph_conflict"
    assert history.rows("edge:Lives") == [lives("l", "bob", "oslo")]
