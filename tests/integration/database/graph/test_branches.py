"""Branches of a graph: made, compared, merged and deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.clock import is_ulid
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history import diff as history_diff
from gitops.database.graph.history.branches import (
    create_branch,
    delete_branch,
    describe_version,
    list_branches,
    make_branch,
    read_log,
)
from gitops.database.graph.history.diff import diff_versions, summarize_diff
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.lines import check_name, read_branches
from gitops.database.graph.results import BranchMergeResult, MergeStatus
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import StagedVersion
from gitops.database.graph.tables import open_table
from tests.support.effort import cases
from tests.support.histories import SCHEMA, History, knows, lives, person, town, version_numbers
from tests.support.s3 import S3Place


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


MAIN, DEV = ReadTarget(), ReadTarget("dev")
ALL_KINDS = b"""node Thing { name: String @key  b: Bool?  i: I32?  u: U64?  f: F32?  d: F64?  day: Date?  at: DateTime?
    kind: enum(x, y)?
    tags: [String]?  numbers: [I64]?  vec: Vector(2)?  doc: Blob? }
"""
CHANGES = {
    "b": (True, False),
    "i": (1, 2),
    "u": (2**64 - 1, 2**64 - 2),
    "f": (0.5, None),
    "d": (float("nan"), 1.0),
    "day": (0, 1),
    "at": (0, 86_400_000),
    "kind": ("x", "y"),
    "tags": (["a"], ["a", "b"]),
    "numbers": ([], None),
    "vec": ([1.0, 2.0], [1.0, 2.5]),
    "doc": (b"one", b"two"),
}
_STEPS = st.tuples(st.sampled_from(["main", "dev"]), st.sampled_from("abcdefgh"), st.integers(0, 3) | st.none())


def changes(history: History, before: ReadTarget = MAIN, after: ReadTarget = DEV, *types: str) -> list[tuple[str, ...]]:
    found = diff_versions(history.uri, before, after, types)
    return [(change.table, change.kind.value, change.id, *change.fields) for change in found]


def test_rows_that_came_went_and_changed(local: History) -> None:
    local.people("main", a=1, b=2, c=3)
    create_branch(local.uri, "dev", local.work())
    local.put("dev", {"node:Person": [person("b", 9, "b@x"), person("d")], "edge:Knows": [knows("e", "a", "b")]})
    local.put("dev", {}, {"node:Person": ["c"]})
    assert changes(local) == [
        ("edge:Knows", "added", "e"),
        ("node:Person", "changed", "b", "age", "mail"),
        ("node:Person", "removed", "c"),
        ("node:Person", "added", "d"),
    ]
    assert changes(local, DEV, MAIN, "Person") == [
        ("node:Person", "changed", "b", "age", "mail"),
        ("node:Person", "added", "c"),
        ("node:Person", "removed", "d"),
    ]
    told = summarize_diff(local.uri, MAIN, DEV).to_json()
    assert told["tables"] == {
        "edge:Knows": {"added": 1, "removed": 0, "changed": 0},
        "node:Person": {"added": 1, "removed": 1, "changed": 1},
    }
    (row,) = [change for change in diff_versions(local.uri, MAIN, DEV) if change.id == "b"]
    assert (row.before, row.after) == (person("b", 2), person("b", 9, "b@x"))


def test_nothing_differs_from_itself(local: History) -> None:
    local.people("main", a=1)
    create_branch(local.uri, "dev", local.work())
    assert changes(local) == []
    local.people("dev", a=1)
    assert changes(local) == []


def test_a_row_that_was_changed_back_does_not_differ(local: History) -> None:
    version = local.people("main", a=1)
    local.people("main", a=2)
    local.people("main", a=1)
    assert changes(local, ReadTarget(version=version), MAIN) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_every_kind_of_value_is_seen(tmp_path: Path, name: str) -> None:
    history = History(str(tmp_path / "g.omni"), ALL_KINDS)
    values = {key: pair[0] for key, pair in CHANGES.items()}
    row = {"id": "t", "name": "t", **values}
    history.put("main", {"node:Thing": [row]})
    create_branch(history.uri, "dev", history.work())
    history.put("dev", {"node:Thing": [row]})
    assert changes(history) == []
    history.put("dev", {"node:Thing": [row | {name: CHANGES[name][1]}]})
    assert changes(history) == [("node:Thing", "changed", "t", name)]


def test_compaction_and_indexes_change_no_row(local: History) -> None:
    for n in range(4):
        local.people("main", **{f"p{n}": n, f"q{n}": None})
    local.put("main", {}, {"node:Person": ["p2"]})
    create_branch(local.uri, "dev", local.work())
    optimize_tables(local.uri, local.work(), OptimizeOptions(fragments=1, scalar_rows=1), "dev")
    assert changes(local) == []
    local.people("dev", p1=8)
    assert changes(local) == [("node:Person", "changed", "p1", "age")]


def test_a_migration_shows_as_what_it_did_to_rows(local: History) -> None:
    version = local.people("main", a=1, b=None)
    grown = SCHEMA.replace(b"mail: String? @unique", b"mail: String? @unique  note: String?").replace(
        b"edge Knows: Person -> Person", b'edge Met: Person -> Person @rename_from("Knows")\nnode Extra {}'
    )
    LanceEngine(local.clock, local.ids).prepare_migration(local.uri, grown, actor=None).publish()
    before = ReadTarget(version=version)
    assert changes(local, before, MAIN) == []
    local.put("main", {"node:Extra": [{"id": "x"}], "edge:Met": [knows("e", "a", "b")]})
    assert changes(local, before, MAIN) == [("edge:Met", "added", "e"), ("node:Extra", "added", "x")]
    assert not summarize_diff(local.uri, before, MAIN).same_schema


def test_a_type_that_neither_version_has(local: History) -> None:
    with pytest.raises(GitopsError) as failure:
        changes(local, MAIN, MAIN, "Persno")
    assert failure.value.code == "graph_type_unknown"
    assert failure.value.detail.endswith(
        "has no type 'Persno'; did you mean `Person`? known: Knows, Lives, Person, Town"
    )


def test_what_the_versions_share_is_not_read(local: History) -> None:
    """Without the data files of shared fragments a table cannot be read, but compared."""
    local.people("main", **{f"p{n:03}": n for n in range(300)})
    shared = set(Path(local.uri).glob("nodes/*/data/*.lance"))
    create_branch(local.uri, "dev", local.work())
    local.people("dev", new=1)
    for file in shared:
        file.unlink()
    assert changes(local) == [("node:Person", "added", "new")]


@pytest.mark.slow
@settings(max_examples=cases(25))
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3)),
    st.lists(
        st.tuples(st.sampled_from(["main", "dev"]), st.sampled_from("abcdefgh"), st.integers(0, 3) | st.none()),
        max_size=8,
    ),
    st.sampled_from([1, 2, 16_384]),
)
def test_a_diff_leads_from_one_version_to_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    start: dict[str, int],
    steps: list[tuple[str, str, int | None]],
    chunk: int,
) -> None:
    """Law: the rows of `before`, changed as the diff says, are the rows of `after`; and no change changes nothing."""
    history = History(str(tmp_path_factory.mktemp("d") / "g.omni"))
    if start:
        history.people("main", **start)
    create_branch(history.uri, "dev", history.work())
    for branch, name, age in steps:
        if age is None:
            history.put(branch, {}, {"node:Person": [name]})
        else:
            history.people(branch, **{name: age})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_diff, "_CHUNK", chunk)
        found = list(diff_versions(history.uri, MAIN, DEV))
    rows = history.ages("main")
    for change in found:
        assert (change.before or {}).get("age") == rows.pop(change.id, None)
        if change.after is not None:
            rows[change.id] = change.after["age"]
    assert rows == history.ages("dev")
    assert [change.id for change in found] == sorted(change.id for change in found)
    assert all(change.before != change.after for change in found)


@pytest.fixture
def history_of_merge(tmp_path: Path) -> History:
    made = History(str(tmp_path / "g.omni"))
    begin(made)
    return made


def begin(history: History) -> None:
    rows = {
        "node:Person": [person("a", 1), person("b", 2), person("c", 3)],
        "node:Town": [town("x"), town("y")],
        "edge:Lives": [lives("l1", "a", "x", 1)],
        "edge:Knows": [knows("k1", "a", "b")],
    }
    history.put("main", rows)
    create_branch(history.uri, "dev", history.work())


def bring(history: History, source: str = "dev", into: str = "main") -> BranchMergeResult:
    return merge_branch(history.uri, source, into, history.work())


def kinds(result: BranchMergeResult) -> list[tuple[str, str, str, str]]:
    return [(each.kind, each.table, each.id, each.property) for each in result.conflicts]


def test_changes_of_both_sides_come_together_in_one_version(history_of_merge: History) -> None:
    history_of_merge.put("dev", {"node:Person": [person("b", 9), person("d", 4)]}, {"node:Person": ["c"]})
    history_of_merge.put("main", {"node:Person": [person("a", 7)], "node:Town": [town("z")]})
    head = history_of_merge.at().manifest
    result = bring(history_of_merge)
    assert (result.status, result.rows) == (MergeStatus.MERGED, {"node:Person": 3})
    assert history_of_merge.ages() == {"a": 7, "b": 9, "d": 4}
    assert [row["id"] for row in history_of_merge.rows("node:Town")] == ["x", "y", "z"]
    merged = history_of_merge.at().manifest
    assert (merged.n, merged.txn_id) == (head.n + 1, result.commit)
    assert (merged.parent, merged.merge_parent) == (head.ref, history_of_merge.at("dev").manifest.ref)
    assert merged.operation == "merge"


def test_on_an_object_store_too(s3: S3Place) -> None:
    history = History(f"{s3.root}/graphs/g.omni")
    begin(history)
    history.people("dev", b=9)
    history.people("main", a=7)
    assert bring(history).status is MergeStatus.MERGED
    assert history.ages() == {"a": 7, "b": 9, "c": 3}
    history.people("dev", a=8)
    assert kinds(bring(history)) == [("DivergentUpdate", "node:Person", "a", "age")]


def test_a_target_without_changes_takes_the_tables_as_they_are(history_of_merge: History) -> None:
    history_of_merge.people("dev", b=9)
    before = history_of_merge.at().manifest.n
    assert bring(history_of_merge).status is MergeStatus.FAST_FORWARD
    assert history_of_merge.at().manifest.tables == history_of_merge.at("dev").manifest.tables
    assert history_of_merge.at().manifest.n == before + 1


def test_a_source_without_changes_brings_nothing(history_of_merge: History) -> None:
    create_branch(history_of_merge.uri, "idle", history_of_merge.work())
    for age in (8, 9):
        head = history_of_merge.at().manifest
        assert bring(history_of_merge, "idle").status is MergeStatus.UP_TO_DATE
        assert history_of_merge.at().manifest == head
        history_of_merge.people("main", b=age)


def test_changes_that_both_sides_made_are_common_from_then_on(history_of_merge: History) -> None:
    history_of_merge.people("dev", a=9)
    history_of_merge.people("main", a=9)
    assert bring(history_of_merge).status is MergeStatus.MERGED
    history_of_merge.people("main", a=1)
    history_of_merge.people("dev", b=9)
    assert bring(history_of_merge).status is MergeStatus.MERGED
    assert history_of_merge.ages() == {"a": 1, "b": 9, "c": 3}


def test_the_next_merge_starts_from_the_last_one(history_of_merge: History) -> None:
    history_of_merge.people("dev", b=5)
    history_of_merge.people("main", a=5)
    bring(history_of_merge)
    history_of_merge.people("main", b=2)
    history_of_merge.people("dev", c=5)
    result = bring(history_of_merge)
    assert (result.status, result.rows) == (MergeStatus.MERGED, {"node:Person": 1})
    assert history_of_merge.ages() == {"a": 5, "b": 2, "c": 5}
    assert bring(history_of_merge).status is MergeStatus.UP_TO_DATE
    assert bring(history_of_merge, "main", "dev").status is MergeStatus.FAST_FORWARD
    assert history_of_merge.image("dev") == history_of_merge.image()


def test_identical_changes_are_no_conflict(history_of_merge: History) -> None:
    for branch in ("main", "dev"):
        history_of_merge.put(branch, {"node:Person": [person("a", 9), person("n", 1)]}, {"node:Person": ["c"]})
    history_of_merge.people("dev", b=7)
    assert bring(history_of_merge).rows == {"node:Person": 1}
    assert history_of_merge.ages() == {"a": 9, "b": 7, "n": 1}


CONFLICTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, str, str, str]]]] = {
    "two different updates": (
        {"rows": {"node:Person": [person("a", 8, "p@x")]}},
        {"rows": {"node:Person": [person("a", 9)]}},
        [("DivergentUpdate", "node:Person", "a", "age"), ("DivergentUpdate", "node:Person", "a", "mail")],
    ),
    "two different inserts": (
        {"rows": {"node:Person": [person("n", 8)]}},
        {"rows": {"node:Person": [person("n", 9)]}},
        [("DivergentInsert", "node:Person", "n", "age")],
    ),
    "an update of what the target removed": (
        {"rows": {"node:Person": [person("c", 8)]}},
        {"gone": {"node:Person": ["c"]}},
        [("DeleteVsUpdate", "node:Person", "c", "")],
    ),
    "a removal of what the target updated": (
        {"gone": {"node:Person": ["c"]}},
        {"rows": {"node:Person": [person("c", 8)]}},
        [("DeleteVsUpdate", "node:Person", "c", "")],
    ),
    "an edge that moved in two directions": (
        {"rows": {"edge:Lives": [lives("l1", "a", "y", 1)]}},
        {"rows": {"edge:Lives": [lives("l1", "b", "x", 1)]}},
        [("DivergentUpdate", "edge:Lives", "l1", "dst"), ("DivergentUpdate", "edge:Lives", "l1", "src")],
    ),
    "an edge to a node that the target removed": (
        {"rows": {"edge:Knows": [knows("k2", "b", "c")]}},
        {"gone": {"node:Person": ["c"]}},
        [("OrphanEdge", "edge:Knows", "k2", "dst")],
    ),
    "a removed node to which the target made an edge": (
        {"gone": {"node:Town": ["y"]}},
        {"rows": {"edge:Lives": [lives("l2", "b", "y")]}},
        [("OrphanEdge", "edge:Lives", "l2", "dst")],
    ),
    "one unique value twice": (
        {"rows": {"node:Person": [person("b", 2, "m@x")]}},
        {"rows": {"node:Person": [person("c", 3, "m@x")]}},
        [("UniqueViolation", "node:Person", "b", "mail"), ("UniqueViolation", "node:Person", "c", "mail")],
    ),
    "more edges than a source may have": (
        {"rows": {"edge:Lives": [lives("l2", "b", "x")]}},
        {"rows": {"edge:Lives": [lives("l3", "b", "y")]}},
        [("CardinalityViolation", "edge:Lives", "b", "src")],
    ),
    "a value out of range": (
        {"rows": {"node:Person": [person("b", 900)]}},
        {"rows": {"node:Person": [person("c", 4)]}},
        [("ValueConstraintViolation", "node:Person", "b", "age")],
    ),
    "all of it at once": (
        {"rows": {"node:Person": [person("a", 8), person("b", 2, "m@x")], "edge:Knows": [knows("k2", "b", "c")]}},
        {"rows": {"node:Person": [person("a", 9), person("z", 1, "m@x")]}, "gone": {"node:Person": ["c"]}},
        [
            ("OrphanEdge", "edge:Knows", "k2", "dst"),
            ("DivergentUpdate", "node:Person", "a", "age"),
            ("UniqueViolation", "node:Person", "b", "mail"),
            ("UniqueViolation", "node:Person", "z", "mail"),
        ],
    ),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_conflict_is_told_and_nothing_is_published(history_of_merge: History, name: str) -> None:
    theirs, ours, expected = CONFLICTS[name]
    history_of_merge.put("dev", theirs.get("rows", {}), theirs.get("gone"))
    history_of_merge.put("main", ours.get("rows", {}), ours.get("gone"))
    before = history_of_merge.at().manifest, history_of_merge.image(), history_of_merge.image("dev")
    result = bring(history_of_merge)
    assert result.status is MergeStatus.CONFLICT
    assert kinds(result) == expected
    assert (history_of_merge.at().manifest, history_of_merge.image(), history_of_merge.image("dev")) == before
    assert result.to_json()["conflicts"][0].keys() == {"kind", "type_kind", "type", "id", "property", "detail"}
    history_of_merge.people("main", after=1)
    assert history_of_merge.ages()["after"] == 1


def test_a_conflict_that_is_settled_on_one_side_merges(history_of_merge: History) -> None:
    history_of_merge.people("dev", a=8)
    history_of_merge.people("main", a=9)
    assert bring(history_of_merge).status is MergeStatus.CONFLICT
    history_of_merge.people("dev", a=9)
    assert bring(history_of_merge).status is MergeStatus.MERGED
    assert history_of_merge.ages()["a"] == 9


def test_values_that_one_side_freed_may_be_used_by_the_other(history_of_merge: History) -> None:
    history_of_merge.put("main", {"node:Person": [person("a", 1, "m@x")]})
    history_of_merge.put("main", {"node:Person": [person("b", 2)]})
    create_branch(history_of_merge.uri, "two", history_of_merge.work())
    history_of_merge.put("two", {"node:Person": [person("a", 1, None), person("c", 3, "m@x")]})
    history_of_merge.put("main", {"node:Person": [person("z")]})
    assert bring(history_of_merge, "two").status is MergeStatus.MERGED


def test_compaction_on_one_side_is_no_change(history_of_merge: History) -> None:
    history_of_merge.people("dev", b=9)
    history_of_merge.people("main", a=8)
    optimize_tables(history_of_merge.uri, history_of_merge.work(), OptimizeOptions(fragments=1, scalar_rows=1))
    optimize_tables(history_of_merge.uri, history_of_merge.work(), OptimizeOptions(fragments=1, scalar_rows=1), "dev")
    assert bring(history_of_merge).status is MergeStatus.MERGED
    assert history_of_merge.ages() == {"a": 8, "b": 9, "c": 3}


def test_merges_that_crossed_each_other_do_not_lose_what_was_taken_back(history_of_merge: History) -> None:
    """Both heads merge the other's older head: the bases differ in row `a`, so taking it back is no silent loss."""
    history_of_merge.people("dev", a=5)
    history_of_merge.people("main", b=5)
    make_branch(open_snapshot(history_of_merge.uri, ReadTarget("main")), "main-old", history_of_merge.work())
    make_branch(open_snapshot(history_of_merge.uri, ReadTarget("dev")), "dev-old", history_of_merge.work())
    assert bring(history_of_merge, "dev-old", "main").status is MergeStatus.MERGED
    assert bring(history_of_merge, "main-old", "dev").status is MergeStatus.MERGED
    history_of_merge.people("main", a=1)
    history_of_merge.people("dev", c=9)
    result = bring(history_of_merge)
    assert kinds(result) == [("DivergentUpdate", "node:Person", "a", "age")]
    history_of_merge.people("main", a=5)
    assert bring(history_of_merge).status is MergeStatus.MERGED
    assert history_of_merge.ages() == {"a": 5, "b": 5, "c": 9}


def test_a_removed_branch_leaves_what_others_need_for_a_merge(history_of_merge: History) -> None:
    history_of_merge.people("dev", a=5)
    bring(history_of_merge)
    history_of_merge.people("dev", a=6)
    create_branch(history_of_merge.uri, "more", history_of_merge.work(), ReadTarget("dev"))
    delete_branch(history_of_merge.uri, "dev", history_of_merge.work())
    history_of_merge.people("main", b=7)
    assert bring(history_of_merge, "more").status is MergeStatus.MERGED
    assert history_of_merge.ages() == {"a": 6, "b": 7, "c": 3}


def test_branches_of_different_schemas_are_not_merged(history_of_merge: History) -> None:
    engine = LanceEngine(history_of_merge.clock, history_of_merge.ids)
    from gitops.database.graph.engine import plan_migration
    from gitops.database.graph.snapshot import accept_schema

    desired = accept_schema(SCHEMA + b"node Extra {}\n")
    branch = history_of_merge.at("dev")
    engine.stage_migration(branch, desired, plan_migration(branch.schema(), desired).steps, None).publish()
    for source, into in (("dev", "main"), ("main", "dev")):
        history_of_merge.people(source, a=4)
        with pytest.raises(GitopsError) as failure:
            bring(history_of_merge, source, into)
        assert failure.value.code == "graph_merge_schema"


def test_a_branch_is_not_merged_into_itself_or_into_nothing(history_of_merge: History) -> None:
    with pytest.raises(UsageError):
        bring(history_of_merge, "dev", "dev")
    with pytest.raises(GitopsError) as failure:
        bring(history_of_merge, "dev", "gone")
    assert failure.value.code == "graph_branch_missing"


class PublishBetween:
    """Lets another writer publish just before the merge does."""

    def __init__(self, history: History) -> None:
        self._history = history

    def reach(self, point: str) -> None:
        if point == "engine.merge.staged":
            History(self._history.uri, b"", start=5000).put("main", {"node:Town": [town("w")]})


def test_a_merge_that_another_writer_outran_publishes_nothing(history_of_merge: History) -> None:
    history_of_merge.people("dev", b=9)
    history_of_merge.people("main", a=9)
    with pytest.raises(ConflictError):
        merge_branch(history_of_merge.uri, "dev", "main", history_of_merge.work(PublishBetween(history_of_merge)))
    assert history_of_merge.ages() == {"a": 9, "b": 2, "c": 3}
    assert (
        merge_branch(history_of_merge.uri, "dev", "main", history_of_merge.work(NoFaults())).status
        is MergeStatus.MERGED
    )
    assert len(history_of_merge.rows("node:Town")) == 3
