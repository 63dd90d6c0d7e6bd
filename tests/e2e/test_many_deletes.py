"""A merge that deletes more than `approvals.max_deletes` waits for an approval of every delete, from a clone to the audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry, read_state
from gitops.cluster.ledger.layout import STATE
from gitops.cluster.model.address import Address, trust_address
from gitops.cluster.model.ledger import LedgerEntry
from tests.e2e.conftest import Built
from tests.support.audited import CONFIG as LIFE_RULES
from tests.support.audited import FILES, Lie, Life
from tests.support.cluster import rulings
from tests.support.loop import CONFIG, MAIN, Loop
from tests.support.loop_data import audited

pytestmark = pytest.mark.e2e

RULES = f"{CONFIG}  max_deletes: 2\n"
QUERIES = [Address(f"query.notes.{name}") for name in ("a", "b", "c", "d")]
TEXT = FILES["cluster/notes.gq"]


def _folder(*names: str, legacy: bool = True) -> dict[str, bytes | None]:
    listed = ", ".join(f"{name}: {{file: {name}.gq}}" for name in names)
    text = f"version: 1\ngraphs:\n  notes: {{schema: notes.pg, queries: {{{listed}}}}}\n"
    text += "  legacy: {schema: legacy.pg}\n" if legacy else ""
    texts = {f"cluster/{name}.gq": TEXT.replace(b"titles", name.encode()) for name in "abcde"}
    return {"cluster/cluster.yaml": text.encode(), **texts}


def _entry(loop: Loop) -> LedgerEntry:
    return read_entry(loop.store.read(loop.applied().tree, ENTRY) or b"")


def _recorded(loop: Loop) -> set[Address]:
    found = read_state(loop.store.read(loop.applied().tree, STATE) or b"").resources
    return {each for each in found if each in QUERIES or each == "graph.legacy"}


@pytest.fixture
def loop(built: Built, tmp_path: Path) -> Loop:
    """Four queries and a graph, which a merge may take two of."""
    made = built(RULES).copied(tmp_path / "deletes")
    made.move(MAIN, made.commit("alice", _folder("a", "b", "c", "d")))
    return made


def test_as_many_as_the_limit_are_deleted_at_once(loop: Loop) -> None:
    loop.move("refs/heads/topic", loop.commit("alice", _folder("a", "b")))
    assert "gate deletes" not in loop.comment(1)
    loop.merge("alice", 1)
    assert _recorded(loop) == {*QUERIES[:2], "graph.legacy"}


def test_a_request_with_more_is_approved_from_a_clone_and_then_deletes(loop: Loop) -> None:
    head = loop.commit("alice", _folder("a"))
    loop.move("refs/heads/topic", head)
    comment = loop.comment(1)
    assert "the plan deletes 3 resources, and `approvals.max_deletes` is 2" in comment
    assert "gate deletes" in comment
    assert loop.status(head, "plan").startswith("failure: ")
    own = loop.confirmed("alice", "approve", "--all", "--request", "1")
    assert "approval_self" in own.text
    assert loop.approvals() == ()
    given = loop.confirmed("bob", "approve", *QUERIES[1:], "--request", "1")
    assert given.code == 0, given.text
    assert "success" in loop.status(head, "plan")
    loop.merge("alice", 1)
    assert _recorded(loop) == {QUERIES[0], "graph.legacy"}
    gates = {each.resource: (each.tier, each.gates) for each in _entry(loop).changes if each.operation == "delete"}
    assert gates == dict.fromkeys(QUERIES[1:], ("reversible", ("deletes",)))
    assert audited(loop).ok


def test_nothing_is_deleted_before_all_is_approved(loop: Loop) -> None:
    loop.move(MAIN, loop.commit("alice", _folder("a", legacy=False)))
    for address in (QUERIES[1], QUERIES[2], "graph.legacy"):
        assert loop.sign_approval("bob", address).ok
        loop.arrived(loop.approvals()[-1])
    # Three of five are approved, and what is left is no more than the limit: it would be open if it were applied in steps.
    assert _recorded(loop) == {*QUERIES, "graph.legacy"}
    assert loop.graph("legacy").exists()
    reasons = {each.resource: each.reason for each in _entry(loop).changes if each.resource in _recorded(loop)}
    assert reasons[QUERIES[3]] == "approval_required"
    assert reasons[QUERIES[1]] == reasons[Address("graph.legacy")] == "dependency_not_applied"
    assert loop.sign_approval("bob", QUERIES[3]).ok
    loop.arrived(loop.approvals()[-1])
    assert _recorded(loop) == {QUERIES[0]}
    assert not loop.graph("legacy").exists()
    (deleted,) = [each for each in _entry(loop).changes if each.resource == "graph.legacy"]
    assert deleted.gates == ("deletes", "irreversible", "lossy")
    assert audited(loop).ok


def test_a_request_cannot_raise_the_limit_that_it_breaks(loop: Loop) -> None:
    raised = RULES.replace("max_deletes: 2", "max_deletes: 100").encode()
    loop.move("refs/heads/topic", loop.commit("alice", {**_folder("a"), "gitops.yaml": raised}))
    comment = loop.comment(1)
    assert "gate deletes" in comment
    assert "resources that a merge deletes without approvals" in comment
    loop.merge("alice", 1)
    waiting = {each.resource: each.reason for each in _entry(loop).changes if each.disposition == "blocked"}
    assert waiting == dict.fromkeys([*QUERIES[1:], trust_address("brain")], "approval_required")
    # The deletes do not wait for the change of rules, which meets the gate as well.
    for address in QUERIES[1:]:
        assert loop.sign_approval("bob", address).ok
        loop.arrived(loop.approvals()[-1])
    assert _recorded(loop) == {QUERIES[0], "graph.legacy"}
    assert loop.sign_approval("bob", trust_address("brain")).ok
    loop.arrived(loop.approvals()[-1])
    assert audited(loop).ok


def test_doctor_names_the_limit(loop: Loop) -> None:
    found = loop.gitops("bob", "doctor", check=False).text
    assert "a merge deletes at most 2 resources without approvals" in found


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path, config=f"{LIFE_RULES}  max_deletes: 2\n")
    made.begin()
    made.change("dora", _folder("a", "b", "c", "d"))
    made.apply()
    return made


def test_the_audit_counts_the_deletes_itself(life: Life) -> None:
    life.change("dora", _folder("a"))
    for address in QUERIES[1:]:
        life.approve("ada", address)
    assert life.apply().converged
    number = len(life.chain())
    assert life.audit(life.chain()[-1]).ok
    fewer = life.audit(life.forge(number, Lie(lambda e: replace(e, approvals=e.approvals[:2])))).finding
    assert fewer is not None
    assert "too few: gate deletes asks for 1 person" in fewer.detail
    hidden = Lie(
        lambda e: replace(
            e, approvals=(), changes=tuple(replace(c, tier=None, digest=None, gates=()) for c in e.changes)
        )
    )
    ungated = life.audit(life.forge(number, hidden)).finding
    assert ungated is not None
    assert ungated.code == "ledger_change_unapproved"


def test_one_more_resource_of_the_ledger_holds_all_that_was_approved(life: Life) -> None:
    approved = _folder("a")
    life.change("dora", approved)
    for address in QUERIES[1:]:
        life.approve("ada", address)
    # The ledger gains a query from a folder in between; then the branch has the folder again that was approved.
    grown = _folder("a", "b", "c", "d", "e")
    life.change("dora", grown)
    life.apply()
    life.change("dora", approved)
    found = rulings(life.apply().changes)
    assert found[Address("query.notes.e")] == "delete blocked:approval_required"
    assert all(found[each] == "delete blocked:dependency_not_applied" for each in QUERIES[1:])
