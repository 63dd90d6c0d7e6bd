"""A ledger of atomic runs, two of which died, is as true at every moment as one of runs that land what they can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.model.address import Address, graph_address, schema_address
from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.ledger import AppliedResource, EntryKind, LedgerState
from gitops.git.port import NewCommit, RefUpdate
from tests.support.audited import FILES, MAIN, SCHEMA, WIDER, Lie, Life, declared, person

NOTES = graph_address("notes")
OTHER = FILES["cluster/notes.gq"].replace(b"{ $n.title }", b"{ $n.title }\n    limit 10")


def test_every_moment_of_a_ledger_of_atomic_runs_is_good(tmp_path: Path) -> None:
    life = Life(tmp_path, atomic=True).live()
    kinds = [life.entry(number).kind.value for number in range(1, len(life.chain()) + 1)]
    assert "changeset" in kinds
    for head in life.chain():
        report = life.audit(head)
        assert report.findings == (), (kinds, report.findings[0].number, report.findings[0].detail)
    assert life.ledger(life.rule()).changesets().open == ()


def merge(life: Life, who: str, files: Mapping[str, bytes]) -> None:
    """A merge of one commit, as a forge makes it: it changes nothing itself."""
    before = life.repository.head_of(MAIN) or ""
    topic = life.change(who, files)
    new = NewCommit(life.git.commit(topic).tree, (before, topic), person("ben"), "merge\n")
    life.remote.push([RefUpdate(MAIN, topic, life.git.write_commit(new, signing_key=str(life.keys["ben"])))])


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("atomic", [True, False])
def test_the_ledger_of_a_merge_that_failed_is_good_and_so_is_that_of_its_repair(
    tmp_path: Path, *, atomic: bool, merged: bool
) -> None:
    life = Life(tmp_path, atomic=atomic)
    life.begin()
    life.engine.prepare_create("memory/extra", SCHEMA, actor=None).publish()
    change = merge if merged else Life.change
    change(life, "dora", {"cluster/cluster.yaml": declared("notes", "legacy", "extra"), "cluster/notes.gq": OTHER})
    failed = life.apply()
    assert not failed.ok
    assert (failed.changesets[0].state is ChangesetState.FAILED) is atomic
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy")})
    assert life.apply().converged
    for head in life.chain():
        report = life.audit(head)
        assert report.findings == (), (report.findings[0].number, report.findings[0].detail)


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A ledger whose newest entry records the end of a changeset that dropped a property after its commit."""
    life = Life(tmp_path_factory.mktemp("dropped"), atomic=True)
    life.begin()
    life.change("dora", {"cluster/notes.pg": WIDER})
    life.apply()
    life.change("dora", {"cluster/notes.pg": SCHEMA})
    assert life.apply().converged
    return life


def test_the_end_of_a_changeset_records_what_a_graph_is_after_its_drops(dropped: Life) -> None:
    newest = len(dropped.chain())
    assert dropped.entry(newest).kind is EntryKind.CHANGESET
    before, after = dropped.state(newest - 1), dropped.state(newest)
    assert (after.revision, after.applied_digest) == (before.next_revision, before.applied_digest)
    reading, seen = dropped.engine.read("memory/notes"), after.observations[NOTES]
    assert (seen["manifest_version"], seen["rows"]) == (reading.manifest_version, reading.rows)
    assert seen["schema_digest"] == after.resources[schema_address("notes")].digest
    assert seen["schema_digest"] != before.observations[NOTES]["schema_digest"]
    assert dropped.audit(dropped.chain()[-1]).findings == ()


def other_resource(state: LedgerState) -> LedgerState:
    return replace(state, resources={**state.resources, Address("query.notes.titles"): AppliedResource("sha256:0")})


def vanished(state: LedgerState) -> LedgerState:
    return replace(state, observations={**state.observations, NOTES: {**state.observations[NOTES], "vanished": True}})


def without_status(state: LedgerState) -> LedgerState:
    return replace(state, statuses={})


@pytest.mark.parametrize("lie", [other_resource, vanished, without_status])
def test_the_end_of_a_changeset_changes_nothing_else(dropped: Life, lie: Callable[[LedgerState], LedgerState]) -> None:
    report = dropped.audit(dropped.forge(len(dropped.chain()), Lie(state=lie)))
    (finding,) = report.findings
    assert (finding.code, "than what was observed" in finding.detail) == ("ledger_state_mismatch", True)
