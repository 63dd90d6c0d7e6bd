"""A loop on Gitea or GitLab on loopback, and jobs as their runners run them, in this process.

`Site` is what the two have in common; what one of them tells its jobs is in its subclass.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import shlex
import subprocess
import sys
from abc import ABC, abstractmethod
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.support.forges import landing
from tests.support.forges.gitea import Gitea
from tests.support.forges.github_forms import Delivery
from tests.support.forges.gitlab import GitLab, level, protection
from tests.support.forges.hub import Hub, bot_environment, moved, token_of, within
from tests.support.forges.real_gitea import SECRET, GiteaGate, RealGitea, instance
from tests.support.forges.records import Comment, Happening
from tests.support.forges.server import ForgeServer
from tests.support.forges.world import World
from tests.support.loop import EVERYBODY, MAIN, Loop, printed_command
from tests.support.prefork import PROGRAM

TOKEN = "forge-0123456789abcdef"
"""The token of the bot."""

READER = "reader-0123456789abcdef"
"""What a job has by itself: it may read the repository, and nothing else."""

Started = tuple[dict[str, str], Any]
"""What a job is told: variables, and the content of its event file."""


@dataclass(frozen=True)
class Ran:
    """What a job left; `calls` are those of the interface."""

    code: int
    text: str
    summary: str
    outputs: str
    calls: tuple[str, ...]


@dataclass
class Site(Hub, ABC):
    """See the module; use as a context manager. The bot is `gitops`; alice, bob and carol may write, mallory is a stranger."""

    jobs: Path = field(default_factory=Path)
    waited: list[float] = field(default_factory=list)
    _count: int = 0
    _heard: int = 0

    robot: ClassVar[str] = TOKEN
    kind: ClassVar[type[World]]
    failed: ClassVar[str]
    """The word for a status that failed."""
    thumbs: ClassVar[tuple[str, str]]
    """The words for a reaction to what was done and to what was refused."""
    authors: ClassVar[str]
    """The calls that only say whose work a merge is."""

    @classmethod
    def at(cls, loop: Loop, jobs: Path) -> Self:
        """Take a loop there."""
        world = moved(loop, cls.kind)
        world.join("gitops", "write")
        world.lend(TOKEN, "gitops")
        world.join("job", "read")
        world.lend(READER, "job", "app", contents="read")
        return cls(loop, world, ForgeServer(world), jobs)

    @property
    def told(self) -> dict[str, str]:
        return {}

    # -- what a forge says in its own words ------------------------------------------------------------------------

    @abstractmethod
    def variables(self, place: Path) -> dict[str, str]:
        """What any job is told of where it runs; `place` is its folder."""

    @property
    @abstractmethod
    def timer(self) -> Started:
        """What a job is told that a schedule starts."""

    @abstractmethod
    def on_request(self, number: int, action: str = "opened") -> Started:
        """What a job is told that a request starts."""

    @abstractmethod
    def on_push(self, old: str, who: str) -> Started:
        """What a job is told that a push to main starts."""

    @abstractmethod
    def say_to(self, who: str, number: int, text: str) -> Started:
        """A comment, and what a job is told that it starts."""

    # -- what people do --------------------------------------------------------------------------------------------

    def head_ref(self, number: int) -> str:
        return self.world.head_ref(number)

    def approve_as_printed(self, who: str, number: int) -> None:
        """Copy the command of the comment on a request, and run it in a fresh clone of somebody, over HTTP."""
        (comment,) = self.comments(number)
        place = self.jobs / f"clone-{len(list(self.jobs.glob('clone-*')))}"
        url = self.server.git_url.replace("//", f"//{who}:{token_of(who)}@", 1)
        self.loop.program(who, "git", "clone", "-q", url, str(place), at=self.loop.folder)
        self.loop.program(who, *PROGRAM, *shlex.split(printed_command(comment))[1:], at=place)

    def comments(self, number: int, by: str = "gitops") -> list[str]:
        return super().comments(number, by)

    def reactions(self, comment: Comment) -> list[str]:
        return [reaction.content for reaction in self.world.find_comment(comment.id)[1].reactions]

    # -- jobs ------------------------------------------------------------------------------------------------------

    def run(self, verb: str, started: Started, *arguments: str, token: bool = True, dying: str = "") -> Ran:
        """Run a job in a fresh clone: in this process, or in one that is killed at the fault point `dying`."""
        variables, event = started
        self._count += 1
        place = self.jobs / f"job-{self._count}"
        place.mkdir(parents=True)
        clone = self._cloned(place)
        given = {name: place / name for name in ("event.json", "summary.md", "output.txt")}
        for file in given.values():
            file.touch()
        given["event.json"].write_text("" if event is None else json.dumps(event))
        environ = {**bot_environment(self.loop.home("bot")), "CI": "true", **self.variables(place), **variables}
        environ |= {"GITHUB_STEP_SUMMARY": str(place / "summary.md"), "GITHUB_OUTPUT": str(place / "output.txt")}
        environ |= {"GITOPS_TOKEN": TOKEN} if token else {}
        before = len(self.server.calls)
        words = ["bot", verb, "--repo", str(clone), *arguments]
        code, text = _killed(dying, words, environ) if dying else within(words, environ, self.waited)
        left = [given[name].read_text() for name in ("summary.md", "output.txt")]
        assert not any(secret in said for secret in (TOKEN, READER) for said in (text, *left))
        return Ran(code, text, left[0], left[1], tuple(self.server.calls[before:]))

    @abstractmethod
    def login(self, clone: Path) -> None:
        """Leave the job's own login in a clone, as the forge's runner does."""

    def _cloned(self, place: Path) -> Path:
        clone = place / "work"
        url = self.server.git_url
        with_login = url.replace("//", f"//job:{READER}@", 1)
        self.loop.program("bot", "git", "clone", "-q", "--no-checkout", with_login, str(clone), at=place)
        for name, value in (("remote.origin.url", url), ("gitops.root", str(self.loop.folder / "data"))):
            subprocess.run(["git", "config", name, value], cwd=clone, check=True)
        self.login(clone)
        return clone


def _killed(point: str, arguments: list[str], environ: dict[str, str]) -> tuple[int, str]:
    program = [sys.executable, "-m", "tests.support.week.dying", point, *arguments]
    done = subprocess.run(
        program, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


class GiteaSite(Site):
    """Gitea Actions."""

    forge = "gitea"
    kind, failed, thumbs = Gitea, "failure", ("+1", "-1")
    authors = r"^GET .*/commits/\w+/pull$"

    def variables(self, place: Path) -> dict[str, str]:
        return {
            "GITEA_ACTIONS": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.world.base,
            "GITHUB_SERVER_URL": self.server.base,
            "GITHUB_REPOSITORY": self.world.project,
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_RUN_ID": "9007",
            "GITHUB_RUN_NUMBER": "7",
            "GITHUB_RUN_ATTEMPT": "1",
        }

    def login(self, clone: Path) -> None:
        """The checkout of a job leaves its login as a header in the clone's configuration."""
        name = f"http.{self.server.base}/.extraheader"
        value = "AUTHORIZATION: basic " + b64encode(f"x-access-token:{READER}".encode()).decode()
        subprocess.run(["git", "config", name, value], cwd=clone, check=True)

    @property
    def timer(self) -> Started:
        return {"GITHUB_EVENT_NAME": "schedule"}, None

    def on_request(self, number: int, action: str = "opened") -> Started:
        pull = self.world.pull(number)
        named = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_BASE_REF": pull.target}
        return named, self.world.payloads.pull_request(action, pull, pull.author)

    def on_push(self, old: str, who: str) -> Started:
        return {"GITHUB_EVENT_NAME": "push"}, self.world.payloads.push(MAIN, old, self.tip(), who, None)

    def say_to(self, who: str, number: int, text: str) -> Started:
        said = self.world.comment(who, number, text)
        told = self.world.payloads.comment("created", self.world.issue(number), said, who)
        return {"GITHUB_EVENT_NAME": "issue_comment"}, told

    def webhooks(self) -> list[Delivery]:
        """What the forge has sent since the last time, in the order in which it arrived."""
        new = self.all_webhooks()[self._heard :]
        self._heard += len(new)
        return new

    def all_webhooks(self) -> list[Delivery]:
        """What the forge has ever sent."""
        return [self._sent(each) for each in self.world.happenings]

    def _sent(self, happening: Happening) -> Delivery:
        body = json.dumps(happening.payload).encode()
        signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        headers = {"x-gitea-event": happening.name, "x-gitea-delivery": happening.id, "x-gitea-signature": signature}
        return Delivery({"content-type": "application/json", **headers}, body)


class RealGiteaSite(GiteaSite):
    """The same on a real Gitea, where one is installed."""

    with_jobs: ClassVar[bool] = False

    @classmethod
    def at(cls, loop: Loop, jobs: Path) -> Self:
        """Take a loop there: the server's own repository gets its branches, and takes its place."""
        world = RealGitea(instance(jobs=cls.with_jobs))
        for who in EVERYBODY:
            world.join(who, "none" if who in ("mallory", "bot") else "write")
            world.lend(token_of(who), who)
        world.join("gitops", "write")
        # The scopes that docs/forge-gitea.md names.
        world.lend(TOKEN, "gitops", "app", pull_requests="write", issues="write")
        world.join("job", "read")
        world.lend(READER, "job", "app", contents="read")
        world.take(loop)
        return cls(loop, world, GiteaGate(world), jobs)

    def merge(self, who: str, number: int, method: str = "merge", *, title: str = "") -> str:
        return self.world.merge(number, landing.Order(who, method, title=title))

    def all_webhooks(self) -> list[Delivery]:
        return self.world.all_delivered()


class GitLabSite(Site):
    """GitLab CI: its jobs are told by variables, and by the body of a webhook that triggers them."""

    kind, failed, thumbs = GitLab, "failed", ("thumbsup", "thumbsdown")
    authors = r"^GET .*/repository/commits/\w+/merge_requests$"

    @classmethod
    def at(cls, loop: Loop, jobs: Path) -> Self:
        site = super().at(loop, jobs)
        site.world.protected.append(protection("main", level(40, "Maintainers")))
        return site

    def variables(self, place: Path) -> dict[str, str]:
        return {
            "GITLAB_CI": "true",
            "CI_API_V4_URL": self.world.base,
            "CI_PROJECT_PATH": self.world.project,
            "CI_PIPELINE_ID": "7",
            "CI_JOB_ID": "8",
            "CI_JOB_URL": f"{self.server.base}/{self.world.project}/-/jobs/8",
            "CI_JOB_TOKEN": READER,
            "TRIGGER_PAYLOAD": str(place / "event.json"),
        }

    def login(self, clone: Path) -> None:
        """GitLab's runner writes the job's own login into the address of the remote."""
        url = self.server.git_url.replace("//", f"//gitlab-ci-token:{READER}@", 1)
        subprocess.run(["git", "config", "remote.origin.url", url], cwd=clone, check=True)

    @property
    def timer(self) -> Started:
        return {"CI_PIPELINE_SOURCE": "schedule"}, None

    def on_request(self, number: int, action: str = "opened") -> Started:
        target = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "CI_MERGE_REQUEST_PROJECT_PATH": self.world.project}
        named = {"CI_PIPELINE_SOURCE": "merge_request_event", "CI_MERGE_REQUEST_IID": str(number)}
        return {**target, **named, "CI_COMMIT_SHA": self.tip(self.head_ref(number))}, None

    def on_push(self, old: str, who: str) -> Started:
        moved_by = {"CI_PIPELINE_SOURCE": "push", "GITLAB_USER_ID": str(self.world.accounts[who].id)}
        return {**moved_by, "CI_COMMIT_BRANCH": "main", "CI_COMMIT_BEFORE_SHA": old, "CI_COMMIT_SHA": self.tip()}, None

    def say_to(self, who: str, number: int, text: str) -> Started:
        self.world.comment(who, number, text)
        return {"CI_PIPELINE_SOURCE": "trigger"}, self.world.happenings[-1].payload
