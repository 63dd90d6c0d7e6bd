"""A forge: change requests, one comment each, statuses. Names are neutral: change request, not pull or merge request.

Not every forge can do everything: `Features` says what one can, and a method that a forge lacks does nothing where it only
tells people something, and answers "unknown" where it reads. Nothing that protects the cluster relies on a forge: what is
read here hints, tells or gates further, never permits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Protocol

from gitops.core.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody on a forge: `id` never changes and is compared, `login` is shown. `bot` as the forge says."""

    id: str
    login: str
    bot: bool = False


class Permission(IntEnum):
    """What an account may do with the repository now, in rising order."""

    NONE = 0
    READ = 1
    WRITE = 2
    MAINTAIN = 3
    ADMIN = 4


class ReviewState(StrEnum):
    """What a review says. DISMISSED ones count for nothing."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    COMMENTED = "commented"
    DISMISSED = "dismissed"


class ReviewVerdict(StrEnum):
    """What the forge's own rules say of a request, code owners included. UNKNOWN: it has no such rules, or does not tell."""

    APPROVED = "approved"
    REQUIRED = "required"
    CHANGES_REQUESTED = "changes_requested"
    UNKNOWN = "unknown"


class Reaction(StrEnum):
    """How the bot answers a command without another comment."""

    SEEN = "seen"
    DONE = "done"
    REFUSED = "refused"


class DeploymentState(StrEnum):
    """Where a deployment stands."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Features:
    """What a forge offers beyond requests, comments and statuses."""

    reviews: bool = False
    verdicts: bool = False
    checks: bool = False
    deployments: bool = False
    labels: bool = False
    reactions: bool = False
    issues: bool = False
    permissions: bool = False
    branch_rules: bool = False
    queue: bool = False
    pushes: bool = False


class RequestState(StrEnum):
    """Life of a change request."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class CheckState(StrEnum):
    """State of a commit status; a missing approval is a failure, never neutral."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A proposal to merge `head` into `target` (full ref name).

    `pushers` are the authenticated identities that pushed to it, in order, as far as the forge knows them. `merged_as` is
    the commit on the target branch that brought it in. `head_ref` is the ref of the remote that holds the head, where its
    branch may be in another repository (`fork`, called `project` on the forge). `author` is who opened it.
    """

    number: int
    title: str
    source: str
    target: str
    head: str
    state: RequestState
    opened_at: str
    pushers: tuple[str, ...] = ()
    merged_as: str | None = None
    author: Account | None = None
    head_ref: str = ""
    fork: bool = False
    project: str = ""
    url: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Push:
    """One move of a branch, from commit `old` to `new`; zeros where it was made or removed.

    `pusher` is the account that did it, as `<forge>:<id>`, and empty where the forge names nobody.
    """

    old: str
    new: str
    pusher: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; `marker` is set only if the bot itself wrote it. `id` names it for reactions.

    `account` is the id of who wrote it, where the forge has accounts with one.
    """

    author: str
    body: str
    at: str
    marker: str | None = None
    id: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """One review, as it was given: of `commit`, by `account`, at `at` (RFC 3339 UTC)."""

    id: str
    account: Account
    state: ReviewState
    commit: str
    at: str


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """The status of one commit in one context, such as `gitops/plan/<cluster>`."""

    commit: str
    context: str
    state: CheckState
    description: str
    at: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """A note on lines of a file, counted from 1; `path` is relative to the root of the repository."""

    path: str
    line: int
    message: str
    severity: Severity
    title: str = ""
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """A check of one commit with its notes; texts are Markdown. Long ones are cut and split as the forge needs."""

    commit: str
    name: str
    state: CheckState
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was applied where, for the forge's own overview."""

    commit: str
    environment: str
    state: DeploymentState
    description: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class BranchRules:
    """What the forge enforces on a branch; None where the bot may not see it."""

    protected: bool | None = None
    request_needed: bool | None = None
    force_push: bool | None = None
    deletion: bool | None = None
    signatures_needed: bool | None = None
    required_checks: tuple[str, ...] | None = None
    pushers: tuple[str, ...] | None = None
    queue: bool | None = None
    notes: tuple[str, ...] = field(default=())


class ForgeReader(Protocol):
    """What the bot reads of a forge. Lists are whole: adapters page to the end, within bounds that raise `forge_limit`."""

    @property
    def features(self) -> Features:
        """What this forge offers."""
        ...

    def me(self) -> Account:
        """Who the bot is on this forge. Raises RemoteError `forge_unavailable`, GitopsError `forge_refused`."""
        ...

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Change requests, by number: all, or those of a state and a target (full ref name)."""
        ...

    def merged_by(self, commits: Sequence[str]) -> tuple[ChangeRequest, ...]:
        """The requests that any of these commits of the target branch brought in, by number."""
        ...

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        ...

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:
        """The moves of a branch (full ref name), newest first, read as they are asked for; none where it has none to tell.

        `project` is a fork. A list may end early or have gaps: whoever relies on it checks that each move ends where the next
        one begins. Raises RemoteError `forge_limit`, `forge_refused`.
        """
        ...

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names of moved files included."""
        ...

    def reviews(self, number: int) -> tuple[Review, ...]:
        """All reviews of a request in the order in which they were given."""
        ...

    def verdict(self, number: int) -> ReviewVerdict:
        """What the forge's own rules say of its reviews."""
        ...

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises `request_not_found`."""
        ...

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context; the newest of each."""
        ...

    def permission(self, account: Account) -> Permission:
        """What an account may do now; NONE for strangers, and where the forge does not say."""
        ...

    def branch_rules(self, branch: str) -> BranchRules:
        """What is enforced on a branch (short name)."""
        ...


class Forge(ForgeReader, Protocol):
    """What the bot writes. Each write may be repeated and then leaves one of what it makes."""

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place; at most 65,536 characters.

        It is found by the marker in its first line and by its author, who must be the bot. The other comments of the bot with
        this marker, left by a race, are removed.
        """
        ...

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before."""
        ...

    def report_check(self, report: CheckReport) -> None:
        """Write the check of a commit with this name, or replace it."""
        ...

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by a reaction."""
        ...

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Put labels on a request and take labels off; others stay."""
        ...

    def record_deployment(self, deployment: Deployment) -> None:
        """Record where a deployment of a commit to an environment stands, in one record that is brought forward."""
        ...

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target` (full ref names), opened or updated."""
        ...

    def withdraw(self, number: int, remark: str) -> None:
        """Close an open request without merging it, with a last comment; one that has ended stays as it is.

        Raises GitopsError `request_not_found`.
        """
        ...

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Write the bot's one open issue with this marker, or update it; returns its address for people, or nothing."""
        ...

    def close_issue(self, marker: str, remark: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment."""
        ...
