"""A query server for tests: a generation made by hand over real graphs, behind uvicorn on loopback."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gitops.cluster.model.change import Seen
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.bundle import Bundle
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, PolicyEngine, decide
from gitops.core.canonical import digest
from gitops.core.clock import Clock
from gitops.core.diagnostics import Diagnostics
from gitops.database.graph import ReadCache, open_snapshot
from gitops.database.language.query import check_query, parse_queries
from gitops.repository.report_folder import ServedReport
from gitops.repository.wiring.system import RandomIds, SystemClock
from gitops.serving.access import JSON, BearerTokens, load_tokens
from gitops.serving.generation import Generation, PolicyCover, ServedGraph, StoredQuery
from gitops.serving.http.app import ROUTES, HttpApp
from gitops.serving.http.route import Route
from gitops.serving.http.work import HttpContext, HttpLimits, LogRecord, Observer
from gitops.serving.listen import _Bounded
from gitops.serving.use import UseRecorder
from tests.support.query_graphs import create, put, road, town

QUERIES = b"""
query towns() { match { $t: Town } return { $t.key, $t.size } order { $t.key asc } }
query town($key: String) @description("One town.") { match { $t: Town { key: $key } } return { $t.key, $t.size, $t.name } }
query add_town($key: String, $size: I32?) { insert Town { key: $key, size: $size } }
query drop_town($key: String) { delete Town where key = $key }
query kinds($s: String, $i: I32, $l: I64, $u: U32, $w: U64, $f: F32, $d: F64, $b: Bool, $day: Date, $at: DateTime,
            $many: [String], $v: Vector(2), $maybe: I64?) { match { $t: Town } return { $t.key } }
"""

_LONGEST_S = 30.0


class Records(list[LogRecord]):
    """The records of a server; `changed` is told of each."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()

    def append(self, record: LogRecord) -> None:
        with self.changed:
            super().append(record)
            self.changed.notify_all()


@dataclass
class Source:
    """Has one generation, which a test may exchange."""

    generation: Generation

    def current(self) -> Generation:
        return self.generation


@dataclass(frozen=True)
class BundleEngine:
    """Decides by the pure rules of a bundle."""

    bundle: Bundle

    def decide(self, request: AccessRequest) -> AccessDecision:
        return decide(self.bundle, request)


PUBLIC_URL = "https://brain.example"
"""Where clients of the servers of tests reach them, as far as they say."""


def tokens(**known: str) -> BearerTokens:
    """Tokens by actor."""
    found = load_tokens({JSON: json.dumps(known)}, Diagnostics())
    assert len(found.known) == len(known)
    return found


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
    seen = Seen(snapshot.identity.graph_id, 0, snapshot.manifest.n)
    return ServedGraph(
        graph_id,
        root,
        schema,
        source,
        digest(source),
        dict(sorted(stored.items())),
        engine,
        ReadCache(),
        policy=None if engine is None else "towns",
        seen=seen,
    )


def generation(*graphs: ServedGraph, engine: PolicyEngine | None = None) -> Generation:
    """A generation of these graphs."""
    guarded = engine is not None or any(each.engine for each in graphs)
    policy = None if engine is None else "server"
    identity, served = RevisionIdentity("ab" * 32, 7, "cd" * 32), {each.graph_id: each for each in graphs}
    return Generation(identity, served, engine, {}, guarded, policy=policy)


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
    log: Records
    port: int
    app: HttpApp

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.client.request(method, path, **options)

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds that a record of the log comes with."""
        with self.log.changed:
            assert self.log.changed.wait_for(lambda: bool(holds()), _LONGEST_S), list(self.log)


@contextmanager
def running(
    made: Generation,
    known: BearerTokens | None = None,
    limits: HttpLimits | None = None,
    clock: Clock | None = None,
    routes: Sequence[Route] = ROUTES,
    reload: Callable[[], Mapping[str, Any]] | None = None,
    observer: Observer | None = None,
    *,
    direct: bool = True,
    report: ServedReport | None = None,
    use: UseRecorder | None = None,
) -> Iterator[Running]:
    """Serve a generation on a free port of loopback; without tokens to everybody. Reads can be answered `direct`ly."""
    # A test of the command in this process may have left a log on a stream that is closed by now.
    logging.getLogger("gitops.serve").handlers.clear()
    source, log = Source(made), Records()
    found = known or BearerTokens()
    state = PolicyCover.OPEN
    if found:
        state = PolicyCover.POLICY_ENABLED if made.guarded else PolicyCover.DEFAULT_DENY
    context = HttpContext(source, state, lambda: found, clock or SystemClock(), RandomIds(), log.append, reload=reload)
    context = replace(context, limits=limits or context.limits, observer=observer, public_url=PUBLIC_URL, report=report)
    context = replace(context, use=use)
    app = HttpApp(context, routes, direct=direct)
    with (
        serving(app) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=_LONGEST_S) as client,
    ):
        yield Running(client, source, log, port, app)


@contextmanager
def serving(app: Any, http: Any = _Bounded) -> Iterator[int]:
    """Run the application in a thread until the end of the block; gives its port. `http` is the protocol of the web server."""
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            started.set()

    config = uvicorn.Config(
        app,
        port=0,
        http=http,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
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
