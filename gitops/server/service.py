"""A whole server: the queue, whoever takes in, whoever works, and the order in which they begin and end.

1. The queue is owned first: what was left running by a process that died waits again. 2. Connections are taken. 3. Only then the
crew begins to work. 4. To stop, no further connection is taken, 5. the crew ends, and gives back what does not end in time.
6. The queue is closed last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from gitops.server.app import Front, make_app
from gitops.server.deliveries import Hook, Intake
from gitops.server.listen import Listener, Where
from gitops.server.queue import Queue
from gitops.server.shared import Context
from gitops.server.workers import Crew, Handle, Patience

__all__ = ["Arrangement", "Service"]


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a server is set up. `hooks` are by kind of forge, `repositories` the names in the queue of those that are served.

    `every` is the time between two ticks, None for no ticker; `grace` is what a running event gets to end in.
    """

    where: Where
    hooks: Mapping[str, Hook]
    repositories: tuple[str, ...]
    workers: int = 1
    every: timedelta | None = None
    grace: timedelta = timedelta(seconds=60)
    most_bytes: int = 5 * 1024 * 1024
    metrics: bool = False
    patience: Patience = field(default_factory=Patience)


class Service:
    """See the module."""

    def __init__(
        self, queue: Queue, arrangement: Arrangement, handle: Handle, context: Context, ready: Callable[[Where], None]
    ) -> None:
        """Nothing is opened yet. `ready` is told the address once connections are taken."""
        self._queue, self._arrangement, self._context, self._ready = queue, arrangement, context, ready
        self._crew = Crew(queue, handle, context, arrangement.patience)
        intake = Intake(queue, arrangement.hooks, arrangement.repositories, context)
        front = Front(
            intake, queue, context, lambda: self._crew.alive, arrangement.most_bytes, metrics=arrangement.metrics
        )
        self._listener = Listener(make_app(front), arrangement.where, self._begin)

    def run(self) -> None:
        """Serve until `stop`. Raises GitopsError `queue_unusable`, `queue_in_use`, `listen_failed`."""
        self._queue.own()
        try:
            self._listener.run()
        finally:
            self._crew.stop(self._arrangement.grace)
            self._queue.close()

    def stop(self) -> None:
        """Have `run` return; may be called from any thread, and from a signal handler."""
        self._listener.stop()

    def _begin(self, where: Where) -> None:
        arrangement = self._arrangement
        self._crew.start(arrangement.workers, arrangement.repositories, arrangement.every)
        self._ready(where)
