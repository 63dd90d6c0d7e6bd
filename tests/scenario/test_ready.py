"""Serving the applied revision, or saying everything in the way at once; reports of servers; problems that rarely come up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.serving import await_served
from gitops.cluster.ledger.layout import STATE, intent_key
from gitops.cluster.model.address import Kind, graph_address, schema_address
from gitops.cluster.model.change import Change, Disposition
from gitops.cluster.model.changeset import ChangesetState, Drained
from gitops.cluster.model.kinds import KINDS, GraphKind, Ruling, Situation
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.outcome import ApplyOutcome, OfferedGraph
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport
from gitops.core.cancel import Cancellation
from gitops.core.canonical import digest
from gitops.core.clock import timestamp
from gitops.render.json import envelope
from gitops.render.text import status_line, to_text
from gitops.serving.boot import BootRules
from gitops.serving.generation import AppliedRevision
from gitops.serving.process import BootInputs, boot_process
from tests.scenario.test_changeset_deaths import BOTH, BY_CITY, MOVED
from tests.support.cluster import (
    GRAPH,
    OTHER_QUERY,
    POLICY,
    QUERY,
    SCHEMA,
    WIDER,
    Cluster,
    codes,
    found,
    lance_engine,
    remove_graph,
    rulings,
    statuses,
)
from tests.support.faults import FailAt
from tests.support.pages import ROOT

OPERATION = "01JZ0000000000000000000AAA"
QUERY_BLOB = f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq"
POLICY_BLOB = f"__cluster/resources/policy/base/{digest(POLICY.encode())}.yaml"


def edit(cluster: Cluster, **resources: AppliedResource | None) -> None:
    """Record something else; `__` stands for the dots of an address."""
    state = cluster.state
    changed = {**state.resources, **{name.replace("__", "."): r for name, r in resources.items()}}
    cluster.put_state(replace(state, resources={text: r for text, r in changed.items() if r is not None}))


def publish(cluster: Cluster, query: str) -> None:
    """Put another text of the query into the catalog and the ledger, as a release with other rules might have."""
    content = query.encode()
    cluster.plant(f"__cluster/resources/query/knowledge/find_person/{digest(content)}.gq", content)
    edit(cluster, query__knowledge__find_person=AppliedResource(digest(content)))


def test_a_converged_cluster_is_served_as_it_was_applied(cluster):
    cluster.policies["all"] = ["cluster"]
    cluster.save()
    cluster.converge()
    before = {key: cluster.stored(key) for key in cluster.files()}
    outcome = cluster.ready()
    assert outcome.ok
    assert codes(outcome) == []
    schema = digest(SCHEMA.encode())
    assert outcome.graphs == (OfferedGraph("knowledge", cluster.uri("knowledge"), schema, ("find_person",), "base"),)
    assert outcome.cluster_policy == "all"
    assert {key: cluster.stored(key) for key in cluster.files()} == before


def test_what_is_declared_and_not_applied_never_shows(cluster):
    cluster.converge()
    cluster.graphs["second"] = {}
    cluster.write("people.gq", "broken")
    cluster.save()
    assert [g.graph_id for g in cluster.ready().graphs] == ["knowledge"]
    assert cluster.ready().ok


def test_a_held_lock_is_no_obstacle(cluster):
    cluster.converge()
    cluster.hold_lock()
    outcome = cluster.ready()
    assert outcome.ok
    assert outcome.observations.held.held
    assert outcome.observations.acquired_lock_id is None


def test_without_a_ledger_there_is_nothing_to_serve(cluster):
    assert codes(cluster.ready()) == ["cluster_state_missing"]
    cluster.plant(STATE, b"{")
    assert codes(cluster.ready()) == ["invalid_state_json"]


def test_an_empty_revision_is_refused(cluster):
    cluster.put_state(LedgerState(revision=3))
    outcome = cluster.ready()
    assert codes(outcome) == ["cluster_empty"]
    assert outcome.observations.state_revision == 3


def test_07_an_operation_that_is_not_settled_is_refused_until_an_apply_settles_it(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    cluster.apply(faults=FailAt("cluster_apply.after_schema_apply"))
    (key,) = cluster.files("__cluster/recoveries")
    problem = found(cluster.ready(), "cluster_recovery_pending")
    assert (problem.severity, problem.path) == ("error", key)
    cluster.apply()
    assert codes(cluster.ready()) == []


def test_an_operation_whose_record_cannot_be_read_is_refused(cluster):
    cluster.converge()
    cluster.plant(intent_key(OPERATION), b"{}")
    problem = found(cluster.ready(), "invalid_recovery_sidecar")
    assert (problem.severity, problem.path) == ("error", intent_key(OPERATION))


@pytest.mark.parametrize(
    ("key", "content", "code"),
    [
        (QUERY_BLOB, None, "catalog_payload_missing"),
        (POLICY_BLOB, None, "catalog_payload_missing"),
        (QUERY_BLOB, b"tampered", "catalog_payload_digest_mismatch"),
        (POLICY_BLOB, b"tampered", "catalog_payload_digest_mismatch"),
    ],
)
def test_a_blob_that_is_not_what_was_applied_is_refused(cluster, key, content, code):
    cluster.converge()
    cluster.plant(key, content)
    problem = found(cluster.ready(), code)
    assert problem.severity == "error"
    assert problem.path == ("policy.base" if key == POLICY_BLOB else "query.knowledge.find_person")


def test_a_blob_that_is_no_text_is_refused(cluster):
    cluster.converge()
    content = b"\xff\xfe"
    cluster.plant(f"__cluster/resources/policy/base/{digest(content)}.yaml", content)
    edit(cluster, policy__base=AppliedResource(digest(content), ("graph.knowledge",)))
    assert found(cluster.ready(), "catalog_payload_invalid").path == "policy.base"


def test_a_query_that_does_not_hold_any_more_is_refused_with_its_place(cluster):
    cluster.converge()
    publish(cluster, QUERY.replace("return { $p.handle }", "return { $p.nickname }"))
    problem = found(cluster.ready(), "stored_query_check_failed")
    assert problem.path == "query.knowledge.find_person"
    assert problem.source is not None
    assert problem.source.line == 3
    publish(cluster, "query find_person(")
    assert codes(cluster.ready()) == ["stored_query_invalid"]
    publish(cluster, QUERY.replace("find_person", "other"))
    assert codes(cluster.ready()) == ["stored_query_invalid"]


def test_12_queries_are_checked_against_the_live_schema_and_drift_alone_is_a_warning(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", WIDER)
    outcome = cluster.ready()
    assert (outcome.ok, codes(outcome)) == (True, ["schema_drift"])
    publish(cluster, OTHER_QUERY)
    cluster.migrate_graph("knowledge", SCHEMA.replace("  born: I32?\n", ""))
    problem = found(cluster.ready(), "stored_query_check_failed")
    assert problem.path == "query.knowledge.find_person"
    assert "born" in problem.message


def test_a_graph_that_does_not_open_is_refused(cluster):
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    assert codes(cluster.ready()) == ["graph_missing"]
    edit(cluster, schema__knowledge=None)
    assert codes(cluster.ready()) == ["graph_unreadable", "graph_missing"]


def test_policies_are_bound_to_one_scope_each_and_to_what_is_served(cluster):
    cluster.policies["other"] = ["cluster"]
    cluster.save()
    cluster.converge()
    other = cluster.state.resources["policy.other"].digest
    edit(cluster, policy__other=AppliedResource(other, ("graph.knowledge",)))
    conflict = found(cluster.ready(), "policy_scope_conflict")
    assert (conflict.path, conflict.message) == ("graph.knowledge", "more than one policy is bound to it: base, other")
    kept = cluster.state.resources["policy.other"].digest
    edit(cluster, policy__other=AppliedResource(kept, ("graph.elsewhere",)))
    assert codes(cluster.ready()) == ["policy_binding_unknown"]
    edit(cluster, policy__other=AppliedResource(kept))
    assert codes(cluster.ready()) == ["policy_bindings_missing"]


def test_everything_is_said_at_once_and_nothing_is_served(cluster):
    cluster.converge()
    cluster.plant(QUERY_BLOB, None)
    cluster.plant(intent_key(OPERATION), b"{}")
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    edit(
        cluster,
        policy__base=AppliedResource(digest(POLICY.encode())),
        query__gone__q=AppliedResource(digest(QUERY.encode())),
    )
    outcome = cluster.ready()
    assert sorted(codes(outcome)) == [
        "catalog_payload_missing",
        "catalog_payload_missing",
        "dangling_graph_reference",
        "graph_missing",
        "invalid_recovery_sidecar",
        "policy_bindings_missing",
    ]
    assert outcome.graphs == ()


def test_a_broken_header_is_refused_before_the_ledger_is_looked_for(cluster):
    cluster.converge()
    cluster.options["storage"] = "ftp://somewhere"
    cluster.save()
    assert codes(cluster.ready()) == ["invalid_storage_root"]


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


def test_19_data_stay_until_every_server_has_let_go_of_them(converged: Cluster) -> None:
    first, second = Server(converged), Server(converged, "web-2")
    data: list[bool] = []

    def half() -> None:
        first.accept()
        data.append(converged.uri("knowledge") in converged.twin.dump())

    outcome = delete(converged, Passing(converged, {4: half, 10: second.accept}))
    assert data == [True]
    waited, evidence = drained(converged, outcome)
    assert (waited, evidence) == (10_000, f"revision {first.accepted.state_revision} is served by web-1, web-2")


def test_a_server_that_does_not_follow_holds_data_for_the_time_of_grace(converged: Cluster) -> None:
    server = Server(converged)
    waited, evidence = drained(converged, delete(converged, Passing(converged)))
    why = f"web-1 serves {server.accepted.state_revision}"
    assert (waited, evidence) == (30_000, f"30 s have passed since the commit; {why}")


def test_without_a_time_of_grace_no_report_delays_a_delete(converged: Cluster) -> None:
    Server(converged)
    assert drained(converged, delete(converged, Passing(converged), grace_s=0))[0] == 0


def test_a_drop_from_a_schema_waits_no_longer_than_for_the_servers(converged: Cluster) -> None:
    """While the drop is announced, a server finds the new revision in order, and takes it over."""
    server, schemas = Server(converged), []
    converged.write("knowledge.pg", MOVED)
    converged.write("people.gq", BY_CITY)

    def take_over() -> None:
        schemas.append(converged.live("knowledge"))
        rules = BootRules(strict_schema=True)
        inputs = BootInputs("here", lambda _: converged.workspace().open_stores(None), rules, converged.clock, TOKENS)
        booted = boot_process(inputs)
        assert [(each.code, each.severity.value) for each in booted.outcome.diagnostics] == [
            ("cluster_recovery_pending", "warning"),
            ("schema_drift", "warning"),
        ]
        assert booted.revision is not None
        assert AppliedRevision.of_form(json.loads(json.dumps(booted.revision.form))) == booted.revision
        server.accept()

    workspace = converged.workspace()
    passing = Passing(converged, {6: take_over})
    outcome = apply(replace(workspace, atomic=True, drain_grace=timedelta(seconds=30), cancel=passing))
    assert (outcome.converged, schemas, converged.live("knowledge")) == (True, [BOTH], MOVED)
    (record,) = outcome.changesets
    (event,) = (e.happening for e in converged.ledger().events(key=record.key) if isinstance(e.happening, Drained))
    assert (event.waited_ms, event.evidence) == (
        6000,
        f"revision {server.accepted.state_revision} is served by web-1",
    )


@pytest.mark.parametrize("content", [b"{", b'{"version": 1}'])
def test_a_damaged_report_counts_for_nothing(converged: Cluster, content: bytes) -> None:
    converged.reports._store.write("__cluster/serving/evil.json", content)
    waited, evidence = drained(converged, delete(converged, Passing(converged)))
    assert (waited, evidence) == (
        30_000,
        "30 s have passed since the commit; no server is known to serve the cluster",
    )


def test_a_server_that_died_holds_data_until_its_report_expires(converged: Cluster) -> None:
    dead, alive = Server(converged, "dead"), Server(converged)
    assert dead.accepted == alive.accepted

    outcome = delete(converged, Passing(converged, dict.fromkeys((20, 40, 60), alive.accept)), grace_s=600)
    waited, evidence = drained(converged, outcome)
    assert (waited, evidence) == (60_000, f"revision {alive.accepted.state_revision} is served by web-1")


# -- what an apply waits for ---------------------------------------------------------------------------------------------


def waited_for(cluster: Cluster, cancel: Cancellation, limit_s: int = 60) -> ApplyOutcome:
    """The end of an apply of another query that waits until it is served."""
    cluster.write("people.gq", QUERY.replace("find_person", "other"))
    cluster.graphs = {"knowledge": {"other": "people.gq"}}
    cluster.save()
    workspace = replace(cluster.workspace(), cancel=cancel)
    return await_served(workspace, apply(workspace), timedelta(seconds=limit_s))


def test_an_apply_waits_until_each_server_serves_it(converged: Cluster) -> None:
    servers = Server(converged), Server(converged, "web-2")
    waiting = Passing(converged, {3: servers[0].accept, 7: servers[1].accept})
    outcome = waited_for(converged, waiting)
    assert (outcome.ok, outcome.converged, waiting.waited) == (True, True, 7)
    assert [(each.report.replica, each.state.value) for each in outcome.serving] == [
        ("web-1", "serves"),
        ("web-2", "serves"),
    ]
    assert [each["state"] for each in envelope(outcome)["serving"]] == ["serves", "serves"]


def test_a_server_that_refuses_ends_the_wait_with_what_to_do(converged: Cluster) -> None:
    server = Server(converged)
    Server(converged, "web-2")
    waiting = Passing(converged, {2: lambda: server.report(["unknown_to_this_release", "graph_unreadable"])})
    outcome = waited_for(converged, waiting)
    assert (outcome.converged, waiting.waited) == (True, 2)
    problem = found(outcome, "serving_refused")
    assert problem.message.startswith("web-1 refuses revision ")
    assert "(unknown_to_this_release, graph_unreadable)" in problem.message
    assert problem.fix
    assert "serving_not_reached" not in codes(outcome)


def test_a_server_that_does_not_follow_in_time_is_named(converged: Cluster) -> None:
    server = Server(converged, follows=Follows.ASKED)
    waiting = Passing(converged, {25: server.report, 45: server.report})
    problem = found(waited_for(converged, waiting), "serving_not_reached")
    assert waiting.waited == 60
    assert f"not served within 60 s by web-1, which serves {server.accepted.state_revision}" in problem.message


def test_a_signal_ends_the_wait_and_not_the_report_of_the_apply(converged: Cluster) -> None:
    Server(converged)
    waiting = Passing(converged)
    asked: list[bool] = []

    def signalled() -> None:
        asked.append(waiting.at_work)
        waiting.request()

    waiting.then(5, signalled)
    outcome = waited_for(converged, waiting)
    assert (asked, outcome.converged, waiting.waited) == ([True], True, 5)
    assert "within 5 s" in found(outcome, "serving_not_reached").message


def test_a_chosen_revision_is_not_waited_for(converged: Cluster) -> None:
    Server(converged, follows=Follows.NEVER)
    waiting = Passing(converged)
    outcome = waited_for(converged, waiting)
    assert (codes(outcome), waiting.waited) == ([], 0)


def test_without_a_report_an_apply_says_that_it_knows_nothing(converged: Cluster) -> None:
    waiting = Passing(converged)
    outcome = waited_for(converged, waiting)
    assert (codes(outcome), outcome.ok, waiting.waited) == (["serving_unreported"], True, 0)


def test_after_an_apply_that_failed_nothing_is_waited_for(converged: Cluster) -> None:
    Server(converged)
    converged.hold_lock()
    waiting = Passing(converged)
    outcome = waited_for(converged, waiting)
    assert (codes(outcome), waiting.waited) == (["state_lock_held"], 0)


# -- status --------------------------------------------------------------------------------------------------------------


def test_status_says_who_serves_what(converged: Cluster) -> None:
    Server(converged)
    refusing, asked = Server(converged, "web-2"), Server(converged, "web-3", Follows.ASKED)
    Server(converged, "gone")
    converged.clock.advance(timedelta(seconds=61))
    converged.write("people.gq", QUERY + "\n")
    converged.converge()
    refusing.report(["graph_unreadable"])
    asked.report()
    Server(converged, "web-4")
    converged.clock.advance(timedelta(seconds=5))
    outcome = converged.status()
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


def test_status_reads_reports_in_a_bucket_only_if_it_is_asked(converged: Cluster) -> None:
    from gitops.cluster.session.status import status

    Server(converged)
    workspace = converged.workspace()
    elsewhere = replace(
        workspace, open_stores=lambda storage: replace(workspace.open_stores(storage), data_at_hand=False)
    )
    assert status(elsewhere).serving is None
    assert "serving" not in envelope(status(elsewhere))
    assert len(status(elsewhere, serving=True).serving) == 1


# Imports that fail as if the package were not installed.
_WITHOUT_ENGINE = (
    "import sys\n"
    "sys.modules.update(dict.fromkeys(('lance', 'lance.dataset', 'pyarrow', 'numpy')))\n"
    "from gitops.cli.main import main\n"
    "sys.exit(main(sys.argv[1:]))\n"
)


class CarelessGraphs(GraphKind):
    """Rules of a release with a defect: a delete is gated, and carried out all the same."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        return Disposition.APPLIED, None


def test_a_gated_change_that_slips_through_the_rules_is_stopped_before_anything_moves(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path)
    cluster.graphs["legacy"] = {}
    cluster.save()
    cluster.converge()
    del cluster.graphs["legacy"]
    cluster.write("people.gq", (tmp_path / "people.gq").read_text() + "\n")
    cluster.save()
    before, roots = cluster.state_bytes, cluster.twin.read(cluster.uri("legacy"))
    monkeypatch.setattr("gitops.cluster.model.kinds.KINDS", {**KINDS, Kind.GRAPH: CarelessGraphs()})
    monkeypatch.setattr(Situation, "is_shut", lambda *_: False)
    outcome = apply(cluster.workspace("sam"))
    assert not outcome.ok
    assert found(outcome, "apply_approval_invariant_violation").path == "graph.legacy"
    assert (outcome.applied_count, outcome.state_written, outcome.converged) == (0, False, False)
    assert (cluster.state_bytes, cluster.twin.read(cluster.uri("legacy"))) == (before, roots)
    assert cluster.sidecars == []
    assert not cluster.locked


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Cluster:
    cluster = Cluster(tmp_path_factory.mktemp("served"), engine=lance_engine())
    cluster.converge()
    (cluster.folder / "people.jsonl").write_text('{"type": "Person", "data": {"handle": "ada"}}\n')
    return cluster


def _without_engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_ENGINE, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("command", [["show"], ["show", "--type", "Person"], ["load"]])
def test_commands_on_data_say_that_the_engine_is_not_installed(served, command):
    verb, *options = command
    file = [str(served.folder / "people.jsonl")] if verb == "load" else []
    done = _without_engine("graph", verb, "knowledge", *file, *options, "--config", str(served.folder))
    assert done.returncode == 1
    assert re.findall(r"^ERROR (\w+):", done.stderr) == ["engine_unavailable"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", ["validate", "plan", "status", "refresh"])
def test_verbs_that_touch_no_table_do_without_the_engine(served, verb):
    done = _without_engine(verb, "--config", str(served.folder), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["diagnostics"] == []


def test_an_apply_without_the_engine_creates_nothing_and_names_the_packages(tmp_path):
    cluster = Cluster(tmp_path)
    assert _without_engine("import", "--config", str(tmp_path)).returncode == 0
    done = _without_engine("apply", "--config", str(tmp_path), "--json")
    (error,) = [d for d in json.loads(done.stdout)["diagnostics"] if d["severity"] == "error"]
    assert (done.returncode, error["code"], error["path"]) == (1, "graph_create_failed", "graph.knowledge")
    assert "pylance" in error["message"]
    assert cluster.files("graphs") == []


def test_an_unlock_reports_the_ledger_and_who_lost_the_lock(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    cluster.hold_lock("01JZ0000000000000000000CCC")
    seen = cluster.unlock("01JZ0000000000000000000CCC").observations
    assert (seen.held.held, seen.held.info.operation, seen.held.info.pid) == (False, "apply", 4711)
    assert (seen.state_found, seen.state_revision) == (True, cluster.state.revision)


@pytest.mark.parametrize("damage", [b"{", b'{"version": 2}'])
def test_a_lock_comes_off_whatever_is_wrong_with_the_ledger(damage, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.plant("__cluster/state.json", damage)
    cluster.hold_lock("01JZ0000000000000000000CCC")
    outcome = cluster.unlock("01JZ0000000000000000000CCC")
    assert (codes(outcome), outcome.lock_removed, outcome.observations.state_found) == ([], True, True)


def test_approving_a_delete_reads_its_graph_and_changes_none(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.graphs["legacy"] = {}
    cluster.save()
    cluster.converge()
    del cluster.graphs["legacy"]
    cluster.write("knowledge.pg", WIDER)
    cluster.save()
    cluster.twin.calls.clear()
    outcome = cluster.approve("graph.legacy")
    assert (outcome.ok, codes(outcome)) == (True, [])
    assert set(cluster.twin.calls) <= {"read", "preview"}
    assert outcome.approval.seen.rows == 0
    assert outcome.approval.bound_before_digest == cluster.state.resources["graph.legacy"].digest
    assert cluster.apply().converged


def test_a_blob_that_can_be_read_again_is_no_error_any_more(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    (blob,) = cluster.files("__cluster/resources/query")
    content = cluster.stored(blob)
    cluster.plant(blob, b"\xff")
    assert codes(cluster.refresh()) == ["catalog_payload_read_error"]
    assert statuses(cluster.state)["query.knowledge.find_person"] == "error:payload_read_error"
    cluster.plant(blob, content)
    assert statuses(cluster.refresh().state)["query.knowledge.find_person"] == "applied"


@pytest.mark.parametrize("name", ["../../../../etc", "a/b", "", "a.b", "é"])
def test_a_recorded_graph_whose_name_could_be_a_path_is_never_touched(name, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.converge()
    strange = {graph_address(name): AppliedResource("a" * 64), schema_address(name): AppliedResource("b" * 64)}
    cluster.put_state(replace(cluster.state, resources={**cluster.state.resources, **strange}))
    assert codes(cluster.approve(f"graph.{name}")) == ["approval_not_required"]
    outcome = cluster.apply("sam")
    assert rulings(outcome.changes) == dict.fromkeys(strange, "delete deferred:apply_unsupported_kind")
    assert (outcome.ok, outcome.converged) == (True, False)
    assert strange.items() <= cluster.state.resources.items()
