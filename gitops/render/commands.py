"""Commands in texts for people.

The running program supplies the options that select the cluster of the current command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_completing: list[Callable[[str], str]] = []


def completed(text: str) -> str:
    """Complete the commands in a text, so that whoever reads this output can run them as they are."""
    return _completing[-1](text) if _completing else text


@contextmanager
def completing(complete: Callable[[str], str]) -> Iterator[None]:
    """Apply `complete` to all text printed inside the block."""
    _completing.append(complete)
    try:
        yield
    finally:
        _completing.pop()
