"""Requests that no well-meaning client sends, byte by byte: the envelope, never a failure of the server."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket

import pytest

from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.serving.http.app import ROUTES
from tests.support.pages import ROOT
from tests.support.query_server import BundleEngine, generation, running, served, tokens, town_graph

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
    assert "t-ada" not in json.dumps(server.log[seen:])


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
