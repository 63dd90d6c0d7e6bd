"""What the reports of servers change: how long data stay that left the cluster, what an apply waits for, what status says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.serving import await_served
from gitops.cluster.model.changeset import ChangesetState, Drained
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport
from gitops.core.cancel import Cancellation
from gitops.core.clock import timestamp
from gitops.render.json import envelope
from gitops.render.text import status_line, to_text
from gitops.serving.boot import BootRules
from gitops.serving.process import BootInputs, boot_process
from gitops.serving.revision import AppliedRevision
from tests.scenario.test_halved_migrations import BOTH, BY_CITY, MOVED
from tests.support.cluster import GRAPH, QUERY, Cluster, codes, found, remove_graph

TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada"}'}


class Server:
    """A server that reports to the storage of a cluster, by the clock of the cluster."""

    def __init__(self, cluster: Cluster, replica: str = "web-1", follows: Follows = Follows.WATCH) -> None:
        self.cluster, self.replica, self.follows = cluster, replica, follows
        self.accepted = self.newest()
        self.report()

    def newest(self) -> RevisionIdentity:
        view = self.cluster.ledger().view()
        assert view.cas is not None
        assert view.state is not None
        return RevisionIdentity(view.cas.rpartition(":")[2], view.state.revision, view.state.config_digest)

    def report(self, refused: Sequence[str] = ()) -> None:
        at, offered = timestamp(self.cluster.clock.now()), self.newest()
        made = ServerReport(self.replica, "here", self.follows, self.accepted, offered, tuple(refused), at, ttl_s=60)
        self.cluster.reports.write(made)

    def accept(self) -> None:
        self.accepted = self.newest()
        self.report()


class Passing(Cancellation):
    """Lets the time of a cluster pass instead of waiting; meanwhile something happens, once so many seconds have passed."""

    def __init__(self, cluster: Cluster, happens: dict[float, Callable[[], None]] | None = None) -> None:
        super().__init__()
        self._cluster, self._happens = cluster, happens or {}
        self.waited = 0.0

    def then(self, seconds: float, happens: Callable[[], None]) -> None:
        """Let something more happen."""
        self._happens[seconds] = happens

    def wait(self, seconds: float) -> None:
        self.waited += seconds
        self._cluster.clock.advance(timedelta(seconds=seconds))
        for at in [each for each in self._happens if each <= self.waited]:
            self._happens.pop(at)()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path)
    made.converge()
    return made


# -- data that left the cluster ------------------------------------------------------------------------------------------


def delete(cluster: Cluster, cancel: Cancellation, grace_s: int = 30) -> ApplyOutcome:
    remove_graph(cluster)
    assert cluster.approve(GRAPH).ok
    workspace = replace(cluster.workspace(), atomic=True, drain_grace=timedelta(seconds=grace_s), cancel=cancel)
    return apply(workspace)


def drained(cluster: Cluster, outcome: ApplyOutcome) -> tuple[int, str]:
    (record,) = outcome.changesets
    assert record.state is ChangesetState.FINALIZED
    assert cluster.uri("knowledge") not in cluster.twin.dump()
    (event,) = (e.happening for e in cluster.ledger().events(key=record.key) if isinstance(e.happening, Drained))
    return event.waited_ms, event.evidence


def test_19_data_stay_until_every_server_has_let_go_of_them(cluster: Cluster) -> None:
    first, second = Server(cluster), Server(cluster, "web-2")
    data: list[bool] = []

    def half() -> None:
        first.accept()
        data.append(cluster.uri("knowledge") in cluster.twin.dump())

    outcome = delete(cluster, Passing(cluster, {4: half, 10: second.accept}))
    assert data == [True]
    waited, evidence = drained(cluster, outcome)
    assert (waited, evidence) == (10_000, f"revision {first.accepted.state_revision} is served by web-1, web-2")


def test_a_server_that_does_not_follow_holds_data_for_the_time_of_grace(cluster: Cluster) -> None:
    server = Server(cluster)
    waited, evidence = drained(cluster, delete(cluster, Passing(cluster)))
    why = f"web-1 serves {server.accepted.state_revision}"
    assert (waited, evidence) == (30_000, f"30 s have passed since the commit; {why}")


def test_without_a_time_of_grace_no_report_delays_a_delete(cluster: Cluster) -> None:
    Server(cluster)
    assert drained(cluster, delete(cluster, Passing(cluster), grace_s=0))[0] == 0


def test_a_drop_from_a_schema_waits_no_longer_than_for_the_servers(cluster: Cluster) -> None:
    """While the drop is announced, a server finds the new revision in order, and takes it over."""
    server, schemas = Server(cluster), []
    cluster.write("knowledge.pg", MOVED)
    cluster.write("people.gq", BY_CITY)

    def take_over() -> None:
        schemas.append(cluster.live("knowledge"))
        rules = BootRules(strict_schema=True)
        inputs = BootInputs("here", lambda _: cluster.workspace().open_stores(None), rules, cluster.clock, TOKENS)
        booted = boot_process(inputs)
        assert [(each.code, each.severity.value) for each in booted.outcome.diagnostics] == [
            ("cluster_recovery_pending", "warning"),
            ("schema_drift", "warning"),
        ]
        assert booted.revision is not None
        assert AppliedRevision.of_form(json.loads(json.dumps(booted.revision.form))) == booted.revision
        server.accept()

    workspace = cluster.workspace()
    passing = Passing(cluster, {6: take_over})
    outcome = apply(replace(workspace, atomic=True, drain_grace=timedelta(seconds=30), cancel=passing))
    assert (outcome.converged, schemas, cluster.live("knowledge")) == (True, [BOTH], MOVED)
    (record,) = outcome.changesets
    (event,) = (e.happening for e in cluster.ledger().events(key=record.key) if isinstance(e.happening, Drained))
    assert (event.waited_ms, event.evidence) == (
        6000,
        f"revision {server.accepted.state_revision} is served by web-1",
    )


@pytest.mark.parametrize("content", [b"{", b'{"version": 1}'])
def test_a_damaged_report_counts_for_nothing(cluster: Cluster, content: bytes) -> None:
    cluster.reports._store.write("__cluster/serving/evil.json", content)
    waited, evidence = drained(cluster, delete(cluster, Passing(cluster)))
    assert (waited, evidence) == (
        30_000,
        "30 s have passed since the commit; nothing is known to serve the cluster",
    )


def test_a_server_that_died_holds_data_until_its_report_expires(cluster: Cluster) -> None:
    dead, alive = Server(cluster, "dead"), Server(cluster)
    assert dead.accepted == alive.accepted

    outcome = delete(cluster, Passing(cluster, dict.fromkeys((20, 40, 60), alive.accept)), grace_s=600)
    waited, evidence = drained(cluster, outcome)
    assert (waited, evidence) == (60_000, f"revision {alive.accepted.state_revision} is served by web-1")


# -- what an apply waits for ---------------------------------------------------------------------------------------------


def waited_for(cluster: Cluster, cancel: Cancellation, limit_s: int = 60) -> ApplyOutcome:
    """The end of an apply of another query that waits until it is served."""
    cluster.write("people.gq", QUERY.replace("find_person", "other"))
    cluster.graphs = {"knowledge": {"other": "people.gq"}}
    cluster.save()
    workspace = replace(cluster.workspace(), cancel=cancel)
    return await_served(workspace, apply(workspace), timedelta(seconds=limit_s))


def test_an_apply_waits_until_each_server_serves_it(cluster: Cluster) -> None:
    servers = Server(cluster), Server(cluster, "web-2")
    waiting = Passing(cluster, {3: servers[0].accept, 7: servers[1].accept})
    outcome = waited_for(cluster, waiting)
    assert (outcome.ok, outcome.converged, waiting.waited) == (True, True, 7)
    assert [(each.report.replica, each.state.value) for each in outcome.serving] == [
        ("web-1", "serves"),
        ("web-2", "serves"),
    ]
    assert [each["state"] for each in envelope(outcome)["serving"]] == ["serves", "serves"]


def test_a_server_that_refuses_ends_the_wait_with_what_to_do(cluster: Cluster) -> None:
    server = Server(cluster)
    Server(cluster, "web-2")
    waiting = Passing(cluster, {2: lambda: server.report(["unknown_to_this_release", "graph_unreadable"])})
    outcome = waited_for(cluster, waiting)
    assert (outcome.converged, waiting.waited) == (True, 2)
    problem = found(outcome, "serving_refused")
    assert problem.message.startswith("web-1 refuses revision ")
    assert "(unknown_to_this_release, graph_unreadable)" in problem.message
    assert problem.fix
    assert "serving_not_reached" not in codes(outcome)


def test_a_server_that_does_not_follow_in_time_is_named(cluster: Cluster) -> None:
    server = Server(cluster, follows=Follows.ASKED)
    waiting = Passing(cluster, {25: server.report, 45: server.report})
    problem = found(waited_for(cluster, waiting), "serving_not_reached")
    assert waiting.waited == 60
    assert f"after 60 s not served by web-1, which serves {server.accepted.state_revision}" in problem.message


def test_a_signal_ends_the_wait_and_not_the_report_of_the_apply(cluster: Cluster) -> None:
    Server(cluster)
    waiting = Passing(cluster)
    asked: list[bool] = []

    def signalled() -> None:
        asked.append(waiting.at_work)
        waiting.request()

    waiting.then(5, signalled)
    outcome = waited_for(cluster, waiting)
    assert (asked, outcome.converged, waiting.waited) == ([True], True, 5)
    assert "after 5 s" in found(outcome, "serving_not_reached").message


def test_a_chosen_revision_is_not_waited_for(cluster: Cluster) -> None:
    Server(cluster, follows=Follows.NEVER)
    waiting = Passing(cluster)
    outcome = waited_for(cluster, waiting)
    assert (codes(outcome), waiting.waited) == ([], 0)


def test_without_a_report_an_apply_says_that_it_knows_nothing(cluster: Cluster) -> None:
    waiting = Passing(cluster)
    outcome = waited_for(cluster, waiting)
    assert (codes(outcome), outcome.ok, waiting.waited) == (["serving_unreported"], True, 0)


def test_after_an_apply_that_failed_nothing_is_waited_for(cluster: Cluster) -> None:
    Server(cluster)
    cluster.hold_lock()
    waiting = Passing(cluster)
    outcome = waited_for(cluster, waiting)
    assert (codes(outcome), waiting.waited) == (["state_lock_held"], 0)


# -- status --------------------------------------------------------------------------------------------------------------


def test_status_says_who_serves_what(cluster: Cluster) -> None:
    Server(cluster)
    refusing, asked = Server(cluster, "web-2"), Server(cluster, "web-3", Follows.ASKED)
    Server(cluster, "gone")
    cluster.clock.advance(timedelta(seconds=61))
    cluster.write("people.gq", QUERY + "\n")
    cluster.converge()
    refusing.report(["graph_unreadable"])
    asked.report()
    Server(cluster, "web-4")
    cluster.clock.advance(timedelta(seconds=5))
    outcome = cluster.status()
    new, old = (f"{each.state_revision} ({each.digest[:12]})" for each in (refusing.newest(), refusing.accepted))
    asks = "looks for a newer one only when asked: send it SIGHUP"
    lines = [line.strip() for line in to_text(outcome).splitlines() if "serving" in line]
    assert lines == [
        f"serving: web-2 serves revision {old}, refuses {new}: graph_unreadable; reported 5 s ago",
        f"serving: web-3 serves revision {old}, behind, and {asks}; reported 5 s ago",
        f"serving: web-4 serves revision {new}; reported 5 s ago",
    ]
    assert "served by 3 (web-2 refuses, web-3 behind)" in status_line("brain", outcome)
    form = json.loads(json.dumps(envelope(outcome)))["serving"]
    assert [(each["replica"], each["state"], each["codes"], each["age_s"]) for each in form] == [
        ("web-2", "refuses", ["graph_unreadable"], 5),
        ("web-3", "behind", [], 5),
        ("web-4", "serves", [], 5),
    ]
    assert form[0]["offered"]["state_revision"] == refusing.newest().state_revision


def test_status_reads_reports_in_a_bucket_only_if_it_is_asked(cluster: Cluster) -> None:
    from gitops.cluster.session.status import status

    Server(cluster)
    workspace = cluster.workspace()
    elsewhere = replace(
        workspace, open_stores=lambda storage: replace(workspace.open_stores(storage), data_at_hand=False)
    )
    assert status(elsewhere).serving is None
    assert "serving" not in envelope(status(elsewhere))
    assert len(status(elsewhere, serving=True).serving) == 1
