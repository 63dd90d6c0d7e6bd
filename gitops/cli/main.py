"""The `gitops` command: parse the arguments, then import only what the chosen command needs."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from importlib import import_module

from gitops import __version__
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Argument, Command, Group

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import Any

_SAID = 300


def entry() -> None:
    """Console entry point. Output that cannot be written is a failure too."""
    if sys.getfilesystemencoding() != "utf-8":
        # Names in git are UTF-8, and a person who pushes may hand their own locale on to the hooks of a server. The interpreter
        # starts again in UTF-8 mode, before anything is read.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - no shell is wanted
    code = main()
    try:
        # The language server has closed its output by now.
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        sys.stderr.write(f"ERROR storage_failed: standard output: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 any error, 2 usage."""
    # A command is short and keeps most of what it allocates: frequent collections only cost time (a fifth of a large plan).
    gc.set_threshold(50_000, 20, 20)
    options = parse_options(sys.argv[1:] if arguments is None else arguments)
    command: Command | None = options.command
    if command is None:
        build_parser(()).print_help()
        return 2
    try:
        given = _load(command.inputs)(options) if command.inputs else (options,)
        result = _load(command.handler)(*given)
        if isinstance(result, int):
            return result
        from gitops.cli.shared import show

        return show(result, options)
    except BrokenPipeError:
        # The reader closed its end (`gitops log | head`).
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from gitops.core.codes import Code
        from gitops.core.errors import GitopsError, UsageError, system_reason

        as_json = getattr(options, "json", False)
        if isinstance(error, OSError):
            # Adapters report their own failures; what arrives here is a temporary file or an output that takes no more, or
            # what a driver raised, which has no number. The end of its text may quote an answer of a service.
            as_json = as_json and (error.filename is not None or error.errno is None)
            place = error.filename or ("an output or a temporary file" if error.errno else "the storage")
            said = system_reason(error, place).partition("<")[0].partition("\n")[0]
            error = GitopsError(Code.STORAGE_FAILED, said[:_SAID])
        if not isinstance(error, GitopsError):
            raise
        from gitops.cli.shared import show_error

        code = show_error(error, as_json=as_json)
        return command.usage_code if isinstance(error, UsageError) else code


def _load(name: str) -> Any:
    """The function `module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. `command` is the chosen command of the table, or None if none was chosen.

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
    parser.set_defaults(command=None)
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
            parser.set_defaults(command=command)
        _add_arguments(parser, command.entries)
        if command.commands:
            parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
            _add_commands(parts, command.commands, words)


def _add_arguments(parser: Any, entries: Iterable[Argument | Group]) -> None:
    for entry in entries:
        if isinstance(entry, Argument):
            parser.add_argument(entry.name, **entry.settings)
        elif entry.title:
            _add_arguments(parser.add_argument_group(entry.title, entry.description), entry.arguments)
        else:
            _add_arguments(parser.add_mutually_exclusive_group(), entry.arguments)
