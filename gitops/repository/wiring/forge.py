"""Selects the forge, its address and its token. The operator sets these, never a commit.

kind      `--forge`; then `forge.kind` of gitops.yaml on the target branch; then the CI job; then the repository itself
address   git config gitops.forgeUrl; then the CI job's value (GITHUB_API_URL, CI_API_V4_URL); then the public one
project   the CI job's value; then `forge.project` of gitops.yaml; then the path of the remote
token     GITOPS_TOKEN; then GITHUB_TOKEN, GITLAB_TOKEN or GITEA_TOKEN, by the kind. It is sent to this address only, and as a
          login to git remotes on its host over HTTPS. It is never an argument. Only git gets it, as a header
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import UsageError
from gitops.core.redact import Secret
from gitops.forge.registry import FORGES

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ForgeRule
    from gitops.forge.client import Traffic
    from gitops.forge.port import Forge
    from gitops.repository.wiring.system import Setting

LOCAL = "local"
UNAUTHENTICATED = "set GITOPS_TOKEN to a token of the bot's account"
"""Remedy if the forge is known but its token is missing."""

_TRUE = ("1", "true")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# GitLab's runner writes this login into the remote's address. It can read but usually not push.
# https://docs.gitlab.com/ci/jobs/ci_job_token/
_JOB_LOGIN = "gitlab-ci-token"
_SCP = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!//)(.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class ForgeChoice:
    """The forge to use. Without a token, it is neither read nor written to."""

    kind: str
    base: str = ""
    project: str = ""
    token: Secret | None = None

    @property
    def silent(self) -> bool:
        """Return True if there is no token for the forge."""
        return self.kind != LOCAL and self.token is None


def job_kind(environ: Mapping[str, str]) -> str | None:
    """Return the kind of forge that a CI job runs on, according to its variables, or None outside of jobs."""
    found = [kind for kind, row in FORGES.items() if any(environ.get(mark) in _TRUE for mark in row.job_marks)]
    return found[-1] if found else None


def token_of(kind: str, environ: Mapping[str, str]) -> Secret | None:
    """Return the token for a kind of forge."""
    names = ("GITOPS_TOKEN", *(FORGES[kind].tokens if kind in FORGES else ()))
    return next((Secret(name, environ[name]) for name in names if environ.get(name)), None)


def secrets_of(environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return all tokens in the environment, used or not, because no output may contain them."""
    names = dict.fromkeys(("GITOPS_TOKEN", *(name for row in FORGES.values() for name in row.tokens)))
    return tuple(Secret(name, environ[name]) for name in names if environ.get(name))


def choose_forge(
    kind: str, environ: Mapping[str, str], setting: Setting, rule: ForgeRule | None, remote_url: str | None
) -> ForgeChoice:
    """Return the forge of a known kind. Raises UsageError `usage_error` if its address or project is not set."""
    if kind == LOCAL:
        return ForgeChoice(LOCAL)
    base = _address(kind, environ, setting)
    if base is None:
        fix = "set it: git config gitops.forgeUrl https://HOST"
        raise UsageError(Code.USAGE_ERROR, f"the address of {kind} is not known", fix=fix)
    project = next((environ[name] for name in FORGES[kind].project if environ.get(name)), None)
    project = project or (rule.project if rule is not None else None)
    if not project:
        # The path in a git remote's address, such as `owner/name`.
        url = remote_url or ""
        scp = _SCP.fullmatch(url)
        path = urlsplit(url).path if "://" in url else scp[1] if scp else ""
        project = path.strip("/").removesuffix(".git")
    if not project:
        fix = "name it in gitops.yaml: forge: {project: owner/name}; or set the address: git remote set-url origin ADDRESS"
        raise UsageError(Code.USAGE_ERROR, f"the project on {kind} is not known", fix=fix)
    return ForgeChoice(kind, base.rstrip("/"), project, token_of(kind, environ))


def open_forge(choice: ForgeChoice, pause: Callable[[float], None], clock: Clock) -> tuple[Forge, Traffic]:
    """Return the forge over HTTP, and a counter of its requests. Imports only this forge's modules.

    Raises UsageError without a token.
    """
    from gitops.forge.client import WebClient, forge_service

    if choice.token is None:
        raise UsageError(Code.USAGE_ERROR, "the bot has no token for the forge", fix=UNAUTHENTICATED)
    row = FORGES[choice.kind]
    headers = {"Authorization": choice.token.prefixed(row.scheme)}
    client = WebClient(forge_service(choice.base, headers, row.writes_a_minute), pause, clock)
    return row.load().adapter(client, choice.project, clock), client.traffic


def remote_login(kind: str, environ: Mapping[str, str], setting: Setting) -> Callable[[str], str]:
    """Return a function that adds the token to the address of a git remote on the forge's host.

    Other addresses are returned unchanged.
    """
    if kind == LOCAL:
        return str
    token = token_of(kind, environ)
    netloc = urlsplit(_address(kind, environ, setting) or "").netloc
    # https://docs.github.com/en/enterprise-cloud@latest/admin/data-residency: api.SUBDOMAIN.ghe.com likewise
    hosts = {netloc, netloc.removeprefix("api.")} - {""}

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


def is_private(kind: str, environ: Mapping[str, str]) -> bool:
    """Return True if only members of the repository can read its comments, as far as the CI job says.

    A bare repository has no other readers. Source: https://docs.gitlab.com/ci/variables/predefined_variables and the
    `repository` of every event of GitHub and Gitea.
    """
    if kind == LOCAL:
        return True
    if kind == "gitlab":
        return environ.get("CI_PROJECT_VISIBILITY") == "private"
    try:
        event = json.loads(Path(environ.get(FORGES[kind].event_file, "")).read_bytes())
    except (OSError, ValueError):
        return False
    repository = event.get("repository") if isinstance(event, dict) else None
    return isinstance(repository, dict) and repository.get("private") is True


def run_address(environ: Mapping[str, str]) -> str:
    """Return the URL of the CI job's page, or an empty string."""
    server, project = environ.get("GITHUB_SERVER_URL", ""), environ.get("GITHUB_REPOSITORY", "")
    # Addresses on Forgejo and on Gitea before 1.26 contain the number of a run. Later ones contain its id, unless they say so.
    numbered = bool(environ.keys() & set(FORGES["gitea"].job_marks))
    run = environ.get("GITHUB_RUN_NUMBER" if numbered else "GITHUB_RUN_ID", "")
    if server and project and run:
        return f"{server}/{project}/actions/runs/{run}{'?by_index=1' if numbered else ''}"
    return environ.get("CI_JOB_URL", "")


def _address(kind: str, environ: Mapping[str, str], setting: Setting) -> str | None:
    """Return the address of the API: the operator's setting, that of the CI job, or the public one."""
    row = FORGES[kind]
    # Variables of another forge don't describe this one, unless they are set by hand.
    from_job = environ.get(row.address) if row.address_by_hand or job_kind(environ) == kind else None
    return setting("gitops.forgeUrl") or from_job or row.public
