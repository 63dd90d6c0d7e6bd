"""Mirrors of graphs in a bucket: which files are copied, when they are removed, and what damage does."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch, list_branches
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.layout import manifest_key, source_key
from gitops.database.graph.mirror import GraphMirror, MirrorLimits
from gitops.database.graph.results import VerifyFindingCode
from gitops.database.storage.copies import FileCopies
from gitops.repository.wiring.system import SystemClock
from tests.support.histories import SCHEMA, History, version_numbers
from tests.support.s3 import Asked, Fault, S3Place

SHARP = Retention(1, timedelta(0), timedelta(0))


class Replica:
    """A mirror with the copies of a folder, and a view of it as a history."""

    def __init__(self, writer: History, folder: Path, most_bytes: int = 2**30, late: timedelta = timedelta(0)) -> None:
        self.copies = FileCopies(folder)
        assert self.copies.hold()
        limits = MirrorLimits(most_bytes, lambda: SystemClock().now() + late)
        self.mirror = GraphMirror(writer.uri, folder / "copy/graphs/g.omni", self.copies, limits)
        self.local = History(str(folder / "copy/graphs/g.omni"), schema=b"")

    def close(self) -> None:
        self.copies.release()


@pytest.fixture
def writer(s3: S3Place) -> History:
    history = History(f"{s3.root}/graphs/g.omni")
    history.people("main", ann=1, ben=2)
    return history


def data_files(log: list[Asked]) -> list[str]:
    """The files of tables that were asked for."""
    return [each.path for each in log if each.kind == "GET" and ".lance/" in each.path]


def refuse_from(number: int) -> Fault:
    """A fault for all requests from this one on, which count from 1."""
    asked = count(1)
    return lambda _: 403 if next(asked) >= number else None


def test_a_mirror_reads_like_the_graph_on_every_branch_and_copies_only_new_files(
    writer: History, s3: S3Place, tmp_path: Path
) -> None:
    replica = Replica(writer, tmp_path)
    assert replica.mirror.follow() == 2
    assert replica.local.image() == writer.image()
    create_branch(writer.uri, "dev", writer.work())
    writer.people("dev", cat=3)
    writer.people("main", ann=4)
    s3.server.log.clear()
    assert replica.mirror.follow() == 3
    copied = data_files(s3.server.log)
    assert len(copied) == len(set(copied))
    assert {name.rpartition("/")[0].rpartition("/")[0].rpartition("/")[2] for name in copied} == {
        writer.at().manifest.tables["node:Person"].path.removeprefix("nodes/")
    }
    for branch in ("main", "dev"):
        assert replica.local.image(branch) == writer.image(branch)
    assert replica.local.at().manifest == writer.at().manifest
    assert verify_graph(replica.local.uri, deep=True).findings == ()
    s3.server.log.clear()
    assert replica.mirror.follow() == 3
    assert data_files(s3.server.log) == []
    delete_branch(writer.uri, "dev", writer.work())
    replica.mirror.follow()
    assert [each.name for each in list_branches(replica.local.uri)] == ["main"]


def test_a_replica_that_starts_again_reads_no_file_again_and_repairs_what_is_damaged(
    writer: History, s3: S3Place, tmp_path: Path
) -> None:
    first = Replica(writer, tmp_path)
    first.mirror.follow()
    first.close()
    s3.server.log.clear()
    again = Replica(writer, tmp_path)
    assert again.mirror.check() == 0
    again.mirror.follow()
    assert data_files(s3.server.log) == []
    short, flipped, replaced = sorted(again.mirror.places())[:3]
    documents = [
        again.local.at().folder.place(key) for key in (manifest_key(2), source_key(writer.at().manifest.schema_source))
    ]
    for each in documents:
        each.write_bytes(each.read_bytes().replace(b"e", b"x"))
    short.write_bytes(short.read_bytes()[:-1])
    data = flipped.read_bytes()
    flipped.write_bytes(data[:10] + bytes([data[10] ^ 1]) + data[11:])
    replaced.unlink()
    replaced.write_bytes(b"by hand")
    assert again.mirror.check() == 5
    again.mirror.follow()
    names = {str(each).rpartition("copy/")[2].partition("g.omni/")[2] for each in (short, flipped, replaced)}
    # Without the manifest, the files that list table versions are copied again.
    asked = [path.partition("g.omni/")[2].partition("/")[2] for path in data_files(s3.server.log)]
    assert {path for path in asked if "/_versions/" not in path} == {
        path for path in names if "/_versions/" not in path
    }
    assert names <= set(asked)
    assert len(asked) == len(set(asked))
    assert again.local.image() == writer.image()


@pytest.mark.parametrize("lost", [1, 2, 3], ids=["fewer versions lost", "as many versions lost", "more versions lost"])
@pytest.mark.parametrize("forgets", [False, True], ids=["running", "started again"])
@pytest.mark.parametrize("removed", [False, True], ids=["kept", "removed by gc"])
def test_a_bucket_that_is_restored_from_a_copy_is_mirrored_as_it_is(
    writer: History, s3: S3Place, tmp_path: Path, lost: int, forgets: bool, removed: bool
) -> None:
    copy = s3.server.copy(s3.bucket)
    replica = Replica(writer, tmp_path)
    for age in range(lost):
        writer.people("main", ann=10 + age, lost=age)
        replica.mirror.follow()
    s3.server.restore(s3.bucket, copy)
    for age in range(2):
        writer.people("main", ann=20 + age)
    if removed:
        collect_garbage(writer.uri, writer.work(), SHARP)
    if forgets:
        replica.close()
        replica = Replica(writer, tmp_path)
    replica.mirror.follow()
    assert replica.local.image() == writer.image()
    for version in version_numbers(replica.local.uri):
        assert "lost" not in replica.local.ages(version=version)


def test_gc_at_the_bucket_while_a_version_is_copied_leads_to_the_newer_one(
    writer: History, s3: S3Place, tmp_path: Path
) -> None:
    replica, done = Replica(writer, tmp_path), []

    def fault(asked: Asked) -> None:
        if data_files([asked]) and not done:
            done.append(asked)
            writer.put("main", {}, {"node:Person": ["ben"]})
            optimize_tables(writer.uri, writer.work(), OptimizeOptions(fragments=2, deleted_share=0.1, scalar_rows=1))
            collect_garbage(writer.uri, writer.work(), SHARP)

    s3.server.fault = fault
    assert replica.mirror.follow() == writer.at().manifest.n > 3
    assert replica.local.ages() == {"ann": 1}


def test_a_reader_of_a_copied_version_is_not_disturbed_by_gc_at_the_bucket(writer: History, tmp_path: Path) -> None:
    replica = Replica(writer, tmp_path)
    replica.mirror.follow()
    opened, before = replica.local.at(), replica.local.image()
    writer.people("main", ann=5)
    collect_garbage(writer.uri, writer.work(), SHARP)
    replica.mirror.follow()
    assert replica.local.image(version=opened.manifest.n) == before
    # Once no reader can use it any more, it is removed like at the bucket.
    replica.close()
    aged = Replica(writer, tmp_path, late=timedelta(hours=1))
    aged.mirror.follow()
    with pytest.raises(GitopsError) as refused:
        aged.local.at(version=opened.manifest.n)
    assert refused.value.code is Code.GRAPH_VERSION_GONE
    assert aged.local.image() == writer.image()
    assert verify_graph(aged.local.uri, deep=True).findings == ()


def test_a_version_that_does_not_fit_is_refused_until_older_ones_can_be_removed(
    writer: History, tmp_path: Path
) -> None:
    replica = Replica(writer, tmp_path)
    replica.mirror.follow()
    used = replica.copies.reclaim()
    before = replica.local.image()
    replica.close()
    writer.people("main", **{f"p{number}": number for number in range(2000)})
    full = Replica(writer, tmp_path, most_bytes=used + 100)
    with pytest.raises(GitopsError) as refused:
        full.mirror.follow()
    assert refused.value.code == "replica_cache_full"
    assert full.local.image() == before
    full.close()
    # There is room for each of the next versions, but not for all.
    writer.put("main", {}, {"node:Person": [f"p{number}" for number in range(2000)]})
    optimize_tables(writer.uri, writer.work(), OptimizeOptions(fragments=2, deleted_share=0.1, scalar_rows=10**6))
    roomy = Replica(writer, tmp_path, most_bytes=3 * used, late=timedelta(hours=1))
    for age in range(6):
        writer.people("main", ann=age)
        roomy.mirror.follow()
        assert roomy.copies.reclaim() <= 3 * used
    assert roomy.local.image() == writer.image()
    assert roomy.local.at(version=writer.at().manifest.n - 1).manifest.n


def test_a_graph_in_the_place_of_another_one_takes_its_place_here(writer: History, s3: S3Place, tmp_path: Path) -> None:
    replica = Replica(writer, tmp_path)
    replica.mirror.follow()
    first = replica.local.at().identity
    LanceEngine(writer.clock, writer.ids).delete_tree(writer.uri)
    with pytest.raises(GitopsError) as missing:
        replica.mirror.follow()
    assert missing.value.code is Code.GRAPH_MISSING
    assert replica.local.ages() == {"ann": 1, "ben": 2}
    second = History(writer.uri, start=500)
    second.people("main", zoe=9)
    replica.mirror.follow()
    assert replica.local.ages() == {"zoe": 9}
    assert replica.local.at().identity != first


def test_a_copy_that_was_interrupted_anywhere_continues_and_nothing_is_seen_before(
    writer: History, s3: S3Place, tmp_path: Path
) -> None:
    whole = Replica(writer, tmp_path / "whole")
    s3.server.log.clear()
    whole.mirror.follow()
    wanted, copied = data_files(s3.server.log), set[str]()
    asked = len(s3.server.log)
    for stop in range(1, asked + 1, 3):
        s3.server.forget()
        s3.server.fault = refuse_from(stop)
        replica = Replica(writer, tmp_path / "cut")
        try:
            replica.mirror.follow()
        except GitopsError:
            assert not Path(replica.local.uri).exists()
        replica.close()
        copied.update(each.path for each in s3.server.log if data_files([each]) and each.status == 206)
    s3.server.forget()
    replica = Replica(writer, tmp_path / "cut")
    replica.mirror.follow()
    assert copied
    assert not copied.intersection(data_files(s3.server.log))
    assert copied.union(data_files(s3.server.log)) == set(wanted)
    assert replica.local.image() == writer.image()
    assert replica.mirror.check() == 0


STEPS = st.lists(
    st.sampled_from(["put", "gone", "branch", "unbranch", "migrate", "optimize", "gc", "follow", "damage", "start"]),
    min_size=3,
    max_size=9,
)


@pytest.mark.slow
@pytest.mark.law
@settings(
    max_examples=4, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(STEPS)
def test_whatever_happens_a_replica_answers_like_the_writer_at_its_version(
    s3: S3Place, tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    writer = History(f"{s3.root}/graphs/{tmp_path_factory.mktemp('law').name}.omni")
    folder = tmp_path_factory.mktemp("copy")
    replica, images = Replica(writer, folder), dict[tuple[str, int], object]()
    for age, step in enumerate([*steps, "put", "follow"]):
        branches = [each.name for each in list_branches(writer.uri)]
        if step == "put":
            writer.people(branches[-1], **{f"p{age % 3}": age})
        elif step == "gone":
            writer.put("main", {}, {"node:Person": ["p0"]})
        elif step == "branch" and len(branches) == 1:
            create_branch(writer.uri, "dev", writer.work())
        elif step == "unbranch" and len(branches) > 1:
            delete_branch(writer.uri, "dev", writer.work())
        elif step == "migrate" and len(branches) == 1:
            wider = SCHEMA.replace(b"{ name", f"{{ more{age}: I32? name".encode(), 1)
            LanceEngine(writer.clock, writer.ids).prepare_migration(writer.uri, wider, actor="ann").publish()
        elif step == "optimize":
            optimize_tables(writer.uri, writer.work(), OptimizeOptions(fragments=2, deleted_share=0.1, scalar_rows=1))
        elif step == "gc":
            collect_garbage(writer.uri, writer.work(), SHARP)
        elif step == "damage":
            for place in list(replica.mirror.places())[age::7]:
                place.write_bytes(b"damaged")
            replica.mirror.check()
        elif step == "start":
            replica.close()
            replica = Replica(writer, folder)
        for name in (each.name for each in list_branches(writer.uri)):
            images[name, writer.at(name).manifest.n] = writer.image(name)
        if step == "follow":
            replica.mirror.follow()
            for each in list_branches(replica.local.uri):
                n = replica.local.at(each.name).manifest.n
                assert n == writer.at(each.name).manifest.n
                assert replica.local.image(each.name) == images[each.name, n]
    for n in version_numbers(replica.local.uri):
        assert replica.local.image(version=n) == images["main", n]
    # Versions of a branch that was deleted are kept for their readers.
    found = {each.code for each in verify_graph(replica.local.uri, deep=True).findings}
    assert found <= {VerifyFindingCode.UNREFERENCED}
    replica.close()
