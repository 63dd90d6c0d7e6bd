"""What the verbs of the graph database return: values with a plain JSON form, which need no Lance driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gitops.graph.lines import Line
from gitops.graph.manifest import CommitRef, Manifest

if TYPE_CHECKING:
    from gitops.core.diagnostics import Diagnostics


class GraphOutcome:
    """What every verb returns: whether it succeeded, and a JSON form."""

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """Whether the verb did what was asked."""
        return True

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON: an object with a member for each field; tables and types in code point order."""
        form = {}
        for each in fields(self):  # type: ignore[arg-type] # every outcome is a dataclass
            value = getattr(self, each.name)
            form[each.name] = _plain(dict(sorted(value.items())) if isinstance(value, Mapping) else value)
        return form


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class LoadResult(GraphOutcome):
    """The version that has the rows, and the number of rows taken by table key (`node:T`, `edge:E`)."""

    manifest_version: int
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LoadRefusal(GraphOutcome):
    """Why a load published nothing."""

    problems: Diagnostics

    @property
    def ok(self) -> bool:
        """False."""
        return False

    def to_json(self) -> dict[str, Any]:
        """Empty: the problems are diagnostics."""
        return {}


@dataclass(frozen=True, slots=True)
class ExportResult(GraphOutcome):
    """How many records were written to a file."""

    records: int
    path: str

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON."""
        return {"records": self.records}


@dataclass(frozen=True, slots=True)
class GraphDescription(GraphOutcome):
    """One version of a graph: `tables` has `rows` and `columns` (name to type) by table key, `dropped` the dropped keys."""

    graph_id: str
    created_at: str
    branch: str
    commit: str
    manifest_version: int
    schema_digest: str
    tables: Mapping[str, Mapping[str, Any]]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowList(GraphOutcome):
    """Rows of one type, each an object of JSON values."""

    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class QueryRows(GraphOutcome):
    """The rows of a query as JSON values; `explanation` has its operators, None if they were not asked for."""

    manifest_version: int
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    explanation: tuple[Mapping[str, Any], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON."""
        form = {
            "manifest_version": self.manifest_version,
            "row_count": len(self.rows),
            "columns": list(self.columns),
            "rows": self.rows,
        }
        return form if self.explanation is None else {**form, "explanation": list(self.explanation)}


@dataclass(frozen=True, slots=True)
class MutationResult(GraphOutcome):
    """What the statements affected, and the version that has it; when nothing `changed`, the version that was there."""

    affected_nodes: int
    affected_edges: int
    manifest_version: int
    changed: bool

    def to_json(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "affectedNodes": self.affected_nodes,
            "affectedEdges": self.affected_edges,
            "manifest_version": self.manifest_version,
            "changed": self.changed,
        }


@dataclass(frozen=True, slots=True)
class VersionInfo:
    """One version as its log shows it; `parent` and `merge_parent` are None where there is none."""

    manifest: Manifest

    def to_json(self) -> dict[str, Any]:
        """The commit as plain JSON."""
        manifest = self.manifest
        return {
            "commit": manifest.txn_id,
            "manifest_version": manifest.n,
            "branch": manifest.branch,
            "parent": _ref(manifest.parent),
            "merge_parent": _ref(manifest.merge_parent),
            "operation": manifest.operation,
            "message": manifest.message,
            "actor": manifest.actor,
            "ts": manifest.ts,
            "schema_digest": manifest.schema_source,
        }


@dataclass(frozen=True, slots=True)
class VersionLog(GraphOutcome):
    """The versions of a branch, newest first."""

    commits: tuple[VersionInfo, ...]


@dataclass(frozen=True, slots=True)
class VersionDescription(GraphOutcome):
    """A version with the tables that it pins."""

    graph_id: str
    branch: str
    manifest: Manifest

    def to_json(self) -> dict[str, Any]:
        """The version as plain JSON."""
        tables = {
            key: {"path": entry.path, "version": entry.version, "rows": entry.rows}
            for key, entry in sorted(self.manifest.tables.items())
        }
        return {
            "graph_id": self.graph_id,
            **VersionInfo(self.manifest).to_json(),
            "branch": self.branch,
            "tables": tables,
        }


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch: its newest version, and the origin, time and actor of its creation (empty for `main`)."""

    name: str
    manifest_version: int
    line: Line

    def to_json(self) -> dict[str, Any]:
        """The branch as plain JSON."""
        line, fork = self.line, self.line.fork
        return {
            "name": self.name,
            "manifest_version": self.manifest_version,
            "forked_from": line.forked_from or None,
            "fork_version": None if fork is None else fork.n,
            "fork_commit": None if fork is None else fork.commit,
            "created_at": line.created_at or None,
            "actor": line.actor,
        }


@dataclass(frozen=True, slots=True)
class BranchList(GraphOutcome):
    """The branches of a graph, `main` first, then by name."""

    branches: tuple[BranchInfo, ...]


@dataclass(frozen=True, slots=True)
class BranchCreated(GraphOutcome):
    """A branch that was created."""

    branch: BranchInfo

    def to_json(self) -> dict[str, Any]:
        """The branch as plain JSON."""
        return self.branch.to_json()


@dataclass(frozen=True, slots=True)
class BranchDeleted(GraphOutcome):
    """The name of a branch that was deleted."""

    name: str

    def to_json(self) -> dict[str, Any]:
        """Empty."""
        return {}


class ChangeKind(StrEnum):
    """What became of a row."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row that differs, as JSON values; `fields` names the properties (and `src`, `dst`) that changed."""

    table: str
    kind: ChangeKind
    id: str
    fields: tuple[str, ...]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """The change as plain JSON; columns in the order of the table."""
        return {
            "table": self.table,
            "kind": self.kind.value,
            "id": self.id,
            "fields": list(self.fields),
            "before": None if self.before is None else dict(self.before),
            "after": None if self.after is None else dict(self.after),
        }


@dataclass(frozen=True, slots=True)
class TableCounts:
    """How many rows of one table were added, removed and changed."""

    added: int = 0
    removed: int = 0
    changed: int = 0

    def to_json(self) -> dict[str, int]:
        """The numbers as plain JSON."""
        return {"added": self.added, "removed": self.removed, "changed": self.changed}


@dataclass(frozen=True, slots=True)
class DiffSummary(GraphOutcome):
    """The two versions, and the numbers for each table with a difference, by key."""

    before: CommitRef
    after: CommitRef
    same_schema: bool
    tables: Mapping[str, TableCounts]

    def to_json(self) -> dict[str, Any]:
        """The summary as plain JSON."""
        return {
            "before": {"commit": self.before.commit, "manifest_version": self.before.n},
            "after": {"commit": self.after.commit, "manifest_version": self.after.n},
            "same_schema": self.same_schema,
            "tables": {key: self.tables[key].to_json() for key in sorted(self.tables)},
        }


class MergeStatus(StrEnum):
    """What a merge came to."""

    MERGED = "merged"
    FAST_FORWARD = "fast_forward"
    UP_TO_DATE = "up_to_date"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, order=True)
class MergeConflict:
    """One conflict: its kind, the table, the row and the property (empty for a whole row)."""

    table: str
    id: str
    kind: str
    property: str
    detail: str

    def to_json(self) -> dict[str, str]:
        """The conflict as plain JSON."""
        kind, _, name = self.table.partition(":")
        return {
            "kind": self.kind,
            "type_kind": kind,
            "type": name,
            "id": self.id,
            "property": self.property,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class MergeResult(GraphOutcome):
    """`manifest_version` is the target's newest version afterwards; `rows` has the number of rows that came in, by table key."""

    status: MergeStatus
    source: str
    into: str
    manifest_version: int
    commit: str
    rows: Mapping[str, int] = field(default_factory=dict)
    conflicts: tuple[MergeConflict, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no conflict."""
        return not self.conflicts


def _ref(ref: CommitRef | None) -> dict[str, Any] | None:
    return None if ref is None else {"commit": ref.commit, "manifest_version": ref.n}
