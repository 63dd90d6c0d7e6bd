"""`gitops bot serve` and `gitops bot queue`: what they need, what they refuse, what they list."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.cli.main import main, parse_options
from gitops.cli.serve import _logger, _secrets, _server
from gitops.cli.serve import serve as run_serve
from gitops.cli.served import read_tokens, server_environment
from gitops.core.errors import UsageError
from gitops.forge.events import RequestAction, RequestEvent
from gitops.server.queue import EventQueue
from gitops.server.shared import ServerContext
from tests.support.clock import FixedClock
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
        _server(serve(), {}, (), (), ServerContext(FixedClock(datetime(2026, 3, 1, tzinfo=UTC)), logger(print)))
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
        "#1 failed github:octo/brain request 7, received 2026-03-01T12:00:00Z, tried 1 time(s): forge_refused: no such token",
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
