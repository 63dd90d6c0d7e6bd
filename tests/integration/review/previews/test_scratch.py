"""Scratch folders on a disk and in a bucket: claims, one turn at a time, and what a removal leaves alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.repository.wiring.previews import StoredScratch, scratch_root
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


class Local:
    """A machine whose operator allows any bucket, and a folder for everything else."""

    def rule(self, cluster: str) -> ClusterRule:
        return ClusterRule(name=cluster, path=".")

    def storage_base(self, _rule: ClusterRule, storage: str) -> str:
        return storage if storage.startswith("s3:") else f"/data/brain/{storage}"


@pytest.mark.parametrize(
    ("declared", "storage", "said"),
    [
        ("s3://b/p/previews", "s3://b/p", ""),
        ("previews", "/data/brain", ""),
        ("s3://other/p", "s3://b/p", "preview.scratch is on bucket other, and the graphs are on bucket b"),
        ("s3://b/p", "/data/brain", "preview.scratch is on bucket b, and the graphs are on a disk"),
        ("previews", "s3://b/p", "preview.scratch is on a disk, and the graphs are on bucket b"),
        ("s3://b/p", "s3://b/p/", "preview.scratch is where the graphs are"),
        ("s3://b/p/graphs/notes.omni", "s3://b/p", "preview.scratch is where the graphs are"),
        ("graphs/notes.omni", "/data/brain", "preview.scratch is where the graphs are"),
        ("__cluster", "/data/brain", "preview.scratch is where the graphs are"),
    ],
)
def test_copies_are_in_the_store_of_the_graphs_and_outside_of_them(declared: str, storage: str, said: str) -> None:
    local: Any = Local()
    if not said:
        assert scratch_root(local, "brain", declared, storage).endswith("previews")
        return
    with pytest.raises(GitopsError, match=said) as refused:
        scratch_root(local, "brain", declared, storage)
    assert refused.value.code == Code.PREVIEW_UNAVAILABLE


def test_one_preview_of_a_cluster_runs_at_a_time_and_a_crash_blocks_for_an_hour(root: str) -> None:
    one, other = StoredScratch(root, "brain"), StoredScratch(root, "brain")
    assert one.begin(NOW)
    assert not other.begin(NOW + timedelta(minutes=59))
    assert StoredScratch(root, "legacy").begin(NOW)
    assert other.begin(NOW + timedelta(hours=2))
    other.end()
    assert one.begin(NOW)
