"""`python -m tests.support.dying_preview FOLDER POINT`: the bot previews the requests of a loop, and is killed at a point.

A process between it and the test adopts the workers that the killed one leaves, and ends after the last of them. Without that,
a test could not tell when nothing of the preview is at work any more.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gitops.bot import previews
from gitops.bot.dispatch import run_verb
from gitops.forge.events import ManualEvent
from gitops.repository.wiring.previews import MachinePreviews, StoredScratch
from gitops.review.previews.order import Ask, Job
from tests.support.bot_stage import ALICE, WRITERS, Stage
from tests.support.loop import Loop, email

POINTS = ("turn", "claim", "copying", "tried", "signed", "kept", "extended")
"""Before the claim, after it, while workers make copies, before the record, after it, and after the claim is extended."""
_SUBREAPER = 36


def killed_at(folder: Path, point: str) -> int:
    """Preview the requests of the loop in a folder until that point; returns how the bot ended, after its last worker."""
    argv = [sys.executable, "-m", "tests.support.dying_preview", str(folder), point, "adopt"]
    return subprocess.run(argv, check=False, timeout=300, cwd=Path(__file__).parents[2]).returncode


def main() -> None:
    """Run the bot, or adopt what it leaves."""
    folder, point, *adopt = sys.argv[1:]
    if not adopt:
        _preview(Path(folder), point)
        return
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    bot = subprocess.Popen([sys.executable, "-m", "tests.support.dying_preview", folder, point])
    code = bot.wait()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    sys.exit(-code)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dying(call: Callable[..., Any], *, before: bool = False, visit: int = 1) -> Callable[..., Any]:
    """A function that is killed before or after its n-th call."""
    calls = 0

    def wrapped(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls == visit:
            _die()
        found = call(*arguments, **named)
        if calls == visit:
            _die()
        return found

    return wrapped


class _Machine(MachinePreviews):
    """Real workers; with the point `copying`, the bot is killed as soon as one of them has begun a copy."""

    def __init__(self, stage: Stage, point: str) -> None:
        super().__init__(stage.local, os.environ)
        self._point, self._root = point, stage.loop.folder / "data"

    @contextmanager
    def workers(self, budget_s: float) -> Iterator[Ask]:
        with super().workers(budget_s) as real:

            def ask(batches: Sequence[Sequence[Job]], left_s: float) -> Sequence[Sequence[Any]]:
                if self._point == "copying" and os.fork() == 0:
                    # A process of its own watches, because a thread would not run while workers are started.
                    while not any(self._root.glob("*/previews/*/*/*/*.omni")):
                        pass
                    os.kill(os.getppid(), signal.SIGKILL)
                    os._exit(0)
                return real(batches, left_s)

            yield ask


def _preview(folder: Path, point: str) -> None:
    loop = Loop(folder)
    stage = Stage(loop, people={**WRITERS, **{email(who): WRITERS[ALICE] for who in ("alice", "bob")}})
    write = StoredScratch.write
    if point in ("turn", "claim"):
        StoredScratch.write = _dying(write, before=point == "turn")  # type: ignore[method-assign]
    elif point == "extended":
        StoredScratch.write = _dying(write, visit=2)  # type: ignore[method-assign]
    elif point in ("signed", "kept"):
        previews.keep_preview = _dying(previews.keep_preview, before=point == "signed")
    elif point == "tried":
        previews.try_graphs = _dying(previews.try_graphs)
    bot = replace(stage.bot(), previews=_Machine(stage, point), private=True)
    list(run_verb(bot, "preview", ManualEvent()))


if __name__ == "__main__":
    main()
