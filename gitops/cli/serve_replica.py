"""`gitops serve --read-replica`: the bucket copy that a read replica serves, and its options."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.render.characters import visible
from gitops.repository.wiring.system import SystemClock

if TYPE_CHECKING:
    from gitops.repository.wiring.replica import ReplicaCopy
    from gitops.serving.replica import ReadReplica

WATCH_S = 2.0
"""How often a read replica looks for a newer revision in its copy."""

_OPTIONS = ("cache_size", "max_staleness", "max_outage", "writer")
_CACHE_BYTES = 20 * 2**30
_STALENESS, _OUTAGE = timedelta(seconds=10), timedelta(hours=1)
_WAIT_S, _LOOK_S = 600.0, 0.2


def require_replica(options: argparse.Namespace) -> None:
    """Refuse options that have an effect only on a read replica. Raises UsageError `usage_error`."""
    given = next((each for each in _OPTIONS if getattr(options, each) is not None), None)
    if options.read_replica is None and given is not None:
        raise UsageError(Code.USAGE_ERROR, f"--{given.replace('_', '-')} requires --read-replica DIR")


def copy_of(options: argparse.Namespace, log: logging.Logger) -> ReplicaCopy | None:
    """Return the served copy, or None if the server is not a read replica. Raises the errors of `ReplicaCopy`."""
    if options.read_replica is None:
        return None
    from gitops.repository.wiring.replica import ReplicaCopy
    from gitops.repository.wiring.serving import ServedSource

    source = ServedSource(options.cluster, options.repo, options.remote, options.revision)
    most_bytes = _CACHE_BYTES if options.cache_size is None else options.cache_size
    return ReplicaCopy(source, options.read_replica, most_bytes, lambda text: log.warning("%s", visible(text)))


def prepare(copy: ReplicaCopy | None) -> None:
    """Check the existing copy and update it before the graphs are opened. Waits for another copying process.

    An earlier copy is enough if the bucket does not respond. Raises GitopsError for the first problem if there is none.
    """
    if copy is None:
        return
    copy.open()
    if copy.hold():
        copy.check()
        copy.round()
    end = time.monotonic() + _WAIT_S
    while not copy.status().ledger_as_of and not copy.hold() and time.monotonic() < end:
        time.sleep(_LOOK_S)
    copy.require()


@contextmanager
def copying(options: argparse.Namespace, copy: ReplicaCopy | None, log: logging.Logger) -> Iterator[ReadReplica | None]:
    """Keep the copy up to date during the block. Yields its age, or None without a copy."""
    if copy is None:
        yield None
        return
    from gitops.serving.replica import ReadReplica, ReplicaRules, following

    staleness, outage = options.max_staleness or _STALENESS, options.max_outage or _OUTAGE
    rules = ReplicaRules(staleness.total_seconds(), outage.total_seconds(), options.writer)
    clock = SystemClock()
    with following(copy, rules, clock.monotonic, lambda why: log.error("%s", visible(f"copying failed: {why}"))):
        yield ReadReplica(copy.status, rules, clock.now)
