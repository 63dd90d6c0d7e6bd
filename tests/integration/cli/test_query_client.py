"""`gitops query`: what a person gets from a query server, and what the server's refusals become."""

from __future__ import annotations

import json
import socket

import pytest

from gitops.cli.main import main
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.repository.wiring.serving import open_query_server
from gitops.serving.http.work import HttpLimits
from tests.support.http_service import HttpService, Reply
from tests.support.query_server import BundleEngine, generation, running, served, tokens, town_graph

POLICY = Bundle(
    groups={"readers": ("ada", "bob"), "writers": ("bob",), "callers": ("ada", "bob", "cyd")},
    protected_branches=frozenset({"main"}),
    rules=(
        Rule("calling", "callers", (PolicyAction.INVOKE_QUERY,)),
        Rule("reading", "readers", (PolicyAction.READ,)),
        Rule("writing", "writers", (PolicyAction.CHANGE,)),
    ),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    graph = served(town_graph(tmp_path_factory.mktemp("graphs")), engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(ada="t-ada", bob="t-bob", cyd="t-cyd")) as found:
        yield found


@pytest.fixture
def ask(server, monkeypatch, capsys):
    """Run the command as an actor; gives the exit code, the output and the complaints."""
    monkeypatch.setenv("GITOPS_SERVER", f"http://127.0.0.1:{server.port}")

    def run(actor, *words):
        if actor is None:
            monkeypatch.delenv("GITOPS_SERVER_TOKEN", raising=False)
        else:
            monkeypatch.setenv("GITOPS_SERVER_TOKEN", f"t-{actor}")
        code = main(["query", *words])
        found = capsys.readouterr()
        return code, found.out, found.err

    return run


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("csv", "t.key,t.size,t.name\nb,2,Birch\n"),
        ("ndjson", '{"t.key": "b", "t.size": 2, "t.name": "Birch"}\n'),
        ("kv", "t.key: b\nt.size: 2\nt.name: Birch\n"),
    ],
)
def test_programs_get_rows(ask, form, printed):
    assert ask("ada", "towns", "town", "--param", "key=b", "--format", form) == (0, printed, "")


def test_people_get_a_table_and_the_commit_that_was_read(ask, server):
    code, table, _ = ask("ada", "towns", "town", "--param", "key=b")
    *rows, last = table.splitlines()
    assert (code, rows[-1].split()) == (0, ["b", "2", "Birch"])
    form = json.loads(ask("ada", "towns", "town", "--param", "key=b", "--json")[1])
    assert (form["ok"], last) == (True, f"1 row, commit {form['graph_commit_id']}")
    assert ask("ada", "towns", "town", "--param", "key=b", "--snapshot", form["graph_commit_id"])[1] == table


def test_a_text_declares_what_its_parameters_mean(ask):
    text = "query q($least: I32, $key: String) { match { $t: Town { key: $key } $t.size >= $least } return { $t.key } }"
    found = ask("ada", "towns", "--text", text, "--param", "least=2", "--param", "key=b", "--format", "csv")
    assert found == (0, "t.key\nb\n", "")


def test_a_mutation_is_run_only_where_that_is_asked_for(ask):
    add = ("towns", "add_town", "--param", "key=2", "--param", "size=7")
    code, _, said = ask("bob", *add)
    assert (code, "query_server_refused" in said, "mutation" in said) == (1, True, True)
    code, said, _ = ask("bob", *add, "--mutate")
    assert (code, said.startswith("query: 1 node(s) and 0 edge(s) of towns, commit ")) == (0, True)
    drop = "query q($key: String) { delete Town where key = $key }"
    assert (
        json.loads(ask("bob", "towns", "--text", drop, "--param", "key=2", "--mutate", "--json")[1])["affected_nodes"]
        == 1
    )


@pytest.mark.parametrize(
    ("actor", "words", "code"),
    [
        (None, ("towns", "towns"), "query_server_unauthorized"),
        ("nobody", ("towns", "towns"), "query_server_unauthorized"),
        ("ada", ("towns", "add_town", "--param", "key=d", "--mutate"), "query_server_forbidden"),
        ("cyd", ("towns", "towns"), "query_server_forbidden"),
        ("ada", ("towns", "missing"), "query_server_unknown"),
        ("ada", ("cities", "towns"), "query_server_unknown"),
        ("ada", ("towns", "town", "--param", "kay=b"), "query_server_refused"),
        ("ada", ("towns", "--text", "query q() { broken"), "query_server_refused"),
    ],
)
def test_a_refusal_has_a_code_and_a_remedy(ask, actor, words, code):
    exit_code, printed, said = ask(actor, *words)
    assert (exit_code, printed) == (1, "")
    assert said.startswith(f"ERROR {code}")
    assert "fix: " in said
    assert "t-ada" not in said


def test_a_server_that_is_busy_is_not_asked_again(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("GITOPS_SERVER_TOKEN", raising=False)
    with running(generation(served(town_graph(tmp_path))), limits=HttpLimits(inflight=0)) as full:
        address = f"http://127.0.0.1:{full.port}"
        assert main(["query", "towns", "drop_town", "--param", "key=a", "--mutate", "--server", address]) == 1
        assert "query_server_busy" in capsys.readouterr().err
        assert [record["status"] for record in full.log if record.get("event") == "request"] == [200, 429]


def test_a_token_comes_from_a_file(ask, tmp_path):
    file = tmp_path / "token"
    file.write_text("t-ada\n")
    assert ask(None, "towns", "towns", "--token-file", str(file), "--format", "csv")[0] == 0
    file.write_text("\n")
    assert ask("ada", "towns", "towns", "--token-file", str(file))[0] == 2
    assert ask("ada", "towns", "towns", "--token-file", str(tmp_path / "missing"))[0] == 2


def test_a_token_does_not_leave_this_host_in_plain(ask):
    code, _, said = ask("ada", "towns", "towns", "--server", "http://brain.invalid:8080")
    assert (code, "a token is not sent in plain" in said, "--plain-http" in said) == (2, True, True)
    environ = {"GITOPS_SERVER_TOKEN": "t-ada"}
    assert open_query_server("http://brain.invalid", None, environ, plain_http=True).base == "http://brain.invalid"
    assert open_query_server("http://brain.invalid", None, {}).base == "http://brain.invalid"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(502, b"<html>bad gateway</html>"), "query_server_unavailable"),
        (Reply(301, b"", (("Location", "https://elsewhere.invalid/"),)), "query_server_unavailable"),
        (Reply(500, b'{"error": "the request failed", "code": "internal"}'), "query_server_unavailable"),
        (Reply(200, b"<html>welcome</html>"), "query_server_unavailable"),
        (Reply(412, b'{"error": "the branch is at another commit"}'), "query_server_refused"),
    ],
)
def test_what_is_between_may_answer_too(ask, reply, code):
    with HttpService(lambda _: reply) as other:
        exit_code, printed, said = ask("ada", "towns", "--text", "query q() {}", "--server", other.base)
        assert (exit_code, printed, said.startswith(f"ERROR {code}")) == (1, "", True), said
        assert len(other.requests) == 1


def test_what_is_no_server_is_said_so(ask, server, monkeypatch):
    monkeypatch.setattr("gitops.repository.wiring.serving.time.sleep", lambda _: None)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert "query_server_unavailable" in ask("ada", "towns", "towns", "--server", address)[2]
    assert "query_server_unavailable" in ask("ada", "towns", "towns", "--server", "ftp://brain.invalid")[2]
    monkeypatch.setenv("GITOPS_SERVER", "")
    assert ask("ada", "towns", "towns")[0] == 2
