"""Commands in texts for people.

The printing program provides the options that select the cluster of the current command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_completing: list[Callable[[str], str]] = []


def completed(text: str) -> str:
    """Complete a text of the program so that its commands work unchanged for the reader of this run."""
    return _completing[-1](text) if _completing else text


@contextmanager
def completing(complete: Callable[[str], str]) -> Iterator[None]:
    """Apply `complete` to everything that is printed inside the block."""
    _completing.append(complete)
    try:
        yield
    finally:
        _completing.pop()
