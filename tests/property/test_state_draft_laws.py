"""An edited state is what the rules say of the whole, whatever the order of the edits and however many graphs there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.address import Address, graph_address, query_address, schema_address
from gitops.cluster.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.cluster.model.resource import graph_composite
from gitops.cluster.plan.draft import StateDraft

GRAPHS = ("g", "g_a", "h")
NAMES = ("a", "b", "g")
ADDRESSES = (
    *(make(graph) for make in (graph_address, schema_address) for graph in GRAPHS),
    *(query_address(graph, name) for graph in GRAPHS for name in NAMES),
    Address("policy.g"),
    Address("pipeline.g"),
    Address("query."),
)
DIGESTS = st.sampled_from("123")
STATES = st.builds(
    lambda resources, statuses: LedgerState(
        revision=3,
        resources={t: AppliedResource(d * 64) for t, d in resources.items()},
        statuses={t: StatusRecord(Status.APPLIED) for t in statuses},
        observations={Address("graph.old"): {"kind": "tombstone"}},
    ),
    st.dictionaries(st.sampled_from(ADDRESSES), DIGESTS),
    st.sets(st.sampled_from(ADDRESSES)),
)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(ADDRESSES), DIGESTS),
        st.tuples(st.just("drop"), st.sampled_from(ADDRESSES), st.none()),
        st.tuples(st.just("mark"), st.sampled_from(ADDRESSES), st.booleans()),
        st.tuples(st.just("renew"), st.sampled_from(GRAPHS), st.booleans()),
        st.tuples(st.just("remove"), st.sampled_from(GRAPHS), st.none()),
    ),
    max_size=12,
)


def owned(text: str, graph: str) -> bool:
    return text in (f"graph.{graph}", f"schema.{graph}") or text.startswith(f"query.{graph}.")


def composite(resources: dict[str, AppliedResource], graph: str) -> AppliedResource:
    """By the definition, from everything that is recorded."""
    prefix = f"query.{graph}."
    schema = resources.get(f"schema.{graph}")
    queries = {text[len(prefix) :]: r.digest for text, r in resources.items() if text.startswith(prefix)}
    return AppliedResource(graph_composite(graph, "" if schema is None else schema.digest, queries))


@given(STATES, EDITS)
def test_a_draft_is_the_same_as_edits_of_the_whole(state, edits):
    draft = StateDraft(state)
    resources, statuses, observations = dict(state.resources), dict(state.statuses), dict(state.observations)
    for what, where, how in edits:
        if what == "put":
            draft.put(where, AppliedResource(how * 64))
            resources[where] = AppliedResource(how * 64)
        elif what == "drop":
            draft.drop(where)
            resources.pop(where, None)
        elif what == "mark":
            record = StatusRecord(Status.BLOCKED) if how else None
            draft.mark(where, record)
            statuses = {t: s for t, s in statuses.items() if t != where} | ({where: record} if record else {})
        elif what == "renew":
            draft.renew(where, create=how)
            if how or f"graph.{where}" in resources:
                resources[f"graph.{where}"] = composite(resources, where)
        else:
            draft.remove_graph(where, at="now", approval_id=None, actor="ann")
            resources = {t: r for t, r in resources.items() if not owned(t, where)}
            statuses = {t: s for t, s in statuses.items() if not owned(t, where)}
            observations[f"graph.{where}"] = {
                "kind": "tombstone",
                "deleted_at": "now",
                "approval_id": None,
                "actor": "ann",
            }
        assert dict(draft.resources) == resources
    found = draft.state()
    assert (dict(found.resources), dict(found.statuses)) == (resources, statuses)
    assert (dict(found.observations), found.revision) == (observations, state.revision)


@given(STATES, EDITS)
def test_the_state_that_a_draft_starts_with_is_never_edited(state, edits):
    before = (dict(state.resources), dict(state.statuses), dict(state.observations))
    draft = StateDraft(state)
    for what, where, how in edits:
        if what == "put":
            draft.put(where, AppliedResource(how * 64))
        elif what == "remove":
            draft.remove_graph(where, at="now", approval_id=None, actor=None)
        else:
            draft.mark(where, None)
    draft.use_approvals(["a"], {"consumed_at": "now"})
    draft.record_recovery("o", {"outcome": "rolled_forward"})
    assert (dict(state.resources), dict(state.statuses), dict(state.observations)) == before
    assert (dict(state.approval_records), dict(state.recovery_records)) == ({}, {})
