"""The keys and rules of a branch ledger: whoever may change them may approve anything, so they are gated themselves."""

from __future__ import annotations

from gitops.model.change import Change, Disposition, Reason
from gitops.model.kind import APPLIED, Ruling, Situation

_GATE = "changing keys or rules changes who may approve"


class TrustKind:
    """Keys and rules take effect only with an approval under the keys and rules in force."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Applied when approved, else the old ones stay in force."""
        if change.address in situation.approved:
            return APPLIED
        return Disposition.BLOCKED, Reason.APPROVAL_REQUIRED

    def gate(self, change: Change, situation: Situation) -> str | None:  # noqa: ARG002 - always gated
        """Every change is gated."""
        return _GATE
