"""Laws of statistics: counts that use them are those of a scan, whatever was written, and wrong ones are found."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import IntegrityError
from gitops.database.graph import layout
from gitops.database.graph.engine import LanceEngine, plan_migration
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.snapshot import Snapshot, accept_schema
from gitops.database.graph.staged import StagedVersion
from gitops.database.graph.statistics import GROUP_TEXT, read_group
from gitops.database.graph.step_counts import count_steps, refusal
from gitops.database.graph.tables import TableWriter, arrow_table, count_values, open_table
from tests.support.effort import cases
from tests.support.histories import History, sealed

KINDS: Mapping[str, tuple[str, st.SearchStrategy[Any]]] = {
    "i": ("I32?", st.integers(-3, 3)),
    "w": ("I64?", st.integers(-(2**33), 2**33) | st.integers(-3, 3)),
    "u": ("U64?", st.integers(0, 2**64 - 1) | st.integers(0, 3)),
    "f": ("F32?", st.sampled_from([0.0, -0.0, 0.5, 3.0, math.nan, math.inf])),
    "x": ("F64?", st.sampled_from([0.0, -0.0, 0.1, -2.0, 1e300, math.nan, -math.inf])),
    "d": ("Date?", st.integers(-3, 3)),
    "t": ("DateTime?", st.integers(-3, 3)),
    "s": ("String?", st.sampled_from(["", "a", "1"])),
}
DESIRED = (
    {"i": "i: I32"},
    {"i": "i: I32?\n@range(i, -2..2)"},
    {"i": "i: I64?\n@range(i, 0..2)"},
    {"i": 'j: I32 @rename_from("i")\n@range(j, -3..3)'},
    {"i": "i: I32 @backfill(9)\n@range(i, -3..3)"},
    {"w": "w: I32?"},
    {"w": "w: I32"},
    {"w": "w: U32? @convert(null)"},
    {"w": "w: F64?"},
    {"u": "u: I64?"},
    {"u": "u: U64?\n@range(u, 0..3)"},
    {"f": "f: F32?\n@range(f, 0.0..3.0)"},
    {"f": "f: F64"},
    {"x": "x: F64?\n@range(x, -2..0)"},
    {"x": "x: I64?"},
    {"d": "d: Date"},
    {"d": "d: DateTime"},
    {"t": "t: DateTime"},
    {"s": ""},
    {"s": "s: String"},
)
"""What changes in the schema, by property."""


def schema(changes: Mapping[str, str] = {}) -> bytes:
    lines = [changes.get(name, f"{name}: {kind}") for name, (kind, _) in KINDS.items()]
    return ("node T {\nk: String @key\n" + "\n".join(lines) + "\n}").encode()


KEYS = st.sampled_from("abcd")
ROWS = st.lists(
    st.fixed_dictionaries({"k": KEYS, **{name: st.none() | cells for name, (_, cells) in KINDS.items()}}),
    min_size=1,
    max_size=3,
    unique_by=lambda row: row["k"],
)
FULL_ROWS = st.lists(
    st.fixed_dictionaries({"k": KEYS, **{name: cells for name, (_, cells) in KINDS.items()}}),
    min_size=1,
    max_size=3,
    unique_by=lambda row: row["k"],
)
BRANCHES = st.sampled_from(["main", "dev"])
ACTIONS = st.lists(
    st.tuples(st.just("put"), BRANCHES, ROWS | FULL_ROWS)
    | st.tuples(st.just("remove"), BRANCHES, st.sets(KEYS, min_size=1, max_size=3))
    | st.tuples(st.just("compact"), BRANCHES, st.none())
    | st.tuples(st.just("merge"), BRANCHES, st.none()),
    min_size=3,
    max_size=8,
)
"""Writers of two branches. Rows come first, so that there is something to remove and to join."""


def _exchange(history: History, branch: str, gone: set[str], rows: list[dict[str, Any]]) -> None:
    """Write rows in place of those with these keys, as every writer does."""
    base = history.at(branch)
    declared = base.schema().catalog.nodes["T"]
    writer = TableWriter(base.folder, base.manifest.tables["node:T"])
    columns = {name: [row[name] for row in rows] for name in declared.properties}
    staged = writer.stage(arrow_table(declared, columns | {"id": columns["k"]})) if rows else []
    there = writer.dataset.scanner(columns=["id"], with_row_address=True).to_table().to_pylist()
    writer.exchange(staged, [row["_rowaddr"] for row in there if row["id"] in gone])
    table = writer.finish(recount=True)
    StagedVersion(base, "load", history.work(), tables={"node:T": table}).publish()


def _carry_out(history: History, action: str, branch: str, detail: Any) -> None:
    if action == "put":
        _exchange(history, branch, {row["k"] for row in detail}, detail)
    elif action == "remove":
        _exchange(history, branch, detail, [])
    elif action == "compact":
        options = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=10**6)
        optimize_tables(history.uri, history.work(), options, branch)
    else:
        other = "dev" if branch == "main" else "main"
        merge_branch(history.uri, other, branch, history.work())


def _counts(snapshot: Snapshot, source: bytes, *, known: bool) -> Any:
    manifest, desired = snapshot.manifest, accept_schema(source)
    if not known:
        tables = {key: replace(entry, statistics=None) for key, entry in manifest.tables.items()}
        manifest = replace(manifest, tables=tables)
    steps = plan_migration(snapshot.schema(), desired).steps
    return [count_steps(snapshot.folder, manifest, steps, desired.catalog, converting=each) for each in (True, False)]


@pytest.mark.law
@settings(max_examples=cases(120))
@given(ROWS, ACTIONS, st.lists(st.sampled_from(DESIRED), min_size=2, max_size=3), st.integers(1, 8))
def test_counts_with_statistics_are_those_of_a_scan(
    first: list[dict[str, Any]], actions: list[tuple[str, str, Any]], desired: list[Mapping[str, str]], version: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(f"{folder}/g.omni", schema())
        create_branch(history.uri, "dev", history.work(), origin=None)
        for action in (("put", "main", first), ("merge", "dev", None), *actions):
            _carry_out(history, *action)
        assert verify_graph(history.uri, deep=True).findings == ()
        newest = history.at().manifest.n
        for snapshot in (history.at(), history.at("dev"), history.at(version=min(version, newest))):
            entry = snapshot.manifest.tables["node:T"]
            for changes in desired:
                known, scanned = (_counts(snapshot, schema(changes), known=each) for each in (True, False))
                assert known == scanned
            for name in KINDS:
                unknown = replace(entry, statistics=None)
                assert count_values(snapshot.folder, entry, name) == count_values(snapshot.folder, unknown, name)
        for changes in desired:
            _migrate(history, schema(changes))
        assert verify_graph(history.uri, deep=True).findings == ()


def _migrate(history: History, source: bytes) -> None:
    """Carry out a migration of `main`, unless rows break it or the change is not supported."""
    base, wanted = history.at(), accept_schema(source)
    migration = plan_migration(base.schema(), wanted)
    counts = count_steps(base.folder, base.manifest, migration.steps, wanted.catalog)
    if migration.supported and not refusal(migration.steps, counts):
        engine = LanceEngine(history.clock, history.ids)
        engine.stage_migration(base, wanted, migration.steps, actor=None).publish()


UNTRUE: Mapping[str, tuple[str, str]] = {
    "no null": ("2: 1 null", "2: 0 null"),
    "narrow": ("1..3", "1..2"),
    "wide": ("1..3", "0..3"),
    "all null": ("1 null, 1..3", "3 null"),
    "another column": ("; 3:", "; 9:"),
    "a text": ("3: 0", "3: 1"),
    "a fragment too many": ("fragments 0;", "fragments 0..1;"),
    "a row too few": ("rows 3", "rows 2"),
}
"""What is changed in the statistics of three rows: those with the numbers 1 and 3, and one without."""


@pytest.mark.parametrize("name", UNTRUE)
def test_statistics_that_are_not_true_are_found(tmp_path: Path, name: str) -> None:
    history = History(str(tmp_path / "g.omni"), b"node T {\nk: String @key\nn: I32?\ns: String\n}")
    rows = [{"k": key, "n": number, "s": "a"} for key, number in (("a", 1), ("b", None), ("c", 3))]
    _exchange(history, "main", set(), rows)
    path = tmp_path / "g.omni" / layout.manifest_key(history.at().manifest.n)
    form = json.loads(path.read_bytes())
    (text,) = form["tables"]["node:T"]["statistics"]
    assert text == "fragments 0; rows 3; 1: 0 null; 2: 1 null, 1..3; 3: 0 null"
    form["tables"]["node:T"]["statistics"] = [text.replace(*UNTRUE[name])]
    path.write_text(json.dumps(sealed(form)))
    assert verify_graph(history.uri).findings == ()
    (found,) = verify_graph(history.uri, deep=True).findings
    assert (found.code, found.path) == ("statistics_mismatch", "main/node:T")


@pytest.mark.parametrize(
    "text",
    [
        "fragments 9 0..2; rows 1",
        "fragments 0 1..2; rows 1",
        "fragments 5..4; rows 1",
        "fragments 0..999999999999; rows 1",
        "fragments 0; rows 1; 3: 2 null",
        "fragments 0; rows 1; 3: 0 null, 8..-5",
        "fragments 0; rows 1; 3: 0 null, 0.5..1e999",
        "fragments 0; rows 1; 3: 0 null, 5..08",
        "fragments 0; rows 1; 4: 0 null; 3: 0 null",
        "fragments 0; rows 1; 3: 0 null; 3: 1 null",
    ],
)
def test_statistics_that_are_not_possible_are_refused(text: str) -> None:
    assert GROUP_TEXT.read(text) == text
    with pytest.raises(IntegrityError) as refused:
        read_group(text)
    assert refused.value.code == "graph_unreadable"


def test_a_check_that_statistics_decide_reads_no_file(tmp_path: Path) -> None:
    history = History(str(tmp_path / "g.omni"), schema())
    row = {"k": "a", "i": 1, "w": 5, "u": 0, "f": 0.5, "x": 0.1, "d": 1, "t": 1, "s": "a"}
    _exchange(history, "main", set(), [row])
    _exchange(history, "main", set(), [row | {"k": "b", "i": 7}])
    snapshot = history.at()
    parts = open_table(snapshot.folder, snapshot.manifest.tables["node:T"]).get_fragments()
    first, second = (
        tmp_path / "g.omni" / snapshot.manifest.tables["node:T"].path / "data" / each.files[0].path
        for each in (part.metadata for part in parts)
    )
    first.unlink()
    engine, desired = LanceEngine(history.clock, history.ids), schema({"i": "i: I32\n@range(i, 0..3)"})
    assert [(each.breaking, each.keys) for each in engine.count_steps(history.uri, desired) if each] == [
        (0, ()),
        (1, ("b",)),
    ]
    second.unlink()
    for changes in ({"i": "i: I64\n@range(i, 0..9)"}, {"w": "w: I32"}, {"s": "s: String"}, {"d": ""}):
        counts = engine.count_steps(history.uri, schema(changes))
        assert [each.breaking for each in counts if each] == [0] * len(counts)
