"""Tables on a terminal: aligned, within the width, and inert."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gitops.render.characters import is_plain
from gitops.render.graph_data import table_lines


def test_a_table_is_aligned() -> None:
    rows: list[dict[str, object]] = [
        {"p.name": "Ann", "n": 3, "tags": ["a", "b"], "ok": True},
        {"p.name": None, "n": None, "tags": [], "ok": False},
        {"p.name": "漢字", "n": -12.5, "tags": None, "ok": None},
        {"p.name": " -", "n": 0, "tags": ["x"], "ok": True},
    ]
    assert table_lines(["p.name", "n", "tags", "ok"], rows) == [
        "p.name      n  tags        ok",
        "------  -----  ----------  -----",
        'Ann         3  ["a", "b"]  true',
        "-           -  []          false",
        "漢字    -12.5  -           -",
        '" -"        0  ["x"]       true',
    ]


def test_the_widest_columns_give_way() -> None:
    rows = [{"id": "1", "text": "a rather long text that goes on", "other": "b" * 20}]
    table = table_lines(["id", "text", "other"], rows, width=40)
    assert max(map(len, table)) == 40
    assert "a rather long te…" in "\n".join(table)
    assert table_lines(["id", "text", "other"], rows, width=5)[2] == "1   a rat…  bbbbb…"


def test_no_rows_and_no_columns() -> None:
    assert table_lines(["a"], []) == ["a", "-"]
    assert table_lines([], []) == ["", ""]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES), max_size=5), st.none() | st.integers(1, 80))
def test_nothing_in_a_table_acts_on_the_terminal(rows: list[dict[str, object]], width: int | None) -> None:
    lines = table_lines(["a", "b", "c", "a"], rows, width=width)
    assert len(lines) == len(rows) + 2
    assert all(is_plain(line.replace("…", "")) for line in lines)
