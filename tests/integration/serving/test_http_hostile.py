"""Requests that no well-meaning client sends, byte by byte: the envelope, never a failure of the server."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket

import pytest

from gitops.policy.bundle import Action, Bundle, Rule
from tests.support.pages import ROOT
from tests.support.query_server import BundleEngine, generation, running, served, tokens, town_graph

CASES = json.loads((ROOT / "tests" / "data" / "serving" / "hostile.json").read_text(encoding="utf-8"))
_ALLOWED = Bundle({"all": ("ada",)}, rules=(Rule("any", "all", (Action.READ, Action.INVOKE_QUERY)),))


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
