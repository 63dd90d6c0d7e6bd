"""A version is found by number, commit and time, on every branch; what is gone and what never was are told apart."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError, UsageError
from gitops.database.graph import layout
from gitops.database.graph.history.branches import create_branch, delete_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.manifest import read_manifest
from gitops.database.graph.snapshot import open_snapshot
from tests.support.histories import History, version_numbers
from tests.support.memory_store import MemoryStore
from tests.support.pages import ROOT

FIXTURE = ROOT / "tests" / "data/documents/manifest_1.json"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


def refused(history: History, branch: str = "main", **which: object) -> str:
    with pytest.raises(GitopsError) as failure:
        history.at(branch, **which)
    return failure.value.code


def test_every_version_is_found_by_number_commit_and_time(history: History) -> None:
    seen = {}
    for age in range(4):
        seen[history.people("main", a=age)] = {"a": age}
    create_branch(history.uri, "dev", history.work())
    for age in range(10, 13):
        seen[history.people("dev", a=age)] = {"a": age}
    for version, ages in seen.items():
        manifest = history.at("dev", version=version).manifest
        assert history.ages("dev", version=version) == ages
        assert history.ages("dev", time=manifest.ts) == ages
        assert history.ages("main", commit=manifest.txn_id) == ages
    assert refused(history, "main", version=max(seen)) == "graph_version_unknown"


def test_a_time_between_two_versions_means_the_older_one(history: History) -> None:
    first = history.people("main", a=1)
    history.clock.advance(timedelta(hours=1))
    between = history.clock.now().isoformat()
    history.clock.advance(timedelta(hours=1))
    history.people("main", a=2)
    assert history.at(time=between).manifest.n == first
    assert history.at(time="2999-01-01T00:00:00+02:00").manifest.n == first + 1
    assert refused(history, time="2000-01-01T00:00:00Z") == "graph_version_unknown"
    assert refused(history, time="yesterday") == "usage_error"


@pytest.mark.parametrize("version", [0, -1, 99])
def test_a_version_that_was_never_made(history: History, version: int) -> None:
    assert refused(history, version=version) == "graph_version_unknown"


def test_a_commit_that_is_nowhere(history: History) -> None:
    assert refused(history, commit="0" * 26) == "graph_version_gone"
    with pytest.raises(UsageError):
        history.at(commit="abc")


def test_what_gc_took_is_gone_and_says_so(history: History) -> None:
    for age in range(6):
        history.people("main", a=age)
    first = history.at(version=2).manifest
    collect_garbage(history.uri, history.work(), Retention(2, timedelta(0), timedelta(0)))
    assert refused(history, version=2) == "graph_version_gone"
    assert refused(history, commit=first.txn_id) == "graph_version_gone"
    assert refused(history, time=first.ts) == "graph_version_gone"
    assert version_numbers(history.uri) == (6, 7)
    assert history.ages(version=6) == {"a": 4}


def test_what_a_removed_branch_had_is_gone_for_those_who_came_from_it(history: History) -> None:
    history.people("main", a=1)
    create_branch(history.uri, "dev", history.work())
    version = history.people("dev", b=1)
    create_branch(history.uri, "more", history.work(), origin=history_target("dev"))
    delete_branch(history.uri, "dev", history.work())
    assert history.ages("more") == {"a": 1, "b": 1}
    assert refused(history, "more", version=version) == "graph_version_gone"
    assert history.ages("more", version=2) == {"a": 1}


def history_target(branch: str):
    from gitops.database.graph.snapshot import ReadTarget

    return ReadTarget(branch)


def test_a_manifest_that_vanished_by_itself_is_damage(history: History) -> None:
    history.people("main", a=1)
    history.people("main", a=2)
    (Path(history.uri) / layout.manifest_key(2)).unlink()
    assert refused(history, version=2) == "graph_unreadable"


def test_a_manifest_of_the_first_format_reads_as_ever() -> None:
    data, store = FIXTURE.read_bytes(), MemoryStore()
    store.write(layout.manifest_key(7), data)
    manifest = read_manifest(store, 7)
    form = json.loads(data)
    assert (manifest.line, manifest.branch, manifest.lineage) == ("main", "main", {})
    assert manifest.parent is not None
    assert (manifest.parent.n, manifest.parent.commit) == (6, None)
    assert [entry.purged for entry in manifest.dropped] == [False]
    new = json.loads(manifest.to_bytes())
    assert {key: new[key] for key in form if key not in ("format", "parent", "dropped")} == {
        key: form[key] for key in form if key not in ("format", "parent", "dropped")
    }


def test_a_graph_whose_versions_are_of_the_first_format_goes_on(history: History) -> None:
    history.people("main", a=1)
    history.people("main", a=2)
    for n in (1, 2, 3):
        path = Path(history.uri) / layout.manifest_key(n)
        form = json.loads(path.read_bytes()) | {"format": 1, "parent": n - 1 or None}
        for name in ("branch", "line", "merge_parent", "lineage", "message", "fence", "approvals", "checksum"):
            del form[name]
        path.write_text(json.dumps(form), encoding="utf-8")
    assert (history.ages(), history.ages(version=2)) == ({"a": 2}, {"a": 1})
    history.people("main", a=3)
    create_branch(history.uri, "dev", history.work(), origin=None)
    assert history.ages("dev", version=2) == {"a": 1}
    parent = open_snapshot(history.uri).manifest.parent
    assert parent is not None
    assert parent.commit == history.at(version=3).manifest.txn_id
    assert verify_graph(history.uri, deep=True).findings == ()


def test_a_version_is_never_older_than_its_parent(history: History) -> None:
    history.people("main", a=1)
    history.clock.advance(timedelta(days=-3))
    history.people("main", a=2)
    times = [history.at(version=n).manifest.ts for n in (1, 2, 3)]
    assert times == sorted(times)
