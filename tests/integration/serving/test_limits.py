"""Who may ask, and what a request may cost."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import logging
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import PolicyEngine
from gitops.cluster.policy.read import read_bundle
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.database.graph import open_snapshot
from gitops.database.language.schema import compile_schema
from gitops.serving.access import DECISIONS, BearerTokens, load_tokens
from gitops.serving.http.app import ROUTES
from gitops.serving.http.work import Workers
from tests.support.pages import ROOT
from tests.support.query_cases import Ground
from tests.support.query_engine import World
from tests.support.query_server import QUERIES, BundleEngine, Running, generation, running, served, tokens, town_graph

AT = "/graphs/towns"
POLICY = b"""
version: 1
groups:
  team: [ann, ben]
  admins: [adm]
  near: [nia]
  guests: [gus]
  movers: [gus, adm]
  writers: [wes]
protected_branches: [main]
rules:
  - {id: z-read, allow: {actors: {group: team}, actions: [read]}}
  - {id: b-read, allow: {actors: {group: team}, actions: [read, export]}}
  - {id: change-elsewhere, allow: {actors: {group: team}, actions: [change], branch_scope: unprotected}}
  - {id: branch, allow: {actors: {group: team}, actions: [branch_create], target_branch_scope: unprotected}}
  - {id: merge-main, allow: {actors: {group: admins}, actions: [branch_merge], target_branch_scope: protected}}
  - {id: read-protected, allow: {actors: {group: near}, actions: [read], branch_scope: protected}}
  - {id: drafts, allow: {actors: {group: guests}, actions: [read, export, change], branch_scope: unprotected}}
  - {id: move, allow: {actors: {group: movers}, actions: [branch_create, branch_delete, branch_merge]}}
  - {id: write-all, allow: {actors: {group: writers}, actions: [change]}}
  - {id: read-all, allow: {actors: {group: admins}, actions: [read]}}
"""
ACTORS = {name: f"t-{name}" for name in ("ann", "ben", "adm", "nia", "gus", "wes", "eve")}
READ = {"query": QUERIES.decode(), "name": "towns"}


def engine(text: bytes, scope: str = "graph.towns") -> PolicyEngine:
    bundle, problems = read_bundle(text, "policy.base", "base.policy.yaml")
    assert bundle is not None, list(problems)
    return CedarEngine(bundle, scope)


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {ACTORS[actor]}"}


def insert(key: str) -> str:
    return f'query q() {{ insert Town {{ key: "{key}" }} }}'


def statuses(server: Running, who: dict[str, str], *asked: tuple[str, str, Any]) -> list[int]:
    return [server.ask(method, path, json=body, headers=who).status_code for method, path, body in asked]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    graph = served(town_graph(tmp_path_factory.mktemp("graphs")), engine=engine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        made = server.ask("POST", f"{AT}/branches", json={"name": "feature"}, headers=bearer("ann"))
        assert made.status_code == 200
        yield server


def test_scenarios_21_and_23_tokens_without_policies_let_their_holders_read_and_nothing_else(tmp_path):
    with running(generation(served(town_graph(tmp_path))), tokens(**ACTORS)) as server:
        ann = bearer("ann")
        assert statuses(server, ann, ("GET", f"{AT}/snapshot", None), ("POST", f"{AT}/query", READ)) == [200, 200]
        denied = [
            ("POST", f"{AT}/mutate", {"query": insert("z")}),
            ("POST", f"{AT}/export", {}),
            ("POST", f"{AT}/schema/apply", {"schema_source": "node A { k: String @key }"}),
            ("POST", f"{AT}/branches", {"name": "x"}),
            ("GET", "/graphs", None),
        ]
        assert statuses(server, ann, *denied) == [403] * 5
        assert statuses(server, ann, ("POST", f"{AT}/queries/towns", {})) == [404]
        for who in ({}, {"Authorization": "Basic x"}, {"Authorization": "Bearer wrong"}):
            assert statuses(server, who, ("GET", f"{AT}/snapshot", None), *denied) == [401] * 6
            assert statuses(server, who, ("GET", "/healthz", None), ("GET", "/openapi.json", None)) == [200, 200]


def test_scenario_22_an_open_server_lists_no_graphs_and_knows_no_actor(tmp_path):
    with running(generation(served(town_graph(tmp_path)))) as server:
        assert server.ask("GET", "/graphs", headers={"Authorization": "Bearer anything"}).status_code == 403
        assert server.ask("POST", f"{AT}/query", json=READ).json()["row_count"] == 3
        changed = server.ask("POST", f"{AT}/mutate", json={"query": insert("z")})
        assert (changed.status_code, changed.json()["actor_id"], changed.json()["commit"]["actor_id"]) == (
            200,
            None,
            None,
        )


def test_scenario_28_a_protected_branch_is_not_changed_where_only_others_may_be(guarded):
    denied = guarded.ask("POST", f"{AT}/mutate", json={"query": insert("d")}, headers=bearer("ann"))
    assert (denied.status_code, denied.json()["code"]) == (403, "forbidden")
    body = {"query": insert("d"), "branch": "feature"}
    made = guarded.ask("POST", f"{AT}/mutate", json=body, headers=bearer("ann")).json()
    assert (made["actor_id"], made["commit"]["actor_id"], made["commit"]["graph_branch"]) == ("ann", "ann", "feature")
    (newest, *_) = guarded.ask("GET", f"{AT}/commits?branch=feature", headers=bearer("ben")).json()["commits"]
    assert newest == made["commit"]


def test_scenario_29_a_merge_into_a_protected_branch_is_for_admins(guarded):
    assert statuses(guarded, bearer("ann"), ("POST", f"{AT}/branches", {"name": "side"})) == [200]
    body = {"query": insert("s"), "branch": "side"}
    assert statuses(guarded, bearer("ann"), ("POST", f"{AT}/mutate", body)) == [200]
    denied, merged = (
        guarded.ask("POST", f"{AT}/branches/merge", json={"source": "side"}, headers=bearer(who))
        for who in ("ann", "adm")
    )
    assert (denied.status_code, merged.status_code, merged.json()["actor_id"]) == (403, 200, "adm")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("branches", {"name": "own", "from": "main"}),
        ("load", {"branch": "own", "from": "main", "data": ""}),
        ("ingest", {"branch": "own", "from": "main", "data": ""}),
        ("load/ndjson?branch=own&from=main", None),
        ("branches/merge", {"source": "main", "target": "feature"}),
    ],
)
def test_what_may_not_be_read_is_not_copied_to_where_it_may(guarded, caplog, path, body):
    """The actor may make, change and read every branch but `main`."""
    gus, ndjson = bearer("gus"), {} if body else {"Content-Type": "application/x-ndjson"}
    rows = {**READ, "branch": "feature"}
    before = guarded.ask("POST", f"{AT}/query", json=rows, headers=gus).json()
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        caplog.clear()
        denied = guarded.ask("POST", f"{AT}/{path}", json=body, headers=gus | ndjson)
    action = "branch_merge" if "merge" in path else "branch_create"
    need = "'gus' needs the permission read on branch 'main' of graph 'towns'; no rule of policy 'towns' gives it"
    assert (denied.status_code, denied.json().get("error")) == (
        403,
        f"{action} reads the branch that it copies: {need}",
    )
    decided = [(each.form["action"], each.form["branch"], each.form["allowed"]) for each in caplog.records]
    assert decided == [(action, "main", True), ("read", "main", False)]
    assert guarded.ask("POST", f"{AT}/query", json={**READ, "branch": "own"}, headers=gus).status_code == 404
    assert guarded.ask("POST", f"{AT}/query", json=rows, headers=gus).json() == before


def test_what_may_be_read_is_copied_as_before(guarded):
    asked = [
        ("POST", f"{AT}/branches", {"name": "gus-1", "from": "feature"}),
        ("POST", f"{AT}/load", {"branch": "gus-2", "from": "gus-1", "data": ""}),
        ("POST", f"{AT}/branches/merge", {"source": "gus-1", "target": "feature", "delete_branch": True}),
    ]
    assert statuses(guarded, bearer("gus"), *asked) == [200] * 3


@pytest.mark.parametrize(
    ("feed", "token", "branches"),
    [
        ("changes", "next_page_token", lambda page: {each["cause"]["authored_branch"] for each in page["blocks"]}),
        ("feed", "page_token", lambda page: {each["graph_branch"] for each in page["commits"]}),
    ],
)
def test_a_copy_does_not_show_the_past_of_a_branch_that_may_not_be_read(guarded, feed, token, branches):
    """The branch was made from `main` by somebody who may read that."""
    begun = f"{AT}/{feed}?branch=feature&start=beginning"
    denied, shown = (guarded.ask("GET", begun, headers=bearer(who)) for who in ("gus", "ann"))
    assert (denied.status_code, shown.status_code) == (403, 200)
    assert "'gus' needs the permission read on branch 'main'" in denied.json()["error"]
    assert "before branch 'feature' was made" in denied.json()["error"]
    assert f"begin with POST {feed}/baseline" in denied.json()["error"]
    assert "main" in branches(shown.json())
    # The cursor of another actor is no way around it.
    page = guarded.ask("GET", f"{begun}&limit=1", headers=bearer("ann")).json()
    followed = f"{AT}/{feed}?branch=feature&page_token={page[token]}"
    assert statuses(guarded, bearer("gus"), ("GET", followed, None)) == [403]
    assert statuses(guarded, bearer("gus"), ("GET", f"{AT}/{feed}?branch=feature&start=now", None)) == [200]


def test_the_log_of_a_copy_has_the_commits_of_branches_that_may_be_read(guarded):
    for who, branches in (("gus", {"feature"}), ("ann", {"feature", "main"})):
        commits = guarded.ask("GET", f"{AT}/commits?branch=feature", headers=bearer(who)).json()["commits"]
        assert {each["graph_branch"] for each in commits} == branches


def test_a_change_tells_of_rows_only_to_who_may_know_them(guarded):
    """`wes` may change everything and read nothing."""
    wes, ann = bearer("wes"), bearer("ann")
    made = guarded.ask("POST", f"{AT}/branches", json={"name": "drop", "from": "main"}, headers=ann)
    assert made.status_code == 200

    def change(who, text):
        return guarded.ask("POST", f"{AT}/mutate", json={"query": text, "branch": "drop"}, headers=who)

    unknown = {"branch": "drop", "query_name": "q", "affected_nodes": None, "affected_edges": None, "commit": None}
    for key in ("a", "nowhere"):
        found = change(wes, 'query q() { update Town set { size: 7 } where key = "KEY" }'.replace("KEY", key))
        assert (found.status_code, found.json()) == (200, {**unknown, "actor_id": "wes"})
    assert change(ann, 'query q() { update Town set { size: 8 } where key = "a" }').json()["affected_nodes"] == 1
    refused = change(wes, 'query q() { insert Road { from: "a", to: "nowhere" } }')
    assert refused.status_code == 409
    assert refused.json() == {
        "error": "the change does not fit what is on branch 'drop', and nothing was changed; only actors with the "
        "permission read or export on that branch are told why",
        "code": "conflict",
    }
    assert "'nowhere' not found in Town" in change(ann, 'query q() { insert Road { from: "a", to: "nowhere" } }').text
    # What is wrong with the request itself is told.
    assert "line 1" in change(wes, 'query q() { insert Twon { key: "a" } }').json()["error"]
    records = {"data": json.dumps({"type": "Town", "data": {"key": "a"}}), "branch": "drop", "mode": "append"}
    assert "key_conflict" in guarded.ask("POST", f"{AT}/load", json=records, headers=ann).json()
    refused = guarded.ask("POST", f"{AT}/load", json=records, headers=wes)
    assert (refused.status_code, refused.json().keys()) == (409, {"error", "code"})
    broken = guarded.ask("POST", f"{AT}/load", json={**records, "data": "{}"}, headers=wes)
    assert (broken.status_code, broken.json()["total_problems"]) == (400, 1)
    loaded = guarded.ask("POST", f"{AT}/load", json={**records, "mode": "merge"}, headers=wes)
    assert (loaded.json()["total_entities"], loaded.json()["commit"]) == (1, None)


def test_a_commit_is_shown_only_to_who_may_read_its_branch(guarded):
    made = guarded.ask("GET", f"{AT}/snapshot?branch=feature", headers=bearer("ann")).json()
    commit = f"{AT}/commits/{made['graph_commit_id']}"
    assert guarded.ask("GET", commit, headers=bearer("ann")).json()["graph_branch"] == "feature"
    hidden = guarded.ask("GET", commit, headers=bearer("nia"))
    assert (hidden.status_code, hidden.json().get("code")) == (404, "not_found")


def test_scenario_30_what_names_no_branch_is_read_as_main(guarded):
    graph, nia = guarded.source.generation.graphs["towns"], bearer("nia")
    snapshot = {**READ, "snapshot": open_snapshot(graph.uri).manifest.txn_id}
    asked = [("POST", f"{AT}/query", snapshot), ("GET", f"{AT}/schema", None), ("GET", f"{AT}/branches", None)]
    assert statuses(guarded, nia, *asked, ("GET", f"{AT}/commits", None)) == [200] * 4
    made = guarded.ask("GET", f"{AT}/snapshot?branch=feature", headers=bearer("ann")).json()
    elsewhere = {**READ, "snapshot": made["graph_commit_id"]}
    branch = ("GET", f"{AT}/snapshot?branch=feature", None)
    assert statuses(guarded, nia, branch) == [403]
    # The head of a new branch is a commit of its own.
    assert statuses(guarded, nia, ("POST", f"{AT}/query", elsewhere)) == [403]


def test_scenario_32_an_actor_in_no_group_is_unknown(guarded, caplog):
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        denied = guarded.ask("GET", f"{AT}/snapshot", headers=bearer("eve"))
    said = (
        "'eve' needs the permission read on branch 'main' of graph 'towns'; the policy there has this actor in no group"
    )
    assert (denied.status_code, denied.json().get("error")) == (403, said)
    (decided,) = (record.form for record in caplog.records)
    assert (decided["allowed"], decided["matched_rule_id"]) == (False, None)


def test_a_denial_names_the_scope_that_lacks_the_permission(guarded):
    said = [
        guarded.ask("GET", "/graphs", headers=bearer("ann")).json()["error"],
        guarded.ask("POST", f"{AT}/mutate", json={"query": insert("d")}, headers=bearer("ann")).json()["error"],
    ]
    assert said == [
        "'ann' needs the permission graph_list on the server; no policy is bound to the server",
        "'ann' needs the permission change on branch 'main' of graph 'towns'; no rule of policy 'towns' gives it",
    ]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "snapshot?branch=featrue", None),
        ("GET", "commits?branch=featrue", None),
        ("GET", "changes?start=now&branch=featrue", None),
        ("GET", "blob?entity=node&type=Town&id=a&property=name&branch=featrue", None),
        ("POST", "query", {**READ, "branch": "featrue"}),
        ("POST", "export", {"branch": "featrue"}),
        ("POST", "mutate", {"query": insert("x"), "branch": "featrue"}),
        ("POST", "load", {"branch": "featrue", "data": ""}),
        ("POST", "branches", {"name": "own", "from": "featrue"}),
        ("DELETE", "branches/featrue", None),
        ("POST", "branches/merge", {"source": "featrue", "target": "feature"}),
    ],
)
def test_an_answer_names_the_missing_branch_and_others_only_to_who_may_list_them(guarded, method, path, body):
    said = {}
    for who in ("ann", "adm", "gus"):
        answer = guarded.ask(method, f"{AT}/{path}", json=body, headers=bearer(who))
        if answer.status_code == 404:
            said[who] = answer.json()["error"]
            assert "graph 'towns' has no branch 'featrue'" in said[who]
            assert guarded.source.current().graphs["towns"].uri not in said[who]
    assert "gus" in said
    # Only `main` is read as the list of branches is.
    listing = {who for who in said if guarded.ask("GET", f"{AT}/branches", headers=bearer(who)).status_code == 200}
    assert {who for who, text in said.items() if "feature" in text} == listing - (
        {"adm"} if method == "DELETE" else set()
    )


def test_scenario_33_of_two_rules_that_permit_it_the_first_by_id_is_named(guarded, caplog):
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        assert guarded.ask("GET", f"{AT}/snapshot", headers=bearer("ben")).status_code == 200
    (decided,) = (record.form for record in caplog.records)
    assert (decided["allowed"], decided["matched_rule_id"]) == (True, "b-read")


CASES = json.loads((ROOT / "tests" / "data" / "serving" / "hostile.json").read_text(encoding="utf-8"))
_ALLOWED = Bundle({"all": ("ada",)}, rules=(Rule("any", "all", (PolicyAction.READ, PolicyAction.INVOKE_QUERY)),))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    graph = served(town_graph(tmp_path_factory.mktemp("graphs")), engine=BundleEngine(_ALLOWED))
    with running(generation(graph), tokens(ada="t-ada", bob="t-bob")) as found:
        yield found


def _expanded(text):
    return re.sub(r"@(.)\*(\d+)@", lambda found: found[1] * int(found[2]), text)


def sent(case):
    """The bytes of a request, `bytes` or lines and a body; `@x*n@` is a text so many times."""
    if "bytes" in case:
        return _expanded(case["bytes"]).encode("latin-1")
    body = _expanded(case.get("body", "")).encode()
    lines = case.get("lines") or [
        f"POST /graphs/towns/{case['post']} HTTP/1.1",
        "Authorization: Bearer t-ada",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, "Host: x", "", ""]).encode() + body


def answers(port, data):
    """The answers to some bytes on a connection of their own, after which no more are sent."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(data)
        first = http.client.HTTPResponse(connection)
        first.begin()
        body = first.read()
        # The server may have closed the connection, with what it did not read of the request.
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
            return first, body, connection.recv(1024)
        return first, body, b""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_hostile_request_is_refused(server, case):
    seen = len(server.log)
    answer, body, rest = answers(server.port, sent(case))
    assert answer.status == case["status"], body
    if "code" in case:
        found = json.loads(body)
        assert (found["code"], answer.headers["x-content-type-options"]) == (case["code"], "nosniff")
        assert case.get("says", "") in found["error"]
        assert server.source.current().graphs["towns"].uri not in found["error"]
    assert answer.headers.get("set-cookie") is None
    assert {name: answer.headers[name] for name in case.get("has", {})} == case.get("has", {})
    assert rest == b""
    assert not [record for record in server.log[seen:] if record["event"] == "defect"]
    assert "t-ada" not in json.dumps([dict(record) for record in server.log[seen:]])


def test_the_log_says_who_asked_for_what_and_how_it_ended(server):
    seen = len(server.log)
    headers = {"Authorization": "Bearer t-ada", "X-Request-Id": "trace-7"}
    answer = server.ask("POST", "/graphs/towns/queries/town", json={"params": {"key": "a"}}, headers=headers)
    assert answer.headers["x-request-id"] == "trace-7"
    server.until(lambda: len(server.log) > seen)
    record = dict(server.log[seen])
    assert record.pop("ms") >= 0
    assert record == {
        "event": "request",
        "request_id": "trace-7",
        "method": "POST",
        "route": "invoke_query",
        "graph": "towns",
        "query": "town",
        "actor": "ada",
        "status": 200,
        "bytes": len(answer.content),
        "revision": "ab" * 32,
    }


SITES = [
    line.split("\t")
    for line in (ROOT / "tests" / "data" / "serving" / "sites.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """One that anyone on this machine may ask, and one with tokens."""
    roots = tmp_path_factory.mktemp("open"), tmp_path_factory.mktemp("guarded")
    writing = Bundle(
        {"all": ("ada",)},
        rules=(Rule("any", "all", (PolicyAction.CHANGE, PolicyAction.READ, PolicyAction.INVOKE_QUERY)),),
    )
    guarded = generation(served(town_graph(roots[1]), engine=BundleEngine(writing)))
    with running(generation(served(town_graph(roots[0])))) as opened, running(guarded, tokens(ada="t-ada")) as found:
        yield {"open": opened, "guarded": found}


def asked(server, path, media_type, origin, host, body, method="POST"):
    """The answer to a request as a page could send it, and its document."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, path, skip_host=True)
        given = {"Content-Type": media_type, "Origin": origin, "Host": host.replace("PORT", str(server.port))}
        for name, value in {**given, "Accept": "application/json, text/event-stream"}.items():
            if value not in ("-", "none", "absent"):
                connection.putheader(name, value.replace("PORT", str(server.port)))
        connection.putheader("Authorization", "Bearer t-ada")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer, json.loads(answer.read() or b"{}")


@pytest.mark.parametrize("row", SITES, ids=" ".join)
def test_a_page_of_another_site_changes_nothing(servers, row):
    kind, route, media_type, origin, host, status = row
    server = servers[kind]
    key = f"town-{SITES.index(row)}"
    form = {"params": {"key": key, "size": 1}}
    if route == "mcp":
        form = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
        form["params"] = {"name": "add_town", "arguments": {"key": key, "size": 1}}
    body = json.dumps(form).encode()
    if media_type == "-":
        # Nothing to send: a query without parameters. A page needs no media type for that.
        route, body = "queries/towns", b""
    answer, found = asked(server, f"/graphs/towns/{route}", media_type, origin, host, body)
    assert answer.status == int(status), found
    if answer.status >= 400:
        assert found["code"] == ("forbidden" if answer.status == 403 else "bad_request")
    assert not [name for name in answer.headers if name.lower().startswith("access-control-")]
    towns = server.ask("POST", "/graphs/towns/queries/towns", headers={"Authorization": "Bearer t-ada"}).json()["rows"]
    made = key in {each["t.key"] for each in towns}
    assert made == (answer.status == 200 and route != "queries/towns")


@pytest.mark.parametrize("route", [*ROUTES, None], ids=lambda route: route and route.operation)
def test_every_route_of_an_open_server_refuses_other_sites(servers, route):
    server, local = servers["open"], "127.0.0.1:PORT"
    path = "/nothing" if route is None else re.sub(r"\{\w+\}", "towns", route.path)
    method = "GET" if route is None else route.method

    def status(media_type, origin, host, body):
        return asked(server, path, media_type, origin, host, body, method)[0].status

    assert status("application/json", "https://evil.example", local, b"{}") == 403
    preflight, _ = asked(server, path, "-", "https://evil.example", local, b"", "OPTIONS")
    assert preflight.status == 403
    assert not [name for name in preflight.headers if name.lower().startswith("access-control-")]
    assert status("application/json", "-", "evil.example:PORT", b"{}") == 421
    if route is not None and (route.body or route.body_type):
        assert [status(each, "-", local, b"{}") for each in ("text/plain", "none")] == [415, 415]


PREFIX = "OMNIGRAPH_SERVER_BEARER_TOKEN"


def load(**given: str) -> tuple[BearerTokens, list[str]]:
    """The tokens of variables, by the ends of their names, and what is wrong with them."""
    found = Diagnostics()
    table = load_tokens({PREFIX + name: value for name, value in given.items()}, found)
    assert {each.code for each in found} <= {"token_source_invalid"}
    return table, [f"{each.path}: {each.message}" for each in found]


def test_actors_and_tokens_are_trimmed_and_a_token_is_found_by_its_text_alone():
    table, problems = load(S_JSON='{" ada ": " t-ada ", "ben": "t-ben"}')
    assert not problems
    assert table.actors == ("ada", "ben")
    assert [table.actor_of(each) for each in (b"t-ada", b"t-ben", b" t-ada ", b"", b"\xff")] == [
        "ada",
        "ben",
        None,
        None,
        None,
    ]
    assert "t-ada" not in repr(table)


def test_a_file_wins_over_the_object_and_the_single_token_is_added(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"ada": "from-file"}', "utf-8")
    table, problems = load(S_FILE=str(file), S_JSON='{"ben": "from-object"}', **{"": "single"})
    assert not problems
    assert table.actors == ("ada", "default")
    assert table.actor_of(b"single") == "default"


def test_a_mounted_folder_has_one_file_for_each_actor(tmp_path):
    hidden = tmp_path / "..2026_01_01"
    hidden.mkdir()
    (hidden / "ada").write_text("t-ada\n", "utf-8")
    (tmp_path / "ada").symlink_to("..2026_01_01/ada")
    (tmp_path / "ben").write_text("t-ben", "utf-8")
    table, problems = load(S_FILE=str(tmp_path))
    assert not problems
    assert [table.actor_of(b"t-ada"), table.actor_of(b"t-ben")] == ["ada", "ben"]


@pytest.mark.parametrize("blank", [{}, {"S_JSON": "  "}, {"S_FILE": "", "": " "}, {"S_JSON": "{}"}])
def test_what_is_blank_is_not_set_and_an_empty_object_has_no_tokens(blank):
    assert load(**blank) == (BearerTokens(), [])


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("[]", "it is not a JSON object with string values"),
        ('[["ada", "x"]]', "it is not a JSON object with string values"),
        ('"ada"', "it is not a JSON object with string values"),
        ('{"ada": 1}', "it is not a JSON object with string values"),
        ('{"ada": {"token": "x"}}', "it is not a JSON object with string values"),
        ('{"ada": "x"', "it is not a JSON object with string values"),
        ('{"ada": "x", "ada": "y"}', "actor 'ada' has two tokens"),
        ('{"ada": "x", " ada": "y"}', "actor 'ada' has two tokens"),
        ('{" ": "x"}', "the name of an actor is blank"),
        ('{"ada": " "}', "the token of actor 'ada' is blank"),
        ('{"ada": "\\ud800"}', "the token of actor 'ada' is not Unicode text"),
    ],
)
def test_a_malformed_object_is_refused_and_no_token_is_shown(text, detail):
    table, (problem,) = load(S_JSON=text)
    assert problem.endswith(f": {detail}")
    assert not table


def test_25_the_actor_of_the_single_token_must_not_be_in_the_file(tmp_path):
    file = tmp_path / "tokens.json"
    file.write_text('{"default": "one"}', "utf-8")
    assert load(S_FILE=str(file), **{"": "two"})[1] == ["bearer tokens: actor 'default' has two tokens"]


def test_26_two_actors_with_one_token_are_refused():
    assert load(S_JSON='{"ada": "same", "ben": "same "}')[1] == [
        "bearer tokens: actors 'ada' and 'ben' have the same token"
    ]


def test_a_source_that_cannot_be_read_is_refused(tmp_path):
    assert "No such file" in load(S_FILE=str(tmp_path / "none"))[1][0]
    (tmp_path / "ada").write_bytes(b"\xff")
    assert "is not UTF-8 text" in load(S_FILE=str(tmp_path))[1][0]
    large = tmp_path / "large"
    large.write_bytes(b" " * (4 * 1024 * 1024 + 1))
    assert "has more than" in load(S_FILE=str(large))[1][0]
    assert "cannot read AWS secrets" in load(S_AWS_SECRET="prod/tokens", S_JSON='{"ada": "x"}')[1][0]


NEVER_S = 3600.0


def run(made: Callable[[], Workers], told: Callable[[Workers], Awaitable[None]]) -> None:
    async def main() -> None:
        workers = made()
        try:
            await asyncio.wait_for(told(workers), 60)
        finally:
            await asyncio.to_thread(workers.close)

    asyncio.run(main())


def test_short_work_runs_one_after_the_other_in_one_thread():
    names, together, most = set(), 0, 0

    def short() -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        names.add(threading.current_thread().name)
        together -= 1

    async def told(workers: Workers) -> None:
        await asyncio.gather(*(workers.run(short) for _ in range(50)))

    run(lambda: Workers(4, NEVER_S), told)
    assert (most, len(names)) == (1, 1)


def test_long_work_leaves_the_others_their_turn_as_far_as_there_are_threads():
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def long() -> str:
        begun.release()
        assert go_on.wait(60)
        return "long"

    async def told(workers: Workers) -> None:
        waiting = [asyncio.ensure_future(workers.run(long)) for _ in range(3)]
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        # Two of three threads are at work for long: the third long one takes the last.
        assert await asyncio.to_thread(begun.acquire, timeout=60)
        short = asyncio.ensure_future(workers.run(lambda: "short"))
        go_on.set()
        assert await asyncio.gather(*waiting, short) == ["long"] * 3 + ["short"]

    run(lambda: Workers(3, 0.001), told)


def test_short_work_is_done_while_long_work_goes_on_and_failures_reach_callers():
    go_on, begun = threading.Event(), threading.Event()

    def long() -> bool:
        begun.set()
        return go_on.wait(60)

    def fail() -> None:
        raise ValueError("at once")

    async def told(workers: Workers) -> None:
        waiting = asyncio.ensure_future(workers.run(long))
        assert await asyncio.to_thread(begun.wait, 60)
        assert [await workers.run(partial(abs, -n)) for n in range(5)] == list(range(5))
        with pytest.raises(ValueError, match="at once"):
            await workers.run(fail)
        assert not waiting.done()
        go_on.set()
        assert await waiting

    run(lambda: Workers(2, 0.001), told)


def test_a_caller_that_is_cancelled_leaves_its_thread_at_work():
    go_on, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        go_on.wait(60)
        ended.set()
        raise ValueError("late")

    async def told(workers: Workers) -> None:
        waiting = asyncio.ensure_future(workers.run(long))
        assert await asyncio.to_thread(begun.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [await workers.run(partial(abs, -n)) for n in range(5)] == list(range(5))
        assert not ended.is_set()
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 60)
        assert [await workers.run(partial(abs, -n)) for n in range(5)] == list(range(5))

    run(lambda: Workers(2, 0.001), told)


@pytest.mark.parametrize("cancelled", [False, True])
def test_work_that_outlasts_its_limit_is_reported_whether_or_not_its_caller_is_there(cancelled):
    go_on, begun = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        go_on.wait(60)

    async def told(workers: Workers) -> None:
        exceeded = asyncio.Event()
        waiting = asyncio.ensure_future(workers.run(long, 0.001, exceeded.set))
        if cancelled:
            await asyncio.to_thread(begun.wait, 60)
            waiting.cancel()
        await exceeded.wait()
        assert workers.stuck == 1
        with pytest.raises(asyncio.CancelledError if cancelled else GitopsError):
            await waiting
        # What is stuck is not waited for.
        await asyncio.to_thread(workers.close)
        assert not go_on.is_set()
        go_on.set()

    run(lambda: Workers(2), told)


def test_work_within_its_limit_is_not_stuck():
    async def told(workers: Workers) -> None:
        exceeded: list[int] = []
        assert await workers.run(lambda: 7, NEVER_S, lambda: exceeded.append(1)) == 7
        assert (workers.stuck, exceeded) == (0, [])

    run(lambda: Workers(2), told)


EXAMPLE = ROOT / "examples" / "company-brain"
EXAMPLE_SERVED_ACTORS = {name: f"t-{name}" for name in ("act-reader", "act-editor", "act-operator")}
CITED = [
    {"other.slug": "disk-full", "other.name": "When a disk is full"},
    {"other.slug": "night-of-the-full-disk", "other.name": "The night of the full disk"},
]


@pytest.fixture(scope="module")
def server_of_example_served(tmp_path_factory):
    bundle, _ = read_bundle((EXAMPLE / "policies" / "knowledge.policy.yaml").read_bytes(), "knowledge.policy.yaml")
    assert bundle is not None
    lines = tuple((EXAMPLE / "seed.jsonl").read_text("utf-8").splitlines())
    schema = (EXAMPLE / "knowledge" / "schema.pg").read_bytes()
    root = World(tmp_path_factory.mktemp("example")).make(Ground(schema, compile_schema(schema), lines))
    queries = b"".join(file.read_bytes() for file in sorted((EXAMPLE / "knowledge" / "queries").glob("*.gq")))
    graph = served(root, "knowledge", queries=queries, engine=CedarEngine(bundle, "knowledge"))
    with running(generation(graph), tokens(**EXAMPLE_SERVED_ACTORS)) as found:
        yield found


@pytest.mark.parametrize(
    ("actor", "reads", "changes"), [("act-reader", 200, 403), ("act-editor", 200, 200), ("act-operator", 404, 404)]
)
def test_the_policy_of_the_example_decides(server_of_example_served, actor, reads, changes):
    def invoke(query, params):
        headers = {"Authorization": f"Bearer {EXAMPLE_SERVED_ACTORS[actor]}"}
        return server_of_example_served.ask(
            "POST", f"/graphs/knowledge/queries/{query}", headers=headers, json={"params": params}
        )

    read = invoke("cited_by", {"slug": "why-columns"})
    assert (read.status_code, read.json().get("rows")) == (reads, CITED if reads == 200 else None)
    assert invoke("promote", {"person": "ada", "level": 9}).status_code == changes
