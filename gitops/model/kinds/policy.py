"""Access policies: content in the catalog, wired by normalized bindings."""

from __future__ import annotations

from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.kind import APPLIED, Ruling, Situation


class PolicyKind:
    """Rows 22 to 24 of the disposition table."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Published unless a graph that it is bound to waits for recovery."""
        bound = situation.policy_graphs.get(change.address, ())
        if change.action is not Action.DELETE and any(g in situation.pending for g in bound):
            return Disposition.BLOCKED, Reason.RECOVERY_PENDING
        return APPLIED

    def gate(self, change: Change, situation: Situation) -> str | None:  # noqa: ARG002 - never gated
        """Policies are reversible: no gate."""
        return None
