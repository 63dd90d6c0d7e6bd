"""A team on GitHub: people push and approve over HTTP, and the bot runs as jobs, one for each event."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.forges.hub import JOB, Hub, token_of
from tests.support.forges.records import Pull
from tests.support.forges.runner import Run, Runner
from tests.support.week.team import Team, founded


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
