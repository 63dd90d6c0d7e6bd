"""Repositories that a server works for: opened anew for every event, as a job does it, with the same handlers.

A long run keeps nothing of one event for the next: no objects, no rules, no answers. So what is decided in a server is decided
from the same things as in a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from gitops.bot.context import ClusterReport
from gitops.bot.dispatch import handle_event
from gitops.bot.results import LogLine
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.core.faults import Faults
from gitops.core.redact import Secret
from gitops.forge.events import Event
from gitops.forge.port import Forge
from gitops.server.deliveries import Hook, known_as
from gitops.server.watched_forge import WatchedForge
from gitops.wiring.bot import build_bot
from gitops.wiring.forge import LOCAL, ForgeChoice, choose, login_of, open_forge, token_of
from gitops.wiring.project import LocalProject, RepositoryChoice

__all__ = ["KINDS", "Served", "Surroundings", "hook_of", "server_environment"]

KINDS = ("github", "gitlab", "gitea")
_OF_A_JOB = ("GITHUB_", "CI_", "GITLAB_CI", "GITEA_", "FORGEJO_", "ACTIONS_", "RUNNER_")
_NOT_OF_A_JOB = frozenset({"GITHUB_TOKEN", "GITLAB_TOKEN", "GITEA_TOKEN", "GITHUB_API_URL"})
_SECRETS = frozenset({"GITOPS_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "GITEA_TOKEN", "GITOPS_WEBHOOK_SECRET"})


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: it is no job, whatever started it says."""
    return {k: v for k, v in environ.items() if k in _NOT_OF_A_JOB or not k.startswith(_OF_A_JOB)}


def hook_of(kind: str, secrets: tuple[Secret, ...]) -> Hook:
    """How deliveries of a kind of forge are believed and read."""
    if kind == "github":
        from gitops.forge.github import events as github

        return Hook(github.decode, github.check_signature, secrets, body_marks=True)
    if kind == "gitlab":
        from gitops.forge.gitlab import events as gitlab

        # A token in a header covers nothing; a signature covers the id, too.
        return Hook(gitlab.decode, gitlab.check_signature, secrets, body_marks=False)
    from gitops.forge.gitea import events as gitea

    return Hook(gitea.decode, gitea.check_signature, secrets, body_marks=True)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a repository is opened with: the environment of the server, and how waits are waited."""

    environ: Mapping[str, str]
    pause: Callable[[float], None]
    faults: Faults


class Served:
    """One repository with its forge."""

    def __init__(self, choice: RepositoryChoice, kind: str | None, surroundings: Surroundings) -> None:
        """Open it once, to know that it can be. Raises UsageError where something of the setup is missing."""
        self._choice, self._surroundings = choice, surroundings
        # Programs that are started get neither token nor secret: a login goes into the address of a remote, for git alone.
        self._for_programs = {k: v for k, v in surroundings.environ.items() if k not in _SECRETS}
        self.kind = kind or self._declared()
        if self.kind not in KINDS:
            raise UsageError(Code.USAGE_ERROR, f"say with --forge which forge {choice.path} is on: {', '.join(KINDS)}")
        local, found = self._open()
        if found.token is None:
            raise UsageError(Code.USAGE_ERROR, "a server asks the forge: set GITOPS_TOKEN")
        local.person()
        self.token = found.token
        self.name = known_as(self.kind, found.project)

    def handle(self, event: Event) -> Iterator[LogLine]:
        """Do what an event asks for. Raises RemoteError, when all is done that can be, where the forge failed for now."""
        local, found = self._open()
        watched = WatchedForge(open_forge(found, self._surroundings.pause, local.project.tools.clock))
        yield from handle_event(build_bot(local, cast(Forge, watched), self.kind, local.person(), _ignore), event)
        if watched.failure is not None:
            raise watched.failure

    def _declared(self) -> str:
        return LocalProject(self._choice, environ=self._for_programs).project.config().forge.kind or LOCAL

    def _open(self) -> tuple[LocalProject, ForgeChoice]:
        """The repository as it is now, and its forge."""
        environ = self._surroundings.environ
        plain = LocalProject(self._choice, environ=self._for_programs)
        login = login_of(self.kind, environ, plain.setting) if token_of(self.kind, environ) else None
        local = LocalProject(self._choice, environ=self._for_programs, login=login, faults=self._surroundings.faults)
        local.complete()
        rule = local.project.config().forge
        remote = local.setting(f"remote.{self._choice.remote}.url")
        return local, choose(self.kind, environ, local.setting, rule, remote)


def _ignore(report: ClusterReport) -> None:
    """Reports go to the forge; a server has no job page."""
