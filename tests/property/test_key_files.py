"""A key file answers as the executor does: any schema, any rows; and without one of its checks, a test fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.graph.query import by_key, key_file, key_writer
from tests.support.effort import cases
from tests.support.key_files import ByKey
from tests.support.query_graphs import create, put

_INTEGERS = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
_FLOATS = {"F32": 32, "F64": 64}


def _cells(kind: str) -> st.SearchStrategy[Any]:
    if kind in _INTEGERS:
        return st.one_of(st.sampled_from([*_INTEGERS[kind], 0, 1]), st.integers(*_INTEGERS[kind]))
    if kind in _FLOATS:
        return st.floats(allow_nan=False, allow_infinity=False, width=_FLOATS[kind])
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    return {
        "String": texts,
        "enum(x, y)": st.sampled_from("xy"),
        "Bool": st.booleans(),
        "Date": st.dates().map(str),
        "DateTime": st.datetimes().map(lambda at: at.isoformat(timespec="milliseconds") + "Z"),
    }[kind]


_SCALARS = ("String", "enum(x, y)", "Bool", "Date", "DateTime", *_INTEGERS, *_FLOATS)
_LISTED = tuple(each for each in _SCALARS if not each.startswith("enum"))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[str, list[str], list[dict[str, Any]], list[Any]]:
    """A node type's key, its other properties, its rows, and keys to read."""
    key = draw(st.sampled_from(_SCALARS))
    kinds = draw(st.lists(st.sampled_from([*_SCALARS, *(f"[{each}]" for each in _LISTED)]), max_size=6))
    keys = draw(st.lists(_cells(key), max_size=12, unique_by=lambda each: each or 0))
    rows = []
    for each in keys:
        row = {"k": each}
        for at, kind in enumerate(kinds):
            item = _cells(kind.strip("[]"))
            cell = draw(st.none() | (st.lists(item, max_size=4) if kind.startswith("[") else item))
            row |= {} if cell is None else {f"p{at}": cell}
        rows.append(row)
    probes = draw(st.lists(_cells(key), max_size=4))
    return key, kinds, rows, [*keys, *probes]


def hold(root: Path, key: str, kinds: list[str], rows: list[dict[str, Any]], probes: list[Any]) -> None:
    """Read every key in both ways; the answers must be the same, to the byte."""
    properties = "".join(f"  p{at}: {kind}?\n" for at, kind in enumerate(kinds))
    uri = create(str(root / "g.omni"), f"node T {{\n  k: {key} @key\n{properties}}}".encode())
    put(uri, [{"type": "T", "data": row} for row in rows])
    asked = ByKey(uri, root / "cache")
    returned = ", ".join(["$t", "$t.k", *(f"$t.p{at}" for at in range(len(kinds)))])
    # A parameter has no enum.
    kind = "String" if key.startswith("enum") else key
    query = f"query q($k: {kind}) {{ match {{ $t: T {{ k: $k }} }} return {{ {returned} }} }}"
    # The language reads integers up to 2^63 - 1, also that of the call after which the keys are written to a file.
    keys = [each for each in (*(row["k"] for row in rows), *probes) if not isinstance(each, int) or each < 2**63]
    for _ in range(2 if keys else 0):
        asked.note(query, {"k": keys[0]})
    for probe in (each for each in probes if each in keys):
        found = asked.fast(query, {"k": probe})
        assert found == (asked.slow(query, {"k": probe}) if rows else None)


@settings(max_examples=cases(60), deadline=None)
@given(given_=graphs())
def test_a_key_file_answers_as_the_executor(
    tmp_path_factory: pytest.TempPathFactory, given_: tuple[str, list[str], list[dict[str, Any]], list[Any]]
) -> None:
    if given_[3]:
        hold(tmp_path_factory.mktemp("keys"), *given_)


_KINDS = ["String", "I64", "[String]", "Date", "F32", "Bool"]
_ROWS: list[dict[str, Any]] = [
    {"k": "a", "p0": "é", "p1": 2**53 + 1, "p2": ["", "x"], "p3": "2026-01-02", "p4": 0.1, "p5": False},
    {"k": "b", "p2": []},
    {"k": "c", "p0": "", "p1": -1, "p2": ["long text"], "p3": "0001-01-01", "p4": -0.0, "p5": True},
]
_PROBES = ["a", "b", "c", "d", ""]


@pytest.mark.parametrize(
    ("kind", "key", "literal"),
    [
        ("String", 'a"b', '"a\\"b"'),
        ("I32", 7, "7"),
        ("U64", 2**53 + 1, "9007199254740993"),
        ("F64", 1.0, "1.0"),
        ("F32", 0.1, "0.1"),
        ("Bool", True, "true"),
        ("Date", "2026-01-02", 'date("2026-01-02")'),
        ("DateTime", "2026-01-02T03:04:05.006Z", 'datetime("2026-01-02T03:04:05.006Z")'),
    ],
)
def test_a_literal_is_a_key(tmp_path: Path, kind: str, key: Any, literal: str) -> None:
    uri = create(str(tmp_path / "g.omni"), f"node T {{ k: {kind} @key  p: I32? }}".encode())
    put(uri, [{"type": "T", "data": {"k": key, "p": 5}}])
    found = ByKey(uri, tmp_path / "cache").written(
        f"query q() {{ match {{ $t: T {{ k: {literal} }} }} return {{ $t.p }} }}"
    )
    assert json.loads(found)[2] == [{"t.p": 5}]


def test_equal_hashes_only_take_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (key_file, key_writer):
        monkeypatch.setattr(module, "key_hash", lambda cell, kind: 7)
    hold(tmp_path, "String", _KINDS, _ROWS, _PROBES)


_Fault = Callable[[pytest.MonkeyPatch], None]


def _unsorted(patch: pytest.MonkeyPatch) -> None:
    whole = key_writer._array
    patch.setattr(key_writer, "_array", lambda column: whole(column)[::-1])


def _uncompared(patch: pytest.MonkeyPatch) -> None:
    for module in (key_file, key_writer):
        patch.setattr(module, "key_hash", lambda cell, kind: 7)
    patch.setattr(key_file.KeyFile, "find", lambda self, key, kind, cell: 0)


def _nulls_as_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(key_writer, "_valid", lambda cells: bytes([1]) * len(cells))


def _no_conversion(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(by_key, "cell_to_json", lambda cell, kind: cell)


def _one_item_less(patch: pytest.MonkeyPatch) -> None:
    whole = key_file.KeyFile._range
    patch.setattr(key_file.KeyFile, "_range", lambda self, start, at: (whole(self, start, at)[0],) * 2)


def _other_bytes(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(key_file.FORMATS, key_file.Scalar.I64, "d")


@pytest.mark.parametrize(
    "fault", [_unsorted, _uncompared, _nulls_as_values, _no_conversion, _one_item_less, _other_bytes]
)
def test_a_fault_in_the_path_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: _Fault) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        hold(tmp_path, "String", _KINDS, _ROWS, _PROBES)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> ByKey:
    root = tmp_path_factory.mktemp("written")
    uri = create(str(root / "g.omni"), b"node T { k: String @key  text: String?  list: [I64]? }")
    rows = [{"k": f"k{n}", "text": f"text {n}" * (n % 9), "list": list(range(n % 5))} for n in range(900)]
    put(uri, [{"type": "T", "data": row} for row in rows])
    asked = ByKey(uri, root / "cache")
    asked.written(_TEXT, {"k": "k3"})
    return asked


_TEXT = "query q($k: String) { match { $t: T { k: $k } } return { $t, $t.text, $t.list } }"


@settings(max_examples=cases(300), deadline=None)
@given(data=st.data())
def test_a_damaged_file_never_answers_wrongly(written: ByKey, data: st.DataObject) -> None:
    path = written.files[0]
    whole = path.read_bytes()
    content = bytearray(whole)
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        content = content[:at]
    key = data.draw(st.sampled_from(["k0", "k8", "k500", "k899", "none"]))
    expected = written.fast(_TEXT, {"k": key})
    assert expected is not None
    path.write_bytes(content)
    try:
        found = written.fast(_TEXT, {"k": key})
    finally:
        path.write_bytes(whole)
    assert found in (None, expected)
    assert json.loads(expected)[2] if key != "none" else True


def test_damage_is_noticed_by_the_checksums(written: ByKey, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written.files[0]
    whole = path.read_bytes()
    expected = written.fast(_TEXT, {"k": "k8"})
    at = whole.index(b"text 8text 8")

    def unchecked(self: key_file.KeyFile, number: int) -> bytes:
        start = number * key_file._PAGE
        return self._bytes(self._start + start, min(key_file._PAGE, self._size - start))

    try:
        path.write_bytes(whole[:at] + b"x" + whole[at + 1 :])
        monkeypatch.setattr(key_file.KeyFile, "_page", unchecked)
        assert written.fast(_TEXT, {"k": "k8"}) not in (None, expected)
    finally:
        path.write_bytes(whole)
