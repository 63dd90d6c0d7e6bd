"""What differs between two versions: every row that does, no other, and nothing is read that the versions share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history import diff as history_diff
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.diff import diff_versions, summarize_diff
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.snapshot import ReadTarget
from tests.support.effort import cases
from tests.support.histories import SCHEMA, History, knows, person

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


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(str(tmp_path / "g.omni"))


def changes(history: History, before: ReadTarget = MAIN, after: ReadTarget = DEV, *types: str) -> list[tuple[str, ...]]:
    found = diff_versions(history.uri, before, after, types)
    return [(change.table, change.kind.value, change.id, *change.fields) for change in found]


def test_rows_that_came_went_and_changed(history: History) -> None:
    history.people("main", a=1, b=2, c=3)
    create_branch(history.uri, "dev", history.work())
    history.put("dev", {"node:Person": [person("b", 9, "b@x"), person("d")], "edge:Knows": [knows("e", "a", "b")]})
    history.put("dev", {}, {"node:Person": ["c"]})
    assert changes(history) == [
        ("edge:Knows", "added", "e"),
        ("node:Person", "changed", "b", "age", "mail"),
        ("node:Person", "removed", "c"),
        ("node:Person", "added", "d"),
    ]
    assert changes(history, DEV, MAIN, "Person") == [
        ("node:Person", "changed", "b", "age", "mail"),
        ("node:Person", "added", "c"),
        ("node:Person", "removed", "d"),
    ]
    told = summarize_diff(history.uri, MAIN, DEV).to_json()
    assert told["tables"] == {
        "edge:Knows": {"added": 1, "removed": 0, "changed": 0},
        "node:Person": {"added": 1, "removed": 1, "changed": 1},
    }
    (row,) = [change for change in diff_versions(history.uri, MAIN, DEV) if change.id == "b"]
    assert (row.before, row.after) == (person("b", 2), person("b", 9, "b@x"))


def test_nothing_differs_from_itself(history: History) -> None:
    history.people("main", a=1)
    create_branch(history.uri, "dev", history.work())
    assert changes(history) == []
    history.people("dev", a=1)
    assert changes(history) == []


def test_a_row_that_was_changed_back_does_not_differ(history: History) -> None:
    version = history.people("main", a=1)
    history.people("main", a=2)
    history.people("main", a=1)
    assert changes(history, ReadTarget(version=version), MAIN) == []


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


def test_compaction_and_indexes_change_no_row(history: History) -> None:
    for n in range(4):
        history.people("main", **{f"p{n}": n, f"q{n}": None})
    history.put("main", {}, {"node:Person": ["p2"]})
    create_branch(history.uri, "dev", history.work())
    optimize_tables(history.uri, history.work(), OptimizeOptions(fragments=1, scalar_rows=1), "dev")
    assert changes(history) == []
    history.people("dev", p1=8)
    assert changes(history) == [("node:Person", "changed", "p1", "age")]


def test_a_migration_shows_as_what_it_did_to_rows(history: History) -> None:
    version = history.people("main", a=1, b=None)
    grown = SCHEMA.replace(b"mail: String? @unique", b"mail: String? @unique  note: String?").replace(
        b"edge Knows: Person -> Person", b'edge Met: Person -> Person @rename_from("Knows")\nnode Extra {}'
    )
    LanceEngine(history.clock, history.ids).prepare_migration(history.uri, grown, actor=None).publish()
    before = ReadTarget(version=version)
    assert changes(history, before, MAIN) == []
    history.put("main", {"node:Extra": [{"id": "x"}], "edge:Met": [knows("e", "a", "b")]})
    assert changes(history, before, MAIN) == [("edge:Met", "added", "e"), ("node:Extra", "added", "x")]
    assert not summarize_diff(history.uri, before, MAIN).same_schema


def test_a_type_that_neither_version_has(history: History) -> None:
    with pytest.raises(GitopsError) as failure:
        changes(history, MAIN, MAIN, "Persno")
    assert failure.value.code == "graph_type_unknown"
    assert failure.value.detail.endswith(
        "has no type 'Persno'; did you mean `Person`? known: Knows, Lives, Person, Town"
    )


def test_what_the_versions_share_is_not_read(history: History) -> None:
    """Without the data files of shared fragments a table cannot be read, but compared."""
    history.people("main", **{f"p{n:03}": n for n in range(300)})
    shared = set(Path(history.uri).glob("nodes/*/data/*.lance"))
    create_branch(history.uri, "dev", history.work())
    history.people("dev", new=1)
    for file in shared:
        file.unlink()
    assert changes(history) == [("node:Person", "added", "new")]


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
