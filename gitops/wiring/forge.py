"""Which forge, its address and its token: set by the operator, never by a commit.

kind      `--forge`; else `forge.kind` of gitops.yaml on the target branch; else the CI job; else the repository itself
address   git config gitops.forgeUrl; else what the CI job sets (GITHUB_API_URL, CI_API_V4_URL); else the public one
project   what the CI job sets; else `forge.project` of gitops.yaml; else the path of the remote
token     GITOPS_TOKEN; else GITHUB_TOKEN, GITLAB_TOKEN or GITEA_TOKEN, by the kind. It is sent to this address only, and as a
          login to git remotes on its host over HTTPS. It is never an argument; git gets it as a header, other programs never
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.core.redact import Secret
from gitops.forge.events import Decode

if TYPE_CHECKING:
    from gitops.config.gitops_yaml import ForgeRule
    from gitops.forge.client import WebClient
    from gitops.forge.port import Forge
    from gitops.forge.web import WebSender

__all__ = [
    "LOCAL",
    "ForgeChoice",
    "choose_forge",
    "decoder",
    "forge_over",
    "job_kind",
    "open_client",
    "open_forge",
    "remote_login",
    "run_address",
    "secrets_of",
    "token_of",
]

LOCAL = "local"
_TOKENS = {"github": ("GITHUB_TOKEN",), "gitlab": ("GITLAB_TOKEN",), "gitea": ("GITEA_TOKEN", "GITHUB_TOKEN")}
_PUBLIC = {"github": "https://api.github.com", "gitlab": "https://gitlab.com/api/v4"}
_TRUE = ("1", "true")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# What GitLab's runner writes into the address of the remote: a login that may read and, as a rule, not push.
# https://docs.gitlab.com/ci/jobs/ci_job_token/
_JOB_LOGIN = "gitlab-ci-token"
_SCP = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!//)(.+)", re.ASCII)

Setting = Callable[[str], "str | None"]


@dataclass(frozen=True, slots=True)
class ForgeChoice:
    """A forge to use. Without a token nothing is read from it and nothing is written to it."""

    kind: str
    base: str = ""
    project: str = ""
    token: Secret | None = None

    @property
    def silent(self) -> bool:
        """Whether there is no token for it."""
        return self.kind != LOCAL and self.token is None


def job_kind(environ: Mapping[str, str]) -> str | None:
    """The kind of forge that a CI job runs on, by the variables that it sets; Gitea's jobs also set GitHub's."""
    if environ.get("GITEA_ACTIONS") in _TRUE or environ.get("FORGEJO_ACTIONS") in _TRUE:
        return "gitea"
    if environ.get("GITHUB_ACTIONS") in _TRUE:
        return "github"
    return "gitlab" if environ.get("GITLAB_CI") in _TRUE else None


def token_of(kind: str, environ: Mapping[str, str]) -> Secret | None:
    """The token for a kind of forge."""
    for name in ("GITOPS_TOKEN", *_TOKENS.get(kind, ())):
        if environ.get(name):
            return Secret(name, environ[name])
    return None


def secrets_of(environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Every token in the environment, used or not: none of them may appear in an output."""
    names = dict.fromkeys(("GITOPS_TOKEN", *(name for names in _TOKENS.values() for name in names)))
    return tuple(Secret(name, environ[name]) for name in names if environ.get(name))


def choose_forge(
    kind: str, environ: Mapping[str, str], setting: Setting, rule: ForgeRule | None, remote_url: str | None
) -> ForgeChoice:
    """The forge of a known kind. Raises UsageError `usage_error` if its address or project is not set."""
    if kind == LOCAL:
        return ForgeChoice(LOCAL)
    base = setting("gitops.forgeUrl") or _job_address(kind, environ) or _PUBLIC.get(kind)
    if base is None:
        raise UsageError(Code.USAGE_ERROR, f"set the address of {kind}: git config gitops.forgeUrl")
    named = _job_project(kind, environ) or (rule.project if rule is not None else None)
    project = named or _path_of(remote_url or "")
    if project is None:
        raise UsageError(Code.USAGE_ERROR, f"set the project on {kind}: forge.project in gitops.yaml")
    return ForgeChoice(kind, base.rstrip("/"), project, token_of(kind, environ))


def open_forge(choice: ForgeChoice, pause: Callable[[float], None], clock: Clock) -> Forge:
    """The forge over HTTP; only its own modules are imported. Raises UsageError for a kind without a service."""
    return forge_over(choice, open_client(choice, pause, clock), clock)


def open_client(choice: ForgeChoice, pause: Callable[[float], None], clock: Clock) -> WebClient:
    """The HTTP client for the API of a forge, which counts. Raises UsageError without a token."""
    from gitops.forge.client import WebClient, forge_service

    if choice.token is None:
        raise UsageError(Code.USAGE_ERROR, "there is no token: set GITOPS_TOKEN")
    scheme = "token " if choice.kind == "gitea" else "Bearer "
    return WebClient(forge_service(choice.base, {"Authorization": choice.token.prefixed(scheme)}), pause, clock)


def forge_over(choice: ForgeChoice, sender: WebSender, clock: Clock) -> Forge:
    """The forge over a client. Raises UsageError for a kind without a service."""
    if choice.kind == "github":
        from gitops.forge.github.forge import GitHubForge

        return GitHubForge(sender, choice.project, clock)
    if choice.kind == "gitlab":
        from gitops.forge.gitlab.forge import GitLabForge

        return GitLabForge(sender, choice.project, clock)
    if choice.kind == "gitea":
        from gitops.forge.gitea.forge import GiteaForge

        return GiteaForge(sender, choice.project, clock)
    raise UsageError(Code.USAGE_ERROR, f"a forge of kind {choice.kind} has no API")


def decoder(kind: str) -> Decode:
    """The function that reads the event of a CI job from its variables and its event file."""
    if kind == "github":
        from gitops.forge.github.events import decode_file as github

        return github
    if kind == "gitlab":
        from gitops.forge.gitlab.events import decode_file as gitlab

        return gitlab
    if kind == "gitea":
        from gitops.forge.gitea.events import decode_file as gitea

        return gitea
    raise UsageError(Code.USAGE_ERROR, f"a forge of kind {kind} has no event files")


def remote_login(kind: str, environ: Mapping[str, str], setting: Setting) -> Callable[[str], str]:
    """A function that adds the token to the address of a git remote on the host of the forge; others stay unchanged."""
    token = token_of(kind, environ)
    hosts = _hosts(setting("gitops.forgeUrl") or _job_address(kind, environ) or _PUBLIC.get(kind) or "")

    def login(url: str) -> str:
        parts = urlsplit(url) if "://" in url else None
        if token is None or parts is None or parts.username not in (None, _JOB_LOGIN):
            return url
        host = parts.netloc.rpartition("@")[2]
        if host not in hosts:
            return url
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            return url
        return urlunsplit(parts._replace(netloc=f"x-access-token:{quote(token.reveal(), safe='')}@{host}"))

    return login


def run_address(environ: Mapping[str, str]) -> str:
    """The page of the CI job, or nothing."""
    server, project, run = (environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and project and run:
        return f"{server}/{project}/actions/runs/{run}"
    return environ.get("CI_JOB_URL", "")


def _job_address(kind: str, environ: Mapping[str, str]) -> str | None:
    if job_kind(environ) != kind:
        # The variables of another forge do not describe this one, but may be set by hand.
        return environ.get("GITHUB_API_URL") if kind == "github" else None
    return environ.get("CI_API_V4_URL") if kind == "gitlab" else environ.get("GITHUB_API_URL")


def _job_project(kind: str, environ: Mapping[str, str]) -> str | None:
    if kind == "gitlab":
        return environ.get("CI_MERGE_REQUEST_PROJECT_PATH") or environ.get("CI_PROJECT_PATH") or None
    return environ.get("GITHUB_REPOSITORY") or None


def _hosts(base: str) -> frozenset[str]:
    """The hosts of the git repositories of a forge, from the address of its API, with a port if there is one."""
    netloc = urlsplit(base).netloc
    # https://docs.github.com/en/enterprise-cloud@latest/admin/data-residency: api.SUBDOMAIN.ghe.com likewise
    return frozenset({netloc, netloc.removeprefix("api.")} - {""})


def _path_of(url: str) -> str | None:
    """The path of a project in the address of a git remote, such as `owner/name`."""
    scp = _SCP.fullmatch(url)
    path = urlsplit(url).path if "://" in url else scp[1] if scp else ""
    return path.strip("/").removesuffix(".git") or None
