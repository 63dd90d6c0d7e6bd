"""The reference of the languages: every example is what the program says."""

from __future__ import annotations

import json
import re

import pytest

from gitops.database.language.format import format_queries, format_schema
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.params import ParameterCode, ParameterError, coerce_params
from gitops.database.language.query.typed import TypedRead
from gitops.database.language.rules import RULES
from gitops.database.language.schema import PropType, compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.text import LanguageError, LanguageProblem, SourceText
from tests.docs.examples import Fence, checked, compiled, examples, fences, of
from tests.docs.running import run_example, same_rows

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
