"""The auditor believes a true ledger, and names the first lie of every other one, even if the bot itself signs the lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import AppliedResource, EntryChange, LedgerEntry, LedgerState, SourceRevision
from gitops.render.audit import log_form, log_text
from tests.support.audited import (
    GRAPHS,
    MAIN,
    STATE,
    WIDER,
    Lie,
    Life,
    saying,
)

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
        "1 graph follows from its parts: notes",
        "3 queries of notes re-published: another query of the file changes",
    ]
    flagged = [each["resource"] for each in log_form([record])["entries"][0]["changes"] if each.get("republished")]
    assert flagged == [f"query.notes.{name}" for name in sorted(names)]


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
    "another cluster": (
        5,
        Lie(lambda e: replace(e, target=replace(e.target, cluster="heart"))),
        "ledger_entry_invalid",
        "another cluster",
    ),
    "another branch": (
        5,
        Lie(lambda e: replace(e, target=replace(e.target, ref="refs/heads/next"))),
        "ledger_entry_invalid",
        "another cluster",
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
        "without an approval of that change",
    ),
    "approval for nothing": (7, Lie(saying(changes=())), "ledger_entry_invalid", "does not change"),
    "no such operation": (5, Lie(change("schema.notes", operation="improve")), "ledger_entry_invalid", "improve"),
    "a change listed twice": (5, Lie(lambda e: replace(e, changes=e.changes * 2)), "ledger_entry_invalid", "twice"),
    "state revision of the entry": (
        5,
        Lie(saying(state_revision=7)),
        "ledger_state_mismatch",
        "and the entry records revision",
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
    "config digest": (4, Lie(saying(config_digest=OTHER)), "ledger_source_mismatch", "another configuration"),
    "folder tree": (
        4,
        Lie(lambda e: replace(e, source=SourceRevision(e.source.commit if e.source else "", "ab" * 20))),
        "ledger_source_mismatch",
        "another cluster folder",
    ),
    "authors left out": (6, Lie(saying(authors=())), "ledger_source_mismatch", "not the people of its origins"),
    "origins left out": (6, Lie(saying(authors=(), origins=())), "ledger_source_mismatch", "for graph.legacy"),
    "origins not carried on": (7, Lie(saying(authors=(), origins=())), "ledger_source_mismatch", "for graph.legacy"),
    "a signer made up": (6, Lie(signed_by("ada")), "ledger_source_mismatch", "is not signed by ada"),
    "converged to another configuration": (
        6,
        Lie(state=lambda s: replace(s, config_digest=OTHER)),
        "ledger_source_mismatch",
        "another configuration",
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
    assert "not what its source commit declares" in report.finding.detail


def test_a_source_commit_continues_the_one_before(life: Life) -> None:
    first = life.entry(2)
    source = first.source
    assert source is not None
    lie = saying(source=source, config_digest=first.config_digest, changeset=first.changeset)
    report = life.audit(life.forge(6, Lie(lie)))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (6, "ledger_source_mismatch")
    assert "does not continue" in report.finding.detail


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
