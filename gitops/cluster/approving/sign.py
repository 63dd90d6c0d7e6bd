"""The commit of an approval: written, signed, verified as the bot will, and pushed.

Its parent is the ledger head that the approver saw, it adds one document, and its message repeats, for the signature to cover,
everything that the permission is bound to and how it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.approvals.verify import ApprovalNeed, change_digest, verify_approval
from gitops.cluster.ledger.evidence import read_evidence
from gitops.cluster.ledger.layout import approval_key
from gitops.cluster.model.approval import APPROVAL_NAMESPACE, Approval, ApprovalStatement, ForgeGrant, Via
from gitops.cluster.model.change import Change
from gitops.cluster.model.outcome import ApprovalSubject
from gitops.cluster.model.plan import Plan
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.session.workspace import Governance, Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import around
from gitops.git.port import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate


@dataclass(frozen=True, slots=True)
class ApprovalPublisher:
    """Where a signed approval goes and who signs it: `signing_key` is a path for ssh-keygen, `ref_prefix` begins its branch."""

    store: GitStore
    remote: GitRemote
    author: Person
    signing_key: str
    ref_prefix: str


@dataclass(frozen=True, slots=True)
class GatedChange:
    """The gated change of a plan that was made at time `at`, against the entry `head` and the rules `trust` of the ledger."""

    workspace: Workspace
    governance: Governance
    head: str
    trust: TrustRoot
    at: datetime
    consumed: frozenset[str]
    plan: Plan
    change: Change
    reason: str

    @property
    def subject(self) -> ApprovalSubject:
        """What an approval of the change is about."""
        governance, address = self.governance, self.change.address
        head, tree = governance.source.commit, governance.source.tree
        return ApprovalSubject(address=address, plan=self.plan, target=governance.target, head=head, tree=tree)

    def need(self) -> ApprovalNeed:
        """What an approval of the change has to match now. Where origins cannot be known, that is left to the bot."""
        authors = self.governance.authors_for(self.change)
        return ApprovalNeed(
            target=self.governance.target,
            cluster_tree=self.governance.source.tree,
            config_digest=self.plan.config_digest,
            policy_digest=self.trust.digest,
            change=self.change,
            at=self.at,
            authors=authors.people,
            unknown=authors.unknown if self.governance.knows_origins() else (),
            forge=self.governance.forge,
        )


def push_approvals(workspace: Workspace, publisher: ApprovalPublisher, updates: Sequence[RefUpdate]) -> None:
    """Push the branches of approvals, all or none. Raises GitopsError `approval_write_error`, `push_refused`, RemoteError."""
    try:
        with around(workspace.faults, "cluster_approve", "push"):
            publisher.remote.push(updates)
    except ConflictError as error:
        raise GitopsError(Code.APPROVAL_WRITE_ERROR, error.detail, path=updates[0].ref) from error


def write_approval_commit(
    gated: GatedChange,
    publisher: ApprovalPublisher,
    *,
    via: Via,
    grant: ForgeGrant | None = None,
    emergency: str | None = None,
    principal: str | None = None,
) -> tuple[Approval, RefUpdate]:
    """Write and verify an approval commit; gives the document, and the branch that is to be pushed.

    `principal` is the approver, where that is not the signer. Raises GitopsError with the code of the verification step that
    refuses the approval.
    """
    workspace, trust = gated.workspace, gated.trust
    statement = ApprovalStatement(
        approval_id=workspace.ids.ulid(),
        target=gated.governance.target,
        cluster_tree=gated.governance.source.tree,
        plan_digest=gated.plan.digest,
        config_digest=gated.plan.config_digest,
        change_digest=change_digest(gated.change),
        policy_digest=trust.digest,
        ledger_head=gated.head,
        expires_at=timestamp(gated.at + trust.expires_after),
        nonce=workspace.ids.ulid(),
        via=via,
        grant=grant,
        emergency=emergency,
        seen=gated.change.seen,
    )
    drafted = draft_approval(workspace, gated.change, gated.reason, gated.plan.config_digest, gated.at)
    approver = principal or drafted.approved_by
    approval = replace(drafted, approval_id=statement.approval_id, approved_by=approver)
    commit = _write_commit(publisher, approval, statement, workspace)
    signer = trust.principal(publisher.store.signature(commit).key, at=gated.at)
    if grant is None and signer is not None and signer != approval.approved_by:
        # The document names the owner of the key, whatever name the operator has on this machine.
        approval = replace(approval, approved_by=signer)
        commit = _write_commit(publisher, approval, statement, workspace)
    ref = publisher.ref_prefix + approval.approval_id
    evidence = read_evidence(publisher.store, ref, commit, frozenset({statement.ledger_head}))
    for problem in verify_approval(evidence, gated.need(), trust).diagnostics:
        raise GitopsError(problem.code, problem.message, path=gated.change.address)
    return approval, RefUpdate(ref, ZERO, commit)


def draft_approval(workspace: Workspace, change: Change, reason: str, config_digest: str, at: datetime) -> Approval:
    """The document that permits exactly this change."""
    return Approval(
        approval_id=workspace.ids.ulid(),
        resource=change.address,
        operation=change.action,
        reason=reason,
        bound_config_digest=config_digest,
        bound_before_digest=change.before,
        bound_after_digest=change.after,
        approved_by=workspace.actor or "",
        created_at=timestamp(at),
    )


def _write_commit(
    publisher: ApprovalPublisher, approval: Approval, statement: ApprovalStatement, workspace: Workspace
) -> str:
    store, head = publisher.store, statement.ledger_head
    tree = store.write_files(store.commit(head).tree, {approval_key(approval.approval_id): write_approval(approval)})
    author = replace(publisher.author, time=int(workspace.clock.now().timestamp()))
    sign = partial(store.sign, signing_key=publisher.signing_key, namespace=APPROVAL_NAMESPACE)
    message = statement_message(statement, f"{approval.operation} {approval.resource}", sign=sign)
    return store.write_commit(NewCommit(tree, (head,), author, message), signing_key=publisher.signing_key)
