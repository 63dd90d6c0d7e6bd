"""`gitops changeset` in a cluster folder: what it prints, and the exit codes by which a job knows what became of a merge."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gitops.cli.changeset import watch
from gitops.cli.main import main, parse_options
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import INDEX
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.change import Effect
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
from gitops.cluster.session.changesets import Pacing
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from tests.support.changeset_stories import AT, MERGES, QUERY, created, failed, landed, removing
from tests.support.clock import FixedClock

NOTHING_OPEN = "no changeset is open; to list those that have ended: gitops changeset list --all\n"
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
    assert capsys.readouterr().out == NOTHING_OPEN
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
    assert any(word in said.err for word in ("gitops changeset list --all", "git rev-parse", "usage: gitops changeset"))


def test_a_watch_prints_a_line_for_each_item_as_text_and_as_json(folder, capsys):
    def recorded(*happenings: Happening) -> Callable[[], None]:
        return lambda: folder.record(ONE, *happenings)

    story = landed(ONE)
    assert watched(folder, ONE.key, between=(recorded(*story[:3]), recorded(*story[3:5]))) == 0
    assert [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()] == [
        "revision 1, 0 resource(s) applied",
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
    rest = "the apply at work, or else the next one, takes back what was prepared: gitops apply"
    assert capsys.readouterr().out == f"changeset {ONE.key}: rolling_back; {rest}\n"
    assert folder.ledger.changeset(ONE.key).error == "the node is full"
    assert folder.run("fail", ONE.key, "--error", "again") == 1
    assert f"gitops changeset fail {ONE.key} --error TEXT --force" in capsys.readouterr().err
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
    assert capsys.readouterr().out == NOTHING_OPEN


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
    assert "fix: go on with it: gitops apply" in capsys.readouterr().err


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
    assert capsys.readouterr().out.startswith("cluster apply: 2 applied")
    newest, old = (folder.ledger.changeset(key) for key in folder.ledger.changeset_keys())
    assert old == before
    assert (newest.retry_of, newest.attempt, newest.kind, newest.atomic) == (ONE.key, 2, "retry", True)
    assert newest.state is ChangesetState.FINALIZED
    assert folder.run("show", "--commit", MERGES[0], "--exit-code", "--until", "finalized") == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"attempt 2, again after {ONE.key}")
    assert folder.run("retry", ONE.key) == 1
    assert f"gitops changeset show {newest.key}" in capsys.readouterr().err


@pytest.mark.parametrize("length", [1, 4, 5, 7])
def test_only_what_failed_is_tried_again(folder, capsys, length):
    folder.record(ONE, *landed(ONE)[:length])
    assert folder.run("retry", ONE.key) == 1
    assert "only what failed is tried again" in capsys.readouterr().err
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
