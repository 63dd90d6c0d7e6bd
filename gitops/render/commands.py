"""Commands in text for people.

The running program supplies the options that select the cluster of the current command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gitops.cluster.model.address import Address
    from gitops.cluster.model.plan import Plan

_completing: list[Callable[[str], str]] = []
# Characters of a line of code that every forge shows without scrolling.
_WIDTH = 80
# A word of a shell command as it is typed: bare characters, escaped characters and quotes.
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")


def completed(text: str) -> str:
    """Complete the commands in `text`, so that people who read this output can run them unchanged."""
    return _completing[-1](text) if _completing else text


@contextmanager
def completing(complete: Callable[[str], str]) -> Iterator[None]:
    """Apply `complete` to all text that is printed in the block."""
    _completing.append(complete)
    try:
        yield
    finally:
        _completing.pop()


def with_typed(command: str, words: Sequence[str], text: str) -> str:
    """Add the options that were typed to each `gitops COMMAND` in a text.

    `words` are those of the command line. An option that the text names replaces the typed one; if its value is of the form
    NAME=VALUE, it replaces only the typed one with the same NAME. A command with `--upgrade` is another one.
    """
    last = command.rsplit(maxsplit=1)[-1]
    typed = _options(words[words.index(last) + 1 :]) if last in words else []

    def complete(found: re.Match[str]) -> str:
        named = {_subject(each) for each in _options(found[1].split())}
        kept = [word for each in typed if _subject(each) not in named for word in each]
        return f"gitops {command} {shlex.join(kept)}{found[1]}" if kept else found[0]

    return re.sub(rf"gitops {command}(?! --upgrade)((?: --[a-z-]+(?: [^\s;-][^\s;]*)?)*)", complete, text)


def wrapped(command: str) -> str:
    r"""Return a shell command in lines of at most 80 characters, which a shell joins at ` \\` when they are pasted.

    Lines break between words, but not between an option and its value, and no line starts with a slash, which some forges
    interpret as a command. A longer word stays whole. Text that is not a single command, such as a comment, is unchanged.
    """
    words = _WORD.findall(command)
    if len(command) <= _WIDTH or " ".join(words) != command or any(word.startswith("#") for word in words):
        return command
    parts = words[:1]
    for before, word in pairwise(words):
        if word.startswith("/") or (before.startswith("-") and not word.startswith("-")):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = parts[:1]
    for part in parts[1:]:
        # Each line but the last ends with a space and a backslash.
        if len(lines[-1]) + len(part) + 3 <= _WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(f"  {part}")
    return " \\\n".join(lines)


def _options(words: Sequence[str]) -> list[list[str]]:
    """Split words before each option."""
    starts = [at for at, word in enumerate(words) if at == 0 or word.startswith("-")]
    return [list(words[start:end]) for start, end in zip(starts, [*starts[1:], len(words)], strict=False)]


def _subject(option: Sequence[str]) -> tuple[str, str]:
    """Return what an option with its value is about: its name, and NAME of a value NAME=VALUE."""
    name, _, value = option[0].partition("=")
    return name, " ".join([value, *option[1:]]).strip().rpartition("=")[0]


def approve_command(plan: Plan, address: Address, selected: Iterable[str]) -> str:
    """Return the shell-quoted command that approves one change in a plan.

    `selected` are the options that select the plan.

    It contains the facts that its user has seen: the plan's digest and the rows of the change's graph.
    """
    change = plan.change(address)
    seen = None if change is None else change.seen
    rows = [] if seen is None else ["--rows", str(seen.rows)]
    return shlex.join(["gitops", "approve", address, *selected, *rows, "--plan", plan.digest])
