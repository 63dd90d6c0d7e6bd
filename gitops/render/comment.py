"""Comments on change requests: what a plan would do, what an apply did, why a command was refused.

A comment is found again by its first line, a hidden marker, together with the author's id; its second line names the commit
and the plan that it speaks of. It only tells: no later decision reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops.core.codes import REGISTRY
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.model.address import Kind, is_name
from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.execution import NodeResult, Outcome
from gitops.model.outcome import ApplyOutcome, PlanOutcome
from gitops.model.plan import Plan
from gitops.render.impact import affected_views, migration_views
from gitops.render.markdown import NAME_LIMIT, assemble

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_UNPLANNED = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a comment speaks of: a cluster in an environment, a change request, and commit ids of 40 or 64 hex digits."""

    cluster: str
    environment: str
    request: int
    head: str
    base: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalState:
    """Where the approval of one change stands.

    `by` are the people who gave it, of whom `needed` distinct ones must. `code` and `detail` say why what was given does
    not count (a registered code and one line). `reason` says why the change needs an approval; a plan knows it. `command`
    gives the missing approval, ready to be pasted into a shell.
    """

    resource: str
    satisfied: bool
    by: tuple[str, ...] = ()
    code: str | None = None
    detail: str = ""
    command: str = ""
    reason: str = ""
    needed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComment:
    """Input of `plan_comment`."""

    subject: Subject
    outcome: PlanOutcome
    approvals: tuple[ApprovalState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyComment:
    """Input of `apply_comment`; the commit applied is the subject's head."""

    subject: Subject
    outcome: ApplyOutcome
    approvals: tuple[ApprovalState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalComment:
    """Input of `refusal_comment`: a command (`apply`, `approve`, …) and at least one problem that stopped it."""

    subject: Subject
    command: str
    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the table of changes: risk first, then what happens, to what, and what apply does with it."""

    risk: int
    action: str
    resource: str
    effect: str


def marker(cluster: str) -> str:
    """The text of the hidden first line, without its brackets, such as `gitops cluster=knowledge`.

    One for all kinds of comment: a request has one comment for each cluster, which plan and result update in place. Raises
    ValueError for a cluster that is not a name of at most 200 characters.
    """
    if not is_name(cluster) or len(cluster) > NAME_LIMIT:
        raise ValueError("a marker is made of a name")
    return f"gitops cluster={cluster}"


def plan_comment(comment: PlanComment) -> str:
    """What merging would do, most dangerous first, and what is still missing; at most 65,536 characters.

    Raises ValueError for a subject that is not of names and commit ids.
    """
    outcome, plan = comment.outcome, comment.outcome.plan
    approvals = _approvals(plan, comment.approvals)
    digest = plan.digest if plan else None
    return _rendered(
        "plan.md.j2",
        **_frame("plan", comment.subject, digest),
        verdict=_plan_verdict(outcome, approvals),
        approvals=approvals,
        commands="\n".join(a.command for a in approvals if not a.satisfied and a.command),
        rows=_rows(plan.changes, _gated(plan), _PLANNED) if plan else (),
        migrations=tuple(migration_views(plan).values()) if plan else (),
        impact=affected_views(plan) if plan else (),
        **_problems(outcome.diagnostics),
    )


def apply_comment(comment: ApplyComment) -> str:
    """What an apply did and where it stopped; at most 65,536 characters. Raises ValueError like `plan_comment`."""
    outcome = comment.outcome
    return _rendered(
        "apply.md.j2",
        **_frame("apply", comment.subject, outcome.plan_digest),
        verdict=_apply_verdict(outcome),
        rows=_rows(outcome.changes, {a.resource for a in comment.approvals}, _DONE),
        approvals=comment.approvals,
        stopped=tuple(_stop(r) for r in outcome.results if r.outcome is not Outcome.DONE),
        outcome=outcome,
        revision=outcome.observations.state_revision,
        **_problems(outcome.diagnostics),
    )


def refusal_comment(comment: RefusalComment) -> str:
    """Why a command was not carried out: the first problem's summary, then each problem with its remedy.

    Raises ValueError like `plan_comment`.
    """
    problems = comment.diagnostics
    errors = [d for d in problems if d.severity is Severity.ERROR]
    summaries = [REGISTRY[d.code].summary for d in (*errors, *problems) if d.code in REGISTRY]
    return _rendered(
        "refusal.md.j2",
        **_frame("refusal", comment.subject, None),
        command=f"gitops {comment.command}",
        summary=summaries[0] if summaries else "see below",
        **_problems(problems),
    )


def _rendered(template: str, **values: object) -> str:
    # jinja2 takes longer to import than a plan to make: only the verbs that comment pay for it.
    from gitops.render.environment import sections

    return assemble(sections(template, **values))


def _frame(kind: str, subject: Subject, digest: str | None) -> dict[str, object]:
    """The values that every template has."""
    if not _COMMIT.match(subject.head) or not _COMMIT.match(subject.base):
        raise ValueError("head and base are commit ids")
    if digest is not None and not _DIGEST.match(digest):
        raise ValueError("a plan digest has 64 hex digits")
    return {
        "marker": marker(subject.cluster),
        "reference": f"gitops:{kind} head={subject.head} plan={digest or _UNPLANNED}",
        "place": f"{subject.environment}/{subject.cluster}",
        "request": subject.request,
        "head": subject.head[:12],
        "base": subject.base[:12],
        "digest": digest or "",
    }


def _problems(diagnostics: Iterable[Diagnostic]) -> dict[str, object]:
    items = tuple(diagnostics)
    return {
        "errors": tuple(d for d in items if d.severity is Severity.ERROR),
        "warnings": tuple(d for d in items if d.severity is not Severity.ERROR),
    }


def _approvals(plan: Plan | None, states: Sequence[ApprovalState]) -> tuple[ApprovalState, ...]:
    """One state per gate of the plan; a gate is open only if the plan and the state that was handed in both say so."""
    known = {s.resource: s for s in states}
    result: list[ApprovalState] = []
    for need in plan.approvals_required if plan else ():
        by = tuple(a.approved_by for a in need.approvals)
        state = known.get(need.resource, ApprovalState(resource=need.resource, satisfied=need.satisfied, by=by))
        result.append(
            replace(state, satisfied=state.satisfied and need.satisfied, reason=need.reason, needed=need.needed)
        )
    return tuple(result)


def _plan_verdict(outcome: PlanOutcome, approvals: Sequence[ApprovalState]) -> str:
    plan = outcome.plan
    if not outcome.ok or plan is None:
        return f"failed, {_count(_errors(outcome.diagnostics), 'error')}"
    if not plan.changes:
        return "no changes"
    parts = [_count(len(plan.changes), "change")]
    missing = sum(not a.satisfied for a in approvals)
    if approvals:
        parts.append(
            f"{_count(missing, 'approval')} missing" if missing else f"{_count(len(approvals), 'approval')} given"
        )
    unsupported = sum(c.migration is not None and not c.migration.supported for c in plan.changes)
    if unsupported:
        parts.append(f"{_count(unsupported, 'migration')} not supported")
    return ", ".join(parts)


def _apply_verdict(outcome: ApplyOutcome) -> str:
    counts = f"{outcome.applied_count} applied, {outcome.deferred_count} deferred or blocked"
    if not outcome.ok:
        return f"failed, {_count(_errors(outcome.diagnostics), 'error')}, {counts}"
    return f"{counts}, {'converged' if outcome.converged else 'not converged'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _errors(diagnostics: Iterable[Diagnostic]) -> int:
    return sum(d.severity is Severity.ERROR for d in diagnostics)


_IRREVERSIBLE, _MIGRATION, _DELETE, _UPDATE, _CREATE = range(5)

_PLANNED: Mapping[Disposition, str] = {
    Disposition.APPLIED: "runs",
    Disposition.DERIVED: "follows from its parts",
    Disposition.DEFERRED: "deferred",
    Disposition.BLOCKED: "blocked",
}
_DONE: Mapping[Disposition, str] = {**_PLANNED, Disposition.APPLIED: "applied"}

_BECAUSE: Mapping[Reason, str] = {
    Reason.APPROVAL_REQUIRED: "an approval is missing",
    Reason.RECOVERY_PENDING: "an interrupted operation is not settled",
    Reason.DEPENDENCY_NOT_APPLIED: "something that it needs is not applied",
    Reason.UNSUPPORTED_KIND: "apply does not carry this out",
    Reason.GRAPH_CREATE_FAILED: "the graph could not be created",
    Reason.SCHEMA_APPLY_FAILED: "the schema change failed",
    Reason.GRAPH_DELETE_FAILED: "the graph could not be deleted",
}


def _gated(plan: Plan) -> set[str]:
    return {need.resource for need in plan.approvals_required}


def _rows(changes: Iterable[Change], gated: set[str], words: Mapping[Disposition, str]) -> tuple[_Row, ...]:
    """Irreversible changes first, then migrations, deletes, updates and creates; each group in address order."""
    rows = [_row(change, gated, words) for change in changes]
    return tuple(sorted(rows, key=lambda row: (row.risk, row.resource)))


def _row(change: Change, gated: set[str], words: Mapping[Disposition, str]) -> _Row:
    risk = _risk(change, gated)
    action = change.action.value
    if risk == _MIGRATION:
        action = "migrate"
    elif change.binding_change:
        action = "update bindings"
    effect = words[change.disposition]
    if change.reason is not None:
        effect = f"{effect}, {_BECAUSE[change.reason]}"
    return _Row(risk, action, change.address.text, effect)


def _risk(change: Change, gated: set[str]) -> int:
    """Where a change stands in the table. It orders and explains; what needs an approval is the planner's decision."""
    if change.address.text in gated or change.reason is Reason.APPROVAL_REQUIRED:
        return _IRREVERSIBLE
    if change.action is Action.DELETE:
        return _IRREVERSIBLE if change.address.kind in (Kind.GRAPH, Kind.SCHEMA) else _DELETE
    if change.action is Action.CREATE:
        return _CREATE
    return _MIGRATION if change.address.kind is Kind.SCHEMA else _UPDATE


def _stop(result: NodeResult) -> dict[str, str]:
    return {"resource": result.node_id, "how": result.outcome.value, "blocked_by": result.blocked_by or ""}
