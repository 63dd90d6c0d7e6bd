"""The cluster that stories are told on: once with its ledger in a folder on disk, once with it in memory."""

from __future__ import annotations

import pytest

from tests.support.cluster import Cluster


@pytest.fixture(params=["folder", "memory"])
def cluster(request: pytest.FixtureRequest, tmp_path) -> Cluster:
    return Cluster(tmp_path, memory=request.param == "memory")
