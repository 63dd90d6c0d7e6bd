"""Two machines for a worker process: one for the tests that only read or write in places of their own, one with systemd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gitops.hosts.channel import Channel, open_channel
from gitops.hosts.ssh_config import SshLogin
from tests.support.machines import Machine, Machines


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    with Machines(tmp_path_factory.mktemp("machines")) as made:
        yield made


@pytest.fixture(scope="session")
def machine(machines: Machines) -> Machine:
    return machines.start("web1")


@pytest.fixture(scope="session")
def login(machines: Machines) -> SshLogin:
    return SshLogin(identity=str(machines.identity))


@pytest.fixture(scope="session")
def channel(machine: Machine, login: SshLogin) -> Iterator[Channel]:
    with open_channel(machine.connection(), {}, login) as opened:
        yield opened


@pytest.fixture(scope="session")
def systemd(machines: Machines) -> Machine:
    return machines.start("unit1", systemd=True)


@pytest.fixture(scope="session")
def systemd_channel(systemd: Machine, login: SshLogin) -> Iterator[Channel]:
    with open_channel(systemd.connection(), {}, login) as opened:
        yield opened


@pytest.fixture
def opening() -> Iterator[ExitStack]:
    """Closes the channels that a test opens itself."""
    with ExitStack() as stack:
        yield stack
