"""The auditor follows every way to approve: emergencies and their debts, countersignatures, reviews, revocations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from gitops.cluster.approvals.documents import decision_message
from gitops.cluster.approving.decide import countersign
from gitops.cluster.audit.report import AuditWitnesses
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.ledger.chain import revocations_prefix
from gitops.cluster.model.approval import Decision, DecisionKind, ForgeGrant, GrantSource, Via
from gitops.cluster.model.ledger import EntryKind, LedgerEntry, LedgerState
from gitops.git.port import NewCommit
from tests.support.audited import CLUSTER, CONFIG, Lie, Life, person, saying
from tests.support.governed import alone, attested, grant, made, office, waiting
from tests.support.signed import signer

QUERY = b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.title as t }\n}\n"
# 4 announces the delete, 5 says that it happened and what it owes, 6 settles that, 7 applies the next change.
OWING, SETTLING, NEXT = 5, 6, 7
OTHER = "01JZ0000000000000000000AAA"


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """ada acted alone, ben countersigned, and then it went on."""
    life = waiting(tmp_path_factory.mktemp("emergency"))
    identity = made(alone(life))
    life.apply()
    life.change("dora", {"cluster/notes.gq": QUERY})
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
LIES: dict[str, tuple[int, Lie, str, str]] = {
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
        "its commit says otherwise",
    ),
    "settled by a person who did not sign": (SETTLING, Lie(settlement(principal="ada")), MISMATCH, "says otherwise"),
    "settled under another id": (SETTLING, Lie(settlement(countersignature=OTHER)), MISMATCH, "says otherwise"),
    "settled although nothing is owed": (SETTLING, Lie(settlement(approval_id=OTHER)), MISMATCH, "not open"),
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


def test_the_true_ledger_is_good_from_every_entry_on(life: Life) -> None:
    chain = life.chain()
    for since in (None, *chain):
        assert life.audit(chain[-1], scope=AuditScope(since=since)).findings == ()


@pytest.mark.parametrize("name", LIES)
def test_a_lie_about_an_emergency_is_found_where_it_is_told(life: Life, name: str) -> None:
    number, lie, code, words = LIES[name]
    at, what, why = found(life, life.forge(number, lie))
    assert (at, what) == (number, code), why
    assert words in why
    (finding,) = life.audit(life.forge(number, lie), scope=AuditScope(since=life.chain()[number - 2])).findings
    assert (finding.number, finding.code) == (number, code)


def test_nothing_is_applied_over_an_open_debt(life: Life) -> None:
    chain = life.chain()
    over = saying(previous=chain[OWING - 1], number=SETTLING, state_revision=life.entry(NEXT).state_revision - 1)

    def earlier(state: LedgerState) -> LedgerState:
        return records(unsigned)(replace(state, revision=state.revision - 1))

    at, what, why = found(life, life.forge(NEXT, Lie(over, earlier)))
    assert (at, what) == (SETTLING, MISMATCH)
    assert "while the debt of" in why


def test_the_log_says_who_acted_alone_who_agreed_and_what_is_open(life: Life) -> None:
    told = {r.entry.number: r for r in read_trail(life.git, life.chain()[-1]) if r.entry is not None}
    identity = life.entry(OWING).debts[0].approval_id
    assert [told[n].owed for n in range(4, 8)] == [(), (identity,), (), ()]
    assert [(v.use.via, v.result) for v in told[OWING].approvals] == [(Via.BREAK_GLASS, "good")]
    assert [(s.settlement.principal, s.result) for s in told[SETTLING].settlements] == [("ben@example.org", "good")]
    assert all(record.ok for record in told.values())
    forged = life.forge(SETTLING, Lie(settlement(principal="ada")))
    shown = next(iter(read_trail(life.git, forged)))
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
        decision_id=OTHER,
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
    return {f"{revocations_prefix(CLUSTER)}{OTHER}": commit}


@pytest.mark.parametrize("who", ["ada", "ben", "bot"])
def test_a_revocation_counts_from_the_entry_that_it_names(life: Life, who: str) -> None:
    head = life.chain()[-1]
    for number in range(1, 8):
        scope = AuditScope(witnesses=AuditWitnesses(signed=revocation(life, number, who)))
        report = life.audit(head, scope=scope)
        if number < 4:
            assert [(f.number, f.code) for f in report.findings] == [(4, UNAPPROVED)]
            assert report.findings[0].detail.startswith("approval_revoked")
        else:
            assert report.findings == ()


def test_nobody_else_makes_an_entry_bad(life: Life) -> None:
    scope = AuditScope(witnesses=AuditWitnesses(signed=revocation(life, 3, "mallory")))
    assert life.audit(life.chain()[-1], scope=scope).ok
