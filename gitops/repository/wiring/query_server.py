"""Open a client of a query server, with the token of who asks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import Secret, resolve
from gitops.forge.client import Service, WebClient
from gitops.forge.web import WebSender
from gitops.repository.wiring.system import SystemClock

__all__ = ["open_query_server"]

_TOKEN = "GITOPS_SERVER_TOKEN"  # noqa: S105 - the name of a variable
_MOST = 64 * 1024
_SILENCE_S, _LONGEST_S = 120.0, 600.0


def open_query_server(
    address: str, token_file: str | None, environ: Mapping[str, str], *, plain_http: bool = False
) -> WebSender:
    """A client of the server at an address, with the token of a file, else of GITOPS_SERVER_TOKEN, else without one.

    A token goes over plain HTTP only to this host, or to any with `plain_http`. Raises UsageError `usage_error` for an address
    that this excludes and for a token that cannot be read, GitopsError `query_server_unavailable` for any other wrong address.
    """
    token = resolve(f"${{{_TOKEN}}}", environ) if token_file is None else _token(token_file)
    if token is not None and (not token.reveal() or not token.reveal().isascii() or not token.reveal().isprintable()):
        raise UsageError(Code.USAGE_ERROR, f"{token.name} has no token of printable characters")
    headers = {} if token is None else {"Authorization": token.prefixed("Bearer ")}
    service = Service(
        address,
        Code.QUERY_SERVER_UNAVAILABLE,
        headers,
        timeout_s=_SILENCE_S,
        longest_s=_LONGEST_S,
        attempts=2,
        plain=plain_http or token is None,
    )
    try:
        return WebClient(service, time.sleep, SystemClock())
    except GitopsError as error:
        if token is None or not address.startswith("http://"):
            raise
        fix = "use https://HOST; or, inside a trusted network: gitops query GRAPH NAME --plain-http"
        raise UsageError(Code.USAGE_ERROR, f"{error.detail}; a token is not sent in plain", fix=fix) from None


def _token(file: str) -> Secret:
    try:
        with Path(file).open(encoding="utf-8") as source:
            return Secret("--token-file", source.read(_MOST).strip())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        fix = "name a file that exists and contains a token: --token-file FILE"
        raise UsageError(Code.USAGE_ERROR, f"the file {file} cannot be read: {why}", fix=fix) from error
