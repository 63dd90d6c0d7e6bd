"""A proxy for objects that are expensive to create or load and are often not needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Late:
    """A proxy that calls `make` on first use of an attribute that is not in `known`. Two threads may both call it."""

    def __init__(self, make: Callable[[], Any], **known: Any) -> None:
        """`known` are the public members that are available without calling `make`."""
        self._make = make
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        """Return a member of the created object, and expose all its public members from then on."""
        made = self._make()
        self.__dict__.update({each: getattr(made, each) for each in dir(made) if not each.startswith("_")})
        return getattr(made, name)
