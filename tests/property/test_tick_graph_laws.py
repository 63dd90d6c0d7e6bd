"""Laws of the execution graph of a tick, over random actions, failures and durations."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import DECISION, READINESS, REPLICA, ExecNode, NodeOutcome
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.plan.layers import serial_order, validate
from gitops.compute.strategies.decision import ActionKind
from gitops.compute.ticks.graph import TickAction, decision_id, tick_graph
from tests.support.simulated_runs import WORKERS, Case, Trace, simulate

WANTED = st.lists(st.sampled_from(list(StrategyType)), min_size=1, max_size=2, unique=True)


@st.composite
def actions(draw: st.DrawFn) -> list[TickAction]:
    """The actions of a tick on two targets: in each compute cluster creates before drops, or with a gap drops before creates."""
    found = []
    for compute in ("a", "b", "c")[: draw(st.integers(0, 3))]:
        target, suspends = draw(st.sampled_from(["p", "q"])), draw(st.booleans())
        created, dropped = [ActionKind.CREATE] * draw(st.integers(0, 2)), [ActionKind.DROP] * draw(st.integers(0, 3))
        kinds = [*dropped, *created] if suspends else [*created, *dropped]
        for index, kind in enumerate(kinds, 1):
            by = tuple(each.value for each in draw(WANTED))
            reasons = tuple(f"{each}: because of {index}" for each in by)
            named = (target, compute, compute.upper(), "u1", kind, f"r{index}", "25cc", reasons, by, "digest")
            found.append(TickAction(*named, index, len(kinds), suspends))
    return draw(st.permutations(found))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[TickAction], dict[str, ExecNode], dict[str, NodeOutcome], Trace]:
    made = draw(actions())
    graph = tick_graph(made)
    ids = [node.id for node in graph.nodes]
    ending = st.sampled_from([NodeOutcome.DONE] * 5 + [NodeOutcome.FAILED])
    endings = {name: draw(ending) for name in ids}
    trace = simulate(Case(graph, {name: draw(st.integers(0, 3)) for name in ids}, endings), draw(WORKERS))
    return made, {node.id: node for node in graph.nodes}, endings, trace


@given(actions())
def test_every_action_comes_from_the_decisions_that_wanted_it(made: list[TickAction]) -> None:
    graph = tick_graph(made)
    assert validate(graph) == ()
    assert list(serial_order(graph)) == [node.id for node in graph.nodes]
    for action in made:
        wanted = {(decision_id(action.compute, StrategyType(by)), f"because of {action.index}") for by in action.by}
        edges = [each for each in graph.edges if each.after == action.address and each.reason == "replica_decision"]
        assert {(each.before, each.detail) for each in edges} == wanted
    decided = {node.id for node in graph.nodes if node.kind == DECISION}
    assert decided == {each.before for each in graph.edges if each.reason == "replica_decision"}


@given(actions())
def test_the_decisions_of_a_compute_cluster_stand_in_the_order_in_which_they_were_made(made: list[TickAction]) -> None:
    graph = tick_graph(made)
    for compute in {each.compute for each in made}:
        found = [n.id for n in graph.nodes if n.kind == DECISION and n.group.endswith(f".{compute}")]
        kinds = [kind for kind in StrategyType if any(kind in each.by for each in made if each.compute == compute)]
        assert found == [decision_id(compute, kind) for kind in kinds]
        edges = {(e.before, e.after) for e in graph.edges if e.reason == "strategy_order" and e.detail == compute}
        assert edges == set(pairwise(found))


@given(runs())
def test_what_covers_a_drop_comes_first_and_a_statement_after_all_decisions(run) -> None:
    made, nodes, endings, trace = run
    starts, ends = trace.times("start"), trace.times("end")
    for action in (each for each in made if each.address in starts):
        group = nodes[action.address].group
        near = [node for node in nodes.values() if node.group == group]
        earlier = [node.id for node in near if node.kind == DECISION]
        if action.kind is ActionKind.DROP and not action.suspends:
            earlier += [n.id for n in near if n.kind == READINESS or n.action is Action.CREATE]
            assert any(n.kind == READINESS for n in near)
        if action.kind is ActionKind.CREATE and action.suspends:
            earlier += [n.id for n in near if n.action is Action.DELETE]
        for name in earlier:
            assert ends[name] < starts[action.address]
            assert endings[name].succeeded


@given(runs())
def test_a_target_is_used_by_one_node_at_a_time_and_a_failure_ends_its_compute_cluster(run) -> None:
    made, nodes, endings, trace = run
    target = {f"{each.target}.{each.compute}": each.target for each in made}
    running: set[str] = set()
    broken: set[str] = set()
    for event, name, _ in trace.events:
        group = nodes[name].group
        if event == "start":
            assert target[group] not in running
            assert group not in broken
            running.add(target[group])
        elif event == "end":
            running.remove(target[group])
            if not endings[name].succeeded:
                broken.add(group)
    done = {name for name, outcome in trace.outcomes().items() if outcome.succeeded}
    assert done >= {name for name, node in nodes.items() if node.group not in broken}
    assert all(nodes[each.address].kind == REPLICA for each in made)
