"""Who decides whether an operation may be done, and the work that is left when it may."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from gitops.cluster.policy.bundle import Action

if TYPE_CHECKING:
    from gitops.database.graph import WriteContext

__all__ = ["Permit", "Read", "Write"]

Read = Callable[[], dict[str, Any]]
"""What is left to do of a read: gives the answer."""

Write = Callable[["WriteContext"], dict[str, Any]]
"""What is left to do of a change: gives the answer; the context names the actor."""


class Permit(Protocol):
    """Asks on behalf of the actor of a request, about the graph of the request."""

    def __call__(self, action: Action, *, branch: str | None = None, target_branch: str | None = None) -> None:
        """Nothing, if it is permitted. Raises ProblemError 401, 403, and 500 where the decision itself fails."""
        ...
