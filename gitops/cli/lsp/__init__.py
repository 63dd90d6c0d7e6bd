"""`gitops lsp`: the language server. `gitops.editor` has the answers; this package has the protocol and the disk."""

from __future__ import annotations

import argparse

from gitops.core.codes import Code
from gitops.core.errors import UsageError

__all__ = ["lsp"]


def lsp(_options: argparse.Namespace) -> int:
    """Serve one client over standard input and output until it ends; 1 unless it sent `shutdown` and `exit`.

    Raises UsageError `lsp_unavailable` if the packages of the extra `lsp` are not installed.
    """
    try:
        from gitops.cli.lsp.server import EditorServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        message = f"{error.name} is not installed; run: pipx install --force 'WHEEL[lsp]'"
        raise UsageError(Code.LSP_UNAVAILABLE, message) from error
    return EditorServer().serve()
