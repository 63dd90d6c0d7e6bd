"""Scratch folders on a disk and in a bucket: claims, one turn at a time, and what a removal leaves alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.repository.wiring.previews import StoredScratch
from gitops.repository.wiring.stores import open_store
from gitops.review.previews.port import Claim
from tests.support.s3 import S3Place

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["local", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "previews")
    s3: S3Place = request.getfixturevalue("s3")
    return f"{s3.root}/previews"


def test_only_folders_with_a_claim_are_listed_and_removed(root: str) -> None:
    scratch, store = StoredScratch(root, "brain"), open_store(f"{root}/brain")
    late, early = (Claim.until("brain", n, "a" * 64, NOW + timedelta(hours=9 - n)) for n in (1, 2))
    for claim in (late, early):
        scratch.write(claim)
        store.write(f"{claim.folder}/g.before.omni/graph.json", b"{}")
    store.write("3/bbbbbbbbbbbb/data", b"of somebody else")
    store.write("4/cccccccccccc/claim.json", b"no claim")
    assert scratch.claims() == [early, late]
    scratch.remove(early)
    assert scratch.claims() == [late]
    assert store.read(f"{early.folder}/g.before.omni/graph.json") is None
    assert store.read("3/bbbbbbbbbbbb/data") == b"of somebody else"
    scratch.remove(early)
    longer = Claim.until("brain", 1, "a" * 64, NOW + timedelta(days=1))
    scratch.write(longer)
    assert scratch.claims() == [longer]
    assert not longer.has_expired(NOW)
    assert longer.has_expired(NOW + timedelta(days=1))


def test_one_preview_of_a_cluster_runs_at_a_time_and_a_crash_blocks_for_an_hour(root: str) -> None:
    one, other = StoredScratch(root, "brain"), StoredScratch(root, "brain")
    assert one.begin(NOW)
    assert not other.begin(NOW + timedelta(minutes=59))
    assert StoredScratch(root, "legacy").begin(NOW)
    assert other.begin(NOW + timedelta(hours=2))
    other.end()
    assert one.begin(NOW)
