"""`approve`: permits one gated change. It applies nothing and does not change the state.

In a ledger folder, an approval is a document. For a branch ledger, it is a signed commit: its parent is the ledger head
that the approver saw, it adds one document, and its message repeats everything that the permission is bound to, so that
the signature covers it, and how it was given: with the approver's own key, alone in an emergency, or on a forge and
attested by the bot (`gitops.bot.attestations`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.approvals.verify import (
    STEPS,
    UNKNOWN_AUTHORS,
    ApprovalNeed,
    alone_refusal,
    change_digest,
    data_refusal,
    person_refusal,
    remedy_of,
    verify_approval,
)
from gitops.cluster.ledger.evidence import read_evidence
from gitops.cluster.ledger.layout import approval_key
from gitops.cluster.model.address import Address, Kind, is_name
from gitops.cluster.model.approval import (
    APPROVAL_NAMESPACE,
    STATEMENT_VERSION,
    WITH_CALLERS,
    Approval,
    ApprovalStatement,
    ForgeGrant,
    Via,
)
from gitops.cluster.model.change import NOT_KNOWN_HERE, Action, Change, GateName
from gitops.cluster.model.outcome import ApprovalSubject, ApproveOutcome, MissingApprovals
from gitops.cluster.model.plan import ApprovalRequirement, Plan
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.session.session import Session, StateNeed, reading, writing
from gitops.cluster.session.workspace import Governance, Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import around
from gitops.database.language.suggest import did_you_mean
from gitops.git.port import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate


@dataclass(frozen=True, slots=True)
class ChosenChange:
    """A change that a person approves: its address, and the workspace of its cluster.

    `plan_digest` is the digest of the plan that the approver reviewed, and `rows` is the number of rows in the graph at
    that time.
    """

    workspace: Workspace
    address: Address
    publisher: ApprovalPublisher
    plan_digest: str | None = None
    rows: int | None = None


# The last three steps refuse approvals that are good and from trusted people, but no longer match this change and its
# data.
_SUPERSEDED = frozenset[Code]().union(*(step.codes for step in STEPS[-3:]))
_DIGEST = re.compile(r"[0-9a-f]{64}")

Written = tuple[Approval | None, str | None]
"""An approval's document, and its commit in a branch ledger."""


def review(
    workspace: Workspace,
    address: Address,
    *,
    plan_digest: str | None = None,
    rows: int | None = None,
    key: str | None = None,
    alone: bool = False,
) -> ApproveOutcome:
    """Return the subject of an approval for the change to `address`. Writes nothing.

    If `plan_digest` is given and the plan has a different digest, that is a problem. `rows` are as in `ChosenChange`.
    With `key` (a public key in base64), it is a problem if its owner's approval would not count. `alone` is for an
    emergency approval.
    """

    def prepare(current: Session) -> tuple[ApprovalSubject, Callable[[], Written]]:
        if workspace.governance is None:
            return _recorded_subject(current, address), lambda: (None, None)

        def check(gated: GatedChange) -> None:
            refusal = None if key is None else _refusal(gated, key, alone=alone)
            if refusal is not None and refusal[0] != Code.APPROVAL_QUORUM:
                raise GitopsError(*refusal, path=address, fix=gated.remedy(refusal[0]))

        gated = read_gated_change(current, address, rows, check)

        def compare() -> Written:
            _check_rows(gated, rows)
            return None, None

        return gated.subject, compare

    return approve_in_session(workspace, address, prepare, plan_digest=plan_digest)


def approve(workspace: Workspace, address: Address, *, plan_digest: str | None = None) -> ApproveOutcome:
    """Write an approval for the gated change of `address` into the ledger folder. `workspace.actor` is the approver.

    `plan_digest` is the digest of the plan that the approver reviewed.
    """

    def prepare(current: Session) -> tuple[ApprovalSubject, Callable[[], Written]]:
        subject = _recorded_subject(current, address)

        def write() -> Written:
            change, requirement = _find_gated_change(subject.plan, address)
            approval = draft_approval(workspace, change, requirement.reason, subject.plan.config_digest, current.at)
            approval = replace(approval, seen=change.seen)
            current.opened.ledger.record_approval(approval)
            return approval, None

        return subject, write

    return approve_in_session(workspace, address, prepare, plan_digest=plan_digest, exclusive=True)


def sign_approval(
    workspace: Workspace,
    address: Address,
    publisher: ApprovalPublisher,
    *,
    plan_digest: str | None = None,
    rows: int | None = None,
    emergency: str | None = None,
) -> ApproveOutcome:
    """Sign and push an approval for the gated change of `address`. If it would not count, it is refused before the push.

    `plan_digest` and `rows` are as in `ChosenChange`. `emergency` is the reason given by a person who acts alone; such
    an approval leaves a debt.
    """
    chosen = ChosenChange(workspace, address, publisher, plan_digest, rows)
    return sign_approvals((chosen,), emergency=emergency)[0]


def sign_approvals(changes: Sequence[ChosenChange], *, emergency: str | None = None) -> tuple[ApproveOutcome, ...]:
    """Sign an approval for each of these changes in one repository, and push them all atomically.

    Nothing is signed unless every plan is the one that was reviewed, and nothing is pushed unless every approval would
    count. `emergency` is as for `sign_approval`.
    """
    checked = [_check(each) for each in changes]
    outcomes = tuple(outcome for outcome, _ in checked)
    if not all(outcome.ok for outcome in outcomes):
        return outcomes
    via = Via.SIGNATURE if emergency is None else Via.BREAK_GLASS
    signed, updates = list(outcomes), list[RefUpdate]()
    for place, (each, (_, gated)) in enumerate(zip(changes, checked, strict=True)):
        try:
            if gated is None:
                raise AssertionError("a change that was not found has a problem")
            approval, update = write_approval_commit(
                _as_seen(gated, each.rows), each.publisher, via=via, emergency=emergency
            )
        except GitopsError as error:
            return (*outcomes[:place], _refused(outcomes[place], error, each.address), *outcomes[place + 1 :])
        # Superseded approvals were listed before the signature. Listed again now, they would look like failures of this
        # one.
        left = (each for each in outcomes[place].diagnostics if each.code not in _SUPERSEDED)
        signed[place] = replace(outcomes[place], approval=approval, commit=update.new, diagnostics=tuple(left))
        updates.append(update)
    try:
        push_approvals(changes[0].workspace, changes[0].publisher, updates)
    except GitopsError as error:
        return tuple(_refused(outcome, error, each.address) for outcome, each in zip(outcomes, changes, strict=True))
    return tuple(signed)


def _check(each: ChosenChange) -> tuple[ApproveOutcome, GatedChange | None]:
    """Return the gated change in a plan with the reviewed digest, or None if there is a problem."""
    found: list[GatedChange] = []

    def prepare(current: Session) -> tuple[ApprovalSubject, Callable[[], Written]]:
        gated = read_gated_change(current, each.address, each.rows)
        found.append(gated)

        def check() -> Written:
            _check_rows(gated, each.rows)
            seen = gated.change.seen
            if (
                each.rows is None
                and seen is not None
                and seen.dated
                and each.address.graph_address not in current.state.vanished
            ):
                detail = f"the graph cannot be read here; the newest known state has {seen.held}{seen.dated}"
                fix = f"pass the number of rows that the newest comment of the bot shows: add --rows {seen.rows}"
                raise GitopsError(Code.APPROVAL_DATA_UNKNOWN, detail, path=each.address, fix=fix)
            return None, None

        return gated.subject, check

    outcome = approve_in_session(each.workspace, each.address, prepare, plan_digest=each.plan_digest)
    return outcome, found[-1] if found else None


def _refused(outcome: ApproveOutcome, error: GitopsError, address: Address) -> ApproveOutcome:
    problems = Diagnostics(outcome.diagnostics)
    _add_refusal(problems, error, address)
    return replace(outcome, diagnostics=tuple(problems))


def _add_refusal(problems: Diagnostics, error: GitopsError, address: Address) -> None:
    """Add the reason why nothing was approved, always as an error: some of its codes are warnings elsewhere."""
    problems.add(error.code, error.path or address, error.detail, severity=Severity.ERROR, fix=error.fix)


def approve_in_session(
    workspace: Workspace,
    address: Address,
    prepare: Callable[[Session], tuple[ApprovalSubject, Callable[[], Written]]],
    *,
    plan_digest: str | None = None,
    exclusive: bool = False,
) -> ApproveOutcome:
    """Return the outcome of a session that approves the change of `address`.

    `prepare` returns what the approval covers, and a function that writes it, which is called only if the plan has the
    digest `plan_digest`.
    """

    def body(current: Session) -> ApproveOutcome:
        about: ApprovalSubject | None = None
        written: Written = None, None
        if current.ready:
            try:
                about, write = prepare(current)
                if plan_digest in (None, about.plan.digest):
                    written = write()
                else:
                    detail = f"the plan is now {about.plan.digest}, not {plan_digest}"
                    fix = f"review the new plan; to sign it, run the same command with its digest: {about.plan.digest}"
                    if not _DIGEST.fullmatch(plan_digest or ""):
                        detail = f"{plan_digest} is not a complete digest of a plan, which has 64 digits"
                        fix = f"review the plan, and run the same command with its complete digest: {about.plan.digest}"
                    current.problems.add(Code.APPROVAL_PLAN_CHANGED, address, detail, fix=fix)
            except GitopsError as error:
                _add_refusal(current.problems, error, address)
        approval, commit = written
        return ApproveOutcome(
            config_dir=workspace.config_dir,
            approval=approval,
            commit=commit,
            about=about,
            diagnostics=tuple(current.problems),
        )

    enter = writing if exclusive else reading
    return enter(workspace, "approve", StateNeed.REQUIRED, body)


def _check_rows(gated: GatedChange, rows: int | None) -> None:
    """Check the rows that the approver passes against those that are known: they sign what they saw.

    They must be the same, except that there can have been fewer if the graph is at hand.
    Raises GitopsError `approval_data_grew`, `approval_rows_differ`.
    """
    change, seen = gated.change, gated.change.seen
    if rows is None or seen is None or rows == seen.rows:
        return
    if rows < seen.rows:
        _as_seen(gated, rows)
    if rows > seen.rows or not change.at_hand:
        detail = f"--rows says {rows:,}, but the graph has {seen.held}{seen.dated}"
        fix = f"review the change as it is shown, then run the same command with --rows {seen.rows}"
        raise GitopsError(Code.APPROVAL_ROWS_DIFFER, detail, path=change.address, fix=fix)


def _as_seen(gated: GatedChange, rows: int | None) -> GatedChange:
    """Return the gated change with the number of rows that the approver saw.

    Raises GitopsError if the graph has grown too much since then.
    """
    now = gated.change.seen
    if rows is None or now is None:
        return gated
    seen = replace(now, rows=min(rows, now.rows))
    refusal = data_refusal(gated.change, seen, gated.trust.data_growth)
    if refusal is not None:
        raise GitopsError(*refusal, path=gated.change.address)
    return replace(gated, change=replace(gated.change, seen=seen))


def read_gated_change(
    current: Session,
    address: Address,
    rows: int | None = None,
    check: Callable[[GatedChange], None] = lambda _: None,
) -> GatedChange:
    """Plan again and return the gated change of `address`, whose graph had `rows` rows when the approver saw it.

    `check` rejects an approver before the first prompt. Raises GitopsError `approval_not_required`, `ledger_missing`,
    and, if the covered data is unknown here, `approval_data_unknown`, `schema_preview_unavailable`.
    """
    graph = address.graph_address
    shown = {} if rows is None or graph is None else {graph: rows}
    plan, _ = plan_session(current, current.state, explain=True, shown=shown)
    gated = find_gated_change(current, plan, address)
    check(gated)
    _, need = _find_gated_change(plan, address)
    if need.satisfied:
        given = ", ".join(each.approved_by for each in need.approvals)
        detail = f"it has all the approvals that it needs, by {given}: another one changes nothing while they count"
        current.problems.add(Code.APPROVAL_NOT_REQUIRED, address, detail, severity=Severity.WARNING, fix="")
    change = gated.change
    if change.unknown_data and rows is None:
        detail = f"{NOT_KNOWN_HERE}: the graph is not available here, and no stored plan of the bot contains them"
        fix = "pass the number of rows that the comment of the bot shows: add --rows N"
        raise GitopsError(Code.APPROVAL_DATA_UNKNOWN, detail, path=address, fix=fix)
    if (
        address.kind is Kind.SCHEMA
        and change.action is Action.UPDATE
        and change.migration is None
        and not change.at_hand
    ):
        detail = (
            "the effect of this schema change is not known here: neither the applied schema nor the graph is available"
        )
        fix = "fetch all commits: git fetch --unshallow; or approve it on the machine that has the graph"
        raise GitopsError(Code.SCHEMA_PREVIEW_UNAVAILABLE, detail, path=address, fix=fix)
    return gated


def find_gated_change(current: Session, plan: Plan, address: Address) -> GatedChange:
    """Return the gated change of `address` in a session's plan.

    Raises GitopsError `approval_not_required`, `ledger_missing`.
    """
    workspace, view, governance = current.workspace, current.view, current.workspace.governance
    if governance is None or view.head is None or view.trust is None:
        raise GitopsError(
            Code.LEDGER_MISSING, "an approval needs a ledger branch, but the cluster has none", path=address
        )
    change, requirement = _find_gated_change(plan, address)
    consumed = frozenset() if view.state is None else frozenset(view.state.approval_records)
    return GatedChange(
        workspace, governance, view.head, view.trust, current.at, consumed, plan, change, requirement.reason
    )


def _recorded_subject(current: Session, address: Address) -> ApprovalSubject:
    """Return the subject of an approval in a ledger folder. Raises GitopsError `approval_not_required`."""
    plan, _ = plan_session(current, current.state, explain=True)
    _find_gated_change(plan, address)
    return ApprovalSubject(address=address, plan=plan)


def _find_gated_change(plan: Plan, address: Address) -> tuple[Change, ApprovalRequirement]:
    """Return the gated change of `address` in a plan, and its gate. Raises GitopsError `approval_not_required`."""
    requirement = next((r for r in plan.approvals_required if r.resource == address), None)
    change = plan.change(address)
    if requirement is None or change is None:
        gates = ", ".join(r.resource for r in plan.approvals_required)
        detail = f"{address} has no change that needs an approval{f'; these have one: {gates}' if gates else ''}"
        gated = [str(each.resource) for each in plan.approvals_required]
        near = [each for each in gated if each.partition(".")[2] == (address if is_name(address) else address.name)]
        meant = near[0] if len(near) == 1 else getattr(did_you_mean(address, gated), "name", None)
        fix = None if meant is None else f"did you mean `{meant}`? gitops approve {meant}"
        if meant is None and is_name(address):
            fix = f"write the kind before the name: gitops approve graph.{address}"
        raise GitopsError(Code.APPROVAL_NOT_REQUIRED, detail, path=address, fix=fix)
    return change, requirement


# Writes, signs and pushes the commit of an approval, after verifying it like the bot will.
#
# Its parent is the ledger head that the approver saw, it adds one document, and its message repeats everything that the
# permission is bound to and how it was given, so that the signature covers it.


@dataclass(frozen=True, slots=True)
class ApprovalPublisher:
    """Destination and signer of approvals. `signing_key` is a path for ssh-keygen; `ref_prefix` is the branch name's prefix."""

    store: GitStore
    remote: GitRemote
    author: Person
    signing_key: str
    ref_prefix: str


@dataclass(frozen=True, slots=True)
class GatedChange:
    """A gated change in a plan that was made at time `at` against the ledger entry `head` under the rules `trust`."""

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
        """Return the subject of an approval for the change."""
        governance, address = self.governance, self.change.address
        head, tree = governance.source.commit, governance.source.tree
        return ApprovalSubject(address=address, plan=self.plan, target=governance.target, head=head, tree=tree)

    def need(self) -> ApprovalNeed:
        """Return the current requirements for approving the change.

        The bot checks origins that are unknown here. What it found when it planned this commit is known from its plan.
        """
        authors = self.governance.authors_for(self.change)
        return ApprovalNeed(
            target=self.governance.target,
            cluster_tree=self.governance.source.tree,
            config_digest=self.plan.config_digest,
            policy_digest=self.trust.digest,
            change=self.change,
            at=self.at,
            authors=authors.people,
            unknown=authors.unknown if self.governance.knows_origins() else self._unknown_elsewhere(),
            forge=self.governance.forge,
        )

    def _unknown_elsewhere(self) -> tuple[str, ...]:
        found = self.governance.unknown_elsewhere(self.change.address)
        return () if found is None else (found.detail,)

    def remedy(self, code: Code) -> str | None:
        """Return the remedy for a refusal of an approval of this change. None means the code's usual remedy."""
        found = self.governance.unknown_elsewhere(self.change.address) if code in UNKNOWN_AUTHORS else None
        if found is None:
            return remedy_of(code, self.governance.target)
        return f"nothing that you sign counts before the author has done this: {found.fix}"


def push_approvals(workspace: Workspace, publisher: ApprovalPublisher, updates: Sequence[RefUpdate]) -> None:
    """Push the approval branches atomically.

    Raises GitopsError `approval_write_error` or `push_refused`, or RemoteError.
    """
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
    """Write and verify an approval commit. Return its document and the branch to push.

    `principal` is the approver, if that is not the signer. Raises GitopsError with the code of the verification step that
    refuses the approval.
    """
    workspace, trust = gated.workspace, gated.trust
    callers = gated.change.callers if GateName.BREAKS_CLIENTS in gated.change.gates else None
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
        version=STATEMENT_VERSION if callers is None else WITH_CALLERS,
        callers=callers,
    )
    drafted = draft_approval(workspace, gated.change, gated.reason, gated.plan.config_digest, gated.at)
    approver = principal or drafted.approved_by
    approval = replace(drafted, approval_id=statement.approval_id, approved_by=approver)
    commit = _write_commit(publisher, approval, statement, workspace)
    signer = trust.principal(publisher.store.signature(commit).key, at=gated.at)
    if grant is None and signer is not None and signer != approval.approved_by:
        # The document contains the owner of the key, even if the operator has a different name on this machine.
        approval = replace(approval, approved_by=signer)
        commit = _write_commit(publisher, approval, statement, workspace)
    ref = publisher.ref_prefix + approval.approval_id
    evidence = read_evidence(publisher.store, ref, commit, frozenset({statement.ledger_head}))
    for problem in verify_approval(evidence, gated.need(), trust).diagnostics:
        raise GitopsError(problem.code, problem.message, path=gated.change.address, fix=gated.remedy(problem.code))
    return approval, RefUpdate(ref, ZERO, commit)


def draft_approval(workspace: Workspace, change: Change, reason: str, config_digest: str, at: datetime) -> Approval:
    """Return the document that permits exactly this change."""
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


# Lists a cluster's missing approvals, and the ones that a person can give, without signing or writing anything.


def missing_approvals(workspace: Workspace, key: str) -> MissingApprovals:
    """Return a cluster's changes that still need an approval which the owner of this key may give.

    `key` is the base64 of the public key. Each change that the person is not allowed to approve is a warning with the
    reason. A cluster without a ledger has none.
    """

    def body(current: Session) -> MissingApprovals:
        outcome = MissingApprovals(config_dir=workspace.config_dir)
        if not current.ready:
            return replace(outcome, diagnostics=tuple(current.problems))
        if current.view.head is None:
            return outcome
        found, others = [], Diagnostics()
        try:
            plan, _ = plan_session(current, current.state, explain=True)
            for requirement in plan.approvals_required:
                if requirement.satisfied:
                    continue
                gated = find_gated_change(current, plan, requirement.resource)
                refusal = _refusal(gated, key)
                if refusal is None:
                    found.append(requirement.resource)
                else:
                    fix = gated.remedy(refusal[0])
                    others.add(refusal[0], requirement.resource, refusal[1], severity=Severity.WARNING, fix=fix)
        except GitopsError as error:
            others.add_error(error)
        return replace(outcome, addresses=tuple(found), diagnostics=tuple(others))

    return reading(workspace, "approve", StateNeed.OPTIONAL, body)


def _refusal(gated: GatedChange, key: str, *, alone: bool = False) -> tuple[Code, str] | None:
    """Return the reason why the key owner's approval of a change would not count or help, or None if it would."""
    trust = gated.trust
    principal = trust.principal(key, at=gated.at)
    if principal is None:
        return Code.APPROVAL_SIGNER_UNKNOWN, "your key is not trusted by the rules in force"
    if alone:
        return alone_refusal(principal, gated.change, trust)
    names = trust.known_as({principal, *trust.names(key)})
    requirement = next(r for r in gated.plan.approvals_required if r.resource == gated.change.address)
    if any(names & trust.known_as({given.approved_by}) for given in requirement.approvals):
        missing = requirement.needed - len(requirement.approvals)
        return Code.APPROVAL_QUORUM, f"{principal} has already approved it; other people must give {missing} more"
    return person_refusal(principal, names, gated.need(), trust)
