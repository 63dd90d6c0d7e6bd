"""A read replica of one graph in a bucket: requests of its rounds, and how long they take at a distance of 200 ms.

The rounds are those of a server, in this process: a first start, a comparison that finds nothing new, a new version of one
row, a comparison after it, and a start with the existing copy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.bench.buckets import ROUND_TRIP_S, far_service
from tests.bench.clusters import write_cluster
from tests.bench.measure import GITOPS, Effort, Figure, LeftOutError, Program

_ROWS = 20_000


def figures(effort: Effort) -> Iterator[Figure]:
    """A life of a replica: once for the requests, once for the times."""
    try:
        from tests.support.s3 import S3Server
    except ImportError:
        raise LeftOutError("moto is not installed") from None
    with S3Server() as server:
        for name, _ in _life(effort, "counted", server.bucket(), server.environ, server.log.clear):
            data = sum(each.kind == "GET" and ".lance/" in each.path for each in server.log)
            yield Figure(f"replica: {name}, requests", "n", (float(len(server.log)),))
            yield Figure(f"replica: {name}, of these for files of tables", "n", (float(data),))
    with far_service(effort.folder("store")) as (kind, bucket, environ):
        for name, wall_ms in _life(effort, "timed", bucket, environ, lambda: None):
            yield Figure(f"replica: {name} at {ROUND_TRIP_S * 1000:.0f} ms ({kind})", "ms", (wall_ms,))


def _life(
    effort: Effort, name: str, bucket: str, environ: Mapping[str, str], forget: Callable[[], None]
) -> Iterator[tuple[str, float]]:
    """Each step of a replica's life, with the milliseconds that it took."""
    from gitops.repository.wiring.replica import ReplicaCopy
    from gitops.repository.wiring.serving import ServedSource

    folder = write_cluster(effort.folder(name), graphs=1, queries=10)
    config = folder / "cluster.yaml"
    config.write_text(config.read_text() + f"storage: s3://{bucket}/bench\n")

    def run(*words: str) -> None:
        Program((*GITOPS, *words, "--config", str(folder)), effort.scratch, effort.environment() | environ).run()

    def load(first: int, last: int) -> None:
        rows = folder / "rows.ndjson"
        people = ({"type": "Person", "data": {"handle": f"p{n}", "name": f"Person {n}"}} for n in range(first, last))
        rows.write_text("".join(json.dumps(each) + "\n" for each in people))
        run("graph", "load", "g0000", str(rows))

    def copy_of() -> ReplicaCopy:
        copy = ReplicaCopy(ServedSource(f"s3://{bucket}/bench"), str(effort.scratch / f"{name}-copy"), 2**40, print)
        copy.open()
        return copy

    def start(copy: ReplicaCopy) -> None:
        copy.hold()
        copy.check()
        copy.round()
        copy.require()

    run("import")
    run("apply", "--as", "bench")
    load(0, 1_000 if effort.quick else _ROWS)
    with _environment(environ):
        copy = copy_of()
        for step, act in (
            ("first start", lambda: start(copy)),
            ("nothing new", copy.round),
            ("a new version of one row", copy.round),
            ("nothing new after it", copy.round),
        ):
            if step.startswith("a new"):
                load(_ROWS, _ROWS + 1)
            forget()
            yield step, _timed(act)
        copy.release()
        forget()
        again = copy_of()
        yield "a start with the existing copy", _timed(lambda: start(again))


def _timed(act: Callable[[], None]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
