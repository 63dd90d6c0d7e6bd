"""Approvals as an audit weighs them, also those of emergencies and of access that widens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.approvals.documents import decision_message
from gitops.cluster.approving.decide import countersign
from gitops.cluster.audit import approvals
from gitops.cluster.audit import approvals as audited_approvals
from gitops.cluster.audit.report import AuditWitnesses
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.ledger.chain import revocations_prefix
from gitops.cluster.ledger.documents import write_state
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Decision, DecisionKind, ForgeGrant, GrantSource, Via
from gitops.cluster.model.change import Disposition, GateName, Reason
from gitops.cluster.model.kinds import Gate, QueryKind
from gitops.cluster.model.ledger import (
    ENTRY_VERSION,
    AppliedResource,
    ApprovalUse,
    EntryChange,
    EntryKind,
    LedgerEntry,
    LedgerState,
)
from gitops.cluster.plan.plan import plan
from gitops.git.port import NewCommit
from tests.support.audited import (
    CLUSTER,
    CONFIG,
    FILES,
    GRAPHS,
    STATE,
    WIDER,
    Lie,
    Life,
    declared,
    moment,
    person,
    saying,
)
from tests.support.git_fixture import public_key
from tests.support.governed import alone, attested, grant, made, newest, office, waiting
from tests.support.signed import signer

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
    life.change("dora", {**lowered, "cluster/notes.pg": b"node Note {\n    title: String\n}\n"})
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


TITLES = b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.title as t }\n}\n"
# 4 announces the delete, 5 says that it happened and what it owes, 6 settles that, 7 applies the next change.
OWING, SETTLING, NEXT = 5, 6, 7
OTHER_ID = "01JZ0000000000000000000AAA"


@pytest.fixture(scope="module")
def owing_life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """ada acted alone, ben countersigned, and then it went on."""
    life = waiting(tmp_path_factory.mktemp("emergency"))
    identity = made(alone(life))
    life.apply()
    life.change("dora", {"cluster/notes.gq": TITLES})
    assert countersign(office(life, "ben"), identity, "seen").ok
    assert life.apply().ok
    assert [life.entry(n).kind for n in range(4, 8)] == ["intent", "apply", "countersign", "apply"]
    return life


def found(life: Life, forged: str) -> tuple[int, str, str]:
    """Where, what and why the audit of a forged ledger fails."""
    finding = life.audit(forged).finding
    assert finding is not None
    return finding.number, finding.code, finding.detail


def records(edit: Callable[[dict], None]) -> Callable[[LedgerState], LedgerState]:
    """A state with other records of approvals."""

    def edited(state: LedgerState) -> LedgerState:
        kept: dict = {name: dict(record) for name, record in state.approval_records.items()}
        edit(kept)
        return replace(state, approval_records=kept)

    return edited


def debt(**values: str) -> Callable[[LedgerEntry], LedgerEntry]:
    """An entry whose debt says something else."""
    return lambda entry: replace(entry, debts=tuple(replace(d, **values) for d in entry.debts))


def settlement(**values: str) -> Callable[[LedgerEntry], LedgerEntry]:
    """An entry whose countersignature says something else."""
    return lambda entry: replace(entry, settled=tuple(replace(s, **values) for s in entry.settled))


def forgiven(kept: dict) -> None:
    for record in kept.values():
        record.pop("debt", None)


def reworded(kept: dict) -> None:
    for record in kept.values():
        if "debt" in record:
            record["debt"] = {**record["debt"], "reason": "nothing much"}


def unsigned(kept: dict) -> None:
    for name in [name for name, record in kept.items() if "countersigns" in record]:
        del kept[name]


def by_another(kept: dict) -> None:
    for record in kept.values():
        if "countersigns" in record:
            record["principal"] = "ada"


MISMATCH, UNAPPROVED = "ledger_debt_mismatch", "ledger_change_unapproved"
EMERGENCY_LIES: dict[str, tuple[int, Lie, str, str]] = {
    "no debt at all": (OWING, Lie(saying(debts=()), records(forgiven)), MISMATCH, "lacks the debt of its emergency"),
    "a debt that the state forgets": (OWING, Lie(state=records(forgiven)), MISMATCH, "lacks the debt of its emergency"),
    "a debt that the entry forgets": (OWING, Lie(saying(debts=())), MISMATCH, "does not list"),
    "another reason": (
        OWING,
        Lie(debt(reason="nothing much"), records(reworded)),
        MISMATCH,
        "lacks the debt of its emergency",
    ),
    "another person": (OWING, Lie(debt(principal="ben@example.org")), MISMATCH, "does not list"),
    "a debt listed twice": (OWING, Lie(lambda e: replace(e, debts=e.debts * 2)), MISMATCH, "does not list"),
    "called an ordinary approval": (
        OWING,
        Lie(lambda e: replace(e, approvals=tuple(replace(u, via=Via.SIGNATURE) for u in e.approvals))),
        UNAPPROVED,
        "its commit contradicts this",
    ),
    "settled by a person who did not sign": (SETTLING, Lie(settlement(principal="ada")), MISMATCH, "contradicts this"),
    "settled under another id": (SETTLING, Lie(settlement(countersignature=OTHER_ID)), MISMATCH, "contradicts this"),
    "settled although nothing is owed": (SETTLING, Lie(settlement(approval_id=OTHER_ID)), MISMATCH, "not open"),
    "settled twice": (SETTLING, Lie(lambda e: replace(e, settled=e.settled * 2)), MISMATCH, "not open"),
    "settled by the way": (
        SETTLING,
        Lie(saying(kind=EntryKind.APPLY)),
        MISMATCH,
        "only an entry that changes nothing else",
    ),
    "settled, and not recorded": (SETTLING, Lie(state=records(unsigned)), MISMATCH, "does not record"),
    "settled, and recorded of another": (SETTLING, Lie(state=records(by_another)), MISMATCH, "does not record"),
    "closed without a signature": (
        SETTLING,
        Lie(saying(settled=())),
        "ledger_state_mismatch",
        "as consumed that the entry did not use",
    ),
    "a debt that is forgotten later": (NEXT, Lie(state=records(forgiven)), "ledger_state_mismatch", "is missing"),
    "a countersignature that is forgotten later": (
        NEXT,
        Lie(state=records(unsigned)),
        "ledger_state_mismatch",
        "is missing",
    ),
}


def test_the_true_ledger_is_good_from_every_entry_on(owing_life: Life) -> None:
    chain = owing_life.chain()
    for since in (None, *chain):
        assert owing_life.audit(chain[-1], scope=AuditScope(since=since)).findings == ()


@pytest.mark.parametrize("name", EMERGENCY_LIES)
def test_a_lie_about_an_emergency_is_found_where_it_is_told(owing_life: Life, name: str) -> None:
    number, lie, code, words = EMERGENCY_LIES[name]
    at, what, why = found(owing_life, owing_life.forge(number, lie))
    assert (at, what) == (number, code), why
    assert words in why
    (finding,) = owing_life.audit(
        owing_life.forge(number, lie), scope=AuditScope(since=owing_life.chain()[number - 2])
    ).findings
    assert (finding.number, finding.code) == (number, code)


def test_nothing_is_applied_over_an_open_debt(owing_life: Life) -> None:
    chain = owing_life.chain()
    over = saying(previous=chain[OWING - 1], number=SETTLING, state_revision=owing_life.entry(NEXT).state_revision - 1)

    def earlier(state: LedgerState) -> LedgerState:
        return records(unsigned)(replace(state, revision=state.revision - 1))

    at, what, why = found(owing_life, owing_life.forge(NEXT, Lie(over, earlier)))
    assert (at, what) == (SETTLING, MISMATCH)
    assert "while the debt of" in why


def test_the_log_says_who_acted_alone_who_agreed_and_what_is_open(owing_life: Life) -> None:
    told = {r.entry.number: r for r in read_trail(owing_life.git, owing_life.chain()[-1]) if r.entry is not None}
    identity = owing_life.entry(OWING).debts[0].approval_id
    assert [told[n].owed for n in range(4, 8)] == [(), (identity,), (), ()]
    assert [(v.use.via, v.result) for v in told[OWING].approvals] == [(Via.BREAK_GLASS, "good")]
    assert [(s.settlement.principal, s.result) for s in told[SETTLING].settlements] == [("ben@example.org", "good")]
    assert all(record.ok for record in told.values())
    forged = owing_life.forge(SETTLING, Lie(settlement(principal="ada")))
    shown = next(iter(read_trail(owing_life.git, forged)))
    assert ([s.result for s in shown.settlements], shown.ok) == ([MISMATCH], False)


# -- reviews -----------------------------------------------------------------------------------------------------------


def test_an_attested_review_counts_as_what_it_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    life = waiting(tmp_path_factory.mktemp("review"))
    assert attested(life, grant(life, "ada")).ok
    life.apply()
    assert life.audit(life.chain()[-1]).ok
    for via in (Via.SIGNATURE, Via.BREAK_GLASS):
        as_other: Callable[[LedgerEntry], LedgerEntry] = lambda e, via=via: replace(  # noqa: E731
            e, approvals=tuple(replace(u, via=via) for u in e.approvals)
        )
        assert found(life, life.forge(4, Lie(as_other)))[:2] == (4, UNAPPROVED)


def test_a_review_that_the_rules_did_not_allow_is_found(tmp_path_factory: pytest.TempPathFactory) -> None:
    accounts = '  accounts: {"github:1": ada}\n'
    life = waiting(tmp_path_factory.mktemp("refused"), CONFIG + accounts)
    life.approve("ada", "graph.legacy")
    life.apply()
    (use,) = life.entry(4).approvals
    approval, statement = life.approval(use.commit)
    source = life.entry(4).source
    assert source is not None
    given = ForgeGrant(
        "github:1", "ada", 7, GrantSource.REVIEW, "9", source.commit, approval.created_at, "", source.tree
    )
    forged = life.forge_approval(approval, replace(statement, via=Via.FORGE, grant=given), "bot")
    by_review = replace(use, commit=forged, via=Via.FORGE)
    at, what, why = found(life, life.forge(4, Lie(saying(approvals=(by_review,)))))
    assert (at, what) == (4, UNAPPROVED)
    assert why.startswith("approval_via_refused")


# -- revocations -------------------------------------------------------------------------------------------------------


def revocation(life: Life, number: int, who: str) -> Mapping[str, str]:
    """Somebody takes back the approval that entry 4 uses, having seen entry `number`."""
    (use,), seen = life.entry(4).approvals, life.chain()[number - 1]
    decision = Decision(
        kind=DecisionKind.REVOKE,
        decision_id=OTHER_ID,
        target=life.entry(4).target,
        approval_id=use.approval_id,
        subject=use.commit,
        reason="too early",
        ledger_head=seen,
        created_at="2026-07-02T10:00:00Z",
        nonce="n",
    )
    message = decision_message(decision, sign=signer(life.git, life.keys[who]))
    new = NewCommit(life.git.commit(seen).tree, (seen,), person(who), message)
    commit = life.git.write_commit(new, signing_key=str(life.keys[who]))
    return {f"{revocations_prefix(CLUSTER)}{OTHER_ID}": commit}


@pytest.mark.parametrize("who", ["ada", "ben", "bot"])
def test_a_revocation_counts_from_the_entry_that_it_names(owing_life: Life, who: str) -> None:
    head = owing_life.chain()[-1]
    for number in range(1, 8):
        scope = AuditScope(witnesses=AuditWitnesses(signed=revocation(owing_life, number, who)))
        report = owing_life.audit(head, scope=scope)
        if number < 4:
            assert [(f.number, f.code) for f in report.findings] == [(4, UNAPPROVED)]
            assert report.findings[0].detail.startswith("approval_revoked")
        else:
            assert report.findings == ()


def test_nobody_else_makes_an_entry_bad(owing_life: Life) -> None:
    scope = AuditScope(witnesses=AuditWitnesses(signed=revocation(owing_life, 3, "mallory")))
    assert owing_life.audit(owing_life.chain()[-1], scope=scope).ok


POLICY = """\
version: 1
groups: {staff: [act-ada, act-bob], editors: [act-ada]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
WIDER_POLICY = POLICY.replace("{group: editors}", "{group: staff}")
GUARDED = (
    f"version: 1\ngraphs:\n{GRAPHS['notes']}{GRAPHS['legacy']}policies:\n  k: {{file: k.yaml, applies_to: [notes]}}\n"
)
RULES = CONFIG + '  widening: [control, protected]\n  accounts: {"github:1": ada}\n'


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A graph under a policy."""
    life = Life(tmp_path_factory.mktemp("access"), config=RULES)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": GUARDED.encode(), "cluster/k.yaml": POLICY.encode()})
    # Until then any token may read, and nothing else.
    life.approve("ada", "policy.k")
    assert life.apply().converged
    return life


@pytest.fixture
def wider_life(begun: Life, tmp_path: Path) -> Life:
    """The same, with a policy that widens access merged."""
    copied = begun.copied(tmp_path)
    copied.change("dora", {"cluster/k.yaml": WIDER_POLICY.encode()})
    return copied


def test_a_widening_waits_for_an_approval_and_is_audited_with_it(wider_life: Life) -> None:
    waiting = wider_life.apply()
    assert [(c.address, c.disposition, c.reason) for c in waiting.changes if c.address == "policy.k"] == [
        ("policy.k", Disposition.BLOCKED, Reason.APPROVAL_REQUIRED)
    ]
    made = plan(wider_life.workspace()).plan
    assert made is not None
    (need,) = made.approvals_required
    assert (need.reason, need.tier) == ("widens access: change on main of notes for 1 actor", "reversible")

    wider_life.approve("ada", "policy.k")
    assert wider_life.apply().converged
    assert [(c.resource, c.tier) for c in newest(wider_life).changes if c.resource == "policy.k"] == [
        ("policy.k", "reversible")
    ]
    assert wider_life.audit(wider_life.chain()[-1]).finding is None


def test_a_review_on_the_forge_is_an_approval_of_it(wider_life: Life) -> None:
    assert attested(wider_life, grant(wider_life, "ada"), "policy.k").ok
    assert wider_life.apply().converged
    assert wider_life.audit(wider_life.chain()[-1]).finding is None


def hidden(entry: LedgerEntry) -> LedgerEntry:
    """The entry as if its changes met no gate."""
    return replace(entry, changes=tuple(replace(c, tier=None, digest=None, gates=()) for c in entry.changes))


def of_an_earlier_release(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Verify entries as those before the version that a name says."""
    monkeypatch.setattr(approvals, first, ENTRY_VERSION + 1)


def test_an_entry_that_hides_the_gate_is_a_finding(wider_life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    wider_life.approve("ada", "policy.k")
    assert wider_life.apply().converged
    assert [c.gates for c in newest(wider_life).changes if c.resource == "policy.k"] == [("widening",)]
    lie = wider_life.forge(newest(wider_life).number, Lie(entry=hidden))
    finding = wider_life.audit(lie).finding
    assert finding is not None
    assert finding.code == "ledger_gates_missing"
    gain = "widens access: change on main of notes for 1 actor"
    assert finding.detail == f"policy.k meets gate widening: {gain}; the entry records no gate"
    of_an_earlier_release(monkeypatch, "WITH_GATES")
    finding = wider_life.audit(lie).finding
    assert finding is not None
    assert (finding.code, finding.detail) == (
        "ledger_change_unapproved",
        f"policy.k: {gain}; the entry records no gate",
    )


def test_copies_of_a_protected_branch_wait_for_an_approval(
    begun: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one they are a note in an entry of an earlier release, which did not ask for one."""
    life = begun.copied(tmp_path)
    drafts = POLICY.replace("groups: {", "groups: {guests: [act-gus], ") + (
        "  - {id: drafts, allow: {actors: {group: guests}, actions: [read], branch_scope: unprotected}}\n"
    )
    life.change("dora", {"cluster/k.yaml": drafts.encode()})
    assert life.apply().converged
    copying = (
        "  - {id: c, allow: {actors: {group: editors}, actions: [branch_create], target_branch_scope: unprotected}}\n"
    )
    life.change("dora", {"cluster/k.yaml": (drafts + copying).encode()})
    assert not life.apply().converged
    life.approve("ada", "policy.k")
    assert life.apply().converged
    assert not [note for note in life.audit(life.chain()[-1]).notes if "widens" in note]

    number = newest(life).number
    lie = life.forge(number, Lie(entry=hidden))
    gain = "widens access: branch_create_from main of notes for 1 actor"
    finding = life.audit(lie).finding
    assert finding is not None
    assert finding.detail == f"policy.k meets gate widening: {gain}; the entry records no gate"
    of_an_earlier_release(monkeypatch, "WITH_GATES")
    of_an_earlier_release(monkeypatch, "RULES_OF_0_2_1")
    assert f"entry {number}: policy.k {gain}, and the entry records no gate" in life.audit(lie).notes


def test_what_permits_less_or_the_same_needs_no_approval(begun: Life, tmp_path: Path) -> None:
    life = begun.copied(tmp_path)
    life.change("dora", {"cluster/k.yaml": POLICY.replace("[act-ada, act-bob]", "[act-ada]").encode()})
    assert life.apply().converged
    assert life.audit(life.chain()[-1]).finding is None
