"""The query language: tokens, trees, rules and parameters."""

from __future__ import annotations

import ast
import math
import pathlib
from collections.abc import Callable

import pytest
import yaml

from gitops.database.language.lexer import MAX_SOURCE_BYTES, Lexer, TokenKind
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.ast import Comparison, ComparisonOperator, Hop, Query
from gitops.database.language.query.check_expr import STRING, compatible
from gitops.database.language.query.limits import LIMITS
from gitops.database.language.query.params import ParameterCode, ParameterError, coerce_params
from gitops.database.language.query.typed import (
    Absent,
    AliasValue,
    Constant,
    Direction,
    NodeValue,
    ParameterValue,
    PropertyValue,
    Scan,
    Traverse,
    TypedDelete,
    TypedInsert,
    TypedRead,
    TypedUpdate,
)
from gitops.database.language.rules import RULES, RuleStage
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.step_terms import MigrationCode
from gitops.database.language.schema.types import Catalog, PropType, Scalar, TypeKind
from gitops.database.language.text import LanguageError, SourceText, Span, Stage
from tests.support import rules_page
from tests.support.cases import read_yaml
from tests.support.pages import ROOT, read_page

SCHEMA = b"""
node P { k: String @key  n: I32?  tags: [String]? }
node C { k: String @key }
edge Knows: P -> P { since: Date? }
edge WorksAt: P -> C
"""


def checked(text: str) -> CheckedQuery:
    (query,) = parse_queries(text.encode())
    return check_query(query, compile_schema(SCHEMA).catalog)


def read(text: str) -> TypedRead:
    body = checked(text).body
    assert isinstance(body, TypedRead)
    return body


def hop(match: str) -> Traverse:
    last = read(f"query q() {{ match {{ {match} }} return {{ 1 as one }} }}").clauses[-1]
    assert isinstance(last, Traverse)
    return last


@pytest.mark.parametrize(
    ("match", "left", "right", "direction"),
    [
        ("$p: P $p worksAt $c", "P", "C", Direction.OUT),
        ("$c: C $c worksAt $p", "C", "P", Direction.IN),
        ("$c: C $p worksAt $c", "P", "C", Direction.OUT),
        ("$p: P $c worksAt $p", "C", "P", Direction.IN),
        ("$p: P $c: C $c worksAt $p", "C", "P", Direction.IN),
        ("$a worksAt $b", "P", "C", Direction.OUT),
        ("$_ worksAt $_", "P", "C", Direction.OUT),
        ("$c: C $_ worksAt $c", "P", "C", Direction.OUT),
        ("$c: C $c worksAt $_", "C", "P", Direction.IN),
        ("$b: P $a knows $b", "P", "P", Direction.OUT),
        ("$b: P $a <knows> $b", "P", "P", Direction.BOTH),
    ],
)
def test_hops_are_oriented_by_their_bound_end(match: str, left: str, right: str, direction: Direction) -> None:
    found = hop(match)
    assert (found.left_type, found.right_type, found.direction) == (left, right, direction)


def test_anonymous_ends_have_no_variable() -> None:
    found = read("query q() { match { $p: P $p knows $_ $_ knows $p } return { $p } }")
    assert [(each.left, each.right) for each in found.clauses[1:]] == [("p", None), (None, "p")]
    assert dict(found.variables) == {"p": "P"}


def test_hops_carry_bounds_binding_and_exact_edge_name() -> None:
    assert hop("$a knows{2,5} $b")[2:] == ("Knows", Direction.OUT, "b", "P", 2, 5, None)
    assert hop("$a $e:knows $b").binding == "e"
    assert hop("$a knows $b").low == hop("$a knows $b").high == 1


def test_a_hop_direction_holds_inside_not() -> None:
    body = read("query q() { match { $c: C not { $c worksAt $p } } return { $c } }")
    absent = body.clauses[1]
    assert isinstance(absent, Absent)
    assert absent.clauses[0].direction is Direction.IN
    assert dict(absent.variables) == {"p": "P"}
    assert dict(body.variables) == {"c": "C"}


def test_names_in_not_may_be_bound_anew_after_it() -> None:
    body = read("query q() { match { $p: P not { $p worksAt $x } $p knows $x } return { $x } }")
    assert dict(body.variables) == {"p": "P", "x": "P"}


def test_pairs_are_equality_or_membership() -> None:
    (scan,) = read('query q($n: I32) { match { $p: P { n: $n, tags: "a" } } return { $p } }').clauses
    assert isinstance(scan, Scan)
    assert [(test.property.name, test.membership) for test in scan.tests] == [("n", False), ("tags", True)]
    assert scan.tests[0].value == ParameterValue("n", PropType(Scalar.I32))
    assert scan.tests[1].value == Constant("a", STRING)


def test_order_names_items_by_index() -> None:
    body = read("query q() { match { $p: P } return { $p.k as a, count($p) as n } order { n desc, $p.k } }")
    assert body.order[0].value == AliasValue("n", 1)
    assert isinstance(body.order[1].value, PropertyValue)
    assert [each.descending for each in body.order] == [True, False]
    assert body.aggregated
    assert body.limit is None


def test_an_alias_given_twice_means_the_later_item() -> None:
    body = read("query q() { match { $p: P } return { $p.k as a, $p.n as a } order { a } }")
    assert body.order[0].value == AliasValue("a", 1)


def test_row_keys_of_unnamed_items() -> None:
    body = read("query q($x: I32) { match { $p: P } return { $p, $p.k, $x, 1, now() } limit 2 }")
    assert [item.column for item in body.items] == ["p", "p.k", "x", "literal", "now"]
    assert isinstance(body.items[0].value, NodeValue)
    assert body.limit == 2


def test_an_unnamed_aggregate_has_the_row_key_of_its_argument() -> None:
    body = read("query q() { match { $p: P } return { count($p), sum($p.n), count(1) } }")
    assert [item.column for item in body.items] == ["p", "p.n", "literal"]


def test_writes_are_typed_in_order() -> None:
    insert, link, update, delete = checked(
        'query q() { insert P { k: "a" } insert Knows { from: "a", to: "b" } update P set { n: 1 } where k = "a"'
        ' delete Knows where to != "b" }'
    ).body
    assert isinstance(insert, TypedInsert)
    assert insert.kind is TypeKind.NODE
    assert isinstance(link, TypedInsert)
    assert [(each.name, each.type) for each in link.assignments] == [("from", STRING), ("to", STRING)]
    assert isinstance(update, TypedUpdate)
    assert update.predicate.operator is ComparisonOperator.EQ
    assert isinstance(delete, TypedDelete)
    assert (delete.kind, delete.predicate.name) == (TypeKind.EDGE, "to")


def test_the_operation_descriptor() -> None:
    text = "query q($v: Vector(2)) { match { $p: P } return { $p, $p.n, $p.tags, $v, now() } }"
    assert checked(text).operation() == {
        "result": [
            {"name": "p", "kind": "object", "nullable": False},
            {"name": "n", "kind": "int", "nullable": True},
            {"name": "tags", "kind": "list", "item_kind": "string", "nullable": True},
            {"name": "v", "kind": "vector", "vector_dim": 2, "nullable": False},
            {"name": "now", "kind": "datetime", "nullable": False},
        ],
        "reads": [{"kind": "node", "type_name": "P"}],
        "writes": [],
    }
    assert checked("query q() { match { $p: P } return { count($p), avg($p.n) as m } }").operation()["result"] == [
        {"name": "count", "kind": "bigint", "nullable": True},
        {"name": "m", "kind": "float", "nullable": True},
    ]
    assert checked('query q() { insert WorksAt { from: "a", to: "b" } }').operation() == {
        "result": [],
        "reads": [
            {"kind": "node", "type_name": "C"},
            {"kind": "node", "type_name": "P"},
            {"kind": "edge", "type_name": "WorksAt"},
        ],
        "writes": [{"kind": "edge", "type_name": "WorksAt"}],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a contains $b", Hop),
        ("$a starts_with{1,2} $b", Hop),
        ("$a contains $b.k", Comparison),
        ('$a contains "x"', Comparison),
        ("$a < $b.k", Comparison),
        ("$a < now()", Comparison),
        ("$a < true", Comparison),
        ("$a <less> $b", Hop),
        ("$a not_known $b", Hop),
        ("nothing = 1", Comparison),
    ],
)
def test_clauses_that_begin_alike(text: str, expected: type) -> None:
    (query,) = parse_queries(f"query q() {{ match {{ {text} }} return {{ $a }} }}".encode())
    assert isinstance(query.body.clauses[0], expected)


@pytest.mark.parametrize("left", list(Scalar))
@pytest.mark.parametrize("right", list(Scalar))
def test_compatibility_is_symmetric_and_ignores_nullability(left: Scalar, right: Scalar) -> None:
    one, other = PropType(left), PropType(right, nullable=True)
    assert compatible(one, other) == compatible(other, one)
    assert not compatible(one, PropType(right, is_list=True))


def tokens(text):
    lexer = Lexer(text if isinstance(text, bytes) else text.encode())
    found = []
    while not lexer.at(TokenKind.EOF):
        found.append(lexer.advance())
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1..5", ["INT 1", "DOTDOT ..", "INT 5"]),
        ("1.5..2.25", ["FLOAT 1.5", "DOTDOT ..", "FLOAT 2.25"]),
        ("..5", ["DOTDOT ..", "INT 5"]),
        ("1...5", ["INT 1", "DOTDOT ..", "DOT .", "INT 5"]),
        ("1.x", ["INT 1", "DOT .", "NAME x"]),
        ("007", ["INT 007"]),
        ("2nd 1e5 1.5x", ["WORD 2nd", "WORD 1e5", "INT 1", "DOT .", "WORD 5x"]),
        ("nodePerson trueish Stringb", ["NAME nodePerson", "NAME trueish", "TYPE_NAME Stringb"]),
        ("_a A_b9", ["NAME _a", "TYPE_NAME A_b9"]),
        ("$x.name $_", ["VAR $x", "DOT .", "NAME name", "VAR $_"]),
        ("$a <knows> $b", ["VAR $a", "LT <", "NAME knows", "GT >", "VAR $b"]),
        (
            "< <= > >= = != -> - @ ?",
            ["LT <", "LE <=", "GT >", "GE >=", "EQ =", "NE !=", "ARROW ->", "MINUS -", "AT @", "QUESTION ?"],
        ),
        (
            "{ } ( ) [ ] : ,",
            ["LBRACE {", "RBRACE }", "LPAREN (", "RPAREN )", "LBRACKET [", "RBRACKET ]", "COLON :", "COMMA ,"],
        ),
        ("a/**/b // c\r\nd /* // */ e", ["NAME a", "NAME b", "NAME d", "NAME e"]),
        ('"// no" "/* no */"', ['STRING "// no"', 'STRING "/* no */"']),
        ("", []),
    ],
)
def test_kinds(text, expected):
    assert [f"{token.kind.name} {token.text}" for token in tokens(text)] == expected


def test_spans_are_bytes():
    found = tokens('/* ä */ name "äö" Z')
    assert [token.span for token in found] == [Span(9, 13), Span(14, 20), Span(21, 22)]


def test_string_value_is_decoded_and_text_is_not():
    (token,) = tokens(r'"a\"b\\n\n\r\t' + "\n" + 'é"')
    assert token.value == 'a"b\\n\n\r\t\né'
    assert token.text.startswith(r'"a\"b')


@pytest.mark.parametrize(
    ("text", "fragment", "span"),
    [
        ('"abc', "unterminated string", (0, 1)),
        ('"abc\\"', "unterminated string", (0, 1)),
        ('"abc\\', "unterminated escape sequence", (4, 5)),
        ('"é\\q"', "unsupported escape sequence", (3, 5)),
        ('"\\é"', "unsupported escape sequence", (1, 4)),
        ('"\\\\\\x"', "unsupported escape sequence", (3, 5)),
        ("a /* b", "unterminated block comment", (2, 4)),
        ("é", "unexpected character", (0, 2)),
        ("$X", "unexpected character", (0, 1)),
        ("!", "unexpected character", (0, 1)),
        ("a\u00a0b", "unexpected character", (1, 3)),
        ("\ufeffa", "unexpected character", (0, 3)),
        (b"a \xff", "not valid UTF-8", (2, 3)),
        ("1" * 65, "longer than 64", (0, 65)),
        (b" " * (MAX_SOURCE_BYTES + 1), "over the limit", (0, 1)),
    ],
)
def test_refused(text, fragment, span):
    with pytest.raises(LanguageError, match=fragment) as caught:
        tokens(text)
    assert caught.value.problems[0].span == Span(*span)


@pytest.mark.parametrize("member", ["1", "2nd", "in-progress", "A_b", "-", "a--b", "9-9", "x-1.5"])
def test_enum_member_has_its_own_alphabet(member):
    lexer = Lexer(f"( {member} , b )".encode())
    lexer.expect(TokenKind.LPAREN)
    lexer.peek(2)
    token = lexer.enum_member()
    assert token.text == member.partition(".")[0]
    assert (token.start, token.end) == (2, 2 + len(token.text))
    assert lexer.at(TokenKind.DOT) or lexer.at(TokenKind.COMMA)


def test_enum_member_refuses_what_is_none():
    with pytest.raises(LanguageError, match="expected an enum member, found `,`"):
        Lexer(b",").enum_member()


def test_the_cursor_stays_at_the_end():
    lexer = Lexer(b"a")
    assert lexer.advance().text == "a"
    assert lexer.advance().kind is lexer.advance().kind is TokenKind.EOF
    assert lexer.current.span == Span(1, 2)


def test_peeking_does_not_move():
    lexer = Lexer(b"a b c")
    assert (lexer.peek(2).text, lexer.peek().text, lexer.advance().text, lexer.advance().text) == ("c", "b", "a", "b")


def test_rule_labels_are_the_callers():
    with pytest.raises(LanguageError) as caught:
        Lexer(b'"\\q"', grammar_rule="G", escape_rule="E")
    assert caught.value.problems[0].rule == "E"
    with pytest.raises(LanguageError) as caught:
        Lexer(b"!", grammar_rule="G", escape_rule="E")
    assert caught.value.problems[0].rule == "G"


def test_long_tokens_are_shortened_in_messages():
    with pytest.raises(LanguageError) as caught:
        Lexer(b"a" * 1000).expect(TokenKind.LBRACE)
    assert len(str(caught.value)) < 120


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


SIZES: dict[str, tuple[Callable[[int], str], str]] = {
    "parameters": (lambda n: reading().replace("()", f"({many(n, '$p#: I32', ', ')})"), "$p1000: I32"),
    "statements": (
        lambda n: f"query q() {{ {many(n, 'delete Link where minutes = #')} }}",
        "delete Link where minutes = 1000",
    ),
    "bindings of node types": (lambda n: reading(many(n - 1, "$t#: Station")), "$t63: Station"),
    "hops": (lambda n: reading(many(n, "$s link $t#")), "$s link $t64"),
    "conditions": (lambda n: reading(many(n, '$s.code != "#"')), '$s.code != "256"'),
    "conditions, as pairs": (
        lambda n: reading("$s: Station { " + many(n, 'code: "#"', ", ") + " }"),
        'code: "256"',
    ),
    "conditions, as searches": (lambda n: reading(many(n, 'search($s.name, "#")')), 'search($s.name, "256")'),
    "conditions, in a block": (lambda n: reading("not { " + many(n, '$s.code != "#"') + " }"), '$s.code != "256"'),
    "`not` blocks": (lambda n: reading(many(n, 'not { $s.code = "#" }')), 'not { $s.code = "64" }'),
    "return items": (lambda n: reading(items=many(n, "$s.code as c#")), "$s.code as c1000"),
    "return items, as aggregates": (lambda n: reading(items=many(n, "count($s) as c#")), "count($s) as c1000"),
    "order items": (
        lambda n: reading(items=many(65, "$s.code as c#"), tail=f"order {{ {many(n, 'c#', ', ')} }}"),
        "c64",
    ),
    "items": (lambda n: reading(items=f"[{many(n, '#', ', ')}] as l"), "10000"),
}


@pytest.mark.parametrize("what", SIZES)
def test_a_query_has_at_most_so_many_of_each_part(rail: Catalog, what: str) -> None:
    text, last = SIZES[what]
    most = LIMITS[what.partition(",")[0]].most
    check_all(text(most).encode(), rail)
    source = text(most + 1).encode()
    with pytest.raises(LanguageError) as refused:
        check_all(source, rail)
    (problem,) = refused.value.problems
    assert (problem.stage, problem.rule) == (Stage.LIMIT, "T25")
    assert f" {most + 1} {what.partition(',')[0]}; at most {most} are allowed" in problem.rendered()
    assert source[problem.span.start : problem.span.end].decode() == last
    assert problem.fix


def test_every_limit_is_tried() -> None:
    assert {what.partition(",")[0] for what in SIZES} == {
        name for name, each in LIMITS.items() if each.stage is Stage.LIMIT
    }


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


MATRIX = [case for path in sorted(DATA.glob("coercion*.yaml")) for case in read_yaml(path)]


def declaring(params: str) -> CheckedQuery:
    catalog = compile_schema(b"node T { a: String @key }").catalog
    source = f"query q({params}) {{ match {{ $t: T }} return {{ $t }} }}"
    return check_query(parse_queries(source.encode())[0], catalog)


@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"{case['type']} {case['json']!r}")
def test_conversion_matrix(case: dict[str, object]) -> None:
    query = declaring(f"$p: {case['type']}")
    if "refused" in case:
        with pytest.raises(ParameterError) as refused:
            coerce_params(query.params, {"p": case["json"]})
        error = refused.value
        assert str(case["refused"]) in str(error)
        assert str(error).startswith("param 'p': ")
        assert (error.code, error.parameter) == (ParameterCode(str(case["code"])), "p")
    else:
        value = coerce_params(query.params, {"p": case["json"]})["p"]
        assert value == case["value"]
        assert type(value) is type(case["value"])


def test_a_missing_required_parameter_is_refused_up_front() -> None:
    with pytest.raises(ParameterError, match="parameter 'b' not provided") as refused:
        coerce_params(declaring("$a: String?, $b: I32").params, {"a": "x"})
    assert (refused.value.code, refused.value.parameter) == (ParameterCode.MISSING, "b")


def test_omitted_nullable_parameters_are_null_and_the_order_is_as_declared() -> None:
    values = coerce_params(declaring("$b: I32, $a: String?").params, {"b": 1})
    assert list(values.items()) == [("b", 1), ("a", None)]


def test_undeclared_members_are_ignored() -> None:
    assert coerce_params(declaring("$a: I32").params, {"a": 1, "z": {"deep": [None]}}) == {"a": 1}


@pytest.mark.parametrize("values", [None, {}])
def test_no_parameters(values: object) -> None:
    assert coerce_params(declaring("").params, values) == {}


@pytest.mark.parametrize("values", [[], "x", 1, False])
def test_anything_but_an_object_is_refused(values: object) -> None:
    with pytest.raises(ParameterError, match="params must be a JSON object") as refused:
        coerce_params(declaring("").params, values)
    assert (refused.value.code, refused.value.parameter) == (ParameterCode.NOT_AN_OBJECT, None)


def test_an_integer_too_large_for_a_float_is_out_of_range() -> None:
    with pytest.raises(ParameterError, match="expected float") as refused:
        coerce_params(declaring("$f: F64").params, {"f": 10**400})
    assert refused.value.code is ParameterCode.OUT_OF_RANGE


def test_vector_elements_must_be_finite() -> None:
    with pytest.raises(ParameterError, match="expected float"):
        coerce_params(declaring("$v: Vector(1)").params, {"v": [math.nan]})


def test_refusals_never_repeat_the_value() -> None:
    with pytest.raises(ParameterError) as refused:
        coerce_params(declaring("$n: I32").params, {"n": "hunter2"})
    assert "hunter2" not in str(refused.value)


RULES_DATA = ROOT / "tests" / "data" / "languages"
LABELS = set(RULES)
# S-48 and S-49 need texts too large or too odd for a table, IR is about stored bytes: they have tests of their own.
WITHOUT_A_CASE = {"S-48", "S-49", "IR"}


def cases_of_rules(folder: str, name: str) -> list[dict]:
    files = sorted((RULES_DATA / folder).glob(f"{name}*.yaml"))
    return [case for path in files for case in read_yaml(path)]


def words_of_the_code() -> set[str]:
    """Every text in the source of the languages that is a label, but those of the registry itself."""
    found = set()
    for path in (ROOT / "gitops" / "database" / "language").rglob("*.py"):
        if path.name != "rules.py":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & LABELS
    return found


def test_every_rule_that_is_not_reserved_is_in_the_code_and_no_reserved_one():
    assert words_of_the_code() == {label for label, rule in RULES.items() if rule.found is not RuleStage.RESERVED}


def test_every_label_that_is_raised_is_registered():
    raised = {rule for case in cases_of_rules("schema", "problems") for rule, *_ in case["problems"]}
    raised |= {case["rule"] for case in cases_of_rules("query", "refused")} | set(MigrationCode)
    assert raised <= LABELS | {""}


def test_every_rule_of_schemas_and_queries_has_a_case():
    shown = {rule for case in cases_of_rules("schema", "problems") for rule, *_ in case["problems"]}
    shown |= {case["rule"] for case in cases_of_rules("query", "refused")}
    wanted = {
        label for label, rule in RULES.items() if rule.found in (RuleStage.PARSE, RuleStage.CATALOG, RuleStage.TYPE)
    }
    assert wanted - shown == WITHOUT_A_CASE


def test_every_code_of_migrations_has_a_case():
    steps = [step for case in cases_of_rules("schema", "migrations") for step in case["steps"]]
    shown = {step[3] for step in steps if step[0] == "unsupported_change"}
    wanted = {label for label, rule in RULES.items() if rule.found is RuleStage.MIGRATION}
    assert wanted == set(MigrationCode)
    assert wanted <= shown


def test_every_code_of_parameter_values_has_a_case():
    shown = {case["code"] for case in cases_of_rules("query", "coercion") if "code" in case}
    assert {ParameterCode(code) for code in shown} == set(ParameterCode) - {
        ParameterCode.MISSING,
        ParameterCode.NOT_AN_OBJECT,
    }


def test_every_finding_of_the_report_on_a_file_has_a_case():
    listed = {finding[1] for case in cases_of_rules("query", "lint") for finding in case["findings"]}
    shown = {problem[1] for case in cases_of_rules("query", "located") for problem in case["problems"]}
    # L102 is about a schema, and has its cases there.
    wanted = {label for label, rule in RULES.items() if rule.found is RuleStage.LINT} - {"L102"}
    assert listed <= wanted <= shown <= LABELS


def test_there_are_plenty_of_cases():
    kinds = [("schema", "problems"), ("schema", "accepted"), ("schema", "migrations"),
             ("query", "refused"), ("query", "malformed"), ("query", "accepted"), ("query", "coercion")]  # fmt: skip
    texts = [yaml.safe_dump(case) for kind in kinds for case in cases_of_rules(*kind)]
    assert len(set(texts)) == len(texts) >= 800


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_says_what_it_refuses_in_one_line(rule):
    assert rule.refuses
    assert len(rule.refuses) <= 110
    assert not rule.refuses.endswith(".")


def test_the_page_of_rules_is_that_of_the_registry():
    assert read_page(rules_page.PAGE) == rules_page.rules_page(), "run `make docs`"
