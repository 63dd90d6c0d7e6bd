"""`revoke` and `countersign`: signed decisions about an approval, each on a create-only branch of its own.

Neither loads the cluster folder: an approval can be revoked, and an emergency countersigned, while the folder is broken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gitops.approvals.decisions import (
    DecisionNeed,
    find_settlements,
    open_debts,
    verify_decision,
    verify_revocations,
)
from gitops.approvals.documents import decision_message
from gitops.approving.approve import ApprovalPublisher
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.ledger.chain import countersignatures_prefix, revocations_prefix
from gitops.ledger.evidence import read_decision_evidence
from gitops.ledger.port import LedgerStore, LedgerView
from gitops.model.approval import ApprovalEvidence, ClusterTarget, Decision, DecisionKind
from gitops.model.ledger import LockInfo
from gitops.model.outcome import DecisionOutcome
from gitops.model.trust import TrustRoot

_PREFIX = {DecisionKind.REVOKE: revocations_prefix, DecisionKind.COUNTERSIGN: countersignatures_prefix}


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """The ledger of a cluster, and who signs decisions about its approvals."""

    ledger: LedgerStore
    target: ClusterTarget
    publisher: ApprovalPublisher
    clock: Clock
    ids: IdSource
    faults: Faults
    pid: int = 0


@dataclass(frozen=True, slots=True)
class _Subject:
    """The approval that is decided about: who gave it, for what, and by which commit."""

    approval_id: str
    commit: str
    principal: str
    resource: str


def revoke(context: DecisionContext, approval_id: str, reason: str) -> DecisionOutcome:
    """Revoke an approval: from then on it never counts. What it already permitted stays.

    Holds the ledger's lock, so that every apply either used the approval before or sees the revocation. Where the lock cannot
    be taken because of an error, a warning says so. Repeating it gives the revocation that exists.
    """

    def decide(problems: Diagnostics) -> tuple[_Subject, str, TrustRoot]:
        with _locked(context, problems):
            view, trust = _read_ledger(context)
            state = view.state
            if state is not None and approval_id in state.approval_records:
                raise GitopsError(Code.APPROVAL_SPENT, f"{approval_id} is consumed; it cannot be revoked any more")
            listing = context.ledger.approvals()
            named = [e for e in listing.evidence if e.approval is not None and e.approval.approval_id == approval_id]
            subject = _find_subject(named, approval_id)
            revocations = verify_revocations(
                named, listing.decisions, trust, target=context.target, at=context.clock.now()
            )
            commit = next((each.evidence.commit for each in revocations if each.accepted), None)
            return subject, commit or _sign(context, DecisionKind.REVOKE, subject, view, reason), trust

    return _outcome(context, DecisionKind.REVOKE, approval_id, decide)


def countersign(context: DecisionContext, approval_id: str, reason: str) -> DecisionOutcome:
    """Countersign an emergency: the next entry settles its debt. Repeating it gives the countersignature that exists."""

    def decide(_: Diagnostics) -> tuple[_Subject, str, TrustRoot]:
        view, trust = _read_ledger(context)
        debts = () if view.state is None else open_debts(view.state)
        debt = next((d for d in debts if d.approval_id == approval_id), None)
        if debt is None:
            known = ", ".join(d.approval_id for d in debts) or "none"
            raise GitopsError(Code.DEBT_NOT_FOUND, f"{approval_id} has no open debt; open: {known}")
        subject = _Subject(debt.approval_id, debt.commit, debt.principal, debt.resource)
        settlements = find_settlements(
            [debt],
            context.ledger.approvals().decisions,
            trust,
            target=context.target,
            at=context.clock.now(),
            recorded=() if view.state is None else view.state.approval_records,
        )
        commit = next((each.commit for each in settlements), None)
        return subject, commit or _sign(context, DecisionKind.COUNTERSIGN, subject, view, reason), trust

    return _outcome(context, DecisionKind.COUNTERSIGN, approval_id, decide)


def _outcome(
    context: DecisionContext,
    kind: DecisionKind,
    approval_id: str,
    decide: Callable[[Diagnostics], tuple[_Subject, str, TrustRoot]],
) -> DecisionOutcome:
    problems = Diagnostics()
    outcome = DecisionOutcome(config_dir=context.target.path, operation=kind.value, approval_id=approval_id)
    try:
        subject, commit, trust = decide(problems)
        who = trust.principal(context.publisher.store.signature(commit).key, at=context.clock.now())
        outcome = replace(outcome, resource=subject.resource, decided_by=who or "", commit=commit)
    except GitopsError as error:
        problems.add(error.code, error.path or approval_id, error.detail, severity=Severity.ERROR)
    return replace(outcome, diagnostics=tuple(problems))


@contextlib.contextmanager
def _locked(context: DecisionContext, problems: Diagnostics) -> Iterator[None]:
    """Hold the ledger's lock, or warn that it could not be taken. Raises ConflictError `state_lock_held` if it is held."""
    info = LockInfo(context.ids.ulid(), "revoke", timestamp(context.clock.now()), context.pid)
    held = True
    try:
        context.ledger.acquire(info)
    except ConflictError:
        raise
    except GitopsError as error:
        held = False
        detail = f"{error.detail}; an apply in progress may still use the approval"
        problems.add(error.code, error.path, detail, severity=Severity.WARNING)
    try:
        yield
    finally:
        if held:
            context.ledger.release(info.lock_id)


def _read_ledger(context: DecisionContext) -> tuple[LedgerView, TrustRoot]:
    view = context.ledger.view()
    for problem in view.problems:
        raise GitopsError(problem.code, problem.message, path=problem.path)
    if view.head is None or view.trust is None:
        raise GitopsError(Code.LEDGER_MISSING, "there is no ledger branch to decide against")
    return view, view.trust


def _find_subject(named: list[ApprovalEvidence], approval_id: str) -> _Subject:
    """The approval of an id: where there are copies, the one on the branch of that name."""
    for evidence in sorted(named, key=lambda e: not e.ref.endswith(f"/{approval_id}")):
        if evidence.approval is not None:
            approval = evidence.approval
            return _Subject(approval_id, evidence.commit, approval.approved_by, approval.resource)
    raise GitopsError(Code.APPROVAL_NOT_FOUND, f"there is no approval {approval_id}")


def _sign(context: DecisionContext, kind: DecisionKind, subject: _Subject, view: LedgerView, reason: str) -> str:
    """Write, verify and push the decision commit. Raises GitopsError `decision_refused`, `approval_write_error`."""
    publisher, now = context.publisher, context.clock.now()
    if view.head is None or view.trust is None:
        raise AssertionError("decisions are made against a ledger entry")
    decision = Decision(
        kind=kind,
        decision_id=context.ids.ulid(),
        target=context.target,
        approval_id=subject.approval_id,
        subject=subject.commit,
        reason=reason,
        ledger_head=view.head,
        created_at=timestamp(now),
        nonce=context.ids.ulid(),
    )
    store = publisher.store
    author = replace(publisher.author, time=int(now.timestamp()))
    new = NewCommit(store.commit(view.head).tree, (view.head,), author, decision_message(decision))
    commit = store.write_commit(new, signing_key=publisher.signing_key)
    ref = _PREFIX[kind](context.target.cluster) + decision.decision_id
    need = DecisionNeed(context.target, now, subject.approval_id, subject.commit, subject.principal)
    evidence = read_decision_evidence(store, ref, commit, frozenset({view.head}))
    verification = verify_decision(evidence, kind, need, view.trust)
    if not verification.accepted:
        raise GitopsError(Code.DECISION_REFUSED, verification.problem)
    try:
        with around(context.faults, "cluster_decide", "push"):
            publisher.remote.push([RefUpdate(ref, ZERO, commit)])
    except ConflictError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, error.detail, path=ref) from error
    return commit
