"""The order of a run, what becomes of its results, and what is left of it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.apply.settle import Settlement, settle
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Effect, Reason
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, read_strategies, strategy_resources
from gitops.cluster.model.ledger import AppliedResource, Intent, IntentKind, LedgerState, Status, StatusRecord
from gitops.cluster.model.plan import (
    REFUSED,
    TARGET,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    LockMode,
    NodeOutcome,
    NodeResult,
    Plan,
    PlanInputs,
    TrustChange,
)
from gitops.cluster.model.resource import Dependencies, Dependency, DesiredState, Resource, restore_digest
from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, TargetSize
from gitops.cluster.plan.planner import make_plan
from gitops.cluster.plan.probe import GraphProbe
from gitops.cluster.plan.recovery_rules import sweep
from gitops.cluster.plan.schedule import Progress, Schedule, SkipReason
from gitops.core.canonical import digest
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import BugError, UsageError
from gitops.database.graph.port import Existence, GraphReading, RestoreOrder
from tests.support.planning import SEEN, desired, hexed, rows, state

SHARED = LockMode.SHARED


def node(name: str, position: int, *locks: str, group: str = "") -> ExecNode:
    """Locks are written `key` or `key shared`."""
    claims = (LockClaim(k.split()[0], SHARED if k.endswith(" shared") else LockMode.EXCLUSIVE) for k in locks)
    return ExecNode(name, "query", Action.UPDATE, position, tuple(sorted(claims)), group)


def graph(*nodes: ExecNode, edges: str = "") -> ExecutionGraph:
    found = (ExecEdge(*edge.split(">"), "explicit_dependency") for edge in edges.split())
    return ExecutionGraph(nodes, tuple(sorted(found)))


def free(names: str, edges: str = "") -> ExecutionGraph:
    return graph(*(node(n, i) for i, n in enumerate(names)), edges=edges)


def fill(schedule: Schedule) -> list[str]:
    """Start whatever may start."""
    started = []
    while (chosen := schedule.next_ready()) is not None:
        schedule.start(chosen.id)
        started.append(chosen.id)
    return started


def end(schedule: Schedule, name: str, outcome: NodeOutcome = NodeOutcome.DONE) -> Progress:
    return schedule.finish(name, NodeResult(name, outcome))


def skips(progress: Progress) -> list[tuple[str, NodeOutcome, SkipReason, str | None]]:
    return [(s.result.node_id, s.result.outcome, s.reason, s.result.blocked_by) for s in progress.skipped]


def serial(schedule: Schedule) -> list[str]:
    started = []
    while not schedule.finished:
        (name,) = fill(schedule)
        started.append(name)
        end(schedule, name)
    return started


def test_edge_with_two_reasons_counts_once():
    edges = (ExecEdge("a", "b", "graph_query"), ExecEdge("a", "b", "schema_query"))
    schedule = Schedule(ExecutionGraph((node("a", 0), node("b", 1)), edges))
    fill(schedule)
    assert end(schedule, "a").ready == ("b",)


def test_fail_fast_starts_nothing_more_and_lets_the_running_finish():
    schedule = Schedule(free("abcd", "a>d"), workers=2, fail_fast=True)
    assert fill(schedule) == ["a", "b"]
    assert skips(end(schedule, "a", NodeOutcome.FAILED)) == [
        ("c", NodeOutcome.SKIPPED, SkipReason.FAIL_FAST, "a"),
        ("d", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_FAILED, "a"),
    ]
    assert fill(schedule) == []
    end(schedule, "b")
    assert schedule.finished
    assert [r.outcome for r in schedule.results()][1] is NodeOutcome.DONE


def test_failure_group_stops_with_its_first_failure():
    moving = "graph-moving"
    nodes = (
        node("graph.a", 0, group=moving),
        node("graph.b", 1, group=moving),
        node("graph.c", 2, group=moving),
        node("query.c.q", 3),
        node("query.k.q", 4),
        node("barrier", 5),
        node("graph.old", 6, group=moving),
    )
    edges = " ".join(f"{n.id}>barrier" for n in nodes[:5]) + " graph.c>query.c.q barrier>graph.old"
    schedule = Schedule(graph(*nodes, edges=edges), workers=2)
    assert fill(schedule) == ["graph.a", "graph.b"]
    assert skips(end(schedule, "graph.a", NodeOutcome.FAILED)) == [
        ("graph.c", NodeOutcome.SKIPPED, SkipReason.GROUP_FAILED, "graph.a"),
        ("query.c.q", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_SKIPPED, "graph.a"),
        ("barrier", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_FAILED, "graph.a"),
        ("graph.old", NodeOutcome.SKIPPED, SkipReason.GROUP_FAILED, "graph.a"),
    ]
    # The member that was running finishes as it does, and what is not of the group goes on.
    assert fill(schedule) == ["query.k.q"]
    end(schedule, "graph.b")
    end(schedule, "query.k.q")
    assert schedule.finished


def test_the_cause_of_a_skip_is_what_stands_right_before_it():
    nodes = (node("a", 0), node("b", 1), node("barrier.done", 2), node("c", 3), node("d", 4), node("e", 5))
    nodes = tuple(replace(n, kind="barrier") if n.id == "barrier.done" else n for n in nodes)
    schedule = Schedule(graph(*nodes, edges="a>b a>barrier.done b>barrier.done barrier.done>c c>d a>e b>e"))
    fill(schedule)
    assert [(s.result.node_id, s.reason, s.cause) for s in end(schedule, "a", NodeOutcome.FAILED).skipped] == [
        ("b", SkipReason.DEPENDENCY_FAILED, "a"),
        ("barrier.done", SkipReason.DEPENDENCY_FAILED, "a"),
        ("c", SkipReason.BARRIER_NOT_REACHED, "barrier.done"),
        ("d", SkipReason.DEPENDENCY_SKIPPED, "c"),
        ("e", SkipReason.DEPENDENCY_FAILED, "a"),
    ]


def test_what_is_given_up_keeps_its_locks_and_ends_what_needs_them():
    nodes = (node("a", 0, "g shared"), node("b", 1, "g"), node("c", 2, "g shared"), node("d", 3, "h"), node("e", 4))
    schedule = Schedule(graph(*nodes, edges="b>e"), workers=2)
    # b waits for the lock that a holds; nothing else may start before it but d.
    assert fill(schedule) == ["a", "d"]
    given_up = schedule.give_up("a", NodeResult("a", NodeOutcome.INDETERMINATE))
    assert skips(given_up) == [
        ("b", NodeOutcome.SKIPPED, SkipReason.LOCK_KEPT, "a"),
        ("e", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_SKIPPED, "a"),
    ]
    assert fill(schedule) == ["c"]
    end(schedule, "c")
    end(schedule, "d")
    assert schedule.finished
    assert schedule.held == ("g",)


def test_only_what_runs_is_given_up_and_its_effect_is_not_known():
    schedule = Schedule(free("ab", "a>b"))
    with pytest.raises(BugError):
        schedule.give_up("a", NodeResult("a", NodeOutcome.INDETERMINATE))
    fill(schedule)
    with pytest.raises(BugError):
        schedule.give_up("a", NodeResult("a", NodeOutcome.DONE))


def atomic() -> ExecutionGraph:
    """A staged text, a pivot with a text behind it, the commit, and what comes after that."""
    nodes = (
        node("staged", 0),
        replace(node("pivot", 1), effect=Effect.PIVOT),
        replace(node("lifted", 2), lifted=True),
        replace(node("barrier.committed", 3), kind="barrier"),
        replace(node("finish", 4), effect=Effect.FINISH),
    )
    edges = "pivot>lifted lifted>barrier.committed staged>barrier.committed barrier.committed>finish"
    return graph(*nodes, edges=edges)


def test_stop_goes_on_to_the_commit_once_a_pivot_has_begun():
    schedule = Schedule(atomic(), workers=2)
    fill(schedule)
    assert skips(schedule.stop(to_commit=True)) == [("finish", NodeOutcome.SKIPPED, SkipReason.CANCELLED, None)]
    for name in ("pivot", "staged"):
        end(schedule, name)
    assert schedule.stop(to_commit=True) == Progress()
    assert serial(schedule) == ["lifted", "barrier.committed"]


def test_stop_does_not_go_on_to_the_commit_before_a_pivot_or_after_it_failed():
    schedule = Schedule(atomic())
    fill(schedule)
    assert [name for name, *_ in skips(schedule.stop(to_commit=True))] == [
        "pivot",
        "lifted",
        "barrier.committed",
        "finish",
    ]
    failed = Schedule(atomic(), workers=2)
    fill(failed)
    end(failed, "pivot", NodeOutcome.FAILED)
    end(failed, "staged")
    assert failed.stop(to_commit=True) == Progress()
    assert failed.finished


def test_stop_for_good_leaves_nothing():
    schedule = Schedule(atomic(), workers=2)
    fill(schedule)
    assert [name for name, *_ in skips(schedule.stop())] == ["lifted", "barrier.committed", "finish"]


def test_results_keep_what_the_node_reported():
    schedule = Schedule(free("a"))
    fill(schedule)
    result = NodeResult("a", NodeOutcome.DONE, facts={"version": 3})
    schedule.finish("a", result)
    assert schedule.results() == (result,)


def test_invalid_graphs_are_never_scheduled():
    for bad in (free("ab", "a>b b>a"), free("a", "a>a"), free("a", "a>z"), graph(node("a", 0), node("a", 1))):
        with pytest.raises(BugError):
            Schedule(bad)


def test_at_least_one_worker():
    with pytest.raises(UsageError):
        Schedule(free("a"), workers=0)


def test_misuse_is_a_bug():
    schedule = Schedule(graph(node("a", 0, "x"), node("b", 1, "x"), node("c", 2), node("d", 3), edges="a>d"), workers=2)
    with pytest.raises(BugError):
        schedule.finish("a", NodeResult("a", NodeOutcome.DONE))
    with pytest.raises(BugError):
        schedule.start("d")
    with pytest.raises(BugError):
        schedule.start("nobody")
    schedule.start("a")
    with pytest.raises(BugError):
        schedule.start("a")
    with pytest.raises(BugError):
        schedule.start("b")
    schedule.start("c")
    with pytest.raises(BugError):
        schedule.results()
    for wrong in (
        NodeResult("c", NodeOutcome.DONE),
        NodeResult("a", NodeOutcome.SKIPPED),
        NodeResult("a", NodeOutcome.BLOCKED),
    ):
        with pytest.raises(BugError):
            schedule.finish("a", wrong)
    end(schedule, "a")
    with pytest.raises(BugError):
        end(schedule, "a")
    schedule.start("b")
    with pytest.raises(BugError):
        schedule.start("d")


STAMP = {"at": "2026-06-11T08:00:00Z", "actor": "sam"}
FULL = {"graph.g": "", "schema.g": "1", "query.g.q": "2", "policy.p": "3"}
BOUND = {"policy.p": ["cluster", "graph.g"]}
OTHERS = {"graph.h": "", "schema.h": "5", "query.h.q": "6", "policy.wide": "7"}
WIDE = {"policy.wide": ["cluster"]}


def run(inputs: PlanInputs, outcomes: dict[str, NodeOutcome], blocked_by: str | None = None) -> tuple[Plan, Settlement]:
    """Plan, and settle with these outcomes; what is not named is done."""
    inputs = replace(inputs, seen=dict.fromkeys(inputs.state.resources, SEEN))
    made = make_plan(inputs)
    results = [
        NodeResult(n.id, outcomes.get(n.id, NodeOutcome.DONE), blocked_by=blocked_by if n.id in outcomes else None)
        for n in made.graph.nodes
    ]
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
    _, done = run(inputs, {node: outcome}, "graph.other")
    assert [d.path for d in done.diagnostics if d.code == code] == [node]
    assert all(c.disposition == "blocked" for c in done.changes if c.address == node)


@pytest.mark.parametrize(
    ("outcome", "blocked_by", "reason"),
    [
        (NodeOutcome.SKIPPED, "graph.a", "not_tried"),
        (NodeOutcome.BLOCKED, "graph.a", "dependency_not_applied"),
        (NodeOutcome.SKIPPED, None, "run_stopped"),
        (NodeOutcome.CANCELLED, None, "run_stopped"),
    ],
)
@pytest.mark.parametrize("undone", ["graph.g", "policy.wide"])
def test_what_was_never_started_is_blocked_and_does_not_hold_up_the_rest(undone, outcome, blocked_by, reason):
    _, done = run(CREATE, {undone: outcome}, blocked_by)
    assert done.publishable
    assert undone not in done.state.resources
    assert done.state.statuses[undone].conditions == (reason,)
    assert [d.code for d in done.diagnostics if d.path == undone and blocked_by is None] == []


def test_a_run_that_was_stopped_does_not_hold_up_what_is_done():
    _, done = run(CREATE, {"policy.wide": NodeOutcome.SKIPPED})
    assert done.state.resources["schema.g"].digest == hexed("1")


@pytest.mark.parametrize("failed", ["policy.p", "query.g.q"])
@pytest.mark.parametrize("outcome", [NodeOutcome.FAILED, NodeOutcome.INDETERMINATE])
def test_without_its_payload_nothing_may_be_published(failed, outcome):
    assert not run(CREATE, {failed: outcome})[1].publishable


def test_an_unknown_outcome_of_a_graph_operation_is_not_taken_for_done():
    _, done = run(CREATE, {"graph.g": NodeOutcome.INDETERMINATE})
    assert "graph.g" not in done.state.resources
    assert {c.address: c.reason for c in done.changes}["graph.g"] == "cluster_recovery_pending"


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


def clusters_of(variable: str, sizes: Mapping[str, str]) -> dict[Address, Resource]:
    prod = ComputeTarget("prod", variable)
    made = (
        ComputeRules(key, prod, key, (TargetSize(size), IdleSuspend(1800)), Limits(5)) for key, size in sizes.items()
    )
    return strategy_resources(made)


@given(
    before=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["50cc", "100cc"])),
    after=st.dictionaries(st.sampled_from("abc"), st.sampled_from(["50cc", "100cc"]), min_size=1),
    moved=st.booleans(),
    refused=st.sets(st.sampled_from("abc")),
)
def test_law_a_compute_cluster_that_its_target_refuses_keeps_no_more_out_than_agrees(before, after, moved, refused):
    old, new = clusters_of("URL", before), clusters_of("OTHER" if moved else "URL", after)
    state = LedgerState(revision=1, resources={name: AppliedResource(each.digest) for name, each in old.items()})
    desired = DesiredState(hexed("c"), new, (), {})
    made = make_plan(PlanInputs(desired, state))
    look = {REFUSED: tuple(sorted(refused))}
    results = [NodeResult(n.id, NodeOutcome.DONE, facts=look if n.kind == TARGET else {}) for n in made.graph.nodes]
    done = settle(made, desired, state, results, **STAMP)
    known = {each.digest: each.content or b"" for each in (*old.values(), *new.values())}
    applied = {
        each.key: each for each in read_strategies({n: known[a.digest] for n, a in done.state.resources.items()})
    }
    wanted = {each.key: each for each in read_strategies({n: each.content or b"" for n, each in new.items()})}
    if not moved and set(before) <= set(after) and any(before[key] == after[key] for key in set(before) - refused):
        assert all(applied.get(key) == wanted[key] for key in set(after) - refused)
    if made.graph.nodes:
        assert not any(
            applied.get(key) == wanted[key]
            for key in refused & set(after)
            if before.get(key) != after[key] and not moved
        )


AT = "2026-06-11T08:00:00Z"
WANTED, RECORDED, OTHER = b"wanted", b"recorded", b"other"
RECOVERY_CREATE, SCHEMA, RECOVERY_DELETE = IntentKind.GRAPH_CREATE, IntentKind.SCHEMA_APPLY, IntentKind.GRAPH_DELETE
RESTORE, ORDER = IntentKind.GRAPH_RESTORE, RestoreOrder(2, ("City",))
ABSENT, SHUT, UNSEEN = (
    GraphProbe(Existence.ABSENT),
    GraphProbe(Existence.PRESENT),
    GraphProbe(Existence.UNKNOWN),
)


def live(source: bytes) -> GraphProbe:
    return GraphProbe(Existence.PRESENT, GraphReading(source, 4, "G1", 12))


def intent(kind: IntentKind, operation: str = "OP1", graph: str = "g") -> Intent:
    wanted = "" if kind in (RECOVERY_DELETE, RESTORE) else digest(WANTED)
    approval = "AP1" if kind in (RECOVERY_DELETE, RESTORE) else None
    made = Intent(operation, AT, "sam", kind, graph, f"/old/{graph}.omni", None, None, wanted, None, approval)
    return made if kind is not RESTORE else replace(made, incarnation="G1", fence=7, restores=ORDER)


def restored(how: bool | None, incarnation: str = "G1") -> GraphProbe:
    return GraphProbe(Existence.PRESENT, GraphReading(RECORDED, 4, incarnation, 12), restored=how)


LEDGER = state(
    {"graph.g": "", "schema.g": digest(RECORDED), "query.g.q": "1", "policy.p": "2"}, {"policy.p": ["graph.g"]}
)
PENDING, INCOMPLETE, ROLLED = "cluster_recovery_pending", "graph_create_incomplete", "cluster_recovery_rolled_forward"


@dataclass(frozen=True)
class Row:
    """One row of the table and what it must lead to."""

    name: str
    kind: IntentKind
    seen: GraphProbe
    state: LedgerState = LEDGER
    codes: tuple[str, ...] = ()
    status: str | None = None
    kept: bool = False
    recorded: bool = False
    removed: bool = field(default=False)


EMPTY = LedgerState()
RESTORED = state({"graph.g": "", "schema.g": digest(RECORDED), "restore.g": restore_digest("g", ORDER)}, {})
ROWS = [
    Row("C1", RECOVERY_CREATE, ABSENT, EMPTY),
    Row("C2", RECOVERY_CREATE, live(RECORDED)),
    Row("C3", RECOVERY_CREATE, live(WANTED), EMPTY, (ROLLED,), "applied", recorded=True),
    Row("C4", RECOVERY_CREATE, live(OTHER), EMPTY, (PENDING,), "drifted:actual_applied_state_pending", kept=True),
    Row("C5", RECOVERY_CREATE, SHUT, EMPTY, (INCOMPLETE,), "error:graph_create_incomplete", kept=True),
    Row("C unknown", RECOVERY_CREATE, UNSEEN, EMPTY, (PENDING,), kept=True),
    Row("S0", SCHEMA, ABSENT),
    Row("S1", SCHEMA, SHUT, codes=(PENDING,), kept=True),
    Row("S1 unknown", SCHEMA, UNSEEN, codes=(PENDING,), kept=True),
    Row("S2", SCHEMA, live(RECORDED)),
    Row("S3", SCHEMA, live(WANTED), codes=(ROLLED,), status="applied", recorded=True),
    Row("S4", SCHEMA, live(OTHER), codes=(PENDING,), status="drifted:actual_applied_state_pending", kept=True),
    Row("R0", RESTORE, ABSENT),
    Row("R0 other", RESTORE, restored(True, "G2")),
    Row("R1", RESTORE, SHUT, codes=(PENDING,), kept=True),
    Row("R1 unknown", RESTORE, UNSEEN, codes=(PENDING,), kept=True),
    Row("R2", RESTORE, restored(True), RESTORED),
    Row("R3", RESTORE, restored(True), codes=(ROLLED,), recorded=True),
    Row("R4", RESTORE, restored(False)),
    Row("R5", RESTORE, restored(None), codes=(PENDING,)),
    Row("D1", RECOVERY_DELETE, SHUT, codes=("graph_delete_incomplete",)),
    Row("D1 live", RECOVERY_DELETE, live(RECORDED), codes=("graph_delete_incomplete",)),
    Row("D2", RECOVERY_DELETE, ABSENT, EMPTY),
    Row("D3", RECOVERY_DELETE, ABSENT, codes=(ROLLED,), recorded=True, removed=True),
    Row("D unknown", RECOVERY_DELETE, UNSEEN, codes=(PENDING,), kept=True),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_sweep(row):
    outcome = sweep(row.state, [intent(row.kind)], lambda _intent: row.seen, at=AT)
    assert outcome.diagnostics.codes() == row.codes
    assert {d.path for d in outcome.diagnostics} <= {"graph.g"}
    assert outcome.retire == (() if row.kept else ("OP1",))
    assert outcome.pending == ({"g"} if row.kept else set())
    for address in ("graph.g", "schema.g"):
        record = outcome.state.statuses.get(address)
        assert (None if record is None else ":".join([record.status, *record.conditions])) == row.status
    assert (outcome.state.recovery_records != {}) == row.recorded
    if not row.recorded:
        assert outcome.state.resources == row.state.resources
        assert outcome.consumed == ({"AP1": "OP1"} if row.name in ("D2", "R2", "R5") else {})


@pytest.mark.parametrize("kind", [RECOVERY_CREATE, SCHEMA])
@pytest.mark.parametrize("before", [EMPTY, LEDGER])
def test_rolling_forward_records_the_live_schema_its_composite_and_the_operation(kind, before):
    outcome = sweep(before, [intent(kind)], lambda _intent: live(WANTED), at=AT)
    queries = {t: r.digest for t, r in before.resources.items() if t.startswith("query.")}
    want = state({"graph.g": "", "schema.g": digest(WANTED), **queries}).resources
    assert {t: r for t, r in outcome.state.resources.items() if t != "policy.p"} == want
    assert outcome.state.recovery_records == {
        "OP1": {
            "kind": kind.value,
            "graph_id": "g",
            "outcome": "rolled_forward",
            "recovered_at": AT,
            "actor": "sam",
        }
    }


def test_rolling_a_delete_forward_removes_the_subtree_and_spends_the_approval():
    outcome = sweep(LEDGER, [intent(RECOVERY_DELETE)], lambda _intent: ABSENT, at=AT)
    assert set(outcome.state.resources) == {"policy.p"}
    assert outcome.state.observations == {
        "graph.g": {"kind": "tombstone", "deleted_at": AT, "approval_id": "AP1", "actor": "sam"}
    }
    assert outcome.state.approval_records == {"AP1": {"consumed_at": AT, "consumed_by_operation": "OP1"}}
    assert outcome.consumed == {"AP1": "OP1"}


def test_rolling_a_restore_forward_records_what_it_restored_and_spends_the_approval():
    outcome = sweep(LEDGER, [intent(RESTORE)], lambda _intent: restored(True), at=AT)
    assert outcome.state.resources == {**LEDGER.resources, "restore.g": RESTORED.resources["restore.g"]}
    assert outcome.state.statuses["restore.g"].status == "applied"
    assert outcome.state.observations["graph.g"]["rows"] == 12
    assert outcome.state.approval_records == {"AP1": {"consumed_at": AT, "consumed_by_operation": "OP1"}}
    assert outcome.consumed == {"AP1": "OP1"}


def test_every_approval_of_an_interrupted_delete_is_spent():
    outcome = sweep(
        LEDGER, [replace(intent(RECOVERY_DELETE), co_approvals=("AP2", "AP3"))], lambda _intent: ABSENT, at=AT
    )
    assert set(outcome.state.approval_records) == {"AP1", "AP2", "AP3"}
    assert outcome.consumed == {"AP1": "OP1", "AP2": "OP1", "AP3": "OP1"}


def test_a_delete_without_approval_id_spends_nothing():
    outcome = sweep(LEDGER, [replace(intent(RECOVERY_DELETE), approval_id=None)], lambda _intent: ABSENT, at=AT)
    assert outcome.state.approval_records == {}
    assert outcome.consumed == {}


def test_intents_are_taken_in_the_order_of_their_ids_whatever_order_they_come_in():
    intents = [intent(RECOVERY_DELETE, "OP1"), intent(RECOVERY_CREATE, "OP2")]
    probes = iter([ABSENT, live(WANTED)])
    outcome = sweep(LEDGER, intents[::-1], lambda _intent: next(probes), at=AT)
    assert outcome.retire == ("OP1", "OP2")
    assert outcome.state.resources["schema.g"].digest == digest(WANTED)
    assert "query.g.q" not in outcome.state.resources


def test_each_graph_is_judged_by_itself():
    seen = {"g": live(WANTED), "h": SHUT}
    outcome = sweep(
        EMPTY,
        [intent(RECOVERY_CREATE, "OP1", "g"), intent(RECOVERY_CREATE, "OP2", "h")],
        lambda each: seen[each.graph_id],
        at=AT,
    )
    assert outcome.retire == ("OP1",)
    assert outcome.pending == {"h"}


def test_versions_and_uri_of_a_sidecar_decide_nothing():
    plain = intent(SCHEMA)
    odd = replace(
        plain, observed_manifest_version=9, expected_manifest_version=1, graph_uri="/nowhere", state_cas_base="x"
    )
    for seen in (ABSENT, SHUT, live(WANTED), live(RECORDED), live(OTHER)):
        one, other = (sweep(LEDGER, [i], lambda _intent, s=seen: s, at=AT) for i in (plain, odd))
        assert (one.retire, one.pending, one.state.resources) == (other.retire, other.pending, other.state.resources)
