"""Manifests: one immutable document per graph version, with the schema and the version of every table.

Rules of this module:

1. An existing manifest never changes. Publishing creates the next number on a line, and only if it is absent.
2. The reader is strict. It rejects a document with an unknown or missing member, a wrong type, an unsafe path or a
   wrong checksum.
3. A reader opens tables at the versions listed here, never at their latest versions.
4. The version `delete` is a graph's last version. Every version from the control plane has a `fence`, the number of its
   operation, and operations with a lower number are refused from then on. The version `fence` changes nothing else. The
   number also identifies the control plane's `restore` versions.
5. Versions are on lines: `main`, and one line per incarnation of a branch. A line begins one number after the version
   that it was forked from, so a number identifies one version in a branch's history. `txn_id` is the commit id.

This module also contains the reader for all graph documents and the forms that they share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import Any, TypeVar

from gitops.core.canonical import canonical_digest, digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    OBJECT,
    TEXT,
    ULID,
    Form,
    FormMember,
    Members,
    integer,
    list_of,
    map_of,
    nullable,
    one_of,
    record,
    text_form,
)
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import IntegrityError
from gitops.database.graph import layout
from gitops.database.graph.statistics import GROUP_TEXT
from gitops.database.storage.port import ObjectStore

T = TypeVar("T")

CHECKSUM = "checksum"

NAME = text_form(bool, "a text that is not empty")
TIME = text_form(lambda text: parse_timestamp(text) is not None, "an RFC 3339 time")


def number(least: int) -> Form[int]:
    """Return the form of a 64-bit integer that is at least `least`."""
    return integer(least, 2**63 - 1)


def matches(pattern: str) -> Callable[[str], bool]:
    """Return a check that a whole string matches a pattern."""
    accepts = re.compile(pattern).fullmatch
    return lambda text: accepts(text) is not None


def sealed(form: Form[T]) -> Form[T]:
    """Add a `checksum` member: a digest of all other members except the format, so that any change is detected."""

    def read(value: Any) -> T:
        members = dict(OBJECT.read(value))
        if CHECKSUM not in members:
            raise MalformedError(f"field {CHECKSUM} is missing")
        stated, found = DIGEST.read(members.pop(CHECKSUM)), canonical_digest(members)
        if stated != found:
            raise MalformedError(
                f"the content has the digest {found[:12]}, but was written with {stated[:12]}", CHECKSUM
            )
        return form.read(members)

    def write(value: T) -> Any:
        members = form.write(value)
        return {**members, CHECKSUM: canonical_digest(members)}

    return Form(read, write)


def graph_document(formats: Mapping[int, Form[T]]) -> Document[T]:
    """Return a document type that reads these formats and writes the newest one."""
    return Document(versions=formats, code=Code.GRAPH_UNREADABLE, version_name="format")


def read_document(document: Document[T], data: bytes, place: str) -> T:
    """Parse a stored document. `place` is used in messages. Raises IntegrityError `graph_unreadable`."""
    try:
        return document.read(data)
    except IntegrityError as error:
        raise IntegrityError(error.code, f"{place}: {error.detail}", path=place) from None


def read_json(form: Form[T], value: Any, place: str) -> T:
    """Parse plain JSON with a form. `place` is used in messages. Raises IntegrityError `graph_unreadable`."""
    try:
        return form.read(value)
    except MalformedError as problem:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: {problem}", path=place) from None


DELETE, FENCE, RESTORE = "delete", "fence", "restore"
OPERATIONS = ("create", "migrate", "load", "mutate", "branch", "merge", "optimize", RESTORE, DELETE, FENCE)


@dataclass(frozen=True, slots=True)
class GraphIdentity:
    """A graph's identity, which is the same in all its versions."""

    graph_id: str
    created_at: str

    def to_bytes(self) -> bytes:
        """Return the stored document."""
        return IDENTITY.write(self)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table at one version: its path below the root, its row count, and each column's field id.

    `members` is the table version since which no rows were added or removed and every row has kept its driver row id.
    `changed` maps each column that changed later to the version that last changed it. So within one history, all entries
    of a path with the same `column_version` have the same column content.

    `commits` maps these table versions to a commit of the graph that has them, by default the manifest's own. After a
    graph was restored from a copy, table versions are created again with other rows, but under other commits.

    `statistics` has the texts of `gitops.database.graph.statistics`; it is None in a manifest of an earlier release.
    """

    path: str
    version: int
    rows: int
    fields: Mapping[str, int]
    members: int
    changed: Mapping[str, int] = field(default_factory=dict)
    commits: Mapping[int, str] = field(default_factory=dict, compare=False)
    statistics: tuple[str, ...] | None = field(default=None, compare=False)

    @property
    def mentions(self) -> set[int]:
        """The table versions that this entry names."""
        return {self.version, self.members, *self.changed.values()}

    def committed(self, commit: str) -> TableEntry:
        """Return the entry with a commit for every version that it names: this one for those without a commit."""
        return replace(self, commits={each: self.commits.get(each, commit) for each in sorted(self.mentions)})

    def column_version(self, name: str) -> int:
        """Return the table version since which a column has not changed."""
        return self.changed.get(name, self.members)


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that a migration removed from the graph. Its files and last version are kept unless it is `purged`.

    A hard drop of a property also purges its old table, because the remaining columns are copied to another folder.
    """

    key: str
    path: str
    version: int
    purged: bool = False


@dataclass(frozen=True, slots=True)
class CommitRef:
    """A reference to a version by line and number. `commit` is None if a format 1 document does not record it."""

    line: str
    n: int
    commit: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that results contain."""
        return {"commit": self.commit, "manifest_version": self.n}


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of graph version `n`. `tables` maps keys (`node:T`, `edge:E`) to tables. Digests have 64 hex digits.

    `lineage` maps each other line to the highest number that this version includes. `branch`, `actor`, `operation` and
    `message` record who made the version and how. They are informational, except as described in rule 4. Publishing
    fills in `branch`, `line`, `parent` and `lineage` from the base version. `fence` is the control plane's highest
    operation number on this graph, and `approvals` are the ids of the approvals that permitted a delete.
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
    fence: int | None = None
    approvals: tuple[str, ...] = ()

    @property
    def ref(self) -> CommitRef:
        """The reference to this version in other documents."""
        return CommitRef(self.line, self.n, self.txn_id)

    @property
    def reach(self) -> dict[str, int]:
        """The highest number that this version includes from each line, including its own."""
        return {**self.lineage, self.line: self.n}

    def commit(self, entry: TableEntry, version: int | None = None) -> str:
        """Return a commit that has a table version that an entry of this manifest names, by default its newest one."""
        return entry.commits.get(entry.version if version is None else version, self.txn_id)

    def to_bytes(self) -> bytes:
        """Return the document's bytes. Equal manifests have equal bytes."""
        return MANIFEST.write(self)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that logs contain."""
        return {
            "commit": self.txn_id,
            "manifest_version": self.n,
            "branch": self.branch,
            "parent": None if self.parent is None else self.parent.to_json(),
            "merge_parent": None if self.merge_parent is None else self.merge_parent.to_json(),
            "operation": self.operation,
            "message": self.message,
            "actor": self.actor,
            "ts": self.ts,
            "schema_digest": self.schema_source,
        }


def line_numbers(store: ObjectStore, line: str = layout.MAIN) -> tuple[int, ...]:
    """Return the numbers of a line's existing manifests, newest first."""
    numbers = (layout.manifest_number(name) for name in store.names(layout.manifests(line)))
    return tuple(n for n in numbers if n is not None)


def head_number(store: ObjectStore, line: str = layout.MAIN) -> int | None:
    """Return the number of a line's newest manifest, or None if the line has no manifest."""
    # The newest manifest has the first name. There can be thousands of manifests.
    numbers = (layout.manifest_number(name) for name in store.names(layout.manifests(line)))
    return next((n for n in numbers if n is not None), None)


def publish(store: ObjectStore, manifest: Manifest) -> bool:
    """Publish a manifest as its line's newest version. Return False if another writer already created this number.

    Publishing the same manifest again, as identified by its transaction id, returns True.
    """
    key, data = layout.manifest_key(manifest.n, manifest.line), manifest.to_bytes()
    return store.create(key, data) or store.read(key) == data


def read_manifest(store: ObjectStore, n: int, line: str = layout.MAIN) -> Manifest:
    """Read a line's manifest `n`. Raises IntegrityError `graph_unreadable` if it is absent or malformed."""
    found = find_manifest(store, n, line)
    if found is None:
        place = store.display(layout.manifest_key(n, line))
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is missing", path=place)
    return found


def find_manifest(
    store: ObjectStore,
    n: int,
    line: str = layout.MAIN,
    keep: Callable[[Hashable, Callable[[], Any]], Any] | None = None,
) -> Manifest | None:
    """Read a line's manifest `n`, or None if it is absent. Raises IntegrityError `graph_unreadable` if malformed.

    `keep` caches parsed manifests by digest.
    """
    key = layout.manifest_key(n, line)
    data = store.read(key)
    if data is None:
        return None
    place = store.display(key)
    read = partial(read_document, MANIFEST, data, place)
    manifest = read() if keep is None else keep(("manifest", digest(data)), read)
    if (manifest.n, manifest.line) != (n, line):
        detail = f"{place}: the manifest does not have the number in its name"
        raise IntegrityError(Code.GRAPH_UNREADABLE, detail, path=place)
    return manifest


def read_identity(store: ObjectStore) -> GraphIdentity:
    """Read a graph's identity.

    Raises IntegrityError `graph_unreadable` if it is absent or malformed.
    """
    data, place = store.read(layout.IDENTITY), store.display(layout.IDENTITY)
    if data is None:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is missing", path=place)
    return read_document(IDENTITY, data, place)


# -- forms of the documents -------------------------------------------------------------------------------------------


def _check_manifest(manifest: Manifest) -> None:
    paths = [(key, entry.path) for key, entry in manifest.tables.items()]
    for key, path in (*paths, *((each.key, each.path) for each in manifest.dropped)):
        if path.partition("s/")[0] != key.partition(":")[0]:
            raise MalformedError(f"{key} has the path {path}")
    for key, entry in manifest.tables.items():
        odd = [name for name, n in entry.changed.items() if not entry.members < n <= entry.version]
        if entry.members > entry.version or odd or not entry.changed.keys() <= entry.fields.keys():
            raise MalformedError(f"{key} changed after its version")
        if not entry.commits.keys() <= entry.mentions:
            raise MalformedError(f"{key} has a commit for a version that it does not name")
    if (0 if manifest.parent is None else manifest.parent.n) != manifest.n - 1:
        raise MalformedError("the parent is not the version before")


def _unknown_members(path: str, version: int, rows: int, fields: Mapping[str, int]) -> TableEntry:
    return TableEntry(path, version, rows, fields, members=version)


LINE_ID = text_form(layout.is_line, "the id of a line")
VERSION_REF = record(CommitRef, {"line": LINE_ID, "n": number(1), "commit": nullable(ULID)})
_KEY = text_form(matches(r"(node|edge):[A-Za-z_][A-Za-z0-9_]*"), "the key of a table")
_VERSION_NAME = text_form(matches(r"[1-9][0-9]{0,18}"), "the number of a table version")
_PATH = text_form(matches(r"(nodes|edges)/[0-9A-Z]{26}\.lance"), "the path of a table")
_TABLE: Members = {"path": _PATH, "version": number(1), "rows": number(0), "fields": map_of(number(0), key=str)}
_TABLE_5: Members = {**_TABLE, "members": number(1), "changed": map_of(number(1), key=str)}
_COMMITS = map_of(ULID, key=_VERSION_NAME.read)
_TABLE_6: Members = {
    **_TABLE_5,
    "commits": Form(
        lambda value: {int(version): commit for version, commit in _COMMITS.read(value).items()},
        lambda commits: {str(version): commit for version, commit in commits.items()},
    ),
}
_TABLE_7: Members = {**_TABLE_6, "statistics": nullable(list_of(GROUP_TEXT))}
_DROPPED: Members = {"key": _KEY, "path": _PATH, "version": number(1)}
_MANIFEST_2: Members = {
    "n": number(1),
    "branch": NAME,
    "line": LINE_ID,
    "txn_id": ULID,
    "parent": nullable(VERSION_REF),
    "merge_parent": nullable(VERSION_REF),
    "lineage": map_of(number(1), key=LINE_ID.read),
    "operation": one_of(*OPERATIONS),
    "message": nullable(TEXT),
    "actor": nullable(TEXT),
    "ts": TIME,
    "schema": {"source": FormMember(DIGEST, "schema_source"), "ir": FormMember(DIGEST, "schema_ir")},
    "tables": map_of(record(_unknown_members, _TABLE), key=_KEY.read),
    "dropped": list_of(record(DroppedTable, {**_DROPPED, "purged": BOOLEAN})),
}
# Format 1 has only one line, and its parents have no commit id.
_MANIFEST_1: Members = {
    **{name: _MANIFEST_2[name] for name in ("n", "txn_id", "operation", "actor", "ts", "schema", "tables")},
    "parent": nullable(Form(lambda n: CommitRef(layout.MAIN, number(1).read(n), None))),
    "dropped": list_of(record(DroppedTable, _DROPPED)),
}
_MANIFEST_3: Members = {**_MANIFEST_2, "fence": nullable(number(1)), "approvals": list_of(TEXT)}
# Up to format 4, manifests do not record the columns that a table version changed.
_MANIFEST_5: Members = {**_MANIFEST_3, "tables": map_of(record(TableEntry, _TABLE_5), key=_KEY.read)}
_MANIFEST_6: Members = {**_MANIFEST_3, "tables": map_of(record(TableEntry, _TABLE_6), key=_KEY.read)}
_MANIFEST_7: Members = {**_MANIFEST_3, "tables": map_of(record(TableEntry, _TABLE_7), key=_KEY.read)}
MANIFEST = graph_document(
    {
        1: record(Manifest, _MANIFEST_1, check=_check_manifest),
        2: record(Manifest, _MANIFEST_2, check=_check_manifest),
        3: record(Manifest, _MANIFEST_3, check=_check_manifest),
        4: sealed(record(Manifest, _MANIFEST_3, check=_check_manifest)),
        5: sealed(record(Manifest, _MANIFEST_5, check=_check_manifest)),
        6: sealed(record(Manifest, _MANIFEST_6, check=_check_manifest)),
        7: sealed(record(Manifest, _MANIFEST_7, check=_check_manifest)),
    }
)
MANIFEST_FORMAT = max(MANIFEST.versions)
"""The format of new manifests."""
IDENTITY = graph_document({1: record(GraphIdentity, {"graph_id": ULID, "created_at": TIME})})
