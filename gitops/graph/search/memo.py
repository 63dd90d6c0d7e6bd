"""What is worth keeping between queries: values that belong to one immutable version of a table."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

__all__ = ["Memo", "recompute"]


class Memo(Protocol):
    """Gives the value of a key, made by `make` when it is not there. A value never changes, so it may be dropped any time."""

    def __call__(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value. Raises what `make` raises."""
        ...


def recompute(key: Hashable, make: Callable[[], Any]) -> Any:  # noqa: ARG001 - the form of a Memo
    """A Memo that keeps nothing."""
    return make()
