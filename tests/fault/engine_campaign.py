"""Kill writers of a graph, look at everything, and go on with the same graph.

After each death:

1. every branch holds what the acknowledged deeds made it hold, with or without the one deed that was going on: nothing is lost,
   and nothing is there by half; the versions that name the deed say the same;
2. `verify_graph` finds nothing wrong, and whoever reads a version under a lease still reads the same bytes;
3. the next writers succeed, whatever lies around;
4. `gc` frees what the dead left, and nothing else: 1 and 2 hold again, and nothing is left that no version names.

python -m tests.fault.engine_campaign   write tests/data/engine_campaign.json again: the points that each operation reaches
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import lance

from gitops.database.graph import layout
from gitops.database.graph.history.gc import all_lines, collect_references, read_manifests
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.lines import read_branches
from gitops.database.graph.read import export_records
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.snapshot import Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext, hold_lease, read_leases
from gitops.database.graph.tables import dataset_versions, open_latest
from gitops.database.storage.port import TEMP_PREFIX
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.fault.engine_child import Child, Told
from tests.fault.engine_world import SCHEMAS, SIDE, Deed, Model, begin, collect, found, perform
from tests.support.pages import ROOT

TABLE = "engine-campaign"
"""The property by which a test tells the table of one death: where, what, how, whether it is there, what was left."""

_ROW = "{:<6} {:<15} {:>6} {:>9} {:>10} {:>10} {:>6} {:>12} {:>10}"
_COLUMNS = ("store", "operation", "kills", "at points", "at random", "published", "void", "left debris", "recovered")


def print_table(rows: Iterable[Sequence[object]], say: Callable[[str], object]) -> None:
    """One line for each operation, and a total; every row is a death after which everything was found right."""
    rows = [tuple(row) for row in rows]
    say(_ROW.format(*_COLUMNS))
    for store, op in dict.fromkeys((row[0], row[1]) for row in rows):
        say(_line(store, op, [row for row in rows if row[:2] == (store, op)]))
    say(_line("all", "", rows))


def _line(store: object, op: object, rows: Sequence[Sequence[object]]) -> str:
    points = sum(row[2] == "point" for row in rows)
    published, left = sum(row[3] is True for row in rows), sum(row[4] is True for row in rows)
    kills = len(rows)
    return _ROW.format(store, op, kills, points, kills - points, published, kills - published, left, kills)


UNVERIFIED_S = 8 * 24 * 3600
"""Files that belong to no version of a table are a week old before the driver takes them for nobody's work."""


@dataclass(frozen=True, slots=True)
class Debris:
    """How many there are: versions of tables that no version of the graph names, data files in no version of their table, folders
    of tables that nothing names, lines without a branch, leases, and unfinished small files.
    """

    versions: int
    files: int
    folders: int
    lines: int
    leases: int
    unfinished: int

    def more_than(self, *, leases: int = 0) -> bool:
        """Whether there is anything but so many leases."""
        return replace(self, leases=self.leases - leases) != Debris(0, 0, 0, 0, 0, 0)


def debris(uri: str) -> Debris:
    """What lies there."""
    snapshot = open_snapshot(uri)
    folder, store = snapshot.folder, snapshot.store
    needs = collect_references(read_manifests(folder, {}), ())
    versions = files = folders = 0
    for kind in ("nodes", "edges"):
        for path in (f"{kind}/{name}" for name in folder.children(kind)):
            if not needs.knows(path):
                folders += 1
                continue
            numbers = [number for number, _ in dataset_versions(folder, path)]
            versions += sum(not needs.keeps(path, number) for number in numbers)
            files += len(_data_files(folder, path) - _named_files(folder, path, numbers))
    named = {line.id for line in read_branches(store).lines()}
    return Debris(
        versions=versions,
        files=files,
        folders=folders,
        lines=sum(line not in named for line in all_lines(folder)),
        leases=len(read_leases(store)),
        unfinished=sum(1 for _ in _unfinished(folder)),
    )


def grow_old(uri: str) -> None:
    """Let a week pass for the files of the tables of a graph on disk."""
    for kind in ("nodes", "edges"):
        for file in Path(uri, kind).rglob("*"):
            moment = file.stat().st_mtime - UNVERIFIED_S
            os.utime(file, (moment, moment))


def _data_files(folder: GraphFolder, path: str) -> set[str]:
    return {file.path.rpartition("/")[2] for file in folder.files(f"{path}/data")}


def _named_files(folder: GraphFolder, path: str, numbers: list[int]) -> set[str]:
    dataset: lance.LanceDataset = open_latest(folder, path)
    found: set[str] = set()
    for number in numbers:
        for fragment in dataset.checkout_version(number).get_fragments():
            found.update(file.path for file in fragment.metadata.files)
    return found


def _unfinished(folder: GraphFolder) -> Iterator[str]:
    for prefix in (layout.MANIFESTS, layout.BRANCHES, layout.LEASES, layout.FLOORS, layout.SCHEMA):
        for file in folder.files(prefix):
            if file.path.rpartition("/")[2].startswith(TEMP_PREFIX):
                yield file.path


POINTS = ROOT / "tests" / "data" / "engine_campaign.json"
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "load_merge": (),
    "load_append": (),
    "load_overwrite": (),
    "insert": (),
    "insert@side": ("branch_create",),
    "update": (),
    "delete": (),
    "add": (),
    "rename": ("add",),
    "drop": ("add", "fill", "rename"),
    "convert": (),
    "rekey": (),
    "branch_create": (),
    "branch_delete": ("branch_create", "insert@side"),
    "merge": ("branch_create", "insert@side", "insert"),
    "fast_forward": ("branch_create", "insert@side"),
    "optimize": ("insert", "insert"),
    "gc": ("add", "plain", "insert", "branch_create", "insert@side", "branch_delete"),
}
"""What is killed, where it is not on `main`, and what comes before it."""

_HOME: Mapping[str, tuple[str, ...]] = {
    "add": ("plain",),
    "rename": ("back",),
    "drop": ("back",),
    "convert": ("plain",),
    "rekey": ("plain",),
}
"""What leads back to the first schema from another one."""

_VERSIONED = frozenset({"load_merge", "load_append", "load_overwrite", "insert", "update", "delete", *SCHEMAS, "merge"})
_TARGETED = frozenset({"load_merge", "update", "delete", "fill"})
_CYCLES = 3
_FRESH_EVERY = 8
_LEASE = timedelta(days=14)
Death = Callable[[Child, int], None]
"""Lets a child that has its order do so many deeds, and sees to its death."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of the deed that was going on: it is there or not, and what the dead process left beside."""

    op: str
    published: bool
    left: bool

    def row(self, store: str, how: str) -> list[object]:
        """As a row of the table."""
        return [store, self.op, how, self.published, self.left]


class Campaign:
    """One graph that is written to by processes that die."""

    def __init__(self, uri: str, seed: int, age: Callable[[], None] | None = None) -> None:
        """Make the graph; `age` lets a week pass for its files."""
        self.uri = uri
        self._age = age or (lambda: grow_old(uri))
        self.chance = random.Random(seed)  # noqa: S311 - a test's order
        self._model = begin(uri)
        collect(uri)
        self._number = 1
        self._turn = 0
        self._spare: Child | None = None

    def close(self) -> None:
        """Let the child that waits for an order go."""
        if self._spare is not None:
            self._spare.stop()

    def rehearse(self, op: str) -> Told:
        """Do it in a child that is only killed when it is done: how long that takes, and which points it reaches."""

        def wait(child: Child, _deeds: int) -> None:
            child.go()
            child.acknowledged()
            child.kill()

        _, told = self._die(op, wait)
        return told

    def die_at(self, op: str, point: str, visit: int) -> Fate:
        """Let the child kill itself when it reaches the point."""

        def go(child: Child, _deeds: int) -> None:
            child.go()

        fate, told = self._die(op, go, point, visit)
        assert told.acked == 0, "the child went past the point"
        return fate

    def die_after(self, op: str, seconds: float) -> Fate:
        """Kill the child after a while, whatever it is doing then."""

        def strike(child: Child, deeds: int) -> None:
            child.go(deeds)
            time.sleep(seconds)
            child.kill()

        fate, _ = self._die(op, strike)
        return fate

    def die_by(self, op: str, death: Death) -> Fate:
        """Let somebody else see to the death."""
        fate, _ = self._die(op, death)
        return fate

    def _die(self, op: str, death: Death, point: str = "", visit: int = 0) -> tuple[Fate, Told]:
        for deed in self._plan(self._model, OPERATIONS[op]):
            self._do(deed)
        deeds = self._cycles(op)
        child = self._child()
        with _pinned(self.uri) as pinned:
            before = len(list(read_manifests(open_snapshot(self.uri).folder, {})))
            child.order(self.uri, deeds, point, visit)
            death(child, len(deeds))
            self._spare = Child()
            told = child.end()
            fate = self._examine(deeds, told, before)
            pinned.require_same()
            self._go_on()
            self._age()
            collect(self.uri)
            pinned.require_same()
        collect(self.uri)
        self._require_clean()
        return fate, told

    def _child(self) -> Child:
        child, self._spare = self._spare or Child(), None
        return child

    def _cycles(self, op: str) -> list[Deed]:
        """The deed, and more of its kind for a child that lives longer than it takes."""
        deeds = self._plan(self._model, (op,))
        for _ in range(_CYCLES):
            model = self._ahead(deeds)
            deeds += self._plan(model, (*_way_home(model), *OPERATIONS[op], op))
        return deeds

    def _ahead(self, deeds: list[Deed]) -> Model:
        model = self._model
        for deed in deeds:
            model = model.after(deed)
        return model

    def _plan(self, model: Model, ops: tuple[str, ...]) -> list[Deed]:
        """Deeds that can be done one after the other."""
        deeds = []
        for each in ops:
            op, _, branch = each.partition("@")
            self._number += 1
            target = self.chance.choice(model.branches["main"].items()) if op in _TARGETED else 0
            deeds.append(Deed(op, self._number, branch or "main", target))
            model = model.after(deeds[-1])
        return deeds

    def _do(self, deed: Deed) -> None:
        perform(self.uri, deed)
        self._model = self._model.after(deed)

    def _examine(self, deeds: list[Deed], told: Told, before: int) -> Fate:
        """Steps 1 and 2."""
        sure = self._ahead(deeds[: told.acked])
        going = deeds[told.acked] if told.begun > told.acked else None
        maybe = sure if going is None else sure.after(going)
        seen, schema = found(self.uri), open_snapshot(self.uri).schema_source()
        whole = [model for model in (maybe, sure) if (model.branches, _source(model)) == (seen, schema)]
        assert whole, f"{going} is there by half, or one of {deeds[: told.acked]} is lost"
        self._model = whole[0]
        manifests = list(read_manifests(open_snapshot(self.uri).folder, {}))
        made = Counter(manifest.actor for manifest in manifests if manifest.operation != "branch")
        last = going or deeds[told.acked - 1]
        published = self._model is maybe
        if sure.branches == maybe.branches and sure.schema == maybe.schema:
            published = len(manifests) < before if last.op == "gc" else bool(made[last.marker])
        if going is not None and going.op in _VERSIONED:
            assert made[going.marker] == published
        assert all(made[deed.marker] <= 1 for deed in deeds if deed.op in _VERSIONED), "a deed is done twice"
        self._require_sound()
        return Fate(_name(last), published, debris(self.uri).more_than(leases=1))

    def _go_on(self) -> None:
        """Step 3."""
        self._turn += 1
        load = "load_overwrite" if self._turn % _FRESH_EVERY == 0 else "load_merge"
        for deed in self._plan(self._model, (*_way_home(self._model), load, "insert")):
            self._do(deed)

    def _require_clean(self) -> None:
        """Step 4."""
        assert found(self.uri) == self._model.branches
        assert verify_graph(self.uri, deep=True).findings == ()
        left = debris(self.uri)
        assert not left.more_than(), left

    def _require_sound(self) -> None:
        problems = [finding for finding in verify_graph(self.uri, deep=True).findings if finding.is_problem]
        assert problems == []


class _Pinned:
    """A version that is read under a lease."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._digest = digest(snapshot)

    def require_same(self) -> None:
        assert digest(self._snapshot) == self._digest


@contextlib.contextmanager
def _pinned(uri: str) -> Iterator[_Pinned]:
    snapshot = open_snapshot(uri)
    with hold_lease(snapshot, WriteContext(SystemClock(), RandomIds(), "reader"), _LEASE):
        yield _Pinned(snapshot)


def digest(snapshot: Snapshot) -> str:
    """Tells whether a version holds the same rows, ids of edges included."""
    state = hashlib.sha256()
    for line in export_records(snapshot):
        state.update(line.encode() + b"\n")
    return state.hexdigest()


def _name(deed: Deed) -> str:
    return deed.op if deed.branch == "main" else f"{deed.op}@{deed.branch}"


def _source(model: Model) -> bytes:
    return SCHEMAS[model.schema].encode()


def _way_home(model: Model) -> tuple[str, ...]:
    """What leads back to one branch and the first schema."""
    branch = ("branch_delete",) if SIDE in model.branches else ()
    return (*branch, *_HOME.get(model.schema, ()))


def recorded() -> dict[str, list[str]]:
    """The points that each operation reaches, as they were recorded last."""
    content: dict[str, list[str]] = json.loads(POINTS.read_text(encoding="utf-8"))
    return content


def _record() -> None:
    with tempfile.TemporaryDirectory() as place:
        graph = Campaign(f"{place}/g.omni", 1)
        reached = {op: sorted(set(graph.rehearse(op).reached[0])) for op in OPERATIONS}
        graph.close()
    POINTS.write_text(json.dumps(reached, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _record()
