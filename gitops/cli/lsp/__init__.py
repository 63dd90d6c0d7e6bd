"""`gitops lsp`: the language server.

`gitops.editor` computes the answers; this package handles the protocol and the files.
"""

from __future__ import annotations

import argparse

from gitops.core.codes import Code
from gitops.core.errors import UsageError

__all__ = ["lsp"]


def lsp(_options: argparse.Namespace) -> int:
    """Serve one client on standard input and output until it ends. Returns 1 unless it sent `shutdown` and `exit`.

    Raises UsageError `lsp_unavailable` if the packages of the extra `lsp` are not installed.
    """
    try:
        from gitops.cli.lsp.server import EditorServer
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("pygls", "lsprotocol"):
            raise
        raise UsageError(Code.LSP_UNAVAILABLE, f"the package {package} is not installed") from error
    return EditorServer().serve()
