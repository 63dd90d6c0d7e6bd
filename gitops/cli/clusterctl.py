"""`mz-clusterctl dry-run | apply | wipe-state`: the commands of `gitops strategies` under the name that other tools know."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def entry() -> None:
    """Console entry point."""
    from gitops.cli.main import entry as run

    sys.argv[1:1] = ["strategies"]
    run()


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    from gitops.cli.main import main as run

    return run(["strategies", *arguments])
