"""`gitops manual`: the manual page of all commands, made from the table of commands, in the man macros of roff.

Source: man(7).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from gitops import __version__
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Argument, Command
from gitops.cli.parser import EVERYWHERE
from gitops.cli.shared import OK, say


def manual(_options: argparse.Namespace) -> int:
    """`gitops manual`."""
    say("\n".join(_page()))
    return OK


def _page() -> Iterator[str]:
    yield f'.TH GITOPS 1 "" "gitops {__version__}" "Commands"'
    yield ".SH NAME\ngitops \\- plan, approve and apply clusters of graph databases from git"
    yield ".SH SYNOPSIS\n.B gitops\n.I COMMAND\n.SH OPTIONS OF EVERY COMMAND"
    for each in EVERYWHERE:
        yield from _entry(each.label, each.meaning)
    yield ".SH COMMANDS"
    yield from _commands(COMMANDS, "gitops")
    yield ".SH EXIT STATUS\n0 success, also with warnings; 1 a problem with severity error; 2 wrong usage"


def _commands(table: Iterable[Command], parent: str) -> Iterator[str]:
    for command in table:
        yield f".SS {_roff(f'{parent} {command.name}')}"
        yield _roff(command.summary)
        if command.epilog:
            yield f".PP\n{_roff(command.epilog)}"
        for entry in command.entries:
            if isinstance(entry, Argument):
                yield from _entry(entry.label, entry.meaning)
                continue
            if entry.title:
                yield f".PP\n{_roff(f'{entry.title}: {entry.description}')}"
            for each in entry.arguments:
                yield from _entry(each.label, each.meaning)
        yield from _commands(command.commands, f"{parent} {command.name}")


def _entry(label: str, meaning: str) -> Iterator[str]:
    yield f".TP\n.B {_roff(label)}"
    yield _roff(meaning)


def _roff(text: str) -> str:
    """Text on one line that means nothing to roff: a control character counts only where a line begins."""
    return f"\\&{text}".replace("\\", "\\e").replace("\\e&", "\\&", 1).replace("-", "\\-").replace("'", "\\(aq")
