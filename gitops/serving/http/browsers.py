"""Requests that a page of another site makes, in a browser on a machine that reaches this server.

A page may send any request that a form can send, and by DNS rebinding (its name suddenly leads to this machine) any request at
all. It cannot choose `Host`, which has the name that the browser asked for, nor `Origin`, which has its own site.

1. A server that anyone may ask, because it asks for no token, answers only for names that lead nowhere but to its own machine:
   `localhost`, the loopback addresses, and the address that it was reached at, with any port (a tunnel has another one).
2. An `Origin` must be the host that was asked. No answer permits another one (CORS).

Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any

from gitops.serving.problem import ApiCode, ApiProblem, ProblemError

__all__ = ["is_loopback", "refuse_other_sites"]

_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only programs on the same machine reach a host; of names only `localhost` is known."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # An address of IPv4 as a socket of IPv6 has it.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def refuse_other_sites(scope: Mapping[str, Any], *, any_host: bool) -> None:
    """Raise ProblemError 403 for a foreign `Origin`, and unless `any_host` is answered, 421 for an unknown `Host`."""
    headers = [(name, value.decode("latin-1").strip().lower()) for name, value in scope["headers"]]
    hosts = [value for name, value in headers if name == b"host"]
    if not any_host and not (len(hosts) == 1 and _name(hosts[0]) in (*_NAMES, _reached(scope))):
        message = (
            "this server answers without a token, and so only for localhost and its own address, not for this Host"
        )
        raise ProblemError(ApiProblem(421, ApiCode.BAD_REQUEST, message))
    own = {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
    if any(value not in own for name, value in headers if name == b"origin"):
        message = "pages of other sites may not ask this server: the Origin must be the Host that is asked"
        raise ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, message))


def _name(host: str) -> str:
    """A host without its port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def _reached(scope: Mapping[str, Any]) -> str | None:
    """The address of this end of the connection, as a Host has it."""
    server = scope.get("server")
    if not server:
        return None
    return f"[{server[0]}]" if ":" in server[0] else str(server[0])
