"""Workers of bulk loads in processes of their own, started afresh as those of a cluster are."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pyarrow as pa

from gitops.database.graph.bulk import BulkPart, BulkTask, write_part
from gitops.repository.wiring.system import RandomIds

__all__ = ["spread", "town_part"]


def town_part(task: dict[str, Any], first: int, count: int) -> str:
    """What a worker does: its task, its rows and its answer are JSON."""
    numbers = range(first, first + count)
    columns: dict[str, Any]
    if task["key"] == "node:Person":
        columns = {"name": [f"p{n:06}" for n in numbers], "age": pa.array([n % 100 for n in numbers], pa.int16())}
    else:
        columns = {
            "from": [f"p{n:06}" for n in numbers],
            "to": [f"p{(n * 7) % first:06}" for n in numbers] if first else [],
        }
        columns = {name: cells or [f"p{n:06}" for n in numbers] for name, cells in columns.items()}
    return json.dumps(write_part(BulkTask.from_json(task), pa.table(columns), RandomIds()).to_json())


def spread(work: Sequence[tuple[dict[str, Any], int, int]], workers: int) -> list[BulkPart]:
    """Let processes write parts."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        answers = [pool.submit(town_part, *each) for each in work]
        return [BulkPart.from_json(json.loads(answer.result())) for answer in answers]
