"""From desired and recorded to changes and their impact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.apply.settle import settle
from gitops.cluster.model.address import Address, Kind, graph_address, schema_address, strategy_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Change, Disposition, GateName, Reason, Tier
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, strategy_resources
from gitops.cluster.model.kinds import Situation, rules_of
from gitops.cluster.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.cluster.model.plan import NodeOutcome, NodeResult, Plan, PlanInputs, QueryChange, RecordedGraph, TrustChange
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.strategy import IdleSuspend, StrategyType, TargetSize
from gitops.cluster.model.trust import Quorum
from gitops.cluster.plan.impact import Subject, schema_impact, step_subjects
from gitops.cluster.plan.planner import classify, diff, find_impact, make_plan, recorded_dependencies, survey
from gitops.database.graph.port import MigrationPreview
from gitops.render.migrations import migration_views as views
from gitops.render.migrations import result_line
from tests.support.cases import read_yaml
from tests.support.ids import SequentialIds
from tests.support.impact import desired as graph_desired
from tests.support.impact import impact_of, loaded, planned
from tests.support.planning import DATA, SEEN, change, desired, hexed, rows, state

FULL = {"graph.g": "", "schema.g": "1", "query.g.q": "2", "policy.p": "3"}
BOUND = {"policy.p": ["graph.g"]}
STAMP = {"at": "2026-06-11T08:00:00Z", "actor": "sam"}


def plan(inputs: PlanInputs) -> Plan:
    """Plan where everything recorded is seen."""
    return make_plan(replace(inputs, seen=dict.fromkeys(inputs.state.resources, SEEN)))


def people(needed: int) -> Quorum:
    """A quorum of so many people for what cannot be undone."""
    return Quorum({GateName.IRREVERSIBLE: needed})


def approval(inputs: PlanInputs, resource: str, by: str = "sam", identity: str = "AP1") -> Approval:
    change = plan(replace(inputs, approvals=())).change(Address(resource))
    assert change is not None
    config = inputs.desired.config_digest
    return Approval(
        identity,
        Address(resource),
        change.action,
        "why",
        config,
        change.before,
        change.after,
        by,
        "2026-06-11T07:00:00Z",
        seen=change.seen,
    )


REMOVAL = PlanInputs(desired({}), state(FULL, BOUND))


def test_one_gate_per_graph_subtree():
    made = plan(REMOVAL)
    assert [(r.resource, r.satisfied) for r in made.approvals_required] == [("graph.g", False)]
    assert {c.address for c in made.changes if c.reason is not None} == {
        "graph.g",
        "schema.g",
        "query.g.q",
        "policy.p",
    }


def test_a_schema_that_goes_alone_is_gated_and_never_carried_out():
    inputs = PlanInputs(desired({"graph.g": ""}), state({"graph.g": "", "schema.g": "1"}))
    inputs = replace(inputs, approvals=(approval(inputs, "schema.g"),))
    made = plan(inputs)
    assert [(r.resource, r.satisfied) for r in made.approvals_required] == [("schema.g", True)]
    change = made.change(Address("schema.g"))
    assert change is not None
    assert change.disposition == "deferred"
    assert made.graph.nodes == ()


def test_keys_and_rules_are_gated_and_run_when_approved():
    inputs = PlanInputs(desired({}), LedgerState(), trust_change=TrustChange("library", hexed("a"), hexed("b")))
    change = plan(inputs).change(Address("trust.library"))
    assert change is not None
    assert (change.disposition, change.reason) == ("blocked", "approval_required")
    made = plan(replace(inputs, approvals=(approval(inputs, "trust.library"),)))
    assert [n.id for n in made.graph.nodes] == ["trust.library"]


def test_an_approved_delete_runs_behind_everything_else():
    inputs = replace(REMOVAL, desired=desired({"graph.h": "", "schema.h": "5"}))
    made = plan(replace(inputs, approvals=(approval(inputs, "graph.g"),)))
    order = [n.id for n in sorted(made.graph.nodes, key=lambda n: n.position)]
    assert order[-2:] == ["graph.g", "policy.p"]
    assert order.index("graph.h") < order.index("schema.g")


@pytest.mark.parametrize(
    ("approvers", "needed", "satisfied"),
    [
        (["sam"], 1, True),
        ([], 1, False),
        (["sam"], 2, False),
        (["sam", "sam"], 2, False),
        (["sam", "alex"], 2, True),
        (["sam", "sam", "alex", "kim"], 2, True),
    ],
)
def test_quorum_is_of_distinct_people(approvers, needed, satisfied):
    given_approvals = tuple(approval(REMOVAL, "graph.g", by, f"AP{n}") for n, by in enumerate(approvers))
    made = plan(replace(REMOVAL, approvals=given_approvals, quorum=people(needed)))
    (gate,) = made.approvals_required
    assert gate.satisfied is satisfied
    assert len({a.approved_by for a in gate.approvals}) == len(gate.approvals) <= needed
    change = made.change(Address("graph.g"))
    assert change is not None
    assert change.disposition == ("applied" if satisfied else "blocked")
    short = 0 < len(gate.approvals) < needed
    assert [d.code for d in made.diagnostics] == (["approval_quorum"] if short else [])


def test_no_more_approvals_are_chosen_than_needed_lowest_ids_first():
    found = tuple(approval(REMOVAL, "graph.g", by, i) for by, i in (("kim", "AP3"), ("sam", "AP1"), ("alex", "AP2")))
    (gate,) = plan(replace(REMOVAL, approvals=found, quorum=people(2))).approvals_required
    assert [a.approval_id for a in gate.approvals] == ["AP1", "AP2"]


@pytest.mark.parametrize(
    ("moved", "stale"),
    [
        ({}, []),
        ({"bound_config_digest": hexed("0")}, ["approval_stale"]),
        ({"bound_before_digest": hexed("0")}, ["approval_stale"]),
        ({"bound_after_digest": hexed("0")}, ["approval_stale"]),
        ({"operation": Action.UPDATE}, ["approval_stale"]),
        ({"resource": Address("graph.h")}, []),
        ({"consumed_at": "2026-06-11T07:30:00Z", "bound_config_digest": hexed("0")}, []),
    ],
)
def test_an_approval_that_matches_no_more_is_said_to_be_stale(moved, stale):
    made = plan(replace(REMOVAL, approvals=(replace(approval(REMOVAL, "graph.g"), **moved),)))
    assert [d.code for d in made.diagnostics] == stale
    assert {d.path for d in made.diagnostics} <= {"graph.g"}
    assert made.approvals_required[0].satisfied is (moved == {})


def test_a_preview_belongs_to_its_schema():
    preview = MigrationPreview(True, ({"kind": "add_property"},))
    previews = {Address("schema.g"): preview}
    wanted = desired({"graph.g": "", "schema.g": "8", "graph.new": "", "schema.new": "9"})
    made = plan(PlanInputs(wanted, state({"graph.g": "", "schema.g": "1"}), previews=previews))
    assert {c.address for c in made.changes if c.migration is not None} == {"schema.g"}


def test_pending_graphs_block_what_concerns_them():
    made = plan(PlanInputs(desired(FULL, BOUND), LedgerState(), pending=frozenset({"g"})))
    assert {c.reason for c in made.changes} == {"cluster_recovery_pending"}
    assert made.graph.nodes == ()


def test_the_digest_does_not_depend_on_evidence_or_bookkeeping():
    base = plan(REMOVAL).digest
    noted = replace(
        REMOVAL.state,
        revision=99,
        statuses={Address("graph.g"): StatusRecord(Status.BLOCKED, ("approval_required",))},
        observations={Address("graph.g"): {"observed_at": "2026-01-01T00:00:00Z"}},
    )
    for other in (
        replace(REMOVAL, approvals=(approval(REMOVAL, "graph.g"),)),
        replace(REMOVAL, quorum=people(3)),
        replace(REMOVAL, pending=frozenset({"g"})),
        replace(REMOVAL, state=noted),
    ):
        assert plan(other).digest == base


def test_the_digest_moves_with_what_would_be_done():
    preview = {"schema.g": MigrationPreview(True, ({"kind": "add_property"},))}
    update = PlanInputs(desired({**FULL, "schema.g": "8"}, BOUND), state(FULL, BOUND))
    digests = [
        plan(inputs).digest
        for inputs in (
            REMOVAL,
            update,
            replace(update, previews=preview),
            replace(update, desired=replace(update.desired, config_digest=hexed("0"))),
            replace(update, desired=desired({**FULL, "schema.g": "8"}, {"policy.p": ["cluster"]})),
            replace(REMOVAL, state=state({**FULL, "query.g.q": "7"}, BOUND)),
        )
    ]
    assert len(set(digests)) == len(digests)


def test_recorded_edges_are_those_of_the_recorded_resources():
    bound = {"policy.p": ["cluster", "graph.g"]}
    everything = diff(desired({}), state(FULL, bound))
    assert recorded_dependencies(everything, state(FULL, bound)) == desired(FULL, bound).dependencies
    assert recorded_dependencies((), state(FULL, bound)) == ()


# Laws.

_NAMES = st.sampled_from(["a", "b", "c"])
_DIGESTS = st.sampled_from("0123456789")


@st.composite
def folders(draw):
    """The resources of a folder: graphs with schema and queries, policies with bindings to them."""
    graphs = draw(
        st.dictionaries(_NAMES, st.tuples(_DIGESTS, st.dictionaries(_NAMES, _DIGESTS, max_size=3)), max_size=3)
    )
    digests: dict[str, str] = {}
    for graph, (schema, queries) in graphs.items():
        digests |= {f"graph.{graph}": "", f"schema.{graph}": schema}
        digests |= {f"query.{graph}.{name}": d for name, d in queries.items()}
    scopes = ["cluster", *(f"graph.{g}" for g in sorted(graphs))]
    bindings = {}
    for name, letter in draw(st.dictionaries(_NAMES, _DIGESTS, max_size=2)).items():
        digests[f"policy.{name}"] = letter
        bindings[f"policy.{name}"] = sorted(draw(st.sets(st.sampled_from(scopes), min_size=1)))
    return digests, bindings


def approved(inputs: PlanInputs) -> PlanInputs:
    ids = SequentialIds()
    gates = plan(inputs).approvals_required
    return replace(inputs, approvals=tuple(approval(inputs, g.resource, "sam", ids.ulid()) for g in gates))


def all_done(made: Plan) -> list[NodeResult]:
    return [NodeResult(node.id, NodeOutcome.DONE) for node in made.graph.nodes]


@given(before=folders(), after=folders())
def test_law_the_plan_of_an_applied_state_is_empty(before, after):
    inputs = approved(PlanInputs(desired(*after), state(*before)))
    made = plan(inputs)
    done = settle(made, inputs.desired, inputs.state, all_done(made), **STAMP)
    assert done.converged
    again = plan(PlanInputs(inputs.desired, done.state))
    assert (again.changes, again.graph.nodes, again.approvals_required) == ((), (), ())
    assert done.state.config_digest == inputs.desired.config_digest
    assert set(done.state.approval_records) == {a.approval_id for a in inputs.approvals}


@given(before=folders(), after=folders())
def test_law_the_same_inputs_give_the_same_plan(before, after):
    inputs = PlanInputs(desired(*after), state(*before))
    made = plan(inputs)
    assert plan(inputs) == made
    assert [c.address for c in made.changes] == sorted(c.address for c in made.changes)
    assert {n.id for n in made.graph.nodes} >= {c.address for c in made.changes if c.disposition == "applied"}


@given(before=folders(), after=folders())
def test_law_without_an_approval_nothing_irreversible_is_carried_out(before, after):
    inputs = PlanInputs(desired(*after), state(*before))
    made = plan(inputs)
    done = settle(made, inputs.desired, inputs.state, all_done(made), **STAMP)
    graphs = {t for t in inputs.state.resources if t.startswith(("graph.", "schema."))}
    assert graphs <= set(done.state.resources)
    assert done.consumed == ()


def found(wanted, recorded, trust=None) -> dict[str, str]:
    return {c.address: c.action.value + "!" * c.binding_change for c in diff(wanted, recorded, trust)}


def test_create_update_and_delete_in_address_order():
    wanted = desired({"schema.g": "1", "graph.g": "", "query.g.a": "2", "policy.p": "3"}, {"policy.p": ["cluster"]})
    recorded = state({"schema.g": "9", "graph.g": "", "query.g.b": "2", "policy.p": "3"}, {"policy.p": ["cluster"]})
    changes = diff(wanted, recorded)
    assert [(c.address, c.action.value) for c in changes] == [
        ("graph.g", "update"),
        ("query.g.a", "create"),
        ("query.g.b", "delete"),
        ("schema.g", "update"),
    ]
    by_action = {c.action: c for c in changes}
    assert (by_action[Action.CREATE].before, by_action[Action.CREATE].after) == (None, hexed("2"))
    assert (by_action[Action.DELETE].before, by_action[Action.DELETE].after) == (hexed("2"), None)
    assert (by_action[Action.UPDATE].before, by_action[Action.UPDATE].after) == (hexed("9"), hexed("1"))


def test_order_is_that_of_code_points():
    wanted = desired({"query.g-b.x": "1", "query.g.x": "1", "query.G.x": "1", "query.g_a.x": "1"})
    assert list(found(wanted, LedgerState())) == ["query.G.x", "query.g-b.x", "query.g.x", "query.g_a.x"]


def test_bindings_that_differ_or_are_not_recorded_are_an_update_of_equal_digests():
    wanted = desired({"policy.p": "1", "policy.q": "1", "policy.r": "1"}, _bindings())
    recorded = state({"policy.p": "1", "policy.q": "1", "policy.r": "2"}, {"policy.p": ["graph.g"], "policy.r": []})
    assert found(wanted, recorded) == {"policy.p": "update!", "policy.q": "update!", "policy.r": "update"}
    assert all(c.before == c.after for c in diff(wanted, recorded) if c.binding_change)


def _bindings() -> dict[str, list[str]]:
    return {f"policy.{name}": ["cluster"] for name in "pqr"}


def test_equal_content_is_no_change():
    digests, bound = {"schema.g": "1", "graph.g": "", "policy.p": "3"}, {"policy.p": ["graph.g"]}
    assert diff(desired(digests, bound), state(digests, bound)) == ()


def test_what_nobody_knows_is_compared():
    assert found(desired({}), state({"pipeline.x": "1"})) == {"pipeline.x": "delete"}


def test_keys_and_rules_are_a_change_of_their_own_in_address_order():
    wanted = desired({"schema.g": "1", "policy.z": "1"}, {"policy.z": ["cluster"]})
    assert list(found(wanted, LedgerState(), TrustChange("library", "a", "b"))) == [
        "policy.z",
        "schema.g",
        "trust.library",
    ]
    assert found(wanted, LedgerState(), TrustChange("library", "a", "a")) == {
        "policy.z": "create",
        "schema.g": "create",
    }


def test_impact_is_direct_in_change_order_and_leaves_out_what_nothing_needs():
    wanted = desired(
        {"graph.g": "", "schema.g": "1", "query.g.q": "2", "policy.p": "3"}, {"policy.p": ["cluster", "graph.g"]}
    )
    changes = [change("graph.g", "update"), change("query.g.q", "update"), change("schema.g", "update")]
    assert [(i.resource, i.affected) for i in find_impact(changes, wanted.dependencies)] == [
        ("graph.g", ("policy.p", "query.g.q", "schema.g")),
        ("schema.g", ("query.g.q",)),
    ]


CASES = rows("dispositions.tsv")


def situation(flags: str, of: Change) -> Situation:
    def graph(flag: str) -> frozenset[str]:
        return frozenset({"g"} if flag in flags.split() else ())

    found = Situation(
        pending=graph("P"),
        created=graph("GC"),
        deleted=graph("GD"),
        schema_unsettled=graph("SP"),
        approved=frozenset({Address("graph.g")} if "A" in flags.split() else ()),
        policy_graphs={Address("policy.p"): ("f", "g"), Address("policy.elsewhere"): ("f",)},
    )
    gated = rules_of(of.address).gate(of, found) is not None
    return replace(found, gated=frozenset({of.address} if gated else ()))


def ruling(ruled: Change) -> str:
    return ruled.disposition.value + (f":{ruled.reason.value}" if ruled.reason else "")


@pytest.mark.parametrize(("row", "flags", "address", "action", "wanted"), CASES, ids=[" ".join(c[:4]) for c in CASES])
def test_disposition(row, flags, address, action, wanted):
    asked = change(address, action)
    (ruled,) = classify([asked], situation(flags, asked))
    assert ruling(ruled) == wanted
    assert (ruled.address, ruled.action) == (change(address, action).address, Action(action))


def test_every_row_of_the_table_has_a_case():
    assert {int(case[0]) for case in CASES} == set(range(1, 26))


def test_survey_sees_creates_deletes_and_unsettled_schemas():
    changes = [
        change("graph.made", "create"),
        change("schema.made", "create"),
        change("graph.gone", "delete"),
        change("schema.gone", "delete"),
        change("schema.alone", "create"),
        change("schema.lost", "delete"),
        change("schema.moved", "update"),
    ]
    seen = survey(changes, (), {"x"})
    assert seen.created == {"made"}
    assert seen.deleted == {"gone"}
    assert seen.schema_unsettled == {"alone", "gone", "lost"}
    assert seen.pending == {"x"}
    assert seen.approved == frozenset()


def test_survey_takes_the_graphs_of_a_policy_from_its_declared_bindings():
    wanted = desired({"graph.f": "1", "graph.g": "2", "policy.p": "3"}, {"policy.p": ["cluster", "graph.f", "graph.g"]})
    assert survey([], wanted.dependencies, ()).policy_graphs == {"policy.p": ("f", "g")}


IMPACT_CASES = read_yaml(DATA / "impact.yaml")
PERSON = "node Person { handle: String @key  age: I32? }"
WIDER = "node Person { handle: String @key  age: I32?  nick: String? }"
AGES = {"ages.gq": "query ages() { match { $p: Person } return { $p.age } }"}


def sides(case):
    before, after = case["before"], {**case["before"], **case["after"]}
    return [graph_desired(side["schema"], side["queries"]) for side in (before, after)]


def how(touch) -> str:
    use = " and ".join(word for word, is_so in (("reads", touch.reads), ("writes", touch.writes)) if is_so)
    return f"{use}, {touch.change}"


@pytest.mark.parametrize("case", IMPACT_CASES, ids=lambda case: case["name"])
def test_who_uses_what_a_step_touches(case):
    plan = planned(*sides(case))
    steps = plan.change(Address("schema.g")).migration.steps
    found = [
        [step["kind"], {t.query.removeprefix("query.g."): how(t) for t in queries}]
        for step, queries in zip(steps, impact_of(plan).queries, strict=True)
    ]
    assert found == case["touches"]


@pytest.mark.parametrize("case", IMPACT_CASES, ids=lambda case: case["name"])
def test_which_results_change(case):
    found = {
        each.query.removeprefix("query.g."): [
            *(f"-{c}" for c in each.before if c not in each.after),
            *(f"+{c}" for c in each.after if c not in each.before),
        ]
        for each in impact_of(planned(*sides(case))).results
    }
    assert found == case.get("results", {})


@pytest.mark.parametrize("case", IMPACT_CASES, ids=lambda case: case["name"])
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
        found = impact_of(planned(graph_desired(PERSON, AGES, bound), graph_desired(WIDER, AGES, bound)))
        assert found.policies == named


def test_without_the_recorded_text_of_a_query_the_declared_one_still_speaks():
    before, after = graph_desired(WIDER, AGES), graph_desired(PERSON.replace("age", "years"), {})
    plan = planned(before, after)
    recorded = {"schema.g": RecordedGraph(before.graphs["g"].schema)}
    (found,) = schema_impact(plan.changes, after, recorded)
    assert all(queries == () for queries in found.queries)


@pytest.mark.parametrize(
    "content", [b"query ages(", b"query other() { match { $p: Person } return { $p } }", b"\xff", b""]
)
def test_a_recorded_text_that_cannot_be_checked_is_left_out(content):
    before, after = graph_desired(WIDER, AGES), graph_desired(WIDER, {"ages.gq": AGES["ages.gq"] + "\n"})
    plan = planned(before, graph_desired(PERSON, {"ages.gq": AGES["ages.gq"] + "\n"}))
    recorded = {"schema.g": RecordedGraph(before.graphs["g"].schema, {Address("query.g.ages"): content})}
    (found,) = schema_impact(plan.changes, after, recorded)
    assert found.queries == ((),)


def test_a_query_whose_text_stays_while_its_file_changes_is_unchanged():
    edited = {"ages.gq": "// an old favourite\n" + AGES["ages.gq"]}
    plan = planned(
        graph_desired("node Person { handle: String @key  age: I32? }", AGES), graph_desired(_indexed(), edited)
    )
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
    plan = planned(graph_desired(WIDER, queries), graph_desired(PERSON.replace("age: I32?", "age: I32? @index"), {}))
    dropped, indexed = views(plan)["schema.g"].steps
    assert dropped.used.startswith("used by query.g.q00 (reads, removed here), query.g.q01 ")
    assert dropped.used.endswith("query.g.q19 (reads, removed here) and 3 more")
    assert indexed.used == ""
    plan = planned(graph_desired(WIDER, AGES), graph_desired(_indexed(), AGES))
    view = views(plan)["schema.g"]
    assert sorted(step.used for step in view.steps) == ["used by 1 query", "used by no stored query"]
    assert view.results == ()


def test_in_words_a_result_that_only_changes_its_order():
    before = {"q.gq": "query q() { match { $p: Person } return { $p.age, $p.nick } }"}
    after = {"q.gq": "query q() { match { $p: Person } return { $p.nick, $p.age } }"}
    indexed = WIDER.replace("age: I32?", "age: I32? @index")
    (result,) = views(planned(graph_desired(WIDER, before), graph_desired(indexed, after)))["schema.g"].results
    assert result_line(result) == "result of query.g.q has its columns in a different order"


def test_nothing_is_computed_without_a_schema_update():
    before = graph_desired(PERSON, AGES)
    changes: tuple[Change, ...] = ()
    assert schema_impact(changes, before, {}) == ()
    assert schema_impact(changes, before, {Address("schema.g"): RecordedGraph(before.graphs["g"].schema)}) == ()


SINGLE, SLEEPY = (
    strategy_address("single", StrategyType.TARGET_SIZE),
    strategy_address("other", StrategyType.IDLE_SUSPEND),
)
LOSSY = {GateName.IRREVERSIBLE.value: 1, GateName.LOSSY.value: 1}


def wanted(size: str = "50cc", *, drop_first: bool = True) -> DesiredState:
    """Strategies of two compute clusters."""
    target = ComputeTarget("prod", "MZ_URL")
    rules = TargetSize(size, drop_first=drop_first), IdleSuspend(900)
    found = strategy_resources(
        ComputeRules(key, target, key, (rule,)) for key, rule in zip(("single", "other"), rules, strict=True)
    )
    return DesiredState("c" * 64, found, (), {})


def planned_strategies(
    desired: DesiredState, *, gates: dict[str, int] | None = None, approved: bool = False, **given: object
) -> Plan:
    quorum = Quorum(numbers=LOSSY if gates is None else gates)
    inputs = PlanInputs(desired=desired, state=LedgerState(revision=1), quorum=quorum)
    inputs = replace(inputs, **given)  # type: ignore[arg-type]
    plan = make_plan(inputs)
    if not approved:
        return plan
    change = plan.change(SINGLE)
    assert change is not None
    by = Approval(
        "A", SINGLE, change.action, "why", "c" * 64, change.before, change.after, "ada", "2026-06-11T07:00:00Z"
    )
    return make_plan(replace(inputs, approvals=(by,)))


def rulings(plan: Plan) -> dict[Address, tuple[Disposition, Reason | None]]:
    return {
        each.address: (each.disposition, each.reason) for each in plan.changes if each.address.kind is Kind.STRATEGY
    }


def test_it_waits_for_an_approval_and_the_other_strategies_with_it() -> None:
    plan = planned_strategies(wanted())
    assert rulings(plan) == {
        SINGLE: (Disposition.BLOCKED, Reason.APPROVAL_REQUIRED),
        SLEEPY: (Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED),
    }
    [need] = plan.approvals_required
    assert (need.resource, need.reason) == (
        SINGLE,
        "it drops the replica of a compute cluster before the new one is created",
    )
    change = plan.change(SINGLE)
    assert change is not None
    assert (change.tier, change.gates) == (Tier.REVERSIBLE, (GateName.LOSSY,))
    assert {each for each, _ in rulings(planned_strategies(wanted(), approved=True)).values()} == {Disposition.APPLIED}


@pytest.mark.parametrize(
    ("desired", "gates"),
    [(wanted(drop_first=False), LOSSY), (wanted(), {GateName.IRREVERSIBLE.value: 1})],
    ids=["no gap", "rules without lossy"],
)
def test_without_a_gap_or_a_rule_it_needs_none(desired: DesiredState, gates: dict[str, int]) -> None:
    plan = planned_strategies(desired, gates=gates)
    assert plan.approvals_required == ()
    assert {each for each, _ in rulings(plan).values()} == {Disposition.APPLIED}


def test_a_strategy_that_goes_makes_no_gap() -> None:
    resources = {name: AppliedResource(each.digest) for name, each in wanted().resources.items()}
    plan = planned_strategies(DesiredState("c" * 64, {}, (), {}), state=LedgerState(revision=1, resources=resources))
    assert {each for each, _ in rulings(plan).values()} == {Disposition.APPLIED}


NONE = frozenset[str]()
QUERY, POLICY = Address("query.notes.titles"), Address("policy.readers")
CALM = Situation(NONE, NONE, NONE, NONE, frozenset(), {POLICY: ("notes",)})
CREATED = replace(CALM, created=frozenset({"notes"}), gated=frozenset({graph_address("notes")}))
MIGRATED = replace(CALM, gated=frozenset({schema_address("notes")}))
WAITS = (Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED)
APPLIED = (Disposition.APPLIED, None)


@pytest.mark.parametrize("situation", [CREATED, MIGRATED], ids=["creation", "migration"])
def test_a_query_waits_with_its_graph_and_goes_with_it(situation: Situation) -> None:
    change = Change(QUERY, Action.CREATE, None, "a" * 64)
    assert rules_of(QUERY).classify(change, situation) == WAITS
    assert rules_of(QUERY).classify(change, replace(situation, approved=situation.gated)) == APPLIED
    assert rules_of(QUERY).classify(change, CALM) == APPLIED


def test_a_policy_waits_for_the_creation_of_a_graph_and_not_for_its_migration() -> None:
    change = Change(POLICY, Action.UPDATE, "a" * 64, "b" * 64)
    assert rules_of(POLICY).classify(change, CREATED) == WAITS
    assert rules_of(POLICY).classify(change, MIGRATED) == APPLIED
    removed = Change(POLICY, Action.DELETE, "a" * 64, None)
    assert rules_of(POLICY).classify(removed, CREATED) == APPLIED


@pytest.mark.parametrize("action", [Action.UPDATE, Action.DELETE])
@pytest.mark.parametrize("guarded", [("notes", "people"), None], ids=["bound", "bindings unknown"])
def test_a_policy_guards_a_graph_whose_delete_waits(action: Action, guarded: tuple[str, ...] | None) -> None:
    """Whatever takes the policy away from the graph waits until the graph is gone."""
    change = Change(POLICY, action, "a" * 64, None if action is Action.DELETE else "b" * 64)
    gone = replace(CALM, policy_graphs={}, deleted=frozenset({"notes"}), guarded={POLICY: guarded})
    approved = replace(gone, approved=frozenset({graph_address("notes")}))
    assert rules_of(POLICY).classify(change, gone) == WAITS
    assert rules_of(POLICY).classify(change, approved) == APPLIED
    assert rules_of(POLICY).classify(change, replace(approved, pending=frozenset({"notes"}))) == WAITS
    assert rules_of(POLICY).classify(change, replace(gone, guarded={POLICY: ("people",)})) == APPLIED
