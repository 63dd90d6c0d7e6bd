"""The strict JSON toolkit by itself."""

from __future__ import annotations

import json

import pytest

from gitops.documents import strict
from gitops.documents.strict import MalformedError, Node


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', '"c" is given twice'),
        (b'{"\\u0061": 1, "a": 2}', '"a" is given twice'),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": 123456789012345678901}', "too long"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": 1} x', "line 1, column 10"),
        (b"\xc3\x28", "offset 0"),
        ("\ufeff{}".encode(), "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    ],
)
def test_refused_documents(data: bytes, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        strict.parse(data)


def test_depth_is_counted_outside_of_strings() -> None:
    deep = b"[" * strict.MAX_DEPTH + b"]" * strict.MAX_DEPTH
    assert strict.parse(deep).value
    with pytest.raises(MalformedError, match="nested deeper"):
        strict.parse(b"[" + deep + b"]")
    brackets = json.dumps(["[" * 1000, '\\"[[', "{" * 1000]).encode()
    assert strict.parse(brackets).value[1] == '\\"[['


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(strict.parse(b"[" + b",".join([b"[]"] * 1000) + b"]").value) == 1000


def test_size_is_capped_before_parsing() -> None:
    assert strict.parse(b"[1]", limit=3).value == [1]
    with pytest.raises(MalformedError, match="4 bytes; at most 3"):
        strict.parse(b"[12]", limit=3)


def test_numbers_of_64_bits_survive() -> None:
    numbers = [2**64 - 1, -(2**63), 0, 0.25]
    assert strict.parse(json.dumps(numbers).encode()).value == numbers


def test_a_problem_names_its_place() -> None:
    root = strict.parse(b'{"graphs": {"one.two": [{"x": 1}]}}')
    (_, listing), *_ = root.fields(("graphs",))["graphs"].entries()
    (first,) = listing.items()
    with pytest.raises(MalformedError) as caught:
        first.fields(("x",))["x"].text()
    assert caught.value.path == "graphs[one.two][0].x"
    assert "expected a text, found an integer" in caught.value.detail


def test_a_foreign_key_is_shown_as_one_bounded_line() -> None:
    with pytest.raises(MalformedError) as caught:
        strict.parse(json.dumps({"\n" + "k" * 500: 1}).encode()).fields(())
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < 120


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("mira", True),
        ("Jürgen Müller <jm@example.org>", True),
        ("名前", True),
        ("a: b", True),
        ("", False),
        (" a", False),
        ("a ", False),
        ("a\nb", False),
        ("a\rb", False),
        ("a\x00b", False),
        ("a\x1b[31m", False),
        ("a\x85b", False),
        ("a\u2028b", False),
        ("a\u202eb", False),
        ("a\u2066b", False),
        ("a\udcffb", False),
        ("x" * strict.MAX_LINE, True),
        ("x" * (strict.MAX_LINE + 1), False),
    ],
)
def test_what_counts_as_one_plain_line(text: str, fine: bool) -> None:
    assert strict.is_line(text) is fine


def test_exact_types() -> None:
    for value in (True, 1.0, "1", None, [1]):
        with pytest.raises(MalformedError):
            Node(value).integer()
    for value in (0, 1, "true", None):
        with pytest.raises(MalformedError):
            Node(value).boolean()
    assert Node(True).boolean() is True
    assert Node(7).integer() == 7
