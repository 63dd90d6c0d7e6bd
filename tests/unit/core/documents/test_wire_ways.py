"""How an approval was given, and what was decided about it: the later versions of documents, beside the bytes of the first."""

from __future__ import annotations

import dataclasses
import json

import pytest

from gitops.cluster.approvals.documents import decision_message, read_decision, read_statement, statement_message
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.trailers import commit_message, parse_trailers
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Decision, DecisionKind, ForgeGrant, GrantSource, Via
from gitops.cluster.model.ledger import ApprovalUse, Debt, DebtSettlement, EntryKind
from gitops.core.canonical import canonical
from gitops.core.errors import IntegrityError
from tests.support.pages import ROOT

DOCUMENTS = ROOT / "tests" / "data" / "documents"
FIRST = read_statement((DOCUMENTS / "statement.message.txt").read_text(encoding="utf-8"))
ENTRY = read_entry((DOCUMENTS / "entry.json").read_bytes())
APPROVAL_ID = FIRST.approval_id
GRANT = ForgeGrant(
    account="github:583231",
    login="octocat",
    request=7,
    source=GrantSource.REVIEW,
    reference="80",
    commit="a" * 40,
    at="2026-07-02T07:59:00Z",
    url="https://forge.example/library/clusters/pull/7",
    tree="3" * 40,
)
STATEMENTS = {
    "statement.message.txt": FIRST,
    "statement.forge.txt": dataclasses.replace(FIRST, via=Via.FORGE, grant=GRANT, version=2),
    "statement.break-glass.txt": dataclasses.replace(
        FIRST, via=Via.BREAK_GLASS, emergency="it leaks personal data", version=2
    ),
}
DECISION = Decision(
    version=1,
    kind=DecisionKind.REVOKE,
    decision_id="01K2H7W0T4XAYZ6B8DE2FG4HJK",
    target=FIRST.target,
    approval_id=APPROVAL_ID,
    subject="8" * 40,
    reason="the export is not finished",
    ledger_head="1" * 40,
    created_at="2026-07-02T09:00:00Z",
    nonce="01K2H7W1V6YBZ08CDF4GH6JKMN",
)
DECISIONS = {
    "decision.revoke.txt": DECISION,
    "decision.countersign.txt": dataclasses.replace(DECISION, kind=DecisionKind.COUNTERSIGN, reason="seen, and right"),
}
USE = ApprovalUse(APPROVAL_ID, "8" * 40, Address("graph.staging"), "ada@example.org", Via.BREAK_GLASS)
DEBT = Debt(APPROVAL_ID, "8" * 40, Address("graph.staging"), "ada@example.org", "it leaks personal data")
SETTLED = DebtSettlement(APPROVAL_ID, DECISION.decision_id, "9" * 40, "mira@example.org")
ENTRIES = {
    "entry.emergency.json": dataclasses.replace(ENTRY, approvals=(USE,), debts=(DEBT,), version=2),
    "entry.countersign.json": dataclasses.replace(
        ENTRY,
        number=3,
        kind=EntryKind.COUNTERSIGN,
        previous="a" * 40,
        state_revision=13,
        changes=(),
        approvals=(),
        settled=(SETTLED,),
        version=2,
    ),
}


def text(name: str) -> str:
    return (DOCUMENTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", STATEMENTS)
def test_each_way_has_its_golden_message(name: str) -> None:
    assert read_statement(text(name)) == STATEMENTS[name]
    assert statement_message(STATEMENTS[name], "delete graph.staging") == text(name)


@pytest.mark.parametrize("name", DECISIONS)
def test_each_decision_has_its_golden_message(name: str) -> None:
    assert read_decision(text(name)) == DECISIONS[name]
    assert decision_message(DECISIONS[name]) == text(name)


@pytest.mark.parametrize("name", ENTRIES)
def test_each_entry_has_its_golden_document(name: str) -> None:
    assert read_entry((DOCUMENTS / name).read_bytes()) == ENTRIES[name]
    assert write_entry(ENTRIES[name]) == (DOCUMENTS / name).read_bytes()


def test_what_was_written_before_there_were_other_ways_keeps_its_bytes() -> None:
    data = (DOCUMENTS / "entry.json").read_bytes()
    assert write_entry(read_entry(data)) == data
    assert json.loads(data)["version"] == 1
    assert '"version":1' in text("statement.message.txt")


def test_the_trailers_name_debts_and_what_settles_them() -> None:
    owing, settling = (commit_message(entry) for entry in ENTRIES.values())
    assert ("Debt", APPROVAL_ID) in parse_trailers(owing)
    assert ("Settles", APPROVAL_ID) in parse_trailers(settling)
    assert settling.startswith("countersign(library): settles 1 debt(s), revision 13\n")


def edited(name: str, **members: object) -> str:
    """The message of a file with members of its JSON replaced, or removed by Ellipsis."""
    subject, _, line = text(name).removesuffix("\n").split("\n")
    form = {k: v for k, v in (json.loads(line) | members).items() if v is not ...}
    return f"{subject}\n\n{canonical(form).decode()}\n"


FORM = json.loads(text("statement.forge.txt").split("\n")[2])
REFUSED_STATEMENTS = {
    "version 1 with a way": edited("statement.message.txt", via="signature"),
    "version 2 by signature": edited("statement.message.txt", version=2, via="signature", grant=None, emergency=None),
    "version 2 without its fields": edited("statement.message.txt", version=2),
    "version 3 without a signature of its own": edited("statement.forge.txt", version=3),
    "forge without a grant": edited("statement.forge.txt", grant=None),
    "forge with an emergency": edited("statement.forge.txt", emergency="x"),
    "emergency with a grant": edited("statement.break-glass.txt", grant=FORM.get("grant")),
    "emergency without a reason": edited("statement.break-glass.txt", emergency=None),
    "emergency of two lines": edited("statement.break-glass.txt", emergency="a\nb"),
    "emergency that hides": edited("statement.break-glass.txt", emergency="\u202ex"),
    "no such way": edited("statement.forge.txt", via="telepathy"),
    **{
        f"grant {name}": edited("statement.forge.txt", grant={**FORM.get("grant", {}), name: value})
        for name, value in (
            ("account", ""),
            ("login", "a\x1b[2K"),
            ("request", 0),
            ("request", True),
            ("source", "rumour"),
            ("reference", None),
            ("commit", "HEAD"),
            ("tree", ""),
            ("at", "yesterday"),
            ("url", ""),
            ("more", 1),
        )
    },
}


@pytest.mark.parametrize("message", REFUSED_STATEMENTS.values(), ids=REFUSED_STATEMENTS)
def test_no_other_form_is_a_statement(message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_statement(message)
    assert caught.value.code == "approval_malformed"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "revoke(library): x\n\n{}\n",
        text("decision.revoke.txt").replace("revoke(", "countersign(", 1),
        text("decision.revoke.txt").replace(f"approval {APPROVAL_ID}", "approval of mine", 1),
        text("decision.revoke.txt") + "Signed-off-by: x\n",
        text("statement.message.txt"),
        edited("decision.revoke.txt", version=2),
        edited("decision.revoke.txt", kind="approve"),
        edited("decision.revoke.txt", kind="countersign"),
        edited("decision.revoke.txt", decision_id="mine"),
        edited("decision.revoke.txt", subject="HEAD"),
        edited("decision.revoke.txt", reason=""),
        edited("decision.revoke.txt", reason=None),
        edited("decision.revoke.txt", created_at="now"),
        edited("decision.revoke.txt", extra=1),
        edited("decision.revoke.txt", nonce=...),
    ],
)
def test_no_other_form_is_a_decision(message: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_decision(message)
    assert caught.value.code == "decision_malformed"


def test_the_edits_above_are_refused_for_what_they_change() -> None:
    for name in (*STATEMENTS, *DECISIONS):
        assert edited(name) == text(name)


@pytest.mark.parametrize("member", ["debts", "settled"])
def test_an_entry_of_version_2_has_both_lists(member: str) -> None:
    form = json.loads((DOCUMENTS / "entry.emergency.json").read_bytes())
    del form[member]
    with pytest.raises(IntegrityError):
        read_entry(json.dumps(form).encode())


def test_an_entry_has_the_lowest_version_that_says_it_all() -> None:
    form = json.loads((DOCUMENTS / "entry.json").read_bytes())
    later = {**form, "version": 2, "debts": [], "settled": []}
    later["approvals"] = [{**use, "via": "signature"} for use in form["approvals"]]
    with pytest.raises(IntegrityError) as caught:
        read_entry(json.dumps(later).encode())
    assert caught.value.code == "ledger_entry_invalid"
