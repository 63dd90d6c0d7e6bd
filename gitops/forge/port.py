"""What the bot reads from and writes to a forge. Names are neutral: change request, not pull or merge request.

Not every forge can do everything. `Features` says what a forge offers; a method for anything else writes nothing, and reads
"unknown". Nothing that protects the cluster relies on a forge: what is read here can add a gate and never permits a change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum, StrEnum
from typing import Protocol

from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class Account:
    """An account of a forge: `id` never changes and is compared, `login` is shown. `bot` as the forge says."""

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
    """What a review says. A dismissed one counts for nothing."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    COMMENTED = "commented"
    DISMISSED = "dismissed"


class ReviewDecision(StrEnum):
    """What the rules of the forge say about the reviews of a request, code owners included.

    UNKNOWN: the forge has no such rules, or does not say.
    """

    APPROVED = "approved"
    REQUIRED = "required"
    CHANGES_REQUESTED = "changes_requested"
    UNKNOWN = "unknown"


class Reaction(StrEnum):
    """How the bot answers a command without a comment."""

    SEEN = "seen"
    DONE = "done"
    REFUSED = "refused"


class DeploymentState(StrEnum):
    """State of a deployment."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Features:
    """What a forge offers beyond change requests, comments and statuses.

    `pushes`: it lists the moves of a branch; `queue`: it has a merge queue.
    """

    reviews: bool = False
    review_decisions: bool = False
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
    """State of a change request."""

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
    """A proposal to merge the branch `source` into the branch `target` (full ref names).

    `author` opened it. `pushers` are the authenticated identities that pushed to it, in order, as far as the forge knows them.
    `merged_as` is the commit on the target branch that merged it. `head_ref` is the ref of the remote that holds the head: its
    branch may be in another repository (`fork`), whose name on the forge is `project`.
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
class MergedRequests:
    """The requests that commits merged, by number, as far as the forge can show them.

    `unsaid` are commits that may have merged a request that the forge cannot show, each with the reason.
    """

    found: tuple[ChangeRequest, ...] = ()
    unsaid: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Push:
    """One move of a branch, from commit `old` to `new`; zeros if it was created or deleted.

    `pusher` is the account that pushed, as `<forge>:<id>`, and empty if the forge names none.
    """

    old: str
    new: str
    pusher: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; `marker` is set only if the bot wrote it. `id` names it for reactions.

    `author` is the login of its author, `account` the id, where the forge has accounts. `edited`: it was changed after it was
    written, or the forge does not say; anyone who may write to the repository may do that to a comment of another account.
    """

    author: str
    body: str
    at: str
    marker: str | None = None
    id: str = ""
    account: str = ""
    edited: bool = True


@dataclass(frozen=True, slots=True)
class Issue:
    """An open issue; `account` is the id of its author, `url` its address for people."""

    number: int
    account: str
    title: str
    body: str
    url: str


@dataclass(frozen=True, slots=True)
class Review:
    """One review: of `commit`, by `account`, at the time `at` (RFC 3339 UTC)."""

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
    """A message at lines of a file, counted from 1; `path` is relative to the root of the repository."""

    path: str
    line: int
    message: str
    severity: Severity
    title: str = ""
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class CommitCheck:
    """A check of one commit with its annotations; texts are Markdown. Long ones are cut and split as the forge needs."""

    commit: str
    name: str
    state: CheckState
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was applied to which environment, for the overview of the forge."""

    commit: str
    environment: str
    state: DeploymentState
    description: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class BranchRules:
    """What the forge enforces on a branch; None for what the bot may not see.

    `request_needed`: it takes a change request to change the branch. `notes` are lines for people.
    """

    protected: bool | None = None
    request_needed: bool | None = None
    force_push: bool | None = None
    deletion: bool | None = None
    required_checks: tuple[str, ...] | None = None
    pushers: tuple[str, ...] | None = None
    queue: bool | None = None
    notes: tuple[str, ...] = field(default=())


UNPROTECTED = BranchRules(
    protected=False,
    request_needed=False,
    force_push=True,
    deletion=True,
    required_checks=(),
)
"""The rules of a branch that no rule names."""


class ForgeReader(Protocol):
    """What the bot reads from a forge. Lists are complete: adapters read every page, within bounds that raise `forge_limit`."""

    @property
    def features(self) -> Features:
        """What this forge offers."""
        ...

    def me(self) -> Account:
        """The account of the bot. Raises RemoteError `forge_unavailable`, GitopsError `forge_refused`."""
        ...

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Change requests, by number: all, or those of a state and a target (full ref name)."""
        ...

    def merged_by(self, commits: Sequence[str]) -> MergedRequests:
        """The requests that any of these commits of the target branch merged.

        One request that the forge cannot show does not hide the others. Raises RemoteError while the forge does not answer.
        """
        ...

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        ...

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:
        """The moves of a branch (full ref name), newest first, read page by page; none if the forge does not list them.

        `project` is a fork. A list may end early or have gaps: the caller checks that each move ends where the next one begins.
        Raises RemoteError `forge_limit`, `forge_refused`.
        """
        ...

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names of moved files included."""
        ...

    def reviews(self, number: int) -> tuple[Review, ...]:
        """All reviews of a request in the order in which they were given."""
        ...

    def review_decision(self, number: int) -> ReviewDecision:
        """What the rules of the forge say about its reviews."""
        ...

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises `request_not_found`."""
        ...

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        """The bot's own reactions to a comment; none to a comment that is not there."""
        ...

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context; the newest of each."""
        ...

    def issues(self, marker: str, author: Account) -> tuple[Issue, ...]:
        """The open issues that an account wrote and whose first line is this marker, oldest first, for every reader.

        Everybody can write an issue with the marker of the bot: only what the forge says of its author makes it the bot's.
        """
        ...

    def permission(self, account: Account) -> Permission:
        """What an account may do now; NONE for strangers, and if the forge does not say."""
        ...

    def branch_rules(self, branch: str) -> BranchRules:
        """What is enforced on a branch (short name)."""
        ...


class Forge(ForgeReader, Protocol):
    """What the bot writes to a forge. A write that is repeated leaves one of what it creates."""

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place; at most 65,536 characters.

        It is found by the marker in its first line and by its author, who must be the bot. Further comments of the bot with
        this marker, which a race left, are removed.
        """
        ...

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before."""
        ...

    def set_check(self, check: CommitCheck) -> None:
        """Write the check of a commit with this name, or replace it."""
        ...

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by a reaction."""
        ...

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels; others stay."""
        ...

    def record_deployment(self, deployment: Deployment) -> None:
        """Record the state of a deployment of a commit to an environment, in one record that is updated."""
        ...

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target` (full ref names), opened or updated."""
        ...

    def withdraw(self, number: int, comment: str) -> None:
        """Close an open request without merging it, with a last comment; one that has ended stays as it is.

        Raises GitopsError `request_not_found`.
        """
        ...

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Write the bot's one open issue with this marker, or update it; returns its address for people, or nothing."""
        ...

    def close_issue(self, marker: str, comment: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment."""
        ...
