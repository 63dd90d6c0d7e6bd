"""Loads whose rows are written by many processes, on one machine or many, and published by one.

1. `plan_bulk` reserves: it names the version that workers start from, and keeps gc away from what they write.
2. `write_part` runs anywhere: it turns Arrow batches into data files of one table. It touches no manifest and no version.
3. `publish_bulk` checks all parts together and makes one version of the graph, as a load does. `discard_bulk` gives up.
"""

from __future__ import annotations

from gitops.database.graph.bulk.plan import BulkPart, BulkPlan, BulkTask, plan_bulk
from gitops.database.graph.bulk.publish import discard_bulk, publish_bulk
from gitops.database.graph.bulk.worker import input_columns, write_part

__all__ = [
    "BulkPart",
    "BulkPlan",
    "BulkTask",
    "discard_bulk",
    "input_columns",
    "plan_bulk",
    "publish_bulk",
    "write_part",
]
