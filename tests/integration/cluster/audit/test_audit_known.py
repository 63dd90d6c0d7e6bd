"""What others know reveals that a ledger was rewound, forked, replaced or kept back; what somebody makes up does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.audit.report import AuditReport, AuditWitnesses
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.ledger.chain import VerifiedEntry, approvals_prefix
from gitops.core.errors import IntegrityError
from gitops.git.port import NewCommit, RefUpdate
from gitops.git.repository import GitRepository
from tests.support.audited import CLUSTER, LEDGER, MAIN, Lie, Life, declared, person, saying

APPROVALS = approvals_prefix(CLUSTER)


def signed(life: Life) -> dict[str, str]:
    """All approval branches; the newest names entry 12."""
    return dict(life.git.refs(APPROVALS))


def told(life: Life, head: str, **known: dict[str, str]) -> AuditReport:
    """The verdict, given what is known."""
    return life.audit(head, scope=AuditScope(witnesses=AuditWitnesses(**known), anchor=life_anchor(life)))


def life_anchor(life: Life):
    """As the command line does it."""
    rule = life.repository.config().cluster(None)
    return lambda first: life.repository.anchor(rule, first)


def child_of(repository: GitRepository, parent: str, message: str = "x\n") -> str:
    """A commit that anybody can make."""
    new = NewCommit(repository.commit(parent).tree, (parent,), person("mallory"), message)
    return repository.write_commit(new, signing_key=None)


def codes(report: AuditReport) -> list[str]:
    return [finding.code for finding in report.findings]


def test_the_approvals_of_a_true_ledger_name_its_entries(life: Life) -> None:
    assert len(signed(life)) == 3
    report = told(life, life.chain()[-1], signed=signed(life))
    assert (report.findings, report.notes) == ((), ())


@pytest.mark.parametrize("number", range(1, 12))
def test_an_approval_reveals_a_rewound_ledger(life: Life, number: int) -> None:
    report = told(life, life.chain()[number - 1], signed=signed(life))
    assert set(codes(report)) == {"ledger_diverged"}
    assert {f.number for f in report.findings} == {0}
    assert report.verified == number
    assert any("gitops/approvals/brain/" in f.detail and "names entry" in f.detail for f in report.findings)


def test_what_was_rewound_before_the_newest_approval_is_not_revealed_by_it(life: Life) -> None:
    assert told(life, life.chain()[11], signed=signed(life)).ok


def test_an_approval_reveals_a_fork_that_is_a_true_ledger_itself(life: Life) -> None:
    fork = life.forge(6, Lie(saying(operation="another run")))
    assert life.audit(fork).ok
    report = told(life, fork, signed=signed(life))
    assert codes(report) == ["ledger_diverged"]
    assert "which follows entry" in report.findings[0].detail
    # One finding, with each witness in it.
    assert all(ref.removeprefix("refs/heads/") in report.findings[0].detail for ref in signed(life))


def test_an_approval_reveals_a_ledger_that_was_begun_anew(life: Life) -> None:
    anew = life.forge(1, Lie(saying(operation="begin again")))
    assert life.audit(anew).ok
    report = told(life, anew, signed=signed(life))
    assert codes(report) == ["ledger_diverged"]
    assert "of a chain with another first entry" in report.findings[0].detail


def test_what_anybody_makes_up_stops_nobody(life: Life) -> None:
    head, repository = life.chain()[-1], life.git
    unsigned = child_of(repository, head)
    by_stranger = life.forge(14, Lie(saying(operation="mine"), signer="mallory"))
    other_cluster = life.forge(1, Lie(lambda e: replace(e, target=replace(e.target, cluster="heart"))))
    invented = {
        "a commit that is no entry": child_of(repository, unsigned),
        "a source commit": child_of(repository, repository.resolve(MAIN) or ""),
        "an entry by a key that may not": child_of(repository, by_stranger),
        "an entry of another cluster": child_of(repository, other_cluster),
        "a commit without a parent": life.chain()[0],
        "a commit that is not there": "ab" * 20,
    }
    report = told(life, head, signed={f"{APPROVALS}{n}": commit for n, commit in enumerate(invented.values())})
    assert (report.findings, report.ok) == ((), True)


def test_a_beginning_that_does_not_stand_up_to_its_anchor_proves_nothing(life: Life) -> None:
    anew = life.forge(1, Lie(saying(operation="begin again")))
    approval, statement = life.approval(next(iter(signed(life).values())))
    named = {f"{APPROVALS}X": life.forge_approval(approval, replace(statement, ledger_head=anew), "ada")}
    assert not told(life, life.chain()[-1], signed=named).ok

    def refuse(first: VerifiedEntry) -> None:
        raise IntegrityError("ledger_diverged", f"{first.commit.id} is not of this branch")

    scope = AuditScope(witnesses=AuditWitnesses(signed=named), anchor=refuse)
    assert life.audit(life.chain()[-1], scope=scope).ok
    assert life.audit(life.chain()[-1], scope=replace(scope, anchor=AuditScope().anchor)).ok


def test_an_entry_of_another_copy_stops_nobody(life: Life) -> None:
    """The bot signs both ledgers with one key; anybody can put a commit on top of an entry of the other."""
    anew = life.forge(1, Lie(saying(operation="begin again")))
    approval, statement = life.approval(next(iter(signed(life).values())))
    elsewhere = replace(statement, ledger_head=anew, target=replace(statement.target, repository="a copy"))
    documents = {
        "not an approval": child_of(life.git, anew),
        "not trusted": life.forge_approval(approval, replace(statement, ledger_head=anew), "mallory"),
        "of repository a copy": life.forge_approval(approval, elsewhere, "ada"),
    }
    for why, commit in documents.items():
        report = told(life, life.chain()[-1], signed={f"{APPROVALS}X": commit})
        assert report.ok, why
        (note,) = [note for note in report.notes if "proves nothing" in note]
        assert why in note


def test_every_head_that_was_seen_here_is_an_entry(life: Life) -> None:
    chain = life.chain()
    assert told(life, chain[-1], seen={"a": chain[-1], "b": chain[3]}).ok
    report = told(life, chain[5], seen={"refs/gitops/seen/brain": chain[9], "b": chain[5]})
    assert codes(report) == ["ledger_diverged"]
    assert "refs/gitops/seen/brain" in report.findings[0].detail
    # The note outlives the objects.
    assert codes(told(life, chain[5], seen={"the note": "ab" * 20})) == ["ledger_diverged"]


def test_witnesses(life: Life) -> None:
    chain = life.chain()
    fork = life.forge(6, Lie(saying(operation="another run")))
    forged = life.forge(14, Lie(saying(operation="mine"), signer="mallory"))
    for commit, expected in (
        (chain[-1], []),
        (chain[4], []),
        (fork, ["ledger_diverged"]),
        (forged, ["witness_unproven"]),
        ("ab" * 20, ["witness_unproven"]),
    ):
        assert codes(told(life, chain[-1], copies={"colleague": commit})) == expected
    assert told(life, chain[-1], copies={"w": chain[4]}).notes == ("witness w has an older head, entry 5",)
    frozen = told(life, chain[4], copies={"w": chain[-1]})
    assert codes(frozen) == ["ledger_behind"]
    assert "an old state is served here" in frozen.findings[0].detail


def test_a_bad_entry_and_what_others_know_are_told_together(life: Life) -> None:
    forged = life.forge(5, Lie(message="apply(brain): nothing\n"))
    report = told(life, forged, signed=signed(life))
    assert codes(report) == ["ledger_entry_invalid", "ledger_diverged"]
    assert report.finding == report.findings[0]


def test_an_apply_on_a_rewound_server_is_refused_although_its_own_notes_were_rewound_too(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    refresh(life.workspace())
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    *_, before, head = life.chain()
    for ref in (LEDGER, f"refs/gitops/seen/{CLUSTER}"):
        life.git.update_refs([RefUpdate(ref, head, before)])
    outcome = life.apply()
    assert "ledger_diverged" in [d.code for d in outcome.diagnostics if d.severity == "error"]
    assert life.git.resolve(LEDGER) == before
    for ref in (LEDGER, f"refs/gitops/seen/{CLUSTER}"):
        life.git.update_refs([RefUpdate(ref, before, head)])
    assert life.apply().ok
    assert life.audit(life.chain()[-1]).ok
