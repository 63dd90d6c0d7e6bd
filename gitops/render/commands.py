"""Commands in texts for people. The program that prints them says how each names the cluster that its own command was about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_completing: list[Callable[[str], str]] = []


def completed(text: str) -> str:
    """A text of the program whose commands work as they stand, for the reader of this run."""
    return _completing[-1](text) if _completing else text


@contextmanager
def completing(complete: Callable[[str], str]) -> Iterator[None]:
    """Let `complete` do so for what is printed inside the block."""
    _completing.append(complete)
    try:
        yield
    finally:
        _completing.pop()
