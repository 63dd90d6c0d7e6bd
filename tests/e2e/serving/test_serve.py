"""`gitops serve`, the program: what it refuses, what it serves, and how it ends. Numbers are those of the scenarios."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.ledger.served import SERVER_REPORT
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from tests.support.cluster import OTHER_QUERY, QUERY, SCHEMA, WIDER, Cluster, lance_engine
from tests.support.faults import FailAt
from tests.support.loop import LEDGER, Loop
from tests.support.prefork import PROGRAM
from tests.support.s3 import S3Place
from tests.support.served_command import Served, environment, serve, serving

pytestmark = pytest.mark.e2e

QUERY_BLOB = f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq"
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada"}'}
ADA = {"Authorization": "Bearer t-ada"}


@pytest.fixture(scope="module")
def converged(tmp_path_factory) -> Path:
    """A cluster folder with one graph, applied; not to be changed."""
    cluster = Cluster(tmp_path_factory.mktemp("applied"), engine=lance_engine())
    cluster.policies = {}
    cluster.save()
    cluster.converge()
    return cluster.folder


@pytest.fixture
def folder(converged, tmp_path) -> Path:
    """A copy of it, without the reports of servers that other tests started on it."""
    return Path(shutil.copytree(converged, tmp_path / "cluster", ignore=shutil.ignore_patterns("serving")))


@pytest.mark.parametrize("other", [["--config", "x.yaml"], ["--target", "prod"], ["/data/graph"]])
def test_02_a_second_source_is_refused_before_any_file_is_opened(other):
    refused = serve("--cluster", "/does/not/exist", *other)
    assert refused.returncode == 2
    assert "exclusive_boot_source" in refused.stderr
    assert refused.stdout == ""


def test_without_a_source_the_command_line_is_wrong():
    refused = serve()
    assert refused.returncode == 2
    assert "gitops serve --cluster DIR" in refused.stderr


def test_04_and_05_a_refusal_says_for_each_problem_what_to_do(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    empty = serve("--cluster", str(tmp_path / "empty"), "--unauthenticated")
    assert empty.returncode == 1
    assert empty.stderr.splitlines()[:2] == [
        f"the cluster at '{tmp_path}/empty' is not ready to serve",
        f"ERROR cluster_config_read_error --cluster: {tmp_path}/empty has neither a cluster.yaml nor a ledger",
    ]
    assert "gitops init" in empty.stderr
    (folder / QUERY_BLOB).write_bytes(b"tampered between two boots")
    tampered = serve("--cluster", str(folder), "--unauthenticated")
    assert tampered.returncode == 1
    assert "catalog_payload_digest_mismatch query.knowledge.find_person" in tampered.stderr


def test_check_says_as_json_whether_a_server_would_start(folder):
    good = serve("--cluster", str(folder), "--check", "--json", "--unauthenticated")
    assert (good.returncode, json.loads(good.stdout)["ok"]) == (0, True)
    (folder / QUERY_BLOB).unlink()
    bad = serve("--cluster", str(folder), "--check", "--json", **TOKENS)
    assert bad.returncode == 1
    assert [each["code"] for each in json.loads(bad.stdout)["diagnostics"]] == ["catalog_payload_missing"]


def test_19_the_environment_opens_a_server_only_with_a_word_that_says_yes(converged):
    assert serve("--cluster", str(converged), "--check", OMNIGRAPH_UNAUTHENTICATED="false").returncode == 1
    assert serve("--cluster", str(converged), "--check", OMNIGRAPH_UNAUTHENTICATED="1").returncode == 0


def test_a_server_without_tokens_listens_on_this_machine_only(converged):
    exposed = serve("--cluster", str(converged), "--unauthenticated", "--bind", "0.0.0.0:0")
    assert (exposed.returncode, exposed.stdout) == (1, "")
    assert "open_server_exposed" in exposed.stderr
    (remedy,) = re.findall("gitops serve .*", exposed.stderr)
    assert remedy == f"gitops serve --cluster {converged} --unauthenticated --bind 127.0.0.1:8080"
    assert serve("--cluster", str(converged), "--unauthenticated", "--bind", "0.0.0.0:0", "--check").returncode == 1


@pytest.mark.parametrize("given", [(), ("--bind", "0.0.0.0:0"), ("--unauthenticated", "--bind=0.0.0.0:0")])
def test_a_printed_command_keeps_the_options_that_were_typed_and_is_accepted(converged, given):
    typed = ("--allow-degraded", "--cluster", str(converged), *given)
    refused = serve(*typed)
    (remedy,) = re.findall("gitops serve (.*)", refused.stderr)
    assert (refused.returncode, remedy.startswith(f"--allow-degraded --cluster {converged} ")) == (1, True)
    assert serve(*remedy.split(), "--check").returncode == 0


def test_a_strict_graph_that_is_not_applied_refuses_a_start(converged):
    options = ("--cluster", str(converged), "--unauthenticated", "--bind", "127.0.0.1:0", "--check")
    assert serve(*options, "--strict-changes", "knowledge").returncode == 0
    refused = serve(*options, "--strict-changes", "knowledge", "--strict-changes", "knowlege")
    assert refused.returncode == 1
    assert "graph_unknown" in refused.stdout + refused.stderr
    assert "known: knowledge" in refused.stdout + refused.stderr


def test_01_03_and_14_a_server_serves_what_was_applied_when_it_started(folder):
    (folder / "omnigraph.yaml").write_text("}broken: [", "utf-8")
    with serving("--cluster", ".", "--unauthenticated", cwd=folder) as server:
        (entry,) = server.client.get("/graphs/knowledge/queries").json()["queries"]
        assert entry["name"] == "find_person"
        found = server.client.post("/graphs/knowledge/queries/find_person", json={"params": {"h": "ada"}})
        assert (found.status_code, found.json()["row_count"]) == (200, 0)
        before = found.headers["Omnigraph-Applied-Revision"]
        assert before == f"sha256:{digest((folder / '__cluster/state.json').read_bytes())}"
        cluster = Cluster(folder, engine=lance_engine())
        cluster.write("people.gq", QUERY.replace("find_person", "other"))
        cluster.graphs, cluster.policies = {"knowledge": {"other": "people.gq"}}, {}
        cluster.save()
        cluster.converge()
        assert server.client.get("/graphs/knowledge/queries").json()["queries"] == [entry]
        assert server.client.get("/healthz").headers["Omnigraph-Applied-Revision"] == before
        assert server.stop() == 0
        assert "OPEN: this server" in server.log()


def test_21_and_23_with_tokens_alone_a_graph_can_be_read_by_their_holders(converged):
    environ = {**TOKENS, "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "some"}
    with serving("--cluster", str(converged), "--hide-graphs", environ=environ) as server:
        client = server.client
        assert client.get("/graphs/knowledge/queries").status_code == 401
        assert client.get("/graphs/knowledge/queries", headers={"Authorization": "Basic x"}).status_code == 401
        assert client.get("/graphs/knowledge/queries", headers=ADA).status_code == 200
        assert client.get("/graphs", headers=ADA).status_code == 403
        assert client.post("/graphs/knowledge/queries/find_person", headers=ADA, json={}).status_code == 404
        assert client.get("/healthz").status_code == 200
        assert server.stop(signal.SIGINT) == 0
        log = server.log()
        assert "no policy is bound" in log
        assert "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX is not a whole number above 0; 16 is used" in log


def test_tokens_are_read_again_at_a_signal(converged, tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"ada": "old"}', "utf-8")
    with serving("--cluster", str(converged), environ={"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(file)}) as server:
        file.write_text('{"ada": "t-ada"}', "utf-8")
        server.process.send_signal(signal.SIGHUP)
        server.await_line("the tokens were read again")
        assert server.client.get("/graphs/knowledge/queries", headers=ADA).status_code == 200


def test_the_admin_address_answers_during_the_boot_and_ends_with_its_server(converged, tmp_path_factory):
    """The boot waits for its tokens; then the server is killed."""
    place = tmp_path_factory.mktemp("t")
    os.mkfifo(place / "tokens.json")
    variables = {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": str(place / "tokens.json"), "TMPDIR": str(place)}
    command = [sys.executable, "-m", "gitops", "serve", "--cluster", str(converged), "--admin-bind", ":0"]
    with subprocess.Popen(command, env=environment(**variables), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        with httpx.Client(base_url=f"http://{address}", timeout=30) as client:
            answers = [client.get(path) for path in ("/startupz", "/readyz", "/livez")]
        (folder,) = place.glob("gitops-serve-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        process.kill()
        (place / "tokens.json").write_text("{}", "utf-8")
        process.stderr.read()
    assert [each.status_code for each in answers] == [503, 503, 200]
    assert not folder.exists()


def test_an_admin_address_that_is_taken_is_refused(converged):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = serve("--cluster", str(converged), "--admin-bind", str(port))
    assert refused.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert "--admin-bind" in refused.stderr


def connect_for_ever(host: str, port: int) -> None:
    while True:
        # At the moment in which the listener closes, the system resets what it had taken and no worker had.
        with contextlib.suppress(ConnectionResetError):
            socket.create_connection((host, port)).close()


@pytest.mark.slow
def test_the_admin_address_sums_workers_keeps_what_was_counted_and_sees_the_drain(converged, tmp_path_factory):
    place = tmp_path_factory.mktemp("t")
    options = "--cluster", str(converged), "--unauthenticated", "--workers", "2", "--admin-bind", "0"
    with serving(*options, environ={"TMPDIR": str(place)}) as server:
        assert server.process.stderr is not None
        address = server.process.stderr.readline().split()[-1]
        with httpx.Client(base_url=f"http://{address}", timeout=30) as admin:

            def until_ready() -> None:
                while admin.get("/readyz?strict=1").status_code != 200:
                    pass

            def counted(name: str) -> float:
                lines = [line for line in admin.get("/metrics").text.splitlines() if line.startswith(name)]
                return sum(float(line.rpartition(" ")[2]) for line in lines)

            until_ready()
            first = set(server.workers)
            for _ in range(20):
                asked = server.client.get("/healthz", headers={"Connection": "close"})
                assert asked.status_code == 200
            while counted("omnigraph_http_requests_total") < 20:
                pass  # A request is counted when its answer is on its way.
            for worker in first:
                # One of them is the process of the admin address itself.
                os.kill(worker, signal.SIGKILL)
                server.await_line("replaced" if worker == min(first) else "takes the place of")
            until_ready()
            server.client.get("/healthz", headers={"Connection": "close"})
            assert not first & set(server.workers)
            assert counted("omnigraph_http_requests_total") == 21
            assert counted("omnigraph_worker_restarts_total") == 2
            assert counted("omnigraph_workers_answering") == 2
            host, port = server.client.base_url.host, server.client.base_url.port
            with socket.create_connection((host, port or 0)) as slow:
                slow.sendall(
                    b"POST /graphs/knowledge/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                )
                slow.sendall(b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n")
                assert slow.recv(100).startswith(b"HTTP/1.1 100")
                server.process.send_signal(signal.SIGTERM)
                while admin.get("/readyz").status_code == 200:
                    pass
                assert (admin.get("/livez").status_code, admin.get("/startupz").status_code) == (200, 200)
                # Who comes now is refused at once, and goes to another server.
                with pytest.raises(ConnectionRefusedError):
                    connect_for_ever(host, port or 0)
                slow.sendall(b"{}")
                assert slow.recv(100).startswith(b"HTTP/1.1 400")
        assert server.process.wait(30) == 0
    assert not list(place.glob("gitops-serve-*"))


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_and_serves_the_same_revision(folder):
    with serving("--cluster", str(folder), "--unauthenticated", "--workers", "2") as server:
        revision = server.client.get("/healthz").headers["Omnigraph-Applied-Revision"]
        first = set(server.workers)
        assert len(first) == 2
        (folder / QUERY_BLOB).write_bytes(b"tampered between two boots")
        os.kill(min(first), signal.SIGKILL)
        server.await_line("takes the place of")
        answers = [server.client.get("/healthz", headers={"Connection": "close"}) for _ in range(10)]
        assert {(each.status_code, each.headers["Omnigraph-Applied-Revision"]) for each in answers} == {(200, revision)}
        assert server.stop() == 0


STUCK = {"query": "query stuck() { match { $p: Person } return { $p.handle } }"}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_with_a_query_that_cannot_be_stopped_is_replaced(converged, workers):
    options = "--cluster", str(converged), "--unauthenticated", "--no-report"
    with serving(*options, "--workers", str(workers), program="tests.support.stuck") as server:
        first = set(server.workers)
        answer = server.client.post("/graphs/knowledge/query", json=STUCK)
        assert (answer.status_code, answer.json()["resource_limit"]) == (413, {"reason": "query_timeout"})
        server.await_line("ERROR   stuck")
        server.await_line("takes the place of")
        assert len(first) == workers
        assert len(first & set(server.workers)) == workers - 1
        answers = [server.client.get("/healthz", headers={"Connection": "close"}) for _ in range(6)]
        assert {each.status_code for each in answers} == {200}
        assert server.stop() == 0


@pytest.mark.slow
def test_a_single_process_with_a_query_that_cannot_be_stopped_says_so(converged):
    options = "--cluster", str(converged), "--unauthenticated", "--no-report"
    with serving(*options, program="tests.support.stuck") as server:
        assert server.client.post("/graphs/knowledge/query", json=STUCK).status_code == 413
        unhealthy = server.client.get("/healthz")
        assert (unhealthy.status_code, unhealthy.json()["stuck_queries"]) == (503, 1)
        # Its thread does not keep the process from ending.
        assert server.stop() == 0


@pytest.mark.slow
def test_a_newer_revision_is_served_without_a_restart_by_every_process(folder):
    """By request, and by watching; a worker that takes the place of another serves what the others do."""

    def publish(name: str) -> str:
        cluster = Cluster(folder, engine=lance_engine())
        cluster.write("people.gq", QUERY.replace("find_person", name))
        cluster.graphs, cluster.policies = {"knowledge": {name: "people.gq"}}, {}
        cluster.save()
        cluster.converge()
        return f"sha256:{digest((folder / '__cluster/state.json').read_bytes())}"

    def asked() -> set[str]:
        close = {"Connection": "close"}
        return {server.client.get("/healthz", headers=close).headers["Omnigraph-Applied-Revision"] for _ in range(6)}

    environ = {**TOKENS}
    with serving("--cluster", str(folder), "--workers", "2", environ=environ) as server:
        revision = publish("other")
        assert server.client.post("/-/reload", headers=ADA).status_code == 403
        server.process.send_signal(signal.SIGHUP)
        server.await_line("result=exchanged")
        server.await_line("result=exchanged")
        assert asked() == {revision}
        os.kill(server.workers[0], signal.SIGKILL)
        server.await_line("takes the place of")
        assert asked() == {revision}
        assert server.stop() == 0
    with serving("--cluster", str(folder), "--watch", "1s", environ=environ) as server:
        revision = publish("third")
        server.await_line("result=exchanged")
        assert asked() == {revision}
        assert server.stop() == 0


@pytest.mark.slow
def test_workers_end_when_their_supervisor_is_killed(converged):
    with serving("--cluster", str(converged), "--unauthenticated", "--workers", "2") as server:
        assert server.client.get("/healthz").status_code == 200
        ends = [os.pidfd_open(worker) for worker in server.workers]
        server.process.kill()
        for end in ends:
            # A descriptor of a process is readable when the process has ended.
            assert select.select([end], [], [], 60)[0]
            os.close(end)


def test_a_storage_root_on_disk_is_served_without_its_configuration(folder):
    (folder / "cluster.yaml").unlink()
    checked = serve("--cluster", f"file://{folder}", "--check", "--unauthenticated")
    assert (checked.returncode, "graph knowledge" in checked.stdout) == (0, True)
    folder_itself = serve("--cluster", str(folder), "--check", "--unauthenticated")
    assert folder_itself.stdout == checked.stdout
    (folder / "cluster.yaml").write_text("version: [", "utf-8")
    assert "invalid_cluster_yaml" in serve("--cluster", str(folder), "--unauthenticated").stderr


def test_a_folder_serves_no_revision_but_its_newest(folder):
    newest = digest((folder / "__cluster/state.json").read_bytes())
    options = ("--cluster", str(folder), "--check", "--unauthenticated", "--revision")
    assert serve(*options, f"sha256:{newest}").returncode == 0
    refused = serve(*options, "0" * 64)
    assert (refused.returncode, "revision_unknown" in refused.stdout) == (1, True)


@pytest.mark.slow
def test_18_a_bucket_is_served_without_local_files(s3: S3Place, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.options["storage"], cluster.policies = s3.root, {}
    cluster.save()
    for verb in ("import", "apply"):
        command = [*PROGRAM, verb, "--config", str(cluster.folder)]
        subprocess.run(command, env=environment(**s3.environ), check=True, capture_output=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with serving(
        "--cluster", s3.root, "--unauthenticated", "--workers", "2", cwd=elsewhere, environ=s3.environ
    ) as server:
        (entry,) = server.client.get("/graphs/knowledge/queries").json()["queries"]
        assert entry["name"] == "find_person"
        found = server.client.post("/graphs/knowledge/queries/find_person", json={"params": {"h": "ada"}})
        assert (found.status_code, found.json()["rows"]) == (200, [])
        assert server.stop() == 0


@pytest.mark.slow
def test_a_branch_ledger_is_verified_and_each_of_its_revisions_can_be_served(loop: Loop):
    environ = {**loop.environment("bot"), **TOKENS}
    options = ("--repo", str(loop.server), "--cluster", "brain", "--check", "--json")
    states = {digest(data): head for head, data in history(loop)}
    newest, first = next(iter(states)), next(reversed(states))
    served = serve(*options, **environ)
    assert (served.returncode, json.loads(served.stdout)["state_observations"]["state_cas"]) == (0, f"sha256:{newest}")
    past = serve(*options, "--revision", first, **environ)
    assert [each["code"] for each in json.loads(past.stdout)["diagnostics"]] == ["cluster_empty"]
    unknown = serve(*options, "--revision", "0" * 64, **environ)
    assert [each["code"] for each in json.loads(unknown.stdout)["diagnostics"]] == ["revision_unknown"]
    rewound = loop.store.commit(loop.tip(LEDGER)).parents[0]
    loop.program("bot", "git", "-C", str(loop.server), "update-ref", LEDGER, rewound, at=loop.folder)
    refused = serve(*options, **environ)
    assert (refused.returncode, json.loads(refused.stdout)["diagnostics"][0]["code"]) == (1, "ledger_diverged")


@pytest.mark.slow
def test_a_server_of_a_branch_ledger_reports_beside_the_graphs(loop: Loop):
    environ = {**loop.environment("bot"), **TOKENS}
    at = ("--repo", str(loop.server), "--cluster", "brain")
    with serving(*at, "--watch", "1s", "--replica", "web-5", environ=environ) as server:
        server.await_line("reports what it serves as web-5")
        command = [*PROGRAM, "status", *at, "--json"]
        shown = subprocess.run(command, env=environment(**environ), capture_output=True, text=True, check=True)
        ((replica, state),) = [(each["replica"], each["state"]) for each in json.loads(shown.stdout)["serving"]]
        assert (replica, state) == ("web-5", "serves")
        assert server.stop() == 0


def history(loop: Loop) -> Iterator[tuple[str, bytes]]:
    """The entries of the ledger with their states, the newest first."""
    head: str | None = loop.tip(LEDGER)
    while head is not None:
        commit = loop.store.commit(head)
        yield head, loop.store.read(commit.tree, "__cluster/state.json") or b""
        head = next(iter(commit.parents), None)


def replica_at(folder: Path, name: str) -> Path:
    """The report of a server, which it has written already."""
    return folder / f"__cluster/serving/{name}.json"


def program(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another command on the cluster."""
    command = [*PROGRAM, *arguments, "--config", str(folder)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)


def test_an_apply_waits_until_a_server_serves_it(folder):
    """The server reports, follows, is waited for, and takes its report back; one that is killed leaves it to expire."""
    with serving("--cluster", str(folder), "--unauthenticated", "--watch", "1s", "--replica", "web-1") as server:
        server.await_line("reports what it serves as web-1")
        cluster = Cluster(folder, engine=lance_engine())
        cluster.write("people.gq", QUERY.replace("find_person", "other"))
        cluster.graphs, cluster.policies = {"knowledge": {"other": "people.gq"}}, {}
        cluster.save()
        applied = program(folder, "apply", "--wait-serving", "--json")
        assert applied.returncode == 0, applied.stdout + applied.stderr
        ((state, replica),) = [(each["state"], each["replica"]) for each in json.loads(applied.stdout)["serving"]]
        assert (state, replica) == ("serves", "web-1")
        served = server.client.get("/healthz").headers["Omnigraph-Applied-Revision"]
        assert served == f"sha256:{digest((folder / '__cluster/state.json').read_bytes())}"
        assert server.stop() == 0
        assert not replica_at(folder, "web-1").exists()


@pytest.mark.slow
def test_several_processes_are_one_server_whose_report_outlives_a_kill(folder):
    arguments = ("--cluster", str(folder), "--unauthenticated", "--workers", "2", "--replica", "web-2")
    with serving(*arguments) as server:
        server.await_line("reports what it serves as web-2")
        cluster = Cluster(folder, engine=lance_engine())
        cluster.write("people.gq", QUERY.replace("find_person", "other"))
        cluster.graphs, cluster.policies = {"knowledge": {"other": "people.gq"}}, {}
        cluster.save()
        late = program(folder, "apply", "--wait-serving=1s", "--json")
        assert late.returncode == 3
        assert [each["code"] for each in json.loads(late.stdout)["diagnostics"]] == ["serving_not_reached"]
        assert "behind, and looks for a newer one only when asked" in program(folder, "status").stdout
        server.process.send_signal(signal.SIGHUP)
        assert program(folder, "apply", "--wait-serving").returncode == 0
        for worker in server.workers:
            os.kill(worker, signal.SIGSTOP)
        workers = server.workers
        server.process.kill()
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        report = SERVER_REPORT.read(replica_at(folder, "web-2").read_bytes())
        written = parse_timestamp(report.at)
        assert report.is_live(written)
        assert not report.is_live(written + timedelta(seconds=report.ttl_s))


@pytest.mark.slow
def test_a_server_that_refuses_what_is_applied_is_named_with_what_to_do(folder):
    with serving("--cluster", str(folder), "--unauthenticated", "--replica", "web-3") as server:
        server.await_line("reports what it serves as web-3")
        cluster = Cluster(folder, engine=lance_engine())
        other = QUERY.replace("find_person", "other")
        cluster.write("people.gq", other)
        cluster.graphs, cluster.policies = {"knowledge": {"other": "people.gq"}}, {}
        cluster.save()
        cluster.converge()
        blob = folder / f"__cluster/resources/query/knowledge/other/{digest(other.encode())}.gq"
        blob.write_bytes(b"tampered while running")
        server.process.send_signal(signal.SIGHUP)
        server.await_line("result=refused")
        refused = program(folder, "apply", "--wait-serving")
        assert refused.returncode == 4, refused.stdout + refused.stderr
        assert "web-3 refuses revision" in refused.stdout
        assert "catalog_payload_digest_mismatch" in refused.stdout
        assert "fix: " in refused.stdout


@pytest.mark.slow
def test_a_server_that_may_not_report_warns_of_it_and_serves(folder):
    (folder / "__cluster/serving").write_text("in the way", "utf-8")
    with serving("--cluster", str(folder), "--unauthenticated", "--replica", "web-4") as server:
        server.await_line("what is served is not reported")
        assert server.client.get("/graphs/knowledge/queries").status_code == 200
        assert server.stop() == 0
    (folder / "__cluster/serving").unlink()
    with serving("--cluster", str(folder), "--unauthenticated", "--no-report") as server:
        assert server.stop() == 0
    assert not (folder / "__cluster/serving").exists()


OPEN = ("--unauthenticated",)
TWO_TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada", "ben": "t-ben"}'}
POLICY = """\
version: 1
groups: {team: [ada]}
rules:
  - id: all
    allow:
      actors: {group: team}
      actions: [%s]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A converged cluster of one graph, without policies."""
    made = Cluster(tmp_path, engine=lance_engine())
    made.policies = {}
    made.save()
    made.converge()
    return made


def apply(cluster: Cluster, **policies: tuple[str, list[str]]) -> None:
    """Apply policies with these actions and bindings."""
    for name, (actions, bindings) in policies.items():
        cluster.write(f"{name}.policy.yaml", POLICY % actions)
        cluster.policies[name] = bindings
    cluster.save()
    cluster.converge()


def refused(cluster: Cluster, *options: str, environ: Mapping[str, str] = TWO_TOKENS) -> list[str]:
    """The codes and places of the problems that the program names, each with a remedy."""
    ended = serve("--cluster", str(cluster.folder), "--bind", "127.0.0.1:0", *options, **environ)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert lines[0] == f"the cluster at '{cluster.folder}' is not ready to serve"
    errors = [line for line in lines if line.startswith("ERROR ")]
    assert len([line for line in lines if line.startswith("      fix: ")]) >= len(errors)
    return [line.removeprefix("ERROR ").partition(": ")[0] for line in errors]


def served(cluster: Cluster, *options: str, environ: Mapping[str, str] = TWO_TOKENS) -> Any:
    return serving("--cluster", str(cluster.folder), *options, environ=environ)


def queries(server: Served, graph: str = "knowledge", actor: str = "ada") -> tuple[int, list[str]]:
    """The status and the names of the stored queries."""
    answer = server.client.get(f"/graphs/{graph}/queries", headers={"Authorization": f"Bearer t-{actor}"})
    return answer.status_code, [each["name"] for each in answer.json().get("queries", ())]


def record(cluster: Cluster, **resources: AppliedResource) -> None:
    """Record something else than was applied; `__` stands for the dots of an address."""
    changed = {name.replace("__", "."): each for name, each in resources.items()}
    cluster.put_state(replace(cluster.state, resources={**cluster.state.resources, **changed}))


@pytest.mark.slow
def test_05_and_06_texts_and_bindings_are_those_that_were_applied(cluster):
    apply(cluster, base=("read", ["knowledge"]))
    text = (POLICY % "read").encode()
    query, policy = (
        f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq",
        f"__cluster/resources/policy/base/{digest(text)}.yaml",
    )
    cluster.plant(query, b"tampered")
    cluster.plant(policy, None)
    assert refused(cluster) == [
        "catalog_payload_missing policy.base",
        "catalog_payload_digest_mismatch query.knowledge.find_person",
    ]
    cluster.plant(query, QUERY.encode())
    cluster.plant(policy, text)
    record(cluster, policy__base=AppliedResource(digest(text)))
    assert "policy_bindings_missing policy.base" in refused(cluster)
    cluster.converge()
    with served(cluster) as server:
        assert (queries(server)[0], queries(server, actor="ben")[0]) == (200, 403)


@pytest.mark.slow
def test_07_and_08_an_interrupted_operation_refuses_a_start_and_a_held_lock_does_not(cluster):
    cluster.write("knowledge.pg", WIDER)
    cluster.apply(faults=FailAt("cluster_apply.after_schema_apply"))
    assert refused(cluster, *OPEN, environ={})[0].startswith("cluster_recovery_pending __cluster/recoveries/")
    cluster.converge()
    held = cluster.hold_lock()
    with served(cluster, *OPEN, environ={}) as server:
        assert queries(server) == (200, ["find_person"])
        assert server.client.get("/graphs/knowledge/schema").json() == {"schema_source": WIDER}
    assert cluster.stored(LOCK) == held


@pytest.mark.slow
def test_09_and_10_a_ledger_that_is_newer_malformed_or_empty_refuses_a_start(cluster):
    state = json.loads(cluster.state_bytes)
    cluster.plant(STATE, json.dumps({**state, "version": 2}).encode())
    assert refused(cluster) == ["unsupported_state_version state.version"]
    cluster.plant(STATE, json.dumps({**state, "stray": 1}).encode())
    assert refused(cluster)[0].startswith("invalid_state_json ")
    cluster.put_state(LedgerState(revision=3))
    assert refused(cluster) == ["cluster_empty graphs"]


@pytest.mark.slow
def test_11_17_and_20_policies_and_graphs_of_a_server(cluster):
    """A policy of two graphs, one on the server; then one graph does not open."""
    cluster.graphs["second"] = {}
    apply(cluster, base=("read", ["knowledge", "second"]), server=("graph_list", ["cluster"]))
    assert refused(cluster, *OPEN, environ={}) == ["policy_without_tokens bearer tokens"]
    ada = {"Authorization": "Bearer t-ada"}
    with served(cluster, "--hide-graphs") as server:
        assert [queries(server, graph)[0] for graph in ("knowledge", "second")] == [200, 200]
        assert [queries(server, graph, "ben")[0] for graph in ("knowledge", "second")] == [404, 404]
        listed = server.client.get("/graphs", headers=ada).json()["graphs"]
        assert [each["graph_id"] for each in listed] == ["knowledge", "second"]
    shutil.move(cluster.uri("second"), cluster.folder / "moved")
    assert refused(cluster) == ["graph_missing graph.second"]
    assert refused(cluster, "--allow-degraded", "--require-all-graphs") == ["graph_missing graph.second"]
    with served(cluster, "--allow-degraded") as server:
        assert (queries(server)[0], queries(server, "second")[0]) == (200, 404)
        listed = server.client.get("/graphs", headers=ada).json()["graphs"]
        assert [each["graph_id"] for each in listed] == ["knowledge"]
    shutil.move(cluster.folder / "moved", cluster.uri("second"))
    text = (POLICY % "read").encode()
    cluster.plant(f"__cluster/resources/policy/other/{digest(text)}.yaml", text)
    record(cluster, policy__other=AppliedResource(digest(text), ("graph.knowledge",)))
    assert refused(cluster) == ["policy_scope_conflict graph.knowledge"]


@pytest.mark.slow
def test_12_and_13_what_is_served_is_what_was_applied_and_still_holds(cluster):
    cluster.write("people.gq", OTHER_QUERY)
    cluster.converge()
    cluster.write("people.gq", "broken")
    cluster.write("knowledge.pg", WIDER)
    cluster.write("cluster.yaml", "version: 1\ngraphs: {}\n")
    with served(cluster, *OPEN, environ={}) as server:
        assert queries(server) == (200, ["find_person"])
        assert server.client.get("/graphs/knowledge/schema").json() == {"schema_source": SCHEMA}
        found = server.client.post("/graphs/knowledge/queries/find_person", json={"params": {"h": "ada"}})
        assert (found.status_code, found.json()["rows"]) == (200, [])
    cluster.migrate_graph("knowledge", SCHEMA.replace("  born: I32?\n", ""))
    assert refused(cluster, *OPEN, environ={}) == ["stored_query_check_failed query.knowledge.find_person"]


@pytest.mark.slow
@pytest.mark.parametrize(("action", "scope"), [("graph_list", "graph.knowledge"), ("read", "cluster")])
def test_15_a_rule_of_the_other_kind_refuses_a_start(cluster, action, scope):
    text = (POLICY % action).encode()
    cluster.plant(f"__cluster/resources/policy/base/{digest(text)}.yaml", text)
    record(cluster, policy__base=AppliedResource(digest(text), (scope,)))
    ended = serve("--cluster", str(cluster.folder), **TWO_TOKENS)
    assert ended.returncode == 1
    assert "policy_kind_mismatch" in ended.stderr
    assert "fix: move the action to a policy that is bound to" in ended.stderr


@pytest.mark.slow
def test_16_a_graph_whose_id_no_server_takes_is_not_declared_and_not_served(cluster):
    cluster.make_graph("my_graph")
    schema = AppliedResource(digest(SCHEMA.encode()))
    record(cluster, graph__my_graph=AppliedResource("0" * 64), schema__my_graph=schema)
    assert refused(cluster, *OPEN, environ={}) == ["graph_id_unservable graph.my_graph"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "environ",
    [
        {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": "FILE", "OMNIGRAPH_SERVER_BEARER_TOKEN": "two"},
        {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "same", "ben": "same"}'},
    ],
)
def test_25_and_26_an_actor_has_one_token_and_a_token_one_actor(cluster, environ):
    file = cluster.folder / "tokens.json"
    file.write_text('{"default": "one"}', "utf-8")
    found = {name: str(file) if value == "FILE" else value for name, value in environ.items()}
    assert refused(cluster, environ=found) == ["token_source_invalid bearer tokens"]


@pytest.mark.slow
def test_a_process_takes_as_many_connections_as_it_is_told(cluster: Cluster) -> None:
    with served(cluster, *OPEN, environ={"OMNIGRAPH_MAX_CONNECTIONS": "3"}) as server, ExitStack() as stack:
        address = server.client.base_url.host, server.client.base_url.port or 0
        answers = []
        for _ in range(4):
            client = stack.enter_context(socket.create_connection(address, timeout=30))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with suppress(ConnectionError):
                answers.append(client.recv(12))
        assert [each for each in answers if each] == [b"HTTP/1.1 200"] * 3
