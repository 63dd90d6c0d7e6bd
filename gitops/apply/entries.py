"""Ledger entries of a run; a ledger folder has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops.cluster.workspace import Workspace
from gitops.ledger.port import LedgerView
from gitops.model.change import Change
from gitops.model.changeset import changeset_key
from gitops.model.entry import ApprovalUse, Debt, DebtSettlement, EntryChange, EntryKind, LedgerEntry


@dataclass(frozen=True, slots=True)
class EntryFacts:
    """What an entry says beyond who, when and where. `trust_applied` says that new keys and rules take effect."""

    operation: str
    state_revision: int
    plan_digest: str | None = None
    config_digest: str | None = None
    changes: Sequence[Change] = ()
    approvals: tuple[ApprovalUse, ...] = ()
    recovered: tuple[str, ...] = ()
    trust_applied: bool = False
    debts: tuple[Debt, ...] = ()
    settled: tuple[DebtSettlement, ...] = ()


def make_entry(workspace: Workspace, view: LedgerView, kind: EntryKind, facts: EntryFacts) -> LedgerEntry | None:
    """The entry document of a run under governance, else None. Number and previous entry are the store's to set."""
    governance = workspace.governance
    if governance is None:
        return None
    in_force = view.trust.digest if view.trust is not None else governance.trust.digest
    return LedgerEntry(
        number=0,
        kind=kind,
        operation=facts.operation,
        at=workspace.stamp(),
        actor=workspace.actor,
        target=governance.target,
        previous=None,
        source=governance.source,
        changeset=changeset_key(governance.target.cluster, "merge", governance.source.commit),
        plan_digest=facts.plan_digest,
        config_digest=facts.config_digest,
        state_revision=facts.state_revision,
        policy_digest=in_force,
        trust_digest=governance.trust.digest if facts.trust_applied or view.trust is None else in_force,
        changes=tuple(
            EntryChange(
                resource=c.address,
                operation=c.action.value,
                before=c.before,
                after=c.after,
                disposition=c.disposition.value,
                reason=None if c.reason is None else c.reason.value,
                binding_change=c.binding_change,
            )
            for c in facts.changes
        ),
        approvals=facts.approvals,
        authors=tuple(sorted(governance.authors)),
        recovered=facts.recovered,
        debts=facts.debts,
        settled=facts.settled,
    )
