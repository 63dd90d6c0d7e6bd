"""Loops for the tests: each in the state that its name says, built once per worker and copied for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import prefork
from tests.support.bot_stage import WRITERS, Stage
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import CONFIG, DELETE_LEGACY, PEOPLE, UNMAPPED, Loop, LoopServer, email

# The number of alice's account, which those of bob and carol follow.
ON_FORGES = (("github", 11), ("gitlab", 1002), ("gitea", 1002))


@pytest.fixture(scope="session", autouse=True)
def program() -> None:
    """Every program that a test starts by `PROGRAM` is forked from one that has its imports behind it."""
    prefork.start()


@pytest.fixture(autouse=True)
def _journey(request: pytest.FixtureRequest) -> Iterator[None]:
    """A journey starts its programs and hooks as a user does."""
    if request.node.get_closest_marker("journey") is None:
        yield
        return
    with prefork.started_programs():
        yield


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Real servers of git, one set for each worker process."""
    with Hosts(tmp_path_factory.mktemp("hosts") / "hosts") as found:
        yield found


@pytest.fixture(scope="session")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: the cluster is applied."""
    return Loop.build(tmp_path_factory.mktemp("applied"))


@pytest.fixture(scope="session")
def merged(applied: Loop, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: alice's request 1 deletes a graph; it is merged, and waits for an approval."""
    loop = applied.copied(tmp_path_factory.mktemp("merged") / "loop")
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.merge("carol", 1)
    return loop


@pytest.fixture(scope="session")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: as `applied`, but two people have to approve."""
    return Loop.build(tmp_path_factory.mktemp("strict"), CONFIG + "  required: 2\n")


@pytest.fixture
def loop(applied: Loop, tmp_path: Path) -> Loop:
    """The cluster is applied, and nothing else has happened."""
    return applied.copied(tmp_path / "loop")


@pytest.fixture
def pending(merged: Loop, tmp_path: Path) -> Loop:
    """A graph delete by alice is merged, and waits for an approval."""
    return merged.copied(tmp_path / "pending")


@pytest.fixture
def quorum(strict: Loop, tmp_path: Path) -> Loop:
    """As `loop`, but two people have to approve."""
    return strict.copied(tmp_path / "quorum")


@pytest.fixture(scope="session")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: as `applied`, but an approval lasts an hour."""
    return Loop.build(tmp_path_factory.mktemp("hasty"), CONFIG + "  expires_after: 1h\n")


@pytest.fixture
def short(hasty: Loop, tmp_path: Path) -> Loop:
    """As `loop`, but an approval lasts an hour."""
    return hasty.copied(tmp_path / "short")


@pytest.fixture
def web(loop: Loop) -> Iterator[Loop]:
    """The same as `loop`, over smart HTTP: who pushes is who has logged in."""
    with LoopServer(loop) as server:
        loop.http = server
        yield loop


@pytest.fixture(params=list(HostKind))
def hosted(request: pytest.FixtureRequest, loop: Loop, hosts: Hosts) -> Loop:
    """The same as `loop`, over each kind of real host."""
    return loop.published(hosts, request.param)


@pytest.fixture(scope="session")
def with_verdict(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: as `applied`, but the forge's own verdict is asked for."""
    return Loop.build(tmp_path_factory.mktemp("judged"), CONFIG + "  forge_verdict: true\n")


@pytest.fixture
def judged(with_verdict: Loop, tmp_path: Path) -> Loop:
    """As `loop`, but the forge's own verdict is asked for."""
    return with_verdict.copied(tmp_path / "judged")


@pytest.fixture(scope="session")
def with_accounts(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: as `applied`, but what people do on the forge counts as their approval."""
    numbered = [(kind, first + n, who) for kind, first in ON_FORGES for n, who in enumerate(PEOPLE)]
    accounts = "".join(f"    {kind}:{number}: {email(who)}\n" for kind, number, who in numbered)
    config = f"{UNMAPPED}  accounts:\n{accounts}  via_forge: [reversible, irreversible]\n"
    return Loop.build(tmp_path_factory.mktemp("accounts"), config)


@pytest.fixture
def stage(known: Loop) -> Stage:
    """`known` on a forge that has what the large ones have; alice, bob and carol may write."""
    return Stage(known, people=dict(WRITERS))


@pytest.fixture
def known(with_accounts: Loop, tmp_path: Path) -> Loop:
    """As `loop`, but what people do on the forge counts as their approval."""
    return with_accounts.copied(tmp_path / "known")
