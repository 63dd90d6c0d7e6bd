"""Work in processes that are copies of this one, and end with their answer: nothing that they open stays open here.

To be called before a process starts threads, and before it loads a driver that has some.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from gitops.core.errors import BugError

__all__ = ["in_children", "run_child"]


def in_children(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each function gives, as it is after a way through JSON; all run at the same time.

    Raises BugError if a child ends without an answer.
    """
    begun = [_begin(call) for call in calls]
    answers = []
    for child, reading in begun:
        with os.fdopen(reading, "rb") as pipe:
            answers.append(pipe.read())
        os.waitpid(child, 0)
    if not all(answers):
        raise BugError("a process that checks the cluster ended without an answer; its output says why")
    return [json.loads(data) for data in answers]


def run_child(call: Callable[[], Any]) -> None:
    """Run in a child that was just forked, and end it with what the call gives as its exit code; never returns."""
    code = 1
    try:
        code = int(call() or 0)
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _begin(call: Callable[[], Any]) -> tuple[int, int]:
    # What waits to be written here would be written by the child as well.
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        run_child(lambda: _answer(writing, call()))
    os.close(writing)
    return child, reading


def _answer(writing: int, answer: Any) -> None:
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        json.dump(answer, pipe)
