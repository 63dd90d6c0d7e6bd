"""What several contract suites need."""

from __future__ import annotations

import pytest

from gitops.database.storage.bucket import RetryLimit
from tests.support.clock import Hours


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    """The time by which requests are repeated, in every store of a test on object storage."""
    clock = Hours()
    retry = RetryLimit(1.0, clock.sleep, lambda: clock.now, clock.said.append)
    monkeypatch.setattr(RetryLimit, "of", lambda environ: retry)
    return clock
