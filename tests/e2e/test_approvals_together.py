"""One command approves several changes, also of several clusters: all are shown, confirmed once, and pushed, or none is."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from gitops.cli import approving
from gitops.cli.main import main
from gitops.cluster.ledger.chain import approvals_prefix
from tests.support.loop import CONFIG, FILES, MAIN, WITHOUT_LEGACY, Done, Loop
from tests.support.typed import typed

pytestmark = pytest.mark.e2e

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
    assert [f"update trust.{name} approved by bob@people.example" in done.text for name in ("brain", "lab")] == [
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
            text.index(f"cluster approve: {what} in production/brain")
            for what in ("update trust.brain", "delete graph.legacy")
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
    named = both.gitops("bob", "approve", "trust.brain", "trust.lab", "lab/graph.legacy", "--request", "1", check=False)
    refused = both.gitops("bob", *_printed(named.text), check=False)
    assert (refused.code, "ERROR approval_self graph.legacy" in refused.text, _approvals(both)) == (1, True, [])


def test_who_may_approve_nothing_signs_nothing(rules: Loop) -> None:
    refused = rules.gitops("alice", "approve", "--all", "--request", "1", check=False)
    assert (refused.code, refused.text.count("approval_self"), _approvals(rules)) == (1, 2, [])
    assert "ERROR approval_not_required: no change waits for an approval that you may give" in refused.text
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
        (["--all", "--yes"], "--yes needs --plan"),
        (["trust.brain", "trust.lab", "--break-glass", "--reason", "x"], "--break-glass approves one change"),
        (["trust.brain", "trust.lab", "--plan", "0" * 64], "--plan brain=..., --plan lab=..."),
        (["trust.brain", "--plan", f"lab={'0' * 64}"], "--plan brain=..."),
        (["trust.brain", "--rows", "few"], "--rows takes a number"),
        (["lab/graph.legacy", "--cluster", "brain"], "lab/graph.legacy is not of --cluster brain"),
    ],
)
def test_a_command_that_does_not_say_what_it_is_about(both: Loop, words: list[str], message: str) -> None:
    refused = both.gitops("bob", "approve", *words, check=False)
    assert (refused.code, message in refused.text) == (1, True), refused.text


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
