"""A policy that widens access is applied with an approval alone, and the audit holds entries to that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.audit import approvals
from gitops.cluster.model.change import Disposition, Reason
from gitops.cluster.model.ledger import ENTRY_VERSION, LedgerEntry
from gitops.cluster.plan.plan import plan
from tests.support.audited import CONFIG, GRAPHS, Lie, Life
from tests.support.governed import attested, grant, newest

POLICY = """\
version: 1
groups: {staff: [act-ada, act-bob], editors: [act-ada]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change]}}
"""
WIDER = POLICY.replace("{group: editors}", "{group: staff}")
CLUSTER = (
    f"version: 1\ngraphs:\n{GRAPHS['notes']}{GRAPHS['legacy']}policies:\n  k: {{file: k.yaml, applies_to: [notes]}}\n"
)
RULES = CONFIG + '  widening: [control, protected]\n  accounts: {"github:1": ada}\n'


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Life:
    """A graph under a policy."""
    life = Life(tmp_path_factory.mktemp("access"), config=RULES)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": CLUSTER.encode(), "cluster/k.yaml": POLICY.encode()})
    # Until then any token may read, and nothing else.
    life.approve("ada", "policy.k")
    assert life.apply().converged
    return life


@pytest.fixture
def life(begun: Life, tmp_path: Path) -> Life:
    """The same, with a policy that widens access merged."""
    copied = begun.copied(tmp_path)
    copied.change("dora", {"cluster/k.yaml": WIDER.encode()})
    return copied


def test_a_widening_waits_for_an_approval_and_is_audited_with_it(life: Life) -> None:
    waiting = life.apply()
    assert [(c.address, c.disposition, c.reason) for c in waiting.changes if c.address == "policy.k"] == [
        ("policy.k", Disposition.BLOCKED, Reason.APPROVAL_REQUIRED)
    ]
    made = plan(life.workspace()).plan
    assert made is not None
    (need,) = made.approvals_required
    assert (need.reason, need.tier) == ("widens access: change on main of notes for 1 actor", "reversible")

    life.approve("ada", "policy.k")
    assert life.apply().converged
    assert [(c.resource, c.tier) for c in newest(life).changes if c.resource == "policy.k"] == [
        ("policy.k", "reversible")
    ]
    assert life.audit(life.chain()[-1]).finding is None


def test_a_review_on_the_forge_is_an_approval_of_it(life: Life) -> None:
    assert attested(life, grant(life, "ada"), "policy.k").ok
    assert life.apply().converged
    assert life.audit(life.chain()[-1]).finding is None


def hidden(entry: LedgerEntry) -> LedgerEntry:
    """The entry as if its changes met no gate."""
    return replace(entry, changes=tuple(replace(c, tier=None, digest=None, gates=()) for c in entry.changes))


def of_an_earlier_release(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Verify entries as those before the version that a name says."""
    monkeypatch.setattr(approvals, first, ENTRY_VERSION + 1)


def test_an_entry_that_hides_the_gate_is_a_finding(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    life.approve("ada", "policy.k")
    assert life.apply().converged
    assert [c.gates for c in newest(life).changes if c.resource == "policy.k"] == [("widening",)]
    lie = life.forge(newest(life).number, Lie(entry=hidden))
    finding = life.audit(lie).finding
    assert finding is not None
    assert finding.code == "ledger_gates_missing"
    gain = "widens access: change on main of notes for 1 actor"
    assert finding.detail == f"policy.k meets gate widening: {gain}; the entry records no gate"
    of_an_earlier_release(monkeypatch, "WITH_GATES")
    finding = life.audit(lie).finding
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
