"""Port for reading from and writing to a forge. Names are neutral: change request, not pull or merge request.

Not every forge can do everything. `Features` lists what a forge offers; for a missing feature, a write method does nothing
and a read method returns "unknown". The protection of the cluster never relies on a forge: data from a forge can add a gate
but never permits a change.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum, StrEnum
from typing import Protocol

from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity


@dataclass(frozen=True, slots=True)
class Account:
    """An account on a forge. `id` never changes and is used in comparisons; `login` is displayed; `bot` comes from the forge."""

    id: str
    login: str
    bot: bool = False


class Permission(IntEnum):
    """Current permission of an account in the repository, from lowest to highest."""

    NONE = 0
    READ = 1
    WRITE = 2
    MAINTAIN = 3
    ADMIN = 4


class ReviewState(StrEnum):
    """Verdict of a review. A dismissed review does not count."""

    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"
    COMMENTED = "commented"
    DISMISSED = "dismissed"


class ReviewDecision(StrEnum):
    """What the forge's rules decide about the reviews of a request, including code owners.

    UNKNOWN means that the forge has no such rules, or does not report the decision.
    """

    APPROVED = "approved"
    REQUIRED = "required"
    CHANGES_REQUESTED = "changes_requested"
    UNKNOWN = "unknown"


class Reaction(StrEnum):
    """Reactions that the bot uses to answer a command without writing a comment."""

    SEEN = "seen"
    DONE = "done"
    REFUSED = "refused"


class DeploymentState(StrEnum):
    """State of a deployment."""

    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class JobSecret:
    """A secret that a forge keeps for jobs, without its value.

    `open_to` says who can read it with a workflow in a branch that they push, other than the target branch; empty if
    no one can.
    """

    name: str
    place: str
    open_to: str = ""


@dataclass(frozen=True, slots=True)
class LabelStyle:
    """How a label looks: RGB in hexadecimal, and a text that the forge's list of labels shows next to its name."""

    colour: str
    text: str


NEEDS_APPROVAL, PLAN_FAILED = "gitops/needs-approval", "gitops/failed"
"""Labels of a request that needs an approver's or its author's attention."""
APPLIED, APPLY_WAITS = "gitops/applied", "gitops/waiting"
"""Labels of a merged request."""
LABELS: Mapping[str, LabelStyle] = {
    NEEDS_APPROVAL: LabelStyle("fbca04", "A change needs the approval of an approver"),
    PLAN_FAILED: LabelStyle("d73a4a", "The plan could not be applied as it is"),
    APPLY_WAITS: LabelStyle("1d76db", "Merged, and not completely applied"),
    APPLIED: LabelStyle("0e8a16", "Merged and applied"),
}
"""The labels of the bot. An adapter creates them like this. It never changes a label in a colour that a person chose."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a forge offers beyond change requests, comments and statuses.

    `pushes` means that it lists the moves of a branch; `queue` means that it has a merge queue.
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


_PAGE = re.compile(r"(https?://\S+?)(?:/-)?/(?:pulls?|merge_requests)/[0-9]+")


class RequestState(StrEnum):
    """State of a change request."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class CheckState(StrEnum):
    """State of a commit status. A missing approval is a failure, never neutral."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A proposal to merge the branch `source` into the branch `target` (full ref names).

    `author` opened it. `pushers` are the authenticated identities that pushed to it, in order, as far as the forge knows
    them. `merged_as` is the commit on the target branch that merged it. `head_ref` is the ref of the remote that contains
    the head. Its branch may be in another repository (`fork`), whose name on the forge is `project`.
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

    @property
    def rebase(self) -> str:
        """Tell its author, in an ordinary clone, to put the branch onto the newest target."""
        return self.rebased("rebase the branch and resolve the conflicts: git rebase")

    def rebased(self, how: str) -> str:
        """Tell its author to put the branch onto the newest target with a command, which is the end of `how`.

        The `main` in a clone may be old, and `origin` of a fork's clone is the fork.
        """
        source, target = (shlex.quote(ref.removeprefix("refs/heads/")) for ref in (self.source, self.target))
        page = _PAGE.fullmatch(self.url) if self.fork else None
        fetch, newest = (
            ("origin", f"origin/{target}") if page is None else (f"{shlex.quote(page[1])} {target}", "FETCH_HEAD")
        )
        return f"update the target: git fetch {fetch}; {how} {newest}; then push it: git push --force-with-lease origin {source}"


@dataclass(frozen=True, slots=True)
class MergedRequests:
    """The change requests that commits merged, by number, as far as the forge can show them.

    `unsaid` maps each commit that may have merged a request that the forge cannot show to the reason.
    """

    found: tuple[ChangeRequest, ...] = ()
    unsaid: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What the forge knows about the order in which the open change requests into a branch will be merged.

    `queued` are the numbers in the merge queue, in the order of merging. `approved` are those whose reviews the forge's
    rules call approved, as far as one list shows it.
    """

    queued: tuple[int, ...] = ()
    approved: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Push:
    """One move of a branch from commit `old` to `new`. An id of zeros means that the branch was created or deleted.

    `pusher` is the account that pushed, as `<forge>:<id>`, or empty if the forge does not report it.
    """

    old: str
    new: str
    pusher: str


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment. `marker` is set only if the bot wrote it. `id` identifies it for reactions.

    `author` is the login of its author, and `account` the id, if the forge has accounts. `edited` is true if it was changed
    afterwards, or if the forge does not report that; anyone with write access can edit the comment of another account.
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
    """An issue. `account` is the id of its author, `url` its address for people.

    The other fields are known only if the bot stores its issues itself: its `marker`, and the comment with which it was closed.
    """

    number: int
    account: str
    title: str
    body: str
    url: str
    marker: str = ""
    open: bool = True
    opened_at: str = ""
    last_comment: str | None = None


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
    """The status of one commit in one context, such as `gitops/plan/<cluster>`.

    `url` is a page with more about it, which forges without pages don't keep; empty if there is none.
    """

    commit: str
    context: str
    state: CheckState
    description: str
    at: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A message for lines of a file, counted from 1. `path` is relative to the root of the repository."""

    path: str
    line: int
    message: str
    severity: Severity
    title: str = ""
    end_line: int | None = None


@dataclass(frozen=True, slots=True)
class CommitCheck:
    """A check of one commit with its annotations. Texts are Markdown; the forge's limits can shorten and split long ones."""

    commit: str
    name: str
    state: CheckState
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """The deployment of an applied commit to an environment, for the forge's overview."""

    commit: str
    environment: str
    state: DeploymentState
    description: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class BranchRules:
    """Rules that the forge enforces on a branch. A value that the bot cannot see is None.

    `request_needed` means that the branch can be changed only through a change request. `notes` are lines for people.
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
"""Rules of a branch that has none."""


class ForgeReader(Protocol):
    """The reading half of the forge port. Lists are complete: adapters read every page, up to limits that raise `forge_limit`."""

    @property
    def features(self) -> Features:
        """The features of this forge."""
        ...

    def me(self) -> Account:
        """Return the bot's account. Raises RemoteError `forge_unavailable`, GitopsError `forge_refused`."""
        ...

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Return change requests by number: all, or those with this state and target (full ref name)."""
        ...

    def merged_by(self, commits: Sequence[str]) -> MergedRequests:
        """Return the change requests that any of these commits of the target branch merged.

        One request that the forge cannot show does not hide the others. Raises RemoteError while the forge does not respond.
        """
        ...

    def request(self, number: int) -> ChangeRequest:
        """Return one change request. Raises GitopsError `request_not_found`."""
        ...

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:
        """Yield the moves of a branch (full ref name), newest first, page by page. None if the forge does not list them.

        `project` is a fork. A list may end early or have gaps, so the caller checks that each move ends where the next one
        begins. Raises RemoteError `forge_limit`, `forge_refused`.
        """
        ...

    def files(self, number: int) -> tuple[str, ...]:
        """Return the sorted paths that a request changes, including old names of moved files."""
        ...

    def reviews(self, number: int) -> tuple[Review, ...]:
        """Return all reviews of a request in chronological order."""
        ...

    def review_decision(self, number: int) -> ReviewDecision:
        """Return what the forge's rules decide about the reviews of a request."""
        ...

    def merge_order(self, branch: str) -> MergeOrder:
        """Return the order in which the requests into a branch (short name) will be merged; empty if it is unknown."""
        ...

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on a request, oldest first. Raises `request_not_found`."""
        ...

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        """Return the bot's own reactions to a comment. Empty if the comment does not exist."""
        ...

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Return the newest status of each context of a commit, by context."""
        ...

    def issues(self, marker: str, author: Account) -> tuple[Issue, ...]:
        """Return an account's open issues whose first line is this marker, oldest first, whoever reads them.

        Anyone can write an issue with the bot's marker; only the author that the forge reports makes it the bot's.
        """
        ...

    def permission(self, account: Account) -> Permission:
        """Return an account's current permission. NONE for strangers, and if the forge does not report it."""
        ...

    def branch_rules(self, branch: str) -> BranchRules:
        """Return the rules that are enforced on a branch (short name)."""
        ...

    def job_secrets(self) -> tuple[JobSecret, ...] | None:
        """Return the secrets that the forge keeps for the jobs of the repository; None if it has no jobs.

        Secrets that several repositories share are not included. Raises RemoteError `forge_refused` if the token cannot
        list them.
        """
        ...


class Forge(ForgeReader, Protocol):
    """The forge port including writes. Repeating a write creates no duplicates."""

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Create or update the bot's only comment with this marker. The limit is 65,536 characters.

        It is found by the marker in its first line and by its author, who must be the bot. If a race left further comments
        of the bot with this marker, they are removed.
        """
        ...

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the previous one."""
        ...

    def set_check(self, check: CommitCheck) -> None:
        """Create or replace the check of a commit with this name."""
        ...

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment with a reaction."""
        ...

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels. Other labels do not change."""
        ...

    def record_deployment(self, deployment: Deployment) -> None:
        """Create or update the one record that holds the state of this deployment of a commit to an environment."""
        ...

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """Open or update the single open request of branch `source` into `target` (full ref names), and return it."""
        ...

    def withdraw(self, number: int, comment: str) -> None:
        """Close an open request without merging it, with a final comment. A request that already ended does not change.

        Raises GitopsError `request_not_found`.
        """
        ...

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Create or update the bot's one open issue with this marker. Return its URL for people, or an empty string."""
        ...

    def close_issue(self, marker: str, comment: str) -> None:
        """Close the bot's open issue with this marker, if any, with a final comment."""
        ...
