"""`revoke` and `countersign`: signed decisions about an approval, each on a create-only branch of its own.

Neither loads the cluster folder: an approval can be revoked, and an emergency countersigned, while the folder is broken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial

from gitops.approvals.decisions import (
    DecisionNeed,
    find_settlements,
    open_debts,
    verify_decision,
    verify_revocations,
)
from gitops.approvals.documents import decision_message
from gitops.approving.sign import ApprovalPublisher
from gitops.cluster.revocations import REVOKING, RevocationContext, record_revocations
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.ledger.chain import countersignatures_prefix, revocations_prefix
from gitops.ledger.evidence import read_decision_evidence
from gitops.ledger.port import ApprovalListing, LedgerStore, LedgerView
from gitops.model.approval import APPROVAL_NAMESPACE, ApprovalEvidence, ClusterTarget, Decision, DecisionKind
from gitops.model.ledger import Debt, LockInfo
from gitops.model.outcome import DecisionOutcome, DecisionSubject
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


def review(context: DecisionContext, kind: DecisionKind, approval_id: str) -> DecisionOutcome:
    """What a decision about an approval would be about. Writes nothing."""
    problems, about = Diagnostics(), None
    try:
        view, _ = _read_ledger(context)
        if kind is DecisionKind.REVOKE:
            _, _, about = _find_approval(context, view, approval_id)
        else:
            about = _subject_of(_find_debt(view, approval_id))
    except GitopsError as error:
        problems.add(error.code, error.path or approval_id, error.detail, severity=Severity.ERROR)
    path = context.target.path
    return DecisionOutcome(
        config_dir=path, operation=kind.value, approval_id=approval_id, about=about, diagnostics=tuple(problems)
    )


def revoke(context: DecisionContext, approval_id: str, reason: str, *, commit: str | None = None) -> DecisionOutcome:
    """Revoke an approval: from then on it never counts. What it already permitted stays.

    `commit` is that of the approval that the signer has seen. Holds the ledger's lock, so that every apply either used the
    approval before or sees the revocation. Where the lock cannot be taken because of an error, a warning says so. Repeating it
    gives the revocation that exists.
    """

    def decide(problems: Diagnostics) -> tuple[str, str, str]:
        with _locked(context, problems) as held:
            view, trust = _read_ledger(context)
            now = view.time(context.clock.now())
            listing, named, about = _find_approval(context, view, approval_id)
            _check_commit(about, commit)
            need = DecisionNeed(context.target, now, approval_id, about.commit, about.principal)
            revocations = verify_revocations(named, listing.decisions, trust, target=context.target, at=now)
            known = next((each.evidence.commit for each in revocations if each.accepted), None)
            done = known or _sign(context, DecisionKind.REVOKE, need, view, reason)
            if held:
                _record(context, done, view, problems)
            return about.resource, done, _signer(context, done, trust, now) or ""

    return _outcome(context, DecisionKind.REVOKE, approval_id, decide)


def countersign(
    context: DecisionContext, approval_id: str, reason: str, *, commit: str | None = None
) -> DecisionOutcome:
    """Countersign an emergency: the next entry settles its debt. Repeating it gives the countersignature that exists.

    `commit` is that of the approval that the signer has seen.
    """

    def decide(_: Diagnostics) -> tuple[str, str, str]:
        view, trust = _read_ledger(context)
        now = view.time(context.clock.now())
        debt = _find_debt(view, approval_id)
        _check_commit(_subject_of(debt), commit)
        need = DecisionNeed(context.target, now, approval_id, debt.commit, debt.principal)
        decisions = context.ledger.approvals().complete().decisions
        recorded = () if view.state is None else view.state.approval_records
        settlements = find_settlements([debt], decisions, trust, target=context.target, at=now, recorded=recorded)
        known = next((each.commit for each in settlements), None)
        done = known or _sign(context, DecisionKind.COUNTERSIGN, need, view, reason)
        return debt.resource, done, _signer(context, done, trust, now) or ""

    return _outcome(context, DecisionKind.COUNTERSIGN, approval_id, decide)


def _find_approval(
    context: DecisionContext, view: LedgerView, approval_id: str
) -> tuple[ApprovalListing, list[ApprovalEvidence], DecisionSubject]:
    """All approvals, those with this id, and what a revocation of that id is about.

    Raises GitopsError `approval_spent`, `approval_not_found`, `approval_read_error`.
    """
    if view.state is not None and approval_id in view.state.approval_records:
        raise GitopsError(
            Code.APPROVAL_SPENT, f"approval {approval_id} was consumed by an applied change, so it cannot be revoked"
        )
    listing = context.ledger.approvals().complete()
    named = [
        (evidence, evidence.approval)
        for evidence in listing.evidence
        if evidence.approval is not None and evidence.approval.approval_id == approval_id
    ]
    if not named:
        unread = next((each.problem for each in listing.evidence if each.ref.endswith(f"/{approval_id}")), "")
        why = f": its branch has no readable approval: {unread}" if unread else " does not exist"
        raise GitopsError(Code.APPROVAL_NOT_FOUND, f"approval {approval_id}{why}")
    # Where there are copies, the one on the branch of that name.
    evidence, approval = min(named, key=lambda each: not each[0].ref.endswith(f"/{approval_id}"))
    about = DecisionSubject(
        resource=approval.resource, principal=approval.approved_by, commit=evidence.commit, reason=approval.reason
    )
    return listing, [each for each, _ in named], about


def _find_debt(view: LedgerView, approval_id: str) -> Debt:
    """The open debt that an approval left. Raises GitopsError `debt_not_found`."""
    debts = () if view.state is None else open_debts(view.state)
    debt = next((d for d in debts if d.approval_id == approval_id), None)
    if debt is None:
        known = ", ".join(d.approval_id for d in debts) or "none"
        raise GitopsError(Code.DEBT_NOT_FOUND, f"{approval_id} has no open debt; open: {known}")
    return debt


def _subject_of(debt: Debt) -> DecisionSubject:
    return DecisionSubject(resource=debt.resource, principal=debt.principal, commit=debt.commit, reason=debt.reason)


def _check_commit(about: DecisionSubject, commit: str | None) -> None:
    if commit not in (None, about.commit):
        raise GitopsError(Code.APPROVAL_NOT_FOUND, f"the approval has the commit {about.commit}, not {commit}")


def _outcome(
    context: DecisionContext,
    kind: DecisionKind,
    approval_id: str,
    decide: Callable[[Diagnostics], tuple[str, str, str]],
) -> DecisionOutcome:
    """The outcome of `decide`, which gives the resource, the commit of the decision and the person who signed it."""
    problems = Diagnostics()
    outcome = DecisionOutcome(config_dir=context.target.path, operation=kind.value, approval_id=approval_id)
    try:
        resource, commit, who = decide(problems)
        outcome = replace(outcome, resource=resource, decided_by=who, commit=commit)
    except GitopsError as error:
        problems.add(error.code, error.path or approval_id, error.detail, severity=Severity.ERROR)
    return replace(outcome, diagnostics=tuple(problems))


def _signer(context: DecisionContext, commit: str, trust: TrustRoot, at: datetime) -> str | None:
    """The person whose key signed the commit of a decision, by the rules at that time."""
    return trust.principal(context.publisher.store.signature(commit).key, at=at)


@contextlib.contextmanager
def _locked(context: DecisionContext, problems: Diagnostics) -> Iterator[bool]:
    """Hold the ledger's lock (True), or warn that it could not be taken. Raises ConflictError `state_lock_held` if it is held."""
    info = LockInfo(context.ids.ulid(), REVOKING, timestamp(context.clock.now()), context.pid)
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
        yield held
    finally:
        if held:
            context.ledger.release(info.lock_id)


def _record(context: DecisionContext, commit: str, view: LedgerView, problems: Diagnostics) -> None:
    """Take the revocation into the ledger at once, where its key may also write entries; else the bot's next run does."""
    publisher, trust = context.publisher, view.trust
    signer = None if trust is None else _signer(context, commit, trust, view.time(context.clock.now()))
    if trust is None or signer not in trust.ledger_signers:
        return
    into = RevocationContext(context.ledger, context.target, context.clock, context.ids, publisher.author.email)
    try:
        # The event of the push may have led to an entry already.
        record_revocations(into, context.ledger.view())
    except GitopsError as error:
        detail = f"the revocation counts, but no entry records it yet: {error.detail}"
        problems.add(error.code, error.path, detail, severity=Severity.WARNING)


def _read_ledger(context: DecisionContext) -> tuple[LedgerView, TrustRoot]:
    view = context.ledger.view()
    for problem in view.problems:
        raise GitopsError(problem.code, problem.message, path=problem.path)
    if view.head is None or view.trust is None:
        raise GitopsError(Code.LEDGER_MISSING, "the cluster has no ledger branch, which this needs")
    return view, view.trust


def _sign(context: DecisionContext, kind: DecisionKind, need: DecisionNeed, view: LedgerView, reason: str) -> str:
    """Write, verify and push the decision commit. Raises GitopsError `decision_refused`, `approval_write_error`."""
    publisher, store = context.publisher, context.publisher.store
    if view.head is None or view.trust is None:
        raise AssertionError("decisions are made against a ledger entry")
    decision = Decision(
        kind=kind,
        decision_id=context.ids.ulid(),
        target=context.target,
        approval_id=need.approval_id,
        subject=need.commit,
        reason=reason,
        ledger_head=view.head,
        created_at=timestamp(need.at),
        nonce=context.ids.ulid(),
    )
    author = replace(publisher.author, time=int(need.at.timestamp()))
    sign = partial(store.sign, signing_key=publisher.signing_key, namespace=APPROVAL_NAMESPACE)
    new = NewCommit(store.commit(view.head).tree, (view.head,), author, decision_message(decision, sign=sign))
    commit = store.write_commit(new, signing_key=publisher.signing_key)
    ref = _PREFIX[kind](context.target.cluster) + decision.decision_id
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
