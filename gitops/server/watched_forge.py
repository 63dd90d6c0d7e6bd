"""A forge that remembers the first call that failed for a temporary reason.

Handlers go on if only a comment failed, because an outcome does not depend on a comment. A job ends there, and the next event
writes it. A server handles the event again later; what is written already is not written twice.
"""

from __future__ import annotations

from typing import Any

from gitops.core.errors import RemoteError
from gitops.forge.port import Forge

__all__ = ["WatchedForge"]


class WatchedForge:
    """Behaves like the given forge; `failure` is the first temporary failure of a call, or None."""

    def __init__(self, forge: Forge) -> None:
        """Nothing has failed yet."""
        self._forge = forge
        self.failure: RemoteError | None = None

    def __getattr__(self, name: str) -> Any:
        """A method or a property of the forge."""
        attribute = getattr(self._forge, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return attribute(*arguments, **named)
            except RemoteError as error:
                if error.retryable and self.failure is None:
                    self.failure = error
                raise

        return call
