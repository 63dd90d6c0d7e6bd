"""What `gitops graph` prints of each result."""

from __future__ import annotations

from contextlib import suppress

import pytest

from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.database.graph import results
from gitops.database.graph.results import (
    GcResult,
    GraphDescription,
    GraphOutcome,
    GraphReport,
    LoadRefusal,
    LoadResult,
    PurgeResult,
    RowList,
    VerifyFinding,
    VerifyFindingCode,
    VerifyReport,
)
from gitops.render.graph_data import graph_form, graph_text

REPORT = VerifyReport(False, 2, 3, (VerifyFinding(VerifyFindingCode.ROWS_MISMATCH, "nodes/x", "3 rows\x1b"),))


def outcomes() -> set[type]:
    """Every kind of result that a command has."""
    named = vars(results).values()
    found = {each for each in named if isinstance(each, type) and issubclass(each, GraphOutcome)}
    return found - {GraphOutcome, GraphReport}


@pytest.mark.parametrize("kind", sorted(outcomes(), key=lambda kind: kind.__name__))
def test_every_result_has_a_text(kind):
    # Without its fields: a result that has no text is refused before they are looked at.
    with suppress(AttributeError):
        assert graph_text(object.__new__(kind), "brain")


def test_a_result_without_a_text_is_an_error():
    with pytest.raises(TypeError, match="no text for GraphOutcome"):
        graph_text(GraphOutcome(), "brain")


def test_the_envelope_has_the_result_between_its_state_and_its_diagnostics():
    assert graph_form(LoadResult(3, {"node:P": 1})) == {
        "ok": True,
        "manifest_version": 3,
        "rows": {"node:P": 1},
        "commit": None,
        "diagnostics": [],
    }
    assert list(graph_form(REPORT)) == ["ok", "deep", "manifests", "table_versions", "findings", "diagnostics"]
    assert not REPORT.ok


def test_a_refused_load_shows_its_problems():
    problems = Diagnostics()
    problems.add(Code.GRAPH_DATA_INVALID, "records[1]", "record 1: 'id' is not a text")
    refusal = LoadRefusal(problems)
    assert graph_text(refusal, "brain").startswith("graph load failed\nERROR graph_data_invalid records[1]: record 1:")
    assert graph_form(refusal) == {"ok": False, "diagnostics": problems.to_json()}


def test_descriptions_and_rows_have_no_envelope():
    tables = {"node:P": {"rows": 2, "columns": {"name": "String"}}}
    description = GraphDescription("g", "2026-01-01T00:00:00Z", "main", "c", 4, "d", tables, ("node:Q",))
    assert graph_text(description, "brain") == "graph brain: manifest version 4\n  node:P: 2 row(s): name"
    assert list(graph_form(description)) == [
        "graph_id",
        "created_at",
        "branch",
        "commit",
        "manifest_version",
        "schema_digest",
        "tables",
        "dropped",
    ]
    assert graph_form(RowList([{"id": "a"}])) == [{"id": "a"}]
    assert graph_text(RowList([]), "brain") == "no rows"


def test_nothing_acts_on_the_terminal():
    assert graph_text(REPORT, "brain").splitlines()[1] == r"  problem rows_mismatch: nodes/x: 3 rows\x1b"


def test_a_dry_run_says_that_nothing_was_removed():
    assert "would free about 1.0 MiB" in graph_text(GcResult(True, 1, {"nodes/x": (1, 2)}, (), 2**20), "brain")
    purged = graph_text(PurgeResult(True, 3, ("node:P",), {"node:Q": ("a", "b")}), "brain")
    assert purged == (
        "graph purge: would permanently remove 3 dropped type(s) and properties of brain\n  node:P\n  node:Q: a, b"
    )
