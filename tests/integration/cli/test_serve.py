"""`gitops bot serve` and `gitops bot queue`, and commands that ask a server: what they need, refuse, and list."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.cli.main import main, parse_options
from gitops.cli.serve import _logger, _secrets, _server
from gitops.cli.serve import serve as run_serve
from gitops.cli.served import read_tokens, server_environment
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.core.diagnostics import Severity
from gitops.core.errors import UsageError
from gitops.forge.events import RequestAction, RequestEvent
from gitops.forge.port import Account, Annotation, CheckState, CommitCheck, Permission
from gitops.git.hooks import install_hooks, remove_hooks
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.serving import open_query_server
from gitops.server.queue import EventQueue
from gitops.server.shared import ServerContext
from gitops.serving.http.work import HttpLimits
from tests.support.clock import FixedClock
from tests.support.forge_world import LocalWorld
from tests.support.git_fixture import commit, environment, run
from tests.support.http_service import HttpService, Reply
from tests.support.query_server import BundleEngine, generation, running, served, tokens, town_graph
from tests.support.serving import logger

GOOD = "0123456789abcdef"
NAME = "GITOPS_WEBHOOK_SECRET"


def serve(*more: str):
    return parse_options(["bot", "serve", "--repo", ".", "--queue", "q.db", *more])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("[::1]:0", ("::1", 0)),
        ("hooks.example:443", ("hooks.example", 443)),
    ],
)
def test_an_address_is_host_and_port(given, expected) -> None:
    assert serve("--listen", given).listen == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [("9464", ("127.0.0.1", 9464)), (":0", ("127.0.0.1", 0)), ("[::]:1", ("::", 1)), ("a.example:2", ("a.example", 2))],
)
def test_an_admin_address_without_a_host_is_one_of_this_machine(given, expected) -> None:
    assert parse_options(["serve", "--admin-bind", given]).admin_bind == expected


def test_strangers_do_not_reach_it_by_default() -> None:
    assert parse_options(["serve"]).admin_bind is None
    assert serve().listen == ("127.0.0.1", 8080)


@pytest.mark.parametrize(
    "given",
    [
        ["--listen", "8080"],
        ["--listen", "host:65536"],
        ["--listen", "::1:80"],
        ["--listen", "ho st:80"],
        ["--every", "0m"],
        ["--every", "10"],
        ["--every", "1w"],
        ["--workers", "0"],
        ["--workers", "17"],
        ["--forge", "local"],
        ["--secret", GOOD],
    ],
)
def test_anything_else_is_wrong_usage(given, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        serve(*given)
    assert end.value.code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(("given", "seconds"), [("90s", 90), ("10m", 600), ("6h", 21600), ("1d", 86400)])
def test_times_have_a_unit(given, seconds) -> None:
    assert serve("--every", given).every == timedelta(seconds=seconds)


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path) -> None:
    assert [s.reveal() for s in _secrets(None, {NAME: GOOD})] == [GOOD]
    file = tmp_path / "secrets"
    file.write_text(f"\n{GOOD}\n  {GOOD[::-1]}\n")
    assert [s.reveal() for s in _secrets(str(file), {NAME: "x"})] == [GOOD, GOOD[::-1]]


@pytest.mark.parametrize("content", [None, "", "\n\n", "short", f"{GOOD}\nshort\n", b"\xff\xfe"])
def test_without_a_good_secret_nothing_is_served(tmp_path, content) -> None:
    file = tmp_path / "secrets"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as failure:
        _secrets(str(file), {})
    assert failure.value.code == "webhook_secret_missing"
    with pytest.raises(UsageError) as failure:
        _secrets(None, {NAME: "short"})
    assert "short" not in failure.value.detail.replace("shorter", "")


def test_a_server_is_no_job() -> None:
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "evil/other",
        "GITLAB_CI": "true",
        "CI_PROJECT_PATH": "evil/other",
        "GITEA_ACTIONS": "true",
        "GITHUB_TOKEN": "t",
        "GITHUB_API_URL": "https://ghe.example/api/v3",
        "HOME": "/home/bot",
    }
    assert set(server_environment(environ)) == {"GITHUB_TOKEN", "GITHUB_API_URL", "HOME"}


def test_tokens_of_programs_have_a_name_and_a_right() -> None:
    read, write = read_tokens(f"# programs\n\nboard read {'r' * 32}\ndeploy  write\t{'w' * 40}\n")
    assert (read.name, read.writes, read.secret.reveal()) == ("board", False, "r" * 32)
    assert (write.name, write.writes) == ("deploy", True)
    assert read_tokens("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "r" * 32,
        f"board {'r' * 32}",
        f"board admin {'r' * 32}",
        f"board read {'r' * 31}",
        f"board read {'r' * 32} x",
        f"board read {'r' * 32}\ndeploy write {'r' * 32}",
    ],
)
def test_tokens_that_cannot_be_used_serve_nothing_and_are_not_shown(text, tmp_path) -> None:
    (tmp_path / "tokens").write_text(text)
    with pytest.raises(UsageError) as failure:
        run_serve(serve("--api-tokens", str(tmp_path / "tokens")), {NAME: GOOD})
    assert failure.value.code == "api_tokens_invalid"
    assert "r" * 31 not in failure.value.detail


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_the_extra_the_way_to_it_is_said(monkeypatch, missing) -> None:
    for name in list(sys.modules):
        if name.startswith(("gitops.server.http", "gitops.server.service", f"{missing}.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UsageError) as failure:
        _server(serve(), {}, (), (), ServerContext(FixedClock(datetime(2026, 3, 1, tzinfo=UTC)), logger(print)), None)
    assert failure.value.code == "serve_unavailable"
    assert failure.value.detail == f"the package {missing} is not installed"


def test_one_project_is_served_from_one_clone() -> None:
    with pytest.raises(UsageError) as failure:
        _server(
            serve("--repo", "other"),
            {},
            (),
            (),
            ServerContext(FixedClock(datetime(2026, 3, 1, tzinfo=UTC)), logger(print)),
            None,
        )
    assert failure.value.code == "usage_error"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A queue with one event that was given up and one that waits."""
    queue = EventQueue(tmp_path / "queue.db", FixedClock(datetime(2026, 3, 1, 12, tzinfo=UTC)))
    queue.open_owned()
    for number in (7, 8):
        queue.enqueue("github:octo/brain", RequestEvent(number, RequestAction.OPENED, "a" * 40))
    queue.give_up(queue.take(), "forge_refused: no such token")
    queue.close()
    return tmp_path / "queue.db"


def listed(capsys, file: Path, *more: str) -> list[dict[str, object]]:
    assert main(["bot", "queue", "--queue", str(file), "--json", *more]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["events"]
    return found


def test_what_is_left_is_listed_with_its_reason(file, capsys) -> None:
    assert main(["bot", "queue", "--queue", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "#1 failed github:octo/brain request 7, received 2026-03-01T12:00:00Z, tried 1 time: forge_refused: no such token",
        "#2 waiting github:octo/brain request 8, received 2026-03-01T12:00:00Z",
    ]
    (failed, _) = listed(capsys, file)
    assert failed == {
        "number": 1,
        "repository": "github:octo/brain",
        "subject": "request 7",
        "state": "failed",
        "attempts": 1,
        "received": "2026-03-01T12:00:00Z",
        "due": "2026-03-01T12:00:00Z",
        "reason": "forge_refused: no such token",
    }


def test_what_was_given_up_can_be_tried_again_or_forgotten(file, capsys) -> None:
    assert [event["state"] for event in listed(capsys, file, "--retry", "1")] == ["waiting", "waiting"]
    assert [event["number"] for event in listed(capsys, file, "--forget", "2")] == [1]
    assert listed(capsys, file, "--forget", "1") == []
    assert main(["bot", "queue", "--queue", str(file)]) == 0
    assert capsys.readouterr().out == "nothing waits\n"


@pytest.mark.parametrize(("more", "code"), [(["--retry", "9"], "queue_event_missing"), ([], "queue_unusable")])
def test_what_is_not_there_is_said(file, capsys, more, code) -> None:
    path = file if more else file.with_name("none.db")
    assert main(["bot", "queue", "--queue", str(path), *more]) == 1
    assert code in capsys.readouterr().err


def test_a_server_runs_only_with_a_secret(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.delenv(NAME, raising=False)
    assert main(["bot", "serve", "--repo", str(tmp_path), "--queue", str(tmp_path / "q.db")]) == 2
    assert "webhook_secret_missing" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "shown"),
    [([], ["INFO", "WARNING"]), (["-q"], ["WARNING"]), (["-v"], ["DEBUG", "INFO", "WARNING"])],
)
def test_each_line_of_the_log_has_its_time_and_level(capsys, options, shown) -> None:
    log = _logger(serve(*options))
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        log.log(level, "github:octo/brain #7: 100 % done")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == shown
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ +github:octo/brain #7: 100 % done", line)


def test_a_line_can_be_a_document(capsys) -> None:
    _logger(serve("--json")).warning("listening")
    form = json.loads(capsys.readouterr().out)
    assert (form["level"], form["text"]) == ("warning", "listening")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", form["at"])


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
    # What an earlier server in this process logs to is closed.
    monkeypatch.setattr(logging.getLogger("gitops.serve"), "handlers", [])

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
    assert (code, said.startswith("query: 1 node and 0 edges of towns, commit ")) == (0, True)
    drop = "query q($key: String) { delete Town where key = $key }"
    strict = ("--mutate", "--conflict", "strict")
    assert ask("bob", *add, *strict)[0] == 0
    assert ask("bob", *add, *strict[1:])[0] == 2
    assert (
        json.loads(ask("bob", "towns", "--text", drop, "--param", "key=2", *strict, "--json")[1])["affected_nodes"] == 1
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
    assert (code, "a token is never sent unencrypted" in said, "--plain-http" in said) == (2, True, True)
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
        # A page for people can be of a proxy, so the query is sent again.
        assert len({request.path for request in other.requests}) == 1
        assert (len(other.requests) == 1) is (reply.body != b"<html>welcome</html>")


def test_what_is_no_server_is_said_so(ask, server, monkeypatch):
    monkeypatch.setattr("gitops.repository.wiring.serving.time.sleep", lambda _: None)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert "query_server_unavailable" in ask("ada", "towns", "towns", "--server", address)[2]
    assert "query_server_unavailable" in ask("ada", "towns", "towns", "--server", "ftp://brain.invalid")[2]
    monkeypatch.setenv("GITOPS_SERVER", "")
    assert ask("ada", "towns", "towns")[0] == 2


YAML = b"""version: 1
clusters:
  - name: library
    path: library
  - name: archive
    path: archive
    branch: release
"""


@pytest.fixture
def world(tmp_path: Path) -> LocalWorld:
    return LocalWorld(path=tmp_path / "far.git")


def configure(world: LocalWorld, key: str, value: str) -> None:
    run("git", f"--git-dir={world.path}", "config", key, value, home=world.path.parent)


def project(world: LocalWorld) -> LocalRepository:
    return LocalRepository(str(world.path), environ=environment(world.path.parent))


def test_only_who_is_named_may_command(world: LocalWorld) -> None:
    forge = project(world).forge()
    assert not forge.features.permissions
    assert forge.permission(Account("ada", "ada")) is Permission.NONE
    configure(world, "gitops.writers", "ada  mira")
    configure(world, "gitops.maintainers", "mira")
    configure(world, "gitops.administrators", "zoe")
    # The configuration is read once, so who opens the repository from now on sees it.
    forge = project(world).forge()
    found = {name: forge.permission(Account(name, name)) for name in ("ada", "mira", "zoe", "mallory", "")}
    assert found == {
        "ada": Permission.WRITE,
        "mira": Permission.MAINTAIN,
        "zoe": Permission.ADMIN,
        "mallory": Permission.NONE,
        "": Permission.NONE,
    }
    assert forge.features.permissions


def test_rules_are_those_of_the_installed_hook(world: LocalWorld) -> None:
    forge = project(world).forge()
    assert forge.branch_rules("main").protected is None
    install_hooks(str(world.path), "server", ("/bin/true",))
    assert forge.features.branch_rules
    assert [forge.branch_rules(name).protected for name in ("main", "release", "gitops/ledger/x")] == [
        True,
        False,
        True,
    ]
    repository = world.repository
    tip = repository.refs("refs/heads/main")["refs/heads/main"]
    new = commit(repository, {"gitops.yaml": YAML}, tip)
    repository.update_refs([RefUpdate("refs/heads/main", tip, new)])
    assert forge.branch_rules("release").protected is True
    assert forge.branch_rules("topic").protected is False
    remove_hooks(str(world.path), "server")
    assert forge.branch_rules("main").protected is None


def test_hooks_that_git_does_not_run_protect_nothing(world: LocalWorld) -> None:
    install_hooks(str(world.path), "server", ("/bin/true",))
    forge = project(world).forge()
    (world.path / "hooks" / "pre-receive").chmod(0o644)
    assert not forge.features.branch_rules
    (world.path / "hooks" / "pre-receive").chmod(0o755)
    configure(world, "core.hooksPath", "/nowhere")
    assert not forge.features.branch_rules


def test_nobody_sees_the_hooks_of_another_repository(world: LocalWorld, tmp_path: Path) -> None:
    install_hooks(str(world.path), "server", ("/bin/true",))
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", str(world.path), str(clone), home=tmp_path)
    far = LocalRepository(str(clone), environ=environment(tmp_path)).forge()
    assert not far.features.branch_rules


def test_labels_and_checks_are_shown(world: LocalWorld, capsys: pytest.CaptureFixture[str]) -> None:
    number = world.open_request()
    forge = world.forge()
    forge.set_labels(number, add=("gitops/blocked",))
    note = Annotation("library/a.pg", 3, "no such type\x1b[2J", Severity.ERROR)
    forge.set_check(CommitCheck(world.head(number), "gitops/library", CheckState.FAILURE, "1 problem", "", (note,)))
    assert main(["request", "show", str(number), "--repo", str(world.path)]) == 0
    shown = capsys.readouterr().out
    assert "labels: gitops/blocked" in shown
    assert "gitops/library: 1 problem" in shown
    assert "library/a.pg:3: error: no such type" in shown
    assert "\x1b" not in shown
    assert ZERO not in shown
