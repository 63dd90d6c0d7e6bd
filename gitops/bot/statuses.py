"""What the statuses of a commit say: of a plan, of an apply, and of the changeset that an apply recorded.

A status has one line of at most 140 characters, so what decides comes first.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops.cluster.changesets.stream import Answer, Until, answer
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Reason
from gitops.cluster.model.changeset import Changeset, ChangesetState
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome
from gitops.forge.port import CheckState
from gitops.render.changesets import changeset_outcome
from gitops.render.text import apply_counts, count
from gitops.repository.results import RunResult, result_of


def plan_status(
    outcome: PlanOutcome, earlier: frozenset[Address], *, verdict_missing: bool
) -> tuple[CheckState, str, RunResult]:
    """The status of a plan. A missing approval is a failure, never neutral: nothing may be merged because it was overlooked."""
    plan = outcome.plan
    errors = sum(d.severity == "error" for d in outcome.diagnostics)
    if errors:
        return CheckState.FAILURE, count(errors, "error"), result_of(outcome.diagnostics)
    if plan is None:
        return CheckState.ERROR, "no plan", RunResult.PROBLEMS
    text = count(len(plan.edits), "change")
    missing = [r.resource for r in plan.approvals_required if not r.satisfied]
    if own := [resource for resource in missing if resource not in earlier]:
        text += f"; needs approval: {', '.join(own)}"
    if earlier:
        text += f"; an earlier merge needs approval: {', '.join(sorted(earlier))}"
    if outcome.blockers:
        reasons = ", ".join(f"{each.path} ({each.code})" for each in outcome.blockers)
        return CheckState.FAILURE, f"{text}; would not land: {reasons}", RunResult.PROBLEMS
    if missing:
        return CheckState.FAILURE, text, RunResult.WAITS
    if verdict_missing:
        return CheckState.FAILURE, f"{text}; needs the forge's own approval", RunResult.WAITS
    return CheckState.SUCCESS, text, RunResult.DONE


def apply_status(outcome: ApplyOutcome) -> tuple[CheckState, str, RunResult]:
    """The status of an apply: a success only if all that is declared is applied. A failure names what failed first."""
    failed = {record.state for record in outcome.changesets} == {ChangesetState.FAILED}
    text = "nothing is applied" if failed else apply_counts(outcome)
    if not outcome.ok:
        first = next(d for d in outcome.diagnostics if d.severity == "error")
        text += f"; {first.code}{f' at {first.path}' if first.path else ''}"
        return CheckState.FAILURE, text, result_of(outcome.diagnostics)
    if outcome.converged:
        return CheckState.SUCCESS, text, RunResult.DONE
    # Anything that is not applied for another reason than a missing approval is a problem.
    waits = any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
    return CheckState.FAILURE, text, RunResult.WAITS if waits else RunResult.PROBLEMS


def changeset_status(parts: Sequence[Changeset]) -> tuple[CheckState, str]:
    """What became of a merge, as `gitops changeset watch` answers it; the description names the changeset that decides.

    An apply that goes on with the last part has no record of the earlier ones: they have landed.
    """
    found = {answer(each, Until.COMMITTED): each for each in reversed(parts)}
    number, _, most = parts[-1].part.partition("/")
    if failed := found.get(Answer.FAILED):
        return CheckState.FAILURE, changeset_outcome(failed)
    waits = Answer.WAITING in found or number != most
    return CheckState.PENDING if waits else CheckState.SUCCESS, changeset_outcome(parts[-1])
