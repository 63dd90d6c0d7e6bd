"""Branches: they come and go in one step, and what is written on one is seen on no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.core.clock import is_ulid
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.database.graph.history.branches import (
    create_branch,
    delete_branch,
    describe_version,
    list_branches,
    read_log,
)
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.lines import check_name, read_branches
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import StagedVersion
from gitops.database.graph.tables import open_table
from tests.support.histories import History, person, version_numbers
from tests.support.s3 import S3Place


@pytest.fixture(params=["local", "s3"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> History:
    if request.param == "local":
        return History(str(tmp_path / "g.omni"))
    s3: S3Place = request.getfixturevalue("s3")
    return History(f"{s3.root}/graphs/g.omni")


@pytest.fixture
def local(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


def code(failure: pytest.ExceptionInfo[GitopsError]) -> str:
    return failure.value.code


def test_two_branches_that_write_one_table_in_turns_never_disturb_each_other(history: History) -> None:
    history.people("main", a=1, b=2)
    create_branch(history.uri, "dev", history.work())
    create_branch(history.uri, "exp", history.work(), ReadTarget("dev"))
    expected = {name: {"a": 1, "b": 2} for name in ("main", "dev", "exp")}
    for turn in range(3):
        for number, name in enumerate(expected):
            ages = {"a": 10 * number + turn, f"{name}{turn}": turn}
            history.people(name, **ages)
            expected[name] |= ages
            assert {each: history.ages(each) for each in expected} == expected
    history.put("dev", {}, {"node:Person": ["b"]})
    del expected["dev"]["b"]
    assert {each: history.ages(each) for each in expected} == expected
    assert len({history.at(name).manifest.tables["node:Person"].path for name in expected}) == 1


def test_an_index_serves_each_branch_its_own_rows_and_row_ids_mean_one_row(local: History) -> None:
    local.people("main", **{f"p{n:03}": n for n in range(50)})
    create_branch(local.uri, "dev", local.work())
    built = OptimizeOptions(fragments=1, scalar_rows=1)
    optimize_tables(local.uri, local.work(), built)
    local.people("dev", p001=71, only=1)
    optimize_tables(local.uri, local.work(), built, "dev")
    local.people("main", p001=81, other=2)
    for name, age, has, lacks in (("main", 81, "other", "only"), ("dev", 71, "only", "other")):
        snapshot = local.at(name)
        table = open_table(snapshot.folder, snapshot.manifest.tables["node:Person"])
        assert "ScalarIndexQuery" in table.scanner(filter="id = 'p001'").explain_plan()
        found = {key: table.scanner(filter=f"id = '{key}'").to_table().to_pylist() for key in ("p001", has, lacks)}
        assert [row["age"] for row in found["p001"]] == [age]
        assert (len(found[has]), len(found[lacks])) == (1, 0)
        row_ids = table.scanner(columns=[], with_row_id=True).to_table().column("_rowid").to_pylist()
        assert len(set(row_ids)) == 51


def test_a_branch_says_where_when_and_by_whom_it_was_made(history: History) -> None:
    version = history.people("main", a=1)
    fork = history.at().manifest.txn_id
    made = create_branch(history.uri, "team/dev", history.work(message="try it"))
    assert made.to_json() == list_branches(history.uri)[1].to_json()
    assert made.to_json() | {"created_at": ""} == {
        "name": "team/dev",
        "manifest_version": version + 1,
        "forked_from": "main",
        "fork_version": version,
        "fork_commit": fork,
        "created_at": "",
        "actor": "ann",
    }
    first = read_log(history.uri, "team/dev")[0].to_json()
    assert (first["operation"], first["message"], first["parent"]) == (
        "branch",
        "try it",
        {"commit": fork, "manifest_version": version},
    )


def test_a_branch_starts_at_any_version_of_any_branch(local: History) -> None:
    early = local.people("main", a=1)
    local.people("main", a=2)
    create_branch(local.uri, "old", local.work(), ReadTarget(version=early))
    local.people("old", b=1)
    commit = local.at("old").manifest.txn_id
    create_branch(local.uri, "copy", local.work(), ReadTarget(commit=commit))
    assert local.ages("copy") == {"a": 1, "b": 1}
    assert list_branches(local.uri)[1].to_json()["forked_from"] == "old"
    assert local.ages("copy", version=early) == {"a": 1}


def test_a_name_that_is_used_again_is_another_branch(history: History) -> None:
    history.people("main", a=1)
    create_branch(history.uri, "dev", history.work())
    late = history.stage("dev", {"node:Person": [person("late")]})
    delete_branch(history.uri, "dev", history.work())
    with pytest.raises(GitopsError) as failure:
        history.at("dev")
    assert code(failure) == "graph_branch_missing"
    create_branch(history.uri, "dev", history.work())
    with pytest.raises(ConflictError) as failure:
        late.publish()
    assert code(failure) == "graph_conflict"
    assert history.ages("dev") == {"a": 1}
    delete_branch(history.uri, "dev", history.work())
    with pytest.raises(GitopsError) as failure:
        history.stage("dev", {})
    assert code(failure) == "graph_branch_missing"


def test_of_two_writers_of_a_branch_one_publishes(local: History) -> None:
    create_branch(local.uri, "dev", local.work())
    one = local.stage("dev", {"node:Person": [person("a")]})
    other = local.stage("dev", {"node:Person": [person("b")]})
    other.publish()
    with pytest.raises(ConflictError):
        one.publish()
    assert local.ages("dev") == {"b": None}


def test_only_the_newest_version_of_a_branch_has_successors(local: History) -> None:
    version = local.people("main", a=1)
    create_branch(local.uri, "dev", local.work())
    old = local.at("dev", version=version)
    with pytest.raises(ConflictError):
        StagedVersion(old, "load", local.work()).publish()
    assert version_numbers(local.uri, "dev") == (1, version, version + 1)


def test_branches_that_are_there_or_not_there(history: History) -> None:
    create_branch(history.uri, "dev", history.work())
    for name in ("dev", "main"):
        with pytest.raises(GitopsError) as failure:
            create_branch(history.uri, name, history.work())
        assert code(failure) == "graph_branch_exists"
    for deed in (
        lambda: delete_branch(history.uri, "gone", history.work()),
        lambda: create_branch(history.uri, "x", history.work(), ReadTarget("gone")),
        lambda: read_log(history.uri, "gone"),
    ):
        with pytest.raises(GitopsError) as failure:
            deed()
        assert code(failure) == "graph_branch_missing"
    with pytest.raises(GitopsError) as failure:
        delete_branch(history.uri, "main", history.work())
    assert code(failure) == "graph_branch_name"


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "a..b", "/a", "a/", "a//b", "-a", "a/.b", "a b", "a\nb", "ä", "a" * 101, "__x", "a\0b", "~a"],
)
def test_names_that_are_refused(local: History, name: str) -> None:
    with pytest.raises(GitopsError) as failure:
        create_branch(local.uri, name, local.work())
    assert code(failure) == "graph_branch_name"
    assert [branch.name for branch in list_branches(local.uri)] == ["main"]


@pytest.mark.parametrize("name", ["a", "A1", "_a", "feature/x-1", "v1.2", " trimmed "])
def test_names_that_are_taken(name: str) -> None:
    assert check_name(name) == name.strip()


def test_names_of_the_engine_are_neither_shown_nor_given(local: History) -> None:
    from gitops.database.graph.history.branches import make_branch

    make_branch(open_snapshot(local.uri), "__preview_x", local.work())
    assert [branch.name for branch in list_branches(local.uri)] == ["main"]
    with pytest.raises(GitopsError) as failure:
        delete_branch(local.uri, "__preview_x", local.work())
    assert code(failure) == "graph_branch_name"
    assert "__preview_x" in read_branches(open_snapshot(local.uri).store).branches


def test_a_graph_without_branches_has_no_list_of_them(local: History) -> None:
    local.people("main", a=1)
    assert not (Path(local.uri) / "branches").exists()


@pytest.mark.parametrize(
    "broken",
    [
        b"[]",
        b'{"format":2,"branches":{}}',
        b'{"format":1,"branches":{"main":{}}}',
        b'{"format":1,"branches":{"../x":{}}}',
        b'{"format":1,"branches":{"a":{"line":"x"}}}',
        b'{"format":1,"branches":{"a":1}}',
    ],
)
def test_a_list_of_branches_that_is_not_well_formed_is_refused(local: History, broken: bytes) -> None:
    create_branch(local.uri, "dev", local.work())
    (Path(local.uri) / "branches/index.json").write_bytes(broken)
    with pytest.raises(GitopsError) as failure:
        local.at("dev")
    assert code(failure) == "graph_unreadable"
    assert local.ages() == {}


def test_the_log_and_the_snapshot_tell_the_lineage(local: History) -> None:
    local.people("main", a=1)
    create_branch(local.uri, "dev", local.work())
    local.people("dev", b=1)
    commits = [commit.to_json() for commit in read_log(local.uri, "dev")]
    assert [each["operation"] for each in commits] == ["load", "branch", "load", "create"]
    assert [each["branch"] for each in commits] == ["dev", "dev", "main", "main"]
    assert all(is_ulid(each["commit"]) for each in commits)
    assert [each["parent"] and each["parent"]["commit"] for each in commits] == [
        *(each["commit"] for each in commits[1:]),
        None,
    ]
    assert [commit.n for commit in read_log(local.uri, "dev", 2)] == [4, 3]
    assert read_log(local.uri, "dev", 0) == read_log(local.uri, "dev", -1) == ()
    told = describe_version(local.uri, ReadTarget("dev")).to_json()
    assert told["tables"]["node:Person"]["rows"] == 2
    assert (told["branch"], told["manifest_version"]) == ("dev", 4)


def test_a_target_that_names_two_versions_is_refused(local: History) -> None:
    with pytest.raises(UsageError):
        local.at(version=1, time="2026-01-01T00:00:00Z")
