"""Kill the publisher of a bulk load, and its workers: the graph has all parts or none, and the next call converges."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gitops.database.graph.bulk import BulkPart, BulkPlan, BulkTask, plan_bulk, publish_bulk, write_part
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.verify import verify_graph
from tests.fault.test_engine_kill import DyingAt
from tests.support.histories import History, person

POINTS = ("before_tables", "staged", "before_publish", "after_publish")


def die_publishing(uri: str, point: str, plan: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    """What the child does."""
    work = History(uri, b"", start=100_000).work(DyingAt(f"engine.load.{point}"))
    publish_bulk(BulkPlan.from_json(plan), [BulkPart.from_json(each) for each in parts], work)


def die_writing(task: dict[str, Any]) -> None:
    """Write a part, and never say so."""
    table = pa.table({"name": ["zoe"]})
    write_part(BulkTask.from_json(task), table, History("/nowhere", b"", start=200_000).ids)
    signal.raise_signal(signal.SIGKILL)


def killed(target: Callable[..., None], *arguments: Any) -> None:
    child = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("point", POINTS)
def test_a_publisher_that_dies_leaves_all_or_nothing_and_may_be_called_again(tmp_path: Path, point: str) -> None:
    history = History(str(tmp_path / "g.omni"))
    history.people("main", ann=1)
    plan = plan_bulk(history.uri, history.work())
    killed(die_writing, plan.task("node:Person").to_json())
    parts = [
        write_part(plan.task("node:Person"), pa.table({"name": ["bob"], "age": [2]}), history.ids),
        write_part(plan.task("edge:Knows"), pa.table({"from": ["bob"], "to": ["ann"]}), history.ids),
    ]
    killed(die_publishing, history.uri, point, plan.to_json(), [part.to_json() for part in parts])
    assert len(history.rows("node:Person")) == 1 + len(history.rows("edge:Knows"))
    assert verify_graph(history.uri, deep=True).ok
    again = publish_bulk(plan, parts, history.work())
    assert (again.manifest_version, dict(again.rows)) == (3, {"node:Person": 1, "edge:Knows": 1})
    assert history.at().manifest.n == 3
    collect_garbage(history.uri, history.work(), Retention(1, timedelta(0), timedelta(0)))
    assert history.rows("node:Person") == [person("ann", 1), person("bob", 2)]
    assert len(history.rows("edge:Knows")) == 1
    assert verify_graph(history.uri, deep=True).ok
