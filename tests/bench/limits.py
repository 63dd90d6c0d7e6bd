"""What a query costs that is twice as large, in each dimension, up to its limit: CPU time against that of half the size.

The ratio is 2 where all of the cost grows with the size, less where a part of it is always there, and 1 where size costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from gitops.database.graph.query import ReadCache
from gitops.database.graph.snapshot import open_snapshot
from tests.bench.measure import Effort, Figure
from tests.support.query_dimensions import DIMENSIONS
from tests.support.query_graphs import ask, towns

_GOAL = 2.5
_NODES = 200
_NS_PER_MS = 1e6


def figures(effort: Effort) -> Iterator[Figure]:
    """Each dimension at its limit: CPU of one query, parsed, checked and run, and that against half of it."""
    root = str(effort.folder("limits") / "g.omni")
    snapshot = open_snapshot(towns(root, _NODES, [(n, (n + 1) % _NODES) for n in range(_NODES)]))
    cache = ReadCache()

    def cpu(text: str) -> float:
        start = time.process_time_ns()
        ask(snapshot, text, cache=cache)
        return (time.process_time_ns() - start) / _NS_PER_MS

    for name, dimension in DIMENSIONS.items():
        most = dimension.most
        cpu(dimension.text(most))
        half = min(cpu(dimension.text(most // 2)) for _ in range(effort.samples))
        whole = [cpu(dimension.text(most)) for _ in range(effort.samples)]
        yield Figure(f"{name}: {most} of them", "ms CPU", tuple(whole))
        yield Figure(f"{name}: {most} against {most // 2}", "ratio", (min(whole) / half,), _GOAL)
