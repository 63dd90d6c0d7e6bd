"""An S3 service on loopback: moto behind werkzeug's server, with a log of requests, faults, and a way to forget conditions.

Writes are handled one at a time, so that a condition and what depends on it are one step, as a real service promises;
reads run beside them. `tests/conftest.py` starts one server for each worker process (`s3_server`) and gives each test a
bucket of its own and the environment (`s3`).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, Self

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

REGION = "us-east-1"
_SAFE = ("GET", "HEAD")
_CONDITIONS = {"If-Match": "HTTP_IF_MATCH", "If-None-Match": "HTTP_IF_NONE_MATCH"}


class Drop(Enum):
    """A fault after the fact: the service has done its work, the client never hears of it."""

    REPLY = "reply"


@dataclass(slots=True)
class Asked:
    """One request: its method, its path with the bucket, its query text, the condition that it carried, and the answer.

    `status` is that of the service, 0 until it has acted; with a fault the client saw another one, or none.
    """

    method: str
    path: str
    query: str
    condition: str | None
    status: int = 0

    @property
    def kind(self) -> str:
        """What is paid for: GET, HEAD, PUT, DELETE, LIST or POST."""
        return "LIST" if self.method == "GET" and "list-type=2" in self.query else self.method


Fault = Callable[[Asked], "int | Drop | None"]
"""What to do with a request: answer with this status and do nothing, do it and drop the reply, or None to serve it."""


def _no_fault(asked: Asked) -> int | Drop | None:
    return None


# All services of a process keep their buckets in one place.
_NUMBERS = count(1)


@dataclass
class S3Server:
    """Serves buckets in memory; use as a context manager.

    `log` holds every request since the last `forget`. `ignores` names conditional headers (`If-Match`, `If-None-Match`)
    that the service accepts in a write and does not act on. `overlap` makes a service that looks first and writes later: so many
    conditional writes of one object look at the same moment, and all that saw what they wanted write; `careless` names the
    conditions that it treats so.
    """

    fault: Fault = _no_fault
    ignores: frozenset[str] = frozenset()
    overlap: int = 1
    careless: frozenset[str] = frozenset(_CONDITIONS)
    log: list[Asked] = field(default_factory=list)
    _writing: Any = field(default_factory=threading.Lock)
    _gates: dict[str, threading.Barrier] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._moto = create_backend_app("s3")
        self._http = make_server("127.0.0.1", 0, self._serve, threaded=True, request_handler=_Quiet)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Address of the service."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs in its environment to use the service."""
        return {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "test-secret-4711",
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "GITOPS_STORAGE_RETRY": "0.7",
        }

    def forget(self) -> None:
        """No fault, an empty log, and conditions are kept again."""
        self.fault, self.ignores, self.overlap, self.careless = _no_fault, frozenset(), 1, frozenset(_CONDITIONS)
        self._gates.clear()
        self.log.clear()

    def bucket(self) -> str:
        """The name of a new bucket."""
        name = f"bucket-{next(_NUMBERS)}"
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(name, REGION)
        return name

    def copy(self, bucket: str) -> str:
        """The name of a new bucket with the same objects."""
        name = self.bucket()
        held = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for key in self.keys(bucket):
            held.put_object(name, key, held.get_object(bucket, key).value)
        return name

    def restore(self, bucket: str, copy: str) -> None:
        """Make a bucket what its copy is, as someone does who restores a backup."""
        held = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for key in self.keys(bucket):
            held.delete_object(bucket, key)
        for key in self.keys(copy):
            held.put_object(bucket, key, held.get_object(copy, key).value)

    def keys(self, bucket: str) -> tuple[str, ...]:
        """The keys in a bucket, in order."""
        return tuple(sorted(s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys))

    def requests(self) -> dict[str, int]:
        """How many requests of each kind are in the log."""
        return dict(sorted(Counter(asked.kind for asked in self.log).items()))

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        condition = next((environ[name] for name in _CONDITIONS.values() if name in environ), None)
        asked = Asked(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"], condition)
        self.log.append(asked)
        fault = self.fault(asked)
        if isinstance(fault, int):
            # What was sent is read, or the client may see a broken connection instead of the answer.
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(f"{fault} Fault", [("Content-Type", "application/xml")])
            # Real services quote the request in some of their errors, with the name of the key that signed it.
            said = environ.get("HTTP_AUTHORIZATION", "")
            return [f"<Error><Code>Fault</Code><Message>{said}</Message></Error>".encode()]

        def answering(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            asked.status = int(status[:3])
            return start_response(status, headers, *rest)

        answer: Iterable[bytes]
        if asked.method in _SAFE:
            answer = self._moto(environ, answering)
        else:
            for name in self.ignores:
                environ.pop(_CONDITIONS[name], None)
            condition_name = "If-None-Match" if condition == "*" else "If-Match"
            if self.overlap > 1 and condition is not None and condition_name in self.careless and self._holds(asked):
                # Everybody has looked before the first one writes.
                self._gate(asked).wait(timeout=10)
                for name in _CONDITIONS.values():
                    environ.pop(name, None)
            with self._writing:
                answer = list(self._moto(environ, answering))
        if fault is Drop.REPLY:
            raise ConnectionError("the reply is dropped")
        return answer

    def _holds(self, asked: Asked) -> bool:
        """Whether the condition of a write holds at this moment."""
        bucket, _, key = asked.path.removeprefix("/").partition("/")
        found = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys.get(key)
        return found is None if asked.condition == "*" else found is not None and found.etag == asked.condition

    def _gate(self, asked: Asked) -> threading.Barrier:
        with self._writing:
            return self._gates.setdefault(f"{asked.path} {asked.condition}", threading.Barrier(self.overlap))


class _Quiet(MotoRequestHandler):
    """Logs nothing: the log is `S3Server.log`. A dropped reply closes the connection, or the client waits for it."""

    def connection_dropped(self, error: BaseException, environ: dict[str, Any] | None = None) -> None:
        """Close it."""
        self.close_connection = True

    def log(self, type: str, message: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket of one test: its root address, and the environment that reaches it (also for child processes)."""

    server: S3Server
    bucket: str
    prefix: str = "team/brain"

    @property
    def root(self) -> str:
        """A storage root: `s3://bucket/prefix`."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def environ(self) -> Mapping[str, str]:
        """See `S3Server.environ`."""
        return self.server.environ

    def keys(self) -> tuple[str, ...]:
        """The keys below the root, relative to it, in order."""
        start = f"{self.prefix}/"
        return tuple(key.removeprefix(start) for key in self.server.keys(self.bucket) if key.startswith(start))


def conditional(asked: Asked) -> bool:
    return asked.method == "PUT" and asked.condition is not None


def nth(wanted: Callable[[Asked], bool], fault: int | Drop, *numbers: int) -> Fault:
    """A fault for the requests of a kind with these numbers, which count from 1."""
    seen: Iterator[int] = iter(range(1, 1000))
    return lambda asked: fault if wanted(asked) and next(seen) in numbers else None


def plant(s3: S3Place, key: str, data: bytes) -> None:
    """Put an object as another program would."""
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(s3.bucket, f"{s3.prefix}/{key}", data)
