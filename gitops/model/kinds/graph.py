"""Graphs: created and deleted as a whole; an update is only the consequence of schema and query changes."""

from __future__ import annotations

from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.kind import APPLIED, Ruling, Situation

_DELETE_GATE = "deleting a graph destroys its data"


class GraphKind:
    """Rows 1 to 7 of the disposition table."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Creates run, updates are derived, deletes need an approval."""
        graph = change.address.name
        if change.action is Action.UPDATE:
            if graph in situation.schema_unsettled:
                return Disposition.DEFERRED, Reason.UNSUPPORTED_KIND
            return Disposition.DERIVED, None
        if graph in situation.pending:
            return Disposition.BLOCKED, Reason.RECOVERY_PENDING
        if change.action is Action.CREATE or change.address in situation.approved:
            return APPLIED
        return Disposition.BLOCKED, Reason.APPROVAL_REQUIRED

    def gate(self, change: Change, situation: Situation) -> str | None:  # noqa: ARG002 - the rule needs no situation
        """Every delete is gated."""
        return _DELETE_GATE if change.action is Action.DELETE else None
