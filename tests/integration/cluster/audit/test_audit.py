"""The audit of a ledger, from its beginning or from an entry on, also of changesets and of atomic runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.entries import Facts, make_entry
from gitops.cluster.apply.refresh import refresh
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
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
from gitops.cluster.model.address import Address, graph_address, schema_address
from gitops.cluster.model.changeset import Changeset, ChangesetState, EventDraft, Finalized
from gitops.cluster.model.ledger import (
    AppliedResource,
    EntryChange,
    EntryKind,
    LedgerEntry,
    LedgerState,
    SourceRevision,
)
from gitops.cluster.model.plan import NodeOutcome
from gitops.cluster.session.session import Session
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.git.port import NewCommit, RefUpdate
from gitops.render.audit import log_form, log_text
from gitops.repository.wiring.git import open_commit_tree
from tests.support.audited import FILES, GRAPHS, MAIN, SCHEMA, STATE, WIDER, Lie, Life, declared, person, saying
from tests.support.changeset_samples import PASSING, RESULT, created, drafts, key, ready, run_of, whole, with_run
from tests.support.git_fixture import run

QUERY = "query.notes.titles"


def moved(address: str, to: str | None) -> Callable[[LedgerState], LedgerState]:
    """A state in which a resource is somewhere else, or gone."""

    def edit(state: LedgerState) -> LedgerState:
        resources = {text: r for text, r in state.resources.items() if text != address}
        return replace(
            state, resources=resources if to is None else {**resources, Address(address): AppliedResource(to)}
        )

    return edit


def one_later(state: LedgerState) -> LedgerState:
    return replace(state, revision=state.revision + 1)


def without(*names: str) -> Callable[[LedgerState], LedgerState]:
    """A state with records of that kind emptied."""
    return lambda state: replace(state, **{name: {} for name in names})  # type: ignore[arg-type]


def change(address: str, **members: object) -> Callable[[LedgerEntry], LedgerEntry]:
    """An entry that says something else of one change."""

    def edit(entry: LedgerEntry) -> LedgerEntry:
        changes = [replace(c, **members) if c.resource == address else c for c in entry.changes]  # type: ignore[arg-type]
        return replace(entry, changes=tuple(changes))

    return edit


def unlisted(address: str) -> Callable[[LedgerEntry], LedgerEntry]:
    """An entry that does not mention one change."""
    return lambda entry: replace(entry, changes=tuple(c for c in entry.changes if c.resource != address))


def unapproved(entry: LedgerEntry) -> LedgerEntry:
    """An entry that used no approval."""
    return replace(entry, approvals=())


# -- what is true ------------------------------------------------------------------------------------------------------


def test_every_moment_of_a_true_ledger_is_good(life: Life) -> None:
    chain = life.chain()
    story = "import intent apply intent apply apply intent apply apply refresh intent apply intent apply"
    assert " ".join(life.entry(n).kind for n in range(1, 15)) == story
    for number, head in enumerate(chain, start=1):
        report = life.audit(head)
        assert (report.finding, report.entries, report.verified, report.notes) == (None, number, number, ())


def test_a_refresh_may_record_what_it_saw(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.engine.prepare_migration("memory/notes", WIDER, actor=None).publish()
    life.engine.delete_tree("memory/legacy")
    seen = refresh(life.workspace())
    assert [(d.code, d.path) for d in seen.diagnostics] == [("graph_vanished", "graph.legacy")]
    # The graph that is gone without a delete stays recorded, so that only an approval takes it out.
    assert life.state(4).resources.keys() == life.state(3).resources.keys()
    assert life.state(4).digests() != life.state(3).digests()
    assert life.audit(life.chain()[-1]).ok


def test_a_forger_who_says_the_truth_is_the_bot(life: Life) -> None:
    for number in range(1, 15):
        assert life.audit(life.forge(number, Lie())).ok


def test_the_trail_shows_every_entry_and_who_approved(life: Life) -> None:
    records = list(read_trail(life.git, life.chain()[-1]))
    assert [r.entry.number for r in records] == list(range(14, 0, -1))
    assert {r.signature for r in records} == {"good"}
    shown = {r.entry.number: [(v.use.principal, v.result) for v in r.approvals] for r in records if r.approvals}
    assert shown == {number: [("ada", "good")] for number in (7, 8, 9, 13)}


def test_the_trail_folds_queries_that_are_only_published_again(tmp_path: Path) -> None:
    one = "query {}() {{\n    match {{\n        $n: Note\n    }}\n    return {{ $n.title }}\n}}\n"
    listed = b"version: 1\ngraphs:\n  notes: {schema: notes.pg, queries: notes.gq}\n"
    life = Life(tmp_path)
    life.begin()
    names = ["titles", "all", "some"]
    files = {"cluster/cluster.yaml": listed + GRAPHS["legacy"].encode()}
    life.change("dora", {**files, "cluster/notes.gq": "".join(map(one.format, names)).encode()})
    assert life.apply().converged
    life.change("dora", {"cluster/notes.gq": "".join(map(one.format, [*names, "more"])).encode()})
    assert life.apply().converged
    record = next(read_trail(life.git, life.chain()[-1]))
    assert len(record.entry.changes) == 5
    assert [line.strip() for line in log_text([record]).splitlines()[1:]] == [
        "create query.notes.more",
        "graph notes updates automatically",
        "3 queries of graph notes keep their text and are republished with the file",
    ]
    flagged = [
        each["resource"]
        for each in log_form([record], Diagnostics())["entries"][0]["changes"]
        if each.get("republished")
    ]
    assert flagged == [f"query.notes.{name}" for name in sorted(names)]


def test_the_trail_calls_a_change_of_layout_formatting_only(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"cluster/notes.pg": b"// what people write down\n" + FILES["cluster/notes.pg"]})
    assert life.apply().converged
    record = next(read_trail(life.git, life.chain()[-1], open_commit_tree))
    assert "  update schema.notes [formatting only]" in log_text([record]).splitlines()
    changes = log_form([record], Diagnostics())["entries"][0]["changes"]
    assert [each["resource"] for each in changes if each.get("formatting_only")] == ["schema.notes"]


# -- what the bot's own key could be made to sign ----------------------------------------------------------------------

DELETE = EntryChange(Address("graph.notes"), "delete", None, None, "applied")
OTHER = "ab" * 32
PUBLISH = EntryChange(Address("policy.x"), "create", None, OTHER, "applied")


def signed_by(who: str) -> Callable[[LedgerEntry], LedgerEntry]:
    """The origins name another signer."""
    return lambda e: replace(e, origins=tuple(replace(each, by=who) for each in e.origins))


LIES: dict[str, tuple[int, Lie, str, str]] = {
    "rewritten message": (5, Lie(message="apply(brain): nothing to see here\n"), "ledger_entry_invalid", "message"),
    "number gap": (5, Lie(saying(number=6)), "ledger_chain_broken", "has number 6"),
    "dated backwards": (5, Lie(saying(at="2026-07-02T10:00:00Z")), "ledger_chain_broken", "dated before"),
    "a different cluster": (
        5,
        Lie(lambda e: replace(e, target=replace(e.target, cluster="heart"))),
        "ledger_entry_invalid",
        "a different cluster",
    ),
    "another branch": (
        5,
        Lie(lambda e: replace(e, target=replace(e.target, ref="refs/heads/next"))),
        "ledger_entry_invalid",
        "a different cluster",
    ),
    "signed by an approver": (5, Lie(signer="ada"), "ledger_signature_invalid", "may not sign the ledger"),
    "signed by a stranger": (5, Lie(signer="mallory"), "ledger_signature_invalid", "may not sign the ledger"),
    "policy digest": (5, Lie(saying(policy_digest=OTHER)), "ledger_entry_invalid", "keys and rules"),
    "trust digest": (5, Lie(saying(trust_digest=OTHER)), "ledger_entry_invalid", "keys and rules"),
    "delete without approval": (7, Lie(unapproved), "ledger_change_unapproved", "delete graph.legacy"),
    "quiet delete": (
        8,
        Lie(lambda e: replace(unlisted("graph.legacy")(e), approvals=())),
        "ledger_change_unapproved",
        "delete schema.legacy",
    ),
    "quiet delete of all": (8, Lie(saying(changes=(), approvals=())), "ledger_state_mismatch", "as consumed"),
    "trust without approval": (9, Lie(unapproved), "ledger_change_unapproved", "update trust.brain"),
    "quiet trust change": (
        9,
        Lie(saying(changes=(), approvals=())),
        "ledger_change_unapproved",
        "without an approval",
    ),
    "approval for nothing": (7, Lie(saying(changes=())), "ledger_entry_invalid", "does not change"),
    "no such operation": (5, Lie(change("schema.notes", operation="improve")), "ledger_entry_invalid", "improve"),
    "a change listed twice": (5, Lie(lambda e: replace(e, changes=e.changes * 2)), "ledger_entry_invalid", "twice"),
    "state revision of the entry": (
        5,
        Lie(saying(state_revision=7)),
        "ledger_state_mismatch",
        "but the entry records revision",
    ),
    "state revision skipped": (
        5,
        Lie(lambda e: replace(e, state_revision=e.state_revision + 1), one_later),
        "ledger_state_mismatch",
        "does not follow",
    ),
    "intent that changes state": (4, Lie(state=without("statuses")), "ledger_state_mismatch", "announcement"),
    "no state": (5, Lie(files={STATE: None}), "ledger_state_mismatch", "no state document"),
    "unreadable state": (5, Lie(files={STATE: b"{"}), "invalid_state_json", ""),
    "moved without a change": (5, Lie(unlisted("schema.notes")), "ledger_state_mismatch", "schema.notes changed"),
    "gone without a change": (5, Lie(state=moved(QUERY, None)), "ledger_state_mismatch", f"{QUERY} changed"),
    "moved elsewhere": (5, Lie(state=moved("schema.notes", OTHER)), "ledger_state_mismatch", "is not at"),
    "changed from elsewhere": (5, Lie(change("schema.notes", before=OTHER)), "ledger_state_mismatch", "was not at"),
    "did not happen": (8, Lie(change("schema.legacy", operation="update")), "ledger_state_mismatch", "was not applied"),
    "composite": (5, Lie(state=moved("graph.notes", OTHER)), "ledger_state_mismatch", "its parts"),
    "refresh that publishes": (10, Lie(state=moved("policy.x", OTHER)), "ledger_state_mismatch", "policy.x changed"),
    "refresh that deletes": (10, Lie(state=moved("graph.notes", None)), "ledger_state_mismatch", "graph.notes changed"),
    "refresh that migrates": (10, Lie(state=moved("schema.notes", OTHER)), "ledger_state_mismatch", "schema.notes"),
    "refresh that deletes by approval": (10, Lie(saying(changes=(DELETE,))), "ledger_change_unapproved", "graph.notes"),
    "refresh that lists": (10, Lie(saying(changes=(PUBLISH,))), "ledger_state_mismatch", "changes nothing by itself"),
    "vanished graph": (5, Lie(state=moved("graph.legacy", None)), "ledger_change_unapproved", "graph.legacy"),
    "approval not recorded": (8, Lie(state=without("approval_records")), "ledger_state_mismatch", "used again"),
    "approval forgotten": (
        10,
        Lie(state=without("approval_records")),
        "ledger_state_mismatch",
        "consumed approval is missing",
    ),
    "approval made up": (
        10,
        Lie(state=lambda s: replace(s, approval_records={**s.approval_records, "X": {}})),
        "ledger_state_mismatch",
        "did not use",
    ),
    "recovery forgotten": (14, Lie(state=without("recovery_records")), "ledger_state_mismatch", "recovery is missing"),
    "recovery made up": (
        10,
        Lie(state=lambda s: replace(s, recovery_records={"X": {}})),
        "ledger_state_mismatch",
        "no entry announced it",
    ),
    "no source": (5, Lie(saying(source=None)), "ledger_entry_invalid", "source commit"),
    "an older version": (5, Lie(saying(version=3)), "ledger_entry_invalid", "version 3 follows version 5"),
    "changeset": (5, Lie(saying(changeset="chs-0")), "ledger_entry_invalid", "changeset"),
    "config digest": (4, Lie(saying(config_digest=OTHER)), "ledger_source_mismatch", "a different configuration"),
    "folder tree": (
        4,
        Lie(lambda e: replace(e, source=SourceRevision(e.source.commit if e.source else "", "ab" * 20))),
        "ledger_source_mismatch",
        "a different cluster folder",
    ),
    "authors left out": (6, Lie(saying(authors=())), "ledger_source_mismatch", "differ from the people in its origins"),
    "origins left out": (6, Lie(saying(authors=(), origins=())), "ledger_source_mismatch", "for graph.legacy"),
    "origins not carried on": (7, Lie(saying(authors=(), origins=())), "ledger_source_mismatch", "for graph.legacy"),
    "a signer made up": (6, Lie(signed_by("ada")), "ledger_source_mismatch", "is not signed by ada"),
    "converged to a different configuration": (
        6,
        Lie(state=lambda s: replace(s, config_digest=OTHER)),
        "ledger_source_mismatch",
        "a different configuration",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_found_where_it_is_told(life: Life, name: str) -> None:
    number, lie, code, words = LIES[name]
    report = life.audit(life.forge(number, lie))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code, report.verified) == (number, code, number - 1)
    assert words in report.finding.detail
    assert not report.ok


def test_a_state_is_converged_only_if_it_is_what_the_source_declares(life: Life) -> None:
    wanted = life.entry(6).config_digest
    report = life.audit(life.forge(6, Lie(state=lambda state: replace(state, config_digest=wanted))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (6, "ledger_source_mismatch")
    assert "not match what its source commit declares" in report.finding.detail


def test_a_source_commit_continues_the_one_before(life: Life) -> None:
    first = life.entry(2)
    source = first.source
    assert source is not None
    lie = saying(source=source, config_digest=first.config_digest, changeset=first.changeset)
    report = life.audit(life.forge(6, Lie(lie)))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (6, "ledger_source_mismatch")
    assert "does not follow" in report.finding.detail


def test_the_first_lie_is_named_though_true_entries_follow(life: Life) -> None:
    forged = life.forge(5, Lie(message="apply(brain): nothing\n"))
    for number in (6, 7, 8):
        forged = life.forge(number, Lie(saying(previous=forged)))
    report = life.audit(forged)
    assert report.finding is not None
    assert (report.finding.number, report.entries, report.verified) == (5, 8, 4)


def test_a_chain_with_other_parents_is_broken(life: Life) -> None:
    chain, approval = life.chain(), life.entry(7).approvals[0].commit
    forged = {
        "re-parented, and it says so": (6, Lie(saying(previous=chain[3])), 5),
        "re-parented, and it denies it": (6, Lie(parents=(chain[3],)), 5),
        "extra parent": (6, Lie(parents=(chain[4], chain[2])), 6),
        "missing approval parent": (7, Lie(parents=(chain[5],)), 7),
        "approval that is not named": (6, Lie(parents=(chain[4], approval)), 6),
        "approval as first parent": (7, Lie(parents=(approval, chain[5])), 7),
    }
    for name, (number, lie, found_at) in forged.items():
        finding = life.audit(life.forge(number, lie)).finding
        assert finding is not None, name
        assert (finding.code, finding.number) == ("ledger_chain_broken", found_at), name


def test_an_entry_that_is_left_out_is_missed_by_the_next(life: Life) -> None:
    finding = life.audit(life.forge(6, Lie(saying(previous=life.chain()[3], number=5)))).finding
    assert finding is not None
    assert (finding.code, finding.number) == ("ledger_entry_invalid", 5)


def test_a_first_entry_has_nothing_before_it(life: Life) -> None:
    finding = life.audit(life.forge(1, Lie(parents=(life.git.resolve(MAIN) or "",)))).finding
    assert finding is not None
    assert (finding.code, finding.number) == ("ledger_entry_invalid", 1)


ENTRIES = 14


@pytest.mark.parametrize("number", range(1, ENTRIES + 1))
def test_from_every_entry_on_a_true_ledger_is_good(life: Life, number: int) -> None:
    # Among them are entries with an announced create or delete that a later one completes.
    chain = life.chain()
    report = life.audit(chain[-1], scope=AuditScope(since=chain[number - 1]))
    assert (report.findings, report.since, report.entries, report.verified) == ((), number, ENTRIES, ENTRIES)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_behind_it_is_found_where_it_is_told(life: Life, name: str) -> None:
    number, lie, code, words = LIES[name]
    forged = life.forge(number, lie)
    whole = life.audit(forged)
    report = life.audit(forged, scope=AuditScope(since=life.chain()[number - 2]))
    assert report.findings == whole.findings
    assert (report.findings[0].number, report.findings[0].code) == (number, code)
    assert words in report.findings[0].detail


def test_what_lies_before_it_is_not_looked_at(life: Life) -> None:
    forged = life.forge(5, Lie(message="apply(brain): nothing\n"))
    above = life.forge(6, Lie(saying(previous=forged)))
    report = life.audit(above, scope=AuditScope(since=forged))
    assert (report.findings, report.since, report.verified) == ((), 5, 6)


def test_an_entry_of_another_ledger_is_no_beginning(life: Life) -> None:
    chain = life.chain()
    for since in (life.forge(6, Lie(saying(operation="other"))), life.git.resolve(MAIN) or "", "ab" * 20):
        report = life.audit(chain[-1], scope=AuditScope(since=since))
        (finding,) = report.findings
        assert (finding.number, finding.code, report.verified) == (0, "ledger_diverged", 0)
    rewound = life.audit(chain[5], scope=AuditScope(since=chain[9]))
    assert [f.code for f in rewound.findings] == ["ledger_diverged"]


def test_an_announced_delete_whose_approval_does_not_hold_is_not_completed_behind_it(life: Life) -> None:
    # 13 announces the delete of graph.extra, 14 says that it happened.
    announced = life.forge(13, Lie(saying(approvals=(), changes=())))
    forged = life.forge(14, Lie(saying(previous=announced)))
    (finding,) = life.audit(forged, scope=AuditScope(since=announced)).findings
    assert (finding.number, finding.code) == (14, "ledger_change_unapproved")


def test_every_entry_that_holds_is_told_in_order_and_no_other(life: Life) -> None:
    told: list[int] = []
    scope = AuditScope(since=life.chain()[2], verified=lambda found: told.append(found.entry.number))
    life.audit(life.forge(9, Lie(saying(changes=(), approvals=()))), scope=scope)
    assert told == [4, 5, 6, 7, 8]


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


CHANGESET_LIES = {
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


@pytest.mark.parametrize("what", CHANGESET_LIES)
def test_what_events_do_not_give_is_a_finding(told: Life, what: str) -> None:
    number, files = CHANGESET_LIES[what]
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


NOTES = graph_address("notes")
LIMITED = FILES["cluster/notes.gq"].replace(b"{ $n.title }", b"{ $n.title }\n    limit 10")


def test_every_moment_of_a_ledger_of_atomic_runs_is_good(tmp_path: Path) -> None:
    life = Life(tmp_path, atomic=True).live()
    kinds = [life.entry(number).kind.value for number in range(1, len(life.chain()) + 1)]
    assert "changeset" in kinds
    for head in life.chain():
        report = life.audit(head)
        assert report.findings == (), (kinds, report.findings[0].number, report.findings[0].detail)
    assert life.ledger(life.rule()).changesets().open == ()


def merge(life: Life, who: str, files: Mapping[str, bytes]) -> None:
    """A merge of one commit, as a forge makes it: it changes nothing itself."""
    before = life.repository.head_of(MAIN) or ""
    topic = life.change(who, files)
    new = NewCommit(life.git.commit(topic).tree, (before, topic), person("ben"), "merge\n")
    life.remote.push([RefUpdate(MAIN, topic, life.git.write_commit(new, signing_key=str(life.keys["ben"])))])


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("atomic", [True, False])
def test_the_ledger_of_a_merge_that_failed_is_good_and_so_is_that_of_its_repair(
    tmp_path: Path, *, atomic: bool, merged: bool
) -> None:
    life = Life(tmp_path, atomic=atomic)
    life.begin()
    life.engine.prepare_create("memory/extra", SCHEMA, actor=None).publish()
    change = merge if merged else Life.change
    change(
        life,
        "dora",
        {"cluster/cluster.yaml": declared("notes", "legacy", "extra"), "cluster/notes.gq": LIMITED},
    )
    failed = life.apply()
    assert not failed.ok
    assert (failed.changesets[0].state is ChangesetState.FAILED) is atomic
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy")})
    assert life.apply().converged
    for head in life.chain():
        report = life.audit(head)
        assert report.findings == (), (report.findings[0].number, report.findings[0].detail)


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A ledger whose newest entry records the end of a changeset that dropped a property after its commit."""
    life = Life(tmp_path_factory.mktemp("dropped"), atomic=True)
    life.begin()
    life.change("dora", {"cluster/notes.pg": WIDER})
    life.apply()
    life.change("dora", {"cluster/notes.pg": SCHEMA})
    assert life.apply().converged
    return life


def test_the_end_of_a_changeset_records_what_a_graph_is_after_its_drops(dropped: Life) -> None:
    newest = len(dropped.chain())
    assert dropped.entry(newest).kind is EntryKind.CHANGESET
    before, after = dropped.state(newest - 1), dropped.state(newest)
    assert (after.revision, after.applied_digest) == (before.next_revision, before.applied_digest)
    reading, seen = dropped.engine.read("memory/notes"), after.observations[NOTES]
    assert (seen["manifest_version"], seen["rows"]) == (reading.manifest_version, reading.rows)
    assert seen["schema_digest"] == after.resources[schema_address("notes")].digest
    assert seen["schema_digest"] != before.observations[NOTES]["schema_digest"]
    assert dropped.audit(dropped.chain()[-1]).findings == ()


def other_resource(state: LedgerState) -> LedgerState:
    return replace(state, resources={**state.resources, Address("query.notes.titles"): AppliedResource("sha256:0")})


def vanished(state: LedgerState) -> LedgerState:
    return replace(state, observations={**state.observations, NOTES: {**state.observations[NOTES], "vanished": True}})


def without_status(state: LedgerState) -> LedgerState:
    return replace(state, statuses={})


@pytest.mark.parametrize("lie", [other_resource, vanished, without_status])
def test_the_end_of_a_changeset_changes_nothing_else(dropped: Life, lie: Callable[[LedgerState], LedgerState]) -> None:
    report = dropped.audit(dropped.forge(len(dropped.chain()), Lie(state=lie)))
    (finding,) = report.findings
    assert (finding.code, "than its observations" in finding.detail) == ("ledger_state_mismatch", True)
