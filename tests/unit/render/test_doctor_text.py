"""What the doctor prints: gaps with their way out, sums, and nothing that acts on a terminal or in the log of a job."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gitops.doctor.findings import (
    AttackReport,
    AttackResult,
    Defence,
    DoctorFinding,
    Health,
    attack_form,
    attack_text,
    findings_form,
    findings_text,
)

FOUND = (
    DoctorFinding("ledger.chain", Health.ERROR, "entry 2 is not signed", "gitops audit --cluster brain", "brain"),
    DoctorFinding("git.version", Health.GOOD, "git version 2.39.5"),
)
REPORT = AttackReport(
    "brain",
    (
        AttackResult("own-rules", "bring rules", "docs/approvals.md: rules in force", Defence.HELD, "trust_pending"),
        AttackResult("foreign-key", "sign", "docs/approvals.md: step 3", Defence.FELL, "the graph was deleted"),
    ),
    ("no hook is in sight",),
)


def test_findings_as_text() -> None:
    assert findings_text(FOUND) == (
        "ERROR    ledger.chain [brain]: entry 2 is not signed\n"
        "         -> gitops audit --cluster brain\n"
        "ok       git.version: git version 2.39.5\n"
        "doctor: 1 error(s), 0 warning(s), 0 unknown, 1 good\n"
    )


def test_findings_as_a_form() -> None:
    assert findings_form(FOUND, ok=False) == {
        "ok": False,
        "findings": [
            {
                "check": "ledger.chain",
                "health": "error",
                "place": "brain",
                "detail": "entry 2 is not signed",
                "fix": "gitops audit --cluster brain",
            },
            {"check": "git.version", "health": "good", "detail": "git version 2.39.5"},
        ],
    }


def test_attacks_as_text() -> None:
    assert attack_text(REPORT) == (
        "held     own-rules    bring rules: trust_pending\n"
        "FELL     foreign-key  sign: the graph was deleted\n"
        "         -> docs/approvals.md: step 3\n"
        "NOTE     no hook is in sight\n"
        "doctor --attack failed: brain: 1 held, 1 fell, 0 skipped, 0 unproven\n"
    )


def test_attacks_as_a_form() -> None:
    form = attack_form(REPORT)
    assert (form["ok"], form["cluster"], form["notes"]) == (False, "brain", ["no hook is in sight"])
    assert form["attacks"][1] == {
        "name": "foreign-key",
        "title": "sign",
        "rule": "docs/approvals.md: step 3",
        "defence": "fell",
        "detail": "the graph was deleted",
    }


@given(st.text(), st.text())
def test_every_line_begins_with_a_word_of_ours(detail: str, fix: str) -> None:
    """Law: whatever stands in a finding, it makes no line of its own and no line that a runner obeys."""
    finding = DoctorFinding("trust.roles", Health.WARNING, detail, fix, detail)
    lines = findings_text([finding]).splitlines()
    assert len(lines) == 2 + bool(fix)
    assert all(line.startswith(("WARNING ", "         -> ", "doctor: ")) for line in lines)
    assert all(line.isprintable() for line in lines)
