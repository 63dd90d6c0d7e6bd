"""Compacts tables and builds indexes, so that the same rows are found faster.

Each table is published separately, through a manifest like any other change, so other writers lose no changes and
readers of older versions are unaffected. A table is skipped if it has few rows, few fragments and all of its indexes.

The indexed columns are `id`, `src`, `dst`, and the members of keys, unique groups and index groups. Indexed strings
also get indexes of their words and substrings. An index only finds candidates, so results never depend on it.

Two kinds of index are kept as small as possible. Ascending edge ids, such as generated ids, get a zone map. Vector
indexes store vectors as bytes if this does not lose any nearest neighbours of a sample, and otherwise unchanged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import Index

from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError
from gitops.database.executor.port import TaskExecutor
from gitops.database.graph.history.optimize_tasks import VECTOR_KINDS, TableTasks
from gitops.database.graph.layout import MAIN
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.results import INDEXING, OptimizeResult, StepProgress, Watcher, unwatched
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.search import METRIC, TEXT_INDEX, index_recall, usable
from gitops.database.graph.snapshot import ReadTarget, find_root, open_snapshot
from gitops.database.graph.staged import StagedVersion, WriteContext, hold_lease
from gitops.database.graph.tables import TableWriter, call_driver, declared_type, key_columns, open_table
from gitops.database.language.schema import EdgeType, NodeType, Scalar

_ATTEMPTS = 3
_ZONE = 8_192
_OVERLAPS = 0.02


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """Minimum number of rows, fragments or changes for each step. `types` limits the work to these table keys."""

    fragments: int = 20
    deleted_share: float = 0.2
    scalar_rows: int = 1_000
    text_rows: int = 1_000
    vector_rows: int = 100_000
    stale_rows: int = 10_000
    stale_share: float = 0.1
    rows_per_fragment: int = 1_048_576
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _WantedIndex:
    """An index that a table needs, existing or not."""

    name: str
    column: str
    kind: str
    least_rows: int


def optimize_tables(
    uri: str,
    context: WriteContext,
    options: OptimizeOptions | None = None,
    branch: str = MAIN,
    progress: Watcher = unwatched,
    executor: TaskExecutor | None = None,
) -> OptimizeResult:
    """Compact and index a branch's tables where needed. `progress` is called before each step.

    With an executor, its workers rewrite fragments and build indexes, except vector indexes. Raises the same errors as
    `open_snapshot` and of the executor; ConflictError `graph_conflict` if other writers won every attempt; RemoteError
    `storage_failed`.
    """
    chosen = options or OptimizeOptions()
    first = open_snapshot(uri, ReadTarget(branch))
    version, done = first.manifest.n, {}
    for key in sorted(first.manifest.tables):
        if chosen.types and key not in chosen.types:
            continue
        for attempt in range(_ATTEMPTS):
            try:
                published, steps = _optimize_table(uri, branch, key, context, chosen, progress, executor)
                break
            except ConflictError:
                if attempt == _ATTEMPTS - 1:
                    raise
        if steps:
            version, done[key] = published, steps
    return OptimizeResult(version, done)


def _optimize_table(
    uri: str,
    branch: str,
    key: str,
    context: WriteContext,
    options: OptimizeOptions,
    progress: Watcher,
    executor: TaskExecutor | None,
) -> tuple[int, tuple[str, ...]]:
    with find_root(uri).lease():
        snapshot = open_snapshot(uri, ReadTarget(branch))
        entry = snapshot.manifest.tables.get(key)
        if entry is None or not entry.rows:
            return snapshot.manifest.n, ()
        declared = declared_type(snapshot.schema().catalog, key)
        steps = _find_steps(snapshot.folder, entry, declared, options)
        if not any(steps):
            return snapshot.manifest.n, ()
        with hold_lease(snapshot, context) as renew:
            writer = _Optimizer(snapshot.folder, entry)
            if executor is not None:
                writer.tasks = TableTasks(executor, uri, entry.path, context.ids.ulid(), renew)
            done = []

            def begin(name: str, at: int) -> None:
                total = steps[0] + len(steps[1]) + steps[2]
                progress(StepProgress(INDEXING, 0, at, total, "steps", f"{key}, {entry.rows:,} rows: {name}"))

            for step in writer.carry_out(*steps, options, begin):
                done.append(step)
                renew()
            table = writer.finish(recount=False, changed=())
            context.faults.reach("engine.optimize.staged")
            tables = {**snapshot.manifest.tables, key: table}
            version = StagedVersion(snapshot, "optimize", context, tables=tables).publish()
    return version, tuple(done)


def _find_steps(
    folder: GraphFolder, entry: TableEntry, declared: NodeType | EdgeType, options: OptimizeOptions
) -> tuple[bool, tuple[_WantedIndex, ...], bool]:
    """Return whether to compact the table, the indexes to build, and whether to refresh existing indexes."""
    dataset = open_table(folder, entry)
    fragments = dataset.get_fragments()
    deleted = sum(part.num_deletions for part in fragments)
    small = [part for part in fragments if part.physical_rows < options.rows_per_fragment]
    compact = len(small) > options.fragments or deleted > options.deleted_share * (entry.rows + deleted)
    wanted = list(_wanted_indexes(declared, options))
    # A word index with the settings of another release is useless, and is rebuilt.
    texts = {each.name: each.column for each in wanted if each.kind == "INVERTED"}
    have = {
        index.name: index
        for index in call_driver(entry.path, dataset.describe_indices)
        if index.name not in texts or usable(index, texts[index.name])
    }
    stale = max((entry.rows - have[each.name].num_rows_indexed for each in wanted if each.name in have), default=0)
    refresh = stale > min(options.stale_rows, options.stale_share * entry.rows)
    # A zone map is not refreshed but built again: a compaction empties it, and the ids may no longer count up.
    renewed = refresh or compact
    zoned = {name for name, index in have.items() if renewed and index.index_type.casefold() == "zonemap"}
    build = tuple(
        replace(each, kind="ZONEMAP") if each.name == "id_idx" and _count_up(dataset, entry, declared) else each
        for each in wanted
        if (each.name not in have or each.name in zoned) and entry.rows >= each.least_rows
    )
    return compact, build, refresh


def _count_up(dataset: lance.LanceDataset, entry: TableEntry, declared: NodeType | EdgeType) -> bool:
    """Return whether edge ids are sorted well enough for a zone map: apart from a few zones, an id is in only one."""
    if not isinstance(declared, EdgeType):
        return False
    zones: list[pa.StructScalar] = call_driver(
        entry.path,
        lambda: [pc.min_max(each.column(0)) for each in dataset.scanner(columns=["id"], batch_size=_ZONE).to_reader()],
    )
    bounds = sorted((zone["min"].as_py(), zone["max"].as_py()) for zone in zones if zone["min"].is_valid)
    overlaps = sum(1 for (_, top), (bottom, _) in itertools.pairwise(bounds) if top >= bottom)
    return overlaps <= _OVERLAPS * len(bounds)


def _wanted_indexes(declared: NodeType | EdgeType, options: OptimizeOptions) -> Iterator[_WantedIndex]:
    """Yield the indexes that a type's table needs."""
    heads = key_columns(declared)
    for column in heads:
        yield _WantedIndex(f"{column}_idx", column, "BTREE", options.scalar_rows)
    key = tuple(getattr(declared, "key", None) or ())
    indexed = {name for group in declared.indexes if tuple(group) != key for name in group}
    others = {name for group in declared.unique for name in group} | set(key)
    for name in sorted((indexed | others) - set(heads)):
        kind = declared.properties[name]
        if kind.scalar is Scalar.BLOB:
            continue
        if kind.scalar is Scalar.VECTOR:
            yield _WantedIndex(f"{name}_vector", name, "IVF_SQ", options.vector_rows)
        elif kind.is_list:
            yield _WantedIndex(f"{name}_idx", name, "LABEL_LIST", options.scalar_rows)
        elif kind.scalar is Scalar.BOOL or kind.enum_values is not None:
            yield _WantedIndex(f"{name}_idx", name, "BITMAP", options.scalar_rows)
        else:
            yield _WantedIndex(f"{name}_idx", name, "BTREE", options.scalar_rows)
            if kind.scalar is Scalar.STRING and name in indexed:
                yield _WantedIndex(f"{name}_text", name, "INVERTED", options.text_rows)
                yield _WantedIndex(f"{name}_ngram", name, "NGRAM", options.text_rows)


class _Optimizer(TableWriter):
    """A table writer that leaves every row unchanged. `tasks` are workers for its steps, if there are any."""

    tasks: TableTasks | None = None

    def carry_out(
        self,
        compact: bool,
        build: Sequence[_WantedIndex],
        refresh: bool,
        options: OptimizeOptions,
        begin: Callable[[str, int], None],
    ) -> Iterator[str]:
        """Carry out the steps; yield a description after each one.

        `begin` is called before each step, with its name and the number of steps before it.
        """
        if compact:
            begin("compact", 0)
        settings: dict[str, Any] = {
            "target_rows_per_fragment": options.rows_per_fragment,
            "materialize_deletions_threshold": options.deleted_share,
        }
        tasks = self.tasks
        if compact and self.rewrite(
            lambda dataset: (
                dataset.optimize.compact_files(**settings) if tasks is None else tasks.compact(dataset, settings)
            )
        ):
            yield "compacted"
        segments = self._segments(build, begin, compact=compact)
        for at, index in enumerate(build, compact):
            begin(f"build {index.name}", at)
            made = segments.get(index.name)
            self.change(partial(_build_index, index=index, rows=self._rows, segments=made))
            built = index
            if index.kind == "IVF_SQ" and self._loses_vectors(index.column):
                built = replace(index, kind="IVF_FLAT")
                self.change(partial(_build_index, index=built, rows=self._rows))
            yield f"built {built.name} ({built.kind})"
        if refresh:
            begin("refresh indexes", compact + len(build))
        if refresh and self.rewrite(lambda dataset: dataset.optimize.optimize_indices()):
            yield "refreshed indexes"

    def _segments(
        self, build: Sequence[_WantedIndex], begin: Callable[[str, int], None], *, compact: bool
    ) -> Mapping[str, list[Index]]:
        """Return the segments that workers built, by index; an index that is replaced is built by this process."""
        if self.tasks is None:
            return {}
        there = {each.name for each in call_driver(self._path, self.dataset.describe_indices)}
        new = [each for each in build if each.kind not in VECTOR_KINDS and each.name not in there]
        if new:
            begin(f"build {len(new)} indexes", compact)
        return self.tasks.segments(self.dataset, [(each.name, each.column, each.kind) for each in new])

    def _loses_vectors(self, column: str) -> bool:
        """Return whether storing a column's vectors as bytes loses too much precision."""
        recall = call_driver(self._path, lambda: index_recall(self.dataset, column, _partitions(self._rows)))
        return recall < 1


def _partitions(rows: int) -> int:
    """Return the number of partitions for a vector index over this many rows."""
    return max(1, math.isqrt(rows))


def _build_index(
    dataset: lance.LanceDataset, *, index: _WantedIndex, rows: int, segments: list[Index] | None = None
) -> lance.LanceDataset | None:
    """Build an index, or commit the segments that workers built; return the new version of the dataset if it is known."""
    if segments is not None:
        return dataset.commit_existing_index_segments(index.name, index.column, list(segments))
    if index.kind in VECTOR_KINDS:
        parts = _partitions(rows)
        dataset.create_index(
            index.column, index.kind, name=index.name, metric=METRIC, num_partitions=parts, replace=True
        )
    else:
        settings: dict[str, Any] = TEXT_INDEX if index.kind == "INVERTED" else {}
        dataset.create_scalar_index(index.column, index.kind, name=index.name, **settings)  # type: ignore[arg-type]
    return None
