"""`approve`: permission for one gated change. It applies nothing and edits no state.

In a ledger folder an approval is a document. For a branch ledger it is a signed commit: its parent is the ledger head that the
approver saw, it adds one document, and its message repeats, for the signature to cover, everything that the permission is
bound to and how it was given: by the approver's own key, alone in an emergency, or on a forge and attested by the bot
(`gitops.repository.attest`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gitops.cluster.approvals.data import data_refusal
from gitops.cluster.approving.sign import (
    ApprovalPublisher,
    GatedChange,
    draft_approval,
    push_approvals,
    write_approval_commit,
)
from gitops.cluster.model.address import Address, is_name
from gitops.cluster.model.approval import Approval, Via
from gitops.cluster.model.change import Change
from gitops.cluster.model.outcome import ApprovalSubject, ApproveOutcome
from gitops.cluster.model.plan import ApprovalRequirement, Plan
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.session.session import Session, StateNeed, reading, writing
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.git.port import RefUpdate


@dataclass(frozen=True, slots=True)
class ChosenChange:
    """A change that a person approves: its address, and the workspace of its cluster.

    `plan_digest` is that of the plan that the approver has seen, and `rows` how many the graph had then.
    """

    workspace: Workspace
    address: Address
    publisher: ApprovalPublisher
    plan_digest: str | None = None
    rows: int | None = None


Written = tuple[Approval | None, str | None]
"""The document of an approval, and its commit in a branch ledger."""


def review(workspace: Workspace, address: Address, *, plan_digest: str | None = None) -> ApproveOutcome:
    """What an approval of the change of `address` would be about. Writes nothing.

    A plan that has not the digest `plan_digest` is a problem, if that is given.
    """

    def prepare(current: Session) -> tuple[ApprovalSubject, Callable[[], Written]]:
        if workspace.governance is None:
            return _recorded_subject(current, address), lambda: (None, None)
        return read_gated_change(current, address).subject, lambda: (None, None)

    return approve_in_session(workspace, address, prepare, plan_digest=plan_digest)


def approve(workspace: Workspace, address: Address, *, plan_digest: str | None = None) -> ApproveOutcome:
    """Write an approval for the gated change of `address` into the ledger folder; `workspace.actor` is the approver.

    `plan_digest` is that of the plan that the approver has seen.
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
    """Sign and push an approval for the gated change of `address`; refused before the push when it would not count.

    `plan_digest` and `rows` are as in `ChosenChange`. `emergency` is the reason of one person who acts alone: such an
    approval leaves a debt.
    """
    chosen = ChosenChange(workspace, address, publisher, plan_digest, rows)
    return sign_approvals((chosen,), emergency=emergency)[0]


def sign_approvals(changes: Sequence[ChosenChange], *, emergency: str | None = None) -> tuple[ApproveOutcome, ...]:
    """Sign an approval for each of these changes of one repository, and push all of them at once, or none.

    Nothing is signed unless every plan is the one that was seen, and nothing is pushed unless every approval would count.
    `emergency` is as for `sign_approval`.
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
        signed[place] = replace(outcomes[place], approval=approval, commit=update.new)
        updates.append(update)
    try:
        push_approvals(changes[0].workspace, changes[0].publisher, updates)
    except GitopsError as error:
        return tuple(_refused(outcome, error, each.address) for outcome, each in zip(outcomes, changes, strict=True))
    return tuple(signed)


def _check(each: ChosenChange) -> tuple[ApproveOutcome, GatedChange | None]:
    """The gated change of a plan that has the digest of the one that was seen; None where there is a problem."""
    found: list[GatedChange] = []

    def prepare(current: Session) -> tuple[ApprovalSubject, Callable[[], Written]]:
        found.append(read_gated_change(current, each.address, each.rows))
        return found[-1].subject, lambda: (None, None)

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
    """The outcome of a session that approves the change of `address`.

    `prepare` gives what the approval is about, and what writes it, which is called only if the plan has the digest `plan_digest`.
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
                    fix = f"read the plan as it is now; to sign it, run the same command with its digest: {about.plan.digest}"
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


def _as_seen(gated: GatedChange, rows: int | None) -> GatedChange:
    """The gated change with the rows that the approver has seen. Raises GitopsError where the graph has too many more by now."""
    now = gated.change.seen
    if rows is None or now is None:
        return gated
    seen = replace(now, rows=min(rows, now.rows))
    refusal = data_refusal(gated.change, seen, gated.trust.data_growth)
    if refusal is not None:
        raise GitopsError(*refusal, path=gated.change.address)
    return replace(gated, change=replace(gated.change, seen=seen))


def read_gated_change(current: Session, address: Address, rows: int | None = None) -> GatedChange:
    """The gated change of `address` in a plan made now, whose graph the approver was shown with `rows`.

    Raises GitopsError `approval_not_required`, `ledger_missing`.
    """
    graph = address.graph_address
    shown = {} if rows is None or graph is None else {graph: rows}
    plan, _ = plan_session(current, current.state, explain=True, shown=shown)
    return find_gated_change(current, plan, address)


def find_gated_change(current: Session, plan: Plan, address: Address) -> GatedChange:
    """The gated change of `address` in the plan of a session.

    Raises GitopsError `approval_not_required`, `ledger_missing`.
    """
    workspace, view, governance = current.workspace, current.view, current.workspace.governance
    if governance is None or view.head is None or view.trust is None:
        raise GitopsError(
            Code.LEDGER_MISSING, "the cluster has no ledger branch, which an approval needs", path=address
        )
    change, requirement = _find_gated_change(plan, address)
    consumed = frozenset() if view.state is None else frozenset(view.state.approval_records)
    return GatedChange(
        workspace, governance, view.head, view.trust, current.at, consumed, plan, change, requirement.reason
    )


def _recorded_subject(current: Session, address: Address) -> ApprovalSubject:
    """What an approval in a ledger folder is about. Raises GitopsError `approval_not_required`."""
    plan, _ = plan_session(current, current.state, explain=True)
    _find_gated_change(plan, address)
    return ApprovalSubject(address=address, plan=plan)


def _find_gated_change(plan: Plan, address: Address) -> tuple[Change, ApprovalRequirement]:
    """The gated change of `address` in a plan, and its gate. Raises GitopsError `approval_not_required`."""
    requirement = next((r for r in plan.approvals_required if r.resource == address), None)
    change = plan.change(address)
    if requirement is None or change is None:
        gates = ", ".join(r.resource for r in plan.approvals_required)
        detail = f"{address} has no change that needs an approval{f'; these have one: {gates}' if gates else ''}"
        fix = f"write the kind before the name: gitops approve graph.{address}" if is_name(address) else None
        raise GitopsError(Code.APPROVAL_NOT_REQUIRED, detail, path=address, fix=fix)
    return change, requirement
