"""`docs/cli.md`, made from the argument parser: `python -m tests.support.cli_page`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gitops.cli.main import _parser
from tests.support.pages import cell, write_page

PAGE = "cli.md"
_HEAD = """\
# Commands

Exit codes of every command: 0 ok (also with warnings), 1 a problem with severity error, 2 wrong usage.

This page is made from the argument parser by `make docs`.
"""

Command = tuple[str, argparse.ArgumentParser]


def commands(parser: argparse.ArgumentParser | None = None, name: str = "gitops") -> Iterator[Command]:
    """The program and its commands, by full name, in the order of the help."""
    parser = parser or _parser()
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, part in action.choices.items():
                yield from commands(part, f"{name} {word}")


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of one command that its help shows, without the help option itself and its sub-commands."""
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return [a for a in parser._actions if not isinstance(a, hidden) and a.help != argparse.SUPPRESS]


def label(action: argparse.Action) -> str:
    """An argument as a person writes it: `--limit N`, `FILE`, `--mode merge|append`."""
    value = ""
    if action.nargs != 0:
        value = "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return f"[{value} ...]" if action.nargs == "*" else value
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def cli_page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *(_section(name, parser) for name, parser in commands())])


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    lines = [f"## `{name}`", "", _sentence(parser.description or ""), ""]
    listed = options(parser)
    if listed:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{label(a).replace('|', chr(92) + '|')}` | {cell(a.help or '')} |" for a in listed]
        lines.append("")
    return "\n".join(lines)


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


if __name__ == "__main__":
    write_page(PAGE, cli_page())
