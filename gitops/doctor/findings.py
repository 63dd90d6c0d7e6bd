"""What `gitops doctor` reports: findings about a setup, and the results of attacks that were replayed against a copy of it.

A check that could not be made is UNKNOWN, never GOOD: a check that is skipped silently hides a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from gitops.core.errors import GitopsError

T = TypeVar("T")


class Health(StrEnum):
    """The result of one check. An ERROR fails the command; with `--strict` a WARNING does too."""

    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One check: its stable name, such as `ledger.force-push`, its result, what was found, and how to fix it.

    `detail` may hold names and texts from outside, so it must be escaped when it is printed. `fix` is a command, a menu path
    or a line of a file; it is empty if nothing has to be done. `place` names the cluster, file or branch if there are several.
    """

    check: str
    health: Health
    detail: str
    fix: str = ""
    place: str = ""


def good(check: str, detail: str, place: str = "") -> DoctorFinding:
    """The check passed."""
    return DoctorFinding(check, Health.GOOD, detail, "", place)


def warning(check: str, detail: str, fix: str, place: str = "") -> DoctorFinding:
    """The setup works, but is weaker than it could be."""
    return DoctorFinding(check, Health.WARNING, detail, fix, place)


def error(check: str, detail: str, fix: str, place: str = "") -> DoctorFinding:
    """The bot cannot work with this setup, or the setup has a gap that must be closed."""
    return DoctorFinding(check, Health.ERROR, detail, fix, place)


def unknown(check: str, detail: str, fix: str = "", place: str = "") -> DoctorFinding:
    """The check could not be made, for the reason in `detail`."""
    return DoctorFinding(check, Health.UNKNOWN, detail, fix, place)


def attempt(check: str, call: Callable[[], T], place: str = "") -> tuple[T | None, tuple[DoctorFinding, ...]]:
    """Return the result of `call`, or, if it raises GitopsError, an unknown finding with the reason."""
    try:
        return call(), ()
    except GitopsError as problem:
        return None, (unknown(check, f"{problem.code}: {problem.detail}", place=place),)


def sort_findings(findings: Iterable[DoctorFinding]) -> tuple[DoctorFinding, ...]:
    """The worst first; equally bad ones keep their order."""
    rank = {Health.ERROR: 0, Health.WARNING: 1, Health.UNKNOWN: 2, Health.GOOD: 3}
    return tuple(sorted(findings, key=lambda finding: rank[finding.health]))


class Defence(StrEnum):
    """The result of an attack.

    HELD: the attack was stopped. FELL: it succeeded. SKIPPED: it makes no sense under these rules. UNPROVEN: it could not be
    carried out.
    """

    HELD = "held"
    FELL = "fell"
    SKIPPED = "skipped"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One attack by name: what was tried, the documented rule that must stop it, and what happened."""

    name: str
    title: str
    rule: str
    defence: Defence
    detail: str


@dataclass(frozen=True, slots=True)
class AttackReport:
    """All attacks on the copy of one cluster. `notes` name what the copy does not contain."""

    cluster: str
    results: tuple[AttackResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every attack was stopped or skipped; an attack that could not be carried out proves nothing."""
        return all(result.defence in (Defence.HELD, Defence.SKIPPED) for result in self.results)
