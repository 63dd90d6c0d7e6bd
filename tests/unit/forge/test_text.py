"""Texts are cut where they may be cut, and found again by their first line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.forge.text import cut, cut_markdown, first_line_marker, has_marker, hidden_line, with_marker

_LINES = st.lists(
    st.sampled_from(["```", "````", "~~~", "~~~~ x", "```sh", "text", "a `b` c", "", "    ```", "  ```", "``` a`b"]),
    max_size=60,
).map("\n".join)


@given(st.text(max_size=50), st.integers(1, 60))
def test_law_a_cut_text_fits_and_begins_like_the_whole(text: str, most: int) -> None:
    short = cut(text, most)
    assert len(short) <= most
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


@given(_LINES, st.integers(80, 300))
def test_law_markdown_is_cut_with_every_fence_closed(text: str, most: int) -> None:
    """What is added at the end is never taken for code: the note is a paragraph of its own."""
    short = cut_markdown(text, most)
    assert len(short) <= most
    if len(text) > most:
        *_, last = [t.content for t in MarkdownIt().parse(short) if t.type == "inline"]
        assert last == "*The rest is left out: it is longer than the forge takes.*"


def test_a_short_text_stays_as_it_is() -> None:
    assert cut("abc", 3) == cut_markdown("abc", 3) == "abc"


def test_a_text_is_cut_after_a_word() -> None:
    text = "2 changes; needs approval: graph.drafts, graph.legacy"
    assert cut(text, 45) == "2 changes; needs approval: graph.drafts,…"
    assert cut(text, 41) == "2 changes; needs approval: graph.drafts,…"
    assert cut("graph." + "x" * 50, 20) == "graph." + "x" * 13 + "…"


def test_a_marker_is_the_whole_first_line() -> None:
    line = "<!-- gitops cluster=library -->"
    assert hidden_line("gitops cluster=library") == hidden_line(line) == line
    assert with_marker("gitops cluster=library", f"{line}\nx") == with_marker(line, "x") == f"{line}\nx"
    assert has_marker(f"{line}\r\nx", "gitops cluster=library")
    assert has_marker(line, line)


@pytest.mark.parametrize(
    "body",
    ["", "x", "x\n<!-- a -->", " <!-- a -->", "<!-- a --> x", "<!-- a -->\u2028", "<!--a-->", "<!-- a --> <!-- b -->"],
)
def test_anything_else_is_no_marker(body: str) -> None:
    assert first_line_marker(body) is None
    assert not has_marker(body, "a")
