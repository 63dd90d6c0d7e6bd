"""Sends requests to one bucket in an S3-compatible service. Only this module uses the client library.

Credentials come from the process environment. Messages never contain text from the client library, because it quotes
addresses and responses, which may contain secrets.

`RetryLimit` limits how long a repeatable request is retried while a service is busy or unavailable.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import datetime
from enum import Enum, auto
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, PutMode
    from obstore.store import RetryConfig, S3Config
    from obstore.store import S3Store as Client

_MAX_OBJECT_BYTES = 1 << 28
_OWNER = "gitops-put"
_PAGE = 1000
_CONNECT_TIMEOUT, _TIMEOUT = "5s", "30s"
_LANCE_RETRIES = "20"
_STATUS = re.compile(r"status code: (\d{3})")
_REASON = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
# Where the client looks for credentials that a machine, a container or a job provides, if the environment has none.
_IDENTITY = re.compile(r"performing \w+ https?://(169\.254\.[0-9.]+|\[fd00:ec2::[0-9a-f]+\]|sts\.[a-z0-9.-]+)[:/]")
_NO_BUCKET = "the bucket does not exist"
_NO_CREDENTIALS = "no credentials are set, and this machine does not have an identity that provides them"
_SET_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION; then run the same command again"
_CORRECT = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to credentials of this service; then run the same command again"
)
PERMIT = (
    "allow the credentials to read, write and list the bucket, and check AWS_REGION; then run the same command again"
)
AWAY = "check that the service runs, and that AWS_ENDPOINT_URL is its address; then run the same command again"
_CREATE = "create the bucket, or correct its name in storage; then run the same command again"

_DENIED = (401, 403)
_UNKNOWN_CREDENTIALS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
# Client error statuses for which a retry can succeed: timeout, conflict, too many requests.
_PASSING = (408, 409, 429)

T = TypeVar("T")


class PutResult(Enum):
    """Whether a conditional PUT wrote the object."""

    WRITTEN = auto()
    REFUSED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class PutAnswer:
    """Response to a conditional PUT: result, the object's tag (empty if unknown), and a failure that hides the rest."""

    result: PutResult
    tag: str = ""
    failure: RemoteError | None = None


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object, with its content and metadata as read."""

    data: bytes
    tag: str
    owner: str


class Bucket:
    """Sends requests with full keys to one bucket. Converts every client error to a RemoteError.

    Repeatable requests are retried while the service is busy or unavailable, within the limit `retry`.
    """

    def __init__(self, name: str, retry: RetryLimit | None = None) -> None:
        """Create the client without sending a request.

        Raises GitopsError `storage_driver_missing`, `storage_root_invalid`.
        """
        self.name = name
        self.retry = RetryLimit.of(os.environ) if retry is None else retry
        self.endpoint, allow_http = _service(os.environ)
        self._client = _client(name, self.endpoint, allow_http=allow_http)
        self._is_there = False

    def get(self, path: str) -> StoredObject | None:
        """Read an object, or None if it does not exist."""

        def ask() -> StoredObject | None:
            answer = self._ask(path)
            if answer is None:
                return None
            if answer.meta["size"] > _MAX_OBJECT_BYTES:
                raise self._failed(path, f"larger than {_MAX_OBJECT_BYTES} bytes", retryable=False)
            data, tag = bytes(answer.bytes()), answer.meta["e_tag"]
            if tag is None:
                raise self._failed(path, "the service sends no entity tag", retryable=False)
            return StoredObject(data, tag, answer.attributes.get(_OWNER, ""))

        return self._repeated(path, ask)

    def owner(self, path: str) -> str | None:
        """Return the object's writer token (empty if it has none), or None if the object does not exist."""

        def ask() -> str | None:
            answer = self._ask(path, {"head": True})
            return None if answer is None else answer.attributes.get(_OWNER, "")

        return self._repeated(path, ask)

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        """Read an object's bytes from `start` up to but not including `end`, or None if it does not exist."""

        def ask() -> bytes | None:
            answer = self._ask(path, {"range": (start, end)})
            return None if answer is None else bytes(answer.bytes())

        return self._repeated(path, ask)

    def _ask(self, path: str, options: GetOptions | None = None) -> GetResult | None:
        """Request an object, or the part that the options name; None if the object does not exist."""
        import obstore

        try:
            answer = obstore.get(self._client, path, options=options)
        except FileNotFoundError as error:
            # The client reports a missing bucket like a missing object. If the response does not say which one it is,
            # the bucket is listed once, unless it is known to exist.
            if _reason(error) == "NoSuchKey":
                self._is_there = True
            if not self._is_there:
                self.inside(path)
            return None
        self._is_there = True
        return answer

    def put(self, path: str, data: bytes) -> None:
        """Write an object unconditionally."""
        import obstore

        self._repeated(path, lambda: obstore.put(self._client, path, data, use_multipart=False))
        self._is_there = True

    def put_if(self, path: str, data: bytes, owner: str, *, matching: str | None) -> PutAnswer:
        """Send exactly one PUT, on condition that the object has the tag `matching`, or does not exist if that is None.

        Raises RemoteError if the request certainly had no effect.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        attributes = {_OWNER: owner}
        mode: PutMode = "create" if matching is None else {"e_tag": matching}
        try:
            with self._guard(path):
                try:
                    answer = obstore.put(
                        self._client, path, data, mode=mode, attributes=attributes, use_multipart=False
                    )
                except (AlreadyExistsError, PreconditionError):
                    return PutAnswer(PutResult.REFUSED)
                except FileNotFoundError:
                    # Services respond like this if the object is gone or if the bucket is missing.
                    if matching is None:
                        raise
                    return PutAnswer(PutResult.REFUSED)
        except RemoteError as error:
            if not error.retryable:
                raise
            return PutAnswer(PutResult.UNKNOWN, failure=error)
        return PutAnswer(PutResult.WRITTEN, answer["e_tag"] or "")

    def delete(self, paths: list[str]) -> None:
        """Remove objects. Ignores absent objects."""
        import obstore

        def ask() -> None:
            try:
                obstore.delete(self._client, paths)
            except FileNotFoundError as error:
                # Most services respond in the same way if the object is absent, but some do not.
                if _reason(error) == "NoSuchBucket":
                    raise

        if paths:
            self._repeated(paths[0], ask)

    def inside(self, folder: str) -> list[str]:
        """Return the keys of the objects directly inside a folder."""
        import obstore

        found = self._repeated(folder, lambda: obstore.list_with_delimiter(self._client, folder)["objects"])
        self._is_there = True
        return [entry["path"] for entry in found]

    def details(self, folder: str) -> Iterator[tuple[str, int, datetime]]:
        """Yield the key, size in bytes and last write time of each object below a folder, page by page."""
        import obstore

        last: str | None = None
        failure: RemoteError | None = None
        for _ in self.retry.attempts(self._place(folder)):
            try:
                with self._guard(folder):
                    # After an interruption, continue the listing after the last key received.
                    for page in obstore.list(self._client, folder, offset=last, chunk_size=_PAGE):
                        for entry in page:
                            yield entry["path"], entry["size"], entry["last_modified"]
                            last = entry["path"]
            except RemoteError as error:
                if not error.retryable:
                    raise
                failure = error
            else:
                return
        raise failure or self._failed(folder, "the service does not respond")

    def _repeated(self, path: str, ask: Callable[[], T]) -> T:
        """Send a repeatable request, with retries, and return the response."""
        failure: RemoteError | None = None
        for _ in self.retry.attempts(self._place(path)):
            try:
                with self._guard(path):
                    return ask()
            except RemoteError as error:
                if not error.retryable:
                    raise
                failure = error
        raise failure or self._failed(path, "the service does not respond")

    @contextlib.contextmanager
    def _guard(self, path: str) -> Iterator[None]:
        from obstore import exceptions as known

        try:
            yield
        except (known.PermissionDeniedError, known.UnauthenticatedError) as error:
            raise self._denied(path, error) from None
        except FileNotFoundError:
            raise self._failed(path, _NO_BUCKET, retryable=False, fix=_CREATE) from None
        except (known.InvalidPathError, known.NotSupportedError, NotImplementedError, ValueError) as error:
            raise self._failed(path, f"cannot be requested ({type(error).__name__})", retryable=False) from None
        except (known.BaseError, OSError) as error:
            status = _status(error)
            if _reason(error) == "NoSuchBucket":
                raise self._failed(path, _NO_BUCKET, retryable=False, status=status, fix=_CREATE) from None
            if status in _DENIED or _IDENTITY.search(str(error)):
                raise self._denied(path, error) from None
            final = status is not None and status // 100 == 4 and status not in _PASSING  # noqa: PLR2004 - 4xx
            fix = None if final else AWAY
            raise self._failed(path, _answered(error), retryable=not final, status=status, fix=fix) from None

    def _denied(self, path: str, error: Exception) -> RemoteError:
        if _IDENTITY.search(str(error)):
            detail = f"s3://{self.name}: {_NO_CREDENTIALS}"
            return RemoteError(Code.STORAGE_FAILED, detail, path=path, fix=_SET_CREDENTIALS)
        denied, status = f"access is denied: {_answered(error)}", _status(error)
        fix = _CORRECT if _reason(error) in _UNKNOWN_CREDENTIALS else PERMIT
        return self._failed(path, denied, retryable=False, status=status, fix=fix)

    def _failed(
        self, path: str, reason: str, *, retryable: bool = True, status: int | None = None, fix: str | None = None
    ) -> RemoteError:
        detail = f"{self._place(path)}: {reason}"
        return RemoteError(Code.STORAGE_FAILED, detail, path=path, retryable=retryable, status=status, fix=fix)

    def _place(self, path: str) -> str:
        return f"s3://{self.name}/{path}"


def lance_options() -> dict[str, str]:
    """Return options with which the Lance driver uses the same service. It finds credentials like this module does.

    The options contain no credentials.

    Raises GitopsError `storage_root_invalid`.
    """
    endpoint, allow_http = _service(os.environ)
    options = {
        "aws_conditional_put": "etag",
        "aws_disable_bulk_delete": "true",
        "connect_timeout": _CONNECT_TIMEOUT,
        "timeout": _TIMEOUT,
        "client_max_retries": _LANCE_RETRIES,
        "client_retry_timeout": f"{RetryLimit.of(os.environ).seconds:.0f}",
    }
    if endpoint:
        options["aws_endpoint"] = endpoint
    if allow_http:
        options["allow_http"] = "true"
    return options


def _service(environ: Mapping[str, str]) -> tuple[str, bool]:
    """Return the service endpoint (empty for the vendor's default), and whether plain HTTP is allowed.

    Raises GitopsError `storage_root_invalid`.
    """
    # The client library ends the process if a value cannot be part of a request, such as a secret with a line end.
    unfit = sorted(name for name, value in environ.items() if name.startswith("AWS_") and not value.isprintable())
    if unfit:
        raise _invalid(f"the variable {unfit[0]} contains a line end or another control character")
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    allow_http = environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    if not endpoint:
        return "", allow_http
    # It also ends the process for an address that it cannot parse, and it quotes addresses with passwords.
    try:
        parts = urlsplit(endpoint)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or "@" in endpoint or re.fullmatch(r"[!-~]+", endpoint) is None:
        raise _invalid("AWS_ENDPOINT_URL is not an address of the form https://host:port")
    if endpoint.lower().startswith("http:") and not allow_http:
        raise _invalid("the endpoint is plain HTTP; set AWS_ALLOW_HTTP=true to allow that")
    return endpoint, allow_http


def _client(bucket: str, endpoint: str, *, allow_http: bool) -> Client:
    try:
        from obstore.exceptions import BaseError
    except ImportError:
        raise GitopsError(
            Code.STORAGE_DRIVER_MISSING, "object storage needs the package obstore", path="storage"
        ) from None
    settings = frozenset((key, value) for key, value in os.environ.items() if key.startswith("AWS_"))
    try:
        return _shared_client(bucket, endpoint, allow_http, settings)
    except (BaseError, ValueError, TypeError):
        raise _invalid("the client cannot be built; check the variables AWS_* of the environment") from None


# A command opens several stores in one bucket. They share one client's connections if their settings are equal.
@cache
def _shared_client(bucket: str, endpoint: str, allow_http: bool, settings: frozenset[tuple[str, str]]) -> Client:  # noqa: ARG001
    from obstore.store import S3Store as Client

    # This program, not the client, does and reports retries; see `Bucket` and `S3Store`.
    retry: RetryConfig = {"max_retries": 0}
    # Not every service supports bulk deletion.
    config: S3Config = {"conditional_put": "etag", "disable_bulk_delete": True}
    if endpoint:
        config["endpoint"] = endpoint
    return Client(
        bucket,
        config=config,
        client_options={"allow_http": allow_http, "connect_timeout": _CONNECT_TIMEOUT, "timeout": _TIMEOUT},
        retry_config=retry,
    )


def _invalid(detail: str) -> GitopsError:
    return GitopsError(Code.STORAGE_ROOT_INVALID, detail, path="storage")


def _status(error: Exception) -> int | None:
    """Return the HTTP status in an error, or None."""
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def _reason(error: Exception) -> str:
    """Return the service's error name, or an empty text."""
    found = _REASON.search(str(error))
    return "" if found is None else found[1]


def _answered(error: Exception) -> str:
    """Return the parts of an error response that are safe to show: status and error name."""
    status, reason = _status(error), _reason(error)
    shown = " ".join(str(part) for part in (status, reason) if part)
    return f"the service answers {shown}" if shown else "the service does not respond"


_VARIABLE = "GITOPS_STORAGE_RETRY"
_DEFAULT_S = 30.0
_LONGEST_S = 600.0
_FIRST_PAUSE_S = 0.1
_PAUSE_S = 5.0
_SAID_FROM_S = 1.0
_LAST_S = 0.001


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


@dataclass(slots=True)
class RetryLimit:
    """A limit on retries: attempts with growing pauses until `seconds` have passed since the first attempt.

    Before the first long pause, a line reports the reason. The other fields provide the clock, the pauses and the
    line's output.
    """

    seconds: float = _DEFAULT_S
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = _say
    _said: bool = field(default=False, init=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> RetryLimit:
        """Read the limit from GITOPS_STORAGE_RETRY (seconds). Raises GitopsError `storage_root_invalid`."""
        text = environ.get(_VARIABLE, "")
        try:
            seconds = float(text) if text else _DEFAULT_S
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= _LONGEST_S:
            detail = f"{_VARIABLE} is not a number of seconds from 0 to {_LONGEST_S:.0f}"
            raise GitopsError(Code.STORAGE_ROOT_INVALID, detail, path="storage")
        return cls(seconds)

    def attempts(self, place: str) -> Iterator[int]:
        """Yield attempt numbers from 0, with pauses, until the limit is reached. The caller exits the loop on success.

        The last attempt starts when time is up.
        """
        end, pause = self.now() + self.seconds, _FIRST_PAUSE_S
        for attempt in count():
            yield attempt
            left = end - self.now()
            if left <= _LAST_S:
                return
            if pause > _SAID_FROM_S and not self._said:
                self._said = True
                detail = "the service is busy or does not respond; trying again"
                self.say(f"NOTE {place}: {detail} for up to {self.seconds:.0f} s")
            self.sleep(min(pause, left))
            pause = min(2 * pause, _PAUSE_S)
