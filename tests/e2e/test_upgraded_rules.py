"""`gitops init --upgrade` proposes the rule of new repositories about approvals of data, as a change request like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gitops.database.graph.load import LoadMode
from gitops.forge.port import RequestState
from tests.e2e.conftest import Built
from tests.support.loop import CONFIG, DELETE_LEGACY, MAIN, Loop
from tests.support.loop_data import applied_again, audited, load

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
    assert "branch upgrade-approval-rules proposes it already" in again
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


def test_an_approval_for_a_few_rows_covers_no_others(built: Built, tmp_path: Path) -> None:
    """And both versions are in the log and the audit: the one that was seen, and the one that was applied."""
    loop = built(CONFIG + "  data_growth: {rows: 0}\n").copied(tmp_path / "strict")
    load(loop, 5)
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    outcome = loop.sign_approval("bob", "graph.legacy")
    assert outcome.ok
    load(loop, 1000, mode=LoadMode.OVERWRITE)
    loop.arrived(loop.approvals()[-1])
    assert loop.graph("legacy").exists()
    assert applied_again(loop) & {"approval_data_grew", "approval_data_replaced"}


def test_the_log_and_the_audit_show_the_version_seen_and_the_version_applied(built: Built, tmp_path: Path) -> None:
    loop = built(CONFIG + "  data_growth: {rows: 0}\n").copied(tmp_path / "versions")
    load(loop, 20)
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    outcome = loop.sign_approval("bob", "graph.legacy")
    assert outcome.approval is not None
    load(loop, 22)
    loop.arrived(loop.approvals()[-1])
    assert not loop.graph("legacy").exists()
    (note,) = [each for each in audited(loop).notes if "bob@people.example saw 20 rows in version" in each]
    assert "applied to 22 rows in version" in note
    log = loop.gitops("carol", "log", "--limit", "3", "--verbose", check=False).text
    assert "20 rows in version" in log
    assert "22 rows in version" in log
