"""The reference of the languages: every example is what the program says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from gitops.core.codes import REGISTRY
from gitops.database.language.format import format_queries, format_schema
from gitops.database.language.lexer import MAX_NUMBER_DIGITS, MAX_SOURCE_BYTES
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query import parser as queries
from gitops.database.language.query.params import ParameterCode, ParameterError, coerce_params
from gitops.database.language.query.typed import TypedRead
from gitops.database.language.rules import RULES, RuleStage
from gitops.database.language.schema import Catalog, PropType, Scalar, TypeKind, compile_schema, pattern
from gitops.database.language.schema import parser as schemas
from gitops.database.language.schema.compile import _REPEATED, ROW_COLUMNS
from gitops.database.language.schema.conversion import HINTS
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.problems import MAX_PROBLEMS
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.step_terms import DropMode, Reversibility
from gitops.database.language.schema.steps import DropType, Migration, MigrationStep, UnsupportedChange
from gitops.database.language.text import LanguageError, LanguageProblem, SourceText
from tests.docs.examples import DEFAULT, PAGES, Fence, checked, compiled, examples, fences, of
from tests.docs.running import run_example, same_rows
from tests.support import rules_page
from tests.support.cases import read_yaml
from tests.support.grammars.oracle import grammar
from tests.support.pages import ROOT, read_page

FENCES = examples().fences
RUNS = examples().runs
STAGES = ("parse", "type", "catalog")


def problems(each: Fence) -> tuple[LanguageProblem, ...]:
    """What is wrong with a text of either language; nothing if it is sound."""
    try:
        if each.language == "pg":
            compile_schema(each.source)
        else:
            for query in parse_queries(each.source):
                check_query(query, compiled(each.schema).catalog)
    except LanguageError as error:
        return error.problems
    return ()


def label(problem: LanguageProblem) -> str:
    return problem.rule or problem.stage.value


# What the blocks say


def test_there_are_examples_of_each_kind():
    found = examples()
    assert len(found.runs) > 30
    assert len(found.migrations) > 5
    assert len(found.problems) > 15
    assert set(found.data) == set(found.schemas)


@pytest.mark.parametrize("each", FENCES, ids=str)
def test_a_block_says_what_it_is(each):
    assert each.unknown == set()


@pytest.mark.parametrize("info", ["pg wrong=1", "python", "", "json", "json rows sorted"])
def test_a_block_that_says_something_else_is_noticed(info):
    """The net has no hole: what is not a known kind of example does not go unchecked."""
    (each, *_) = fences("page.md", f"```{info}\n{{}}\n```\n")
    known = each.unknown == set()
    assert not known or (each.language, each.markers) == ("json", {})


def test_json_that_says_nothing_is_refused():
    from tests.docs.examples import Examples, _Reader

    with pytest.raises(ValueError, match="say what this JSON is"):
        _Reader(Examples()).page(fences("page.md", "```json\n{}\n```\n"))


def test_text_that_is_indented_is_no_example():
    (each,) = fences("page.md", "text\n\n    node A {}\n")
    assert each.unknown


@pytest.mark.parametrize("each", of("pg") + of("gq"), ids=str)
def test_a_text_is_sound_or_refused_for_the_rules_it_names(each):
    expected = [label for label in each.markers.get("error", "").split(",") if label]
    assert [label(problem) for problem in problems(each)] == expected
    assert {name for name in expected if name not in RULES and name not in STAGES} == set()


@pytest.mark.parametrize("each", of("pg") + of("gq"), ids=str)
def test_a_text_is_in_canonical_layout(each):
    layout = format_schema if each.language == "pg" else format_queries
    if each.markers.get("error") in ("S-01", "S-02", "S-23", "parse"):
        pytest.skip("does not parse")
    assert layout(each.source).decode() == each.text


@pytest.mark.parametrize(("each", "told"), examples().problems, ids=lambda value: str(value)[:30])
def test_the_messages_are_those_of_the_program(each, told):
    text = SourceText(each.source)
    lines = []
    for problem in problems(each):
        line, column = text.position(problem.span.start)
        lines.append(f"{line}:{column} {problem.rendered()}")
        lines += [] if problem.fix is None else [f"  {problem.fix}"]
    assert told.splitlines() == lines


# Data, parameters and rows


@pytest.mark.parametrize("name", sorted(examples().data))
def test_the_data_fits_its_schema(name):
    catalog = compiled(name).catalog
    records = [json.loads(line) for line in examples().data[name].text.splitlines()]
    ids = {each["data"][catalog.nodes[each["type"]].key[0]] for each in records if "type" in each}
    for each in records:
        declared = catalog.nodes[each["type"]] if "type" in each else catalog.edges[each["edge"]]
        given = each.get("data", {})
        assert set(given) <= set(declared.properties), each
        assert {n for n, kind in declared.properties.items() if not kind.nullable} <= set(given), each
        assert {each[end] for end in ("from", "to") if end in each} <= ids
        assert {n for n, value in given.items() if not _fits(declared.properties[n], value)} == set(), each


def _fits(kind: PropType, value: object) -> bool:
    if kind.enum_values is not None:
        return value in kind.enum_values
    try:
        coerce_params(_of_type(str(kind)).params, {"a": value})
    except ParameterError:
        return False
    return True


@pytest.mark.parametrize(("query", "params"), examples().params, ids=str)
def test_parameters_are_taken_or_refused_as_shown(query, params):
    refused = params.markers.get("error")
    if refused is None:
        values = coerce_params(checked(query).params, params.json())
        assert set(params.json()) <= set(values)
        return
    with pytest.raises(ParameterError) as caught:
        coerce_params(checked(query).params, params.json())
    assert caught.value.code == ParameterCode(refused)


@pytest.mark.parametrize(
    "case", [json.loads(line) for each in of("ndjson", "coercion") for line in each.text.splitlines()], ids=str
)
def test_a_value_is_converted_as_shown(case):
    if "value" in case:
        value = coerce_params(_of_type(case["type"]).params, {"a": case["json"]})["a"]
        assert (type(value), value) == (type(case["value"]), case["value"])
        return
    with pytest.raises(ParameterError, match=re.escape(case["refused"])) as caught:
        coerce_params(_of_type(case["type"]).params, {"a": case["json"]})
    assert caught.value.code == ParameterCode(case["code"])


def _of_type(kind: str) -> CheckedQuery:
    (query,) = parse_queries(f"query q($a: {kind}) {{ delete T where b = 1 }}".encode())
    return check_query(query, compile_schema(b"node T { b: I32 }").catalog)


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_result_has_the_columns_of_its_query(run):
    query = checked(run.query)
    coerce_params(query.params, run.params)
    if run.rows is None:
        assert not isinstance(query.body, TypedRead)
        return
    assert isinstance(query.body, TypedRead)
    assert run.ordered == bool(query.body.order), "rows of a query with an order are shown in it"
    columns = [column.column for column in query.columns]
    for row in run.rows:
        assert list(row) == columns
        for column in query.columns:
            assert column.type is None or row[column.column] is not None or column.type.nullable


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_a_run_gives_what_the_page_says(run):
    name = run.query.schema
    result = run_example(compiled(name), examples().data[name].text, run.query.source, run.params)
    if run.refused is not None:
        assert result.refused == run.refused
    elif run.affected is not None:
        assert (result.refused, result.affected) == (None, run.affected)
    else:
        assert result.refused is None
        assert same_rows(result.rows, run.rows, ordered=run.ordered)


# Migrations


@pytest.mark.parametrize("each", examples().migrations, ids=str)
def test_a_migration_has_the_steps_that_are_shown(each):
    accepted, desired = compile_schema(each.accepted.source), compile_schema(each.desired.source)
    assert plan_migration(accepted, desired).to_json() == each.steps


@pytest.mark.parametrize("each", [m for m in examples().migrations if m.back is not None], ids=str)
def test_the_way_back_is_the_one_that_is_shown(each):
    accepted, desired = compile_schema(each.accepted.source), compile_schema(each.desired.source)
    assert plan_down(accepted, desired).to_json() == each.back
    printed = down_source(accepted, desired)
    assert format_schema(printed).decode() == each.back_source


CLAIMS = read_yaml(Path(__file__).parent / "claims.yaml")


def name_of(claim: dict) -> str:
    return f"{claim['page']}: {claim['says'][:50]}"


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def refusal(claim: dict) -> str | None:
    """The rule that refuses the text of a claim (the stage, if it has no label), or None."""
    try:
        if "pg" in claim:
            compile_schema(claim["pg"].encode())
        else:
            catalog = compile_schema(examples().schemas[claim.get("schema", DEFAULT)].source).catalog
            for query in parse_queries(claim["gq"].encode()):
                check_query(query, catalog)
    except LanguageError as error:
        return error.problems[0].rule or error.problems[0].stage.value
    return None


@pytest.mark.parametrize("claim", CLAIMS, ids=name_of)
def test_the_page_says_it(claim):
    assert squeezed(claim["says"]) in squeezed(read_page(f"languages/{claim['page']}"))


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "steps" not in c], ids=name_of)
def test_a_text_shows_it(claim):
    assert refusal(claim) == claim.get("refused")


@pytest.mark.parametrize("claim", [c for c in CLAIMS if "steps" in c], ids=name_of)
def test_a_plan_shows_it(claim):
    accepted, desired = compile_schema(claim["accepted"].encode()), compile_schema(claim["desired"].encode())
    plan = plan_migration(accepted, desired)
    kinds = [(step.code or step.kind) if isinstance(step, UnsupportedChange) else step.kind for step in plan.steps]
    assert kinds == claim["steps"]
    assert plan.supported == (not {"unsupported_change", "OG-MF-106"} & set(kinds))
    if sort := re.search(r"`change_property_type` \| (\w+)|`\w+` \| (checked|converting)", claim["says"]):
        assert {step.sort for step in plan.steps} == {sort[1] or sort[2]}


def test_every_row_of_the_table_of_changes_is_shown():
    table = read_page("languages/migrations.md").partition("## What can be changed\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    said = [squeezed(claim["says"]) for claim in CLAIMS if claim["page"] == "migrations.md"]
    assert len(rows) > 15
    assert [row for row in rows if not any(text in row for text in said if text.startswith("| "))] == []


def test_what_is_claimed_twice_is_shown_twice():
    texts = [str({k: v for k, v in claim.items() if k not in ("page", "says")}) for claim in CLAIMS]
    assert len(set(texts)) == len(texts)


PAGE_TEXTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}


def code_words(*names: str) -> set[str]:
    """The words between backquotes on these pages, or on all of them."""
    texts = [text for name, text in PAGE_TEXTS.items() if not names or name in names]
    spans = [
        span
        for text in texts
        for span in re.findall(r"`` ?(.+?) ?``|`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```$", "", text))
    ]
    return {
        word for pair in spans for part in pair for word in re.findall(r"[@$]?[A-Za-z_][A-Za-z0-9_-]*|[<>=!]+", part)
    }


def keywords(language: str) -> set[str]:
    """The words of a grammar, without its signs."""
    patterns = {each.name: each.pattern for each in grammar(language).terminals if not each.name.startswith("__")}
    open_ended = {"TYPE", "NAME", "MEMBER", "INT", "FLOAT", "STRING", "PARAM", "VAR", "BASE", "CONSTRAINT"}
    spelled = (p.value.partition("(?")[0] for name, p in patterns.items() if name not in open_ended)
    return {text for text in spelled if re.fullmatch(r"@?[A-Za-z_][A-Za-z0-9_]*", text)}


def test_the_grammars_have_the_words_one_expects():
    assert {"interface", "node", "edge", "implements", "enum", "Vector"} <= keywords("pg")
    assert {"match", "return", "order", "limit", "not", "insert", "rrf"} <= keywords("gq")


def test_every_word_of_schemas_is_in_the_reference():
    shown = code_words("schema.md", "types.md")
    assert {word for word in keywords("pg") if not {word, f"@{word}"} & shown} == set()


def test_every_word_of_queries_is_in_the_reference():
    assert keywords("gq") - code_words("queries.md", "mutations.md", "search.md", "types.md") == set()


def test_what_the_parsers_know_is_in_the_reference():
    tables = {
        *schemas._DECLARATIONS,
        *schemas._BASES,
        *(f"@{name}" for name in schemas._CONSTRAINTS),
        *(f"@{name}" for name in _REPEATED),
        "@card",
        *ROW_COLUMNS,
    }
    assert tables - code_words("schema.md", "types.md") == set()
    tables = {
        *queries._TEXT,
        *queries._AGGREGATES,
        *queries._TIMES,
        *queries._BOOLEANS,
        *queries._WORDS,
        *queries._WRITES,
        *(kind.value.strip("`") for kind in queries._SYMBOLS),
        *(f"@{name}" for name in queries._ANNOTATIONS),
        *queries._BASES,
        Scalar.VECTOR.value,
    }
    assert tables - code_words() == set()


def test_what_migrations_know_is_in_the_reference():
    steps = {each.kind for each in get_args(MigrationStep)}
    known = (
        steps
        | {each.value for each in Reversibility}
        | {r for r in RULES if r.startswith("OG-MF") and RULES[r].found is not RuleStage.RESERVED}
        | {f"@{hint}" for hint in HINTS}
    )
    assert known - code_words("migrations.md") == set()
    assert all(f"**{each.value}**" in PAGE_TEXTS["migrations.md"] for each in DropMode)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (kind, cell)
        for kind, cell in re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", PAGE_TEXTS["migrations.md"], re.MULTILINE)
    ],
)
def test_the_way_back_of_a_step_is_the_one_in_the_table(kind, expected):
    """The table of steps against the steps of the plans on the page, as far as they occur there."""
    plans = [
        plan_migration(compile_schema(m.accepted.source), compile_schema(m.desired.source))
        for m in examples().migrations
    ]
    found = {step.reversibility for plan in plans for step in plan.steps if step.kind == kind}
    assert found, f"no example has the step {kind}"
    assert {each.value for each in found} <= set(re.findall(r"\w+", expected))


def test_hard_drops_are_as_the_page_says():
    plan = Migration(plan_migration(compile_schema(b"node A {}"), compile_schema(b"")).steps)
    assert (plan.reversibility, plan.hardened().reversibility) == (Reversibility.LOSSY, Reversibility.IRREVERSIBLE)
    interface = DropType(TypeKind.INTERFACE, "I", DropMode.HARD)
    assert interface.reversibility is Reversibility.REVERSIBLE


def test_the_refusals_of_parameters_are_shown():
    shown = {each.markers["error"] for each in of("json", "params", "error")}
    shown |= {json.loads(line).get("code") for each in of("ndjson", "coercion") for line in each.text.splitlines()}
    assert {each.value for each in ParameterCode} <= shown


def test_every_rule_can_be_found_from_the_reference():
    assert "](../language-rules.md)" in PAGE_TEXTS["README.md"]
    listed = set(re.findall(r"^\| `([A-Za-z0-9-]+)` \|", read_page(rules_page.PAGE), re.MULTILINE))
    assert listed == set(RULES)
    assert not set(RULES) & set(REGISTRY)


def test_every_page_is_reached_from_the_overview():
    pages = {path.name for path in (ROOT / "docs/languages").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in PAGE_TEXTS["README.md"]} == set()


@pytest.mark.parametrize(
    ("page", "limit"),
    [
        ("README.md", f"{MAX_SOURCE_BYTES // 2**20} MiB"),
        ("schema.md", str(schemas.MAX_VECTOR_DIMENSION)),
        ("schema.md", str(schemas.MAX_CARDINALITY)),
        ("schema.md", f"reported problems | {MAX_PROBLEMS} "),
        ("schema.md", f"a number | {MAX_NUMBER_DIGITS} characters"),
        ("schema.md", f"a pattern | {pattern.MAX_PATTERN} characters, repeats of {pattern.MAX_REPEAT}"),
        ("schema.md", f"groups {pattern.MAX_GROUPS} deep"),
        ("types.md", str(queries.MAX_INT)),
    ],
)
def test_the_limits_are_those_of_the_program(page, limit):
    assert limit in PAGE_TEXTS[page]


def _accepts(source: str, catalog: Catalog) -> bool:
    try:
        for each in parse_queries(source.encode()):
            check_query(each, catalog)
    except LanguageError:
        return False
    return True


@pytest.mark.parametrize(
    ("item", "column"), re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| ", PAGE_TEXTS["queries.md"], re.MULTILINE)
)
def test_an_item_makes_the_column_in_the_table(item, column):
    text = f"query q($limit: I32) {{ match {{ $b: Book }} return {{ {item} }} }}"
    (one,) = parse_queries(text.encode())
    assert [c.column for c in check_query(one, compiled("library").catalog).columns] == [column]


@pytest.mark.parametrize("form", re.findall(r"^\| `(\$[a-z] .+? \$[a-z_])` \|", PAGE_TEXTS["queries.md"], re.MULTILINE))
def test_each_form_of_a_hop_in_the_table_is_accepted(form):
    catalog = compiled("library").catalog
    assert _accepts(f"query q() {{ match {{ {form} }} return {{ {form.split()[0]} }} }}", catalog)
