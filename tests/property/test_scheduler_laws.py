"""Laws of the execution graph and its schedule, over random graphs, locks, failures and durations.

The schedule is driven with a virtual clock, so that a thread pool's accidents do not decide what is tested. The real
runner is held against the same laws at the end."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.model.address import Address, strategy_address
from gitops.cluster.model.change import Action, Change, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode, NodeOutcome, NodeResult
from gitops.cluster.model.resource import Dependency
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.plan.classes import COMMITTED, DRAINED, PREPARED, atomic_graph, effects_of, with_effects
from gitops.cluster.plan.graph import BARRIER, build_graph
from gitops.cluster.plan.layers import cycles, layers, neighbours, serial_order, validate
from gitops.cluster.plan.schedule import LockWait, Schedule, SkipReason
from gitops.cluster.plan.strategies import with_targets
from gitops.render.graph import to_json
from tests.support.clock import FixedClock
from tests.support.effort import cases as effort
from tests.support.effort import cases as tries
from tests.support.simulated_runs import WORKERS, Case, cases, conflict, descendants, graphs, simulate


def serial_oracle(case: Case) -> list[tuple[str, str]]:
    """The plain serial loop: lowest position first; a failure blocks what follows and stops its group."""
    _, before = neighbours(case.graph)
    waiting = sorted(case.graph.nodes, key=lambda n: n.position)
    good: set[str] = set()
    failed_groups: set[str] = set()
    happened = []
    while chosen := next((n for n in waiting if good.issuperset(before[n.id]) and n.group not in failed_groups), None):
        waiting.remove(chosen)
        happened += [("start", chosen.id), ("end", chosen.id)]
        if case.endings[chosen.id].succeeded:
            good.add(chosen.id)
        elif chosen.group:
            failed_groups.add(chosen.group)
    return happened


@given(cases(), WORKERS, st.booleans())
def test_p1_no_node_starts_before_all_its_dependencies_are_done(case, workers, fail_fast):
    trace = simulate(case, workers, fail_fast=fail_fast)
    _, before = neighbours(case.graph)
    starts, ends = trace.times("start"), trace.times("end")
    for name, at in starts.items():
        for source in before[name]:
            assert ends[source] < at
            assert case.endings[source].succeeded


@given(cases(), WORKERS)
def test_p2_p3_locks_exclude_and_workers_bound(case, workers):
    nodes = {n.id: n for n in case.graph.nodes}
    running: list[str] = []
    for kind, name, _ in simulate(case, workers).events:
        if kind == "start":
            for other in running:
                assert not any(conflict(a, b) for a in nodes[name].locks for b in nodes[other].locks)
            running.append(name)
            assert len(running) <= workers
        elif kind == "end":
            running.remove(name)


@given(cases(), WORKERS, st.booleans())
def test_p4_p9_every_run_ends_and_every_node_ends_once(case, workers, fail_fast):
    trace = simulate(case, workers, fail_fast=fail_fast)
    ended = [name for kind, name, _ in trace.events if kind in ("end", "skip")]
    assert sorted(ended) == sorted(n.id for n in case.graph.nodes)
    assert [r.node_id for r in trace.results] == [n.id for n in case.graph.nodes]
    assert trace.held_at_end == ()


@given(cases(), WORKERS, st.booleans())
def test_p5_descendants_of_a_failure_never_start_and_blame_a_failed_node(case, workers, fail_fast):
    trace = simulate(case, workers, fail_fast=fail_fast)
    outcomes = trace.outcomes()
    failed = {n for n in trace.started() if not case.endings[n].succeeded}
    behind = descendants(case.graph, failed)
    assert behind.isdisjoint(trace.started())
    for result in trace.results:
        if result.outcome in (NodeOutcome.SKIPPED, NodeOutcome.BLOCKED):
            assert result.blocked_by in failed
        else:
            assert result.blocked_by is None
        if result.outcome is NodeOutcome.BLOCKED:
            _, before = neighbours(case.graph)
            assert any(not outcomes[n].succeeded for n in before[result.node_id])


@given(cases(), WORKERS)
def test_p6_what_no_failure_reaches_finishes(case, workers):
    trace = simulate(case, workers)
    failed = {n for n in trace.started() if not case.endings[n].succeeded}
    groups = {n.group for n in case.graph.nodes if n.id in failed and n.group}
    grouped = {n.id for n in case.graph.nodes if n.group in groups} if groups else set()
    reached = failed | grouped | descendants(case.graph, failed | grouped)
    done = {n for n, outcome in trace.outcomes().items() if outcome.succeeded}
    assert done >= {n.id for n in case.graph.nodes} - reached


@given(cases(), WORKERS)
def test_p7_fail_fast_starts_nothing_after_the_first_failure(case, workers):
    events = simulate(case, workers, fail_fast=True).events
    failures = [i for i, (kind, name, _) in enumerate(events) if kind == "end" and not case.endings[name].succeeded]
    if failures:
        assert all(kind != "start" for kind, _, _ in events[failures[0] :])


@given(cases(), WORKERS)
def test_group_starts_nothing_after_its_first_failure(case, workers):
    group = {n.id: n.group for n in case.graph.nodes}
    broken = set()
    for kind, name, _ in simulate(case, workers).events:
        assert kind != "start" or group[name] not in broken
        if kind == "end" and group[name] and not case.endings[name].succeeded:
            broken.add(group[name])


@given(cases(), WORKERS)
def test_p8_no_worker_idles_while_work_could_start(case, workers):
    assert simulate(case, workers).idle_violations == []


@given(cases())
def test_p10_one_worker_is_the_serial_run(case):
    events = [(kind, name) for kind, name, _ in simulate(case, 1).events if kind != "skip"]
    assert events == serial_oracle(case)


@given(cases(failures=False), WORKERS, st.integers(0, 2**32))
def test_p11_without_failures_the_end_does_not_depend_on_workers_or_durations(case, workers, seed):
    slower = Case(case.graph, {n: (seed >> i % 32) % 7 for i, n in enumerate(case.durations)}, case.endings)
    assert simulate(case, 1).results == simulate(slower, workers).results
    assert set(simulate(slower, workers).outcomes().values()) <= {NodeOutcome.DONE}


@given(cases(), WORKERS, st.booleans())
def test_same_results_in_the_same_order_give_the_same_starts(case, workers, fail_fast):
    first, second = (simulate(case, workers, fail_fast=fail_fast) for _ in range(2))
    assert first == second


@given(graphs(), st.randoms(use_true_random=False))
def test_p12_order_of_nodes_leaves_edges_and_layers_alone(graph, random):
    nodes, edges = list(graph.nodes), list(graph.edges)
    random.shuffle(nodes)
    random.shuffle(edges)
    mixed = ExecutionGraph(tuple(nodes), tuple(edges))
    assert layers(mixed) == layers(graph)
    assert neighbours(mixed) == neighbours(graph)


@given(graphs())
def test_layers_are_topological_and_complete(graph):
    number = {name: i for i, layer in enumerate(layers(graph)) for name in layer}
    assert number.keys() == {n.id for n in graph.nodes}
    assert all(number[e.before] < number[e.after] for e in graph.edges)
    _, before = neighbours(graph)
    assert all(any(number[s] == i - 1 for s in before[n]) for n, i in number.items() if i)
    assert cycles(graph) == ()


@given(st.integers(1, 8), st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7))))
def test_cycles_are_what_reaches_itself(size, pairs):
    ids = [f"n{i}" for i in range(size)]
    nodes = tuple(ExecNode(n, "query", Action.UPDATE, i) for i, n in enumerate(ids))
    edges = tuple(ExecEdge(f"n{a}", f"n{b}", "x") for a, b in sorted(pairs) if a < size and b < size)
    graph = ExecutionGraph(nodes, edges)
    reach = {n: descendants(graph, [n]) for n in ids}
    found = cycles(graph)
    assert sorted(n for c in found for n in c) == [n for n in ids if n in reach[n]]
    for cycle in found:
        assert all(set(cycle) <= reach[n] for n in cycle)
    laid = {n for layer in layers(graph) for n in layer}
    looped = {n for c in found for n in c}
    assert laid == set(ids) - looped - descendants(graph, looped)


def _graph_of(form: dict[str, Any]) -> ExecutionGraph:
    """The graph that a JSON form describes."""
    nodes = (
        ExecNode(
            each["id"],
            each["kind"],
            Action(each["action"]),
            each["position"],
            tuple(LockClaim(lock["key"], LockMode(lock["mode"])) for lock in each["locks"]),
            each["group"],
            Effect(each["class"]),
            each["lifted"],
        )
        for each in form["nodes"]
    )
    edges = (ExecEdge(each["from"], each["to"], each["reason"], each["detail"]) for each in form["edges"])
    return ExecutionGraph(tuple(nodes), tuple(edges))


@given(graphs())
def test_p17_the_json_form_says_everything_about_the_graph(graph):
    text = json.dumps(to_json(graph))
    assert _graph_of(json.loads(text)) == graph


@given(cases(), WORKERS, st.data())
def test_p18_cancelled_anywhere_every_node_ends_and_no_lock_is_held(case, workers, data):
    stop_at = data.draw(st.integers(0, 2 * len(case.graph.nodes)))
    trace = simulate(case, workers, stop_at=stop_at)
    assert len(trace.results) == len(case.graph.nodes)
    assert trace.held_at_end == ()
    kinds = [kind for kind, _, _ in trace.events]
    assert all(kind != "start" for kind in kinds[stop_at:])
    for skip in trace.skips:
        cancelled = skip.reason is SkipReason.CANCELLED
        assert not cancelled or (skip.result.outcome, skip.result.blocked_by) == (NodeOutcome.SKIPPED, None)


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[Change], list[Dependency], list[Dependency]]:
    """Consistent changes of up to four graphs, each new, kept or gone, with queries, policies, and both references."""
    changes: list[Change] = []
    desired: list[Dependency] = []
    recorded: list[Dependency] = []
    fates = {}
    for graph in "abcd"[: draw(st.integers(0, 4))]:
        fate = fates[graph] = draw(st.sampled_from(["create", "update", "delete"]))
        members = [f"schema.{graph}", *(f"query.{graph}.q{i}" for i in range(draw(st.integers(0, 3))))]
        if fate != "update":
            changes.append(_change(f"graph.{graph}", fate))
        for text in members:
            action = fate if fate != "update" else draw(st.sampled_from(["create", "update", "delete", "none"]))
            if text.startswith("schema") and fate == "update":
                action = draw(st.sampled_from(["update", "none"]))
            links = [Dependency(Address(text), Address(f"graph.{graph}"))]
            links += [Dependency(Address(text), Address(f"schema.{graph}"))] if text.startswith("query") else []
            desired += links if action != "delete" else []
            recorded += links if action != "create" else []
            changes += [_change(text, action)] if action != "none" else []
    for name in "pq"[: draw(st.integers(0, 2))]:
        action = draw(st.sampled_from(["create", "update", "delete"]))
        changes.append(_change(f"policy.{name}", action))
        for graph, fate in fates.items():
            link = Dependency(Address(f"policy.{name}"), Address(f"graph.{graph}"))
            if action != "delete" and fate != "delete" and draw(st.booleans()):
                desired.append(link)
            if action != "create" and fate != "create" and draw(st.booleans()):
                recorded.append(link)
    return draw(st.permutations(changes)), desired, recorded


@st.composite
def strategies(draw: st.DrawFn) -> dict[Address, tuple[Change, str]]:
    """Changes of strategies of up to three compute clusters, each with the name of its target."""
    found = {}
    for compute in ("serving", "reports", "tests")[: draw(st.integers(1, 3))]:
        target = draw(st.sampled_from(["prod", "spare"]))
        for kind in draw(st.lists(st.sampled_from(list(StrategyType)), min_size=1, unique=True)):
            action = draw(st.sampled_from(["create", "update", "delete"]))
            name = strategy_address(compute, kind)
            found[name] = _change(name, action), target
    return found


@given(plans(), strategies())
def test_each_target_is_looked_at_once_and_before_the_strategies_that_are_written_for_it(plan, declared):
    changes, desired, recorded = plan
    plain, _ = build_graph([*changes, *(change for change, _ in declared.values())], desired, recorded)
    graph = with_targets(plain, {name: target for name, (_, target) in declared.items()})
    written = {name: target for name, (change, target) in declared.items() if change.action is not Action.DELETE}
    added = set(graph.edges) - set(plain.edges)
    assert added == {ExecEdge(f"target.{to}", name, "strategy_target", to) for name, to in written.items()}
    looks = [node for node in graph.nodes if not node.changes and node.id != BARRIER]
    assert [(n.id, n.locks) for n in looks] == [
        (f"target.{name}", (LockClaim(f"compute:{name}"),)) for name in sorted(set(written.values()))
    ]
    assert [replace(n, position=0) for n in graph.nodes if n not in looks] == [
        replace(node, position=0) for node in plain.nodes
    ]
    assert validate(graph) == ()
    assert list(serial_order(graph)) == [node.id for node in graph.nodes]
    effects = effects_of(change for change in (*changes, *(each for each, _ in declared.values())))
    whole = atomic_graph(with_effects(graph, effects))
    assert validate(whole) == ()
    order = serial_order(whole)
    assert all(order.index(look.id) < order.index(PREPARED) for look in looks)


def _change(text: str, action: str) -> Change:
    before, after = None if action == "create" else "0" * 64, None if action == "delete" else "1" * 64
    return Change(Address(text), Action(action), before, after)


@given(plans())
def test_cluster_plans_always_have_a_graph_and_its_positions_are_topological(plan):
    graph, problems = build_graph(*plan)
    assert problems == ()
    assert {n.id for n in graph.nodes} - {BARRIER} == {c.address for c in plan[0]}
    position = {n.id: n.position for n in graph.nodes}
    assert [n.position for n in graph.nodes] == list(range(len(graph.nodes)))
    assert all(position[e.before] < position[e.after] for e in graph.edges)


@given(plans(), WORKERS, st.data())
def test_graphs_are_deleted_last_and_not_after_any_failure(plan, workers, data):
    graph, _ = build_graph(*plan)
    ids = [n.id for n in graph.nodes]
    endings = {n: data.draw(st.sampled_from([NodeOutcome.DONE] * 9 + [NodeOutcome.FAILED])) for n in ids}
    durations = {n: data.draw(st.integers(0, 3)) for n in ids}
    trace = simulate(Case(graph, durations, endings), workers)
    gone = {n.id for n in graph.nodes if n.kind == "graph" and n.action is Action.DELETE}
    late = {n for n in ids if Address(n).graph_address in gone}
    late |= {e.after for e in graph.edges if e.reason == "policy_guard"}
    early = set(ids) - late - {BARRIER}
    failed = False
    for index, (kind, name, _) in enumerate(trace.events):
        if kind == "start" and name in gone:
            assert not failed
            assert all(other not in early for _, other, _ in trace.events[index:])
        failed = failed or (kind == "end" and endings[name] is NodeOutcome.FAILED and name in early | {BARRIER})


@given(plans())
def test_serial_run_is_the_plan_order_and_moves_graphs_by_id_first_and_last(plan):
    graph, _ = build_graph(*plan)
    case = Case(graph, {n.id: 1 for n in graph.nodes}, {n.id: NodeOutcome.DONE for n in graph.nodes})
    started = simulate(case, 1).started()
    assert started == [n.id for n in graph.nodes] == list(serial_order(graph))
    moving = [n for n in graph.nodes if n.group]
    created = [n.id for n in moving if n.action is Action.CREATE]
    updated = [n.id for n in moving if n.action is Action.UPDATE]
    deleted = [n.id for n in moving if n.action is Action.DELETE]
    assert [n.id for n in moving] == [*sorted(created), *sorted(updated), *sorted(deleted)]


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20), st.booleans())
def test_positions_are_topological_whatever_depends_on_what(pairs, doomed):
    """P21 for the barrier: it never closes a cycle, and references among any kinds are kept."""
    text = [*(f"query.g.q{i}" for i in range(8)), "policy.p", "schema.g"]
    links = [Dependency(text[max(a, b)], text[min(a, b)]) for a, b in pairs if a != b]
    changes = [_change(t, "delete" if doomed else "update") for t in text]
    gone = [_change("graph.g", "delete")] if doomed else []
    graph, problems = build_graph([*changes, *gone], () if doomed else links, links if doomed else ())
    assert problems == ()
    position = {n.id: n.position for n in graph.nodes}
    assert all(position[e.before] < position[e.after] for e in graph.edges)
    assert list(serial_order(graph)) == [n.id for n in graph.nodes]
    ordered = {(e.before, e.after) for e in graph.edges}
    assert ordered >= {(d.source, d.target) if doomed else (d.target, d.source) for d in links}


@settings(max_examples=tries(40))
@given(cases(), WORKERS, st.booleans())
def test_threads_obey_the_same_laws(case, workers, fail_fast):
    events = []
    results = run_graph(
        case.graph,
        lambda n: NodeResult(n.id, case.endings[n.id]),
        clock=FixedClock(datetime(2026, 1, 2, tzinfo=UTC)),
        limits=RunLimits(workers, fail_fast=fail_fast),
        on_event=events.append,
    )
    nodes = {n.id: n for n in case.graph.nodes}
    _, before = neighbours(case.graph)
    done, running, terminal = set(), {}, []
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    for event in events:
        worker = event.facts.get("worker")
        if event.type == "node_started":
            assert done.issuperset(before[event.node])
            assert worker not in running.values()
            assert 1 <= worker <= workers
            for other in running:
                assert not any(conflict(a, b) for a in nodes[event.node].locks for b in nodes[other].locks)
            running[event.node] = worker
        elif event.type in ("node_finished", "node_failed", "node_cancelled", "node_indeterminate"):
            assert running.pop(event.node) == worker
            terminal.append(event.node)
            if event.type == "node_finished":
                done.add(event.node)
        elif event.type == "node_skipped":
            terminal.append(event.node)
    assert sorted(terminal) == sorted(nodes)
    assert [r.node_id for r in results] == [n.id for n in case.graph.nodes]
    if workers == 1:
        assert [r.outcome for r in results] == [r.outcome for r in simulate(case, 1, fail_fast=fail_fast).results]


@settings(max_examples=tries(40))
@given(cases(failures=False), WORKERS)
def test_threads_end_like_the_serial_run_when_nothing_fails(case, workers):
    def execute(node: ExecNode) -> NodeResult:
        return NodeResult(node.id, NodeOutcome.DONE, facts={"position": node.position})

    clock = FixedClock(datetime(2026, 1, 2, tzinfo=UTC))
    one = run_graph(case.graph, execute, clock=clock)
    many = run_graph(case.graph, execute, clock=clock, limits=RunLimits(workers))
    assert one == many


KEYS = ("x", "y", "z")
MODES = (LockMode.EXCLUSIVE, LockMode.SHARED)


@st.composite
def _graphs(draw: st.DrawFn) -> ExecutionGraph:
    """Few keys and many nodes, so that lines are long; some edges, one failure group."""
    count = draw(st.integers(1, 14))
    nodes = []
    for index in range(count):
        claims = draw(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(MODES)), max_size=3))
        locks = tuple(sorted({LockClaim(key, mode) for key, mode in claims}))
        group = draw(st.sampled_from(["", "", "team"]))
        nodes.append(ExecNode(f"n{index:02}", "query", Action.UPDATE, index, locks, group))
    pairs = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=8))
    edges = {ExecEdge(f"n{a:02}", f"n{b:02}", "reference") for a, b in pairs if a < b}
    return ExecutionGraph(tuple(nodes), tuple(sorted(edges)))


def in_conflict(one: LockClaim, other: LockClaim) -> bool:
    return one.key == other.key and LockMode.EXCLUSIVE in (one.mode, other.mode)


def _against(node: ExecNode, key: str, taken: list[tuple[str, LockClaim]]) -> list[str]:
    mine = [claim for claim in node.locks if claim.key == key]
    return [who for who, other in taken if any(in_conflict(claim, other) for claim in mine)]


def scan(graph: ExecutionGraph, schedule: Schedule, workers: int) -> tuple[str | None, tuple[LockWait, ...]]:
    """Rule 2 by the book: look at every ready node by position, and keep for it what it waits for."""
    if len(schedule.running) >= workers:
        return None, ()
    nodes = {node.id: node for node in graph.nodes}
    held = [(name, claim) for name in schedule.running for claim in nodes[name].locks]
    taken = list(held)
    waits = []
    for name in schedule.ready:
        keys = sorted({claim.key for claim in nodes[name].locks})
        against = partial(_against, nodes[name])
        hits = {key: against(key, held) or against(key, taken)[:1] for key in keys}
        if not any(hits.values()):
            return name, tuple(waits)
        holders = sorted({who for found in hits.values() for who in found}, key=lambda n: nodes[n].position)
        waits.append(LockWait(name, tuple(key for key in keys if hits[key]), tuple(holders)))
        taken += [(name, claim) for claim in nodes[name].locks]
    return None, tuple(waits)


@settings(max_examples=effort(300), deadline=None)
@given(_graphs(), st.integers(1, 5), st.booleans(), st.data())
def test_every_start_and_every_wait_is_that_of_a_plain_scan(graph, workers, fail_fast, data) -> None:
    schedule = Schedule(graph, workers=workers, fail_fast=fail_fast)
    told: set[str] = set()
    while not schedule.finished:
        while True:
            expected, waits = scan(graph, schedule, workers)
            node = schedule.next_ready()
            assert (None if node is None else node.id, schedule.waiting) == (expected, waits)
            # Each wait is news once, when it begins to be one.
            fresh = tuple(wait for wait in waits if wait.node_id not in told)
            assert schedule.fresh_waits() == fresh
            told |= {wait.node_id for wait in fresh}
            if node is None:
                break
            schedule.start(node.id)
        ended = data.draw(st.sampled_from(schedule.running))
        outcome = data.draw(st.sampled_from([NodeOutcome.DONE, NodeOutcome.DONE, NodeOutcome.DONE, NodeOutcome.FAILED]))
        schedule.finish(ended, NodeResult(ended, outcome))
        if data.draw(st.integers(0, 30)) == 0:
            schedule.stop()
    assert schedule.held == ()


HANGS = st.integers(0, 2)


@st.composite
def hanging(draw: st.DrawFn) -> Case:
    """A case in which some nodes never end, and are given up after their time."""
    case = draw(cases())
    ids = [node.id for node in case.graph.nodes]
    return replace(case, hang=frozenset(draw(st.sets(st.sampled_from(ids), max_size=3)) if ids else ()))


@given(hanging(), WORKERS, st.booleans())
def test_a_run_ends_although_nodes_hang_and_no_lock_is_given_twice(case, workers, fail_fast):
    trace = simulate(case, workers, fail_fast=fail_fast)
    nodes = {n.id: n for n in case.graph.nodes}
    assert [r.node_id for r in trace.results] == [n.id for n in case.graph.nodes]
    running: list[str] = []
    for kind, name, _ in trace.events:
        if kind == "start":
            # Also those of the nodes that were given up: they may still be at work.
            assert not any(conflict(a, b) for a in nodes[name].locks for o in running for b in nodes[o].locks)
            running.append(name)
        elif kind == "end" and name not in case.hang:
            running.remove(name)
    assert trace.held_at_end == tuple(sorted({claim.key for name in running for claim in nodes[name].locks}))


@given(hanging(), WORKERS, st.booleans())
def test_the_causes_of_every_skip_lead_to_the_node_that_failed(case, workers, fail_fast):
    trace = simulate(case, workers, fail_fast=fail_fast)
    _, before = neighbours(case.graph)
    outcomes = trace.outcomes()
    skipped = {skip.result.node_id: skip for skip in trace.skips}
    for name, skip in skipped.items():
        failed = skip.result.blocked_by
        assert not outcomes[failed].succeeded
        assert failed not in skipped
        if skip.reason in (SkipReason.DEPENDENCY_FAILED, SkipReason.DEPENDENCY_SKIPPED):
            assert skip.cause in before[name]
            assert (skip.cause == failed) == (skip.reason is SkipReason.DEPENDENCY_FAILED)
        else:
            assert skip.cause == failed
        seen = set()
        while skip.cause != failed:
            assert skip.cause not in seen
            seen.add(skip.cause)
            skip = skipped[skip.cause]  # noqa: PLW2901


def without_groups(graph: ExecutionGraph) -> ExecutionGraph:
    return replace(graph, nodes=tuple(replace(node, group="") for node in graph.nodes))


@given(cases(), WORKERS, st.data())
def test_p15_how_nodes_end_depends_on_no_lock_worker_or_duration(case, workers, data):
    """Without failure groups, whose members race."""
    case = replace(case, graph=without_groups(case.graph))
    claims = st.builds(LockClaim, st.sampled_from("abcde"), st.sampled_from(LockMode))
    more = tuple(
        replace(node, locks=tuple(sorted({*node.locks, *data.draw(st.sets(claims, max_size=2))})))
        for node in case.graph.nodes
    )
    locked = Case(replace(case.graph, nodes=more), dict.fromkeys(case.durations, 1), case.endings)
    assert simulate(locked, workers).outcomes() == simulate(case, 1).outcomes()


@given(graphs(largest=14), WORKERS, st.data())
def test_p16_what_finishes_starts_behind_the_commit_and_the_drain(graph, workers, data):
    nodes = tuple(replace(n, effect=data.draw(st.sampled_from(list(Effect))), group="") for n in graph.nodes)
    atomic = atomic_graph(replace(graph, nodes=nodes))
    ending = st.sampled_from([NodeOutcome.DONE] * 9 + [NodeOutcome.FAILED])
    case = Case(
        atomic,
        {n.id: data.draw(st.integers(0, 3)) for n in atomic.nodes},
        {n.id: data.draw(ending) for n in atomic.nodes},
    )
    trace = simulate(case, workers)
    ended, outcomes = trace.times("end"), trace.outcomes()
    for name, at in trace.times("start").items():
        if next(n for n in atomic.nodes if n.id == name).phase is Effect.FINISH:
            assert all(ended[barrier] < at and outcomes[barrier].succeeded for barrier in (COMMITTED, DRAINED))


@given(hanging(), WORKERS, st.data())
def test_p18_cancelled_anywhere_only_what_hangs_keeps_a_lock(case, workers, data):
    stop_at = data.draw(st.integers(0, 2 * len(case.graph.nodes)))
    trace = simulate(case, workers, stop_at=stop_at)
    nodes = {n.id: n for n in case.graph.nodes}
    assert len(trace.results) == len(nodes)
    hung = case.hang.intersection(trace.started())
    assert trace.held_at_end == tuple(sorted({claim.key for name in hung for claim in nodes[name].locks}))


@given(cases(failures=False), WORKERS, WORKERS, st.data())
def test_p19_resumed_after_a_crash_anywhere_it_ends_like_a_run_that_never_crashed(case, first, again, data):
    events = simulate(case, first).events
    crash = data.draw(st.integers(0, len(events)))
    started = [name for kind, name, _ in events[:crash] if kind == "start"]
    ended = [name for kind, name, _ in events[:crash] if kind == "end"]
    # What ran when it crashed may have had its effect, or not.
    effects = {*ended, *(name for name in started if name not in ended and data.draw(st.booleans()))}
    _, before = neighbours(case.graph)
    endings = {name: NodeOutcome.UNCHANGED if name in effects else NodeOutcome.DONE for name in case.endings}
    resumed = simulate(replace(case, endings=endings), again)
    for kind, name, _ in resumed.events:
        if kind == "end":
            assert effects.issuperset(before[name])
            effects.add(name)
    assert effects == {node.id for node in case.graph.nodes}
    assert resumed.outcomes() == endings


@given(st.integers(1, 6), WORKERS)
def test_p20_graphs_share_no_lock_so_each_runs_as_if_it_were_alone(count, workers):
    """Nodes of different graphs never wait for each other, only for a worker."""
    locks = [(LockClaim(f"graph:{n}"),) for n in range(count)]
    nodes = tuple(ExecNode(f"schema.g{n}", "schema", Action.UPDATE, n, lock) for n, lock in enumerate(locks))
    schedule = Schedule(ExecutionGraph(nodes), workers=workers)
    while (node := schedule.next_ready()) is not None:
        schedule.start(node.id)
    assert len(schedule.running) == min(count, workers)
    assert schedule.waiting == ()


@given(cases(failures=False), WORKERS)
def test_descendants_start_in_the_order_of_their_dependencies(case, workers):
    started = simulate(case, workers).times("start")
    for name in started:
        assert all(started[name] < started[other] for other in descendants(case.graph, [name]))
