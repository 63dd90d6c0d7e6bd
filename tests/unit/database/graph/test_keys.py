"""Keys of a load: hashes only make comparisons fast, and never decide one."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.graph.tables import raw_columns
from gitops.database.graph.write import keys
from tests.support.effort import cases

TEXTS = st.text("ab\0é😀", max_size=20) | st.sampled_from(
    ["", "x" * 257, "x" * 300, "x" * 256, "abcdefgh", "abcdefghi"]
)
LISTS = st.lists(TEXTS, max_size=30)


def batch(texts: list[str], start: int = 0) -> keys.KeyBatch:
    # A slice of a longer column, as batches of a scan are.
    column = pa.array(["before", *texts], pa.string()).slice(1)
    return keys.key_batch(column, np.arange(start, start + len(texts)))


@contextmanager
def hash_bits(bits: int) -> Iterator[None]:
    """Keep only this many bits of each hash, from above, so that different texts have equal ones."""
    whole = keys.hash_texts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "hash_texts", lambda texts, *_: whole(texts) & np.uint64(((1 << bits) - 1) << (64 - bits)))
        yield


def test_equal_texts_have_equal_hashes_and_others_hardly_ever() -> None:
    texts = [text * times for text in ("a", "b", "é", "\0", "abcdefg") for times in range(1, 300)]
    hashes = keys.hash_texts(pa.array(texts * 2, pa.large_string()))
    assert (hashes[: len(texts)] == hashes[len(texts) :]).all()
    assert len(set(hashes.tolist())) == len(texts)


@settings(max_examples=cases(200))
@given(LISTS, LISTS, st.sampled_from([0, 1, 64]))
def test_keys_are_grouped_and_found_by_their_texts(texts: list[str], wanted: list[str], bits: int) -> None:
    with hash_bits(bits):
        rows, others = batch(texts), batch(wanted)
        order, first = rows.grouped()
        found = keys.KeyTable(rows)
        places = found.find(others)
    groups: list[list[int]] = []
    for row, begins in zip(order.tolist(), first.tolist(), strict=True):
        groups = [*groups, [row]] if begins else [*groups[:-1], [*groups[-1], row]]
    held = {text: [at for at, each in enumerate(texts) if each == text] for text in texts}
    assert sorted(groups) == sorted(held.values())
    assert [None if at < 0 else found.keys.texts[at].as_py() for at in places.tolist()] == [
        text if text in held else None for text in wanted
    ]


@settings(max_examples=cases(50))
@given(st.lists(LISTS, max_size=4), st.lists(LISTS, max_size=4), st.booleans(), st.sampled_from([0, 1, 64]))
def test_equal_keys_of_two_collections_are_in_one_part(
    one: list[list[str]], other: list[list[str]], spilled: bool, bits: int
) -> None:
    """And each part has its keys in the order of their coming."""
    collections = keys.Keys(), keys.Keys()
    with hash_bits(bits):
        for collection, lists in zip(collections, (one, other), strict=True):
            for texts in lists:
                collection.add(batch(texts, collection.rows))
                if spilled and collection is collections[0]:
                    collection.spill()
        parts = [tuple(keys.joined(each) for each in part) for part in keys.parts_of(*collections)]
    for collection in collections:
        collection.close()
    home: dict[str, int] = {}
    for at, lists in enumerate((one, other)):
        met = [
            (text, record)
            for part in parts
            for text, record in zip(part[at].texts.to_pylist(), part[at].records.tolist(), strict=True)
        ]
        assert sorted(record for _, record in met) == list(range(sum(map(len, lists))))
        assert {record: text for text, record in met} == dict(enumerate(text for texts in lists for text in texts))
        for number, part in enumerate(parts):
            assert (np.diff(part[at].records) > 0).all()
            assert all(home.setdefault(text, number) == number for text in part[at].texts.to_pylist())


def test_all_edges_of_one_node_are_checked_in_bounded_memory() -> None:
    hub = keys.Keys()
    for at in range(100):
        hub.add(batch(["hub"] * 1000 if at else ["hubb"], 1000 * at))
        hub.spill()
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    largest = counted = 0
    try:
        for (part,) in keys.parts_of(hub):
            for each in part:
                counted += each.hashes.size
                largest = max(largest, pa.total_allocated_bytes() - before)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        hub.close()
    assert counted == 99_001
    assert max(peak, largest) < 2_000_000


CELLS = {
    pa.string(): st.text('ab"\\\n\x1f\x7fé\u2028', max_size=4),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.date64(): st.integers(-(2**40), 2**40),
    pa.float32(): st.sampled_from([0.0, -0.0, 0.5, 1e30]),
    pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
    pa.list_(pa.string()): st.lists(st.sampled_from("ab"), max_size=2),
}


@settings(max_examples=cases(200))
@given(st.data())
def test_groups_of_columns_have_the_keys_of_their_rows(data: st.DataObject) -> None:
    count, kinds = (
        data.draw(st.integers(0, 6)),
        data.draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=3)),
    )
    columns = [
        pa.array(data.draw(st.lists(st.none() | CELLS[kind], min_size=count, max_size=count)), kind) for kind in kinds
    ]
    cells = raw_columns(pa.table(columns, [str(at) for at in range(len(columns))])).values()
    assert keys.group_keys(columns).to_pylist() == [keys.group_key(row) for row in zip(*cells, strict=True)]


@settings(max_examples=cases(100))
@given(st.lists(st.lists(st.integers(0, 200) | st.integers(1 << 32, (1 << 32) + 100), max_size=9)), st.data())
def test_a_set_of_addresses_is_a_set(added: list[list[int]], data: st.DataObject) -> None:
    found, model = keys.AddressSet(), {each for numbers in added for each in numbers}
    for numbers in added:
        found.add(np.array(numbers, np.int64))
    asked = np.array(data.draw(st.lists(st.integers(0, 300) | st.integers(1 << 32, (1 << 32) + 300))), np.int64)
    assert (len(found), found.sorted().tolist()) == (len(model), sorted(model))
    assert found.holds(asked).tolist() == [each in model for each in asked.tolist()]
