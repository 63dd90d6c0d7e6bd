"""This program, killed at a fault point as by `kill -9`: `python -m tests.support.week.dying POINT ARGUMENTS…`."""

from __future__ import annotations

import signal
import sys
from unittest.mock import patch

from gitops.cli.main import main


class DeadAt:
    """Kills this process where a point is reached."""

    def reach(self, point: str) -> None:
        if point == sys.argv[1]:
            signal.raise_signal(signal.SIGKILL)


if __name__ == "__main__":
    with patch("gitops.repository.wiring.local.NoFaults", DeadAt):
        sys.exit(main(sys.argv[2:]))
