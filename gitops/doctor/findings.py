"""What `gitops doctor` says: findings about a set-up, and what became of attacks that were replayed against a copy of it.

Something that could not be looked at is UNKNOWN, and never good: a check that is skipped silently is how gaps live on.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How one check ended. Only an ERROR fails the command, with `--strict` a WARNING, too."""

    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its stable name, such as `ledger.force-push`, how it ended, what was seen, and what closes the gap.

    `detail` may hold names and texts from outside; whoever prints it makes them visible. `fix` is a command, a menu path or a
    line of a file, empty where nothing has to be done. `place` says which cluster, file or branch, where there are several.
    """

    check: str
    health: Health
    detail: str
    fix: str = ""
    place: str = ""


class Defence(StrEnum):
    """What became of an attack. SKIPPED: it makes no sense under these rules. UNPROVEN: it could not be carried out."""

    HELD = "held"
    FELL = "fell"
    SKIPPED = "skipped"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One attack by name: what was tried, the rule that has to stop it, and what did, or what fell."""

    name: str
    title: str
    rule: str
    defence: Defence
    detail: str


@dataclass(frozen=True, slots=True)
class AttackReport:
    """All attacks on the copy of one cluster. `notes` say what the copy leaves out."""

    cluster: str
    results: tuple[AttackResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every defence that was tried held; what could not be proven did not."""
        return all(result.defence in (Defence.HELD, Defence.SKIPPED) for result in self.results)
