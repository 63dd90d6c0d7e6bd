"""Loops for the tests: each in the state that its name says, built once per worker and copied for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import prefork
from tests.support.bot_stage import WRITERS, Stage
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import CONFIG, DELETE_LEGACY, PEOPLE, UNMAPPED, Loop, LoopServer, email

Built = Callable[..., Loop]
# The number of alice's account, which those of bob and carol follow.
_NUMBERS = (("github", 11), ("gitlab", 1002), ("gitea", 1002))
_ACCOUNTS = [f"    {kind}:{first + n}: {email(who)}\n" for kind, first in _NUMBERS for n, who in enumerate(PEOPLE)]
ON_FORGES = f"{UNMAPPED}  accounts:\n{''.join(_ACCOUNTS)}  via_forge: [reversible, irreversible]\n"


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
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Loops of a configuration whose cluster is applied, each built once and never changed."""
    return cache(lambda *how: Loop.build(tmp_path_factory.mktemp("built") / "loop", *how))


@pytest.fixture(scope="session")
def applied(built: Built) -> Loop:
    """Built once, never changed: the cluster is applied."""
    return built(CONFIG)


@pytest.fixture(scope="session")
def merged(applied: Loop, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: alice's request 1 deletes a graph; it is merged, and waits for an approval."""
    loop = applied.copied(tmp_path_factory.mktemp("merged") / "loop")
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.merge("carol", 1)
    return loop


@pytest.fixture
def loop(request: pytest.FixtureRequest, built: Built, tmp_path: Path) -> Loop:
    """The cluster is applied, and nothing else has happened. A test may name the object format of all repositories."""
    how = (CONFIG, request.param) if hasattr(request, "param") else (CONFIG,)
    return built(*how).copied(tmp_path / "loop")


@pytest.fixture
def pending(merged: Loop, tmp_path: Path) -> Loop:
    """A graph delete by alice is merged, and waits for an approval."""
    return merged.copied(tmp_path / "pending")


@pytest.fixture
def quorum(built: Built, tmp_path: Path) -> Loop:
    """As `loop`, but two people have to approve."""
    return built(CONFIG + "  required: 2\n").copied(tmp_path / "quorum")


@pytest.fixture
def short(built: Built, tmp_path: Path) -> Loop:
    """As `loop`, but an approval lasts an hour."""
    return built(CONFIG + "  expires_after: 1h\n").copied(tmp_path / "short")


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


@pytest.fixture
def judged(built: Built, tmp_path: Path) -> Loop:
    """As `loop`, but the forge's own verdict is asked for."""
    return built(CONFIG + "  forge_verdict: true\n").copied(tmp_path / "judged")


@pytest.fixture
def stage(known: Loop) -> Stage:
    """`known` on a forge that has what the large ones have; alice, bob and carol may write."""
    return Stage(known, people=dict(WRITERS))


@pytest.fixture
def known(built: Built, tmp_path: Path) -> Loop:
    """As `loop`, but what people do on the forge counts as their approval."""
    return built(ON_FORGES).copied(tmp_path / "known")
