"""The admin address: probes over HTTP, how workers are asked, and the numbers that they count."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from prometheus_client import values
from prometheus_client.parser import text_string_to_metric_families as families

from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.cluster.policy.decide import AccessDecision, AccessRequest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.database.graph import ReadCache, open_snapshot
from gitops.repository.wiring.system import RandomIds, SystemClock
from gitops.serving import metrics as module
from gitops.serving.generation import Generation, PolicyCover, ServedGraph
from gitops.serving.http.admin import AdminApp, Asked, Load, ProcessStatus, StatusDoor, ask_workers
from gitops.serving.http.app import ROUTES
from gitops.serving.http.work import HttpContext, HttpLimits
from gitops.serving.metrics import EXPORTS, ServingMetrics, exposition
from gitops.serving.process import Reload, ReloadResult, ServingGeneration
from tests.support.pages import ROOT
from tests.support.query_server import BundleEngine, generation, running, served, serving, tokens, town_graph

CONTRACT = ROOT / "tests/data/serving/metrics.tsv"
ADMINS = Bundle({"admins": ("ada",)}, rules=(Rule("list", "admins", (PolicyAction.GRAPH_LIST,)),))
SERVED, NEWER = RevisionIdentity("ab" * 32, 1, None), RevisionIdentity("cd" * 32, 3, None)
TAB = "\t"


@pytest.fixture(autouse=True)
def own_numbers(monkeypatch) -> Iterator[None]:
    """The library keeps its files as globals of a process."""
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    yield
    values.close_all_multiprocess_files()


def refused() -> Reload:
    found = Diagnostics()
    found.add(Code.STORED_QUERY_CHECK_FAILED, "query.towns.town", "it does not fit")
    return Reload(ReloadResult.REFUSED, SERVED, NEWER, tuple(found), behind=2)


def two_graphs() -> Generation:
    """One graph that is served, and one that is quarantined."""
    graph = ServedGraph("towns", "/nowhere", None, b"", "", {}, None, ReadCache())  # type: ignore[arg-type]
    found = Diagnostics()
    found.add(Code.GRAPH_MISSING, "graph.lakes", "its folder is missing")
    return replace(generation(graph, engine=BundleEngine(ADMINS)), quarantined={"lakes": tuple(found)})


class Worker:
    """What a worker says, of a generation that can be exchanged."""

    def __init__(self, made: Generation, place: Path = Path("/nowhere/0")) -> None:
        known, clock = tokens(ada="t-ada", bob="t-bob"), SystemClock()
        self.pending: Reload | None = None
        self.load = Load(3, 2, 1)
        self.source = ServingGeneration(made, clock.now)
        context = HttpContext(
            self.source, PolicyCover.POLICY_ENABLED, lambda: known, clock, RandomIds(), lambda _: None, HttpLimits()
        )
        self.door = StatusDoor(place, context, self.source, lambda: self.pending, lambda: self.load)


class Admin:
    """An admin address over workers of which a test decides how many answer."""

    def __init__(self, *workers: Worker) -> None:
        self.answering, self.silent, self.log = list(workers), 0, list[str]()
        self.wanted = len(workers)
        self.failure: Exception | None = None

    async def ask(self, question: Mapping[str, Any]) -> Asked:
        if self.failure is not None:
            raise self.failure
        sent = [(await each.door.status(question)).form for each in self.answering]
        return Asked(tuple(ProcessStatus.of_form(form) for form in sent), self.silent)

    @contextmanager
    def address(self, folder: Path = Path("/nowhere")) -> Iterator[httpx.Client]:
        def numbers(asked: Asked) -> tuple[str, bytes]:
            return exposition(folder, asked, self.wanted, 1e9)

        app = AdminApp(self.ask, self.wanted, numbers, self.log.append)
        with serving(app) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            yield client


def test_a_server_has_started_once_all_workers_have_answered(tmp_path):
    admin = Admin(Worker(two_graphs()), Worker(two_graphs()))
    late = admin.answering.pop()
    with admin.address() as client:
        assert (client.get("/startupz").status_code, client.get("/livez").status_code) == (503, 200)
        admin.answering.append(late)
        assert client.get("/startupz").json() == {"started": True}
        admin.answering.clear()
        assert client.get("/startupz").status_code == 200


def test_a_server_is_ready_while_all_workers_answer_and_live_while_none_hangs():
    admin = Admin(Worker(two_graphs()), Worker(two_graphs()))
    with admin.address() as client:
        assert client.get("/readyz").json() == {
            "ready": True,
            "reasons": [],
            "workers": {"wanted": 2, "answering": 2},
            "state_revision": 7,
            "applied_digest": f"sha256:{'ab' * 32}",
            "config_digest": "cd" * 32,
            "converged": True,
            "graph_counts": {"ready": 1, "quarantined": 1},
            "pending_revision": None,
        }
        admin.answering.pop()
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["1 of 2 workers do not respond"])
        assert client.get("/livez").status_code == 200
        admin.silent = 1
        assert client.get("/livez").status_code == 503


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:9464", None, 200),
        ("localhost:9000", None, 200),
        ("127.0.0.1", "http://127.0.0.1", 200),
        ("evil.example:9464", None, 421),
        ("evil.example:9464", "http://evil.example:9464", 421),
        ("127.0.0.1:9464", "https://evil.example", 403),
    ],
)
def test_a_page_of_another_site_reads_nothing_at_the_admin_address(host, origin, status):
    with Admin(Worker(two_graphs())).address() as client:
        headers = {"Host": host, **({} if origin is None else {"Origin": origin})}
        for path in ("/livez", "/readyz", "/startupz", "/metrics", "/nothing"):
            expected = 404 if (path, status) == ("/nothing", 200) else status
            assert client.get(path, headers=headers).status_code == expected


def test_a_server_with_a_stuck_query_is_not_ready():
    admin = Admin(Worker(two_graphs()), Worker(two_graphs()))
    with admin.address() as client:
        admin.answering[1].load = Load(0, 0, 0, stuck=2)
        answer = client.get("/readyz")
        reasons = ["threads that are blocked by work past its time limit: 2"]
        assert (answer.status_code, answer.json()["reasons"]) == (503, reasons)
        assert client.get("/livez").status_code == 200


def test_strict_readiness_wants_every_graph_and_the_newest_revision():
    sound = Worker(replace(two_graphs(), quarantined={}))
    admin = Admin(sound, sound)
    with admin.address() as client:
        assert client.get("/readyz?strict=1").status_code == 200
        sound.pending = refused()
        answer = client.get("/readyz?strict=1")
        assert (answer.status_code, answer.json()["reasons"]) == (503, ["a newer revision cannot be served"])
        assert answer.json()["pending_revision"]["codes"] == ["stored_query_check_failed"]
        assert client.get("/readyz").status_code == 200
        sound.pending = None
        sound.source.publish(two_graphs())
        assert client.get("/readyz?strict=1").json()["reasons"] == ["quarantined graphs: 1"]
        assert client.get("/readyz?strict=0").status_code == 200


def test_ids_of_graphs_are_for_actors_who_may_list_them():
    admin = Admin(Worker(two_graphs()))
    with admin.address() as client:
        bodies = [
            client.get("/readyz", headers={"Authorization": given}) for given in ("Bearer t-bob", "Bearer x", "Basic x")
        ]
        assert [each.status_code for each in bodies] == [200, 200, 200]
        assert all("towns" not in each.text and "lakes" not in each.text for each in bodies)
        assert client.get("/readyz", headers={"Authorization": "Bearer t-ada"}).json()["graphs"] == [
            {"id": "lakes", "ready": False, "code": "graph_missing"},
            {"id": "towns", "ready": True, "code": None},
        ]


def test_what_the_admin_address_does_not_have_is_refused_and_a_defect_is_logged():
    admin = Admin(Worker(two_graphs()))
    with admin.address() as client:
        assert client.get("/graphs").status_code == 404
        assert client.get("/readyz?strict=yes").status_code == 400
        assert client.get("/livez?strict=1").status_code == 400
        assert client.head("/livez").content == b""
        refusal = client.post("/metrics")
        assert (refusal.status_code, refusal.headers["allow"]) == (405, "GET, HEAD")
        admin.failure = RuntimeError("not foreseen")
        assert (client.get("/livez").status_code, admin.log) == (
            500,
            ["the admin address failed at /livez: RuntimeError: not foreseen"],
        )


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_workers_are_asked_at_their_sockets(run, tmp_path, monkeypatch):
    """One answers, one has ended, one never was, and one hangs: it holds its socket and does not answer."""
    monkeypatch.chdir(tmp_path)
    patience = "gitops.serving.http.admin._PATIENCE_S"
    monkeypatch.setattr(patience, 60)
    folder = Path()

    async def story() -> tuple[Asked, Asked]:
        first, second = Worker(two_graphs(), folder / "0"), Worker(two_graphs(), folder / "1")
        (await second.door.open()).close()
        opened = await first.door.open()
        asked = await ask_workers(folder, 3, {"graphs": True})
        monkeypatch.setattr(patience, 0.05)
        with closing(socket.socket(socket.AF_UNIX)) as hung:
            hung.bind("3.sock")
            hung.listen(0)
            # What waits for an answer fills what its socket takes. On a busy machine the first one may be late as well.
            assert {(await ask_workers(folder, 4, {})).silent for _ in range(4)} <= {1, 2}
        monkeypatch.setattr(patience, 60)
        opened.close()
        # The one that takes its place finds the socket of the one before.
        again = await Worker(two_graphs(), folder / "0").door.open()
        answer = asked, await ask_workers(folder, 1, {})
        again.close()
        return answer

    asked, again = run(story())
    (status,) = asked.statuses
    assert (asked.silent, status.graphs, status.load) == (0, {"lakes": "graph_missing", "towns": None}, Load(3, 2, 1))
    assert [each.graphs for each in again.statuses] == [None]


# Numbers


def record(**changes: Any) -> dict[str, Any]:
    form = {"route": "invoke_query", "status": 200, "bytes": 10, "ms": 20.0, "graph": "towns", "query": "town"}
    return form | changes


def decision(rule: str | None, allowed: bool) -> AccessDecision:
    return AccessDecision(allowed=allowed, rule=rule, known=True, message="")


def samples(folder: Path, *statuses: ProcessStatus) -> dict[str, float]:
    """The numbers without buckets, each by its name with its labels."""
    _, text = exposition(folder, Asked(statuses, 0), 2, 1e9)
    found = [each for family in families(text.decode()) for each in family.samples]
    return {
        each.name.removeprefix("omnigraph_")
        + "".join(f" {value}" for _, value in sorted(each.labels.items())): each.value
        for each in found
        if not each.name.endswith("_bucket")
    }


def test_names_types_and_labels_of_numbers_are_a_contract(tmp_path):
    numbers, worker = ServingMetrics(tmp_path, 0, replaces=False), Worker(two_graphs())
    numbers.answered(record())
    numbers.decided("graph.towns", PolicyAction.READ, decision("readers", True))
    numbers.rejected("changes")
    numbers.reloaded(refused())
    numbers.stuck()
    numbers.refused("expired")
    status = replace(asyncio.run(worker.door.status({"graphs": True})), issuers={"https://login.example": None})
    asked = Asked((status,), 0)
    _, text = exposition(tmp_path, asked, 1, 1e9)
    found = []
    for family in families(text.decode()):
        labels = sorted({name for each in family.samples for name in each.labels} - {"le"})
        suffix = "_total" if family.type == "counter" else ""
        found.append("\t".join((family.name + suffix, family.type, ",".join(labels))).rstrip())
        assert "ada" not in {value for each in family.samples for value in each.labels.values()}
    assert sorted(found) == CONTRACT.read_text("utf-8").splitlines()
    page = (ROOT / "docs/serving-metrics.md").read_text("utf-8")
    assert [each for each in found if f"`{each.partition(TAB)[0]}`" not in page] == []


def test_workers_are_summed_and_one_that_takes_the_place_of_another_goes_on(tmp_path):
    first = ServingMetrics(tmp_path, 0, replaces=False)
    first.answered(record())
    first.answered(record(status=None, route="export", bytes=1000, graph="towns", query=None))
    first.reloaded(refused())
    second = ServingMetrics(tmp_path, 1, replaces=False)
    second.answered(record(status=404, route=None, query=None))
    again = ServingMetrics(tmp_path, 0, replaces=True)
    again.answered(record())
    again.decided("graph.towns", PolicyAction.READ, decision(None, False))
    found = samples(tmp_path)
    assert found["http_requests_total invoke_query 200"] == 2
    assert found["http_requests_total export none"] == found["http_requests_total none 404"] == 1
    assert found["export_bytes_total"] == found["http_response_bytes_total export"] == 1000
    assert found["stored_query_seconds_count towns town"] == 2
    assert found["stored_query_seconds_sum towns town"] == pytest.approx(0.04)
    assert found["worker_restarts_total"] == 1
    assert found["reload_total stored_query_check_failed refused"] == 1
    assert found["policy_decisions_total read deny none graph.towns"] == 1
    assert (found["workers"], found["workers_answering"]) == (2, 0)
    assert "PROMETHEUS_MULTIPROC_DIR" not in os.environ


def test_numbers_of_a_moment_are_those_of_all_workers(tmp_path):
    first, second = Worker(two_graphs()), Worker(replace(two_graphs(), quarantined={}))
    first.pending = refused()
    found = samples(tmp_path, *(asyncio.run(each.door.status({"graphs": True})) for each in (first, second)))
    assert (found["changes_under_way"], found["changes_waiting"], found["exports_open"]) == (6, 4, 2)
    assert (found["graph_ready lakes"], found["graph_ready towns"]) == (0, 1)
    assert (found["serving_lag_revisions"], found["state_revision"]) == (2, 7)
    assert found[f"applied_revision_info sha256:{'ab' * 32}"] == 1


def test_beyond_a_bound_further_values_of_labels_are_one(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_SERIES", 2)
    numbers = ServingMetrics(tmp_path, 0, replaces=False)
    for number in range(5):
        numbers.answered(record(query=f"q{number}"))
    found = samples(tmp_path)
    counts = {name: value for name, value in found.items() if name.startswith("stored_query_seconds_count")}
    assert sorted(counts) == [f"stored_query_seconds_count {each}" for each in ("other other", "towns q0", "towns q1")]
    assert sum(counts.values()) == 5


def test_requests_are_counted_by_routes_and_applied_names_alone(tmp_path):
    numbers = ServingMetrics(tmp_path, 0, replaces=False)
    graph = served(town_graph(tmp_path))
    with running(generation(graph), limits=HttpLimits(inflight=0), observer=numbers) as server:
        server.ask("POST", "/graphs/towns/queries/town", json={"params": {"key": "a"}})
        server.ask("POST", "/graphs/towns/queries/town-of-somebody", json={})
        server.ask("POST", "/graphs/lakes/query", json={})
        server.ask("GET", "/nowhere/at/all")
        server.ask("POST", "/graphs/towns/queries/drop_town", json={"params": {"key": "a"}})
        server.ask("POST", "/graphs/towns/export")
        server.until(lambda: len(server.log) == 6)
    found = samples(tmp_path)
    requests = {name: value for name, value in found.items() if name.startswith("http_requests_total")}
    assert requests == {
        "http_requests_total invoke_query 200": 1,
        "http_requests_total invoke_query 404": 1,
        "http_requests_total none 404": 2,
        "http_requests_total invoke_query 429": 1,
        "http_requests_total export 200": 1,
    }
    assert found["admission_rejected_total changes"] == 1
    assert found["export_bytes_total"] > 0
    assert {name for name in found if name.startswith("stored_query_seconds_count")} == {
        "stored_query_seconds_count towns town",
        "stored_query_seconds_count towns drop_town",
    }
    assert found["policy_decisions_total invoke_query permit none graph.towns"] == 3
    assert set(EXPORTS) <= {each.operation for each in ROUTES}


class BrokenEngine(BundleEngine):
    """Cannot evaluate its policy for some requests."""

    def decide(self, request: AccessRequest) -> AccessDecision:
        if request.query == "add_town":
            raise GitopsError(Code.POLICY_EVALUATION_FAILED, "Cedar cannot decide the request: depth")
        return super().decide(request)


def test_a_decision_that_fails_permits_nothing_and_is_counted(tmp_path):
    numbers = ServingMetrics(tmp_path, 0, replaces=False)
    all_of_it = Bundle(
        {"all": ("ada",)},
        rules=(Rule("all", "all", (PolicyAction.INVOKE_QUERY, PolicyAction.READ, PolicyAction.CHANGE)),),
    )
    graph = served(town_graph(tmp_path), engine=BrokenEngine(all_of_it))
    with running(generation(graph), tokens(ada="t"), observer=numbers) as server:
        for query in ("town", "add_town"):
            sent = {"headers": {"Authorization": "Bearer t"}, "json": {"params": {"key": "z"}}}
            server.ask("POST", f"/graphs/towns/queries/{query}", **sent)
        answers = [(each["status"], each["query"]) for each in server.log if each["event"] == "request"]
    assert answers == [(200, "town"), (500, None)]
    found = samples(tmp_path)
    assert found["policy_decisions_total invoke_query failed none graph.towns"] == 1
    assert found["policy_decisions_total invoke_query permit all graph.towns"] == 1
    assert open_snapshot(graph.uri).manifest.operation == "load"
