"""JSON over HTTP with one service.

Rules of this module:

1. The address is fixed when the client is made: HTTPS, or plain HTTP on this host alone. Redirects are not followed, and
   no credentials are taken from files of the user.
2. Every answer is bounded in bytes, every wait in seconds.
3. A request that may be repeated is repeated when the service is busy or does not answer, a few times, with growing pauses.
4. No secret appears in an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests

from gitops.core.errors import GitopsError, RemoteError
from gitops.core.redact import Redactor, Secret

__all__ = ["Service", "WebClient"]

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SHOWN = 300
_LONGEST_PAUSE_S = 30.0


@dataclass(frozen=True, slots=True)
class Service:
    """Where a service is and how to talk to it. `headers` may hold secrets; `code` is that of its failures."""

    base: str
    code: str
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    timeout_s: float = 30.0
    max_bytes: int = 64 * 1024 * 1024
    attempts: int = 4


class WebClient:
    """Talks to one service; safe for one thread at a time."""

    def __init__(self, service: Service, pause: Callable[[float], None]) -> None:
        """`pause` waits for a number of seconds. Raises GitopsError (the service's code) for an address that rule 1 refuses."""
        parts = urlsplit(service.base)
        local = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if (
            not (parts.scheme == "https" or local)
            or not parts.hostname
            or parts.username
            or parts.query
            or parts.fragment
        ):
            # What stands before the host may be a password, and what follows a question mark a token.
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"[:200]
            detail = f"{shown!r} is no address of a service: use https://HOST/PATH, without a user or a query"
            raise GitopsError(service.code, detail)
        self._service = service
        self._pause = pause
        secrets = [value for value in service.headers.values() if isinstance(value, Secret)]
        self._redact = Redactor(secrets)
        self._session = requests.Session()
        self._session.auth = _as_it_is

    def post(self, path: str, body: Any) -> Any:
        """The JSON answer to a JSON request, which must be one that may be repeated.

        Raises RemoteError with the service's code: when it does not answer, refuses, or answers with anything but JSON.
        """
        pause = 0.5
        for left in reversed(range(self._service.attempts)):
            answer, failure, after = self._once(path, body)
            if failure is None:
                return answer
            if not failure.retryable or not left:
                raise failure
            self._pause(min(max(pause, after), _LONGEST_PAUSE_S))
            pause *= 4
        raise AssertionError("the last attempt returns or raises")

    def _once(self, path: str, body: Any) -> tuple[Any, RemoteError | None, float]:
        """The answer, or what failed and for how many seconds the service asks to wait."""
        service = self._service
        headers = {
            name: value.reveal() if isinstance(value, Secret) else value for name, value in service.headers.items()
        }
        try:
            with self._session.post(
                f"{service.base.rstrip('/')}/{path}",
                data=json.dumps(body, allow_nan=False).encode(),
                headers={"Content-Type": "application/json", "Accept": "application/json", **headers},
                timeout=service.timeout_s,
                allow_redirects=False,
                stream=True,
            ) as response:
                data = self._read(response)
        except requests.RequestException as error:
            return None, self._failed(f"does not answer: {type(error).__name__}", retryable=True), 0.0
        status, after = response.status_code, response.headers.get("Retry-After", "")
        if status != requests.codes.ok:
            text = self._redact(data[:_SHOWN].decode("utf-8", "replace"))
            failure = self._failed(f"answers with status {status}: {text}", retryable=status in _BUSY)
            return None, failure, float(after) if after.isdecimal() else 0.0
        if len(data) > service.max_bytes:
            return None, self._failed(f"answers with more than {service.max_bytes} bytes"), 0.0
        try:
            return json.loads(data), None, 0.0
        except (ValueError, RecursionError):
            return None, self._failed("answers with something that is not JSON"), 0.0

    def _read(self, response: requests.Response) -> bytes:
        """The body, at most one byte beyond the bound."""
        data = bytearray()
        for chunk in response.iter_content(65_536):
            data += chunk
            if len(data) > self._service.max_bytes:
                break
        return bytes(data[: self._service.max_bytes + 1])

    def _failed(self, what: str, *, retryable: bool = False) -> RemoteError:
        host = urlsplit(self._service.base).hostname
        return RemoteError(self._service.code, f"{host} {what}", retryable=retryable)


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keeps the library from looking for credentials in `~/.netrc`."""
    return request
