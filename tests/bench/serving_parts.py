"""The parts of a request, in this process and without a network: what the server adds to what it is asked for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.idle_app import app as idle
from tests.bench.measure import Effort, Figure
from tests.bench.served import GRAPH, TOKEN, TOKENS, handle

_OVERHEAD_US = 1000.0
_US = 1e6
Application = Callable[..., Awaitable[None]]


def part_figures(effort: Effort, folder: Path, people: int) -> Iterator[Figure]:
    """CPU time of a request that needs nothing of a graph, of a decision, and of a read by the engine alone."""
    from gitops.cluster.policy.bundle import PolicyAction
    from gitops.cluster.policy.cedar import CedarEngine
    from gitops.cluster.policy.decide import AccessRequest
    from gitops.database.graph import QueryOptions, ReadCache, ReadTarget, open_snapshot, run_query
    from gitops.repository.wiring.system import SystemClock

    cache, clock = ReadCache(), SystemClock()
    app, graph = _application(folder, lambda: cache)
    count = 50 if effort.quick else 400
    nothing = _cpu_us(effort, count, idle, b"/nothing", b"{}")
    refused = _cpu_us(effort, count, app, f"/graphs/{GRAPH}/queries/absent".encode(), b'{"params": {}}')
    yield Figure("a request to an application that does nothing, in process", "us", nothing)
    # A stored query that does not exist is answered after the token, the route, the body and the decision.
    yield Figure("token, route, body, decision, answer and log, in process", "us", refused, _OVERHEAD_US)
    point = json.dumps({"params": {"handle": handle(people // 2)}}).encode()
    read = _cpu_us(effort, count, app, f"/graphs/{GRAPH}/queries/point".encode(), point)
    yield Figure("point read, in process", "us", read)
    assert graph.engine is not None
    bundle, snapshot = graph.engine.bundle, partial(open_snapshot, graph.uri, ReadTarget("main"), cache)
    options = QueryOptions(now=clock.now(), timeout_s=60, memory_bytes=2**30)

    def ask() -> object:
        return run_query(snapshot(), graph.queries["point"].checked, {"handle": handle(0)}, options, cache).rows()

    yield Figure("point read, the engine alone", "us", _cpu(effort, count, ask))
    cedar, numbers = CedarEngine(bundle, f"graph.{GRAPH}"), iter(range(10**9))
    first = _cpu(effort, count, lambda: cedar.decide(AccessRequest("ada", PolicyAction.READ, f"b{next(numbers)}")))
    yield Figure("a decision that is new", "us", first)
    again = _cpu(effort, count, lambda: cedar.decide(AccessRequest("ada", PolicyAction.READ, "main")))
    yield Figure("a decision that is known", "us", again)


def _application(folder: Path, rows: Callable[[], Any]) -> tuple[Application, Any]:
    """The application of `gitops serve`, and the graph that it serves."""
    from gitops.repository.wiring.serving import ServedSource, open_served
    from gitops.repository.wiring.system import RandomIds, SystemClock
    from gitops.serving.boot import BootRules
    from gitops.serving.http.app import ROUTES, HttpApp
    from gitops.serving.http.work import HttpContext
    from gitops.serving.process import BootInputs, ServingGeneration, boot_process

    source, clock = ServedSource(str(folder), None, None, None), SystemClock()
    inputs = BootInputs(str(folder), lambda found: open_served(source, found), BootRules(), clock, TOKENS)
    booted = boot_process(inputs, rows=rows)
    if booted.generation is None or booted.state is None:
        raise RuntimeError(f"the cluster is not served: {[each.message for each in booted.outcome.diagnostics]}")
    log: list[Any] = []

    def record(form: Any) -> None:
        # As much as a server writes.
        log[:] = [json.dumps(form)]

    context = HttpContext(
        ServingGeneration(booted.generation, clock.now), booted.state, lambda: booted.tokens, clock, RandomIds(), record
    )
    return HttpApp(context, ROUTES), booted.generation.graphs[GRAPH]


def _cpu_us(effort: Effort, count: int, app: Application, path: bytes, body: bytes) -> tuple[float, ...]:
    """CPU time of one request, without the web server."""
    headers = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"content-type", b"application/json")]
    form = {
        "type": "http",
        "method": "POST",
        "path": path.decode(),
        "raw_path": path,
        "query_string": b"",
        "headers": headers,
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(_: MutableMapping[str, Any]) -> None:
        pass

    async def many() -> None:
        for _ in range(count):
            await app(dict(form), receive, send)

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(many())
        samples = []
        for _ in range(effort.samples):
            before = time.process_time()
            loop.run_until_complete(many())
            samples.append((time.process_time() - before) / count * _US)
        return tuple(samples)
    finally:
        loop.close()


def _cpu(effort: Effort, count: int, call: Callable[[], object]) -> tuple[float, ...]:
    """CPU time of one call."""
    call()
    samples = []
    for _ in range(effort.samples):
        before = time.process_time()
        for _ in range(count):
            call()
        samples.append((time.process_time() - before) / count * _US)
    return tuple(samples)
