"""`python -m tests.bench.http_load JOB.json`: load an HTTP server from a process of its own, and print what was seen as JSON.

The job: `port`; `head`, the lines of a request without its length; `bodies`, which are sent in turn; `connections`; `seconds`;
`rate` in requests a second, or null for a closed loop, in which each connection asks as soon as it is answered; `processes`,
whose CPU time is counted. At a rate, a latency counts from when its request was due: a server that falls behind is not asked
less.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import uvloop

_WARM_SHARE = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST_ANSWER_S = 30.0


def cpu_seconds(processes: Sequence[int]) -> float:
    """CPU time that these processes have used, without that of their children."""
    used = 0.0
    for each in processes:
        stat = Path(f"/proc/{each}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        used += (int(stat[11]) + int(stat[12])) / _TICKS
    return used


class _Connection(asyncio.Protocol):
    """One connection: an answer at a time, of known length."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[bool] | None = None
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end].lower() + b"\r\n"
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        if len(self._data) == end + 4 + length:
            self._done(head.startswith(b"http/1.1 2"))

    def connection_lost(self, _: Exception | None) -> None:
        self._done(False)

    def _done(self, good: bool) -> None:
        self._data = b""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(good)

    async def ask(self, request: bytes) -> bool:
        """Whether the answer is a good one."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        async with asyncio.timeout(_LONGEST_ANSWER_S):
            return await self._answer


class _Load:
    """Requests over several connections, until a time."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self._job = job
        self._requests = [
            f"{job['head']}\r\nHost: bench\r\nContent-Length: {len(body.encode())}\r\n\r\n{body}".encode()
            for body in job["bodies"]
        ]
        self.latencies: list[float] = []
        self.failed = 0

    async def run(self, connections: Sequence[_Connection], seconds: float) -> None:
        """Forget what was measured, and measure."""
        self.latencies, self.failed = [], 0
        begin = time.perf_counter()
        await asyncio.gather(
            *(
                self._ask(each, number, len(connections), begin, begin + seconds)
                for number, each in enumerate(connections)
            )
        )

    async def _ask(self, connection: _Connection, first: int, step: int, begin: float, end: float) -> None:
        rate, number = self._job["rate"], first
        while True:
            due = time.perf_counter() if rate is None else begin + number / rate
            if due >= end:
                return
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.failed += not await connection.ask(self._requests[number % len(self._requests)])
            self.latencies.append(time.perf_counter() - due)
            number += step


async def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the job gives, after a quarter of it to warm up."""
    loop, load = asyncio.get_running_loop(), _Load(job)
    opened = [await loop.create_connection(_Connection, "127.0.0.1", job["port"]) for _ in range(job["connections"])]
    connections = [connection for _, connection in opened]
    await load.run(connections, job["seconds"] * _WARM_SHARE)
    before, own, begin = cpu_seconds(job["processes"]), time.process_time(), time.perf_counter()
    await load.run(connections, job["seconds"])
    seconds = time.perf_counter() - begin
    found = sorted(load.latencies)
    for transport, _ in opened:
        transport.close()
    return {
        "count": len(found),
        "failed": load.failed,
        "seconds": seconds,
        "p50_ms": found[len(found) // 2] * 1000,
        "p99_ms": found[len(found) * 99 // 100] * 1000,
        "server_cpu_ms": (cpu_seconds(job["processes"]) - before) * 1000,
        "own_cpu_ms": (time.process_time() - own) * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))))
