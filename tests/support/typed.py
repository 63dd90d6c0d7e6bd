"""Commands on a terminal of their own, for tests of what is shown and asked there."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.support.loop import Loop
from tests.support.prefork import PROGRAM


def typed(loop: Loop, who: str, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal of its own, and answer its question: exit code, and what the terminal showed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=loop.clone(who),
        env=loop.environment(who),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as running:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        shown = b""
        try:
            while part := os.read(ours, 65_536):
                shown += part
        except OSError:  # Linux reports the end of the other side as an error
            pass
        os.close(ours)
    return running.returncode, shown.decode()
