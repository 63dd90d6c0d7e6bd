"""Requests to a web service as values: adapters build them and read the answers as pure functions, one client sends them.

A request names a path below the address of the service, never another host. Lists that come in pages are read to the end, within
bounds. An answer may name its next page in a `Link` header: followed blindly, it could send the token to another host, so the
address is taken apart and must be below that of the service.

Sources: the sans-I/O form of gidgethub; RFC 8288;
https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.json_object import JsonObject, answer_object

MOST_PAGES = 100
"""Pages of one list that are read, of 100 entries each."""

_LINK = re.compile(r"<([^<>]*)>((?:\s*;[^,<]*)*)")
_NEXT = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;]+))", re.IGNORECASE)
_PORTS = {"https": 443, "http": 80}


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

    def wait(self, seconds: float) -> None:
        """Wait before asking again for what the service does not have yet."""
        ...


NextPage = Callable[[str, WebRequest, WebAnswer, int], "WebRequest | None"]
"""Address of the service, the request of a page, its answer, and how many entries were read so far, to the next request."""


def linked_page(base: str, request: WebRequest, answer: WebAnswer, read: int = 0) -> WebRequest | None:  # noqa: ARG001 - a NextPage
    """The request of the page that the `Link` header names as next, or None. Raises RemoteError `forge_refused`."""
    for target, parameters in _LINK.findall(answer.headers.get("link", "")):
        relations = [quoted or bare for quoted, bare in _NEXT.findall(parameters)]
        if any("next" in relation.lower().split() for relation in relations):
            return _below(base, request, target)
    return None


def read_list(
    sender: WebSender,
    request: WebRequest,
    next_page: NextPage = linked_page,
    *,
    within: str | None = None,
    null_is_empty: bool = False,
    missing: GitopsError | None = None,
    most: int = MOST_PAGES,
) -> Iterator[JsonObject]:
    """The entries of a list, page by page as they are taken.

    `within` names the field that holds them, where the answer is an object. With `null_is_empty`, the answer `null` is an empty
    list. A status that the request calls quiet says that there is no list: it has no entries then, or `missing` is raised.

    Raises RemoteError `forge_limit` for more than `most` pages, `forge_refused` for a next page on another host,
    `forge_unavailable` for anything but a list; and what the sender raises.
    """
    read = 0
    for _ in range(most):
        answer = sender.send(request)
        if answer.status in request.quiet:
            if missing is not None:
                raise missing
            return
        what = request.path.rpartition("/")[2]
        body = answer.body if within is not None else {what: answer.body}
        if within is None and not (isinstance(answer.body, list) or (answer.body is None and null_is_empty)):
            raise RemoteError(Code.FORGE_UNAVAILABLE, f"the forge answers for {what} with something that is not a list")
        entries = list(answer_object(body).parts(within or what))
        yield from entries
        read += len(entries)
        following = next_page(sender.base, request, answer, read)
        if following is None:
            return
        request = following
    raise RemoteError(Code.FORGE_LIMIT, f"{request.path} has more than {most} pages")


def _below(base: str, request: WebRequest, target: str) -> WebRequest:
    """The request for an address that must be below the base; its path may be another, as that of a renamed project is."""
    try:
        here, there = urlsplit(base), urlsplit(target)
        same = _origin(here) == _origin(there)
        query = parse_qsl(there.query, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        # A port that is none, or brackets that do not close.
        raise _elsewhere(target) from None
    prefix = here.path.rstrip("/") + "/"
    if not same or "@" in there.netloc or not there.path.startswith(prefix):
        raise _elsewhere(target)
    return replace(request, path="/" + there.path.removeprefix(prefix), query=tuple(query))


def _origin(parts: SplitResult) -> tuple[Any, ...]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _elsewhere(target: str) -> RemoteError:
    return RemoteError(
        Code.FORGE_REFUSED, f"the forge names {target[:200]!r} as the next page, which is not below its address"
    )
