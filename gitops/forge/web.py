"""Requests to a web service as values.

Adapters build requests and read responses with pure functions, and one client sends them.

A request has a path below the address of the service, never another host. Paginated lists are read to the end, within
limits. A response may link its next page in a `Link` header. Following it blindly could send the token to another host, so
the address is parsed and must be below that of the service.

Sources: the sans-I/O form of gidgethub; RFC 8288;
https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import GitopsError, RemoteError
from gitops.git.port import or_zero

# Reads JSON from a forge, strict about the fields that are used and tolerant of others.
#
# Each method checks what it reads. A field that is missing, has the wrong type or is out of bounds is refused with its
# path.

_HALF = re.compile("[\ud800-\udfff]")
_LINE = 1024
_LARGEST = 10**18


class JsonObject:
    """A JSON object and its path in the document. `fail` creates the error for an invalid field."""

    __slots__ = ("_fail", "_place", "_value")

    def __init__(self, value: Any, place: str, fail: Callable[[str], GitopsError]) -> None:
        """Create the reader. Raises the error from `fail` if `value` is not an object."""
        self._place = place
        self._fail = fail
        if not isinstance(value, dict):
            raise fail(f"{place or 'it'} is not an object")
        self._value: dict[str, Any] = value

    def has(self, name: str) -> bool:
        """Return True if a field exists and is not null."""
        return self._value.get(name) is not None

    def part(self, name: str) -> JsonObject:
        """Return the object in a field."""
        return JsonObject(self._value.get(name), self._at(name), self._fail)

    def optional(self, name: str) -> JsonObject | None:
        """Return the object in a field, or None if it is missing or null."""
        return self.part(name) if self.has(name) else None

    def parts(self, name: str) -> Iterator[JsonObject]:
        """Yield the objects in a list field. Empty if the field is missing or null."""
        for index, value in enumerate(self.values(name)):
            yield JsonObject(value, f"{self._at(name)}[{index}]", self._fail)

    def values(self, name: str) -> list[Any]:
        """Return the list in a field. Empty if the field is missing or null."""
        value = self._value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def text(self, name: str, most: int = _LINE) -> str:
        """Return a string of at most `most` characters."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        if len(value) > most:
            raise self._wrong(name, f"a text of at most {most} characters")
        if not is_unicode(value):
            raise self._wrong(name, "a text of Unicode characters")
        return value

    def text_or(self, name: str, default: str = "", most: int = _LINE) -> str:
        """Return the same as `text`, or the default if the field is missing or null."""
        return self.text(name, most) if self.has(name) else default

    def line(self, name: str, most: int) -> str:
        """Return a string for people on one line, at most `most` characters long, with spaces for control characters."""
        value = self.text_or(name, most=1 << 20)
        return "".join(c if c.isprintable() else " " for c in value)[:most].strip()

    def flag(self, name: str) -> bool:
        """Return a boolean; False if the field is missing or null."""
        value = self._value.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return bool(value)

    def number(self, name: str, least: int = 1) -> int:
        """Return an integer of at least `least`."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _LARGEST:
            raise self._wrong(name, "a positive number" if least > 0 else f"a whole number from {least} on")
        return value

    def commit(self, name: str) -> str:
        """Return the full id of a commit, or ZERO for no commit."""
        value = self._value.get(name)
        if not isinstance(value, str) or not is_object_id(value):
            raise self._wrong(name, "the id of a commit")
        return or_zero(value)

    def commit_or(self, name: str) -> str | None:
        """Return the same as `commit`, or None if the field is missing or null."""
        return self.commit(name) if self.has(name) else None

    def moment(self, name: str) -> str:
        """Return a time as RFC 3339 in UTC."""
        value = self._value.get(name)
        found = parse_timestamp(value) if isinstance(value, str) else None
        if found is None:
            raise self._wrong(name, "a time")
        return timestamp(found)

    def same_moment(self, name: str, other: str) -> bool:
        """Return True if both times exist and are exactly equal."""
        first, second = (
            parse_timestamp(text) if isinstance(text, str) else None for text in map(self._value.get, (name, other))
        )
        return first is not None and first == second

    def items(self) -> list[tuple[str, Any]]:
        """Return all fields, sorted by name."""
        return sorted(self._value.items())

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def _wrong(self, name: str, expected: str) -> GitopsError:
        return self._fail(f"{self._at(name)} is not {expected}")


def is_unicode(text: str) -> bool:
    """Return True if a text can be encoded as UTF-8. JSON can contain lone surrogates, which UTF-8 cannot."""
    return text.isascii() or not _HALF.search(text)


def event_object(body: bytes, most: int) -> JsonObject:
    """Return the object in the body of an event. Raises GitopsError `event_invalid`, also if it exceeds `most` bytes."""
    if len(body) > most:
        raise _event_invalid(f"the body has {len(body)} bytes; at most {most} are read")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _event_invalid("the body is not JSON, or is nested too deeply") from error
    return JsonObject(value, "", _event_invalid)


def answer_object(value: Any, what: str = "") -> JsonObject:
    """Return the object in a forge's response. Raises RemoteError `forge_unavailable`."""
    return JsonObject(value, what, _answer_invalid)


def _event_invalid(detail: str) -> GitopsError:
    return GitopsError(Code.EVENT_INVALID, detail)


def _answer_invalid(detail: str) -> GitopsError:
    return RemoteError(Code.FORGE_UNAVAILABLE, f"the forge answers in a form that is not the documented one: {detail}")


MOST_PAGES = 100
"""Maximum number of pages of a list, with 100 entries each."""

_LINK = re.compile(r"<([^<>]*)>((?:\s*;[^,<]*)*)")
_NEXT = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;]+))", re.IGNORECASE)
_PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class WebRequest:
    """One request. `path` is quoted, has no query, and is relative to the address of the service.

    `body` is JSON or None. `repeatable` means that sending it twice does no harm; any other request is sent once. `quiet`
    are statuses of 400 and above that count as responses, not failures.
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
    """The response to a request. `headers` have lower-case names. `body` is the JSON value, or None."""

    status: int
    headers: Mapping[str, str]
    body: Any = None


class WebSender(Protocol):
    """Sends requests to one service, with retries, rate limits, size limits and credentials."""

    @property
    def base(self) -> str:
        """The address of the service, without a trailing slash."""
        ...

    def send(self, request: WebRequest) -> WebAnswer:
        """Send a request and return the response. Its status is 200 to 299, or one that the request allows (`quiet`).

        Raises RemoteError with the code of the service; its `status` is the status of the response, or None.
        """
        ...

    def wait(self, seconds: float) -> None:
        """Wait before retrying a request for data that the service does not have yet."""
        ...


NextPage = Callable[[str, WebRequest, WebAnswer, int], "WebRequest | None"]
"""Returns the next request, given the service's address, a page's request, its response, and the number of entries so far."""


def linked_page(base: str, request: WebRequest, answer: WebAnswer, read: int = 0) -> WebRequest | None:  # noqa: ARG001 - a NextPage
    """Build the request for the next page in the `Link` header, or None. Raises RemoteError `forge_refused`."""
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
    """Yield the entries of a list. Reads each page on demand.

    `within` is the field that contains them, if the response is an object. With `null_is_empty`, the response `null` is an
    empty list. A quiet status means that there is no list: then it has no entries, or `missing` is raised.

    Raises RemoteError `forge_limit` for more than `most` pages, `forge_refused` for a next page on another host,
    `forge_unavailable` for anything but a list; and any error of the sender.
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
    """Return the request for an address that must be below the base. Its path may differ, as for a renamed project."""
    try:
        here, there = urlsplit(base), urlsplit(target)
        same = _origin(here) == _origin(there)
        query = parse_qsl(there.query, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        # The port is invalid, or brackets are not closed.
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
