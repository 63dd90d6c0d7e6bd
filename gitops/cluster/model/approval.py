"""Approvals: the document in the ledger, the statement that a signature covers, and the evidence found in git.

An approval is a person's own signature, the bot's attestation of a review on a forge, or an emergency approval by one
person. A revocation ends it. An emergency leaves a debt, which a second person's countersignature settles.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Seen
from gitops.cluster.model.use import Callers
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.git.port import CommitSignature

STATEMENT_VERSION = 3
"""The statement version that this release writes, unless a statement has clients."""
WITH_CALLERS = 4
"""The version of statements with the recorded clients that a change breaks."""
DECISION_VERSION = 2
"""The decision version that this release writes."""
APPROVAL_NAMESPACE = "gitops-approval"
"""The namespace in which statements and decisions are signed, in addition to their commits.

No other program uses it by accident.
"""


class Via(StrEnum):
    """How an approval was given.

    SIGNATURE: signed by the approver. FORGE: signed by the bot because of an account's action on a forge. BREAK_GLASS:
    signed by one person who can act alone in an emergency; it leaves a debt.
    """

    SIGNATURE = "signature"
    FORGE = "forge"
    BREAK_GLASS = "break-glass"


class GrantSource(StrEnum):
    """How an account gave its approval on a forge."""

    REVIEW = "review"
    COMMENT = "comment"


@dataclass(frozen=True, slots=True)
class ForgeGrant:
    """A review or comment by an account on a forge, which the bot attests as an approval.

    `account` is the unchanging number that the forge gives the person, such as `github:583231`. `login` and `url` are
    only displayed. `reference` is the forge's id of the review or comment in change request `request`, given at `at`
    (RFC 3339 UTC) about `commit`. `tree` is the git tree id of the cluster folder in that commit, which the attesting
    bot fills in.
    """

    account: str
    login: str
    request: int
    source: GrantSource
    reference: str
    commit: str
    at: str
    url: str = ""
    tree: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """`approvals/<approval_id>.json`: permission for exactly one change.

    It is valid only while `bound_config_digest`, `bound_before_digest` and `bound_after_digest` all match the change,
    and until it is consumed. `seen` is the observed graph that it covers, and `callers` are the broken clients that it
    covers; in a branch ledger, the statement contains them.
    """

    approval_id: str
    resource: Address
    operation: Action
    reason: str
    bound_config_digest: str
    bound_before_digest: str | None
    bound_after_digest: str | None
    approved_by: str
    created_at: str
    consumed_at: str | None = None
    consumed_by_operation: str | None = None
    seen: Seen | None = None
    callers: Callers | None = None


@dataclass(frozen=True, slots=True)
class UnknownAuthors:
    """Why no one can approve a change yet: its authors are unknown, for these reasons. `fix` is the author's next step."""

    resource: Address
    code: Code
    detail: str
    fix: str


DOCUMENT_LIFETIME = timedelta(days=7)
"""How long an approval in a ledger folder is valid, which is the default of `approvals.expires_after`."""


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    """The target of an approval, a plan or an entry: one cluster of one repository on one branch in one environment.

    `repository` is a stable id of the repository, `ref` is the full name of the target branch, and `path` is the
    cluster folder relative to the repository root (`.` for the root itself).
    """

    repository: str
    cluster: str
    environment: str
    ref: str
    path: str


@dataclass(frozen=True, slots=True)
class ApprovalStatement:
    """What an approval commit's signature covers. The commit message repeats it as canonical JSON.

    `cluster_tree` is the git tree id of the approved cluster folder; `plan_digest`, `config_digest`, `change_digest`
    and `policy_digest` are 64 hex digits; `expires_at` is RFC 3339 UTC; `nonce` makes the commit unique; `ledger_head`
    is the ledger entry that the approver saw, which is also the commit's parent. `via` records how it was given; only
    FORGE has a `grant`, and only BREAK_GLASS has an `emergency`, the reason that one person gave. `seen` is the graph
    that the approver saw, for a data change, and `callers` are the recorded clients that the approver saw, for a change
    that breaks calls. `version` is the version of its document: statements before version 3 were written by the first
    release and lack some of these fields, and version 4 has `callers`.
    """

    approval_id: str
    target: ClusterTarget
    cluster_tree: str
    plan_digest: str
    config_digest: str
    change_digest: str
    policy_digest: str
    ledger_head: str
    expires_at: str
    nonce: str
    via: Via = Via.SIGNATURE
    grant: ForgeGrant | None = None
    emergency: str | None = None
    seen: Seen | None = None
    version: int = STATEMENT_VERSION
    callers: Callers | None = None


@dataclass(frozen=True, slots=True)
class ApprovalEvidence:
    """One approval commit as found: its id, parents, added documents and signature.

    `on_chain` means that the parent is an entry of this ledger. `moved` are the files that differ between the approved
    cluster folder and the current one, if both are known, and `moved_by` is the merge that changed them or the rules, in
    words, if the ledger shows it. `reviewed_tree` is the cluster folder of the commit that was
    reviewed on a forge, None if there was none or the repository does not have the commit. `own_signature` covers the
    statement itself; None for versions of statements without one.
    """

    commit: str
    ref: str
    parents: tuple[str, ...]
    changed_paths: tuple[str, ...]
    approval: Approval | None
    statement: ApprovalStatement | None
    signature: CommitSignature
    on_chain: bool = False
    moved: tuple[str, ...] = ()
    moved_by: str = ""
    problem: str = ""
    reviewed_tree: str | None = None
    own_signature: CommitSignature | None = None


class DecisionKind(StrEnum):
    """Kind of a signed decision about an earlier approval."""

    REVOKE = "revoke"
    COUNTERSIGN = "countersign"


@dataclass(frozen=True, slots=True)
class Decision:
    """What a decision commit's signature covers: the revocation of one approval, or a debt's countersignature.

    `decision_id` is a ULID and the last part of the branch. `approval_id` and `subject`, its commit, identify the approval
    that is revoked, or that left the debt. `reason` is one line for people. `ledger_head` is the entry that the signer saw,
    and the commit's parent.
    """

    kind: DecisionKind
    decision_id: str
    target: ClusterTarget
    approval_id: str
    subject: str
    reason: str
    ledger_head: str
    created_at: str
    nonce: str
    version: int = DECISION_VERSION


@dataclass(frozen=True, slots=True)
class DecisionEvidence:
    """One decision commit as found. `on_chain` is set if its parent is an entry of this ledger.

    `own_signature` covers the decision itself; None for versions of decisions without one.
    """

    commit: str
    ref: str
    parents: tuple[str, ...]
    decision: Decision | None
    signature: CommitSignature
    on_chain: bool = False
    problem: str = ""
    own_signature: CommitSignature | None = None
