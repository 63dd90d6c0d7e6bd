"""What a query costs that is twice as large, in each dimension, up to its limit: CPU time against that of half the size.

The ratio is 2 where all of the cost grows with the size, less where a part of it is always there, and 1 where size costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.snapshot import open_snapshot
from tests.bench.measure import Effort, Figure
from tests.support.query_dimensions import DIMENSIONS
from tests.support.query_graphs import ask, towns

_GOAL = 2.5
# A ring that any hop walks around in full.
_NODES = 50
_SIZES = (8, 4, 2, 1)
_NS_PER_MS = 1e6


def figures(effort: Effort) -> Iterator[Figure]:
    """Each dimension at its limit: CPU of one query, parsed, checked and run, and the ratios of the doublings up to there."""
    root = str(effort.folder("limits") / "g.omni")
    snapshot = open_snapshot(towns(root, _NODES, [(n, (n + 1) % _NODES) for n in range(_NODES)]))
    cache = ReadCache()

    def cpu(text: str) -> float:
        start = time.process_time_ns()
        ask(snapshot, text, cache=cache)
        return (time.process_time_ns() - start) / _NS_PER_MS

    for name, dimension in DIMENSIONS.items():
        texts = [dimension.text(dimension.most // part) for part in _SIZES]
        cpu(texts[-1])
        # Sizes take turns: no machine is as fast at all times.
        rounds = [[cpu(text) for text in texts] for _ in range(effort.samples)]
        least = [min(taken) for taken in zip(*rounds, strict=True)]
        ratios = tuple(after / before for before, after in pairwise(least))
        yield Figure(f"{name}: {dimension.most} of them", "ms CPU", tuple(taken[-1] for taken in rounds))
        yield Figure(f"{name}: the three doublings up to {dimension.most}", "ratio", ratios, _GOAL)
