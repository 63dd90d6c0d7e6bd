"""Lists that a forge gives in pages: to the end, within bounds, and never to another address.

An answer names its next page in a `Link` header. Whoever can make it name another host would be sent the token, so the
address is taken apart and sent below the service's own.

Source: RFC 8288; https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.forge.web import WebAnswer, WebRequest, WebSender

__all__ = ["MOST_PAGES", "next_page", "pages"]

MOST_PAGES = 100
"""Pages of one list that are read, of 100 entries each."""

_LINK = re.compile(r"<([^<>]*)>((?:\s*;[^,<]*)*)")
_NEXT = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;]+))", re.IGNORECASE)
_PORTS = {"https": 443, "http": 80}


def pages(sender: WebSender, request: WebRequest, *, most: int = MOST_PAGES) -> Iterator[WebAnswer]:
    """The answers to a request and to those that they name as next.

    A first answer that the request calls quiet is given as it is, and is the only one. Raises RemoteError `forge_limit` for
    more than `most` pages, `forge_refused` for a next page elsewhere; and what the sender raises.
    """
    following: WebRequest | None = request
    for _ in range(most):
        if following is None:
            return
        answer = sender.send(following)
        yield answer
        following = next_page(sender.base, request, answer)
    if following is not None:
        raise RemoteError(Code.FORGE_LIMIT, f"{request.path} has more than {most} pages")


def next_page(base: str, request: WebRequest, answer: WebAnswer) -> WebRequest | None:
    """The request of the page after an answer, or None after the last. Raises RemoteError `forge_refused`."""
    for target, parameters in _LINK.findall(answer.headers.get("link", "")):
        relations = [quoted or bare for quoted, bare in _NEXT.findall(parameters)]
        if any("next" in relation.lower().split() for relation in relations):
            return _below(base, request, target)
    return None


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
