"""Commands on a cluster whose ledger and graphs are in a bucket: requests of each, and the time at a distance of 200 ms.

Numbers of requests are exact: an imitation in this process counts them. Times are those of a real object store where one is on
the PATH; those of the imitation have its work in them, and a new connection for each request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.bench.clusters import write_cluster
from tests.bench.measure import GITOPS, Effort, Figure, LeftOutError, Program
from tests.support.real_service import REAL_SERVICES

ROUND_TRIP_S = 0.2
_GOALS_S = {"status": 2.0, "plan": 2.0, "apply": 15.0, "load": 15.0}
_ROWS = 1_000


def figures(effort: Effort) -> Iterator[Figure]:
    """A life of a cluster of one graph with a hundred queries: once for the requests, once for the times."""
    try:
        from tests.support.s3 import S3Server
    except ImportError:
        raise LeftOutError("moto is not installed") from None
    queries = 10 if effort.quick else 100
    with S3Server() as server:
        for name, _ in _life(effort, "counted", queries, server.bucket(), server.environ):
            yield Figure(f"{name}, {queries} queries in a bucket, requests", "n", (float(len(server.log)),))
            server.log.clear()
    with far_service(effort.folder("store")) as (kind, bucket, environ):
        for name, wall_ms in _life(effort, "timed", queries, bucket, environ):
            goal = _GOALS_S.get(name)
            label = f"{name}, {queries} queries in a bucket at {ROUND_TRIP_S * 1000:.0f} ms ({kind})"
            yield Figure(label, "ms", (wall_ms,), None if goal is None else goal * 1000)


@contextmanager
def far_service(folder: Path) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """A service at a distance: what it is, a bucket of it, and the environment that reaches it."""
    from tests.support.latency import DistantService
    from tests.support.s3 import S3Server

    service = next((each for each in REAL_SERVICES if each.program), None)
    if service is None:
        with S3Server() as server, DistantService(urlsplit(server.url).port or 0, ROUND_TRIP_S) as far:
            yield "imitation", server.bucket(), {**server.environ, "AWS_ENDPOINT_URL": far.url}
        return
    with service.serving(folder, "bench") as environ:
        port = urlsplit(environ["AWS_ENDPOINT_URL"]).port or 0
        with DistantService(port, ROUND_TRIP_S) as far:
            yield service.name, "bench", {**environ, "AWS_ENDPOINT_URL": far.url}


def _life(
    effort: Effort, name: str, queries: int, bucket: str, environ: Mapping[str, str]
) -> Iterator[tuple[str, float]]:
    """Each command of a cluster's life, with the milliseconds that it took."""
    folder = write_cluster(effort.folder(name), graphs=1, queries=queries)
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + f"storage: s3://{bucket}/bench\n")
    rows = folder / "rows.ndjson"
    people = ({"type": "Person", "data": {"handle": f"p{n}", "name": f"Person {n}"}} for n in range(_ROWS))
    rows.write_text("".join(json.dumps(each) + "\n" for each in people))
    graph, file = "g0000", str(rows)
    for verb, words in (
        ("import", ("import",)),
        ("apply", ("apply", "--as", "bench")),
        ("status", ("status",)),
        ("plan", ("plan",)),
        ("refresh", ("refresh",)),
        ("load", ("graph", "load", graph, file)),
        ("load again", ("graph", "load", graph, file)),
        ("gc", ("graph", "gc", graph, "--keep", "1", "--older-than", "0m")),
    ):
        command = (*GITOPS, *words, "--config", str(folder))
        yield verb, Program(command, effort.scratch, effort.environment() | environ).run().wall_ms
