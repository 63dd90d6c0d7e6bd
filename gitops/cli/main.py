"""The `gitops` command: parse the arguments, then import only what the chosen command needs."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from gitops.cli.commands.parser import build_parser, parse_options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def entry() -> None:
    """Console entry point. Output that cannot be written is a failure too."""
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
    if options.handler is None:
        build_parser(()).print_help()
        return 2
    module, _, function = options.handler.partition(":")
    try:
        code: int = getattr(import_module(module), function)(options)
    except BrokenPipeError:
        # The reader closed its end (`gitops log | head`).
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        from gitops.core.codes import Code
        from gitops.core.errors import GitopsError

        as_json = getattr(options, "json", False)
        if isinstance(error, OSError):
            # Adapters report their own failures; what arrives here is a temporary file or an output that takes no more.
            as_json = as_json and error.filename is not None
            reason = error.strerror or type(error).__name__
            error = GitopsError(Code.STORAGE_FAILED, f"{error.filename or 'an output or a temporary file'}: {reason}")
        if not isinstance(error, GitopsError):
            raise
        from gitops.cli.output import show_error

        return show_error(error, as_json=as_json)
    return code
