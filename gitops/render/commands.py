"""Commands in text for people.

The running program supplies the options that select the cluster of the current command.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops.cluster.model.address import Address
    from gitops.cluster.model.plan import Plan

_completing: list[Callable[[str], str]] = []


def completed(text: str) -> str:
    """Complete the commands in `text`, so that people who read this output can run them unchanged."""
    return _completing[-1](text) if _completing else text


@contextmanager
def completing(complete: Callable[[str], str]) -> Iterator[None]:
    """Apply `complete` to all text that is printed in the block."""
    _completing.append(complete)
    try:
        yield
    finally:
        _completing.pop()


def approve_command(plan: Plan, address: Address, selected: Iterable[str]) -> str:
    """Return the shell-quoted command that approves one change in a plan.

    `selected` are the options that select the plan.

    It contains the facts that its user has seen: the plan's digest and the rows of the change's graph.
    """
    change = plan.change(address)
    seen = None if change is None else change.seen
    rows = [] if seen is None else ["--rows", str(seen.rows)]
    return shlex.join(["gitops", "approve", address, *selected, *rows, "--plan", plan.digest])
