"""What the driver and the workers of a bulk load exchange: plans, tasks and parts, all plain JSON.

Rules of this module:

1. A plan is a lease on the version that it is made from. Until it expires, gc keeps that version, every later one of its
   tables, and the files that workers write.
2. A plan expires after six days. The Lance driver keeps files that belong to no version for seven: so a part with a valid plan
   has its files, and gc removes files without a plan.
3. None of them holds credentials: every process takes them from its own environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any, Self

from lance.fragment import FragmentMetadata

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import BOOLEAN, OBJECT, TEXT, ULID, Form, list_of, record
from gitops.core.documents.json_bytes import parse
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.database.graph import layout
from gitops.database.graph.forms import NAME, TIME, number, read_json
from gitops.database.graph.history.leases import take_lease
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import WriteContext

__all__ = ["TERM", "BulkPart", "BulkPlan", "BulkTask", "plan_bulk"]

TERM = timedelta(days=6)
_FILE = re.compile(r"[0-9A-Za-z_-]+\.lance")

_FORMS: Mapping[str, Form[Any]] = {
    "bulk": ULID,
    "version": number(1),
    "tables": OBJECT,
    "expires_at": TIME,
    "rows": number(0),
    "fresh": BOOLEAN,
    "fragments": list_of(TEXT),
}


class _Exchanged:
    """A dataclass with a plain JSON form: a member for each field."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The value as plain JSON."""
        form = asdict(self)  # type: ignore[call-overload] # every subclass is a dataclass
        return {name: list(value) if isinstance(value, tuple) else value for name, value in form.items()}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Self:
        """Read back what `to_json` gave. Raises IntegrityError `graph_unreadable`."""
        declared = {each.name: _FORMS.get(each.name, NAME) for each in fields(cls)}  # type: ignore[arg-type] # as above
        return read_json(record(cls, declared), form, f"the {cls.__name__.removeprefix('Bulk').lower()}")


@dataclass(frozen=True, slots=True)
class BulkTask(_Exchanged):
    """What a worker needs to write rows of one table: where, which version, and the schema that the rows must fit."""

    bulk: str
    uri: str
    graph_id: str
    branch: str
    version: int
    schema_ir: str
    key: str
    path: str

    def open(self) -> Snapshot:
        """Open the version of the task.

        Raises GitopsError `graph_conflict` when the root holds another graph; and as `open_snapshot`.
        """
        snapshot = open_snapshot(self.uri, ReadTarget(self.branch, version=self.version))
        entry = snapshot.manifest.tables.get(self.key)
        same = snapshot.identity.graph_id == self.graph_id and snapshot.manifest.schema_ir == self.schema_ir
        if not same or entry is None or entry.path != self.path:
            detail = (
                f"version {self.version} at {snapshot.root.location} is not the version that the bulk load began with"
            )
            raise GitopsError(Code.GRAPH_CONFLICT, detail, path=self.uri)
        return snapshot


@dataclass(frozen=True, slots=True)
class BulkPlan(_Exchanged):
    """A bulk load that was begun: its id, the version that it starts from, and the folder and columns of each table.

    The id becomes the commit id of the published version: a plan is published once.
    """

    bulk: str
    uri: str
    graph_id: str
    branch: str
    version: int
    schema_ir: str
    tables: Mapping[str, Mapping[str, Any]]
    expires_at: str

    def task(self, key: str) -> BulkTask:
        """What a worker needs for rows of a table (`node:Person`, `edge:Knows`). Raises UsageError `usage_error`."""
        if key not in self.tables:
            known = ", ".join(sorted(self.tables))[:300]
            raise UsageError(Code.USAGE_ERROR, f"the graph has no table {key[:80]!r}; it has {known}")
        shared = (self.bulk, self.uri, self.graph_id, self.branch, self.version, self.schema_ir)
        return BulkTask(*shared, key=key, path=self.tables[key]["path"])


@dataclass(frozen=True, slots=True)
class BulkPart(_Exchanged):
    """Rows of one table in data files: `fragments` describes them in the JSON of the Lance driver.

    `fresh`: all ids were generated for these rows, so they cannot clash.
    """

    bulk: str
    key: str
    path: str
    rows: int
    fresh: bool
    fragments: tuple[str, ...]

    def staged(self) -> list[FragmentMetadata]:
        """The fragments, for the driver. Raises IntegrityError `graph_unreadable`."""
        found = []
        for text in self.fragments:
            try:
                fragment = FragmentMetadata.from_json(json.dumps(parse(text.encode())))
                sound = all(_FILE.fullmatch(file.path) for file in fragment.files)
            except (KeyError, TypeError, ValueError, AttributeError):
                sound = False
            if not sound:
                place = f"the part of {self.key}"
                raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: a fragment is not well formed", path=place)
            found.append(fragment)
        return found


def plan_bulk(uri: str, context: WriteContext, branch: str = layout.MAIN) -> BulkPlan:
    """Begin a bulk load into a branch. Other writers are not blocked; only a change of the schema ends it.

    Raises GitopsError as `open_snapshot`; `graph_version_gone` when gc has removed the version already.
    """
    snapshot = open_snapshot(uri, ReadTarget(branch))
    manifest = snapshot.manifest
    lease = take_lease(snapshot, context, TERM)
    return BulkPlan(
        bulk=lease.id,
        uri=uri,
        graph_id=snapshot.identity.graph_id,
        branch=branch,
        version=manifest.n,
        schema_ir=manifest.schema_ir,
        tables={key: table_form(entry) for key, entry in manifest.tables.items()},
        expires_at=lease.expires_at,
    )


def table_form(entry: TableEntry) -> dict[str, Any]:
    """What must not change of a table while files are written for it: its folder, and which column is which."""
    return {"path": entry.path, "fields": dict(entry.fields)}
