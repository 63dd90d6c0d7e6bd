"""What an apply reports: of a run that wrote nothing, of a part that was carried out, and of several parts together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.cluster.apply.ended import Ended
from gitops.cluster.apply.run import Run
from gitops.cluster.approvals.decisions import open_debts
from gitops.cluster.model.address import Address, graph_address
from gitops.cluster.model.change import Change, Disposition, Reason
from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import NodeResult, Plan
from gitops.cluster.plan.republished import republished_queries
from gitops.cluster.session.session import Session
from gitops.core.errors import GitopsError

__all__ = ["joined", "report", "report_part", "republished_of"]


def report(
    current: Session,
    changes: Sequence[Change] = (),
    results: tuple[NodeResult, ...] = (),
    republished: frozenset[Address] = frozenset(),
) -> ApplyOutcome:
    """The report of a run that wrote nothing: counts are zero and the ledger is what is stored."""
    loaded = current.loaded
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        changes=tuple(changes),
        state=current.view.state,
        debts=open_debts(current.state),
        results=results,
        counted=False,
        republished=republished,
        diagnostics=tuple(current.problems),
    )


def report_part(run: Run, ended: Ended, republished: frozenset[Address]) -> ApplyOutcome:
    """The report of a part of a plan that was carried out; `republished` are its queries that are only published again."""
    current, settled = run.session, ended.settled
    changes = _left(run) if settled is None else settled.changes
    outcome = report(current, changes, ended.results, republished)
    if run.journal.recorded:
        outcome = replace(outcome, changesets=(run.journal.record,))
    if settled is None or not ended.settles:
        return outcome
    consumed = {approval.approval_id for approval in settled.consumed}
    used = {
        need.resource: need.spent
        for need in run.plan.approvals_required
        if consumed.intersection(a.approval_id for a in need.spent)
    }
    waits = any(graph_address(graph) in settled.state.resources for graph in run.swept.pending)
    return replace(
        outcome,
        counted=True,
        converged=ended.converged and not waits,
        state_written=ended.written,
        plan=run.plan,
        plan_digest=run.plan.digest,
        entry_id=current.view.head,
        approvals_used=used,
    )


def _left(run: Run) -> tuple[Change, ...]:
    """The changes of a run of which nothing landed; while its changeset is open, the next run decides."""
    waits = run.journal.recorded and run.journal.record.state is not ChangesetState.FAILED
    reason = Reason.RECOVERY_PENDING if waits else Reason.CHANGESET_FAILED
    return tuple(
        replace(change, disposition=Disposition.BLOCKED, reason=reason)
        if change.disposition is Disposition.APPLIED
        else change
        for change in run.plan.changes
    )


def joined(current: Session, earlier: ApplyOutcome | None, part: ApplyOutcome) -> ApplyOutcome:
    """The outcome of the parts so far: what they changed together, and how the last one ended."""
    if earlier is None:
        return part
    return replace(
        part,
        changes=tuple(sorted((*earlier.changes, *part.changes), key=lambda change: change.address)),
        results=(*earlier.results, *part.results),
        state=current.view.state,
        state_written=earlier.state_written or part.state_written,
        counted=True,
        approvals_used={**earlier.approvals_used, **part.approvals_used},
        republished=earlier.republished | part.republished,
        changesets=(*earlier.changesets, *part.changesets),
    )


def republished_of(current: Session, plan: Plan) -> frozenset[Address]:
    """The queries of a plan that are only published again, by the catalog as it is before that."""

    def read(query: Address, digest: str) -> bytes | None:
        declared = current.desired.resources[query]
        if digest == declared.digest:
            return declared.content
        with suppress(GitopsError):
            return current.opened.ledger.blob(query, digest).content
        return None

    return republished_queries(((each.address, each.before, each.after) for each in plan.changes), read)
