"""A team at work on one repository: what its people do on a forge, and what all of them can read there.

`Team` is what a week needs of a forge and of the bot on it; `hooks.py` and `github.py` are the two kinds of team.
"""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from gitops.forge.port import ChangeRequest
from gitops.git.hooks import install_hooks, remove_hooks
from gitops.git.port import ZERO, RefUpdate
from tests.support.forges.hub import JOB, Hub, token_of
from tests.support.forges.records import Pull
from tests.support.forges.runner import Run, Runner
from tests.support.loop import MAIN, Done, Loop
from tests.support.prefork import PROGRAM

HEADS = "refs/heads/"


class Team(ABC):
    """People with clones of one repository, whose clusters a bot takes care of."""

    name = ""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    # -- what people do --------------------------------------------------------------------------------------------

    def push(self, who: str, commit: str, branch: str, *, more: tuple[str, ...] = ()) -> str:
        """Push a commit as a branch, and let the bot do what follows; what is printed."""
        done = self.loop.push(who, *more, f"{commit}:{HEADS}{branch}", check=False)
        return "\n".join(filter(None, (remote_lines(done.text), self.settle())))

    def run(self, who: str, *command: str) -> Done:
        """Run a command of this program in somebody's clone."""
        return self.loop.gitops(who, *command, check=False)

    def fetch(self, who: str) -> None:
        """Bring somebody's clone up to date."""
        self.loop.program(who, "git", "fetch", "-q", "--prune", "origin")
        self.loop.program(who, "git", "merge", "-q", "--ff-only", "origin/main")

    @abstractmethod
    def open(self, who: str, branch: str) -> str:
        """Open a request for a branch, where a push does not do that; what is printed."""

    @abstractmethod
    def merge(self, who: str, branch: str) -> str:
        """Merge the request of a branch; what is printed."""

    @abstractmethod
    def close(self, who: str, branch: str) -> str:
        """Close the request of a branch without merging it; what is printed."""

    @abstractmethod
    def reopen(self, who: str, branch: str) -> str:
        """Open it again; what is printed."""

    @abstractmethod
    def say(self, who: str, branch: str, text: str) -> str:
        """Write a comment on the request of a branch; what is printed."""

    @abstractmethod
    def propose_from_fork(self, who: str, branch: str, title: str, files: Mapping[str, bytes | None]) -> str:
        """A request from somebody's fork; what is printed."""

    # -- the bot ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def settle(self) -> str:
        """Let the bot do what follows from what has happened; what its jobs print."""

    @abstractmethod
    def replan(self, who: str, branch: str) -> str:
        """Have a request planned again after a signed decision, where its push does not do that; what is printed."""

    @abstractmethod
    def timer(self, verb: str) -> str:
        """It is time to sweep, or to look for drift; what is printed."""

    @abstractmethod
    def deaf(self) -> None:
        """Until `listening`, the bot hears nothing."""

    @abstractmethod
    def dying(self, point: str) -> None:
        """Until `listening`, the bot is killed where it reaches a fault point."""

    @abstractmethod
    def listening(self) -> None:
        """The bot is as it should be."""

    # -- what everybody can read -----------------------------------------------------------------------------------

    @abstractmethod
    def number(self, branch: str) -> int:
        """The number of the newest request of a branch."""

    @abstractmethod
    def comments(self, number: int) -> list[str]:
        """The comments of the bot on a request."""

    @abstractmethod
    def standing(self) -> Mapping[str, str]:
        """Everything that stands on the forge, by its place: requests with labels, statuses, comments, issues."""

    # -- git -------------------------------------------------------------------------------------------------------

    def tip(self, branch: str = "main") -> str:
        """Where a branch of the repository is."""
        return self.loop.tip(HEADS + branch)

    def set_ref(self, ref: str, new: str) -> None:
        """Move a ref behind everybody's back."""
        store = self.loop.store
        store.update_refs([RefUpdate(ref, store.resolve(ref) or ZERO, new)])


def founded(folder: Path) -> Loop:
    """People with keys, and a repository with one commit that says nothing of clusters."""
    loop = Loop.empty(folder)
    loop.store.update_refs(
        [RefUpdate(MAIN, ZERO, loop.commit("alice", {"README.md": b"What we know.\n"}, message="Begin\n"))]
    )
    return loop


def remote_lines(text: str) -> str:
    """What a push prints, without the progress that git prints itself."""
    kept = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line for line in kept if line and not re.match(r"To |remote: *$", line))


class HookTeam(Team):
    """See the module."""

    name = "hooks"

    def open(self, who: str, branch: str) -> str:
        return ""

    def merge(self, who: str, branch: str) -> str:
        # As on a forge without required checks: the week has merges that wait for an approval.
        return self._request(who, "merge", branch, "--force", "--timeout", "1s")

    def close(self, who: str, branch: str) -> str:
        return self._request(who, "close", branch)

    def reopen(self, who: str, branch: str) -> str:
        head = self._newest(branch).head
        return remote_lines(self.loop.push(who, f"{head}:{HEADS}{branch}", check=False).text)

    def say(self, who: str, branch: str, text: str) -> str:
        number = str(self.number(branch))
        return self.loop.gitops(who, "request", "comment", number, text, check=False).text.rstrip("\n")

    def propose_from_fork(self, who: str, branch: str, title: str, files: Mapping[str, bytes | None]) -> str:
        raise AssertionError("a bare repository knows no forks")

    def settle(self) -> str:
        return ""

    def replan(self, who: str, branch: str) -> str:
        return ""

    def timer(self, verb: str) -> str:
        return self.loop.gitops("bot", "bot", verb, "--repo", str(self.loop.server), check=False).text.rstrip("\n")

    def deaf(self) -> None:
        remove_hooks(str(self.loop.server), "server")

    def dying(self, point: str) -> None:
        install_hooks(str(self.loop.server), "server", (sys.executable, "-m", "tests.support.week.dying", point))

    def listening(self) -> None:
        install_hooks(str(self.loop.server), "server", PROGRAM)

    def number(self, branch: str) -> int:
        return self._newest(branch).number

    def comments(self, number: int) -> list[str]:
        return [comment.body for comment in self.loop.book.comments(number) if comment.marker]

    def standing(self) -> Mapping[str, str]:
        book, found = self.loop.book, {}
        for request in sorted(book.requests(), key=lambda each: each.number):
            place = f"request {request.number}"
            labels = "".join(f", `{label}`" for label in request.labels)
            found[place] = f"{request.title}: {request.state}{labels}"
            for commit, what in ((request.head, place), (request.merged_as, f"the merge of {place}")):
                for status in book.statuses(commit) if commit else ():
                    found[f"`{status.context}` of {what}"] = f"{status.state}: {status.description}"
            for each in book.comments(request.number):
                found[f"comment {each.id} on {place}"] = each.body
        return found

    def _newest(self, branch: str) -> ChangeRequest:
        of_branch = [each for each in self.loop.book.requests() if each.source == HEADS + branch]
        return max(of_branch, key=lambda each: each.number)

    def _request(self, who: str, verb: str, branch: str, *more: str) -> str:
        return self.loop.gitops(who, "request", verb, str(self.number(branch)), *more, check=False).text.rstrip("\n")


@contextmanager
def on_hooks(folder: Path) -> Iterator[HookTeam]:
    """A team whose repository has one commit that says nothing of clusters."""
    team = HookTeam(founded(folder))
    team.listening()
    yield team


class GitHubTeam(Team):
    """See the module; `on_github` makes one."""

    name = "github"

    def __init__(self, hub: Hub, folder: Path) -> None:
        super().__init__(hub.loop)
        self.hub, self.runner = hub, Runner.after(hub, folder)
        self._point = ""

    def clone_of(self, who: str) -> None:
        """Make somebody's clone, over HTTP."""
        place = self.loop.home(who) / "clone"
        url = self.hub.server.git_url.replace("//", f"//{who}:{token_of(who)}@", 1)
        self.loop.program(who, "git", "clone", "-q", url, str(place), at=self.loop.home(who))

    def open(self, who: str, branch: str) -> str:
        self.hub.world.open_pull(who, branch)
        return self.settle()

    def merge(self, who: str, branch: str) -> str:
        self.hub.merge(who, self.number(branch))
        return self.settle()

    def close(self, who: str, branch: str) -> str:
        self.hub.world.close(self.number(branch), who)
        return self.settle()

    def reopen(self, who: str, branch: str) -> str:
        self.hub.world.reopen(self.number(branch), who)
        return self.settle()

    def say(self, who: str, branch: str, text: str) -> str:
        self.hub.say(who, self.number(branch), text)
        return self.settle()

    def propose_from_fork(self, who: str, branch: str, title: str, files: Mapping[str, bytes | None]) -> str:
        self.hub.propose_from_fork(who, branch, files)
        return self.settle()

    def settle(self) -> str:
        if self._point:
            return self._killed()
        return "\n".join(_told(run) for run in self.runner.settle())

    def replan(self, who: str, branch: str) -> str:
        return self.say(who, branch, "/gitops plan")

    def timer(self, verb: str) -> str:
        return _told(self.runner.tick(verb))

    def deaf(self) -> None:
        self._point = "nothing is started"

    def dying(self, point: str) -> None:
        self._point = point

    def listening(self) -> None:
        self._point = ""

    def number(self, branch: str) -> int:
        return max(pull.number for pull in self.hub.world.pulls() if pull.source == branch)

    def comments(self, number: int) -> list[str]:
        return self.hub.comments(number)

    def standing(self) -> Mapping[str, str]:
        world, found = self.hub.world, {}
        newest = {(each.sha, each.context): each for each in world.statuses}
        for issue in world.issues.values():
            place = f"{'request' if isinstance(issue, Pull) else 'issue'} {issue.number}"
            merged = isinstance(issue, Pull) and issue.merged_as
            labels = "".join(f", `{label}`" for label in issue.labels)
            found[place] = f"{issue.title}: {'merged' if merged else issue.state}{labels}"
            if isinstance(issue, Pull):
                for commit, what in ((issue.head, place), (issue.merged_as, f"the merge of {place}")):
                    for (sha, context), status in newest.items():
                        if sha == commit:
                            found[f"`{context}` of {what}"] = f"{status.state}: {status.description}"
            else:
                found[f"text of {place}"] = issue.body
            for number, comment in enumerate(issue.comments):
                if comment.author == JOB:
                    found[f"comment {number} on {place}"] = comment.body
        return found

    def _killed(self) -> str:
        """The jobs that were started are killed, if they reach the point; else no job was started."""
        if self._point == "nothing is started":
            self.runner.cancel()
            return ""
        self.runner.program = (sys.executable, "-m", "tests.support.week.dying", self._point)
        runs = self.runner.settle()
        self.runner.program = ()
        return "\n".join(_told(run) for run in runs)


def _told(run: Run) -> str:
    """What a job prints."""
    return f"job `gitops bot {run.job.verb}`, exit code {run.code}\n{run.text}".rstrip("\n")


@contextmanager
def on_github(folder: Path) -> Iterator[GitHubTeam]:
    """A team whose repository has one commit that says nothing of clusters."""
    # The label of an outcome is there once its first request has it, so the token of the jobs may create labels.
    with Hub.of(founded(folder / "week")) as hub:
        hub.world.habits.creates_labels = True
        team = GitHubTeam(hub, folder / "jobs")
        for who in ("alice", "bob", "carol"):
            team.clone_of(who)
        yield team


TEAMS: Mapping[str, Callable[[Path], AbstractContextManager[Team]]] = {"hooks": on_hooks, "github": on_github}
