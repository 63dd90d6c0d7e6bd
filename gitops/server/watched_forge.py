"""A forge that remembers what it could not do for a reason that may pass.

Handlers go on where only telling somebody failed, and rightly so: an outcome does not depend on a comment. A job ends there, and
the next event says it anew. A server can do better: it handles the event again later, and what is told already is not told twice.
"""

from __future__ import annotations

from typing import Any

from gitops.core.errors import RemoteError
from gitops.forge.port import Forge

__all__ = ["WatchedForge"]


class WatchedForge:
    """Is the forge that it was made of in every respect; `failure` is the first that may pass, None without one."""

    def __init__(self, forge: Forge) -> None:
        """Nothing has failed yet."""
        self._forge = forge
        self.failure: RemoteError | None = None

    def __getattr__(self, name: str) -> Any:
        """A method of the forge, or what it says of itself."""
        found = getattr(self._forge, name)
        if not callable(found):
            return found

        def asked(*arguments: Any, **named: Any) -> Any:
            try:
                return found(*arguments, **named)
            except RemoteError as error:
                if error.retryable and self.failure is None:
                    self.failure = error
                raise

        return asked
