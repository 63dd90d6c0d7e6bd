"""What a server reports, of how many processes it ever has, and when."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from gitops.cluster.ledger.served import ServingReports
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport, is_replica_name
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.database.storage.port import ObjectStore
from gitops.serving.process import Reload, ReloadResult
from gitops.serving.report import (
    EVERY_S,
    TTL_S,
    ReplicaFacts,
    Reporter,
    StatusBoard,
    WorkerStatus,
    replica_name,
    replica_report,
)
from tests.support.clock import FixedClock
from tests.support.memory_store import BrokenStore, MemoryStore

START = datetime(2026, 6, 11, 8, 0, tzinfo=UTC)
OLD, NEW = RevisionIdentity("a" * 64, 41, "c" * 64), RevisionIdentity("b" * 64, 42, None)
SERVES_OLD, SERVES_NEW = WorkerStatus(OLD, OLD), WorkerStatus(NEW, NEW)
REFUSES = WorkerStatus(OLD, NEW, ("graph_open_failed",))
FACTS = ReplicaFacts("web-1", "/srv/brain", Follows.WATCH)
KEY = "__cluster/serving/web-1.json"

fold = partial(replica_report, facts=FACTS, at="2026-06-11T08:00:00Z")


@pytest.mark.parametrize(
    ("statuses", "accepted", "offered", "codes"),
    [
        ([SERVES_NEW], NEW, NEW, ()),
        ([SERVES_NEW, SERVES_OLD], OLD, NEW, ()),
        ([SERVES_OLD, REFUSES, SERVES_NEW], OLD, NEW, ("graph_open_failed",)),
        ([WorkerStatus(OLD, None, ("storage_failed",))], OLD, None, ("storage_failed",)),
    ],
)
def test_a_server_serves_the_oldest_revision_of_its_processes(statuses, accepted, offered, codes) -> None:
    report = fold(statuses)
    assert (report.accepted, report.offered, report.codes) == (accepted, offered, codes)
    assert (report.replica, report.cluster, report.ttl_s) == ("web-1", "/srv/brain", TTL_S)


def _attempt(result: ReloadResult, served: RevisionIdentity, offered: RevisionIdentity | None) -> Reload:
    problems = Diagnostics()
    problems.add(Code.CLUSTER_RECOVERY_PENDING, "x", "y", severity=Severity.ERROR)
    problems.add(Code.SCHEMA_DRIFT, "x", "a warning")
    return Reload(result, served, offered, tuple(problems))


def test_a_process_that_waits_refuses_nothing() -> None:
    assert WorkerStatus.after(_attempt(ReloadResult.WAITING, OLD, NEW)) == WorkerStatus(OLD, NEW)
    refused = WorkerStatus.after(_attempt(ReloadResult.REFUSED, OLD, NEW))
    assert refused == WorkerStatus(OLD, NEW, ("cluster_recovery_pending",))
    assert WorkerStatus.after(Reload(ReloadResult.EXCHANGED, NEW, NEW)) == SERVES_NEW


def test_a_board_has_what_each_process_left_there_last() -> None:
    board = StatusBoard(3)
    assert board.statuses() == ()
    board.put(2, REFUSES)
    board.put(0, SERVES_OLD)
    board.put(0, WorkerStatus(OLD, None, tuple(f"{'x' * 60}_{number:02}" for number in range(16))))
    board.put(0, SERVES_NEW)
    assert board.statuses() == (SERVES_NEW, REFUSES)


def test_nothing_is_taken_from_a_board_while_it_is_written() -> None:
    board = StatusBoard(2)
    board.put(0, SERVES_NEW)
    board.put(1, SERVES_OLD)
    board._memory[4096 + 20 : 4096 + 22] = b"??"
    assert board.statuses() == ()


@pytest.mark.parametrize("host", ["web.example", "-", "", "a" * 300, "büro pc", "..x"])
def test_a_server_without_a_name_gets_one_of_its_host(host: str) -> None:
    assert is_replica_name(replica_name(host, "XK42AB"))
    assert replica_name("web.example", "XK42AB") == "web.example-xk42ab"


class Server:
    """A reporter with a clock that a test moves, and what it wrote and logged."""

    def __init__(self, store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
        self.board, self.clock, self.store = StatusBoard(1), FixedClock(START), store
        self.reports = ServingReports(lambda: store)
        self.caplog = caplog
        log = logging.getLogger("tests.report")
        caplog.set_level(logging.INFO, "tests.report")
        self.reporter = Reporter(self.board, FACTS, lambda: self.reports, self.clock, log)

    def after(self, seconds: float) -> ServerReport | None:
        """The report some time later, once the reporter has looked."""
        self.clock.advance(timedelta(seconds=seconds))
        self.reporter.look()
        return next(iter(self.reports.read().reports), None)

    def said(self) -> list[tuple[str, str]]:
        found = [(record.levelname, record.getMessage()) for record in self.caplog.records]
        self.caplog.clear()
        return found


def test_a_report_is_written_when_it_changes_and_before_it_expires(caplog) -> None:
    server = Server(MemoryStore(), caplog)
    assert server.after(0) is None
    server.board.put(0, SERVES_OLD)
    first = server.after(0)
    assert (first.at, first.accepted) == ("2026-06-11T08:00:00Z", OLD)
    assert server.after(EVERY_S - 1) == first
    assert server.after(1).at == "2026-06-11T08:00:20Z"
    server.board.put(0, REFUSES)
    assert server.after(1).codes == ("graph_open_failed",)
    assert server.said() == [("INFO", "this server reports what it serves as web-1")]
    server.reporter.take_back()
    assert server.reports.read().reports == ()


def test_a_storage_that_refuses_is_warned_of_once_and_tried_again(caplog) -> None:
    store = BrokenStore({("write", "__cluster/serving")})
    server = Server(store, caplog)
    server.board.put(0, SERVES_OLD)
    for _ in range(3):
        assert server.after(EVERY_S) is None
    ((level, warning),) = server.said()
    assert (level, "storage_failed" in warning) == ("WARNING", True)
    server.reporter.take_back()
    store.broken = set()
    assert server.after(EVERY_S).accepted == OLD
    store.broken = {("write", "__cluster/serving")}
    server.said()
    server.after(EVERY_S)
    store.broken = set()
    server.after(EVERY_S)
    assert [level for level, _ in server.said()] == ["WARNING", "INFO"]


def test_a_server_that_dies_leaves_a_report_that_expires(caplog) -> None:
    server = Server(MemoryStore(), caplog)
    server.board.put(0, SERVES_OLD)
    left = server.after(0)
    assert left.is_live(START + timedelta(seconds=TTL_S - 1))
    assert not left.is_live(START + timedelta(seconds=TTL_S))
    # Another server removes it, one hour after that.
    other = Reporter(
        server.board,
        ReplicaFacts("web-2", "/srv/brain", Follows.WATCH),
        lambda: server.reports,
        server.clock,
        server.reporter._log,
    )
    server.clock.advance(timedelta(hours=2))
    other.look()
    assert [each.replica for each in server.reports.read().reports] == ["web-2"]
