"""The forge for a job without a token. It knows only the request in its event, and never writes.

Jobs in forks use it. A plan is computed only from git and the ledger, so it is complete and correct without secrets. It
is printed; a job with write access computes it again before reporting it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    Features,
    MergedRequests,
    MergeOrder,
    Permission,
    Push,
    RequestState,
    ReviewDecision,
)


class SilentForge:
    """A Forge without a service. Missing information is reported as unknown and never counts as permission."""

    def __init__(self, requests: Sequence[ChangeRequest] = ()) -> None:
        """`requests` are the ones described by the job's environment."""
        self._requests = tuple(requests)

    @property
    def features(self) -> Features:
        """Return no features."""
        return Features()

    def me(self) -> Account:
        """Return an empty account."""
        return Account("", "")

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Return the known requests with this state and target."""
        return tuple(r for r in self._requests if state in (None, r.state) and target in (None, r.target))

    def request(self, number: int) -> ChangeRequest:
        """Return a known request. Raises GitopsError `request_not_found`."""
        for request in self._requests:
            if request.number == number:
                return request
        raise GitopsError(
            Code.REQUEST_NOT_FOUND, f"asking the forge for request {number} needs a token: set GITOPS_TOKEN"
        )

    def merged_by(self, commits: Sequence[str]) -> MergedRequests:  # noqa: ARG002 - the interface of the port
        """Return nothing, because a job without a token cannot find out which request a commit merged."""
        return MergedRequests()

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - the interface of the port
        """Return no pushes, because a job without a token cannot list them."""
        return iter(())

    def review_decision(self, number: int) -> ReviewDecision:  # noqa: ARG002 - the interface of the port
        """Return UNKNOWN."""
        return ReviewDecision.UNKNOWN

    def merge_order(self, branch: str) -> MergeOrder:  # noqa: ARG002 - the interface of the port
        """Return an unknown order, because a job without a token cannot ask for it."""
        return MergeOrder()

    def permission(self, account: Account) -> Permission:  # noqa: ARG002 - the interface of the port
        """Return NONE."""
        return Permission.NONE

    def branch_rules(self, branch: str) -> BranchRules:  # noqa: ARG002 - the interface of the port
        """Return unknown rules."""
        return BranchRules()

    def job_secrets(self) -> None:
        """Return None, because a job without a token cannot list secrets."""

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:  # noqa: ARG002 - see above
        """Refuse. Raises GitopsError `forge_refused`."""
        raise GitopsError(
            Code.FORGE_REFUSED, f"proposing {source.removeprefix('refs/heads/')} needs a token: set GITOPS_TOKEN"
        )

    def upsert_issue(self, marker: str, title: str, body: str) -> str:  # noqa: ARG002 - the interface of the port
        """Do nothing and return an empty URL."""
        return ""

    def _unknown(self, *_: object, **__: object) -> tuple[Any, ...]:
        return ()

    def _write_nothing(self, *_: object, **__: object) -> None:
        pass

    files = reviews = comments = issues = reactions = statuses = _unknown
    upsert_comment = set_status = set_check = react = set_labels = _write_nothing
    record_deployment = withdraw = close_issue = _write_nothing
