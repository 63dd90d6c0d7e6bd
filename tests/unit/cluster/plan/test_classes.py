"""The class of each change, and the graph of an atomic run: its barriers, and what moves behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.classes import BARRIERS, atomic_graph, effects_of, pivots, with_effects
from gitops.cluster.plan.graph import build_graph
from gitops.cluster.plan.layers import validate
from gitops.core.canonical import digest
from gitops.database.graph.port import MigrationPreview

A, B = "a" * 64, "b" * 64
ADD = {"kind": "add_property", "type_kind": "node"}
ADD_TYPE = {"kind": "add_type", "type_kind": "edge"}
ADD_INTERFACE = {"kind": "add_type", "type_kind": "interface"}
DROP = {"kind": "drop_property", "mode": "soft"}
RENAME = {"kind": "rename_type"}
WORDS = {"kind": "update_type_metadata"}


BETWEEN = b"the schema with what is added, and with what goes"


def change(
    text: str, action: str, *steps: dict[str, str], supported: bool = True, expanded: bytes | None = None
) -> Change:
    kind = Action(action)
    preview = MigrationPreview(supported, steps, expanded=expanded) if steps else None
    before, after = None if kind is Action.CREATE else A, None if kind is Action.DELETE else B
    return Change(Address(text), kind, before, after, migration=preview)


@pytest.mark.parametrize(
    ("found", "effect"),
    [
        (change("graph.kb", "create"), Effect.STAGE),
        (change("graph.kb", "delete"), Effect.FINISH),
        (change("schema.kb", "create"), Effect.STAGE),
        (change("schema.kb", "delete"), Effect.COMMIT),
        (change("schema.kb", "update", ADD, ADD_TYPE, WORDS), Effect.STAGE),
        (change("schema.kb", "update", ADD, ADD_TYPE, WORDS, {"kind": "update_property_metadata"}), Effect.STAGE),
        (change("schema.kb", "update", DROP), Effect.FINISH),
        (change("schema.kb", "update", DROP, {"kind": "drop_type"}), Effect.FINISH),
        (change("schema.kb", "update", ADD, DROP), Effect.PIVOT),
        (change("schema.kb", "update", ADD, DROP, expanded=BETWEEN), Effect.STAGE),
        (change("schema.kb", "update", WORDS, DROP, {"kind": "drop_type"}, expanded=BETWEEN), Effect.STAGE),
        (change("schema.kb", "update", RENAME, DROP, expanded=BETWEEN), Effect.PIVOT),
        (change("schema.kb", "update", {"kind": "extend_enum"}, DROP, expanded=BETWEEN), Effect.PIVOT),
        (change("schema.kb", "update", ADD_INTERFACE, DROP, expanded=BETWEEN), Effect.PIVOT),
        (change("schema.kb", "update", RENAME), Effect.PIVOT),
        (change("schema.kb", "update", ADD_INTERFACE), Effect.PIVOT),
        (change("schema.kb", "update", {"kind": "extend_enum"}), Effect.PIVOT),
        (change("schema.kb", "update", {"kind": "of a later release"}), Effect.PIVOT),
        (change("schema.kb", "update", ADD, supported=False), Effect.PIVOT),
        (change("schema.kb", "update"), Effect.PIVOT),
        (change("query.kb.find", "create"), Effect.STAGE),
        (change("query.kb.find", "update"), Effect.STAGE),
        (change("query.kb.find", "delete"), Effect.COMMIT),
        (change("policy.open", "update"), Effect.STAGE),
        (change("policy.open", "delete"), Effect.COMMIT),
        (change("restore.kb", "create"), Effect.PIVOT),
        (change("restore.kb", "update"), Effect.PIVOT),
        (change("restore.kb", "delete"), Effect.COMMIT),
        (change("trust.brain", "update"), Effect.COMMIT),
        (change("cluster.brain", "update"), Effect.COMMIT),
    ],
)
def test_class_of_a_change(found: Change, effect: Effect) -> None:
    classified = effects_of([found])[found.address]
    assert classified.effect is effect
    assert classified.reason


def test_reason_of_a_pivot_names_the_steps_that_cannot_be_taken_back() -> None:
    found = change("schema.kb", "update", ADD, RENAME, DROP)
    assert "drop_property, rename_type" in effects_of([found])[found.address].reason


def test_migration_in_halves_says_so_and_is_a_pivot_where_rows_are_restored() -> None:
    halved = change("schema.kb", "update", ADD, DROP, expanded=BETWEEN)
    found = effects_of([halved, change("restore.other", "create"), change("restore.kb", "delete")])[halved.address]
    assert found == (Effect.STAGE, "it adds before the commit, and drops after it", digest(BETWEEN))
    restored = effects_of([halved, change("restore.kb", "update")])[halved.address]
    assert (restored.effect, restored.expanded) == (Effect.PIVOT, None)


def test_migration_in_halves_is_two_nodes_of_an_atomic_run_and_one_of_another() -> None:
    changes = [change("schema.kb", "update", ADD, DROP, expanded=BETWEEN), change("query.kb.find", "update")]
    whole = plain(changes, "query.kb.find -> schema.kb")
    assert sorted(order(whole)) == ["query.kb.find", "schema.kb"]
    graph = atomic_graph(whole)
    assert order(graph) == [
        "schema.kb",
        "query.kb.find",
        "barrier.prepared",
        "barrier.committed",
        "barrier.drained",
        "drops.kb",
        "barrier.finalized",
    ]
    halves = {node.id: node for node in graph.nodes if node.address == "schema.kb"}
    assert (halves["schema.kb"].effect, halves["schema.kb"].expanded) == (Effect.STAGE, digest(BETWEEN))
    assert (halves["drops.kb"].effect, halves["drops.kb"].expanded) == (Effect.FINISH, None)
    assert pivots(graph) == ()


def test_migration_that_has_to_wait_for_what_finishes_is_one_step() -> None:
    changes = [change("schema.kb", "update", ADD, DROP, expanded=BETWEEN), change("graph.old", "delete")]
    behind = ExecEdge("graph.old", "schema.kb", "explicit_dependency")
    graph = atomic_graph(replace(plain(changes), edges=(behind,)))
    found = {node.id: node for node in graph.nodes}
    assert (found["schema.kb"].effect, found["schema.kb"].expanded) == (Effect.FINISH, None)
    assert "drops.kb" not in found


def plain(changes: list[Change], *links: str, recorded: tuple[str, ...] = ()) -> ExecutionGraph:
    desired, before = ([Dependency(*map(Address, each.split(" -> "))) for each in found] for found in (links, recorded))
    graph, problems = build_graph(changes, desired, before)
    assert problems == ()
    return with_effects(graph, effects_of(changes))


def order(graph: ExecutionGraph) -> list[str]:
    return [node.id for node in sorted(graph.nodes, key=lambda node: node.position)]


def test_every_class_runs_between_its_barriers() -> None:
    changes = [
        change("graph.new", "create"),
        change("schema.new", "create"),
        change("query.new.find", "create"),
        change("schema.kb", "update", RENAME),
        change("graph.old", "delete"),
        change("schema.old", "delete"),
        change("query.kb.gone", "delete"),
        change("trust.brain", "update"),
    ]
    links = ("schema.new -> graph.new", "query.new.find -> schema.new")
    graph = atomic_graph(plain(changes, *links, recorded=("schema.old -> graph.old",)))
    assert validate(graph) == ()
    assert order(graph) == [
        "graph.new",
        "schema.new",
        "query.new.find",
        "barrier.prepared",
        "schema.kb",
        "barrier.committed",
        "barrier.drained",
        "graph.old",
        "barrier.finalized",
    ]


def test_graph_without_nodes_has_its_four_barriers() -> None:
    assert tuple(order(atomic_graph(ExecutionGraph()))) == BARRIERS


def test_text_is_published_before_what_cannot_be_taken_back() -> None:
    changes = [change("schema.kb", "update", RENAME), change("query.kb.find", "update")]
    graph = atomic_graph(plain(changes, "query.kb.find -> schema.kb"))
    assert order(graph)[:3] == ["query.kb.find", "barrier.prepared", "schema.kb"]
    assert not any(node.lifted for node in graph.nodes)


def test_text_waits_for_the_graph_that_it_is_for() -> None:
    changes = [change("graph.kb", "create"), change("schema.kb", "create"), change("query.kb.find", "create")]
    graph = atomic_graph(plain(changes, "query.kb.find -> graph.kb", "schema.kb -> graph.kb"))
    assert ("graph.kb", "query.kb.find") in {(edge.before, edge.after) for edge in graph.edges}


def test_policy_lets_go_of_a_deleted_graph_with_the_commit() -> None:
    changes = [change("graph.old", "delete"), change("policy.open", "update")]
    graph = atomic_graph(plain(changes, recorded=("policy.open -> graph.old",)))
    assert order(graph)[0] == "policy.open"
    assert order(graph)[-2] == "graph.old"


def test_what_is_staged_and_needs_a_pivot_is_lifted_behind_the_first_barrier() -> None:
    changes = [change("schema.kb", "update", RENAME), change("graph.new", "create"), change("graph.old", "delete")]
    graph = atomic_graph(plain(changes, "graph.new -> schema.kb"))
    lifted = next(node for node in graph.nodes if node.id == "graph.new")
    assert (lifted.lifted, lifted.effect, lifted.phase) == (True, Effect.STAGE, Effect.PIVOT)
    assert order(graph)[:4] == ["barrier.prepared", "schema.kb", "graph.new", "barrier.committed"]


def test_pivots_are_found_in_the_order_of_the_graph() -> None:
    changes = [
        change(f"schema.{name}", "update", *steps) for name, steps in (("b", [RENAME]), ("a", [RENAME]), ("c", [ADD]))
    ]
    assert pivots(plain(changes)) == ("schema.a", "schema.b")


def nodes(**classes: Effect) -> tuple[ExecNode, ...]:
    found = enumerate(classes.items())
    return tuple(ExecNode(name, "graph", Action.UPDATE, index, effect=effect) for index, (name, effect) in found)


def test_order_holds_across_what_only_the_commit_does() -> None:
    """A change without a node does not let the next one slip before the pivot that it needs."""
    chain = (ExecEdge("a", "b", "x"), ExecEdge("b", "c", "y"))
    graph = atomic_graph(ExecutionGraph(nodes(a=Effect.PIVOT, b=Effect.COMMIT, c=Effect.STAGE), chain))
    assert order(graph)[:4] == ["barrier.prepared", "a", "c", "barrier.committed"]
    assert ExecEdge("a", "c", "via_unchanged", "b") in graph.edges
    assert next(node for node in graph.nodes if node.id == "c").lifted


def test_barriers_lock_the_ledger_and_approvals_are_verified_before_the_pivot() -> None:
    """Also those of a change that only the commit carries out."""
    stage, pivot, trust, gone = nodes(a=Effect.STAGE, b=Effect.PIVOT, c=Effect.COMMIT, d=Effect.FINISH)
    claimed = (LockClaim("approval:01A"), LockClaim("graph:d"))
    gated = (stage, pivot, replace(trust, locks=(LockClaim("approval:01B"),)), replace(gone, locks=claimed))
    graph = atomic_graph(ExecutionGraph(gated))
    assert {node.locks for node in graph.nodes if node.id in BARRIERS} == {(LockClaim("ledger"),)}
    assert [(e.before, e.after, e.detail) for e in graph.edges if e.reason == "approval_gate"] == [
        ("barrier.prepared", "b", "01A"),
        ("barrier.prepared", "b", "01B"),
        ("barrier.prepared", "barrier.committed", "01A"),
        ("barrier.prepared", "barrier.committed", "01B"),
    ]
