"""Long ledgers: what the fast writer makes is a true ledger, and what an audit reads grows with the entries and no faster."""

from __future__ import annotations

import pytest

from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
from gitops.git.repository import GitRepository
from tests.support.audited import LEDGER, Life
from tests.support.git_fixture import environment
from tests.support.long_ledger import long_life

ENTRIES = 60


class Counted(GitRepository):
    """Counts the objects that are read."""

    reads = 0

    def _read(self, object_id: str, kind: str) -> bytes:
        self.reads += 1
        return super()._read(object_id, kind)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return long_life(tmp_path_factory.mktemp("long"), ENTRIES)


def counted(life: Life) -> Counted:
    return Counted(life.git.git_dir, environ=environment(life.home))


def reads(life: Life, number: int, since: int = 0) -> int:
    """How many objects an audit of that many entries reads, from a cold start."""
    chain, reader = life.chain(), counted(life)
    scope = AuditScope(since=chain[since - 1] if since else None)
    assert life.audit(chain[number - 1], reader, scope=scope).ok
    return reader.reads


def test_it_is_a_true_ledger(life: Life) -> None:
    report = life.audit(life.git.resolve(LEDGER) or "")
    assert (report.findings, report.notes, report.verified) == ((), (), ENTRIES)


def test_each_entry_costs_the_same_reads(life: Life) -> None:
    first, second, third = (reads(life, number) for number in (20, 40, 60))
    assert third - second == second - first


def test_what_is_new_since_an_entry_costs_what_is_new_and_a_link_for_each_that_is_not(life: Life) -> None:
    per_entry = (reads(life, 60) - reads(life, 20)) / 40
    links = 60
    assert reads(life, 60, since=55) < links + 12 * per_entry


def test_the_newest_entries_of_the_trail_cost_what_they_are(life: Life) -> None:
    found = []
    for number in (20, 60):
        reader = counted(life)
        records = read_trail(reader, life.chain()[number - 1])
        assert all(next(records).ok for _ in range(5))
        found.append(reader.reads)
    assert found[0] == found[1]
