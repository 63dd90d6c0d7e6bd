"""Commands in comments, pasted into a shell."""

from __future__ import annotations

import shlex
import subprocess

from gitops.render.markdown import block


def test_a_command_on_several_lines_pastes_into_a_shell() -> None:
    words = ["printf", r"%s\n", "graph.a b", "--plan", "0" * 64, "it's \\", "#x", "/srv/x", "--cluster", "knowledge"]
    _, *lines, _ = block(shlex.join(words), "sh").split("\n")
    assert max(map(len, lines)) <= 80 < len(shlex.join(words))
    done = subprocess.run(["sh", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == words[2:]
