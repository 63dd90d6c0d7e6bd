"""The worker of query tests, which dies when a test asks for it by its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gitops.review.tests import worker


def open_worker(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The real worker, but a parameter `name` of `die` kills it, and of `lie` makes it answer something else."""
    answer = worker.open_worker(folder)

    def answering(job: dict[str, Any]) -> dict[str, Any]:
        name = job.get("params", {}).get("name")
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"verdict": "splendid"} if name == "lie" else answer(job)

    return answering
