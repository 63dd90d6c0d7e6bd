"""The strict YAML reader: scalars of YAML 1.2, places, refusals and bounds."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.language import yaml
from gitops.database.language.yaml import (
    ScalarType,
    YamlError,
    YamlFault,
    YamlList,
    YamlMap,
    YamlProblem,
    YamlScalar,
    parse_yaml,
    shown,
    to_plain,
)


def refusal(data: bytes) -> YamlError:
    with pytest.raises(YamlError) as caught:
        parse_yaml(data)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("TRUE", True),
        ("False", False),
        ("tRUE", "tRUE"),
        ("yes", "yes"),
        ("on", "on"),
        ("No", "No"),
        ("~", None),
        ("Null", None),
        ("nULL", "nULL"),
        ("12", 12),
        ("-0", 0),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        ("1.10", 1.1),
        (".5", 0.5),
        ("-.inf", -math.inf),
        (".", "."),
        ("2026-06-11", "2026-06-11"),
        ("'true'", "true"),
        ('"12"', "12"),
        ("|\n  12", "12\n"),
        ("123456789012345678901234", "123456789012345678901234"),
    ],
)
def test_scalars_follow_the_core_schema(text: str, expected: object) -> None:
    value = to_plain(parse_yaml(f"a: {text}\n".encode()))["a"]
    assert value == expected
    assert type(value) is type(expected)


def test_nan_is_a_number() -> None:
    assert math.isnan(to_plain(parse_yaml(b".nan")))


def test_every_node_knows_its_place() -> None:
    root = parse_yaml("a: é\nb:\n  - {c: x, d: [y]}\n".encode())
    assert isinstance(root, YamlMap)
    (a, accent), (b, items) = root.entries
    assert [(n.line, n.column) for n in (a, accent, b, items)] == [(1, 1), (1, 4), (2, 1), (3, 3)]
    assert isinstance(items, YamlList)
    inner = items.items[0]
    assert isinstance(inner, YamlMap)
    assert [(k.line, k.column, v.line, v.column) for k, v in inner.entries] == [(3, 6, 3, 9), (3, 12, 3, 15)]


@pytest.mark.parametrize("data", [b"", b"# only a comment\n", b"---\n"])
def test_an_empty_document_is_null(data: bytes) -> None:
    root = parse_yaml(data)
    assert isinstance(root, YamlScalar)
    assert (root.type, root.text) == (ScalarType.NULL, "")


@pytest.mark.parametrize(
    ("data", "fault", "line", "column"),
    [
        (b"a: &x 1\n", YamlFault.ALIAS, 1, 4),
        (b"a: *x\n", YamlFault.ALIAS, 1, 4),
        (b"&x a: 1\n", YamlFault.ALIAS, 1, 1),
        (b"*x : 1\n", YamlFault.ALIAS, 1, 1),
        (b"a: !x 1\n", YamlFault.SYNTAX, 1, 4),
        (b"a: ! 1\n", YamlFault.SYNTAX, 1, 4),
        (b"- !!map {}\n", YamlFault.SYNTAX, 1, 3),
        (b"a: 1\n---\nb: 1\n", YamlFault.SYNTAX, 2, 1),
        (b"? {a: 1}\n: 1\n", YamlFault.SYNTAX, 1, 3),
        (b"a: [1\n", YamlFault.SYNTAX, 2, 1),
        (b"a:\n  b: 1\n  c", YamlFault.SYNTAX, 3, 1),
        ("a:\n  b: 1\n  é".encode(), YamlFault.SYNTAX, 3, 1),
        (b"a:\r  b: 1\r  c", YamlFault.SYNTAX, 3, 1),
        (b'a: "\\ud800"\n', YamlFault.SYNTAX, 1, 7),
        (b"a: \x00\n", YamlFault.SYNTAX, 1, 4),
        (b"b: 1\na: \xc3\xa9\xff\n", YamlFault.SYNTAX, 2, 5),
        ("a: 1".encode("utf-16"), YamlFault.SYNTAX, 1, 1),
    ],
)
def test_refusals_carry_their_place(data: bytes, fault: YamlFault, line: int, column: int) -> None:
    (problem,) = refusal(data).problems
    assert (problem.fault, problem.line, problem.column) == (fault, line, column)


def test_repeated_keys_are_found_everywhere_and_the_document_stays() -> None:
    error = refusal(b"a: 1\nb: {c: 1, 'c': 2, \"\\x63\": 3}\nl:\n  - x\n  - {k: {m: 1}, k: {m: 1, m: 2}}\na: 2\n")
    found = [(p.fault, p.path, p.line, p.column) for p in error.problems]
    fault = YamlFault.DUPLICATE_KEY
    assert found == [
        (fault, "b.c", 2, 11),
        (fault, "b.c", 2, 19),
        (fault, "l[1].k", 5, 17),
        (fault, "l[1].k.m", 5, 27),
        (fault, "a", 6, 1),
    ]
    assert isinstance(error.root, YamlMap)


def test_what_ends_the_reading_comes_after_the_repeated_keys() -> None:
    error = refusal(b"a: 1\na: 2\nb: *x\n")
    assert [p.fault for p in error.problems] == [YamlFault.DUPLICATE_KEY, YamlFault.ALIAS]
    assert error.root is None


def test_bounds_hold_to_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in {"MAX_BYTES": 20, "MAX_DEPTH": 2, "MAX_NODES": 5}.items():
        monkeypatch.setattr(yaml, name, bound)
    parse_yaml(b"[[a, b, c]]")
    assert refusal(b"[[a, b, c, d]]").problems[0].fault is YamlFault.LIMIT
    assert refusal(b"[[[]]]").problems[0].fault is YamlFault.LIMIT
    parse_yaml(b"a" * 20)
    assert refusal(b"a" * 21).problems[0].fault is YamlFault.LIMIT


@pytest.mark.parametrize("unit", [b"[", b"{a: ", b"- ", b"? ", b"[\n", b"[{a: ["])
def test_nesting_of_any_depth_is_refused_without_recursion(unit: bytes) -> None:
    fault = refusal(unit * (900_000 // len(unit))).problems[0].fault
    assert fault in (YamlFault.LIMIT, YamlFault.SYNTAX)


def test_an_alias_bomb_is_refused_at_its_first_anchor() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    (problem,) = refusal("\n".join(lines).encode()).problems
    assert (problem.fault, problem.line, problem.column) == (YamlFault.ALIAS, 1, 5)


def test_shown_is_one_short_visible_line() -> None:
    assert shown("plain é") == "plain é"
    assert shown("a\n::error::\u202e") == "a\\n::error::\\u202e"
    assert len(shown("x" * 1000)) == 128


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_no_input_raises_anything_else(data: bytes) -> None:
    problems: tuple[YamlProblem, ...] = ()
    try:
        parse_yaml(data)
    except YamlError as error:
        problems = error.problems
    assert all(p.line >= 1 and p.column >= 1 and p.message for p in problems)


_text = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=9)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


@given(_json)
def test_what_a_json_writer_writes_is_read_back(value: object) -> None:
    assert to_plain(parse_yaml(json.dumps(value, ensure_ascii=False).encode())) == value
