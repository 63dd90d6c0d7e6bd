"""What is seen of a live graph: a reading, not a truth."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
