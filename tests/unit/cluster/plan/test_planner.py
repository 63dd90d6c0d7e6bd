"""The planner: gates, quorum, previews, and a digest that only the plan itself can move."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.apply.settle import settle
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, GateName
from gitops.cluster.model.ledger import LedgerState, Status, StatusRecord
from gitops.cluster.model.plan import NodeOutcome, NodeResult, Plan, PlanInputs, TrustChange
from gitops.cluster.model.trust import Quorum
from gitops.cluster.plan.planner import diff, make_plan, recorded_dependencies
from gitops.database.graph.port import MigrationPreview
from tests.support.ids import SequentialIds
from tests.support.planning import SEEN, desired, hexed, state

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
