"""Effects of migration steps on the columns of each table, and the rows as they are after the migration.

`MigratedImage` reads the rows of the accepted tables as the desired schema has them, without writing anything. So the
rules of the desired schema are checked on the same values that the migration writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field

import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.database.graph.convert import constant, convert_column, filled
from gitops.database.graph.image import GraphImage
from gitops.database.graph.manifest import DroppedTable, Manifest, TableEntry
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.statistics import ColumnStatistics, doubtful_fragments
from gitops.database.graph.tables import DRIVER_ERRORS, arrow_field, count_values, fragments_of, open_table
from gitops.database.language.schema import NUMERIC, Catalog, ConstraintKind, TypeKind
from gitops.database.language.schema.step_terms import DropMode
from gitops.database.language.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeEmbedding,
    ChangeType,
    DropProperty,
    DropType,
    MigrationStep,
    RenameProperty,
    RenameType,
    UnsupportedChange,
)

BATCH_ROWS = 1 << 16
"""How many rows are converted at a time."""


class RowsBreakStepError(Exception):
    """Raised while columns are converted, for a row that keeps a checked step from being applied."""


@dataclass(slots=True)
class MigratedTable:
    """Effects of the steps on one existing table; `source` is its key before the migration.

    `drops` has accepted names, and everything else desired names. `renames` maps accepted to desired names. `embeds`
    are the steps that compute vectors. With `rekeys`, the rows get the ids that follow from their key.
    """

    source: str
    drops: list[str] = field(default_factory=list)
    renames: dict[str, str] = field(default_factory=dict)
    adds: list[AddProperty] = field(default_factory=list)
    changes: list[ChangeType] = field(default_factory=list)
    embeds: list[ChangeEmbedding] = field(default_factory=list)
    hard: bool = False
    rekeys: bool = False

    def accepted_name(self, name: str) -> str:
        """Return a column's name before the migration."""
        return next((old for old, new in self.renames.items() if new == name), name)

    @property
    def fills(self) -> list[AddProperty]:
        """The new columns that cannot be all null."""
        return [each for each in self.adds if each.backfill is not None or not each.property_type.nullable]

    @property
    def rewrites(self) -> list[ChangeType]:
        """The type changes that write values again."""
        return [each for each in self.changes if each.rewrites]

    def columns(self, rows: pa.RecordBatch, names: Sequence[str], *, strict: bool = False) -> list[pa.Array]:
        """Return these columns after the migration. `rows` has what they are made from, by accepted names.

        Values that do not convert are null, or with `strict` raise RowsBreakStepError. Computed vectors are not among
        these columns.
        """
        adds, changes = (
            {each.property_name: each for each in self.adds},
            {each.property_name: each for each in self.changes},
        )
        found = []
        for name in names:
            if name in adds:
                kind, text = adds[name].property_type, adds[name].backfill
                wanted = arrow_field(name, kind).type
                found.append(pa.nulls(len(rows), wanted) if text is None else constant(kind, text, len(rows)))
                continue
            column = rows.column(self.accepted_name(name))
            if (change := changes.get(name)) is not None:
                column, failed = convert_column(column, change)
                column = column if change.backfill is None else filled(column, change.to, change.backfill)
                odd = change.convert is None and failed.true_count
                if strict and (odd or (column.null_count and not change.to.nullable)):
                    raise RowsBreakStepError
            found.append(column)
        return found


@dataclass(slots=True)
class MigratedTables:
    """Effects of all steps: existing tables by desired key, new tables, and the tombstones of dropped ones."""

    tables: dict[str, MigratedTable]
    added: list[str]
    dropped: list[DroppedTable]


def table_changes(manifest: Manifest, steps: Iterable[MigrationStep]) -> MigratedTables:
    """Sort the steps by table."""
    plans, added, dropped = {key: MigratedTable(key) for key in manifest.tables}, list[str](), list(manifest.dropped)
    for step in steps:
        if isinstance(step, UnsupportedChange) or step.type_kind is TypeKind.INTERFACE:
            continue
        match step:
            case DropType():
                key = table_key(step.type_kind, step.name)
                entry = manifest.tables[plans.pop(key).source]
                dropped.append(DroppedTable(key, entry.path, entry.version, step.mode is DropMode.HARD))
            case AddType():
                added.append(table_key(step.type_kind, step.name))
            case RenameType():
                plans[table_key(step.type_kind, step.to)] = plans.pop(table_key(step.type_kind, step.from_))
            case AddProperty():
                plans[table_key(step.type_kind, step.type_name)].adds.append(step)
            case RenameProperty():
                plans[table_key(step.type_kind, step.type_name)].renames[step.from_] = step.to
            case ChangeType():
                plans[table_key(step.type_kind, step.type_name)].changes.append(step)
            case ChangeEmbedding() if step.rewrites:
                plans[table_key(step.type_kind, step.type_name)].embeds.append(step)
            case AddConstraint() if step.constraint.kind is ConstraintKind.KEY:
                plans[table_key(step.type_kind, step.type_name)].rekeys = True
            case DropProperty():
                plan = plans[table_key(step.type_kind, step.type_name)]
                plan.drops.append(step.property_name)
                plan.hard = plan.hard or step.mode is DropMode.HARD
            case _:
                pass
    return MigratedTables(plans, added, dropped)


def table_key(kind: TypeKind, name: str) -> str:
    """Return the key of a type's table."""
    return f"{kind.value}:{name}"


class MigratedImage(GraphImage):
    """The rows of accepted tables, as the desired schema has them."""

    def __init__(
        self, folder: GraphFolder, tables: Mapping[str, TableEntry], changes: MigratedTables, catalog: Catalog
    ) -> None:
        super().__init__(folder, {key: tables[plan.source] for key, plan in changes.tables.items()}, catalog)
        self._changes = changes
        self.fragments: Mapping[str, tuple[int, ...]] = {}

    def only(self, key: str, fragments: tuple[int, ...] | None) -> MigratedImage:
        """Return an image that reads only these fragments of a table; None stands for all of them."""
        image = copy(self)
        image.fragments = {} if fragments is None else {key: fragments}
        return image

    def doubtful(self, key: str, name: str, proves: Callable[[ColumnStatistics], bool]) -> tuple[int, ...] | None:
        """Return the fragments whose statistics do not prove a fact about a column, by desired name, before the migration.

        None stands for all of them.
        """
        entry = self._tables[key]
        return doubtful_fragments(entry.statistics, entry.fields[self._changes.tables[key].accepted_name(name)], proves)

    def keeps_numbers(self, key: str, name: str) -> bool:
        """Return whether a column, by desired name, has no numbers after the migration that it did not have before.

        A number converts to an equal one or not at all.
        """
        plan = self._changes.tables.get(key)
        if plan is None or any(each.property_name == name for each in (*plan.adds, *plan.embeds)):
            return False
        changes = (each for each in plan.rewrites if each.property_name == name)
        return all(
            each.backfill is None and each.from_.scalar in NUMERIC and not each.from_.is_list for each in changes
        )

    def values_of(self, key: str, name: str) -> int:
        """Return how many rows have a value in a column, by desired name, before the migration."""
        return count_values(self._folder, self._tables[key], self._changes.tables[key].accepted_name(name))

    def values_without(self, key: str, name: str, other: str) -> int:
        """Return how many rows have a value in a column, by desired name, and none in another one.

        The other column may be new; its values are null then.
        """
        plan, entry = self._changes.tables[key], self._tables[key]
        column, source = plan.accepted_name(name), plan.accepted_name(other)
        has = any(each.property_name == other for each in plan.adds)
        return count_values(self._folder, entry, column, missing=None if has else source)

    def accepted(self, key: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of a table, by desired name, as they are before the migration."""
        plan, entry = self._changes.tables[key], self._tables[key]
        wanted, numbers = [plan.accepted_name(name) for name in names], self.fragments.get(key)
        if not entry.rows or numbers == ():
            return
        try:
            opened = open_table(self._folder, entry)
            parts = fragments_of(opened, numbers)
            yield from opened.scanner(columns=wanted, batch_size=BATCH_ROWS, fragments=parts).to_batches()
        except DRIVER_ERRORS as error:
            raise RemoteError(Code.STORAGE_FAILED, f"table {entry.path} is not readable") from error

    def batches(self, key: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns of a table, by desired name, as they are after the migration."""
        return self._batches(key, names)

    def _batches(self, key: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if key not in self._tables:
            return
        plan = self._changes.tables[key]
        added = {each.property_name for each in plan.adds}
        read = [name for name in names if name not in added]
        # Without any column, a scan has no rows.
        for rows in self.accepted(key, read or ["id"]):
            yield pa.RecordBatch.from_arrays(plan.columns(rows, names), names=list(names))
