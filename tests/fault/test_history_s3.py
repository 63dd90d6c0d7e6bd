"""Merge, gc, optimize and branches on an object store that refuses everything from one write on, or loses an answer.

One write of a deed after the other is the one that it dies at. Then the service is well again: the graph shows the image before
or after the deed, and the next run converges.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from itertools import count

import pytest

from gitops.core.errors import GitopsError
from gitops.core.faults import NoFaults
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import collect_garbage
from gitops.database.graph.history.verify import verify_graph
from tests.fault.test_engine_kill import Cut
from tests.fault.test_history_kill import DEEDS, SHARP, images, later
from tests.support.histories import History, person
from tests.support.s3 import S3Place


def prepare(uri: str) -> History:
    """Two branches with a change each, and old versions to free."""
    history = History(uri, b"node Person { name: String @key  age: I32?  mail: String? }\n")
    for age in range(3):
        history.people("main", a=age, b=age)
    create_branch(uri, "dev", history.work())
    history.put("dev", {"node:Person": [person("d", 1)]}, {"node:Person": ["b"]})
    history.people("main", a=9)
    return history


STRIDES = {"merge": 4, "gc": 6, "optimize": 11, "branch.create": 2, "branch.delete": 2}
"""How many writes lie between two deaths: all kinds of writes are hit, and not each of many alike."""


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["before", "after", "answer lost"])
@pytest.mark.parametrize("name", STRIDES)
def test_a_service_that_fails_at_any_write_is_survived(s3: S3Place, name: str, cut: str) -> None:
    whole = prepare(f"{s3.root}/graphs/whole.omni")
    before = images(whole)
    DEEDS[name](later(whole.uri, 1), NoFaults())
    after = images(whole)
    for left in count(0, STRIDES[name]):
        history = prepare(f"{s3.root}/graphs/g{left}.omni")
        fault = Cut(left, served=cut != "before", lost=cut == "answer lost")
        s3.server.fault = fault
        with contextlib.suppress(GitopsError):
            DEEDS[name](later(history.uri, 1), NoFaults())
        s3.server.forget()
        assert images(history) in (before, after)
        assert verify_graph(history.uri, deep=True).ok
        DEEDS[name](later(history.uri, 2), NoFaults())
        assert images(history) == after
        late = later(history.uri, 3)
        late.clock.advance(timedelta(hours=1))
        collect_garbage(history.uri, late.work(), SHARP)
        assert images(history) == after
        report = verify_graph(history.uri, deep=True)
        assert report.findings == (), report.to_json()
        if not fault.struck:
            return
