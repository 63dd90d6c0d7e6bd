"""Commands that the program prints for people to run, and for whom.

A remedy is a text such as `show the plan: gitops request show 1; then ask another person to run: gitops approve graph.a`. Its
commands end where a shell would end them, at a mark of the sentence or before a word of prose.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from gitops.cli.commands import COMMANDS

_GIT = "add|bundle|clone|config|fetch|init|lfs|log|ls-remote|merge|mv|pull|push|rebase|remote|rev-parse|revert|rm|show|switch"
_OTHERS = r"rm|mv|chmod|ssh-keygen(?= -\w)"
_OURS = "|".join(each.name for each in COMMANDS)
_START = re.compile(
    rf"(?<![\w./'-])(?<!usage: )(?:gitops (?:--as [\w@.]+ )?(?:{_OURS})|git (?:-C \S+ )?(?:{_GIT})|{_OTHERS})(?=[\s`;.,:)]|$)"
)
_PROSE = (
    "shows|show what|prints|says|lists|in a|in it|on the|again|and|or|then|to|which|for|with|without|of|stays|by|as|is|needs"
    "|closes|does"
)
_END = re.compile(rf"[`;\n]|,? (?:{_PROSE})\b|(?<=\S)[,.:)](?:\s|$)| \(")
_SETTING = re.compile(r"git config [\w.]+\Z")
_MENTIONED = ("git revert", *(f"gitops bot {verb}" for verb in ("plan", "apply", "command", "verify")))
"""What a text speaks of: the command that makes a revert, and what the jobs of a forge run."""
_NAMES = re.compile(r"(?<![\w$-])[A-Z][A-Z_]*(?![\w-])")
# For whom a command is, from the words before it; the first that is found. Otherwise it is for the reader.
_FOR = (
    (re.compile(r"on (?:the|that) (?:server|machine)|on a server|[Ww]ho may apply"), "operator"),
    (re.compile(r"a person listed in approvals.break_glass"), "alone"),
    (
        re.compile(
            r"another (?:person|approver)|an approver|not an author|(?:can|may|[Tt]o) approve|approve:|in a clone:"
            r"|from a clone that has it:"
        ),
        "approver",
    ),
)


@dataclass(frozen=True)
class Remedy:
    """A command as words, and for whom it is: `reader`, `approver` (not an author, with a clone), `alone` (who may act alone)
    or `operator`."""

    words: tuple[str, ...]
    whom: str = "reader"

    @property
    def text(self) -> str:
        return shlex.join(self.words)

    @property
    def names(self) -> list[str]:
        """Words that stand for something that the reader has to find out."""
        return _NAMES.findall(" ".join(self.words))


def on_one_line(text: str) -> str:
    """A text in which each command that continues on a next line is on one line, as a shell reads it."""
    return re.sub(r" \\\n *", " ", text)


def remedies(text: str) -> Iterator[Remedy]:
    """The commands of a text, each once."""
    found = dict.fromkeys(_found(html.unescape(on_one_line(text))))
    yield from found


def _found(text: str) -> Iterator[Remedy]:
    for start in _START.finditer(text):
        end = _END.search(text, start.end())
        while end and text.count("'", start.start(), end.start()) % 2:
            end = _END.search(text, end.end())
        command = re.sub(r"(?<=\S)[.,:]+\Z", "", text[start.start() : end.start() if end else len(text)].rstrip())
        if _SETTING.match(command) or command in _MENTIONED or text.startswith(": error", start.start() + len(command)):
            # This names a setting, or who speaks.
            continue
        words = tuple(shlex.split(command))
        before = text[max(0, start.start() - 300) : start.start()]
        clause = re.split(r"\n\n(?!```)|\n(?:ERROR|WARN)|fix: |; ", before)[-1]
        if "```" in text[max(0, start.start() - 8) : start.start()]:
            clause = before
        whom = next((who for words_of, who in _FOR if words_of.search(clause)), "reader")
        yield Remedy(words, whom)
