"""Arguments of commands, and the forge that they lead to."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli.cluster import as_chosen
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import HOSTED, Command
from gitops.cli.finding import complete
from gitops.cli.main import Parser, main, parse_options
from gitops.cli.served import WatchedForge
from gitops.cli.shared import coloured
from gitops.cluster.config.gitops_yaml import ForgeRule
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.port import CheckState, CheckStatus
from gitops.forge.registry import FORGES
from gitops.git.port import Person
from gitops.render.characters import visible
from gitops.repository.wiring.forge import (
    LOCAL,
    ForgeChoice,
    choose_forge,
    job_kind,
    remote_login,
    run_address,
    secrets_of,
    token_of,
)
from gitops.repository.wiring.stores import folder_workspace
from tests.support.clock import FixedClock
from tests.support.memory_forge import MemoryForge

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_API_URL": "https://ghe.example/api/v3",
    "GITHUB_REPOSITORY": "octo/brain",
    "GITHUB_SERVER_URL": "https://ghe.example",
    "GITHUB_RUN_ID": "7",
}
GITLAB = {
    "GITLAB_CI": "true",
    "CI_API_V4_URL": "https://git.example/api/v4",
    "CI_PROJECT_PATH": "group/part/brain",
    "CI_JOB_URL": "https://git.example/group/part/brain/-/jobs/5",
}
GITEA = {**GITHUB, "GITEA_ACTIONS": "true", "GITHUB_API_URL": "https://tea.example/api/v1"}


@pytest.mark.parametrize(
    ("words", "text", "shown"),
    [
        (["status"], "gitops plan shows it", "gitops plan shows it"),
        (["status", "--cluster", "a"], "no; gitops plan shows it", "no; gitops plan --cluster a shows it"),
        (
            ["plan", "--config", "b c"],
            "free it: gitops force-unlock ID",
            "free it: gitops force-unlock --config 'b c' ID",
        ),
        (
            ["changeset", "list", "--cluster", "a", "--repo", "/r"],
            "list: gitops changeset list --all; or: gitops changeset show KEY",
            "list: gitops changeset list --cluster a --repo /r --all; or: gitops changeset show --cluster a --repo /r KEY",
        ),
        (
            ["plan", "--cluster", "a"],
            "gitops plan --config b; gitops log",
            "gitops plan --config b; gitops log --cluster a",
        ),
        (["plan", "--cluster", "a"], "gitops request show 1, gitops init, gitops.yaml", None),
        (
            ["approve", "--all", "--cluster", "a", "--repo", "/r"],
            "ask another person to run: gitops approve graph.x; then: gitops status",
            "ask another person to run: gitops approve --cluster a graph.x; then: gitops status --cluster a --repo /r",
        ),
        (["status", "--config", "here"], "on the server: gitops apply", None),
        (
            # Only a folder that exists; otherwise it is an address.
            ["audit", "--repo", "/"],
            "git fetch --unshallow; in a job: set it",
            "git -C / fetch --unshallow; in a job: set it",
        ),
        (
            ["plan", "--remote", "upstream"],
            "git fetch origin; git rebase --exec x origin/main; git push origin topic; gitops log",
            "git fetch upstream; git rebase --exec x upstream/main; git push origin topic; gitops log --remote upstream",
        ),
    ],
)
def test_a_printed_command_is_about_the_cluster_of_the_command_line(
    words: list[str], text: str, shown: str | None
) -> None:
    assert complete(parse_options(words), text) == (shown or text)


def _commands(above: tuple[str, ...], commands: Iterable[Command]) -> Iterator[tuple[tuple[str, ...], Command]]:
    for each in commands:
        yield (*above, each.name), each
        yield from _commands((*above, each.name), each.commands)


def test_an_option_may_stand_between_any_two_positional_arguments() -> None:
    seen = 0
    for words, command in _commands((), COMMANDS):
        places = [each for each in command.arguments if not each.name.startswith("-")]
        if not any("nargs" in each.settings for each in places):
            continue
        needed = sum(each.settings.get("nargs") not in ("?", "*") for each in places)
        for more in range(max(0, needed - 1), len(places) + 2 * (places[-1].settings.get("nargs") in ("*", "+"))):
            values = [f"v{number}" for number in range(more + 1)]
            options = parse_options([*words, *values])
            seen += 1
            for at in range(len(values) + 1):
                assert parse_options([*words, *values[:at], "--as", "ann", *values[at:]]) == argparse.Namespace(
                    **vars(options) | {"actor": "ann"}
                )
    assert seen > len(COMMANDS) / 2


def test_the_lists_of_names_are_those_of_the_table() -> None:
    declared = get_args(get_type_hints(ForgeRule)["kind"])[0]
    assert get_args(declared) == (*FORGES, LOCAL)
    assert tuple(FORGES) == HOSTED


def _nothing(key: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        (GITHUB, "github"),
        (GITLAB, "gitlab"),
        (GITEA, "gitea"),
        ({"CI": "true"}, None),
        ({"GITHUB_ACTIONS": "no"}, None),
    ],
)
def test_a_job_says_on_what_it_runs(environ: dict[str, str], kind: str | None) -> None:
    assert job_kind(environ) == kind


@pytest.mark.parametrize(
    ("kind", "environ", "base", "project"),
    [
        ("github", GITHUB, "https://ghe.example/api/v3", "octo/brain"),
        ("gitlab", GITLAB, "https://git.example/api/v4", "group/part/brain"),
        ("gitea", GITEA, "https://tea.example/api/v1", "octo/brain"),
        ("github", {}, "https://api.github.com", "own/path"),
        ("gitlab", {}, "https://gitlab.com/api/v4", "own/path"),
    ],
)
def test_the_job_says_where_else_the_public_one(kind: str, environ: dict[str, str], base: str, project: str) -> None:
    found = choose_forge(kind, environ, _nothing, None, "https://host.example/own/path.git")
    assert (found.base, found.project) == (base, project)


def test_the_address_of_github_can_be_set_by_hand_and_that_of_others_only_by_their_job() -> None:
    by_hand = {"GITHUB_API_URL": "https://ghe.example/api/v3", "CI_API_V4_URL": "https://git.example/api/v4"}
    remote = "https://host.example/own/path.git"
    found = choose_forge("github", {**GITLAB, **by_hand}, _nothing, None, remote)
    assert found.base == "https://ghe.example/api/v3"
    assert choose_forge("gitlab", by_hand, _nothing, None, remote).base == "https://gitlab.com/api/v4"
    with pytest.raises(UsageError, match="the address of gitea is not known"):
        choose_forge("gitea", by_hand, _nothing, None, remote)


def test_a_pipeline_of_a_fork_is_of_the_project_that_it_asks() -> None:
    environ = {**GITLAB, "CI_PROJECT_PATH": "mira/brain", "CI_MERGE_REQUEST_PROJECT_PATH": "group/brain"}
    assert choose_forge("gitlab", environ, _nothing, None, None).project == "group/brain"


def test_the_operator_says_where_and_no_commit_can() -> None:
    rule = ForgeRule(kind="github", project="from/file")
    found = choose_forge("github", GITHUB, {"gitops.forgeUrl": "https://own.example/api/v3/"}.get, rule, None)
    assert (found.base, found.project) == ("https://own.example/api/v3", "octo/brain")
    assert {"base", "url", "host"}.isdisjoint(get_type_hints(ForgeRule))


@pytest.mark.parametrize(
    "url", ["git@host.example:own/path.git", "ssh://git@host.example/own/path", "https://h.example/own/path/"]
)
def test_without_a_job_the_remote_names_the_project(url: str) -> None:
    assert choose_forge("github", {}, _nothing, None, url).project == "own/path"
    assert choose_forge("github", {}, _nothing, ForgeRule(project="from/file"), url).project == "from/file"


def test_what_nobody_says_is_asked_for() -> None:
    with pytest.raises(UsageError) as unknown:
        choose_forge("gitea", {}, _nothing, None, "https://host.example/own/path")
    assert unknown.value.fix == "set it: git config gitops.forgeUrl https://HOST"
    with pytest.raises(UsageError) as caught:
        choose_forge("github", {}, _nothing, None, "/srv/brain.git")
    assert "forge: {project: owner/name}" in (caught.value.fix or "")
    assert choose_forge("local", GITHUB, _nothing, None, None) == ForgeChoice("local")


def test_a_token_of_our_own_name_comes_first_and_is_never_shown() -> None:
    found = token_of("gitea", {"GITHUB_TOKEN": "hub-secret", "GITEA_TOKEN": "tea-secret"})
    assert found is not None
    assert found.reveal() == "tea-secret"
    assert "tea-secret" not in repr(choose_forge("gitea", {**GITEA, "GITEA_TOKEN": "tea-secret"}, _nothing, None, None))
    mine = token_of("github", {"GITHUB_TOKEN": "hub-secret", "GITOPS_TOKEN": "own-secret"})
    assert mine is not None
    assert mine.reveal() == "own-secret"
    assert token_of("gitlab", {"GITHUB_TOKEN": "hub-secret"}) is None
    assert [s.reveal() for s in secrets_of({"GITHUB_TOKEN": "hub", "GITLAB_TOKEN": "lab", "PATH": "/bin"})] == [
        "hub",
        "lab",
    ]
    assert choose_forge("gitlab", GITLAB, _nothing, None, None).silent


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://ghe.example/octo/brain", True),
        ("https://ghe.example:8443/octo/brain", False),
        ("http://ghe.example/octo/brain", False),
        ("https://evil.example/octo/brain", False),
        ("https://ghe.example.evil.example/octo/brain", False),
        ("https://evil.example/ghe.example", False),
        ("https://somebody@ghe.example/octo/brain", False),
        ("ssh://git@ghe.example/octo/brain", False),
        ("git@ghe.example:octo/brain", False),
        ("/srv/brain.git", False),
    ],
)
def test_the_token_goes_to_the_host_of_the_forge_alone(url: str, sent: bool) -> None:
    login = remote_login("github", {**GITHUB, "GITHUB_TOKEN": "to/ken@1"}, _nothing)
    assert login(url) == (url.replace("//", "//x-access-token:to%2Fken%401@", 1) if sent else url)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://gitlab-ci-token:job@git.example/group/part/brain.git", True),
        ("https://gitlab-ci-token:job@git.example:8443/group/part/brain.git", False),
        ("https://gitlab-ci-token:job@evil.example/group/part/brain.git", False),
        ("https://deploy:own@git.example/group/part/brain.git", False),
        ("http://gitlab-ci-token:job@git.example/group/part/brain.git", False),
    ],
)
def test_the_login_of_gitlabs_runner_gives_way_to_the_token(url: str, sent: bool) -> None:
    login = remote_login("gitlab", {**GITLAB, "GITLAB_TOKEN": "token"}, _nothing)
    assert login(url) == ("https://x-access-token:token@git.example/group/part/brain.git" if sent else url)


def test_the_repositories_of_the_public_github_are_not_on_its_service() -> None:
    login = remote_login("github", {"GITHUB_TOKEN": "token"}, _nothing)
    assert login("https://github.com/octo/brain") == "https://x-access-token:token@github.com/octo/brain"
    assert remote_login("github", {}, _nothing)("https://github.com/octo/brain") == "https://github.com/octo/brain"


def test_a_run_has_a_page() -> None:
    assert run_address(GITHUB) == "https://ghe.example/octo/brain/actions/runs/7"
    gitea = GITHUB | {"FORGEJO_ACTIONS": "true", "GITHUB_RUN_NUMBER": "3"}
    assert run_address(gitea) == "https://ghe.example/octo/brain/actions/runs/3?by_index=1"
    assert run_address(GITLAB) == "https://git.example/group/part/brain/-/jobs/5"
    assert run_address({}) == ""


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], (4, timedelta(minutes=10), True)),
        (["--parallel", "2"], (2, timedelta(minutes=10), True)),
        (["--timeout", "90s"], (4, timedelta(seconds=90), True)),
        (["--keep-going"], (4, timedelta(minutes=10), False)),
        (["--fail-fast"], (4, timedelta(minutes=10), True)),
    ],
)
def test_options_come_before_the_configuration(arguments, chosen):
    configured = replace(folder_workspace("cluster", actor=None), workers=4, fail_fast=True)
    found = as_chosen(configured, parse_options(["apply", *arguments]))
    assert (found.workers, found.time_limit, found.fail_fast) == chosen


def test_fail_fast_where_the_configuration_goes_on():
    found = as_chosen(folder_workspace("cluster", actor=None), parse_options(["apply", "--fail-fast"]))
    assert (found.workers, found.fail_fast) == (None, True)


@pytest.mark.parametrize(("processors", "workers"), [({0}, 1), (set(range(6)), 6), (set(range(64)), 8)])
def test_auto_is_a_worker_for_each_processor_and_at_most_8(monkeypatch, processors, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors)
    assert parse_options(["apply", "--parallel", "auto"]).parallel == workers


@pytest.mark.parametrize("arguments", [["--parallel", "65"], ["--parallel", "many"], ["--fail-fast", "--keep-going"]])
def test_what_cannot_be_meant_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_options(["apply", *arguments])
    assert ended.value.code == 2
    assert "--parallel: use 1 to 64, or auto" in (said := capsys.readouterr().err) or "not allowed with" in said


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["plna"], "plan"),
        (["graph", "lod"], "load"),
        (["plan", "--confg", "."], "--config"),
        (["plan", "--graph-format", "jsn"], "json"),
        (["help", "statsu"], "status"),
        (["statsu", "plan"], "status"),
        (["graph", "lod", "query"], "load"),
    ],
)
def test_a_misspelt_word_exits_2_with_what_was_meant(capsys, words, meant):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert f"did you mean `{meant}`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--all", "trust.brain"], "argument RESOURCE: not allowed with argument --all"),
        (["trust.brain", "--all"], "argument --all: not allowed with argument RESOURCE"),
    ],
)
def test_an_approval_of_all_and_of_one_is_a_wrong_command_line(capsys, words, problem):
    with pytest.raises(SystemExit) as end:
        main(["approve", "--json", *words])
    assert end.value.code == 2
    assert f"gitops approve: error: {problem}" in capsys.readouterr().err


def test_a_wrong_command_line_is_not_taken_for_changes(capsys):
    with pytest.raises(SystemExit) as end:
        parse_options(["plan", "--detailed-exitcode", "--nothing-of-the-sort"])
    assert end.value.code == 1
    assert "known: --json, " in capsys.readouterr().err


def test_help_of_a_command_is_its_own_help(capsys):
    printed = []
    for words in (["help", "graph", "query"], ["graph", "query", "--help"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("usage: gitops graph query ")


@pytest.mark.parametrize("words", [["--help"], ["--help", "plan"], ["-qh"], ["--as", "plan", "-h"], ["help"]])
def test_help_lists_all_commands_whatever_else_is_on_the_line(capsys, words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert {each.name for each in COMMANDS} <= set(capsys.readouterr().out.split())


def test_a_command_line_makes_the_parsers_of_its_own_words(monkeypatch):
    made, real = [], Parser.__init__
    monkeypatch.setattr(Parser, "__init__", lambda self, **named: made.append(named["prog"]) or real(self, **named))
    assert parse_options(["graph", "query", "brain", "find", "--as", "apply"]).query == "find"
    assert sorted(made) == ["gitops", "gitops apply", "gitops graph", "gitops graph query", "gitops query"]


@pytest.mark.parametrize("words", [["--no-color", "status"], ["status", "--no-color"]])
def test_colours_are_switched_off_before_and_after_the_command(words):
    assert parse_options(words).no_color


@given(st.text())
def test_colours_only_add_to_what_a_report_says(text):
    report = f"ERROR x {visible(text)}\n  Create {visible(text)}\n    +{visible(text)}\n{visible(text)}\n"
    assert re.sub(r"\x1b\[\d+m", "", coloured(report)) == report


LATER = RemoteError("forge_unavailable", "busy", retryable=True)
NEVER = RemoteError("forge_refused", "no", status=403)


class Failing(MemoryForge):
    def me(self):
        raise LATER

    def comments(self, number):
        raise NEVER

    def set_labels(self, number, *, add=(), remove=()):
        raise NEVER

    def upsert_comment(self, number, marker, body):
        raise NEVER


@pytest.fixture
def watched() -> WatchedForge:
    return WatchedForge(Failing(Person("bot", "bot@example.org"), FixedClock(datetime(2026, 3, 1, tzinfo=UTC))))


def test_it_answers_as_the_forge_does(watched) -> None:
    assert watched.features == watched._forge.features
    assert watched.requests() == ()
    with pytest.raises(GitopsError) as failure:
        watched.request(7)
    assert failure.value.code == "request_not_found"
    assert watched.failure is None


def test_only_what_may_pass_is_remembered(watched) -> None:
    with pytest.raises(RemoteError):
        watched.comments(7)
    assert watched.failure is None
    with pytest.raises(RemoteError):
        watched.me()
    assert (watched.failure, watched.refusal) == (LATER, None)


def test_a_write_that_is_refused_is_remembered_and_whether_another_was_not(watched) -> None:
    with pytest.raises(RemoteError):
        watched.set_labels(7)
    assert (watched.refusal, watched.written) == (None, False)
    with pytest.raises(RemoteError):
        watched.upsert_comment(7, "<!-- gitops -->", "plan")
    assert (watched.refusal, watched.written) == (NEVER, False)
    watched.set_status(
        CheckStatus("0" * 40, "gitops/plan/brain", CheckState.SUCCESS, "1 change", "2026-03-01T00:00:00Z")
    )
    assert (watched.refusal, watched.written) == (NEVER, True)
