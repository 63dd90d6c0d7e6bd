"""Strategies on a branch ledger: the audit accepts what is recorded of their rows and of ticks, and what waits is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.model.address import Address
from gitops.cluster.model.compute import owned_rows
from gitops.cluster.model.ledger import ENTRY_VERSION, EntryKind
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import Undo
from gitops.cluster.plan.plan import plan
from gitops.compute.ticks.tick import Ticking, tick
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.repository.proposals import Proposal, earlier_folder, reversal, way_back
from gitops.repository.repository import Candidate
from tests.support.audited import CONFIG, MAIN, Life, declared, person
from tests.support.cluster import codes
from tests.support.faults import Death, EndAt
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import TargetWorld, fresh_world

SECTION = b"""\
compute:
  targets: {prod: {kind: materialize, url: {env: MZ_URL}}}
  strategies: {serving: {target: prod, target_size: {target_size: 50cc}}}
"""
ADDRESS = Address("strategy.serving.target_size")


def applied(life: Life, world: TargetWorld, *, atomic: bool = False) -> None:
    apply(replace(life.workspace(), open_target=lambda _: MemoryTarget(world), atomic=atomic))


@pytest.mark.parametrize("atomic", [False, True], ids=["best-effort", "atomic"])
def test_the_entries_of_a_projection_are_verified(tmp_path, atomic):
    life, world = Life(tmp_path), TargetWorld()
    world.add_cluster("serving")
    life.begin()
    # The delete of a graph waits for its approval, and its author for the entries after it.
    life.change("dora", {"cluster/cluster.yaml": declared("notes") + SECTION})
    before = len(life.chain())
    applied(life, world, atomic=atomic)
    assert len(world.strategy_rows or ()) == 1
    entries = [life.entry(number) for number in range(before + 1, len(life.chain()) + 1)]
    assert [entry.kind for entry in entries][-2:] == [EntryKind.APPLY, EntryKind.CHANGESET]
    assert (entries[-1].origins, entries[-1].authors) == (entries[-2].origins, entries[-2].authors)
    assert entries[-1].origins != ()
    (row,) = owned_rows(life.state(len(life.chain())).observations)
    assert (row.address, row.cluster_id) == (ADDRESS, "u1")
    assert life.audit(life.chain()[-1]).findings == ()
    head, rows = life.chain()[-1], list(world.strategy_rows or ())
    life.approve("ada", "graph.legacy")
    applied(life, world, atomic=atomic)
    assert life.audit(life.chain()[-1]).findings == ()
    assert (head in life.chain(), world.strategy_rows) == (True, rows)


@pytest.mark.parametrize("died", [False, True], ids=["whole", "interrupted"])
def test_the_entries_of_a_tick_are_verified(tmp_path, died):
    life, world = Life(tmp_path), fresh_world(serving={"old": "25cc*"})
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes") + SECTION})
    applied(life, world)
    before, state = len(life.chain()), life.state(len(life.chain()))
    how = Ticking(lambda _: MemoryTarget(world))
    if died:
        with pytest.raises(Death):
            tick(replace(life.workspace(), faults=EndAt("tick.after_statement")), how)
    outcome = tick(life.workspace(), how)
    assert outcome.ok
    entries = [life.entry(number) for number in range(before + 1, len(life.chain()) + 1)]
    assert [entry.kind for entry in entries] == [EntryKind.CHANGESET, EntryKind.CHANGESET]
    assert len({entry.changeset for entry in entries}) == 1
    assert entries[-1].origins == life.entry(before).origins != ()
    assert life.state(len(life.chain())) == state
    assert life.audit(life.chain()[-1]).findings == ()
    assert [row.executed for row in world.audit_rows or ()] == [True]
    assert world.replicas("serving") == {"old": "25cc", "r_50cc": "50cc"}


def rows(world: TargetWorld) -> dict[str, dict[str, object]]:
    return {row.strategy_type: dict(row.config) for row in world.strategy_rows or ()}


def plan_back(life: Life, found: Proposal) -> PlanOutcome:
    """The plan of `gitops down --to`."""
    back = Candidate(found.base, tree=found.new, undoes=True)
    return plan(life.git.at(life.rule(), life.git.position(life.rule()), back).workspace(None))


def test_strategies_go_back_with_their_rows(tmp_path):
    life, world = Life(tmp_path), TargetWorld()
    world.add_cluster("serving")
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + SECTION})
    applied(life, world)
    first, small = len(life.chain()), rows(world)
    larger = SECTION.replace(b"50cc}", b"100cc}, burst: {burst_replica_size: 800cc}")
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + larger})
    applied(life, world)
    assert rows(world).keys() == {"target_size", "burst"}
    outcome = plan_back(life, way_back(life.git, life.rule(), earlier_folder(life.git, life.rule(), str(first))))
    assert outcome.plan is not None
    changed = {each.address.name: each.action.value for each in outcome.plan.changes}
    assert changed == {"target_size": "update", "burst": "delete"}
    assert [each.undo for each in outcome.plan.undoings] == [Undo.COMPLETE] * 2
    assert (codes(outcome), outcome.plan.approvals_required) == ([], ())
    found, _ = reversal(life.git, life.rule(), str(first + 1), person("dora"))
    new = NewCommit(found.new, (found.base,), person("dora"), found.message)
    commit = life.git.write_commit(new, signing_key=str(life.keys["dora"]))
    life.remote.push([RefUpdate(MAIN, found.base or ZERO, commit)])
    applied(life, world)
    assert rows(world) == small
    assert life.audit(life.chain()[-1]).findings == ()


def test_a_gap_is_applied_with_an_approval_and_an_entry_without_one_is_found(tmp_path, monkeypatch):
    life, world = Life(tmp_path, config=CONFIG + "  gates: [lossy]\n"), TargetWorld()
    world.add_cluster("serving")
    life.begin()
    gap = SECTION.replace(b"50cc}", b"50cc, drop_first: true}")
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + gap})
    applied(life, world)
    assert not world.strategy_rows
    life.approve("ada", ADDRESS)
    applied(life, world)
    assert rows(world)["target_size"]["drop_first"] is True
    assert life.audit(life.chain()[-1]).findings == ()
    with monkeypatch.context() as other_program:
        other_program.setattr("gitops.cluster.model.compute.drops_first", lambda _: frozenset())
        life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + gap.replace(b"50cc", b"100cc")})
        applied(life, world)
    assert rows(world)["target_size"]["target_size"] == "100cc"
    assert [each.code for each in life.audit(life.chain()[-1]).findings] == ["ledger_gates_missing"]
    monkeypatch.setattr("gitops.cluster.audit.approvals.WITH_GATES", ENTRY_VERSION + 1)
    assert [each.code for each in life.audit(life.chain()[-1]).findings] == ["ledger_change_unapproved"]
