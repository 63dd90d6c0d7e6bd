"""The requests that are made to one bucket of an S3-compatible service; the only home of the client library.

Credentials come from the environment of the process. No text of the client library reaches a message: it quotes addresses
and answers, which may hold secrets.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError

if TYPE_CHECKING:
    from obstore import GetResult, PutMode
    from obstore.store import RetryConfig, S3Config
    from obstore.store import S3Store as Client

__all__ = ["Bucket", "PutResult", "StoredObject", "lance_options"]

_MAX_OBJECT_BYTES = 1 << 28
_OWNER = "gitops-put"
_PAGE = 1000
_STATUS = re.compile(r"status code: (\d{3})")
_REASON = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")


class PutResult(Enum):
    """The result of one conditional PUT."""

    WRITTEN = auto()
    REFUSED = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was read."""

    data: bytes
    tag: str
    owner: str


class Bucket:
    """The requests to one bucket, with full keys; every error of the client becomes a RemoteError."""

    def __init__(self, name: str) -> None:
        """Make the client; nothing is asked yet. Raises GitopsError `storage_driver_missing`, `storage_root_invalid`."""
        self.name = name
        self.endpoint, allow_http = _service(os.environ)
        self._client = _client(name, self.endpoint, allow_http=allow_http, retries=3)
        self._once = _client(name, self.endpoint, allow_http=allow_http, retries=0)
        self._is_there = False

    def get(self, path: str) -> StoredObject | None:
        """The object, or None if there is none."""
        with self._guard(path):
            answer = self._ask(path)
            if answer is None:
                return None
            if answer.meta["size"] > _MAX_OBJECT_BYTES:
                raise self._failed(path, f"larger than {_MAX_OBJECT_BYTES} bytes", retryable=False)
            data, tag = bytes(answer.bytes()), answer.meta["e_tag"]
        if tag is None:
            raise self._failed(path, "the service gives no entity tag", retryable=False)
        return StoredObject(data, tag, answer.attributes.get(_OWNER, ""))

    def owner(self, path: str) -> str | None:
        """The token of the writer of the object, empty without a token; None if there is no object."""
        with self._guard(path):
            answer = self._ask(path, head=True)
            return None if answer is None else answer.attributes.get(_OWNER, "")

    def _ask(self, path: str, *, head: bool = False) -> GetResult | None:
        """The answer to a request for an object, or only for its head; None if there is no object."""
        import obstore

        try:
            answer = obstore.get(self._client, path, options={"head": True} if head else None)
        except FileNotFoundError:
            # A missing bucket is reported like a missing object: it is listed once, unless it is known to exist.
            if not self._is_there:
                self.inside(path)
            return None
        self._is_there = True
        return answer

    def put(self, path: str, data: bytes) -> str:
        """Write, and return the tag of the object."""
        import obstore

        with self._guard(path):
            answer = obstore.put(self._client, path, data, use_multipart=False)
        self._is_there = True
        return answer["e_tag"] or ""

    def put_if(self, path: str, data: bytes, owner: str, *, matching: str | None) -> PutResult:
        """Write in exactly one request if the object has the tag `matching`, or with None if there is no object.

        Raises RemoteError for a request that certainly had no effect.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        attributes = {_OWNER: owner}
        mode: PutMode = "create" if matching is None else {"e_tag": matching}
        try:
            with self._guard(path):
                try:
                    obstore.put(self._once, path, data, mode=mode, attributes=attributes, use_multipart=False)
                except (AlreadyExistsError, PreconditionError):
                    return PutResult.REFUSED
        except RemoteError as error:
            if not error.retryable:
                raise
            return PutResult.UNKNOWN
        return PutResult.WRITTEN

    def delete(self, paths: list[str]) -> None:
        """Remove objects, whether they are there or not."""
        import obstore

        if paths:
            with self._guard(paths[0]), contextlib.suppress(FileNotFoundError):
                obstore.delete(self._client, paths)

    def inside(self, folder: str) -> list[str]:
        """Keys of the objects directly inside a folder."""
        import obstore

        with self._guard(folder):
            found = [entry["path"] for entry in obstore.list_with_delimiter(self._client, folder)["objects"]]
        self._is_there = True
        return found

    def details(self, folder: str) -> Iterator[tuple[str, int, datetime]]:
        """Key, bytes and time of the last write of the objects below a folder, page by page."""
        import obstore

        with self._guard(folder):
            for page in obstore.list(self._client, folder, chunk_size=_PAGE):
                yield from ((entry["path"], entry["size"], entry["last_modified"]) for entry in page)

    @contextlib.contextmanager
    def _guard(self, path: str) -> Iterator[None]:
        from obstore import exceptions as known

        try:
            yield
        except (known.PermissionDeniedError, known.UnauthenticatedError) as error:
            raise self._failed(path, f"access is denied: {_answered(error)}", retryable=False) from None
        except FileNotFoundError:
            raise self._failed(path, "there is no such bucket", retryable=False) from None
        except (known.InvalidPathError, known.NotSupportedError, NotImplementedError, ValueError) as error:
            raise self._failed(path, f"cannot be asked for ({type(error).__name__})", retryable=False) from None
        except (known.BaseError, OSError) as error:
            raise self._failed(path, _answered(error)) from None

    def _failed(self, path: str, reason: str, *, retryable: bool = True) -> RemoteError:
        return RemoteError(Code.STORAGE_FAILED, f"s3://{self.name}/{path}: {reason}", path=path, retryable=retryable)


def lance_options() -> dict[str, str]:
    """The same service for the Lance driver, which finds credentials as this module does: no option holds any.

    Raises GitopsError `storage_root_invalid`.
    """
    endpoint, allow_http = _service(os.environ)
    options = {"aws_conditional_put": "etag"}
    if endpoint:
        options["aws_endpoint"] = endpoint
    if allow_http:
        options["allow_http"] = "true"
    return options


def _service(environ: Mapping[str, str]) -> tuple[str, bool]:
    """The endpoint of the service, empty for the vendor's own, and whether plain HTTP is allowed.

    Raises GitopsError `storage_root_invalid`.
    """
    # The client library ends the process for a value that cannot be part of a request, such as a secret with a line end.
    unfit = sorted(name for name, value in environ.items() if name.startswith("AWS_") and not value.isprintable())
    if unfit:
        raise _invalid(f"the variable {unfit[0]} holds a line end or another control character")
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    allow_http = environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")
    if not endpoint:
        return "", allow_http
    # It also does so for an address that it cannot parse, and it quotes addresses that hold a password.
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


def _client(bucket: str, endpoint: str, *, allow_http: bool, retries: int) -> Client:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store as Client
    except ImportError:
        raise GitopsError(
            Code.STORAGE_DRIVER_MISSING, "object storage needs the package obstore", path="storage"
        ) from None
    retry: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=30),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1), "base": 2},
    }
    # Bulk deletion is not offered by every service.
    config: S3Config = {"conditional_put": "etag", "disable_bulk_delete": True}
    if endpoint:
        config["endpoint"] = endpoint
    try:
        return Client(
            bucket,
            config=config,
            client_options={"allow_http": allow_http, "connect_timeout": "5s", "timeout": "30s"},
            retry_config=retry,
        )
    except (BaseError, ValueError, TypeError):
        raise _invalid("the client cannot be built; check the variables AWS_* of the environment") from None


def _invalid(detail: str) -> GitopsError:
    return GitopsError(Code.STORAGE_ROOT_INVALID, detail, path="storage")


def _answered(error: Exception) -> str:
    """The part of an answer that can be shown: the status, and the name of the error."""
    text = str(error)
    status, reason = _STATUS.search(text), _REASON.search(text)
    shown = " ".join(found[1] for found in (status, reason) if found is not None)
    return f"the service answers {shown}" if shown else "the service gives no answer"
