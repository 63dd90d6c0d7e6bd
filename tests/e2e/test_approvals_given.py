"""How approvals are given: people sign what they saw, of one change or several, for the graph and the rows that they saw."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gitops.cli import approving
from gitops.cli.main import main
from gitops.cluster.apply.apply import apply
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.change import Seen
from gitops.core.faults import NoFaults
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.load import LoadMode
from gitops.database.graph.staged import WriteContext
from gitops.forge.events import RequestAction, RequestEvent
from gitops.forge.port import RequestState
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.wiring.stores import graph_engine
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.bot_stage import QUERY, Stage
from tests.support.faults import DoAt, FailAt
from tests.support.loop import (
    APPROVALS,
    CLUSTER_YAML,
    CONFIG,
    DELETE_LEGACY,
    FILES,
    LEDGER,
    MAIN,
    WITHOUT_LEGACY,
    Done,
    Loop,
    codes,
    email,
    printed_command,
)
from tests.support.loop_data import applied_again, audited, given, load, refreshed, rows, schema, workspace
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
    assert "+ may approve alone in an emergency: mallory@people.example (permits more)" in refused.text
    assert loop.approvals() == ()


def test_the_comment_says_what_a_change_of_rules_means(loop: Loop) -> None:
    config = RULES.replace("mallory@people.example]", '"`@all`[x](http://evil)"]', 1).encode()
    loop.move("refs/heads/rules", loop.commit("alice", {"gitops.yaml": config}))
    comment = loop.comment(1)
    assert "### Keys and rules" in comment
    assert "- approver: `` `@all`[x](http://evil) `` **added**, **permits more**" in comment
    assert "- may approve alone in an emergency: `mallory@people.example` **added**, **permits more**" in comment


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
    assert (code, "usage_error" in shown, loop.approvals()) == (2, True, ())
    code, shown = typed(loop, "bob", "", *shlex.split(command)[1:], "--yes")
    assert (code, len(loop.approvals())) == (0, 1), shown


def test_a_shorter_digest_names_nothing(asked: tuple[Loop, str]) -> None:
    loop, command = asked
    refused = loop.gitops("bob", *shlex.split(command[:-1])[1:], check=False)
    assert (refused.code, "approval_plan_changed" in refused.text) == (1, True)
    assert "is not a complete digest of a plan, which has 64 digits" in refused.text
    assert "the plan is now" not in refused.text


def test_without_a_name_everything_that_one_may_approve_is_shown(asked: tuple[Loop, str]) -> None:
    loop, command = asked
    shown = loop.gitops("bob", "approve", "--request", "1", check=False)
    assert (shown.code, printed_command(shown.text).split()[-1]) == (2, command.split()[-1])


def test_another_approval_than_those_needed_and_another_revocation_are_called_that(asked: tuple[Loop, str]) -> None:
    """No one is asked to sign again what is there."""
    loop, command = asked
    given = loop.gitops("bob", *shlex.split(command)[1:]).text
    again = loop.gitops("carol", "approve", "trust.brain", "--request", "1", check=False).text
    assert (
        f"WARN  approval_not_required trust.brain: it has all the approvals that it needs, by {email('bob')}" in again
    )
    (approval,) = re.findall(r"\(approval (\w{26})\)", given)
    loop.confirmed("bob", "revoke", approval, "--reason", "wrong")
    told = loop.gitops("bob", "revoke", approval, "--reason", "wrong", check=False)
    assert (f"Revoked: approval {approval}" in told.text, "approval_not_confirmed" in told.text) == (True, False)
    assert len(loop.store.refs("refs/heads/gitops/revocations")) == 1


def test_the_audit_needs_no_remote(loop: Loop) -> None:
    loop.clone("alice")
    loop.gitops("alice", "status")
    loop.program("alice", "git", "remote", "remove", "origin")
    assert loop.gitops("alice", "audit").text.startswith("audit good: brain")


def test_the_report_of_an_apply_that_waits_has_the_command(loop: Loop) -> None:
    """What is left after a part was applied is another plan: its digest is that of what has to be approved."""
    text = CLUSTER_YAML[: CLUSTER_YAML.index("  legacy:")] + "  more:\n    schema: legacy.pg\n"
    loop.move("refs/heads/retire", loop.commit("alice", {"cluster/cluster.yaml": text.encode()}, message="Replace\n"))
    planned = printed_command(loop.comment(1))
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists()
    assert loop.graph("more").exists()
    comment = loop.comment(1)
    assert f"**needs 1 approval** from `{email('bob')}` or `{email('carol')}`" in comment
    command = printed_command(comment)
    assert command.split()[-1] != planned.split()[-1]
    assert loop.gitops("bob", *shlex.split(command)[1:]).code == 0
    assert not loop.graph("legacy").exists()


def test_the_gate_says_who_may_still_approve_and_why_each_approval_does_not_count(quorum: Loop) -> None:
    quorum.move("refs/heads/retire", quorum.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    people = f"**needs 2 approvals** from `{email('bob')}` or `{email('carol')}`"
    assert people in quorum.comment(1)
    quorum.gitops("bob", *shlex.split(printed_command(quorum.comment(1)))[1:])
    assert f"**needs 1 more approval** from `{email('carol')}`" in quorum.comment(1)
    assert f"  - approved by `{email('bob')}`\n" in quorum.comment(1)
    quorum.move(MAIN, quorum.commit("carol", {"cluster/README.md": b"Other words.\n"}))
    refused = [line for line in quorum.comment(1).splitlines() if "doesn't count" in line]
    assert refused == ["  - an approval doesn't count (`approval_stale`): " + refused[0].partition(": ")[2]]
    assert "README.md" in refused[0]


def test_a_request_warns_of_the_approvals_that_its_merge_makes_stale(loop: Loop) -> None:
    """As long as they count, in whatever order the requests are approved and planned."""
    warning = "### Makes other approvals stale"
    loop.move("refs/heads/words", loop.commit("carol", {"cluster/notes.gq": QUERY}))
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.move("refs/heads/elsewhere", loop.commit("carol", {"README.md": b"Elsewhere.\n"}))
    assert warning not in loop.comment(1)
    loop.confirmed("bob", "approve", "graph.legacy", "--request", "2")
    loop.arrived(loop.approvals()[0])
    assert warning in loop.comment(1)
    assert re.search(r"^- request 2, Retire legacy: `graph.legacy`$", loop.comment(1), re.MULTILINE)
    assert warning not in loop.comment(2)
    # A request that is opened later warns at once.
    loop.move("refs/heads/more", loop.commit("carol", {"cluster/README.md": b"Other words.\n"}))
    assert warning in loop.comment(3)
    # The author's own push makes the approval stale, so nothing is left to warn of.
    loop.move("refs/heads/retire", loop.commit("alice", {"cluster/README.md": b"Mine.\n"}, loop.request(2).head))
    assert [warning in loop.comment(number) for number in (1, 2, 3)] == [False] * 3


@pytest.mark.parametrize("how", ["a push deletes its branch", "the forge says so"])
def test_the_warning_ends_when_the_approved_request_is_closed(loop: Loop, how: str) -> None:
    loop.move("refs/heads/words", loop.commit("carol", {"cluster/notes.gq": QUERY}))
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.confirmed("bob", "approve", "graph.legacy", "--request", "2")
    loop.arrived(loop.approvals()[0])
    assert "### Makes other approvals stale" in loop.comment(1)
    head = loop.request(2).head
    if how == "the forge says so":
        stage = Stage(loop)
        stage.local.forge().close(2)
        stage.handle(RequestEvent(2, RequestAction.CLOSED, head))
    else:
        loop.move("refs/heads/retire", ZERO)
    assert loop.request(2).state is RequestState.CLOSED
    assert "### Makes other approvals stale" not in loop.comment(1)


def test_a_stale_approval_names_the_merge_that_voided_it(loop: Loop) -> None:
    """In the comment, in a clone, in the refusal of the merge, and after it; the command beside it renews the approval."""
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.confirmed("bob", "approve", "graph.legacy", "--request", "1")
    loop.arrived(loop.approvals()[0])
    loop.move(MAIN, loop.commit("carol", {"README.md": b"Elsewhere.\n"}))
    loop.move("refs/heads/words", loop.commit("carol", {"cluster/notes.gq": QUERY}))
    merge, _ = loop.merge("carol", 2)
    loop.move(MAIN, loop.commit("carol", {"cluster/README.md": b"Later words.\n"}))

    # Two files differ from what was approved. The first merge that changed one of them voided it.
    words = f"merge {merge[:12]} of request 2 changed the cluster folder after it was given: README.md, notes.gq"
    assert words in loop.comment(1).replace("`", "")
    shown = loop.gitops("bob", "plan", "--request", "1").text
    assert words in shown
    (command,) = re.findall(r"^    (gitops approve graph.legacy .*)$", shown, re.MULTILINE)
    _, lines = loop.merge("carol", 1)
    assert any(words in line for line in lines)
    assert loop.graph("legacy").exists()
    # Merged, the change is on the branch, and no request is left to select.
    (command,) = {command for line in lines for command in re.findall(r"in a clone: (gitops approve .*)$", line)}
    loop.confirmed("bob", *shlex.split(command)[1:])
    loop.arrived(loop.approvals()[-1])
    assert not loop.graph("legacy").exists()


def test_approvals_of_other_changes_are_not_reported_again_and_again(loop: Loop) -> None:
    """Of a person's stale approvals only the newest, none that was revoked for another change, and none after a new one."""
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/retire", head)
    words = ("approve", "graph.legacy", "--request", "1")
    for number in range(3):
        loop.confirmed("bob", *words)
        loop.arrived(loop.approvals()[-1])
        head = loop.commit("alice", {"cluster/README.md": f"Words {number}.\n".encode()}, head)
        loop.move("refs/heads/retire", head)
    shown = loop.gitops("bob", *words, check=False).text
    assert shown.count("approval_stale") == 1
    assert loop.comment(1).count("approval_stale") == 1
    signed = loop.confirmed("bob", *words).text
    assert ("Approved: delete graph.legacy" in signed, "approval_stale" in signed) == (True, False)
    (approval,) = re.findall(r"\(approval (\w{26})\)", signed)
    loop.confirmed("bob", "revoke", approval, "--reason", "wrong")
    loop.move("refs/heads/retire", loop.commit("alice", {"cluster/README.md": b"Last.\n"}, head))
    assert "approval_revoked" not in loop.comment(1)
    # Once the resource was changed, no earlier approval is about what comes next.
    loop.confirmed("bob", *words)
    loop.merge("carol", 1)
    assert not loop.graph("legacy").exists()
    loop.move(MAIN, loop.commit("bob", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}))
    loop.move("refs/heads/again", loop.commit("alice", DELETE_LEGACY, message="Again\n"))
    assert "doesn't count" not in loop.comment(2)


def test_rows_that_came_after_the_comment_are_not_signed_away(loop: Loop) -> None:
    """Bob reads that the graph is empty, and on a machine with the data the command would read it again."""
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    assert ": deleted with no rows (version 1)\n" in loop.comment(1)
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


LAB = "  - {name: lab, path: lab, branch: main, environment: staging}\nledger:\n"
BOTH = CONFIG.replace("ledger:\n", LAB, 1)
SHORTER = {"gitops.yaml": BOTH.encode() + b"  expires_after: 3d\n"}
RETIRED = {f"{folder}/cluster.yaml": WITHOUT_LEGACY for folder in ("cluster", "lab")}


@pytest.fixture(scope="session")
def in_both(applied: Loop, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: as `applied`, with a second cluster, which declares the same."""
    loop = applied.copied(tmp_path_factory.mktemp("both") / "loop")
    lab = {f"lab/{path.name}": FILES[str(path)] for path in map(Path, FILES) if path.parent.name == "cluster"}
    loop.move(MAIN, loop.commit("alice", {"gitops.yaml": BOTH.encode(), **lab}))
    return loop


@pytest.fixture
def both(in_both: Loop, tmp_path: Path) -> Loop:
    """Two clusters with the same graphs, both applied."""
    return in_both.copied(tmp_path / "both")


@pytest.fixture
def rules(both: Loop) -> Loop:
    """Alice's request 1 makes approvals end after three days, in both clusters."""
    both.move("refs/heads/rules", both.commit("alice", SHORTER))
    return both


def _approvals(loop: Loop) -> list[str]:
    """The clusters of the approvals that the server has."""
    return [name for name in ("brain", "lab") for _ in loop.store.refs(approvals_prefix(name).rstrip("/"))]


def _printed(text: str) -> list[str]:
    """The command that signs what a text shows."""
    (command,) = re.findall(r"to sign what is shown above, run: gitops (.*)", text)
    return shlex.split(command)


def _with_lists(loop: Loop, who: str, *arguments: str) -> tuple[Done, list[str]]:
    """Run a command; also the names that each `git ls-remote` of it asked for."""
    told = loop.home(who) / "trace"
    loop.program(who, "git", "config", "--global", "trace2.eventTarget", str(told))
    done = loop.gitops(who, *arguments)
    starts = [each["argv"] for each in map(json.loads, told.read_text().splitlines()) if each["event"] == "start"]
    names = [" ".join(each[each.index("--") + 2 :]) for each in starts if "ls-remote" in each]
    return done, [re.sub(r" \S+/\*", "", each) for each in names]


def test_one_command_approves_the_rules_of_both_clusters(rules: Loop) -> None:
    """Without a terminal it shows both, and prints what signs exactly these; each approval is for one change of one cluster."""
    shown = rules.gitops("bob", "approve", "--all", "--request", "1", check=False)
    assert (shown.code, "approval_not_confirmed" in shown.text, _approvals(rules)) == (2, True, [])
    assert shown.text.count("~ an approval lasts: 7 days -> 3 days") == 2
    command = _printed(shown.text)
    assert command[:5] == ["approve", "trust.brain", "trust.lab", "--request", "1"]
    assert [word.partition("=")[0] for word in command[5:] if "=" in word] == ["brain", "lab"]
    done, listed = _with_lists(rules, "bob", *command)
    # The branches once; what is decided on the present, such as requests and the log of pushes, each time.
    assert [each for each in listed if each.startswith("refs/heads/")] == ["refs/heads/gitops refs/heads/main"]
    assert [f"Approved: update trust.{name}, by bob@people.example" in done.text for name in ("brain", "lab")] == [
        True
    ] * 2
    assert _approvals(rules) == ["brain", "lab"]
    rules.merge("carol", 1)
    assert _waiting(rules) == []


def _waiting(loop: Loop) -> list[str]:
    """The clusters that are not in sync."""
    clusters = json.loads(loop.gitops("carol", "status", "--json").text)["clusters"]
    return [each["cluster"] for each in clusters if not each["in_sync"]]


def test_a_plan_of_which_two_changes_need_an_approval_is_shown_once(both: Loop) -> None:
    """Each change is shown with its gate, and the plan of both below them, also on a terminal."""
    files = {**SHORTER, "cluster/cluster.yaml": WITHOUT_LEGACY}
    both.move("refs/heads/both", both.commit("alice", files))
    two = ("approve", "trust.brain", "graph.legacy", "--cluster", "brain", "--request", "1")
    shown = both.gitops("bob", *two, check=False)
    _, typed_at = typed(both, "bob", "no", *two)
    for text in (shown.text, typed_at):
        heads = [
            text.index(f"Approve: {what} in production/brain") for what in ("update trust.brain", "delete graph.legacy")
        ]
        assert heads == sorted(heads), text
        assert text.count("  because: ") == text.count("  so far: ") == 2
        assert (
            text.count("  plan "),
            text.count("  commit "),
            text.count("~ an approval lasts: 7 days -> 3 days"),
        ) == (1, 1, 1)
        assert text.index("  plan ") > heads[1]
    assert _printed(shown.text)[1:3] == ["trust.brain", "graph.legacy"]


@pytest.mark.parametrize(
    ("words", "answer", "signed"),
    [
        (("--all",), "no", []),
        (("--all",), "y", []),
        (("--all",), "yes", ["brain", "lab"]),
        (("trust.brain", "trust.lab"), "yes", ["brain", "lab"]),
    ],
)
def test_a_terminal_shows_all_and_asks_once(
    rules: Loop, words: tuple[str, ...], answer: str, signed: list[str]
) -> None:
    code, shown = typed(rules, "bob", answer, "approve", *words, "--request", "1")
    assert (code, _approvals(rules)) == (0 if signed else 1, signed), shown
    assert shown.count("~ an approval lasts: 7 days -> 3 days") == 2
    assert shown.count("Type yes to sign these 2 approvals: ") == 1


def test_what_is_applied_while_a_person_reads_is_not_overlooked(
    rules: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Branches are listed once, and again when what was shown is confirmed."""

    def read_slowly(*_: object, **__: object) -> bool:
        rules.move(
            MAIN,
            rules.commit("carol", {"cluster/notes.gq": b"query titles() { match { $n: Note } return { $n.title } }\n"}),
        )
        return True

    clone = rules.clone("bob")
    for name, value in rules.environment("bob").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(clone)
    monkeypatch.setattr(approving, "_on_terminal", lambda _: True)
    monkeypatch.setattr(approving, "_confirmed", read_slowly)
    assert main(["approve", "trust.brain", "--cluster", "brain", "--request", "1"]) == 1
    assert "ERROR approval_plan_changed" in capsys.readouterr().out
    assert _approvals(rules) == []


def test_a_plan_that_has_changed_keeps_all_from_being_signed(rules: Loop) -> None:
    command = _printed(rules.gitops("bob", "approve", "--all", "--request", "1", check=False).text)
    edited = {**SHORTER, "lab/cluster.yaml": WITHOUT_LEGACY}
    rules.move("refs/heads/rules", rules.commit("alice", edited))
    refused = rules.gitops("bob", *command, check=False)
    assert (refused.code, refused.text.count("ERROR approval_plan_changed trust.lab"), _approvals(rules)) == (1, 1, [])
    assert "nothing was signed" in refused.text
    assert "approval_plan_changed trust.brain" not in refused.text


def test_a_push_of_which_the_server_refuses_one_branch_leaves_none(rules: Loop) -> None:
    command = _printed(rules.gitops("bob", "approve", "--all", "--request", "1", check=False).text)
    hook = rules.server / "hooks" / "update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/heads/gitops/approvals/lab/*) exit 1;; esac\n')
    hook.chmod(0o755)
    refused = rules.gitops("bob", *command, check=False)
    assert (refused.code, _approvals(rules)) == (1, [])
    assert "approved by" not in refused.text


def test_all_leaves_out_what_a_person_may_not_approve_and_says_why(both: Loop) -> None:
    """Alice changes the rules and bob retires a graph: each approves the work of the other, and never all of it."""
    first = both.commit("alice", SHORTER)
    both.move("refs/heads/mixed", both.commit("bob", {"lab/cluster.yaml": WITHOUT_LEGACY}, first))
    for who, own, others in [
        ("alice", {"trust.brain", "trust.lab"}, {"lab/graph.legacy"}),
        ("bob", {"lab/graph.legacy"}, {"trust.brain", "trust.lab"}),
    ]:
        shown = both.gitops(who, "approve", "--all", "--request", "1", check=False).text
        assert set(re.findall(r"approval_self (\S+):", shown)) == own
        words = _printed(shown)
        assert set(words[1 : words.index("--request") - 2 * words.count("--rows")]) == others
    named = ("trust.brain", "trust.lab", "lab/graph.legacy")
    refused = both.gitops("bob", "approve", *named, "--request", "1", check=False)
    assert (refused.code, "ERROR approval_self graph.legacy" in refused.text, _approvals(both)) == (1, True, [])
    told = both.gitops("bob", "approve", "--all", "--request", "1", "--verbose", check=False).text
    for text in (refused.text, told):
        (printed,) = re.findall(r"ask another person to run: gitops (approve graph.legacy .*)", text)
        assert "delete graph.legacy in staging/lab" in both.gitops("alice", *shlex.split(printed), check=False).text


def test_who_may_approve_nothing_signs_nothing(rules: Loop) -> None:
    refused = rules.gitops("alice", "approve", "--all", "--request", "1", check=False)
    assert (refused.code, refused.text.count("approval_self"), _approvals(rules)) == (1, 2, [])
    assert "ERROR approval_not_required: no change is waiting for an approval that you can give" in refused.text
    stranger = rules.gitops("mallory", "approve", "--all", "--request", "1", check=False)
    assert (stranger.code, stranger.text.count("approval_signer_unknown")) == (1, 2)


def test_what_is_approved_already_is_not_asked_for_again(rules: Loop) -> None:
    rules.gitops("bob", *_printed(rules.gitops("bob", "approve", "trust.brain", "--request", "1", check=False).text))
    shown = rules.gitops("carol", "approve", "--all", "--request", "1", check=False)
    assert _printed(shown.text)[:4] == ["approve", "trust.lab", "--request", "1"]


def test_graphs_of_one_name_are_told_apart_with_their_rows(both: Loop) -> None:
    both.move("refs/heads/retire", both.commit("alice", RETIRED))
    document = both.gitops("bob", "approve", "--all", "--request", "1", "--json", check=False)
    form = json.loads(document.text)
    assert (form["ok"], len(form["approvals"]), form["left_out"]) == (False, 2, [])
    message = form["approvals"][-1]["diagnostics"][-1]["message"]
    command = _printed(message)
    assert command[:3] == ["approve", "brain/graph.legacy", "lab/graph.legacy"]
    assert command[3:7] == ["--rows", "brain/graph.legacy=0", "--rows", "lab/graph.legacy=0"]
    assert json.loads(both.gitops("bob", *command, "--json").text)["ok"]
    assert _approvals(both) == ["brain", "lab"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all", "--plan", "0" * 64], "--all cannot be combined with --plan, --rows or --break-glass"),
        (["--all", "--break-glass", "--reason", "x"], "--all cannot be combined with --plan, --rows or --break-glass"),
        (["--all", "--yes"], "--yes requires --plan"),
        (["trust.brain", "trust.lab", "--break-glass", "--reason", "x"], "--break-glass approves one change"),
        (["trust.brain", "trust.lab", "--plan", "0" * 64], "--plan brain=..., --plan lab=..."),
        (["trust.brain", "--plan", f"lab={'0' * 64}"], "--plan brain=..."),
        (["trust.brain", "--rows", "few"], "--rows requires a number"),
        (["lab/graph.legacy", "--cluster", "brain"], "lab/graph.legacy does not belong to --cluster brain"),
    ],
)
def test_a_command_that_does_not_say_what_it_is_about(both: Loop, words: list[str], message: str) -> None:
    refused = both.gitops("bob", "approve", *words, check=False)
    assert (refused.code, message in refused.text) == (2, True), refused.text


def test_the_comments_on_a_change_of_rules_have_the_one_command(rules: Loop) -> None:
    """It is in the comment of each cluster while the approval is missing; one change of one cluster has its own alone."""
    comments = [each.body for each in rules.book.comments(1)]
    assert [body.count("\ngitops approve --all --request 1\n") for body in comments] == [1, 1]
    rules.move("refs/heads/retire", rules.commit("alice", {"lab/cluster.yaml": WITHOUT_LEGACY}))
    assert not any("--all" in each.body for each in rules.book.comments(2))
    rules.merge("carol", 1)
    comments = [each.body for each in rules.book.comments(1)]
    assert [body.count("\ngitops approve --all\n") for body in comments] == [1, 1]
    rules.program("bob", "git", "fetch", "-q", "origin")
    rules.gitops("bob", *_printed(rules.gitops("bob", "approve", "--all", check=False).text))
    assert not any("--all" in each.body for each in rules.book.comments(1))
    assert _waiting(rules) == []


def _merged(loop: Loop) -> None:
    """The delete of a graph is merged, and waits for an approval."""
    head = loop.commit("alice", DELETE_LEGACY)
    loop.move("refs/heads/retire", head)
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists()


def test_rows_that_are_loaded_after_the_approval_save_the_graph(loop: Loop) -> None:
    head = loop.commit("alice", DELETE_LEGACY)
    loop.move("refs/heads/retire", head)
    outcome = loop.sign_approval("bob", "graph.legacy", request=1)
    assert outcome.ok
    assert outcome.commit is not None
    assert loop.evidence(outcome.commit)[1].seen == _seen(loop, 0)
    load(loop, 20)
    loop.merge("carol", 1)
    assert rows(loop) == 20
    assert "approval_data_grew" in applied_again(loop)
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


@pytest.mark.parametrize("clone", [False, True], ids=["with the graph", "in a clone"])
def test_rows_that_take_the_place_of_those_that_were_seen_save_the_graph(loop: Loop, clone: bool) -> None:
    """Not one of 5 rows that were given up is left of 1,000, though the rules let the graph grow by so many."""
    load(loop, 5)
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    if clone:
        # The ledger records version 1, without rows; the plan that the bot keeps has what the server read.
        loop.gitops("bob", *shlex.split(printed_command(loop.comment(1)))[1:])
    else:
        assert loop.sign_approval("bob", "graph.legacy", request=1).ok
    load(loop, 1000, mode=LoadMode.OVERWRITE)
    loop.merge("carol", 1)
    assert rows(loop) == 1000
    said = {each.code: each.message for each in apply(workspace(loop)).diagnostics}["approval_data_replaced"]
    assert "of 5 rows in version 2, which its approver saw, 5 were replaced up to version 3" in said
    assert refreshed(loop) == set()
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    report = audited(loop)
    assert (report.ok, [note for note in report.notes if "saw" in note]) == (True, [])
    log = loop.gitops("bot", "log", "--cluster", "brain", "--limit", "9", at=loop.server).text
    assert "carol@people.example saw 1,000 rows in version 3; applied to 1,000 rows in version 3" in log


def _optimize(loop: Loop) -> None:
    options = OptimizeOptions(fragments=1, scalar_rows=1)
    done = optimize_tables(str(loop.graph("legacy")), WriteContext(SystemClock(), RandomIds()), options)
    assert done.tables


def _forget(loop: Loop) -> None:
    load(loop, 6)
    collect_garbage(
        str(loop.graph("legacy")), WriteContext(SystemClock(), RandomIds()), Retention(1, timedelta(0), timedelta(0))
    )


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (_optimize, None),
        (lambda loop: load(loop, 3, mode=LoadMode.MERGE), "approval_data_replaced"),
        (_forget, "approval_data_unknown"),
    ],
    ids=["tables are compacted and indexed", "rows are changed", "the version is no longer kept"],
)
def test_an_approval_is_for_the_rows_that_were_seen(
    loop: Loop, happens: Callable[[Loop], None], code: str | None
) -> None:
    load(loop, 5)
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    assert loop.sign_approval("bob", "graph.legacy", request=1).ok
    seen = _seen(loop, 5)
    happens(loop)
    now = _seen(loop, rows(loop))
    loop.merge("carol", 1)
    assert loop.graph("legacy").exists() is (code is not None)
    if code is not None:
        assert code in applied_again(loop)
        return
    (note,) = [note for note in audited(loop).notes if "saw" in note]
    then = f"applied to {now.held} in version {now.version}"
    assert note.endswith(f"bob@people.example saw {seen.held} in version {seen.version}; {then}")


def test_the_printed_command_covers_rows_that_only_the_server_sees(loop: Loop) -> None:
    """They were loaded after the last entry, so a clone, which has no graph, cannot know them."""
    load(loop, 20)
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    assert "--rows 20 " in loop.comment(1)
    loop.gitops("bob", *shlex.split(printed_command(loop.comment(1)))[1:])
    loop.merge("carol", 1)
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


def test_a_clone_approves_the_loss_of_rows_that_only_the_server_sees(tmp_path: Path) -> None:
    """The last entry says that the graph is empty, and an empty graph would need no approval."""
    loop = Loop.build(tmp_path / "gates", f"{CONFIG}  gates: [lossy]\n  data_growth: {{percent: 10, rows: 0}}\n")
    load(loop, 3, "notes", "Note", "title")
    loop.move(
        "refs/heads/slim", loop.commit("alice", {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"})
    )
    assert "1 approval missing" in loop.gitops("bob", "plan", "--request", "1").text
    loop.gitops("bob", *shlex.split(printed_command(loop.comment(1)))[1:])
    assert "\n    after the commit: schema.notes: it only drops" in loop.gitops("bob", "plan", "--request", "1").text
    loop.merge("carol", 1)
    assert schema(loop, "notes") == b"node Note {\n    title: String @key\n}\n"
    assert audited(loop).ok


def _seen(loop: Loop, rows: int) -> Seen:
    reading = graph_engine(NoFaults()).read(str(loop.graph("legacy")))
    return Seen(reading.incarnation, rows, reading.manifest_version)


def test_a_left_over_approval_does_not_delete_the_graph_that_was_created_again(loop: Loop) -> None:
    _merged(loop)
    kept = loop.sign_approval("bob", "graph.legacy")
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert kept.commit is not None
    entry = loop.applied()
    assert kept.commit in entry.parents, "a good approval that was not needed is spent, too"
    back = loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.encode()})
    loop.move(MAIN, back)
    load(loop, 3)
    again = loop.commit("alice", DELETE_LEGACY)
    loop.move(MAIN, again)
    assert rows(loop) == 3
    assert "approval_spent" in applied_again(loop)
    assert rows(loop) == 3
    assert audited(loop).ok


def test_an_approval_older_than_the_last_change_of_its_resource_does_not_count(loop: Loop) -> None:
    """Its branch arrives only after others deleted the graph and created it again: it was never spent."""
    _merged(loop)
    held = loop.sign_approval("bob", "graph.legacy")
    assert held.approval is not None
    assert held.commit is not None
    ref = APPROVALS + held.approval.approval_id
    loop.drop(ref)
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    loop.move(MAIN, loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}))
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    loop.store.update_refs([RefUpdate(ref, ZERO, held.commit)])
    assert applied_again(loop) & {"approval_stale", "approval_other_graph"}
    assert loop.graph("legacy").exists()


@pytest.mark.parametrize("whole_storage", [False, True])
def test_a_restored_backup_is_not_deleted_again_by_the_same_approval(
    loop: Loop, tmp_path: Path, whole_storage: bool
) -> None:
    load(loop, 5)
    graphs = loop.graph("legacy").parent
    shutil.copytree(graphs, tmp_path / "backup")
    if whole_storage:
        load(loop, 5)
    _merged(loop)
    assert loop.sign_approval("bob", "graph.legacy").ok
    place = workspace(loop)
    died = apply(replace(place, faults=FailAt("cluster_apply.after_graph_delete")))
    assert "injected_failpoint" in {d.code for d in died.diagnostics}
    assert not loop.graph("legacy").exists()
    if whole_storage:
        # Not even the marker beside the graph is left, but the graph is older than when the delete was announced.
        shutil.rmtree(graphs)
        shutil.copytree(tmp_path / "backup", graphs)
    else:
        shutil.copytree(tmp_path / "backup" / "legacy.omni", loop.graph("legacy"))
    assert "graph_restored" in applied_again(loop)
    assert rows(loop) == 5
    applied_again(loop)
    assert rows(loop) == 5
    assert audited(loop).ok
    given(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


def test_a_slow_run_whose_lock_was_broken_deletes_nothing_any_more(loop: Loop) -> None:
    """It is suspended before the delete; meanwhile others break its lock, and settle its operation."""
    _merged(loop)
    assert loop.sign_approval("bob", "graph.legacy").ok
    place = workspace(loop)

    def others_act() -> None:
        for ref in loop.store.refs("refs/gitops/locks"):
            loop.drop(ref)
        loop.move(MAIN, loop.commit("alice", {"cluster/cluster.yaml": CLUSTER_YAML.encode()}))
        load(loop, 2)

    outcome = apply(replace(place, faults=DoAt("cluster_apply.before_graph_delete", others_act)))
    assert not outcome.ok
    assert rows(loop) == 2
    assert audited(loop).ok


def test_a_graph_that_vanished_is_reported_and_neither_taken_out_nor_created_again_without_approval(
    loop: Loop, tmp_path: Path
) -> None:
    load(loop, 3)
    assert refreshed(loop) == set()
    backup = shutil.copytree(loop.graph("legacy"), tmp_path / "backup")
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    assert read_entry(loop.store.read(loop.store.commit(loop.tip(LEDGER)).tree, "entry.json") or b"").vanished == (
        "graph.legacy",
    )
    assert audited(loop).ok
    applied_again(loop)
    assert not loop.graph("legacy").exists(), "it is not created again without an approval"
    applied_again(loop)
    assert refreshed(loop) == {"graph_vanished"}, "a blocked change does not make the loss forgotten"
    shutil.copytree(backup, loop.graph("legacy"))
    assert refreshed(loop) == set()
    assert rows(loop) == 3
    assert audited(loop).ok


def test_a_graph_that_vanished_is_taken_out_with_an_approval_alone(loop: Loop) -> None:
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    applied_again(loop)
    assert "graph_vanished" in refreshed(loop)
    assert loop.sign_approval("bob", "graph.legacy").ok
    applied_again(loop)
    assert refreshed(loop) == set()
    assert audited(loop).ok


def test_a_graph_that_vanished_is_created_again_by_the_approval_of_anybody(loop: Loop) -> None:
    """No commit made this change, so it has no author: also the author of the declaration may approve it."""
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    waits = (
        f"waits: graph.legacy: waits for an approval; may approve: {', '.join(map(email, ('alice', 'bob', 'carol')))}"
    )
    assert waits in loop.gitops("carol", "status").text
    loop.gitops("bot", "bot", "drift", at=loop.server, check=False)
    swept = loop.gitops("bot", "bot", "sweep", at=loop.server, check=False)
    assert "waits for a person" in swept.text
    assert not loop.graph("legacy").exists()
    assert "drift_reported brain: issue 1 is open" in loop.gitops("carol", "status").text
    assert not codes(given(loop, "alice"))
    assert "in sync: yes" in loop.gitops("carol", "status").text, "the apply closes the issue"
    assert rows(loop) == 0, "the arrival of the approval starts the apply"
    assert refreshed(loop) == set()
    assert audited(loop).ok
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    applied_again(loop)
    assert not loop.graph("legacy").exists(), "the approval is spent"


def test_the_author_of_an_edited_declaration_does_not_approve_it_for_a_graph_that_vanished(loop: Loop) -> None:
    shutil.rmtree(loop.graph("legacy"))
    assert refreshed(loop) == {"graph_vanished"}
    edited = {"cluster/legacy.pg": b"node Contact {\n    name: String @key\n    mail: String?\n}\n"}
    loop.move(MAIN, loop.commit("alice", edited))
    assert "approval_self" in {d.code for d in loop.sign_approval("alice", "graph.legacy").diagnostics}
    loop.sign_approval("alice", "graph.legacy", blind=True)
    assert "approval_self" in applied_again(loop)
    assert not loop.graph("legacy").exists()
    given(loop, "bob")
    assert rows(loop) == 0
    assert audited(loop).ok
