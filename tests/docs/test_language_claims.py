"""What the reference of the languages says without an example, shown by one: `claims.yaml`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.steps import UnsupportedChange
from gitops.database.language.text import LanguageError
from tests.docs.examples import DEFAULT, examples
from tests.support.cases import read_yaml
from tests.support.pages import read_page

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
    assert plan.supported == (not {"unsupported_change", "OG-MF-103", "OG-MF-106"} & set(kinds))


def test_every_row_of_the_table_of_changes_is_shown():
    table = read_page("languages/migrations.md").partition("## What can be changed\n")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    said = [squeezed(claim["says"]) for claim in CLAIMS if claim["page"] == "migrations.md"]
    assert len(rows) > 15
    assert [row for row in rows if not any(text in row for text in said if text.startswith("| "))] == []


def test_what_is_claimed_twice_is_shown_twice():
    texts = [str({k: v for k, v in claim.items() if k not in ("page", "says")}) for claim in CLAIMS]
    assert len(set(texts)) == len(texts)
