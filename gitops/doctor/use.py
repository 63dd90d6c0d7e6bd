"""Checks the record of calls of a cluster's query servers, if the rules in force ask for one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.address import Kind, of_kind
from gitops.core.errors import GitopsError
from gitops.doctor.findings import DoctorFinding, attempt, error, good, unknown, warning
from gitops.render.words import count
from gitops.repository.wiring.local import LocalRepository

_START = "start each query server with the key: gitops serve --record-key FILE (docs/recorded-use.md)"


def use_findings(local: LocalRepository, rule: ClusterRule, now: datetime) -> Iterator[DoctorFinding]:
    """Check that a key is listed, and that each graph has a record of today or yesterday."""
    position, gaps = attempt("use.keys", lambda: local.position(rule), rule.name)
    yield from gaps
    if position is None or position.trust is None or position.trust.recording != "counts":
        return
    trust, scope = position.trust, position.scope
    if not trust.signs_records:
        fix = "gitops.yaml: serve: {record_keys: [ssh-ed25519 AAAA...]}, the public keys of the query servers"
        yield error("use.keys", "serve.record is counts, but serve.record_keys lists no key", fix, rule.name)
        return
    yield good("use.keys", f"{count(len(trust.signs_records), 'key')} can sign records of calls", rule.name)
    try:
        stores = local.stores(
            rule, None if scope is None else scope.storage, rule.name if scope is None else scope.home
        )
        state = stores.ledger.view().state
        if stores.use is None or state is None:
            detail = "this machine has no storage of the graphs, so whether calls are recorded is not known here"
            yield unknown("use.fresh", detail, "run gitops doctor on the server", rule.name)
            return
        known = stores.use.newest_days()
    except GitopsError as problem:
        yield unknown("use.fresh", f"{problem.code}: {problem.detail}", place=rule.name)
        return
    newest = {address.name: known.get(address.name) for address in of_kind(state.resources, Kind.GRAPH)}
    yesterday = (now - timedelta(days=1)).date().isoformat()
    stale = sorted(graph for graph, day in newest.items() if day is None or day < yesterday)
    for graph in stale:
        since = f"since {newest[graph]}" if newest[graph] else "yet"
        yield warning("use.fresh", f"the calls of graph {graph} are not recorded {since}", _START, rule.name)
    if newest and not stale:
        yield good("use.fresh", f"the calls of {count(len(newest), 'graph')} are recorded", rule.name)
