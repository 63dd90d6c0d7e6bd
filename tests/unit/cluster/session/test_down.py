"""The way back between two schema files: what is said about it, and that the text which is given goes back."""

from __future__ import annotations

import pytest

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.down import down_between
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.render.down import down_form, down_text
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

CASES = read_yaml(ROOT / "tests" / "data" / "down" / "cases.yaml")


def outcome_of(case):
    tree = MemoryTree({"from.pg": case["from"].encode(), "to.pg": case["to"].encode()})
    return down_between(tree, "from.pg", "to.pg")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_said(case):
    outcome = outcome_of(case)
    assert [each.code for each in outcome.diagnostics] == case["codes"]
    assert outcome.ok == (not case["codes"])
    assert down_text(outcome).partition("ERROR")[0] == case["says"]


@pytest.mark.parametrize("case", [case for case in CASES if "source" in case], ids=lambda case: case["name"])
def test_the_text_goes_back(case):
    way = outcome_of(case).migrations
    assert way is not None
    assert way.source.decode() == case["source"]
    assert plan_migration(compile_schema(case["to"].encode()), compile_schema(way.source)) == way.back


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_document_has_both_ways_with_the_class_of_each_step(case):
    outcome = outcome_of(case)
    form = down_form(outcome)
    assert [each["code"] for each in form["diagnostics"]] == case["codes"]
    if outcome.migrations is None:
        assert set(form) == {"ok", "config_dir", "subject", "diagnostics"}
        return
    for name, migration in (("forward", outcome.migrations.forward), ("back", outcome.migrations.back)):
        assert form[name]["supported"] == migration.supported
        steps = [{k: v for k, v in step.items() if k != "reversibility"} for step in form[name]["steps"]]
        assert steps == [{**step.to_json(), **_lists(step.to_json())} for step in migration.steps]
        assert [step["reversibility"] for step in form[name]["steps"]] == [s.reversibility for s in migration.steps]
    assert form["reversibility"] == outcome.migrations.forward.reversibility
    assert form["source"].encode() == outcome.migrations.source


def _lists(form):
    return {name: list(value) for name, value in form.items() if isinstance(value, tuple)}


def test_a_file_that_is_not_there_is_a_problem_of_it_alone():
    outcome = down_between(MemoryTree({"a.pg": b"node A {}"}), "a.pg", "b.pg")
    assert [(each.code, each.path) for each in outcome.diagnostics] == [("schema_file_missing", "b.pg")]


def test_what_keeps_a_change_from_going_back_is_told_once():
    tree = MemoryTree({"a.pg": b"node A { n: I32? }", "b.pg": b"node A { n: I32? @index }"})
    assert [each.code for each in down_between(tree, "a.pg", "b.pg").diagnostics] == ["way_back_unsupported"]
    assert [each.code for each in down_between(tree, "b.pg", "a.pg").diagnostics] == ["graph_migration_unsupported"]
