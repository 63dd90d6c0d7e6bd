"""A server of webhooks for tests: in a thread of this process, on loopback, with a log to wait on."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from gitops.cli.served import webhook_format
from gitops.core.clock import Clock
from gitops.core.redact import Redactor, Secret
from gitops.forge.events import Event
from gitops.repository.report_folder import ServedReport
from gitops.repository.results import LogLine
from gitops.repository.wiring.system import SystemClock
from gitops.server.api import ApiToken, ClusterApi, ServedCluster
from gitops.server.deliveries import repository_key
from gitops.server.http import ListenAddress
from gitops.server.queue import EventQueue, ListedEvent
from gitops.server.service import RetryPolicy, Server, ServerSettings
from gitops.server.shared import ServerContext

SECRET = "a-secret-that-nobody-can-guess"
REPOSITORY = repository_key("github", "octo/brain")
_LONGEST_S = 60.0


class Log:
    """Lines, and a way to wait for one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def write(self, text: str) -> None:
        with self._changed:
            self.lines.append(text)
            self._changed.notify_all()

    def until(self, text: str, times: int = 1) -> list[str]:
        """Wait until so many lines have this in them; returns those."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= times, _LONGEST_S):
                raise AssertionError(f"{text!r} was not said {times} time(s):\n" + "\n".join(self.lines))
            return found()

    def when(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, which is looked at after each line."""
        with self._changed:
            assert self._changed.wait_for(holds, _LONGEST_S), "\n".join(self.lines)


class _Lines(logging.Handler):
    """Hands the text of each record on, with the level of those that are not only information."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.write = write

    def emit(self, record: logging.LogRecord) -> None:
        level = "" if record.levelno == logging.INFO else f"{record.levelname} "
        self.write(level + record.getMessage())


def logger(write: Callable[[str], None]) -> logging.Logger:
    """A log of all levels whose lines go to a function."""
    made = logging.Logger("tests", logging.DEBUG)  # noqa: LOG001 - one for each server of a test
    made.addHandler(_Lines(write))
    return made


@dataclass
class Answer:
    """What an HTTP server answered."""

    status: int
    text: str
    headers: Mapping[str, str]


@dataclass
class Serving:
    """A running server; see `serving`."""

    queue: EventQueue
    where: ListenAddress
    log: Log
    context: ServerContext

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> Answer:
        connection = http.client.HTTPConnection(self.where.host, self.where.port, timeout=_LONGEST_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(), {k.lower(): v for k, v in answer.getheaders()})
        finally:
            connection.close()

    def deliver(self, name: str, form: Mapping[str, Any], event_id: str = "d-1", **more: str) -> Answer:
        """A webhook of GitHub."""
        headers, body = signed(name, form, event_id)
        return self.request("POST", "/hooks/github", headers | {k.replace("_", "-"): v for k, v in more.items()}, body)

    def left(self) -> tuple[ListedEvent, ...]:
        return self.queue.listed()


@dataclass
class Setting:
    """How a test wants its server."""

    folder: Path
    handle: Callable[[str, Event], Iterator[LogLine]]
    clock: Clock = field(default_factory=SystemClock)
    most: int = 10_000
    api: tuple[Sequence[ApiToken], Callable[[str, str | None], ServedCluster]] | None = None
    report: tuple[ServedReport, Sequence[Secret]] | None = None
    settings: ServerSettings = field(
        default_factory=lambda: ServerSettings(
            ListenAddress("127.0.0.1", 0),
            {kind: webhook_format(kind, (Secret("S", SECRET),)) for kind in ("github", "gitlab", "gitea")},
            (REPOSITORY,),
            retry=RetryPolicy(first=timedelta(0)),
            grace=timedelta(seconds=30),
        )
    )

    def but(self, **changes: Any) -> Setting:
        return replace(self, settings=replace(self.settings, **changes))


@contextmanager
def serving(setting: Setting) -> Iterator[Serving]:
    """Serve while the block runs. What the server raises is raised here."""
    log, begun = Log(), threading.Event()
    context = ServerContext(setting.clock, logger(log.write), Redactor([Secret("S", SECRET)]))
    queue = EventQueue(setting.folder / "queue.db", setting.clock, most=setting.most)
    found: list[ListenAddress] = []
    failures: list[Exception] = []

    def ready(address: ListenAddress) -> None:
        found.append(address)
        begun.set()

    def run() -> None:
        try:
            server.run()
        except Exception as error:  # noqa: BLE001 - raised where the block ends
            failures.append(error)
        begun.set()

    api = None if setting.api is None else ClusterApi(*setting.api, queue, context)
    server = Server(queue, setting.settings, setting.handle, context, ready, api, setting.report)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(_LONGEST_S)
        if found:
            yield Serving(queue, found[0], log, context)
        else:
            thread.join()
    finally:
        server.stop()
        thread.join(_LONGEST_S)
    if failures:
        raise failures[0]


def signed(name: str, form: Mapping[str, Any], event_id: str, secret: str = SECRET) -> tuple[dict[str, str], bytes]:
    """Headers and body of a webhook of GitHub."""
    body = json.dumps(form).encode()
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-github-delivery": event_id,
        "x-github-event": name,
        "x-hub-signature-256": f"sha256={digest}",
    }
    return headers, body


def pushed(new: str = "b" * 40, repository: str = "octo/brain", **more: Any) -> dict[str, Any]:
    """What GitHub sends of a push, as far as it is read."""
    return {
        "ref": "refs/heads/main",
        "before": "a" * 40,
        "after": new,
        "deleted": False,
        "repository": {"full_name": repository},
        "sender": {"id": 7, "login": "alice", "type": "User"},
        **more,
    }


def moved(number: int, head: str, repository: str = "octo/brain") -> dict[str, Any]:
    """What GitHub sends of a request whose head moved, as far as it is read."""
    return {
        "action": "synchronize",
        "number": number,
        "pull_request": {"number": number, "merged": False, "head": {"sha": head}},
        "repository": {"full_name": repository},
    }
