"""Laws of plans: execution graphs, classes of change, impact, and the draft of a state."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.address import Address, Kind, graph_address, query_address, schema_address
from gitops.cluster.model.change import Action, Change, Effect
from gitops.cluster.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, NodeOutcome
from gitops.cluster.model.resource import Dependency, graph_composite
from gitops.cluster.plan.classes import BARRIERS, COMMITTED, DRAINED, PREPARED, atomic_graph, effects_of, with_effects
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.plan.graph import BARRIER, PolicyBindings, build_graph, lock_claims
from gitops.cluster.plan.impact import step_subjects, used_subjects
from gitops.cluster.plan.layers import layers, neighbours, order_test, restricted, serial_order, transposed, validate
from gitops.database.graph.port import MigrationPreview
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.text import LanguageError
from gitops.render.graph import to_json, to_mermaid, to_text
from tests.property.test_scheduler_laws import Case, descendants, graphs, simulate
from tests.support.cases import read_yaml
from tests.support.effort import cases
from tests.support.impact import desired, impact_of, planned

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


def _reached(graph: ExecutionGraph) -> dict[str, set[str]]:
    after, _ = neighbours(graph)
    found: dict[str, set[str]] = {}
    for name in reversed(serial_order(graph)):
        found[name] = {other for target in after[name] for other in ({target} | found[target])}
    return found


@settings(max_examples=cases(40))
@given(graphs(largest=12))
def test_the_transpose_of_the_transpose_is_the_graph(graph: ExecutionGraph) -> None:
    assert transposed(transposed(graph)) == graph


@settings(max_examples=cases(40))
@given(graphs(largest=12))
def test_what_depends_on_a_change_is_undone_before_it(graph: ExecutionGraph) -> None:
    back = serial_order(transposed(graph))
    assert sorted(back) == sorted(node.id for node in graph.nodes)
    place = {name: at for at, name in enumerate(back)}
    assert all(place[edge.after] < place[edge.before] for edge in graph.edges)


@settings(max_examples=cases(40))
@given(graphs(largest=12), st.data())
def test_what_is_left_out_loses_no_order_and_adds_none(graph: ExecutionGraph, data: st.DataObject) -> None:
    keep = set(data.draw(st.lists(st.sampled_from([n.id for n in graph.nodes]), unique=True))) if graph.nodes else set()
    kept = restricted(graph, keep)
    assert [node for node in graph.nodes if node.id in keep] == list(kept.nodes)
    direct = {(edge.before, edge.after) for edge in graph.edges}
    for edge in kept.edges:
        between = edge.detail.split(" > ") if edge.reason == "via_unchanged" else []
        assert keep.isdisjoint(between)
        assert direct.issuperset(pairwise([edge.before, *between, edge.after]))
    before, after = _reached(graph), _reached(kept)
    assert {name: reached & keep for name, reached in before.items() if name in keep} == after
    assert transposed(transposed(kept)) == kept
    assert _reached(transposed(kept)) == _reached(restricted(transposed(graph), keep))


@settings(max_examples=cases(20))
@given(graphs(largest=12))
def test_nothing_changes_if_all_is_kept(graph: ExecutionGraph) -> None:
    assert restricted(graph, {node.id for node in graph.nodes}) == graph


@settings(max_examples=cases(40))
@given(graphs(largest=12))
def test_two_nodes_are_ordered_if_one_reaches_the_other(graph: ExecutionGraph) -> None:
    behind, ordered = _reached(graph), order_test(graph)
    for one, other in product(behind, repeat=2):
        assert ordered(one, other) is (one in behind[other] or other in behind[one])


KINDS = ("graph", "schema", "query", "policy")


@st.composite
def graphs_of_class_laws(draw: st.DrawFn) -> ExecutionGraph:
    """Acyclic, with every class anywhere: also where no plan of today puts it."""
    count = draw(st.integers(0, 14))
    effects = [draw(st.sampled_from(list(Effect))) for _ in range(count)]
    nodes = tuple(
        ExecNode(
            f"n{index:02}",
            draw(st.sampled_from(KINDS)),
            Action.UPDATE,
            index,
            effect=effect,
            expanded="d" * 64 if effect is Effect.STAGE and draw(st.booleans()) else None,
        )
        for index, effect in enumerate(effects)
    )
    pairs = draw(st.sets(st.tuples(st.integers(0, 13), st.integers(0, 13)), max_size=30))
    edges = {ExecEdge(f"n{a:02}", f"n{b:02}", "reference") for a, b in pairs if a < b < count}
    return ExecutionGraph(nodes, tuple(sorted(edges)))


@given(graphs_of_class_laws())
def test_class_never_decreases_along_an_edge_and_barriers_close_no_cycle(graph: ExecutionGraph) -> None:
    found = atomic_graph(graph)
    assert validate(found) == ()
    nodes = {node.id: node for node in found.nodes}
    for edge in found.edges:
        if edge.before not in BARRIERS and edge.after not in BARRIERS:
            assert nodes[edge.before].phase.rank <= nodes[edge.after].phase.rank
    assert [node.position for node in found.nodes] == list(range(len(nodes)))
    assert list(serial_order(found)) == [node.id for node in found.nodes]


@given(graphs_of_class_laws())
def test_nothing_finishes_before_the_commit_and_nothing_is_staged_behind_it(graph: ExecutionGraph) -> None:
    found = atomic_graph(graph)
    order = list(serial_order(found))
    before = {barrier: order[: order.index(barrier)] for barrier in BARRIERS}
    for node in found.nodes:
        if node.id in BARRIERS:
            continue
        assert (node.id in before[PREPARED]) == (node.phase is Effect.STAGE)
        assert (node.id in before[COMMITTED]) == (node.phase is not Effect.FINISH)
        assert (node.id in before[DRAINED]) == (node.phase is not Effect.FINISH)
        # What is taken back if the run fails is never behind the commit.
        assert not node.lifted or node.effect is Effect.STAGE
    # The rest of what is staged in halves, and of nothing else, is behind the commit.
    halved = {node.id for node in found.nodes if node.expanded is not None}
    assert halved == {node.of for node in found.nodes if node.of}
    assert all(
        node.effect is (Effect.FINISH if node.of else Effect.STAGE) for node in found.nodes if node.of or node.expanded
    )


@given(graphs_of_class_laws(), st.randoms(use_true_random=False))
def test_order_of_the_input_does_not_matter(graph: ExecutionGraph, chance: object) -> None:
    nodes, edges = list(graph.nodes), list(graph.edges)
    chance.shuffle(nodes)  # type: ignore[attr-defined]
    chance.shuffle(edges)  # type: ignore[attr-defined]
    assert atomic_graph(replace(graph, nodes=tuple(nodes), edges=tuple(edges))) == atomic_graph(graph)


DATA = pathlib.Path(__file__).parents[1] / "data" / "languages" / "query"
RAIL = compile_schema((DATA / "rail.pg").read_bytes()).catalog
SEEDS = [path.read_bytes().strip() for path in sorted(DATA.glob("seeds/*.gq"))]
WORDS = (DATA / "seeds" / "words.txt").read_text("utf-8").split()

TYPES = ("Ant", "Bee", "Cat")
NAMES = ("alpha", "beta", "gamma", "delta")
EDGES = {"Likes": ("Ant", "Bee"), "Chases": ("Cat", "Bee"), "Meets": ("Ant", "Ant")}


def checked(source: bytes):
    """Every query of the text that is sound."""
    try:
        parsed = parse_queries(source)
    except LanguageError:
        return
    for query in parsed:
        try:
            yield check_query(query, RAIL)
        except LanguageError:
            continue


def assert_same_properties(source: bytes) -> int:
    found = list(checked(source))
    for query in found:
        subjects = used_subjects(query)
        named = {(s.type_name, s.property_name) for s in subjects if s.property_name is not None}
        assert named == query.uses
        # Whoever uses a property uses its type, and reads or writes it.
        assert {name for name, _ in named} <= {s.type_name for s in subjects if s.property_name is None}
        assert all(use.reads or use.writes for use in subjects.values())
        touched = {(access.kind.value, access.type_name) for access in (*query.reads, *query.writes)}
        assert {(s.kind, s.type_name) for s in subjects} <= touched
    return len(found)


def test_of_every_sound_example_the_properties_are_those_that_the_checker_saw():
    examples = read_yaml(DATA / "accepted.yaml")
    texts = [case["text"].encode() for case in examples]
    assert sum(map(assert_same_properties, [*SEEDS, *texts])) > len(SEEDS)


@settings(max_examples=cases(200))
@given(st.sampled_from(SEEDS), st.data())
def test_of_every_sound_mutation_too(seed: bytes, data: st.DataObject) -> None:
    words = seed.split(b" ")
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] = data.draw(st.sampled_from([b"", *[word.encode() for word in WORDS], *words]))
    assert_same_properties(b" ".join(words))


@st.composite
def _schemas(draw: st.DrawFn) -> tuple[str, str]:
    """Before and after: properties stay, go, come, are renamed or get an index; a type may be renamed."""
    renamed = draw(st.sampled_from([None, *TYPES]))
    new = {name: "Dog" if name == renamed else name for name in TYPES}
    before, after = [], []
    for name in TYPES:
        old_lines, new_lines = ["handle: String @key"], ["handle: String @key"]
        for each in NAMES:
            fate = draw(st.sampled_from(["absent", "kept", "kept", "dropped", "added", "renamed", "indexed"]))
            if fate not in ("absent", "added"):
                old_lines.append(f"{each}: I32?")
            if fate in ("kept", "added", "indexed"):
                new_lines.append(f"{each}: I32?{' @index' if fate == 'indexed' else ''}")
            if fate == "renamed":
                new_lines.append(f'{each}_now: I32? @rename_from("{each}")')
        hint = f' @rename_from("{name}")' if name == renamed else ""
        before.append(f"node {name} {{ {' '.join(old_lines)} }}")
        after.append(f"node {new[name]}{hint} {{ {' '.join(new_lines)} }}")
    for edge, (source, target) in EDGES.items():
        before.append(f"edge {edge}: {source} -> {target}")
        after.append(f"edge {edge}: {new[source]} -> {new[target]}")
    return "\n".join(before), "\n".join(after)


@st.composite
def _queries(draw: st.DrawFn, schema: str) -> dict[str, str]:
    """Sound queries of a schema: reads over a node or an edge, updates and deletes."""
    catalog, found = compile_schema(schema.encode()).catalog, {}
    for number in range(draw(st.integers(0, 5))):
        name, node = f"q{number}", draw(st.sampled_from(sorted(catalog.nodes)))
        shape = draw(st.sampled_from(["node", "edge", "update", "delete"]))
        pick = st.sampled_from(sorted(catalog.nodes[node].properties))
        if shape == "node":
            body = f"match {{ $a: {node} }} return {{ $a.{draw(pick)}, $a.{draw(pick)} as other }}"
        elif shape == "edge":
            edge = draw(st.sampled_from(sorted(catalog.edges)))
            target = catalog.nodes[catalog.edges[edge].target]
            shown = draw(st.sampled_from(sorted(target.properties)))
            body = f"match {{ $a {edge.lower()} $b }} return {{ $b.{shown} }}"
        elif shape == "update":
            written = draw(st.sampled_from([p for p in catalog.nodes[node].properties if p != "handle"] or [None]))
            assigned = "handle: $h" if written is None else f"{written}: 1"
            body = f"{shape} {node} set {{ {assigned} }} where handle = $h"
        else:
            body = f"{shape} {node} where handle = $h"
        found[f"{name}.gq"] = f"query {name}($h: String) {{ {body} }}"
    return found


@settings(max_examples=cases(150), deadline=None)
@given(st.data())
def test_no_query_is_listed_that_names_neither_the_subject_nor_anything_bound_to_its_type(data: st.DataObject) -> None:
    old, new = data.draw(_schemas())
    before, after = data.draw(_queries(old)), data.draw(_queries(new))
    plan = planned(desired(old, before), desired(new, after))
    change = plan.change(Address("schema.g"))
    if change is None:
        return
    said = {name: f"{before.get(name, '')} {after.get(name, '')}" for name in {*before, *after}}
    ends = {edge: {*pair} for edge, pair in EDGES.items()}
    subjects = step_subjects(change.migration.steps)
    for about, queries in zip(subjects, impact_of(plan).queries, strict=True):
        for touch in queries:
            words = set(re.findall(r"\w+", said[touch.query.rpartition(".")[2] + ".gq"]))
            assert any(_named(subject, words, ends) for subject in about.before | about.after)


def _named(subject, words: set[str], ends: dict[str, set[str]]) -> bool:
    if subject.property_name is not None:
        return subject.property_name in words
    # A variable is bound to a type by its name, or as the end of a hop over an edge that the text names.
    bound = any(edge.lower() in words for edge, types in ends.items() if types & {subject.type_name, *_former(subject)})
    return subject.type_name in words or bound


def _former(subject) -> set[str]:
    """The one type that may have become `Dog` is not told by its name: any end will do."""
    return set(TYPES) if subject.type_name == "Dog" else set()


GRAPHS = ("g", "g_a", "h")
STATE_DRAFT_LAWS_NAMES = ("a", "b", "g")
ADDRESSES = (
    *(make(graph) for make in (graph_address, schema_address) for graph in GRAPHS),
    *(query_address(graph, name) for graph in GRAPHS for name in STATE_DRAFT_LAWS_NAMES),
    Address("policy.g"),
    Address("pipeline.g"),
    Address("query."),
)
DIGESTS = st.sampled_from("123")
STATES = st.builds(
    lambda resources, statuses: LedgerState(
        revision=3,
        resources={t: AppliedResource(d * 64) for t, d in resources.items()},
        statuses={t: StatusRecord(Status.APPLIED) for t in statuses},
        observations={Address("graph.old"): {"kind": "tombstone"}},
    ),
    st.dictionaries(st.sampled_from(ADDRESSES), DIGESTS),
    st.sets(st.sampled_from(ADDRESSES)),
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(ADDRESSES), DIGESTS),
        st.tuples(st.just("drop"), st.sampled_from(ADDRESSES), st.none()),
        st.tuples(st.just("mark"), st.sampled_from(ADDRESSES), st.booleans()),
        st.tuples(st.just("renew"), st.sampled_from(GRAPHS), st.booleans()),
        st.tuples(st.just("remove"), st.sampled_from(GRAPHS), st.none()),
    ),
    max_size=12,
)


def owned(text: str, graph: str) -> bool:
    return text in (f"graph.{graph}", f"schema.{graph}") or text.startswith(f"query.{graph}.")


def composite(resources: dict[str, AppliedResource], graph: str) -> AppliedResource:
    """By the definition, from everything that is recorded."""
    prefix = f"query.{graph}."
    schema = resources.get(f"schema.{graph}")
    queries = {text[len(prefix) :]: r.digest for text, r in resources.items() if text.startswith(prefix)}
    return AppliedResource(graph_composite(graph, "" if schema is None else schema.digest, queries))


@given(STATES, EDITS)
def test_a_draft_is_the_same_as_edits_of_the_whole(state, edits):
    draft = StateDraft(state)
    resources, statuses, observations = dict(state.resources), dict(state.statuses), dict(state.observations)
    for what, where, how in edits:
        if what == "put":
            draft.put(where, AppliedResource(how * 64))
            resources[where] = AppliedResource(how * 64)
        elif what == "drop":
            draft.drop(where)
            resources.pop(where, None)
        elif what == "mark":
            record = StatusRecord(Status.BLOCKED) if how else None
            draft.mark(where, record)
            statuses = {t: s for t, s in statuses.items() if t != where} | ({where: record} if record else {})
        elif what == "renew":
            draft.renew(where, create=how)
            if how or f"graph.{where}" in resources:
                resources[f"graph.{where}"] = composite(resources, where)
        else:
            draft.remove_graph(where, at="now", approval_id=None, actor="ann")
            resources = {t: r for t, r in resources.items() if not owned(t, where)}
            statuses = {t: s for t, s in statuses.items() if not owned(t, where)}
            observations[f"graph.{where}"] = {
                "kind": "tombstone",
                "deleted_at": "now",
                "approval_id": None,
                "actor": "ann",
            }
        assert dict(draft.resources) == resources
    found = draft.state()
    assert (dict(found.resources), dict(found.statuses)) == (resources, statuses)
    assert (dict(found.observations), found.revision) == (observations, state.revision)


@given(STATES, EDITS)
def test_the_state_that_a_draft_starts_with_is_never_edited(state, edits):
    before = (dict(state.resources), dict(state.statuses), dict(state.observations))
    draft = StateDraft(state)
    for what, where, how in edits:
        if what == "put":
            draft.put(where, AppliedResource(how * 64))
        elif what == "remove":
            draft.remove_graph(where, at="now", approval_id=None, actor=None)
        else:
            draft.mark(where, None)
    draft.use_approvals(["a"], {"consumed_at": "now"})
    draft.record_recovery("o", {"outcome": "rolled_forward"})
    assert (dict(state.resources), dict(state.statuses), dict(state.observations)) == before
    assert (dict(state.approval_records), dict(state.recovery_records)) == ({}, {})
