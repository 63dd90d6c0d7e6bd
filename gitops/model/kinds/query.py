"""Stored queries: content in the catalog, published by digest."""

from __future__ import annotations

from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.kind import APPLIED, Ruling, Situation


class QueryKind:
    """Rows 16 to 21 of the disposition table."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Published unless its graph is in trouble; removed with its graph only when that is approved."""
        graph = change.address.graph
        pending = graph in situation.pending
        if change.action is Action.DELETE:
            if graph not in situation.deleted or (situation.delete_approved(graph) and not pending):
                return APPLIED
            return Disposition.BLOCKED, Reason.APPROVAL_REQUIRED
        if pending:
            return Disposition.BLOCKED, Reason.RECOVERY_PENDING
        if graph in situation.schema_unsettled:
            return Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED
        return APPLIED

    def gate(self, change: Change, situation: Situation) -> str | None:  # noqa: ARG002 - never gated
        """Queries are reversible: no gate."""
        return None
