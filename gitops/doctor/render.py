"""The report of `gitops doctor`, for people and programs. Details hold names and texts from outside, so they are escaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gitops.doctor.findings import AttackReport, Defence, DoctorFinding, Health
from gitops.render.characters import visible
from gitops.render.json import Form, present

_WORDS = {Health.GOOD: "ok", Health.WARNING: "WARNING", Health.ERROR: "ERROR", Health.UNKNOWN: "unknown"}
_DEFENCES = {Defence.HELD: "held", Defence.FELL: "FELL", Defence.SKIPPED: "skipped", Defence.UNPROVEN: "UNPROVEN"}
_WIDTH = 8


def findings_text(findings: Sequence[DoctorFinding]) -> str:
    """One line for each finding in the given order, with the fix below it, and a line of totals."""
    lines: list[str] = []
    for each in findings:
        place = f" [{each.place}]" if each.place else ""
        lines.append(f"{_WORDS[each.health]:<{_WIDTH}} {each.check}{place}: {each.detail}")
        if each.fix:
            lines.append(f"{'':<{_WIDTH}} -> {each.fix}")
    counts = Counter(each.health for each in findings)
    names = (
        (Health.ERROR, "error(s)"),
        (Health.WARNING, "warning(s)"),
        (Health.UNKNOWN, "unknown"),
        (Health.GOOD, "good"),
    )
    lines.append("doctor: " + ", ".join(f"{counts[health]} {name}" for health, name in names))
    return _lines(lines)


def findings_form(findings: Sequence[DoctorFinding], *, ok: bool) -> Form:
    """`{ok, findings: [{check, health, detail, fix?, place?}]}`."""
    return {
        "ok": ok,
        "findings": [
            {
                "check": each.check,
                "health": each.health.value,
                **present(place=each.place or None),
                "detail": each.detail,
                **present(fix=each.fix or None),
            }
            for each in findings
        ],
    }


def attack_text(report: AttackReport) -> str:
    """A table of the attacks with what stopped each; for an attack that succeeded, the rule that must stop it."""
    width = max((len(each.name) for each in report.results), default=0)
    lines = []
    for each in report.results:
        lines.append(f"{_DEFENCES[each.defence]:<{_WIDTH}} {each.name:<{width}}  {each.title}: {each.detail}")
        if each.defence is Defence.FELL:
            lines.append(f"{'':<{_WIDTH}} -> {each.rule}")
    counts = Counter(each.defence for each in report.results)
    sums = ", ".join(f"{counts[defence]} {defence}" for defence in Defence)
    lines += [f"NOTE     {note}" for note in report.notes]
    lines.append(f"doctor --attack {'good' if report.ok else 'failed'}: {report.cluster}: {sums}")
    return _lines(lines)


def attack_form(report: AttackReport) -> Form:
    """`{ok, cluster, attacks: [{name, title, rule, defence, detail}], notes}`."""
    return {
        "ok": report.ok,
        "cluster": report.cluster,
        "attacks": [
            {
                "name": each.name,
                "title": each.title,
                "rule": each.rule,
                "defence": each.defence.value,
                "detail": each.detail,
            }
            for each in report.results
        ],
        "notes": list(report.notes),
    }


def _lines(lines: Sequence[str]) -> str:
    return "".join(visible(line) + "\n" for line in lines)
