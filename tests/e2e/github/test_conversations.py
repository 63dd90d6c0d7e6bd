"""How often git talks to the forge for one event: each conversation takes as long as the network does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.bot_stage import QUERY
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner

pytestmark = pytest.mark.e2e

OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"
Counted = Callable[[str], int]


@pytest.fixture
def counted(hub: Hub, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Run the one job that waits, and count the conversations of its program, without those of its clone."""
    begun: list[str] = []
    answer, prepare = hub.server.answer, runner._prepare

    def noting(environ: dict[str, str], body: bytes) -> bytes:
        # Each begins with the list of refs or of what the server can do, and this is asked for once.
        if environ["PATH_INFO"].endswith("/info/refs"):
            begun.append(environ["QUERY_STRING"])
        return answer(environ, body)

    def prepared(job: object) -> object:
        place = prepare(job)
        begun.clear()
        return place

    monkeypatch.setattr(hub.server, "answer", noting)
    monkeypatch.setattr(runner, "_prepare", prepared)

    def run(verb: str) -> int:
        (done,) = runner.settle()
        assert (done.job.verb, done.code) == (verb, 0), done.text
        return len(begun)

    return run


def test_an_event_talks_to_the_forge_a_few_times(hub: Hub, counted: Counted) -> None:
    number = hub.propose("alice", "query", {"cluster/notes.gq": QUERY}).number
    # What refs there are; whether the head is still the head; and the plan is kept. The new clone has the head.
    assert counted("plan") == 3
    # The plan before this one is fetched.
    hub.push("alice", "query", {"cluster/README.md": b"More.\n"}, hub.tip("refs/heads/query"))
    assert counted("plan") == 4
    for name in ("other", "third", "fourth"):
        hub.propose("bob", name, {"cluster/notes.gq": OTHER})
        assert counted("plan") <= 4
    hub.merge("carol", number)
    # One fetches the plans of the three requests that are planned again, and each of these has two: whether its head is still
    # the head, and its plan is kept. One records the changeset before it begins.
    assert counted("apply") <= 18
