"""The same bot as a server: what happens on a hub is sent to it as webhooks, as GitHub does it.

GitHub delivers everything, also what a job's own token caused and what says `[skip ci]`: these keep workflows from starting, not
webhooks from being sent. `Mode` is what a story needs of a bot, however it is run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from gitops.cli.served import ServedRepository
from gitops.core.cancel import Cancellation
from gitops.core.faults import NoFaults
from gitops.forge.events import Event, TimerEvent
from gitops.repository.results import LogLine
from gitops.repository.wiring.system import SystemClock
from gitops.server.queue import EventQueue, EventState
from tests.support.forges.github_forms import FULL_NAME, Delivery, delivery
from tests.support.forges.hub import Hub, bot_environment
from tests.support.forges.records import Happening
from tests.support.forges.runner import Runner
from tests.support.paused import Pause
from tests.support.serve_process import ServeProcess
from tests.support.serving import SECRET, Serving, Setting, serving


class Mode(Protocol):
    """A bot, as a story sees it."""

    hub: Hub

    def settle(self) -> None:
        """Let the bot do all that follows from what has happened."""
        ...

    def again(self) -> None:
        """Bring everything that has happened to the bot once more, and let it do what it does then."""
        ...

    def lose(self) -> None:
        """Nothing of what has happened since comes to the bot."""
        ...

    def tick(self) -> None:
        """It is time to sweep."""
        ...


class InJobs:
    """CI mode: a job for each event, in a fresh clone."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.hub, self._runner = hub, Runner.after(hub, folder / "jobs")

    def settle(self) -> None:
        self._runner.settle()

    def again(self) -> None:
        for run in list(self._runner.runs):
            self._runner.run(run.job)

    def lose(self) -> None:
        self._runner.cancel()

    def tick(self) -> None:
        self._runner.tick("sweep")


class AsServer:
    """Server mode: one running server, whose clone lasts."""

    def __init__(self, hub: Hub, running: Serving) -> None:
        self.hub, self.server = hub, running
        self._seen = len(hub.world.happenings)
        self._sent: list[Happening] = []

    def settle(self) -> None:
        while new := self.hub.world.happenings[self._seen :]:
            self._seen += len(new)
            self._sent += new
            sent = [event for event in new for _ in range(self.hub.world.habits.deliveries)]
            assert [status for event in sent if (status := self.send(event)) not in (200, 202)] == []
            self._wait()

    def again(self) -> None:
        for event in self._sent:
            assert self.send(event) == 200
        self._wait()

    def lose(self) -> None:
        self._seen = len(self.hub.world.happenings)

    def tick(self) -> None:
        self.server.queue.enqueue(f"github:{FULL_NAME}", TimerEvent())
        self._wait()

    def send(self, event: Happening) -> int:
        """Deliver an event; returns the status of the answer."""
        sent = webhook(event)
        return self.server.request("POST", "/hooks/github", sent.headers, sent.body).status

    def _wait(self) -> None:
        """Until the server has nothing to do. What it could not do fails the test."""
        queue = self.server.queue
        while True:
            seen = queue.changes
            counts = queue.counts()
            if not counts[EventState.WAITING] + counts[EventState.RUNNING]:
                assert queue.listed() == ()
                return
            queue.wait(seen, timedelta(seconds=60))


def webhook(event: Happening) -> Delivery:
    """An event as GitHub delivers it."""
    return delivery(event.name, event.id, event.payload, SECRET.encode())


def clone_for_server(hub: Hub, place: Path) -> Path:
    """A bare clone, as the operator of a server makes one."""
    loop, url = hub.loop, hub.server.git_url
    with_login = url.replace("//", f"//bot:{hub.robot}@", 1)
    loop.program("bot", "git", "clone", "-q", "--bare", with_login, str(place), at=place.parent)
    settings = {"remote.origin.url": url, "gitops.root": str(loop.folder / "data")}
    # An address of GitHub's own kind is in the environment.
    settings |= {} if hub.told else {"gitops.forgeUrl": hub.server.base}
    for name, value in settings.items():
        loop.program("bot", "git", "config", name, value, at=place)
    return place


def server_environment_of(hub: Hub) -> dict[str, str]:
    """The environment of a server: no job of anything."""
    return bot_environment(hub.loop.home("bot")) | hub.told | {"GITOPS_TOKEN": hub.robot}


@contextmanager
def as_server(hub: Hub, folder: Path) -> Iterator[AsServer]:
    """A server in this process, with the handlers and the wiring of `gitops bot serve`."""
    folder.mkdir(parents=True)
    clone = clone_for_server(hub, folder / "clone.git")
    environ = server_environment_of(hub)
    # What the server would wait for the forge is noted, not waited.
    waited: list[float] = []
    served = ServedRepository(str(clone), "origin", "github", environ, waited.append, Cancellation(), NoFaults())
    assert served.name == f"github:{FULL_NAME}"

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        assert repository == served.name
        return served.handle(event, lambda later: running.queue.enqueue_all(repository, later))

    with serving(Setting(folder, handle)) as running:
        yield AsServer(hub, running)


@contextmanager
def in_jobs(hub: Hub, folder: Path) -> Iterator[InJobs]:
    """Jobs, one for each event."""
    yield InJobs(hub, folder)


# A process


class ServeHost:
    """The machine of a server: a clone, a queue, an environment."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        folder.mkdir()
        self.hub, self.queue = hub, folder / "queue.db"
        self.clone = clone_for_server(hub, folder / "clone.git")
        self.environ = server_environment_of(hub) | {"GITOPS_WEBHOOK_SECRET": SECRET}
        self.arguments = ["--repo", str(self.clone), "--queue", str(self.queue), "--listen", "127.0.0.1:0"]
        self.arguments += ["--forge", hub.forge]

    def serve(self, *more: str, point: str = "", pause: Pause | None = None) -> ServeProcess:
        return ServeProcess([*self.arguments, *more], self.environ, point, pause)

    def idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        with closing(EventQueue(self.queue, SystemClock())) as queue:
            queue.open_shared()
            counts = queue.counts()
        return not counts[EventState.WAITING] + counts[EventState.RUNNING]

    def listed(self) -> list[dict[str, object]]:
        """What the queue holds, as its operator sees it."""
        done = self.hub.loop.gitops("bot", "bot", "queue", "--queue", str(self.queue), "--json")
        events: list[dict[str, object]] = json.loads(done.text)["events"]
        return events
