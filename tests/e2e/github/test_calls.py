"""How many calls of the forge an event costs."""

from __future__ import annotations

import pytest

from tests.e2e.github.stories import REWORDED
from tests.support.bot_stage import QUERY
from tests.support.forges.hub import Hub
from tests.support.forges.runner import Runner

pytestmark = pytest.mark.e2e


def test_what_changes_nothing_costs_few_calls_beside_conflicts(hub: Hub, runner: Runner) -> None:
    hub.world.habits.be_prompt()
    for number in range(5):
        hub.propose("alice", f"conflict-{number}", {"cluster/notes.gq": QUERY + b"\n" * number})
    runner.settle()
    hub.push("alice", "main", REWORDED)
    runner.settle()
    hub.push("alice", "main", {"README.md": b"Words.\n"})
    hub.calls()
    (run,) = runner.settle()
    assert run.text.count("refused as before") == 5
    # The push is elsewhere: no status, no deployment, and no question which request it merged.
    assert run.calls == ("GET /repos/octo/brain/pulls",)
