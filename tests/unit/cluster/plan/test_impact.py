"""Which queries and policies hang on a schema update, by what its steps are about."""

from __future__ import annotations

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Change
from gitops.cluster.model.plan import QueryChange, RecordedGraph
from gitops.cluster.plan.impact import Subject, schema_impact, step_subjects
from gitops.render.migrations import migration_views as views
from gitops.render.migrations import result_line
from tests.support.cases import read_yaml
from tests.support.impact import desired, impact_of, loaded, planned
from tests.support.planning import DATA

CASES = read_yaml(DATA / "impact.yaml")
PERSON = "node Person { handle: String @key  age: I32? }"
WIDER = "node Person { handle: String @key  age: I32?  nick: String? }"
AGES = {"ages.gq": "query ages() { match { $p: Person } return { $p.age } }"}


def sides(case):
    before, after = case["before"], {**case["before"], **case["after"]}
    return [desired(side["schema"], side["queries"]) for side in (before, after)]


def how(touch) -> str:
    use = " and ".join(word for word, is_so in (("reads", touch.reads), ("writes", touch.writes)) if is_so)
    return f"{use}, {touch.change}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_who_uses_what_a_step_touches(case):
    plan = planned(*sides(case))
    steps = plan.change(Address("schema.g")).migration.steps
    found = [
        [step["kind"], {t.query.removeprefix("query.g."): how(t) for t in queries}]
        for step, queries in zip(steps, impact_of(plan).queries, strict=True)
    ]
    assert found == case["touches"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_which_results_change(case):
    found = {
        each.query.removeprefix("query.g."): [
            *(f"-{c}" for c in each.before if c not in each.after),
            *(f"+{c}" for c in each.after if c not in each.before),
        ]
        for each in impact_of(planned(*sides(case))).results
    }
    assert found == case.get("results", {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_plan_is_the_same_with_and_without_explanation(case):
    before, after = sides(case)
    explained, bare = planned(before, after), planned(before, after, explain=False)
    assert bare.schema_impact == ()
    assert (explained.digest, explained.changes, explained.impact) == (bare.digest, bare.changes, bare.impact)


def test_a_declared_query_that_breaks_is_an_error_that_names_query_and_property_before_there_is_a_plan():
    result = loaded("node Person { handle: String @key }", AGES)
    (problem,) = result.diagnostics
    assert (problem.code, problem.source.line) == ("query_typecheck_error", 1)
    assert "ages" in problem.path
    assert "`Person` has no property `age`" in problem.message


def test_the_policies_of_the_graph_are_named_and_no_others():
    for bound, named in (
        ({"readers": ["g"], "server": ["cluster"]}, ("policy.readers",)),
        ({"wide": ["cluster", "graph.g"]}, ("policy.wide",)),
        ({"server": ["cluster"]}, ()),
    ):
        found = impact_of(planned(desired(PERSON, AGES, bound), desired(WIDER, AGES, bound)))
        assert found.policies == named


def test_without_the_recorded_text_of_a_query_the_declared_one_still_speaks():
    before, after = desired(WIDER, AGES), desired(PERSON.replace("age", "years"), {})
    plan = planned(before, after)
    recorded = {"schema.g": RecordedGraph(before.graphs["g"].schema)}
    (found,) = schema_impact(plan.changes, after, recorded)
    assert all(queries == () for queries in found.queries)


@pytest.mark.parametrize(
    "content", [b"query ages(", b"query other() { match { $p: Person } return { $p } }", b"\xff", b""]
)
def test_a_recorded_text_that_cannot_be_checked_is_left_out(content):
    before, after = desired(WIDER, AGES), desired(WIDER, {"ages.gq": AGES["ages.gq"] + "\n"})
    plan = planned(before, desired(PERSON, {"ages.gq": AGES["ages.gq"] + "\n"}))
    recorded = {"schema.g": RecordedGraph(before.graphs["g"].schema, {Address("query.g.ages"): content})}
    (found,) = schema_impact(plan.changes, after, recorded)
    assert found.queries == ((),)


def test_a_query_whose_text_stays_while_its_file_changes_is_unchanged():
    edited = {"ages.gq": "// an old favourite\n" + AGES["ages.gq"]}
    plan = planned(desired("node Person { handle: String @key  age: I32? }", AGES), desired(_indexed(), edited))
    assert [t.change for queries in impact_of(plan).queries for t in queries] == [QueryChange.KEPT]


def _indexed() -> str:
    return "node Person { handle: String @key  age: I32? @index }"


@pytest.mark.parametrize(
    "step",
    [
        {},
        {"kind": "split_property", "type_kind": "node", "type_name": "Person", "property_name": "age"},
        {"kind": "drop_property", "type_kind": "node", "type_name": "Person"},
        {"kind": "drop_type", "type_kind": "node", "name": 7},
        {"kind": "rename_type", "type_kind": "node", "from": "Person"},
        {"kind": "rename_property", "type_kind": "node", "type_name": None, "from": "a", "to": "b"},
        {"kind": "add_constraint", "type_kind": "node", "type_name": "Person", "constraint": "Index"},
        {"kind": "add_constraint", "type_kind": "node", "type_name": "Person", "constraint": {"Index": 3}},
        {"kind": "drop_type", "type_kind": "interface", "name": "Person"},
        {"kind": "unsupported_change", "entity": "interface:Named", "reason": "removing interface"},
    ],
)
def test_a_step_that_is_not_known_is_about_nothing(step):
    (found,) = step_subjects([step])
    assert not found.before
    assert not found.after


def test_an_unsupported_change_is_about_its_entity():
    steps = [{"kind": "unsupported_change", "entity": text, "reason": "no"} for text in ("edge:Knows", "node:T.p")]
    assert [set(found.after) for found in step_subjects(steps)] == [
        {Subject("edge", "Knows")},
        {Subject("node", "T", "p")},
    ]


def test_in_words_what_is_taken_away_names_its_users_and_the_rest_is_counted():
    queries = {f"q{n:02}.gq": f"query q{n:02}() {{ match {{ $p: Person }} return {{ $p.nick }} }}" for n in range(23)}
    plan = planned(desired(WIDER, queries), desired(PERSON.replace("age: I32?", "age: I32? @index"), {}))
    dropped, indexed = views(plan)["schema.g"].steps
    assert dropped.used.startswith("used by query.g.q00 (reads, removed here), query.g.q01 ")
    assert dropped.used.endswith("query.g.q19 (reads, removed here) and 3 more")
    assert indexed.used == ""
    plan = planned(desired(WIDER, AGES), desired(_indexed(), AGES))
    view = views(plan)["schema.g"]
    assert sorted(step.used for step in view.steps) == ["used by 1 query", "used by no stored query"]
    assert view.results == ()


def test_in_words_a_result_that_only_changes_its_order():
    before = {"q.gq": "query q() { match { $p: Person } return { $p.age, $p.nick } }"}
    after = {"q.gq": "query q() { match { $p: Person } return { $p.nick, $p.age } }"}
    indexed = WIDER.replace("age: I32?", "age: I32? @index")
    (result,) = views(planned(desired(WIDER, before), desired(indexed, after)))["schema.g"].results
    assert result_line(result) == "result of query.g.q has its columns in another order"


def test_nothing_is_computed_without_a_schema_update():
    before = desired(PERSON, AGES)
    changes: tuple[Change, ...] = ()
    assert schema_impact(changes, before, {}) == ()
    assert schema_impact(changes, before, {Address("schema.g"): RecordedGraph(before.graphs["g"].schema)}) == ()
