"""What the checks of `gitops doctor` have in common: making findings, and asking something that may not answer.

The checks themselves stand beside this module, one for each thing that is looked at: `doctor_machine`, `doctor_trust`,
`doctor_ledger`, `doctor_forge`, `doctor_jobs`, `doctor_storage`. Each is given facts or ports and returns findings; none of
them changes anything that it does not take back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from gitops.core.errors import GitopsError
from gitops.doctor.findings import Finding, Health

__all__ = ["asked", "error", "good", "ordered", "unknown", "warning"]

T = TypeVar("T")
_RANK = {Health.ERROR: 0, Health.WARNING: 1, Health.UNKNOWN: 2, Health.GOOD: 3}


def good(check: str, detail: str, place: str = "") -> Finding:
    """As it should be."""
    return Finding(check, Health.GOOD, detail, "", place)


def warning(check: str, detail: str, fix: str, place: str = "") -> Finding:
    """It works, and is weaker than it could be."""
    return Finding(check, Health.WARNING, detail, fix, place)


def error(check: str, detail: str, fix: str, place: str = "") -> Finding:
    """The bot cannot work so, or something is open that has to be closed."""
    return Finding(check, Health.ERROR, detail, fix, place)


def unknown(check: str, detail: str, fix: str = "", place: str = "") -> Finding:
    """It cannot be seen from here, for the reason that `detail` gives."""
    return Finding(check, Health.UNKNOWN, detail, fix, place)


def asked(check: str, call: Callable[[], T], place: str = "") -> tuple[T | None, tuple[Finding, ...]]:
    """What `call` answers, or a finding that nobody knows, with the reason."""
    try:
        return call(), ()
    except GitopsError as problem:
        return None, (unknown(check, f"{problem.code}: {problem.detail}", place=place),)


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The worst first; what is equal stays in the order in which it was looked at."""
    return tuple(sorted(findings, key=lambda each: _RANK[each.health]))
