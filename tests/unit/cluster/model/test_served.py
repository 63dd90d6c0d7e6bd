"""How the reports of servers compare with what is applied."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.model.served import (
    Follows,
    RevisionIdentity,
    ServerReport,
    ServingState,
    is_replica_name,
    live_replicas,
)

NOW = datetime(2026, 6, 11, 8, 0, tzinfo=UTC)
OLD, NEW, NEWER = (RevisionIdentity(letter * 64, number, None) for letter, number in (("a", 41), ("b", 42), ("c", 43)))
REPORT = ServerReport("web-1", "/srv/brain", Follows.WATCH, OLD, OLD, (), at="2026-06-11T08:00:00Z", ttl_s=60)


@pytest.mark.parametrize(
    ("seconds", "live"), [(0, True), (59, True), (60, False), (86_400, False), (-120, True), (-121, False)]
)
def test_a_report_counts_for_its_time_and_not_from_the_future(seconds: int, live: bool) -> None:
    now = NOW + timedelta(seconds=seconds)
    assert REPORT.is_live(now) is live
    assert [each.age_s for each in live_replicas([REPORT], NEW, now)] == ([max(0, seconds)] if live else [])


@pytest.mark.parametrize(
    ("accepted", "offered", "codes", "state"),
    [
        (NEW, NEW, (), ServingState.SERVES),
        (NEWER, NEWER, (), ServingState.SERVES),
        (NEW, NEWER, ("graph_open_failed",), ServingState.SERVES),
        (OLD, OLD, (), ServingState.BEHIND),
        (OLD, NEW, (), ServingState.BEHIND),
        (OLD, NEW, ("graph_open_failed",), ServingState.REFUSES),
        (OLD, NEWER, ("graph_open_failed",), ServingState.REFUSES),
        (OLD, OLD, ("graph_open_failed",), ServingState.BEHIND),
        (OLD, None, ("storage_failed",), ServingState.BEHIND),
        # The number of another ledger says nothing.
        (RevisionIdentity("d" * 64, 42, None), None, (), ServingState.BEHIND),
    ],
)
def test_a_server_serves_is_behind_or_refuses(accepted, offered, codes, state) -> None:
    report = replace(REPORT, accepted=accepted, offered=offered, codes=codes)
    assert report.compared_with(NEW) is state


def test_servers_are_in_order_of_their_names() -> None:
    named = [replace(REPORT, replica=name) for name in ("web-2", "web-1", "web-10")]
    assert [each.report.replica for each in live_replicas(named, NEW, NOW)] == ["web-1", "web-10", "web-2"]


@pytest.mark.parametrize("name", ["web-1", "A", "10.0.0.1", "a" * 63])
def test_names_of_servers(name: str) -> None:
    assert is_replica_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", ".tmp-x", "-x", "a/b", "a" * 64, "ä", "a\n", "a b"])
def test_names_that_could_leave_the_folder_are_none(name: str) -> None:
    assert not is_replica_name(name)
