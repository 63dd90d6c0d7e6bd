"""A change has no author where no commit made it: as narrow as the ledger records it."""

from __future__ import annotations

import pytest

from gitops.cluster.approvals.origins import made_by_no_commit
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change

OLD, NEW = "a" * 64, "b" * 64
GRAPH = Address("graph.legacy")
AGAIN = Change(GRAPH, Action.CREATE, OLD, OLD)


def test_a_vanished_graph_that_is_created_as_it_was_has_no_author() -> None:
    assert made_by_no_commit(AGAIN)
    assert made_by_no_commit(AGAIN, {GRAPH})


def test_an_entry_that_only_claims_that_the_graph_vanished_does_not_change_who_the_authors_are() -> None:
    assert not made_by_no_commit(AGAIN, ())
    assert not made_by_no_commit(AGAIN, {Address("graph.notes")})


@pytest.mark.parametrize(
    "change",
    [
        Change(GRAPH, Action.CREATE, OLD, NEW),
        Change(GRAPH, Action.CREATE, None, NEW),
        Change(GRAPH, Action.UPDATE, OLD, NEW),
        Change(GRAPH, Action.DELETE, OLD, None),
        Change(Address("cluster.brain"), Action.CREATE, OLD, OLD),
    ],
    ids=lambda change: f"{change.action} {change.address}",
)
def test_every_other_change_has_authors(change: Change) -> None:
    assert not made_by_no_commit(change, {GRAPH})
