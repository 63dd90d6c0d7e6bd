"""Stories of an execution graph, each after the sentence that asks for it: what is refused, what waits, what runs together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, NodeOutcome, NodeResult, RunEvent
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.classes import atomic_graph
from gitops.cluster.plan.graph import build_graph
from gitops.cluster.plan.layers import cycles, layers
from gitops.core.errors import BugError
from tests.support.clock import FixedClock
from tests.support.cluster import QUERY, SCHEMA, START, Cluster, codes, found

# Only ever reached by a test that fails.
PATIENCE_S = 30


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    return Cluster(tmp_path, memory=True)


def change(text: str, action: str) -> Change:
    kind = Action(action)
    before, after = None if kind is Action.CREATE else "a" * 64, None if kind is Action.DELETE else "b" * 64
    return Change(Address(text), kind, before, after)


def needs(*pairs: str) -> tuple[Dependency, ...]:
    return tuple(Dependency(*map(Address, pair.split(" -> "))) for pair in pairs)


def done(node: ExecNode) -> NodeResult:
    return NodeResult(node.id, NodeOutcome.DONE)


def run(graph: ExecutionGraph, execute: Callable[[ExecNode], NodeResult] = done) -> list[RunEvent]:
    """The events of a run with four workers."""
    events: list[RunEvent] = []
    run_graph(graph, execute, clock=FixedClock(START), limits=RunLimits(4), on_event=events.append)
    return events


def started(events: Iterable[RunEvent]) -> list[str]:
    return [event.node for event in events if event.type == "node_started" and event.node is not None]


def planned(outcome: PlanOutcome) -> ExecutionGraph:
    assert codes(outcome) == []
    assert outcome.plan is not None
    return outcome.plan.graph


def together(*names: str) -> Callable[[ExecNode], NodeResult]:
    """Work of which these nodes only finish when all of them are at it."""
    meeting = threading.Barrier(len(names))

    def execute(node: ExecNode) -> NodeResult:
        if node.id in names:
            meeting.wait(PATIENCE_S)
        return done(node)

    return execute


def test_3_a_reference_to_what_is_not_declared_is_refused_and_nothing_runs(cluster):
    cluster.converge()
    state = cluster.state_bytes
    cluster.write("people.gq", QUERY.replace("$p.handle }\n}", "$p.handle, $p.born }\n}"))
    cluster.policies["base"] = ["knowledge", "nowhere"]
    cluster.save()
    problem = found(cluster.apply(), "dangling_graph_reference")
    assert (problem.path, "nowhere" in problem.message) == ("policies.base.applies_to[1]", True)
    assert cluster.state_bytes == state


def test_4_an_address_with_two_changes_is_refused_with_their_number():
    graph, (problem,) = build_graph([change("graph.kb", "create"), change("graph.kb", "delete")], (), ())
    assert graph == ExecutionGraph()
    assert (problem.code, problem.path) == ("duplicate_resource_id", "graph.kb")
    assert "2 changes" in problem.message


def test_5_and_6_a_cycle_is_refused_without_what_is_behind_it_and_nothing_starts():
    changes = [change(f"query.g.{name}", "update") for name in "abcd"]
    links = needs(
        "query.g.a -> query.g.b", "query.g.b -> query.g.a", "query.g.c -> query.g.a", "query.g.d -> query.g.d"
    )
    graph, problems = build_graph(changes, links, ())
    assert graph == ExecutionGraph()
    assert [(p.code, p.message.partition(": ")[2]) for p in problems] == [
        ("dependency_cycle", "query.g.a, query.g.b"),
        ("dependency_cycle", "query.g.d"),
    ]
    nodes = tuple(ExecNode(each.address, "query", each.action, i) for i, each in enumerate(changes))
    forced = ExecutionGraph(nodes, tuple(ExecEdge(link.target, link.source, "x") for link in links))
    assert cycles(forced) == (("query.g.a", "query.g.b"), ("query.g.d",))
    events: list[RunEvent] = []
    with pytest.raises(BugError):
        run_graph(forced, done, clock=FixedClock(START), on_event=events.append)
    assert events == []


def test_7_order_holds_across_a_resource_that_does_not_change():
    links = needs("query.kb.last -> schema.kb", "schema.kb -> graph.kb")
    graph, problems = build_graph([change("query.kb.last", "create"), change("graph.kb", "create")], links, ())
    assert problems == ()
    assert graph.edges == (ExecEdge("graph.kb", "query.kb.last", "via_unchanged", "schema.kb"),)
    assert started(run(graph)) == ["graph.kb", "query.kb.last"]


def test_8_a_query_lets_go_of_what_is_deleted_before_that_goes():
    changes = [change("query.kb.user", "update"), change("query.old.used", "delete"), change("graph.old", "delete")]
    recorded = needs("query.kb.user -> graph.old", "query.kb.user -> query.old.used", "query.old.used -> graph.old")
    graph, problems = build_graph(changes, (), recorded)
    assert problems == ()
    assert started(run(graph)) == ["query.kb.user", "barrier.catalog", "query.old.used", "graph.old"]


def test_9_a_query_that_still_uses_a_deleted_graph_is_refused():
    links = needs("query.kb.user -> graph.old")
    graph, (problem,) = build_graph([change("query.kb.user", "update"), change("graph.old", "delete")], links, links)
    assert graph == ExecutionGraph()
    assert problem.code == "depends_on_deleted"
    assert ("query.kb.user" in problem.message, "graph.old" in problem.message) == (True, True)


def test_12_one_run_makes_a_graph_with_all_that_is_in_it(cluster):
    cluster.write("people.gq", QUERY + QUERY.replace("find_person", "other"))
    cluster.graphs = {"knowledge": {"find_person": "people.gq", "other": "people.gq"}}
    cluster.workers = 4
    cluster.save()
    assert cluster.import_().ok
    graph = planned(cluster.plan())
    queries = ("query.knowledge.find_person", "query.knowledge.other")
    assert layers(graph) == (("graph.knowledge",), ("policy.base", "schema.knowledge"), queries)
    order = started(run(atomic_graph(graph), together(*queries)))
    assert order[0] == "graph.knowledge"
    assert order.index("policy.base") < order.index("barrier.prepared")
    assert cluster.apply().converged


@pytest.fixture
def twins(cluster: Cluster) -> Cluster:
    """Two graphs with a query each, which are changed to the same text."""
    cluster.graphs = {name: {"find_person": f"{name}.gq"} for name in ("knowledge", "notes")}
    for name, limit in (("knowledge", 1), ("notes", 2)):
        cluster.write(f"{name}.gq", QUERY.replace("$p.handle }\n}", f"$p.handle }}\n  limit {limit}\n}}"))
        cluster.write(f"{name}.pg", SCHEMA)
    cluster.workers = 4
    cluster.save()
    cluster.converge()
    for name in cluster.graphs:
        cluster.write(f"{name}.gq", QUERY)
    return cluster


def test_13_texts_of_equal_content_are_published_one_after_the_other(twins):
    graph = planned(twins.plan())
    assert [{lock.key.partition(":")[0] for lock in node.locks} for node in graph.nodes] == [{"blob", "graph"}] * 2
    events: list[RunEvent] = []
    assert apply(replace(twins.workspace(), on_event=events.append)).converged
    (wait,) = [event for event in events if event.type == "node_lock_wait"]
    assert (wait.node, wait.facts["holders"]) == ("query.notes.find_person", ("query.knowledge.find_person",))
    seen = [(event.type, event.node) for event in events]
    after = seen.index(("node_started", "query.notes.find_person"))
    assert seen.index(("node_finished", "query.knowledge.find_person")) < after


def test_13_the_queries_of_one_file_are_published_at_the_same_time(cluster):
    names = ("find_person", "other", "third")
    cluster.write("people.gq", "".join(QUERY.replace("find_person", name) for name in names))
    cluster.graphs = {"knowledge": dict.fromkeys(names, "people.gq")}
    cluster.save()
    cluster.converge()
    cluster.write("people.gq", "// once more\n" + "".join(QUERY.replace("find_person", name) for name in names))
    graph = planned(cluster.plan())
    queries = [f"query.knowledge.{name}" for name in names]
    assert sorted(started(run(graph, together(*queries)))) == queries


def test_a_scope_goes_from_one_policy_to_the_other_in_one_run(cluster):
    cluster.policies = {"base": ["cluster", "knowledge"]}
    cluster.save()
    cluster.converge()
    cluster.policies = {"all": ["cluster"], "base": ["knowledge"]}
    cluster.save()
    graph = planned(cluster.plan())
    assert graph.edges == (ExecEdge("policy.base", "policy.all", "scope_handover", "cluster"),)
    assert cluster.apply().converged
    ready = cluster.ready()
    assert (ready.cluster_policy, [each.policy for each in ready.graphs]) == ("all", ["base"])
