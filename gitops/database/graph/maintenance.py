"""What the verbs that maintain a graph return: values with a plain JSON form, which need no Lance driver."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gitops.core.dataclass import dataclass
from gitops.database.graph.results import GraphOutcome, GraphReport

if TYPE_CHECKING:
    from gitops.database.language.schema.steps import MigrationStep


@dataclass(frozen=True, slots=True)
class StepEffect:
    """One step and how many rows it touches: all rows of the table, or for a dropped property those that lose a value.

    `rows` is None for a step that touches no table.
    """

    step: MigrationStep
    rows: int | None

    def to_json(self) -> dict[str, Any]:
        """The step as plain JSON, with its rows."""
        return {**self.step.to_json(), "rows": self.rows}


@dataclass(frozen=True, slots=True)
class PreviewReport(GraphOutcome):
    """What the migration does; `tables` has the rows of each table afterwards, empty when it is not supported."""

    supported: bool
    manifest_version: int
    steps: tuple[StepEffect, ...]
    tables: dict[str, int]

    @property
    def ok(self) -> bool:
        """Whether the graph can be migrated."""
        return self.supported


@dataclass(frozen=True, slots=True)
class OptimizeResult(GraphReport):
    """What was done, by table key; `manifest_version` is the newest version afterwards."""

    manifest_version: int
    tables: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GcResult(GraphReport):
    """What was removed, or with `dry_run` what would be; `bytes` is then an estimate."""

    dry_run: bool
    manifests: int
    table_versions: Mapping[str, tuple[int, ...]]
    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeResult(GraphReport):
    """What went, or with `dry_run` would go: types by table key, and properties by the key of their table.

    `manifest_version` is the newest version afterwards.
    """

    dry_run: bool
    manifest_version: int
    types: tuple[str, ...]
    properties: Mapping[str, tuple[str, ...]]


class VerifyFindingCode(StrEnum):
    """What is wrong, or worth a note."""

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
    RULE_BROKEN = "rule_broken"
    UNREFERENCED = "unreferenced"


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One finding and the place that it is about."""

    code: VerifyFindingCode
    path: str
    detail: str

    @property
    def is_problem(self) -> bool:
        """Whether anything is wrong; a note is not."""
        return self.code is not VerifyFindingCode.UNREFERENCED

    def to_json(self) -> dict[str, Any]:
        """The finding as plain JSON."""
        return {"code": self.code.value, "problem": self.is_problem, "path": self.path, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class VerifyReport(GraphReport):
    """All findings, and how much was looked at."""

    deep: bool
    manifests: int
    table_versions: int
    findings: tuple[VerifyFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.is_problem for finding in self.findings)
