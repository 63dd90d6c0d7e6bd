"""Records of changesets in a ledger are what their events give, whoever signs another story."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.entries import Facts, make_entry
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import (
    read_events,
    read_index,
    read_record,
    write_archive,
    write_events,
    write_index,
    write_record,
)
from gitops.cluster.ledger.records import write_run
from gitops.cluster.ledger.trailers import check_records, check_trailers, commit_message, parse_trailers
from gitops.cluster.model.changeset import Changeset, EventDraft, Finalized
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.model.plan import NodeOutcome
from gitops.cluster.session.session import Session
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from tests.support.audited import Lie, Life
from tests.support.changeset_samples import PASSING, RESULT, created, drafts, key, ready, run_of, whole, with_run
from tests.support.git_fixture import run

FIRST = 4
"""The number of the entry that creates the first changeset of the tests; the ledger has three before."""


def record(life: Life, *events: EventDraft) -> None:
    """An entry with events alone, as a run writes it."""
    workspace = life.workspace()
    ledger = life.ledger(life.rule())
    view = ledger.view()
    current = Session(workspace, load_desired(workspace.tree), Diagnostics(), view=view)
    entry = make_entry(current, EntryKind.CHANGESET, Facts())
    ledger.begin(view, (), entry, events)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A ledger with two changesets: one that ended, one that is prepared."""
    life = Life(tmp_path_factory.mktemp("told"))
    life.begin()
    record(life, *created(1, "a"))
    record(life, *with_run(drafts(1, ready("a"), *PASSING), run_of("a")))
    record(life, *created(2, "a", "b"), *drafts(2, ready("a")))
    record(life, *drafts(2, ready("b"), PASSING[0]))
    return life


def test_every_moment_is_good(told: Life) -> None:
    for number, head in enumerate(told.chain(), start=1):
        report = told.audit(head)
        assert (report.finding, report.verified) == (None, number)


def test_trailers_say_what_was_recorded(told: Life) -> None:
    found = [parse_trailers(told.git.commit(commit).message) for commit in told.chain()[FIRST - 1 :]]
    base = read_index(told.file(FIRST, layout.INDEX)).seq - 1
    shown = [[(n, v) for n, v in each if n.startswith(("Changeset", "Event"))] for each in found]
    assert shown[0] == [
        ("Changeset", key(1)),
        ("Changeset-State", "preparing"),
        ("Changeset-Event", "changeset_created"),
        ("Event-Seq", f"{base + 1}-{base + 1}"),
    ]
    assert shown[3] == [
        ("Changeset", key(2)),
        ("Changeset-State", "prepared"),
        ("Changeset-Event", "resource_runtime_updated"),
        ("Changeset-Event", "changeset_prepared"),
        ("Event-Seq", f"{base + 9}-{base + 10}"),
    ]
    head = told.git.commit(told.chain()[-1])
    assert head.message.startswith(f"changeset(brain): changeset_prepared {key(2)}\n")
    log = ("git", "-C", str(told.git.git_dir), "log", "-1", "--format=%(trailers:key=Event-Seq,valueonly)")
    by_git = run(*log, head.id, home=told.home)
    assert by_git.strip() == f"{base + 9}-{base + 10}"


def _edit(path: str, edit: Callable[[bytes], bytes]) -> Callable[[Life, int], Mapping[str, bytes | None]]:
    return lambda life, number: {path: edit(life.file(number, path))}


def _record(number: int, **members: object) -> Callable[[Life, int], Mapping[str, bytes | None]]:
    def edit(data: bytes) -> bytes:
        return write_record(replace(read_record(data), **members))  # type: ignore[arg-type]

    return _edit(layout.record_key(key(number)), edit)


def _renumbered(data: bytes) -> bytes:
    *known, newest = read_events(data)
    return write_events([*known, replace(newest, seq=newest.seq + 1)])


def _rewritten(data: bytes) -> bytes:
    first, *later = read_events(data)
    return write_events([replace(first, at="2026-01-01T00:00:00Z"), *later])


def _ended_again(data: bytes) -> bytes:
    *known, newest = read_events(data)
    return write_events([*known, newest, replace(newest, seq=newest.seq + 9, happening=Finalized(RESULT))])


LIES = {
    "a forged record": (7, _record(2, error="it never happened")),
    "a record of one that has ended": (7, _record(1, error="it never happened")),
    "a gap in the numbers": (7, _edit(layout.events_key(key(2)), _renumbered)),
    "an event that was rewritten": (7, _edit(layout.events_key(key(2)), _rewritten)),
    "an event of one that has ended": (7, _edit(layout.events_key(key(1)), _ended_again)),
    "events that are gone": (7, lambda *_: {layout.events_key(key(1)): None}),
    "a record that is gone": (7, lambda *_: {layout.record_key(key(1)): None}),
    "a record without events": (7, lambda *_: {layout.record_key(key(3)): write_record(_first(3))}),
    "another active changeset": (7, _edit(layout.INDEX, lambda d: write_index(replace(read_index(d), active=None)))),
    "an archive of what was not archived": (7, lambda *_: {layout.ARCHIVE: write_archive([_first(1)])}),
    "a run that was rewritten later": (7, lambda *_: {layout.run_key(key(1)): write_run(run_of())}),
    "a run that is gone": (7, lambda *_: {layout.run_key(key(1)): None}),
    "a run of a changeset that goes on": (7, lambda *_: {layout.run_key(key(2)): write_run(run_of())}),
    "a run of a changeset that does not exist": (7, lambda *_: {layout.run_key(key(3)): write_run(run_of())}),
    "a run of another change": (5, lambda *_: {layout.run_key(key(1)): write_run(run_of("b"))}),
    "a run that ends twice": (5, lambda *_: {layout.run_key(key(1)): write_run(run_of("a", "a"))}),
    "a failure of what landed": (
        5,
        lambda *_: {layout.run_key(key(1)): write_run(run_of("a", outcome=NodeOutcome.FAILED))},
    ),
    "a run that cannot be read": (5, lambda *_: {layout.run_key(key(1)): b"{}"}),
    "changesets in an entry that has none": (3, lambda *_: {layout.record_key(key(1)): write_record(_first(1))}),
}


def _first(number: int) -> Changeset:
    (event,) = created(number)
    return event.happening.record  # type: ignore[union-attr]


@pytest.mark.parametrize("what", LIES)
def test_what_events_do_not_give_is_a_finding(told: Life, what: str) -> None:
    number, files = LIES[what]
    report = told.audit(told.forge(number, Lie(files=files(told, number))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (number, "changeset_mismatch")


def test_a_trailer_that_lies_is_told_from_the_files(told: Life) -> None:
    repository, head = told.git, told.chain()[-1]
    told.ledger(told.rule()).check_trailers(key(2))
    commit, entry = repository.commit(head), told.entry(7)
    recorded = check_records(repository, repository.commit(commit.parents[0]).tree, commit.tree)
    message = commit_message(entry, recorded).replace("Changeset-State: prepared", "Changeset-State: committed")
    forged = told.forge(7, Lie(message=message))
    with pytest.raises(GitopsError) as refused:
        check_trailers(repository, forged)
    assert refused.value.code == "trailer_mismatch"
    assert "Changeset-State: committed" in refused.value.detail
    assert "Changeset-State: prepared" in refused.value.detail


def test_an_archive_that_its_store_wrote_is_good(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    record(life, *(event for number in range(1, 551) for event in whole(number)))
    record(life, *whole(551))
    assert life.audit(life.chain()[-1]).ok
    lost = life.forge(5, Lie(files={layout.ARCHIVE: write_archive([_first(1)])}))
    report = life.audit(lost)
    assert report.finding is not None
    assert report.finding.code == "changeset_mismatch"
