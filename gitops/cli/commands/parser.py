"""Build the argument parser from the table of commands."""

from __future__ import annotations

import argparse

from gitops import __version__
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.types import Argument, Command, Group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Any


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. `handler` is the `module:function` of the chosen command, or None if none was chosen.

    Exits with code 2 after a message for a command line that is not accepted, as argparse does.
    """
    parser = build_parser(frozenset(arguments))
    options, rest = parser.parse_known_args(arguments)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "query", rest) is None:
        # Older releases of argparse take an optional positional for absent when options stand before it.
        options.query, rest = rest[0], []
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


def build_parser(words: Collection[str] | None = None) -> argparse.ArgumentParser:
    """Build the parser. With the `words` of a command line, commands that are not among them get no arguments."""
    parser = argparse.ArgumentParser(
        prog="gitops", description="Plan, approve and apply clusters of graph databases from git.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gitops {__version__}")
    parser.add_argument("--as", dest="actor", metavar="ACTOR", help="who is acting; default: git config gitops.actor")
    parser.set_defaults(handler=None)
    _add_commands(parser.add_subparsers(title="commands", metavar="COMMAND"), COMMANDS, words)
    return parser


def _add_commands(subparsers: Any, commands: Iterable[Command], words: Collection[str] | None) -> None:
    for command in commands:
        parser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog=command.epilog or None,
            allow_abbrev=False,
        )
        if words is not None and command.name not in words:
            continue
        parser.add_argument("--as", dest="actor", metavar="ACTOR", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        if command.handler:
            parser.set_defaults(handler=command.handler)
        _add_arguments(parser, command.entries)
        if command.commands:
            parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
            _add_commands(parts, command.commands, words)


def _add_arguments(parser: Any, entries: Iterable[Argument | Group]) -> None:
    for entry in entries:
        if isinstance(entry, Argument):
            parser.add_argument(*entry.names, **entry.settings)
        elif entry.title:
            _add_arguments(parser.add_argument_group(entry.title, entry.description), entry.arguments)
        else:
            _add_arguments(parser.add_mutually_exclusive_group(), entry.arguments)
