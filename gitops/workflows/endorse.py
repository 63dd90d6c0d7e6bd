"""`approve` on a branch ledger: the signed approval commit for one gated change of a change request or of the target branch.

Its parent is the ledger head that the approver saw; it adds one document; its message repeats, for the signature to cover,
everything that the permission is bound to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gitops.chain.evidence import read_evidence
from gitops.core.clock import timestamp
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import around
from gitops.model.approval import Approval, ApprovalStatement
from gitops.model.outcome import ApproveOutcome
from gitops.planning.approvals import Need, change_digest, verify_approval
from gitops.ports.git import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate
from gitops.ports.ledger import LedgerView
from gitops.wire.approval import write_approval
from gitops.wire.statement import statement_message
from gitops.workflows.approve import draft_approval, gated_change
from gitops.workflows.context import Workspace
from gitops.workflows.plan import plan_session
from gitops.workflows.session import Session, StateNeed, in_session


@dataclass(frozen=True, slots=True)
class Endorsement:
    """Where the approval goes and who signs it: `signing_key` is a path for ssh-keygen, `ref_prefix` begins its branch."""

    store: GitStore
    remote: GitRemote
    author: Person
    signing_key: str
    ref_prefix: str


def endorse(workspace: Workspace, address: str, endorsement: Endorsement) -> ApproveOutcome:
    """Sign and push the approval; refused here already when it could not count."""

    def body(current: Session) -> ApproveOutcome:
        return _endorsed(current, address, endorsement)

    return in_session(workspace, "approve", StateNeed.REQUIRED, body, exclusive=False)


def _endorsed(current: Session, address: str, endorsement: Endorsement) -> ApproveOutcome:
    approval, commit = None, None
    if current.ready:
        try:
            approval, commit = _endorse(current, address, endorsement)
        except GitopsError as error:
            current.problems.add_error(error)
    return ApproveOutcome(
        config_dir=current.workspace.config_dir,
        approval=approval,
        commit=commit,
        diagnostics=tuple(current.problems),
    )


def _endorse(current: Session, address: str, by: Endorsement) -> tuple[Approval, str]:
    workspace, view, governance = current.workspace, current.view, current.workspace.governance
    if governance is None or view.head is None or view.trust is None:
        raise GitopsError("ledger_missing", "there is no ledger branch to approve against", path=address)
    plan = plan_session(current, current.state).plan
    change, requirement = gated_change(plan, address)
    approval = draft_approval(workspace, change, requirement, plan.config_digest)
    statement = ApprovalStatement(
        approval_id=approval.approval_id,
        target=governance.target,
        cluster_tree=governance.source.tree,
        plan_digest=plan.digest,
        config_digest=plan.config_digest,
        change_digest=change_digest(change),
        policy_digest=view.trust.digest,
        ledger_head=view.head,
        expires_at=timestamp(workspace.clock.now() + view.trust.expires_after),
        nonce=workspace.ids.ulid(),
    )
    draft = _commit(by, view, approval, statement, workspace)
    principal = view.trust.principal(by.store.signature(draft).key, at=workspace.clock.now())
    if principal is not None and principal != approval.approved_by:
        # The document names who signed, by the keys in force, whatever name the operator goes by on this machine.
        approval = replace(approval, approved_by=principal)
        draft = _commit(by, view, approval, statement, workspace)
    need = Need(
        target=governance.target,
        cluster_tree=governance.source.tree,
        config_digest=plan.config_digest,
        policy_digest=view.trust.digest,
        change=change,
        at=workspace.clock.now(),
        authors=governance.authors,
    )
    ref = by.ref_prefix + approval.approval_id
    verdict = verify_approval(read_evidence(by.store, ref, draft, frozenset({view.head})), need, view.trust)
    for problem in verdict.diagnostics:
        raise GitopsError(problem.code, problem.message, path=address)
    try:
        with around(workspace.faults, "cluster_approve", "push"):
            by.remote.push([RefUpdate(ref, ZERO, draft)])
    except ConflictError as error:
        raise GitopsError("approval_write_error", error.detail, path=ref) from error
    return approval, draft


def _commit(
    by: Endorsement, view: LedgerView, approval: Approval, statement: ApprovalStatement, workspace: Workspace
) -> str:
    if view.head is None:
        raise AssertionError("an approval follows a ledger entry")
    base = by.store.commit(view.head).tree
    path = f"__cluster/approvals/{approval.approval_id}.json"
    tree = by.store.write_files(base, {path: write_approval(approval)})
    author = replace(by.author, time=int(workspace.clock.now().timestamp()))
    message = statement_message(statement, f"{approval.operation} {approval.resource}")
    return by.store.write_commit(NewCommit(tree, (view.head,), author, message), signing_key=by.signing_key)
