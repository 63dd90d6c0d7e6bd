"""What several contract suites need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from itertools import count

import pytest

from gitops.database.storage.bucket import RetryLimit
from tests.support.clock import Hours
from tests.support.real_service import RealService

_NUMBERS = count(1)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    """The time by which requests are repeated, in every store of a test on object storage."""
    clock = Hours()
    retry = RetryLimit(1.0, clock.sleep, lambda: clock.now, clock.said.append)
    monkeypatch.setattr(RetryLimit, "of", lambda environ: retry)
    return clock


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
        return f"s3://team/{next(_NUMBERS)}"

    return place
