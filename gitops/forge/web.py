"""Requests to a web service as values: adapters build them and read the answers as pure functions, one client sends them.

A request names a path below the address of the service, never another host. Lists that come in pages are read to the end, within
bounds. An answer may name its next page in a `Link` header: followed blindly, it could send the token to another host, so the
address is taken apart and must be below that of the service.

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
from gitops.core.errors import GitopsError, RemoteError

# Reading JSON from a forge: strict about the fields that are used, silent about the others.
#
# Every method says what it expects. A field that is missing, of another type or out of bounds is refused with its path.

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_HALF = re.compile("[\ud800-\udfff]")
_LINE = 1024
_LARGEST = 10**18


class JsonObject:
    """A JSON object and its path in the document; `fail` makes the error for a field that is refused."""

    __slots__ = ("_fail", "_place", "_value")

    def __init__(self, value: Any, place: str, fail: Callable[[str], GitopsError]) -> None:
        """Raises what `fail` makes if `value` is not an object."""
        self._place = place
        self._fail = fail
        if not isinstance(value, dict):
            raise fail(f"{place or 'it'} is not an object")
        self._value: dict[str, Any] = value

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self._value.get(name) is not None

    def part(self, name: str) -> JsonObject:
        """The object in a field."""
        return JsonObject(self._value.get(name), self._at(name), self._fail)

    def optional(self, name: str) -> JsonObject | None:
        """The object in a field, or None if that is missing or null."""
        return self.part(name) if self.has(name) else None

    def parts(self, name: str) -> Iterator[JsonObject]:
        """The objects of the list in a field; none if that is missing or null."""
        for index, value in enumerate(self.values(name)):
            yield JsonObject(value, f"{self._at(name)}[{index}]", self._fail)

    def values(self, name: str) -> list[Any]:
        """The list in a field, empty if that is missing or null."""
        value = self._value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def text(self, name: str, most: int = _LINE) -> str:
        """A text of at most `most` characters."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        if len(value) > most:
            raise self._wrong(name, f"a text of at most {most} characters")
        if not is_unicode(value):
            raise self._wrong(name, "a text of Unicode characters")
        return value

    def text_or(self, name: str, default: str = "", most: int = _LINE) -> str:
        """The same, or the default if the field is missing or null."""
        return self.text(name, most) if self.has(name) else default

    def line(self, name: str, most: int) -> str:
        """A text for people on one line: cut to `most` characters, with spaces for control characters."""
        value = self.text_or(name, most=1 << 20)
        return "".join(c if c.isprintable() else " " for c in value)[:most].strip()

    def flag(self, name: str) -> bool:
        """True or false; false if the field is missing or null."""
        value = self._value.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return bool(value)

    def number(self, name: str, least: int = 1) -> int:
        """A whole number from `least` on."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _LARGEST:
            raise self._wrong(name, "a positive number" if least > 0 else f"a whole number from {least} on")
        return value

    def commit(self, name: str) -> str:
        """The full id of a commit."""
        value = self._value.get(name)
        if not isinstance(value, str) or not _OBJECT_ID.fullmatch(value):
            raise self._wrong(name, "the id of a commit")
        return value

    def commit_or(self, name: str) -> str | None:
        """The same, or None if the field is missing or null."""
        return self.commit(name) if self.has(name) else None

    def moment(self, name: str) -> str:
        """A time, as RFC 3339 in UTC."""
        value = self._value.get(name)
        found = parse_timestamp(value) if isinstance(value, str) else None
        if found is None:
            raise self._wrong(name, "a time")
        return timestamp(found)

    def same_moment(self, name: str, other: str) -> bool:
        """Whether two times are there and equal, in all their digits."""
        first, second = (
            parse_timestamp(text) if isinstance(text, str) else None for text in map(self._value.get, (name, other))
        )
        return first is not None and first == second

    def items(self) -> list[tuple[str, Any]]:
        """All fields, by name."""
        return sorted(self._value.items())

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def _wrong(self, name: str, expected: str) -> GitopsError:
        return self._fail(f"{self._at(name)} is not {expected}")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON can hold halves of characters, which UTF-8 cannot."""
    return text.isascii() or not _HALF.search(text)


def event_object(body: bytes, most: int) -> JsonObject:
    """The object in the body of an event. Raises GitopsError `event_invalid`, also for more than `most` bytes."""
    if len(body) > most:
        raise _event_invalid(f"the body has {len(body)} bytes; at most {most} are read")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _event_invalid("the body is not JSON, or is nested too deeply") from error
    return JsonObject(value, "", _event_invalid)


def answer_object(value: Any, what: str = "") -> JsonObject:
    """The object that a forge answered with. Raises RemoteError `forge_unavailable`."""
    return JsonObject(value, what, _answer_invalid)


def _event_invalid(detail: str) -> GitopsError:
    return GitopsError(Code.EVENT_INVALID, detail)


def _answer_invalid(detail: str) -> GitopsError:
    return RemoteError(Code.FORGE_UNAVAILABLE, f"the forge answers in a form that is not the documented one: {detail}")


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
