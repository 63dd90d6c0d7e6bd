"""Commands on a cluster whose ledger and graphs are in a bucket: requests of each, and the time at a distance of 200 ms.

The service is an imitation in this process, so times have its work in them; numbers of requests are exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from tests.bench.clusters import write_cluster
from tests.bench.measure import GITOPS, Effort, Figure, LeftOutError, Program

_ROUND_TRIP_S = 0.2
_GOALS_S = {"status": 2.0, "plan": 2.0, "apply": 15.0}


def figures(effort: Effort) -> Iterator[Figure]:
    """A life of a cluster of one graph with a hundred queries, once."""
    try:
        from tests.support.latency import DistantService
        from tests.support.s3 import S3Server
    except ImportError:
        raise LeftOutError("moto is not installed") from None
    queries = 10 if effort.quick else 100
    folder = write_cluster(effort.folder("buckets"), graphs=1, queries=queries)
    with S3Server() as server, DistantService(urlsplit(server.url).port or 0, _ROUND_TRIP_S) as far:
        config = folder / "cluster.yaml"
        config.write_text(config.read_text() + f"storage: s3://{server.bucket()}/bench\n")
        environ = effort.environment() | server.environ | {"AWS_ENDPOINT_URL": far.url}
        for words in (("import",), ("apply", "--as", "bench"), ("status",), ("plan",), ("refresh",)):
            server.log.clear()
            usage = Program((*GITOPS, *words, "--config", str(folder)), effort.scratch, environ).run()
            name = f"{words[0]}, {queries} queries in a bucket at {_ROUND_TRIP_S * 1000:.0f} ms"
            goal = _GOALS_S.get(words[0])
            yield Figure(name, "ms", (usage.wall_ms,), None if goal is None else goal * 1000)
            yield Figure(f"{name}, requests", "n", (float(sum(server.requests().values())),))
