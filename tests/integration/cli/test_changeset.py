"""`gitops changeset` in a cluster folder: what it prints, and the exit codes by which a job knows what became of a merge."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.cli.changeset import watch
from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Command
from gitops.cli.main import EVERYWHERE, build_parser, main, parse_options
from gitops.cli.progress import watching
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import INDEX
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.ledger.records import read_run
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetState,
    EventDraft,
    Happening,
    Prepared,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import LedgerState, LockInfo
from gitops.cluster.model.plan import RunEvent
from gitops.cluster.session.changesets import Pacing
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from gitops.render.changesets import to_gantt
from gitops.repository.wiring.system import SystemClock
from tests.support.changeset_stories import AT, MERGES, QUERY, created, failed, landed, removing
from tests.support.cli_page import commands
from tests.support.clock import FixedClock
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, start

NOTHING_OPEN = "no changeset is open; to list those that have ended: gitops changeset list --config {} --all\n"
ONE, TWO = created(), created(MERGES[1])
CLOCK = FixedClock(datetime(2026, 6, 11, 9, tzinfo=UTC))


class Folder:
    """A cluster folder whose ledger is started, and what is recorded in it."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        (place / "cluster.yaml").write_text("version: 1\nmetadata:\n  name: brain\n")
        self.place, self.ledger = str(place), FolderLedger(LocalStore(place), clock=CLOCK, faults=NoFaults())
        self.ledger.commit(self.ledger.view(), LedgerWrite(LedgerState(revision=1)))

    def record(self, changeset: Changeset, *happenings: Happening) -> None:
        drafts = [EventDraft(changeset.key, AT, each) for each in happenings]
        self.ledger.begin(self.ledger.view(), (), None, drafts)

    def run(self, *words: str) -> int:
        """A command on this folder."""
        return main(["changeset", words[0], "--config", self.place, *words[1:]])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "cluster")


def declare_notes(folder: Folder) -> None:
    """Declare a graph, which the next apply creates."""
    place = Path(folder.place)
    graphs = "graphs:\n  notes:\n    schema: notes.pg\n"
    (place / "cluster.yaml").write_text(f"version: 1\nmetadata:\n  name: brain\n{graphs}")
    (place / "notes.pg").write_text("node Note {\n  title: String @key\n}\n")


def paced(*between: Callable[[], object]) -> Pacing:
    """Pauses that take no time, in which other things happen."""
    clock, deeds = FixedClock(datetime(2026, 6, 11, 9, tzinfo=UTC)), iter(between)

    def pause(seconds: float) -> None:
        clock.advance(timedelta(seconds=seconds))
        next(deeds, lambda: None)()

    return Pacing(clock, pause, lambda: 0.5)


def watched(folder: Folder, *words: str, between: tuple[Callable[[], object], ...] = ()) -> int:
    """The exit code of a watch that does not really wait."""
    return watch(parse_options(["changeset", "watch", "--config", folder.place, *words]), paced(*between))


def test_a_list_has_what_has_not_ended_and_with_all_the_rest(folder, capsys):
    assert folder.run("list") == 0
    assert capsys.readouterr().out == NOTHING_OPEN.format(folder.place)
    folder.record(ONE, *failed(ONE))
    folder.record(TWO, *landed(TWO)[:3])
    assert folder.run("list") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["KEY", "STATE", "AGE", "MERGE", "CHANGES", "ERROR"]
    assert row.split()[:2] == [TWO.key, "preparing"]
    assert folder.run("list", "--all", "--json") == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["ok"], form["cluster"]) == (True, "brain")
    assert [(each["key"], each["phase"]) for each in form["changesets"]] == [
        (TWO.key, "provisioning"),
        (ONE.key, "failed"),
    ]
    assert folder.run("list", "--state", "failed", "--limit", "1") == 0
    assert ONE.key in capsys.readouterr().out


def test_a_record_is_shown_by_key_by_merge_and_as_the_newest_with_its_events(folder, capsys):
    record = removing()
    folder.record(record, *landed(record))
    for words in ((record.key,), ("--commit", MERGES[0]), ("--latest",)):
        assert folder.run("show", *words) == 0
        assert capsys.readouterr().out.startswith(f"changeset {record.key}: finalized\n  merge of 111111111111")
    assert folder.run("show", record.key, "--events", "--json") == 0
    (form,) = json.loads(capsys.readouterr().out)["changesets"]
    assert [each["seq"] for each in form["events"]] == list(range(1, 9))
    assert form["removals"][0]["state"] == "deleted"


@pytest.mark.parametrize(
    ("story", "words", "code"),
    [
        (landed(ONE)[:5], [], 0),
        (landed(ONE)[:5], ["--until", "finalized"], 3),
        (landed(ONE), ["--until", "finalized"], 0),
        (landed(ONE)[:3], [], 3),
        (failed(ONE), [], 1),
    ],
)
def test_the_exit_code_says_what_became_of_it(folder, capsys, story, words, code):
    folder.record(ONE, *story)
    assert folder.run("show", ONE.key, "--exit-code", *words) == code
    assert folder.run("show", ONE.key, *words) == 0
    assert watched(folder, "--commit", MERGES[0], "--timeout", "20s", *words) == code
    said = capsys.readouterr().err
    assert ("changeset_not_ended" in said) is (code == 3)


def test_what_does_not_exist_is_4_and_a_ledger_that_cannot_be_read_is_5(folder, capsys):
    folder.record(ONE, *landed(ONE))
    assert folder.run("show", TWO.key) == 1
    assert folder.run("show", TWO.key, "--exit-code") == 4
    assert watched(folder, "--commit", MERGES[1], "--timeout", "20s") == 4
    said = capsys.readouterr()
    assert said.err.count("ERROR changeset_not_found") == 3
    assert "fix: list the changesets: gitops changeset list --all" in said.err
    (Path(folder.place) / INDEX).write_text("{}")
    assert folder.run("show", ONE.key, "--exit-code") == 5
    assert watched(folder, ONE.key) == 5
    assert folder.run("list") == 1
    assert capsys.readouterr().err.count("ERROR changeset_invalid") == 3


@pytest.mark.parametrize(
    "words",
    [
        ["show"],
        ["show", "chs-x"],
        ["show", ONE.key, "--latest"],
        ["show", "--commit", "main"],
        ["watch"],
        ["watch", ONE.key, "--commit", MERGES[0]],
        ["watch", ONE.key, "--timeout", "soon"],
        ["watch", ONE.key, "--until", "drained"],
        ["list", "--state", "lost"],
        ["list", "--limit", "0"],
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(folder, capsys, words):
    try:
        code = folder.run(*words)
    except SystemExit as end:
        code = end.code
    assert code == 2
    said = capsys.readouterr()
    assert not said.out
    assert any(
        word in said.err
        for word in (f"gitops changeset list --config {folder.place} --all", "git rev-parse", "usage: gitops changeset")
    )


def test_a_watch_prints_a_line_for_each_item_as_text_and_as_json(folder, capsys):
    def recorded(*happenings: Happening) -> Callable[[], None]:
        return lambda: folder.record(ONE, *happenings)

    story = landed(ONE)
    assert watched(folder, ONE.key, between=(recorded(*story[:3]), recorded(*story[3:5]))) == 0
    assert [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "revision 1, 0 resources applied",
        f"{ONE.key} created for merge 111111111111: 1 to change",
        f"{ONE.key} query.brain.find staged",
        f"{ONE.key} query.brain.find ready",
        f"{ONE.key} prepared",
        f"{ONE.key} committed: revision 2",
    ]
    assert watched(folder, ONE.key, "--until", "finalized", "--json", between=(recorded(*story[5:]),)) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["seq"], each["type"]) for each in items] == [
        (5, "full_state"),
        (6, "changeset_drained"),
        (7, "changeset_finalized"),
    ]


def test_problems_of_a_watch_are_not_among_its_lines_of_json(folder, capsys):
    assert watched(folder, ONE.key, "--json", "--timeout", "5s") == 4
    said = capsys.readouterr()
    assert [json.loads(line)["type"] for line in said.out.splitlines()] == ["full_state"]
    assert said.err.startswith(f"ERROR changeset_not_found {ONE.key}: the ledger did not record")


def test_a_folder_that_is_broken_says_so(tmp_path, capsys):
    (tmp_path / "cluster.yaml").write_text("version: 2\n")
    assert main(["changeset", "list", "--config", str(tmp_path)]) == 1
    assert "ERROR unsupported_cluster_config_version" in capsys.readouterr().err


def test_old_ledgers_have_no_changesets(folder, capsys):
    assert folder.run("list", "--all") == 0
    assert capsys.readouterr().out == "no changesets\n"
    assert folder.run("show", "--latest", "--exit-code") == 4


def test_a_changeset_that_is_given_up_is_rolled_back_by_the_next_run(folder, capsys):
    folder.record(ONE, *landed(ONE)[:3])
    assert folder.run("fail", ONE.key, "--error", "the node is full") == 0
    rest = f"the running apply, otherwise the next one, rolls back the prepared changes: gitops apply --config {folder.place}"
    assert capsys.readouterr().out == f"changeset {ONE.key}: rolling_back; {rest}\n"
    assert folder.ledger.changeset(ONE.key).error == "the node is full"
    assert folder.run("fail", ONE.key, "--error", "again") == 1
    assert f"gitops changeset fail --config {folder.place} {ONE.key} --error TEXT --force" in capsys.readouterr().err
    assert folder.run("show", ONE.key, "--exit-code") == 3


def test_the_next_apply_ends_what_was_given_up_and_applies_what_is_declared(folder, capsys):
    folder.record(ONE, *landed(ONE)[:3])
    assert folder.run("fail", ONE.key, "--error", "the node is full") == 0
    declare_notes(folder)
    main(["apply", "--config", folder.place])
    said = capsys.readouterr().out
    ended = folder.ledger.changeset(ONE.key)
    assert (ended.state, ended.error) == (ChangesetState.FAILED, "the node is full")
    assert "changeset_rolled_back" in said
    assert folder.ledger.view().state.digests().keys() == {"graph.notes", "schema.notes"}
    assert folder.run("list") == 0
    assert capsys.readouterr().out == NOTHING_OPEN.format(folder.place)


def test_force_ends_one_that_is_rolling_back_and_lists_what_is_left(folder, capsys):
    folder.record(ONE, *landed(ONE)[:3])
    assert folder.run("fail", ONE.key, "--error", "stuck", "--force") == 1
    assert "--force only ends one that is rolling back" in capsys.readouterr().err
    assert folder.run("fail", ONE.key, "--error", "stuck") == 0
    assert folder.run("fail", ONE.key, "--error", "given up", "--force", "--json") == 0
    form = json.loads(capsys.readouterr().out.partition("\n")[2])["changeset"]
    assert (form["state"], form["error"]) == ("failed", "stuck")
    assert form["orphaned"] == [{"address": "query.brain.find", "reason": "it was not taken back"}]
    assert folder.run("show", ONE.key, "--exit-code") == 1


@pytest.mark.parametrize("length", [5, 6, 7])
def test_what_is_committed_is_not_given_up_and_nothing_changes(folder, capsys, length):
    folder.record(ONE, *landed(ONE)[:length])
    before = folder.ledger.changeset(ONE.key)
    for words in ([], ["--force"]):
        assert folder.run("fail", ONE.key, "--error", "late", *words) == 1
        assert "gitops revert" in capsys.readouterr().err
    assert folder.ledger.changeset(ONE.key) == before
    assert len(folder.ledger.events()) == length


def test_a_change_that_cannot_be_taken_back_and_was_begun_only_goes_on(folder, capsys):
    pivot = created(members=(replace(ONE.members[0], effect=Effect.PIVOT),))
    begun = RuntimeUpdated(QUERY, Runtime(RuntimeState.PROVISIONING, 1, AT, AT))
    folder.record(pivot, landed(pivot)[0], Prepared(()), begun)
    assert folder.run("fail", pivot.key, "--error", "no") == 1
    assert "fix: continue it: gitops apply" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("operation", "code", "state"),
    [("apply", 0, ChangesetState.ROLLING_BACK), ("refresh", 1, ChangesetState.PREPARING)],
)
def test_an_apply_at_work_keeps_the_lock_and_its_changeset_is_given_up(folder, capsys, operation, code, state):
    folder.record(ONE, *landed(ONE)[:2])
    folder.ledger.acquire(LockInfo("0" * 26, operation, AT, 1))
    assert folder.run("fail", ONE.key, "--error", "no") == code
    assert ("ERROR state_lock_held" in capsys.readouterr().err) is bool(code)
    assert folder.ledger.changeset(ONE.key).state is state
    assert folder.ledger.observe_lock().held


def test_giving_up_names_a_changeset_and_a_reason_in_one_line(folder, capsys):
    assert folder.run("fail", "main", "--error", "x") == 2
    assert folder.run("fail", ONE.key, "--error", "two\nlines") == 2
    assert folder.run("fail", ONE.key, "--error", "x") == 1
    assert "ERROR changeset_not_found" in capsys.readouterr().err


def test_what_failed_is_tried_again_as_its_next_attempt_and_keeps_its_record(folder, capsys):
    declare_notes(folder)
    folder.record(ONE, *failed(ONE))
    before = folder.ledger.changeset(ONE.key)
    assert folder.run("retry", ONE.key) == 0
    assert capsys.readouterr().out.startswith("Apply: 2 applied")
    newest, old = (folder.ledger.changeset(key) for key in folder.ledger.changeset_keys())
    assert old == before
    assert (newest.retry_of, newest.attempt, newest.kind, newest.atomic) == (ONE.key, 2, "retry", True)
    assert newest.state is ChangesetState.FINALIZED
    assert folder.run("show", "--commit", MERGES[0], "--exit-code", "--until", "finalized") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"attempt 2, again after {ONE.key}")
    assert folder.run("retry", ONE.key) == 1
    assert f"gitops changeset show --config {folder.place} {newest.key}" in capsys.readouterr().err


@pytest.mark.parametrize("length", [1, 4, 5, 7])
def test_only_what_failed_is_tried_again(folder, capsys, length):
    folder.record(ONE, *landed(ONE)[:length])
    assert folder.run("retry", ONE.key) == 1
    assert "only a failed changeset can be retried" in capsys.readouterr().err
    assert folder.run("retry", TWO.key) == 1
    assert "ERROR changeset_not_found" in capsys.readouterr().err
    assert folder.run("retry", "main") == 2


def test_the_status_of_a_folder_says_how_its_last_apply_ended(folder, capsys):
    status = ["status", "--config", folder.place]
    main(status)
    assert "last apply" not in capsys.readouterr().out
    folder.record(ONE, *landed(ONE))
    main(status)
    assert f"  last apply: {ONE.key}, finalized at {AT}\n" in capsys.readouterr().out
    main([*status, "--json"])
    assert json.loads(capsys.readouterr().out)["last_apply"] == {"changeset": ONE.key, "state": "finalized", "at": AT}


SCHEMA = "node Person {\n  handle: String @key\n}\n"
PROGRESS_QUERY = "query q{n}() {{\n  match {{\n    $p: Person\n  }}\n  return {{ $p.handle }}\n}}\n"
# 4 graphs with a schema and 3 queries each.
CHANGES = 20
ENDED = re.compile(r"apply \d+:\d\d +\d+/20 create (graph|schema|query)\.g\d\S*, \d+\.\d s")


@pytest.fixture
def folder_of_progress(tmp_path: Path) -> Path:
    """A cluster of 20 resources whose ledger is started."""
    made = tmp_path / "cluster"
    made.mkdir()
    text = "version: 1\ngraphs:\n"
    for graph in ("g0", "g1", "g2", "g3"):
        names = [f"q{n}" for n in range(3)]
        text += f"  {graph}:\n    schema: person.pg\n    queries:\n"
        text += "".join(f"      {name}:\n        file: {name}.gq\n" for name in names)
    (made / "cluster.yaml").write_text(text)
    (made / "person.pg").write_text(SCHEMA)
    for n in range(3):
        (made / f"q{n}.gq").write_text(PROGRESS_QUERY.format(n=n))
    assert main(["import", "--config", str(made), "-q"]) == 0
    return made


def drained(master: int) -> str:
    """What was written to a terminal until its other side is closed."""
    shown = b""
    with os.fdopen(master, "rb", buffering=0) as terminal, suppress(OSError):  # EIO: the other side is closed
        while piece := terminal.read(65536):
            shown += piece
    return shown.decode().replace("\r\n", "\n")


def on_terminal(folder: Path, *options: str, term: str = "xterm") -> tuple[str, str]:
    """Standard output, which is a file, and what the terminal got, of an apply whose standard error is a terminal."""
    start()
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term, "COLUMNS": "100", "LINES": "30"}
    command = [*PROGRAM, "apply", "--config", str(folder), *options]
    with (folder.parent / "output").open("w+b") as output:
        run = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=slave, env=environ)
        os.close(slave)
        shown = drained(master)
        assert run.wait() == 0
        output.seek(0)
        return output.read().decode(), shown


def test_a_terminal_shows_a_view_that_goes_away(folder_of_progress):
    output, shown = on_terminal(folder_of_progress)
    assert output.startswith("Apply: 20 applied")
    assert re.search(r"apply \d+:\d\d 20 of 20 done, 0 running", shown)
    # The cursor is given back, and the lines of the view are erased.
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0
    assert "\x1b[2K" in shown
    assert ENDED.search(shown) is None


def test_with_verbose_a_line_for_each_change_stays(folder_of_progress):
    _, shown = on_terminal(folder_of_progress, "-v", "--parallel", "4", "--no-color")
    assert re.search(r"\x1b\[[0-9;]*3[0-9][;m]", shown) is None
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert len(set(ENDED.findall(plain))) == 3
    assert len(ENDED.findall(plain)) == CHANGES
    assert "20 done of 20" in plain


def test_a_terminal_that_cannot_redraw_gets_lines(folder_of_progress):
    _, shown = on_terminal(folder_of_progress, "-v", term="dumb")
    assert "\x1b" not in shown
    assert len(ENDED.findall(shown)) == CHANGES


def test_what_runs_has_lines_of_its_own_and_an_interrupt_gives_the_cursor_back(monkeypatch):
    node = {"action": Action.CREATE, "kind": "graph", "position": 0}
    events = [
        ("apply_started", None, {"nodes": 2, "changes": 2, "limit": 1, "fail_fast": False}),
        ("node_started", "graph.a", {**node, "worker": 1, "locks": (), "waited_ms": 0}),
        ("node_lock_wait", "graph.b\x1b[2J", {**node, "locks": ("graph:a",), "holders": ("graph.a",)}),
    ]
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")

    def interrupted() -> None:
        with watching(parse_options(["apply"])) as on_event:
            for seq, (kind, name, facts) in enumerate(events, start=1):
                on_event(RunEvent(seq, SystemClock().now(), kind, name, facts))
            raise KeyboardInterrupt

    with os.fdopen(slave, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    shown = drained(master)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.replace("\x1b[2K", "\n")).split("\n")
    assert [re.sub(r"\d:\d\d", "0:00", line.rstrip()) for line in lines if re.search("1 running|create", line)][
        -3:
    ] == [
        f"{'━' * 24} apply 0:00 0 of 2 done, 1 running, 1 waiting",
        "  0:00 create graph.a",
        "  waits create graph.b\\x1b[2J for graph:a, held by graph.a",
    ]
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0


@pytest.mark.parametrize("options", [["--json", "-v"], ["-q", "-v"]])
def test_nothing_is_shown_where_nothing_is_wanted(folder_of_progress, options):
    output, shown = on_terminal(folder_of_progress, *options)
    assert shown == ""
    if "--json" in options:
        assert json.loads(output)["applied_count"] == CHANGES
    else:
        assert output == ""


def test_a_log_gets_plain_lines_and_the_report_stays_as_it_is(folder_of_progress, tmp_path, capsys):
    assert main(["apply", "--config", str(folder_of_progress), "-v"]) == 0
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert all(ENDED.fullmatch(line) for line in lines[:-1])
    assert len(lines) == CHANGES + 1
    assert [line.split()[2] for line in lines[:-1]] == [f"{n}/20" for n in range(1, 21)]
    assert printed.out.startswith("Apply: 20 applied")


def test_events_are_kept_in_a_file_as_they_happen(folder_of_progress, tmp_path, capsys):
    file = tmp_path / "events.jsonl"
    assert main(["apply", "--config", str(folder_of_progress), "-q", "--events", str(file)]) == 0
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert (events[0]["type"], events[-1]["type"]) == ("apply_started", "apply_finished")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    ended = [e["data"]["node"] for e in events if e["type"] == "node_finished" and e["data"]["kind"] != "barrier"]
    assert len(set(ended)) == CHANGES
    assert capsys.readouterr().err == ""


def test_the_record_of_a_run_is_kept_in_a_file(folder_of_progress, tmp_path):
    file, chart = tmp_path / "run.json", tmp_path / "run.mmd"
    command = [
        "apply",
        "--config",
        str(folder_of_progress),
        "-q",
        "--parallel",
        "2",
        "--run",
        str(file),
        "--gantt",
        str(chart),
    ]
    assert main(command) == 0
    run = read_run(file.read_bytes())
    assert run.workers == 2
    assert len(run.nodes) >= CHANGES
    assert all(node.outcome.succeeded for node in run.nodes)
    assert chart.read_text() == to_gantt(run)


def test_the_ledger_keeps_how_a_run_went_with_its_changeset(folder_of_progress, tmp_path, capsys):
    file, chart = tmp_path / "run.json", tmp_path / "run.mmd"
    assert main(["apply", "--config", str(folder_of_progress), "-q", "--run", str(file)]) == 0
    (kept,) = (folder_of_progress / "__cluster" / "changesets").glob("*.run.json")
    assert kept.read_bytes() == file.read_bytes()
    show = ["changeset", "show", "--latest", "--config", str(folder_of_progress)]
    capsys.readouterr()
    assert main([*show, "--gantt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"  run: 20 of 20 nodes, 1 worker, \d+\.\d\d s", lines[-22])
    # How long it waited for the one worker is the machine's affair.
    assert re.match(r"    graph\.g0 +\|[#. ]{40}\| \d+\.\d\d s done(, waited \d+\.\d\d s for a worker)?$", lines[-21])
    assert re.match(r"    critical path: \S+ > \S+", lines[-1])
    assert main([*show, "--json", "--gantt", str(chart)]) == 0
    (form,) = json.loads(capsys.readouterr().out)["changesets"]
    assert form["run"] == json.loads(file.read_text())
    assert chart.read_text() == to_gantt(read_run(kept.read_bytes()))
    kept.write_text("{}")
    assert main([*show, "--gantt"]) == 0
    assert "WARN  run_record_invalid chs-" in capsys.readouterr().out
    assert main([*show, "--gantt", str(tmp_path)]) == 0
    kept.write_bytes(file.read_bytes())
    assert main([*show, "--gantt", str(tmp_path)]) == 2


def test_a_file_that_cannot_be_written_is_said_before_anything_is_applied(folder_of_progress, tmp_path, capsys):
    assert main(["apply", "--config", str(folder_of_progress), "--events", str(tmp_path)]) == 2
    assert "usage_error" in capsys.readouterr().err
    assert not (folder_of_progress / "graphs").exists()


def test_a_full_disk_ends_the_file_and_not_the_apply(folder_of_progress, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("needs the device /dev/full")
    assert main(["apply", "--config", str(folder_of_progress), "--events", "/dev/full", "--run", "/dev/full"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Apply: 20 applied")
    assert printed.err.count("events are no longer written") == 1
    assert printed.err.count("the record of the run is not written") == 1


def test_a_reader_that_goes_away_does_not_end_the_apply(folder_of_progress):
    start()
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [*PROGRAM, "apply", "--config", str(folder_of_progress), "-v"],
        stdout=subprocess.PIPE,
        stderr=writer,
        check=False,
    )
    os.close(writer)
    assert run.returncode == 0
    assert run.stdout.startswith(b"Apply: 20 applied")


def test_a_dry_run_writes_its_events_and_nothing_else(folder_of_progress, tmp_path, capsys):
    file, before = tmp_path / "events.jsonl", sorted(folder_of_progress.rglob("*"))
    command = ["apply", "--dry-run", "--config", str(folder_of_progress), "--events", str(file)]
    assert main([*command, "--json", "--parallel", "2"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["status"], form["state_written"], form["applied_count"]) == ("dry_run", False, CHANGES)
    assert {node["outcome"] for node in form["nodes"]} == {"dry_run"}
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [e["data"]["node"] for e in events if e["type"] == "node_started"] == [node["id"] for node in form["nodes"]]
    assert main([*command, "-v"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Dry run: 20 would be applied\n   1. create graph.g0")
    assert re.match(r"apply 0:00  1/20 create graph\.g0, dry run\n", printed.err)
    assert sorted(folder_of_progress.rglob("*")) == before


@pytest.mark.parametrize(
    ("option", "value"), [("--timeout", "1m"), ("--run", "f"), ("--gantt", "f"), ("--on-failure", "keep")]
)
def test_what_a_dry_run_has_no_use_for_is_refused(folder_of_progress, capsys, option, value):
    assert main(["apply", "--atomic", "--dry-run", "--config", str(folder_of_progress), option, value]) == 2
    refused = capsys.readouterr().err
    assert f"ERROR usage_error: {option} " in refused
    assert f"fix: leave {option} out: gitops apply --config {folder_of_progress} --dry-run" in refused


def leaves() -> list[tuple[str, Command]]:
    return [(name, command) for name, command in commands(COMMANDS) if command.handler]


@pytest.mark.parametrize(("name", "command"), leaves(), ids=lambda value: value if isinstance(value, str) else "")
def test_no_command_has_another_meaning_for_an_option_of_all(name, command):
    taken = {each for argument in EVERYWHERE for each in argument.names}
    assert taken.isdisjoint(own for argument in command.arguments for own in argument.names)


@pytest.mark.parametrize("words", [["-q", "-v", "status"], ["status", "--quiet", "--verbose"], ["-v", "status", "-q"]])
def test_both_are_taken_before_and_after_the_command(words):
    options = build_parser().parse_args(words)
    assert options.quiet
    assert options.verbose


@pytest.fixture(scope="module")
def applied(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loudness") / "brain"
    shutil.copytree(ROOT / "examples" / "company-brain", folder)
    for verb in ("import", "apply"):
        assert main([verb, "--config", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def folder_of_loudness(applied, tmp_path) -> Path:
    return Path(shutil.copytree(applied, tmp_path / "brain"))


def test_a_command_that_acted_or_found_nothing_wrong_is_silent(folder_of_loudness, capsys):
    records = folder_of_loudness / "records.jsonl"
    shutil.copy(folder_of_loudness / "seed.jsonl", records)
    layout = str(folder_of_loudness / "cluster.yaml")
    for words in (
        ["validate"],
        ["plan"],
        ["apply"],
        ["status"],
        ["ready"],
        ["refresh"],
        ["fmt", layout],
        ["graph", "load", "knowledge", str(records)],
        ["graph", "branch", "create", "knowledge", "trial"],
        ["graph", "branch", "delete", "knowledge", "trial"],
        ["graph", "optimize", "knowledge"],
        ["graph", "gc", "knowledge"],
        ["graph", "verify", "knowledge"],
    ):
        code = main([*words, "--config", str(folder_of_loudness), "-q"])
        printed = capsys.readouterr()
        assert (code, printed.out, printed.err) == (0, "", ""), words


def test_what_was_asked_for_is_printed_all_the_same(folder_of_loudness, capsys):
    for words in (["graph", "show", "knowledge"], ["graph", "log", "knowledge"], ["down", "knowledge"]):
        main([*words, "--config", str(folder_of_loudness)])
        full = capsys.readouterr()
        main([*words, "--config", str(folder_of_loudness), "--quiet"])
        assert capsys.readouterr() == full
        assert full.out, words


def test_a_problem_is_printed_all_the_same(folder_of_loudness, capsys):
    (folder_of_loudness / "knowledge" / "schema.pg").write_text("node Broken {\n")
    for words in (["validate"], ["lint"], ["plan"]):
        assert main([*words, "--config", str(folder_of_loudness), "-q"]) == 1
        assert "error" in capsys.readouterr().out.lower()


def test_what_an_approver_is_about_to_sign_is_shown_all_the_same(folder_of_loudness, capsys):
    cluster = folder_of_loudness / "cluster.yaml"
    text = cluster.read_text()
    cluster.write_text(text[: text.index("  legacy:")] + text[text.index("policies:") :])
    assert main(["--as", "ada", "approve", "graph.legacy", "--config", str(folder_of_loudness), "-q"]) == 2
    shown = capsys.readouterr().out
    assert "Approve: delete graph.legacy" in shown
    assert "to sign what is shown above, run: gitops approve graph.legacy" in shown


@pytest.mark.parametrize("words", [["apply"], ["fmt", "--check"], ["lint"], ["status"]])
def test_the_document_is_the_same_whatever_is_said(folder_of_loudness, capsys, words):
    documents = []
    for loudness in ("-q", "-v"):
        main([*words, "--config", str(folder_of_loudness), "--json", loudness])
        printed = capsys.readouterr()
        assert printed.err == ""
        documents.append(json.loads(printed.out))
    assert documents[0].keys() == documents[1].keys()
    assert documents[0]["ok"] == documents[1]["ok"]
