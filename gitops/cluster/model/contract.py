"""What a change of a stored query breaks for those who call it."""

from __future__ import annotations

from enum import StrEnum

from gitops.cluster.model.address import Address
from gitops.core.dataclass import dataclass

__all__ = ["BreakKind", "ContractBreak"]


class BreakKind(StrEnum):
    """How a change of a query breaks those who call it."""

    REMOVED = "removed"
    EFFECT = "effect"
    PARAMETER_ADDED = "parameter_added"
    PARAMETER_CHANGED = "parameter_changed"
    PARAMETER_DROPPED = "parameter_dropped"
    COLUMN_DROPPED = "column_dropped"
    COLUMN_CHANGED = "column_changed"


@dataclass(frozen=True, slots=True)
class ContractBreak:
    """One thing that callers of a query cannot rely on any more.

    `subject` is the parameter (`$name`) or the column, `before` and `after` are its types; of an effect, `read` and `mutation`.
    Empty is what does not exist.
    """

    query: Address
    kind: BreakKind
    subject: str = ""
    before: str = ""
    after: str = ""

    @property
    def words(self) -> str:
        """What breaks, in a line."""
        match self.kind:
            case BreakKind.REMOVED:
                return "its callers no longer find it"
            case BreakKind.EFFECT:
                return f"it was a {self.before} and becomes a {self.after}"
            case BreakKind.PARAMETER_ADDED:
                return f"callers have to give the new parameter {self.subject} of type `{self.after}`"
            case BreakKind.PARAMETER_CHANGED | BreakKind.COLUMN_CHANGED:
                return f"{self.kind.partition('_')[0]} {self.subject} changes from `{self.before}` to `{self.after}`"
            case BreakKind.PARAMETER_DROPPED:
                return f"parameter {self.subject} of type `{self.before}` is ignored from now on"
            case BreakKind.COLUMN_DROPPED:
                return f"column {self.subject} of type `{self.before}` leaves the result"
