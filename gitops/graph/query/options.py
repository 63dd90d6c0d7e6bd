"""What a caller decides about one run of a query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from gitops.graph.search.embedding import Embedder

__all__ = ["QueryOptions", "Strategy"]


class Strategy(StrEnum):
    """How hops find the neighbours of nodes; the rows of a result never depend on it.

    `INDEX` asks the edge table for the edges of the nodes at hand, `SCAN` reads all edges per step, `CSR` works on an
    adjacency in memory, which is built once per version; `AUTO` takes the cheapest for each hop.
    """

    AUTO = "auto"
    INDEX = "index"
    CSR = "csr"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """`now` is what `now()` gives, to the millisecond. A limit that is None does not limit.

    `timeout_s` is checked between operators and between batches. `memory_bytes` bounds what the query itself holds: rows
    in flight, columns read, and an adjacency that it builds. `self_loops` lets a hop return to its start over an edge from
    a node to itself. `approximate` allows `nearest` to use an index, which may miss rows that are near.
    `cache_dir` is where adjacencies are kept between processes; None keeps none.
    """

    now: datetime
    timeout_s: float | None = None
    memory_bytes: int | None = None
    strategy: Strategy = Strategy.AUTO
    self_loops: bool = False
    explain: bool = False
    embedder: Embedder | None = None
    cache_dir: Path | None = None
    approximate: bool = False
