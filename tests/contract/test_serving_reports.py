"""The reports of servers, over each store that they are kept in."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.cluster.ledger import served
from gitops.cluster.ledger.served import SERVER_REPORT, ServingReports
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport
from gitops.cluster.session.status import servers
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.database.storage.local import LocalStore
from gitops.database.storage.port import ObjectStore
from gitops.database.storage.s3 import S3Store
from tests.support.memory_store import BrokenStore, MemoryStore

NOW = datetime(2026, 6, 11, 8, 0, tzinfo=UTC)
REVISION = RevisionIdentity("a" * 64, 41, None)
REPORT = ServerReport("web-1", "/srv/brain", Follows.WATCH, REVISION, REVISION, (), at="2026-06-11T08:00:00Z", ttl_s=60)
OTHER = replace(REPORT, replica="web-2")


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "s3":
        return S3Store(request.getfixturevalue("s3").root)
    return LocalStore(tmp_path) if request.param == "local" else MemoryStore()


def test_a_report_is_replaced_and_taken_back_by_its_server_alone(store: ObjectStore) -> None:
    reports = ServingReports(lambda: store)
    assert reports.read().reports == ()
    newer = replace(REPORT, at="2026-06-11T08:00:20Z")
    for each in (REPORT, OTHER, newer):
        reports.write(each)
    assert reports.read().reports == (newer, OTHER)
    assert store.read("__cluster/serving/web-1.json") == SERVER_REPORT.write(newer)
    # A server that took the name over has reported since.
    reports.take_back(REPORT)
    reports.take_back(OTHER)
    reports.take_back(OTHER)
    assert reports.read().reports == (newer,)


def test_what_servers_left_that_died_long_ago_is_removed(store: ObjectStore) -> None:
    reports = ServingReports(lambda: store)
    for each in (REPORT, replace(OTHER, at="2026-06-11T08:10:00Z")):
        reports.write(each)
    reports.remove_old(NOW + timedelta(minutes=61))
    assert len(reports.read().reports) == 2
    reports.remove_old(NOW + timedelta(minutes=62))
    assert [each.replica for each in reports.read().reports] == ["web-2"]


HOSTILE = {
    "evil.json": b"{",
    "huge.json": b"[" * 100_000,
    "web-1.json": SERVER_REPORT.write(OTHER),
    "path.json": SERVER_REPORT.write(OTHER).replace(b"web-2", b"../x"),
    "many.json": SERVER_REPORT.write(replace(OTHER, replica="many", codes=("a",) * 17)),
    "shell.json": SERVER_REPORT.write(replace(OTHER, replica="shell", codes=("$(rm)",))),
    "long.json": SERVER_REPORT.write(replace(OTHER, replica="long", ttl_s=99_999)),
    "later.json": SERVER_REPORT.write(OTHER).replace(b'"version": 1', b'"version": 2'),
}


def test_hostile_reports_are_named_and_left_out() -> None:
    store = MemoryStore()
    for name, data in HOSTILE.items():
        store.write(f"__cluster/serving/{name}", data)
    store.write("__cluster/serving/notes.txt", b"not a report")
    reports, problems = ServingReports(lambda: store), Diagnostics()
    reports.write(OTHER)
    found = servers(reports, REVISION, NOW, problems)
    assert [each.report for each in found] == [OTHER]
    assert {each.path for each in problems} == {f"__cluster/serving/{name}" for name in HOSTILE}
    assert {(each.code, each.severity) for each in problems} == {("serving_report_invalid", Severity.WARNING)}


def test_more_reports_than_are_read_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "MAX_REPORTS", 1)
    store = MemoryStore()
    reports = ServingReports(lambda: store)
    reports.write(REPORT)
    reports.write(OTHER)
    listing = reports.read()
    assert (listing.reports, [each.detail for each in listing.unread]) == ((REPORT,), ["of 2 reports only 1 are read"])


def test_a_store_that_does_not_answer_is_a_warning() -> None:
    problems = Diagnostics()
    assert servers(ServingReports(lambda: BrokenStore({("names", "")})), REVISION, NOW, problems) == ()
    assert [(each.code, each.severity) for each in problems] == [("serving_reports_unreadable", Severity.WARNING)]
