"""What somebody did on a forge, attested as their approval by a commit that the bot's ledger key signs.

An attestation says who (by the forge's number for the account), what (the review or comment), about which commit, and which
cluster folder that commit has. It is held against the same numbered steps as any approval before it is pushed. The forge is
believed in this one thing: that the account did it; what it permits is decided by the rules of the ledger.

What was done once is attested once: when its attestation was taken back, the person has to approve anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gitops.approvals.decisions import Place, judge_revocations, taken_back
from gitops.approvals.verify import verify_approval
from gitops.approving.endorse import Endorsement, Occasion, Way, approving, give, occasion
from gitops.cluster.session import Session
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import GitStore
from gitops.ledger.port import ApprovalListing
from gitops.model.address import Address
from gitops.model.approval import Approval, ApprovalEvidence, ForgeGrant, Via
from gitops.model.outcome import ApproveOutcome

__all__ = ["attest"]


def attest(
    workspace: Workspace,
    address: Address,
    grant: ForgeGrant,
    endorsement: Endorsement,
    *,
    plan_digest: str | None = None,
) -> ApproveOutcome:
    """Attest `grant` as the approval of the change of `address`; refused here already when it could not count.

    `endorsement` is the bot's, with its ledger key; `plan_digest` is that of the plan that the person named, if they named one.
    Repeating it gives the attestation that is there.
    """

    def make(current: Session) -> tuple[Approval, str]:
        what = occasion(current, address)
        if plan_digest not in (None, what.plan.digest):
            detail = f"the plan is {what.plan.digest} by now; look at it, then approve it"
            raise GitopsError(Code.COMMAND_REFUSED, detail, path=address)
        trust = what.view.trust or what.governance.trust
        principal = trust.account(grant.account)
        if principal is None:
            detail = f"the rules do not say who {grant.account} ({grant.login}) is"
            raise GitopsError(Code.APPROVAL_ACCOUNT_UNKNOWN, detail, path=address)
        told = replace(grant, tree=_reviewed_folder(endorsement.store, grant, what.governance.target.path))
        listing = current.opened.ledger.approvals()
        standing = _standing(listing, told, what)
        if standing is None:
            _refuse_taken_back(listing, told, what, principal)
        return standing or give(what, endorsement, Way(Via.FORGE, told, None, principal))

    return approving(workspace, address, make)


def _reviewed_folder(store: GitStore, grant: ForgeGrant, path: str) -> str:
    """The cluster folder in the commit that was reviewed, which the caller has fetched."""
    if store.resolve(grant.commit) is None:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"commit {grant.commit[:12]}, which was reviewed, is not here")
    tree = store.subtree(store.commit(grant.commit).tree, path)
    if tree is None:
        raise GitopsError(Code.APPROVAL_STALE, f"commit {grant.commit[:12]}, which was reviewed, has no folder {path}")
    return tree


def _standing(listing: ApprovalListing, grant: ForgeGrant, what: Occasion) -> tuple[Approval, str] | None:
    """The attestation of the same deed that counts already, if there is one."""
    same = [e for e in listing.evidence if e.statement is not None and _deed(e.statement.grant) == _deed(grant)]
    for evidence in _counting(same, listing, what):
        if evidence.approval is not None:
            return evidence.approval, evidence.commit
    return None


def _refuse_taken_back(listing: ApprovalListing, grant: ForgeGrant, what: Occasion, principal: str) -> None:
    """Raises GitopsError `approval_revoked` for what was attested before and taken back: the next event must not renew it."""
    address, act = what.change.address, _act(grant)
    same = [
        evidence
        for evidence in listing.evidence
        if evidence.statement is not None
        and evidence.statement.grant is not None
        and _act(evidence.statement.grant) == act
        and evidence.approval is not None
        and (evidence.approval.resource, evidence.approval.approved_by) == (address, principal)
    ]
    trust, need = what.view.trust or what.governance.trust, what.need()
    if taken_back(judge_revocations(same, listing.decisions, Place(need.target, need.at), trust)):
        detail = f"the {grant.source} of {principal} was attested and taken back; whoever still means it approves anew"
        raise GitopsError(Code.APPROVAL_REVOKED, detail, path=address)


def _act(grant: ForgeGrant) -> tuple[object, ...]:
    """What somebody did once, whatever it was about."""
    return grant.account, grant.request, grant.source, grant.reference


def _deed(grant: ForgeGrant | None) -> tuple[object, ...]:
    """What makes two grants the same: not what is for people, which may be renamed."""
    return (
        () if grant is None else (grant.account, grant.request, grant.source, grant.reference, grant.commit, grant.tree)
    )


def _counting(same: Sequence[ApprovalEvidence], listing: ApprovalListing, what: Occasion) -> list[ApprovalEvidence]:
    trust, need = what.view.trust or what.governance.trust, what.need()
    state = what.view.state
    revocations = judge_revocations(same, listing.decisions, Place(need.target, need.at), trust)
    spent = frozenset() if state is None else frozenset(state.approval_records)
    need = replace(need, spent=spent, revoked=taken_back(revocations))
    return [evidence for evidence in same if verify_approval(evidence, need, trust).good]
