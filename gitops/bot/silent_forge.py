"""A forge that nobody has a token for: the one request that an event speaks of, and nothing is ever written.

It is what the job of a fork gets. A plan is a function of git and the ledger, so it is whole and right without any secret; it is
printed, and a job that may write recomputes it before telling anybody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckReport,
    CheckStatus,
    Comment,
    Deployment,
    Features,
    Permission,
    Push,
    Reaction,
    RequestState,
    Review,
    ReviewVerdict,
)

__all__ = ["SilentForge"]


class SilentForge:
    """Implements Forge without a service. What it cannot know is unknown, never permitted."""

    def __init__(self, requests: Sequence[ChangeRequest] = ()) -> None:
        """`requests` are those that the job's own environment tells of."""
        self._requests = tuple(requests)

    @property
    def features(self) -> Features:
        """None."""
        return Features()

    def me(self) -> Account:
        """Nobody."""
        return Account("", "")

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Those that are known, of a state and a target."""
        return tuple(r for r in self._requests if state in (None, r.state) and target in (None, r.target))

    def merged_by(self, commits: Sequence[str]) -> tuple[ChangeRequest, ...]:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return ()

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return iter(())

    def request(self, number: int) -> ChangeRequest:
        """One that is known. Raises GitopsError `request_not_found`."""
        for request in self._requests:
            if request.number == number:
                return request
        raise GitopsError(Code.REQUEST_NOT_FOUND, f"there is no token to ask the forge for request {number}")

    def files(self, number: int) -> tuple[str, ...]:  # noqa: ARG002 - nobody to ask
        """Unknown: git says more."""
        return ()

    def reviews(self, number: int) -> tuple[Review, ...]:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return ()

    def verdict(self, number: int) -> ReviewVerdict:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return ReviewVerdict.UNKNOWN

    def comments(self, number: int) -> tuple[Comment, ...]:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return ()

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return ()

    def permission(self, account: Account) -> Permission:  # noqa: ARG002 - nobody to ask
        """None."""
        return Permission.NONE

    def branch_rules(self, branch: str) -> BranchRules:  # noqa: ARG002 - nobody to ask
        """Unknown."""
        return BranchRules()

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Nothing."""

    def set_status(self, status: CheckStatus) -> None:
        """Nothing."""

    def report_check(self, report: CheckReport) -> None:
        """Nothing."""

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Nothing."""

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Nothing."""

    def record_deployment(self, deployment: Deployment) -> None:
        """Nothing."""

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:  # noqa: ARG002 - see above
        """Refuse. Raises GitopsError `forge_refused`."""
        raise GitopsError(Code.FORGE_REFUSED, f"there is no token to propose {source.removeprefix('refs/heads/')} with")

    def withdraw(self, number: int, remark: str) -> None:
        """Nothing."""

    def upsert_issue(self, marker: str, title: str, body: str) -> str:  # noqa: ARG002 - nobody to tell
        """Nothing, at no address."""
        return ""

    def close_issue(self, marker: str, remark: str) -> None:
        """Nothing."""
