"""Schemas: created and deleted with their graph, updated in place by migration."""

from __future__ import annotations

from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.kind import APPLIED, Ruling, Situation

_DELETE_GATE = "deleting a schema makes the data of its graph unreadable"
_PENDING: Ruling = (Disposition.BLOCKED, Reason.RECOVERY_PENDING)


class SchemaKind:
    """Rows 8 to 15 of the disposition table."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """A create rides on the graph's create, a delete on its delete; alone, neither is executed."""
        graph = change.address.name
        pending = graph in situation.pending
        if change.action is Action.CREATE:
            return APPLIED if graph in situation.created and not pending else _PENDING
        if change.action is Action.UPDATE:
            return _PENDING if pending else APPLIED
        if graph not in situation.deleted:
            return Disposition.DEFERRED, Reason.UNSUPPORTED_KIND
        if pending:
            return _PENDING
        if situation.delete_approved(graph):
            return APPLIED
        return Disposition.BLOCKED, Reason.APPROVAL_REQUIRED

    def gate(self, change: Change, situation: Situation) -> str | None:
        """A delete is gated unless the graph's own gate covers it."""
        alone = change.action is Action.DELETE and change.address.name not in situation.deleted
        return _DELETE_GATE if alone else None
