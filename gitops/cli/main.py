"""The `gitops` command: parses the arguments, then imports only what the chosen command needs.

The parser is built from the table of commands and suggests a similar word for an unknown one.
"""

from __future__ import annotations

import argparse
import codecs
import gc
import io
import os
import re
import sys
from functools import partial
from importlib import import_module

from gitops import __version__
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import CLUSTER, FOLDER, REPOSITORY, Argument, Command, Group, flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from typing import Any, NoReturn

_SAID = 300
_OPTIONS_OF_FILES = {".gq": "--file", ".yaml": "--file", ".jsonl": "--output", ".ndjson": "--output"}
_INTERRUPTED = 130  # like a shell: 128 plus the signal number


def entry() -> None:
    """Console entry point. Fails if the output cannot be written."""
    _have_streams()
    if sys.getfilesystemencoding() != "utf-8":
        # Names in git are UTF-8, but a person who pushes can pass a different locale to the hooks of a server. So the
        # interpreter restarts in UTF-8 mode before it reads anything.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - no shell is wanted
    _encode_everything()
    code = main()
    try:
        # The language server has already closed its output.
        if not sys.stdout.closed:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        sys.stderr.write(f"ERROR storage_failed: standard output: {error.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    if code >= _INTERRUPTED:
        # A background thread may still be running, and interpreter shutdown would interrupt it.
        sys.stderr.flush()
        os._exit(code)
    # At shutdown, the garbage collector would visit every remaining object, which takes seconds after hours in an
    # editor.
    gc.freeze()
    sys.exit(code)


def _encode_everything() -> None:
    """Print characters that the output encoding lacks as JSON escapes instead of failing."""

    def escaped(error: UnicodeError) -> tuple[str, int]:
        import json

        if not isinstance(error, UnicodeEncodeError):
            raise error
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    codecs.register_error("gitops.escape", escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace"):
            stream.reconfigure(errors="gitops.escape")


def _have_streams() -> None:
    """Open closed standard streams as the null device.

    Otherwise the next opened file would get a stream's number, and child processes would use it as that stream.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for as long as the process runs


def clusterctl() -> None:
    """Console entry point of `mz-clusterctl`: the commands of `gitops strategies` under their existing name."""
    sys.argv[1:1] = ["strategies"]
    entry()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 error, 2 wrong usage, 130 and 143 after SIGINT and SIGTERM."""
    # A command is short and keeps most of its objects, so collections only take time: 20 ms for the imports alone.
    gc.set_threshold(400_000, 20, 20)
    # Lance imports numpy, whose linear algebra library then starts a thread per core. Nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    line = sys.argv[1:] if arguments is None else arguments
    options = parse_options(line)
    options.line = tuple(line)
    command: Command | None = options.command
    if command is None:
        build_parser(()).print_help()
        return 2
    if {CLUSTER, FOLDER, REPOSITORY}.isdisjoint(command.entries):
        return _answered(options, partial(_carry_out, command))
    from gitops.cli.finding import complete, for_each, read_spelling
    from gitops.render.commands import completing

    read_spelling(options)
    with completing(partial(complete, options)):
        if {CLUSTER, FOLDER}.isdisjoint(command.entries):
            return _answered(options, partial(_carry_out, command))
        return _answered(options, lambda options: for_each(command, options, partial(_carry_out, command)))


def _answered(options: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Run a command and return its exit code, or that of the problem that ended it."""
    try:
        return run(options)
    except BrokenPipeError:
        # The reader closed its end of the pipe (`gitops log | head`).
        sys.stderr.close()
        return 0
    except KeyboardInterrupt as interrupt:
        return getattr(interrupt, "exit_code", _INTERRUPTED)
    except Exception as error:
        from gitops.core.codes import Code
        from gitops.core.errors import GitopsError, system_reason

        as_json = getattr(options, "json", False)
        if isinstance(error, OSError):
            # Adapters report their own failures. This catches temporary files or output that cannot be written, and
            # driver errors without an error number. The end of their text can quote the response of a service.
            as_json = as_json and (error.filename is not None or error.errno is None)
            place = error.filename or ("an output or a temporary file" if error.errno else "the storage")
            said = system_reason(error, place).partition("<")[0].partition("\n")[0]
            error = GitopsError(Code.STORAGE_FAILED, said[:_SAID])
        if not isinstance(error, GitopsError):
            raise
        from gitops.cli.shared import show_error

        code = show_error(error, options, as_json=as_json)
        return min(code, Parser.usage_code)


def _carry_out(command: Command, options: argparse.Namespace) -> int:
    given = _load(command.inputs)(options) if command.inputs else (options,)
    result = _load(command.handler)(*given)
    if isinstance(result, int):
        return result
    from gitops.cli.shared import show

    return show(result, options)


def _load(name: str) -> Any:
    """Import the function given as `module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


# -- the parser of command lines ---------------------------------------------------------------------------------------

EVERYWHERE = (
    Argument("--as", "ACTOR", "name of the person or job that acts (default: git config gitops.actor)", dest="actor"),
    flag("--no-color", "print without colours, as with the environment variable NO_COLOR"),
    flag("--quiet", "print only problems and the output that you asked for", short="-q"),
    flag("--verbose", "print more: remedies for warnings, all changes of an entry, each change of a run", short="-v"),
)
"""Options that every command accepts, before or after its name."""

_MORE = "gitops --help shows the options of every command: --as, --no-color, -q, -v"
# With this option, exit code 2 means that there are changes, so a wrong command line needs a different code.
_OWN_CODES = "--detailed-exitcode"


class Parser(argparse.ArgumentParser):
    """Argument parser that suggests a similar word for an unknown one."""

    usage_code = 2
    knows_all = True

    def error(self, message: str) -> NoReturn:
        """Exit after printing the problem and the usage."""
        found = re.match(r"argument (\S+): invalid choice: '([^']*)' \(choose from (.*)\)\Z", message, re.DOTALL)
        if found is not None:
            known = re.findall(r"[\w-]+", found[3])
            what, of = ("command", "") if found[1] == "COMMAND" else ("value", f" of {found[1]}")
            message = f"unknown {what} '{found[2]}'{of}; {_meant(found[2], known)}"
        elif message.endswith(": COMMAND"):
            message = f"the command is incomplete; to list what may follow: {self.prog} --help"
        self.print_usage(sys.stderr)
        self.exit(self.usage_code, f"{self.prog}: error: {message}\n")


class _WholeNeededError(Exception):
    """Raised when the partial parser would have to print help or an error."""


class _PartialParser(Parser):
    """A parser for only the commands in the command line. Help and errors need the parser of all commands."""

    knows_all = False

    def error(self, message: str) -> NoReturn:
        """Delegate the error to the complete parser."""
        raise _WholeNeededError(message)

    def print_help(self, file: Any = None) -> NoReturn:  # noqa: ARG002 - as in the class above
        """Delegate the help to the complete parser."""
        raise _WholeNeededError


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. `command` is the chosen command from the table, or None if none was chosen.

    Exits with a message if the command line is not accepted: with code 2, or 1 if `--detailed-exitcode` is part of it.
    """
    Parser.usage_code = 1 if _OWN_CODES in arguments else 2
    words = frozenset(arguments)
    try:
        parser = _build(_PartialParser, words)
        options, rest = parser.parse_known_args(arguments)
    except _WholeNeededError:
        parser = build_parser(words)
        options, rest = parser.parse_known_args(arguments)
    chosen: Command | None = options.command
    if chosen is not None and not any(word.startswith("-") for word in rest):
        rest = _filled(options, chosen, rest, frozenset(arguments))
    if rest:
        mine = [] if chosen is None else [name for each in chosen.arguments for name in each.names]
        known = [name for name in (*mine, *(each.name for each in EVERYWHERE)) if name.startswith("--")]
        wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
        extra = f"unexpected argument: {' '.join(rest)}"
        option = next((name for end, name in _OPTIONS_OF_FILES.items() if rest[0].endswith(end)), "--config")
        if option in mine:
            extra += f"; did you mean `{option} {rest[0]}`?"
        problem = f"unknown option {wrong}; {_meant(wrong, known)}" if wrong else extra
        sys.stderr.write(getattr(options, "usage", parser.format_usage()))
        parser.exit(Parser.usage_code, f"{getattr(options, 'prog', parser.prog)}: error: {problem}\n")
    return options


def _filled(options: argparse.Namespace, command: Command, words: list[str], given: Collection[str]) -> list[str]:
    """Give words to the optional positional arguments of a command that have no value yet, and return those left over.

    `given` are all words of the command line.

    argparse considers an optional positional argument absent if an option stands between it and the one before.
    """
    for each in command.arguments:
        many = each.settings.get("nargs") == "*"
        if each.name.startswith("-") or not words or not (many or each.settings.get("nargs") == "?"):
            continue
        if many:
            setattr(options, each.name, [*getattr(options, each.name), *words])
            return []
        value = getattr(options, each.name)
        if value == each.settings.get("default") and value not in given:
            setattr(options, each.name, words[0])
            words = words[1:]
    return words


def _meant(word: str, known: Sequence[str]) -> str:
    """Suggest known words that are similar, otherwise list all of them."""
    from gitops.database.language.suggest import did_you_mean

    near = did_you_mean(word, known)
    if near is None and "validate" in known:
        return f"known: {', '.join(known)}; to see what each does: gitops --help"
    return near or f"known: {', '.join(known)}"


def show_help(options: argparse.Namespace) -> int:
    """`gitops help`: prints the same text as `--help` of the given command."""
    build_parser(options.words).parse_args([*options.words, "--help"])
    return 0


def build_parser(words: Collection[str] | None = None) -> Parser:
    """Build the parser. If a command line's `words` are given, only the commands among them get arguments."""
    return _build(Parser, words)


def _build(kind: type[Parser], words: Collection[str] | None) -> Parser:
    parser = kind(
        prog="gitops", description="Plan, approve and apply clusters of graph databases from git.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"gitops {__version__}")
    _add_arguments(parser, EVERYWHERE)
    parser.set_defaults(command=None)
    _add_commands(parser, COMMANDS, words, required=False)
    return parser


def _add_commands(
    above: Parser, commands: Iterable[Command], words: Collection[str] | None, *, required: bool = True
) -> None:
    subparsers = above.add_subparsers(title="commands", metavar="COMMAND", required=required)
    for command in commands:
        named = words is None or command.name in words
        if not (named or above.knows_all):
            continue
        parser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            epilog="; ".join(filter(None, (command.epilog, _MORE))),
            allow_abbrev=False,
        )
        if not named:
            continue
        for each in EVERYWHERE:
            hidden = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
            parser.add_argument(*each.names, **{**each.settings, **hidden})
        _add_arguments(parser, command.entries)
        if command.handler:
            # Unknown options are found after the command's parser has run, and are reported with that command's usage.
            parser.set_defaults(command=command, prog=parser.prog, usage=parser.format_usage())
        if command.commands:
            _add_commands(parser, command.commands, words)


def _add_arguments(parser: Any, entries: Iterable[Argument | Group]) -> None:
    for entry in entries:
        if isinstance(entry, Argument):
            parser.add_argument(*entry.names, **entry.settings)
            if entry.formerly:
                old = {"dest": entry.name.lstrip("-"), "default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
                parser.add_argument(entry.formerly, **{**entry.settings, **old})
        elif entry.title:
            _add_arguments(parser.add_argument_group(entry.title, entry.description), entry.arguments)
        else:
            _add_arguments(parser.add_mutually_exclusive_group(required=entry.required), entry.arguments)
