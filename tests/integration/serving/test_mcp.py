"""Stored queries as tools, asked for with the client of the official SDK over HTTP."""

from __future__ import annotations

import asyncio
import json
import shutil

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from tests.support.query_server import BundleEngine, generation, running, served, tokens, town_graph

POLICY = Bundle(
    groups={
        "all": ("ada", "bob", "cyd", "dan"),
        "writers": ("bob",),
        "callers": ("ada", "bob", "dan"),
        "few": ("cyd",),
    },
    rules=(
        Rule("reading", "all", (PolicyAction.READ,)),
        Rule("writing", "writers", (PolicyAction.CHANGE,)),
        Rule("calling", "callers", (PolicyAction.INVOKE_QUERY,)),
        Rule("calling-few", "few", (PolicyAction.INVOKE_QUERY,), queries=("town*",)),
    ),
)
ACTORS = {name: f"t-{name}" for name in ("ada", "bob", "cyd", "eve")}
READS = ["kinds", "town", "towns"]
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    graph = served(town_graph(tmp_path_factory.mktemp("graphs")), engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        yield server


def using(server, actor, work, **options):
    """What `work` gives for a client of an actor."""

    async def run():
        headers = {} if actor is None else {"Authorization": f"Bearer {ACTORS[actor]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(
                streamable_http_client(f"http://127.0.0.1:{server.port}/graphs/towns/mcp", http_client=http), **options
            ) as client,
        ):
            return await work(client)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("actor", "names"), [("ada", READS), ("bob", ["add_town", "drop_town", *READS]), ("cyd", ["town", "towns"])]
)
def test_an_agent_sees_the_tools_that_it_may_run(guarded, actor, names):
    listed = using(guarded, actor, lambda client: client.list_tools())
    assert [each.name for each in listed.tools] == names
    assert {each.name for each in listed.tools if each.annotations.read_only_hint} == {*names} & {*READS}


def test_arguments_have_a_schema_by_their_kinds(guarded):
    listed = using(guarded, "ada", lambda client: client.list_tools())
    tools = {each.name: each for each in listed.tools}
    schema = tools["kinds"].input_schema
    number, text = {"type": "number"}, {"type": "string"}
    big = {"type": "string", "pattern": r"^-?\d+$"}
    assert schema["properties"] == {
        "s": text,
        "i": {"type": "integer"},
        "l": big,
        "u": {"type": "integer"},
        "w": big,
        "f": number,
        "d": number,
        "b": {"type": "boolean"},
        "day": {**text, "format": "date"},
        "at": {**text, "format": "date-time"},
        "many": {"type": "array", "items": text},
        "v": {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
        "maybe": {"anyOf": [big, {"type": "null"}]},
    }
    assert schema["required"] == [name for name in schema["properties"] if name != "maybe"]
    assert schema["additionalProperties"] is False
    assert tools["town"].description == "One town."


def test_a_tool_answers_as_its_stored_query(guarded):
    found = using(guarded, "cyd", lambda client: client.call_tool("town", {"key": "a"}))
    headers = {"Authorization": f"Bearer {ACTORS['cyd']}"}
    plain = guarded.ask("POST", "/graphs/towns/queries/town", json={"params": {"key": "a"}}, headers=headers)
    assert not found.is_error
    assert found.structured_content == plain.json() == json.loads(found.content[0].text)
    assert found.structured_content["rows"] == [{"t.key": "a", "t.size": 1, "t.name": "Ash"}]


def test_a_tool_that_changes_the_graph_carries_the_actor(tmp_path):
    graph = served(town_graph(tmp_path), engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        added = using(server, "bob", lambda client: client.call_tool("add_town", {"key": "d", "size": 9}))
        found = using(server, "bob", lambda client: client.call_tool("town", {"key": "d"}))
    assert added.structured_content["affected_nodes"] == 1
    assert added.structured_content["actor_id"] == added.structured_content["commit"]["actor_id"] == "bob"
    assert found.structured_content["row_count"] == 1


def test_a_wrong_argument_is_an_error_of_the_tool(guarded):
    found = using(guarded, "ada", lambda client: client.call_tool("town", {"key": 5}))
    assert found.is_error
    assert "key" in found.structured_content["error"]


@pytest.mark.parametrize("tool", ["kinds", "add_town", "nothing"])
def test_a_tool_that_an_agent_may_not_invoke_does_not_exist(guarded, tool):
    async def call(client):
        with pytest.raises(MCPError) as refused:
            await client.call_tool(tool, {})
        return refused.value.message

    assert using(guarded, "cyd", call) == f"unknown tool: {tool}"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_both_forms_of_the_protocol_are_answered(guarded, mode):
    listed = using(guarded, "ada", lambda client: client.list_tools(), mode=mode)
    assert [each.name for each in listed.tools] == READS


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, MESSAGE, 401),
        ({"authorization": "Bearer wrong"}, MESSAGE, 401),
        ({"authorization": "Bearer t-ada", "content-type": "text/plain"}, MESSAGE, 415),
        ({"authorization": "Bearer t-ada"}, '{"jsonrpc": "2.0", "jsonrpc": "2.0"}', 400),
        ({"authorization": "Bearer t-ada"}, '{"id": NaN}', 400),
        ({"authorization": "Bearer t-ada"}, "[" * 1000, 400),
        ({"authorization": "Bearer t-ada"}, " " * (2**20 + 1), 413),
    ],
)
def test_a_message_is_checked_before_the_protocol_sees_it(guarded, headers, body, status):
    sent = body if isinstance(body, str) else json.dumps(body)
    answer = guarded.ask("POST", "/graphs/towns/mcp", content=sent, headers={**HEADERS, **headers})
    assert answer.status_code == status
    assert answer.json()["error"]


def test_there_are_no_sessions(guarded):
    headers = {**HEADERS, "authorization": "Bearer t-ada"}
    answer = guarded.ask("POST", "/graphs/towns/mcp", json=MESSAGE, headers=headers)
    assert answer.status_code == 200
    assert "mcp-session-id" not in answer.headers
    assert answer.headers["omnigraph-applied-revision"].startswith("sha256:")
    assert guarded.ask("GET", "/graphs/towns/mcp", headers=headers).status_code == 405
    assert guarded.ask("POST", "/graphs/other/mcp", json=MESSAGE, headers=headers).status_code == 404


def test_a_failure_of_the_server_is_logged_and_not_quoted(tmp_path):
    graph = served(town_graph(tmp_path))
    shutil.rmtree(graph.uri)
    message = {**MESSAGE, "method": "tools/call", "params": {"name": "towns", "arguments": {}}}
    with running(generation(graph)) as server:
        answer = server.ask("POST", "/graphs/towns/mcp", json=message, headers=HEADERS)
        server.until(lambda: any(record["event"] == "request" for record in server.log))
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert [record["route"] for record in server.log if record["event"] == "defect"] == ["mcp"]
