"""Laws of runs that are given up, interrupted or resumed, and of what does not depend on locks and times."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import ExecNode, ExecutionGraph, LockClaim, LockMode, NodeOutcome
from gitops.cluster.plan.classes import COMMITTED, DRAINED, atomic_graph
from gitops.cluster.plan.layers import neighbours
from gitops.cluster.plan.schedule import Schedule, SkipReason
from tests.support.simulated_runs import WORKERS, Case, cases, conflict, descendants, graphs, simulate

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
