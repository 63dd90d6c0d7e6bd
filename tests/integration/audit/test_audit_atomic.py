"""A ledger of atomic runs, two of which died, is as true at every moment as one of runs that land what they can."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from gitops.git.port import NewCommit, RefUpdate
from gitops.model.changeset import ChangesetState
from tests.support.audited import FILES, MAIN, SCHEMA, Life, declared, person

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
    before = life.project.head_of(MAIN) or ""
    topic = life.change(who, files)
    new = NewCommit(life.repository.commit(topic).tree, (before, topic), person("ben"), "merge\n")
    life.remote.push([RefUpdate(MAIN, topic, life.repository.write_commit(new, signing_key=str(life.keys["ben"])))])


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
