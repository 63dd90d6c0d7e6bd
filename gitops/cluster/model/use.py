"""Recorded use: which clients call which stored queries, as query servers count them and plans read them.

1. A server counts successful calls of stored queries by revision, query, shape of the parameters and client, for each
   day in UTC. A shape has the names of the given parameters and the JSON types of their values, never the values. A
   call reads all columns of its query, because no API of the server lets a client select columns.
2. A count explains a plan. The gate `breaks_clients` and its list of clients decide.
3. Only complete records can show that a query has no callers. A day without a record, a record that is missing or not
   trusted, and counts that may lack a client all mean that more clients may be affected than are listed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from heapq import heapify, heappop, heappush, nlargest
from typing import Any, Generic, NamedTuple, TypeVar

from gitops.cluster.model.address import Address
from gitops.core.clock import parse_timestamp
from gitops.core.dataclass import dataclass

USE_NAMESPACE = "gitops-use"
"""The namespace of signatures of record objects, so that no other signature of a key can become one."""

MOST_KEYS = 5000
"""Maximum number of keys that are counted for a graph."""

KEPT_DAYS = 90
"""How many days record objects are kept."""

MOST_WINDOW_DAYS = 60
"""The longest window of a plan. It is shorter than the time for which records are kept."""

_MINUTES, _HOURS, _DAYS = 60, 3600, 86_400
_SHOWN = 5
_HASH_LENGTH = 12

K = TypeVar("K", bound=tuple[object, ...])


class UseKey(NamedTuple):
    """A key of the counts: the digest of the served revision, a query, a shape of parameters, and a client."""

    revision: str
    query: str
    parameters: tuple[str, ...]
    client: str


class UseCount(NamedTuple):
    """The counted calls of one key. At most `error` of them are not its own. `last` is the time of the last call."""

    revision: str
    query: str
    parameters: tuple[str, ...]
    client: str
    calls: int
    error: int
    last: str

    @property
    def key(self) -> UseKey:
        """The counted key."""
        return UseKey(self.revision, self.query, self.parameters, self.client)


class Tally(NamedTuple):
    """A count of a sketch, the largest part of it that belongs to other keys, and the time of the last call."""

    calls: int
    error: int
    last: str


class CallSketch(Generic[K]):
    """Counts of calls by key that need bounded space.

    Up to `capacity` different keys, the counts are exact. After that, a new key takes the place of the one with the
    smallest count and inherits this count as its error (the space-saving algorithm of Metwally, Agrawal and El Abbadi,
    2005). Of N calls in total, for every key:

        calls - error <= its real number of calls <= calls,   error <= floor,   floor <= N / capacity

    and a key that is not in the sketch was called at most `floor` times. So counts of an overfull sketch are upper
    bounds. Merging keeps all of these bounds (Agarwal et al., Mergeable Summaries, 2012) and is commutative.
    """

    def __init__(self, capacity: int = MOST_KEYS) -> None:
        self._capacity = capacity
        self._held: dict[K, Tally] = {}
        self._heap: list[tuple[int, K]] = []
        self.floor = 0
        """The largest number of calls that a key outside of the sketch can have. 0 means that all counts are exact."""

    def __len__(self) -> int:
        return len(self._held)

    def items(self) -> Iterator[tuple[K, Tally]]:
        """Yield the keys with their counts, sorted by key."""
        yield from sorted(self._held.items())

    @property
    def calls(self) -> int:
        """The sum of the counts. With an exact sketch, this is the number of calls."""
        return sum(each.calls for each in self._held.values())

    def add(self, key: K, calls: int, last: str) -> None:
        """Count calls of one key, the last of them at a time."""
        known = self._held.get(key)
        if known is not None:
            self._held[key] = Tally(known.calls + calls, known.error, max(known.last, last))
            return
        taken = self.floor
        if len(self._held) >= self._capacity:
            taken = self.floor = self._evict()
        self._held[key] = Tally(taken + calls, taken, last)
        heappush(self._heap, (taken + calls, key))

    def merge(self, counts: Iterable[tuple[K, Tally]], floor: int) -> None:
        """Add the counts and the floor of another sketch."""
        added = dict(counts)
        for key, other in added.items():
            own = self._held.get(key) or Tally(self.floor, self.floor, "")
            self._held[key] = Tally(own.calls + other.calls, own.error + other.error, max(own.last, other.last))
        if floor:
            for key in self._held.keys() - added.keys():
                own = self._held[key]
                self._held[key] = Tally(own.calls + floor, own.error + floor, own.last)
        self.floor += floor
        if len(self._held) > self._capacity:
            # Ties are decided by the keys, so that the order of merging does not matter.
            first = nlargest(self._capacity + 1, self._held.items(), key=lambda item: (item[1].calls, item[0]))
            self.floor = max(self.floor, first.pop()[1].calls)
            self._held = dict(first)
        self._heap = [(each.calls, key) for key, each in self._held.items()]
        heapify(self._heap)

    def _evict(self) -> int:
        """Remove a key with the smallest count, and return this count."""
        while True:
            calls, key = heappop(self._heap)
            held = self._held.get(key)
            if held is None:
                continue
            if held.calls == calls:
                del self._held[key]
                return calls
            # The key was counted again since.
            heappush(self._heap, (held.calls, key))


class ClientNames(StrEnum):
    """How clients are written into records: by their names, or as digests that only allow comparing them."""

    NAMED = "named"
    HASHED = "hashed"


@dataclass(frozen=True, slots=True)
class UseRules:
    """What a server records by the rules in force: for which cluster of which repository, and how it writes clients.

    `keys` are the public keys whose record objects count, as base64. The rules can be sent to another process as JSON.
    """

    repository: str
    cluster: str
    clients: ClientNames
    keys: tuple[str, ...]

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the rules as JSON."""
        return {
            "repository": self.repository,
            "cluster": self.cluster,
            "clients": self.clients.value,
            "keys": list(self.keys),
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> UseRules:
        """Rebuild the rules from the JSON that `form` returned."""
        return cls(form["repository"], form["cluster"], ClientNames(form["clients"]), tuple(form["keys"]))


def hashed_client(client: str, incarnation: str) -> str:
    """Return the digest that stands for a client of one graph.

    It hides the name from readers of a comment. Whoever can guess a name can check the guess.
    """
    data = f"gitops-client\n{incarnation}\n{client}".encode()
    return f"client-{hashlib.sha256(data).hexdigest()[:_HASH_LENGTH]}"


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """A record object that a server found when it began its own, with the calls that it had by then."""

    segment: str
    day: str
    calls: int


@dataclass(frozen=True, slots=True)
class UseRecord:
    """The calls of a graph that one process of a server counted on one day, in UTC.

    `incarnation` is the id of the graph's creation. `segment` is unique for each record, so that two processes never
    write the same object. `knows` are the records of other processes that it found, so that a reader can find out that
    one of them is missing. `floor` is that of the sketch.
    """

    repository: str
    cluster: str
    graph: str
    incarnation: str
    server: str
    segment: str
    day: str
    clients: ClientNames
    floor: int
    knows: tuple[KnownSegment, ...]
    counts: tuple[UseCount, ...]

    @property
    def calls(self) -> int:
        """The sum of the counts."""
        return sum(each.calls for each in self.counts)

    def dated(self, day: str) -> UseRecord:
        """Return the same record on another day."""
        return replace(self, day=day)


# -- what a plan knows about the use of a graph ------------------------------------------------------------------------


class UseState(StrEnum):
    """Whether the calls of a graph are known.

    COUNTED: from record objects. NOT_RECORDED: recording is off, or there is no object. UNREADABLE: the storage failed.
    ELSEWHERE: this machine may not read the storage of the graph.
    """

    COUNTED = "counted"
    NOT_RECORDED = "not_recorded"
    UNREADABLE = "unreadable"
    ELSEWHERE = "not_counted_here"


class QueryCalls(NamedTuple):
    """The calls of a query by one client with one shape of parameters, in a window."""

    query: str
    parameters: tuple[str, ...]
    client: str
    calls: int
    last: str


@dataclass(frozen=True, slots=True)
class RecordedUse:
    """The recorded calls of a graph in the last `days` days before the time `at`, an RFC 3339 time.

    `gap` says which part of that time is not recorded; empty if all of it is. `floor` is the largest number of calls
    that a client outside of the counts can have, and `untrusted` is the number of objects that were refused. If clients
    are hashed, `hashed_for` is the incarnation of the graph.
    """

    state: UseState
    days: int = 0
    at: str = ""
    calls: tuple[QueryCalls, ...] = ()
    gap: str = ""
    floor: int = 0
    untrusted: int = 0
    hashed_for: str = ""


@dataclass(frozen=True, slots=True)
class ClientCalls:
    """A client with its calls in the window, and the time of the last one."""

    client: str
    calls: int
    last: str


@dataclass(frozen=True, slots=True)
class Callers:
    """The clients that a change breaks, most calls first, as far as this is recorded. See `RecordedUse` for the rest."""

    state: UseState
    clients: tuple[ClientCalls, ...] = ()
    days: int = 0
    at: str = ""
    gap: str = ""
    floor: int = 0
    untrusted: int = 0
    hashed_for: str = ""

    @property
    def complete(self) -> bool:
        """Whether these are all clients with a call in the window."""
        return self.state is UseState.COUNTED and not (self.gap or self.floor or self.untrusted)

    def with_those(self, others: Callers) -> Callers:
        """Return the clients of two graphs together. The result is complete only if both inputs are."""
        calls: dict[str, ClientCalls] = {each.client: each for each in self.clients}
        for each in others.clients:
            own = calls.get(each.client, ClientCalls(each.client, 0, ""))
            calls[each.client] = ClientCalls(each.client, own.calls + each.calls, max(own.last, each.last))
        worst = max(self.state, others.state, key=tuple(UseState).index)
        return replace(
            self,
            state=worst,
            clients=tuple(sorted(calls.values(), key=lambda c: (-c.calls, c.client))),
            gap=self.gap or others.gap,
            floor=self.floor + others.floor,
            untrusted=self.untrusted + others.untrusted,
            hashed_for=self.hashed_for or others.hashed_for,
        )

    @property
    def words(self) -> str:
        """Describe the clients in one line. Nothing recorded is never described as safe."""
        if self.state is not UseState.COUNTED:
            return _STATES[self.state]
        parts = [self._hit if self.clients else f"no recorded call in {_days(self.days)}", self.gap]
        if self.floor:
            most = f"a client with up to {self.floor:,} calls may be missing"
            parts.append(f"there are more clients than are counted, so counts are upper bounds, and {most}")
        if self.untrusted:
            said = "1 record is" if self.untrusted == 1 else f"{self.untrusted} records are"
            parts.append(f"{said} not trusted and not counted")
        return "; ".join(filter(None, parts))

    @property
    def _hit(self) -> str:
        number = len(self.clients)
        shown = ", ".join(f"{each.client} ({self._often(each)})" for each in self.clients[:_SHOWN])
        more = f" and {number - _SHOWN} more" if number > _SHOWN else ""
        return f"breaks {number} client{'' if number == 1 else 's'}: {shown}{more}"

    def _often(self, client: ClientCalls) -> str:
        # The window has whole days and the part of today until now.
        now = parse_timestamp(self.at)
        today = 0.0 if now is None else (now.hour * _HOURS + now.minute * _MINUTES) / _DAYS
        a_day = round(client.calls / max(1.0, self.days + today))
        number, unit = (a_day, "a day") if a_day else (client.calls, f"in {_days(self.days)}")
        ago = _ago(client.last, self.at)
        return f"{number:,} call{'' if number == 1 else 's'} {unit}{ago and f', last {ago} ago'}"


@dataclass(frozen=True, slots=True)
class SeenCallers:
    """The recorded clients that a plan read for a change to `resource`, which the digests identify."""

    resource: Address
    before: str | None
    after: str | None
    callers: Callers


_STATES = {
    UseState.NOT_RECORDED: "callers are not recorded",
    UseState.UNREADABLE: "callers are not known, because the records cannot be read",
    UseState.ELSEWHERE: "calls are not counted here",
}


def _days(number: int) -> str:
    return "1 day" if number == 1 else f"{number} days"


def _ago(last: str, at: str) -> str:
    """Return the time from `last` until `at` in its largest unit, or an empty text if it is not known."""
    then, now = parse_timestamp(last), parse_timestamp(at)
    if then is None or now is None:
        return ""
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((_DAYS, "d"), (_HOURS, "h")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{max(1, seconds // _MINUTES)} min"


# -- from records to the use of a graph --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UseWindow:
    """The days of a plan at a time: the `days` whole days before, and today."""

    at: datetime
    days: int

    @property
    def today(self) -> date:
        """The day in UTC."""
        return self.at.date()

    @property
    def first(self) -> date:
        """The first day."""
        return self.today - timedelta(days=self.days)

    def has(self, day: str) -> bool:
        """Whether a record of this day counts. Days in the future do, because they come from a server with a wrong clock."""
        return day >= self.first.isoformat()


@dataclass(slots=True)
class UseReading:
    """Adds up the records of one graph. `capacity` is as for a sketch."""

    window: UseWindow
    capacity: int = MOST_KEYS
    _records: dict[str, UseRecord] = field(default_factory=dict)

    def add(self, record: UseRecord) -> None:
        """Add a record. Of two with the same segment, one was dated again, and the one with more calls counts."""
        known = self._records.get(record.segment)
        if known is None or (known.calls, known.day) < (record.calls, record.day):
            self._records[record.segment] = record

    def use(self, at: str, incarnation: str, untrusted: int = 0) -> RecordedUse:
        """Return the use of the graph at the time `at`."""
        if not self._records:
            return RecordedUse(UseState.NOT_RECORDED, self.window.days, at, untrusted=untrusted)
        sketch: CallSketch[tuple[str, tuple[str, ...], str]] = CallSketch(self.capacity)
        hashed = False
        for _, record in sorted(self._records.items()):
            hashed = hashed or record.clients is ClientNames.HASHED
            found: dict[tuple[str, tuple[str, ...], str], Tally] = {}
            for each in record.counts:
                key = each.query, each.parameters, each.client
                own = found.get(key, Tally(0, 0, ""))
                found[key] = Tally(own.calls + each.calls, own.error + each.error, max(own.last, each.last))
            sketch.merge(found.items(), record.floor)
        return RecordedUse(
            UseState.COUNTED,
            self.window.days,
            at,
            tuple(QueryCalls(*key, tally.calls, tally.last) for key, tally in sketch.items()),
            self._gap(),
            sketch.floor,
            untrusted,
            incarnation if hashed else "",
        )

    def _gap(self) -> str:
        """Return which part of the window is not recorded, in words."""
        window, records = self.window, self._records
        known = {each.segment: each for record in records.values() for each in record.knows if window.has(each.day)}
        lost = [s for s, each in known.items() if s not in records or records[s].calls < each.calls]
        if lost:
            return f"{len(lost)} of its records {'is' if len(lost) == 1 else 'are'} missing"
        covered = {record.day for record in records.values()}
        wanted = [(window.first + timedelta(days=number)).isoformat() for number in range(window.days)]
        # In the first minutes of a day, its records are not written yet.
        if window.at.hour or window.at.minute >= _LATE_MINUTES:
            wanted.append(window.today.isoformat())
        missing = [day for day in wanted if day not in covered]
        if not missing:
            return ""
        if missing == wanted[-len(missing) :]:
            return f"not recorded since {missing[0]}"
        if missing == wanted[: len(missing)]:
            return f"recorded only since {wanted[len(missing)]}"
        return f"not recorded on {_days(len(missing))}, such as {missing[0]}"


_LATE_MINUTES = 10


# -- clients that a change affects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallerRules:
    """Which clients count for a plan: those with at least `min_calls` in the window of `days`, except the `ignored`.

    Clients in `may_break` don't need an approval.
    """

    days: int = 7
    ignored: frozenset[str] = frozenset()
    min_calls: int = 1
    may_break: frozenset[str] = frozenset()


def _as_recorded(clients: Collection[str], hashed_for: str) -> frozenset[str]:
    """Return clients of the rules in the forms in which records can have them."""
    hashed = {hashed_client(each, hashed_for) for each in clients} if hashed_for else set[str]()
    return frozenset(clients) | hashed


def callers_in(use: RecordedUse, calls: Iterable[QueryCalls], rules: CallerRules) -> Callers:
    """Return the clients behind some calls of a graph, with all of these calls."""
    ignored = _as_recorded(rules.ignored, use.hashed_for)
    found: dict[str, ClientCalls] = {}
    for each in calls:
        if each.client not in ignored:
            own = found.get(each.client, ClientCalls(each.client, 0, ""))
            found[each.client] = ClientCalls(each.client, own.calls + each.calls, max(own.last, each.last))
    hit = sorted((c for c in found.values() if c.calls >= rules.min_calls), key=lambda c: (-c.calls, c.client))
    # A client that is not counted has fewer calls than a plan asks for.
    floor = use.floor if use.floor >= rules.min_calls else 0
    return Callers(use.state, tuple(hit), use.days, use.at, use.gap, floor, use.untrusted, use.hashed_for)


def why_asked(callers: Callers, may_break: Collection[str]) -> str:
    """Return why a change that breaks these clients needs an approval, or an empty text if it does not.

    It does if a client is not in `may_break`, or if it is not known whether there are more clients.
    """
    permitted = _as_recorded(may_break, callers.hashed_for)
    if any(each.client not in permitted for each in callers.clients):
        return "it breaks a client that approvals.may_break does not list"
    return "" if callers.complete else "it may break a client, because the record of its calls is not complete"


def callers_moved(approved: Callers | None, now: Callers | None, allowed: Callable[[int], int]) -> str:
    """Return why an approval that saw `approved` does not cover the clients `now`, or an empty text if it does.

    `allowed` returns how many calls an approval of this many calls covers. An approval that was given although the
    clients were not counted covers all of them. Counts that are not known here are compared by the run that reads them.
    """
    if approved is None or now is None or now.state is UseState.ELSEWHERE or approved.state is not UseState.COUNTED:
        return ""
    if approved.complete and not now.complete:
        return f"its approver saw complete records, and now: {now.words}"
    seen = {each.client: each.calls for each in approved.clients}
    for each in now.clients:
        if each.client not in seen:
            return f"it also breaks {each.client} now, which its approver did not see"
        if each.calls > allowed(seen[each.client]):
            return f"{each.client} made {seen[each.client]:,} calls at the approval, and {each.calls:,} now"
    return ""
