"""The rows of strategies on PostgreSQL behind the proxy: those of the ledger after an apply, whatever is cut on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.repository.wiring.stores import declared_target
from tests.support.cluster import Cluster, codes
from tests.support.target_world import Fault


@pytest.fixture
def cluster(tmp_path, stand_in):
    class OnServer(Cluster):
        def workspace(self, *given, **named):
            def opened(target):
                return declared_target({"MZ_URL": stand_in.url()}, target)

            return replace(super().workspace(*given, **named), open_target=opened)

    made = OnServer(tmp_path, memory=True)
    made.options["compute"] = {
        "targets": {"prod": {"kind": "materialize", "url": {"env": "MZ_URL"}}},
        "strategies": {
            "odd": {
                "target": "prod",
                "cluster": 'My "Cluster"; drop',
                "target_size": {"target_size": "50cc"},
                "burst": {"burst_replica_size": "800cc"},
            }
        },
    }
    made.save()
    assert made.import_().ok
    return made


def test_the_rows_follow_the_ledger(cluster, stand_in):
    owner = stand_in.add_cluster('My "Cluster"; drop')
    assert codes(cluster.apply()) == []
    rows = {row.strategy_type: (row.cluster_id, dict(row.config)) for row in stand_in.strategy_rows}
    ours = {"declared_by": "library (memory:)", "cooldown_s": 0}
    assert rows == {
        "target_size": (owner, {"target_size": "50cc", **ours}),
        "burst": (owner, {"burst_replica_size": "800cc", **ours}),
    }
    before = stand_in.strategy_rows
    assert codes(cluster.apply()) == []
    assert stand_in.strategy_rows == before
    del cluster.options["compute"]["strategies"]["odd"]["burst"]
    cluster.save()
    assert codes(cluster.apply()) == []
    assert [row.strategy_type for row in stand_in.strategy_rows] == ["target_size"]


@pytest.mark.parametrize(
    ("fault", "after"), [(Fault.CUT_BEFORE, 2), (Fault.CUT_AFTER, 5), (Fault.CUT_BEFORE, 8), (Fault.CUT_AFTER, 8)]
)
def test_a_connection_that_is_cut_loses_nothing(cluster, stand_in, fault, after):
    stand_in.add_cluster('My "Cluster"; drop')
    # The first two are those of the look before the commit, which needs no answer.
    stand_in.fail_next(fault, after=after)
    assert codes(cluster.apply()) == ["projection_pending"]
    assert codes(cluster.apply()) == []
    assert sorted(row.strategy_type for row in stand_in.strategy_rows) == ["burst", "target_size"]


def test_a_server_that_is_down_delays_no_merge(cluster, stand_in):
    stand_in.add_cluster('My "Cluster"; drop')
    stand_in.stop()
    found = cluster.apply()
    assert (codes(found), found.converged) == (["projection_pending"], True)
    stand_in.start()
    assert codes(cluster.apply()) == []
    assert len(stand_in.strategy_rows) == 2
