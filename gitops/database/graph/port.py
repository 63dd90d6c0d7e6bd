"""The graph engine as the control plane needs it. A graph lives at a root, given as a path or URI.

Create and migrate have two phases, so that several graphs can change together: `prepare_*` does all the work that can fail
and shows nothing, `publish` is one atomic step, `abort` discards.

A graph has an incarnation: the id of its birth, which no other graph has, also not one that is created later at the same root.
Operations of the control plane carry a fence, the number of the operation: an operation is refused where one with a higher fence
was before it, so that a slow run whose lock was broken changes nothing any more.
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
    """What is seen of an open graph: the accepted schema text, byte for byte, and the version of its manifest.

    `incarnation` is the id of its birth. `rows` counts the rows of all types; of several branches the fullest table counts.
    `fence` is the highest number of an operation of the control plane, 0 if there was none.
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
    """What the versions of a graph hold: the newest one, its rows by table (`node:Person`), and where earlier data is.

    Of the columns (`node:Person.nick`) that were asked for, `rows` has how many rows of the newest version have a value there,
    None where that cannot be counted. `held` has the newest version with rows of each other table or column that was asked for
    and found. If all versions are still kept (`complete`), what is not found never had any.
    """

    version: int
    rows: Mapping[str, int | None]
    held: Mapping[str, HeldData]
    complete: bool


@dataclass(frozen=True, slots=True)
class DeleteOrder:
    """What a delete must find: this incarnation, with at most `max_rows` rows, and no operation with a higher `fence`.

    No row of `version`, at which the approvals were checked, may have been replaced since; None where there are no approvals.
    `approvals` are the ids of those that permit it. They are remembered beside the root, so that none of them deletes the same
    incarnation again after it was restored from a backup.
    """

    incarnation: str
    max_rows: int
    fence: int
    approvals: tuple[str, ...] = ()
    version: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreOrder:
    """The types whose rows come back, and the version of the graph that has them."""

    version: int
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationPreview:
    """What a schema update will do to the live graph: plain JSON steps, `supported` false if one cannot be done.

    `empties` says that no node type of before is left. `expanded` is the text of the schema that it may lead to first, where it
    adds and drops: that has what it adds, and still what it drops.
    """

    supported: bool
    steps: tuple[Mapping[str, Any], ...]
    empties: bool = False
    expanded: bytes | None = None

    @classmethod
    def between(cls, accepted: Schema, desired: Schema) -> MigrationPreview:
        """The preview of the migration from one schema to another."""
        # The planner is large to import: most runs migrate nothing.
        from gitops.database.language.schema.migration import empties, expanded_source, plan_migration

        migration = plan_migration(accepted, desired)
        steps = tuple(step.to_json() for step in migration.steps)
        expanded = expanded_source(accepted, desired, migration)
        return cls(migration.supported, steps, empties(accepted, migration), expanded)

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
        """Open read-only. Raises GitopsError `graph_missing`, `graph_unreadable`; `graph_deleted` while its files are removed."""
        ...

    def schema_text(self, uri: str, digest: str) -> bytes:
        """The text of a schema that the graph has, or had in an earlier version, by its digest.

        Raises as `read`; GitopsError `graph_unreadable` where the root does not keep it.
        """
        ...

    def check_files(self, uri: str) -> None:
        """Nothing, if every file that the newest version of `main` needs for its rows is there; their content is not read.

        Raises GitopsError `graph_unreadable` with what is missing; as `read`.
        """
        ...

    def deleted_by(self, uri: str, incarnation: str) -> frozenset[str]:
        """The approvals by which this incarnation was deleted from the root before; none if it never was.

        Raises GitopsError `storage_failed` or `graph_unreadable`.
        """
        ...

    def kept_data(self, uri: str, names: Collection[str]) -> KeptData:
        """Which versions of `main` have data of these tables and columns. Raises like `read`."""
        ...

    def replaced_rows(self, uri: str, since: int, types: Collection[str] = (), rows: int = 0) -> int:
        """How many rows of version `since` of `main` were replaced: are gone or changed, while as many others came.

        Of the types that are named, or of all. If that version has fewer than `rows`, the first later one that has so many
        counts. Raises GitopsError `graph_version_unknown`, `graph_version_gone` where that
        version cannot be compared, `engine_unavailable`; and as `read`.
        """
        ...

    def preview(self, uri: str, schema_source: bytes) -> MigrationPreview:
        """What `prepare_migration` would do. Raises like `read`."""
        ...

    def check_restore(self, uri: str, order: RestoreOrder, schema_source: bytes) -> int:
        """How many rows `restore` would replace once the graph has this schema: those that the types have now.

        None of types that have the rows of that version already. Rules of rows are not checked. Raises GitopsError
        `graph_restore_refused`, `graph_version_unknown`, `graph_version_gone`, and as `read`.
        """
        ...

    def was_restored(self, uri: str, fence: int, since: int) -> bool:
        """Whether the `restore` with this number made one of the versions of `main` after version `since`.

        Raises as `read`; GitopsError `graph_version_gone` where none of those that are kept is it, and some are not.
        """
        ...

    def check_delete(self, uri: str, order: DeleteOrder) -> None:
        """Nothing, if `delete` would do its work now; else raises what that raises before it changes anything.

        The fence of the order is not looked at: a run is given its number only when it begins.
        """
        ...

    def check_migration(self, uri: str, schema_source: bytes, *, incarnation: str | None = None) -> None:
        """Nothing, if `prepare_migration` would do its work now; else raises what that raises before it writes anything."""
        ...


class GraphEngine(GraphReader, Protocol):
    """The write half."""

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
        """Stage the change of an existing graph to a new schema, drops being soft.

        After publish, `read(uri).schema_source` equals `schema_source` byte for byte, also when there is no step, and the
        manifest version has advanced. Raises GitopsError `graph_migration_unsupported` (detail: the first unsupported step),
        `graph_missing`, `graph_unreadable`; ConflictError `graph_conflict`, `graph_fenced`, and `graph_replaced` if the graph is
        not the given incarnation.
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
        """Let the types of the order have the rows of that version again, in a new version; returns its number.

        If they have them already, nothing is done, and the number is that of the newest version. All or nothing: raises
        as `check_restore`, `graph_restore_refused` also where a rule of the schema would be broken; ConflictError
        `graph_replaced`, `graph_fenced`, `graph_conflict`.
        """
        ...

    def fence(self, uri: str, fence: int) -> None:
        """Refuse every earlier operation from now on, and later ones with a number below `fence`.

        The number of the graph is `fence`, or one more than it was. No effect on an absent root. Raises as `prepare_migration`.
        """
        ...

    def delete(self, uri: str, order: DeleteOrder) -> None:
        """Remove exactly the graph that the order names; of an absent root, what an interrupted delete of it left.

        The point of no return is one atomic step, after which the graph does not open and no writer publishes. A call that
        was cut short after it is finished by the next one. Raises ConflictError `graph_replaced`, `graph_fenced` and
        `graph_conflict`, GitopsError `graph_grown`, `graph_rows_replaced` and `graph_restored`, after all of which nothing was
        changed; `graph_unreadable`, `storage_failed`.
        """
        ...

    def finish_delete(self, uri: str) -> None:
        """Finish a delete that was cut short after its point of no return. A graph that opens stays as it is.

        Of an absent root, remove what interrupted deletes and creates left there. Raises ConflictError `graph_conflict`,
        GitopsError `graph_unreadable`, `storage_failed`.
        """
        ...

    def delete_tree(self, uri: str) -> None:
        """Remove everything at the root, whatever it is; succeeds on absent and partial roots. Not for what an approval guards.

        After an interrupted call the root is PRESENT and does not open, or is ABSENT; calling again finishes it.
        """
        ...
