"""Port of the graph engine for the control plane. A graph is stored at a root, given as a path or URI.

Create and migrate have two phases, so that several graphs can change together: `prepare_*` does all the work that can
fail and makes nothing visible, `publish` is one atomic step, `abort` discards.

A graph has an incarnation: the id of its creation, which is unique even among graphs created later at the same root.
Operations of the control plane carry a fence, the number of the operation: an operation is refused after one with a
higher fence, so that a slow run whose lock was broken can no longer change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


class Existence(StrEnum):
    """Existence of a graph root. Only a definite not-found is ABSENT; permission or transport problems are UNKNOWN."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GraphReading:
    """Observation of an open graph: the accepted schema text, byte for byte, and the version of its manifest.

    `incarnation` is the id of its creation. `rows` counts the rows of all types; for several branches, the largest
    table counts. `fence` is the highest number of an operation of the control plane, 0 if there was none.
    """

    schema_source: bytes
    manifest_version: int
    incarnation: str
    rows: int
    fence: int = 0


@dataclass(frozen=True, slots=True)
class HeldData:
    """A version of a graph that has a table with rows, or a column in one: its rows, or how many of them have a value there.

    `rows` is None where that cannot be counted here.
    """

    version: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class KeptData:
    """Data in the versions of a graph: the newest version, its rows by table (`node:Person`), and earlier data.

    For each requested column (`node:Person.nick`), `rows` has the number of rows of the newest version with a value,
    None if that cannot be counted. `held` has the newest version with rows of each other requested table or column that
    was found. If all versions are still kept (`complete`), a table or column that was not found never had data.
    """

    version: int
    rows: Mapping[str, int | None]
    held: Mapping[str, HeldData]
    complete: bool


@dataclass(frozen=True, slots=True)
class DeleteOrder:
    """Preconditions of a delete: this incarnation, at most `max_rows` rows, and no operation with a higher `fence`.

    No row of `version`, at which the approvals were checked, may have been replaced since; None if there are no
    approvals. `approvals` are the ids of the approvals that permit it. They are recorded beside the root, so that none
    of them deletes the same incarnation again after it was restored from a backup.
    """

    incarnation: str
    max_rows: int
    fence: int
    approvals: tuple[str, ...] = ()
    version: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    """Types whose rows are restored, and the version of the graph that contains them."""

    version: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationPreview:
    """Effects of a schema update on the live graph, as plain JSON steps.

    `supported` is false if a step is not possible.

    `empties` means that none of the earlier node types is left. `expanded` is the text of an intermediate schema for a
    migration that adds and drops: it contains both the additions and the parts to drop.
    """

    supported: bool
    steps: tuple[Mapping[str, Any], ...]
    empties: bool = False
    expanded: bytes | None = None

    @classmethod
    def between(cls, accepted: Schema, desired: Schema) -> MigrationPreview:
        """Return the preview of the migration from one schema to another."""
        # The planner is large to import: most runs migrate nothing.
        from gitops.database.language.schema.migration import empties, expanded_source, plan_migration

        migration = plan_migration(accepted, desired)
        steps = tuple(step.to_json() for step in migration.steps)
        expanded = expanded_source(accepted, desired, migration)
        return cls(migration.supported, steps, empties(accepted, migration), expanded)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of plans."""
        return {"supported": self.supported, "steps": [dict(s) for s in self.steps]}


class PreparedVersion(Protocol):
    """Staged work on one graph, invisible until published. Used once."""

    def publish(self) -> int:
        """Make it visible in one atomic step and return the new manifest version.

        Raises ConflictError `graph_conflict` when another writer published first (nothing became visible).
        """
        ...

    def abort(self) -> None:
        """Discard the prepared version; its files stay unreferenced. Not for work that was published."""
        ...


class GraphReader(Protocol):
    """The read half: needs no heavy import and writes nothing."""

    def exists(self, uri: str) -> Existence:
        """Return whether anything is at the root. A graph that was begun and never published does not count."""
        ...

    def read(self, uri: str) -> GraphReading:
        """Open read-only. Raises GitopsError `graph_missing`, `graph_unreadable`; `graph_deleted` while its files are removed."""
        ...

    def schema_text(self, uri: str, digest: str) -> bytes:
        """Return the text of a current or earlier schema of the graph, by its digest.

        Raises as `read`; GitopsError `graph_unreadable` if the root no longer has it.
        """
        ...

    def check_files(self, uri: str) -> None:
        """Check that every file that the newest version of `main` needs for its rows exists, without reading content.

        Raises GitopsError `graph_unreadable` listing the missing files; as `read`.
        """
        ...

    def deleted_by(self, uri: str, incarnation: str) -> frozenset[str]:
        """Return the approvals by which this incarnation was deleted from the root before; none if it never was.

        Raises GitopsError `storage_failed` or `graph_unreadable`.
        """
        ...

    def kept_data(self, uri: str, names: Collection[str]) -> KeptData:
        """Return which versions of `main` have data of these tables and columns. Raises like `read`."""
        ...

    def replaced_rows(self, uri: str, since: int, types: Collection[str] = (), rows: int = 0) -> int:
        """Count the replaced rows of version `since` of `main`: removed or changed rows, matched by as many new ones.

        Counts the given types, or all. If that version has fewer than `rows`, the first later version with that many
        rows counts. Raises GitopsError `graph_version_unknown`, `graph_version_gone` if that version cannot be
        compared, `engine_unavailable`; and as `read`.
        """
        ...

    def preview(self, uri: str, schema_source: bytes) -> MigrationPreview:
        """Return the effects of `prepare_migration`. Raises like `read`."""
        ...

    def check_restore(self, uri: str, order: RestoreOrder, schema_source: bytes) -> int:
        """Count the rows that `restore` would replace once the graph has this schema: all current rows of its types.

        Types that already have the rows of that version count as 0. Row rules are not checked. Raises GitopsError
        `graph_restore_refused`, `graph_version_unknown`, `graph_version_gone`, and as `read`.
        """
        ...

    def was_restored(self, uri: str, fence: int, since: int) -> bool:
        """Return whether the `restore` with this number made one of the versions of `main` after version `since`.

        Raises as `read`; GitopsError `graph_version_gone` if none of the kept versions is it and some versions are no
        longer kept.
        """
        ...

    def check_delete(self, uri: str, order: DeleteOrder) -> None:
        """Check that `delete` would succeed now; otherwise raise its error. Changes nothing.

        The fence of the order is not checked, because a run gets its number only when it starts.
        """
        ...

    def check_migration(self, uri: str, schema_source: bytes, *, incarnation: str | None = None) -> None:
        """Check that `prepare_migration` would succeed now; otherwise raise its error. Writes nothing."""
        ...


class GraphEngine(GraphReader, Protocol):
    """Write half of the engine."""

    def prepare_create(
        self, uri: str, schema_source: bytes, *, actor: str | None, fence: int | None = None
    ) -> PreparedVersion:
        """Stage a new, empty graph. Raises GitopsError `graph_exists` if there is a schema artifact or manifest at the root.

        A root with an unpublished graph, of a dead or live process, is free: of two creators one publishes. A crash, or an
        abort, may leave a partial root behind.
        """
        ...

    def prepare_migration(
        self,
        uri: str,
        schema_source: bytes,
        *,
        actor: str | None,
        incarnation: str | None = None,
        fence: int | None = None,
    ) -> PreparedVersion:
        """Stage the change of an existing graph to a new schema, with soft drops.

        After publish, `read(uri).schema_source` equals `schema_source` byte for byte, even without steps, and the
        manifest version has advanced. Raises GitopsError `graph_migration_unsupported` (detail: the first unsupported
        step), `graph_missing`, `graph_unreadable`; ConflictError `graph_conflict`, `graph_fenced`, and `graph_replaced`
        if the graph is not the given incarnation.
        """
        ...

    def restore(
        self,
        uri: str,
        order: RestoreOrder,
        *,
        actor: str | None,
        incarnation: str | None = None,
        fence: int | None = None,
    ) -> int:
        """Restore the rows of the types in the order from that version, as a new version, and return its number.

        If they already have these rows, nothing changes and the number of the newest version is returned. Atomic.
        Raises as `check_restore`, `graph_restore_refused` also if a rule of the schema would be broken; ConflictError
        `graph_replaced`, `graph_fenced`, `graph_conflict`.
        """
        ...

    def fence(self, uri: str, fence: int) -> None:
        """Refuse every earlier operation from now on, and later ones with a number below `fence`.

        The number of the graph is `fence`, or one more than it was. No effect on an absent root. Raises as `prepare_migration`.
        """
        ...

    def delete(self, uri: str, order: DeleteOrder) -> None:
        """Remove exactly the graph of the order; at an absent root, the leftovers of an interrupted delete of it.

        The point of no return is one atomic step, after which the graph does not open and no writer publishes. The next
        call finishes one that was interrupted after it. Raises ConflictError `graph_replaced`, `graph_fenced` and
        `graph_conflict`, GitopsError `graph_grown`, `graph_rows_replaced` and `graph_restored`, after all of which
        nothing was changed; `graph_unreadable`, `storage_failed`.
        """
        ...

    def finish_delete(self, uri: str) -> None:
        """Finish a delete that was cut short after its point of no return. A graph that opens stays as it is.

        Of an absent root, remove what interrupted deletes and creates left there. Raises ConflictError `graph_conflict`,
        GitopsError `graph_unreadable`, `storage_failed`.
        """
        ...

    def delete_tree(self, uri: str) -> None:
        """Remove everything at the root, whatever it is; succeeds on absent and partial roots.

        Not for data that an approval protects.

        After an interrupted call the root is PRESENT and does not open, or is ABSENT; calling again finishes it.
        """
        ...
