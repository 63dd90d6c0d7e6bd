"""`gitops changeset` and `gitops status` in the clone of a person, and real signals to runs at work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.cluster.model.changeset import Changeset
from gitops.database.graph import describe_graph
from gitops.git.port import NewCommit, RefUpdate
from tests.support.bot_stage import QUERY as OTHER
from tests.support.changeset_stories import MERGES, created, failed, landed, record
from tests.support.cluster import QUERY, SCHEMA, WIDER, lance_engine
from tests.support.loop import CONFIG, DELETE_LEGACY, FILES, LEDGER, MAIN, Loop, email
from tests.support.paused import PausedRun
from tests.support.prefork import PROGRAM, PYTHON

pytestmark = pytest.mark.e2e

ONE = created(MERGES[0])


def test_a_person_follows_a_merge_from_a_clone_without_a_checkout_of_the_ledger(loop: Loop) -> None:
    loop.clone("carol")
    before = loop.gitops("carol", "changeset", "list", "--all", "--json")
    known = json.loads(before.text)["changesets"]
    record(loop, ONE, landed(ONE)[:2])
    listed = json.loads(loop.gitops("carol", "changeset", "list", "--json").text)
    assert (listed["cluster"], [each["key"] for each in listed["changesets"]]) == ("brain", [ONE.key])
    command = [*PROGRAM, "changeset", "watch", "--commit", MERGES[0], "--timeout", "2m", "--json"]
    watch = subprocess.Popen(
        command, cwd=loop.clone("carol"), env=loop.environment("carol"), stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    with watch:
        assert json.loads(watch.stdout.readline())["type"] == "full_state"
        record(loop, ONE, landed(ONE)[2:5])
        types = [json.loads(line)["type"] for line in watch.stdout]
    assert types == ["resource_runtime_updated", "changeset_prepared", "changeset_committed"]
    assert watch.returncode == 0
    shown = loop.gitops(
        "carol", "changeset", "show", "--commit", MERGES[0], "--exit-code", "--until", "finalized", check=False
    )
    assert (shown.code, shown.text.splitlines()[0]) == (3, f"changeset {ONE.key}: committed")
    record(loop, ONE, landed(ONE)[5:])
    assert loop.gitops("carol", "changeset", "list").text.startswith("no changeset is open")
    after = json.loads(loop.gitops("carol", "changeset", "list", "--all", "--json").text)["changesets"]
    assert len(after) == len(known) + 1


def test_a_cluster_that_is_not_listed_is_no_failed_merge(loop: Loop) -> None:
    done = loop.gitops("carol", "changeset", "watch", ONE.key, "--cluster", "brian", check=False)
    assert done.code == 5
    assert "ERROR cluster_not_found" in done.text


def test_a_signer_of_the_ledger_gives_a_changeset_up_and_the_audit_holds(loop: Loop) -> None:
    server = ("--repo", str(loop.server))
    record(loop, ONE, landed(ONE)[:3])
    done = loop.gitops("carol", "changeset", "fail", ONE.key, "--error", "the node is full", check=False)
    assert (done.code, "its key may not sign the ledger" in done.text) == (1, True)
    assert "ERROR ledger_not_writable" in done.text
    done = loop.gitops("bot", "changeset", "fail", ONE.key, "--error", "the node is full", "--json", *server)
    assert json.loads(done.text)["changeset"]["state"] == "rolling_back"
    late = loop.gitops("carol", "changeset", "fail", ONE.key, "--error", "again", check=False)
    assert "ERROR changeset_state_invalid" in late.text
    loop.gitops("bot", "changeset", "fail", ONE.key, "--error", "given up", "--force", *server)
    shown = loop.gitops("carol", "changeset", "show", ONE.key, "--exit-code", check=False)
    assert (shown.code, "ERROR the node is full" in shown.text) == (1, True)
    loop.program("carol", "git", "fetch", "-q")
    loop.gitops("carol", "audit")


def test_a_merge_that_failed_is_tried_again_until_the_branch_moves_on(loop: Loop) -> None:
    def merged(text: bytes) -> Changeset:
        """A merge of which the hooks of the server did not hear, and whose changeset failed."""
        new = loop.commit("alice", {"cluster/notes.gq": text})
        loop.store.update_refs([RefUpdate(MAIN, loop.tip(), new)])
        made = created(new)
        record(loop, made, failed(made))
        return made

    first, second = (b"query titles() { match { $n: Note } return { $n.%s } }\n" % name for name in (b"text", b"title"))
    one = merged(first)
    loop.gitops("bot", "changeset", "retry", one.key, "--repo", str(loop.server))
    listed = json.loads(loop.gitops("carol", "changeset", "list", "--all", "--json").text)["changesets"]
    assert [(each["attempt"], each["kind"], each["state"]) for each in listed[:2]] == [
        (2, "retry", "finalized"),
        (1, "merge", "failed"),
    ]
    assert listed[0]["retry_of"] == one.key
    assert loop.gitops("carol", "changeset", "watch", "--commit", one.covers[0]).code == 0
    two = merged(second)
    # What is merged elsewhere changes nothing of it, and is not waited for.
    moved = loop.commit("alice", {"README.md": b"Something else.\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), moved)])
    done = loop.gitops("carol", "changeset", "watch", "--commit", moved)
    assert done.text.endswith(f"commit {moved} has nothing to apply to brain, so no changeset is recorded for it\n")
    shown = loop.gitops("carol", "changeset", "show", "--commit", moved, "--json", "--exit-code")
    assert (json.loads(shown.text)["no_change"], json.loads(shown.text)["changesets"]) == (True, [])
    moved = loop.commit("alice", {"cluster/notes.gq": b"query titles() { match { $m: Note } return { $m.title } }\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), moved)])
    done = loop.gitops("bot", "changeset", "retry", two.key, "--repo", str(loop.server), check=False)
    assert (done.code, "a later merge changes the cluster" in done.text) == (1, True)
    loop.program("carol", "git", "fetch", "-q")
    loop.gitops("carol", "audit")


@pytest.mark.damaged_ledger(reason="an entry has the message of another state")
def test_a_message_that_contradicts_the_files_is_reported_and_the_files_count(loop: Loop) -> None:
    record(loop, ONE, landed(ONE)[:4])
    head = loop.store.commit(loop.tip(LEDGER))
    lie = head.message.replace("Changeset-State: prepared", "Changeset-State: committed")
    assert lie != head.message
    new = NewCommit(head.tree, head.parents, head.author, lie)
    forged = loop.store.write_commit(new, signing_key=str(loop.key("bot")))
    loop.store.update_refs([RefUpdate(LEDGER, head.id, forged)])
    done = loop.gitops("carol", "changeset", "show", ONE.key, check=False)
    assert (done.code, done.text.splitlines()[0]) == (1, f"changeset {ONE.key}: prepared")
    assert "ERROR trailer_mismatch" in done.text
    shown = loop.gitops("carol", "changeset", "show", ONE.key, "--exit-code", "--json", check=False)
    form = json.loads(shown.text)
    assert (shown.code, form["ok"], form["changesets"][0]["state"]) == (3, False, "prepared")


AT_WORK = "cluster_apply.before_schema_apply"
# A shell starts what runs in its background with this signal ignored.
START = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from gitops.cli import main; main.entry()"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An applied graph whose schema changes, and a query that waits for that."""
    made = tmp_path / "cluster"
    made.mkdir()
    text = "version: 1\ngraphs:\n  g:\n    schema: g.pg\n    queries:\n      find_person:\n        file: q.gq\n"
    (made / "cluster.yaml").write_text(text)
    (made / "g.pg").write_text(SCHEMA)
    (made / "q.gq").write_text(QUERY)
    for verb in ("import", "apply"):
        assert main([verb, "--config", str(made), "-q"]) == 0
    (made / "g.pg").write_text(WIDER)
    (made / "q.gq").write_text(QUERY + "// again\n")
    return made


def paused(folder: Path, point: str, *more: str) -> PausedRun:
    return PausedRun.start(PYTHON, folder.parent / "pause", point, "apply", "--config", str(folder), *more)


def intents(folder: Path) -> list[Path]:
    return list((folder / "__cluster" / "recoveries").glob("*.json"))


def test_the_first_signal_finishes_a_migration_and_records_it(folder):
    run = paused(folder, AT_WORK)
    run.signal(signal.SIGINT)
    assert "starts nothing more, waits for 1 running; interrupt again to stop waiting" in run.asked()
    run.pause.go_on()
    code, out = run.ended()
    assert code == 128 + signal.SIGINT
    assert "Update schema.g [Applied]" in out
    assert "apply_interrupted: the run was interrupted: 1 of 2 changes are not applied" in out
    assert "fix: apply the rest: gitops apply" in out
    assert intents(folder) == []
    assert not (folder / "__cluster" / "lock.json").exists()
    assert main(["apply", "--config", str(folder), "-q"]) == 0
    assert main(["plan", "--config", str(folder), "--detailed-exitcode", "-q"]) == 0


def test_a_second_signal_leaves_the_intent_and_the_next_run_looks_first(folder):
    run = paused(folder, AT_WORK, "--events", str(folder.parent / "events.jsonl"))
    run.signal(signal.SIGTERM)
    run.asked()
    run.signal(signal.SIGTERM)
    code, out = run.ended()
    assert code == 128 + signal.SIGTERM
    assert "node_indeterminate schema.g: the run did not wait for the change to end" in out
    (intent,) = intents(folder)
    events = [json.loads(line) for line in (folder.parent / "events.jsonl").read_text().splitlines()]
    (lost,) = (e["data"] for e in events if e["type"] == "node_indeterminate")
    assert lost["recovery"] == intent.stem
    assert events[-1]["type"] == "apply_finished"
    assert not (folder / "__cluster" / "lock.json").exists()
    assert main(["apply", "--config", str(folder), "-q"]) == 0
    assert intents(folder) == []
    assert main(["plan", "--config", str(folder), "--detailed-exitcode", "-q"]) == 0


def test_a_signal_before_anything_is_changed_ends_at_once_and_gives_the_lock_back(folder):
    run = paused(folder, "ledger.lock.after_take")
    run.signal(signal.SIGTERM)
    code, out = run.ended()
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert not (folder / "__cluster" / "lock.json").exists()
    assert intents(folder) == []


@pytest.fixture
def people(tmp_path: Path) -> str:
    """The root of a graph without rows."""
    root = str(tmp_path / "people.omni")
    lance_engine().prepare_create(root, SCHEMA.encode(), actor=None).publish()
    return root


def test_a_load_that_is_interrupted_while_it_reads_says_that_nothing_was_loaded(people):
    command = [sys.executable, "-c", START, "graph", "load", "people", "-", "--root", people]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, stdin=subprocess.PIPE, text=True) as program:
        # More than a pipe holds: once the last of it is written, most of it is read.
        for number in range(20_000):
            program.stdin.write(json.dumps({"type": "Person", "data": {"handle": f"p{number}"}}) + "\n")
        program.stdin.flush()
        program.send_signal(signal.SIGINT)
        assert program.wait() == 128 + signal.SIGINT
        assert (program.stdout.read(), program.stderr.read()) == ("", "interrupted: nothing was loaded\n")
    assert describe_graph(people).manifest_version == 1


@pytest.mark.parametrize(
    ("point", "said", "version"),
    [
        ("engine.load.staged", "interrupted: nothing was loaded\n", 1),
        (
            "engine.load.after_publish",
            "interrupted: the load was being published; to see whether the graph has it: gitops graph log people\n",
            2,
        ),
    ],
)
def test_a_load_that_is_interrupted_says_whether_it_may_be_there(people, tmp_path, point, said, version):
    rows = tmp_path / "rows.ndjson"
    rows.write_text(json.dumps({"type": "Person", "data": {"handle": "ada"}}) + "\n")
    run = PausedRun.start(PYTHON, tmp_path / "pause", point, "graph", "load", "people", str(rows), "--root", people)
    run.signal(signal.SIGINT)
    assert run.asked() == said
    assert run.ended() == (128 + signal.SIGINT, "")
    assert describe_graph(people).manifest_version == version


def merged(loop: Loop) -> str:
    """A wider schema of the applied graph, and a query that waits for its migration."""
    schema = FILES["cluster/notes.pg"].replace(b"text: String?", b"text: String?\n    mood: String?")
    head = loop.commit("carol", {"cluster/notes.pg": schema, "cluster/notes.gq": OTHER})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), head)])
    return head


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 2])
def test_a_job_of_the_bot_that_is_stopped_is_gone_on_with_by_the_next_one(loop: Loop, tmp_path: Path, signals: int):
    head = merged(loop)
    place = {"at": loop.server, "environ": loop.environment("bot")}
    run = PausedRun.start(PYTHON, tmp_path / "pause", AT_WORK, "bot", "apply", **place)
    run.signal(signal.SIGTERM)
    run.asked()
    if signals > 1:
        run.signal(signal.SIGTERM)
    else:
        run.pause.go_on()
    code, out = run.ended()
    assert code == 128 + signal.SIGTERM, out
    assert not loop.store.refs("refs/gitops/locks")
    # The run takes back what it staged, also what a second signal gave up: nothing is left for the next run to find out.
    assert loop.store.subtree(loop.store.commit(loop.tip(LEDGER)).tree, "__cluster/recoveries") is None
    assert "failure" in loop.status(head, "apply")
    ran = loop.program("bot", *PROGRAM, "bot", "apply", at=loop.server, check=False)
    assert (ran.code, loop.status(head, "apply")[:7]) == (0, "success"), ran.text
    again = loop.program("bot", *PROGRAM, "bot", "apply", at=loop.server, check=False)
    assert (again.code, "0 applied" in again.text) == (0, True), again.text


OTHER_QUERY = b"query titles() { match { $x: Note } return { $x.title } }\n"
NAMES = {
    "other/cluster.yaml": b"version: 1\ngraphs:\n  names:\n    schema: names.pg\n",
    "other/names.pg": b"node Name {\n    text: String @key\n}\n",
}
RULE = "- {name: brain, path: cluster, branch: main, environment: production}"


def test_a_cluster_that_waits_says_for_what_and_for_whom(merged: Loop) -> None:
    lines = merged.gitops("carol", "status").text.splitlines()
    assert "  in sync: no; gitops plan shows what an apply would do" in lines
    assert f"  waits: graph.legacy: waits for an approval; may approve: {email('bob')}, {email('carol')}" in lines
    assert "  debts: none" in lines
    (last,) = (line for line in lines if line.startswith("  last entry: "))
    assert last.endswith(f"by {email('bot')}, commit {merged.tip()[:12]}")


def test_a_merge_that_waits_for_approvals_has_not_ended_and_names_them(merged: Loop) -> None:
    tip = merged.tip()
    shown = merged.gitops("carol", "changeset", "show", "--commit", tip, "--exit-code", check=False)
    assert shown.code == 3
    assert f"ERROR changeset_not_ended {tip}: commit {tip} is not applied completely" in shown.text
    assert f"gitops approve graph.legacy; then watch again: gitops changeset watch --commit {tip}" in shown.text


def test_the_newest_merge_is_the_one_that_waits_for_approvals(merged: Loop) -> None:
    """It has no changeset: the latest record is that of an earlier merge, which landed."""
    shown = merged.gitops("carol", "changeset", "show", "--latest", check=False)
    assert (shown.code, f"ERROR changeset_not_ended {merged.tip()}: " in shown.text) == (1, True)
    assert "finalized" not in shown.text
    for words in (["--all"], []):
        listed = merged.gitops("carol", "changeset", "list", *words).text
        assert f"WARN  changeset_not_ended {merged.tip()}: " in listed
        assert (
            "approvals are missing for graph.legacy; ask an approver who is not an author to run: gitops approve"
            in listed
        )
    assert json.loads(merged.gitops("carol", "changeset", "list", "--json").text)["problems"]


def test_the_output_of_a_push_that_waits_has_the_command(loop: Loop) -> None:
    lines = loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    assert "apply of brain: waits for an approval, in a clone: gitops approve graph.legacy --cluster brain" in lines


def test_who_may_not_act_alone_is_refused_before_rows_are_asked_for(loop: Loop) -> None:
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    done = loop.gitops("bob", "approve", "graph.legacy", "--break-glass", "--reason", "x", check=False)
    assert (done.code, "approval_signer_not_allowed" in done.text, "--rows" in done.text) == (1, True, False)
    asked = loop.gitops("bob", "approve", "graph.legacy", check=False)
    assert "approval_data_unknown" in asked.text


def test_several_clusters_have_a_line_each_and_details_by_name(loop: Loop) -> None:
    assert "  in sync: yes" in loop.gitops("carol", "status").text.splitlines()
    two = CONFIG.replace(RULE, f"{RULE}\n  - {{name: other, path: other, environment: staging}}")
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": two.encode(), "other/cluster.yaml": b"version: 1\n"}))
    first, second = loop.gitops("carol", "status").text.splitlines()
    assert first.startswith("production/brain: in sync; revision ")
    assert second.startswith("staging/other: in sync; revision 1; entry 1, import at ")
    form = json.loads(loop.gitops("carol", "status", "--json").text)
    assert [(each["cluster"], each.get("in_sync")) for each in form["clusters"]] == [
        ("production/brain", True),
        ("staging/other", True),
    ]
    assert loop.gitops("carol", "status", "--cluster", "brain").text.startswith("State: revision ")


def test_a_command_that_reads_takes_all_clusters_and_another_one_needs_a_name(loop: Loop) -> None:
    two = CONFIG.replace(RULE, f"{RULE}\n  - {{name: other, path: other, environment: staging}}")
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": two.encode(), "other/cluster.yaml": b"version: 1\n"}))
    loop.program("carol", "git", "fetch", "-q", at=loop.clone("carol"))
    loop.program("carol", "git", "merge", "-q", "--ff-only", "origin/main", at=loop.clone("carol"))
    for command in (["log"], ["audit"], ["plan"], ["validate"], ["lint"], ["policy", "check"], ["changeset", "list"]):
        done = loop.gitops("carol", *command)
        assert done.code == 0, done.text
        assert [line for line in done.text.splitlines() if line in ("brain:", "other:")] == ["brain:", "other:"]
    for command in (["log"], ["audit"], ["plan"], ["validate"], ["lint"], ["policy", "check"], ["changeset", "list"]):
        form = json.loads(loop.gitops("carol", *command, "--json").text)
        assert (form["ok"], form["problems"]) == (True, [])
        assert [(each["cluster"], each["ok"]) for each in form["clusters"]] == [("brain", True), ("other", True)]
        one = json.loads(loop.gitops("carol", *command, "--cluster", "other", "--json").text)
        assert json.loads(loop.gitops("carol", *command, "--config", "other", "--json").text)["ok"] is one["ok"] is True
    for command in (["log"], ["audit"], ["plan"], ["changeset", "list"]):
        done = loop.gitops("bot", *command, at=loop.server)
        assert [line for line in done.text.splitlines() if line in ("brain:", "other:")] == ["brain:", "other:"]
    assert "to list those that have ended: gitops changeset list --cluster other --all" in done.text
    for command in (["apply", "--dry-run"], ["refresh"], ["import"], ["fmt"], ["graph", "show", "notes"]):
        done = loop.gitops("carol", *command, check=False)
        assert (done.code, done.text.split()[1]) == (1, "cluster_ambiguous"), done.text
        assert "brain, other" in done.text
    wrong = loop.gitops("carol", "status", "--cluster", "othr", check=False)
    assert "did you mean `other`?" in wrong.text
    assert loop.gitops("carol", "policy", "check", "--cluster", "./other").code == 0


def test_a_plan_says_that_an_approver_has_no_key_and_that_a_folder_is_misspelt(loop: Loop) -> None:
    more = CONFIG.replace(f"{email('carol')}]", f"{email('carol')}, {email('dave')}]")
    loop.move("refs/heads/dave", loop.commit("alice", {"gitops.yaml": more.encode()}))
    planned = loop.gitops("bob", "plan", "--request", "1", check=False).text
    assert f"WARN  approver_key_missing trust.brain: {email('dave')} has no valid key" in planned
    clone = loop.clone("carol")
    (clone / "gitops.yaml").write_text(CONFIG.replace("path: cluster,", "path: clustre,"))
    done = loop.gitops("carol", "plan", "--config", "cluster", check=False)
    assert done.code == 1
    assert "bot_config_invalid" in done.text
    assert "did you mean `cluster`?" in done.text
    assert "Update cluster." not in done.text


def test_a_request_hears_only_of_the_clusters_that_it_touches(loop: Loop) -> None:
    """One cluster is not touched for a while: what changes it later says nothing on the requests in between."""
    rules = CONFIG.replace(RULE, f"{RULE}\n  - {{name: other, path: other, environment: staging}}")
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": rules.encode(), "other/cluster.yaml": b"version: 1\n"}))
    for branch, files in {"words": {"cluster/notes.gq": OTHER_QUERY}, "names": NAMES}.items():
        loop.move(f"refs/heads/{branch}", loop.commit("alice", files))
    loop.merge("carol", 1)
    said = loop.comment(1)
    loop.merge("carol", 2)
    assert loop.comment(1) == said
    assert "staging/other" in loop.comment(2)
    assert [loop.request(number).labels for number in (1, 2)] == [("gitops/applied",)] * 2


def test_rules_that_are_not_in_force_wait_for_whoever_may_approve_them(loop: Loop) -> None:
    rules = f"{CONFIG}  required: 2\n"
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": rules.encode()}))
    (waits,) = (line for line in loop.gitops("carol", "status").text.splitlines() if line.startswith("  waits: "))
    assert waits.startswith("  waits: trust.brain: the keys and rules of the newest entry stay in force")
    assert waits.endswith(f"; may approve: {email('alice')}, {email('bob')}")
