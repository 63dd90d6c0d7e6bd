"""Approvals: which changes are gated, what an approval's digests cover, and whether signed evidence counts.

`verify_approval` takes the steps of `STEPS` in order. The first step that refuses ends it with that step's code; a step that
cannot be decided refuses.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import field, fields
from datetime import datetime, timedelta
from typing import Any, cast

from gitops.cluster.model.approval import (
    APPROVAL_NAMESPACE,
    STATEMENT_VERSION,
    Approval,
    ApprovalEvidence,
    ApprovalStatement,
    ClusterTarget,
    Via,
)
from gitops.cluster.model.change import Change, Seen, Tier
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import ENTRY_VERSION, UNKNOWN_AUTHOR, WITH_ORIGINS
from gitops.cluster.model.trust import DataGrowth, TrustRoot
from gitops.cluster.model.use import Callers, callers_moved
from gitops.core.canonical import canonical_digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code, remedy
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.git.port import CommitSignature

MOST_COMMITS = 20_000
"""Maximum number of unapplied commits. With more, their authors count as unknown."""

TOO_LONG = f"more than {MOST_COMMITS} commits wait to be applied"
"""The reason for unknown authors if there are more."""

UNKNOWN_AUTHORS = frozenset({Code.APPROVAL_AUTHORS_UNKNOWN, Code.APPROVAL_HISTORY_TOO_LONG})
"""The codes of refusals because the authors are unknown."""

HOSTED = frozenset({"github", "gitlab", "gitea"})
"""Forges on which people have accounts that differ from the names in the rules."""

_APPROVAL_PATH = "__cluster/approvals/{}.json"
_SHOWN_PATHS = 5
# Maximum difference between the clocks of an approver and the bot.
_SKEW = timedelta(hours=1)
_Refusal = tuple[Code, str]


def change_form(change: Change) -> dict[str, Any]:
    """Return the part of a change that a digest covers: its identity and effect, not its disposition or evidence."""
    return {
        "address": change.address,
        "action": change.action.value,
        "before": change.before,
        "after": change.after,
        "binding_change": change.binding_change,
        "steps": None if change.migration is None else change.migration.to_json(),
    }


def change_digest(change: Change) -> str:
    """Return the digest that identifies one change, 64 hex digits."""
    return canonical_digest(change_form(change))


@dataclass(frozen=True, slots=True)
class ApprovalNeed:
    """Requirements for an approval: the change, its folder and rules, and the position in the ledger.

    `version` is the version of the entry that uses the approval. `digest` is the digest of the change, if its steps are
    not available. `moved` means that an entry after the one in the approval changed the resource. `at` is the time at
    that position. `consumed` are the ids of consumed approvals, and `revoked` the ids and approvers of revoked ones
    (None: any). `authors` are the authors of the change, and `unknown` explains why there may be more. `forge` is the
    kind of forge in use. For `replaced`, see `data_refusal`.
    """

    target: ClusterTarget
    cluster_tree: str
    config_digest: str
    policy_digest: str
    change: Change
    at: datetime
    consumed: frozenset[str] = frozenset()
    authors: frozenset[str] = frozenset()
    revoked: frozenset[tuple[str, str | None]] = frozenset()
    version: int = ENTRY_VERSION
    digest: str | None = None
    moved: bool = False
    unknown: tuple[str, ...] = ()
    forge: str = ""
    replaced: int | str = 0


@dataclass(frozen=True, slots=True)
class ApprovalVerification:
    """The result of verifying an approval: `principal` if it is accepted, or `diagnostics` with the failed step.

    `names` are all names of that person, in lower case. Approvals that share a name come from one person. `for_another`
    marks a refused approval that is for a different change of the resource.
    """

    evidence: ApprovalEvidence
    principal: str | None = None
    names: frozenset[str] = frozenset()
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    for_another: bool = False

    @property
    def accepted(self) -> bool:
        """Whether all steps passed."""
        return not len(self.diagnostics)

    @property
    def is_signed(self) -> bool:
        """Whether the document's approver gave it, whatever else it lacks: all steps up to the signer's passed."""
        return all((problem.step or 0) > _SIGNER_STEP for problem in self.diagnostics)

    @property
    def is_emergency(self) -> bool:
        """Whether it is accepted as an emergency, which is sufficient on its own and leaves a debt."""
        statement = self.evidence.statement
        return self.accepted and statement is not None and statement.via is Via.BREAK_GLASS


@dataclass(frozen=True, slots=True)
class _Case:
    """Evidence, with the values that the steps compare it to."""

    evidence: ApprovalEvidence
    need: ApprovalNeed
    trust: TrustRoot

    @property
    def approval(self) -> Approval:
        """The document. It is present once step 1 has passed."""
        return cast(Approval, self.evidence.approval)

    @property
    def statement(self) -> ApprovalStatement:
        """The statement. It is present once step 1 has passed."""
        return cast(ApprovalStatement, self.evidence.statement)

    def names(self) -> frozenset[str]:
        """Return all names of the approver. They are present once step 3 has passed."""
        listed = frozenset[str]() if self.statement.via is Via.FORGE else self.trust.names(self.evidence.signature.key)
        return self.trust.known_as({self.approval.approved_by, *listed})


def verify_approval(evidence: ApprovalEvidence, need: ApprovalNeed, trust: TrustRoot) -> ApprovalVerification:
    """Apply `STEPS` to one piece of evidence.

    The caller must check that `need.change` is gated and that there is a quorum (`select_quorum`).
    """
    case = _Case(evidence, need, trust)
    for number, step in enumerate(STEPS, start=1):
        refusal = step.check(case)
        if refusal is not None:
            refused, (code, message) = Diagnostics(), refusal
            detail = f"approval {_short(evidence.commit)}: {message}"
            fix = remedy_of(code, need.target, need.change.address)
            refused.add(code, need.change.address, detail, step=number, fix=fix)
            return ApprovalVerification(evidence, diagnostics=refused)
    return ApprovalVerification(evidence, case.approval.approved_by, case.names())


def is_for_another_change(evidence: ApprovalEvidence, need: ApprovalNeed, trust: TrustRoot) -> bool:
    """Return True if an approval is for a different change of the same resource, whatever else is wrong with it."""
    if evidence.approval is None or evidence.statement is None:
        return False
    return _difference(_Case(evidence, need, trust)) is not None


def remedy_of(code: Code, target: ClusterTarget, address: str = "") -> str | None:
    """Return the remedy for a refusal of `address` on this target branch. None means the code's usual remedy."""
    if code is Code.APPROVAL_WRONG_TARGET:
        return (remedy(code, address) or "").replace("NAME", target.cluster)
    if code is not Code.APPROVAL_AUTHORS_UNKNOWN:
        return None
    return (remedy(code, "") or "").replace(
        "origin/main", f"origin/{shlex.quote(target.ref.removeprefix('refs/heads/'))}"
    )


def _form(case: _Case) -> _Refusal | None:
    """Check the form of an approval commit.

    Its one parent is the named ledger entry, and the message repeats the one added document.
    """
    evidence, approval, statement = case.evidence, case.evidence.approval, case.evidence.statement
    if evidence.problem:
        return Code.APPROVAL_MALFORMED, evidence.problem
    if approval is None or statement is None:
        return Code.APPROVAL_MALFORMED, "document or statement is missing"
    if len(evidence.parents) != 1 or evidence.parents[0] != statement.ledger_head or not evidence.on_chain:
        return Code.APPROVAL_MALFORMED, "its parent is not the ledger entry that it names"
    if evidence.changed_paths != (_APPROVAL_PATH.format(approval.approval_id),):
        return Code.APPROVAL_MALFORMED, "it changes more than its own document"
    has, wants = (statement.grant, statement.emergency), (statement.via is Via.FORGE, statement.via is Via.BREAK_GLASS)
    if tuple(part is not None for part in has) != wants:
        detail = "it contradicts itself about whether it was given by a review, by one person alone or by a signature"
        return Code.APPROVAL_MALFORMED, detail
    same = statement.approval_id == approval.approval_id and statement.config_digest == approval.bound_config_digest
    return None if same else (Code.APPROVAL_MALFORMED, "its message does not match its document")


def signature_refusal(
    evidence: ApprovalEvidence, statement: ApprovalStatement, version: int = ENTRY_VERSION
) -> tuple[Code, str] | None:
    """Return the code and reason if step 2 refuses an approval for an entry of `version`, or None otherwise.

    The signature must be valid over the raw commit in the namespace `git`. The same key must have signed the statement
    itself in the namespace `gitops-approval`, so that no other signature of the approver can become an approval. Only
    statements of the first release, in entries of the first release, do not need that.
    """
    signature = evidence.signature
    if not signature.signed:
        return Code.APPROVAL_UNSIGNED, "the commit has no signature"
    if not signature.good or signature.namespace != "git":
        return Code.APPROVAL_SIGNATURE_INVALID, signature.problem or "the signature does not match the commit"
    if version < WITH_ORIGINS:
        return None
    if statement.version < STATEMENT_VERSION:
        early = "it was given with an earlier release, which did not record what it covers; approve again"
        return Code.APPROVAL_STALE, early
    problem = own_signature_problem(signature, evidence.own_signature)
    return (Code.APPROVAL_SIGNATURE_INVALID, problem) if problem else None


def own_signature_problem(commit: CommitSignature, own: CommitSignature | None) -> str:
    """Explain why the signature inside a statement or decision does not count in addition to its commit's.

    Returns an empty string if it does.
    """
    if own is None or not own.good or own.namespace != APPROVAL_NAMESPACE:
        return f"its statement is not signed in the namespace {APPROVAL_NAMESPACE}"
    return "" if own.key == commit.key else "its statement and its commit are signed with different keys"


def _signer(case: _Case) -> _Refusal | None:
    """Check that the owner of the key at this ledger position is the principal in the document.

    An attestation is signed by a ledger signer instead, and its document has the principal that owns the account.
    """
    signature, approval, trust = case.evidence.signature, case.approval, case.trust
    principal = trust.principal(signature.key, at=case.need.at)
    if principal is None:
        return Code.APPROVAL_SIGNER_UNKNOWN, f"its {signature.key_type} key is not trusted"
    grant = case.statement.grant
    if grant is not None:
        if principal not in trust.ledger_signers:
            return Code.APPROVAL_SIGNER_NOT_ALLOWED, f"{principal} is not allowed to sign attestations"
        principal = trust.account(grant.account)
        if principal is None:
            return Code.APPROVAL_ACCOUNT_UNKNOWN, f"approvals.accounts lists no person for {grant.account}"
    if principal != approval.approved_by:
        return Code.APPROVAL_MALFORMED, f"signed by {principal} in the name of {approval.approved_by}"
    return None


def _permission(case: _Case) -> _Refusal | None:
    """Apply `person_refusal`, and check that this kind of approval counts for the change.

    Attestations count only for the kinds of change that the rules list. In an emergency, it is sufficient to be listed for
    emergencies. Keys and rules themselves, and the location of a cluster, can be approved only by signature.
    """
    principal, trust, change = case.approval.approved_by, case.trust, case.need.change
    via = case.statement.via
    if via is not Via.SIGNATURE and not rules_of(change.address).in_folder:
        return _BY_SIGNATURE
    if via is Via.BREAK_GLASS:
        return alone_refusal(principal, change, trust)
    tier = change.tier or Tier.IRREVERSIBLE
    if via is Via.FORGE and tier not in trust.via_forge:
        return Code.APPROVAL_VIA_REFUSED, f"a review on the forge does not count for a change that is {tier}"
    return person_refusal(principal, case.names(), case.need, trust)


_BY_SIGNATURE = Code.APPROVAL_VIA_REFUSED, "keys, rules and cluster locations can be approved only by a signature"


def alone_refusal(principal: str, change: Change, trust: TrustRoot) -> tuple[Code, str] | None:
    """Return the code and reason if the rules do not let a person permit a change alone in an emergency, or None."""
    if not rules_of(change.address).in_folder:
        return _BY_SIGNATURE
    if not trust.may_act_alone(principal):
        return Code.APPROVAL_SIGNER_NOT_ALLOWED, f"{principal} is not listed in approvals.break_glass"
    return None


def person_refusal(
    principal: str, names: frozenset[str], need: ApprovalNeed, trust: TrustRoot
) -> tuple[Code, str] | None:
    """Return the code and reason if step 4 rejects a person as one of several approvers, or None otherwise.

    All authors of the change must be known (`approvals.origins`) and be other people, under any name or account. On a
    hosted forge, the rules must list the principal's account there. `names` are all names of the person, in lower case.
    """
    if not trust.may_approve(principal) or names & {signer.casefold() for signer in trust.ledger_signers}:
        return Code.APPROVAL_SIGNER_NOT_ALLOWED, f"{principal} is not an approver"
    own = names & {author.casefold() for author in need.authors}
    if own:
        alias = "" if principal.casefold() in own else f", as {', '.join(sorted(own))}"
        return Code.APPROVAL_SELF, f"{principal} is an author of the change{alias}"
    if need.unknown or UNKNOWN_AUTHOR in need.authors:
        why = "; ".join(need.unknown) or "they were not recorded"
        return code_of_unknown(need.unknown), f"{principal} may be one of the authors, who are unknown: {why}"
    if not has_account(names, need.forge):
        line = f"approvals.accounts: {{'{need.forge}:NUMBER': {principal}}}"
        detail = f"the rules in force name no account of {principal} on {need.forge}; they need {line}"
        return Code.APPROVAL_ACCOUNT_UNKNOWN, detail
    return None


def code_of_unknown(unknown: Sequence[str]) -> Code:
    """Return the code for refusing a change whose authors are unknown for these reasons."""
    too_long = any(TOO_LONG in reason for reason in unknown)
    return Code.APPROVAL_HISTORY_TOO_LONG if too_long else Code.APPROVAL_AUTHORS_UNKNOWN


def has_account(names: frozenset[str], forge: str) -> bool:
    """Return True if a person has an account on a forge that identifies people by accounts. `names` are in lower case."""
    return forge not in HOSTED or any(name.startswith(f"{forge}:") for name in names)


def _target(case: _Case) -> _Refusal | None:
    """Check that every part of the place matches."""
    for part in fields(ClusterTarget):
        approved, needed = getattr(case.statement.target, part.name), getattr(case.need.target, part.name)
        if approved != needed:
            return Code.APPROVAL_WRONG_TARGET, f"it is for {part.name} {approved!r}, but this is {needed!r}"
    return None


def _validity(case: _Case) -> _Refusal | None:
    """Check the revoked and consumed ids, and the dates."""
    identity = case.approval.approval_id
    if not case.need.revoked.isdisjoint({(identity, case.approval.approved_by), (identity, None)}):
        return Code.APPROVAL_REVOKED, f"{identity} was revoked"
    if identity in case.need.consumed or case.approval.consumed_at is not None:
        return Code.APPROVAL_SPENT, f"{identity} is already consumed"
    problem = _time_problem(case)
    return None if problem is None else (Code.APPROVAL_EXPIRED, problem)


def _coverage(case: _Case) -> _Refusal | None:
    """Check that the digests of folder, config, change and policy match, and that a forge review covered this folder.

    Also checks that no entry after the one in the approval has changed the resource.
    """
    grant, seen = case.statement.grant, case.evidence.reviewed_tree
    if grant is not None and seen not in (None, grant.tree):
        return Code.APPROVAL_MALFORMED, f"commit {_short(grant.commit)} does not have the cluster folder that it names"
    if grant is not None and grant.tree != case.statement.cluster_tree:
        return Code.APPROVAL_STALE, f"the reviewed content of {_short(grant.commit)} is not what would be applied"
    difference = _difference(case)
    if difference is None and case.need.moved and case.need.version >= WITH_ORIGINS:
        difference = "the resource was changed after the entry that the approver saw; approve again"
    return None if difference is None else (Code.APPROVAL_STALE, difference)


def _data(case: _Case) -> _Refusal | None:
    """Apply `data_refusal` and `callers_refusal`. Entries of the first release have no data."""
    if case.need.version < WITH_ORIGINS:
        return None
    change, statement, growth = case.need.change, case.statement, case.trust.data_growth
    refusal = data_refusal(change, statement.seen, growth, case.need.replaced)
    return refusal or callers_refusal(change, statement.callers, growth)


def _time_problem(case: _Case) -> str | None:
    """Check the time. An approval lasts from the earliest of its dates; a later one does not extend it."""
    grant, at = case.statement.grant, case.need.at
    begins = [parse_timestamp(t) for t in (case.approval.created_at, *(() if grant is None else (grant.at,)))]
    expires = parse_timestamp(case.statement.expires_at)
    if expires is None or None in begins:
        return "its times are not readable"
    begin = min(b for b in begins if b is not None)
    if begin > at + _SKEW:
        return f"it is dated in the future, {begin.isoformat()}"
    expires = min(expires, begin + case.trust.expires_after)
    return f"it expired at {expires.isoformat()}" if at >= expires else None


def _difference(case: _Case) -> str | None:
    """Describe what changed since the approval, the most helpful fact first. None if nothing did."""
    approval, statement, need, change = case.approval, case.statement, case.need, case.need.change
    if statement.cluster_tree != need.cluster_tree:
        moved = case.evidence.moved
        shown = ", ".join(moved[:_SHOWN_PATHS])
        more = f" and {len(moved) - _SHOWN_PATHS} more" if len(moved) > _SHOWN_PATHS else ""
        by = case.evidence.moved_by
        what = f"{by} changed the cluster folder after it was given" if by else "the cluster folder changed"
        return f"{what}: {shown}{more}" if shown else what
    if approval.resource != change.address or approval.operation is not change.action:
        return f"it is for {approval.operation} {approval.resource}"
    pairs = (
        ("the configuration", statement.config_digest, need.config_digest),
        ("the recorded state of the resource", approval.bound_before_digest, change.before),
        ("the desired state of the resource", approval.bound_after_digest, change.after),
        ("the change", statement.change_digest, need.digest or change_digest(change)),
        ("the approval rules", statement.policy_digest, need.policy_digest),
    )
    for what, approved, now in pairs:
        if approved != now:
            by = f" with {case.evidence.moved_by}" if case.evidence.moved_by else ""
            return f"{what} changed{by} (approved {_short(approved)}, now {_short(now)})"
    return None


# Checks that an approval covers the data that a change affects, which is the last step of the verification.
#
# 1. The data that the approver saw is recorded, and the current data is known. Otherwise the approval does not count.
# 2. It is the same graph. A graph that was recreated or replaced has a different incarnation.
# 3. It has not grown by more than the rules permit. A graph that was seen empty must be empty.
# 4. The percentage of seen rows that were replaced is within the limit of the rules, so that the deleted rows are the
#    ones that the approver agreed to lose. A changed row counts as replaced; deleted and added rows don't. The rules'
#    number of rows only applies to growth. If this is not known, because the version that was seen is no longer kept,
#    the approval does not count.
# 5. The clients that the change breaks are those that the approver saw, and the calls of none of them have grown by more
#    than the rules permit for rows.


def covers_change(approval: Approval, change: Change, config_digest: str, growth: DataGrowth) -> bool:
    """Return True if an unconsumed approval is for exactly this change: resource, its three digests, and data."""
    return (
        approval.consumed_at is None
        and approval.resource == change.address
        and approval.operation is change.action
        and approval.bound_config_digest == config_digest
        and approval.bound_before_digest == change.before
        and approval.bound_after_digest == change.after
        and data_refusal(change, approval.seen, growth) is None
        and callers_refusal(change, approval.callers, growth) is None
    )


def data_refusal(
    change: Change, approved: Seen | None, growth: DataGrowth, replaced: int | str = 0
) -> tuple[Code, str] | None:
    """Return the code and reason if an approval that saw `approved` does not cover a change's current data, or None.

    `replaced` is how many of the seen rows were replaced since, or why that cannot be known. It is 0 if the graph is not
    accessible, because a run with access to it makes this check. If nothing about the graph is known here, that run makes
    all of these checks.
    """
    if not rules_of(change.address).is_about_data(change):
        return None
    now, graph = change.seen, change.address.name
    if approved is not None and change.unknown_data:
        return None
    if approved is None or now is None:
        lacking = "it does not record what its approver saw of" if approved is None else "it is not known what is in"
        return Code.APPROVAL_DATA_UNKNOWN, f"{lacking} graph {graph}; run gitops refresh, then approve again"
    if approved.incarnation != now.incarnation:
        detail = f"it is for graph {approved.incarnation}, but {now.incarnation} is at this root now"
        return Code.APPROVAL_OTHER_GRAPH, detail
    if now.rows > growth.allowed(approved.rows):
        detail = f"the graph has grown: {approved.rows:,} rows at the approval, {now.rows:,} rows now; approve again"
        return Code.APPROVAL_DATA_GREW, detail
    if isinstance(replaced, str):
        lacking = f"it is not known whether the rows of version {approved.version} are still there: {replaced}"
        return Code.APPROVAL_DATA_UNKNOWN, f"{lacking}; run gitops refresh, then approve again"
    if replaced > growth.replaceable(approved.rows):
        detail = (
            f"of {approved.held} in version {approved.version}, which its approver saw, {replaced:,} "
            f"{'was' if replaced == 1 else 'were'} replaced up to version {now.version}; approve again"
        )
        return Code.APPROVAL_DATA_REPLACED, detail
    return None


def callers_refusal(change: Change, approved: Callers | None, growth: DataGrowth) -> tuple[Code, str] | None:
    """Return the code and reason if an approval that saw the clients `approved` does not cover those of a change, or None."""
    moved = callers_moved(approved, change.callers, growth.allowed)
    return (Code.APPROVAL_CALLERS_MOVED, f"{moved}; approve again") if moved else None


# The steps, and how many people gave approvals that pass them.


@dataclass(frozen=True, slots=True)
class Step:
    """A verification step: its requirement, and the codes that it refuses with."""

    asks: str
    check: Callable[[_Case], _Refusal | None]
    codes: frozenset[Code]


STEPS = (
    Step("its commit has the form of an approval", _form, frozenset({Code.APPROVAL_MALFORMED})),
    Step(
        "its signature is good",
        lambda case: signature_refusal(case.evidence, case.statement, case.need.version),
        frozenset({Code.APPROVAL_UNSIGNED, Code.APPROVAL_SIGNATURE_INVALID, Code.APPROVAL_STALE}),
    ),
    Step(
        "its key is currently trusted and belongs to one person",
        _signer,
        frozenset(
            {
                Code.APPROVAL_SIGNER_UNKNOWN,
                Code.APPROVAL_SIGNER_NOT_ALLOWED,
                Code.APPROVAL_ACCOUNT_UNKNOWN,
                Code.APPROVAL_MALFORMED,
            }
        ),
    ),
    Step(
        "this person may approve, and is not an author of the change",
        _permission,
        frozenset(
            {
                Code.APPROVAL_VIA_REFUSED,
                Code.APPROVAL_SIGNER_NOT_ALLOWED,
                Code.APPROVAL_SELF,
                *UNKNOWN_AUTHORS,
                Code.APPROVAL_ACCOUNT_UNKNOWN,
            }
        ),
    ),
    Step("it is for this cluster, branch and folder", _target, frozenset({Code.APPROVAL_WRONG_TARGET})),
    Step(
        "it is not consumed, revoked or expired",
        _validity,
        frozenset({Code.APPROVAL_REVOKED, Code.APPROVAL_SPENT, Code.APPROVAL_EXPIRED}),
    ),
    Step("it covers exactly this change", _coverage, frozenset({Code.APPROVAL_MALFORMED, Code.APPROVAL_STALE})),
    Step(
        "it covers the data of the change",
        _data,
        frozenset(
            {
                Code.APPROVAL_DATA_UNKNOWN,
                Code.APPROVAL_OTHER_GRAPH,
                Code.APPROVAL_DATA_GREW,
                Code.APPROVAL_DATA_REPLACED,
                Code.APPROVAL_CALLERS_MOVED,
            }
        ),
    ),
)
"""The steps of a verification, numbered from 1."""

_SIGNER_STEP = next(number for number, step in enumerate(STEPS, start=1) if step.check is _signer)

REFUSALS = frozenset({Code.APPROVAL_QUORUM}).union(*(step.codes for step in STEPS))
"""The codes of approvals that don't open a gate, because a step failed or there are too few people."""


def one_per_person(verified: Sequence[ApprovalVerification]) -> tuple[ApprovalVerification, ...]:
    """Return accepted approvals in id order, with only the lowest id of each person. Emergencies are left out."""
    accepted = sorted((v for v in verified if v.accepted and not v.is_emergency), key=_approval_id)
    kept: list[ApprovalVerification] = []
    for each in accepted:
        names = each.names or {each.principal}
        if all(names.isdisjoint(other.names or {other.principal}) for other in kept):
            kept.append(each)
    return tuple(kept)


def select_quorum(verified: Sequence[ApprovalVerification], required: int) -> tuple[ApprovalVerification, ...]:
    """Return the approvals that permit a change together: from `required` people, or one emergency. Empty without a quorum.

    An emergency that is not needed is not consumed.
    """
    people = one_per_person(verified)
    if len(people) >= required:
        return people[:required]
    return tuple(sorted((v for v in verified if v.is_emergency), key=_approval_id)[:1])


def _approval_id(verification: ApprovalVerification) -> str:
    approval = verification.evidence.approval
    return approval.approval_id if approval is not None else ""


def _short(text: str | None) -> str:
    return text[:12] if text else "none"
