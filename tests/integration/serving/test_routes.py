"""Routes of graphs: queries and data."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema_rs
import pytest

from gitops.cli.main import main
from gitops.cluster.policy.bundle import BranchScope, Bundle, PolicyAction, Rule
from gitops.cluster.policy.cedar import CedarEngine
from gitops.core.errors import GitopsError
from gitops.database import graph
from gitops.database.graph import ReadTarget, export_records, list_branches, open_snapshot
from gitops.database.language.query.codes import QUERY_CODES
from gitops.database.language.text import LanguageError
from gitops.repository.wiring.system import SystemClock
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError, StreamAnswer
from gitops.serving.generation import ServedGraph
from gitops.serving.http import call, graph_routes
from gitops.serving.http.app import ROUTES
from gitops.serving.http.bodies import BranchCreateBody, BranchMergeBody, ExportBody, LoadBody, ProblemBody
from gitops.serving.http.call import PieceStream
from gitops.serving.http.graph_routes import cut_pieces
from gitops.serving.http.route import Route, RouteTable
from gitops.serving.http.work import HttpLimits
from tests.support.calls import DirectCall, answer
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.query_graphs import NOW, TOWNS, create, road, town
from tests.support.query_server import QUERIES, BundleEngine, Running, generation, running, served, tokens, town_graph

Asked = tuple[PolicyAction, str | None, str | None]
PIECE_BYTES = 64 * 1024


class Gate:
    """Permits all but some actions, and notes what was asked."""

    def __init__(self, *denied: PolicyAction) -> None:
        self.denied = denied
        self.asked: list[Asked] = []

    def __call__(self, action: PolicyAction, branch: str | None, target_branch: str | None) -> None:
        self.asked.append((action, branch, target_branch))
        if action in self.denied:
            raise ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, f"no rule permits {action}"))


class Place:
    """A served graph of towns, and an actor who works on it."""

    def __init__(self, uri: str) -> None:
        schema = graph.open_snapshot(uri).schema()
        self.served = ServedGraph("towns", uri, schema, TOWNS, "0" * 64, {}, None, graph.ReadCache())
        self.context = SimpleNamespace(clock=FixedClock(NOW), ids=SequentialIds(5_000), embedder=None)

    def ask(self, name: str, gate: Gate | None = None, **given: Any) -> Any:
        """The answer of the handler of this name."""
        call = DirectCall(self.served, gate or Gate(), context=self.context, **given)
        return answer(getattr(graph_routes, name), call)

    def load(
        self, *records: Any, branch: str = "main", origin: str | None = None, mode: Any = "merge", gate: Any = None
    ) -> Any:
        data = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in records)
        body = LoadBody(data=data.decode(), branch=branch, mode=mode, **{"from": origin})
        return self.ask("load_document", gate, body=body)

    def create(self, name: str, gate: Gate | None = None) -> Any:
        return self.ask("create_branch", gate, body=BranchCreateBody(name=name, **{"from": "main"}))

    def delete(self, name: str, gate: Gate | None = None) -> Any:
        return self.ask("delete_branch", gate, values={"branch": name})

    def merge(self, gate: Gate | None = None, *, delete_source: bool = False) -> Any:
        body = BranchMergeBody(source="dev", target="main", delete_branch=delete_source)
        return self.ask("merge_branches", gate, body=body)

    def commits(self, **query: str) -> Any:
        return self.ask("list_commits", query=query)["commits"]

    def export(self, *types: str, branch: str = "main", gate: Gate | None = None) -> tuple[str, list[bytes]]:
        """The commit, and the pieces."""
        found = self.ask("export_records", gate, body=ExportBody(branch=branch, type_names=list(types)))
        return found.headers["Omnigraph-Snapshot-Id"], list(found.pieces._pieces)

    def lines(self, branch: str = "main") -> list[str]:
        return list(graph.export_records(graph.open_snapshot(self.served.uri, graph.ReadTarget(branch))))

    def branches(self) -> list[str]:
        return list(self.ask("list_branches")["branches"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(create(str(tmp_path / "towns.omni")))


def problem_of(run: Callable[[], object]) -> ApiProblem:
    with pytest.raises(ProblemError) as raised:
        run()
    return raised.value.problem


def test_each_operation_asks_before_it_works(place: Place) -> None:
    cases: dict[Asked, Callable[[Gate], object]] = {
        (PolicyAction.READ, "dev", None): lambda gate: place.ask("snapshot", gate, query={"branch": "dev"}),
        (PolicyAction.READ, "main", None): lambda gate: place.ask("schema", gate),
        (PolicyAction.SCHEMA_APPLY, None, "main"): lambda gate: place.ask("apply_schema", gate),
        (PolicyAction.BRANCH_CREATE, "main", "dev"): lambda gate: place.create("dev", gate),
        (PolicyAction.BRANCH_DELETE, None, "dev"): lambda gate: place.delete("dev", gate),
        (PolicyAction.BRANCH_MERGE, "dev", "main"): place.merge,
        (PolicyAction.EXPORT, "dev", None): lambda gate: place.export(branch="dev", gate=gate),
        (PolicyAction.CHANGE, "dev", None): lambda gate: place.load(town("a"), branch="dev", gate=gate),
    }
    for asked, run in cases.items():
        gate = Gate(asked[0])
        assert problem_of(lambda run=run, gate=gate: run(gate)).status == 403  # type: ignore[misc]
        assert gate.asked == [asked]
    reads: dict[str, dict[str, Any]] = {
        "list_branches": {},
        "read_commit": {"values": {"commit_id": "x"}},
        "list_commits": {"query": {"branch": "b"}},
    }
    for name, given in reads.items():
        gate = Gate(PolicyAction.READ)
        assert problem_of(lambda name=name, gate=gate, given=given: place.ask(name, gate, **given)).status == 403  # type: ignore[misc]
        assert gate.asked == [(PolicyAction.READ, "b" if name == "list_commits" else "main", None)]
    assert place.branches() == ["main"]


def test_a_snapshot_names_the_datasets_of_the_head(place: Place) -> None:
    commit = place.load(town("a"), town("b"), road("a", "b"))["commit"]
    answer = place.ask("snapshot")
    rows = [(each["entity_kind"], each["type_name"], each["entity_count"]) for each in answer["datasets"]]
    assert rows == [("edge", "Road", 1), ("node", "Town", 2)]
    assert (answer["graph_branch"], answer["graph_manifest_version"]) == ("main", 2)
    assert answer["graph_commit_id"] == commit["graph_commit_id"]
    with pytest.raises(GitopsError, match="no branch 'dev'"):
        place.ask("snapshot", query={"branch": "dev"})


def test_a_schema_is_read_and_never_applied_here(place: Place) -> None:
    assert place.ask("schema") == {"schema_source": TOWNS.decode()}
    refused = problem_of(lambda: place.ask("apply_schema"))
    assert (refused.status, refused.code) == (409, ApiCode.CONFLICT)
    assert "gitops apply" in refused.message


def test_a_commit_is_the_receipt_of_a_load_and_is_found_again(place: Place) -> None:
    commit = place.load(town("a"))["commit"]
    history = place.commits()
    assert history[0] == commit == place.ask("read_commit", values={"commit_id": commit["graph_commit_id"]})
    assert commit["parent_commit_id"] == history[1]["graph_commit_id"]
    assert (commit["actor_id"], commit["created_at"]) == ("act-ann", int(NOW.timestamp()) * 1_000_000)
    assert len(place.commits(limit="1")) == 1
    for unknown in ("x", "0" * 26):
        assert problem_of(lambda unknown=unknown: place.ask("read_commit", values={"commit_id": unknown})).status == 404


def test_a_branch_called_merge_comes_and_goes(place: Place) -> None:
    answer = place.create("merge")
    assert answer == {"uri": "/graphs/towns", "from": "main", "name": "merge", "actor_id": "act-ann"}
    assert place.branches() == ["main", "merge"]
    deleted = place.delete("merge")
    assert (deleted["name"], place.branches()) == ("merge", ["main"])
    assert problem_of(lambda: place.delete("main")).status == 400
    assert problem_of(lambda: place.create("main")).status == 400


def test_a_merge_answers_with_its_commit_and_deletes_what_it_merged(place: Place) -> None:
    place.load(town("a"), branch="dev", origin="main")
    merged = place.merge(delete_source=True)
    head = place.commits()[0]
    assert merged == {
        "source": "dev",
        "target": "main",
        "outcome": "fast_forward",
        "actor_id": "act-ann",
        "commit": head,
        "branch_deleted": True,
    }
    assert place.branches() == ["main"]


def test_a_refused_delete_leaves_the_merge(place: Place) -> None:
    place.load(town("a"), branch="dev", origin="main")
    gate = Gate(PolicyAction.BRANCH_DELETE)
    merged = place.merge(gate, delete_source=True)
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", False)
    assert merged["branch_delete_error"] == "no rule permits branch_delete"
    again = place.merge()
    assert (again["outcome"], again["commit"], "branch_deleted" in again) == ("already_up_to_date", None, False)


def test_a_branch_without_changes_is_deleted_after_a_merge_of_nothing(place: Place) -> None:
    place.create("dev")
    merged = place.merge(delete_source=True)
    assert (merged["outcome"], merged["branch_deleted"], place.branches()) == ("already_up_to_date", True, ["main"])


def test_a_branch_that_went_on_is_not_deleted_as_merged(place: Place) -> None:
    place.load(town("a"), branch="dev", origin="main")
    with pytest.raises(GitopsError, match="branch dev has changes that main does not include"):
        graph.delete_merged_branch(
            place.served.uri, "dev", "main", graph.WriteContext(FixedClock(NOW), SequentialIds(9_000))
        )
    assert place.branches() == ["dev", "main"]


def test_49_a_conflict_names_each_row_and_leaves_the_target(place: Place) -> None:
    place.load(town("a", size=0))
    place.load(*(town(key, size=1) for key in "abcde"), branch="dev", origin="main")
    place.load(*(town(key, size=2) for key in "abcde"))
    before = place.lines()
    refused = problem_of(place.merge)
    assert (refused.status, refused.code, place.lines()) == (409, ApiCode.CONFLICT, before)
    assert refused.message.endswith(" and 2 more")
    conflicts = refused.more["merge_conflicts"]
    assert conflicts[0] == {
        "entity_kind": "node",
        "type_name": "Town",
        "entity_id": "a",
        "property": "size",
        "kind": "divergent_update",
        "message": "main and dev gave it different values",
    }
    assert {each["kind"] for each in conflicts[1:]} == {"divergent_insert"}


def test_47_a_load_makes_a_branch_only_for_whoever_may_create_it(place: Place) -> None:
    gate = Gate(PolicyAction.BRANCH_CREATE)
    assert problem_of(lambda: place.load(town("a"), branch="dev", origin="main", gate=gate)).status == 403
    assert (gate.asked, place.branches()) == ([(PolicyAction.BRANCH_CREATE, "main", "dev")], ["main"])
    place.load(town("a"), branch="dev", origin="main")
    place.load(town("b"), branch="dev", origin="main", gate=(again := Gate(PolicyAction.BRANCH_CREATE)))
    assert again.asked == [(PolicyAction.CHANGE, "dev", None)]


def test_a_load_counts_what_it_took(place: Place) -> None:
    answer = place.load(town("a"), town("b"), road("a", "b"), branch="dev", origin="main")
    assert answer["nodes"] == [{"name": "Town", "entities_loaded": 2}]
    assert answer["edges"] == [{"name": "Road", "entities_loaded": 1}]
    assert (answer["total_entities"], answer["branch_created"], answer["base_branch"]) == (3, True, "main")
    again = place.load(town("c"), branch="dev", origin="main")
    assert (again["branch_created"], again["base_branch"], place.load(town("d"))["base_branch"]) == (
        False,
        "main",
        None,
    )
    nothing = place.load()
    assert (nothing["commit"], nothing["total_entities"]) == (None, 0)
    refused = problem_of(lambda: place.load(town("a"), branch="other"))
    assert (refused.status, place.branches()) == (404, ["dev", "main"])


def test_records_that_do_not_fit_are_named_by_their_lines(place: Place) -> None:
    refused = problem_of(lambda: place.load(town("a"), b"{", town("b", size="x"), branch="dev", origin="main"))
    assert (refused.status, refused.more["total_problems"]) == (400, 2)
    assert [each["line"] for each in refused.more["problems"]] == [2, 3]
    assert (place.lines(), place.branches()) == ([], ["main"])


def test_a_key_that_exists_already_is_a_conflict_of_an_append(place: Place) -> None:
    place.load(town("a"))
    refused = problem_of(lambda: place.load(town("a"), mode="append"))
    clash = {"entity_kind": "node", "type_name": "Town", "entity_id": "a"}
    assert (refused.status, refused.code, refused.more["key_conflict"]) == (409, ApiCode.CONFLICT, clash)


def test_46_an_export_is_that_of_the_engine_in_small_pieces(place: Place) -> None:
    place.load(*(town(f"t{n}", name="x" * 500) for n in range(400)), town("wide", name="y" * 200_000))
    commit, pieces = place.export()
    assert max(map(len, pieces)) <= PIECE_BYTES
    assert b"".join(pieces).decode().splitlines() == place.lines()
    assert commit == place.commits()[0]["graph_commit_id"]
    assert place.export("Road")[1] == []


def test_46_an_export_refuses_before_its_first_piece(place: Place) -> None:
    place.load(town("a"))
    for branch, types, text in (("dev", [], "no branch"), ("main", ["Twon"], "no type 'Twon'")):
        with pytest.raises(GitopsError, match=text):
            place.export(*types, branch=branch)
    table = graph.open_snapshot(place.served.uri).manifest.tables["node:Town"]
    (Path(place.served.uri) / table.path).rename(Path(place.served.uri) / "moved")
    with pytest.raises(GitopsError, match="does not open"):
        place.export()


def test_pieces_are_made_when_they_are_asked_for() -> None:
    made: list[int] = []

    def lines() -> Iterator[str]:
        for n in range(10):
            made.append(n)
            yield "x" * 9

    pieces = cut_pieces(lines(), 20)
    assert (next(pieces), made) == (b"xxxxxxxxx\n" * 2, [0, 1])
    pieces.close()
    assert made == [0, 1]


CASES = json.loads((ROOT / "tests" / "data" / "serving" / "queries.json").read_text(encoding="utf-8"))
_KINDS = next(case["body"]["params"] for case in CASES if case["name"] == "every kind of parameter")
INVOKE = "/graphs/towns/queries"
POLICY = Bundle(
    groups={
        "readers": ("ada", "bob", "cyd", "dan"),
        "writers": ("bob", "eve"),
        "callers": ("bob", "cyd"),
        "far": ("fay",),
    },
    protected_branches=frozenset({"main"}),
    rules=(
        Rule("calling", "callers", (PolicyAction.INVOKE_QUERY,)),
        Rule("reading", "readers", (PolicyAction.READ,)),
        Rule("reading-far", "far", (PolicyAction.READ,), branch_scope=BranchScope.UNPROTECTED),
        Rule("writing", "writers", (PolicyAction.CHANGE,)),
    ),
)
LISTING = Bundle(groups={"admins": ("ada",)}, rules=(Rule("listing", "admins", (PolicyAction.GRAPH_LIST,)),))
ACTORS = {name: f"t-{name}" for name in ("ada", "bob", "cyd", "dan", "eve", "fay", "guy")}


def bearer(actor):
    return {"Authorization": f"Bearer {ACTORS[actor]}"}


@pytest.fixture(scope="module")
def open_server(tmp_path_factory):
    with running(generation(served(town_graph(tmp_path_factory.mktemp("graphs"))))) as server:
        yield server


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_query_is_answered_as_declared(open_server, case):
    body = {"params": {**_KINDS, **case["vary"]}} if "vary" in case else case.get("body")
    sent = case["raw"].encode() if "raw" in case else json.dumps(body).encode()
    headers = {"content-type": "application/json", **case.get("send", {})}
    answer = open_server.ask("POST", f"/graphs/towns/{case['post']}", content=sent, headers=headers)
    found = answer.json()
    assert answer.status_code == case["status"], found
    if answer.status_code >= 400:
        assert found.get("code") == case.get("code", "bad_request")
        assert case.get("says", "") in found["error"]
        assert case.get("member", "error") in found
    assert found | case.get("has", {}) == found
    assert answer.headers.items() >= case.get("headers", {}).items()
    assert not {*case.get("lacks", ())} & found.keys()
    assert not {*case.get("no_headers", ())} & answer.headers.keys()


def test_the_body_that_a_refusal_shows_is_answered(open_server):
    for sent in ({"key": "a"}, {"branch": "main", "key": "a"}):
        refused = open_server.ask("POST", f"{INVOKE}/town", json=sent).json()["error"]
        shown = json.loads(refused.partition("go into params: ")[2])
        assert open_server.ask("POST", f"{INVOKE}/town", json=shown).json()["row_count"] == 1


@pytest.mark.parametrize(("count", "status"), [(40, 200), (256, 200), (257, 413)])
def test_a_query_of_many_conditions_is_answered_and_a_larger_one_is_refused(open_server, count, status):
    text = f"query q() {{ match {{ $t: Town {'$t.size > 0 ' * count}}} return {{ $t.key }} order {{ $t.key asc }} }}"
    answer = open_server.ask("POST", "/graphs/towns/query", json={"query": text})
    found = answer.json()
    assert answer.status_code == status, found
    if status == 200:
        assert found["rows"] == [{"t.key": "a"}, {"t.key": "b"}]
    else:
        assert found["resource_limit"] == {"reason": "query_too_large"}
        assert found["error"].startswith(
            "query: line 1, column 3102: limit error: the query has 257 conditions; at most 256"
        )


def test_commands_and_stored_queries_have_the_same_limits_as_requests(open_server, capsys):
    """The tools of agents are stored queries, so that none of them is larger."""
    root = open_server.source.generation.graphs["towns"].uri
    for count, told in ((256, None), (257, "query_too_large")):
        text = f"query q() {{ match {{ $t: Town {'$t.size > 0 ' * count}}} return {{ $t.key }} }}"
        assert main(["graph", "query", "towns", "--root", root, "--text", text, "--json"]) == (0 if told is None else 1)
        assert (told is None) == ("query_too_large" not in capsys.readouterr().out)
        if told is None:
            assert served(root, queries=text.encode()).queries.keys() == {"q"}
            continue
        with pytest.raises(LanguageError) as refused:
            served(root, queries=text.encode())
        assert [QUERY_CODES[each.stage] for each in refused.value.problems] == [told]


def test_each_stored_query_is_an_operation_with_its_types_and_a_read_is_one_of_get(open_server):
    document = open_server.ask("GET", "/graphs/towns/openapi.json").json()
    own = {path.rpartition("/")[2]: forms for path, forms in document["paths"].items() if path.startswith(f"{INVOKE}/")}
    assert {name: sorted(forms) for name, forms in own.items() if not name.startswith(("{", "if-"))} == {
        "add_town": ["post"],
        "drop_town": ["post"],
        **{key: ["get", "post"] for key in ("kinds", "town", "towns")},
    }
    get, post = own["kinds"]["get"], own["kinds"]["post"]
    body = post["requestBody"]["content"]["application/json"]["schema"]
    required = [each["name"] for each in get["parameters"] if each["in"] == "query" and each["required"]]
    assert body["properties"]["params"]["required"] == required == [*_KINDS]
    assert own["town"]["get"]["summary"] == "One town."
    sent = open_server.ask("POST", f"{INVOKE}/kinds", json={"params": _KINDS}).json()
    texts = {
        name: [json.dumps(each).strip('"') for each in value] if isinstance(value, list) else value
        for name, value in _KINDS.items()
    }
    texts["b"] = json.dumps(_KINDS["b"])
    assert open_server.ask("GET", f"{INVOKE}/kinds", params=texts).json() == sent
    rows = document["components"]["schemas"]["town_rows"]["properties"]["rows"]["items"]
    town = open_server.ask("GET", f"{INVOKE}/town", params={"key": "a"}).json()["rows"]
    assert jsonschema_rs.Draft202012Validator(rows).is_valid(town[0])
    assert rows["properties"]["t.size"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("i", "4.5", "'i'"),
        ("b", "yes", "'b'"),
        ("f", "many", "'f'"),
        ("v", ["1"], "'v'"),
        ("day", "2026-02-30", "'day'"),
        ("kind", "x", "no parameter 'kind'"),
        ("i", ["1", "2"], "given twice"),
    ],
)
def test_a_text_that_is_no_value_of_its_parameter_is_refused_by_its_name(open_server, name, value, says):
    answer = open_server.ask("GET", f"{INVOKE}/kinds", params={**_KINDS, "b": "true", name: value})
    assert (answer.status_code, says in answer.json()["error"]) == (400, True), answer.text


def test_a_change_gives_its_receipt_and_opens_the_way_for_the_next_condition(tmp_path):
    with running(generation(served(town_graph(tmp_path)))) as server:
        made = server.ask("POST", f"{INVOKE}/add_town", json={"params": {"key": "d"}}).json()
        assert (made["affected_nodes"], made["actor_id"], made["branch"]) == (1, None, "main")
        head = {"Omnigraph-If-Graph-Commit": made["commit"]["graph_commit_id"]}
        text = {"query_source": 'query q() { insert Town { key: "e" } }', "query_name": "q"}
        again = server.ask("POST", "/graphs/towns/mutate/if-graph-commit", json=text, headers=head)
        assert again.json()["commit"]["parent_commit_id"] == made["commit"]["graph_commit_id"]
        stale = server.ask("POST", f"{INVOKE}/add_town/if-graph-commit", json={"params": {"key": "f"}}, headers=head)
        actual = again.json()["commit"]["graph_commit_id"]
        assert stale.json()["precondition_failure"] == {"expected": made["commit"]["graph_commit_id"], "actual": actual}
        read = server.ask("POST", f"{INVOKE}/towns").json()
        assert (read["graph_commit_id"], read["row_count"]) == (actual, 5)
        past = {"query": QUERIES.decode(), "name": "towns", "snapshot": made["commit"]["parent_commit_id"]}
        before = server.ask("POST", "/graphs/towns/query", json=past).json()
        assert (before["row_count"], before["target"]) == (3, {"branch": None, "snapshot": past["snapshot"]})
        none = server.ask("POST", f"{INVOKE}/drop_town", json={"params": {"key": "none"}}).json()
        assert (none["affected_nodes"], none["commit"]) == (0, None)


class HeldClock(SystemClock):
    """A clock whose second reading waits until it is let go: a change reads it when it comes, and when it publishes."""

    def __init__(self) -> None:
        self.begun, self.go, self._readings = threading.Event(), threading.Event(), itertools.count(1)

    def now(self) -> datetime:
        if next(self._readings) == 2:
            self.begun.set()
            assert self.go.wait(30)
        return super().now()


def together(server: Running, clock: HeldClock, change: Callable[[int], Any], number_of: int) -> list[Any]:
    """The answers to changes of which the first one holds the branch until all others wait for their turn."""
    with ThreadPoolExecutor(number_of) as clients:
        first = clients.submit(change, 0)
        assert clock.begun.wait(30)
        others = [clients.submit(change, number) for number in range(1, number_of)]
        # Each has seen the head.
        while server.app.load.waiting < len(others):
            server.ask("GET", "/healthz")
        clock.go.set()
        return [first.result(), *(each.result() for each in others)]


@pytest.mark.parametrize(
    ("of_graph", "of_request", "refused"),
    [("towns", None, 7), ("", "strict", 7), ("towns", "last_wins", 0), ("", None, 0)],
)
def test_of_eight_updates_begun_from_one_version_a_strict_graph_or_request_takes_one(
    tmp_path, of_graph, of_request, refused
):
    clock, limits = HeldClock(), HttpLimits(strict=frozenset({of_graph}))
    update = 'query q($n: I32) { update Town set { size: $n } where key = "a" }'
    queries = f"{QUERIES.decode()} {update.replace('q(', 'resize(')}".encode()
    with running(generation(served(town_graph(tmp_path), queries=queries)), limits=limits, clock=clock) as server:
        head = server.ask("GET", "/graphs/towns/snapshot").json()["graph_commit_id"]

        def change(number):
            body = {"params": {"n": number}} | ({"conflict": of_request} if of_request else {})
            if number % 2:
                return server.ask("POST", f"{INVOKE}/resize", json=body)
            return server.ask("POST", "/graphs/towns/mutate", json={"query": update, **body})

        answers = together(server, clock, change, 8)
        found = [each for each in answers if each.status_code == 409]
        assert ([each.status_code for each in answers].count(200), len(found)) == (8 - refused, refused)
        for each in found:
            moved = ProblemBody.model_validate_json(each.content).read_set_conflict
            actual = answers[0].json()["commit"]["graph_commit_id"]
            assert (moved.member, moved.expected, moved.actual) == ("graph_head:main", head, actual)
            assert each.json()["code"] == "conflict"
        # Who reads again and decides again is not refused.
        assert change(9).status_code == 200


def test_a_strict_change_of_who_may_not_read_is_refused_without_a_reason(tmp_path):
    reads, writes = Rule("reads", "readers", (PolicyAction.READ,)), Rule("writes", "all", (PolicyAction.CHANGE,))
    policy = Bundle({"readers": ("ann",), "all": ("ann", "wes")}, rules=(reads, writes))
    town, clock = served(town_graph(tmp_path), engine=BundleEngine(policy)), HeldClock()
    body = {"query": 'query q() { update Town set { size: 9 } where key = "a" }', "conflict": "strict"}
    names = ("wes", "ann", "wes")
    with running(generation(town), tokens(ann="t-ann", wes="t-wes"), clock=clock) as server:

        def change(number):
            return server.ask("POST", "/graphs/towns/mutate", json=body, headers=bearer_of_http_data(names[number]))

        done, told, untold = together(server, clock, change, 3)
        assert (done.status_code, told.status_code, untold.status_code) == (200, 409, 409)
        assert {*told.json()} == {"error", "code", "read_set_conflict"}
        assert {*untold.json()} == {"error", "code"}
        assert "only actors with the permission read or export on that branch are told why" in untold.json()["error"]


def test_a_commit_read_on_main_is_a_condition_for_the_first_change_of_a_branch_made_from_it(tmp_path):
    with running(generation(served(town_graph(tmp_path)))) as server:
        read = {"Omnigraph-If-Graph-Commit": server.ask("POST", f"{INVOKE}/towns").json()["graph_commit_id"]}
        for name, origin in (("dev", "main"), ("next", "dev")):
            made = server.ask("POST", "/graphs/towns/branches", json={"name": name, "from": origin})
            assert made.status_code == 200

        def change(branch, key):
            body = {"params": {"key": key}, "branch": branch}
            return server.ask("POST", f"{INVOKE}/add_town/if-graph-commit", json=body, headers=read)

        first, second = change("dev", "d"), change("dev", "e")
        assert (first.status_code, second.status_code) == (200, 412)
        assert second.json()["precondition_failure"]["actual"] == first.json()["commit"]["graph_commit_id"]
        assert change("main", "m").status_code == 200
        # A branch that is made now is at a later commit of main.
        server.ask("POST", "/graphs/towns/branches", json={"name": "late"})
        assert change("late", "l").status_code == 412


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """One graph with a policy and one without, on a server with a policy of its own."""
    folder = tmp_path_factory.mktemp("guarded")
    bound = served(town_graph(folder), engine=BundleEngine(POLICY))
    unbound = served(town_graph(folder, "free"), "free")
    with running(generation(bound, unbound, engine=BundleEngine(LISTING)), tokens(**ACTORS)) as server:
        yield server


def test_scenario_24_only_the_token_says_who_asks(guarded):
    text = {"query": QUERIES.decode(), "name": "towns"}
    denied = guarded.ask("POST", "/graphs/towns/query", json=text, headers={**bearer("guy"), "X-Actor-Id": "ada"})
    allowed = guarded.ask("POST", "/graphs/towns/query", json=text, headers={**bearer("ada"), "X-Actor-Id": "guy"})
    assert (denied.status_code, allowed.status_code) == (403, 200)


def test_scenario_27_a_graph_without_a_policy_is_read_only_with_a_token(guarded):
    text = {"query": 'query q() { insert Town { key: "z" } }'}
    assert guarded.ask("POST", "/graphs/free/mutate", json=text, headers=bearer("bob")).status_code == 403
    assert guarded.ask("POST", "/graphs/free/mutate", json=text).status_code == 401
    assert guarded.ask("GET", "/graphs/free/queries", headers=bearer("guy")).status_code == 200


@pytest.mark.parametrize("branch", [None, "main", " main "])
def test_scenario_31_a_branch_is_judged_by_its_name_without_space(guarded, branch):
    text = {"query": QUERIES.decode(), "name": "towns", "branch": branch}
    answer = guarded.ask("POST", "/graphs/towns/query", json=text, headers=bearer("fay"))
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


def test_scenario_36_graphs_are_listed_to_whom_the_server_permits_it(guarded):
    listed = guarded.ask("GET", "/graphs", headers=bearer("ada"))
    assert [each["graph_id"] for each in listed.json()["graphs"]] == ["free", "towns"]
    assert [guarded.ask("GET", "/graphs", headers=h).status_code for h in (bearer("bob"), {})] == [403, 401]


def test_scenario_38_invoking_needs_the_right_to_what_the_query_does(guarded):
    body = {"params": {"key": "new"}}
    answers = [guarded.ask("POST", f"{INVOKE}/add_town", json=body, headers=bearer(who)) for who in ("cyd", "bob")]
    assert [each.status_code for each in answers] == [403, 200]
    receipt = answers[1].json()
    assert (receipt["affected_nodes"], receipt["actor_id"], receipt["commit"]["actor_id"]) == (1, "bob", "bob")


def test_scenario_39_a_query_that_may_not_be_invoked_is_like_one_that_does_not_exist(guarded):
    """Except to an actor to whom the query is listed: it learns what is missing."""
    told = set()
    for who in ACTORS:
        listing = guarded.ask("GET", "/graphs/towns/queries", headers=bearer(who))
        listed = [each["name"] for each in listing.json().get("queries", ())]
        unknown = guarded.ask("POST", f"{INVOKE}/nothing", headers=bearer(who)).content
        for name in ("towns", "add_town"):
            answer = guarded.ask("POST", f"{INVOKE}/{name}", headers=bearer(who))
            if answer.status_code == 404 and name not in listed:
                assert answer.content == unknown.replace(b"nothing", name.encode())
                told.add("nothing")
            elif answer.status_code == 404:
                need = f"needs the permission invoke_query for stored query '{name}' on graph 'towns'"
                assert need in answer.json()["error"]
                told.add("what is missing")
    assert told == {"nothing", "what is missing"}
    near = guarded.ask("POST", f"{INVOKE}/town5", headers=bearer("bob")).json()["error"]
    assert "graph 'towns' has no stored query 'town5'; did you mean `town`?" in near


def test_a_graph_that_does_not_exist_is_answered_with_those_that_the_actor_may_list(guarded):
    errors = {
        who: guarded.ask("GET", "/graphs/twons/queries", headers=bearer(who)).json()["error"] for who in ("ada", "bob")
    }
    assert errors == {
        "ada": "graph 'twons' not found; did you mean `towns`? known: free, towns",
        "bob": "graph 'twons' not found",
    }


def test_scenario_40_a_reader_sees_the_stored_queries(guarded):
    listed = guarded.ask("GET", "/graphs/towns/queries", headers=bearer("ada")).json()["queries"]
    assert [each["name"] for each in listed] == ["add_town", "drop_town", "kinds", "town", "towns"]
    one = {"name": "town", "tool_name": "town", "description": "One town.", "mutation": False}
    assert listed[3] == {**one, "params": [{"name": "key", "kind": "string", "nullable": False}]}
    kinds = {each["name"]: each for each in listed[2]["params"]}
    assert kinds["v"] == {"name": "v", "kind": "vector", "vector_dim": 2, "nullable": False}
    assert kinds["many"] == {"name": "many", "kind": "list", "item_kind": "string", "nullable": False}


def test_an_unknown_snapshot_is_hidden_from_who_may_not_read_main(guarded):
    text = {"query": QUERIES.decode(), "name": "towns", "snapshot": "01HGW1J8000000000000000000"}
    answers = [guarded.ask("POST", "/graphs/towns/query", json=text, headers=bearer(who)) for who in ("ada", "fay")]
    assert [each.status_code for each in answers] == [404, 403]


def test_where_rules_name_queries_an_actor_sees_those_that_it_may_invoke(tmp_path):
    rules = (
        Rule("reading", "all", (PolicyAction.READ,)),
        Rule("asking", "some", (PolicyAction.INVOKE_QUERY,), queries=("town*",)),
        Rule("doing", "few", (PolicyAction.INVOKE_QUERY,)),
    )
    groups = {"all": ("ada", "bob", "cyd"), "some": ("ada",), "few": ("bob",)}
    graph = served(town_graph(tmp_path), engine=CedarEngine(Bundle(groups, rules=rules), "graph.towns"))
    with running(generation(graph), tokens(**ACTORS)) as server:
        found = {
            who: [each["name"] for each in server.ask("GET", INVOKE, headers=bearer(who)).json()["queries"]]
            for who in groups["all"]
        }
        assert found == {"ada": ["town", "towns"], "bob": [*graph.queries], "cyd": []}
        described = server.ask("GET", "/graphs/towns/openapi.json", headers=bearer("ada")).text
        assert [name for name in graph.queries if f"{INVOKE}/{name}" in described] == ["town", "towns"]
        assert [
            server.ask("GET", f"{INVOKE}/{name}", headers=bearer("ada")).status_code for name in ("towns", "kinds")
        ] == [200, 404]
        called = [server.ask("POST", f"{INVOKE}/{name}", headers=bearer("ada")) for name in ("towns", "kinds")]
        assert [each.status_code for each in called] == [200, 404]


HIDDEN = [
    ("GET", "queries", {}),
    ("HEAD", "schema", {}),
    ("POST", "queries/towns", {}),
    ("POST", "query", {"json": {"query": QUERIES.decode(), "name": "towns"}}),
    ("POST", "query", {"content": b"{"}),
    ("POST", "query", {"content": b" " * (2**20 + 1)}),
    ("POST", "mcp", {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}),
    ("DELETE", "branches/main", {}),
    ("DELETE", "branches/%FF", {}),
    ("PUT", "queries", {}),
    ("GET", "nothing", {}),
    ("GET", "snapshot?brnach=main", {}),
    ("GET", "queries", {"headers": {"Omnigraph-If-Applied-Revision": "sha256:00"}}),
]


def test_a_graph_on_which_an_actor_is_permitted_nothing_can_be_hidden(tmp_path):
    """To the byte: status, headers and body are those of a server without the graph."""
    limits = HttpLimits(hide_graphs=True)
    with (
        running(generation(served(town_graph(tmp_path), engine=BundleEngine(POLICY))), tokens(**ACTORS), limits) as has,
        running(generation(engine=BundleEngine(LISTING)), tokens(**ACTORS), limits) as lacks,
    ):
        for method, path, options in HIDDEN:
            sent = {"X-Request-Id": "one", **bearer("guy"), **options.get("headers", {})}
            hidden, absent = (
                each.ask(method, f"/graphs/towns/{path}", **{**options, "headers": sent}) for each in (has, lacks)
            )
            seen = [
                (each.status_code, [pair for pair in each.headers.raw if pair[0] != b"date"], each.content)
                for each in (hidden, absent)
            ]
            assert seen[0] == seen[1], (method, path)
            assert hidden.status_code == 404
            assert method == "HEAD" or hidden.json()["error"] == "graph 'towns' not found"
        assert has.ask("GET", INVOKE, headers=bearer("ada")).status_code == 200


AT = "/graphs/towns"
HTTP_DATA_POLICY = Bundle(
    groups={"all": ("ann", "bob", "cyd"), "writers": ("bob", "cyd")},
    rules=(
        Rule("reading", "all", (PolicyAction.READ,)),
        Rule(
            "writing",
            "writers",
            (PolicyAction.CHANGE, PolicyAction.EXPORT, PolicyAction.SCHEMA_APPLY, PolicyAction.BRANCH_MERGE),
        ),
    ),
)
LIMITS = HttpLimits(inflight=1, streams=1, idle_s=30.0)


def ndjson(*records: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def bearer_of_http_data(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer t-{actor}"}


@pytest.fixture(scope="module")
def guarded_of_http_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    graph = served(town_graph(tmp_path_factory.mktemp("guarded")), engine=BundleEngine(HTTP_DATA_POLICY))
    with running(generation(graph), tokens(ann="t-ann", bob="t-bob", cyd="t-cyd"), LIMITS) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(generation(served(town_graph(tmp_path))), limits=LIMITS) as found:
        yield found


def root_of(server: Running) -> str:
    return server.source.generation.graphs["towns"].uri


def lines(server: Running, branch: str = "main") -> list[str]:
    return list(export_records(open_snapshot(root_of(server), ReadTarget(branch))))


def branches(server: Running) -> list[str]:
    return [each.name for each in list_branches(root_of(server))]


def ask(server: Running, method: str, path: str, **options: Any) -> Any:
    """The document of a success, which has the form that its route declares."""
    answer = server.ask(method, AT + path, **options)
    assert answer.status_code == 200, answer.text
    route = RouteTable(ROUTES).find(method, (AT + path).partition("?")[0].encode()).route
    assert route is not None
    assert not isinstance(route.answer, str)
    route.answer.model_validate_json(answer.content)
    return answer.json()


def test_what_a_graph_has_is_told_in_the_declared_forms(server: Running) -> None:
    head = ask(server, "GET", "/snapshot?branch=%20main%20")
    commits = ask(server, "GET", "/commits")["commits"]
    assert head["graph_commit_id"] == commits[0]["graph_commit_id"]
    assert ask(server, "GET", f"/commits/{head['graph_commit_id']}") == commits[0]
    assert ask(server, "GET", "/commits?limit=1")["commits"] == commits[:1]
    assert "node Town" in ask(server, "GET", "/schema")["schema_source"]
    for path in ("/commits?limit=0", "/commits?limit=x", "/commits?brnach=main", "/snapshot?branch=%20"):
        assert server.ask("GET", AT + path).status_code == 400
    for path in ("/snapshot?branch=none", "/commits?branch=none", f"/commits/{'0' * 26}"):
        assert server.ask("GET", AT + path).status_code == 404


def test_branches_come_together_and_go(server: Running) -> None:
    for name in ("merge", "feat/x"):
        assert ask(server, "POST", "/branches", json={"name": name})["from"] == "main"
    assert ask(server, "GET", "/branches") == {"branches": ["feat/x", "main", "merge"]}
    assert server.ask("POST", f"{AT}/branches", json={"name": "merge"}).status_code == 409
    assert server.ask("POST", f"{AT}/branches", json={"name": "main"}).status_code == 400
    assert server.ask("POST", f"{AT}/branches", json={"name": "x", "from": "none"}).status_code == 404
    ask(server, "POST", "/load", json={"branch": "merge", "data": ndjson(town("d")).decode()})
    merged = ask(server, "POST", "/branches/merge", json={"source": "merge", "delete_branch": True})
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", True)
    assert ask(server, "DELETE", "/branches/feat%2Fx")["name"] == "feat/x"
    assert server.ask("DELETE", f"{AT}/branches/merge").status_code == 404
    assert server.ask("DELETE", f"{AT}/branches/main").status_code == 400
    assert branches(server) == ["main"]


def test_scenario_49_a_merge_with_conflicts_leaves_the_target(server: Running) -> None:
    ask(server, "POST", "/load", json={"branch": "dev", "from": "main", "data": ndjson(town("a", size=5)).decode()})
    ask(server, "POST", "/load", json={"data": ndjson(town("a", size=6)).decode()})
    before = lines(server)
    answer = server.ask("POST", f"{AT}/branches/merge", json={"source": "dev"})
    assert (answer.status_code, answer.json()["code"], lines(server)) == (409, "conflict", before)
    assert [each["entity_id"] for each in answer.json()["merge_conflicts"]] == ["a"]


def test_scenario_50_a_schema_is_applied_from_the_cluster_folder(guarded_of_http_data: Running) -> None:
    asked = {"json": {"schema_source": "node Other { key: String @key }"}}
    allowed = guarded_of_http_data.ask("POST", f"{AT}/schema/apply", headers=bearer_of_http_data("bob"), **asked)
    denied = guarded_of_http_data.ask("POST", f"{AT}/schema/apply", headers=bearer_of_http_data("ann"), **asked)
    assert (allowed.status_code, denied.status_code) == (409, 403)
    assert "gitops apply" in allowed.json()["error"]


def test_scenario_47_a_branch_is_made_only_for_an_actor_who_may(guarded_of_http_data: Running) -> None:
    sent = {"data": ndjson(town("z")).decode(), "branch": "dev", "from": "main"}
    denied = guarded_of_http_data.ask("POST", f"{AT}/ingest", json=sent, headers=bearer_of_http_data("bob"))
    assert (denied.status_code, branches(guarded_of_http_data)) == (403, ["main"])
    without = guarded_of_http_data.ask(
        "POST", f"{AT}/ingest", json={**sent, "from": None}, headers=bearer_of_http_data("bob")
    )
    assert (without.status_code, branches(guarded_of_http_data)) == (404, ["main"])
    taken = guarded_of_http_data.ask(
        "POST", f"{AT}/ingest", json={**sent, "branch": "main"}, headers=bearer_of_http_data("bob")
    )
    assert (taken.status_code, taken.json()["actor_id"]) == (200, "bob")
    assert taken.headers["link"] == '<load>; rel="successor-version"'


def test_a_delete_that_is_denied_is_part_of_the_answer_of_the_merge(guarded_of_http_data: Running) -> None:
    body = {"source": "main", "target": "none", "delete_branch": True}
    assert (
        guarded_of_http_data.ask(
            "POST", f"{AT}/branches/merge", json=body, headers=bearer_of_http_data("ann")
        ).status_code
        == 403
    )
    assert (
        guarded_of_http_data.ask(
            "POST", f"{AT}/branches/merge", json=body, headers=bearer_of_http_data("bob")
        ).status_code
        == 404
    )


def test_a_stream_of_records_is_one_commit(server: Running) -> None:
    before = ask(server, "GET", "/commits")["commits"]
    sent = ndjson(*(town(f"n{n}", name="x" * 3000) for n in range(700)), road("n0", "n1"))
    headers = {"Content-Type": "application/x-ndjson"}
    pieces = (sent[at : at + 50_000] for at in range(0, len(sent), 50_000))
    done = ask(server, "POST", "/load/ndjson?branch=dev&from=main&mode=append", content=pieces, headers=headers)
    assert (done["total_entities"], done["branch_created"], done["mode"]) == (701, True, "append")
    history = ask(server, "GET", "/commits?branch=dev")["commits"]
    # The first version of the branch, and the load.
    assert len(history) == len(before) + 2
    assert history[0] == done["commit"]
    odd = server.ask("POST", f"{AT}/load/ndjson?mode=odd", content=b"", headers=headers)
    other = server.ask("POST", f"{AT}/load/ndjson", content=b"{}", headers={"Content-Type": "application/json"})
    assert (odd.status_code, other.status_code) == (400, 415)
    faulty = server.ask("POST", f"{AT}/load/ndjson?branch=bad&from=main", content=b"{}\n", headers=headers)
    assert (faulty.status_code, faulty.json()["problems"][0]["line"]) == (400, 1)
    assert branches(server) == ["main", "dev"]


def test_scenario_45_a_load_of_32_mib_at_most(server: Running) -> None:
    data = ndjson(*(town(f"big{n}", name="x" * 1_000_000) for n in range(10))).decode()
    assert ask(server, "POST", "/load", json={"data": data})["total_entities"] == 10
    too_long = (b"x" * 2**20 for _ in range(33))
    answer = server.ask("POST", f"{AT}/ingest", content=too_long, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize("announced", [True, False])
def test_a_client_that_sends_all_of_a_body_before_it_reads_gets_the_refusal(server: Running, announced: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        # More than the buffers of a connection hold.
        body = b"x" * 2**25 if announced else (b"x" * 2**20 for _ in range(32))
        headers = {"Content-Type": "application/json"}
        connection.request("POST", f"{AT}/query", body, headers, encode_chunked=not announced)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())["code"], answer.headers["connection"]
        assert found == (413, "bad_request", "close")


def test_a_stream_beyond_the_limit_leaves_nothing(tmp_path: Path) -> None:
    few = [replace(each, limit=1000) if each.operation == "loadNdjson" else each for each in ROUTES]
    with running(generation(served(town_graph(tmp_path))), limits=LIMITS, routes=few) as server:
        before = lines(server)
        for content in (ndjson(*(town(f"n{n}") for n in range(50))), iter([b"x" * 600] * 2)):
            headers = {"Content-Type": "application/x-ndjson"}
            answer = server.ask("POST", f"{AT}/load/ndjson", content=content, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "bad_request")
            assert answer.json()["graph_batch_request_bytes"] == {"limit": 1000}
        assert lines(server) == before


@contextmanager
def half_open(server: Running, head: str, body: bytes = b"") -> Iterator[socket.socket]:
    """A client that has sent the beginning of a request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(f"POST {AT}{head}\r\nHost: localhost\r\n".encode() + body)
        yield client


UPLOAD = "/load/ndjson?branch=dev&from=main HTTP/1.1"
PART = b"Content-Type: application/x-ndjson\r\nContent-Length: 10000\r\n\r\n" + ndjson(town("d"))


def test_an_upload_is_denied_before_its_body_is_read(guarded_of_http_data: Running) -> None:
    head = b"Authorization: Bearer t-ann\r\nContent-Type: application/x-ndjson\r\nContent-Length: 10000\r\n\r\n"
    with half_open(guarded_of_http_data, "/load/ndjson HTTP/1.1", head) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 403 ")


def records_of(server: Running, operation: str) -> list[Any]:
    return [each for each in server.log if each["event"] == "request" and each["route"] == operation]


def test_a_client_that_stops_leaves_nothing(server: Running) -> None:
    before = lines(server)
    with half_open(server, UPLOAD, PART):
        pass
    server.until(lambda: records_of(server, "loadNdjson"))
    assert records_of(server, "loadNdjson")[0]["status"] is None
    assert (lines(server), branches(server)) == (before, ["main"])


def test_a_client_that_sends_nothing_more_is_refused(tmp_path: Path) -> None:
    with (
        running(generation(served(town_graph(tmp_path))), limits=HttpLimits(idle_s=0.1)) as server,
        half_open(server, UPLOAD, PART) as client,
    ):
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert branches(server) == ["main"]


def test_scenario_44_an_upload_counts_while_it_arrives(guarded_of_http_data: Running) -> None:
    head = b"Authorization: Bearer t-bob\r\nExpect: 100-continue\r\n" + PART
    sent = {"data": ndjson(town("z")).decode()}
    with half_open(guarded_of_http_data, "/load/ndjson HTTP/1.1", head) as client:
        # The server asks for the body once it reads it.
        assert client.recv(25).startswith(b"HTTP/1.1 100")
        busy = guarded_of_http_data.ask("POST", f"{AT}/load", json=sent, headers=bearer_of_http_data("bob"))
        denied = guarded_of_http_data.ask("POST", f"{AT}/load", json=sent, headers=bearer_of_http_data("ann"))
        other = guarded_of_http_data.ask("POST", f"{AT}/load", json=sent, headers=bearer_of_http_data("cyd"))
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "60")
        assert (denied.status_code, other.status_code) == (403, 200)
    guarded_of_http_data.until(lambda: records_of(guarded_of_http_data, "loadNdjson"))
    assert (
        guarded_of_http_data.ask("POST", f"{AT}/load", json=sent, headers=bearer_of_http_data("bob")).status_code == 200
    )


def test_scenario_46_an_export_is_that_of_the_graph(server: Running) -> None:
    answer = server.ask("POST", f"{AT}/export", json={"type_names": ["Town"]})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert answer.headers["omnigraph-snapshot-id"] == ask(server, "GET", "/snapshot")["graph_commit_id"]
    assert answer.text.splitlines() == [each for each in lines(server) if '"type":"Town"' in each]
    assert server.ask("POST", f"{AT}/export").text.splitlines() == lines(server)
    for body, status in (({"type_names": ["Twon"]}, 400), ({"branch": "none"}, 404), ({"table_keys": []}, 400)):
        assert server.ask("POST", f"{AT}/export", json=body).status_code == status


def test_an_export_that_fails_late_is_cut_off(server: Running) -> None:
    path = open_snapshot(root_of(server)).manifest.tables["node:Town"].path
    for file in (Path(root_of(server)) / path / "data").iterdir():
        file.unlink()
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        server.ask("POST", f"{AT}/export")
    server.until(lambda: [each for each in server.log if each["event"] == "defect"])
    # Its place is free again.
    assert server.ask("POST", f"{AT}/export", json={"type_names": ["Road"]}).status_code == 200


class Endless:
    """A route whose answer never ends; it counts the pieces that are made."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = threading.Event()

    def pieces(self) -> Iterator[bytes]:
        try:
            while True:
                self.made += 1
                yield b"x" * 65_536
        finally:
            self.closed.set()

    async def answer(self, call: Any) -> StreamAnswer:
        await call.shared.streams.take()
        return StreamAnswer(PieceStream(call, self.pieces()), "text/plain")

    @property
    def route(self) -> Route:
        return Route("POST", f"{AT.replace('towns', '{graph_id}')}/endless", "endless", "", self.answer, ProblemBody)


@pytest.fixture
def endless(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Running, Endless]]:
    found = Endless()
    monkeypatch.setattr(call, "VERBS", {**call.VERBS, found.route.operation: ()})
    limits = replace(LIMITS, idle_s=getattr(request, "param", LIMITS.idle_s))
    graph = served(town_graph(tmp_path))
    with running(generation(graph), limits=limits, routes=[*ROUTES, found.route]) as server:
        yield server, found


def test_a_reader_that_goes_away_ends_the_work(endless: tuple[Running, Endless]) -> None:
    server, source = endless
    with half_open(server, "/endless HTTP/1.1", b"Content-Length: 0\r\n\r\n") as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        refused = server.ask("POST", f"{AT}/export")
        assert (refused.status_code, refused.json()["resource_limit"]) == (
            413,
            {"resource": "exports", "limit": 1, "actual": 2},
        )
        # Other requests find free threads, whatever the reader takes.
        assert server.ask("GET", f"{AT}/snapshot").status_code == 200
    assert source.closed.wait(30)
    server.until(lambda: records_of(server, "endless"))
    assert server.ask("POST", f"{AT}/export").status_code == 200


@pytest.mark.parametrize("endless", [0.2], indirect=True)
def test_a_reader_that_takes_nothing_is_cut_off(endless: tuple[Running, Endless]) -> None:
    server, source = endless
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.connect(("127.0.0.1", server.port))
        client.sendall(f"POST {AT}/endless HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        assert source.closed.wait(30)
        # What was made is what the buffers of the connection took.
        assert source.made * 65_536 < 32 * 2**20
    assert server.ask("POST", f"{AT}/export").status_code == 200
