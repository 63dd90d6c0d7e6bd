"""This program, killed at a fault point as by `kill -9`: `python -m tests.support.week.dying POINT ARGUMENTS…`."""

from __future__ import annotations

import sys
from functools import partial
from unittest.mock import patch

from gitops.cli.main import main
from tests.support.faults import DieAt

if __name__ == "__main__":
    dying = partial(DieAt, sys.argv[1])
    with (
        patch("gitops.repository.wiring.local.NoFaults", dying),
        patch("gitops.repository.wiring.stores.NoFaults", dying),
    ):
        sys.exit(main(sys.argv[2:]))
