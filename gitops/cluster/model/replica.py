"""What a read replica knows about its copy of a cluster: the version of each graph, and when it was the newest one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field

from gitops.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CopiedGraph:
    """A copied graph. At the time `as_of` (seconds since 1970), `version` was the newest version of `main`.

    Both are 0 if nothing was copied yet. `code` is the problem of the last attempt, or None if it succeeded.
    """

    version: int = 0
    as_of: float = 0.0
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A copied cluster: its graphs, and the time at which its ledger was copied (seconds since 1970, or 0 for never).

    `code` is the problem of the last attempt to copy the ledger. The copied files take up `held_bytes`, at most
    `most_bytes`. The other numbers count from the start of the copy.
    """

    ledger_as_of: float = 0.0
    code: str | None = None
    graphs: Mapping[str, CopiedGraph] = field(default_factory=dict)
    held_bytes: int = 0
    most_bytes: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    damaged_files: int = 0

    def to_bytes(self) -> bytes:
        """Return the document for other processes of the same release."""
        graphs = {name: [each.version, each.as_of, each.code] for name, each in self.graphs.items()}
        numbers = [self.held_bytes, self.most_bytes, self.copied_files, self.copied_bytes, self.damaged_files]
        return json.dumps({"ledger": [self.ledger_as_of, self.code], "graphs": graphs, "numbers": numbers}).encode()

    @classmethod
    def of_bytes(cls, data: bytes) -> ReplicaStatus:
        """Read such a document. One that is damaged or from another release counts as no copy."""
        try:
            form = json.loads(data)
            graphs = {name: CopiedGraph(*each) for name, each in form["graphs"].items()}
            (as_of, code), (held, most, files, copied, damaged) = form["ledger"], form["numbers"]
            return cls(as_of, code, graphs, held, most, files, copied, damaged)
        except (ValueError, TypeError, KeyError):
            return cls()
