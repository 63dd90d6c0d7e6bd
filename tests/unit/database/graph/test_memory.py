"""The writer's in-memory indexes: equal cells are found, however they were hashed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.graph.write import memory

_CELLS = st.one_of(st.text(max_size=12), st.integers(-(2**63), 2**64 - 1), st.booleans(), st.lists(st.integers()))


@given(st.lists(_CELLS, max_size=20))
def test_a_cell_has_one_hash_alone_and_among_others(cells: list[Any]) -> None:
    assert memory._hashes(cells).tolist() == [memory._hashes([cell])[0] for cell in cells]


@given(st.lists(st.text(max_size=12), max_size=20), st.integers(0, 3))
def test_a_text_of_a_column_has_the_hash_of_the_cell(texts: list[str], start: int) -> None:
    column = pa.array(texts, pa.string()).slice(start)
    assert memory._hashes(column).tolist() == memory._hashes(texts[start:]).tolist()


def test_equal_numbers_of_different_types_have_one_hash() -> None:
    assert np.unique(memory._hashes([1, 1.0, True])).size == 1
    assert memory._hashes(["\ud800"]).size == 1


def test_a_column_of_texts_is_not_hashed_cell_by_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[object] = []
    monkeypatch.setattr(memory, "_hash", hashed.append)
    assert np.unique(memory._hashes(pa.array(map(str, range(100_000))))).size == 100_000
    assert not hashed
