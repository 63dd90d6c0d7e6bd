"""Laws of the execution graph of a cluster, over random change sets: graphs that come, stay and go, policies that move, texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change, Effect
from gitops.cluster.model.plan import ExecutionGraph, LockClaim, NodeOutcome
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.classes import BARRIERS, atomic_graph, effects_of, with_effects
from gitops.cluster.plan.graph import BARRIER, PolicyBindings, build_graph, lock_claims
from gitops.cluster.plan.layers import layers, neighbours, restricted, validate
from gitops.database.graph.port import MigrationPreview
from gitops.render.graph import to_json, to_mermaid, to_text
from tests.property.test_scheduler_laws import Case, descendants, simulate

STEPS = ("add_property", "drop_property", "rename_type")
ACTIONS = st.sampled_from(["create", "update", "delete"])


@dataclass(frozen=True)
class ChangeSet:
    """What a planner knows when it makes an execution graph."""

    changes: tuple[Change, ...]
    desired: tuple[Dependency, ...]
    recorded: tuple[Dependency, ...]
    bindings: Mapping[Address, PolicyBindings]
    granted: Mapping[Address, tuple[str, ...]]

    def build(self) -> ExecutionGraph:
        locks = lock_claims(self.changes, self.bindings, self.granted, str)
        graph, problems = build_graph(self.changes, self.desired, self.recorded, bindings=self.bindings, locks=locks)
        assert problems == ()
        return with_effects(graph, effects_of(self.changes))


def change(text: str, action: str, content: str = "1", *steps: str) -> Change:
    before, after = None if action == "create" else "0", None if action == "delete" else content
    preview = MigrationPreview(True, tuple({"kind": step} for step in steps)) if steps else None
    return Change(Address(text), Action(action), before, after, migration=preview)


@st.composite
def change_sets(draw: st.DrawFn) -> ChangeSet:
    """Up to four graphs, each new, kept or gone, with queries of few contents, and three policies over them and the cluster."""
    changes: list[Change] = []
    links: dict[str, list[Dependency]] = {"desired": [], "recorded": []}
    fates: dict[str, str] = {}
    for graph in "abcd"[: draw(st.integers(0, 4))]:
        fate = fates[graph] = draw(ACTIONS)
        if fate != "update":
            changes.append(change(f"graph.{graph}", fate))
        for text in (f"schema.{graph}", *(f"query.{graph}.q{i}" for i in range(draw(st.integers(0, 3))))):
            schema = text.startswith("schema")
            choices = (
                [fate] if fate != "update" else ["update", "none"] if schema else ["create", "update", "delete", "none"]
            )
            action = draw(st.sampled_from(choices))
            if action != "none":
                steps = draw(st.sets(st.sampled_from(STEPS), min_size=1)) if schema and action == "update" else ()
                changes.append(change(text, action, draw(st.sampled_from("12")), *sorted(steps)))
            ends = [f"graph.{graph}"] if schema else [f"graph.{graph}", f"schema.{graph}"]
            found = [Dependency(Address(text), Address(end)) for end in ends]
            links["desired"] += found if action != "delete" else []
            links["recorded"] += found if action != "create" else []
    bindings: dict[Address, PolicyBindings] = {}
    for name in "pqr":
        action = draw(st.sampled_from(["create", "update", "delete", "none"]))
        if action == "none":
            continue
        policy = Address(f"policy.{name}")
        changes.append(change(policy, action))
        scopes = {"recorded": ["cluster"], "desired": ["cluster"]}
        scopes["recorded"] += [f"graph.{graph}" for graph, fate in fates.items() if fate != "create"]
        scopes["desired"] += [f"graph.{graph}" for graph, fate in fates.items() if fate != "delete"]
        bound = {side: tuple(sorted(draw(st.sets(st.sampled_from(each))))) for side, each in scopes.items()}
        before = () if action == "create" else bound["recorded"]
        after = () if action == "delete" else bound["desired"]
        bindings[policy] = PolicyBindings(before, after)
        links["recorded"] += [Dependency(policy, Address(scope)) for scope in before if scope != "cluster"]
        links["desired"] += [Dependency(policy, Address(scope)) for scope in after if scope != "cluster"]
    gone = [each.address for each in changes if each.address.kind is Kind.GRAPH and each.action is Action.DELETE]
    granted = {address: (f"01{address.name}",) for address in gone}
    return ChangeSet(tuple(changes), tuple(links["desired"]), tuple(links["recorded"]), bindings, granted)


def forms(graph: ExecutionGraph) -> tuple[str, ...]:
    return json.dumps(to_json(graph, "d")), to_text(graph), to_mermaid(graph), to_mermaid(graph, most=4, reasons=False)


@given(change_sets(), st.randoms(use_true_random=False))
def test_p12_and_p17_the_order_of_the_input_changes_no_form_of_the_graph(found: ChangeSet, chance: Any) -> None:
    mixed = {name: list(getattr(found, name)) for name in ("changes", "desired", "recorded")}
    for each in mixed.values():
        chance.shuffle(each)
    turned = dict(reversed(found.bindings.items()))
    other = replace(found, bindings=turned, **{name: tuple(each) for name, each in mixed.items()})
    assert other.build() == found.build()
    assert layers(other.build()) == layers(found.build())
    for graph, again in ((found.build(), other.build()), (atomic_graph(found.build()), atomic_graph(other.build()))):
        assert forms(graph) == forms(again)


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25), st.sets(st.integers(0, 9)))
def test_p14_what_does_not_change_keeps_the_order_of_what_does(pairs: set[tuple[int, int]], kept: set[int]) -> None:
    links = [Dependency(Address(f"query.g.q{max(p)}"), Address(f"query.g.q{min(p)}")) for p in pairs if p[0] != p[1]]
    changes = [change(f"query.g.q{i}", "update") for i in range(10)]
    whole, _ = build_graph(changes, links, ())
    part, _ = build_graph([changes[i] for i in sorted(kept)], links, ())
    names = {f"query.g.q{i}" for i in kept}
    for name in names:
        assert descendants(part, [name]) == descendants(whole, [name]) & names
    assert {(e.before, e.after) for e in part.edges} == {(e.before, e.after) for e in restricted(whole, names).edges}


@given(change_sets(), st.integers(1, 8), st.data())
def test_p15_another_lock_changes_no_end(found: ChangeSet, workers: int, data: st.DataObject) -> None:
    graph = found.build()
    ids = [node.id for node in graph.nodes]
    held = data.draw(st.sets(st.sampled_from(ids))) if ids else set()
    locked = tuple(
        replace(node, locks=(*node.locks, LockClaim("zz:another"))) if node.id in held else node for node in graph.nodes
    )
    calm = dict.fromkeys(ids, 1), dict.fromkeys(ids, NodeOutcome.DONE)
    free = simulate(Case(graph, *calm), workers).results
    assert simulate(Case(replace(graph, nodes=locked), *calm), workers).results == free


@given(change_sets())
def test_p21_barriers_close_no_cycle_and_the_class_never_decreases(found: ChangeSet) -> None:
    graph = found.build()
    assert validate(graph) == ()
    atomic = atomic_graph(graph)
    assert validate(atomic) == ()
    nodes = {node.id: node for node in atomic.nodes}
    for edge in atomic.edges:
        if edge.before not in BARRIERS and edge.after not in BARRIERS:
            assert nodes[edge.before].phase.rank <= nodes[edge.after].phase.rank
    gone = {address for address in found.granted if address in nodes}
    assert all(nodes[address].effect is Effect.FINISH for address in gone)
    assert {edge.detail for edge in atomic.edges if edge.reason == "approval_gate"} == {f"01{a.name}" for a in gone}


@given(change_sets())
def test_who_takes_a_scope_comes_after_who_lets_go_of_it_unless_they_wait_for_each_other(found: ChangeSet) -> None:
    graph = found.build()
    wanted = {
        (giver, taker)
        for (giver, gives), (taker, takes) in product(found.bindings.items(), repeat=2)
        if gives.released & takes.taken
    }
    guarding = {edge.after for edge in graph.edges if edge.reason == "policy_guard"}
    ordered = {(edge.before, edge.after) for edge in graph.edges if edge.reason == "scope_handover"}
    assert ordered <= wanted
    after = {giver: {taker for other, taker in wanted if other == giver} for giver in found.bindings}
    made = {c.address for c in found.changes if c.address.kind is Kind.GRAPH and c.action is Action.CREATE}
    for giver, taker in wanted - ordered:
        waits, pending = set(), [taker]
        while pending:
            new = after[pending.pop()] - waits
            waits |= new
            pending += new
        new = made.intersection(found.bindings[taker].declared)
        assert giver in waits or (giver in guarding and new)


@given(change_sets())
def test_nodes_meet_at_a_lock_only_where_they_touch_the_same_thing(found: ChangeSet) -> None:
    graph = found.build()
    claims = {node.id: {claim.key for claim in node.locks} for node in graph.nodes}
    contents = {c.address: c.after for c in found.changes}
    for one, other in product(claims, repeat=2):
        shared = {key.partition(":")[0] for key in claims[one] & claims[other]} if one < other else set()
        for kind in shared:
            pair = Address(one), Address(other)
            if kind == "blob":
                assert contents[pair[0]] == contents[pair[1]]
            elif kind == "policy-scope":
                assert pair[0].kind is pair[1].kind is Kind.POLICY
            else:
                assert kind == "graph"
                graphs = [
                    {a.graph} if a.graph else {Address(s).graph for s in found.bindings[a].declared} for a in pair
                ]
                assert graphs[0] & graphs[1]
    assert claims.get(BARRIER, {"ledger"}) == {"ledger"}


@given(change_sets())
def test_a_query_reaches_its_graph_by_one_way_only(found: ChangeSet) -> None:
    """Where its schema changes too, it is between them."""
    graph = found.build()
    after, before = neighbours(graph)
    for name in before:
        address = Address(name)
        if address.kind is not Kind.QUERY or address.graph_address not in before:
            continue
        direct = address.graph_address in (*before[name], *after[name])
        assert direct is (address.schema_address not in before)
        assert address.graph_address in {*descendants(graph, [name])} or name in descendants(
            graph, [address.graph_address]
        )
