"""A restore drill: what was restored from storage, and whether the copy passed all checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.core.dataclass import dataclass

MOST_FINDINGS = 20
"""Maximum number of findings in an entry."""


@dataclass(frozen=True, slots=True)
class DrilledGraph:
    """A restored graph.

    `as_of` (RFC 3339 UTC) is the time that the copy shows: the start of the drill if it has the newest version, otherwise
    the time when its version was written.
    """

    graph: str
    incarnation: str
    version: int
    rows: int
    as_of: str


@dataclass(frozen=True, slots=True)
class RestoreDrill:
    """The result of a drill: its duration, the restored graphs by id, and what is wrong with the copy.

    `source` is the storage root of a backup, or None for the cluster's own storage. `findings` has at most MOST_FINDINGS
    lines.
    """

    seconds: int
    graphs: tuple[DrilledGraph, ...]
    findings: tuple[str, ...] = ()
    source: str | None = None

    @property
    def passed(self) -> bool:
        """True if the copy is complete and passed all checks."""
        return not self.findings

    @property
    def rows(self) -> int:
        """The number of restored rows."""
        return sum(each.rows for each in self.graphs)

    @property
    def as_of(self) -> str | None:
        """The oldest of the graphs' times, or None without graphs."""
        return min((each.as_of for each in self.graphs), default=None)

    def recorded(self, at: str) -> Mapping[str, Any]:
        """Return the record of a passed drill for the ledger's state. The drill ended at the time `at`."""
        return {"at": at, "seconds": self.seconds, "graphs": len(self.graphs), "rows": self.rows, "as_of": self.as_of}
