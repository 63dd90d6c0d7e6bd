"""Which forge, where, and who is sent the token: by what the operator and the job say."""

from __future__ import annotations

from typing import get_args, get_type_hints

import pytest

from gitops.cli.commands.arguments import HOSTED
from gitops.cluster.config.gitops_yaml import ForgeRule
from gitops.core.errors import UsageError
from gitops.forge.registry import FORGES
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
    assert run_address(GITLAB) == "https://git.example/group/part/brain/-/jobs/5"
    assert run_address({}) == ""
