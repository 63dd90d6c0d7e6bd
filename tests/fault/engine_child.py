"""A process that does deeds to a graph until somebody kills it, or until it kills itself at a fault point.

python -m tests.fault.engine_child      reads an order (JSON), then waits for a line before each deed

It says `ready` when everything is imported, `begin I` before deed I of the order, and `ack I SECONDS` when it is done; at the end
it says which fault points it reached, deed by deed, and waits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.fault.engine_world import Deed, perform
from tests.support.faults import DieAt
from tests.support.pages import ROOT

DEADLINE_S = 120
LONGEST_S = 1800
"""How long a slow test may take."""


@dataclass
class Told:
    """What a dead process had said."""

    begun: int = 0
    acked: int = 0
    seconds: list[float] = field(default_factory=list)
    reached: list[list[str]] = field(default_factory=list)
    failure: str = ""


class Child:
    """The process, as its parent has it."""

    def __init__(self) -> None:
        """Start it; it imports while the parent goes on."""
        command = [sys.executable, "-m", "tests.fault.engine_child"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._told = Told()

    def order(self, uri: str, deeds: Sequence[Deed], point: str = "", visit: int = 0) -> None:
        """What to do; returns when it is about to begin."""
        order = {"uri": uri, "deeds": [asdict(deed) for deed in deeds], "point": point, "visit": visit}
        environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        self._say(json.dumps({**order, "environ": environ}))
        self._hear("begin")

    def go(self, deeds: int = 1) -> None:
        """Let it do its next deeds."""
        self._say("\n".join(["go"] * deeds))

    def acknowledged(self) -> Told:
        """Wait for the next word, which says that a deed is done."""
        self._hear("ack")
        return self._told

    def kill(self) -> None:
        """Let it die where it is."""
        self._process.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        """Wait until it is dead."""
        self._process.wait(DEADLINE_S)

    def end(self) -> Told:
        """What it said until it died. It must have been killed."""
        rest, errors = self._process.communicate(timeout=DEADLINE_S)
        for line in rest.splitlines(keepends=True):
            self._note(line)
        if self._process.returncode != -signal.SIGKILL:
            raise AssertionError(f"the child ended by itself: {self._told.failure} {errors}")
        return self._told

    def stop(self) -> Told:
        """Kill it, and hear what it said."""
        self.kill()
        return self.end()

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def _hear(self, word: str) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._note(line)
            if line.startswith(word):
                return
        self.end()
        raise AssertionError(f"the child died before it said {word}")

    def _note(self, line: str) -> None:
        """One line; a death may leave half of one."""
        if not line.endswith("\n"):
            return
        word, _, rest = line.strip().partition(" ")
        if word == "begin":
            self._told.begun += 1
        elif word == "ack":
            self._told.acked += 1
            seconds, _, reached = rest.partition(" ")
            self._told.seconds.append(float(seconds))
            self._told.reached.append(json.loads(reached))
        elif word == "failed":
            self._told.failure = rest


def say(text: str) -> None:
    """One line to the parent."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(order: dict[str, Any]) -> None:
    """What the child does."""
    os.environ.update(order["environ"])
    watch = DieAt(order["point"], order["visit"])
    for form in order["deeds"]:
        say("begin")
        sys.stdin.readline()
        watch.reached.clear()
        start = time.monotonic()
        try:
            perform(order["uri"], Deed(**form), watch)
        except Exception as error:
            say(f"failed {form['op']}: {type(error).__name__} {error}")
            raise
        say(f"ack {time.monotonic() - start:.4f} {json.dumps(watch.reached)}")
    sys.stdin.read()


if __name__ == "__main__":
    run(json.loads(sys.stdin.readline()))
