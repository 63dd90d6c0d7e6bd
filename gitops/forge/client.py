"""JSON over HTTP with one service.

Rules of this module:

1. The address is fixed when the client is created: HTTPS, or plain HTTP only on this host unless the service is `plain`.
   Redirects are not followed, no path leads out of it, and no credentials are read from the user's files. The operator can
   set a proxy in the environment.
2. The size of every response is limited, and so is the time of every response and every pause.
3. A repeatable request is sent again a few times, with growing pauses, if the service is busy or does not respond.
   Any other request is sent once; if its response is lost, the caller looks for the created object.
4. A service that refuses because of its rate limit did nothing, so every request can be sent again at the time that the
   service specifies, unless that is too late.
5. Writes are paced (`gitops.forge.client`): within the service's limit they are sent immediately, beyond it they wait.
6. An error contains no secret and no control character from a response.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import requests
from requests.exceptions import BaseHTTPError  # type: ignore[attr-defined] # the driver's own, which `raw` raises

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.redact import Redactor, Secret
from gitops.forge.web import WebAnswer, WebRequest

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LIMITED = frozenset({403, 429})
_MOVED = frozenset({301, 302, 303, 307, 308})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN = 300
_PIECE = 65_536
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 60.0
_SECONDARY = "secondary rate limit"


@dataclass(frozen=True, slots=True)
class Service:
    """Address of a service, and settings for talking to it. `headers` can contain secrets.

    `code` is the error code for its failures. `refused` and `limit`, if given, are the codes for a refusal and for a
    response of more than `max_bytes`. `timeout_s` limits the time without data, `longest_s` the time of a complete
    response, and `budget_s` the sum of a request's pauses after failures. `writes_a_minute` is the number of writes
    that the service accepts; None if unlimited. `plain` permits plain HTTP to any host. `moved` says what to check if
    the service redirects.
    """

    base: str
    code: Code
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    refused: Code | None = None
    limit: Code | None = None
    timeout_s: float = 30.0
    longest_s: float = 120.0
    budget_s: float = 180.0
    max_bytes: int = 64 * 1024 * 1024
    attempts: int = 4
    writes_a_minute: int | None = None
    plain: bool = False
    moved: str = ""


def forge_service(base: str, headers: Mapping[str, str | Secret], writes_a_minute: int | None = None) -> Service:
    """Return the service of a forge.

    The REST address of GitHub Enterprise, `…/api/v3`, becomes `…/api`, because GraphQL is below that address.
    """
    address = base.rstrip("/")
    if address.endswith("/api/v3"):
        address = address.removesuffix("/v3")
    return Service(
        address,
        Code.FORGE_UNAVAILABLE,
        headers,
        Code.FORGE_REFUSED,
        Code.FORGE_LIMIT,
        writes_a_minute=writes_a_minute,
        moved="check git config gitops.forgeUrl and the project",
    )


@dataclass(slots=True)
class Traffic:
    """Counters of a client: the number of requests and the bytes of bodies that it sent and received."""

    requests: int = 0
    sent: int = 0
    received: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    """A failed attempt.

    `wait_s` is the pause that the service requests; `untouched` means that the service did nothing.

    `secondary` is a limit without a time; the client waits for it once.
    """

    error: RemoteError
    wait_s: float = 0.0
    untouched: bool = False
    secondary: bool = False


class WebClient:
    """WebSender for one service. Only one thread at a time may use it. `traffic` counts its requests and bytes."""

    def __init__(self, service: Service, pause: Callable[[float], None], clock: Clock) -> None:
        """`pause` waits for a number of seconds.

        Raises GitopsError with the service's code if rule 1 refuses the address.
        """
        parts = urlsplit(service.base)
        plain = parts.scheme == "http" and (service.plain or parts.hostname in _LOOPBACK)
        if (
            not (parts.scheme == "https" or plain)
            or not parts.hostname
            or parts.username
            or parts.query
            or parts.fragment
        ):
            # The part before the host can contain a password, and the part after a question mark a token.
            scheme = f"{parts.scheme}://" if parts.netloc else f"{parts.scheme}:" * bool(parts.scheme)
            shown = f"{scheme}{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]
            detail = f"{shown!r} is not the address of a service: use https://HOST/PATH, without a user or a query"
            fix = "write the address as https://HOST/PATH; on this machine also http://127.0.0.1:PORT"
            raise GitopsError(service.code, detail, fix=fix)
        self._service = service
        self.base = service.base.rstrip("/")
        self._pause = pause
        self._clock = clock
        self._pace = None if service.writes_a_minute is None else Pace(service.writes_a_minute)
        secrets = [value for value in service.headers.values() if isinstance(value, Secret)]
        # A header can contain `Bearer` before the secret, and the service can repeat the secret without it.
        bare = [Secret(secret.name, secret.reveal().rpartition(" ")[2]) for secret in secrets]
        self._redact = Redactor([*secrets, *bare])
        self._session = requests.Session()
        # Prevents the library from reading credentials from `~/.netrc`.
        self._session.auth = lambda request: request
        self.traffic = Traffic()

    def post(self, path: str, body: Any) -> Any:
        """Send a JSON request that can be repeated, and return the JSON response.

        Raises the errors of `send`, also for an empty response.
        """
        answer = self.send(WebRequest("POST", path, body=body))
        if answer.body is None:
            raise self._failed("answers with something that is not JSON")
        return answer.body

    def send(self, request: WebRequest) -> WebAnswer:
        """Send a request and return the response, as the port specifies.

        Raises RemoteError: with the code of the service if it does not respond, is busy for too long, or responds with
        anything but JSON; with the code for refusals for any other status that the request does not expect.
        """
        url = self._url(request)
        growing, waited, warned = _FIRST_PAUSE_S, 0.0, False
        for left in reversed(range(self._service.attempts)):
            if self._pace is not None and request.method != "GET":
                self._sleep(self._pace.wait(self._clock.now()))
            outcome = self._once(request, url)
            if isinstance(outcome, WebAnswer):
                return outcome
            again = outcome.untouched or (request.repeatable and outcome.error.retryable)
            if not again or not left or (warned and outcome.secondary):
                raise outcome.error
            wait = max(growing, outcome.wait_s)
            if waited + wait > self._service.budget_s:
                raise self._failed(
                    f"asks for a pause of {wait:.0f} s, which is longer than this run waits",
                    retryable=True,
                    status=outcome.error.status,
                )
            waited, growing, warned = waited + wait, growing * 4, warned or outcome.secondary
            self._sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    def _sleep(self, seconds: float) -> None:
        while seconds > 0:
            self._pause(min(seconds, _LONGEST_PAUSE_S))
            seconds -= _LONGEST_PAUSE_S

    def wait(self, seconds: float) -> None:
        """Wait before retrying a request for data that the service does not have yet."""
        self._pause(seconds)

    def _url(self, request: WebRequest) -> str:
        path = request.path.lstrip("/")
        # The driver resolves dots, even percent-encoded ones. The result must still be below the base.
        dotted = any(part in (".", "..") for part in unquote(path).replace("\\", "/").split("/"))
        if dotted or not path.isprintable() or any(sign in path for sign in "?#\\ "):
            raise self._failed(f"has no path {path[:80]!r}", code=self._service.refused)
        return f"{self.base}/{path}"

    def _once(self, request: WebRequest, url: str) -> WebAnswer | _Failure:
        """Send a request once."""
        service = self._service
        body = None if request.body is None else json.dumps(request.body, allow_nan=False).encode()
        headers = {"Accept": "application/json", "User-Agent": "cluster-gitops", **request.headers, **service.headers}
        if body is not None:
            headers["Content-Type"] = "application/json"
        plain = {name: value.reveal() if isinstance(value, Secret) else value for name, value in headers.items()}
        self.traffic.requests += 1
        self.traffic.sent += len(body or b"")
        try:
            with self._session.request(
                request.method,
                url,
                params=list(request.query),
                data=body,
                headers=plain,
                timeout=service.timeout_s,
                allow_redirects=False,
                stream=True,
            ) as response:
                data = self._read(response)
        except (requests.RequestException, BaseHTTPError) as error:
            return _Failure(self._failed(f"does not answer: {_reason(error)}", retryable=True))
        if data is None:
            return _Failure(self._failed("takes too long to answer", retryable=True))
        status, quiet = response.status_code, response.status_code in request.quiet
        answered = {name.lower(): value for name, value in response.headers.items()}
        if not quiet and not requests.codes.ok <= status < requests.codes.multiple_choices:
            return self._refusal(request, status, answered, data)
        if len(data) > service.max_bytes:
            what = f"answers with more than {service.max_bytes} bytes"
            return _Failure(self._failed(what, code=service.limit, status=status))
        try:
            return WebAnswer(status, answered, json.loads(data) if data.strip() else None)
        except (ValueError, RecursionError):
            if quiet:
                return WebAnswer(status, answered)
            # A proxy in front of the service answers with a page for people, sometimes with the status of success.
            return _Failure(self._failed("answers with something that is not JSON", retryable=True, status=status))

    def _read(self, response: requests.Response) -> bytes | None:
        """Return the body, cut one byte above the limit; None if it did not arrive in time."""
        until = self._clock.now() + timedelta(seconds=self._service.longest_s)
        # Read one piece at a time as it arrives. Reading a larger piece would block for as long as bytes trickle in.
        read = getattr(response.raw, "read1", response.raw.read)
        data = bytearray()
        while len(data) <= self._service.max_bytes:
            piece = read(_PIECE, decode_content=True)
            if not piece:
                break
            data += piece
            if self._clock.now() > until:
                return None
        self.traffic.received += len(data)
        return bytes(data[: self._service.max_bytes + 1])

    def _refusal(self, request: WebRequest, status: int, headers: Mapping[str, str], data: bytes) -> _Failure:
        """Return the failure for a status, with the pause that the service requests."""
        text = self._redact(data[: _SHOWN * 4].decode("utf-8", "replace"))[:_SHOWN]
        endpoint = f"{request.method} /{request.path.lstrip('/')[:200]}"
        said = f"answers {endpoint} with status {status}: " + "".join(c if c.isprintable() else " " for c in text)
        if status in _MOVED:
            where = self._redact(_address(headers.get("location", "")))
            check = f": {self._service.moved}" if self._service.moved else ""
            said += f"it has moved to {where}, and redirects are not followed{check}"
        after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
        asked = float(after) if after.isdecimal() else None
        # https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#exceeding-the-rate-limit
        limit, secondary = asked, _SECONDARY in text.lower()
        if limit is None and headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
            # Wait one more second, because the time is rounded to seconds.
            limit = max(0.0, float(reset) - self._clock.now().timestamp()) + 1.0
        elif limit is None and secondary:
            limit = _LONGEST_PAUSE_S
        if status in _LIMITED and limit is not None:
            error = self._failed(said, retryable=True, status=status)
            return _Failure(error, limit, untouched=True, secondary=secondary)
        if status in _BUSY:
            return _Failure(self._failed(said, retryable=True, status=status), asked or 0.0)
        return _Failure(self._failed(said, code=self._service.refused, status=status))

    def _failed(
        self, what: str, *, retryable: bool = False, status: int | None = None, code: Code | None = None
    ) -> RemoteError:
        host = urlsplit(self.base).hostname
        return RemoteError(code or self._service.code, f"{host} {what}", retryable=retryable, status=status)


def _reason(error: BaseException) -> str:
    """Return why a service does not respond: the system's message, otherwise the type of the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


def _address(location: str) -> str:
    """Return a `Location` without parts that can be secret: user information, and everything after a question mark."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return "an address that cannot be read"
    return repr(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:_SHOWN])


# Limits the rate of writes to a forge: a burst of as many writes as it accepts per minute, then one more whenever one
# of them is a minute old.
#
# The limits of forges are in `gitops.forge.registry`. Exceeding a limit costs more than waiting: GitHub then refuses
# everything for a while, including the status that decides about a merge. So the program keeps below the limit.

_SPAN = timedelta(minutes=1)


class Pace:
    """Rate limiter over the writes of the last minute. Pure: the time is an argument."""

    def __init__(self, writes_a_minute: int) -> None:
        self._sent: deque[datetime] = deque(maxlen=writes_a_minute)

    def wait(self, now: datetime) -> float:
        """Register the next write and return the seconds until it may be sent."""
        at = now
        if len(self._sent) == self._sent.maxlen:
            at = max(now, self._sent[0] + _SPAN)
        self._sent.append(at)
        return (at - now).total_seconds()
