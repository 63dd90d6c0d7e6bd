"""What keeps two merges from being prepared at the same time."""

from __future__ import annotations

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.plan.beside import Footprint

SCHEMA, QUERY, GRAPH = Address("schema.a"), Address("query.b.q"), Address("graph.a")
CASES = {
    "nothing": (Footprint(frozenset({SCHEMA})), Footprint(frozenset({QUERY})), None),
    "a change": (Footprint(frozenset({SCHEMA, QUERY})), Footprint(frozenset({QUERY})), QUERY),
    "a need": (Footprint(frozenset({SCHEMA})), Footprint(frozenset({QUERY}), needs=frozenset({SCHEMA})), SCHEMA),
    "a lock": (Footprint(locks=frozenset({"graph:a"})), Footprint(locks=frozenset({"graph:a", "graph:b"})), "graph:a"),
    "an unchanged need": (Footprint(needs=frozenset({GRAPH})), Footprint(needs=frozenset({GRAPH})), None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_a_need_or_a_lock_is_shared_in_both_directions(case: str) -> None:
    one, other, shared = CASES[case]
    assert (one.shared(other), other.shared(one)) == (shared, shared)
