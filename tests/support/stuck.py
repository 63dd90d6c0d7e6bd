"""`gitops` whose query `stuck` never returns, and has no time: `python -m tests.support.stuck ARGUMENTS…`."""

from __future__ import annotations

import sys
import threading
from typing import Any

from gitops.cli.main import entry
from gitops.serving.http import queries, work


def main() -> None:
    """Every other query runs as it does."""
    run = queries.run_read

    def run_or_wait(served: Any, snapshot: Any, query: Any, *given: Any) -> Any:
        if query.name == "stuck":
            threading.Event().wait()
        return run(served, snapshot, query, *given)

    queries.run_read = run_or_wait
    work.read_limits = lambda *_, **__: (work.HttpLimits(query_s=0.0, stuck_s=0.0), ())
    sys.argv = ["gitops", *sys.argv[1:]]
    entry()


if __name__ == "__main__":
    main()
