"""The arguments of `gitops bot serve` and `gitops bot queue`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

__all__ = ["add_serve"]

Add = Callable[[Any, str, str, str], argparse.ArgumentParser]

_MODULE = "gitops.cli.serve.command"
_SPAN = re.compile(r"([1-9][0-9]{0,4})([smhd])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z.-]+)):([0-9]{1,5})\Z", re.ASCII)
_MAX_PORT = 65_535
_MAX_WORKERS = 16


def add_serve(parts: Any, add: Add) -> None:
    """Add the two commands. `add` makes a command with its name, summary and handler."""
    serve = add(parts, "serve", "take webhooks of forges, and handle them as jobs do", f"{_MODULE}:serve")
    serve.add_argument(
        "--repo",
        metavar="PATH",
        action="append",
        required=True,
        help="clone of a repository to work for; may be given several times",
    )
    serve.add_argument(
        "--queue", metavar="FILE", required=True, help="file of what came in and is not done, made if it is not there"
    )
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        default=("127.0.0.1", 8080),
        help="address to take webhooks on (default: 127.0.0.1:8080)",
    )
    serve.add_argument("--remote", metavar="NAME", default="origin", help="remote of the clones (default: origin)")
    serve.add_argument(
        "--forge", choices=("github", "gitlab", "gitea"), help="kind of forge (default: gitops.yaml of each repository)"
    )
    serve.add_argument(
        "--secret-file",
        metavar="FILE",
        help="secrets of the webhooks, one on a line (default: the variable GITOPS_WEBHOOK_SECRET)",
    )
    serve.add_argument(
        "--workers", metavar="N", type=_workers, default=1, help="repositories worked for at once (default: 1)"
    )
    serve.add_argument(
        "--every",
        metavar="TIME",
        type=_span,
        help="look for missed merges and drift, now and each time this has passed: 10m, 6h",
    )
    serve.add_argument(
        "--grace",
        metavar="TIME",
        type=_span,
        default=timedelta(seconds=60),
        help="time for running work to end in when the server stops (default: 60s)",
    )
    serve.add_argument("--metrics", action="store_true", help="show counts for Prometheus at /metrics")
    queue = add(parts, "queue", "list what a server has not done yet, and decide about it", f"{_MODULE}_queue:queue")
    queue.add_argument("--queue", metavar="FILE", required=True, help="file of the queue")
    decide = queue.add_mutually_exclusive_group()
    decide.add_argument("--retry", metavar="N", type=int, help="try event N again")
    decide.add_argument("--forget", metavar="N", type=int, help="remove event N")


def _span(text: str) -> timedelta:
    match = _SPAN.match(text)
    if match is None:
        raise argparse.ArgumentTypeError("use a number with s, m, h or d, such as 10m")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _address(text: str) -> tuple[str, int]:
    match = _LISTEN.match(text)
    if match is None or int(match[3]) > _MAX_PORT:
        raise argparse.ArgumentTypeError("use HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
    return match[1] or match[2], int(match[3])


def _workers(text: str) -> int:
    value = int(text)
    if not 1 <= value <= _MAX_WORKERS:
        raise argparse.ArgumentTypeError(f"use 1 to {_MAX_WORKERS}")
    return value
