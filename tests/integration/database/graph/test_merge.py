"""Merges: three-way by id, every conflict told, nothing published on conflict, and the next merge starts from the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch, delete_branch, make_branch
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.results import BranchMergeResult, MergeStatus
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from tests.support.histories import SCHEMA, History, knows, lives, person, town
from tests.support.s3 import S3Place


@pytest.fixture
def history(tmp_path: Path) -> History:
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


def test_changes_of_both_sides_come_together_in_one_version(history: History) -> None:
    history.put("dev", {"node:Person": [person("b", 9), person("d", 4)]}, {"node:Person": ["c"]})
    history.put("main", {"node:Person": [person("a", 7)], "node:Town": [town("z")]})
    head = history.at().manifest
    result = bring(history)
    assert (result.status, result.rows) == (MergeStatus.MERGED, {"node:Person": 3})
    assert history.ages() == {"a": 7, "b": 9, "d": 4}
    assert [row["id"] for row in history.rows("node:Town")] == ["x", "y", "z"]
    merged = history.at().manifest
    assert (merged.n, merged.txn_id) == (head.n + 1, result.commit)
    assert (merged.parent, merged.merge_parent) == (head.ref, history.at("dev").manifest.ref)
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


def test_a_target_without_changes_takes_the_tables_as_they_are(history: History) -> None:
    history.people("dev", b=9)
    before = history.at().manifest.n
    assert bring(history).status is MergeStatus.FAST_FORWARD
    assert history.at().manifest.tables == history.at("dev").manifest.tables
    assert history.at().manifest.n == before + 1


def test_a_source_without_changes_brings_nothing(history: History) -> None:
    create_branch(history.uri, "idle", history.work())
    for age in (8, 9):
        head = history.at().manifest
        assert bring(history, "idle").status is MergeStatus.UP_TO_DATE
        assert history.at().manifest == head
        history.people("main", b=age)


def test_changes_that_both_sides_made_are_common_from_then_on(history: History) -> None:
    history.people("dev", a=9)
    history.people("main", a=9)
    assert bring(history).status is MergeStatus.MERGED
    history.people("main", a=1)
    history.people("dev", b=9)
    assert bring(history).status is MergeStatus.MERGED
    assert history.ages() == {"a": 1, "b": 9, "c": 3}


def test_the_next_merge_starts_from_the_last_one(history: History) -> None:
    history.people("dev", b=5)
    history.people("main", a=5)
    bring(history)
    history.people("main", b=2)
    history.people("dev", c=5)
    result = bring(history)
    assert (result.status, result.rows) == (MergeStatus.MERGED, {"node:Person": 1})
    assert history.ages() == {"a": 5, "b": 2, "c": 5}
    assert bring(history).status is MergeStatus.UP_TO_DATE
    assert bring(history, "main", "dev").status is MergeStatus.FAST_FORWARD
    assert history.image("dev") == history.image()


def test_identical_changes_are_no_conflict(history: History) -> None:
    for branch in ("main", "dev"):
        history.put(branch, {"node:Person": [person("a", 9), person("n", 1)]}, {"node:Person": ["c"]})
    history.people("dev", b=7)
    assert bring(history).rows == {"node:Person": 1}
    assert history.ages() == {"a": 9, "b": 7, "n": 1}


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
def test_a_conflict_is_told_and_nothing_is_published(history: History, name: str) -> None:
    theirs, ours, expected = CONFLICTS[name]
    history.put("dev", theirs.get("rows", {}), theirs.get("gone"))
    history.put("main", ours.get("rows", {}), ours.get("gone"))
    before = history.at().manifest, history.image(), history.image("dev")
    result = bring(history)
    assert result.status is MergeStatus.CONFLICT
    assert kinds(result) == expected
    assert (history.at().manifest, history.image(), history.image("dev")) == before
    assert result.to_json()["conflicts"][0].keys() == {"kind", "type_kind", "type", "id", "property", "detail"}
    history.people("main", after=1)
    assert history.ages()["after"] == 1


def test_a_conflict_that_is_settled_on_one_side_merges(history: History) -> None:
    history.people("dev", a=8)
    history.people("main", a=9)
    assert bring(history).status is MergeStatus.CONFLICT
    history.people("dev", a=9)
    assert bring(history).status is MergeStatus.MERGED
    assert history.ages()["a"] == 9


def test_values_that_one_side_freed_may_be_used_by_the_other(history: History) -> None:
    history.put("main", {"node:Person": [person("a", 1, "m@x")]})
    history.put("main", {"node:Person": [person("b", 2)]})
    create_branch(history.uri, "two", history.work())
    history.put("two", {"node:Person": [person("a", 1, None), person("c", 3, "m@x")]})
    history.put("main", {"node:Person": [person("z")]})
    assert bring(history, "two").status is MergeStatus.MERGED


def test_compaction_on_one_side_is_no_change(history: History) -> None:
    history.people("dev", b=9)
    history.people("main", a=8)
    optimize_tables(history.uri, history.work(), OptimizeOptions(fragments=1, scalar_rows=1))
    optimize_tables(history.uri, history.work(), OptimizeOptions(fragments=1, scalar_rows=1), "dev")
    assert bring(history).status is MergeStatus.MERGED
    assert history.ages() == {"a": 8, "b": 9, "c": 3}


def test_merges_that_crossed_each_other_do_not_lose_what_was_taken_back(history: History) -> None:
    """Both heads merge the other's older head: the bases differ in row `a`, so taking it back is no silent loss."""
    history.people("dev", a=5)
    history.people("main", b=5)
    make_branch(open_snapshot(history.uri, ReadTarget("main")), "main-old", history.work())
    make_branch(open_snapshot(history.uri, ReadTarget("dev")), "dev-old", history.work())
    assert bring(history, "dev-old", "main").status is MergeStatus.MERGED
    assert bring(history, "main-old", "dev").status is MergeStatus.MERGED
    history.people("main", a=1)
    history.people("dev", c=9)
    result = bring(history)
    assert kinds(result) == [("DivergentUpdate", "node:Person", "a", "age")]
    history.people("main", a=5)
    assert bring(history).status is MergeStatus.MERGED
    assert history.ages() == {"a": 5, "b": 5, "c": 9}


def test_a_removed_branch_leaves_what_others_need_for_a_merge(history: History) -> None:
    history.people("dev", a=5)
    bring(history)
    history.people("dev", a=6)
    create_branch(history.uri, "more", history.work(), ReadTarget("dev"))
    delete_branch(history.uri, "dev", history.work())
    history.people("main", b=7)
    assert bring(history, "more").status is MergeStatus.MERGED
    assert history.ages() == {"a": 6, "b": 7, "c": 3}


def test_branches_of_different_schemas_are_not_merged(history: History) -> None:
    engine = LanceEngine(history.clock, history.ids)
    from gitops.database.graph.engine import plan_migration
    from gitops.database.graph.snapshot import accept_schema

    desired = accept_schema(SCHEMA + b"node Extra {}\n")
    branch = history.at("dev")
    engine.stage_migration(branch, desired, plan_migration(branch.schema(), desired).steps, None).publish()
    for source, into in (("dev", "main"), ("main", "dev")):
        history.people(source, a=4)
        with pytest.raises(GitopsError) as failure:
            bring(history, source, into)
        assert failure.value.code == "graph_merge_schema"


def test_a_branch_is_not_merged_into_itself_or_into_nothing(history: History) -> None:
    with pytest.raises(UsageError):
        bring(history, "dev", "dev")
    with pytest.raises(GitopsError) as failure:
        bring(history, "dev", "gone")
    assert failure.value.code == "graph_branch_missing"


class PublishBetween:
    """Lets another writer publish just before the merge does."""

    def __init__(self, history: History) -> None:
        self._history = history

    def reach(self, point: str) -> None:
        if point == "engine.merge.staged":
            History(self._history.uri, b"", start=5000).put("main", {"node:Town": [town("w")]})


def test_a_merge_that_another_writer_outran_publishes_nothing(history: History) -> None:
    history.people("dev", b=9)
    history.people("main", a=9)
    with pytest.raises(ConflictError):
        merge_branch(history.uri, "dev", "main", history.work(PublishBetween(history)))
    assert history.ages() == {"a": 9, "b": 2, "c": 3}
    assert merge_branch(history.uri, "dev", "main", history.work(NoFaults())).status is MergeStatus.MERGED
    assert len(history.rows("node:Town")) == 3
