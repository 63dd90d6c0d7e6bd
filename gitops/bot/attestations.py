"""Attestations: approvals given on a forge, which the bot signs so that the ledger can include them.

The trust rules of the ledger decide whether an attestation counts, and for which changes. This module only verifies the
action by querying the forge again. A command must contain the digest of the current plan. A review must be its
account's newest one, refer to a commit with the same cluster folder as the head, and approve. A dismissed review does
not count, nor does a review by an account without permission to give commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from gitops.bot.command_syntax import CommentCommand
from gitops.bot.context import EventContext
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
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.port import ApprovalListing
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ApprovalEvidence, ForgeGrant, GrantSource, Via
from gitops.cluster.model.outcome import ApprovalSubject, ApproveOutcome, DecisionOutcome
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.session import Session
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent
from gitops.forge.port import Account, ChangeRequest, Permission, RequestState, Review, ReviewState
from gitops.repository.results import LogLine

_NEEDED = {"write": Permission.WRITE, "maintain": Permission.MAINTAIN, "admin": Permission.ADMIN}


def missing_permission(context: EventContext, account: Account, rules: Iterable[ClusterRule]) -> str:
    """Explain why an account cannot give commands or reviews for some clusters, or return an empty string if it can.

    The forge reports the permission, and the rules in force decide; for several clusters, the strictest rule applies.
    So an edit of `forge.commands` takes effect only after its approval. Raises RemoteError.
    """
    in_force = [position.trust for position in map(context.position, rules)]
    named = [context.config.forge.commands if trust is None else trust.commands for trust in in_force]
    needed = max(named or [context.config.forge.commands], key=_NEEDED.__getitem__)
    return "" if context.forge.permission(account) >= _NEEDED[needed] else f"this needs the permission {needed}"


def attest_command(
    context: EventContext, rule: ClusterRule, request: ChangeRequest, command: CommentCommand, event: CommentEvent
) -> Iterator[LogLine]:
    """Attest `/gitops approve ADDRESS DIGEST`. Raises GitopsError if it does not count."""
    made = _plan(context.workspace_of(rule, request))
    if made.digest != command.digest:
        detail = f"the plan is now {made.digest}, not {command.digest[:12]}; review it, then approve it"
        raise GitopsError(Code.COMMAND_REFUSED, detail, path=command.address)
    gate = next((each for each in made.approvals_required if each.resource == command.address), None)
    if gate is None:
        gates = ", ".join(each.resource for each in made.approvals_required) or "none"
        detail = f"{command.address} needs no approval; gates: {gates}"
        fix = f"list the changes that need approval: gitops plan --request {request.number}"
        raise GitopsError(Code.APPROVAL_NOT_REQUIRED, detail, path=command.address, fix=fix)
    if gate.satisfied:
        yield LogLine(f"approve of {rule.name}: {command.address} is already approved")
        return
    workspace = context.workspace_of(rule, request)
    grant = _grant(context, request, event.author, GrantSource.COMMENT, event.comment, request.head, event.at)
    yield from _attest(context, rule, workspace, command.address, grant, command.digest)


def attest_reviews(context: EventContext, rule: ClusterRule, request: ChangeRequest) -> Iterator[LogLine]:
    """Attest a request's reviews for every gate that still needs approvals.

    Reviews that do not count are logged and skipped.

    Attestations whose review no longer exists are revoked first, even if the request has been merged.
    """
    if not reviews_count(context, rule):
        return
    reviews = context.forge.reviews(request.number)
    repository = context.repository
    decisions = DecisionContext(
        ledger=repository.stores(rule, None, rule.name).ledger,
        target=context.repository.recorded_target(rule, context.position(rule), context.config),
        publisher=_publisher(context, rule),
        clock=repository.clock,
        ids=repository.ids,
        faults=repository.faults,
    )
    for revoked in revoke_lapsed(decisions, request.number, reviews, lambda account: _account_name(context, account)):
        why = "".join(f": {d.code}: {d.message}" for d in revoked.diagnostics)
        done = "revoked" if revoked.ok else "not revoked"
        yield LogLine(f"approval {revoked.approval_id} of {rule.name}: {done}{why}")
    if request.state is not RequestState.OPEN:
        return
    gates = [g.resource for g in _plan(context.workspace_of(rule, request)).approvals_required if not g.satisfied]
    if not gates:
        return
    workspace = context.workspace_of(rule, request)
    for review in approving_reviews(reviews, lambda commit: _has_same_folder(context, rule, commit, request.head)):
        # Anyone can review in a public repository, including people who have left.
        try:
            missing = missing_permission(context, review.account, (rule,))
        except GitopsError as error:
            # If the forge does not return one account, the reviews of the others still count.
            missing = f"{error.code}: {error.detail}"
        if missing:
            yield LogLine(f"review of {review.account.login}: command_refused: {missing}")
            continue
        grant = _grant(context, request, review.account, GrantSource.REVIEW, review.id, review.commit, review.at)
        for address in gates:
            try:
                yield from _attest(context, rule, workspace, address, grant)
            except GitopsError as error:
                yield LogLine(f"review of {review.account.login} for {address}: {error.code}: {error.detail}")


def reviews_count(context: EventContext, rule: ClusterRule) -> bool:
    """Return True if the trust rules accept reviews for any gate and the bot can sign attestations."""
    if context.bot.approval_publisher is None or not context.forge.features.reviews:
        return False
    return bool(context.position(rule).reviews_open(rule.environment))


def _plan(workspace: Workspace) -> Plan:
    outcome = plan(workspace)
    if outcome.plan is None:
        first = next((d for d in outcome.diagnostics if d.severity == "error"), None)
        detail = "the plan has errors" if first is None else f"the plan has errors: {first.code}: {first.message}"
        raise GitopsError(Code.COMMAND_REFUSED, detail)
    return outcome.plan


def _attest(
    context: EventContext,
    rule: ClusterRule,
    workspace: Workspace,
    address: str,
    grant: ForgeGrant,
    digest: str | None = None,
) -> Iterator[LogLine]:
    """Attest one grant. Raises GitopsError if it does not count.

    `digest` is the digest of the plan that it approves, if it contains one.
    """
    outcome = attest(workspace, Address(address), grant, _publisher(context, rule), plan_digest=digest)
    error = next((d for d in outcome.diagnostics if d.severity == "error"), None)
    if error is not None:
        raise GitopsError(error.code, error.message, path=error.path)
    who = "" if outcome.approval is None else outcome.approval.approved_by
    yield LogLine(f"approve of {rule.name}: {address} approved by {who} ({grant.login}, {grant.source})")


def _publisher(context: EventContext, rule: ClusterRule) -> ApprovalPublisher:
    if context.bot.approval_publisher is None:
        raise GitopsError(Code.SIGNING_KEY_MISSING, "the bot has no key on this machine to sign attestations with")
    return context.bot.approval_publisher(rule.name)


def _grant(
    context: EventContext,
    request: ChangeRequest,
    account: Account,
    source: GrantSource,
    reference: str,
    commit: str,
    at: str,
) -> ForgeGrant:
    """Return the grant that represents an account's action.

    `reference` is the id of the review or comment, which refers to `commit`.
    """
    name = _account_name(context, account)
    return ForgeGrant(name, account.login, request.number, source, reference, commit, at, request.url)


def _has_same_folder(context: EventContext, rule: ClusterRule, commit: str, head: str) -> bool:
    """Return whether the cluster folder of a reviewed commit is the same as that of the head."""
    store = context.store
    if store.resolve(commit) is None:
        return False
    reviewed, current = (store.subtree(store.commit(c).tree, rule.path) for c in (commit, head))
    return reviewed is not None and reviewed == current


def _account_name(context: EventContext, account: Account) -> str:
    """Return an account in the form of `gitops.yaml`, such as `github:583231`."""
    return f"{context.repository.forge_kind}:{account.id}"


# -- attestations ------------------------------------------------------------------------------------------------------
#
# Attestations: a review or comment on a forge becomes its author's approval, in a commit that the bot's ledger key
# signs.
#
# An attestation contains the account (by its id on the forge), the review or comment, the commit that it refers to, and
# the cluster folder of that commit. It passes the same numbered steps as any approval before it is pushed. The forge is
# trusted only to report the account's action. The ledger's rules decide what that action permits.
#
# 1. For each account, only the newest approval, request for changes or dismissal counts; comments have no effect.
# 2. A review of a commit other than the head counts if that commit has the folder that would be applied; the caller
#    decides.
# 3. Each review or comment is attested once. If its attestation is revoked, the person must approve again.
# 4. A review's attestation lapses when the account's newest review is no longer an approval. The attestation of a
#    command in a comment lapses when the account requested changes, or was dismissed, after it. The bot that attested
#    it revokes lapsed attestations.


_COUNTED = (ReviewState.APPROVED, ReviewState.CHANGES_REQUESTED, ReviewState.DISMISSED)


def attest(
    workspace: Workspace,
    address: Address,
    grant: ForgeGrant,
    publisher: ApprovalPublisher,
    *,
    plan_digest: str | None = None,
) -> ApproveOutcome:
    """Attest `grant` as an approval of the change to `address`. Raises before the push if it would not count.

    `publisher` signs with the bot's ledger key. `plan_digest` is the digest of the plan named in the command, if any.
    The caller must have fetched the reviewed commit. A repeated call returns the existing attestation.
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
        # The attestations of the same review or comment, for any commit. Login and address are only informative and can
        # change.
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
        # Without this, the next event would restore a revoked attestation.
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
    """Return all attestations: the evidence, document and grant of each."""
    return [
        (evidence, evidence.approval, evidence.statement.grant)
        for evidence in listing.evidence
        if evidence.approval is not None and evidence.statement is not None and evidence.statement.grant is not None
    ]


def _identity(grant: ForgeGrant) -> tuple[object, ...]:
    """Return the identity of a review or comment, independent of its commit."""
    return grant.account, grant.request, grant.source, grant.reference


def newest_reviews(reviews: Iterable[Review]) -> dict[str, Review]:
    """Map each account id to its newest review that counts (rule 1). `reviews` are in chronological order."""
    return {review.account.id: review for review in reviews if review.state in _COUNTED}


def approving_reviews(reviews: Iterable[Review], counts: Callable[[str], bool]) -> tuple[Review, ...]:
    """Return the approvals among the newest reviews, for commits for which `counts` returns True (rules 1 and 2)."""
    newest = newest_reviews(reviews).values()
    return tuple(review for review in newest if review.state is ReviewState.APPROVED and counts(review.commit))


def revoke_lapsed(
    context: DecisionContext, request: int, reviews: Sequence[Review], account: Callable[[Account], str]
) -> tuple[DecisionOutcome, ...]:
    """Revoke a request's attestations that lapsed before they were consumed. Returns an outcome for each. Idempotent.

    Rule 4. `reviews` are all reviews of the request; `account` returns an account's name in the form used by grants.
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
