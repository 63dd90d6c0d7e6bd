"""The manifest: one immutable document per graph version, naming the schema and the version of every table.

Rules of this module:

1. A manifest that exists is never changed; publishing creates the next number of its line, and only if it is absent.
2. The reader is strict: an unknown or missing member, a wrong type or an unsafe path refuses the whole document.
3. A reader opens tables at the versions named here, never at their latest.
4. Versions are on lines: `main`, and one line per incarnation of a branch. A line begins one number after the version that it
   was forked from, so a number means one version in the history of a branch. `txn_id` is the id of the commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops.core.canonical import document
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.graph import layout
from gitops.graph.strict import Members, parse_object
from gitops.storage.port import ObjectStore

__all__ = [
    "OPERATIONS",
    "CommitRef",
    "DroppedTable",
    "GraphIdentity",
    "Manifest",
    "TableEntry",
    "find_manifest",
    "head_number",
    "line_numbers",
    "parse_identity",
    "publish",
    "read_identity",
    "read_manifest",
]

FORMAT = 2
IDENTITY_FORMAT = 1
OPERATIONS = ("create", "migrate", "load", "mutate", "branch", "merge", "optimize")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_KEY = re.compile(r"(node|edge):[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"(nodes|edges)/[0-9A-Z]{26}\.lance")


@dataclass(frozen=True, slots=True)
class GraphIdentity:
    """The identity of a graph, the same in all its versions."""

    graph_id: str
    created_at: str

    def to_bytes(self) -> bytes:
        """The stored document."""
        return document({"format": IDENTITY_FORMAT, "graph_id": self.graph_id, "created_at": self.created_at})


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
class DroppedTable:
    """A table that a migration took out of the graph: its files and its last version are kept, unless it was `purged`.

    A hard drop of a property purges its old table as well: the remaining columns are copied to another folder.
    """

    key: str
    path: str
    version: int
    purged: bool = False

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {"key": self.key, "path": self.path, "version": self.version, "purged": self.purged}


@dataclass(frozen=True, slots=True)
class CommitRef:
    """A version by its line and number. `commit` is None where a document of format 1 does not record it."""

    line: str
    n: int
    commit: str | None

    def to_json(self) -> dict[str, Any]:
        """The stored form."""
        return {"line": self.line, "n": self.n, "commit": self.commit}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Graph version `n`. `tables` maps `node:T` and `edge:E` to their tables; digests are 64 hex digits.

    `lineage` has the number up to which each other line is part of this version. `branch`, `actor`, `operation` and `message`
    explain who made the version and how; they never decide anything. What publishes a version fills in `branch`, `line`,
    `parent` and `lineage` from the version that it is based on.
    """

    n: int
    txn_id: str
    operation: str
    actor: str | None
    ts: str
    schema_source: str
    schema_ir: str
    tables: Mapping[str, TableEntry]
    dropped: tuple[DroppedTable, ...] = ()
    branch: str = layout.MAIN
    line: str = layout.MAIN
    parent: CommitRef | None = None
    merge_parent: CommitRef | None = None
    lineage: Mapping[str, int] = field(default_factory=dict)
    message: str | None = None

    @property
    def ref(self) -> CommitRef:
        """The name of this version in other documents."""
        return CommitRef(self.line, self.n, self.txn_id)

    @property
    def reach(self) -> dict[str, int]:
        """Up to which number each line is part of this version, its own line included."""
        return {**self.lineage, self.line: self.n}

    def to_bytes(self) -> bytes:
        """The stored document: the same manifest always gives the same bytes."""
        return document(
            {
                "format": FORMAT,
                "n": self.n,
                "branch": self.branch,
                "line": self.line,
                "txn_id": self.txn_id,
                "parent": None if self.parent is None else self.parent.to_json(),
                "merge_parent": None if self.merge_parent is None else self.merge_parent.to_json(),
                "lineage": {line: self.lineage[line] for line in sorted(self.lineage)},
                "operation": self.operation,
                "message": self.message,
                "actor": self.actor,
                "ts": self.ts,
                "schema": {"source": self.schema_source, "ir": self.schema_ir},
                "tables": {key: self.tables[key].to_json() for key in sorted(self.tables)},
                "dropped": [entry.to_json() for entry in self.dropped],
            }
        )


def line_numbers(store: ObjectStore, line: str = layout.MAIN) -> tuple[int, ...]:
    """The numbers of the manifests of a line that are there, newest first."""
    numbers = (layout.manifest_number(name) for name in store.names(layout.manifests(line)))
    return tuple(n for n in numbers if n is not None)


def head_number(store: ObjectStore, line: str = layout.MAIN) -> int | None:
    """The number of the newest manifest of a line, or None when there is none."""
    return next(iter(line_numbers(store, line)), None)


def publish(store: ObjectStore, manifest: Manifest) -> bool:
    """Make the manifest the newest version of its line; False when another writer made this number.

    Publishing the same manifest again returns True: the transaction id identifies it.
    """
    key, data = layout.manifest_key(manifest.n, manifest.line), manifest.to_bytes()
    return store.create(key, data) or store.read(key) == data


def read_manifest(store: ObjectStore, n: int, line: str = layout.MAIN) -> Manifest:
    """Manifest `n` of a line. Raises IntegrityError `graph_unreadable` when it is absent or not well formed."""
    found = find_manifest(store, n, line)
    if found is None:
        place = store.display(layout.manifest_key(n, line))
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is missing", path=place)
    return found


def find_manifest(store: ObjectStore, n: int, line: str = layout.MAIN) -> Manifest | None:
    """As `read_manifest`, but None when it is absent."""
    key = layout.manifest_key(n, line)
    data = store.read(key)
    return None if data is None else _parse_manifest(data, n, line, store.display(key))


def _parse_manifest(data: bytes, n: int, line: str, place: str) -> Manifest:
    form = Members(parse_object(data, place), place)
    common = ("format", "n", "parent", "txn_id", "operation", "actor", "ts", "schema", "tables", "dropped")
    first = form.format(1, FORMAT) == 1
    form.expect(*common, *(() if first else ("branch", "line", "merge_parent", "lineage", "message")))
    schema = form.inner("schema")
    schema.expect("source", "ir")
    manifest = Manifest(
        n=form.number("n", 1),
        txn_id=form.text("txn_id", is_ulid),
        operation=form.text("operation", OPERATIONS.__contains__),
        actor=form.maybe_text("actor"),
        ts=form.text("ts", parse_timestamp),
        schema_source=schema.text("source", _DIGEST.fullmatch),
        schema_ir=schema.text("ir", _DIGEST.fullmatch),
        tables=_read_tables(form.inner("tables"), form.take("tables", dict), place),
        dropped=tuple(_read_dropped(entry, place, first=first) for entry in form.take("dropped", list)),
        **(_read_origin_v1(form, n) if first else _read_origin(form, place)),
    )
    parent = None if manifest.parent is None else manifest.parent.n
    if (manifest.n, manifest.line) != (n, line) or parent != (n - 1 or None):
        raise form.error("the manifest does not carry the number of its name")
    return manifest


def read_identity(store: ObjectStore) -> GraphIdentity:
    """The identity of the graph. Raises IntegrityError `graph_unreadable` when it is absent or not well formed."""
    return parse_identity(store.read(layout.IDENTITY), store.display(layout.IDENTITY))


def parse_identity(data: bytes | None, place: str) -> GraphIdentity:
    """The identity in a document found at `place`. Raises as `read_identity`."""
    form = Members(parse_object(data, place), place)
    form.format(IDENTITY_FORMAT)
    form.expect("format", "graph_id", "created_at")
    return GraphIdentity(form.text("graph_id", is_ulid), form.text("created_at", parse_timestamp))


def _read_origin_v1(form: Members, n: int) -> dict[str, Any]:
    """Where a version of format 1 comes from: there was one line, and no commit named its parent."""
    found = form.take("parent", (int, type(None)))
    if found != (n - 1 or None):
        raise form.error("the manifest does not carry the number of its name")
    return {"parent": None if found is None else CommitRef(layout.MAIN, found, None)}


def _read_origin(form: Members, place: str) -> dict[str, Any]:
    lineage = form.take("lineage", dict)
    reach = form.inner("lineage")
    if not all(layout.is_line(line) for line in lineage):
        raise form.error("member 'lineage' is not well formed")
    return {
        "branch": form.text("branch", bool),
        "line": form.text("line", layout.is_line),
        "parent": read_ref(form.take("parent", (dict, type(None))), place),
        "merge_parent": read_ref(form.take("merge_parent", (dict, type(None))), place),
        "lineage": {line: reach.number(line, 1) for line in lineage},
        "message": form.maybe_text("message"),
    }


def read_ref(value: dict[str, Any] | None, place: str) -> CommitRef | None:
    """The version that a stored form names. Raises IntegrityError `graph_unreadable`."""
    if value is None:
        return None
    form = Members(value, place)
    form.expect("line", "n", "commit")
    return CommitRef(form.text("line", layout.is_line), form.number("n", 1), form.maybe_text("commit", is_ulid))


def _read_tables(members: Members, form: Mapping[str, Any], place: str) -> dict[str, TableEntry]:
    tables: dict[str, TableEntry] = {}
    for key, value in form.items():
        if not _KEY.fullmatch(key) or not isinstance(value, dict):
            raise members.error(f"{key[:80]!r} is not a table")
        tables[key] = read_entry(key, value, place)
    return tables


def read_entry(key: str, value: Mapping[str, Any], place: str) -> TableEntry:
    """The table that a stored form describes. Raises IntegrityError `graph_unreadable`."""
    entry = Members(value, place)
    entry.expect("path", "version", "rows", "fields")
    columns = entry.inner("fields")
    return TableEntry(
        path=_read_table_path(entry, key, place),
        version=entry.number("version", 1),
        rows=entry.number("rows", 0),
        fields={name: columns.number(name, 0) for name in entry.take("fields", dict)},
    )


def _read_dropped(value: Any, place: str, *, first: bool) -> DroppedTable:
    form = value if isinstance(value, dict) else {}
    entry = Members(form, place)
    entry.expect("key", "path", "version", *(() if first else ("purged",)))
    purged = form.get("purged", False)
    if type(purged) is not bool:
        raise entry.error("member 'purged' has the wrong type")
    key = entry.text("key", _KEY.fullmatch)
    return DroppedTable(key, _read_table_path(entry, key, place), entry.number("version", 1), purged)


def _read_table_path(entry: Members, key: str, place: str) -> str:
    path = entry.text("path", _PATH.fullmatch)
    if not path.startswith(key[: len("node")]):
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: {key} has the path {path}", path=place)
    return path
