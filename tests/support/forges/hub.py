"""A cluster on GitHub: the people and the repository of a `Loop`, moved behind a fake GitHub, with verbs for stories.

People are accounts with write access, mallory is a stranger; all have tokens. Jobs have one of `github-actions[bot]` by
themselves, and may use one of an app, `gitops-bot[bot]`. A team uses one of the two everywhere: the bot knows its comment by its
author.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Self
from unittest.mock import patch

from gitops.cli.main import main
from gitops.cluster.approving.approve import ApprovalPublisher, sign_approval
from gitops.cluster.ledger.chain import APPROVALS as ALL_APPROVALS
from gitops.cluster.model.address import Address
from gitops.cluster.model.outcome import ApproveOutcome
from gitops.forge.port import ChangeRequest, RequestState
from gitops.git.port import NewCommit, Person
from gitops.git.remote import SelfRemote
from gitops.git.repository import GitRepository
from gitops.repository.repository import Candidate, ClusterAt
from tests.support.forges import landing
from tests.support.forges.people import EVERYTHING
from tests.support.forges.records import Comment, Happening, Pull
from tests.support.forges.server import ForgeServer, GitHubServer
from tests.support.forges.world import HEADS, World, host
from tests.support.loop import APPROVALS, CLUSTER, EVERYBODY, MAIN, ROOT, Loop, email
from tests.support.remedies import on_one_line

APP = "gitops-bot[bot]"
JOB = "github-actions[bot]"
_HOOKS = ("pre-receive", "post-receive", "update")


def token_of(login: str) -> str:
    """The token of an account: a text that is nowhere else."""
    return f"ghs_{hashlib.sha256(login.encode()).hexdigest()[:36]}"


class _InClone(ClusterAt):
    def knows_origins(self) -> bool:
        return False


def bot_environment(home: Path) -> dict[str, str]:
    """What every program of a bot finds, wherever it runs."""
    kept = {k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}
    return {
        **kept,
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "GITOPS_CACHE": "off",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
    }


def within(arguments: list[str], environ: Mapping[str, str], waited: list[float]) -> tuple[int, str]:
    """Run a command in this process: its exit code and what it printed. What it would wait is noted, not waited."""
    out = io.StringIO()
    with (
        patch.dict(os.environ, environ, clear=True),
        patch("gitops.cli.bot.time", SimpleNamespace(sleep=waited.append)),
        redirect_stdout(out),
        redirect_stderr(out),
    ):
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, out.getvalue()


def moved(loop: Loop, kind: type[World]) -> Any:
    """A loop as a world of a forge: its hooks stay behind, everything else comes along."""
    for name in _HOOKS:
        (loop.server / "hooks" / name).unlink(missing_ok=True)
    world = host(loop.server, kind)
    for who in EVERYBODY:
        world.join(who, "none" if who in ("mallory", "bot") else "write")
        world.lend(token_of(who), who)
    return world


@dataclass
class Hub:
    """See the module; use as a context manager."""

    loop: Loop
    world: World
    server: ForgeServer

    forge: ClassVar[str] = "github"
    robot: ClassVar[str] = token_of(JOB)
    """The token of a server."""

    @property
    def told(self) -> dict[str, str]:
        """Variables that say where the forge is."""
        return {"GITHUB_API_URL": f"{self.server.base}/api/v3"}

    @classmethod
    def of(cls, loop: Loop) -> Self:
        """Take a loop to GitHub."""
        world = moved(loop, World)
        world.join(APP, "write", kind="Bot")
        world.lend(token_of(APP), APP, "app", **EVERYTHING)
        world.join(JOB, "write", kind="Bot")
        given = {area: level for area, level in EVERYTHING.items() if area != "administration"}
        world.lend(token_of(JOB), JOB, "actions", **given)
        world.join("github-merge-queue[bot]", "write", kind="Bot")
        return cls(loop, world, GitHubServer(world))

    def copied(self, folder: Path) -> Self:
        """The same in another folder; this one is not served any more."""
        loop = self.loop.copied(folder)
        world = self.world.copied(loop.server)
        return type(self)(loop, world, GitHubServer(world))

    def __enter__(self) -> Self:
        self.server.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.__exit__(*exc)

    # -- what people do --------------------------------------------------------------------------------------------

    def push(
        self, who: str, branch: str, files: Mapping[str, bytes | None], *parents: str, message: str = "Change\n"
    ) -> str:
        """A commit by somebody, on top of main or of the parents, as the new tip of a branch."""
        commit = self.loop.commit(who, files, *(parents or (self.tip(),)), message=message)
        self.world.move(HEADS + branch, commit, who)
        return commit

    def propose(self, who: str, branch: str, files: Mapping[str, bytes | None], *, message: str = "Change\n") -> Pull:
        """Push a branch and open a request for it."""
        self.push(who, branch, files, message=message)
        return self.world.open_pull(who, branch)

    def propose_from_fork(self, who: str, branch: str, files: Mapping[str, bytes | None]) -> Pull:
        """The same from a fork, whose objects are not here before."""
        fork = self.world.fork(who)
        commit = self._away(fork, who, files, self.tip())
        self.world.push_to_fork(who, self._fork(who), branch, commit)
        return self.world.open_pull(who, branch, repository=self._fork(who))

    def push_to_fork(self, who: str, owner: str, branch: str, files: Mapping[str, bytes | None], parent: str) -> str:
        """Somebody pushes to somebody else's fork, as a commit of nobody here; returns the new head."""
        fork = self.world.fork(owner)
        commit = self._away(fork, "mallory", files, parent)
        self.world.push_to_fork(who, self._fork(owner), branch, commit)
        return commit

    def merge(self, who: str, number: int, method: str = "merge", *, title: str = "") -> str:
        """Press the button; returns the new tip."""
        return landing.merge(self.world, number, landing.Order(who, method, title=title))

    def drop_branch(self, who: str, branch: str) -> None:
        """Delete a branch, as GitHub does by itself after a merge."""
        self.world.drop(HEADS + branch, who)

    def say(self, who: str, number: int, text: str) -> Comment:
        """Write a comment."""
        return self.world.comment(who, number, text)

    def approve(self, who: str, address: str, *, request: int | None = None) -> ApproveOutcome:
        """`gitops approve ADDRESS [--request N]` in somebody's clone, and the push of its branch."""
        local = self.loop.local()
        rule = local.config().cluster(None)
        candidate = Candidate(self.tip()) if request is None else local.merging(self._seen(request))
        # A clone cannot ask the forge who pushed: that is left to the bot.
        here = replace(local.at(rule, local.position(rule), candidate), forge="")
        known = {each.name: getattr(here, each.name) for each in fields(here)}
        workspace = _InClone(**known).workspace(email(who))
        store = self.loop.store
        by = ApprovalPublisher(store, SelfRemote(store), Person(who, email(who)), str(self.loop.key(who)), APPROVALS)
        before = self.world.refs()
        outcome = sign_approval(workspace, Address(address), by)
        self.world.moved(before, who)
        return outcome

    def _seen(self, number: int) -> ChangeRequest:
        """A request as somebody's clone sees it."""
        pull = self.world.pull(number)
        return ChangeRequest(
            number,
            pull.title,
            HEADS + pull.source,
            HEADS + pull.target,
            pull.head,
            RequestState.OPEN,
            pull.created_at,
            pushers=(f"github:{self.world.accounts[pull.author].id}",),
            head_ref=f"refs/pull/{number}/head",
        )

    # -- what is to be seen ----------------------------------------------------------------------------------------

    def tip(self, ref: str = MAIN) -> str:
        found = self.world.tip(ref)
        if found is None:
            raise AssertionError(f"there is no {ref}")
        return found

    def comments(self, number: int, by: str = JOB) -> list[str]:
        """Comments of somebody on a request, with each command on one line."""
        return [on_one_line(c.body) for c in self.world.issue(number).comments if c.author == by]

    def comment(self, number: int, by: str = JOB) -> str:
        """The bot's one comment on a request."""
        (body,) = self.comments(number, by)
        return body

    def status(self, commit: str, verb: str) -> str:
        """State and description of the bot's newest status."""
        context = f"gitops/{verb}/{CLUSTER}"
        found = self.world.statuses_of(commit, context)
        if not found:
            raise AssertionError(f"{commit[:12]} has no status {context}")
        return ": ".join(found[-1])

    def approvals(self) -> Sequence[str]:
        """The approval branches."""
        return tuple(self.world.store.refs(ALL_APPROVALS.rstrip("/")))

    def calls(self) -> list[str]:
        """The calls of the interface since the last time."""
        made, self.server.calls = self.server.calls, []
        return made

    def job_variables(self, event: Happening, place: Path) -> dict[str, str]:
        """As https://docs.github.com/en/actions/reference/variables-reference says; `place` is the folder of the job."""
        cause, base = event.cause, self.server.base
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": cause.by,
            "GITHUB_API_URL": f"{base}/api/v3",
            "GITHUB_GRAPHQL_URL": f"{base}/api/graphql",
            "GITHUB_SERVER_URL": base,
            "GITHUB_EVENT_NAME": event.name,
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_STEP_SUMMARY": str(place / "summary.md"),
            "GITHUB_REF": cause.ref,
            "GITHUB_SHA": cause.sha,
            "GITHUB_REPOSITORY": self.world.project,
            "GITHUB_RUN_ATTEMPT": "1",
        }

    # -- inside ----------------------------------------------------------------------------------------------------

    def _fork(self, owner: str) -> str:
        return f"{owner}/{self.world.project.rpartition('/')[2]}"

    def _away(self, path: Path, who: str, files: Mapping[str, bytes | None], parent: str) -> str:
        """A commit that only the repository at `path` has."""
        store = GitRepository(path, environ=self.loop.environment("bot"))
        tree = store.write_files(store.commit(parent).tree, files)
        return store.write_commit(
            NewCommit(tree, (parent,), Person(who, email(who), 1), "From a fork\n"), signing_key=None
        )
