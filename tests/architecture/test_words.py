"""Plain words: what `tests/data/words.tsv` forbids is not written in code and documentation."""

from __future__ import annotations

from tests.support.words import exceptions, forbidden, hits


def test_no_forbidden_word_is_written() -> None:
    allowed = exceptions()
    worse = {path: found for path, found in hits().items() if len(found) > allowed.get(path, 0)}
    assert worse == {}


def test_the_table_forbids_what_it_lists() -> None:
    rows = list(forbidden())
    assert len(rows) > 20
    assert all(where in ("code", "docs", "both", "texts") and instead for _, where, instead in rows)
    text = "nobody is told of it, and the file is no link; there is no other file and it is no longer kept"
    assert sorted(m[0] for expression, where, _ in rows if where != "texts" for m in expression.finditer(text)) == [
        "is no link",
        "nobody",
        "told",
    ]
