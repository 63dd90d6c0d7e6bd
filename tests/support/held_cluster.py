"""A cluster whose every run is held to the reference model: the moves from which histories are made.

A run that nothing disturbs must do exactly what the model forecasts; one that dies or fails must still keep the laws.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from gitops.cluster.ledger.documents import write_intent
from gitops.cluster.ledger.layout import LOCK, STATE, intent_key
from gitops.cluster.model.ledger import Intent, IntentKind
from gitops.cluster.model.outcome import ApplyOutcome, RefreshOutcome, VerbOutcome
from gitops.core.diagnostics import Severity
from tests.support.cluster import codes, found
from tests.support.control_model import UNREADABLE, Forecast, History, Seen, applied, observed, supported, swept
from tests.support.interrupted import Bench, Ending

T = TypeVar("T", bound=VerbOutcome)

GRAPHS = ("alpha", "beta")
LONGEST_CUT = 1000


class HeldCluster:
    """A bench with graphs of a few names, and the model beside it."""

    def __init__(self, folder: Path, *, memory: bool) -> None:
        """In `folder`, which is made."""
        folder.mkdir()
        self.bench = Bench(folder, memory=memory)
        self.history = History(lambda uri: Path(uri).stem)
        self.old_sidecars: dict[str, bytes] = {}
        self.unspent: dict[str, bytes] = {}

    def look(self) -> Seen:
        """The world now."""
        roots, twin = self.bench.twin.roots(), self.bench.twin
        uris = {g: self.bench.uri(g) for g in GRAPHS}
        there = {g: roots[uri] for g, uri in uris.items() if uri in roots}
        return Seen(
            self.bench.ledger_files(),
            {g: graph.source for g, graph in there.items()},
            frozenset(g for g, uri in uris.items() if uri in twin.unseen),
            frozenset(g for g, graph in there.items() if graph.deleted),
            {g: (graph.incarnation, graph.version) for g, graph in there.items()},
        )

    def recorded_graphs(self) -> list[str]:
        """Graphs that the ledger knows."""
        return sorted(t.removeprefix("graph.") for t in self.look().resources if t.startswith("graph."))

    # Runs.

    def run(self, verb: Callable[[], T], ending: Ending = Ending.WELL, cut: int = 0) -> tuple[Seen, T, Seen] | None:
        """Call a verb and hold it to the laws; the world before, its outcome, and the world after.

        `cut` says at which of its ticks it ends, in thousandths of the run. None if it was disturbed. A lock that somebody
        left stops it; then it is broken, and the verb called again.
        """
        bench, before = self.bench, self.look()
        if before.locked:
            self.refused(verb())
            assert self.look() == before
            self.unlock()
            before = self.look()
        removals = len(bench.twin.removals)
        bench.clock.advance(timedelta(seconds=1))
        bench.cuts.arm(ending, self._rehearsed(verb, ending, cut), bench.world)
        outcome = verb()
        struck, world = bench.cuts.struck, bench.cuts.world
        bench.cuts.rest()
        if world is not None:
            bench.go_back(world)
        now = self.look()
        self._remember(now)
        self.history.account(before, now, bench.twin.removals[removals:], bench.desired())
        if struck:
            return None
        assert not now.locked
        return before, outcome, now

    def _rehearsed(self, verb: Callable[[], VerbOutcome], ending: Ending, cut: int) -> int:
        """The tick at which to cut."""
        if ending is Ending.WELL:
            return 0
        bench, start = self.bench, self.bench.world()
        bench.cuts.arm(Ending.REHEARSAL, 0, bench.world)
        verb()
        ticks = bench.cuts.ticks if ending is Ending.DEATH else bench.cuts.failable
        bench.go_back(start)
        return ticks * cut // LONGEST_CUT

    def _remember(self, now: Seen) -> None:
        """What a backup may bring back later."""
        self.old_sidecars |= {k: d for k, d in now.files.items() if k.startswith("__cluster/recoveries/")}
        fresh = [f"__cluster/approvals/{i}.json" for i in now.approvals if i not in now.spent()]
        self.unspent |= {key: now.files[key] for key in fresh}

    def refused(self, outcome: VerbOutcome) -> None:
        """A verb that found a lock says whose it is."""
        held = self.bench.status().observations.held.info
        assert held is not None
        message = found(outcome, "state_lock_held").message
        assert f"force-unlock {held.lock_id}" in message

    def unlock(self) -> None:
        """Break the lock."""
        held = self.bench.status().observations.held.info
        assert held is not None
        assert self.bench.unlock(held.lock_id).lock_removed
        assert self.bench.stored(LOCK) is None

    def apply(self, count: int, ending: Ending = Ending.WELL, cut: int = 0) -> ApplyOutcome | None:
        """One apply with `count` workers; the outcome if nothing disturbed it."""
        self.bench.workers = count
        planned = None if self.bench.locked else self.bench.plan()
        ran = self.run(partial(self.bench.apply, "sam"), ending, cut)
        if ran is None:
            return None
        before, outcome, now = ran
        if planned is not None:
            landed = outcome.ok and outcome.converged
            assert planned.lands is landed, f"{planned.obstacles}, and the apply: {outcome.diagnostics}"
        if before.state is None:
            assert "state_missing" in codes(outcome)
            assert now == before
            return outcome
        desired = self.bench.desired()
        cast = applied(before, desired)
        if cast.failed and count > 1:
            self._lies_between(cast, applied(before, desired, halting=False), before, now)
        else:
            assert now.live == cast.live
            self._matches(cast, before, now)
        assert outcome.state == self.bench.state
        assert outcome.state_written is (now.revision > before.revision)
        same = now.resources == desired.digests() and self._bindings_recorded(now) and not now.vanished
        assert outcome.converged is same
        assert same or not cast.free
        assert now.config_digest == (desired.config_digest if same else before.config_digest)
        return outcome

    def observe(self, verb: Callable[[], RefreshOutcome], ending: Ending = Ending.WELL, cut: int = 0) -> None:
        """Refresh or import."""
        ran = self.run(verb, ending, cut)
        if ran is None:
            return
        before, outcome, now = ran
        if (before.state is None) == (outcome.operation == "refresh"):
            errors = [each.code for each in outcome.diagnostics if each.severity is Severity.ERROR]
            assert errors == ["state_missing" if before.state is None else "state_already_exists"]
            assert now.files == before.files
            return
        cast = observed(before, self.bench.desired())
        assert now.live == cast.live
        assert outcome.ok is not cast.broken
        if before.state is None and cast.broken:
            assert now.files == before.files
            return
        self._matches(cast, before, now)
        assert now.revision == before.revision + 1
        assert outcome.state == self.bench.state

    def approve(self, graph: str, ending: Ending = Ending.WELL, cut: int = 0) -> None:
        """Approve the delete of a graph, or that one which vanished is created again."""
        ran = self.run(partial(self.bench.approve, f"graph.{graph}"), ending, cut)
        if ran is None:
            return
        before, outcome, now = ran
        gated = f"graph.{graph}" in before.resources and (graph not in self.bench.graphs or graph in before.vanished)
        assert outcome.ok is gated
        assert (now.files != before.files) is gated
        assert now.files.get(STATE) == before.files.get(STATE)

    def _matches(self, cast: Forecast, before: Seen, now: Seen) -> None:
        """The ledger says what the forecast says."""
        assert {t: d for t, d in now.resources.items() if t.startswith("schema.")} == cast.schemas()
        assert set(now.recorded_uses) == set(before.recorded_uses) | cast.used
        new = set(now.sidecars) - set(before.sidecars)
        assert set(now.sidecars) - new == cast.kept
        assert len(new) == cast.made

    def _lies_between(self, least: Forecast, most: Forecast, before: Seen, now: Seen) -> None:
        """A failure met others at work: each graph is as if all had stopped then, or as if all had gone on."""
        for graph in GRAPHS:
            schema = f"schema.{graph}"
            found = (now.live.get(graph), now.resources.get(schema))
            assert found in [(cast.live.get(graph), cast.recorded.get(schema)) for cast in (least, most)]
        assert least.used <= set(now.recorded_uses) <= set(before.recorded_uses) | most.used
        assert least.kept <= set(now.sidecars)
        assert len(set(now.sidecars) - set(before.sidecars)) <= most.made

    def _bindings_recorded(self, now: Seen) -> bool:
        entries = (now.state or {})["applied_revision"]["resources"]
        wanted = self.bench.desired().resources
        return all(list(r.applies_to or ()) == entries[t].get("applies_to", []) for t, r in wanted.items())

    def plans_nothing(self) -> bool:
        """Return whether the plan is empty."""
        planned = self.bench.plan().plan
        return planned is not None and not planned.changes

    # Edits.

    def declare(self, graph: str, schema: str | None = None) -> None:
        """Declare a graph, or change its schema; without a schema it is declared as it was."""
        self.bench.graphs.setdefault(graph, {})
        if schema is not None:
            self.bench.write(f"{graph}.pg", schema)
        self.bench.save()

    def withdraw(self, graph: str) -> None:
        """Declare a graph no longer."""
        self.bench.graphs.pop(graph, None)
        for name, bound in [*self.bench.policies.items()]:
            if graph in bound:
                self.bench.bind(name, [b for b in bound if b != graph] or ["cluster"])
        self.bench.save()

    # Damage.

    def plant_sidecar(self, graph: str, kind: IntentKind, wanted: str, *, approved: bool) -> None:
        """A sidecar that no run of this history wrote. `wanted` is a schema digest."""
        delete = kind is IntentKind.GRAPH_DELETE
        known = [i for i, d in self.look().approvals.items() if d["resource"] == f"graph.{graph}"]
        intent = Intent(
            operation_id=self.bench.ids.ulid(),
            started_at="2026-06-11T07:00:00Z",
            actor=None,
            kind=kind,
            graph_id=graph,
            graph_uri="/elsewhere",
            observed_manifest_version=None,
            expected_manifest_version=None,
            desired_schema_digest="" if delete else wanted,
            state_cas_base=None,
            approval_id=known[0] if known and approved and delete else None,
        )
        self.history.unbacked.add(intent.operation_id)
        self.bench.plant(intent_key(intent.operation_id), write_intent(intent))

    def bring_back_sidecar(self, pick: int) -> None:
        """A sidecar that could not be removed, or that a backup brought back."""
        if self.old_sidecars:
            key = sorted(self.old_sidecars)[pick % len(self.old_sidecars)]
            self.history.unbacked.add(Path(key).stem)
            self.bench.plant(key, self.old_sidecars[key])

    def bring_back_approvals(self) -> None:
        """Documents of spent approvals, as they were before."""
        for key, document in self.unspent.items():
            self.bench.plant(key, document)

    # The end.

    def clear_away(self) -> None:
        """What only a person may do: locks, broken roots, a schema that no migration leads to."""
        bench = self.bench
        if bench.locked:
            self.unlock()
        bench.twin.see_again()
        for key in bench.files("__cluster/resources"):
            if bench.stored(key) == UNREADABLE:
                bench.plant(key, None)
        for uri, graph in bench.twin.roots().items():
            if graph.source is None and not graph.deleted:
                bench.twin.vanish(uri)
        live = self.look().live
        for graph in bench.graphs:
            text, wanted = live.get(graph), (bench.folder / f"{graph}.pg").read_bytes()
            if text is not None and not supported(text, wanted):
                bench.write(f"{graph}.pg", text.decode())
        if self.look().state is None:
            self.observe(bench.import_)
        self._settle_what_nobody_declares()

    def _settle_what_nobody_declares(self) -> None:
        """Refresh observes declared graphs only: one that waits for it is declared for as long as that takes."""
        waiting = swept(self.look()).pending - self.bench.graphs.keys()
        for graph in waiting:
            self.declare(graph)
        if waiting:
            self.observe(self.bench.refresh)
        for graph in waiting:
            self.withdraw(graph)
