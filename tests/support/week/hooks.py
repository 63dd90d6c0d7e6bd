"""A team with a bare repository of its own: real pushes, whose hooks are the bot."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gitops.forge.port import ChangeRequest
from gitops.git.hooks import install_hooks, remove_hooks
from tests.support.prefork import PROGRAM
from tests.support.week.team import HEADS, Team, founded, remote_lines


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
