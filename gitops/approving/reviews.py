"""Which reviews of a change request stand, and what becomes of attestations when one does not stand any more.

1. Of each account only the newest approval, request for changes or dismissal counts; mere comments change nothing.
2. A review of another commit than the head counts if that commit has the folder that would be applied: the caller says so.
3. An attestation of a review lapses when the account's standing verdict is no approval any more; that of a command in a
   comment, when the account requested changes, or was dismissed, after it. What lapsed is revoked by the bot that attested it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gitops.approvals.decisions import Place, judge_revocations, taken_back
from gitops.approving.decide import Office, revoke
from gitops.forge.port import Account, Review, ReviewState
from gitops.model.approval import ApprovalEvidence, ForgeGrant, GrantSource
from gitops.model.outcome import DecisionOutcome

__all__ = ["approving_reviews", "lapsed", "standing_reviews", "withdraw_lapsed"]

_VERDICTS = (ReviewState.APPROVED, ReviewState.CHANGES_REQUESTED, ReviewState.DISMISSED)


def standing_reviews(reviews: Iterable[Review]) -> dict[str, Review]:
    """Account id to its standing verdict; `reviews` are in the order in which they were given. Rule 1."""
    return {review.account.id: review for review in reviews if review.state in _VERDICTS}


def approving_reviews(reviews: Iterable[Review], counts: Callable[[str], bool]) -> tuple[Review, ...]:
    """The standing approvals of commits for which `counts` holds. Rules 1 and 2."""
    standing = standing_reviews(reviews).values()
    return tuple(r for r in standing if r.state is ReviewState.APPROVED and counts(r.commit))


def lapsed(grant: ForgeGrant, reviews: Iterable[Review], account: Callable[[Account], str]) -> bool:
    """Whether an attestation does not stand any more, given all reviews of its request. Rule 3.

    `account` is how grants name an account.
    """
    standing = {account(r.account): r for r in standing_reviews(reviews).values()}.get(grant.account)
    if grant.source is GrantSource.REVIEW:
        return standing is None or standing.state is not ReviewState.APPROVED
    return standing is not None and standing.state is not ReviewState.APPROVED and standing.at > grant.at


def withdraw_lapsed(
    office: Office, request: int, reviews: Sequence[Review], account: Callable[[Account], str]
) -> tuple[DecisionOutcome, ...]:
    """Revoke what lapsed of the unused attestations of a request, and say what came of each. May be repeated."""
    view, listing = office.ledger.view(), office.ledger.approvals()
    if view.trust is None:
        return ()
    spent = frozenset() if view.state is None else frozenset(view.state.approval_records)
    own = [e for e in listing.evidence if _of_request(e, request)]
    place = Place(office.target, office.clock.now())
    gone = taken_back(judge_revocations(own, listing.decisions, place, view.trust))
    outcomes = []
    for evidence in own:
        approval, grant = evidence.approval, None if evidence.statement is None else evidence.statement.grant
        if approval is None or grant is None or approval.approval_id in spent:
            continue
        if (approval.approval_id, approval.approved_by) in gone:
            continue
        if lapsed(grant, reviews, account):
            reason = f"{grant.account} does not approve any more"
            outcomes.append(revoke(office, approval.approval_id, reason))
    return tuple(outcomes)


def _of_request(evidence: ApprovalEvidence, request: int) -> bool:
    grant = None if evidence.statement is None else evidence.statement.grant
    return grant is not None and grant.request == request
