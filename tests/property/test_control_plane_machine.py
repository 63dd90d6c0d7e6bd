"""Machines of a control plane: any order of verbs, also with caches that stay warm.

Any history of a cluster ends well: edits, damage, crashes and verbs in any order, against a reference model.

Every run is held to the laws and forecasts of `tests.support.control_model`. At the end a person clears away what only a person
may; then one refresh and one apply converge.

Law: what is remembered changes how long a load takes, and nothing else. Poison is never more than wrong advice.

What a ledger vouches for is a fact where it is about the very files of the folder, and has no effect where it is not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.sound import (
    ComparedFolder,
    LedgerGraphs,
    PlainFolder,
    SoundRecord,
    VouchedGraphs,
    sound_record,
)
from gitops.cluster.config.source import MemoryTree, SourceLimits, StampedTree
from gitops.cluster.ledger.documents import read_state, write_state
from gitops.cluster.ledger.layout import STATE, intent_key
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import IntentKind
from tests.support.cluster import codes
from tests.support.control_model import sha
from tests.support.effort import FULL, cases
from tests.support.held_cluster import GRAPHS, LONGEST_CUT, HeldCluster
from tests.support.interrupted import Ending
from tests.support.warm import cold, difference, shown, warm

_PERSON = "node Person {{\n  handle: String @key\n{}}}\n"
SCHEMAS = {
    "plain": _PERSON.format("  born: I32?\n"),
    "wider": _PERSON.format("  born: I32?\n  city: String?\n"),
    "renamed": _PERSON.format('  birth: I32? @rename_from("born")\n'),
    "narrower": _PERSON.format(""),
    "commented": "// people, living and dead\n" + _PERSON.format("  born: I32?\n"),
    "retyped": _PERSON.format("  born: String?\n"),
    "more": _PERSON.format("  born: I32?\n") + "node Place {\n  name: String @key\n}\n",
}
QUERY = "// {}\nquery {}($h: String) {{\n  match {{ $p: Person {{ handle: $h }} }}\n  return {{ $p.handle }}\n}}\n"


def move(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


graphs = st.sampled_from(GRAPHS)
schemas = st.sampled_from(sorted(SCHEMAS))
variants = st.sampled_from("ab")
bindings = st.lists(st.sampled_from((*GRAPHS, "cluster")), min_size=1, max_size=3)
some = st.integers(0, 9)
edits = st.one_of(
    move("declare", graphs, schemas),
    move("declare", graphs, schemas),
    move("withdraw", graphs),
    move("edit_query", graphs, st.sampled_from(("find", "list")), st.none() | variants),
    move("edit_policy", st.sampled_from(("base", "wide")), st.none() | variants, bindings),
    move("rename_cluster", some),
)
damages = st.one_of(
    move("damage_root", graphs, st.sampled_from(("gone", "partial", "unseen", "seen"))),
    move("change_root", graphs, schemas),
    move("damage_blob", some, st.sampled_from((None, b"damaged", b"\xff"))),
    move("leave_lock"),
    move("leave_sidecar", graphs, st.sampled_from(IntentKind), schemas, st.booleans()),
    move("bring_back_sidecar", some),
)
# Between a decision and its execution mostly nothing happens.
moments = st.just(()) | st.just(()) | st.tuples(edits | damages)
blunders = st.one_of(move("break_config"), move("unlock_another"), move("leave_unusable_sidecars"))
workers = st.sampled_from((1, 4))
# How a run ends, and at which of its ticks (see `tests.support.interrupted`).
endings = st.sampled_from((Ending.WELL, Ending.DEATH, Ending.FAILURE))
bad_endings = st.sampled_from((Ending.DEATH, Ending.DEATH, Ending.FAILURE, Ending.WELL))
cuts = st.integers(0, LONGEST_CUT - 1)


class ControlPlane(RuleBasedStateMachine):
    """A cluster in the hands of many people, some of them careless."""

    def __init__(self, folder: Path, *, memory: bool) -> None:
        """In a folder of its own."""
        super().__init__()
        self.held = HeldCluster(folder, memory=memory)
        self.bench = self.held.bench

    @initialize(names=st.sets(graphs, min_size=1), schema=schemas, query=variants, started=some)
    def begin(self, names: set[str], schema: str, query: str, started: int) -> None:
        for name in sorted(names):
            self.declare(name, schema)
            self.edit_query(name, "find", query)
        if started:
            self.bench.converge()

    # Steps.

    @rule(todo=st.lists(edits, min_size=1, max_size=3), count=workers, ending=bad_endings, cut=cuts)
    def change(self, todo: list[tuple[Any, ...]], count: int, ending: Ending, cut: int) -> None:
        self.do(*todo)
        if self.held.look().state is None:
            self.held.observe(self.bench.import_)
        self.held.apply(count, ending, cut)

    @rule(todo=st.lists(damages, max_size=2), count=workers, ending=endings, cut=cuts)
    def suffer(self, todo: list[tuple[Any, ...]], count: int, ending: Ending, cut: int) -> None:
        self.do(*todo)
        self.held.apply(count, ending, cut)

    @rule(todo=st.lists(edits | damages | blunders, max_size=2), ending=endings, cut=cuts)
    def observe(self, todo: list[tuple[Any, ...]], ending: Ending, cut: int) -> None:
        """Refresh, or import where there is no ledger; the other one has nothing to do."""
        self.do(*todo)
        verbs = (self.bench.import_, self.bench.refresh)
        first, second = verbs if self.held.look().state is not None else verbs[::-1]
        self.held.observe(first)
        self.held.observe(second, ending, cut)

    @rule(todo=edits | damages | blunders)
    def leave_it(self, todo: tuple[Any, ...]) -> None:
        self.do(todo)

    @rule(graph=graphs, ending=endings, cut=cuts)
    def approve(self, graph: str, ending: Ending, cut: int) -> None:
        self.held.approve(graph, ending, cut)

    @rule(pick=some, between=moments, count=workers, ending=bad_endings, cut=cuts)
    def delete(self, pick: int, between: tuple[Any, ...], count: int, ending: Ending, cut: int) -> None:
        """Remove a graph with an approval; what happens in between may make it stale."""
        recorded = self.held.recorded_graphs()
        if recorded:
            graph = recorded[pick % len(recorded)]
            self.held.withdraw(graph)
            self.held.approve(graph)
            self.do(*between)
            self.held.apply(count, ending, cut)

    @rule(pick=some, count=workers, what=st.sampled_from(("nothing", "approvals", "sidecar")))
    def return_and_leave(self, pick: int, count: int, what: str) -> None:
        """A graph goes with an approval, returns just as it was, and goes again, now without one.

        In between a backup brings back the approvals as they were, or the sidecar of the first delete and an older world.
        """
        held, recorded = self.held, self.held.recorded_graphs()
        if not recorded:
            return
        graph = recorded[pick % len(recorded)]
        held.withdraw(graph)
        held.approve(graph)
        held.apply(count)
        held.declare(graph)
        held.apply(count)
        if what == "approvals":
            held.bring_back_approvals()
        elif what == "sidecar":
            held.plant_sidecar(graph, IntentKind.GRAPH_DELETE, "", approved=True)
            self.damage_root(graph, "gone")
            held.apply(count)
        held.withdraw(graph)
        held.apply(count)

    @rule(count=workers)
    def apply_until_nothing_moves(self, count: int) -> None:
        # A root that is in the way is found once per graph; then there is nothing left to try.
        for _ in range(len(GRAPHS) + 3):
            empty = self.held.plans_nothing()
            outcome = self.held.apply(count)
            assert outcome is not None
            # A create that fails again writes nothing; the recovery of the next run may still record what it finds.
            if outcome.ok and not outcome.state_written:
                break
            if empty:
                before = self.held.look()
                self.held.apply(count)
                # A graph whose interrupted create is not settled gets a new fence each time, which is a version.
                assert replace(self.held.look(), births=before.births) == before
        before = self.held.look()
        outcome = self.held.apply(count)
        assert outcome is not None
        assert not outcome.state_written
        assert self.held.look().files.get(STATE) == before.files.get(STATE)

    @rule(corrupt=st.booleans(), ending=endings, cut=cuts)
    def lose_ledger(self, corrupt: bool, ending: Ending, cut: int) -> None:
        if corrupt and not self.bench.locked:
            self.bench.plant(STATE, b"{")
            before = self.bench.world()
            for verb in (self.bench.apply, self.bench.refresh, self.bench.import_):
                assert "invalid_state_json" in codes(verb())
            assert self.bench.world() == before
        self.bench.plant(STATE, None)
        self.held.history.lost(self.held.look())
        self.held.apply(1)
        self.held.observe(self.bench.import_, ending, cut)

    @invariant()
    def looking_changes_nothing(self) -> None:
        before = self.held.look()
        if before.state is not None:
            document = before.files[STATE]
            assert write_state(read_state(document)) == document
        reported = self.bench.status()
        assert reported.observations.held.held is before.locked
        planned = self.bench.plan()
        assert ("state_lock_held" in codes(planned)) is before.locked
        assert self.held.look() == before

    def teardown(self) -> None:
        """A person clears away what only a person may; then one refresh and one apply converge."""
        bench, held = self.bench, self.held
        held.clear_away()
        held.observe(bench.refresh)
        planned = bench.plan().plan
        assert planned is not None
        for gate in planned.approvals_required:
            held.approve(gate.resource.removeprefix("graph."))
        outcome = held.apply(1)
        assert outcome is not None
        assert outcome.ok
        assert outcome.converged
        assert held.plans_nothing()
        now = held.look()
        declared = {g: (bench.folder / f"{g}.pg").read_bytes() for g in bench.graphs}
        assert {g: now.live.get(g) for g in declared} == declared
        assert now.sidecars == {}
        assert set(codes(bench.status())) <= {"cluster_recovery_pending"}
        again = held.apply(4)
        assert again is not None
        assert not again.state_written
        assert held.look() == now

    # Edits.

    def do(self, *todo: tuple[Any, ...]) -> None:
        for name, *arguments in todo:
            getattr(self, name)(*arguments)

    def declare(self, graph: str, schema: str) -> None:
        self.held.declare(graph, SCHEMAS[schema])

    def withdraw(self, graph: str) -> None:
        self.held.withdraw(graph)

    def edit_query(self, graph: str, query: str, variant: str | None) -> None:
        if graph not in self.bench.graphs:
            return
        self.bench.graphs[graph].pop(query, None)
        if variant is not None:
            self.bench.graphs[graph][query] = f"{graph}_{query}.gq"
            self.bench.write(f"{graph}_{query}.gq", QUERY.format(variant, query))
        self.bench.save()

    def edit_policy(self, policy: str, variant: str | None, bound: list[str]) -> None:
        self.bench.policies.pop(policy, None)
        if variant is not None:
            declared = [b for b in bound if b == "cluster" or b in self.bench.graphs]
            self.bench.bind(policy, declared or ["cluster"])
            self.bench.write(f"{policy}.policy.yaml", f"version: 1\nrules: []\n# {variant}\n")
        self.bench.save()

    def rename_cluster(self, turn: int) -> None:
        self.bench.options["metadata"] = {"name": f"library {turn}"}
        self.bench.save()

    # Damage and blunders.

    def damage_root(self, graph: str, how: str) -> None:
        twin, uri = self.bench.twin, self.bench.uri(graph)
        if how == "gone":
            twin.vanish(uri)
        elif how == "partial":
            twin.leave_partial_root(uri)
        elif how == "unseen":
            twin.lose_sight_of(uri)
        else:
            twin.see_again()

    def change_root(self, graph: str, schema: str) -> None:
        """Somebody makes or migrates a graph by hand."""
        self.bench.twin.change(self.bench.uri(graph), SCHEMAS[schema].encode())

    def damage_blob(self, pick: int, data: bytes | None) -> None:
        keys = self.bench.files("__cluster/resources")
        if keys:
            self.bench.plant(keys[pick % len(keys)], data)

    def leave_lock(self) -> None:
        if not self.bench.locked:
            self.bench.hold_lock()

    def leave_sidecar(self, graph: str, kind: IntentKind, schema: str, approved: bool) -> None:
        self.held.plant_sidecar(graph, kind, sha(SCHEMAS[schema].encode()), approved=approved)

    def bring_back_sidecar(self, pick: int) -> None:
        self.held.bring_back_sidecar(pick)

    def leave_unusable_sidecars(self) -> None:
        self.bench.plant(intent_key("01JZ0000000000000000000YYX"), b"{")
        self.bench.plant(intent_key("01JZ0000000000000000000YYY"), b'{"schema_version": 2}')

    def unlock_another(self) -> None:
        before = self.held.look()
        for other in ("01JZ0000000000000000000ZZZ", "", "x"):
            outcome = self.bench.unlock(other)
            assert codes(outcome) == ["state_lock_id_mismatch" if before.locked else "state_lock_missing"]
        assert self.held.look() == before

    def break_config(self) -> None:
        good = (self.bench.folder / "cluster.yaml").read_text()
        self.bench.write("cluster.yaml", good + "\nsurprise: 1\n")
        before = self.held.look()
        approve = partial(self.bench.approve, "graph.alpha")
        for verb in (self.bench.apply, self.bench.refresh, self.bench.import_, approve):
            assert not verb().ok
        assert self.held.look() == before
        self.bench.write("cluster.yaml", good)


def play(tmp_path: Path, ledger: str, examples: int) -> None:
    numbers = itertools.count()
    run_state_machine_as_test(
        lambda: ControlPlane(tmp_path / str(next(numbers)), memory=ledger == "memory"),
        settings=settings(
            max_examples=examples,
            derandomize=not FULL,
            stateful_step_count=25,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


EXAMPLES = {"folder": 2, "memory": 4}
MANY = {"folder": 200, "memory": 400}


@pytest.mark.parametrize("ledger", EXAMPLES)
def test_any_history_ends_converged(tmp_path: Path, ledger: str) -> None:
    play(tmp_path, ledger, EXAMPLES[ledger])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ledger", MANY)
def test_any_of_many_histories_ends_converged(tmp_path: Path, ledger: str) -> None:
    play(tmp_path, ledger, MANY[ledger])


_PG = [
    b"node Person {\n  name: String @key\n  age: I32?\n}\n",
    b"node Person {\n  name: String @key\n}\n",
    b"node Person {\n  name: String @key\n  name: I32\n}\n",
    b"node {",
    b"\xff",
]
_GQ = {
    "sound": "query {0}($n: String) {{ match {{ $p: Person {{ name: $n }} }} return {{ $p.name }} }}\n",
    "aged": "query {0}() {{ match {{ $p: Person }} return {{ $p.age }} }}\n",
    "wrong": "query {0}() {{ match {{ $p: Nobody }} return {{ $p.age }} }}\n",
    "broken": "query {0} {{{{\n",
}
_COMPILER = "c" * 64
_PLAIN = ComparedFolder(PlainFolder("1" * 40, 1))
_NAMES = ["a", "b", "c"]
_PATHS = ["q/a.gq", "q/b.gq", "q/deep/c.gq", "r/a.gq", "x.gq"]
_NEW_PATHS = ["q/n.gq", "q/deep/n.gq", "r/n.gq", "q/.gq"]
_SCHEMAS = ["s.pg", "q/t.pg", "r/u.pg"]


def query_file(parts: list[tuple[str, str]]) -> bytes:
    return "".join(_GQ[kind].format(name) for kind, name in parts).encode()


_names = st.sampled_from(_NAMES)
_queries = st.lists(st.tuples(st.sampled_from(["sound", "sound", "aged", "wrong", "broken"]), _names), max_size=3)
_files = st.sampled_from([*_PATHS, "./q/a.gq", "q/../x.gq", "q", "gone.gq", "/abs.gq"])
_sources = st.sampled_from(["q", "q/", "r", "x.gq", "q/deep", "./q", ".", "gone", "../out"])
_declared = (
    st.dictionaries(_names, st.fixed_dictionaries({"file": _files}), max_size=3)
    | _sources
    | st.lists(_sources, max_size=3)
)
_graphs = st.dictionaries(
    st.sampled_from(["g", "h", "1bad"]),
    st.fixed_dictionaries({"schema": st.sampled_from([*_SCHEMAS, "gone.pg"]), "queries": _declared}),
    max_size=3,
)
_policies = st.dictionaries(
    st.sampled_from(["p", "1bad"]),
    st.fixed_dictionaries(
        {
            "file": st.sampled_from(["p.yaml", "gone.yaml", "r/a.gq"]),
            "applies_to": st.lists(st.sampled_from(["cluster", "g", "graph.h", "graph.z", "schema.g"]), max_size=2),
        }
    ),
    max_size=2,
)
_documents = st.fixed_dictionaries(
    {"version": st.sampled_from([1, 1, 1, 2]), "graphs": _graphs, "policies": _policies},
    optional={"storage": st.sampled_from(["s3://b/p", "./store", "ftp://x"]), "metadata": st.just({"name": "n"})},
)


class Edits(RuleBasedStateMachine):
    """A folder under edit, loaded after each edit with and without a cache that lives as long as the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.both = MemoryCache(), MemoryCache()
        self.files: dict[str, bytes] = {"p.yaml": b"version: 1\nrules: []\n"}
        self.refused: dict[str, str] = {}
        self.compared_with: dict[str, object] = {}
        self.limits = SourceLimits()
        self.steps = 0
        self.applied: tuple[SoundRecord, Mapping[Address, str]] = SoundRecord(_COMPILER, _PLAIN.plain, {}), {}
        for path in _SCHEMAS:
            self.files[path] = _PG[0]
        for number, path in enumerate(_PATHS):
            self.files[path] = query_file([("sound", "abcde"[number])])
        self.document({"version": 1, "graphs": {"g": {"schema": "s.pg", "queries": ["q", "x.gq"]}}, "policies": {}})

    @rule(value=_documents)
    def document(self, value: dict[str, Any]) -> None:
        self.files["cluster.yaml"] = json.dumps(value, indent=1).encode()

    @rule(data=st.sampled_from([b"", b"version: 1\n", b"a: [", b"version: 1\nversion: 1\n"]))
    def odd_document(self, data: bytes) -> None:
        self.files["cluster.yaml"] = data

    @rule(
        schema=st.sampled_from([*_SCHEMAS, "s.pg"]),
        queries=_declared,
        names=st.sets(st.sampled_from(["g", "h"]), min_size=1),
    )
    def sound_document(self, schema: str, queries: Any, names: set[str]) -> None:
        graphs = {name: {"schema": schema, "queries": queries} for name in sorted(names)}
        self.document(
            {"version": 1, "graphs": graphs, "policies": {"p": {"file": "p.yaml", "applies_to": ["cluster"]}}}
        )

    @rule(path=st.sampled_from(_NEW_PATHS), name=st.sampled_from(["n", "a"]))
    def add_query(self, path: str, name: str) -> None:
        self.files[path] = query_file([("sound", name)])

    @rule(path=st.sampled_from(_PATHS), parts=_queries)
    def edit_query(self, path: str, parts: list[tuple[str, str]]) -> None:
        self.files[path] = query_file(parts)

    @rule(path=st.sampled_from(_SCHEMAS), data=st.sampled_from([_PG[0], _PG[0], *_PG]))
    def edit_schema(self, path: str, data: bytes) -> None:
        self.files[path] = data

    @rule(path=st.sampled_from([*_PATHS, *_NEW_PATHS, *_SCHEMAS, "p.yaml"]))
    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    @rule(path=st.sampled_from(["q", "r", "q/deep", "q/a.gq", "s.pg"]), code=st.sampled_from(["source_symlink", ""]))
    def refuse(self, path: str, code: str) -> None:
        self.refused = {path: code} if code else {}

    @rule(files=st.sampled_from([3, 6, 20_000]), size=st.sampled_from([200, 1 << 20]))
    def limit(self, files: int, size: int) -> None:
        self.limits = SourceLimits(files=files, total_bytes=size)

    @rule(name=st.integers(0, 300))
    def forget(self, name: int) -> None:
        names = sorted(self.cache.entries)
        if names:
            del self.cache.entries[names[name % len(names)]]

    def tree(self) -> MemoryTree:
        return MemoryTree(self.files, refused=self.refused, limits=self.limits)

    def vouched(self, tree: StampedTree, *, compared: bool = False) -> VouchedGraphs:
        found = difference(self.compared_with, {**self.files, **self.refused}) if compared else None
        return VouchedGraphs(tree, _COMPILER, LedgerGraphs(*self.applied), ComparedFolder(_PLAIN.plain, found))

    def loaded(self, *, compared: bool = False) -> Loaded:
        tree = self.tree()
        return load_desired(tree, self.vouched(tree, compared=compared))

    @rule()
    def apply(self) -> None:
        """What an apply of the folder as it is leaves in the ledger; a folder with problems is not applied."""
        found = self.loaded()
        if found.desired is not None:
            digests = found.digests()
            self.applied = sound_record(self.vouched(self.tree()), found.sound, digests, digests), digests
            self.compared_with = {**self.files, **self.refused}

    @rule(one=st.sampled_from(["g", "h"]), other=st.sampled_from(["g", "h"]))
    def mix_up(self, one: str, other: str) -> None:
        """The ledger says of one graph what is true of another."""
        record, digests = self.applied
        if other in record.graphs:
            self.applied = replace(record, graphs={**record.graphs, one: record.graphs[other]}), digests

    @rule(number=st.integers(0, 20))
    def lose_a_digest(self, number: int) -> None:
        record, digests = self.applied
        if digests:
            lost = sorted(digests)[number % len(digests)]
            self.applied = record, {address: value for address, value in digests.items() if address != lost}

    @invariant()
    def every_load_says_what_a_cold_one_says(self) -> None:
        tree = self.tree()
        expected = cold(tree)
        assert warm(tree, self.cache) == expected
        # Nothing has changed since: what was just kept must not matter either.
        assert warm(tree, self.cache) == expected
        for compared in (False, True):
            assert shown(self.loaded(compared=compared)) == expected
            again = tree.reopened()
            assert (
                shown(load_desired(again, self.vouched(again, compared=compared), Hints(again, self.both))) == expected
            )


TestEdits = Edits.TestCase
TestEdits.settings = settings(max_examples=cases(60), stateful_step_count=20, deadline=None)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.sampled_from(["", "g", "s.pg", "../x", "\0", "query.g.a", "a" * 64]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["g", "graphs", "file"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, item in inside for spot in spots(item, (*path, key)))]


def planted(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with another value at one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = planted(value[path[0]], path[1:], new)
    return copy


_FOLDER = {
    "cluster.yaml": json.dumps(
        {
            "version": 1,
            "metadata": {"name": "n"},
            "graphs": {"g": {"schema": "s.pg", "queries": ["q", "x.gq"]}, "h": {"schema": "s.pg", "queries": {}}},
            "policies": {"p": {"file": "p.yaml", "applies_to": ["cluster", "g"]}},
        }
    ).encode(),
    "s.pg": _PG[0],
    "q/a.gq": query_file([("sound", "a")]),
    "q/b.gq": query_file([("aged", "b")]),
    "x.gq": query_file([("sound", "c")]),
    "p.yaml": b"version: 1\nrules: []\n",
}


@settings(max_examples=cases(400))
@given(entry=st.integers(0, 10), spot=st.integers(0, 200), new=_JSON, edit=st.sampled_from([None, "s.pg", "q/a.gq"]))
def test_no_poison_makes_a_load_fail(entry: int, spot: int, new: Any, edit: str | None) -> None:
    cache = MemoryCache()
    assert warm(MemoryTree(_FOLDER), cache) == cold(MemoryTree(_FOLDER))
    names = sorted(cache.entries)
    name = names[entry % len(names)]
    value = json.loads(cache.entries[name])
    found = spots(value)
    cache.entries[name] = json.dumps(planted(value, found[spot % len(found)], new)).encode()
    files = dict(_FOLDER) if edit is None else {**_FOLDER, edit: _FOLDER[edit] + b"\n"}
    # It may say something else, or that the folder moved: then it is loaded again from its files.
    warm(MemoryTree(files), cache)


@given(data=st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b"null", b"{}", b"[[],{},{},{},[],[]]"]))
def test_no_bytes_in_the_cache_change_anything(data: bytes) -> None:
    cache = MemoryCache()
    expected = warm(MemoryTree(_FOLDER), cache)
    cache.entries = dict.fromkeys(cache.entries, data)
    assert warm(MemoryTree(_FOLDER), cache) == expected


def test_the_storage_root_is_never_taken_from_the_cache() -> None:
    cache = MemoryCache()
    warm(MemoryTree(_FOLDER), cache)
    (name,) = [name for name in cache.entries if name.startswith("index")]
    value = json.loads(cache.entries[name])
    value[0][1][1] = "s3://of-somebody-else/x"
    cache.entries[name] = json.dumps(value).encode()
    found = warm(MemoryTree(_FOLDER), cache)
    assert found is not None
    assert found["header"].storage is None
    assert found == cold(MemoryTree(_FOLDER))
