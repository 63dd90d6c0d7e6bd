"""What a GitHub remembers, as plain records. Who changes them is `world.py`; how they look outside is `forms.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
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
    system: bool = False


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
    ref: str = ""
    ended_at: str | None = None


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


# Rules of branches


class Rulebook:
    """The rules of one repository; statuses and check runs are what meets them."""

    def __init__(self) -> None:
        self._ids = count(1001)
        self.rulesets: list[Ruleset] = []
        self.statuses: list[Status] = []
        self.checks: dict[int, CheckRun] = {}

    def protect(self, name: str, pattern: str, rules: Mapping[str, dict[str, Any] | None], *bypass: str) -> Ruleset:
        """Rules on branches, which the repository's own hook enforces for every push."""
        ruleset = Ruleset(next(self._ids), name, pattern, dict(rules), frozenset(bypass))
        self.rulesets.append(ruleset)
        return ruleset

    def rules(self, branch: str) -> Iterator[tuple[Ruleset, str, dict[str, Any] | None]]:
        for ruleset in self.rulesets:
            if ruleset.covers(branch):
                yield from ((ruleset, kind, parameters) for kind, parameters in ruleset.rules.items())

    def rule(self, branch: str, kind: str) -> dict[str, Any] | None:
        """Parameters of the first rule of a kind on a branch, or None."""
        return next((parameters or {} for _, k, parameters in self.rules(branch) if k == kind), None)

    def good(self, sha: str, context: str) -> bool:
        """Return whether a required check is met for a commit: by its newest status or check run of that name."""
        states = [s.state for s in self.statuses if (s.sha, s.context) == (sha, context)]
        runs = [r.conclusion for r in self.checks.values() if (r.sha, r.name) == (sha, context)]
        return states[-1:] == ["success"] or runs[-1:] in (["success"], ["neutral"], ["skipped"])

    def missing_checks(self, branch: str, sha: str) -> list[str]:
        rule = self.rule(branch, "required_status_checks") or {}
        return [c["context"] for c in rule.get("required_status_checks", ()) if not self.good(sha, c["context"])]


# Habits


__all__ = ["Habits"]


@dataclass
class Habits:
    """The habits of one service.

    `late_index`: how many times the index of requests by commit is empty for a new merge. `late_commits`: how many statuses of
    a new commit are refused because the service does not find it. `creates_labels`: whether a label that the repository does not
    have may be created, whatever the token may do. `shows_rules`: whether rulesets can be read, which not every plan of GitHub
    includes. `busy_every`: each so-many-th write is refused by the secondary rate limit, 0 for none. `longest_page`: how many
    entries a page has at most; a list with the newest first grows while it is read, so that a page begins with the last entry of
    the one before.
    `deliveries`: how often each webhook is sent.
    """

    late_index: int = 2
    late_commits: int = 1
    creates_labels: bool = False
    shows_rules: bool = False
    busy_every: int = 5
    longest_page: int = 3
    deliveries: int = 2

    def be_prompt(self) -> None:
        """Answer at once, for tests that count requests, or whose programs would really wait."""
        self.late_commits, self.busy_every, self.longest_page = 0, 0, 100
