"""Any history of a cluster ends well: edits, damage, crashes and verbs in any order, against a reference model.

Every run is held to the laws and forecasts of `tests.support.control_model`. At the end a person clears away what only a person
may; then one refresh and one apply converge.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gitops.cluster.ledger.documents import read_state, write_state
from gitops.cluster.ledger.layout import STATE, intent_key
from gitops.cluster.model.ledger import IntentKind
from tests.support.cluster import codes
from tests.support.control_model import sha
from tests.support.effort import FULL
from tests.support.held_cluster import GRAPHS, LONGEST_CUT, HeldCluster
from tests.support.interrupted import Ending

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


EXAMPLES = {"folder": 2, "memory": 5}
MANY = {"folder": 200, "memory": 400}


@pytest.mark.parametrize("ledger", EXAMPLES)
def test_any_history_ends_converged(tmp_path: Path, ledger: str) -> None:
    play(tmp_path, ledger, EXAMPLES[ledger])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ledger", MANY)
def test_any_of_many_histories_ends_converged(tmp_path: Path, ledger: str) -> None:
    play(tmp_path, ledger, MANY[ledger])
