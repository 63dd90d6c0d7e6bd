"""`revoke` and `countersign`: signed decisions about an approval, each on a create-only branch of its own.

Neither loads the cluster folder: an approval can be taken back, and an emergency agreed to, while the folder is broken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gitops.approvals.decisions import (
    DecisionNeed,
    Place,
    judge_revocations,
    open_debts,
    settlements,
    verify_decision,
)
from gitops.approvals.documents import decision_message
from gitops.approving.endorse import Endorsement
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.ledger.chain import countersignatures_prefix, revocations_prefix
from gitops.ledger.decisions import read_decision_evidence
from gitops.ledger.port import LedgerStore, LedgerView
from gitops.model.approval import ApprovalEvidence, Decision, DecisionKind, Target
from gitops.model.lock import LockInfo
from gitops.model.outcome import DecisionOutcome
from gitops.model.trust import TrustRoot

__all__ = ["Office", "countersign", "revoke"]

_PREFIX = {DecisionKind.REVOKE: revocations_prefix, DecisionKind.COUNTERSIGN: countersignatures_prefix}


@dataclass(frozen=True, slots=True)
class Office:
    """Where decisions about the approvals of a cluster are made, and who signs them."""

    ledger: LedgerStore
    target: Target
    by: Endorsement
    clock: Clock
    ids: IdSource
    faults: Faults
    pid: int = 0


@dataclass(frozen=True, slots=True)
class _Subject:
    """The approval that is decided about: whose it is, for what, and by which commit."""

    approval_id: str
    commit: str
    principal: str
    resource: str


@dataclass(frozen=True, slots=True)
class _Made:
    """A decision that is where every run looks for it, and the keys by which it counts."""

    subject: _Subject
    commit: str
    trust: TrustRoot


def revoke(office: Office, approval_id: str, reason: str) -> DecisionOutcome:
    """Take an approval back: from then on it never counts. What it already permitted stays.

    The lock of the ledger is held meanwhile, so that every run either used the approval before or sees the revocation. Where the
    lock cannot be taken at all, a warning says so. Repeating it gives the revocation that is there.
    """

    def decide(problems: Diagnostics) -> _Made:
        with _locked(office, problems):
            view, trust = _ledger(office)
            state = view.state
            if state is not None and approval_id in state.approval_records:
                raise GitopsError(Code.APPROVAL_SPENT, f"{approval_id} was used; there is nothing to take back")
            listing = office.ledger.approvals()
            named = [e for e in listing.evidence if e.approval is not None and e.approval.approval_id == approval_id]
            subject = _subject(named, approval_id)
            judged = judge_revocations(named, listing.decisions, Place(office.target, office.clock.now()), trust)
            there = next((v.evidence.commit for v in judged if v.good), None)
            return _Made(subject, there or _sign(office, DecisionKind.REVOKE, subject, (view, reason)), trust)

    return _outcome(DecisionKind.REVOKE, approval_id, decide, office)


def countersign(office: Office, approval_id: str, reason: str) -> DecisionOutcome:
    """Agree to what somebody did alone with an approval: the next entry settles its debt."""

    def decide(_: Diagnostics) -> _Made:
        view, trust = _ledger(office)
        owed = () if view.state is None else open_debts(view.state)
        debt = next((d for d in owed if d.approval_id == approval_id), None)
        if debt is None:
            known = ", ".join(d.approval_id for d in owed) or "none"
            raise GitopsError(Code.DEBT_NOT_FOUND, f"{approval_id} owes nothing; open: {known}")
        subject = _Subject(debt.approval_id, debt.commit, debt.principal, debt.resource)
        decisions = office.ledger.approvals().decisions
        place = Place(office.target, office.clock.now())
        taken = () if view.state is None else view.state.approval_records
        there = next((s.commit for s in settlements([debt], decisions, place, trust, taken=taken)), None)
        return _Made(subject, there or _sign(office, DecisionKind.COUNTERSIGN, subject, (view, reason)), trust)

    return _outcome(DecisionKind.COUNTERSIGN, approval_id, decide, office)


def _outcome(
    kind: DecisionKind, approval_id: str, decide: Callable[[Diagnostics], _Made], office: Office
) -> DecisionOutcome:
    problems = Diagnostics()
    done = DecisionOutcome(config_dir=office.target.path, operation=kind.value, approval_id=approval_id)
    try:
        made = decide(problems)
        who = made.trust.principal(office.by.store.signature(made.commit).key, at=office.clock.now())
        done = replace(done, resource=made.subject.resource, decided_by=who or "", commit=made.commit)
    except GitopsError as error:
        problems.add(error.code, error.path or approval_id, error.detail, severity=Severity.ERROR)
    return replace(done, diagnostics=tuple(problems))


@contextlib.contextmanager
def _locked(office: Office, problems: Diagnostics) -> Iterator[None]:
    """Hold the ledger's lock where that can be had. Raises ConflictError `state_lock_held` when a run holds it."""
    info = LockInfo(office.ids.ulid(), "revoke", timestamp(office.clock.now()), office.pid)
    held = True
    try:
        office.ledger.acquire(info)
    except ConflictError:
        raise
    except GitopsError as error:
        held = False
        detail = f"{error.detail}; a run that goes on right now may still use the approval"
        problems.add(error.code, error.path, detail, severity=Severity.WARNING)
    try:
        yield
    finally:
        if held:
            office.ledger.release(info.lock_id)


def _ledger(office: Office) -> tuple[LedgerView, TrustRoot]:
    view = office.ledger.view()
    for problem in view.problems:
        raise GitopsError(problem.code, problem.message, path=problem.path)
    if view.head is None or view.trust is None:
        raise GitopsError(Code.LEDGER_MISSING, "there is no ledger branch to decide against")
    return view, view.trust


def _subject(named: list[ApprovalEvidence], approval_id: str) -> _Subject:
    """The approval of an id: the one on the branch of that name, where somebody copied it."""
    for evidence in sorted(named, key=lambda e: not e.ref.endswith(f"/{approval_id}")):
        if evidence.approval is not None:
            approval = evidence.approval
            return _Subject(approval_id, evidence.commit, approval.approved_by, approval.resource)
    raise GitopsError(Code.APPROVAL_NOT_FOUND, f"there is no approval {approval_id}")


def _sign(office: Office, kind: DecisionKind, subject: _Subject, basis: tuple[LedgerView, str]) -> str:
    """Write, verify and push the decision commit. Raises GitopsError `decision_refused`, `approval_write_error`."""
    (view, reason), by = basis, office.by
    if view.head is None or view.trust is None:
        raise AssertionError("decisions are made against a ledger entry")
    decision = Decision(
        kind=kind,
        decision_id=office.ids.ulid(),
        target=office.target,
        approval_id=subject.approval_id,
        subject=subject.commit,
        reason=reason,
        ledger_head=view.head,
        created_at=timestamp(office.clock.now()),
        nonce=office.ids.ulid(),
    )
    author = replace(by.author, time=int(office.clock.now().timestamp()))
    tree = by.store.commit(view.head).tree
    commit = NewCommit(tree, (view.head,), author, decision_message(decision))
    draft = by.store.write_commit(commit, signing_key=by.signing_key)
    ref = _PREFIX[kind](office.target.cluster) + decision.decision_id
    need = DecisionNeed(
        Place(office.target, office.clock.now()), subject.approval_id, subject.commit, subject.principal
    )
    evidence = read_decision_evidence(by.store, ref, draft, frozenset({view.head}))
    verdict = verify_decision(evidence, kind, need, view.trust)
    if not verdict.good:
        raise GitopsError(Code.DECISION_REFUSED, verdict.problem)
    try:
        with around(office.faults, "cluster_decide", "push"):
            by.remote.push([RefUpdate(ref, ZERO, draft)])
    except ConflictError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, error.detail, path=ref) from error
    return draft
