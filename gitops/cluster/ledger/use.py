"""Record objects: the use of a graph, as query servers wrote it next to the graphs.

    <storage root>/__cluster/use/<day>.<graph>.<segment>.json

They are next to the reports of servers and not inside a graph, because a server that has not noticed that a graph was
deleted would otherwise create its folder again.

Every account with write access to the storage root can write an object. So an object counts only if a key that the rules
in force list signed it for this repository, cluster, graph, incarnation, day and segment, and its place has the same
ones. Anything else is refused with `record_untrusted`, and the records of the graph are then not complete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.use import (
    KEPT_DAYS,
    USE_NAMESPACE,
    ClientNames,
    KnownSegment,
    RecordedUse,
    UseCount,
    UseReading,
    UseRecord,
    UseRules,
    UseWindow,
)
from gitops.core.canonical import canonical
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    DIGEST,
    LINE,
    TEXT,
    TIME,
    ULID,
    Form,
    Members,
    enum,
    integer,
    list_of,
    record,
    text_form,
)
from gitops.core.errors import IntegrityError
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore
from gitops.git.port import CommitSignature

MOST_OBJECTS = 20_000
"""Maximum number of objects of a graph that are read."""

_LIMIT = 8 * 1024 * 1024
_NAME = re.compile(r"(\d{4}-\d{2}-\d{2})\.([0-9A-Za-z_-]{1,128})\.([0-9A-Z]{26})\.json\Z", re.ASCII)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


_DAY = text_form(_is_day, "a day such as 2026-01-31")
_COUNT: Members = {
    "revision": DIGEST,
    "query": LINE,
    "parameters": list_of(LINE),
    "client": LINE,
    "calls": integer(1),
    "error": integer(),
    "last": TIME,
}
_RECORD: Form[UseRecord] = record(
    UseRecord,
    {
        "repository": LINE,
        "cluster": LINE,
        "graph": LINE,
        "incarnation": LINE,
        "server": LINE,
        "segment": ULID,
        "day": _DAY,
        "clients": enum(ClientNames),
        "floor": integer(),
        "knows": list_of(record(KnownSegment, {"segment": ULID, "day": _DAY, "calls": integer()})),
        "counts": list_of(record(UseCount, _COUNT)),
    },
)


@dataclass(frozen=True, slots=True)
class _Signed:
    """A record, and the signature of its canonical form."""

    record: UseRecord
    signature: str


USE_OBJECT = Document(
    versions={1: record(_Signed, {"record": _RECORD, "signature": TEXT})}, code=Code.RECORD_UNTRUSTED, limit=_LIMIT
)


def _payload(found: UseRecord) -> bytes:
    """Return the bytes that the signature of a record covers."""
    return canonical({"version": 1, "record": _RECORD.write(found)})


def write_use_object(found: UseRecord, sign: Callable[[bytes], str]) -> bytes:
    """Return the bytes of a record object. `sign` returns an armored signature in the namespace of records."""
    return USE_OBJECT.write(_Signed(found, sign(_payload(found))))


VerifySignature = Callable[[bytes, str, str], CommitSignature]
"""Checks an armored signature over bytes in a namespace."""


def read_use_object(data: bytes, keys: Collection[str], verify: VerifySignature) -> UseRecord:
    """Return the record in an object. Raises IntegrityError `record_untrusted` unless one of the keys signed it."""
    signed = USE_OBJECT.read(data)
    signature = verify(_payload(signed.record), signed.signature, USE_NAMESPACE)
    if not signature.good:
        raise IntegrityError(Code.RECORD_UNTRUSTED, signature.problem)
    if signature.key not in keys:
        raise IntegrityError(Code.RECORD_UNTRUSTED, "its key is not in serve.record_keys of the rules in force")
    return signed.record


def use_rules(view: LedgerView) -> UseRules | None:
    """Return how servers record calls by the rules in force, or None if they don't."""
    trust, entry = view.trust, view.entry
    if trust is None or entry is None or trust.recording != "counts":
        return None
    target = entry.target if entry.scope is None else entry.scope.target
    names = ClientNames(trust.record_clients)
    return UseRules(target.repository, target.cluster, names, tuple(sorted(trust.signs_records)))


@dataclass(frozen=True, slots=True)
class UseSource:
    """What trusted records are about: one incarnation of a graph, under the rules of its cluster."""

    rules: UseRules
    graph: str
    incarnation: str


class _Place(NamedTuple):
    """A record object by its name."""

    day: str
    graph: str
    segment: str

    @property
    def key(self) -> str:
        """The storage key."""
        return layout.use_key(self.day, self.graph, self.segment)


@dataclass(frozen=True, slots=True)
class RefusedObject:
    """An object that does not count, with its place and the reason."""

    place: str
    detail: str


@dataclass(frozen=True, slots=True)
class UseListing:
    """The use of a graph, the records behind it, and the objects that were refused."""

    use: RecordedUse
    records: tuple[UseRecord, ...] = ()
    refused: tuple[RefusedObject, ...] = ()


class UseRecords:
    """The record objects in one storage root, which is opened on first use. Methods raise the store's errors."""

    def __init__(self, open_store: Callable[[], ObjectStore], verify: VerifySignature) -> None:
        """`open_store` opens the storage root."""
        self._open, self._verify = open_store, verify
        self._opened: ObjectStore | None = None

    def read(self, sources: Iterable[UseSource], window: UseWindow) -> dict[str, UseListing]:
        """Return the recorded use of graphs in a window, by graph. The objects are listed once."""
        places: dict[str, list[_Place]] = {}
        for each in self._places():
            if window.has(each.day):
                places.setdefault(each.graph, []).append(each)
        return {source.graph: self._read(source, places.get(source.graph, []), window) for source in sources}

    def _read(self, source: UseSource, places: Sequence[_Place], window: UseWindow) -> UseListing:
        found = in_parallel(lambda each: self._one(each, source), places[:MOST_OBJECTS], self._store.parallel)
        refused = [each for each in found if isinstance(each, RefusedObject)]
        if places[MOST_OBJECTS:]:
            refused.append(RefusedObject(layout.USE, f"of {len(places):,} objects only {MOST_OBJECTS:,} are read"))
        records = tuple(each for each in found if isinstance(each, UseRecord))
        reading = UseReading(window)
        for each in records:
            reading.add(each)
        use = reading.use(timestamp(window.at), source.incarnation, len(refused))
        return UseListing(use, records, tuple(refused))

    def write(self, found: UseRecord, sign: Callable[[bytes], str]) -> None:
        """Write a record in place of its earlier object. No other process writes an object of the same segment."""
        self._store.write(_Place(found.day, found.graph, found.segment).key, write_use_object(found, sign))

    def newest_days(self) -> dict[str, str]:
        """Return the newest day with an object of each graph that has one, trusted or not."""
        return {each.graph: each.day for each in sorted(self._places())}

    def remove_old(self, today: date) -> int:
        """Remove the objects of all graphs that are older than they are kept. Return their number."""
        oldest = (today - timedelta(days=KEPT_DAYS)).isoformat()
        old = [each for each in self._places() if each.day < oldest]
        for each in old:
            self._store.delete(each.key)
        return len(old)

    def redate(self, found: UseRecord, today: date, sign: Callable[[bytes], str]) -> None:
        """Move a record from a day in the future, which would never become old, to today.

        Its segment stays the same. So if this is interrupted, or done twice, its calls still count once.
        """
        self.write(found.dated(today.isoformat()), sign)
        self._store.delete(_Place(found.day, found.graph, found.segment).key)

    @property
    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _places(self) -> list[_Place]:
        found = map(_NAME.match, self._store.names(layout.USE))
        return [_Place(each[1], each[2], each[3]) for each in found if each is not None and _is_day(each[1])]

    def _one(self, place: _Place, source: UseSource) -> UseRecord | RefusedObject | None:
        """Return the record in an object, or None if it was removed or is about another incarnation of the graph."""
        data = self._store.read(place.key)
        if data is None:
            return None
        try:
            found = read_use_object(data, source.rules.keys, self._verify)
        except IntegrityError as error:
            return RefusedObject(place.key, error.detail)
        if (found.day, found.graph, found.segment) != place:
            return RefusedObject(place.key, f"it was written as {found.day}.{found.graph}.{found.segment}")
        if (found.repository, found.cluster) != (source.rules.repository, source.rules.cluster):
            detail = f"it is about cluster {found.cluster} of repository {found.repository}"
            return RefusedObject(place.key, detail)
        return found if found.incarnation == source.incarnation else None
