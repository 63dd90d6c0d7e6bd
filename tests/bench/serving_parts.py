"""The parts of a request, in this process and without a network: what the server adds to what it is asked for."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import replace
from functools import partial
from io import StringIO
from logging import INFO, getLogger
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.idle_app import app as idle
from tests.bench.measure import Effort, Figure
from tests.bench.served import GRAPH, TOKEN, TOKENS, handle

if TYPE_CHECKING:
    from gitops.serving.generation import Generation, ServedGraph

_OVERHEAD_US = 1000.0
_RECORDING_PERCENT, _CLIENTS = 2.0, 20
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
    app, generation = _application(folder, lambda: cache)
    graph = generation.graphs[GRAPH]
    count = 50 if effort.quick else 400
    nothing = _cpu_us(effort, count, idle, b"/nothing", b"{}")
    refused = _cpu_us(effort, count, app, f"/graphs/{GRAPH}/queries/absent".encode(), b'{"params": {}}')
    yield Figure("a request to an application that does nothing, in process", "us", nothing)
    # A stored query that does not exist is answered after the token, the route, the body and the decision.
    yield Figure("token, route, body, decision, answer and log, in process", "us", refused, _OVERHEAD_US)
    point = json.dumps({"params": {"handle": handle(people // 2)}}).encode()
    read = _cpu_us(effort, count, app, f"/graphs/{GRAPH}/queries/point".encode(), point)
    yield Figure("point read, in process", "us", read)
    counted = _recorded(effort, count, generation, graph)
    yield Figure("recording a call : point read, in process", "%", _shares(counted, read), _RECORDING_PERCENT)
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


def _shares(parts: tuple[float, ...], whole: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(100 * each / median(whole) for each in parts)


def _recorded(effort: Effort, count: int, generation: Generation, graph: ServedGraph) -> tuple[float, ...]:
    """CPU time of counting one call, with what the recorder's thread does for it once a minute, except for the write."""
    from gitops.cluster.model.use import ClientNames, UseRules
    from gitops.repository.wiring.system import RandomIds, SystemClock
    from gitops.serving.use import RecordKey, UseRecorder

    recording = replace(generation, use=UseRules("bench", "bench", ClientNames.NAMED, ("key",)))
    key = RecordKey("key", lambda _: "")
    recorder = UseRecorder(
        lambda: recording, "bench", lambda: None, key, SystemClock(), RandomIds(), getLogger("gitops.bench")
    )
    params, names = {"handle": handle(0)}, [f"act-{number}" for number in range(_CLIENTS)]

    def calls() -> None:
        for name in names:
            for _ in range(count // _CLIENTS + 1):
                recorder.count(recording, graph, "point", params, name)
        recorder.look()

    made = _CLIENTS * (count // _CLIENTS + 1)
    return tuple(each / made for each in _cpu(effort, 1, calls))


def _application(folder: Path, rows: Callable[[], Any]) -> tuple[Application, Generation]:
    """The application of `gitops serve`, and what it serves."""
    from gitops.repository.wiring.serving import ServedSource, open_served
    from gitops.repository.wiring.system import RandomIds, SystemClock
    from gitops.serving.boot import BootRules
    from gitops.serving.http.app import ROUTES, HttpApp
    from gitops.serving.http.work import HttpContext
    from gitops.serving.logs import log_record, make_log
    from gitops.serving.process import BootInputs, ServingGeneration, boot_process

    source, clock = ServedSource(str(folder), None, None, None), SystemClock()
    inputs = BootInputs(str(folder), lambda found: open_served(source, found), BootRules(), clock, TOKENS)
    booted = boot_process(inputs, rows=rows)
    if booted.generation is None or booted.state is None:
        raise RuntimeError(f"the cluster is not served: {[each.message for each in booted.outcome.diagnostics]}")
    # As much as a server writes.
    record = partial(log_record, make_log(StringIO(), INFO, as_json=True))

    context = HttpContext(
        ServingGeneration(booted.generation, clock.now), booted.state, lambda: booted.tokens, clock, RandomIds(), record
    )
    return HttpApp(context, ROUTES), booted.generation


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
