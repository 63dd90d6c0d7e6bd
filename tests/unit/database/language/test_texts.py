"""Texts of both languages, and of YAML: formatted, linted, and corrected."""

from __future__ import annotations

import json
import math
import re
from difflib import get_close_matches

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.database.language import yaml
from gitops.database.language.format import format_queries, format_schema, format_yaml
from gitops.database.language.lint import LintLevel, lint_grammar, lint_queries, schema_warnings
from gitops.database.language.schema import compile_schema
from gitops.database.language.suggest import MAX_CANDIDATES, MAX_NAME, Suggestion, did_you_mean, nearest_expected
from gitops.database.language.text import LanguageError
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
from tests.support.cases import read_yaml
from tests.support.pages import ROOT, read_page


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
        (b"a: [1\n", YamlFault.SYNTAX, 1, 4),
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


LAYOUTS = {"pg": format_schema, "gq": format_queries, "yaml": format_yaml}
CASES = [
    pytest.param(language, case, id=f"{language}: {case['name']}")
    for language in LAYOUTS
    for case in read_yaml(ROOT / "tests/data/format" / f"{language}.yaml")
]


@pytest.mark.parametrize(("language", "case"), CASES)
def test_layout(language, case):
    before = case["before"].encode()
    after = case.get("after", case["before"]).encode()
    layout = LAYOUTS[language]
    assert layout(before).decode() == after.decode()
    assert layout(after) == after


@pytest.mark.parametrize("language", ["pg", "gq"])
def test_what_the_page_shows_is_canonical(language):
    shown = [t.content for t in MarkdownIt().parse(read_page("languages/format.md")) if t.info == language]
    assert shown
    for text in shown:
        assert LAYOUTS[language](text.encode()).decode() == text


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("schema.pg")), ids=str)
def test_the_schemas_of_the_examples_are_canonical(path):
    assert format_schema(path.read_bytes()) == path.read_bytes()


@pytest.mark.parametrize("text", ["node A { a: }", "node A {} /*", 'node A @x("\\q") {}', "\ufeffnode A {}"])
def test_a_schema_that_does_not_parse_is_refused(text):
    with pytest.raises(LanguageError):
        format_schema(text.encode())


def test_rules_beyond_the_grammar_are_not_asked_for():
    """A schema that does not compile has a layout all the same."""
    assert format_schema(b"node A{a:[Blob] @card(9) b:enum(x,x)} node A{}").startswith(
        b"node A {\n    a: [Blob] @card(9)\n"
    )


def test_deep_queries_are_laid_out():
    text = "query q() { match { " + "not { " * 60 + "$a x $b" + " }" * 60 + " } return { $a } }"
    result = format_queries(text.encode())
    assert format_queries(result) == result


def test_a_layout_over_the_limit_is_refused():
    """Each line of many gets its indentation, which may be more than a source may have."""
    clauses = "$a x $b " * 18_000
    text = "query q() { match { " + "not { " * 60 + clauses + " }" * 60 + " } return { $a } }"
    with pytest.raises(LanguageError, match="over the limit"):
        format_queries(text.encode())


LEAVES = st.sampled_from(["x", "1", "a b", '"q: # z"', "'it''s'", "[a,  b]", "{k:  v}", "~", "true"])
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def written(draw, node, depth: int) -> list[str]:
    """A document in block style with any step, any blanks behind keys, comments and blank lines."""
    lines = []
    if draw(st.booleans()):
        lines.append(draw(st.sampled_from(["", "   ", "# c", f"{' ' * depth}# d  "])))
    step, wide = draw(st.integers(1, 5)), " " * draw(st.integers(1, 3))
    parts = [(f"{key}:", value) for key, value in node.items()] if isinstance(node, dict) else [("-", v) for v in node]
    for mark, value in parts:
        if isinstance(value, str):
            lines.append(f"{' ' * depth}{mark}{wide}{value}{draw(st.sampled_from(['', '  ', ' # e']))}")
        elif mark == "-":
            inner = written(draw, value, depth + 1 + len(wide))
            first = next(n for n, line in enumerate(inner) if line.strip() and not line.strip().startswith("#"))
            inner[first] = f"{' ' * depth}-{wide}{inner[first].lstrip(' ')}"
            lines += inner
        else:
            lines += [f"{' ' * depth}{mark}", *written(draw, value, depth + step)]
    return lines


@given(st.data(), DOCUMENTS)
def test_a_cluster_file_says_the_same_with_the_same_comments(data, document):
    node = document if isinstance(document, dict) else {"a": document}
    text = "\n".join(written(data.draw, node, 0))
    result = format_yaml(text.encode()).decode()
    assert to_plain(parse_yaml(result.encode())) == to_plain(parse_yaml(text.encode()))
    assert [line.strip() for line in result.split("\n") if "# " in line] == [
        line.strip() for line in tidied(text) if "# " in line
    ]
    assert format_yaml(result.encode()).decode() == result


def tidied(text: str) -> list[str]:
    """Lines with one blank behind the keys and dashes they begin with."""
    found = []
    for line in text.split("\n"):
        marks, rest = "", line.lstrip(" ")
        while rest.startswith("-") or rest[1:2] == ":":
            size = 1 if rest.startswith("-") else 2
            marks, rest = f"{marks}{rest[:size]} ", rest[size:].lstrip(" ")
        found.append(marks + rest)
    return found


@given(st.text(alphabet="ab:-#'\"[]{}|>&*!%,? \n\r\t\ufeff\u2028\x85", max_size=60))
def test_any_text_keeps_its_meaning_or_is_refused(text):
    data = text.encode()
    try:
        root = parse_yaml(data)
    except YamlError:
        with pytest.raises(YamlError):
            format_yaml(data)
        return
    result = format_yaml(data)
    assert to_plain(parse_yaml(result)) == to_plain(root)
    assert isinstance(root, YamlScalar) or format_yaml(result) == result


DATA = ROOT / "tests" / "data" / "languages" / "query"
LOCATED = read_yaml(DATA / "located.yaml")
LINT_CASES = read_yaml(DATA / "lint.yaml")
RAIL = compile_schema((DATA / "rail.pg").read_bytes()).catalog


@pytest.mark.parametrize("case", LINT_CASES, ids=lambda case: case["id"])
def test_report(case):
    report = lint_queries(RAIL, case["text"].encode())
    for found, (name, kind, error, warnings) in zip(report.results, case["results"], strict=True):
        assert (found.name, found.kind, len(found.warnings)) == (name, kind, warnings)
        assert (found.error is None) == (error is None) == (found.checked is not None)
        assert (error or "") in (found.error or "")
        assert all("mutation declares no params" in each for each in found.warnings)
    for finding, (level, code, fragment, *rest) in zip(report.findings, case["findings"], strict=True):
        assert (finding.level, finding.code) == (level, code)
        assert fragment in finding.message
        assert [finding.type_name, finding.property_name, list(finding.query_names)] == rest


def without_marks(text):
    """The text, and the byte ranges that were marked in it."""
    parts = re.split("([«»])", text)
    plain, opened, ranges = "", 0, []
    for part in parts:
        at = len(plain.encode())
        if part == "«":
            opened = at
        elif part == "»":
            ranges.append((opened, at))
        else:
            plain += part
    return plain.encode(), ranges


@pytest.mark.parametrize("case", LOCATED, ids=lambda case: case["id"])
def test_every_problem_has_its_place(case):
    source, ranges = without_marks(case["text"])
    found = lint_queries(RAIL, source).problems
    assert [(each.span.start, each.span.end) for each in found] == (ranges or [(len(source), len(source) + 1)])
    for each, (level, code, fragment, query, fix) in zip(found, case["problems"], strict=True):
        assert (each.level, each.code, each.query, each.fix) == (level, code, query, fix)
        assert fragment in each.message


def test_a_file_is_parsed_without_a_schema_in_the_same_words():
    broken, sound = b"query q() {", b"query q() { match { $s: Nowhere } return { $s } }"
    assert lint_grammar(broken) == lint_queries(RAIL, broken)
    assert lint_grammar(sound) is None


@pytest.mark.parametrize("case", LINT_CASES, ids=lambda case: case["id"])
def test_problems_are_what_the_report_counts(case):
    report = lint_queries(RAIL, case["text"].encode())
    levels = [each.level for each in report.problems]
    assert (levels.count(LintLevel.ERROR), levels.count(LintLevel.WARNING)) == (report.errors, report.warnings)
    assert len(levels) == report.errors + report.warnings


def test_warnings_never_fail_a_file_and_errors_always_do():
    for case in LINT_CASES:
        report = lint_queries(RAIL, case["text"].encode())
        failed = [each for each in report.results if each.error] + [
            each for each in report.findings if each.level is LintLevel.ERROR
        ]
        assert (report.ok, report.errors) == (not failed, len(failed))


@given(st.binary(max_size=80) | st.sampled_from([case["text"].encode() for case in LINT_CASES]))
def test_any_bytes_have_a_report(source):
    report = lint_queries(RAIL, source)
    assert report.ok == (report.to_json(schema_source={}, query_path="")["status"] == "ok")


def test_a_schema_that_compiles_may_have_warnings():
    (warning,) = schema_warnings(compile_schema(b"node A { k: String @kye }"))
    assert (warning.level, warning.code, warning.fix) == (LintLevel.WARNING, "L102", "did you mean `@key`?")
    assert warning.span == (19, 23)


NAMES = st.text(alphabet="abcde_", min_size=1, max_size=8)
MANY = [
    f"{head}_{tail}"
    for head in ("signal", "pattern", "element", "company")
    for tail in ("slug", "name", "state", "kind")
]


@given(NAMES, st.lists(NAMES, max_size=4, unique=True))
def test_of_a_few_names_the_nearest_is_meant(name, known):
    near = [] if name in known else get_close_matches(name, sorted(known), n=1)
    assert did_you_mean(name, known) == (f"did you mean `{near[0]}`?" if near else None)


@pytest.mark.parametrize(
    ("word", "meant"), [("SELECT", "match"), ("create", "insert"), ("matc", "match"), ("while", None)]
)
def test_words_of_other_query_languages_are_understood(word, meant):
    found = nearest_expected(word, "`match`, `insert`, `update` or `delete`")
    assert (None if found is None else found.name) == meant


@pytest.mark.parametrize("meant", MANY)
def test_of_many_names_the_one_with_a_slip_is_meant(meant):
    middle = len(meant) // 2
    swapped = f"{meant[: middle - 1]}{meant[middle]}{meant[middle - 1]}{meant[middle + 1 :]}"
    for slip in (meant[:middle] + meant[middle + 1 :], meant[:-1], swapped, f"{meant}s", meant.upper()[:1] + meant[1:]):
        if slip == meant:
            continue
        found = did_you_mean(slip, MANY)
        assert isinstance(found, Suggestion)
        assert (found.wrong, found.name) == (slip, meant)


def test_what_is_known_or_long_or_one_of_very_many_is_not_looked_for():
    assert did_you_mean("name", ["name", "names"]) is None
    assert did_you_mean("n" * (MAX_NAME + 1), ["n" * MAX_NAME]) is None
    assert did_you_mean("n" * MAX_NAME, ["n" * (MAX_NAME + 1)]) is None
    assert did_you_mean("nam", ["name", *map(str, range(MAX_CANDIDATES))]) is None
