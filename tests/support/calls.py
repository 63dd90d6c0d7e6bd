"""Ask a handler of the query server directly: without HTTP, with the permit of a test, and with all work done at once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any, TypeVar
from urllib.parse import urlencode

from gitops.cluster.policy.bundle import PolicyAction
from gitops.serving.answers import ProblemError
from gitops.serving.generation import ServedGraph
from gitops.serving.http.call import Call

T = TypeVar("T")
Permit = Callable[[PolicyAction, str | None, str | None], None]
"""Gets an action, a branch and a target branch. Raises ProblemError where that is denied."""


class DirectCall(Call):
    """A request of `actor` about a graph."""

    def __init__(
        self,
        graph: ServedGraph,
        permit: Permit,
        *,
        body: Any = None,
        values: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        context: Any = None,
        actor: str = "act-ann",
    ) -> None:
        self._graph, self._permit, self.actor, self._changing = graph, permit, actor, None
        self.body, self.values, self._query = body, values or {}, query or {}
        self.scope = {"query_string": urlencode(self._query).encode()}
        self.context = context or SimpleNamespace(embedder=None)
        self.shared: Any = SimpleNamespace(streams=SimpleNamespace(take=_done, free=lambda: None))

    def require(
        self,
        action: PolicyAction,
        *,
        branch: str | None = None,
        target_branch: str | None = None,
        query: str | None = None,
    ) -> None:
        self._permit(action, branch, target_branch)

    def may(self, action: PolicyAction, *, branch: str | None = None, query: str | None = None) -> bool:
        try:
            self._permit(action, branch, None)
        except ProblemError:
            return False
        return True

    def knows(self, branch: str) -> bool:
        return True

    async def work(self, work: Callable[[], T]) -> T:
        return work()

    async def change(self, branch: str, nbytes: int, work: Callable[[], T]) -> T:
        return work()


async def _done() -> None:
    pass


def answer(handler: Callable[[Any], Awaitable[Any]], call: DirectCall) -> Any:
    """What a handler answers with: the document, or the answer in pieces."""
    asked: Coroutine[Any, Any, Any] = handler(call)  # type: ignore[assignment]
    try:
        asked.send(None)
    except StopIteration as end:
        return json.loads(end.value.body) if hasattr(end.value, "body") else end.value
    raise AssertionError("the handler waits for something")
