"""`approve` on a branch ledger: the signed approval commit for one gated change of a change request or of the target branch.

Its parent is the ledger head that the approver saw; it adds one document; its message repeats, for the signature to cover,
everything that the permission is bound to, and how it was given: by the approver's own key, alone in an emergency, or on a forge
and attested by the bot (`gitops.approving.attest`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gitops.approvals.documents import statement_message, write_approval
from gitops.approvals.verify import Need, change_digest, verify_approval
from gitops.approving.approve import draft_approval, gated_change
from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import Governance, Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import around
from gitops.git.port import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate
from gitops.ledger.evidence import read_evidence
from gitops.ledger.port import LedgerView
from gitops.model.address import Address
from gitops.model.approval import Approval, ApprovalEvidence, ApprovalStatement, ForgeGrant, Via
from gitops.model.change import Change
from gitops.model.outcome import ApproveOutcome
from gitops.model.plan import Plan
from gitops.plan.plan import plan_session


@dataclass(frozen=True, slots=True)
class Endorsement:
    """Where the approval goes and who signs it: `signing_key` is a path for ssh-keygen, `ref_prefix` begins its branch."""

    store: GitStore
    remote: GitRemote
    author: Person
    signing_key: str
    ref_prefix: str


@dataclass(frozen=True, slots=True)
class Way:
    """How an approval is given, as its statement says. `principal` is whose it is, if not the signer's."""

    via: Via = Via.SIGNATURE
    grant: ForgeGrant | None = None
    emergency: str | None = None
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class Occasion:
    """What is approved, and where: the gated change of a plan against one reading of the ledger."""

    workspace: Workspace
    governance: Governance
    view: LedgerView
    plan: Plan
    change: Change
    reason: str

    def need(self) -> Need:
        """What the approval has to stand up to now."""
        governance, trust = self.governance, self.view.trust or self.governance.trust
        return Need(
            target=governance.target,
            cluster_tree=governance.source.tree,
            config_digest=self.plan.config_digest,
            policy_digest=trust.digest,
            change=self.change,
            at=self.workspace.clock.now(),
            authors=governance.authors,
        )


def endorse(
    workspace: Workspace, address: Address, endorsement: Endorsement, *, emergency: str | None = None
) -> ApproveOutcome:
    """Sign and push the approval; refused here already when it could not count.

    `emergency` is the reason of one person who acts alone: what that permits leaves a debt.
    """
    way = Way() if emergency is None else Way(Via.BREAK_GLASS, emergency=emergency)
    return approving(workspace, address, lambda current: give(occasion(current, address), endorsement, way))


def approving(
    workspace: Workspace, address: Address, make: Callable[[Session], tuple[Approval, str]]
) -> ApproveOutcome:
    """The outcome of a session in which `make` gives an approval for `address`: its document and its commit."""

    def body(current: Session) -> ApproveOutcome:
        approval, commit = None, None
        if current.ready:
            try:
                approval, commit = make(current)
            except GitopsError as error:
                # Whatever a code usually is: here it means that there is no approval.
                current.problems.add(error.code, error.path or address, error.detail, severity=Severity.ERROR)
        problems = tuple(current.problems)
        return ApproveOutcome(config_dir=workspace.config_dir, approval=approval, commit=commit, diagnostics=problems)

    return in_session(workspace, "approve", StateNeed.REQUIRED, body, exclusive=False)


def occasion(current: Session, address: Address) -> Occasion:
    """The gated change of `address` as it stands. Raises GitopsError `approval_not_required`, `ledger_missing`."""
    workspace, view, governance = current.workspace, current.view, current.workspace.governance
    if governance is None or view.head is None or view.trust is None:
        raise GitopsError(Code.LEDGER_MISSING, "there is no ledger branch to approve against", path=address)
    plan = plan_session(current, current.state).plan
    change, requirement = gated_change(plan, address)
    return Occasion(workspace, governance, view, plan, change, requirement.reason)


def give(what: Occasion, by: Endorsement, way: Way) -> tuple[Approval, str]:
    """Write, verify and push the approval commit. Raises GitopsError with the code of the step that it would not pass."""
    workspace, view = what.workspace, what.view
    trust = view.trust or what.governance.trust
    statement = _statement(what, way)
    drafted = draft_approval(workspace, what.change, what.reason, what.plan.config_digest)
    owner = way.principal or drafted.approved_by
    approval = replace(drafted, approval_id=statement.approval_id, approved_by=owner)
    draft = _commit(by, view, approval, statement, workspace)
    signer = trust.principal(by.store.signature(draft).key, at=workspace.clock.now())
    if way.grant is None and signer is not None and signer != approval.approved_by:
        # The document names who signed, by the keys in force, whatever name the operator goes by on this machine.
        approval = replace(approval, approved_by=signer)
        draft = _commit(by, view, approval, statement, workspace)
    ref = by.ref_prefix + approval.approval_id
    _hold(read_evidence(by.store, ref, draft, frozenset({statement.ledger_head})), what)
    try:
        with around(workspace.faults, "cluster_approve", "push"):
            by.remote.push([RefUpdate(ref, ZERO, draft)])
    except ConflictError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, error.detail, path=ref) from error
    return approval, draft


def _hold(evidence: ApprovalEvidence, what: Occasion) -> None:
    """Verify an approval before anybody sees it, as everybody will."""
    trust = what.view.trust or what.governance.trust
    for problem in verify_approval(evidence, what.need(), trust).diagnostics:
        raise GitopsError(problem.code, problem.message, path=what.change.address)


def _statement(what: Occasion, way: Way) -> ApprovalStatement:
    workspace, trust = what.workspace, what.view.trust or what.governance.trust
    return ApprovalStatement(
        approval_id=workspace.ids.ulid(),
        target=what.governance.target,
        cluster_tree=what.governance.source.tree,
        plan_digest=what.plan.digest,
        config_digest=what.plan.config_digest,
        change_digest=change_digest(what.change),
        policy_digest=trust.digest,
        ledger_head=what.view.head or ZERO,
        expires_at=timestamp(workspace.clock.now() + trust.expires_after),
        nonce=workspace.ids.ulid(),
        via=way.via,
        grant=way.grant,
        emergency=way.emergency,
    )


def _commit(
    by: Endorsement, view: LedgerView, approval: Approval, statement: ApprovalStatement, workspace: Workspace
) -> str:
    if view.head is None:
        raise AssertionError("an occasion has a ledger entry")
    base = by.store.commit(view.head).tree
    path = f"__cluster/approvals/{approval.approval_id}.json"
    tree = by.store.write_files(base, {path: write_approval(approval)})
    author = replace(by.author, time=int(workspace.clock.now().timestamp()))
    message = statement_message(statement, f"{approval.operation} {approval.resource}")
    return by.store.write_commit(NewCommit(tree, (view.head,), author, message), signing_key=by.signing_key)
