"""A cluster whose runs can be cut short anywhere, and whose engine notes which graphs were really removed.

A run passes ticks: every named fault point, and both sides of every write to the ledger and to a graph. Those of the lock do not
count, or short runs would have no others. At one tick chosen beforehand a run can

* die: the world is kept as it is at that moment, the rest of the run is undone; a lock that was held stays behind;
* fail: the write is refused, or it happens and its answer is lost.

A rehearsal, which is undone, counts the ticks that there are to choose from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, cast

from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import LOCK
from gitops.cluster.ledger.port import LedgerStore
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.session.workspace import Workspace
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import Faults
from gitops.database.storage.port import ObjectStore
from tests.support.cluster import Cluster
from tests.support.memory_engine import MemoryEngine, MemoryGraph

_STORE_WRITES = frozenset({"create", "replace", "write", "delete"})
# A failure put in at these points is one that the code there knows; the others are places to die at.
_FAILING_POINTS = ("cluster_apply.", "engine.")


class Ending(Enum):
    """How a run ends."""

    WELL = "well"
    REHEARSAL = "rehearsal"
    DEATH = "death"
    FAILURE = "failure"


@dataclass(frozen=True)
class World:
    """Everything that outlives a process."""

    files: dict[str, bytes]
    roots: dict[str, MemoryGraph]
    removals: int
    markers: dict[tuple[str, str], set[str]] = field(default_factory=dict)


class Cuts:
    """The faults of one run: counts ticks, and at the chosen one takes the world or raises."""

    def __init__(self) -> None:
        """Nothing happens until told."""
        self._mutex = threading.RLock()
        self._take: Callable[[], World] | None = None
        self.rest()

    def rest(self) -> None:
        """Let runs be."""
        self.ending, self.struck = Ending.WELL, ""
        self.world: World | None = None
        self.ticks = self.failable = self._left = 0

    def arm(self, ending: Ending, ticks: int, take: Callable[[], World]) -> None:
        """Strike after `ticks` ticks of the next run; a rehearsal counts those at which it could die or fail."""
        self.rest()
        self.ending, self._left, self._take = ending, ticks, take

    def reach(self, point: str) -> None:
        """A named fault point."""
        if self._tick(point, may_fail=point.startswith(_FAILING_POINTS)):
            raise GitopsError("injected_failpoint", f"a test fails this run at {point}")

    def write(self, what: str) -> None:
        """One side of a write."""
        if self._tick(what, may_fail=True):
            raise RemoteError("storage_failed", f"a test fails this run at {what}")

    def _tick(self, what: str, *, may_fail: bool) -> bool:
        """Whether to fail now."""
        if "ledger.lock." in what or what.endswith(LOCK):
            return False
        with self._mutex:
            if self.struck or (self.ending is Ending.FAILURE and not may_fail):
                return False
            self.ticks += 1
            self.failable += may_fail
            if self.ending not in (Ending.DEATH, Ending.FAILURE) or self.ticks <= self._left:
                return False
            self.struck = what
            if self.ending is Ending.DEATH and self._take is not None:
                self.world = self._take()
            return self.ending is Ending.FAILURE


class _Cut:
    """A store, with a tick on both sides of its writes."""

    def __init__(self, store: ObjectStore, cuts: Cuts) -> None:
        self._store, self._cuts = store, cuts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in _STORE_WRITES:
            return found

        def write(*args: object, **options: object) -> object:
            self._cuts.write(f"before {name} {args[0]}")
            answer = found(*args, **options)
            self._cuts.write(f"after {name} {args[0]}")
            return answer

        return write


class WatchedEngine(MemoryEngine):
    """The engine twin with a diary: which roots a verb removed that were really there.

    Removing a root takes two steps, so that a run can die between them and leave a root that does not open.
    """

    def __init__(self, cuts: Cuts) -> None:
        """`cuts` are the faults of the runs."""
        super().__init__(cuts)
        self._cuts = cuts
        self.removals: list[str] = []

    def _remove(self, uri: str, note: Callable[[], None]) -> None:
        """Write it down, too."""
        self._cuts.reach("engine.delete.before")
        graph = self._graphs[uri]
        if not graph.deleted:
            self.removals.append(uri)
        note()
        self._graphs[uri] = replace(graph, deleted=True, source=None)
        self._cuts.reach("engine.delete.halfway")
        super()._remove(uri, lambda: None)
        self._cuts.reach("engine.delete.after")

    def change(self, uri: str, source: bytes) -> None:
        """Let a root hold this schema, whatever is there now."""
        graph = self._graphs.get(uri)
        new = graph is None or not graph.incarnation
        self._births += new
        born = f"{self._births:026}" if graph is None or new else graph.incarnation
        self._graphs[uri] = MemoryGraph(source, 1 if graph is None else graph.version + 1, [], born)

    def vanish(self, uri: str) -> None:
        """Remove a root behind everybody's back."""
        self._graphs.pop(uri, None)

    def see_again(self) -> None:
        """Every root can be seen."""
        self._unknown.clear()

    @property
    def unseen(self) -> frozenset[str]:
        """Roots of which the engine cannot tell whether they exist."""
        return frozenset(self._unknown)

    def roots(self) -> dict[str, MemoryGraph]:
        """Every root as it is; one without schema text does not open."""
        return {uri: replace(graph) for uri, graph in list(self._graphs.items())}

    def markers(self) -> dict[tuple[str, str], set[str]]:
        """By which approvals each graph was deleted."""
        return {graph: set(used) for graph, used in list(self._deleted.items()) if used}

    def restore(self, roots: Mapping[str, MemoryGraph], markers: Mapping[tuple[str, str], set[str]]) -> None:
        """Go back to what `roots` and `markers` said."""
        self._deleted = {graph: set(used) for graph, used in markers.items()}
        self._graphs.clear()
        self._graphs.update({uri: replace(graph) for uri, graph in roots.items()})


class Bench(Cluster):
    """A `Cluster` over stores that can be cut."""

    twin: WatchedEngine

    def __init__(self, folder: Path, *, memory: bool) -> None:
        """As `Cluster`, with no graph declared yet."""
        self.cuts = Cuts()
        watched = WatchedEngine(self.cuts)
        super().__init__(folder, memory=memory, engine=watched)
        self.twin = watched
        self._known: tuple[dict[str, bytes], DesiredState] | None = None
        self.graphs, self.policies = {}, {}
        self.save()

    def workspace(self, actor: str | None = None, faults: Faults | None = None) -> Workspace:
        """One run's view, with the cuts as its faults."""
        return super().workspace(actor, faults or self.cuts)

    def desired(self) -> DesiredState:
        """What the folder declares now; read again only when a file of it has changed."""
        files = {p.name: p.read_bytes() for p in self.folder.iterdir() if p.is_file()}
        if self._known is None or self._known[0] != files:
            self._known = files, super().desired()
        return self._known[1]

    def _ledger(self, faults: Faults) -> LedgerStore:
        return FolderLedger(cast("ObjectStore", _Cut(self.store, self.cuts)), clock=self.clock, faults=faults)

    def ledger_files(self) -> dict[str, bytes]:
        """Every file of the ledger by key; half-written ones have no name yet."""
        found = {key: self.stored(key) for key in self.files() if "/." not in key}
        return {key: data for key, data in found.items() if data is not None}

    def world(self) -> World:
        """The world now. The engine comes first: an effect on a graph is never seen without the sidecar before it."""
        removals = len(self.twin.removals)
        roots = self.twin.roots()
        return World(self.ledger_files(), roots, removals, self.twin.markers())

    def go_back(self, world: World) -> None:
        """Undo what happened since `world` was taken."""
        for key, data in self.ledger_files().items():
            if world.files.get(key) != data:
                self.plant(key, world.files.get(key))
        for key in world.files.keys() - self.ledger_files().keys():
            self.plant(key, world.files[key])
        self.twin.restore(world.roots, world.markers)
        del self.twin.removals[world.removals :]


__all__ = ["Bench", "Cuts", "Ending", "WatchedEngine", "World"]
