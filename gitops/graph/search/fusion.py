"""Reciprocal rank fusion of two rankings.

Source: Cormack, Clarke, Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning methods",
SIGIR 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FUSION_K", "fuse"]

FUSION_K = 60


def fuse(first: Sequence[int], second: Sequence[int], k: int = FUSION_K) -> list[tuple[int, float]]:
    """Row ids with their scores, best first: of each ranking, place r from 0 gives 1 / (k + r + 1).

    Each ranking lists distinct row ids, best first. Equal scores keep the order in which the ids are first seen, the first
    ranking before the second. `k` is at least 1.
    """
    scores: dict[int, float] = {}
    for ranking in (first, second):
        for place, row in enumerate(ranking):
            scores[row] = scores.get(row, 0.0) + 1.0 / (k + place + 1)
    return sorted(scores.items(), key=lambda each: -each[1])
