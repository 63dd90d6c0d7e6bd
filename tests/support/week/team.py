"""A team at work on one repository: what its people do on a forge, and what all of them can read there.

`Team` is what a week needs of a forge and of the bot on it; `hooks.py` and `github.py` are the two kinds of team.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from gitops.git.port import ZERO, RefUpdate
from tests.support.loop import MAIN, Done, Loop

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
