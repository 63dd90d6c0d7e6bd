"""What a GitHub remembers, as plain records. Who changes them is `world.py`; how they look outside is `forms.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RANKS = ("none", "read", "triage", "write", "maintain", "admin")


@dataclass
class Account:
    """Somebody. `permission` is what they may do with the repository; `password` opens git and the interface for them."""

    id: int
    login: str
    permission: str = "none"
    type: str = "User"

    def at_least(self, rank: str) -> bool:
        return RANKS.index(self.permission) >= RANKS.index(rank)


@dataclass(frozen=True)
class Token:
    """What a program proves itself with: an account, and what it may do by area (`contents`, `statuses`, …).

    `kind` is "user" (a person's token: all that the person may), "app" (an installation) or "actions" (the token of a
    job, whose deeds start no workflow).
    """

    text: str
    account: str
    kind: str = "user"
    scopes: Mapping[str, str] = field(default_factory=dict)

    def may(self, area: str, level: str) -> bool:
        if self.kind == "user":
            return True
        given = self.scopes.get(area, "none")
        return given in ("write", level)


@dataclass
class Reaction:
    id: int
    account: str
    content: str


@dataclass
class Comment:
    id: int
    author: str
    body: str
    created_at: str
    updated_at: str
    reactions: list[Reaction] = field(default_factory=list)


@dataclass
class Issue:
    """An issue; the part of a pull request that is one is kept the same way."""

    id: int
    number: int
    title: str
    body: str
    author: str
    created_at: str
    state: str = "open"
    closed_at: str | None = None
    labels: list[str] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)


@dataclass
class Review:
    id: int
    author: str
    state: str
    commit: str
    at: str
    body: str = ""


@dataclass
class Pull(Issue):
    """`source` is the short name of a branch of `repository`, or of one that is gone."""

    source: str = ""
    repository: str = ""
    head: str = ""
    target: str = "main"
    base: str = ""
    merged_at: str | None = None
    merged_as: str | None = None
    reviews: list[Review] = field(default_factory=list)


@dataclass
class Status:
    id: int
    sha: str
    context: str
    state: str
    description: str
    creator: str
    at: str
    target_url: str | None = None


@dataclass
class CheckRun:
    id: int
    sha: str
    name: str
    app: str
    status: str
    conclusion: str | None
    started_at: str
    output: dict[str, Any] = field(default_factory=dict)
    annotations: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Deployment:
    id: int
    sha: str
    ref: str
    task: str
    environment: str
    description: str
    creator: str
    at: str
    payload: Any = field(default_factory=dict)
    statuses: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Ruleset:
    """Rules on branches: `pattern` is the short name of one, or a prefix of names that ends in `/**`.

    `rules` are types of https://docs.github.com/en/rest/repos/rules with their parameters; who bypasses is by login.
    """

    id: int
    name: str
    pattern: str
    rules: dict[str, dict[str, Any] | None]
    bypass: frozenset[str] = frozenset()

    def covers(self, branch: str) -> bool:
        if self.pattern.endswith("/**"):
            return branch.startswith(self.pattern.removesuffix("**"))
        return branch == self.pattern


@dataclass(frozen=True)
class Activity:
    """A branch that moved, and who moved it; the newest lists of GitHub know nobody else who pushed."""

    id: int
    ref: str
    before: str
    after: str
    actor: str
    kind: str
    at: str
    repository: str


@dataclass
class QueueEntry:
    """A group of the merge queue: `ref` is built on `base`, the target or the group before."""

    number: int
    ref: str
    head: str
    base: str


@dataclass(frozen=True)
class Cause:
    """Who did something, to which commit and ref. `quiet`: by a job's own token, so that it starts no workflow."""

    by: str
    sha: str
    ref: str
    quiet: bool = False
    fork: bool = False


@dataclass(frozen=True)
class Happening:
    """Something that starts workflows, unless its cause is quiet, and is delivered to webhooks."""

    id: str
    name: str
    payload: Mapping[str, Any]
    cause: Cause
