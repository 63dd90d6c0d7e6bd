"""Results to the next state: the demotion table, ledger effects, and laws of settling."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.apply.settle import Settlement, settle
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Reason
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, read_strategies, strategy_resources
from gitops.cluster.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.cluster.model.plan import NodeOutcome, NodeResult, Plan, PlanInputs, TrustChange
from gitops.cluster.model.resource import Dependencies, Dependency, DesiredState, Resource
from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, TargetSize
from gitops.cluster.plan.planner import make_plan
from gitops.core.diagnostics import Diagnostics
from tests.support.planning import SEEN, desired, hexed, rows, state

STAMP = {"at": "2026-06-11T08:00:00Z", "actor": "sam"}
FULL = {"graph.g": "", "schema.g": "1", "query.g.q": "2", "policy.p": "3"}
BOUND = {"policy.p": ["cluster", "graph.g"]}
OTHERS = {"graph.h": "", "schema.h": "5", "query.h.q": "6", "policy.wide": "7"}
WIDE = {"policy.wide": ["cluster"]}


def run(inputs: PlanInputs, outcomes: dict[str, NodeOutcome]) -> tuple[Plan, Settlement]:
    """Plan, and settle with these outcomes; what is not named is done."""
    inputs = replace(inputs, seen=dict.fromkeys(inputs.state.resources, SEEN))
    made = make_plan(inputs)
    results = [NodeResult(n.id, outcomes.get(n.id, NodeOutcome.DONE)) for n in made.graph.nodes]
    return made, settle(made, inputs.desired, inputs.state, results, **STAMP)


def approved(inputs: PlanInputs, resource: str = "graph.g") -> PlanInputs:
    change = make_plan(inputs).change(Address(resource))
    assert change is not None
    document = Approval(
        "AP1",
        Address(resource),
        change.action,
        "why",
        inputs.desired.config_digest,
        change.before,
        change.after,
        "sam",
        "t",
        seen=SEEN,
    )
    return replace(inputs, approvals=(document,))


CREATE = PlanInputs(desired(FULL | OTHERS, BOUND | WIDE), LedgerState(revision=1))
MIGRATE = PlanInputs(
    desired({"graph.g": "", "schema.g": "8", "query.g.q": "9", "policy.p": "a"} | OTHERS, BOUND | WIDE),
    state(FULL, BOUND),
)
DELETE = approved(PlanInputs(desired(OTHERS, WIDE), state({**FULL, **OTHERS}, {**BOUND, **WIDE})))
FAILURES = {"create": (CREATE, "graph.g"), "migrate": (MIGRATE, "schema.g"), "delete": (DELETE, "graph.g")}
DEMOTIONS = rows("demotions.tsv")


@pytest.mark.parametrize(("failed", "address", "action", "reason"), DEMOTIONS, ids=[" ".join(d[:2]) for d in DEMOTIONS])
def test_demotion(failed, address, action, reason):
    inputs, node = FAILURES[failed]
    _, done = run(inputs, {node: NodeOutcome.FAILED})
    (change,) = [c for c in done.changes if c.address == address]
    assert (change.action, change.disposition, change.reason) == (action, "blocked", reason)
    assert done.state.resources.get(address) == inputs.state.resources.get(address)
    assert done.state.statuses[address].conditions == (reason,)
    assert not done.converged
    assert done.publishable


@pytest.mark.parametrize("failed", sorted(FAILURES))
def test_other_graphs_and_cluster_policies_are_not_demoted(failed):
    inputs, node = FAILURES[failed]
    made, done = run(inputs, {node: NodeOutcome.FAILED})
    mine = {c.address for c in made.changes if c.address in OTHERS}
    assert all(c.disposition in ("applied", "derived") for c in done.changes if c.address in mine)
    assert all(done.state.resources[t].digest == inputs.desired.resources[t].digest for t in OTHERS)


@pytest.mark.parametrize(
    ("failed", "code"),
    [("create", "graph_create_skipped"), ("migrate", "schema_apply_skipped"), ("delete", "graph_delete_skipped")],
)
@pytest.mark.parametrize("outcome", [NodeOutcome.SKIPPED, NodeOutcome.BLOCKED])
def test_a_graph_operation_that_was_not_tried_is_said_and_counts_as_failed(failed, code, outcome):
    inputs, node = FAILURES[failed]
    _, done = run(inputs, {node: outcome})
    assert [d.path for d in done.diagnostics if d.code == code] == [node]
    assert all(c.disposition == "blocked" for c in done.changes if c.address == node)


@pytest.mark.parametrize("outcome", [NodeOutcome.SKIPPED, NodeOutcome.BLOCKED])
def test_what_was_never_started_is_blocked_and_does_not_hold_up_the_rest(outcome):
    _, done = run(CREATE, {"policy.wide": outcome})
    assert done.publishable
    assert "policy.wide" not in done.state.resources
    assert done.state.statuses["policy.wide"].conditions == ("dependency_not_applied",)
    assert done.state.resources["schema.g"].digest == hexed("1")


@pytest.mark.parametrize("failed", ["policy.p", "query.g.q"])
@pytest.mark.parametrize("outcome", [NodeOutcome.FAILED, NodeOutcome.INDETERMINATE])
def test_without_its_payload_nothing_may_be_published(failed, outcome):
    assert not run(CREATE, {failed: outcome})[1].publishable


def test_an_unknown_outcome_of_a_graph_operation_is_not_taken_for_done():
    _, done = run(CREATE, {"graph.g": NodeOutcome.INDETERMINATE})
    assert "graph.g" not in done.state.resources
    assert done.state.statuses["graph.g"].conditions == ("graph_create_failed",)


def test_applied_creates_and_updates_set_digest_bindings_and_a_clean_status():
    blocked = StatusRecord(Status.BLOCKED, ("dependency_not_applied",), "once")
    inputs = replace(MIGRATE, state=replace(MIGRATE.state, statuses={Address("schema.g"): blocked}))
    _, done = run(inputs, {})
    assert done.state.digests() == inputs.desired.digests()
    assert done.state.resources["policy.p"].applies_to == ("cluster", "graph.g")
    assert done.state.resources["query.g.q"].applies_to is None
    assert done.state.statuses["schema.g"] == StatusRecord(Status.APPLIED)
    assert "graph.g" not in done.state.statuses
    assert done.converged
    assert done.state.config_digest == inputs.desired.config_digest
    assert done.state.revision == inputs.state.revision


def test_an_applied_delete_leaves_a_tombstone_and_consumes_its_approval():
    _, done = run(DELETE, {})
    assert not [t for t in (*done.state.resources, *done.state.statuses) if ".g" in t]
    assert done.state.observations["graph.g"] == {
        "kind": "tombstone",
        "deleted_at": STAMP["at"],
        "approval_id": "AP1",
        "actor": "sam",
    }
    assert [a.approval_id for a in done.consumed] == ["AP1"]
    assert done.state.approval_records == {"AP1": {"consumed_at": STAMP["at"], "consumed_by_operation": "apply"}}


def test_a_failed_delete_consumes_nothing():
    _, done = run(DELETE, {"graph.g": NodeOutcome.FAILED})
    assert (done.consumed, done.state.approval_records, done.state.observations) == ((), {}, {})


def test_what_waited_and_is_wanted_no_more_is_at_rest():
    """Taken back before it was approved: what is applied stays so, and what never came leaves nothing."""
    _, applied = run(MIGRATE, {})
    waits = StatusRecord(Status.BLOCKED, ("approval_required",), "waits for an approval")
    pending = StatusRecord(Status.BLOCKED, (Reason.RECOVERY_PENDING.value,), "once")
    state = replace(
        applied.state, statuses={Address("graph.g"): waits, Address("graph.never"): waits, Address("schema.g"): pending}
    )
    made, done = run(replace(MIGRATE, state=state), {})
    assert not made.changes
    assert done.state.statuses == {"graph.g": StatusRecord(Status.APPLIED), "schema.g": pending}


def test_a_pending_recovery_keeps_the_status_of_the_sweep():
    swept = StatusRecord(Status.ERROR, ("graph_create_incomplete",), "partial")
    inputs = PlanInputs(
        desired(FULL, BOUND),
        LedgerState(statuses={Address("graph.g"): swept, Address("schema.g"): swept}),
        pending=frozenset({"g"}),
    )
    _, done = run(inputs, {})
    assert done.state == inputs.state


def test_settling_a_blocked_run_twice_changes_nothing_more():
    inputs = replace(DELETE, approvals=())
    _, first = run(inputs, {})
    _, second = run(replace(inputs, state=first.state), {})
    assert second.state == first.state


def test_a_run_asks_only_for_the_dependencies_near_its_changes():
    def all_of_them() -> tuple[Dependency, ...]:
        raise AssertionError("a large cluster has tens of thousands")

    near = MIGRATE.desired.dependencies
    few = Dependencies(all_of_them, lambda graphs: tuple(near) if "g" in graphs else ())
    _, done = run(
        replace(MIGRATE, desired=replace(MIGRATE.desired, dependencies=few)), {"schema.g": NodeOutcome.FAILED}
    )
    assert done.state == run(MIGRATE, {"schema.g": NodeOutcome.FAILED})[1].state


def test_deferred_changes_warn_and_keep_the_cluster_from_converging():
    inputs = PlanInputs(desired({}), state({"pipeline.x": "1"}))
    _, done = run(inputs, {})
    assert done.diagnostics.codes() == ("apply_unsupported_change",)
    assert not done.converged
    assert done.state == inputs.state


def test_keys_and_rules_take_effect_only_when_their_node_is_done():
    inputs = PlanInputs(desired({}), LedgerState(), trust_change=TrustChange("library", hexed("a"), hexed("b")))
    waiting = run(inputs, {})[1]
    assert (waiting.trust_applied, waiting.rules_wait, waiting.converged) == (False, True, False)
    assert waiting.state.config_digest == inputs.desired.config_digest
    assert waiting.diagnostics.codes() == ("trust_change_pending",)
    inputs = approved(inputs, "trust.library")
    done = run(inputs, {})[1]
    assert (done.trust_applied, done.rules_wait, done.converged) == (True, False, True)
    assert [a.approval_id for a in run(inputs, {})[1].consumed] == ["AP1"]
    for outcome in (NodeOutcome.SKIPPED, NodeOutcome.FAILED, NodeOutcome.INDETERMINATE):
        undone = run(inputs, {"trust.library": outcome})[1]
        assert (undone.trust_applied, undone.consumed, undone.state.statuses) == (False, (), {})


def test_diagnostics_of_nodes_come_in_plan_order():
    made = make_plan(CREATE)
    results = []
    for node in made.graph.nodes:
        problems = Diagnostics()
        problems.add("internal_error", node.id, "noise")
        results.append(NodeResult(node.id, NodeOutcome.DONE, tuple(problems)))
    done = settle(made, CREATE.desired, CREATE.state, reversed(results), **STAMP)
    assert [d.path for d in done.diagnostics] == [n.id for n in made.graph.nodes]


# Laws.

_SCENES = st.sampled_from([CREATE, MIGRATE, DELETE, replace(DELETE, approvals=())])


@st.composite
def runs(draw):
    inputs = draw(_SCENES)
    made = make_plan(inputs)
    results: dict[str, NodeResult] = {}
    for node in sorted(made.graph.nodes, key=lambda n: n.position):
        waits_for = [results[e.before].outcome for e in made.graph.edges if e.after == node.id]
        stuck = not all(outcome.succeeded for outcome in waits_for)
        results[node.id] = NodeResult(
            node.id, NodeOutcome.BLOCKED if stuck else draw(st.sampled_from(list(NodeOutcome)))
        )
    return inputs, made, list(results.values())


@given(case=runs(), seed=st.integers(0, 1000))
def test_law_the_order_of_results_does_not_matter(case, seed):
    inputs, made, results = case
    shuffled = list(results)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - an order for a test
    one, other = (settle(made, inputs.desired, inputs.state, r, **STAMP) for r in (results, shuffled))
    assert list(one.diagnostics) == list(other.diagnostics)
    assert replace(one, diagnostics=other.diagnostics) == other


@given(case=runs())
def test_law_only_what_is_done_moves_a_digest(case):
    inputs, made, results = case
    done = settle(made, inputs.desired, inputs.state, results, **STAMP)
    outcomes = {r.node_id: r.outcome for r in results}
    if not done.publishable:
        return
    before, after = inputs.state.digests(), done.state.digests()
    for text in before.keys() | after.keys():
        change = made.change(text)
        if before.get(text) == after.get(text) or (
            text.startswith("graph.") and change and change.action is Action.UPDATE
        ):
            continue
        assert change is not None
        assert outcomes[text].succeeded
    assert {a.resource for a in done.consumed} <= {t for t, o in outcomes.items() if o.succeeded}


@given(case=runs())
def test_law_a_converged_run_is_one_in_which_nothing_is_left(case):
    inputs, made, results = case
    done = settle(made, inputs.desired, inputs.state, results, **STAMP)
    left = make_plan(PlanInputs(inputs.desired, done.state)).changes
    assert done.converged == (left == ())


def serving(most: int) -> Mapping[Address, Resource]:
    """The strategies of one compute cluster; a limit is a part of the text of each."""
    rules = (TargetSize("50cc"), Burst("800cc"), IdleSuspend(1800))
    prod = ComputeTarget("prod", "MZ_URL")
    return strategy_resources([ComputeRules("serving", prod, "serving", rules, Limits(most))])


@given(st.lists(st.sampled_from(list(NodeOutcome)), min_size=4, max_size=4), st.booleans())
def test_law_the_strategies_of_a_state_never_contradict_each_other(outcomes, begun):
    old, new = serving(5) if begun else {}, serving(3)
    before = LedgerState(revision=1, resources={name: AppliedResource(each.digest) for name, each in old.items()})
    inputs = PlanInputs(DesiredState(hexed("c"), new, (), {}), before)
    nodes = ["target.prod", *new]
    _, done = run(inputs, dict(zip(nodes, outcomes, strict=True)))
    if not done.publishable:
        return
    known = {each.digest: each.content or b"" for each in (*old.values(), *new.values())}
    (found,) = read_strategies({name: known[a.digest] for name, a in done.state.resources.items()}) or [None]
    assert (0 if found is None else len(found.rules)) == len(done.state.resources)
    landed = all(outcome.succeeded for outcome in outcomes[1:])
    assert done.converged == landed
    assert (found is not None and found.limits.max_replicas == 3) == landed
