"""Results and progress of graph database commands: values with a plain JSON form that do not need the Lance driver."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gitops.core.dataclass import dataclass
from gitops.database.graph.lines import Line
from gitops.database.graph.manifest import CommitRef, Manifest
from gitops.database.graph.port import StepCount

if TYPE_CHECKING:
    from gitops.core.diagnostics import Diagnostics
    from gitops.database.language.schema.steps import MigrationStep


class GraphOutcome:
    """Base class for every command's result, with a success flag and a JSON form."""

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """Return whether the command succeeded."""
        return True

    def to_json(self) -> dict[str, Any]:
        """Return the result as a plain JSON object with one member per field. Tables and types are sorted."""
        form = _members(self).items()
        return {name: dict(sorted(value.items())) if isinstance(value, dict) else value for name, value in form}


class GraphReport(GraphOutcome):
    """The result of a command that returns no data. It describes what the command did or checked."""

    __slots__ = ()


TEXT_ONLY = {"text only": True}
"""Metadata for a field that is in a result's text but not in its JSON form."""


def _members(value: Any) -> dict[str, Any]:
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value) if not each.metadata}


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _commit_of(published: Manifest | None) -> str | None:
    return None if published is None else published.txn_id


@dataclass(frozen=True, slots=True)
class LoadResult(GraphReport):
    """The version with the loaded rows, and the number of loaded rows by table key (`node:T`, `edge:E`).

    `published` is the version that the load published, or None if there were no records. `optimized` has the indexes
    that were built afterwards, or None if there are none.
    """

    manifest_version: int
    rows: Mapping[str, int]
    published: Manifest | None = None
    optimized: OptimizeResult | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        taken = {"manifest_version": self.manifest_version, "rows": dict(sorted(self.rows.items()))}
        built = {} if self.optimized is None else {"optimized": self.optimized.to_json()}
        return {**taken, "commit": _commit_of(self.published), **built}


@dataclass(frozen=True, slots=True)
class LoadRefusal(GraphOutcome):
    """The reason why a load published nothing."""

    problems: Diagnostics = field(metadata=TEXT_ONLY)

    @property
    def ok(self) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class ExportResult(GraphReport):
    """The number of records written to a file."""

    records: int
    path: str = field(metadata=TEXT_ONLY)


@dataclass(frozen=True, slots=True)
class BaselineResult(GraphReport):
    """The number of records at a commit that were written to a file, and the cursor for later changes."""

    records: int
    commit: str
    cursor: str
    path: str = field(metadata=TEXT_ONLY)


@dataclass(frozen=True, slots=True)
class BlobFacts(GraphOutcome):
    """The size in bytes and the tag of one Blob property cell."""

    size: int
    tag: str


@dataclass(frozen=True, slots=True)
class GraphDescription(GraphOutcome):
    """A graph version. `tables` maps table keys to `rows` and `columns` (name to type). `dropped` has dropped keys."""

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
    """Rows of one type, each as an object of JSON values."""

    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class QueryRows(GraphOutcome):
    """A query's rows as JSON values. `explanation` has its operators, or None if they were not requested."""

    manifest_version: int
    columns: tuple[str, ...]
    rows: list[dict[str, Any]]
    explanation: tuple[Mapping[str, Any], ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        counted = {"manifest_version": self.manifest_version, "row_count": len(self.rows)}
        form = {**counted, "columns": list(self.columns), "rows": self.rows}
        return form if self.explanation is None else {**form, "explanation": list(self.explanation)}


@dataclass(frozen=True, slots=True)
class MutationResult(GraphReport):
    """The affected rows and the resulting version, which is the existing version if nothing `changed`.

    `published` is the version that the mutation published, or None if nothing changed.
    """

    affected_nodes: int
    affected_edges: int
    manifest_version: int
    changed: bool
    published: Manifest | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        affected = {"affectedNodes": self.affected_nodes, "affectedEdges": self.affected_edges}
        published = {"changed": self.changed, "commit": _commit_of(self.published)}
        return {**affected, "manifest_version": self.manifest_version, **published}


@dataclass(frozen=True, slots=True)
class VersionLog(GraphOutcome):
    """The versions of a branch, newest first."""

    commits: tuple[Manifest, ...]


@dataclass(frozen=True, slots=True)
class VersionDescription(GraphOutcome):
    """A graph version with its table versions."""

    graph_id: str
    branch: str
    manifest: Manifest

    def to_json(self) -> dict[str, Any]:
        """Return the version as plain JSON."""
        tables = {
            key: {"path": entry.path, "version": entry.version, "rows": entry.rows}
            for key, entry in sorted(self.manifest.tables.items())
        }
        return {"graph_id": self.graph_id, **self.manifest.to_json(), "branch": self.branch, "tables": tables}


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch: its newest version, and its origin, creation time and creator (empty for `main`)."""

    name: str
    manifest_version: int
    line: Line

    def to_json(self) -> dict[str, Any]:
        """Return the branch as plain JSON."""
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
    """A graph's branches: `main` first, then the others by name."""

    branches: tuple[BranchInfo, ...]


@dataclass(frozen=True, slots=True)
class BranchCreated(GraphReport):
    """The branch that was created."""

    branch: BranchInfo

    def to_json(self) -> dict[str, Any]:
        """Return the branch as plain JSON."""
        return self.branch.to_json()


@dataclass(frozen=True, slots=True)
class BranchDeleted(GraphReport):
    """The name of the deleted branch."""

    name: str = field(metadata=TEXT_ONLY)


class ChangeKind(StrEnum):
    """How a row changed."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class RowChange:
    """One changed row, as JSON values. `fields` lists the changed properties (and `src`, `dst`)."""

    table: str
    kind: ChangeKind
    id: str
    fields: tuple[str, ...]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return the change as plain JSON, with columns in table order."""
        return _members(self)


@dataclass(frozen=True, slots=True)
class DiffSummary(GraphOutcome):
    """Two versions, and the number of `added`, `removed` and `changed` rows in each differing table, by key."""

    before: CommitRef
    after: CommitRef
    same_schema: bool
    tables: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class FeedPosition:
    """A reader's position in a branch feed: all of version `n`, and rows of the next one up to `after` (table, id)."""

    graph_id: str
    branch: str
    n: int
    commit: str
    after: tuple[str, str] | None = None

    @property
    def token(self) -> str:
        """Return the position as an opaque string for readers to store."""
        form = [1, self.graph_id, self.branch, self.n, self.commit, *(self.after or ())]
        return base64.urlsafe_b64encode(json.dumps(form).encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class FeedPage(GraphOutcome):
    """One page of changes, each with its commit id, and the position after them.

    `commits` are the versions that were read, the last one possibly only in part. `head` was the newest version. The
    position contains a row if the page ends within a version.
    """

    position: FeedPosition
    head: CommitRef
    commits: tuple[Manifest, ...]
    changes: tuple[tuple[str, RowChange], ...]

    @property
    def complete(self) -> bool:
        """Return whether the page reaches the newest version."""
        return self.position.after is None and self.position.n == self.head.n

    def to_json(self) -> dict[str, Any]:
        """Return the page as plain JSON."""
        return {
            "branch": self.position.branch,
            "changes": [{"commit": commit, **change.to_json()} for commit, change in self.changes],
            "cursor": self.position.token,
            "complete": self.complete,
        }


class MergeStatus(StrEnum):
    """How a merge ended."""

    MERGED = "merged"
    FAST_FORWARD = "fast_forward"
    UP_TO_DATE = "up_to_date"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True, order=True)
class RowProblem:
    """A problem with a row: a broken rule or a merge conflict.

    `table` is a table key. `id` is the row's id or, for a cardinality, the source node's id. `property` is empty if the
    problem concerns the whole row.
    """

    table: str
    id: str
    kind: str
    property: str
    detail: str

    def to_json(self) -> dict[str, str]:
        """Return the problem as plain JSON."""
        kind, _, name = self.table.partition(":")
        place = {"type_kind": kind, "type": name, "id": self.id, "property": self.property}
        return {"kind": self.kind, **place, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class BranchMergeResult(GraphReport):
    """The result of a merge. `manifest_version` is the target's newest version afterwards.

    `rows` has the number of merged rows, by table key. `published` is the version that the merge published, if any.
    `branch_deleted` shows whether the source was deleted afterwards, or is None if this was not requested.
    `branch_delete_error` is the reason why a deletion failed.
    """

    status: MergeStatus
    source: str
    into: str
    manifest_version: int
    commit: str
    rows: Mapping[str, int] = field(default_factory=dict)
    conflicts: tuple[RowProblem, ...] = ()
    published: Manifest | None = field(default=None, metadata=TEXT_ONLY)
    branch_deleted: bool | None = field(default=None, metadata=TEXT_ONLY)
    branch_delete_error: str | None = field(default=None, metadata=TEXT_ONLY)

    @property
    def ok(self) -> bool:
        """Return whether there are no conflicts."""
        return not self.conflicts

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON. The deletion is included only if it was requested."""
        form = GraphReport.to_json(self)
        if self.branch_deleted is None:
            return form
        return {**form, "branch_deleted": self.branch_deleted, "branch_delete_error": self.branch_delete_error}


@dataclass(frozen=True, slots=True)
class StepEffect:
    """One step and the rows that it affects. `count` is None if the step is not about the rows of one table."""

    step: MigrationStep
    count: StepCount | None

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain JSON, with its rows."""
        count = self.count
        if count is None:
            return {**self.step.to_json(), "rows": None}
        checked = {"breaking": count.breaking, "keys": list(count.keys)} if count.breaking else {}
        more = {name: number for name in ("lost", "characters") if (number := getattr(count, name))}
        return {**self.step.to_json(), "rows": count.rows, **checked, **more}


@dataclass(frozen=True, slots=True)
class PreviewReport(GraphOutcome):
    """The effects of a migration. `tables` has each table's row count afterwards, or is empty if it is unsupported."""

    supported: bool
    manifest_version: int
    steps: tuple[StepEffect, ...]
    tables: dict[str, int]

    @property
    def ok(self) -> bool:
        """Return whether the migration is supported."""
        return self.supported


@dataclass(frozen=True, slots=True)
class OptimizeResult(GraphReport):
    """Completed optimizations by table key. `manifest_version` is the newest version afterwards."""

    manifest_version: int
    tables: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GcResult(GraphReport):
    """The removed objects or, with `dry_run`, those that would be removed, in which case `bytes` is an estimate."""

    dry_run: bool
    manifests: int
    table_versions: Mapping[str, tuple[int, ...]]
    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeResult(GraphReport):
    """Purged types (by table key) and properties (by their table's key). With `dry_run`, those that would be purged.

    `manifest_version` is the newest version afterwards.
    """

    dry_run: bool
    manifest_version: int
    types: tuple[str, ...]
    properties: Mapping[str, tuple[str, ...]]


class VerifyFindingCode(StrEnum):
    """The kind of a problem or note."""

    DOCUMENT_UNREADABLE = "document_unreadable"
    MANIFEST_UNREADABLE = "manifest_unreadable"
    VERSION_MISSING = "version_missing"
    PARENT_MISMATCH = "parent_mismatch"
    BRANCH_WITHOUT_VERSION = "branch_without_version"
    SCHEMA_DAMAGED = "schema_damaged"
    TABLES_MISMATCH = "tables_mismatch"
    TABLE_UNREADABLE = "table_unreadable"
    COLUMNS_MISMATCH = "columns_mismatch"
    ROWS_MISMATCH = "rows_mismatch"
    STATISTICS_MISMATCH = "statistics_mismatch"
    RULE_BROKEN = "rule_broken"
    UNREFERENCED = "unreferenced"


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """A problem or note, with its location."""

    code: VerifyFindingCode
    path: str
    detail: str

    @property
    def is_problem(self) -> bool:
        """Return whether the finding is a problem and not just a note."""
        return self.code is not VerifyFindingCode.UNREFERENCED

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON."""
        return {"code": self.code.value, "problem": self.is_problem, "path": self.path, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class VerifyReport(GraphReport):
    """All findings of a verification, and the amount of checked data."""

    deep: bool
    manifests: int
    table_versions: int
    findings: tuple[VerifyFinding, ...]

    @property
    def ok(self) -> bool:
        """Return whether there are no problems."""
        return not any(finding.is_problem for finding in self.findings)


RESTORING, READING, CHECKING, PUBLISHING, INDEXING = "restoring", "reading", "checking", "publishing", "indexing"


@dataclass(frozen=True, slots=True)
class StepProgress:
    """The progress of a piece of work.

    `step` is the current activity, and `detail` names its object, if there is one. `rows` counts the rows so far.
    `done` and `total` are counted in `unit`, such as bytes, tables or indexes. `total` is None if unknown.
    """

    step: str
    rows: int
    done: int = 0
    total: int | None = None
    unit: str = ""
    detail: str = ""


Watcher = Callable[[StepProgress], None]
"""Receives the progress of some work, in the thread that works. If it raises an exception, the work ends."""


def unwatched(progress: StepProgress) -> None:
    """Ignore progress reports."""
