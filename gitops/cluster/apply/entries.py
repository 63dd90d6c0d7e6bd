"""A run's ledger entries, and the emergency debts that they open and settle. A ledger folder has no entries.

1. Before a run plans, valid countersignatures are recorded in a separate entry, so that no entry both opens and settles debts.
2. While a debt is open, only a further emergency can be applied.
3. A run that uses an emergency opens its debt; a run that completes an interrupted one opens the debts announced there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from gitops.cluster.approvals.decisions import debt_of, with_settled
from gitops.cluster.approvals.origins import names_of_authors
from gitops.cluster.approvals.verify import change_digest
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ApprovalEvidence
from gitops.cluster.model.change import Change, Disposition
from gitops.cluster.model.ledger import (
    ApprovalUse,
    Debt,
    DebtSettlement,
    EntryChange,
    EntryKind,
    LedgerEntry,
    LedgerState,
    Origin,
    SourceRevision,
    changeset_key,
)
from gitops.cluster.model.plan import ApprovalRequirement, Plan
from gitops.cluster.model.scope import ClusterScope
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.plan.landing import debts_stop
from gitops.cluster.session.gate import AcceptedApprovals, read_earlier_debts, report_debts
from gitops.cluster.session.session import Session
from gitops.cluster.session.workspace import Governance
from gitops.core.clock import timestamp
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError

_APPLIES_NOTHING = frozenset(
    {EntryKind.REFRESH, EntryKind.COUNTERSIGN, EntryKind.ADOPT, EntryKind.CHANGESET, EntryKind.DRILL}
)


@dataclass(frozen=True, slots=True)
class Facts:
    """An entry's content, except its place in the ledger.

    `operation` is the id of the run; None for writes outside of a run. `origins` are the origins of `changes`; an entry
    that does not list all changes repeats earlier ones. `recovered` are the operations that recovery settled.
    `trust_applied` means that new keys and rules take effect with this entry. `scope` is the cluster's location from
    then on. `ahead` means that a later merge is prepared before its turn, which applies nothing of it.
    """

    operation: str | None = None
    plan_digest: str | None = None
    config_digest: str | None = None
    changes: Sequence[Change] = ()
    approvals: tuple[ApprovalUse, ...] = ()
    origins: tuple[Origin, ...] = ()
    recovered: tuple[str, ...] = ()
    trust_applied: bool = False
    debts: tuple[Debt, ...] = ()
    settled: tuple[DebtSettlement, ...] = ()
    vanished: tuple[Address, ...] = ()
    scope: ClusterScope | None = None
    ahead: bool = False


def make_entry(current: Session, kind: EntryKind, facts: Facts, state: LedgerState | None = None) -> LedgerEntry | None:
    """Return a run's entry, or None without governance. The store sets its number and previous entry.

    It has the session's time as its date. `state` is written with it; without it, the recorded state is kept.
    """
    workspace, view = current.workspace, current.view
    governance = workspace.governance
    if governance is None:
        return None
    known = facts.origins
    if kind is not EntryKind.APPLY:
        known = tuple(dict.fromkeys((*governance.carried, *known)))
    source, config_digest = _source(kind, governance, view.entry, facts)
    in_force = view.trust.digest if view.trust is not None else governance.trust.digest
    return LedgerEntry(
        number=0,
        kind=kind,
        operation=facts.operation or workspace.ids.ulid(),
        at=timestamp(current.at),
        actor=workspace.actor,
        target=governance.target,
        previous=None,
        source=source,
        changeset=changeset_key(governance.target.cluster, "merge", source.commit),
        plan_digest=facts.plan_digest,
        config_digest=config_digest,
        state_revision=(state or current.state).revision,
        policy_digest=in_force,
        trust_digest=governance.trust.digest if facts.trust_applied or view.trust is None else in_force,
        changes=tuple(map(_listed, facts.changes)),
        approvals=facts.approvals,
        authors=names_of_authors(known),
        recovered=facts.recovered,
        debts=facts.debts,
        settled=facts.settled,
        forge=governance.forge or None,
        origins=known,
        vanished=facts.vanished,
        scope=facts.scope or governance.recorded(view),
    )


def _source(
    kind: EntryKind, governance: Governance, last: LedgerEntry | None, facts: Facts
) -> tuple[SourceRevision, str | None]:
    """Return the source of an entry.

    If the entry applies nothing, it is the last applied source, because later commits still need authors.
    """
    if (kind in _APPLIES_NOTHING or facts.ahead) and last is not None and last.source is not None:
        return last.source, last.config_digest
    return governance.source, facts.config_digest


def _listed(change: Change) -> EntryChange:
    return EntryChange(
        resource=change.address,
        operation=change.action.value,
        before=change.before,
        after=change.after,
        disposition=change.disposition.value,
        reason=None if change.reason is None else change.reason.value,
        binding_change=change.binding_change,
        seen=change.seen,
        tier=change.tier,
        digest=None if change.tier is None else change_digest(change),
        gates=tuple(sorted(change.gates)),
        callers=change.callers,
    )


def origins_of(governance: Governance, changes: Iterable[Change], gated: Container[Address]) -> tuple[Origin, ...]:
    """Return the origins that an entry records: for gated changes, and for unapplied ones that might be gated later."""
    resources: dict[Origin, list[Address]] = {}
    for change in changes:
        if change.address in gated or change.disposition in (Disposition.BLOCKED, Disposition.DEFERRED):
            for origin in governance.authors_for(change).origins:
                resources.setdefault(replace(origin, resources=()), []).append(change.address)
    ordered = sorted(resources, key=lambda each: (each.commit, each.how, each.by, *each.people))
    return tuple(replace(origin, resources=tuple(sorted(resources[origin]))) for origin in ordered)


def commit_entry(current: Session, write: LedgerWrite) -> bool:
    """Write a state with its entry. Return True on success; a failure is reported."""
    try:
        current.view = current.opened.ledger.commit(current.view, write)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True


def record_approved(
    current: Session,
    kind: EntryKind,
    plan: Plan,
    accepted: AcceptedApprovals,
    need: ApprovalRequirement,
    *,
    origins: tuple[Origin, ...] = (),
    scope: ClusterScope | None = None,
) -> bool:
    """Write the entry of a planned change that applies no resource. The entry consumes its approvals.

    Returns True if written.
    """
    draft = StateDraft(current.state)
    used = {"consumed_at": current.workspace.stamp(), "consumed_by_operation": "apply"}
    draft.use_approvals((approval.approval_id for approval in need.approvals), used)
    state = replace(draft.state(), revision=current.state.next_revision)
    facts = Facts(
        plan_digest=plan.digest,
        config_digest=plan.config_digest,
        changes=tuple(change for change in plan.changes if change.address == need.resource),
        approvals=accepted.uses_of(need.approvals),
        origins=origins,
        scope=scope,
    )
    entry = make_entry(current, kind, facts, state)
    return commit_entry(current, LedgerWrite(state, entry, (), need.approvals))


def settle_debts(current: Session) -> bool:
    """Apply rule 1. Returns False if the entry could not be written. Reads nothing if no debt is open."""
    governance = current.workspace.governance
    if governance is None or not current.state.debts:
        return True
    found = read_earlier_debts(current.opened.ledger.approvals(), current.view, governance, current.at)
    if not found.settled:
        return True
    state = with_settled(current.state, found.settled, timestamp(current.at))
    state = replace(state, revision=current.state.next_revision)
    facts = Facts(config_digest=current.desired.config_digest, settled=found.settled)
    entry = make_entry(current, EntryKind.COUNTERSIGN, facts, state)
    return commit_entry(current, LedgerWrite(state, entry))


def check_debts(current: Session, plan: Plan, approvals: AcceptedApprovals) -> None:
    """Apply rule 2: report every open debt, as an error if the debt stops the run."""
    severity = Severity.ERROR if debts_stop(plan, approvals) else Severity.WARNING
    report_debts(approvals.earlier.open, current.workspace.governance, current.problems, severity)


def announced_debts(announced: Sequence[ApprovalEvidence], completed: Iterable[str]) -> tuple[Debt, ...]:
    """Apply rule 3 to interrupted runs.

    Returns the debts of announced approvals that were found to be used during recovery.
    """
    used = set(completed)
    debts = (debt_of(evidence) for evidence in announced)
    return tuple(debt for debt in debts if debt is not None and debt.approval_id in used)
