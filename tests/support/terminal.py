"""Shell blocks of a page, and a terminal on which they run."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from tests.support.pages import ROOT


def shell_blocks(page: str, heading: str = "") -> list[str]:
    """The shell blocks of a page, or those below a heading up to the next one of its rank."""
    found: list[str] = []
    within = not heading
    tokens = MarkdownIt().parse((ROOT / page).read_text(encoding="utf-8"))
    for token, following in pairwise(tokens):
        if heading and token.type == "heading_open" and token.tag in ("h1", "h2"):
            within = following.content.strip() == heading
        if within and token.type == "fence" and token.info.strip() == "sh":
            found.append(token.content)
    return found


def on_terminal(
    script: str, answers: Mapping[str, str], folder: Path, environ: Mapping[str, str], user: int | None = None
) -> str:
    """Run a script on a terminal, and type each answer whenever its question is shown. Returns what the terminal showed.

    `user` is the user and group that runs it. AssertionError if the script fails.
    """
    ours, theirs = os.openpty()
    identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    with subprocess.Popen(
        ("bash", "-euc", script),
        cwd=folder,
        env={**environ, "NO_COLOR": "1", "GIT_PAGER": "cat"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        **identity,
    ) as running:
        os.close(theirs)
        shown, answered = "", Counter[str]()
        try:
            # The end of a terminal is an error on Linux.
            with suppress(OSError):
                while part := os.read(ours, 65536):
                    shown += part.decode("utf-8", "replace")
                    for question, answer in answers.items():
                        if shown.count(question) > answered[question]:
                            answered[question] += 1
                            os.write(ours, f"{answer}\n".encode())
        finally:
            # The script of a test that is out of time gets no answer, and would wait for one.
            os.close(ours)
    assert running.returncode == 0, shown
    return shown.replace("\r\n", "\n")
