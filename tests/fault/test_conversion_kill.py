"""A migration of rows dies at every moment, on a disk and on object stores: the rows are those before or after, and the next one
succeeds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gitops.database.graph.history.gc import Retention, collect_garbage
from tests.fault.conversion_kill import Order
from tests.integration.database.graph.test_migration_stories import STORIES, Graph
from tests.support.faults import visits
from tests.support.pages import ROOT
from tests.support.prefork import PYTHON, run
from tests.support.real_service import GOFAKES3, RealService

MIGRATIONS = [story for story in STORIES if "rows" in story]
SAMPLE = "the same texts, and what does not convert becomes null or another value"
PUBLISHED = "engine.migrate.after_publish"


@pytest.fixture
def roots(request: pytest.FixtureRequest) -> Iterator[str]:
    """Addresses of graphs, each used once."""
    if isinstance(request.param, RealService):
        root = request.getfixturevalue("real_root")(request.param)
    else:
        root = request.getfixturevalue("s3").root if request.param == "s3" else str(request.getfixturevalue("tmp_path"))
    return (f"{root}/graphs/g{number}.omni" for number in count(1))


def _migrate(order: Order) -> subprocess.CompletedProcess[str]:
    command = [*PYTHON, "-m", "tests.fault.conversion_kill", json.dumps(asdict(order))]
    return run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout_s=120)


def die_everywhere(roots: Iterator[str], story: dict[str, Any], chosen: Callable[[str, int], bool]) -> int:
    """Let the migration of a story die at the chosen moments; returns how many there were."""
    living = Graph(next(roots), story["before"], *story["records"])
    done = _migrate(Order(living.uri, story["after"]))
    assert done.returncode == 0, done.stderr
    assert living.contents() == story["rows"]
    moments = [each for each in visits(json.loads(done.stdout)) if chosen(*each)]
    for moment, visit in moments:
        graph = Graph(next(roots), story["before"], *story["records"])
        start = graph.contents()
        died = _migrate(Order(graph.uri, story["after"], moment, visit))
        assert died.returncode == -signal.SIGKILL, died.stderr
        landed = moment == PUBLISHED
        assert graph.contents() == (story["rows"] if landed else start), (moment, visit)
        graph.migrate(story["after"])
        assert graph.contents() == story["rows"], (moment, visit)
        assert graph.contents(version=2) == start
        collect_garbage(graph.uri, graph.work(), Retention())
        assert graph.is_sound()
        assert graph.contents(version=2) == start
        if not graph.uri.startswith("s3:"):
            shutil.rmtree(Path(graph.uri))
    return len(moments)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("roots", ["folder", "s3", GOFAKES3], indirect=True, ids=str)
@pytest.mark.parametrize("story", MIGRATIONS, ids=lambda story: story["name"])
def test_a_migration_dies_at_every_moment(roots: Iterator[str], story: dict[str, Any]) -> None:
    assert die_everywhere(roots, story, lambda moment, visit: True) >= len(
        ("after_tables", "staged", "before_publish", "after_publish")
    )


@pytest.mark.parametrize("roots", ["folder"], indirect=True)
def test_a_conversion_dies_at_each_kind_of_moment(roots: Iterator[str]) -> None:
    story = next(story for story in MIGRATIONS if story["name"] == SAMPLE)
    assert die_everywhere(roots, story, lambda moment, visit: visit == 1) == 6
