"""The cluster copy that a read replica serves: a ledger and graphs below a folder, which follow those in a bucket.

    copy/         a storage root with the ledger and the graphs, which a server opens like any other
    files/        the content of the copied files, by digest
    status.json   what was copied, and when
    source        the address that is copied

Rules of this module:

1. Nothing is written to the bucket.
2. The ledger is read before the graphs and written after them, because a state records versions of graphs that existed
   before it. So the copied graphs are never older than the copied state records.
3. If the bucket fails in between, the older state is kept.
4. One process copies; it has the lock. The others read its status, and take over when it ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.files import view_of
from gitops.cluster.model.address import Kind, is_name
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.replica import CopiedGraph, ReplicaStatus
from gitops.cluster.session.workspace import Stores
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, RemoteError, UsageError, system_reason
from gitops.database.graph import GraphMirror, MirrorLimits
from gitops.database.storage.copies import FileCopies
from gitops.database.storage.local import LocalStore, delete_tree
from gitops.database.storage.parallel import in_parallel
from gitops.repository.wiring.serving import ServedSource, open_served, served_root
from gitops.repository.wiring.stores import graph_uri, open_bucket
from gitops.repository.wiring.system import SystemClock

_STATUS, _SOURCE = "status.json", "source"
_CHECKED_BYTES = 64 * 1024 * 1024
"""How many bytes of copied files are read again in each round, to find damage."""
_AT_ONCE = 16
_READ_FOR = timedelta(minutes=15)
"""How long the copy of a graph that is no longer applied is kept for requests that began before."""


class ReplicaCopy:
    """A copy of one cluster below a folder. Only one thread calls `round`."""

    def __init__(self, source: ServedSource, folder: str, most_bytes: int, log: Callable[[str], None]) -> None:
        """Create the object without opening anything, so that a process that has it can be forked."""
        self._source, self._folder, self._log = source, Path(folder).absolute(), log
        self._clock, self._most_bytes = SystemClock(), most_bytes
        self._store = LocalStore(self._folder)
        self._mirrors: dict[str, GraphMirror] = {}
        self._checking: Iterator[tuple[GraphMirror, Path]] = iter(())
        self._status, self._damaged = ReplicaStatus(), 0
        self._failure: GitopsError | None = None
        # Whether the texts that the copied state refers to are here.
        self._sure = False
        self._since: dict[Path, datetime] = {}
        self._seen: tuple[int, int] | None = None
        self._read = ReplicaStatus()

    def open(self) -> None:
        """Create the folder.

        Raises UsageError `usage_error` if the cluster's storage is not a bucket, or the folder is for another one;
        GitopsError `storage_failed` for an unusable folder; the errors of `open_served`.
        """
        address = self._origin("graph")
        if not address.startswith("s3:"):
            detail = f"--read-replica copies a bucket, and {self._source.cluster} keeps its graphs in a folder"
            fix = "leave out --read-replica, because any server reads a folder directly"
            raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise GitopsError(Code.STORAGE_FAILED, system_reason(error, self._folder), path="--read-replica") from error
        if not self._store.create(_SOURCE, address.encode()) and self._store.read(_SOURCE) != address.encode():
            detail = f"{self._folder} is the copy of another cluster"
            raise UsageError(Code.USAGE_ERROR, detail, fix="name another folder: --read-replica DIR")

    @property
    def root(self) -> str:
        """The copy's storage root."""
        return str(self._folder / "copy")

    def stores(self, found: Diagnostics) -> Stores | None:
        """Return the copy's stores. A ledger on a branch is not copied. Raises the errors of `open_served`."""
        if self._source.repo is None:
            return open_served(replace(self._source, cluster=f"file://{self.root}"), found)
        stores = open_served(self._source, found)
        return None if stores is None else replace(stores, graph_uri=lambda graph: graph_uri(self.root, graph))

    def status(self) -> ReplicaStatus:
        """Return the newest status, regardless of which process wrote it."""
        try:
            now = os.stat(self._folder / _STATUS)  # noqa: PTH116 - called for every request
        except FileNotFoundError:
            return ReplicaStatus()
        seen = now.st_mtime_ns, now.st_ino
        if seen != self._seen:
            self._read, self._seen = self._stored(), seen
        return self._read

    def hold(self) -> bool:
        """Take the lock for copying, if no other process has it. Raises GitopsError `storage_failed`."""
        try:
            if self._copies.hold():
                return True
        except OSError as error:
            raise GitopsError(Code.STORAGE_FAILED, system_reason(error, self._folder), path="--read-replica") from error
        return False

    def release(self) -> None:
        """Let another process copy."""
        self._copies.release()

    def check(self) -> None:
        """Read all copied files, and remove damaged ones, which the next round copies again.

        Also removes files that do not belong to an applied graph. Call it only before graphs are served. Raises
        GitopsError.
        """
        self._status = self._stored()
        self._remove_others(timedelta(0))
        for name in self._status.graphs:
            self._count(self._mirror(name).check())

    def require(self) -> None:
        """Raise the first error of the last round, unless there are copies of the ledger and of all graphs."""
        status = self.status()
        if self._failure is not None and not all(
            (status.ledger_as_of, *(each.as_of for each in status.graphs.values()))
        ):
            raise self._failure

    def round(self) -> None:
        """Copy new content. Problems are recorded in the status, and logged when they begin and end."""
        begun, self._failure, self._status = self._now(), None, self._stored()
        try:
            documents, graphs = self._read_ledger()
        except GitopsError as error:
            self._say(self._status.code, error, "the ledger")
            self._write_status(replace(self._status, code=error.code.value))
            return
        copied, away = {name: self._status.graphs.get(name, CopiedGraph()) for name in graphs}, False
        self._status = replace(self._status, graphs=copied)
        self._check_some()
        for name, (at, failure) in zip(graphs, in_parallel(self._look, graphs, _AT_ONCE), strict=True):
            before = copied[name]
            try:
                if failure is not None:
                    raise failure
                copied[name] = CopiedGraph(self._mirror(name).follow(), at)
                self._say(before.code, None, f"graph {name}")
            except (GitopsError, OSError) as error:
                known = error if isinstance(error, GitopsError) else RemoteError(Code.STORAGE_FAILED, str(error))
                away = away or isinstance(known, RemoteError)
                copied[name] = replace(before, code=known.code.value)
                self._say(before.code, known, f"graph {name}")
        if not away:
            self._write_ledger(documents)
        self._say(self._status.code, None, "the ledger")
        as_of = self._status.ledger_as_of if away else begun
        self._write_status(replace(self._status, ledger_as_of=as_of, code=None, graphs=copied))
        if not away:
            self._remove_others(_READ_FOR)

    def _remove_others(self, after: timedelta) -> None:
        """Remove the copies of graphs that have not been applied for some time."""
        now = self._clock.now()
        held = [Path(graph_uri(self.root, name)).name for name in self._status.graphs]
        found = list(Path(self.root, "graphs").glob("*")) if held else []
        left = [each for each in found if not any(name in (each.name, each.name[1 : len(name) + 1]) for name in held)]
        self._since = {each: self._since.get(each, now) for each in left}
        for each, since in self._since.items():
            if now - since >= after:
                delete_tree(each)

    def _look(self, name: str) -> tuple[float, GitopsError | OSError | None]:
        """Look up the newest versions of a graph. Returns the time before that, and the problem, if any."""
        at = self._now()
        try:
            self._mirror(name).look()
        except (GitopsError, OSError) as error:
            return at, error
        return at, None

    def _mirror(self, name: str) -> GraphMirror:
        if name not in self._mirrors:
            place = Path(graph_uri(self.root, name))
            limits = MirrorLimits(self._most_bytes, self._clock.now)
            self._mirrors[name] = GraphMirror(self._origin(name), place, self._copies, limits)
        return self._mirrors[name]

    @cached_property
    def _copies(self) -> FileCopies:
        return FileCopies(self._folder)

    @cached_property
    def _root(self) -> str:
        """The storage root that is copied; empty for a cluster of a repository."""
        return "" if self._source.repo is not None else served_root(self._source, Diagnostics()) or ""

    @cached_property
    def _stores(self) -> Stores | None:
        """The stores of a cluster of a repository, whose ledger is not copied."""
        return None if self._source.repo is None else open_served(self._source, Diagnostics())

    def _origin(self, name: str) -> str:
        """Return the address of a graph that is copied."""
        return graph_uri(self._root, name) if self._stores is None else self._stores.graph_uri(name)

    def _read_ledger(self) -> tuple[dict[str, bytes], list[str]]:
        """Return the new documents of the ledger, and the applied graphs. Raises GitopsError."""
        if self._stores is not None:
            view = self._stores.ledger.view()
            return {}, _graphs(view.state)
        store, here = open_bucket(self._root), LocalStore(self.root)
        documents: dict[str, bytes] = {}

        def copy(key: str) -> None:
            data = store.read(key)
            if data is not None:
                documents[key] = data

        # Interrupted operations are listed before the state is read, as by every reader of a ledger.
        in_parallel(copy, [f"{layout.RECOVERIES}/{name}" for name in store.names(layout.RECOVERIES)], store.parallel)
        copy(layout.STATE)
        if layout.STATE not in documents:
            detail = f"{store.location} has no ledger"
            raise GitopsError(Code.CLUSTER_STATE_MISSING, detail, path=store.display(layout.STATE))
        view = view_of(documents[layout.STATE])
        if view.state is None:
            return documents, list(self._status.graphs)
        wanted = {
            key: recorded.digest
            for address, recorded in view.state.resources.items()
            if address.kind in (Kind.QUERY, Kind.POLICY)
            and (key := layout.blob_key(address, recorded.digest)) is not None
        }
        if self._sure and here.read(layout.STATE) == documents[layout.STATE]:
            return documents, _graphs(view.state)
        absent = [key for key, name in wanted.items() if (data := here.read(key)) is None or digest(data) != name]
        in_parallel(copy, absent, store.parallel)
        return documents, _graphs(view.state)

    def _write_ledger(self, documents: dict[str, bytes]) -> None:
        if self._stores is not None:
            return
        here = LocalStore(self.root)
        # The state is written after everything that it refers to, and interrupted operations are removed after it.
        for key in sorted(documents, key=lambda key: key == layout.STATE):
            if here.read(key) != documents[key]:
                here.write(key, documents[key])
        self._sure = True
        for name in here.names(layout.RECOVERIES):
            if f"{layout.RECOVERIES}/{name}" not in documents:
                here.delete(f"{layout.RECOVERIES}/{name}")

    def _check_some(self) -> None:
        """Read a part of the copied files, and begin again after the last one."""
        left = _CHECKED_BYTES
        while left > 0:
            found = next(self._checking, None)
            if found is None:
                self._checking = ((mirror, place) for mirror in [*self._mirrors.values()] for place in mirror.places())
                return
            mirror, place = found
            left -= place.stat().st_size if place.exists() else 0
            self._count(mirror.check([place]))

    def _count(self, damaged: int) -> None:
        if damaged:
            self._damaged += damaged
            self._log(f"{damaged} copied files are damaged, and are copied again")

    def _say(self, before: str | None, error: GitopsError | None, what: str) -> None:
        self._failure = self._failure or error
        if error is None and before is not None:
            self._log(f"{what} is copied again")
        elif error is not None and before != error.code.value:
            self._log(f"{what} is not copied: {error.code}: {error.detail}")

    def _stored(self) -> ReplicaStatus:
        return ReplicaStatus.of_bytes(self._store.read(_STATUS) or b"")

    def _write_status(self, status: ReplicaStatus) -> None:
        copied = [each.take_copied() for each in self._mirrors.values()]
        self._status = replace(
            status,
            held_bytes=self._copies.reclaim(),
            most_bytes=self._most_bytes,
            copied_files=status.copied_files + sum(files for files, _ in copied),
            copied_bytes=status.copied_bytes + sum(size for _, size in copied),
            damaged_files=status.damaged_files + self._damaged,
        )
        self._damaged = 0
        self._store.write(_STATUS, self._status.to_bytes())

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _graphs(state: LedgerState | None) -> list[str]:
    resources = () if state is None else state.resources
    return sorted(each.name for each in resources if each.kind is Kind.GRAPH and is_name(each.name))
