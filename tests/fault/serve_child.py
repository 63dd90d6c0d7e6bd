"""`gitops bot serve` that kills itself when a fault point is reached: `python -m tests.fault.serve_child POINT ARGUMENTS…`."""

from __future__ import annotations

import os
import sys

from gitops.cli.main import parse_options
from gitops.cli.serve import serve
from tests.support.faults import DieAt

if __name__ == "__main__":
    point, *arguments = sys.argv[1:]
    sys.exit(serve(parse_options(["bot", "serve", *arguments]), os.environ, DieAt(point)))
