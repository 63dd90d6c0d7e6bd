"""The manifest: one immutable document per graph version, naming the schema and the version of every table.

Rules of this module:

1. A manifest that exists is never changed; publishing creates the next number, and only if it is absent.
2. The reader is strict: an unknown or missing member, a wrong type or an unsafe path refuses the whole document.
3. A reader opens tables at the versions named here, never at their latest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gitops.core.canonical import document
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.errors import IntegrityError
from gitops.engine import layout
from gitops.ports.storage import ObjectStore

__all__ = [
    "Dropped",
    "Identity",
    "Manifest",
    "TableEntry",
    "head_number",
    "parse_identity",
    "publish",
    "read_identity",
    "read_manifest",
]

FORMAT = 1
OPERATIONS = ("create", "migrate", "load")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"(node|edge):[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"(nodes|edges)/[0-9A-Z]{26}\.lance")
_MAX_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Identity:
    """What a graph is from its first to its last version."""

    graph_id: str
    created_at: str

    def to_bytes(self) -> bytes:
        """The stored document."""
        return document({"format": FORMAT, "graph_id": self.graph_id, "created_at": self.created_at})


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table at one version: its path below the root, its rows, and the field id of each column."""

    path: str
    version: int
    rows: int
    fields: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        fields = {name: self.fields[name] for name in sorted(self.fields)}
        return {"path": self.path, "version": self.version, "rows": self.rows, "fields": fields}


@dataclass(frozen=True, slots=True)
class Dropped:
    """A table that a migration took out of the graph: its files and its last version are kept."""

    key: str
    path: str
    version: int

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {"key": self.key, "path": self.path, "version": self.version}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Graph version `n`. `tables` maps `node:T` and `edge:E` to their tables; digests are 64 hex digits.

    `actor` and `operation` explain who made the version and how; they never decide anything.
    """

    n: int
    txn_id: str
    operation: str
    actor: str | None
    ts: str
    schema_source: str
    schema_ir: str
    tables: Mapping[str, TableEntry]
    dropped: tuple[Dropped, ...] = ()

    def to_bytes(self) -> bytes:
        """The stored document: the same manifest always gives the same bytes."""
        return document(
            {
                "format": FORMAT,
                "n": self.n,
                "parent": self.n - 1 or None,
                "txn_id": self.txn_id,
                "operation": self.operation,
                "actor": self.actor,
                "ts": self.ts,
                "schema": {"source": self.schema_source, "ir": self.schema_ir},
                "tables": {key: self.tables[key].to_json() for key in sorted(self.tables)},
                "dropped": [entry.to_json() for entry in self.dropped],
            }
        )


def head_number(store: ObjectStore) -> int | None:
    """The number of the newest manifest, or None when there is none."""
    for name in store.names(layout.MANIFESTS):
        number = layout.manifest_number(name)
        if number is not None:
            return number
    return None


def publish(store: ObjectStore, manifest: Manifest) -> bool:
    """Make the manifest the newest version; False when another writer made this number.

    Asking again for a manifest that is published already gives True: the transaction id tells.
    """
    key, data = layout.manifest_key(manifest.n), manifest.to_bytes()
    return store.create(key, data) or store.read(key) == data


def read_manifest(store: ObjectStore, n: int) -> Manifest:
    """Manifest `n`. Raises IntegrityError `graph_unreadable` when it is absent or not well formed."""
    key = layout.manifest_key(n)
    place = store.display(key)
    form = _Members(_parse(store.read(key), place), place)
    form.expect_format("parent", "n", "txn_id", "operation", "actor", "ts", "schema", "tables", "dropped")
    schema = _Members(form.take("schema", dict), place)
    schema.expect("source", "ir")
    manifest = Manifest(
        n=form.number("n", 1),
        txn_id=form.text("txn_id", is_ulid),
        operation=form.text("operation", OPERATIONS.__contains__),
        actor=None if form.take("actor", (str, type(None))) is None else form.text("actor", lambda _: True),
        ts=form.text("ts", parse_timestamp),
        schema_source=schema.text("source", _DIGEST.fullmatch),
        schema_ir=schema.text("ir", _DIGEST.fullmatch),
        tables=_tables(form.take("tables", dict), place),
        dropped=tuple(_dropped(entry, place) for entry in form.take("dropped", list)),
    )
    if manifest.n != n or form.take("parent", (int, type(None))) != (n - 1 or None):
        raise IntegrityError(
            "graph_unreadable", f"{place}: the manifest does not carry the number of its name", path=place
        )
    return manifest


def read_identity(store: ObjectStore) -> Identity:
    """The identity of the graph. Raises IntegrityError `graph_unreadable` when it is absent or not well formed."""
    return parse_identity(store.read(layout.IDENTITY), store.display(layout.IDENTITY))


def parse_identity(data: bytes | None, place: str) -> Identity:
    """The identity in a document found at `place`. Raises as `read_identity`."""
    form = _Members(_parse(data, place), place)
    form.expect_format("graph_id", "created_at")
    return Identity(form.text("graph_id", is_ulid), form.text("created_at", parse_timestamp))


def _tables(form: Mapping[str, Any], place: str) -> dict[str, TableEntry]:
    tables: dict[str, TableEntry] = {}
    for key, value in form.items():
        if not _KEY.fullmatch(key) or not isinstance(value, dict):
            raise IntegrityError("graph_unreadable", f"{place}: {key[:80]!r} is not a table", path=place)
        entry = _Members(value, place)
        entry.expect("path", "version", "rows", "fields")
        fields = entry.take("fields", dict)
        columns = _Members(fields, place)
        tables[key] = TableEntry(
            path=_table_path(entry, key, place),
            version=entry.number("version", 1),
            rows=entry.number("rows", 0),
            fields={name: columns.number(name, 0) for name in fields},
        )
    return tables


def _dropped(value: Any, place: str) -> Dropped:
    entry = _Members(value if isinstance(value, dict) else {}, place)
    entry.expect("key", "path", "version")
    key = entry.text("key", _KEY.fullmatch)
    return Dropped(key, _table_path(entry, key, place), entry.number("version", 1))


def _table_path(entry: _Members, key: str, place: str) -> str:
    path = entry.text("path", _PATH.fullmatch)
    if not path.startswith(key[: len("node")]):
        raise IntegrityError("graph_unreadable", f"{place}: {key} lies at {path}", path=place)
    return path


def _parse(data: bytes | None, place: str) -> dict[str, Any]:
    """One JSON object without repeated members."""
    if data is None:
        raise IntegrityError("graph_unreadable", f"{place} is missing", path=place)
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise IntegrityError("graph_unreadable", f"{place} is not a JSON document: {error}", path=place) from None
    if not isinstance(value, dict):
        raise IntegrityError("graph_unreadable", f"{place} is not a JSON object", path=place)
    return value


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a member is given twice")
    return value


class _Members:
    """The members of one object, read strictly."""

    def __init__(self, form: Mapping[str, Any], place: str) -> None:
        self._form = form
        self._place = place

    def expect(self, *names: str) -> None:
        """Refuse any other set of members."""
        odd = sorted(set(names) ^ set(self._form))
        if odd:
            raise self._error(f"member {odd[0][:80]!r} is missing or unknown")

    def expect_format(self, *names: str) -> None:
        """As `expect`, after a look at the format's number: a newer one is refused by naming both."""
        found = self._form.get("format")
        if type(found) is not int or found != FORMAT:
            raise self._error(f"format {str(found)[:20]} is not format {FORMAT}, which this program reads")
        self.expect("format", *names)

    def take(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The member if it is of this kind; a truth value is no number."""
        value = self._form[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._error(f"member {name!r} has the wrong type")
        return value

    def number(self, name: str, least: int) -> int:
        """A whole number of at least `least`."""
        value: int = self.take(name, int)
        if not least <= value <= _MAX_VERSION:
            raise self._error(f"member {name!r} is out of range")
        return value

    def text(self, name: str, accepts: Any) -> str:
        """A text that the function accepts."""
        value: str = self.take(name, str)
        if not accepts(value):
            raise self._error(f"member {name!r} is not well formed")
        return value

    def _error(self, what: str) -> IntegrityError:
        return IntegrityError("graph_unreadable", f"{self._place}: {what}", path=self._place)
