"""A query server's Prometheus metrics. Only this module uses the Prometheus library.

1. Each worker stores its counters in files that its replacement continues, so that no counts are lost when a worker
   ends.
2. Gauges are queried from the workers when the metrics are read.
3. Label values come from routes, codes and the applied revision, never from requests, and never contain actors. Values
   above a limit are combined into one.

Source: https://prometheus.github.io/client_python/multiprocess/.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Histogram, generate_latest, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import AccessDecision
from gitops.serving.http.admin import Asked, ProcessStatus
from gitops.serving.http.work import LogRecord
from gitops.serving.process import Reload

EXPORTS = ("export", "captureChangeBaseline", "readFeedBaseline")
"""The operations that count as exports."""

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_MOST_SERIES = 5000
_REPLICA_COUNTS = {
    "copied_files": "Files copied from the bucket.",
    "copied_bytes": "Bytes copied from the bucket.",
    "damaged_files": "Copied files that were found damaged.",
}
_NONE, _OTHER = "none", "other"

_M = TypeVar("_M", Counter, Histogram)


class _Series(Generic[_M]):
    """The series of a metric by their label values."""

    def __init__(self, number: _M, labels: int) -> None:
        self._number: _M = number
        self._other = (_OTHER,) * labels
        self._known: dict[tuple[str, ...], _M] = {}

    def of(self, *values: str) -> _M:
        """Return the series with these label values. Above a limit, further values share one series."""
        found = self._known.get(values)
        if found is None:
            values = values if len(self._known) < _MOST_SERIES else self._other
            found = self._known[values] = self._number.labels(*values)
        return found


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"omnigraph_{name}", text, labels, registry=None)


def _histogram(name: str, text: str, *labels: str) -> Histogram:
    return Histogram(f"omnigraph_{name}", text, labels, buckets=_SECONDS, registry=None)


class ServingMetrics:
    """Counts one worker's work.

    There is one per process, because the library stores the location of the counters in a global variable.
    """

    def __init__(self, folder: Path, number: int, *, replaces: bool) -> None:
        """Continue the counters of this worker number in the folder.

        `replaces` means that an earlier worker ended unexpectedly.
        """
        values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
        before = os.environ.get(_FOLDER)
        os.environ[_FOLDER] = str(folder)
        try:
            # Both files are opened here, so the variable is no longer needed afterwards.
            self._restarts = _counter("worker_restarts_total", "Workers that replaced a worker that had exited.")
            self._stuck = _counter(
                "stuck_queries_total", "Queries and other work that held a thread past their time limit."
            )
            self._exported = _counter("export_bytes_total", "Bytes of exports.")
            self._seconds = _Series(_histogram("http_request_seconds", "Time to answer a request.", "route"), 1)
            self._seconds.of(_NONE)
        finally:
            if before is None:
                del os.environ[_FOLDER]
            else:
                os.environ[_FOLDER] = before
        self._requests = _Series(_counter("http_requests_total", "Requests by their answer.", "route", "status"), 2)
        self._sent = _Series(_counter("http_response_bytes_total", "Bytes of bodies of answers.", "route"), 1)
        stored = _histogram("stored_query_seconds", "Time to answer with a stored query.", "graph", "query")
        self._stored = _Series(stored, 2)
        labels = "scope", "action", "decision", "rule"
        self._decisions = _Series(_counter("policy_decisions_total", "Decisions about access.", *labels), 4)
        rejected = _counter("admission_rejected_total", "Requests refused for lack of room.", "reason")
        self._rejected = _Series(rejected, 1)
        refused = _counter("tokens_refused_total", "Tokens that do not say who asks, by the reason.", "reason")
        self._refused = _Series(refused, 1)
        reloads = _counter("reload_total", "Attempts to serve a newer revision.", "result", "code")
        self._reloads = _Series(reloads, 2)
        recorded = _counter("use_record_writes_total", "Attempts to write who calls which stored query.", "result")
        self._recorded = _Series(recorded, 1)
        if replaces:
            self._restarts.inc()

    def answered(self, record: LogRecord) -> None:
        """Count a request, given its log record. A request whose client disconnected has no status."""
        route, sent, seconds = record["route"] or _NONE, record["bytes"], record["ms"] / 1000
        self._requests.of(route, str(record["status"] or _NONE)).inc()
        self._seconds.of(route).observe(seconds)
        self._sent.of(route).inc(sent)
        if route in EXPORTS:
            self._exported.inc(sent)
        if record["query"] is not None:
            self._stored.of(record["graph"], record["query"]).observe(seconds)

    def refused(self, reason: str) -> None:
        """Count a token that does not identify its holder, by reason."""
        self._refused.of(reason).inc()

    def decided(self, scope: str, action: PolicyAction, decision: AccessDecision | None) -> None:
        """Count an access decision, or None if the policy could not decide."""
        effect = "failed" if decision is None else "permit" if decision.allowed else "deny"
        rule = None if decision is None else decision.rule
        self._decisions.of(scope, action.value, effect, rule or _NONE).inc()

    def stuck(self) -> None:
        """Count a query that has exceeded its time limit and still occupies a thread."""
        self._stuck.inc()

    def rejected(self, reason: str) -> None:
        """Count a request that was refused for lack of capacity."""
        self._rejected.of(reason).inc()

    def recorded(self, result: str) -> None:
        """Count an attempt to write recorded use: `written` or `failed`."""
        self._recorded.of(result).inc()

    def reloaded(self, made: Reload) -> None:
        """Count an attempt to serve a newer revision, by its first error."""
        self._reloads.of(made.result.value, next(iter(made.codes), _NONE)).inc()


def exposition(folder: Path, asked: Asked, workers: int, now: float) -> tuple[str, bytes]:
    """Return all workers' metrics as text, and its media type. `workers` is the expected number of workers.

    `now` is the time in seconds since 1970.
    """
    return CONTENT_TYPE_LATEST, generate_latest(_Scrape(folder, asked, workers, now))


class _Scrape:
    """The metrics that the library writes as text."""

    def __init__(self, folder: Path, asked: Asked, workers: int, now: float) -> None:
        self._folder, self._asked, self._workers, self._now = folder, asked, workers, now

    def collect(self) -> Iterable[Metric]:
        # An empty file is still being created.
        files = [str(each) for each in sorted(self._folder.glob("*.db")) if each.stat().st_size]
        counted = MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]
        yield from sorted(counted, key=lambda each: str(each.name))
        statuses = self._asked.statuses
        yield _gauge("workers", "Processes that should serve.", {(): self._workers})
        yield _gauge("workers_answering", "Processes that answer.", {(): len(statuses)})
        if issuers := self._asked.issuers:
            up: dict[tuple[str, ...], float] = {(name,): float(why is None) for name, why in issuers.items()}
            yield _gauge("issuer_available", "Whether the keys of an identity provider could be read.", up, "issuer")
        if statuses:
            yield from _of_revision(statuses, self._now)
            if statuses[0].replica is not None:
                yield from _of_replica(statuses[0].replica)
            load = [each.load for each in statuses]
            yield _gauge("changes_under_way", "Changes that were admitted.", {(): sum(each.changes for each in load)})
            text = "Changes that wait for their turn on a branch."
            yield _gauge("changes_waiting", text, {(): sum(each.waiting for each in load)})
            yield _gauge("exports_open", "Exports under way.", {(): sum(each.exports for each in load)})


def _of_revision(statuses: tuple[ProcessStatus, ...], now: float) -> Iterable[Metric]:
    digests: dict[tuple[str, ...], float] = {(f"sha256:{each.revision.digest}",): 1.0 for each in statuses}
    yield _gauge("applied_revision_info", "Revisions that are served.", digests, "digest")
    oldest = min(each.revision.state_revision for each in statuses)
    yield _gauge("state_revision", "Number of the oldest state that is served.", {(): oldest})
    behind = max(each.behind for each in statuses)
    yield _gauge("serving_lag_revisions", "States that the newest one, when last looked for, is ahead.", {(): behind})
    accepted = min(each.accepted_at for each in statuses)
    text = "When the oldest generation that is served was accepted."
    yield _gauge("reload_last_success_timestamp_seconds", text, {(): accepted})
    yield _gauge("generation_age_seconds", "Time since then.", {(): max(0.0, now - accepted)})
    ready: dict[tuple[str, ...], float] = {}
    for status in statuses:
        for name, code in (status.graphs or {}).items():
            ready[(name,)] = min(ready.get((name,), 1.0), float(code is None))
    yield _gauge("graph_ready", "Whether a graph of the applied revision is served.", ready, "graph")


def _of_replica(form: Mapping[str, Any]) -> Iterable[Metric]:
    graphs = form["graphs"].items()
    versions: dict[tuple[str, ...], float] = {(name,): each["version"] for name, each in graphs}
    yield _gauge("replica_version", "The newest copied version of a graph.", versions, "graph")
    lags: dict[tuple[str, ...], float] = {(name,): each["lag_s"] for name, each in graphs}
    yield _gauge("replica_lag_seconds", "Time since nothing newer was in the bucket.", lags, "graph")
    yield _gauge("replica_held_bytes", "Bytes of copied files.", {(): form["held_bytes"]})
    yield _gauge("replica_most_bytes", "Bytes that copied files may have.", {(): form["most_bytes"]})
    for name, text in _REPLICA_COUNTS.items():
        family = CounterMetricFamily(f"omnigraph_replica_{name}", text)
        family.add_metric((), float(form[name]))
        yield family


def _gauge(name: str, text: str, samples: Mapping[tuple[str, ...], Any], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"omnigraph_{name}", text, labels=labels)
    for found, value in samples.items():
        family.add_metric(found, float(value))
    return family
