"""A migration of a graph in a process of its own, which dies at a moment.

python -m tests.fault.conversion_kill DEATH     see `Order`; prints the moments that it went through if it lives

The moments are the fault points of the engine, and those before and after each version that the migration makes of a table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gitops.database.graph.embedding import HashEmbedder
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.tables import TableWriter
from tests.support.clock import FixedClock
from tests.support.faults import DieAt
from tests.support.ids import SequentialIds

CLOCK = FixedClock(datetime(2026, 1, 1, tzinfo=UTC))
_IDS = 1_000_000


@dataclass(frozen=True)
class Order:
    """The graph, its desired schema, and the moment of death, which is the n-th of its name."""

    uri: str
    schema: str
    moment: str = ""
    visit: int = 1


def perform(order: Order) -> None:
    """Carry out the migration."""
    faults = DieAt(order.moment, order.visit)
    change: Callable[[TableWriter, Callable[[Any], Any]], None] = TableWriter.change

    def noticed(writer: TableWriter, action: Callable[[Any], Any]) -> None:
        faults.reach("before a table version")
        change(writer, action)
        faults.reach("after a table version")

    TableWriter.change = noticed  # type: ignore[method-assign] # for this process only
    engine = LanceEngine(CLOCK, SequentialIds(_IDS), faults, embedder=HashEmbedder)
    engine.prepare_migration(order.uri, order.schema.encode(), actor=None).publish()
    sys.stdout.write(json.dumps(faults.reached))


if __name__ == "__main__":
    perform(Order(**json.loads(sys.argv[1])))
