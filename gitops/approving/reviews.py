"""Which reviews of a change request count, and which attestations lapse.

1. For each account only the newest approval, request for changes or dismissal counts; comments change nothing.
2. A review of another commit than the head counts if that commit has the folder that would be applied: the caller decides.
3. An attestation of a review lapses when the account's newest review is not an approval any more; that of a command in a
   comment, when the account requested changes, or was dismissed, after it. The bot that attested it revokes what lapsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gitops.approvals.decisions import revoked_approvals, verify_revocations
from gitops.approving.decide import DecisionContext, revoke
from gitops.forge.port import Account, Review, ReviewState
from gitops.model.approval import ForgeGrant, GrantSource
from gitops.model.outcome import DecisionOutcome

_COUNTED = (ReviewState.APPROVED, ReviewState.CHANGES_REQUESTED, ReviewState.DISMISSED)


def newest_reviews(reviews: Iterable[Review]) -> dict[str, Review]:
    """Account id to its newest review that counts; `reviews` are in the order in which they were given. Rule 1."""
    return {review.account.id: review for review in reviews if review.state in _COUNTED}


def approving_reviews(reviews: Iterable[Review], counts: Callable[[str], bool]) -> tuple[Review, ...]:
    """The approvals among the newest reviews, of commits for which `counts` holds. Rules 1 and 2."""
    newest = newest_reviews(reviews).values()
    return tuple(review for review in newest if review.state is ReviewState.APPROVED and counts(review.commit))


def is_lapsed(grant: ForgeGrant, reviews: Iterable[Review], account: Callable[[Account], str]) -> bool:
    """Whether an attestation lapsed, given all reviews of its request. Rule 3.

    `account` gives the name of an account as grants have it.
    """
    newest = {account(r.account): r for r in newest_reviews(reviews).values()}.get(grant.account)
    if grant.source is GrantSource.REVIEW:
        return newest is None or newest.state is not ReviewState.APPROVED
    return newest is not None and newest.state is not ReviewState.APPROVED and newest.at > grant.at


def revoke_lapsed(
    context: DecisionContext, request: int, reviews: Sequence[Review], account: Callable[[Account], str]
) -> tuple[DecisionOutcome, ...]:
    """Revoke the attestations of a request that lapsed and are not consumed; gives an outcome for each. May be repeated."""
    view, listing = context.ledger.view(), context.ledger.approvals()
    if view.trust is None:
        return ()
    consumed = frozenset() if view.state is None else frozenset(view.state.approval_records)
    attested = [
        (evidence, evidence.approval, evidence.statement.grant)
        for evidence in listing.evidence
        if evidence.approval is not None
        and evidence.statement is not None
        and evidence.statement.grant is not None
        and evidence.statement.grant.request == request
    ]
    revocations = verify_revocations(
        [evidence for evidence, _, _ in attested],
        listing.decisions,
        view.trust,
        target=context.target,
        at=context.clock.now(),
    )
    revoked = revoked_approvals(revocations)
    return tuple(
        revoke(context, approval.approval_id, f"{grant.account} does not approve any more")
        for _, approval, grant in attested
        if approval.approval_id not in consumed
        and (approval.approval_id, approval.approved_by) not in revoked
        and is_lapsed(grant, reviews, account)
    )
