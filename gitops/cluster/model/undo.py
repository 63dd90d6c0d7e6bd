"""What going back to an earlier folder does to each resource and its data; it explains a plan and decides nothing."""

from __future__ import annotations

from enum import StrEnum

from gitops.cluster.model.address import Address
from gitops.core.dataclass import dataclass


class Undo(StrEnum):
    """What becomes of a change that is undone; each is worse than the one before it.

    COMPLETE: all is as it was. RESTORABLE: data is missing, and an earlier version of the graph that is kept has it. UNKNOWN:
    the versions of the graph cannot be read here. LOST: data or versions are missing, and no version has them. IRREVERSIBLE: the
    change itself cannot be undone. Whether a later plan can undo the plan back again is its gates' to say.
    """

    COMPLETE = "complete"
    RESTORABLE = "restorable"
    UNKNOWN = "unknown"
    LOST = "lost"
    IRREVERSIBLE = "irreversible"

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return tuple(Undo).index(self)


@dataclass(frozen=True, slots=True)
class UndonePart:
    """A part of a change that does not simply come back: a type, a property (`Person.nick`), or a whole graph.

    `version` is the newest version of the graph that has its data, with that many `rows`; None where no version is known.
    `words` say it in a line. `comes_back` says that it is a type that is added again, whose rows can be restored as a whole.
    """

    name: str
    undo: Undo
    words: str
    version: int | None = None
    rows: int | None = None
    comes_back: bool = False


@dataclass(frozen=True, slots=True)
class Undoing:
    """What undoing means for one resource; `parts` are those that do not simply come back."""

    resource: Address
    parts: tuple[UndonePart, ...] = ()

    @property
    def undo(self) -> Undo:
        """That of its worst part."""
        return max((part.undo for part in self.parts), key=lambda undo: undo.rank, default=Undo.COMPLETE)
