"""What `optimize`, `gc`, `purge`, `verify` and `preview` of the graph database return; without the Lance driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gitops.graph.results import GraphOutcome

if TYPE_CHECKING:
    from gitops.language.schema.steps import MigrationStep


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
class OptimizeResult(GraphOutcome):
    """What was done, by table key; `manifest_version` is the newest version afterwards."""

    manifest_version: int
    tables: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GcResult(GraphOutcome):
    """What was removed, or with `dry_run` what would be; `bytes` is then an estimate."""

    dry_run: bool
    manifests: int
    table_versions: Mapping[str, tuple[int, ...]]
    paths: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True)
class PurgeResult(GraphOutcome):
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


_NOTES = frozenset({VerifyFindingCode.UNREFERENCED})


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One finding and the place that it is about."""

    code: VerifyFindingCode
    path: str
    detail: str

    @property
    def is_problem(self) -> bool:
        """Whether anything is wrong; a note is not."""
        return self.code not in _NOTES

    def to_json(self) -> dict[str, Any]:
        """The finding as plain JSON."""
        return {"code": self.code.value, "problem": self.is_problem, "path": self.path, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class VerifyReport(GraphOutcome):
    """All findings, and how much was looked at."""

    findings: tuple[VerifyFinding, ...]
    manifests: int
    table_versions: int
    deep: bool

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not any(finding.is_problem for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return {
            "ok": self.ok,
            "deep": self.deep,
            "manifests": self.manifests,
            "table_versions": self.table_versions,
            "findings": [finding.to_json() for finding in self.findings],
        }
