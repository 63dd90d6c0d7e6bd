"""Drift on GitHub: told once for each cluster, brought up to date, and taken back when it is gone."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.github.stories import good
from tests.support.forges.hub import APP, Hub
from tests.support.forges.records import Pull
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, LEDGER

pytestmark = pytest.mark.e2e


def test_drift_is_one_issue_until_it_is_gone(hub: Hub, runner: Runner) -> None:
    quiet = runner.tick("drift")
    assert (quiet.code, "none" in quiet.text) == (0, True)
    assert hub.world.issues == {}

    aside = hub.loop.folder / "aside"
    shutil.move(hub.loop.graph("legacy"), aside)
    entry = hub.tip(LEDGER)
    for _ in range(2):
        seen = runner.tick("drift")
        assert "graph.legacy" in seen.text
    (issue,) = hub.world.issues.values()
    assert not isinstance(issue, Pull)
    assert (issue.state, "graph.legacy" in issue.body) == ("open", True)
    assert "gitops refresh" in issue.body
    assert hub.tip(LEDGER) == entry

    shutil.move(aside, hub.loop.graph("legacy"))
    assert runner.tick("drift").code == 0
    assert issue.state == "closed"


def test_the_comments_of_an_app_are_no_commands(hub: Hub, runner: Runner) -> None:
    """What an app's token writes starts workflows, other than what a job's own token writes: the bot hears itself."""
    runner.login = APP
    pull = hub.propose("alice", "retire", DELETE_LEGACY)
    planned, heard = runner.settle()
    assert (planned.job.verb, heard.job.verb) == ("plan", "command")
    assert (heard.code, heard.calls) == (0, ())
    assert "not a command" in heard.text
    assert runner.settle() == []
    (comment,) = hub.world.issue(pull.number).comments
    assert (comment.author, comment.reactions) == (APP, [])
    hub.push("alice", "retire", {**DELETE_LEGACY, "README.md": b"More.\n"}, pull.base)
    runner.settle()
    assert [c.author for c in hub.world.issue(pull.number).comments] == [APP]
    good(runner)
