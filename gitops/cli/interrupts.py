"""What SIGINT and SIGTERM do to a command that applies."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gitops.core.cancel import Cancellation

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedBySignalError(KeyboardInterrupt):
    """A signal ended the command; `exit_code` is the one that a shell gives a program which a signal ended."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


@contextmanager
def heeding_signals() -> Iterator[Cancellation]:
    """Let signals ask applies to stop that get what this yields.

    Outside of an apply at work a signal ends the command at once. An apply at work is asked: first to start nothing more, then
    to wait for nothing. A third signal does what it would do without this.

    Raises InterruptedBySignalError at once, or else at the end if an apply was asked. To be entered in the main thread.
    """
    cancel, received = Cancellation(), []

    def heed(number: int, _frame: Any) -> None:
        received.append(number)
        if cancel.abandoned:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        elif cancel.at_work:
            cancel.request()
        else:
            raise InterruptedBySignalError(number)

    before: dict[int, Any] = {number: signal.signal(number, heed) for number in _SIGNALS}
    try:
        yield cancel
        if received:
            raise InterruptedBySignalError(received[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
