"""What a worker says of itself to the process of the admin address, and how it is asked.

1. A worker listens at a socket in a folder that only the user of the server can enter, for as long as it takes connections.
2. A question is one line, and its answer one document. Both come from the same release.
3. The event loop of the worker answers: where it hangs, so does the answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.bundle import Action
from gitops.cluster.policy.decide import AccessRequest
from gitops.core.dataclass import dataclass
from gitops.serving.access import authenticate, authorize
from gitops.serving.generation import Generation
from gitops.serving.http.context import HttpContext
from gitops.serving.problem import ProblemError
from gitops.serving.process import ServingGeneration
from gitops.serving.reload import Reload

__all__ = ["Asked", "Load", "StatusDoor", "WorkerStatus", "ask_workers"]

_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is under way in a process: changes, those of them that wait for their turn on a branch, and exports.

    `stuck` threads are held by queries that are past their time limit.
    """

    changes: int
    waiting: int
    exports: int
    stuck: int = 0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One process that serves: the revision and when it was accepted (seconds since 1970), and its load.

    `ready` and `quarantined` count graphs. `graphs` has their ids, each with the code of what keeps it from being served, None
    where it is served; it is None for who may not list them. `pending` is the form of an attempt to serve a newer revision that
    did not succeed, and `behind` how many states newer that one is.
    """

    revision: RevisionIdentity
    accepted_at: float
    ready: int
    quarantined: int
    graphs: Mapping[str, str | None] | None
    pending: Mapping[str, Any] | None
    behind: int
    load: Load

    @property
    def form(self) -> Mapping[str, Any]:
        """As it is sent."""
        revision, load = self.revision, self.load
        return {
            "revision": [revision.digest, revision.state_revision, revision.config_digest],
            "accepted_at": self.accepted_at,
            "ready": self.ready,
            "quarantined": self.quarantined,
            "graphs": self.graphs,
            "pending": self.pending,
            "behind": self.behind,
            "load": [load.changes, load.waiting, load.exports, load.stuck],
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> WorkerStatus:
        """As it was sent."""
        return cls(**{**form, "revision": RevisionIdentity(*form["revision"]), "load": Load(*form["load"])})


class StatusDoor:
    """Answers in the place of one worker, with what it has at that moment."""

    def __init__(
        self,
        place: Path,
        context: HttpContext,
        source: ServingGeneration,
        pending: Callable[[], Reload | None],
        load: Callable[[], Load],
    ) -> None:
        """`place` is the folder of the sockets with the number of the worker, such as `/run/x/0`."""
        self._place, self._context, self._source = _socket(place), context, source
        self._pending, self._load = pending, load

    async def open(self) -> asyncio.AbstractServer:
        """Answer until the server that is returned is closed."""
        self._place.unlink(missing_ok=True)
        return await asyncio.start_unix_server(self._answer, self._place)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = json.loads(await reader.readline() or b"{}")
            writer.write(json.dumps(self.status(question).form).encode() + b"\n")
        finally:
            writer.close()

    def status(self, question: Mapping[str, Any]) -> WorkerStatus:
        """What this process is at; with the ids of graphs for `{"graphs": true}`, and for an actor who may list them."""
        generation, pending = self._source.current(), self._pending()
        named = question.get("graphs") or self._may_list(generation, question.get("authorization", ()))
        return WorkerStatus(
            generation.revision,
            self._source.accepted_at.timestamp(),
            len(generation.graphs),
            len(generation.quarantined),
            _graphs(generation) if named else None,
            None if pending is None else pending.form,
            0 if pending is None else pending.behind,
            self._load(),
        )

    def _may_list(self, generation: Generation, authorization: Sequence[str]) -> bool:
        if not authorization:
            return False
        context = self._context
        try:
            actor = authenticate(context.state, context.tokens(), [each.encode("latin-1") for each in authorization])
            authorize(generation, None, AccessRequest(actor or "", Action.GRAPH_LIST), context.ids.ulid())
        except ProblemError:
            return False
        return True


def _graphs(generation: Generation) -> Mapping[str, str | None]:
    quarantined = {name: found[0].code.value for name, found in generation.quarantined.items()}
    return dict(sorted({**dict.fromkeys(generation.graphs), **quarantined}.items()))


@dataclass(frozen=True, slots=True)
class Asked:
    """The answers of all workers, and how many hold their socket and did not answer in time."""

    statuses: tuple[WorkerStatus, ...]
    silent: int

    @property
    def oldest(self) -> WorkerStatus | None:
        """That of the oldest revision; None where no worker answered."""
        return min(self.statuses, key=lambda each: each.revision.state_revision, default=None)


async def ask_workers(folder: Path, workers: int, question: Mapping[str, Any]) -> Asked:
    """Ask all workers at the same time; one that is not there, or ends over the question, is left out."""
    line = json.dumps(question).encode() + b"\n"
    answers = await asyncio.gather(*(_ask(folder / str(number), line) for number in range(workers)))
    statuses = [WorkerStatus.of_form(json.loads(each)) for each in answers if each]
    return Asked(tuple(statuses), answers.count(None))


async def _ask(place: Path, line: bytes) -> bytes | None:
    """The answer, empty where there is no worker, None where it came too late."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(_socket(place))
            try:
                writer.write(line)
                answer = await reader.read()
                # A worker that ended over its answer has not answered.
                return answer if answer.endswith(b"\n") else b""
            finally:
                writer.close()
    except (FileNotFoundError, ConnectionError):
        return b""
    except OSError:
        # It came too late; or one that hangs for long has as many questions waiting as its socket takes.
        return None


def _socket(place: Path) -> Path:
    return place.with_name(f"{place.name}.sock")
