"""Counts the rows that each migration step affects, and those that keep it from being applied.

A plan shows these counts, and a migration is refused by the same counts, taken on the version that it starts from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.errors import BugError
from gitops.database.graph.convert import convert_column
from gitops.database.graph.image import unchecked_rows
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.port import StepCount
from gitops.database.graph.results import RowProblem
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.statistics import ColumnStatistics
from gitops.database.graph.table_changes import MigratedImage, MigratedTables, table_changes, table_key
from gitops.database.graph.tables import count_values
from gitops.database.language.schema import (
    INTEGERS,
    Catalog,
    ConstraintKind,
    EdgeType,
    IrConstraint,
    NodeType,
    PatternCheck,
    RangeBound,
    TypeKind,
)
from gitops.database.language.schema.conversion import INTEGER_BOUNDS, Exactness
from gitops.database.language.schema.step_terms import Sort
from gitops.database.language.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeEmbedding,
    ChangeEnds,
    ChangeType,
    DropProperty,
    DropType,
    MigrationStep,
    RenameProperty,
    RenameType,
    UnsupportedChange,
    plain_words,
)

SHOWN_KEYS = 5
"""Maximum number of row ids that are listed for a step."""


def count_steps(
    folder: GraphFolder,
    manifest: Manifest,
    steps: Sequence[MigrationStep],
    catalog: Catalog,
    *,
    converting: bool = True,
) -> tuple[StepCount | None, ...]:
    """Return the counts of each step to the desired `catalog`. None for a step that is not about the rows of one table.

    Without `converting`, rows whose values do not convert are not counted, because a conversion finds them itself.
    Raises the errors of `open_table`; RemoteError `storage_failed`.
    """
    changes = table_changes(manifest, steps)
    image = MigratedImage(folder, manifest.tables, changes, catalog)
    dropped = {table_key(each.type_kind, each.name) for each in steps if isinstance(each, DropType)}
    sources = {key: plan.source for key, plan in changes.tables.items()} | {key: key for key in dropped}
    counter = _StepCounter(image, changes, steps, converting=converting)
    found: list[StepCount | None] = []
    for step in steps:
        if isinstance(step, UnsupportedChange) or step.type_kind is TypeKind.INTERFACE:
            found.append(None)
            continue
        key = table_key(*step.members[0][:2])
        entry = manifest.tables.get(sources.get(key, ""))
        rows = 0 if entry is None else entry.rows
        match step:
            case AddType() | DropType() | RenameType() | RenameProperty():
                found.append(StepCount(rows))
            case DropProperty():
                values = 0 if entry is None else count_values(folder, entry, step.property_name)
                found.append(StepCount(values))
            case AddProperty() if step.backfill is None and not step.property_type.nullable:
                found.append(StepCount(rows, rows, keys=counter.first_ids(key)))
            case AddProperty():
                found.append(StepCount(rows))
            case ChangeType():
                found.append(counter.changed(key, step, rows))
            case ChangeEmbedding() if step.rewrites:
                found.append(counter.embedded(key, step, rows))
            case AddConstraint() if step.constraint.kind is not ConstraintKind.INDEX:
                found.append(_count(rows, counter.breaking(key, step.constraint)))
            case ChangeCardinality():
                found.append(counter.of_sources(key, rows))
            case ChangeEnds():
                found.append(_count(rows, image.orphans(key)))
            case _:
                found.append(None)
    return tuple(found)


def refusal(steps: Sequence[MigrationStep], counts: Sequence[StepCount | None]) -> str:
    """Return why a migration cannot be applied: the first step that rows break. Empty if there is none.

    It has no ids of rows, because it is shown to people who may not read the graph.
    """
    for step, count in zip(steps, counts, strict=True):
        if count is not None and count.breaking:
            return f"{plain_words(step.to_json())}: {count.text}"
    return ""


def _count(rows: int, problems: Iterable[RowProblem]) -> StepCount:
    ids = dict.fromkeys(each.id for each in problems)
    return StepCount(rows, len(ids), keys=tuple(islice(ids, SHOWN_KEYS)))


class _StepCounter:
    """Counts rows of the tables of one migration."""

    def __init__(
        self, image: MigratedImage, changes: MigratedTables, steps: Sequence[MigrationStep], *, converting: bool
    ) -> None:
        self._image = image
        self._changes = changes
        self._converting = converting
        self._added = {
            (table_key(step.type_kind, step.type_name), step.constraint.text)
            for step in steps
            if isinstance(step, AddConstraint)
        }

    def first_ids(self, key: str) -> tuple[str, ...]:
        """Return the ids of the first rows of a table."""
        ids = (each for rows in self._image.accepted(key, ["id"]) for each in rows.column("id").to_pylist())
        return tuple(islice(ids, SHOWN_KEYS))

    def changed(self, key: str, step: ChangeType, rows: int) -> StepCount:
        """Count the values that a type change converts, loses, or cannot convert.

        Rows that would break a remaining rule about the property count as well.
        """
        if step.sort is Sort.FREE:
            return StepCount(rows)
        values = lost = breaking = 0
        name, image = step.property_name, self._image
        doubtful = image.doubtful(key, name, partial(_is_proved, step))
        in_doubt = image.only(key, doubtful)
        if step.rewrites and not self._converting:
            pass
        elif step.rewrites or step.exactness is not Exactness.ALWAYS:
            known = doubtful is not None and step.backfill is None and step.sort is Sort.CONVERTING
            values = image.values_of(key, name) if known else rows
            for batch in in_doubt.accepted(key, [name]):
                column = batch.column(0)
                values -= column.null_count if not known and step.backfill is None else 0
                failed, bad = _failures(column, step)
                lost += failed.true_count if step.convert is not None else 0
                breaking += bad.true_count
        else:
            # Values stay as they are, so only missing ones count.
            breaking = rows - image.values_of(key, name)
        keys: list[str] = []
        for batch in in_doubt.accepted(key, [name, "id"]) if breaking else ():
            _, bad = _failures(batch.column(0), step)
            keys += batch.column(1).filter(bad)[: SHOWN_KEYS - len(keys)].to_pylist()
            if len(keys) == min(SHOWN_KEYS, breaking):
                break
        rules = [
            rule
            for rule in _rules(self._image.declared(key))
            if name in rule.columns and (key, rule.text) not in self._added
        ]
        # A value that does not convert is missing in the new column, so no rule finds it again.
        broken = dict.fromkeys(each.id for rule in rules for each in self.breaking(key, rule))
        keys += islice(broken, SHOWN_KEYS - len(keys))
        return StepCount(values if step.sort is Sort.CONVERTING else rows, breaking + len(broken), lost, tuple(keys))

    def of_sources(self, key: str, rows: int) -> StepCount:
        """Count the edges of nodes that have too few or too many of them."""
        sources = pa.array([each.id for each in self._image.cardinality(key)], pa.string())
        breaking, keys = 0, list[str]()
        for batch in self._image.accepted(key, ["src", "id"]) if len(sources) else ():
            bad = pc.is_in(batch.column(0), sources)
            breaking += bad.true_count
            keys += batch.column(1).filter(bad)[: SHOWN_KEYS - len(keys)].to_pylist()
        return StepCount(rows, breaking, keys=tuple(keys))

    def embedded(self, key: str, step: ChangeEmbedding, rows: int) -> StepCount:
        """Count the rows with a text, and those whose vector is lost or missing because they have none."""
        source, texts, characters = step.source or "", 0, 0
        if not self._converting or not rows:
            return StepCount(0)
        for batch in self._image.batches(key, [source]):
            column = batch.column(0)
            texts += len(column) - column.null_count
            characters += pc.sum(pc.utf8_length(column)).as_py() or 0
        lacking, keys = rows - texts, list[str]()
        if not lacking:
            return StepCount(texts, characters=characters)
        if step.to.nullable:
            return StepCount(
                texts, lost=self._image.values_without(key, step.property_name, source), characters=characters
            )
        for batch in self._image.batches(key, [source, "id"]):
            keys += batch.column(1).filter(batch.column(0).is_null())[: SHOWN_KEYS - len(keys)].to_pylist()
            if len(keys) == min(SHOWN_KEYS, lacking):
                break
        return StepCount(rows, lacking, keys=tuple(keys), characters=characters)

    def breaking(self, key: str, rule: IrConstraint) -> Iterator[RowProblem]:
        """Yield the rows that break one rule after the migration."""
        image, declared, column = self._image, self._image.declared(key), rule.columns[0]
        properties = {name: kind for name, kind in declared.properties.items() if name in rule.columns}
        if rule.kind in (ConstraintKind.UNIQUE, ConstraintKind.KEY):
            return image.unique(key, declared._replace(unique=(rule.columns,)))
        if not isinstance(declared, NodeType):
            raise BugError(f"{rule.text} is not a rule of an edge")
        if rule.kind is ConstraintKind.RANGE and image.keeps_numbers(key, column):
            image = image.only(key, image.doubtful(key, column, lambda found: found.within(rule.low, rule.high)))
        # A missing value is counted by the step that requires it.
        optional = {name: kind._replace(nullable=True) for name, kind in properties.items()}
        ranges = (RangeBound(column, rule.low, rule.high),) if rule.kind is ConstraintKind.RANGE else ()
        checks = () if rule.pattern is None else (PatternCheck(column, rule.pattern),)
        alone = declared._replace(properties=optional, key=None, ranges=ranges, checks=checks)
        # Most often no row breaks it, and the ids of rows are not needed.
        suspect = (unchecked_rows(alone, rows).true_count for rows in image.batches(key, list(optional)))
        return image.values(key, alone) if any(suspect) else iter(())


def _is_proved(step: ChangeType, found: ColumnStatistics) -> bool:
    """Return whether statistics prove that all values of a column convert, and that none is missing if it is required."""
    if found.nulls and step.requires:
        return False
    bounds = None if step.from_.is_list or step.to.is_list else INTEGER_BOUNDS.get(step.to.scalar)
    fits = bounds is not None and step.from_.scalar in INTEGERS and found.within(*bounds)
    return fits or step.exactness is Exactness.ALWAYS


def _failures(column: pa.Array, step: ChangeType) -> tuple[pa.Array, pa.Array]:
    """Return masks of the values that do not convert, and of the rows that keep the step from being applied."""
    _, failed = convert_column(column, step)
    bad = failed if step.convert is None else pc.and_(failed, pa.scalar(value=False))
    return failed, pc.or_(bad, column.is_null()) if step.requires else bad


def _rules(declared: NodeType | EdgeType) -> Iterator[IrConstraint]:
    yield from (IrConstraint(ConstraintKind.UNIQUE, group) for group in declared.unique)
    if isinstance(declared, NodeType):
        if declared.key is not None:
            yield IrConstraint(ConstraintKind.KEY, declared.key)
        yield from (IrConstraint(ConstraintKind.RANGE, (b.property_name,), b.low, b.high) for b in declared.ranges)
        for check in declared.checks:
            yield IrConstraint(ConstraintKind.CHECK, (check.property_name,), pattern=check.pattern)
