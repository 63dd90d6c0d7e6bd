"""What needs a graph waits while the graph waits for an approval: to be created again, or to be migrated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.model.address import Address, graph_address, schema_address
from gitops.cluster.model.change import Action, Change, Disposition, Reason
from gitops.cluster.model.kinds import Situation, rules_of

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
