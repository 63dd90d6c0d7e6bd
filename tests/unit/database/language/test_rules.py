"""The registry of language rules against the code that raises them, the cases that show them, and their page."""

from __future__ import annotations

import ast

import pytest
import yaml

from gitops.database.language.query.params import ParameterCode
from gitops.database.language.rules import RULES, RuleStage
from gitops.database.language.schema.steps import MigrationCode
from tests.support import rules_page
from tests.support.cases import read_yaml
from tests.support.pages import ROOT, read_page

DATA = ROOT / "tests" / "data" / "languages"
LABELS = set(RULES)
# S-48 and S-49 need texts too large or too odd for a table, IR is about stored bytes: they have tests of their own.
WITHOUT_A_CASE = {"S-48", "S-49", "IR"}


def cases(folder: str, name: str) -> list[dict]:
    files = sorted((DATA / folder).glob(f"{name}*.yaml"))
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
    raised = {rule for case in cases("schema", "problems") for rule, *_ in case["problems"]}
    raised |= {case["rule"] for case in cases("query", "refused")} | set(MigrationCode)
    assert raised <= LABELS | {""}


def test_every_rule_of_schemas_and_queries_has_a_case():
    shown = {rule for case in cases("schema", "problems") for rule, *_ in case["problems"]}
    shown |= {case["rule"] for case in cases("query", "refused")}
    wanted = {
        label for label, rule in RULES.items() if rule.found in (RuleStage.PARSE, RuleStage.CATALOG, RuleStage.TYPE)
    }
    assert wanted - shown == WITHOUT_A_CASE


def test_every_code_of_migrations_has_a_case():
    steps = [step for case in cases("schema", "migrations") for step in case["steps"]]
    shown = {step[3] for step in steps if step[0] == "unsupported_change"}
    wanted = {label for label, rule in RULES.items() if rule.found is RuleStage.MIGRATION}
    assert wanted == set(MigrationCode)
    assert wanted <= shown


def test_every_code_of_parameter_values_has_a_case():
    shown = {case["code"] for case in cases("query", "coercion") if "code" in case}
    assert {ParameterCode(code) for code in shown} == set(ParameterCode) - {
        ParameterCode.MISSING,
        ParameterCode.NOT_AN_OBJECT,
    }


def test_every_finding_of_the_report_on_a_file_has_a_case():
    listed = {finding[1] for case in cases("query", "lint") for finding in case["findings"]}
    shown = {problem[1] for case in cases("query", "located") for problem in case["problems"]}
    # L102 is about a schema, and has its cases there.
    wanted = {label for label, rule in RULES.items() if rule.found is RuleStage.LINT} - {"L102"}
    assert listed <= wanted <= shown <= LABELS


def test_there_are_plenty_of_cases():
    kinds = [("schema", "problems"), ("schema", "accepted"), ("schema", "migrations"),
             ("query", "refused"), ("query", "malformed"), ("query", "accepted"), ("query", "coercion")]  # fmt: skip
    texts = [yaml.safe_dump(case) for kind in kinds for case in cases(*kind)]
    assert len(set(texts)) == len(texts) >= 800


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_says_what_it_refuses_in_one_line(rule):
    assert rule.refuses
    assert len(rule.refuses) <= 110
    assert not rule.refuses.endswith(".")


def test_the_page_of_rules_is_that_of_the_registry():
    assert read_page(rules_page.PAGE) == rules_page.rules_page(), "run `make docs`"
