"""Intents: what is about to happen to a graph root, written before it happens (recovery sidecars)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gitops.core.codes import Code


class IntentKind(StrEnum):
    """The three operations that move a graph root."""

    GRAPH_CREATE = "graph_create"
    SCHEMA_APPLY = "schema_apply"
    GRAPH_DELETE = "graph_delete"


@dataclass(frozen=True, slots=True)
class Intent:
    """One recovery sidecar (`recoveries/<operation_id>.json`).

    `operation_id` is a ULID and the file name. Manifest versions and `state_cas_base` are forensic only: an interrupted
    operation is classified by root presence, openability and schema digests. `desired_schema_digest` is empty for a
    delete. `graph_uri` is informational; the root is derived from `graph_id`. `co_approvals` are the ids of further
    approvals that the operation uses up, where the rules ask for more than one; only a branch ledger has such rules.
    """

    operation_id: str
    started_at: str
    actor: str | None
    kind: IntentKind
    graph_id: str
    graph_uri: str
    observed_manifest_version: int | None
    expected_manifest_version: int | None
    desired_schema_digest: str
    state_cas_base: str | None
    approval_id: str | None
    co_approvals: tuple[str, ...] = ()

    @property
    def approval_ids(self) -> tuple[str, ...]:
        """Every approval that the operation uses up."""
        return () if self.approval_id is None else (self.approval_id, *self.co_approvals)


@dataclass(frozen=True, slots=True)
class UnreadableIntent:
    """A sidecar that cannot be used: `code` says why (`invalid_recovery_sidecar`, `unsupported_recovery_sidecar_version`)."""

    name: str
    code: Code
    detail: str
