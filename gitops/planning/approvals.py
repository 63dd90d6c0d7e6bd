"""Approvals: which changes are gated, what a digest-bound approval covers, and whether signed evidence counts.

`verify_approval` works by numbered steps; each refusal has its own code, and a step that cannot be decided refuses:

1. The commit has the form of an approval: one parent, which is an entry of this ledger and the head it names, exactly one
   added document, and a message that repeats what the document says.
2. It is signed, and the signature is good over the raw commit in the namespace `git`.
3. The key is trusted at this ledger position and speaks for one principal, who is the one the document names.
4. The principal may approve, and under no name that is listed for the key is an author or pusher of the change.
5. It is meant for this repository, cluster, environment, branch and folder.
6. It is not spent, and not past its time.
7. It covers exactly this change: same folder, config, change and policy digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gitops.core.canonical import canonical_digest
from gitops.core.clock import parse_timestamp
from gitops.core.diagnostics import Diagnostics
from gitops.model.approval import Approval, ApprovalEvidence, ApprovalStatement, Target
from gitops.model.change import Change
from gitops.model.trust import TrustRoot

_APPROVAL_PATH = "__cluster/approvals/{}.json"
_SHOWN_PATHS = 5


def change_form(change: Change) -> dict[str, Any]:
    """What a digest covers of a change: its identity and effect, not its disposition or evidence."""
    return {
        "address": change.address.text,
        "action": change.action.value,
        "before": change.before,
        "after": change.after,
        "binding_change": change.binding_change,
        "steps": None if change.migration is None else change.migration.to_json(),
    }


def change_digest(change: Change) -> str:
    """Identity of one change, 64 hex digits."""
    return canonical_digest(change_form(change))


def covers(approval: Approval, change: Change, config_digest: str) -> bool:
    """Whether an unconsumed approval is for exactly this change: resource and all three bound digests."""
    return (
        approval.consumed_at is None
        and approval.resource == change.address.text
        and approval.operation is change.action
        and approval.bound_config_digest == config_digest
        and approval.bound_before_digest == change.before
        and approval.bound_after_digest == change.after
    )


@dataclass(frozen=True, slots=True)
class Need:
    """What evidence must be for: the change at hand, in its surroundings.

    `at` is the time at the ledger position; `spent` the ids of used approvals; `authors` the identities whose work it is.
    """

    target: Target
    cluster_tree: str
    config_digest: str
    policy_digest: str
    change: Change
    at: datetime
    spent: frozenset[str] = frozenset()
    authors: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether evidence counts, for whom, and if not, why (one code per failed step, the first failure only)."""

    evidence: ApprovalEvidence
    principal: str | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    @property
    def good(self) -> bool:
        """Whether every step passed."""
        return not len(self.diagnostics)


def verify_approval(evidence: ApprovalEvidence, need: Need, trust: TrustRoot) -> Verdict:
    """Apply the numbered steps of this module to one piece of evidence.

    The caller still owes: that `need.change` really is gated, and counting distinct principals.
    """
    refused = Diagnostics()

    def refuse(code: str, message: str) -> Verdict:
        refused.add(code, need.change.address.text, f"approval {_short(evidence.commit)}: {message}")
        return Verdict(evidence, None, refused)

    # 1. form
    approval, statement = evidence.approval, evidence.statement
    problem = evidence.problem or _form_problem(evidence, approval, statement)
    if problem or approval is None or statement is None:
        return refuse("approval_malformed", problem or "document or statement is missing")
    # 2. signature
    signature = evidence.signature
    if not signature.signed:
        return refuse("approval_unsigned", "the commit carries no signature")
    if not signature.good or signature.namespace != "git":
        return refuse("approval_signature_invalid", signature.problem or "the signature does not match the commit")
    # 3. trusted key, one principal
    principal = trust.principal(signature.key, at=need.at)
    if principal is None:
        return refuse("approval_signer_unknown", f"its {signature.key_type} key is not trusted at this position")
    if principal != approval.approved_by:
        return refuse("approval_malformed", f"signed by {principal} in the name of {approval.approved_by}")
    # 4. allowed, and not their own change
    if not trust.may_approve(principal):
        return refuse("approval_signer_not_allowed", f"{principal} is not an approver")
    own = {name.casefold() for name in trust.names(signature.key)} & {a.casefold() for a in need.authors}
    if own:
        alias = "" if principal.casefold() in own else f", as {', '.join(sorted(own))}"
        return refuse("approval_self", f"{principal} is an author of the change{alias}")
    # 5. target
    if statement.target != need.target:
        return refuse("approval_wrong_target", _target_difference(statement.target, need.target))
    # 6. unspent, in time
    if approval.approval_id in need.spent or approval.consumed_at is not None:
        return refuse("approval_spent", f"{approval.approval_id} was consumed before")
    late = _time_problem(approval, statement, need, trust)
    if late:
        return refuse("approval_expired", late)
    # 7. exactly this change
    moved = _movement(evidence, approval, statement, need)
    if moved:
        return refuse("approval_stale", moved)
    return Verdict(evidence, principal)


def _form_problem(
    evidence: ApprovalEvidence, approval: Approval | None, statement: ApprovalStatement | None
) -> str | None:
    if approval is None or statement is None:
        return "document or statement is missing"
    if len(evidence.parents) != 1 or evidence.parents[0] != statement.ledger_head or not evidence.on_chain:
        return "its parent is not the ledger entry that it names"
    if evidence.changed_paths != (_APPROVAL_PATH.format(approval.approval_id),):
        return "it changes more than its own document"
    same = statement.approval_id == approval.approval_id and statement.config_digest == approval.bound_config_digest
    return None if same else "its message and its document differ"


def _target_difference(approved: Target, needed: Target) -> str:
    for name in ("repository", "cluster", "environment", "ref", "path"):
        theirs, ours = getattr(approved, name), getattr(needed, name)
        if theirs != ours:
            return f"it is for {name} {theirs!r}, this is {ours!r}"
    return "it is for another target"


def _time_problem(approval: Approval, statement: ApprovalStatement, need: Need, trust: TrustRoot) -> str | None:
    created, expires = parse_timestamp(approval.created_at), parse_timestamp(statement.expires_at)
    if created is None or expires is None:
        return "its times are not readable"
    expires = min(expires, created + trust.expires_after)
    return f"it expired at {expires.isoformat()}" if need.at >= expires else None


def _movement(evidence: ApprovalEvidence, approval: Approval, statement: ApprovalStatement, need: Need) -> str | None:
    """Say what moved since the approval, most telling fact first; None when nothing did."""
    change = need.change
    if statement.cluster_tree != need.cluster_tree:
        shown = ", ".join(evidence.moved[:_SHOWN_PATHS])
        more = f" and {len(evidence.moved) - _SHOWN_PATHS} more" if len(evidence.moved) > _SHOWN_PATHS else ""
        return f"the cluster folder moved: {shown}{more}" if shown else "the cluster folder moved"
    if approval.resource != change.address.text or approval.operation is not change.action:
        return f"it is for {approval.operation} {approval.resource}"
    pairs = (
        ("the configuration", statement.config_digest, need.config_digest),
        ("the recorded state of the resource", approval.bound_before_digest, change.before),
        ("the desired state of the resource", approval.bound_after_digest, change.after),
        ("the change", statement.change_digest, change_digest(change)),
        ("the approval rules", statement.policy_digest, need.policy_digest),
    )
    for what, approved, now in pairs:
        if approved != now:
            return f"{what} moved (approved {_short(approved)}, now {_short(now)})"
    return None


def distinct(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The good verdicts, one per principal (the lowest approval id), in approval id order."""
    good = sorted((v for v in verdicts if v.good), key=_approval_id)
    seen: dict[str, Verdict] = {}
    for verdict in good:
        seen.setdefault(verdict.principal or "", verdict)
    return tuple(seen.values())


def _approval_id(verdict: Verdict) -> str:
    approval = verdict.evidence.approval
    return approval.approval_id if approval is not None else ""


def _short(text: str | None) -> str:
    return text[:12] if text else "none"
