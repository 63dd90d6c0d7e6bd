"""The execution graph of cluster changes: nodes, edges, locks, order, refusals, and its inspectable form."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Disposition, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.classes import BARRIERS, atomic_graph, effects_of, pivots, with_effects
from gitops.cluster.plan.graph import BARRIER, GRAPH_MOVING, PolicyBindings, build_graph, lock_claims
from gitops.cluster.plan.layers import layers, restricted, transposed, validate
from gitops.core.canonical import digest
from gitops.core.errors import BugError
from gitops.database.graph.port import MigrationPreview
from gitops.database.language.schema import PropType, Scalar, TypeKind, steps
from gitops.render.graph import to_json

A, B = "a" * 64, "b" * 64


def change(
    text: str, action: str, *, before: str = A, after: str = B, disposition: Disposition = Disposition.APPLIED
) -> Change:
    kind = Action(action)
    return Change(
        Address(text),
        kind,
        None if kind is Action.CREATE else before,
        None if kind is Action.DELETE else after,
        disposition,
    )


def needs(*pairs: str) -> tuple[Dependency, ...]:
    return tuple(Dependency(*map(Address, pair.split(" -> "))) for pair in pairs)


def catalog(graph: str, *queries: str) -> tuple[Dependency, ...]:
    found = [f"schema.{graph} -> graph.{graph}"]
    for query in queries:
        found += [f"query.{graph}.{query} -> graph.{graph}", f"query.{graph}.{query} -> schema.{graph}"]
    return needs(*found)


def build(changes, desired=(), recorded=()) -> ExecutionGraph:
    graph, problems = build_graph(changes, desired, recorded)
    assert problems == ()
    return graph


def refused(changes, desired=(), recorded=()) -> list[tuple[str, str]]:
    graph, problems = build_graph(changes, desired, recorded)
    assert graph == ExecutionGraph()
    return [(p.code, p.path) for p in problems]


def arrows(graph: ExecutionGraph) -> set[str]:
    return {f"{e.before} -> {e.after} [{e.reason}]" for e in graph.edges}


def order(graph: ExecutionGraph) -> list[str]:
    return [n.id for n in graph.nodes]


def plain(*edges: tuple[str, str], extra: str = "") -> ExecutionGraph:
    names = sorted({n for e in edges for n in e} | set(extra.split()))
    nodes = tuple(ExecNode(n, "query", Action.UPDATE, i) for i, n in enumerate(names))
    return ExecutionGraph(nodes, tuple(sorted(ExecEdge(b, a, "explicit_dependency") for b, a in edges)))


def test_new_graph_comes_in_layers():
    changes = [change(t, "create") for t in ("graph.kb", "policy.open", "query.kb.find", "schema.kb")]
    graph = build(changes, (*catalog("kb", "find"), *needs("policy.open -> graph.kb")))
    assert layers(graph) == (("graph.kb",), ("policy.open", "schema.kb"), ("query.kb.find",))
    assert arrows(graph) == {
        "graph.kb -> schema.kb [graph_schema]",
        "schema.kb -> query.kb.find [schema_query]",
        "graph.kb -> policy.open [policy_target]",
    }
    assert order(graph) == ["graph.kb", "schema.kb", "policy.open", "query.kb.find"]
    assert [n.group for n in graph.nodes] == [GRAPH_MOVING, "", "", ""]


def test_only_applied_changes_are_nodes():
    changes = [
        change("graph.kb", "update", disposition=Disposition.DERIVED),
        change("graph.old", "delete", disposition=Disposition.BLOCKED),
        change("query.kb.find", "update"),
        change("schema.kb", "delete", disposition=Disposition.DEFERRED),
    ]
    graph = build(changes, needs("query.kb.find -> graph.kb"))
    assert (order(graph), graph.edges) == (["query.kb.find"], ())
    assert build([]) == ExecutionGraph()


def test_schema_update_precedes_every_change_of_its_queries():
    changes = [
        change("query.kb.drop", "delete"),
        change("query.kb.keep", "update"),
        change("query.kb.new", "create"),
        change("schema.kb", "update"),
    ]
    graph = build(changes, catalog("kb", "keep", "new"), catalog("kb", "drop", "keep"))
    assert arrows(graph) == {f"schema.kb -> query.kb.{query} [schema_query]" for query in ("drop", "keep", "new")}
    assert order(graph)[0] == "schema.kb"


def test_deleted_graph_goes_after_what_rides_on_it():
    changes = [change(t, "delete") for t in ("graph.kb", "query.kb.find", "schema.kb")]
    graph = build(changes, (), catalog("kb", "find"))
    assert order(graph) == [BARRIER, "query.kb.find", "schema.kb", "graph.kb"]
    assert layers(graph) == ((BARRIER,), ("query.kb.find",), ("schema.kb",), ("graph.kb",))
    assert arrows(graph) - {f"{BARRIER} -> {name} [finish_barrier]" for name in order(graph)} == {
        "query.kb.find -> schema.kb [schema_query]",
        "schema.kb -> graph.kb [graph_schema]",
    }


def test_a_query_waits_for_its_graph_if_no_schema_is_between_them():
    assert arrows(build([change("graph.kb", "create"), change("query.kb.find", "create")], catalog("kb", "find"))) == {
        "graph.kb -> query.kb.find [graph_query]"
    }
    # A schema between them has an edge with each; so it is for a restore.
    links = needs("schema.kb -> graph.kb", "restore.kb -> graph.kb", "restore.kb -> schema.kb")
    changes = [change("graph.kb", "create"), change("schema.kb", "create"), change("restore.kb", "create")]
    assert arrows(build(changes, links)) == {
        "graph.kb -> schema.kb [graph_schema]",
        "schema.kb -> restore.kb [schema_restore]",
    }
    # Without a reference from the schema to the graph, the query keeps its own.
    both = [change(t, "create") for t in ("graph.kb", "query.kb.find", "schema.kb")]
    assert "graph.kb -> query.kb.find [graph_query]" in arrows(
        build(both, needs("query.kb.find -> graph.kb", "query.kb.find -> schema.kb"))
    )


def test_barrier_separates_graph_deletes_from_all_else():
    late = ["graph.x", "schema.x", "query.x.q"]
    early = ["graph.n", "schema.n", "query.kb.q"]
    actions = {"query.kb.q": "update"}
    changes = [*(change(t, "delete") for t in late), *(change(t, actions.get(t, "create")) for t in early)]
    graph = build(changes, catalog("n"), catalog("x", "q"))
    assert {e.before for e in graph.edges if e.reason == "stage_barrier"} == set(early)
    assert {e.after for e in graph.edges if e.reason == "finish_barrier"} == set(late)
    assert order(graph) == [
        "graph.n",
        "schema.n",
        "query.kb.q",
        BARRIER,
        "query.x.q",
        "schema.x",
        "graph.x",
    ]
    assert BARRIER not in order(build([c for c in changes if c.address in early], catalog("n")))


def test_barrier_never_closes_a_cycle():
    # A recorded reference from something that rides on a graph delete to something that otherwise runs early.
    changes = [change("graph.x", "delete"), change("query.x.q", "delete"), change("policy.p", "delete")]
    graph = build(changes, (), (*catalog("x", "q"), *needs("query.x.q -> policy.p")))
    assert order(graph) == [BARRIER, "query.x.q", "policy.p", "graph.x"]
    assert "query.x.q -> policy.p [explicit_dependency]" in arrows(graph)
    assert f"{BARRIER} -> policy.p [finish_barrier]" in arrows(graph)
    # However long the way to it is.
    changes = [change(f"query.y.{name}", "delete") for name in "abc"] + [change("graph.x", "delete")]
    chain = needs("query.y.a -> graph.x", "graph.x -> query.y.b", "query.y.b -> query.y.c")
    graph = build(changes, (), chain)
    assert order(graph) == ["query.y.a", BARRIER, "graph.x", "query.y.b", "query.y.c"]


@pytest.mark.parametrize("action", ["update", "delete"])
def test_a_policy_guards_a_graph_until_it_is_gone(action):
    changes = [change("policy.open", action), change("graph.old", "delete")]
    graph = build(changes, needs("policy.open -> graph.kb"), needs("policy.open -> graph.old"))
    assert "graph.old -> policy.open [policy_guard]" in arrows(graph)
    assert order(graph).index("graph.old") < order(graph).index("policy.open")


def test_reference_is_dropped_before_its_target_is_deleted():
    changes = [change("query.kb.find", "update"), change("query.kb.old", "delete")]
    graph = build(changes, (), needs("query.kb.find -> query.kb.old"))
    assert order(graph) == ["query.kb.find", "query.kb.old"]


def test_reference_that_is_only_recorded_orders_no_building():
    changes = [change("policy.open", "update"), change("schema.kb", "update")]
    assert build(changes, (), needs("policy.open -> schema.kb")).edges == ()


def test_needing_a_deleted_resource_is_refused():
    changes = [change("query.kb.find", "update"), change("graph.kb", "delete")]
    assert refused(changes, catalog("kb", "find"), catalog("kb", "find")) == [("depends_on_deleted", "query.kb.find")]
    # The graph is named, too, where its schema goes with it.
    both = [*changes, change("schema.kb", "delete")]
    _, problems = build_graph(both, catalog("kb", "find"), catalog("kb", "find"))
    assert [p.message.split(", ")[0].split()[-1] for p in problems] == ["graph.kb", "schema.kb"]
    # Also through a resource that does not change, and when the delete itself is held back.
    blocked = change("graph.kb", "delete", disposition=Disposition.BLOCKED)
    desired = needs("query.kb.find -> schema.kb", "schema.kb -> graph.kb")
    assert refused([changes[0], blocked], desired) == [("depends_on_deleted", "query.kb.find")]


def test_needing_what_this_run_does_not_create_is_refused():
    held = change("graph.kb", "create", disposition=Disposition.BLOCKED)
    assert refused([held, change("query.kb.find", "create")], catalog("kb", "find")) == [
        ("missing_dependency", "query.kb.find")
    ]


def test_order_holds_across_an_unchanged_resource():
    changes = [change("graph.kb", "create"), change("query.kb.find", "create")]
    graph = build(changes, needs("query.kb.find -> schema.kb", "schema.kb -> graph.kb"))
    assert graph.edges == (ExecEdge("graph.kb", "query.kb.find", "via_unchanged", "schema.kb"),)


def test_duplicate_change_is_refused_with_the_count():
    for count in (2, 3):
        _, problems = build_graph([change("graph.kb", "create")] * count, (), ())
        assert [(p.code, p.path) for p in problems] == [("duplicate_resource_id", "graph.kb")]
        assert f"{count} changes" in problems[0].message


def test_cycle_is_refused_without_what_is_behind_it():
    changes = [change(t, "update") for t in ("query.g.a", "query.g.b", "query.g.c")]
    desired = needs("query.g.a -> query.g.b", "query.g.b -> query.g.a", "query.g.c -> query.g.a")
    graph, problems = build_graph(changes, desired, ())
    assert graph == ExecutionGraph()
    assert [p.code for p in problems] == ["dependency_cycle"]
    assert problems[0].message.endswith("query.g.a, query.g.b")


def test_node_that_needs_itself_is_a_cycle():
    assert refused([change("query.g.a", "update")], needs("query.g.a -> query.g.a")) == [
        ("dependency_cycle", "query.g.a")
    ]


def test_edge_to_nowhere_is_a_missing_dependency():
    graph = plain(("a", "b"))
    orphan = ExecutionGraph(graph.nodes[1:], graph.edges)
    assert [(p.code, p.path) for p in validate(orphan)] == [("missing_dependency", "b")]
    assert validate(graph) == ()
    twice = ExecutionGraph((*graph.nodes, graph.nodes[0]), graph.edges)
    assert [p.code for p in validate(twice)] == ["duplicate_resource_id"]


def test_change_of_unknown_kind_is_never_scheduled():
    with pytest.raises(BugError):
        build_graph([change("widget.x", "delete")], (), ())


def bound(**policies: str) -> dict[Address, PolicyBindings]:
    """Policies with what they are bound to, `recorded > declared`."""
    return {
        Address(f"policy.{name}"): PolicyBindings(*(tuple(part.split()) for part in text.split(">")))
        for name, text in policies.items()
    }


def handovers(bindings: dict[Address, PolicyBindings], *others: Change, recorded=()) -> set[str]:
    actions = {True: "create", False: "update"}
    policies = [change(name, actions[not b.recorded] if b.declared else "delete") for name, b in bindings.items()]
    graph, problems = build_graph([*policies, *others], (), recorded, bindings=bindings)
    assert problems == ()
    return {f"{e.before} -> {e.after}: {e.detail}" for e in graph.edges if e.reason == "scope_handover"}


def test_who_lets_go_of_a_scope_comes_before_who_takes_it():
    assert handovers(bound(old="graph.a graph.b > graph.b", new="> graph.a cluster")) == {
        "policy.old -> policy.new: graph.a"
    }
    assert handovers(bound(old="cluster >", new="graph.a > cluster graph.a")) == {"policy.old -> policy.new: cluster"}
    # Who keeps a scope, or only comes to one that is free, waits for no other.
    assert handovers(bound(old="graph.a > graph.a", new="> graph.a", other="> graph.b")) == set()


def test_policies_that_swap_scopes_do_not_wait_for_each_other():
    swap = bound(p="graph.a > graph.b", q="graph.b > graph.a", r="graph.c >", s="> graph.c")
    assert handovers(swap) == {"policy.r -> policy.s: graph.c"}
    assert handovers(bound(p="graph.a > graph.b", q="graph.b > graph.c", r="graph.c > graph.a")) == set()


def test_who_takes_a_scope_for_a_new_graph_does_not_wait_for_another_one_to_go():
    gone, new = change("graph.old", "delete"), change("graph.new", "create")
    recorded = needs("policy.p -> graph.old")
    bindings = bound(p="cluster graph.old >", q="> cluster graph.new")
    assert handovers(bindings, gone, new, recorded=recorded) == set()
    assert handovers(bindings, gone, recorded=recorded) == {"policy.p -> policy.q: cluster"}
    assert handovers(bindings, new) == {"policy.p -> policy.q: cluster"}


def test_nodes_have_the_locks_that_are_claimed_for_them_and_barriers_the_ledger():
    changes = [change("graph.new", "create"), change("graph.old", "delete")]
    locks = {Address("graph.new"): (LockClaim("graph:new"),)}
    graph, _ = build_graph(changes, (), (), locks=locks)
    assert {n.id: n.locks for n in graph.nodes} == {
        "graph.new": (LockClaim("graph:new"),),
        BARRIER: (LockClaim("ledger"),),
        "graph.old": (),
    }
    assert [n.id for n in graph.nodes if n.group] == ["graph.new", "graph.old"]


def test_plan_order():
    created = ["graph.a", "graph.b", "schema.a", "schema.b", "query.a.q", "policy.p"]
    changes = [change(t, "create") for t in created]
    changes += [change("schema.k", "update"), change("trust.main", "update"), change("query.k.gone", "delete")]
    changes += [change(t, "delete") for t in ("graph.y", "schema.y", "graph.z", "query.z.q")]
    graph = build(changes, (*catalog("a", "q"), *catalog("b"), *needs("policy.p -> graph.b")))
    assert order(graph) == [
        *("graph.a", "schema.a", "graph.b", "schema.b", "schema.k"),
        *("policy.p", "query.a.q", "query.k.gone", "trust.main", BARRIER),
        *("schema.y", "graph.y", "query.z.q", "graph.z"),
    ]
    assert [n.position for n in graph.nodes] == list(range(len(graph.nodes)))


def test_graphs_are_made_before_schemas_change_and_where_the_cluster_is_comes_last():
    changes = [change("cluster.main", "update"), change("graph.z", "create"), change("policy.p", "update")]
    assert order(build([*changes, change("schema.a", "update")])) == ["graph.z", "schema.a", "policy.p", "cluster.main"]


def test_long_chains_do_not_recurse():
    names = [f"query.g.q{i:05}" for i in range(5_000)]
    chain = tuple(Dependency(Address(a), Address(b)) for a, b in zip(names[1:], names, strict=False))
    graph = build([change(n, "update") for n in names], chain)
    assert len(layers(graph)) == len(names)
    ends = build([change(names[0], "update"), change(names[-1], "update")], chain[:2000] + chain[-2000:])
    assert ends.edges == ()
    ring = [*chain, Dependency(Address(names[0]), Address(names[-1]))]
    assert refused([change(n, "update") for n in names], ring) == [("dependency_cycle", names[0])]


def test_the_way_back_leaves_out_what_cannot_go_back():
    graph = plain(("a", "b"), ("b", "c"), ("a", "d"), ("d", "c"))
    back = transposed(restricted(graph, {"a", "c", "d"}))
    assert [(n.id, n.position) for n in back.nodes] == [("d", 0), ("c", 1), ("a", 3)]
    assert [(e.before, e.after, e.reason, e.detail) for e in back.edges] == [
        ("c", "a", "via_unchanged", "b"),
        ("c", "d", "explicit_dependency", ""),
        ("d", "a", "explicit_dependency", ""),
    ]
    assert restricted(plain(("a", "b"), ("b", "a")), {"a"}).edges == (ExecEdge("a", "a", "via_unchanged", "b"),)
    assert transposed(ExecutionGraph()) == restricted(graph, ()) == ExecutionGraph()


def test_json_form_shows_cycles():
    form = to_json(plain(("a", "b"), ("b", "a"), ("b", "c")))
    assert form["cycles"] == [["a", "b"]]
    assert [[(e["from"], e["to"]) for e in edges] for edges in form["cycle_edges"]] == [[("a", "b"), ("b", "a")]]


_PROGRAM = """
import json
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.classes import atomic_graph, effects_of, with_effects
from gitops.cluster.plan.graph import build_graph
from gitops.cluster.plan.graph import PolicyBindings, lock_claims
from gitops.render.graph import to_json, to_mermaid, to_text

gone = [Change(Address(t), Action.DELETE, "a", None) for t in ("graph.x", "schema.x", "query.x.q", "policy.p")]
made = [Change(Address(f"query.k.q{i}"), Action.CREATE, None, "same") for i in range(30)]
moved = [Change(Address(f"policy.{t}"), Action.UPDATE, "a", "b") for t in "rst"]
changes = [*made, *gone, *moved]
old = [Dependency(Address(s), Address(t)) for s, t in (
    ("query.x.q", "graph.x"), ("query.x.q", "schema.x"), ("schema.x", "graph.x"), ("policy.p", "graph.x"))]
scopes = [f"graph.{t}" for t in "abcdef"]
bindings = {Address("policy.r"): PolicyBindings(tuple(scopes), ()), Address("policy.s"): PolicyBindings((), tuple(scopes[:3])),
            Address("policy.t"): PolicyBindings((), tuple(scopes[2:]))}
locks = lock_claims(changes, bindings, {Address("graph.x"): ("01B", "01A")}, str)
graph, problems = build_graph(changes, [], old, bindings=bindings, locks=locks)
assert not problems
graph = with_effects(graph, effects_of(changes))
for each in (graph, atomic_graph(graph)):
    print(json.dumps(to_json(each, "d")), to_text(each), to_mermaid(each), to_mermaid(each, most=5, reasons=False))
"""


@pytest.mark.outside
def test_p17_every_form_is_the_same_for_every_hash_seed():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    (output,) = outputs
    assert all(word in output for word in (b"scope_handover", b"blob:same", b"approval:01A", b"finish_barrier"))


def change_of_locks(text: str, action: str, content: str = "new") -> Change:
    kind = Action(action)
    before, after = None if kind is Action.CREATE else "old", None if kind is Action.DELETE else content
    return Change(Address(text), kind, before, after)


def locks(
    *changes: Change,
    bindings: Mapping[str, PolicyBindings] | None = None,
    granted: Mapping[str, tuple[str, ...]] | None = None,
    files: Mapping[str, str] | None = None,
) -> dict[str, list[str]]:
    """Per change its locks as `key`, or `key shared`."""
    claims = lock_claims(
        changes,
        {Address(name): each for name, each in (bindings or {}).items()},
        {Address(name): each for name, each in (granted or {}).items()},
        lambda text: (files or {}).get(text, text),
    )
    shown = {LockMode.EXCLUSIVE: "", LockMode.SHARED: " shared"}
    return {name: [f"{c.key}{shown[c.mode]}" for c in found] for name, found in claims.items()}


def test_what_moves_a_graph_has_it_alone_and_what_is_checked_against_it_shares_it():
    assert locks(
        change_of_locks("graph.new", "create"),
        change_of_locks("graph.old", "delete"),
        change_of_locks("schema.kb", "update"),
        change_of_locks("schema.new", "create"),
        change_of_locks("schema.old", "delete"),
        change_of_locks("query.kb.q", "update"),
        change_of_locks("query.kb.z", "delete"),
        change_of_locks("trust.main", "update"),
    ) == {
        "graph.new": ["graph:new"],
        "graph.old": ["graph:old"],
        "schema.kb": ["graph:kb"],
        "query.kb.q": ["graph:kb shared"],
        "query.kb.z": ["graph:kb shared"],
    }


def test_a_policy_has_its_scopes_of_before_and_after_and_shares_the_graphs_that_it_is_bound_to():
    assert locks(
        change_of_locks("policy.all", "create"),
        change_of_locks("policy.some", "update", "text"),
        change_of_locks("policy.gone", "delete"),
        bindings={
            "policy.all": PolicyBindings((), ("cluster", "graph.kb")),
            "policy.some": PolicyBindings(("graph.old",), ("graph.kb",)),
            "policy.gone": PolicyBindings(("cluster",), ()),
        },
    ) == {
        "policy.all": ["graph:kb shared", "policy-scope:cluster", "policy-scope:graph.kb"],
        "policy.some": ["graph:kb shared", "policy-scope:graph.kb", "policy-scope:graph.old"],
        "policy.gone": ["policy-scope:cluster"],
    }


def test_equal_content_of_several_files_is_published_one_after_the_other():
    same = [
        change_of_locks("query.a.p", "create", "c1"),
        change_of_locks("query.b.q", "update", "c1"),
        change_of_locks("policy.r", "create", "c2"),
    ]
    assert locks(*same) == {
        "query.a.p": ["blob:c1", "graph:a shared"],
        "query.b.q": ["blob:c1", "graph:b shared"],
    }
    deleted = [same[0], change_of_locks("query.b.q", "delete")]
    assert "blob:c1" not in locks(*deleted)["query.a.p"]


def test_the_queries_of_one_file_are_published_at_the_same_time():
    queries = [change_of_locks(f"query.a.q{i}", "create", "c1") for i in range(3)]
    one_file = {query.address: "all.gq" for query in queries}
    assert locks(*queries, files=one_file) == {query.address: ["graph:a shared"] for query in queries}
    assert all("blob:c1" in found for found in locks(*queries, files=one_file | {"query.a.q2": "b.gq"}).values())


def test_a_change_has_the_approvals_that_it_uses():
    gone = change_of_locks("graph.old", "delete")
    assert locks(gone, granted={"graph.old": ("01B", "01A")}) == {
        "graph.old": ["approval:01A", "approval:01B", "graph:old"]
    }


def test_graphs_of_one_cluster_share_no_lock():
    """Whatever changes in one graph keeps nothing of another one from running."""
    texts = ("schema.{}", "query.{}.q", "policy.{}")
    claims = []
    for graph in ("a", "ab"):
        changes = [change_of_locks(name, "update", name) for name in (text.format(graph) for text in texts)]
        bound = {f"policy.{graph}": PolicyBindings((f"graph.{graph}",), (f"graph.{graph}",))}
        claims.append({key.split()[0] for found in locks(*changes, bindings=bound).values() for key in found})
    assert [len(each) for each in claims] == [2, 2]
    assert claims[0].isdisjoint(claims[1])


TEXT = PropType(Scalar.STRING)
ADD = steps.AddProperty(TypeKind.NODE, "T", "p", TEXT._replace(nullable=True)).to_json()
REQUIRE = steps.AddProperty(TypeKind.NODE, "T", "p", TEXT, "x").to_json()
ADD_TYPE = steps.AddType(TypeKind.EDGE, "E").to_json()
ADD_INTERFACE = steps.AddType(TypeKind.INTERFACE, "I").to_json()
DROP = steps.DropProperty(TypeKind.NODE, "T", "p").to_json()
DROP_TYPE = steps.DropType(TypeKind.NODE, "T").to_json()
RENAME = steps.RenameType(TypeKind.NODE, "T", "U").to_json()
WORDS = steps.UpdateTypeMetadata(TypeKind.NODE, "T", ()).to_json()
OTHER_WORDS = steps.UpdatePropertyMetadata(TypeKind.NODE, "T", "p", ()).to_json()
EXTEND = steps.ExtendEnum(TypeKind.NODE, "T", "p", ("a",)).to_json()


BETWEEN = b"the schema with what is added, and with what goes"


def change_of_classes(
    text: str, action: str, *found: dict[str, Any], supported: bool = True, expanded: bytes | None = None
) -> Change:
    kind = Action(action)
    preview = MigrationPreview(supported, found, expanded=expanded) if found else None
    before, after = None if kind is Action.CREATE else A, None if kind is Action.DELETE else B
    return Change(Address(text), kind, before, after, migration=preview)


@pytest.mark.parametrize(
    ("found", "effect"),
    [
        (change_of_classes("graph.kb", "create"), Effect.STAGE),
        (change_of_classes("graph.kb", "delete"), Effect.FINISH),
        (change_of_classes("schema.kb", "create"), Effect.STAGE),
        (change_of_classes("schema.kb", "delete"), Effect.COMMIT),
        (change_of_classes("schema.kb", "update", ADD, ADD_TYPE, WORDS), Effect.STAGE),
        (
            change_of_classes("schema.kb", "update", ADD, ADD_TYPE, WORDS, OTHER_WORDS),
            Effect.STAGE,
        ),
        (change_of_classes("schema.kb", "update", DROP), Effect.FINISH),
        (change_of_classes("schema.kb", "update", DROP, DROP_TYPE), Effect.FINISH),
        (change_of_classes("schema.kb", "update", ADD, DROP), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", ADD, DROP, expanded=BETWEEN), Effect.STAGE),
        (change_of_classes("schema.kb", "update", WORDS, DROP, DROP_TYPE, expanded=BETWEEN), Effect.STAGE),
        (change_of_classes("schema.kb", "update", RENAME, DROP, expanded=BETWEEN), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", EXTEND, DROP, expanded=BETWEEN), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", ADD_INTERFACE, DROP, expanded=BETWEEN), Effect.STAGE),
        (change_of_classes("schema.kb", "update", REQUIRE), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", RENAME), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", ADD_INTERFACE), Effect.STAGE),
        (change_of_classes("schema.kb", "update", EXTEND), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", {"kind": "of a later release"}), Effect.PIVOT),
        (change_of_classes("schema.kb", "update", ADD, supported=False), Effect.PIVOT),
        (change_of_classes("schema.kb", "update"), Effect.PIVOT),
        (change_of_classes("query.kb.find", "create"), Effect.STAGE),
        (change_of_classes("query.kb.find", "update"), Effect.STAGE),
        (change_of_classes("query.kb.find", "delete"), Effect.COMMIT),
        (change_of_classes("policy.open", "update"), Effect.STAGE),
        (change_of_classes("policy.open", "delete"), Effect.COMMIT),
        (change_of_classes("restore.kb", "create"), Effect.PIVOT),
        (change_of_classes("restore.kb", "update"), Effect.PIVOT),
        (change_of_classes("restore.kb", "delete"), Effect.COMMIT),
        (change_of_classes("trust.brain", "update"), Effect.COMMIT),
        (change_of_classes("cluster.brain", "update"), Effect.COMMIT),
    ],
)
def test_class_of_a_change(found: Change, effect: Effect) -> None:
    classified = effects_of([found])[found.address]
    assert classified.effect is effect
    assert classified.reason


def test_reason_of_a_pivot_names_the_steps_that_cannot_be_taken_back() -> None:
    found = change_of_classes("schema.kb", "update", ADD, RENAME, DROP)
    assert "drop_property, rename_type" in effects_of([found])[found.address].reason


def test_migration_in_halves_says_so_and_is_a_pivot_where_rows_are_restored() -> None:
    halved = change_of_classes("schema.kb", "update", ADD, DROP, expanded=BETWEEN)
    found = effects_of(
        [halved, change_of_classes("restore.other", "create"), change_of_classes("restore.kb", "delete")]
    )[halved.address]
    assert found == (Effect.STAGE, "it adds before the commit, and drops after it", digest(BETWEEN))
    restored = effects_of([halved, change_of_classes("restore.kb", "update")])[halved.address]
    assert (restored.effect, restored.expanded) == (Effect.PIVOT, None)


def test_migration_in_halves_is_two_nodes_of_an_atomic_run_and_one_of_another() -> None:
    changes = [
        change_of_classes("schema.kb", "update", ADD, DROP, expanded=BETWEEN),
        change_of_classes("query.kb.find", "update"),
    ]
    whole = plain_of_classes(changes, "query.kb.find -> schema.kb")
    assert sorted(order_of_classes(whole)) == ["query.kb.find", "schema.kb"]
    graph = atomic_graph(whole)
    assert order_of_classes(graph) == [
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
    changes = [
        change_of_classes("schema.kb", "update", ADD, DROP, expanded=BETWEEN),
        change_of_classes("graph.old", "delete"),
    ]
    behind = ExecEdge("graph.old", "schema.kb", "explicit_dependency")
    graph = atomic_graph(replace(plain_of_classes(changes), edges=(behind,)))
    found = {node.id: node for node in graph.nodes}
    assert (found["schema.kb"].effect, found["schema.kb"].expanded) == (Effect.FINISH, None)
    assert "drops.kb" not in found


def plain_of_classes(changes: list[Change], *links: str, recorded: tuple[str, ...] = ()) -> ExecutionGraph:
    desired, before = ([Dependency(*map(Address, each.split(" -> "))) for each in found] for found in (links, recorded))
    graph, problems = build_graph(changes, desired, before)
    assert problems == ()
    return with_effects(graph, effects_of(changes))


def order_of_classes(graph: ExecutionGraph) -> list[str]:
    return [node.id for node in sorted(graph.nodes, key=lambda node: node.position)]


def test_every_class_runs_between_its_barriers() -> None:
    changes = [
        change_of_classes("graph.new", "create"),
        change_of_classes("schema.new", "create"),
        change_of_classes("query.new.find", "create"),
        change_of_classes("schema.kb", "update", RENAME),
        change_of_classes("graph.old", "delete"),
        change_of_classes("schema.old", "delete"),
        change_of_classes("query.kb.gone", "delete"),
        change_of_classes("trust.brain", "update"),
    ]
    links = ("schema.new -> graph.new", "query.new.find -> schema.new")
    graph = atomic_graph(plain_of_classes(changes, *links, recorded=("schema.old -> graph.old",)))
    assert validate(graph) == ()
    assert order_of_classes(graph) == [
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
    assert tuple(order_of_classes(atomic_graph(ExecutionGraph()))) == BARRIERS


def test_text_is_published_before_what_cannot_be_taken_back() -> None:
    changes = [change_of_classes("schema.kb", "update", RENAME), change_of_classes("query.kb.find", "update")]
    graph = atomic_graph(plain_of_classes(changes, "query.kb.find -> schema.kb"))
    assert order_of_classes(graph)[:3] == ["query.kb.find", "barrier.prepared", "schema.kb"]
    assert not any(node.lifted for node in graph.nodes)


def test_text_waits_for_the_graph_that_it_is_for() -> None:
    changes = [
        change_of_classes("graph.kb", "create"),
        change_of_classes("schema.kb", "create"),
        change_of_classes("query.kb.find", "create"),
    ]
    graph = atomic_graph(plain_of_classes(changes, "query.kb.find -> graph.kb", "schema.kb -> graph.kb"))
    assert ("graph.kb", "query.kb.find") in {(edge.before, edge.after) for edge in graph.edges}


def test_policy_lets_go_of_a_deleted_graph_with_the_commit() -> None:
    changes = [change_of_classes("graph.old", "delete"), change_of_classes("policy.open", "update")]
    graph = atomic_graph(plain_of_classes(changes, recorded=("policy.open -> graph.old",)))
    assert order_of_classes(graph)[0] == "policy.open"
    assert order_of_classes(graph)[-2] == "graph.old"


def test_what_is_staged_and_needs_a_pivot_is_lifted_behind_the_first_barrier() -> None:
    changes = [
        change_of_classes("schema.kb", "update", RENAME),
        change_of_classes("graph.new", "create"),
        change_of_classes("graph.old", "delete"),
    ]
    graph = atomic_graph(plain_of_classes(changes, "graph.new -> schema.kb"))
    lifted = next(node for node in graph.nodes if node.id == "graph.new")
    assert (lifted.lifted, lifted.effect, lifted.phase) == (True, Effect.STAGE, Effect.PIVOT)
    assert order_of_classes(graph)[:4] == ["barrier.prepared", "schema.kb", "graph.new", "barrier.committed"]


def test_pivots_are_found_in_the_order_of_the_graph() -> None:
    changes = [
        change_of_classes(f"schema.{name}", "update", *steps)
        for name, steps in (("b", [RENAME]), ("a", [RENAME]), ("c", [ADD]))
    ]
    assert pivots(plain_of_classes(changes)) == ("schema.a", "schema.b")


def nodes(**classes: Effect) -> tuple[ExecNode, ...]:
    found = enumerate(classes.items())
    return tuple(ExecNode(name, "graph", Action.UPDATE, index, effect=effect) for index, (name, effect) in found)


def test_order_holds_across_what_only_the_commit_does() -> None:
    """A change without a node does not let the next one slip before the pivot that it needs."""
    chain = (ExecEdge("a", "b", "x"), ExecEdge("b", "c", "y"))
    graph = atomic_graph(ExecutionGraph(nodes(a=Effect.PIVOT, b=Effect.COMMIT, c=Effect.STAGE), chain))
    assert order_of_classes(graph)[:4] == ["barrier.prepared", "a", "c", "barrier.committed"]
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
