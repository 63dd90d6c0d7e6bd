"""Records who calls which stored query, for plans that change it (`gitops.cluster.model.use`).

1. A call only adds one to a number in memory. Everything else happens once a minute, in a separate thread.
2. Each process writes one object per graph and day, which it replaces while it counts. So several processes and servers
   never write the same object, and a crash loses at most the last minute.
3. A failed write never fails a call. It is logged, counted, and repeated a minute later with all calls since.
4. Days come from a clock that ignores jumps of less than an hour. Objects with a day in the future, which would never
   become old, are dated again.
5. The first object of a day names those of other processes, so that a plan notices if one of them is removed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from gitops.cluster.ledger.use import UseRecords, UseSource
from gitops.cluster.model.use import (
    CallSketch,
    ClientNames,
    KnownSegment,
    UseCount,
    UseKey,
    UseRecord,
    UseRules,
    UseWindow,
    hashed_client,
)
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_line
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults, around
from gitops.render.characters import visible

if TYPE_CHECKING:
    from gitops.serving.generation import Generation, ServedGraph

EVERY_S = 60.0
"""How often counts are written."""
_JUMP_S, _HELD_S = 60.0, 3600.0
_STOP_S = 5.0
_MOST_UNWRITTEN, _MOST_KNOWN = 100, 1000
# Calls wait while a full buffer is emptied, so it is small.
_MOST_BUFFERED = 1000
_JSON_TYPES: Mapping[type, str] = {
    str: "text",
    bool: "boolean",
    int: "number",
    float: "number",
    list: "list",
    dict: "object",
    type(None): "null",
}


class SteadyClock:
    """A wall clock that ignores jumps until the new time has been stable for an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._measured()
        self._moved: tuple[float, float] | None = None

    def now(self) -> datetime:
        """Return the time. Call it about once a minute, because it compares the two clocks each time."""
        offset, running = self._measured(), self._clock.monotonic()
        if abs(offset - self._offset) <= _JUMP_S:
            # Corrections of a few seconds are followed.
            self._offset, self._moved = offset, None
        elif self._moved is None or abs(offset - self._moved[0]) > _JUMP_S:
            self._moved = offset, running
        elif running - self._moved[1] >= _HELD_S:
            self._offset, self._moved = offset, None
        return datetime.fromtimestamp(self._offset + running, UTC)

    @property
    def settled(self) -> bool:
        """Whether the wall time has not jumped within the last hour."""
        return self._moved is None

    def _measured(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()


class RecordKey(NamedTuple):
    """A server's key for records: the base64 of its public half, and a function that signs in the namespace of records."""

    public: str
    sign: Callable[[bytes], str]


@dataclass(slots=True)
class _Segment:
    """The object that this process writes for one graph on one day."""

    rules: UseRules
    graph: str
    incarnation: str
    day: str
    segment: str
    knows: tuple[KnownSegment, ...]
    sketch: CallSketch[UseKey] = field(default_factory=CallSketch)
    written: bool = False

    def record(self, server: str) -> UseRecord:
        """Return the record as it is now."""
        return UseRecord(
            repository=self.rules.repository,
            cluster=self.rules.cluster,
            graph=self.graph,
            incarnation=self.incarnation,
            server=server,
            segment=self.segment,
            day=self.day,
            clients=self.rules.clients,
            floor=self.sketch.floor,
            knows=self.knows,
            counts=tuple(UseCount(*key, *tally) for key, tally in self.sketch.items()),
        )


class UseRecorder:
    """Counts the calls of one process. `count` is for its event loop, all other methods are for a single thread."""

    def __init__(
        self,
        current: Callable[[], Generation],
        server: str,
        open_records: Callable[[], UseRecords | None],
        key: RecordKey | None,
        clock: Clock,
        ids: IdSource,
        log: logging.Logger,
        note: Callable[[str], None] = lambda _: None,
        faults: Faults | None = None,
    ) -> None:
        """`current` returns the served generation, and `note` is called with the result of each write.

        `open_records` returns the place for records; None if there is none. Without `key`, nothing is recorded.
        """
        self._current, self._server, self._open, self._key = current, server, open_records, key
        self._clock, self._steady, self._ids, self._log, self._note = clock, SteadyClock(clock), ids, log, note
        self._faults = faults or NoFaults()
        self._lock = threading.Lock()
        self._buffer: dict[tuple[Any, ...], int] = {}
        self._pending: dict[tuple[str, str], CallSketch[UseKey]] = {}
        self._segments: dict[tuple[str, str], _Segment] = {}
        self._unwritten: list[_Segment] = []
        self._records: UseRecords | None = None
        self._began, self._cleaned = clock.monotonic(), ""
        self._problem, self._failure = "", ""
        self._stamp = timestamp(self._steady.now())
        self._able = key is not None

    def count(
        self, generation: Generation, graph: ServedGraph, query: str, params: Mapping[str, Any] | None, client: str
    ) -> None:
        """Count one successful call of a stored query. `client` is the actor, or the name that the client gave itself."""
        if generation.use is None or not self._able or graph.seen is None:
            return
        names = tuple(params) if params else ()
        types = tuple(map(type, params.values())) if params else ()
        key = graph.graph_id, graph.seen.incarnation, generation.revision.digest, query, client, names, types
        with self._lock:
            self._buffer[key] = self._buffer.get(key, 0) + 1
            if len(self._buffer) >= _MOST_BUFFERED:
                self._drain()

    def look(self) -> None:
        """Write the counts since the last call. Never raises."""
        try:
            self._look()
        except GitopsError as error:
            self._failed(f"{error.code} {error.path or ''}: {error.detail}")
        except Exception as error:  # noqa: BLE001 - a later attempt writes all counts, and calls are answered meanwhile
            self._failed(f"{type(error).__name__}: {error}")

    def run(self, stopped: threading.Event) -> None:
        """Write every minute until stopped, then write once more."""
        while True:
            self.look()
            if stopped.wait(EVERY_S):
                break
        self.look()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write in a separate thread during the block. When the server stops, it does not wait long for slow storage."""
        stopped = threading.Event()
        thread = threading.Thread(target=self.run, args=(stopped,), name="use", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join(_STOP_S)

    def _look(self) -> None:
        generation, now = self._current(), self._steady.now()
        rules, self._stamp = generation.use, timestamp(now)
        self._able = self._may_record(rules)
        with self._lock:
            self._drain()
            if rules is None or not self._able:
                self._pending = {}
        if rules is None or self._key is None or not self._able:
            return
        self._records = self._records or self._open()
        if self._records is None:
            return
        # A day without calls has a record, too, which shows that there were none.
        served = {(name, each.seen.incarnation) for name, each in generation.graphs.items() if each.seen is not None}
        places = sorted(served.union(self._pending))
        # This can fail, and then the calls stay for the next attempt.
        self._begin(self._records, rules, places, now)
        for place in places:
            with self._lock:
                counted = self._pending.pop(place, None)
            if counted is not None:
                segment = self._segments[place]
                segment.sketch.merge(counted.items(), counted.floor)
                segment.written = False
        self._write(self._records, self._key)
        self._clean(self._records, self._key, generation, now)
        if self._failure:
            self._log.info("calls are recorded again")
        self._failure = ""

    def _drain(self) -> None:
        """Move what was counted from the buffer to sketches, which are bounded. Called with the lock."""
        taken, self._buffer = self._buffer, {}
        rules = self._current().use
        hashed = rules is not None and rules.clients is ClientNames.HASHED
        for (graph, incarnation, revision, query, client, names, types), number in taken.items():
            shape = sorted(
                f"{name}: {_JSON_TYPES.get(kind, 'object')}" for name, kind in zip(names, types, strict=True)
            )
            named = not hashed and is_line(client)
            key = UseKey(revision, query, tuple(shape), client if named else hashed_client(client, incarnation))
            self._pending.setdefault((graph, incarnation), CallSketch()).add(key, number, self._stamp)

    def _may_record(self, rules: UseRules | None) -> bool:
        """Return whether records of this server would count, and log why not."""
        problem = ""
        if rules is None:
            problem = "" if self._key is None else "serve.record of the rules in force is off"
        elif self._key is None:
            problem = "the rules in force record calls; start the server with --record-key FILE"
        elif self._key.public not in rules.keys:
            problem = "serve.record_keys of the rules in force does not list the key of --record-key"
        if problem and problem != self._problem:
            self._log.warning("%s", f"calls are not recorded: {problem}")
        self._problem = problem
        return not problem

    def _begin(self, records: UseRecords, rules: UseRules, places: Sequence[tuple[str, str]], now: datetime) -> None:
        """Begin the segments of graphs, with their incarnations, whose day, rules or incarnation are new.

        A segment names the records of yesterday and today that others, or this process, have written.
        """
        day = now.date().isoformat()
        new = [
            each
            for each in places
            if (known := self._segments.get(each)) is None or (known.day, known.rules) != (day, rules)
        ]
        found = records.read([UseSource(rules, *each) for each in new], UseWindow(now, 1)) if new else {}
        for graph, incarnation in new:
            others = [each for each in found[graph].records if each.incarnation == incarnation]
            knows = {each.segment: KnownSegment(each.segment, each.day, each.calls) for each in others[:_MOST_KNOWN]}
            known = self._segments.get((graph, incarnation))
            if known is not None:
                # Its object may have been removed already.
                knows[known.segment] = KnownSegment(known.segment, known.day, known.sketch.calls)
                self._unwritten += [] if known.written else [known]
            segment = _Segment(rules, graph, incarnation, day, self._ids.ulid(), tuple(knows.values()))
            self._segments[graph, incarnation] = segment
        current = set(places)
        self._unwritten += [each for place, each in self._segments.items() if place not in current and not each.written]
        self._segments = {place: each for place, each in self._segments.items() if place in current}

    def _write(self, records: UseRecords, key: RecordKey) -> None:
        self._unwritten = self._unwritten[-_MOST_UNWRITTEN:]
        for segment in [*self._unwritten, *self._segments.values()]:
            if segment.written:
                continue
            with around(self._faults, "use_record", "write"):
                records.write(segment.record(self._server), key.sign)
            segment.written = True
            self._note("written")
        self._unwritten = []

    def _clean(self, records: UseRecords, key: RecordKey, generation: Generation, now: datetime) -> None:
        """Once a day, remove old objects and date those in the future again, but not by a clock that has just jumped."""
        today = now.date()
        ready = self._steady.settled and self._clock.monotonic() - self._began >= _HELD_S
        if generation.use is None or not ready or self._cleaned == today.isoformat():
            return
        records.remove_old(today)
        tomorrow, own = (today + timedelta(days=1)).isoformat(), {s.segment for s in self._segments.values()}
        served = [(name, each.seen.incarnation) for name, each in generation.graphs.items() if each.seen is not None]
        found = records.read([UseSource(generation.use, *each) for each in served], UseWindow(now, 1))
        for each in (record for listing in found.values() for record in listing.records):
            if each.day > tomorrow and each.segment not in own:
                records.redate(each, today, key.sign)
        self._cleaned = today.isoformat()

    def _failed(self, why: str) -> None:
        self._note("failed")
        if why != self._failure:
            self._log.warning(
                "%s", visible(f"counts of calls cannot be written, and are kept for the next attempt: {why}")
            )
        self._failure = why
