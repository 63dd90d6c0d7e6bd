"""The auditor judges approvals as the planner did, with the keys and the time of the entry that used them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.audit import approvals as audited_approvals
from gitops.cluster.ledger.documents import write_state
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import GateName, Reason
from gitops.cluster.model.kinds import Gate, QueryKind
from gitops.cluster.model.ledger import ENTRY_VERSION, AppliedResource, ApprovalUse, EntryChange, EntryKind, LedgerEntry
from tests.support.audited import (
    CONFIG,
    FILES,
    STATE,
    WIDER,
    Lie,
    Life,
    declared,
    moment,
    saying,
)
from tests.support.git_fixture import public_key

QUERY = "query.notes.titles"


OTHER = "ab" * 32


def used(life: Life, number: int, commit: str, principal: str) -> Lie:
    """The entry as if it had used this approval."""
    approval = life.approval(commit)[0]

    def edit(entry: LedgerEntry) -> LedgerEntry:
        use = ApprovalUse(approval.approval_id, commit, entry.approvals[0].resource, principal)
        return replace(entry, approvals=(use,))

    return Lie(edit)


def by(life: Life, who: str, name: str, **statement: object) -> str:
    """The approval of entry 7, given again by somebody else in their name."""
    approval, said = life.approval(life.entry(7).approvals[0].commit)
    return life.forge_approval(replace(approval, approved_by=name), replace(said, **statement), who)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("who", "principal", "says", "code"),
    [
        ("ben", "ben@example.org", {}, ""),
        ("mallory", "ada", {}, "approval_signer_unknown"),
        ("ben", "ada", {}, "approval_malformed"),
        ("bot", "bot", {}, "approval_signer_not_allowed"),
        ("ada", "ada", {"change_digest": OTHER}, "approval_stale"),
        ("ada", "ada", {"config_digest": OTHER}, "approval_malformed"),
        ("ada", "ada", {"policy_digest": OTHER}, "approval_stale"),
        ("ada", "ada", {"cluster_tree": "ab" * 20}, "approval_stale"),
        ("ada", "ada", {"expires_at": "2026-07-02T10:01:00Z"}, "approval_expired"),
    ],
)
def test_an_approval_counts_only_if_the_planner_would_count_it(
    life: Life, who: str, principal: str, says: dict[str, object], code: str
) -> None:
    commit = by(life, who, principal, **says)
    report = life.audit(life.forge(7, used(life, 7, commit, principal)))
    if not code:
        assert report.ok
        return
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (7, "ledger_change_unapproved")
    assert report.finding.detail.startswith(f"{code}: ")


def test_an_approval_by_an_author_does_not_count(life: Life) -> None:
    commit = by(life, "ben", "ben@example.org")
    lie = used(life, 7, commit, "ben@example.org")
    people = ("ben@example.org", "dora@example.org")
    origins = tuple(replace(origin, people=people) for origin in life.entry(7).origins)
    said = replace(lie, entry=lambda e: replace(lie.entry(e), authors=people, origins=origins))
    report = life.audit(life.forge(7, said))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_self: ")


def test_a_restore_without_an_approval_does_not_count(life: Life) -> None:
    restore = Address("restore.notes")
    listed = EntryChange(restore, "create", None, OTHER, "applied")
    report = life.audit(
        life.forge(
            7,
            Lie(
                lambda e: replace(e, changes=tuple(sorted((*e.changes, listed), key=lambda c: c.resource))),
                lambda s: replace(s, resources={**s.resources, restore: AppliedResource(OTHER)}),
            ),
        )
    )
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (7, "ledger_change_unapproved")
    assert "restore.notes" in report.finding.detail


def test_an_approval_of_another_change_does_not_count(life: Life) -> None:
    for_trust = life.entry(9).approvals[0].commit
    report = life.audit(life.forge(13, used(life, 13, for_trust, "ada")))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_spent: ")
    unspent = life.entry(13).approvals[0].commit
    report = life.audit(life.forge(7, used(life, 7, unspent, "ada")))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_")


def test_an_approval_is_spent_once(life: Life) -> None:
    again = life.entry(8)
    report = life.audit(
        life.forge(
            10, Lie(lambda e: replace(e, kind=EntryKind.APPLY, approvals=again.approvals, changes=again.changes))
        )
    )
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (10, "ledger_change_unapproved")
    assert report.finding.detail.startswith("approval_spent: ")


def test_the_entry_names_the_approval_and_the_approver_that_the_commit_has(life: Life) -> None:
    commit = life.entry(7).approvals[0].commit
    wrong = used(life, 7, commit, "ben@example.org")
    other = Lie(lambda e: replace(e, approvals=(replace(e.approvals[0], approval_id="01HF7YAT00000000000000ZZZZ"),)))
    for lie in (wrong, other):
        report = life.audit(life.forge(7, lie))
        assert report.finding is not None
        assert report.finding.detail.startswith("approval_malformed: ")


def test_a_delete_that_was_never_approved_is_not_completed_by_recovery(life: Life) -> None:
    lied = life.forge(13, Lie(lambda e: replace(e, approvals=(), changes=())))
    report = life.audit(life.forge(14, Lie(saying(previous=lied))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (14, "ledger_change_unapproved")
    assert "graph.extra" in report.finding.detail


@pytest.mark.parametrize(
    ("numbers", "asks"),
    [
        ("  required: 2\n", "gate irreversible asks for 2 different people"),
        (
            "  gates: {lossy: 1}\n  environments: {production: {irreversible: 1, lossy: 2}}\n",
            "gate lossy asks for 2 different people in environment production",
        ),
    ],
)
def test_two_people_have_to_approve_where_the_rules_say_two(tmp_path: Path, numbers: str, asks: str) -> None:
    life = Life(tmp_path, config=CONFIG + numbers)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.approve("ben", "graph.legacy")
    assert life.apply().converged
    chain = life.chain()
    assert life.audit(chain[-1]).ok
    assert [len(life.entry(n).approvals) for n in (4, 5)] == [2, 2]
    report = life.audit(life.forge(4, Lie(lambda e: replace(e, approvals=e.approvals[:1]))))
    assert report.finding is not None
    assert "too few" in report.finding.detail
    assert asks in report.finding.detail


def test_a_migration_that_cannot_be_undone_needs_the_people_for_what_it_drops_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that needs few people does not let a drop through that needs more; who lowers the number meets it first."""
    life = Life(tmp_path, config=CONFIG + "  gates: {irreversible: 1, lossy: 2}\n")
    life.begin()
    life.change("dora", {"cluster/notes.pg": WIDER})
    assert life.apply().converged
    life.engine.load("memory/notes", 3)
    lowered = {"gitops.yaml": (CONFIG + "  gates: {irreversible: 1, lossy: 1}\n").encode()}
    life.change("dora", {**lowered, "cluster/notes.pg": b"node Note {\n    title: String @key @index\n}\n"})
    waiting = ["schema.notes", "trust.brain"]
    for who in ("ada", "ben"):
        assert [c.address for c in life.apply().changes if c.reason is Reason.APPROVAL_REQUIRED] == waiting
        life.approve(who, "schema.notes")
    assert [c.address for c in life.apply().changes if c.reason is Reason.APPROVAL_REQUIRED] == ["trust.brain"]
    announced = next(n for n in range(1, len(life.chain()) + 1) if len(life.entry(n).approvals) == 2)
    assert life.audit(life.chain()[-1]).ok
    report = life.audit(life.forge(announced, Lie(lambda e: replace(e, approvals=e.approvals[:1]))))
    assert report.finding is not None
    asks = "gate lossy asks for 2 different people in environment production"
    assert report.finding.detail == f"update schema.notes has no valid approval, or too few: {asks}"

    # An entry that leaves a gate out asks for fewer people, and says less than the texts of the schemas.
    def fewer(entry: LedgerEntry) -> LedgerEntry:
        changes = tuple(replace(c, gates=tuple(g for g in c.gates if g != "lossy")) for c in entry.changes)
        return replace(entry, changes=changes, approvals=entry.approvals[:1])

    lie = life.forge(announced, Lie(fewer))
    report = life.audit(lie)
    assert report.finding is not None
    assert (report.finding.code, report.finding.detail) == (
        "ledger_gates_missing",
        "schema.notes meets gate lossy: no later plan can undo this schema change; the entry records gate irreversible",
    )
    # Entries of earlier releases record no gates: the approvals are counted by what the texts say.
    monkeypatch.setattr(audited_approvals, "WITH_GATES", ENTRY_VERSION + 1)
    report = life.audit(lie)
    assert report.finding is not None
    assert (report.finding.code, report.finding.detail) == (
        "ledger_change_unapproved",
        f"update schema.notes has too few approvals: {asks}",
    )


def test_a_gate_that_the_audit_cannot_compute_is_held_to_the_people_that_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind may gate a change for what only its plan knows: what the entry records of that is believed, and counted."""
    life = Life(tmp_path, config=CONFIG + "  widening: [read]\n  gates: {irreversible: 1, lossy: 1, widening: 2}\n")
    life.begin()
    known = [Gate("it has many callers", (GateName.WIDENING,))]
    monkeypatch.setattr(QueryKind, "gate", lambda _, change, __: known[0] if known and change.before else None)
    life.change("dora", {"cluster/notes.gq": FILES["cluster/notes.gq"] + b"// the same, for more\n"})
    for who in ("ada", "ben"):
        assert [c.address for c in life.apply().changes if c.reason is Reason.APPROVAL_REQUIRED] == [QUERY]
        life.approve(who, QUERY)
    assert life.apply().converged
    number = len(life.chain())
    assert {c.resource: c.gates for c in life.entry(number).changes if c.gates} == {QUERY: ("widening",)}
    fewer = life.forge(number, Lie(lambda e: replace(e, approvals=e.approvals[:1])))
    for _ in ("it is known to the audit", "it is not"):
        assert life.audit(life.chain()[-1]).ok
        report = life.audit(fewer)
        assert report.finding is not None
        assert "too few: gate widening asks for 2 different people" in report.finding.detail
        known.clear()


def test_a_delete_by_two_that_was_cut_short_spends_both_approvals(tmp_path: Path) -> None:
    life = Life(tmp_path, config=CONFIG + "  required: 2\n")
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.approve("ben", "graph.legacy")
    assert not life.apply(dying_at="cluster_apply.after_graph_delete").ok
    assert life.apply().converged
    newest = len(life.chain())
    announced = {use.approval_id for use in life.entry(newest - 1).approvals}
    assert len(announced) == 2
    assert announced == life.state(newest).approval_records.keys()
    assert life.audit(life.chain()[-1]).ok
    records = dict(list(life.state(newest).approval_records.items())[:1])
    forged = life.forge(newest, Lie(files={STATE: write_state(replace(life.state(newest), approval_records=records))}))
    report = life.audit(forged)
    assert report.finding is not None
    assert report.finding.code == "ledger_state_mismatch"


# -- time and keys -----------------------------------------------------------------------------------------------------


def test_keys_count_at_the_time_of_the_entry_not_today(tmp_path: Path) -> None:
    hour = {who: f'valid-after="{moment(0)}",valid-before="{moment(1)}"' for who in ("bot", "ada")}
    life = Life(tmp_path, options=hour).live()
    assert life.audit(life.chain()[-1]).ok  # they expired long before anybody reads this
    late = life.audit(life.forge(14, Lie(saying(at="2026-07-02T11:00:00Z"))))
    early = life.audit(life.forge(1, Lie(saying(at="2026-07-02T09:59:59Z"))))
    for report in (late, early):
        assert report.finding is not None
        assert report.finding.code == "ledger_signature_invalid"


def test_a_revoked_key_counts_before_and_not_after_its_revocation(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.apply()
    config = life.config.replace("approvals:\n", "approvals:\n  revoked_keys: .gitops/revoked\n")
    revoked = f"{public_key(life.keys['ada'])}\n".encode()
    life.change("dora", {"gitops.yaml": config.encode(), ".gitops/revoked": revoked})
    life.approve("ben", "trust.brain")
    life.apply()
    life.change("dora", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"})
    given = life.approve("ben", "graph.notes")
    life.apply()
    assert life.audit(life.chain()[-1]).ok
    approval, said = life.approval(given)
    late = life.forge_approval(replace(approval, approved_by="ada"), said, "ada")
    number = len(life.chain()) - 1
    report = life.audit(life.forge(number, used(life, number, late, "ada")))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_signer_unknown: ")
