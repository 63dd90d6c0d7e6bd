"""Compaction and index builds as tasks: workers write files without a version, and the driver commits them.

The driver plans the tasks for one version of a table and holds its lease. A compaction task rewrites some fragments; an
index task builds an index segment for some fragments. A task's files are used only if the driver commits them, so tasks
may run twice or late.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import lance
from lance import optimize as driver
from lance.dataset import Index, IndexFile

from gitops.core.dataclass import dataclass
from gitops.database.executor.port import TaskExecutor, Tools
from gitops.database.graph.search import TEXT_INDEX
from gitops.database.graph.snapshot import find_root
from gitops.database.graph.tables import call_driver

# Some of its members are not in its type hints.
_DRIVER: Any = driver
# Of many partitions, most of the time is spent on starting and joining them.
os.environ.setdefault("LANCE_NGRAM_NUM_PARTITIONS", "1")
_SEGMENT_ROWS = 16_000_000
VECTOR_KINDS = ("IVF_SQ", "IVF_FLAT")
"""Kinds of indexes that are trained on the whole table, so they are built by the driver."""


@dataclass(frozen=True, slots=True)
class TableTasks:
    """The tasks for one table. `run` distinguishes one driver's tasks from another's.

    `renew` is called after each answer.
    """

    executor: TaskExecutor
    uri: str
    path: str
    run: str
    renew: Callable[[], None]

    def compact(self, dataset: lance.LanceDataset, options: Mapping[str, Any]) -> None:
        """Compact a table in one commit. Raises the executor's errors."""
        tasks = _DRIVER.Compaction.plan(dataset, dict(options)).tasks
        answers = self._answers("optimize.compact", dataset, [{"task": task.json()} for task in tasks])
        done = [_DRIVER.RewriteResult.from_json(answer["result"]) for answer in answers]
        if done:
            _DRIVER.Compaction.commit(dataset, done, dict(options))

    def segments(
        self, dataset: lance.LanceDataset, indexes: Sequence[tuple[str, str, str]]
    ) -> Mapping[str, list[Index]]:
        """Build index segments, given as name, column and kind, and return them by name."""
        groups: list[list[int]] = []
        held = _SEGMENT_ROWS
        for fragment in dataset.get_fragments():
            if held >= _SEGMENT_ROWS:
                groups.append([])
                held = 0
            groups[-1].append(fragment.fragment_id)
            held += fragment.physical_rows
        forms = [
            {"name": name, "column": column, "kind": kind, "fragments": group}
            for name, column, kind in indexes
            for group in groups
        ]
        found: dict[str, list[Index]] = {}
        for form, answer in zip(forms, self._answers("optimize.index", dataset, forms), strict=True):
            found.setdefault(str(form["name"]), []).append(_index_of(answer["segment"]))
        return found

    def _answers(
        self, kind: str, dataset: lance.LanceDataset, forms: Sequence[Mapping[str, Any]]
    ) -> list[Mapping[str, Any]]:
        shared = {"uri": self.uri, "path": self.path, "version": dataset.version, "run": self.run}
        keys = [self.executor.submit(kind, {**shared, **form}) for form in forms]
        found: dict[str, Mapping[str, Any]] = {}
        while len(found) < len(set(keys)):
            key, answer = self.executor.wait()
            found[key] = answer
            self.renew()
        return [found[key] for key in keys]


def compact_task(form: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    """Rewrite the fragments of one compaction task."""
    del tools
    task = _DRIVER.CompactionTask.from_json(form["task"])
    return {"result": call_driver(form["path"], lambda: task.execute(_dataset(form))).json()}


def index_task(form: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    """Build one index segment."""
    del tools
    settings: dict[str, Any] = TEXT_INDEX if form["kind"] == "INVERTED" else {}
    made = call_driver(
        form["path"],
        lambda: _dataset(form).create_index_uncommitted(
            form["column"], form["kind"], name=form["name"], fragment_ids=form["fragments"], **settings
        ),
    )
    return {"segment": _index_form(made)}


def _dataset(form: Mapping[str, Any]) -> lance.LanceDataset:
    _, folder = find_root(form["uri"]).open()
    place = folder.dataset(form["path"])
    return lance.dataset(place.uri, version=form["version"], storage_options=place.driver_options())


def _index_form(index: Index) -> dict[str, Any]:
    details = index.index_details
    return {
        "uuid": index.uuid,
        "name": index.name,
        "fields": list(index.fields),
        "dataset_version": index.dataset_version,
        "fragment_ids": sorted(index.fragment_ids),
        "index_version": index.index_version,
        "created_at": None if index.created_at is None else index.created_at.isoformat(),
        "files": [[file.path, file.size_bytes] for file in index.files or ()],
        "details": None if details is None else [details[0], base64.b64encode(bytes(details[1])).decode()],
    }


def _index_of(form: Mapping[str, Any]) -> Index:
    details, created = form["details"], form["created_at"]
    return Index(
        uuid=form["uuid"],
        name=form["name"],
        fields=form["fields"],
        dataset_version=form["dataset_version"],
        fragment_ids=set(form["fragment_ids"]),  # type: ignore[arg-type] # any iterable of numbers
        index_version=form["index_version"],
        created_at=None if created is None else datetime.fromisoformat(created),
        files=[IndexFile(path=path, size_bytes=size) for path, size in form["files"]],
        index_details=None if details is None else (details[0], base64.b64decode(details[1])),
    )
