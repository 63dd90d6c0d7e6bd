"""Results of `gitops doctor` as values, text and JSON: findings about a setup, and results of attacks on a copy.

A check that could not run is UNKNOWN, never GOOD, because a silently skipped check would hide problems. Details contain
untrusted names and texts, so they are escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from enum import StrEnum
from typing import TypeVar

from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.render.characters import visible
from gitops.render.json import Form, present
from gitops.render.words import count

T = TypeVar("T")
NOT_PROBED = ("not tried", "gitops doctor without --no-probe")
"""The detail and the remedy of a check that was not allowed to write."""


class Health(StrEnum):
    """The result of a check. An ERROR makes the command fail; with `--strict`, so does a WARNING."""

    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """A check with its stable name, such as `ledger.force-push`, its result, what was observed, and the fix.

    `fix` is a command, a menu path or a line of a file; empty if there is nothing to do. `place` is the cluster, file
    or branch if there are several.
    """

    check: str
    health: Health
    detail: str
    fix: str = ""
    place: str = ""


def good(check: str, detail: str, place: str = "") -> DoctorFinding:
    """Create the finding for a check that passed."""
    return DoctorFinding(check, Health.GOOD, detail, "", place)


def warning(check: str, detail: str, fix: str, place: str = "") -> DoctorFinding:
    """Create the finding for a setup that works but is weaker than it could be."""
    return DoctorFinding(check, Health.WARNING, detail, fix, place)


def error(check: str, detail: str, fix: str, place: str = "") -> DoctorFinding:
    """Create the finding for a setup with a security problem, or in which the bot cannot work."""
    return DoctorFinding(check, Health.ERROR, detail, fix, place)


def unknown(check: str, detail: str, fix: str = "", place: str = "") -> DoctorFinding:
    """Create the finding for a check that was not possible. `detail` is the reason."""
    return DoctorFinding(check, Health.UNKNOWN, detail, fix, place)


def attempt(check: str, call: Callable[[], T], place: str = "") -> tuple[T | None, tuple[DoctorFinding, ...]]:
    """Return the result of `call`. If it raises GitopsError, return None and an unknown finding with the reason."""
    try:
        return call(), ()
    except GitopsError as problem:
        return None, (unknown(check, f"{problem.code}: {problem.detail}", place=place),)


def sort_findings(findings: Iterable[DoctorFinding]) -> tuple[DoctorFinding, ...]:
    """Sort findings, worst first. Findings of equal severity keep their order."""
    worst_first = list(_WORDS)
    return tuple(sorted(findings, key=lambda finding: worst_first.index(finding.health)))


class Defence(StrEnum):
    """The result of an attack.

    HELD: the attack was stopped. FELL: it succeeded. SKIPPED: it makes no sense under these rules. UNPROVEN: it could
    not be performed.
    """

    HELD = "held"
    FELL = "fell"
    SKIPPED = "skipped"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class AttackResult:
    """Result of an attack: its name, what was attempted, the documented rule that must stop it, and what was observed."""

    name: str
    title: str
    rule: str
    defence: Defence
    detail: str


@dataclass(frozen=True, slots=True)
class AttackReport:
    """All attacks on the copy of a cluster. `notes` list what the copy lacks compared with the setup."""

    cluster: str
    results: tuple[AttackResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return True if every attack was stopped or skipped. An attack that could not be performed proves nothing."""
        return all(result.defence in (Defence.HELD, Defence.SKIPPED) for result in self.results)


_WORDS = {Health.ERROR: "ERROR", Health.WARNING: "WARNING", Health.UNKNOWN: "unknown", Health.GOOD: "ok"}
_TOTALS = {Health.ERROR: "error", Health.WARNING: "warning"}
_DEFENCES = {Defence.HELD: "held", Defence.FELL: "FELL", Defence.SKIPPED: "skipped", Defence.UNPROVEN: "UNPROVEN"}
_WIDTH = 8


def findings_text(findings: Sequence[DoctorFinding]) -> str:
    """Return one line per finding in the given order, with the fix below it, and a line with totals."""
    lines: list[str] = []
    for each in findings:
        place = f" [{each.place}]" if each.place else ""
        lines.append(f"{_WORDS[each.health]:<{_WIDTH}} {each.check}{place}: {each.detail}")
        if each.fix:
            lines.append(f"{'':<{_WIDTH}} -> {each.fix}")
    counts = Counter(each.health for each in findings)
    totals = [count(counts[health], name) for health, name in _TOTALS.items()]
    totals += [f"{counts[health]} {health.value}" for health in (Health.UNKNOWN, Health.GOOD)]
    lines.append(f"doctor: {', '.join(totals)}")
    return "".join(visible(line) + "\n" for line in lines)


def findings_form(findings: Sequence[DoctorFinding], *, ok: bool) -> Form:
    """Return `{ok, findings: [{check, health, place?, detail, fix?}], problems}`. A problem's code is its check."""
    rows = [
        present(check=f.check, health=f.health.value, place=f.place or None, detail=f.detail, fix=f.fix or None)
        for f in findings
    ]
    problems = [
        present(code=f.check, severity=f.health.value, path=f.place, message=f.detail, fix=f.fix or None)
        for f in findings
        if f.health in (Health.ERROR, Health.WARNING)
    ]
    return {"ok": ok, "findings": rows, "problems": problems}


def attack_text(report: AttackReport) -> str:
    """Return a table of the attacks and their defences. For each success, add the rule that should have stopped it."""
    width = max((len(each.name) for each in report.results), default=0)
    lines = []
    for each in report.results:
        lines.append(f"{_DEFENCES[each.defence]:<{_WIDTH}} {each.name:<{width}}  {each.title}: {each.detail}")
        if each.defence is Defence.FELL:
            lines.append(f"{'':<{_WIDTH}} -> {each.rule}")
    counts = Counter(each.defence for each in report.results)
    totals = ", ".join(f"{counts[defence]} {defence}" for defence in Defence)
    lines += [f"{'NOTE':<{_WIDTH}} {note}" for note in report.notes]
    lines.append(f"doctor --attack {'good' if report.ok else 'failed'}: {report.cluster}: {totals}")
    return "".join(visible(line) + "\n" for line in lines)


def attack_form(report: AttackReport) -> Form:
    """Return `{ok, cluster, attacks: [{name, title, rule, defence, detail}], notes, problems}`.

    The problems are the attacks that succeeded.
    """
    rows = [{**asdict(each), "defence": each.defence.value} for each in report.results]
    problems = [
        {"code": each.name, "severity": "error", "path": report.cluster, "message": each.detail, "fix": each.rule}
        for each in report.results
        if each.defence is Defence.FELL
    ]
    form = {"ok": report.ok, "cluster": report.cluster, "attacks": rows, "notes": list(report.notes)}
    return {**form, "problems": problems}
