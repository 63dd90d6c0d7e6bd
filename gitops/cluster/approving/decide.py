"""`revoke` and `countersign`: signed decisions about an approval, each on a separate create-only branch.

Neither loads the cluster folder, so you can revoke an approval or countersign an emergency while the folder is broken.

A revocation is a branch until a ledger entry records it, and on a host without rules for refs, others can delete it. So
`revoke` also removes the approval:

1. The approval branch is deleted in the push that creates the revocation. A remote that refuses to delete it, such as one
   with our hooks, gets only the revocation.
2. The approval branch is kept if the revocation counts only next to the approval, because its signer is no longer an
   approver. The branch of an attestation is also kept, which prevents the bot from attesting the same review again.
3. Afterwards the ledger is checked, because hooks record a revocation with its push. If no entry records it yet, the outcome
   says so, and its caller can wait for one, without the lock that the bot needs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from gitops.cluster.approvals.decisions import (
    DecisionNeed,
    find_settlements,
    recorded_revocations,
    verify_decision,
    verify_revocations,
)
from gitops.cluster.approvals.documents import decision_message
from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.ledger.chain import countersignatures_prefix, revocations_prefix
from gitops.cluster.ledger.evidence import read_decision_evidence
from gitops.cluster.ledger.port import ApprovalListing, LedgerStore, LedgerView
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    APPROVAL_NAMESPACE,
    ApprovalEvidence,
    ClusterTarget,
    Decision,
    DecisionEvidence,
    DecisionKind,
)
from gitops.cluster.model.ledger import Debt, LockInfo
from gitops.cluster.model.outcome import DecisionOutcome, DecisionSubject
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.session.session import REVOKING, RevocationContext, record_revocations
from gitops.core.cancel import Cancellation
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, NewCommit, RefUpdate

_LOOK_S = 2.0
_PREFIX = {DecisionKind.REVOKE: revocations_prefix, DecisionKind.COUNTERSIGN: countersignatures_prefix}


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """A cluster's ledger, and the signer of decisions about its approvals."""

    ledger: LedgerStore
    target: ClusterTarget
    publisher: ApprovalPublisher
    clock: Clock
    ids: IdSource
    faults: Faults
    pid: int = 0


def review(context: DecisionContext, kind: DecisionKind, approval_id: str) -> DecisionOutcome:
    """Return the subject of a decision about an approval. Writes nothing. `commit` is the existing revocation, if any."""
    problems, about, known = Diagnostics(), None, None
    try:
        view, trust = _read_ledger(context)
        if kind is DecisionKind.REVOKE:
            listing, named, about = _find_approval(context, view, approval_id)
            known = _known_revocation(context, view, trust, approval_id, listing, named)
        else:
            about = _subject_of(_find_debt(view, approval_id))
    except GitopsError as error:
        problems.add(error.code, error.path or approval_id, error.detail, severity=Severity.ERROR, fix=error.fix)
    path = context.target.path
    return DecisionOutcome(
        config_dir=path,
        operation=kind.value,
        approval_id=approval_id,
        about=about,
        commit=None if known is None else known.commit,
        diagnostics=tuple(problems),
    )


def revoke(context: DecisionContext, approval_id: str, reason: str, *, commit: str | None = None) -> DecisionOutcome:
    """Revoke an approval, so that it no longer counts. Changes that were already applied with it remain applied.

    `commit` is the commit of the approval that the signer reviewed. Holds the ledger's lock, so that every apply either
    used the approval earlier or sees the revocation. If the lock cannot be taken because of an error, there is a
    warning. A repeated call returns the existing revocation, and checks again whether an entry records it.
    """

    def decide(problems: Diagnostics) -> DecisionOutcome:
        with _locked(context, problems) as held:
            view, trust = _read_ledger(context)
            now = view.time(context.clock.now())
            listing, named, about = _find_approval(context, view, approval_id)
            _check_commit(about, commit)
            need = DecisionNeed(context.target, now, approval_id, about.commit, about.principal)
            known = _known_revocation(context, view, trust, approval_id, listing, named)
            evidence = known or _write(context, DecisionKind.REVOKE, need, view, reason)
            done_with = known is not None and _is_recorded(view, need)
            retired, kept = ([], "") if done_with else _retired(named, need, evidence, trust)
            created = [RefUpdate(evidence.ref, ZERO, evidence.commit)] if known is None else []
            kept = _push(context, created, retired) or kept
            if held:
                _record(context, evidence.commit, view, problems)
            recorded = _is_recorded(context.ledger.view(), need)
            if not recorded:
                detail = "anyone who deletes its branch before an entry records it undoes the revocation"
                again = f"gitops revoke {approval_id} --commit {about.commit} --cluster {context.target.cluster}"
                fix = f"wait for the next run of the bot, then check again: {again}"
                problems.add(Code.REVOCATION_NOT_RECORDED, approval_id, detail, fix=fix)
            return replace(
                outcome,
                resource=about.resource,
                decided_by=_signer(context, evidence.commit, trust, now) or "",
                commit=evidence.commit,
                recorded=recorded,
                deleted=() if kept else tuple(each.ref for each in retired),
                kept=kept,
            )

    outcome = _outcome(context, DecisionKind.REVOKE, approval_id)
    return _decided(outcome, decide)


def await_recorded(
    context: DecisionContext,
    outcome: DecisionOutcome,
    limit: timedelta,
    cancel: Cancellation,
    relist: Callable[[], object] = lambda: None,
) -> DecisionOutcome:
    """Return the outcome of a revocation once an entry records it, or after the time limit or a signal.

    `relist` makes the remote list its branches again. If anything cannot be read, the wait ends with that problem.
    """
    begun = context.clock.monotonic()
    while outcome.ok and outcome.recorded is False and not cancel.requested:
        left = limit.total_seconds() - (context.clock.monotonic() - begun)
        if left <= 0:
            break
        cancel.wait(min(left, _LOOK_S))
        relist()
        try:
            state = context.ledger.view().state
        except GitopsError as error:
            problems = Diagnostics(outcome.diagnostics)
            problems.add(error.code, error.path or outcome.approval_id, error.detail, severity=Severity.WARNING)
            return replace(outcome, diagnostics=tuple(problems))
        records = {} if state is None else state.decided
        if any(
            key == outcome.commit and record.get("revokes") == outcome.approval_id for key, record in records.items()
        ):
            left_over = (each for each in outcome.diagnostics if each.code != Code.REVOCATION_NOT_RECORDED)
            return replace(outcome, recorded=True, diagnostics=tuple(left_over))
    return outcome


def countersign(
    context: DecisionContext, approval_id: str, reason: str, *, commit: str | None = None
) -> DecisionOutcome:
    """Countersign an emergency approval. The next entry then settles its debt.

    `commit` is the commit of the approval that the signer reviewed. A repeated call returns the existing
    countersignature.
    """

    def decide(_: Diagnostics) -> DecisionOutcome:
        view, trust = _read_ledger(context)
        now = view.time(context.clock.now())
        debt = _find_debt(view, approval_id)
        _check_commit(_subject_of(debt), commit)
        need = DecisionNeed(context.target, now, approval_id, debt.commit, debt.principal)
        decisions = context.ledger.approvals().complete().decisions
        recorded = () if view.state is None else view.state.approval_records
        settlements = find_settlements([debt], decisions, trust, target=context.target, at=now, recorded=recorded)
        known = next((each.commit for each in settlements), None)
        if known is None:
            evidence = _write(context, DecisionKind.COUNTERSIGN, need, view, reason)
            _push(context, [RefUpdate(evidence.ref, ZERO, evidence.commit)])
            known = evidence.commit
        signer = _signer(context, known, trust, now) or ""
        return replace(outcome, resource=debt.resource, decided_by=signer, commit=known)

    outcome = _outcome(context, DecisionKind.COUNTERSIGN, approval_id)
    return _decided(outcome, decide)


def _find_approval(
    context: DecisionContext, view: LedgerView, approval_id: str
) -> tuple[ApprovalListing, list[ApprovalEvidence], DecisionSubject]:
    """Return all approvals, the ones with this id, and the subject of a revocation of that id.

    Raises GitopsError `approval_spent`, `approval_not_found`, `approval_read_error`.
    """
    if view.state is not None and approval_id in view.state.approval_records:
        raise GitopsError(
            Code.APPROVAL_SPENT,
            f"approval {approval_id} was consumed by an applied change, so it cannot be revoked",
            fix="find the entry that applied it: git fetch origin; gitops log; then undo it: gitops revert ENTRY",
        )
    listing = context.ledger.approvals().complete()
    named = [
        (evidence, evidence.approval)
        for evidence in listing.evidence
        if evidence.approval is not None and evidence.approval.approval_id == approval_id
    ]
    lone = None if named else _lone_revocation(context, view, listing, approval_id)
    if lone is not None and lone.decision is not None:
        gone = "its branch was deleted"
        about = DecisionSubject(resource=Address(""), principal="", commit=lone.decision.subject, reason=gone)
        return listing, [], about
    if not named:
        unread = next((each.problem for each in listing.evidence if each.ref.endswith(f"/{approval_id}")), "")
        why = f": its branch has no readable approval: {unread}" if unread else " does not exist"
        raise GitopsError(Code.APPROVAL_NOT_FOUND, f"approval {approval_id}{why}")
    # If there are copies, use the one on the branch with that name.
    evidence, approval = min(named, key=lambda each: not each[0].ref.endswith(f"/{approval_id}"))
    about = DecisionSubject(
        resource=approval.resource, principal=approval.approved_by, commit=evidence.commit, reason=approval.reason
    )
    return listing, [each for each, _ in named], about


def _find_debt(view: LedgerView, approval_id: str) -> Debt:
    """Return the open debt that an approval left. Raises GitopsError `debt_not_found`."""
    debts = () if view.state is None else view.state.debts
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


def _outcome(context: DecisionContext, kind: DecisionKind, approval_id: str) -> DecisionOutcome:
    return DecisionOutcome(config_dir=context.target.path, operation=kind.value, approval_id=approval_id)


def _decided(outcome: DecisionOutcome, decide: Callable[[Diagnostics], DecisionOutcome]) -> DecisionOutcome:
    """Return the outcome after `decide`, with its problems."""
    problems = Diagnostics()
    try:
        outcome = decide(problems)
    except GitopsError as error:
        problems.add(
            error.code, error.path or outcome.approval_id, error.detail, severity=Severity.ERROR, fix=error.fix
        )
    return replace(outcome, diagnostics=tuple(problems))


def _known_revocation(
    context: DecisionContext,
    view: LedgerView,
    trust: TrustRoot,
    approval_id: str,
    listing: ApprovalListing,
    named: Sequence[ApprovalEvidence],
) -> DecisionEvidence | None:
    """Return a revocation that already counts for the approval, whose copies are `named`."""
    if not named:
        return _lone_revocation(context, view, listing, approval_id)
    at = view.time(context.clock.now())
    revocations = verify_revocations(named, listing.decisions, trust, target=context.target, at=at)
    return next((each.evidence for each in revocations if each.accepted), None)


def _lone_revocation(
    context: DecisionContext, view: LedgerView, listing: ApprovalListing, approval_id: str
) -> DecisionEvidence | None:
    """Return a revocation whose approval is not available here.

    The ledger records it, or its signature alone makes it count.
    """
    records = {} if view.state is None else view.state.decided
    taken_in = next((commit for commit, record in records.items() if record.get("revokes") == approval_id), None)
    if taken_in is not None:
        return read_decision_evidence(context.publisher.store, "", taken_in, frozenset())
    at = view.time(context.clock.now())
    for evidence in listing.decisions:
        if view.trust is not None and evidence.decision is not None and evidence.decision.approval_id == approval_id:
            need = DecisionNeed(context.target, at, approval_id, evidence.decision.subject, "")
            if verify_decision(evidence, DecisionKind.REVOKE, need, view.trust).accepted:
                return evidence
    return None


def _is_recorded(view: LedgerView, need: DecisionNeed) -> bool:
    """Return True if the ledger records a revocation of the approval."""
    recorded = frozenset() if view.state is None else recorded_revocations(view.state)
    return not recorded.isdisjoint({(need.approval_id, need.principal), (need.approval_id, None)})


def _retired(
    named: Sequence[ApprovalEvidence], need: DecisionNeed, evidence: DecisionEvidence, trust: TrustRoot
) -> tuple[list[RefUpdate], str]:
    """Return the approval branches that a revocation makes useless, and the reason if they are not deleted (rule 2)."""
    own = [each for each in named if each.commit == need.commit and each.ref]
    if any(each.statement is not None and each.statement.grant is not None for each in own):
        return [], "it keeps the review from being attested again"
    if own and not verify_decision(evidence, DecisionKind.REVOKE, replace(need, principal=""), trust).accepted:
        return [], "the revocation is valid only together with it, because its signer is not an approver"
    return [RefUpdate(each.ref, each.commit, ZERO) for each in own], ""


def _signer(context: DecisionContext, commit: str, trust: TrustRoot, at: datetime) -> str | None:
    """Return the person whose key signed the commit of a decision, by the rules at that time."""
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
    """Record the revocation immediately if the ledger's key can write entries. Otherwise the bot's next run does it."""
    publisher, trust = context.publisher, view.trust
    signer = None if trust is None else _signer(context, commit, trust, view.time(context.clock.now()))
    if trust is None or signer not in trust.ledger_signers:
        return
    into = RevocationContext(context.ledger, context.target, context.clock, context.ids, publisher.author.email)
    try:
        # The push event may already have led to an entry.
        record_revocations(into, context.ledger.view())
    except GitopsError as error:
        detail = f"the revocation counts, but no entry records it yet: {error.detail}"
        problems.add(error.code, error.path, detail, severity=Severity.WARNING)


def _read_ledger(context: DecisionContext) -> tuple[LedgerView, TrustRoot]:
    view = context.ledger.view()
    for problem in view.problems:
        raise GitopsError(problem.code, problem.message, path=problem.path)
    if view.head is None or view.trust is None:
        raise GitopsError(Code.LEDGER_MISSING, "this needs a ledger branch, but the cluster has none")
    return view, view.trust


def _write(
    context: DecisionContext, kind: DecisionKind, need: DecisionNeed, view: LedgerView, reason: str
) -> DecisionEvidence:
    """Write and verify the decision commit, for the branch that is to be created. Raises GitopsError `decision_refused`."""
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
        fix = f"ask another person who can approve this resource to run: gitops {kind.value} {need.approval_id}"
        raise GitopsError(Code.DECISION_REFUSED, verification.problem, fix=fix)
    return evidence


def _push(context: DecisionContext, created: Sequence[RefUpdate], retired: Sequence[RefUpdate] = ()) -> str:
    """Create a decision's branch and delete the branches that it makes useless in one push, or only create it (rule 1).

    Returns why nothing was deleted; empty if all were. Raises GitopsError `approval_write_error`, `push_refused`,
    RemoteError.
    """
    remote, kept = context.publisher.remote, ""
    try:
        with around(context.faults, "cluster_decide", "push"):
            if retired:
                try:
                    remote.push([*created, *retired])
                except GitopsError as error:
                    # It is fine if a host never deletes such branches, because the revocation counts while the branch
                    # exists.
                    refused = error.code in (Code.PUSH_REFUSED, Code.GIT_REF_CONFLICT)
                    kept = (
                        "this server does not delete it; the revocation counts all the same"
                        if refused
                        else error.detail
                    )
            if created and (kept or not retired):
                remote.push(created)
    except ConflictError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, error.detail, path=created[0].ref) from error
    return kept
