"""On a forge: a request that moves a cluster is planned, shown, gated and carried out by jobs, as it is by hooks."""

from __future__ import annotations

import pytest

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.scope import ClusterScope
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import LEDGER, MAIN

pytestmark = pytest.mark.e2e


def _scope(hub: Hub) -> ClusterScope:
    entry = hub.loop.local().ledger(ClusterRule(name="brain", path="cluster")).view().entry
    assert entry is not None
    assert entry.scope is not None
    return entry.scope


def test_jobs_move_a_cluster_only_when_that_is_approved(hub: Hub, runner: Runner) -> None:
    rules = hub.loop.store.read(hub.loop.store.commit(hub.tip(MAIN)).tree, "gitops.yaml") or b""
    hub.push("carol", "main", {"gitops.yaml": rules.replace(b"environment: production", b"environment: staging")})
    (waiting,) = runner.settle()
    assert "cluster_change_pending" in waiting.text
    assert _scope(hub).target.environment == "production"
    head = hub.tip(LEDGER)

    assert hub.approve("bob", "cluster.brain").ok
    assert runner.tick("sweep").code == 0
    assert _scope(hub).target.environment == "staging"
    assert hub.tip(LEDGER) != head
    assert hub.loop.gitops("carol", "audit").code == 0
