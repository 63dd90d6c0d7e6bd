"""The parts of comments that are verdicts, checks, problems and explanations, made of outcomes: templates only lay them out.

An explanation is everything about one change of a plan, as `/gitops explain ADDRESS` asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gitops.cluster.changesets.lifecycle import unfinished
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Reason
from gitops.cluster.model.changeset import BLOCKING, ENDED, Changeset, ChangesetState, RuntimeState
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome, VerbOutcome
from gitops.cluster.model.plan import NodeOutcome, NodeResult, Plan
from gitops.cluster.plan.classes import BARRIERS
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Severity, SourceRef, by_place
from gitops.render.change_rows import PLANNED, action_of, broken_queries, effect_of
from gitops.render.comment_inputs import ApprovalState, PlanComment
from gitops.render.impact import SHOWN, migration_views
from gitops.render.text import apply_counts, count

_APPROVE_AGAIN = frozenset(
    {
        Code.APPROVAL_STALE,
        Code.APPROVAL_SELF,
        Code.APPROVAL_SPENT,
        Code.APPROVAL_EXPIRED,
        Code.APPROVAL_QUORUM,
        Code.APPROVAL_SIGNER_NOT_ALLOWED,
    }
)
"""Why an approval does not count where another one is the whole remedy."""
_CHANGESET_CODES = (Code.CHANGESET_ROLLED_BACK, Code.CHANGESET_ORPHANED)
# The steps of the verification of an approval, in order, with the codes of their refusals.
_STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("its commit has the form of an approval", frozenset({Code.APPROVAL_MALFORMED})),
    ("its signature is good", frozenset({Code.APPROVAL_UNSIGNED, Code.APPROVAL_SIGNATURE_INVALID})),
    ("its key is trusted now, for one person", frozenset({Code.APPROVAL_SIGNER_UNKNOWN})),
    (
        "this person may approve, and is not an author of the change",
        frozenset({Code.APPROVAL_SIGNER_NOT_ALLOWED, Code.APPROVAL_SELF, Code.APPROVAL_AUTHORS_UNKNOWN}),
    ),
    ("it is for this cluster, branch and folder", frozenset({Code.APPROVAL_WRONG_TARGET})),
    (
        "it is not consumed, revoked or expired",
        frozenset({Code.APPROVAL_SPENT, Code.APPROVAL_REVOKED, Code.APPROVAL_EXPIRED}),
    ),
    ("it covers exactly this change", frozenset({Code.APPROVAL_STALE})),
)


def approval_states(plan: Plan | None, states: Sequence[ApprovalState]) -> tuple[ApprovalState, ...]:
    """One state per gate of the plan; a gate is open only if both the plan and the given state say so."""
    known = {s.resource: s for s in states}
    result: list[ApprovalState] = []
    for need in plan.approvals_required if plan else ():
        by = tuple(a.approved_by for a in need.approvals)
        state = known.get(need.resource, ApprovalState(resource=need.resource, satisfied=need.satisfied, by=by))
        satisfied = state.satisfied and need.satisfied
        may = () if satisfied else need.may
        alone = need.emergency or state.emergency
        result.append(
            replace(
                state,
                satisfied=satisfied,
                reason=need.reason,
                needed=need.needed,
                may=may,
                emergency=alone,
                count=need.words,
            )
        )
    return tuple(result)


def rule_rows(plan: Plan) -> tuple[dict[str, Any], ...]:
    """What changes of keys and rules mean, one line each; `before` is empty for what is added, `after` for what is removed."""
    return tuple(
        {
            "resource": each.address,
            "rule": each.rule,
            "before": each.before or "",
            "after": each.after or "",
            "widens": each.widens,
        }
        for each in plan.rule_changes
    )


def plan_verdict(comment: PlanComment, gates: Sequence[ApprovalState]) -> str:
    """The result of a plan, in one line: how much would change, and what is missing."""
    outcome, plan = comment.outcome, comment.outcome.plan
    if not outcome.ok or plan is None:
        return f"failed, {_errors(outcome)}"
    if not plan.changes and outcome.lands:
        return "no changes"
    missing = sum(not a.satisfied for a in gates)
    parts = [f"{count(missing, 'approval')} missing"] if missing else []
    if comment.debts:
        parts.append(f"{count(len(comment.debts), 'countersignature')} missing")
    if comment.forge_verdict_missing:
        parts.append("the approval of the forge is missing")
    if refused := _refused(outcome):
        parts.append(f"{count(len(refused), 'obstacle')} to an apply")
    if broken := len(broken_queries(plan)):
        parts.append("1 query breaks callers" if broken == 1 else f"{broken} queries break callers")
    return ", ".join((count(len(plan.edits), "change"), *(parts or ["good to merge"])))


def plan_checks(comment: PlanComment, gates: Sequence[ApprovalState]) -> tuple[dict[str, str], ...]:
    """The rows of the table of states, what is not good first; empty for a plan of which nothing has to be checked.

    Each has a `name`, the `resource` that it is about, a `note`, and a `state`: good, missing, failed, running or not run. All
    are of the head that was planned.
    """
    found = [_check("apply of", path, "failed", why) for path, why in _refused(comment.outcome).items()]
    if comment.forge_verdict_missing:
        found.append(_check("approval of the forge", "", "missing", "the rules ask for its own verdict, too"))
    found += [
        _check("countersignature for", debt.resource, "missing", f"{debt.principal} acted alone: {debt.reason}")
        for debt in comment.debts
    ]
    return tuple(sorted((*found, *approval_checks(gates)), key=lambda row: row["state"] == "good"))


def approval_checks(gates: Iterable[ApprovalState]) -> list[dict[str, str]]:
    """One row of the table of states for each approval."""
    found = []
    for gate in gates:
        given = f"{'given' if gate.via_forge else 'signed'} by {', '.join(gate.by)}" if gate.by else ""
        if not gate.satisfied:
            note = f"{gate.count or f'{len(gate.by)} of {gate.needed}'}; not by its authors"
        elif gate.emergency:
            note = f"{given} alone, in an emergency"
        else:
            note = given
        found.append(_check("approval of", gate.resource, "good" if gate.satisfied else "missing", note))
    return found


def _check(name: str, resource: str, state: str, note: str) -> dict[str, str]:
    return {"name": name, "resource": resource, "state": state, "note": note}


def _refused(outcome: PlanOutcome) -> dict[str, str]:
    """What keeps an apply from landing all of the plan, besides people; a debt has a row of its own."""
    return {each.path: each.message for each in outcome.blockers if each.code != Code.DEBT_OPEN}


def apply_verdict(outcome: ApplyOutcome, missing: int) -> str:
    """The result of an apply that so many approvals are missing for, in one line."""
    counts, errors = apply_counts(outcome), _errors(outcome)
    states = {record.state for record in outcome.changesets}
    if states == {ChangesetState.FAILED}:
        return f"failed, nothing is applied, {errors}"
    if states & BLOCKING:
        return f"interrupted, the next apply goes on with it, {errors}"
    if states - ENDED:
        return f"{counts}, not finished, {errors}"
    if not outcome.ok:
        return f"failed, {errors}, {counts}"
    if missing:
        return f"{count(missing, 'approval')} missing, {counts}"
    if outcome.converged:
        return f"{counts}, converged"
    warnings = sum(d.severity is Severity.WARNING for d in outcome.diagnostics)
    return f"{counts}, not converged" + (f", {count(warnings, 'warning')}" if warnings else "")


def changeset_views(records: Sequence[Changeset]) -> tuple[dict[str, Any], ...]:
    """What people have to know of changesets that did not simply land, one for each part; empty if all of them landed.

    Each has a `key`, a `part` (empty for one alone), and an `outcome`: `applied`, `failed`, `unfinished` or `open`. `taken_back`
    and `unfinished` are addresses, and `left_behind` has a `resource` and a `reason` for each.
    """
    views = tuple(
        {
            "key": record.key,
            "part": "" if record.part == "1/1" else record.part,
            "outcome": _outcome_of(record),
            "taken_back": tuple(m.address for m in record.members if m.runtime.state is RuntimeState.COMPENSATED),
            "left_behind": tuple({"resource": each.address, "reason": each.reason} for each in record.orphaned),
            "unfinished": tuple(sorted(unfinished(record))),
        }
        for record in records
    )
    return () if all(view["outcome"] == "applied" for view in views) else views


def _outcome_of(record: Changeset) -> str:
    if record.state is ChangesetState.FAILED:
        return "failed"
    if record.state in BLOCKING:
        return "open"
    return "applied" if record.ended else "unfinished"


def without_said(outcome: ApplyOutcome, missing: Sequence[ApprovalState]) -> ApplyOutcome:
    """An outcome without the problems that its changesets, what is not applied and the missing approvals say in full."""
    said = {(code, record.key) for record in outcome.changesets for code in _CHANGESET_CODES}
    said |= {(code, o.address) for r in outcome.changesets for o in r.orphaned for code in _CHANGESET_CODES}
    said |= {(Code.APPLY_DEPENDENCY_BLOCKED, r.node_id) for r in not_carried_out(outcome) if r.blocked_by}
    waiting = (c.address for c in outcome.changes if missing and c.reason is Reason.APPROVAL_REQUIRED)
    said |= {(Code.APPLY_DEPENDENCY_BLOCKED, address) for address in waiting}
    return replace(outcome, diagnostics=tuple(d for d in outcome.diagnostics if (d.code, d.path) not in said))


def without_refused(found: Iterable[Diagnostic], missing: Iterable[ApprovalState]) -> tuple[Diagnostic, ...]:
    """The problems without warnings of approvals that do not count where the reason and the remedy are those of a missing one."""
    said = {(code, s.resource, detail) for s in missing for code, detail in s.refused if code in _APPROVE_AGAIN}
    return tuple(d for d in found if d.severity is Severity.ERROR or (d.code, d.path, d.message) not in said)


def not_carried_out(outcome: ApplyOutcome) -> tuple[NodeResult, ...]:
    """The nodes that did not succeed; of the boundaries only one that failed, which says why nothing is applied."""
    return tuple(
        result
        for result in outcome.results
        if not result.outcome.succeeded and (result.node_id not in BARRIERS or result.outcome is NodeOutcome.FAILED)
    )


def stopped_rows(results: Sequence[NodeResult]) -> tuple[dict[str, object], ...]:
    """What was not done, those of one cause together."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        found.setdefault((result.outcome.value, result.blocked_by or ""), []).append(result.node_id)
    return tuple({"how": how, "blocked_by": by, "resources": tuple(names)} for (how, by), names in found.items())


@dataclass(frozen=True, slots=True)
class ProblemView:
    """Equal problems of several places: the first `places`, and how many `more` there are. `path` names them on one line.

    `fix` is None where the next problem has the same remedy, so that each is read once.
    """

    code: str
    severity: Severity
    message: str
    source: SourceRef | None
    fix: str | None
    places: tuple[str, ...] = ()
    more: int = 0

    @property
    def path(self) -> str:
        """The place, or the first one and the number of the others."""
        others = len(self.places) - 1 + self.more
        return f"{self.places[0]} and {others} more" if others > 0 else "".join(self.places)


def errors_and_warnings(diagnostics: Iterable[Diagnostic]) -> dict[str, tuple[ProblemView, ...]]:
    """Errors and warnings as two values of a template. What differs only in its place is one problem."""
    groups: dict[tuple[object, ...], list[Diagnostic]] = {}
    for each in by_place(diagnostics):
        groups.setdefault((each.severity, each.code, each.message, each.source, each.fix), []).append(each)
    views = []
    for found in groups.values():
        first, places = found[0], tuple(each.path for each in found if each.path)
        shown, more = places[:SHOWN], max(0, len(places) - SHOWN)
        views.append(ProblemView(first.code, first.severity, first.message, first.source, first.fix, shown, more))
    by_severity = (
        [view for view in views if view.severity is Severity.ERROR],
        [view for view in views if view.severity is not Severity.ERROR],
    )
    errors, warnings = (tuple(map(_once, each, [*each[1:], None])) for each in by_severity)
    return {"errors": errors, "warnings": warnings}


def _once(view: ProblemView, following: ProblemView | None) -> ProblemView:
    """A problem without its remedy where the following one has the same."""
    same = following is not None and (view.code, view.fix) == (following.code, following.fix)
    return replace(view, fix=None) if same else view


def _errors(outcome: VerbOutcome) -> str:
    return count(sum(d.severity is Severity.ERROR for d in outcome.diagnostics), "error")


def explanations(
    outcome: PlanOutcome, addresses: Iterable[str], states: Sequence[ApprovalState]
) -> tuple[dict[str, Any], ...]:
    """One explanation per address text, in their order, each once.

    It is not `changed` if the plan does not change the resource: then only `after` is set. `waits_for` and `awaited_by` are its
    edges of the execution graph, `needed_by` what depends on the resource, each cut after 20 with the number of `more`.
    """
    plan, found = outcome.plan, []
    for address in map(Address, dict.fromkeys(addresses)):
        change = None if plan is None else plan.change(address)
        before: list[dict[str, str]] = []
        after: list[dict[str, str]] = []
        needed: tuple[Address, ...] = ()
        if plan is not None and change is not None:
            for edge in plan.graph.edges:
                reason = f"{edge.reason}: {edge.detail}" if edge.detail else edge.reason
                if edge.after == address:
                    before.append({"resource": edge.before, "reason": reason})
                if edge.before == address:
                    after.append({"resource": edge.after, "reason": reason})
            needed = next((impact.affected for impact in plan.impact if impact.resource == address), ())
        approval = None if change is None else next((state for state in states if state.resource == address), None)
        declared = outcome.resource_digests.get(address, "")
        found.append(
            {
                "resource": address,
                "changed": change is not None,
                "action": "" if change is None else action_of(change),
                "effect": "" if change is None else effect_of(change, PLANNED),
                "before": change.before or "" if change else "",
                "after": change.after or "" if change else declared,
                "waits_for": tuple(before[:SHOWN]),
                "awaited_by": tuple(after[:SHOWN]),
                "more_edges": max(0, len(before) - SHOWN) + max(0, len(after) - SHOWN),
                "needed_by": needed[:SHOWN],
                "more_needed": max(0, len(needed) - SHOWN),
                "migration": None if plan is None else migration_views(plan).get(address),
                "approval": approval,
                "checks": () if approval is None else verification_steps(approval),
            }
        )
    return tuple(found)


def verification_steps(approval: ApprovalState) -> tuple[dict[str, Any], ...]:
    """The numbered steps of the verification of an approval, each `passed`, `refused` or `not reached`.

    Empty without an approval, or if its code belongs to no step.
    """
    refused = next((n for n, (_, codes) in enumerate(_STEPS) if approval.code in codes), None)
    failed = len(_STEPS) if approval.satisfied else refused
    if failed is None:
        return ()
    states = ["passed"] * failed + ["refused"] + ["not reached"] * (len(_STEPS) - failed)
    return tuple(
        {"number": n, "words": words, "state": state}
        for n, ((words, _), state) in enumerate(zip(_STEPS, states, strict=False), start=1)
    )
