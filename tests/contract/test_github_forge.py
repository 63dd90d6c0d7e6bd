"""The forge contract over the GitHub adapter, HTTP and a fake service that is held to GitHub's own description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.forge_suite import ForgeContract
from tests.support.forge_world import ForgeWorld
from tests.support.forges.people import OverHttp, populate
from tests.support.forges.server import GitHubServer
from tests.support.forges.world import host


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitHubServer]:
    world = host(tmp_path / "octo.git")
    populate(world)
    world.habits.creates_labels = world.habits.shows_rules = True
    with GitHubServer(world) as running:
        yield running


class TestGitHub(ForgeContract):
    @pytest.fixture
    def world(self, server: GitHubServer) -> ForgeWorld:
        return OverHttp(server.world, server=server)
