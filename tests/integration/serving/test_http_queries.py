"""Queries over HTTP: texts and stored ones, reads and mutations, under the rules of access."""

from __future__ import annotations

import json

import pytest

from gitops.cluster.policy.bundle import BranchScope, Bundle, PolicyAction, Rule
from gitops.cluster.policy.cedar import CedarEngine
from gitops.serving.http.work import HttpLimits
from tests.support.pages import ROOT
from tests.support.query_server import QUERIES, BundleEngine, generation, running, served, tokens, town_graph

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
            "query: line 1, column 3102: limit error: T25: the query has 257 conditions; at most 256"
        )


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
    denied = guarded.ask("POST", f"{INVOKE}/towns", headers=bearer("ada"))
    unknown = guarded.ask("POST", f"{INVOKE}/nothing", headers=bearer("bob"))
    assert (denied.status_code, denied.content) == (404, unknown.content)


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
