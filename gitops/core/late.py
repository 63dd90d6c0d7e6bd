"""A proxy for objects that are expensive to create or load and often not needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Late:
    """Proxy that calls `make` when an attribute outside `known` is used. Two threads may both call it."""

    def __init__(self, make: Callable[[], Any], **known: Any) -> None:
        """`known` are the public members that exist without making anything."""
        self._make = make
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        """Return a member of the made object, and from then on expose all its public members."""
        made = self._make()
        self.__dict__.update({each: getattr(made, each) for each in dir(made) if not each.startswith("_")})
        return getattr(made, name)
