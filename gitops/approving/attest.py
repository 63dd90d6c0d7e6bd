"""Attestations: a review or a comment on a forge as its author's approval, in a commit that the bot's ledger key signs.

An attestation names the account (by the forge's number), the review or comment, the commit that it is about, and the cluster
folder of that commit. It passes the same numbered steps as any approval before it is pushed. The forge is trusted only to
report what the account did; what that permits is decided by the rules of the ledger.

Each review or comment is attested once: after its attestation was revoked, the person has to approve again.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.approvals.decisions import revoked_approvals, verify_revocations
from gitops.approvals.verify import verify_approval
from gitops.approving.approve import (
    ApprovalPublisher,
    GatedChange,
    approve_in_session,
    publish_approval,
    read_gated_change,
)
from gitops.cluster.session import Session
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import GitStore
from gitops.ledger.port import ApprovalListing
from gitops.model.address import Address
from gitops.model.approval import Approval, ApprovalEvidence, ForgeGrant, Via
from gitops.model.outcome import ApproveOutcome


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
    Repeating it gives the attestation that exists.
    """

    def make(current: Session) -> tuple[Approval, str]:
        gated = read_gated_change(current, address)
        if plan_digest not in (None, gated.plan.digest):
            detail = f"the plan is {gated.plan.digest} by now; look at it, then approve it"
            raise GitopsError(Code.COMMAND_REFUSED, detail, path=address)
        principal = gated.trust.account(grant.account)
        if principal is None:
            detail = f"the rules do not map {grant.account} ({grant.login}) to a person"
            raise GitopsError(Code.APPROVAL_ACCOUNT_UNKNOWN, detail, path=address)
        attested = replace(grant, tree=_reviewed_folder(publisher.store, grant, gated.governance.target.path))
        listing = current.opened.ledger.approvals()
        existing = _find_attestation(listing, attested, gated)
        if existing is not None:
            return existing
        _check_not_revoked(listing, attested, gated, principal)
        return publish_approval(gated, publisher, via=Via.FORGE, grant=attested, principal=principal)

    return approve_in_session(workspace, address, make)


def _reviewed_folder(store: GitStore, grant: ForgeGrant, path: str) -> str:
    """The tree id of the cluster folder in the commit that was reviewed, which the caller has fetched."""
    if store.resolve(grant.commit) is None:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"commit {grant.commit[:12]}, which was reviewed, is not here")
    tree = store.subtree(store.commit(grant.commit).tree, path)
    if tree is None:
        raise GitopsError(Code.APPROVAL_STALE, f"commit {grant.commit[:12]}, which was reviewed, has no folder {path}")
    return tree


def _find_attestation(listing: ApprovalListing, grant: ForgeGrant, gated: GatedChange) -> tuple[Approval, str] | None:
    """The attestation of the same review or comment that counts already, with its commit."""
    # Login and address are for people, and may change.
    same = [
        evidence
        for evidence in listing.evidence
        if evidence.statement is not None
        and (given := evidence.statement.grant) is not None
        and (_grant_id(given), given.commit, given.tree) == (_grant_id(grant), grant.commit, grant.tree)
    ]
    need = replace(gated.need(), consumed=gated.consumed, revoked=_revoked(same, listing, gated))
    for evidence in same:
        if evidence.approval is not None and verify_approval(evidence, need, gated.trust).accepted:
            return evidence.approval, evidence.commit
    return None


def _check_not_revoked(listing: ApprovalListing, grant: ForgeGrant, gated: GatedChange, principal: str) -> None:
    """Raises GitopsError `approval_revoked` where an attestation of this review or comment, of any commit, was revoked.

    Otherwise the next event would restore it.
    """
    address = gated.change.address
    same = [
        evidence
        for evidence in listing.evidence
        if evidence.statement is not None
        and evidence.statement.grant is not None
        and _grant_id(evidence.statement.grant) == _grant_id(grant)
        and evidence.approval is not None
        and (evidence.approval.resource, evidence.approval.approved_by) == (address, principal)
    ]
    if _revoked(same, listing, gated):
        detail = f"the attestation of this {grant.source} of {principal} was revoked; approve again with a new one"
        raise GitopsError(Code.APPROVAL_REVOKED, detail, path=address)


def _revoked(
    approvals: list[ApprovalEvidence], listing: ApprovalListing, gated: GatedChange
) -> frozenset[tuple[str, str]]:
    target, now = gated.governance.target, gated.workspace.clock.now()
    return revoked_approvals(verify_revocations(approvals, listing.decisions, gated.trust, target=target, at=now))


def _grant_id(grant: ForgeGrant) -> tuple[object, ...]:
    """What identifies a review or comment, whatever commit it is about."""
    return grant.account, grant.request, grant.source, grant.reference
