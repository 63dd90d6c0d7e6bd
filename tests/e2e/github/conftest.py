"""Clusters on a fake GitHub: each in the state that its name says, built once per worker and copied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import Built
from tests.e2e.github.stories import approved, retire
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner
from tests.support.loop import UNMAPPED, Loop, email

WithConfig = Callable[[str], Runner]
# Accounts are numbered in the order in which `Hub.of` makes them: bot, alice, bob, carol, mallory. Not all are listed, as in many
# teams: a test in which carol does more than to merge and to comment lists her.
ACCOUNTS = "".join(f"    github:{number}: {email(who)}\n" for number, who in enumerate(("alice", "bob"), start=1002))
CAROL = f"    github:1004: {email('carol')}\n"
HUB_CONFIG = f"{UNMAPPED}  accounts:\n{ACCOUNTS}"


@pytest.fixture(scope="session")
def on_github(built: Built) -> Loop:
    """Built once, never changed: the cluster is applied, and the rules know the accounts of people."""
    return built(HUB_CONFIG)


@pytest.fixture(scope="session")
def at_the_gate(on_github: Loop, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """Built once, never changed: alice's request 1 deletes a graph; it is planned, and waits for an approval."""
    folder = tmp_path_factory.mktemp("at-the-gate")
    with Hub.of(on_github.copied(folder / "loop")) as hub:
        retire(Runner(hub, folder / "jobs"))
    return hub


@pytest.fixture(scope="session")
def through_the_gate(on_github: Loop, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """Built once, never changed: the same request, approved by bob's key and planned again."""
    folder = tmp_path_factory.mktemp("through-the-gate")
    with Hub.of(on_github.copied(folder / "loop")) as hub:
        approved(Runner(hub, folder / "jobs"))
    return hub


@pytest.fixture
def hub(on_github: Loop, tmp_path: Path) -> Iterator[Hub]:
    """The cluster is applied, and nothing else has happened."""
    with Hub.of(on_github.copied(tmp_path / "loop")) as running:
        yield running


@pytest.fixture
def runner(hub: Hub, tmp_path: Path) -> Runner:
    """Runs the jobs of `hub`."""
    return Runner(hub, tmp_path / "jobs")


@pytest.fixture
def planned(at_the_gate: Hub, tmp_path: Path) -> Iterator[Runner]:
    """Runs the jobs of a cluster whose request 1, by alice, deletes a graph and waits for an approval."""
    with at_the_gate.copied(tmp_path / "planned") as hub:
        yield Runner.after(hub, tmp_path / "planned-jobs")


@pytest.fixture
def ready(through_the_gate: Hub, tmp_path: Path) -> Iterator[Runner]:
    """Runs the jobs of a cluster whose request 1, by alice, deletes a graph and is approved by bob."""
    with through_the_gate.copied(tmp_path / "ready") as hub:
        yield Runner.after(hub, tmp_path / "ready-jobs")


@pytest.fixture
def with_config(built: Built, tmp_path: Path) -> Iterator[WithConfig]:
    """Runs the jobs of a cluster whose `gitops.yaml` has more lines below `approvals:`."""
    with ExitStack() as opened:
        yield lambda lines: Runner(
            opened.enter_context(Hub.of(built(HUB_CONFIG + lines).copied(tmp_path / "configured"))), tmp_path / "jobs"
        )
