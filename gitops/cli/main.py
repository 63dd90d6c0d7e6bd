"""The `gitops` command: parse the arguments, then import only what the chosen command needs."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from gitops.cli.parser import build_parser, parse_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gitops.cli.commands.arguments import Command

_SAID = 300
_INTERRUPTED = 130  # as a shell says it: 128 and the number of the signal


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
    if code >= _INTERRUPTED:
        # A thread that the run does not wait for may be at work, and the end of the interpreter would break it in the middle.
        sys.stderr.flush()
        os._exit(code)
    # The interpreter ends with collections that look at every object that is left: after hours in an editor, for seconds.
    gc.freeze()
    sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 ok, 1 any error, 2 usage, 130 and 143 after SIGINT and SIGTERM."""
    # A command is short and keeps most of what it allocates: collections only cost time, 20 ms for what is imported alone.
    gc.set_threshold(400_000, 20, 20)
    # Importing Lance imports numpy, whose linear algebra then starts a thread for each core; nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
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
    except KeyboardInterrupt as interrupt:
        return getattr(interrupt, "exit_code", _INTERRUPTED)
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

        code = show_error(error, options, as_json=as_json)
        return command.usage_code if isinstance(error, UsageError) else code


def _load(name: str) -> Any:
    """The function `module:function`."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)
