"""A whole server: the queue, the listener, the workers, and the order in which they start and stop.

1. Open the queue: an event that was being handled when a process died waits again. 2. Take connections. 3. Only then start the
workers. 4. To stop, take no more connections. 5. Stop the workers, and release the events that do not end in time. 6. Close the
queue last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import timedelta

from gitops.core.dataclass import dataclass
from gitops.server.api import ClusterApi
from gitops.server.deliveries import DeliveryReceiver, WebhookFormat
from gitops.server.http import ListenAddress, Listener, api_routes, make_app
from gitops.server.queue import EventQueue
from gitops.server.shared import ServerContext
from gitops.server.workers import EventHandler, RetryPolicy, WorkerPool

# What is left of the time of a connection when a stream ends in good order.
_LAST_S = 5.0


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings of a server. `formats` are by kind of forge, `repositories` the names of the served ones in the queue.

    `every` is the time between two timer events, `tick_every` that between two ticks of strategies, None for none; `grace` is the
    time in which running events may end.
    """

    address: ListenAddress
    formats: Mapping[str, WebhookFormat]
    repositories: tuple[str, ...]
    workers: int = 1
    every: timedelta | None = None
    tick_every: timedelta | None = None
    grace: timedelta = timedelta(seconds=60)
    max_body_bytes: int = 5 * 1024 * 1024
    metrics: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class Server:
    """See the module."""

    def __init__(
        self,
        queue: EventQueue,
        settings: ServerSettings,
        handle: EventHandler,
        context: ServerContext,
        ready: Callable[[ListenAddress], None],
        api: ClusterApi | None = None,
    ) -> None:
        """Nothing is opened yet. `ready` is called with the address once connections are taken.

        Without an `api` programs cannot ask for anything.
        """
        self._queue, self._settings, self._context, self._ready = queue, settings, context, ready
        self._workers = WorkerPool(queue, handle, context, settings.retry)
        longest = settings.address.connection_s - _LAST_S

        def stopping() -> bool:
            return self._listener.should_exit

        app = make_app(
            DeliveryReceiver(queue, settings.formats, settings.repositories, context),
            queue,
            context,
            healthy=lambda: self._workers.alive,
            max_body_bytes=settings.max_body_bytes,
            metrics=settings.metrics,
            more=() if api is None else api_routes(api, context, longest_s=longest, stopping=stopping),
        )
        self._listener = Listener(app, settings.address, self._start)

    def run(self) -> None:
        """Serve until `stop`. Raises GitopsError `queue_unusable`, `queue_in_use`, `listen_failed`."""
        self._queue.open_owned()
        try:
            self._listener.run()
        finally:
            self._context.log("stopping: takes no more events, and finishes what it has begun")
            self._workers.stop(self._settings.grace)
            self._queue.close()

    def stop(self) -> None:
        """End `run`; may be called from any thread, and from a signal handler."""
        self._listener.stop()

    def _start(self, address: ListenAddress) -> None:
        settings = self._settings
        self._workers.start(settings.workers, settings.repositories, settings.every, settings.tick_every)
        self._ready(address)
