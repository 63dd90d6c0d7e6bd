"""Requests to a web service as values: adapters build and read them as pure functions, one transport sends them.

A request names a path below the service's address, never another host: what an answer calls the next page is checked
against that address before it is followed. Source: the sans-I/O form of gidgethub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request: `path` is below the service's address and already quoted, without a query.

    `body` is JSON or None. `repeatable` says that sending it twice does no harm (reads, puts, deletes); anything else is sent
    once, and a lost answer is settled by whoever sent it. `quiet` are statuses that are answers here and no failures.
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
    """What came back: `headers` have lower-case names, `body` is the JSON value, or None if there was none."""

    status: int
    headers: Mapping[str, str]
    body: Any = None


class WebSender(Protocol):
    """Sends requests to one service.

    Retries, rate limits, bounds and credentials are its business. It counts what it sends, so that a run can report it.
    """

    @property
    def base(self) -> str:
        """Address of the service, without a slash at the end."""
        ...

    def send(self, request: WebRequest) -> WebAnswer:
        """The answer to a request: any status of 200 to 299, or one that the request calls quiet.

        Raises RemoteError with the service's code; `status` of the error is the status that the service gave, or None.
        """
        ...
