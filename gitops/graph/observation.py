"""What is seen of a live graph: a reading, not a truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Existence(StrEnum):
    """Whether a graph root exists. Only a definite not-found is ABSENT; permission or transport problems are UNKNOWN."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GraphReading:
    """What is seen of an open graph: the accepted schema text, byte for byte, and the version of its manifest."""

    schema_source: bytes
    manifest_version: int


@dataclass(frozen=True, slots=True)
class MigrationPreview:
    """What a schema update will do to the live graph: plain JSON steps, `supported` false if one cannot be done."""

    supported: bool
    steps: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON form of plans."""
        return {"supported": self.supported, "steps": [dict(s) for s in self.steps]}
