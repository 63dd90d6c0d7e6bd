"""The one planner: desired x recorded x evidence -> plan. A pure function, so the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gitops.approvals.verify import change_digest, change_form, covers
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Kind
from gitops.model.approval import Approval
from gitops.model.change import Action, Change
from gitops.model.impact import SchemaImpact
from gitops.model.kind import Kinds, Situation, rules_for
from gitops.model.plan import ApprovalRequirement, Plan, PlanInputs
from gitops.model.resource import edges_near
from gitops.plan.classify import classify, survey
from gitops.plan.diff import diff
from gitops.plan.graph import build_graph
from gitops.plan.needs import impact, reached, recorded_dependencies


def make_plan(inputs: PlanInputs, *, kinds: Kinds) -> Plan:
    """Plan.

    Diagnostics of the plan: `approval_stale` per gated change that has approvals of which none matches, and those of
    the execution graph.
    """
    changes = tuple(_with_preview(c, inputs) for c in diff(inputs.desired, inputs.state, inputs.trust_change))
    edges = edges_near(inputs.desired.dependencies, {c.address.graph for c in changes if c.address.graph is not None})
    situation = survey(changes, edges, inputs.pending)
    problems = Diagnostics()
    required = _requirements(changes, situation, inputs, kinds)
    _report_stale(required, inputs, problems)
    _report_quorum(required, problems)
    approved = frozenset(r.resource for r in required if r.satisfied)
    changes = classify(changes, replace(situation, approved=approved), kinds)
    reachable = reached(changes, edges)
    graph, graph_problems = build_graph(changes, reachable, recorded_dependencies(changes, inputs.state))
    problems.extend(graph_problems)
    return Plan(
        config_digest=inputs.desired.config_digest,
        digest=plan_digest(inputs.desired.config_digest, changes),
        changes=changes,
        impact=impact(changes, edges),
        approvals_required=required,
        graph=graph,
        diagnostics=tuple(problems),
        schema_impact=_schema_impact(changes, inputs),
    )


def plan_digest(config_digest: str, changes: Sequence[Change]) -> str:
    """Identity of a plan: the config digest and what each change does; not when, by whom or with which evidence."""
    return canonical_digest({"config_digest": config_digest, "changes": [change_form(c) for c in changes]})


def _schema_impact(changes: Sequence[Change], inputs: PlanInputs) -> tuple[SchemaImpact, ...]:
    if not inputs.recorded:
        return ()
    # It reads queries, and the language of queries is large to import: most plans change no schema.
    from gitops.plan.impact import schema_impact

    return schema_impact(changes, inputs.desired, inputs.recorded)


def _with_preview(change: Change, inputs: PlanInputs) -> Change:
    if change.address.kind is not Kind.SCHEMA or change.action is not Action.UPDATE:
        return change
    return replace(change, migration=inputs.previews.get(change.address))


def _requirements(
    changes: Sequence[Change], situation: Situation, inputs: PlanInputs, kinds: Kinds
) -> tuple[ApprovalRequirement, ...]:
    found = []
    for change in changes:
        reason = rules_for(kinds, change.address).gate(change, situation)
        if reason is None:
            continue
        valid = sorted(
            (a for a in inputs.approvals if covers(a, change, inputs.desired.config_digest)),
            key=lambda a: a.approval_id,
        )
        chosen, needed = _chosen(valid, inputs)
        found.append(ApprovalRequirement(change.address, reason, change_digest(change), chosen, needed))
    return tuple(found)


def _chosen(valid: Sequence[Approval], inputs: PlanInputs) -> tuple[tuple[Approval, ...], int]:
    """The approvals to use, in order of their ids, and how many are needed.

    One per person, and no more than needed: the rest stays unspent. An emergency is used only where there are too few people.
    """
    people = {a.approved_by: a for a in reversed(valid) if a.approval_id not in inputs.alone}
    chosen = sorted(people.values(), key=lambda a: a.approval_id)[: inputs.approvals_needed]
    alone = [a for a in valid if a.approval_id in inputs.alone]
    if alone and len(chosen) < inputs.approvals_needed:
        return (alone[0],), 1
    return tuple(chosen), inputs.approvals_needed


def _report_quorum(required: Sequence[ApprovalRequirement], problems: Diagnostics) -> None:
    for need in required:
        if 0 < len(need.approvals) < need.needed:
            problems.add(
                Code.APPROVAL_QUORUM, need.resource, f"{len(need.approvals)} of {need.needed} approvals are there"
            )


def _report_stale(required: Sequence[ApprovalRequirement], inputs: PlanInputs, problems: Diagnostics) -> None:
    named = {a.resource for a in inputs.approvals if a.consumed_at is None}
    for need in required:
        if not need.approvals and need.resource in named:
            problems.add(
                Code.APPROVAL_STALE,
                need.resource,
                "an approval exists, but configuration or recorded state moved since it was given",
            )
