"""How rows of two results are paired and compared, and what a preview comes to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.render.previews import preview_text, preview_view
from gitops.review.previews.compare import ResultSide, compare_columns, compare_rows, is_slower, pair_columns
from gitops.review.previews.record import (
    PREVIEW_RECORD,
    AuditRun,
    ColumnChanges,
    Counts,
    DataCheck,
    GraphPreview,
    MigrationRun,
    Parameters,
    PreviewRecord,
    PreviewVerdict,
    QueryRun,
    ResultChanges,
    StepRows,
    TableEffect,
    coarse,
    findings,
    in_coarse_counts,
    verdict,
)

TYPES = {"p.name": "String", "p.age": "I32?"}
RENAMED = {"p.name": "String", "p.years": "I64?"}


def side(rows: list[tuple[str, int | None]], columns: dict[str, str] = TYPES, keyed: bool = True) -> ResultSide:
    name, age = columns
    return ResultSide(columns, [{name: n, age: a} for n, a in rows], [(n,) for n, _ in rows] if keyed else None)


def test_renamed_columns_pair_and_other_columns_are_lost_gained_or_retyped() -> None:
    pairs = pair_columns(TYPES, RENAMED, {"p.age": "p.years"})
    assert compare_columns(TYPES, RENAMED, pairs) == ColumnChanges(retyped=("p.years",))
    assert compare_columns(TYPES, RENAMED, pair_columns(TYPES, RENAMED, {})) == ColumnChanges(("p.age",), ("p.years",))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)], (2, 2, 0, 0, 0)),
        ([("a", 1), ("b", 2)], [("a", 1), ("b", 3)], (2, 2, 0, 0, 1)),
        ([("a", 1)], [("a", 1), ("c", 3)], (1, 2, 1, 0, 0)),
        ([("a", 1), ("a", 2)], [("a", 2)], (2, 1, 0, 1, 0)),
        ([("a", None)], [], (1, 0, 0, 1, 0)),
    ],
    ids=["order", "changed", "added", "one of two edges removed", "removed"],
)
def test_rows_pair_by_identity(
    before: list[tuple[str, int | None]], after: list[tuple[str, int | None]], expected: tuple[int, ...]
) -> None:
    counts, _ = compare_rows(side(before), side(after, RENAMED), {"p.name": "p.name", "p.age": "p.years"})
    assert counts == ResultChanges(*expected)


def test_a_lost_column_changes_the_rows_that_had_a_value() -> None:
    counts, _ = compare_rows(side([("a", 1), ("b", None)]), side([("a", 1), ("b", 2)]), {"p.name": "p.name"})
    assert counts == ResultChanges(2, 2, 0, 0, 1)


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 2)), max_size=6)


@given(ROWS, ROWS, st.booleans())
def test_a_result_equals_itself_in_any_order_and_counts_add_up(
    one: list[tuple[str, int | None]], other: list[tuple[str, int | None]], keyed: bool
) -> None:
    pairs = {name: name for name in TYPES}
    same, _ = compare_rows(side(one, keyed=keyed), side(one[::-1], keyed=keyed), pairs)
    assert (same.added, same.removed, same.changed) == (0, 0, 0)
    counts, _ = compare_rows(side(one, keyed=keyed), side(other, keyed=keyed), pairs)
    assert counts.after - counts.before == counts.added - counts.removed
    back, _ = compare_rows(side(other, keyed=keyed), side(one, keyed=keyed), pairs)
    assert (back.added, back.removed, back.changed) == (counts.removed, counts.added, counts.changed)


@pytest.mark.parametrize(
    ("touched", "ms", "slower"),
    [((8, 412), (4, 120), True), ((8, 8), (4, 120), False), ((8, 412), (4, 20), False), ((8, 12), (100, 130), False)],
)
def test_slower_needs_more_rows_and_more_time(touched: tuple[int, int], ms: tuple[int, int], slower: bool) -> None:
    assert is_slower(touched, ms) is slower


RUN = QueryRun("find", Parameters.DERIVED, 8, ResultChanges(8, 8), touched=(8, 8), ms=(3, 3))
GRAPH = GraphPreview(
    "knowledge",
    412,
    MigrationRun(83, 8826, 0, (StepRows("drop_property", 812),)),
    (DataCheck("Person.email", "required", 37, 1000, runs=False),),
    (RUN,),
)


def record(*graphs: GraphPreview, counts: Counts = Counts.EXACT) -> PreviewRecord:
    found = verdict(graphs, ["errors", "audits"])
    return PreviewRecord("a" * 64, "brain", 7, "b" * 40, "c" * 64, "2026-01-01T00:00:00Z", found, counts, graphs)


@pytest.mark.parametrize(
    ("graph", "block", "expected"),
    [
        (replace(GRAPH, checks=()), (), PreviewVerdict.GOOD),
        (GRAPH, ("errors", "audits"), PreviewVerdict.FINDINGS),
        (GRAPH, ("violations",), PreviewVerdict.BLOCKED),
        (replace(GRAPH, checks=(), queries=(replace(RUN, code="query_timeout"),)), ("errors",), PreviewVerdict.BLOCKED),
        (replace(GRAPH, checks=(), queries=(replace(RUN, slower=True),)), ("errors",), PreviewVerdict.FINDINGS),
        (replace(GRAPH, checks=(), queries=(replace(RUN, slower=True),)), ("slower",), PreviewVerdict.BLOCKED),
        (
            replace(GRAPH, checks=(), queries=(replace(RUN, code="preview_limit"),)),
            ("errors",),
            PreviewVerdict.UNAVAILABLE,
        ),
        (replace(GRAPH, code="storage_failed"), ("errors",), PreviewVerdict.UNAVAILABLE),
    ],
    ids=["nothing", "not blocking", "violations", "query fails", "slower", "slower blocks", "limit", "storage"],
)
def test_a_verdict_follows_from_the_findings_that_block(
    graph: GraphPreview, block: tuple[str, ...], expected: PreviewVerdict
) -> None:
    assert verdict([graph], block) is expected


@pytest.mark.parametrize(
    ("graph", "code", "severity"),
    [
        (replace(GRAPH, queries=()), "preview_violation", "warning"),
        (GraphPreview("g", 1, broken=2), "preview_violation", "error"),
        (GraphPreview("g", 1, queries=(replace(RUN, code="query_timeout"),)), "preview_query_failed", "error"),
        (GraphPreview("g", 1, queries=(replace(RUN, code="preview_limit"),)), "preview_limit", "warning"),
        (GraphPreview("g", 1, queries=(replace(RUN, slower=True),)), "preview_slower", "warning"),
        (GraphPreview("g", 1, audits=(AuditRun("a", ok=False),)), "preview_audit_failed", "error"),
        (
            GraphPreview("g", 1, audits=(AuditRun("a", ok=False, severity="warning"),)),
            "preview_audit_failed",
            "warning",
        ),
        (GraphPreview("g", 1, code="storage_failed"), "preview_unavailable", "warning"),
    ],
)
def test_a_finding_is_an_error_only_if_it_blocks(graph: GraphPreview, code: str, severity: str) -> None:
    ((_, found),) = findings([graph], ["errors", "audits"])
    assert (found.code, found.severity) == (code, severity)


def test_a_preview_tells_its_counts_and_problems() -> None:
    text = preview_text(record(GRAPH))
    assert "Person.email: required: 37 of 1,000 rows break it" in text
    assert "preview_violation schema.knowledge" in text
    coarse_view = preview_view(record(in_coarse_counts(GRAPH), counts=Counts.COARSE))
    assert "required: 10 to 99 of 1,000 to 9,999 rows break it" in {line.words for line in coarse_view.lines}


def test_a_mutation_that_affects_as_many_rows_of_another_kind_is_a_finding() -> None:
    same = QueryRun("q", Parameters.SAMPLES, 1, affected=(1, 0, 1, 0))
    other = replace(same, effects=(TableEffect("node:Person", (0, 0, 37), (0, 37, 0)),))
    graph = GraphPreview("knowledge", 412, queries=(other,))
    assert (same.differs, other.differs) == (False, True)
    assert verdict([graph], []) is PreviewVerdict.FINDINGS
    words = "affects 1 node and 0 edges before, 1 node and 0 edges after; Person: 37 removed, before 0, 0 changed, before 37"
    assert words in preview_text(record(graph))
    (row,) = preview_view(record(in_coarse_counts(graph), counts=Counts.COARSE)).queries
    assert "10 to 99 removed, before 0" in row.note
    assert "37" not in row.note


@given(st.integers(0, 10**9))
def test_a_coarse_count_gives_away_the_number_of_digits_only(rows: int) -> None:
    assert coarse(rows) <= rows
    assert len(str(coarse(rows))) == len(str(rows))


def test_a_record_reads_back() -> None:
    found = record(GRAPH)
    assert PREVIEW_RECORD.read(PREVIEW_RECORD.write(found)) == found
