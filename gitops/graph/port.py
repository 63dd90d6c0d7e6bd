"""The graph engine as the control plane needs it. A graph lives at a root, given as a path or URI.

Create and migrate have two phases, so that several graphs can change together: `prepare_*` does all the work that can fail
and shows nothing, `publish` is one atomic step, `abort` discards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

__all__ = ["Existence", "GraphEngine", "GraphReader", "GraphReading", "MigrationPreview", "PreparedVersion"]


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


class PreparedVersion(Protocol):
    """Staged work on one graph, invisible until published. Used once."""

    def publish(self) -> int:
        """Make it visible in one atomic step and return the new manifest version.

        Raises ConflictError `graph_conflict` when another writer published first (nothing became visible).
        """
        ...

    def abort(self) -> None:
        """Discard it; what it wrote stays unreferenced. Not for work that was published."""
        ...


class GraphReader(Protocol):
    """The read half: needs no heavy import and writes nothing."""

    def exists(self, uri: str) -> Existence:
        """Whether anything is at the root. A graph that was begun and never published does not count."""
        ...

    def read(self, uri: str) -> GraphReading:
        """Open read-only. Raises GitopsError `graph_missing` or `graph_unreadable`."""
        ...

    def preview(self, uri: str, schema_source: bytes) -> MigrationPreview:
        """What `prepare_migration` would do. Raises like `read`."""
        ...


class GraphEngine(GraphReader, Protocol):
    """The write half."""

    def prepare_create(self, uri: str, schema_source: bytes, *, actor: str | None) -> PreparedVersion:
        """Stage a new, empty graph. Raises GitopsError `graph_exists` if there is a schema artifact or manifest at the root.

        A root with an unpublished graph, of a dead or live process, is free: of two creators one publishes. A crash, or an
        abort, may leave a partial root behind.
        """
        ...

    def prepare_migration(self, uri: str, schema_source: bytes, *, actor: str | None) -> PreparedVersion:
        """Stage the change of an existing graph to a new schema, drops being soft.

        After publish, `read(uri).schema_source` equals `schema_source` byte for byte, also when there is no step, and the
        manifest version has advanced. Raises GitopsError `graph_migration_unsupported` (detail: the first unsupported step),
        `graph_missing`, `graph_unreadable`; ConflictError `graph_conflict`.
        """
        ...

    def delete_tree(self, uri: str) -> None:
        """Remove everything at the root; succeeds on absent and partial roots.

        After an interrupted call the root is PRESENT and does not open, or is ABSENT; calling again finishes it.
        """
        ...
