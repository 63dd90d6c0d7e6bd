"""`gitops init --upgrade` proposes the rule of new repositories about approvals of data, as a change request like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.forge.port import RequestState
from tests.e2e.conftest import Built
from tests.support.loop import CONFIG, Loop
from tests.support.loop_data import audited

pytestmark = pytest.mark.e2e

RULES = CONFIG + "apply: {parallel: 2}  # two at once\n"


@pytest.fixture
def old(built: Built, tmp_path: Path) -> Loop:
    """A repository from before the rule."""
    return built(RULES).copied(tmp_path / "old")


def _rules(loop: Loop, commit: str) -> str:
    return (loop.store.read(loop.store.commit(commit).tree, "gitops.yaml") or b"").decode()


def test_the_rule_is_proposed_shown_approved_and_then_nothing_is_left(old: Loop) -> None:
    before = old.gitops("bob", "doctor", check=False).text
    assert "an approval for a graph of 5 rows covers up to 1,005 rows, because gitops.yaml:" in before
    assert "gitops init --upgrade" in before
    main = old.tip()
    shown = old.gitops("alice", "init", "--upgrade", "--diff").text
    assert "+  data_growth: {rows: 0}" in shown
    assert old.book.requests() == ()
    done = old.gitops("alice", "init", "--upgrade").text
    assert "+  data_growth: {rows: 0}" in done
    assert "request 1: open for upgrade-approval-rules" in done
    request = old.request(1)
    assert _rules(old, request.head) == RULES.replace("approvals:\n", "approvals:\n  data_growth: {rows: 0}\n")
    assert old.store.changed_paths(old.store.commit(main).tree, old.store.commit(request.head).tree) == ("gitops.yaml",)
    assert old.tip() == main
    assert (old.clone("alice") / "gitops.yaml").read_text() == RULES, "the work tree keeps its rules"
    assert "an approval covers growth of" in old.comment(1)
    # Again: nothing else is made.
    again = old.gitops("alice", "init", "--upgrade").text
    assert "branch upgrade-approval-rules already proposes it" in again
    assert [each.number for each in old.book.requests()] == [1]
    assert old.gitops("bob", "approve", "trust.brain", "--request", "1", check=False).code == 2
    assert old.confirmed("bob", "approve", "trust.brain", "--request", "1").code == 0
    old.merge("bob", 1)
    assert old.request(1).state is RequestState.MERGED
    form = json.loads(old.gitops("alice", "init", "--upgrade", "--json").text)
    assert form["rules"] is None
    assert "laxer" not in old.gitops("bob", "doctor", check=False).text
    assert audited(old).ok


def test_rows_that_were_chosen_are_left_and_doctor_names_their_line(built: Built, tmp_path: Path) -> None:
    text = CONFIG + "  data_growth:\n    rows: 500\n"
    loop = built(text).copied(tmp_path / "chosen")
    assert json.loads(loop.gitops("alice", "init", "--upgrade", "--json").text)["rules"] is None
    line = text.splitlines().index("    rows: 500") + 1
    assert f"laxer than rows: 0 by gitops.yaml:{line}" in loop.gitops("bob", "doctor", check=False).text
