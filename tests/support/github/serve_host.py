"""The machine on which `gitops bot serve` runs as a process against the fake GitHub."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.github.hub import Hub
from tests.support.github.served import clone_for_server, server_environment_of
from tests.support.paused import Pause
from tests.support.serve_process import ServeProcess
from tests.support.serving import SECRET


class ServeHost:
    """The machine of a server: a clone, a queue, an environment."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        folder.mkdir()
        self.hub, self.queue = hub, folder / "queue.db"
        self.clone = clone_for_server(hub, folder / "clone.git")
        self.environ = server_environment_of(hub) | {"GITOPS_WEBHOOK_SECRET": SECRET}
        self.arguments = ["--repo", str(self.clone), "--queue", str(self.queue), "--listen", "127.0.0.1:0"]
        self.arguments += ["--forge", "github"]

    def serve(self, *more: str, point: str = "", pause: Pause | None = None) -> ServeProcess:
        return ServeProcess([*self.arguments, *more], self.environ, point, pause)

    def listed(self) -> list[dict[str, object]]:
        """What the queue holds, as its operator sees it."""
        done = self.hub.loop.gitops("bot", "bot", "queue", "--queue", str(self.queue), "--json")
        events: list[dict[str, object]] = json.loads(done.text)["events"]
        return events
