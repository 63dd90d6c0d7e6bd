"""People sign what they saw: a command names its plan, a terminal shows it and asks, and nothing that moved since is signed."""

from __future__ import annotations

import shlex

import pytest

from tests.support.loop import (
    CLUSTER_YAML,
    CONFIG,
    DELETE_LEGACY,
    MAIN,
    Loop,
    email,
    printed_command,
)
from tests.support.typed import typed

pytestmark = pytest.mark.e2e

RULES = CONFIG.replace(
    "carol@people.example]\n",
    "carol@people.example, mallory@people.example]\n  break_glass: [mallory@people.example]\n",
)


@pytest.fixture
def asked(loop: Loop) -> tuple[Loop, str]:
    """Alice's request 1 makes approvals end after three days; the approve command of its comment."""
    loop.move("refs/heads/rules", loop.commit("alice", {"gitops.yaml": CONFIG.encode() + b"  expires_after: 3d\n"}))
    return loop, printed_command(loop.comment(1))


def test_what_the_author_pushed_after_the_comment_is_not_signed(asked: tuple[Loop, str]) -> None:
    """Bob reads "three days", alice force-pushes approvers and a right to act alone, bob runs the command that he has copied."""
    loop, command = asked
    assert "an approval lasts: `7 days` becomes `3 days`" in loop.comment(1)
    loop.clone("bob")
    loop.move("refs/heads/rules", loop.commit("alice", {"gitops.yaml": RULES.encode()}))
    refused = loop.gitops("bob", *shlex.split(command)[1:], check=False)
    assert (refused.code, "approval_plan_changed" in refused.text) == (1, True)
    assert "+ approver: mallory@people.example (permits more)" in refused.text
    assert "+ acts alone in an emergency: mallory@people.example (permits more)" in refused.text
    assert loop.approvals() == ()


def test_the_comment_says_what_a_change_of_rules_means(loop: Loop) -> None:
    config = RULES.replace("mallory@people.example]", '"`@all`[x](http://evil)"]', 1).encode()
    loop.move("refs/heads/rules", loop.commit("alice", {"gitops.yaml": config}))
    comment = loop.comment(1)
    assert "### Keys and rules" in comment
    assert "- approver: `` `@all`[x](http://evil) `` **added**, **permits more**" in comment
    assert "- acts alone in an emergency: `mallory@people.example` **added**, **permits more**" in comment


def test_without_a_terminal_the_command_signs_nothing_that_is_not_named(asked: tuple[Loop, str]) -> None:
    loop, command = asked
    shown = loop.gitops("bob", "approve", "trust.brain", "--request", "1", check=False)
    assert (shown.code, "approval_not_confirmed" in shown.text) == (2, True)
    assert f"commit {loop.request(1).head}" in shown.text
    assert "~ an approval lasts: 7 days -> 3 days" in shown.text
    assert printed_command(shown.text).split()[-1] == command.split()[-1]
    assert loop.approvals() == ()
    assert loop.gitops("bob", *shlex.split(printed_command(shown.text))[1:]).code == 0
    assert len(loop.approvals()) == 1


@pytest.mark.parametrize(
    ("named", "answer", "signed"),
    [(False, "no", 0), (False, "", 0), (False, "y", 0), (False, "yes", 1), (True, "", 0), (True, "yes", 1)],
)
def test_a_terminal_shows_and_asks(asked: tuple[Loop, str], named: bool, answer: str, signed: int) -> None:
    """Also with a digest: the comment that the command was copied from may have been edited."""
    loop, command = asked
    words = shlex.split(command)[1:] if named else ["approve", "trust.brain", "--request", "1"]
    code, shown = typed(loop, "bob", answer, *words)
    assert (code, len(loop.approvals())) == (1 - signed, signed), shown
    assert "~ an approval lasts: 7 days -> 3 days" in shown
    assert "Type yes to sign this: " in shown


def test_a_script_on_a_terminal_says_yes_to_what_it_names(asked: tuple[Loop, str]) -> None:
    loop, command = asked
    code, shown = typed(loop, "bob", "", "approve", "trust.brain", "--request", "1", "--yes")
    assert (code, "usage_error" in shown, loop.approvals()) == (1, True, ())
    code, shown = typed(loop, "bob", "", *shlex.split(command)[1:], "--yes")
    assert (code, len(loop.approvals())) == (0, 1), shown


def test_a_shorter_digest_names_nothing(asked: tuple[Loop, str]) -> None:
    loop, command = asked
    refused = loop.gitops("bob", *shlex.split(command[:-1])[1:], check=False)
    assert (refused.code, "approval_plan_changed" in refused.text) == (1, True)


def test_the_report_of_an_apply_that_waits_has_the_command(loop: Loop) -> None:
    """What is left after a part was applied is another plan: its digest is that of what has to be approved."""
    text = CLUSTER_YAML[: CLUSTER_YAML.index("  legacy:")] + "  more:\n    schema: legacy.pg\n"
    loop.move("refs/heads/retire", loop.commit("alice", {"cluster/cluster.yaml": text.encode()}, message="Replace\n"))
    planned = printed_command(loop.comment(1))
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists()
    assert loop.graph("more").exists()
    comment = loop.comment(1)
    assert f"1 of these has to approve: `{email('bob')}`, `{email('carol')}`" in comment
    command = printed_command(comment)
    assert command.split()[-1] != planned.split()[-1]
    assert loop.gitops("bob", *shlex.split(command)[1:]).code == 0
    assert not loop.graph("legacy").exists()


def test_the_gate_says_who_may_still_approve_and_why_each_approval_does_not_count(quorum: Loop) -> None:
    quorum.move("refs/heads/retire", quorum.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    people = f"2 of these have to approve: `{email('bob')}`, `{email('carol')}`"
    assert people in quorum.comment(1)
    quorum.gitops("bob", *shlex.split(printed_command(quorum.comment(1)))[1:])
    assert f"1 of these has to approve: `{email('carol')}`" in quorum.comment(1)
    assert f"(1 of 2), signed by `{email('bob')}`" in quorum.comment(1)
    quorum.move(MAIN, quorum.commit("carol", {"cluster/README.md": b"Other words.\n"}))
    refused = [line for line in quorum.comment(1).splitlines() if "does not count" in line]
    assert refused == ["  - does not count, `approval_stale`: " + refused[0].partition(": ")[2]]
    assert "README.md" in refused[0]


def test_rows_that_came_after_the_comment_are_not_signed_away(loop: Loop) -> None:
    """Bob reads that the graph is empty, and on a machine with the data the command would read it again."""
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    assert ": deleted with 0 rows in version 1 of graph `" in loop.comment(1)
    command = shlex.split(printed_command(loop.comment(1)))[1:]
    rows = loop.folder / "rows.jsonl"
    rows.write_text('{"type": "Contact", "data": {"name": "ada"}}\n')
    loop.gitops("bot", "graph", "load", "legacy", str(rows), "--root", str(loop.graph("legacy")))
    loop.program("bob", "git", "config", "gitops.root", str(loop.folder / "data"))
    refused = loop.gitops("bob", *command, check=False)
    assert (refused.code, "approval_data_grew" in refused.text) == (1, True), refused.text
    assert loop.approvals() == ()
    shown = loop.gitops("bob", "approve", "graph.legacy", "--request", "1", check=False)
    assert "1 row in version 2 of graph " in shown.text
    assert " --rows 1 " in printed_command(shown.text)


def test_log_and_json_say_what_rules_were_changed(asked: tuple[Loop, str]) -> None:
    loop, command = asked
    loop.gitops("bob", *shlex.split(command)[1:])
    loop.merge("carol", 1)
    loop.program("bob", "git", "fetch", "-q", "origin")
    assert "    ~ an approval lasts: 7 days -> 3 days" in loop.gitops("bob", "log").text.splitlines()
