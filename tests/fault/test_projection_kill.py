"""Kill an apply around the rows of its strategies: the next apply, of another process, writes what the ledger says."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace

import pytest

from gitops.cluster.model.compute import owned_rows
from gitops.repository.wiring.stores import declared_target
from tests.support.cluster import Cluster, codes
from tests.support.pages import ROOT
from tests.support.prefork import PYTHON

DEADLINE = 60
POINTS = [
    "ledger.commit.after_state",
    *(f"strategies.{moment}_{step}" for step in ("write_rows", "delete_rows") for moment in ("before", "after")),
    "ledger.commit.before_state",
]
APPLY_TO_THE_POINT = """
import sys
from gitops.repository.wiring.stores import folder_workspace
from gitops.cluster.apply.apply import apply
from tests.support.cluster import DieAt
apply(folder_workspace(sys.argv[1], actor="dead", faults=DieAt(sys.argv[2])))
"""


class OnServer(Cluster):
    """A cluster that declares nothing but strategies of `serving`, on PostgreSQL in the place of a target."""

    def __init__(self, folder, url):
        self.environ = {"MZ_URL": url}
        super().__init__(folder)
        self.graphs, self.policies = {}, {}
        self.declare(target_size={"target_size": "50cc"}, burst={"burst_replica_size": "800cc"})

    def declare(self, **strategies):
        targets = {"prod": {"kind": "materialize", "url": {"env": "MZ_URL"}}}
        self.options["compute"] = {"targets": targets, "strategies": {"serving": {"target": "prod", **strategies}}}
        self.save()

    def workspace(self, *given, **named):
        made = super().workspace(*given, **named)
        return replace(made, open_target=lambda target: declared_target(self.environ, target))


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_an_apply_that_is_killed_around_its_rows_is_made_good_by_the_next(tmp_path, stand_in, point):
    owner = stand_in.add_cluster("serving")
    cluster = OnServer(tmp_path, stand_in.url())
    assert cluster.import_().ok
    assert codes(cluster.apply()) == []
    cluster.declare(target_size={"target_size": "100cc"})
    process = subprocess.run(
        [*PYTHON, "-c", APPLY_TO_THE_POINT, str(cluster.folder), point],
        cwd=ROOT,
        check=False,
        timeout=DEADLINE,
        env={**os.environ, **cluster.environ},
    )
    assert process.returncode == -signal.SIGKILL
    holder = cluster.status().observations.held.info
    assert holder is not None
    assert cluster.unlock(holder.lock_id).ok
    outcome = cluster.apply()
    assert outcome.converged
    rows = {(row.cluster_id, row.strategy_type): row.config["target_size"] for row in stand_in.strategy_rows}
    assert rows == {(owner, "target_size"): "100cc"}
    assert len(stand_in.strategy_rows) == 1
    (row,) = owned_rows(cluster.state.observations)
    assert (row.cluster_id, row.digest) == (owner, cluster.state.resources[row.address].digest)
    assert (codes(cluster.apply()), codes(cluster.status())) == ([], [])
