"""The control plane's port to the graph engine. A graph is stored at a root, given as a path or URI.

Create and migrate have two phases, so that several graphs can change together: `prepare_*` does all the work that can
fail and makes nothing visible, `publish` is one atomic step, and `abort` discards the work.

Every created graph has an incarnation id, which is unique even among graphs created later at the same root. Operations
of the control plane carry a fence, the number of the operation. After an operation, those with a lower fence are
refused, so a slow run whose lock was broken can no longer change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


class Existence(StrEnum):
    """Whether a graph root exists. Only a definite not-found is ABSENT; permission or transport problems are UNKNOWN."""

    PRESENT = "present"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GraphReading:
    """The observed state of an open graph: the accepted schema text, byte for byte, and the manifest version.

    `rows` counts the rows of all types. If branches differ, each table counts with its largest row count. `fence` is
    the control plane's highest operation number, or 0 if there was no operation.
    """

    schema_source: bytes
    manifest_version: int
    incarnation: str
    rows: int
    fence: int = 0


@dataclass(frozen=True, slots=True)
class HeldData:
    """A graph version with data in a table or column, and the number of rows there with data.

    For a table, `rows` is the row count; for a column, it is the number of rows with a value. It is None if unknown
    here.
    """

    version: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class KeptData:
    """Data kept in a graph's versions: the newest version, its row counts by table (`node:Person`), and earlier data.

    For each requested column (`node:Person.nick`), `rows` has the number of rows with a value in the newest version, or
    None if unknown. For each other requested table or column, `held` has the newest version with data, if one was
    found. If all versions are still kept (`complete`), a table or column that was not found never had data. For each
    converted column that lost values, `held` has the version before its conversion, and the number of lost values.
    """

    version: int
    rows: Mapping[str, int | None]
    held: Mapping[str, HeldData]
    complete: bool


@dataclass(frozen=True, slots=True)
class DeleteOrder:
    """Preconditions of a delete: this incarnation, at most `max_rows` rows, and no operation with a higher fence.

    `version` is the version at which the approvals were checked. None of its rows may have been replaced since then. It
    is None if there are no approvals. `approvals` are the ids of the permitting approvals. They are recorded next to
    the root, so that none of them can delete the same incarnation again after it was restored from a backup.
    """

    incarnation: str
    max_rows: int
    fence: int
    approvals: tuple[str, ...] = ()
    version: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    """The types whose rows to restore, and the graph version that contains these rows."""

    version: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepCount:
    """The rows that a migration step affects: rows that it converts, removes or checks.

    `breaking` of them keep the step from being applied, and the values of `lost` of them become null. `keys` are the ids
    of the first breaking rows, which only readers of the graph may see. `characters` are those of the texts that the
    step sends to the embedding service.
    """

    rows: int
    breaking: int = 0
    lost: int = 0
    keys: tuple[str, ...] = ()
    characters: int = 0

    @property
    def text(self) -> str:
        """The breaking rows in words, such as `37 of 263 rows break it`."""
        rows = f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        return f"{self.breaking:,} of {rows} {'breaks' if self.breaking == 1 else 'break'} it"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for stored plans, without ids of rows."""
        sent = {"characters": self.characters} if self.characters else {}
        return {"rows": self.rows, "breaking": self.breaking, "lost": self.lost, **sent}


@dataclass(frozen=True, slots=True)
class MigrationPreview:
    """Effects of a schema update on the live graph. `steps` are plain JSON.

    `supported` is false if a step is not possible. `counts` has the count of each step, or is None if rows were not
    counted here. Digests of changes cover only `to_json`, so that rows can change between a plan and its approval.

    `empties` means that no earlier node type is left. If a migration both adds and drops, `expanded` is the text of an
    intermediate schema with the additions and the parts to drop.
    """

    supported: bool
    steps: tuple[Mapping[str, Any], ...]
    empties: bool = False
    expanded: bytes | None = None
    counts: tuple[StepCount | None, ...] | None = None

    @property
    def reads_rows(self) -> bool:
        """Whether a step checks or converts rows."""
        from gitops.database.language.schema.step_terms import Sort
        from gitops.database.language.schema.steps import step_from_json

        found = (step_from_json(step) for step in self.steps)
        return any(step is not None and step.sort is not Sort.FREE for step in found)

    @property
    def broken(self) -> str:
        """The steps that rows break, with the number of these rows. Empty if there are none, or if they are not known."""
        from gitops.database.language.schema.steps import plain_words

        counted = zip(self.steps, self.counts or (), strict=self.counts is not None)
        return "; ".join(f"{plain_words(step)}: {count.text}" for step, count in counted if count and count.breaking)

    @property
    def lands(self) -> bool:
        """Whether the migration can be applied, as far as is known."""
        return self.supported and not any(count is not None and count.breaking for count in self.counts or ())

    @classmethod
    def between(cls, accepted: Schema, desired: Schema) -> MigrationPreview:
        """Return the preview of the migration from one schema to another."""
        # Importing the planner is slow, and most runs migrate nothing.
        from gitops.database.language.schema.migration import empties, expanded_source, plan_migration

        migration = plan_migration(accepted, desired)
        steps = tuple(step.to_json() for step in migration.steps)
        expanded = expanded_source(accepted, desired, migration)
        return cls(migration.supported, steps, empties(accepted, migration), expanded)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for plans, without counts."""
        return {"supported": self.supported, "steps": [dict(s) for s in self.steps]}


class PreparedVersion(Protocol):
    """Staged work on one graph, which is invisible until it is published. For a single use."""

    def publish(self) -> int:
        """Make the version visible in one atomic step. Return the new manifest version.

        Raises ConflictError `graph_conflict` if another writer published first. In that case, nothing becomes visible.
        """
        ...

    def abort(self) -> None:
        """Discard the prepared version. Its files remain, unreferenced. Do not call this after `publish`."""
        ...


class GraphReader(Protocol):
    """The port's read half, which needs no heavy imports and never writes."""

    def exists(self, uri: str) -> Existence:
        """Return whether anything exists at the root. An unpublished graph does not count."""
        ...

    def read(self, uri: str) -> GraphReading:
        """Read a graph. Raises GitopsError `graph_missing`, `graph_unreadable`, or during a delete `graph_deleted`."""
        ...

    def schema_text(self, uri: str, digest: str) -> bytes:
        """Return the text of the graph's current or an earlier schema, given its digest.

        Raises the same errors as `read`; GitopsError `graph_unreadable` if the text is no longer stored.
        """
        ...

    def check_files(self, uri: str) -> None:
        """Check that the newest version of `main` has all files that contain rows, without reading them.

        Raises GitopsError `graph_unreadable` with the missing files; the errors of `read`.
        """
        ...

    def deleted_by(self, uri: str, incarnation: str) -> frozenset[str]:
        """Return the approvals of earlier deletes of this incarnation, as recorded at the root.

        Raises GitopsError `storage_failed` or `graph_unreadable`.
        """
        ...

    def kept_data(self, uri: str, names: Collection[str], converted: Collection[str] = ()) -> KeptData:
        """Find the versions of `main` that have data in these tables and columns, or what `converted` columns lost.

        Raises the errors of `read`.
        """
        ...

    def replaced_rows(self, uri: str, since: int, types: Collection[str] = (), rows: int = 0) -> int:
        """Count the rows of `main` that were replaced after version `since`.

        These are the removed or changed rows, but at most as many as there are new rows. Counts the given types, or
        all. If that version has fewer than `rows`, the first later version with that many rows counts. Raises
        GitopsError `graph_version_unknown`, `graph_version_gone` if that version cannot be compared,
        `engine_unavailable`; the errors of `read`.
        """
        ...

    def preview(self, uri: str, schema_source: bytes) -> MigrationPreview:
        """Return the effects of `prepare_migration` without writing anything. Raises the same errors as `read`."""
        ...

    def count_steps(self, uri: str, schema_source: bytes) -> tuple[StepCount | None, ...]:
        """Count, in the newest version of `main`, the rows that each step of `preview` affects.

        Reads the columns that a step checks or converts. Raises the same errors as `read`; GitopsError
        `engine_unavailable`, `storage_failed`.
        """
        ...

    def check_restore(self, uri: str, order: RestoreOrder, schema_source: bytes) -> int:
        """Count the rows that `restore` would replace in a graph with this schema: all rows of the ordered types.

        Types that already have the ordered version's rows count as 0. Row rules are not checked. Raises GitopsError
        `graph_restore_refused`, `graph_version_unknown`, `graph_version_gone`, and the errors of `read`.
        """
        ...

    def was_restored(self, uri: str, fence: int, since: int) -> bool:
        """Return whether the `restore` with this number created a version of `main` after version `since`.

        Raises the same errors as `read`; GitopsError `graph_version_gone` if it is not found and some versions are no
        longer kept.
        """
        ...

    def check_delete(self, uri: str, order: DeleteOrder) -> None:
        """Check that `delete` would succeed now, and raise its error otherwise. Changes nothing.

        The order's fence is not checked, because a run gets its number only when it starts.
        """
        ...

    def check_migration(self, uri: str, schema_source: bytes, *, incarnation: str | None = None) -> None:
        """Check that `prepare_migration` would succeed now, and raise its error otherwise. Writes nothing.

        Rows are not counted; see `count_steps`.
        """
        ...


class GraphEngine(GraphReader, Protocol):
    """The port's write half."""

    def prepare_create(
        self, uri: str, schema_source: bytes, *, actor: str | None, fence: int | None = None
    ) -> PreparedVersion:
        """Stage a new, empty graph. Raises GitopsError `graph_exists` if the root has a schema artifact or manifest.

        A root with an unpublished graph counts as free, even if the creating process is still running. Only one creator
        can publish. A crash or an abort can leave a partial root behind.
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
        """Stage the migration of an existing graph to a new schema, with soft drops.

        After `publish`, `read(uri).schema_source` equals `schema_source` byte for byte, even without steps, and the
        manifest version has advanced. Raises GitopsError `graph_migration_unsupported` (detail: the first unsupported
        step), `graph_rows_break_schema` if rows of this version break a step, `graph_missing`, `graph_unreadable`;
        ConflictError `graph_conflict`, `graph_fenced`, and `graph_replaced` if the graph is not the given incarnation.
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
        """Restore the ordered types' rows from the ordered version, as a new version. Return the new version's number.

        This is atomic. If the types already have these rows, nothing changes and the number of the newest version is
        returned. Raises the same errors as `check_restore`, which include `graph_restore_refused` for a broken schema
        rule; ConflictError `graph_replaced`, `graph_fenced`, `graph_conflict`.
        """
        ...

    def fence(self, uri: str, fence: int) -> None:
        """Raise the graph's fence, so that earlier operations and those with a number below `fence` are refused.

        The graph's number becomes `fence`, or one more than before. This has no effect on an absent root. Raises the
        same errors as `prepare_migration`.
        """
        ...

    def delete(self, uri: str, order: DeleteOrder) -> None:
        """Remove only the incarnation in the order or, at an absent root, leftovers of its interrupted delete.

        The point of no return is one atomic step, after which the graph does not open and no writer can publish. If a
        call is interrupted after this step, the next call finishes it. Raises ConflictError `graph_replaced`,
        `graph_fenced` and `graph_conflict`, and GitopsError `graph_grown`, `graph_rows_replaced` and `graph_restored`,
        all before any change; GitopsError `graph_unreadable`, `storage_failed`.
        """
        ...

    def finish_delete(self, uri: str) -> None:
        """Finish a delete that was interrupted after its point of no return. Does not change a graph that opens.

        At an absent root, remove the leftovers of interrupted deletes and creates. Raises ConflictError
        `graph_conflict`, GitopsError `graph_unreadable`, `storage_failed`.
        """
        ...

    def delete_tree(self, uri: str) -> None:
        """Remove everything at the root, even if it is not a graph. Succeeds for absent and partial roots.

        Do not use this for data that an approval protects.

        After an interrupted call, the root is ABSENT, or PRESENT but unreadable. Another call finishes the removal.
        """
        ...
