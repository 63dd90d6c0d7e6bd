"""Dispositions: what apply will do with each change, by the rules of its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gitops.model.address import Address, Kind
from gitops.model.change import Action, Change
from gitops.model.kind import Kinds, Situation, rules_for
from gitops.model.resource import Dependency


def survey(changes: Sequence[Change], edges: Iterable[Dependency], pending: Iterable[str]) -> Situation:
    """What is going on in this set of changes, with no approval counted yet; `edges` has those of all desired policies."""
    graphs = {c.address.name: c.action for c in changes if c.address.kind is Kind.GRAPH}
    created = frozenset(g for g, action in graphs.items() if action is Action.CREATE)
    unsettled = frozenset(
        c.address.name
        for c in changes
        if c.address.kind is Kind.SCHEMA
        and (c.action is Action.DELETE or (c.action is Action.CREATE and c.address.name not in created))
    )
    bound: dict[Address, tuple[str, ...]] = {}
    for source, target in edges:
        if source.kind is Kind.POLICY and target.kind is Kind.GRAPH:
            bound[source] = (*bound.get(source, ()), target.name)
    return Situation(
        pending=frozenset(pending),
        created=created,
        deleted=frozenset(g for g, action in graphs.items() if action is Action.DELETE),
        schema_unsettled=unsettled,
        approved=frozenset(),
        policy_graphs=bound,
    )


def classify(changes: Sequence[Change], situation: Situation, kinds: Kinds) -> tuple[Change, ...]:
    """The changes with disposition and reason."""
    ruled = []
    for change in changes:
        disposition, reason = rules_for(kinds, change.address).classify(change, situation)
        ruled.append(replace(change, disposition=disposition, reason=reason))
    return tuple(ruled)
