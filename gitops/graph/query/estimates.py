"""Guesses of how many rows pass: they choose among plans of equal results and are shown beside what really came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gitops.graph.query.conditions import Condition
from gitops.language.query import ComparisonOperator

__all__ = ["Statistics", "selectivity"]

_SHARES: Mapping[ComparisonOperator, float] = {
    ComparisonOperator.EQ: 0.01,
    ComparisonOperator.NE: 0.9,
    ComparisonOperator.CONTAINS: 0.2,
    ComparisonOperator.STARTS_WITH: 0.1,
}
_RANGE = 0.3


@dataclass(frozen=True, slots=True)
class Statistics:
    """What planning knows of a snapshot: the rows of a table by its key, 0 for an absent table.

    `reversible` says that a hop of several steps may be walked from its other end, which `self_loops` forbids: a node's own
    edge counts at the far end only.
    """

    rows: Callable[[str], int]
    reversible: bool


def selectivity(conditions: Iterable[Condition]) -> float:
    """The part of rows that passes all conditions."""
    found = 1.0
    for condition in conditions:
        found *= _SHARES.get(condition.sign, _RANGE)
    return found
