"""Attestations: a review or a comment on a forge as its author's approval, in a commit that the bot's ledger key signs.

An attestation names the account (by the forge's number), the review or comment, the commit that it is about, and the cluster
folder of that commit. It passes the same numbered steps as any approval before it is pushed. The forge is trusted only to
report what the account did; what that permits is decided by the rules of the ledger.

1. For each account only the newest approval, request for changes or dismissal counts; comments change nothing.
2. A review of another commit than the head counts if that commit has the folder that would be applied: the caller decides.
3. Each review or comment is attested once: after its attestation was revoked, the person has to approve again.
4. An attestation of a review lapses when the account's newest review is not an approval any more; that of a command in a
   comment, when the account requested changes, or was dismissed, after it. The bot that attested it revokes what lapsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gitops.cluster.approvals.decisions import revoked_approvals, verify_revocations
from gitops.cluster.approvals.verify import verify_approval
from gitops.cluster.approving.approve import (
    ApprovalPublisher,
    GatedChange,
    Written,
    approve_in_session,
    push_approvals,
    read_gated_change,
    write_approval_commit,
)
from gitops.cluster.approving.decide import DecisionContext, revoke
from gitops.cluster.ledger.port import ApprovalListing
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ApprovalEvidence, ForgeGrant, GrantSource, Via
from gitops.cluster.model.outcome import ApprovalSubject, ApproveOutcome, DecisionOutcome
from gitops.cluster.session.session import Session
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import Account, Review, ReviewState

_COUNTED = (ReviewState.APPROVED, ReviewState.CHANGES_REQUESTED, ReviewState.DISMISSED)


def attest(
    workspace: Workspace,
    address: Address,
    grant: ForgeGrant,
    publisher: ApprovalPublisher,
    *,
    plan_digest: str | None = None,
) -> ApproveOutcome:
    """Attest `grant` as the approval of the change of `address`; refused before the push when it would not count.

    `publisher` is the bot's, with its ledger key; `plan_digest` is that of the plan that the person named, if they named one.
    The caller has fetched the commit that was reviewed. Repeating it gives the attestation that exists.
    """

    def prepare(current: Session) -> tuple[ApprovalSubject, Callable[[], Written]]:
        gated = read_gated_change(current, address)
        return gated.subject, lambda: make(current, gated)

    def make(current: Session, gated: GatedChange) -> tuple[Approval, str]:
        store, reviewed = publisher.store, grant.commit
        if plan_digest not in (None, gated.plan.digest):
            detail = f"the plan is now {gated.plan.digest}; review it, then approve it"
            raise GitopsError(Code.COMMAND_REFUSED, detail, path=address)
        principal = gated.trust.account(grant.account)
        if principal is None:
            detail = f"approvals.accounts lists no person for {grant.account} ({grant.login})"
            raise GitopsError(Code.APPROVAL_ACCOUNT_UNKNOWN, detail, path=address)
        target = gated.governance.target
        if store.resolve(reviewed) is None:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"the reviewed commit {reviewed[:12]} is missing here")
        tree = store.subtree(store.commit(reviewed).tree, target.path)
        if tree is None:
            detail = f"the reviewed commit {reviewed[:12]} has no folder {target.path}"
            raise GitopsError(Code.APPROVAL_STALE, detail)
        listing = current.opened.ledger.approvals().complete()
        # Those of the same review or comment, of any commit. Login and address are for people, and may change.
        same = [attested for attested in _attestations(listing) if _identity(attested[2]) == _identity(grant)]
        evidence = [found for found, _, _ in same]
        revoked = revoked_approvals(
            verify_revocations(evidence, listing.decisions, gated.trust, target=target, at=gated.at)
        )
        need = replace(gated.need(), consumed=gated.consumed, revoked=revoked)
        for found, approval, given in same:
            equal = (given.commit, given.tree) == (reviewed, tree)
            if equal and verify_approval(found, need, gated.trust).accepted:
                return approval, found.commit
        # Otherwise the next event would restore what was revoked.
        for _, approval, _ in same:
            identity = (approval.approval_id, principal)
            if (approval.resource, approval.approved_by) == (address, principal) and identity in revoked:
                what = f"the attestation of this {grant.source} of {principal} was revoked"
                raise GitopsError(Code.APPROVAL_REVOKED, f"{what}; approve again with a new one", path=address)
        attested = replace(grant, tree=tree)
        approval, update = write_approval_commit(gated, publisher, via=Via.FORGE, grant=attested, principal=principal)
        push_approvals(gated.workspace, publisher, [update])
        return approval, update.new

    return approve_in_session(workspace, address, prepare)


def _attestations(listing: ApprovalListing) -> list[tuple[ApprovalEvidence, Approval, ForgeGrant]]:
    """The evidence of attestations, with the document and the grant of each."""
    return [
        (evidence, evidence.approval, evidence.statement.grant)
        for evidence in listing.evidence
        if evidence.approval is not None and evidence.statement is not None and evidence.statement.grant is not None
    ]


def _identity(grant: ForgeGrant) -> tuple[object, ...]:
    """What identifies a review or comment, whatever commit it is about."""
    return grant.account, grant.request, grant.source, grant.reference


def newest_reviews(reviews: Iterable[Review]) -> dict[str, Review]:
    """Account id to its newest review that counts; `reviews` are in the order in which they were given. Rule 1."""
    return {review.account.id: review for review in reviews if review.state in _COUNTED}


def approving_reviews(reviews: Iterable[Review], counts: Callable[[str], bool]) -> tuple[Review, ...]:
    """The approvals among the newest reviews, of commits for which `counts` holds. Rules 1 and 2."""
    newest = newest_reviews(reviews).values()
    return tuple(review for review in newest if review.state is ReviewState.APPROVED and counts(review.commit))


def revoke_lapsed(
    context: DecisionContext, request: int, reviews: Sequence[Review], account: Callable[[Account], str]
) -> tuple[DecisionOutcome, ...]:
    """Revoke the attestations of a request that lapsed and are not consumed; gives an outcome for each. May be repeated.

    Rule 4. `reviews` are all of the request; `account` gives the name of an account as grants have it.
    """
    view, listing = context.ledger.view(), context.ledger.approvals().complete()
    if view.trust is None:
        return ()
    consumed = frozenset() if view.state is None else frozenset(view.state.approval_records)
    attested = [found for found in _attestations(listing) if found[2].request == request]
    verified = verify_revocations(
        [evidence for evidence, _, _ in attested],
        listing.decisions,
        view.trust,
        target=context.target,
        at=view.time(context.clock.now()),
    )
    revoked = revoked_approvals(verified)
    newest = {account(review.account): review for review in newest_reviews(reviews).values()}

    def is_lapsed(grant: ForgeGrant) -> bool:
        review = newest.get(grant.account)
        if review is None:
            return grant.source is GrantSource.REVIEW
        return review.state is not ReviewState.APPROVED and (grant.source is GrantSource.REVIEW or review.at > grant.at)

    return tuple(
        revoke(context, approval.approval_id, f"{grant.account} withdrew the approval")
        for _, approval, grant in attested
        if approval.approval_id not in consumed
        and (approval.approval_id, approval.approved_by) not in revoked
        and is_lapsed(grant)
    )
