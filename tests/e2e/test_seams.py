"""Where one fact has two shapes, or a person is sent where nothing is: each test says what is wanted, and fails until it is so.

An approver has a clone and nothing else: the loops below are served over HTTP, so that no folder of the server is in reach.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from gitops.cluster.approvals.verify import REFUSALS, STEPS
from gitops.cluster.model import changeset
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Change
from gitops.cluster.model.kinds import Gate, GraphKind, Situation
from gitops.cluster.plan.plan import plan
from gitops.core.codes import Code
from gitops.forge.port import Permission
from gitops.git.port import RefUpdate
from gitops.render.comment_inputs import ApprovalState
from gitops.render.explanations import verification_steps
from gitops.repository.kept_plans import plan_ref
from tests.e2e.conftest import Built
from tests.support.bot_stage import Stage
from tests.support.loop import (
    APPROVALS,
    CLUSTER,
    CONFIG,
    DELETE_LEGACY,
    FILES,
    LEDGER,
    MAIN,
    Loop,
    LoopServer,
    printed_command,
)
from tests.support.loop_data import audited, load, refreshed, schema, workspace
from tests.support.paused import PausedRun
from tests.support.prefork import PYTHON

pytestmark = pytest.mark.e2e

NONE = r"\b0 rows|--rows 0"
SLIM = b"node Note {\n    title: String @key\n}\n"


@pytest.fixture(scope="session")
def with_rows(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: request 1 of alice drops a property, and only the graph knows that it holds 2 rows."""
    loop = built(f"{CONFIG}  gates: [lossy]\n").copied(tmp_path_factory.mktemp("rows") / "loop")
    load(loop, 2, "notes", "Note", "title")
    loop.move("refs/heads/slim", loop.commit("alice", {"cluster/notes.pg": SLIM}))
    return loop


@pytest.fixture
def asked(with_rows: Loop, tmp_path: Path) -> Iterator[Loop]:
    """The request is open, and has its plan."""
    loop = with_rows.copied(tmp_path / "asked")
    with LoopServer(loop) as server:
        loop.http = server
        yield loop


def seen_rows(loop: Loop) -> list[int | None]:
    """How many rows each approval says that its approver saw."""
    seen = [loop.evidence(loop.tip(ref))[1].seen for ref in loop.approvals()]
    return [None if each is None else each.rows for each in seen]


# A merged change of a schema is approved in a clone.


@pytest.mark.parametrize("words", ["schema.notes", "--all", "the command of the comment"])
def test_a_merged_change_of_a_schema_is_approved_in_a_clone(asked: Loop, words: str) -> None:
    asked.merge("carol", 1)
    assert schema(asked, "notes") != SLIM
    if words.startswith("the"):
        done = asked.gitops("bob", *shlex.split(printed_command(asked.comment(1)))[1:], check=False)
    else:
        done = asked.confirmed("bob", "approve", words)
    assert done.code == 0, done.text
    assert seen_rows(asked) == [2]
    assert schema(asked, "notes") == SLIM, "the arrival of the approval starts the apply"
    assert audited(asked).ok


# The rows of a graph that is not at hand are those of the bot's own plan, or are not known: never 0.


def test_an_approval_in_a_clone_is_for_the_rows_of_the_stored_plan(asked: Loop) -> None:
    done = asked.confirmed("bob", "approve", "schema.notes", "--request", "1")
    assert (done.code, seen_rows(asked)) == (0, [2]), done.text
    asked.merge("carol", 1)
    assert schema(asked, "notes") == SLIM
    assert audited(asked).ok


def test_rows_that_are_not_known_in_a_clone_are_not_signed(asked: Loop) -> None:
    asked.drop(plan_ref(CLUSTER, 1))
    words = ("approve", "schema.notes", "--request", "1")
    refused = asked.gitops("bob", *words, check=False)
    assert refused.code != 0
    assert "not known here" in refused.text
    assert not re.search(NONE, refused.text)
    assert "approval_not_confirmed" not in refused.text, "there is nothing to sign yet"
    assert asked.confirmed("bob", *words, "--rows", "2").code == 0
    assert seen_rows(asked) == [2]


@pytest.mark.parametrize("said", ["1", "5000"])
def test_a_number_that_is_not_that_of_the_stored_plan_is_not_signed(asked: Loop, said: str) -> None:
    """Otherwise a typing error opens an approval for any amount of data, as if somebody had seen it."""
    words = ("approve", "schema.notes", "--request", "1")
    command = printed_command(asked.gitops("bob", *words, check=False).text).replace("--rows 2", f"--rows {said}")
    refused = asked.gitops("bob", *shlex.split(command)[1:], check=False)
    assert refused.code == 1
    assert "approval_rows_differ" in refused.text
    assert f"--rows says {int(said):,}, but the graph has 2 rows, last recorded at " in refused.text
    assert asked.approvals() == ()
    (remedy,) = re.findall(r"run the same command with (--rows \d+)$", refused.text, re.MULTILINE)
    asked.gitops("bob", *shlex.split(command.replace(f"--rows {said}", remedy))[1:])
    assert seen_rows(asked) == [2]


def test_a_number_without_a_stored_plan_is_called_that_of_the_approver(asked: Loop) -> None:
    asked.drop(plan_ref(CLUSTER, 1))
    shown = asked.gitops("bob", "approve", "schema.notes", "--request", "1", "--rows", "5000", check=False)
    assert re.search(r"5,000 rows, as you say, in version \d+ of graph", shown.text)


def test_a_plan_of_a_request_in_a_clone_shows_the_rows_of_the_stored_plan(asked: Loop) -> None:
    shown = asked.gitops("bob", "plan", "--request", "1").text
    assert "2 rows in version 2" in shown
    assert "--rows 2" in shown


@pytest.mark.parametrize("stored", [True, False], ids=["of the work tree", "of a request without a stored plan"])
def test_a_plan_in_a_clone_says_that_rows_are_not_known(asked: Loop, stored: bool) -> None:
    words = ("--config", "cluster") if stored else ("--request", "1")
    if stored:
        (asked.clone("bob") / "cluster" / "notes.pg").write_bytes(SLIM)
    else:
        asked.drop(plan_ref(CLUSTER, 1))
    shown = asked.gitops("bob", "plan", *words).text
    assert "drop property `Note.text`" in shown
    assert "not known here" in shown
    assert not re.search(NONE, shown)


# One governed apply, whoever starts it.

STAGING = CONFIG.replace("environment: production", "environment: staging").encode()


def moved(loop: Loop) -> str:
    """Merge request 1, which moves the cluster to another environment; its approval, of which the bot has not heard."""
    loop.move("refs/heads/topic", loop.commit("carol", {"gitops.yaml": STAGING}))
    loop.merge("bob", 1)
    given = loop.sign_approval("alice", "cluster.brain").approval
    assert given is not None
    return APPROVALS + given.approval_id


def test_a_command_says_of_a_moved_cluster_what_the_bot_says(loop: Loop, tmp_path: Path) -> None:
    approval = moved(loop)
    assert "apply of brain: 1 applied" in loop.copied(tmp_path / "other").arrived(approval)
    apply = ("apply", "--cluster", CLUSTER)
    assert "1 would be applied" in loop.gitops("bot", *apply, "--dry-run", at=loop.server).text
    before = loop.tip(LEDGER)
    said = json.loads(loop.gitops("bot", *apply, "--json", at=loop.server).text)
    assert loop.tip(LEDGER) != before
    changes = [(each["resource"], each["operation"], each["disposition"]) for each in said["changes"]]
    assert changes == [("cluster.brain", "update", "applied")]
    assert (said["applied_count"], said["state_written"], said["converged"]) == (1, True, True)


def test_the_bot_says_that_a_move_was_written(loop: Loop) -> None:
    loop.arrived(moved(loop))
    assert re.findall(r"Recorded in ledger entry `\w+` \(revision (\d+)\)", loop.comment(1)) == ["4"]


# The steps of a verification are those that are shown.


def test_all_steps_of_a_verification_are_explained(known: Loop) -> None:
    stage = Stage(known, people={"12": Permission.WRITE})
    stage.propose("alice", "retire", dict(DELETE_LEGACY))
    assert known.sign_approval("bob", "graph.legacy", request=1).ok
    stage.say("12", 1, "/gitops explain graph.legacy")
    (shown,) = [each.body for each in known.book.comments(1) if "### Explained" in each.body]
    assert re.findall(r"step (\d+) passed", shown) == [str(number) for number in range(1, 9)], shown


def test_each_refusal_is_one_of_the_steps_that_are_explained() -> None:
    shown = {code: refused_at(code) for code in sorted(REFUSALS - {Code.APPROVAL_QUORUM})}
    assert [code for code, number in shown.items() if number is None] == []
    assert {code for code, number in shown.items() if number == 8} == {
        Code.APPROVAL_DATA_UNKNOWN,
        Code.APPROVAL_OTHER_GRAPH,
        Code.APPROVAL_DATA_GREW,
        Code.APPROVAL_DATA_REPLACED,
        Code.APPROVAL_CALLERS_MOVED,
    }
    assert shown[Code.APPROVAL_VIA_REFUSED] == 4
    assert shown[Code.APPROVAL_ACCOUNT_UNKNOWN] in (3, 4)


def refused_at(code: Code) -> int | None:
    """The number of the step that is shown as refused where the first step with this code refused an approval."""
    at = next((number for number, step in enumerate(STEPS, start=1) if code in step.codes), None)
    state = ApprovalState(resource="graph.legacy", satisfied=False, refused=((code, ""),), step=at)
    steps = verification_steps(state)
    return next((int(each["number"]) for each in steps if each["state"] == "refused"), None)


# A remedy that is printed is accepted from the person for whom it is printed.


def test_the_remedies_for_a_graph_that_vanished_are_accepted(loop: Loop, tmp_path: Path) -> None:
    shutil.rmtree(loop.graph("notes"))
    assert refreshed(loop) == {"graph_vanished"}
    applied = loop.gitops("bot", "apply", "--cluster", CLUSTER, "--json", at=loop.server).text
    remedies = re.findall(r"run: gitops (approve [\w. -]+)", applied)
    assert remedies, applied
    for number, remedy in enumerate(sorted(set(remedies))):
        alike = loop.copied(tmp_path / str(number))
        done = alike.confirmed("alice", *remedy.split())
        assert done.code == 0, done.text
        assert alike.graph("notes").exists()


# A failure of one graph, and what a run says of what it did not try.


def many_graphs(loop: Loop, *names: str) -> Path:
    """A folder of alice with a started ledger that declares these graphs."""
    folder = loop.home("alice") / "many"
    folder.mkdir()
    (folder / "notes.pg").write_bytes(SLIM)
    graphs = "".join(f"  {name}: {{schema: notes.pg}}\n" for name in names)
    (folder / "cluster.yaml").write_text(f"version: 1\ngraphs:\n{graphs}")
    loop.gitops("alice", "import", "--config", str(folder))
    return folder


@pytest.mark.parametrize(
    ("option", "created"), [((), {"a"}), (("--keep-going",), {"a", "c", "d"}), (("--fail-fast",), {"a"})]
)
def test_a_graph_that_refuses_ends_the_others_unless_the_run_keeps_going(
    loop: Loop, option: tuple[str, ...], created: set[str]
) -> None:
    folder = many_graphs(loop, *"abcd")
    foreign = folder / "graphs" / "b.omni"
    foreign.mkdir(parents=True)
    (foreign / "foreign").touch()
    apply = ("apply", "--config", str(folder), *option)
    done = loop.gitops("alice", *apply, check=False)
    assert done.code == 1
    assert set(re.findall(r"Create graph\.(\w) \[Applied\]", done.text)) == created
    foreign.joinpath("foreign").unlink()
    foreign.rmdir()
    assert loop.gitops("alice", *apply).code == 0, "the next run brings in the rest"


def test_what_was_stopped_is_one_line_and_its_status_is_true(loop: Loop, tmp_path: Path) -> None:
    names = [f"g{number:03}" for number in range(60)]
    folder = many_graphs(loop, *names)
    config = ("--config", str(folder))
    started = ", ".join(f"graph.{name}" for name in names[:5])
    assert f"  drift: {started} and 115 more (120 in all)\n" in loop.gitops("alice", "status", *config).text
    run = PausedRun.start(PYTHON, tmp_path / "pause", "cluster_apply.after_graph_create", "apply", *config)
    run.signal(signal.SIGINT)
    run.asked()
    run.pause.go_on()
    code, text = run.ended()
    assert code == 128 + signal.SIGINT, text
    stopped = [line for line in text.splitlines() if "[Blocked" in line]
    assert len(stopped) == 1, text
    assert re.fullmatch(r"  graph\.g\d+, .* more \(\d+ in all\) \[Blocked: run_stopped\]", stopped[0])
    status = loop.gitops("alice", "status", *config).text
    waits = [line for line in status.splitlines() if line.startswith("  waits:")]
    assert len(waits) == 1, status
    assert waits[0].endswith(": stopped before it ran")
    assert "could not" not in status
    assert f"graph.{names[-1]}: stopped" in loop.gitops("alice", "status", "--verbose", *config).text


# What the bot found is known to everybody who has a clone.


def test_reported_drift_is_not_in_sync_and_its_issue_is_read_in_a_clone(loop: Loop) -> None:
    with LoopServer(loop) as server:
        loop.http = server
        assert "  in sync: yes" in loop.gitops("bob", "status").text
        assert "no issue is open" in loop.gitops("bob", "issue", "list").text
        shutil.rmtree(loop.graph("notes"))
        loop.gitops("bot", "bot", "drift", at=loop.server, check=False)
        status = loop.gitops("bob", "status").text
        assert "  in sync: no" in status
        printed = re.search(r"drift_reported brain: issue 1 is open: Drift in .*: 1 resource: gitops (.*)", status)
        assert printed is not None, status
        shown = loop.gitops("bob", *printed[1].split()).text
        assert "graph.notes" in shown
        form = json.loads(loop.gitops("bob", "status", "--json").text)
        assert (form["in_sync"], [each["code"] for each in form["diagnostics"]]) == (False, ["drift_reported"])
        (listed,) = json.loads(loop.gitops("bob", "issue", "list", "--json").text)["issues"]
        assert (listed["number"], listed["state"]) == (1, "open")
        assert json.loads(loop.gitops("bob", "issue", "show", "1", "--json").text)["issue"]["body"] in shown
        missing = loop.gitops("bob", "issue", "show", "7", check=False)
        assert missing.code == 1
        assert "issue_not_found" in missing.text
        assert "fix: list the issues: gitops issue list --all" in missing.text


# A run that died in a folder.


def died(loop: Loop, tmp_path: Path) -> tuple[str, str]:
    """A folder in which a run that lands whole or not at all was killed, and the key of its changeset."""
    folder = many_graphs(loop, "a", "b")
    config = ("--config", str(folder))
    run = PausedRun.start(PYTHON, tmp_path / "pause", "cluster_apply.after_graph_create", "apply", "--atomic", *config)
    run.signal(signal.SIGKILL)
    run.process.communicate()
    (listed,) = json.loads(loop.gitops("alice", "changeset", "list", "--json", *config).text)["changesets"]
    return str(folder), listed["key"]


def test_the_lock_of_a_run_that_died_is_named_so_and_the_command_works(loop: Loop, tmp_path: Path) -> None:
    folder, key = died(loop, tmp_path)
    config = ("--config", folder)
    for reads in (("plan",), ("apply", "--dry-run"), ("status",)):
        shown = loop.gitops("alice", *reads, *config)
        assert "WARN  state_lock_held" in shown.text, shown.text
        assert "runs on this machine" in shown.text
        assert "graph.a" in shown.text
    watched = loop.gitops("alice", "changeset", "watch", key, *config, check=False)
    assert watched.code == 3
    assert "no apply is running: the ledger is locked by apply" in watched.text
    refused = loop.gitops("alice", "apply", *config, check=False)
    assert refused.code == 1
    printed = re.search(r"unless it runs on another one: (gitops force-unlock .*)", refused.text)
    assert printed is not None, refused.text
    loop.gitops("alice", *shlex.split(printed[1])[1:])
    idle = loop.gitops("alice", "changeset", "watch", key, *config, check=False)
    assert (idle.code, f"fix: continue: gitops apply --config {folder}" in idle.text) == (3, True), idle.text
    loop.gitops("alice", "apply", *config)
    assert loop.gitops("alice", "changeset", "watch", key, *config).code == 0


# A merge is taken back by the number of its request.


def test_the_merge_of_a_request_is_reverted_by_its_number(loop: Loop) -> None:
    policy = {"cluster/notes.gq": FILES["cluster/notes.gq"] + b"// a remark\n"}
    loop.move("refs/heads/remark", loop.commit("alice", policy))
    opened = loop.gitops("bob", "revert", "--request", "1", check=False)
    assert (opened.code, "request 1 is open" in opened.text) == (1, True), opened.text
    loop.merge("carol", 1)
    found = json.loads(loop.gitops("bob", "revert", "--request", "1", "--dry-run", "--json").text)
    assert found["files"] == ["cluster/notes.gq"]
    entry = str(found["entry"])
    by_entry = loop.gitops("bob", "revert", entry, "--dry-run").text
    assert loop.gitops("bob", "revert", "--request", "1", "--dry-run").text == by_entry
    assert f"request 2: open for revert-brain-{entry}" in loop.gitops("bob", "revert", "--request", "1").text
    for words in (("revert",), ("revert", "4", "--request", "1")):
        refused = loop.gitops("bob", *words, check=False)
        assert "usage_error: specify either an entry or a change request" in refused.text
    missing = loop.gitops("bob", "revert", "--request", "7", check=False)
    assert (missing.code, "request_not_found" in missing.text) == (1, True)


# What nothing makes, and what is made twice.


def test_no_fact_of_a_changeset_is_declared_that_no_run_makes() -> None:
    declared = [value for value in vars(changeset).values() if isinstance(value, type) and is_dataclass(value)]
    names = {each.__name__ for each in declared} | {part.name for each in declared for part in fields(each)}
    assert names & {"RecoverySwept", "pending_approvals"} == set()


def test_a_plan_describes_each_change_once(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a change is gated is asked of the rules of its kind, once a description."""
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("alice", DELETE_LEGACY))])
    asked, gate = Counter[Address](), GraphKind.gate

    def counted(rules: GraphKind, change: Change, situation: Situation) -> Gate | None:
        asked[change.address] += 1
        return gate(rules, change, situation)

    monkeypatch.setattr(GraphKind, "gate", counted)
    outcome = plan(workspace(loop))
    assert outcome.plan is not None
    assert [each.resource for each in outcome.plan.approvals_required] == ["graph.legacy"]
    assert asked == {"graph.legacy": 1}
