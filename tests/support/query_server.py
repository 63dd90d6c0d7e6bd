"""A query server for tests: a generation made by hand over real graphs, behind uvicorn on loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gitops.core.canonical import digest
from gitops.core.clock import Clock
from gitops.graph import ReadCache, open_snapshot
from gitops.language.query import check_query, parse_queries
from gitops.policy.bundle import Action
from gitops.policy.decide import AccessRequest, PolicyEngine
from gitops.serving.generation import Generation, RevisionIdentity, RuntimeState, ServedGraph, StoredQuery
from gitops.serving.http.app import HttpApp
from gitops.serving.http.context import AccessQuestion, HttpContext, HttpLimits, LogRecord
from gitops.serving.http.routes import ROUTES
from gitops.serving.problem import ApiCode, ApiProblem, ProblemError
from gitops.wiring.system import RandomIds, SystemClock
from tests.support.query_graphs import create, put, road, town

QUERIES = b"""
query towns() { match { $t: Town } return { $t.key, $t.size } order { $t.key asc } }
query town($key: String) @description("One town.") { match { $t: Town { key: $key } } return { $t.key, $t.size, $t.name } }
query add_town($key: String, $size: I32?) { insert Town { key: $key, size: $size } }
query drop_town($key: String) { delete Town where key = $key }
"""


@dataclass
class Source:
    """Has one generation, which a test may exchange."""

    generation: Generation

    def current(self) -> Generation:
        return self.generation


@dataclass
class TokenGate:
    """Tokens by actor and the decisions of the specification's table; without tokens everything is open."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    guarded: bool = False

    @property
    def state(self) -> RuntimeState:
        if not self.tokens:
            return RuntimeState.OPEN
        return RuntimeState.POLICY_ENABLED if self.guarded else RuntimeState.DEFAULT_DENY

    def authenticate(self, authorization: str | None) -> str | None:
        if not self.tokens:
            return None
        found = [actor for actor, token in self.tokens.items() if authorization == f"Bearer {token}"]
        if not found:
            text = "invalid bearer token" if authorization else "missing bearer token"
            raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, text))
        return found[0]

    def authorize(self, generation: Generation, question: AccessQuestion) -> None:
        engine = generation.engine if question.graph is None else question.graph.engine
        actor = question.actor
        if engine is None:
            open_ = question.action is Action.READ or (actor is None and question.graph is not None)
            if not open_ or question.graph is None:
                raise _forbidden(f"'{question.action}' is denied in default-deny mode")
            return
        if actor is None:
            raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, "missing bearer token"))
        asked = AccessRequest(actor, question.action, question.branch, question.target_branch, question.query)
        decision = engine.decide(asked)
        if not decision.allowed:
            raise _forbidden(decision.message)


def _forbidden(message: str) -> ProblemError:
    return ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, message))


def served(
    root: str, graph_id: str = "towns", *, queries: bytes = QUERIES, engine: PolicyEngine | None = None
) -> ServedGraph:
    """A graph as it is served, with the stored queries of a text."""
    snapshot = open_snapshot(root)
    schema = snapshot.schema()
    stored = {
        each.name.text: StoredQuery(each.name.text, digest(queries), queries, check_query(each, schema.catalog))
        for each in parse_queries(queries)
    }
    source = snapshot.schema_source()
    return ServedGraph(
        graph_id, root, schema, source, digest(source), dict(sorted(stored.items())), engine, ReadCache()
    )


def generation(*graphs: ServedGraph, engine: PolicyEngine | None = None) -> Generation:
    """A generation of these graphs."""
    guarded = engine is not None or any(each.engine for each in graphs)
    return Generation(RevisionIdentity("ab" * 32, 7, "cd" * 32), {g.graph_id: g for g in graphs}, engine, {}, guarded)


def town_graph(folder: Path, name: str = "towns") -> str:
    """Three towns and a road, on `main`."""
    root = create(str(folder / f"{name}.omni"))
    put(root, [town("a", size=1, name="Ash"), town("b", size=2, name="Birch"), town("c")])
    put(root, [road("a", "b", miles=4)], start=5_000)
    return root


@dataclass
class Running:
    """A server that answers. `log` has its records."""

    client: httpx.Client
    source: Source
    log: list[LogRecord]
    port: int

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.client.request(method, path, **options)


@contextmanager
def running(
    made: Generation,
    gate: TokenGate | None = None,
    limits: HttpLimits | None = None,
    clock: Clock | None = None,
) -> Iterator[Running]:
    """Serve a generation on a free port of loopback."""
    source, log = Source(made), list[LogRecord]()
    context = HttpContext(source, gate or TokenGate(), clock or SystemClock(), RandomIds(), log.append)
    context = replace(context, limits=limits) if limits else context
    with serving(HttpApp(context, ROUTES)) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        yield Running(client, source, log, port)


@contextmanager
def serving(app: HttpApp) -> Iterator[int]:
    """Run the application in a thread until the end of the block; gives its port."""
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    config = uvicorn.Config(
        app, port=0, log_config=None, access_log=False, lifespan="on", ws="none", server_header=False
    )
    server = Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    assert started.wait(30)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)
