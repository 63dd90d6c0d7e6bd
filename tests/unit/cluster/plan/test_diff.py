"""Recorded against desired."""

from __future__ import annotations

from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import TrustChange
from gitops.cluster.plan.planner import diff, find_impact
from tests.support.planning import change, desired, hexed, state


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
