"""For how long a request that may be repeated is repeated, while a service is busy or away."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from itertools import count

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

__all__ = ["RetryLimit"]

_VARIABLE = "GITOPS_STORAGE_RETRY"
_DEFAULT_S = 30.0
_LONGEST_S = 600.0
_FIRST_PAUSE_S = 0.1
_PAUSE_S = 5.0
_SAID_FROM_S = 1.0
_LAST_S = 0.001


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


@dataclass(slots=True)
class RetryLimit:
    """Attempts with growing pauses, until `seconds` have passed since the first.

    Before the first long pause a line says what is waited for. Time, pauses and the line go through the arguments.
    """

    seconds: float = _DEFAULT_S
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = _say
    _said: bool = field(default=False, init=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> RetryLimit:
        """As GITOPS_STORAGE_RETRY says, in seconds. Raises GitopsError `storage_root_invalid`."""
        text = environ.get(_VARIABLE, "")
        try:
            seconds = float(text) if text else _DEFAULT_S
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= _LONGEST_S:
            detail = f"{_VARIABLE} is not a number of seconds from 0 to {_LONGEST_S:.0f}"
            raise GitopsError(Code.STORAGE_ROOT_INVALID, detail, path="storage")
        return cls(seconds)

    def attempts(self, place: str) -> Iterator[int]:
        """The numbers of the attempts that may be made, from 0; the caller leaves the loop when one succeeds.

        The last attempt is made when the time is up.
        """
        end, pause = self.now() + self.seconds, _FIRST_PAUSE_S
        for attempt in count():
            yield attempt
            left = end - self.now()
            if left <= _LAST_S:
                return
            if pause > _SAID_FROM_S and not self._said:
                self._said = True
                detail = "the service is busy or does not answer; asking again"
                self.say(f"NOTE {place}: {detail} for up to {self.seconds:.0f} s")
            self.sleep(min(pause, left))
            pause = min(2 * pause, _PAUSE_S)
