"""A watched forge is the forge, and knows whether it is worth coming back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gitops.cli.served import WatchedForge
from gitops.core.errors import GitopsError, RemoteError
from gitops.git.port import Person
from tests.support.clock import FixedClock
from tests.support.memory_forge import MemoryForge

LATER = RemoteError("forge_unavailable", "busy", retryable=True)
NEVER = RemoteError("forge_refused", "no", status=403)


class Failing(MemoryForge):
    def me(self):
        raise LATER

    def comments(self, number):
        raise NEVER


@pytest.fixture
def watched() -> WatchedForge:
    return WatchedForge(Failing(Person("bot", "bot@example.org"), FixedClock(datetime(2026, 3, 1, tzinfo=UTC))))


def test_it_answers_as_the_forge_does(watched) -> None:
    assert watched.features == watched._forge.features
    assert watched.requests() == ()
    with pytest.raises(GitopsError) as failure:
        watched.request(7)
    assert failure.value.code == "request_not_found"
    assert watched.failure is None


def test_only_what_may_pass_is_remembered(watched) -> None:
    with pytest.raises(RemoteError):
        watched.comments(7)
    assert watched.failure is None
    with pytest.raises(RemoteError):
        watched.me()
    assert watched.failure is LATER
