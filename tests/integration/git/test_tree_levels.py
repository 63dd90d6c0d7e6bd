"""Trees that are kept for a while: the same answers as without, and never more than a bounded number of entries."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import IntegrityError
from gitops.git.objects import parse_tree
from gitops.git.trees import TreeLevels

NAME = st.binary(min_size=1, max_size=6).filter(lambda n: not set(n) & {0, 47})
ROWS = st.dictionaries(
    NAME, st.tuples(st.sampled_from([b"100644", b"40000", b"120000", b"160000"]), st.binary(min_size=20, max_size=20))
)


def tree(rows: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s %s\0%s" % (mode, name, object_id) for name, (mode, object_id) in rows.items())


def attempt(raw: bytes) -> Mapping[bytes, tuple[bytes, bytes]] | None:
    """The entries, if the tree is one; modes as they are written."""
    with suppress(IntegrityError):
        entries = parse_tree("t", raw)
        return {e.name.encode("utf-8", "surrogateescape"): (b"%o" % e.mode, bytes.fromhex(e.id)) for e in entries}
    return None


@given(rows=ROWS)
def test_a_tree_is_read_back(rows: Mapping[bytes, tuple[bytes, bytes]]) -> None:
    entries = parse_tree("t", tree(rows))
    assert [(e.name.encode("utf-8", "surrogateescape"), e.mode, e.id) for e in entries] == [
        (name, int(mode, 8), object_id.hex()) for name, (mode, object_id) in rows.items()
    ]


@given(rows=ROWS.filter(bool), data=st.data())
def test_a_tree_that_is_cut_or_has_anything_more_is_refused(
    rows: Mapping[bytes, tuple[bytes, bytes]], data: st.DataObject
) -> None:
    raw = tree(rows)
    first = next(iter(rows))
    broken = data.draw(
        st.sampled_from(
            [raw[:-1], raw + b"1", b" " + raw, raw + raw[: len(raw) // 2], raw + tree({first: rows[first]}), b"9" + raw]
        )
    )
    again = attempt(broken)
    if again is not None:
        # Half of it was whole entries with other names: another tree, and not the same bytes read in two ways.
        assert tree(again) == broken


def test_reading_again_asks_for_nothing_and_little_is_kept() -> None:
    asked: list[str] = []
    leaf = tree({b"%05d" % n: (b"100644", bytes(20)) for n in range(9_000)})

    def read(object_id: str, kind: str) -> bytes:
        assert kind == "tree"
        asked.append(object_id)
        return leaf

    levels = TreeLevels(read)
    for _ in range(3):
        found = levels.find("a", "00007")
        assert found is not None
        assert levels.find("a", "missing") is None
    assert asked == ["a"]
    for name in ("b", "c"):
        assert levels.find(name, "00007") == found
    assert levels.find("c", "00001") is not None
    assert asked == ["a", "b", "c"]
    # Three of them are more than is kept: the one that was not used longest is gone.
    levels.find("a", "00007")
    assert asked == ["a", "b", "c", "a"]


@pytest.mark.parametrize("path", ["\ud800", "a/\ud800", "", "/", "..", "a//b", "a\0b"])
def test_a_path_that_names_nothing_finds_nothing(path: str) -> None:
    levels = TreeLevels(lambda _, __: tree({b"a": (b"100644", bytes(20))}))
    assert levels.find("t", path) is None
