"""The people of `ForgeWorld` on each of the real forges, in a repository without a cluster, with the real adapter.

GitHub is reached over HTTP, Gitea and GitLab through a sender in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gitops.core.diagnostics import Severity
from gitops.core.errors import RemoteError
from gitops.core.redact import Secret
from gitops.forge.client import WebClient, forge_service
from gitops.forge.port import (
    Account,
    Annotation,
    CheckState,
    CommitCheck,
    DeploymentState,
    Permission,
    Reaction,
    ReviewState,
)
from gitops.forge.web import WebAnswer, WebRequest
from gitops.git.port import NewCommit, Person
from tests.support.clock import FixedClock
from tests.support.forge_world import MAIN
from tests.support.forges import landing
from tests.support.forges.gitea import Gitea
from tests.support.forges.gitlab import GitLab, level, protection
from tests.support.forges.real_gitea import GiteaGate, RealGitea, instance
from tests.support.forges.records import CheckRun, Pull
from tests.support.forges.server import ForgeServer, GitHubServer
from tests.support.forges.world import HEADS, World, host
from tests.support.git_fixture import opened

BOT = "gitops-bot[bot]"
TOKEN = "installation-token"
EVERYTHING = dict.fromkeys(("contents", "pull_requests", "issues", "statuses", "checks", "deployments"), "write")
EVERYTHING["administration"] = "read"
_NAMES = {Permission.NONE: "none", Permission.READ: "read", Permission.WRITE: "write"}
_NAMES |= {Permission.MAINTAIN: "maintain", Permission.ADMIN: "admin"}
_REACTIONS = {"eyes": Reaction.SEEN, "+1": Reaction.DONE, "-1": Reaction.REFUSED}
_REACTIONS |= {"thumbsup": Reaction.DONE, "thumbsdown": Reaction.REFUSED}
_LEVELS = {"failure": Severity.ERROR, "warning": Severity.WARNING}
_DEPLOYMENTS = {
    "in_progress": DeploymentState.RUNNING,
    "running": DeploymentState.RUNNING,
    "success": DeploymentState.SUCCESS,
}
_STATES = {ReviewState.APPROVED: "APPROVED", ReviewState.CHANGES_REQUESTED: "CHANGES_REQUESTED"}


def open_forge(server: ForgeServer, token: str = TOKEN, *, pauses: list[float] | None = None) -> Any:
    """The adapter as a program would open it; what it would wait is noted, not waited."""
    waited: list[float] = [] if pauses is None else pauses
    clock, world = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC), timedelta(0)), server.world
    login = Secret("GITOPS_TOKEN", f"{world.scheme} {token}")
    service = forge_service(server.base + world.api, {"Authorization": login})
    return world.adapter(WebClient(service, waited.append, clock), world.project, clock)


def populate(world: World, bot: str = BOT) -> None:
    """The people of the contract, the bot, branches `main` and `next`, and what protects `main`."""
    world.join("mira", "write")
    world.join("ada", "write")
    world.join("mallory", "none")
    world.join(bot, "write", kind="Bot")
    world.lend(TOKEN, bot, "app", **EVERYTHING)
    store = world.store
    first = NewCommit(store.write_files(None, {"README": b"x"}), (), Person("mira", "mira@example.org", 1), "base\n")
    base = store.write_commit(first, signing_key=None)
    for ref in (MAIN, HEADS + "next"):
        world.move(ref, base, "mira")
    world.protect("main", "main", {"deletion": None, "non_fast_forward": None})


@dataclass
class Sender:
    """Somebody's way to a forge in this process. Rivals act one by one, each before a request that writes."""

    world: Gitea | GitLab
    login: str = "gitops"
    rivals: list[Callable[[], object]] = field(default_factory=list)
    lose: list[str] = field(default_factory=list)
    """Methods whose next answers are lost after they were carried out."""
    answers: dict[str, WebAnswer] = field(default_factory=dict)
    """Answers for `METHOD path`, in place of what the forge would say."""
    sent: list[WebRequest] = field(default_factory=list)

    @property
    def base(self) -> str:
        return self.world.base

    def send(self, request: WebRequest) -> WebAnswer:
        """As `WebSender.send`."""
        answer = self.reply(request)
        if request.method in self.lose:
            self.lose.remove(request.method)
            raise RemoteError("forge_unavailable", "the connection broke", retryable=True)
        if 200 <= answer.status < 300 or answer.status in request.quiet:
            return answer
        busy = answer.status >= 500 or answer.status == 429
        code = "forge_unavailable" if busy else "forge_refused"
        raise RemoteError(code, f"answers with status {answer.status}", status=answer.status, retryable=busy)

    def reply(self, request: WebRequest) -> WebAnswer:
        """What the forge answers, both ways checked; of a canned answer, what is asked for is."""
        self.sent.append(request)
        if request.method != "GET" and self.rivals:
            self.rivals.pop(0)()
        canned = self.answers.get(f"{request.method} {request.path}")
        if canned is None:
            return self.world.answer(request, self.login)
        self.world.check(request)
        return canned


@dataclass
class HostedWorld:
    """See `ForgeWorld`."""

    world: Any
    permissions: Sequence[Permission] = (Permission.READ, Permission.WRITE, Permission.MAINTAIN, Permission.ADMIN)

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Any:
        raise NotImplementedError

    def reader(self, login: str) -> Any:
        raise NotImplementedError

    def account(self, login: str) -> Account:
        found = self.world.accounts[login]
        return Account(str(found.id), login, bot=found.type == "Bot")

    def give(self, login: str, permission: Permission) -> None:
        self.world.give(login, _NAMES[permission])

    def branch(self, ref: str, *, files: Sequence[str]) -> str:
        return self._commit(ref, MAIN, files, ref)

    def open_request(
        self,
        source: str = "refs/heads/topic",
        *,
        target: str = MAIN,
        title: str = "Add authors",
        author: str = "mira",
        files: Sequence[str] = ("a",),
    ) -> int:
        self.branch(source, files=files)
        short = source.removeprefix(HEADS)
        return self.world.open_pull(author, short, target=target.removeprefix(HEADS), title=title).number

    def open_many(self, count: int) -> list[int]:
        """As many requests, all of one branch: they differ in their numbers."""
        first = self.world.pull(self.open_request())
        numbers = [first.number, *(self.world.next_number(Pull) + more for more in range(count - 1))]
        self.world.issues |= {n: replace(first, number=n, id=9000 + n, comments=[]) for n in numbers[1:]}
        return numbers

    def head(self, number: int) -> str:
        return self.world.pull(number).head

    def push(self, number: int, *, files: Sequence[str]) -> str:
        source = HEADS + self.world.pull(number).source
        return self._commit(source, source, files, "more")

    def merge(self, number: int) -> str:
        return landing.merge(self.world, number, landing.Order("mira"))

    def close(self, number: int) -> None:
        self.world.close(number, "mira")

    def open_fork(self, source: str = "topic") -> int | None:
        """A request from a fork: no branch of this repository holds its head."""
        fork, name = self.world.fork("mallory"), f"mallory/{self.world.project.rpartition('/')[2]}"
        head = self._commit(None, MAIN, ("a",), source, at=fork)
        self.world.push_to_fork("mallory", name, source, head)
        return self.world.open_pull("mallory", source, title="Add authors", repository=name).number

    def delete_fork(self, number: int) -> None:
        self.world.delete_fork(number, "mira")

    def comment_as(self, login: str, number: int, body: str) -> str:
        return str(self.world.comment(login, number, body).id)

    def review_as(self, login: str, number: int, state: ReviewState) -> None:
        if login not in self.world.accounts:
            self.world.join(login, "none")
        self.world.review(login, number, _STATES.get(state, "COMMENTED"))

    def label(self, number: int, label: str) -> None:
        self.world.issue(number).labels.append(label)
        self.world.know_labels([label])

    def label_colours(self) -> dict[str, str]:
        return self.world.labels

    def issue_as(self, login: str, title: str, body: str) -> None:
        self.world.open_issue(login, title, body)

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        _, found = self.world.find_comment(int(comment))
        return tuple(_REACTIONS[r.content] for r in found.reactions)

    def checks(self, commit: str) -> tuple[CommitCheck, ...]:
        newest = {run.name: run for run in self.world.checks.values() if run.sha == commit}
        return tuple(_report(newest[name]) for name in sorted(newest))

    def deployments(self, environment: str) -> tuple[tuple[str, DeploymentState], ...]:
        found = [d for d in self.world.deployments.values() if d.environment == environment]
        return tuple((d.sha, _DEPLOYMENTS.get(d.statuses[-1]["state"], DeploymentState.FAILURE)) for d in found)

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        found = [i for i in self.world.issues.values() if not isinstance(i, Pull)]
        return tuple((i.title, i.body, i.state == "open") for i in found)

    def _commit(self, ref: str | None, base: str, files: Sequence[str], text: str, at: Path | None = None) -> str:
        """A commit on top of a branch, to which another one is moved; it may be one that only a fork has."""
        tip = self.world.tip(base)
        if tip is None:
            raise AssertionError(f"there is no {base}")
        store = self.world.store if at is None else opened(at)
        tree = store.write_files(store.commit(tip).tree, {name: f"{text}\n".encode() for name in files})
        author = Person("mira", "mira@example.org", 1)
        new = store.write_commit(NewCommit(tree, (tip,), author, f"{text}\n"), signing_key=None)
        if ref is not None:
            self.world.move(ref, new, "mira")
        return new


@dataclass
class OverHttp(HostedWorld):
    """With the transport of a program and the service behind a real socket."""

    server: ForgeServer = field(kw_only=True)

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Any:
        if overtaken_by is not None:
            self.server.rivals.append(overtaken_by)
        return open_forge(self.server)

    def reader(self, login: str) -> Any:
        return open_forge(self.server, self.world.lend(f"token-of-{login}", login).text)


@dataclass
class InProcess(HostedWorld):
    """On Gitea or GitLab."""

    def sender(self, login: str = "gitops") -> Sender:
        return Sender(self.world, login)

    def forge(self, sender: Any) -> Any:
        return self.world.adapter(sender, self.world.project, FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC)))

    def bot(self, *, overtaken_by: Callable[[], object] | None = None) -> Any:
        sender = self.sender()
        sender.rivals += [] if overtaken_by is None else [overtaken_by]
        return self.forge(sender)

    def reader(self, login: str) -> Any:
        return self.forge(self.sender(login))


@dataclass
class OnRealGitea(OverHttp):
    """On a real Gitea."""

    def merge(self, number: int) -> str:
        return str(self.world.merge(number, landing.Order("mira")))

    def label(self, number: int, label: str) -> None:
        self.world.label(number, label)

    def issues(self) -> tuple[tuple[str, str, bool], ...]:
        rows = self.world.ask("GET", "/issues?type=issues&state=all") or ()
        return tuple((i["title"], i["body"], i["state"] == "open") for i in sorted(rows, key=lambda i: i["number"]))


def on_github(folder: Path, *, prompt: bool) -> HostedWorld:
    """The people on a GitHub, with its habits or without those that make one wait."""
    world = host(folder / "octo.git")
    populate(world)
    if prompt:
        world.habits.be_prompt()
    return HostedWorld(world)


@contextmanager
def over_http(made: HostedWorld) -> Iterator[OverHttp]:
    """The same people, behind a real socket."""
    kind = GitHubServer if type(made.world) is World else ForgeServer
    with kind(made.world) as server:
        yield OverHttp(made.world, made.permissions, server=server)


def on_gitea(folder: Path) -> InProcess:
    """The people on a Gitea, which has no role `maintain`."""
    world = host(folder / "library.git", Gitea)
    populate(world, "gitops")
    world.move(HEADS + "other", world.tip(MAIN), "mira")
    world.rules_of["main"] = {
        "rule_name": "main",
        "enable_push": True,
        "enable_push_whitelist": True,
        "push_whitelist_usernames": ["ada"],
        "push_whitelist_teams": None,
        "enable_force_push": False,
        "require_signed_commits": False,
        "enable_status_check": True,
        "status_check_contexts": ["gitops/plan/library"],
    }
    return InProcess(world, (Permission.READ, Permission.WRITE, Permission.ADMIN))


@contextmanager
def on_real_gitea(*, admin: bool = False) -> Iterator[OnRealGitea]:
    """The people on a real Gitea; `admin` as the one in memory has it."""
    world = RealGitea(instance())
    populate(world, "gitops")
    if admin:
        world.give("gitops", "admin")
    world.move(HEADS + "other", world.tip(MAIN) or "", "mira")
    with GiteaGate(world) as gate:
        yield OnRealGitea(world, (Permission.READ, Permission.WRITE, Permission.ADMIN), server=gate)


def on_gitlab(folder: Path) -> InProcess:
    """The people on a GitLab."""
    world = host(folder / "library.git", GitLab)
    populate(world, "gitops")
    world.protected.append(protection("main", level(40, "Maintainers")))
    return InProcess(world)


def _report(run: CheckRun) -> CommitCheck:
    states = {None: CheckState.PENDING, "success": CheckState.SUCCESS}
    notes = tuple(
        Annotation(n["path"], n["start_line"], n["message"], _LEVELS[n["annotation_level"]]) for n in run.annotations
    )
    state = states.get(run.conclusion, CheckState.FAILURE)
    return CommitCheck(run.sha, run.name, state, run.output["title"], run.output["summary"], notes)
