"""Documents of a load over an executor, stored below `bulk/<id>/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from gitops.core.canonical import canonical, canonical_digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.json_bytes import parse
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.executor.port import Tools, task_key
from gitops.database.graph import layout
from gitops.database.graph.bulk import BulkPlan
from gitops.database.graph.load import LoadMode
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.snapshot import Snapshot, find_root
from gitops.database.graph.write.keys import Salt, shared_salt
from gitops.database.storage.port import ObjectStore

_LIMIT = 1 << 28


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an input file that one task reads: the bytes from `start` to `end`, or row groups.

    `table` is the table key of a Parquet file; None means JSON Lines. `size` is the file size in bytes.
    """

    file: str
    table: str | None
    start: int
    end: int
    size: int


@dataclass(frozen=True, slots=True)
class SharedLoad:
    """A load in progress. `buckets` is a power of two."""

    plan: BulkPlan
    mode: LoadMode
    buckets: int
    pieces: tuple[Piece, ...]

    @property
    def salt(self) -> Salt:
        """The salt of the keys that workers exchange."""
        return shared_salt(self.plan.bulk)

    def key(self, name: str) -> str:
        """Return the object key of one of the load's documents or files."""
        return f"{layout.BULK}/{self.plan.bulk}/{name}"

    def to_json(self) -> dict[str, Any]:
        """Return the load as plain JSON."""
        pieces = [[each.file, each.table, each.start, each.end, each.size] for each in self.pieces]
        plan = self.plan.to_json()
        return {"v": 1, "plan": plan, "mode": self.mode.value, "buckets": self.buckets, "pieces": pieces}


def write_load(store: ObjectStore, load: SharedLoad) -> None:
    """Write a load's `plan.json`."""
    store.write(load.key("plan.json"), canonical(load.to_json()))


def read_load(store: ObjectStore, bulk: str) -> SharedLoad:
    """Read a load's document.

    Raises GitopsError `graph_version_gone` if the load has ended, IntegrityError `graph_unreadable`.
    """
    key = f"{layout.BULK}/{bulk}/plan.json"
    data = store.read(key)
    if data is None:
        detail = f"no load {bulk[:40]!r} is in progress: it was published or discarded, or has expired"
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=store.location, fix="gitops graph log GRAPH")
    try:
        form = parse(data, limit=_LIMIT)
        pieces = tuple(Piece(*each) for each in form["pieces"])
        return SharedLoad(BulkPlan.from_json(form["plan"]), LoadMode(form["mode"]), form["buckets"], pieces)
    except (KeyError, TypeError, ValueError) as error:
        place = store.display(key)
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is not well formed", path=place) from error


@lru_cache(maxsize=4)
def opened_load(uri: str, bulk: str) -> tuple[SharedLoad, GraphFolder, Snapshot]:
    """Return a load, its graph's folder, and the version from which it began. A worker opens each load only once.

    Raises the same errors as `read_load` and `BulkTask.open`.
    """
    _, folder = find_root(uri).open()
    load = read_load(folder.store, bulk)
    return load, folder, load.plan.task(next(iter(load.plan.tables))).open()


def answer_key(load: SharedLoad, task: str) -> str:
    """Return the object key of the answer to a task."""
    return load.key(f"answers/{task}.json")


def recorded(
    kind: str, form: Mapping[str, Any], tools: Tools, work: Callable[[SharedLoad, Snapshot], dict[str, Any]]
) -> dict[str, Any]:
    """Return the recorded answer to a task. If there is none, do the work and record its answer.

    If another worker recorded an answer first, that one counts.
    """
    load, folder, snapshot = opened_load(form["uri"], form["bulk"])
    key = answer_key(load, task_key(kind, form))
    data = folder.store.read(key)
    if data is None:
        answer = work(load, snapshot)
        tools.faults.reach("engine.bulk.before_answer")
        if folder.store.create(key, canonical(answer)):
            tools.faults.reach("engine.bulk.after_answer")
            return answer
        data = folder.store.read(key)
    if data is None:
        raise GitopsError(Code.GRAPH_VERSION_GONE, f"the load {load.plan.bulk} has ended", path=form["uri"])
    return dict(parse(data, limit=_LIMIT))


def write_inputs(store: ObjectStore, load: SharedLoad, form: Mapping[str, Any]) -> str:
    """Store the data that a stage's tasks share, and return its digest."""
    name = canonical_digest(dict(form))[:32]
    store.create(load.key(f"inputs/{name}.json"), canonical(dict(form)))
    return name


@lru_cache(maxsize=4)
def read_inputs(uri: str, bulk: str, name: str) -> Mapping[str, Any]:
    """Read the data that a stage's tasks share, given its digest."""
    load, folder, _ = opened_load(uri, bulk)
    data = folder.store.read(load.key(f"inputs/{name}.json"))
    if data is None:
        raise GitopsError(Code.GRAPH_VERSION_GONE, f"the load {bulk} has ended", path=uri)
    return dict(parse(data, limit=_LIMIT))
