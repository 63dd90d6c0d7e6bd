"""Query text against the rules: cases as data, each with the exact span of its problem."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.ast import Query
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.types import Catalog
from gitops.database.language.text import LanguageError, SourceText, Stage
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "languages" / "query"
EXAMPLES = ROOT.parent / "shared" / "examples"


def cases(name: str) -> list[dict[str, object]]:
    """The cases of all files whose names begin so."""
    return [case for path in sorted(DATA.glob(f"{name}*.yaml")) for case in read_yaml(path)]


def unmark(text: str) -> tuple[bytes, int, int]:
    """The text without its marks, and the byte span between them."""
    before, rest = text.split("«")
    marked, after = rest.split("»")
    start = len(before.encode())
    end = start + len(marked.encode())
    return (before + marked + after).encode(), start, max(end, start + 1)


def place(text: str) -> tuple[int, int]:
    """Line and column of the opening mark, counted in characters."""
    before = text.partition("«")[0]
    return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1


@pytest.fixture(scope="module")
def rail() -> Catalog:
    return compile_schema((DATA / "rail.pg").read_bytes()).catalog


def check_all(source: bytes, catalog: Catalog) -> list[CheckedQuery]:
    return [check_query(query, catalog) for query in parse_queries(source)]


@pytest.mark.parametrize("case", cases("refused"), ids=lambda case: f"{case['rule']} {case['says']}")
def test_a_broken_rule_is_refused_at_its_span(case: dict[str, str], rail: Catalog) -> None:
    source, start, end = unmark(case["text"])
    queries = parse_queries(source)
    with pytest.raises(LanguageError) as refused:
        check_query(queries[0], rail)
    (problem,) = refused.value.problems
    assert (problem.stage, problem.rule) == (Stage.TYPE, case["rule"])
    assert case["says"] in problem.rendered()
    assert (problem.span.start, problem.span.end) == (start, end)
    assert SourceText(source).position(problem.span.start) == place(case["text"])
    assert case.get("fix", "") in (problem.fix or "")


@pytest.mark.parametrize("case", cases("malformed"), ids=lambda case: case["says"])
def test_text_outside_the_grammar_is_refused_at_its_span(case: dict[str, str]) -> None:
    source, start, end = unmark(case["text"])
    with pytest.raises(LanguageError) as refused:
        parse_queries(source)
    (problem,) = refused.value.problems
    assert (problem.stage, problem.rule) == (Stage.PARSE, "")
    assert case["says"] in problem.message
    assert (problem.span.start, problem.span.end) == (start, end)
    assert SourceText(source).position(problem.span.start) == place(case["text"])
    assert case.get("fix", "") in (problem.fix or "")


@pytest.mark.parametrize("case", cases("accepted"), ids=lambda case: case["id"])
def test_a_sound_query_is_accepted_and_described(case: dict[str, object], rail: Catalog) -> None:
    checked = check_all(str(case["text"]).encode(), rail)
    seen: dict[str, object] = {}
    if checked:
        first = checked[0]
        seen["columns"] = [[each.name, each.column, str(each.type or "object")] for each in first.columns]
        seen["reads"] = [f"{each.kind} {each.type_name}" for each in first.reads]
        seen["writes"] = [f"{each.kind} {each.type_name}" for each in first.writes]
        seen["uses"] = sorted(f"{owner}.{name}" for owner, name in first.uses)
    for aspect in ("columns", "reads", "writes"):
        if aspect in case:
            assert seen[aspect] == case[aspect]
    if "uses" in case:
        assert seen["uses"] == sorted(case["uses"])


def test_every_type_rule_has_a_refused_case() -> None:
    rules = {case["rule"] for case in cases("refused")}
    assert rules >= {f"T{number}" for number in range(1, 25)}


def test_positions_count_characters_not_bytes(rail: Catalog) -> None:
    source = '// größe\nquery q() {\n  match { $s: Station { name: "Zürich 🚉" } }\n  return { $s.nme }\n}'.encode()
    with pytest.raises(LanguageError) as refused:
        check_all(source, rail)
    span = refused.value.problems[0].span
    assert SourceText(source).position(span.start) == (4, 15)
    source = 'query q() { match { $s: Station { name: "Zü🚉" nme: 1 } } return { $s } }'.encode()
    with pytest.raises(LanguageError) as refused:
        parse_queries(source)
    assert SourceText(source).position(refused.value.problems[0].span.start) == (1, 47)


@pytest.mark.parametrize(
    "text",
    [
        "query q() { match { " + "not { " * 100_000,
        "query q() { match { $s: S } return { " + "count(" * 100_000,
        "query q() { delete S where a = " + "[" * 100_000,
        "query q() { match { $s: S } return { $s } order { " + "search(" * 100_000,
    ],
    ids=["not", "call", "list", "search"],
)
def test_deep_nesting_is_refused_without_recursion_error(text: str) -> None:
    with pytest.raises(LanguageError, match="nested more than 64 levels"):
        parse_queries(text.encode())


def test_nesting_up_to_the_cap_is_checked(rail: Catalog) -> None:
    depth = 60
    text = "query q() { match { $s: Station " + "not { $s link $s " * depth + "}" * depth + " } return { $s } }"
    (checked,) = check_all(text.encode(), rail)
    assert checked.name == "q"


def many(count: int, item: str, separator: str = " ") -> str:
    """An item so many times; `#` is its number."""
    return separator.join(item.replace("#", str(number)) for number in range(count))


def reading(match: str = "", items: str = "$s", tail: str = "") -> str:
    return f"query q() {{ match {{ $s: Station {match} }} return {{ {items} }} {tail} }}"


SIZES: dict[str, tuple[int, Callable[[int], str], str]] = {
    "parameters": (1000, lambda n: reading().replace("()", f"({many(n, '$p#: I32', ', ')})"), "$p1000: I32"),
    "statements": (
        1000,
        lambda n: f"query q() {{ {many(n, 'delete Link where minutes = #')} }}",
        "delete Link where minutes = 1000",
    ),
    "bindings of node types": (64, lambda n: reading(many(n - 1, "$t#: Station")), "$t63: Station"),
    "hops": (64, lambda n: reading(many(n, "$s link $t#")), "$s link $t64"),
    "conditions": (256, lambda n: reading(many(n, '$s.code != "#"')), '$s.code != "256"'),
    "conditions, as pairs": (
        256,
        lambda n: reading("$s: Station { " + many(n, 'code: "#"', ", ") + " }"),
        'code: "256"',
    ),
    "conditions, as searches": (256, lambda n: reading(many(n, 'search($s.name, "#")')), 'search($s.name, "256")'),
    "conditions, in a block": (256, lambda n: reading("not { " + many(n, '$s.code != "#"') + " }"), '$s.code != "256"'),
    "`not` blocks": (64, lambda n: reading(many(n, 'not { $s.code = "#" }')), 'not { $s.code = "64" }'),
    "return items": (1000, lambda n: reading(items=many(n, "$s.code as c#")), "$s.code as c1000"),
    "return items, as aggregates": (1000, lambda n: reading(items=many(n, "count($s) as c#")), "count($s) as c1000"),
    "order items": (
        64,
        lambda n: reading(items=many(65, "$s.code as c#"), tail=f"order {{ {many(n, 'c#', ', ')} }}"),
        "c64",
    ),
    "items": (10_000, lambda n: reading(items=f"[{many(n, '#', ', ')}] as l"), "10000"),
}


@pytest.mark.parametrize("what", SIZES)
def test_a_query_has_at_most_so_many_of_each_part(rail: Catalog, what: str) -> None:
    most, text, last = SIZES[what]
    check_all(text(most).encode(), rail)
    source = text(most + 1).encode()
    with pytest.raises(LanguageError) as refused:
        check_all(source, rail)
    (problem,) = refused.value.problems
    assert (problem.stage, problem.rule) == (Stage.LIMIT, "T25")
    assert f" {most + 1} {what.partition(',')[0]}; at most {most} are allowed" in problem.rendered()
    assert source[problem.span.start : problem.span.end].decode() == last
    assert problem.fix


def test_each_query_that_does_not_parse_is_reported_in_the_order_of_the_text() -> None:
    text = """
        query b() { match { $s: Station } return { $s.query count($s) } order { } }
        query a() { match { $s: station } return { $s } }
        query c() { match { $s: Station } return { $s } }
        query a($x: I32) { match % { $s: ; } return { $s } }
        query d() { match { $s: Station } return { "} }
    """
    with pytest.raises(LanguageError) as refused:
        parse_queries(text.encode())
    found = [(SourceText(text.encode()).position(each.span.start), each.message) for each in refused.value.problems]
    assert [place for place, _ in found] == [(2, 81), (3, 33), (5, 34), (6, 52)]
    assert [message.partition(",")[0] for _, message in found] == [
        "expected an order item",
        "expected a node type name after `:`",
        "unexpected character '%'",
        "unterminated string",
    ]


def test_long_names_are_refused() -> None:
    with pytest.raises(LanguageError, match="longer than 255"):
        parse_queries(b"query " + b"q" * 256 + b"() {}")


def test_a_file_keeps_its_queries_in_order_even_equal_names(rail: Catalog) -> None:
    text = """
        query b() { delete Page where slug = "a" }
        query a() { match { $p: Page } return { $p } }
        query b() { delete Link where minutes = 1 }
    """
    checked = check_all(text.encode(), rail)
    assert [(each.name, each.kind.value) for each in checked] == [
        ("b", "mutation"),
        ("a", "read"),
        ("b", "mutation"),
    ]


def examples() -> list[pathlib.Path]:
    return sorted(EXAMPLES.glob("*/queries/*.gq"))


@pytest.mark.skipif(not examples(), reason="the shared example clusters are not beside this checkout")
def test_the_example_clusters_check() -> None:
    counted = 0
    for path in examples():
        catalog = compile_schema((path.parents[1] / "schema.pg").read_bytes()).catalog
        counted += len(check_all(path.read_bytes(), catalog))
    assert counted > len(examples())


def test_an_empty_file_holds_no_query() -> None:
    assert parse_queries(b"") == ()


def test_parsed_queries_carry_annotations() -> None:
    query: Query = parse_queries(
        b'query q() @description("what") @instruction("how\\n") { delete Page where slug = "a" }'
    )[0]
    assert (query.description, query.instruction) == ("what", "how\n")
