"""One hypothesis profile for every test, and the services that a worker process starts once.

No deadlines, because a busy machine is no fault of the code.
"""

from __future__ import annotations

import ctypes
import fnmatch
import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.support import pen, story_ledgers
from tests.support.effort import FULL, cases

if TYPE_CHECKING:
    from tests.support.materialize.server_world import ServerWorld
    from tests.support.real_service import RealService
    from tests.support.s3 import S3Place, S3Server

_ROOTS = count(1)
"""Numbers of the roots on real services."""

settings.register_profile("gitops", deadline=None, print_blob=True, max_examples=cases(100), derandomize=not FULL)
settings.load_profile("gitops")
# No test looks into the cache of who runs it; those that are about a cache say where theirs is.
os.environ["GITOPS_CACHE"] = "off"
# Nor does one depend on where it runs: in a job of a build server verbs refuse what would be lost with its checkout.
os.environ.pop("CI", None)
# Tests write many small files: a sixth of their time they wait for a disk. Where memory has room for them, they lie there.
_MEMORY, _ROOM = Path("/dev/shm"), 6 * 2**30  # noqa: S108 - the folders that pytest makes there are private
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))
    # Laws make a folder for each case, and would wait for the disk most of their time.
    tempfile.tempdir = str(_MEMORY)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Free the memory that the folders of this run take, unless a test failed: then they are there to be looked at."""
    made = session.config._tmp_path_factory._basetemp  # type: ignore[attr-defined]
    if (
        exitstatus == 0
        and made is not None
        and made.is_relative_to(_MEMORY)
        and not hasattr(session.config, "workerinput")
    ):
        shutil.rmtree(made, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: a fifth of the time, a test waits for a disk or for another program."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests as laws, of which a full run tries more cases, and the tests of `data/slow.txt` as slow."""
    lines = (Path(__file__).parent / "data" / "slow.txt").read_text(encoding="utf-8").splitlines()
    slow = re.compile("|".join(fnmatch.translate(line) for line in lines if not line.startswith("#")))
    for item in items:
        if slow.match(item.nodeid):
            item.add_marker("slow")
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("law")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and collected tests out of garbage collection: they stay, and each round would visit them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # As in a command, from the first test on: most of what tests allocate goes without a collection.
        gc.set_threshold(400_000, 20, 20)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Audit the ledgers that the test leaves; one that failed says enough."""
    passed = False
    try:
        result = yield
        passed = True
    finally:
        story_ledgers.check(item, passed=passed)
    return result


_C, _GROWN = ctypes.CDLL(None), 64 * 2**20
_kept = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give back what files have parsed and freed whenever a worker grew: otherwise it grows to twice its size."""
    global _kept  # noqa: PLW0603
    if (nextitem is not None and nextitem.path == item.path) or _resident() < _kept + _GROWN:
        return
    if (texts := sys.modules.get("tests.support.code_texts")) is not None:
        texts.modules.cache_clear()
    gc.collect()
    if hasattr(_C, "malloc_trim"):  # of glibc
        _C.malloc_trim(0)
    _kept = _resident()


def _resident() -> int:
    """The bytes of memory that this process has; 0 where the system does not say so in a file."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


@pytest.fixture(scope="session", autouse=True)
def _pen() -> None:
    """What this process signs, it signs without a program."""
    pen.install()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 service on loopback, one for each worker process."""
    # Imported late: the double takes a second to load, and most tests need none.
    from tests.support.s3 import S3Server

    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Place]:
    """An empty bucket of the service, which the environment of this process leads to."""
    from tests.support.s3 import S3Place

    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    s3_server.forget()
    yield S3Place(s3_server, s3_server.bucket())
    s3_server.forget()


@pytest.fixture(scope="session")
def _started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[RealService], Mapping[str, str]]]:
    """Starts a real service once for each worker process: the environment that reaches it and its bucket `team`."""
    with ExitStack() as running:
        yield cache(lambda service: running.enter_context(service.serving(tmp_path_factory.mktemp("service"), "team")))


@pytest.fixture
def real_root(
    _started: Callable[[RealService], Mapping[str, str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[RealService], str]:
    """An empty root on a real service, which the environment of this process leads to; skips the test without the service."""

    def place(service: RealService) -> str:
        if service.program is None:
            pytest.skip(service.missing)
        for name, value in _started(service).items():
            monkeypatch.setenv(name, value)
        return f"s3://team/{next(_ROOTS)}"

    return place


@pytest.fixture(scope="session")
def stand_in_server() -> Iterator[ServerWorld]:
    """PostgreSQL behind the proxy of a Materialize target, one for each worker process."""
    from tests.support.materialize.postgres import PostgresServer
    from tests.support.materialize.proxy import MaterializeProxy
    from tests.support.materialize.server_world import ServerWorld

    with PostgresServer() as server, MaterializeProxy(server.socket) as proxy:
        world = ServerWorld(server, proxy)
        yield world
        world.close()


@pytest.fixture
def stand_in(stand_in_server: ServerWorld) -> ServerWorld:
    """The stand-in of a Materialize target, without anything in it."""
    stand_in_server.reset()
    return stand_in_server
