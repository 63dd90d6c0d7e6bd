"""Requests to a web service as values: adapters build them and read the answers as pure functions, one client sends them.

A request names a path below the address of the service, never another host. Source: the sans-I/O form of gidgethub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request: `path` is below the address of the service and quoted, without a query.

    `body` is JSON or None. `repeatable` says that sending it twice does no harm; any other request is sent once. `quiet` are
    statuses of 400 and more that are answers and not failures.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True
    quiet: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class WebAnswer:
    """The answer: `headers` have lower-case names, `body` is the JSON value, None if there is none."""

    status: int
    headers: Mapping[str, str]
    body: Any = None


class WebSender(Protocol):
    """Sends requests to one service, with retries, rate limits, bounds and credentials."""

    @property
    def base(self) -> str:
        """Address of the service, without a slash at the end."""
        ...

    def send(self, request: WebRequest) -> WebAnswer:
        """The answer to a request: with a status of 200 to 299, or one that the request calls quiet.

        Raises RemoteError with the code of the service; its `status` is the status of the answer, or None.
        """
        ...
