"""The reference of the languages: everything that there is appears in it."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from gitops.core.codes import REGISTRY
from gitops.database.language.lexer import MAX_NUMBER_DIGITS, MAX_SOURCE_BYTES
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.query import parser as queries
from gitops.database.language.query.params import ParameterCode
from gitops.database.language.rules import RULES
from gitops.database.language.schema import Catalog, Scalar, TypeKind, compile_schema, pattern
from gitops.database.language.schema import parser as schemas
from gitops.database.language.schema.compile import _REPEATED, ROW_COLUMNS
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.problems import MAX_PROBLEMS
from gitops.database.language.schema.steps import AddType, DropMode, Migration, MigrationStep, Reversibility
from gitops.database.language.text import LanguageError
from tests.docs.examples import PAGES, compiled, examples, of
from tests.support import rules_page
from tests.support.grammars.oracle import grammar
from tests.support.pages import ROOT, read_page

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
        | {r for r in RULES if r.startswith("OG-MF") and r != "OG-MF-104"}
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
    interface = AddType(TypeKind.INTERFACE, "I")
    assert interface.reversibility is Reversibility.IRREVERSIBLE


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
        ("schema.md", f"are reported | {MAX_PROBLEMS} "),
        ("schema.md", f"a number | {MAX_NUMBER_DIGITS} characters"),
        ("schema.md", f"a pattern | {pattern.MAX_PATTERN} characters, repeats of {pattern.MAX_REPEAT}"),
        ("schema.md", f"groups {pattern.MAX_GROUPS} deep"),
        ("queries.md", f"{queries.MAX_DEPTH} deep"),
        ("queries.md", f"{queries.MAX_NAME} characters"),
        ("queries.md", str(queries.MAX_BOUND)),
        ("queries.md", str(queries.MAX_LIMIT)),
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
