"""The end of a bulk load: all rows of the workers become one version of the graph, or none.

A worker has checked each row by itself. This module checks what needs all rows, over all parts and the current graph: ids and
unique groups do not clash, edges have their ends, numbers of edges are in bounds. It is the second pass of a load
(`gitops.database.graph.write.joint`), which reads only the keys back from the data files.
"""

from __future__ import annotations

import contextlib
import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata

from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import SourceRef
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.database.graph import layout
from gitops.database.graph.bulk.plan import BulkPart, BulkPlan, table_form
from gitops.database.graph.bulk.worker import remove_files
from gitops.database.graph.history.datasets import data_files
from gitops.database.graph.history.leases import hold_lease, read_leases
from gitops.database.graph.lines import read_floor
from gitops.database.graph.load import LoadMode, LoadPublisher, LoadRequest
from gitops.database.graph.manifest import find_manifest
from gitops.database.graph.results import LoadResult
from gitops.database.graph.snapshot import ReadTarget, Snapshot, kept_versions, open_snapshot
from gitops.database.graph.staged import WriteContext, precise_timestamp, retry_until_published, sleep_jittered
from gitops.database.graph.tables import DRIVER_ERRORS, open_table, raw_columns
from gitops.database.graph.write.intake import LoadIntake, group_key
from gitops.database.graph.write.records import RecordProblems
from gitops.database.language.schema import EdgeType

__all__ = ["discard_bulk", "publish_bulk"]

_BATCH_ROWS = 1 << 16


def publish_bulk(
    plan: BulkPlan, parts: Sequence[BulkPart], context: WriteContext, mode: LoadMode = LoadMode.MERGE
) -> LoadResult:
    """Check the parts together and publish them as one version of the plan's branch. Parts without rows count for nothing.

    May be called again after a failure or a crash: a plan is published once, and what it has become is found again.

    Raises LoadError with the parts and rows that do not fit (`parts[0].rows[17]`); UsageError for parts that are not of this
    plan, or are given twice; GitopsError `graph_version_gone` when the plan has expired or was discarded, `graph_conflict`
    when the schema has changed since, or other writers published first 32 times; RemoteError `storage_failed`, also when a
    file of a part is not as it was written.
    """
    given = [part for part in parts if part.rows]
    staged = _read_fragments(plan, given)
    snapshot = open_snapshot(plan.uri, ReadTarget(plan.branch))
    manifest = snapshot.manifest
    tables = {key: table_form(entry) for key, entry in manifest.tables.items()}
    if snapshot.identity.graph_id != plan.graph_id or manifest.schema_ir != plan.schema_ir or tables != plan.tables:
        detail = f"the schema of {snapshot.root.location} changed since the bulk load began"
        raise GitopsError(Code.GRAPH_CONFLICT, detail, path=plan.uri)
    published = _find_published(plan, snapshot, given)
    if published is not None:
        _end_lease(plan, snapshot)
        return published
    _mark_begun(plan, snapshot, context)
    with hold_lease(snapshot, context), _PartIntake(snapshot, given) as intake:
        for part, fragments in zip(given, staged, strict=True):
            intake.take(part, fragments)
        if not intake.tables:
            _end_lease(plan, snapshot)
            return LoadResult(manifest.n, {})
        request = LoadRequest(plan.uri, io.BytesIO(), mode, plan.branch)
        publisher = LoadPublisher(replace(context, ids=_CommitId(plan.bulk)), request, snapshot, intake)
        publisher.check(snapshot)
        result = retry_until_published(publisher.attempt, sleep_jittered)
    _end_lease(plan, snapshot)
    return result


def discard_bulk(plan: BulkPlan, parts: Sequence[BulkPart]) -> None:
    """Discard a bulk load: remove the plan and the files of the parts, except those that a version has.

    Files of a worker that died before it returned its part are removed by gc after seven days. Raises as `publish_bulk`.
    """
    staged = _read_fragments(plan, parts)
    snapshot = open_snapshot(plan.uri, ReadTarget())
    if snapshot.identity.graph_id != plan.graph_id:
        return
    for path in sorted({part.path for part in parts}):
        kept = data_files(snapshot.folder, path)
        for part, fragments in zip(parts, staged, strict=True):
            if part.path == path:
                free = [each for each in fragments if not kept.intersection(file.path for file in each.files)]
                remove_files(snapshot.folder, path, free)
    _end_lease(plan, snapshot)


@dataclass(frozen=True, slots=True)
class _CommitId:
    """An IdSource with one given id."""

    id: str

    def ulid(self) -> str:
        return self.id


class _PartProblems(RecordProblems):
    """Problems whose records are named by part and row."""

    def __init__(self, parts: Sequence[BulkPart]) -> None:
        super().__init__()
        self._starts = [sum(part.rows for part in parts[:at]) for at in range(len(parts))]

    def place(self, record: int) -> tuple[str, str, SourceRef | None]:
        at = bisect_right(self._starts, record - 1) - 1
        row = record - self._starts[at]
        return f"parts[{at}].rows[{row}]", f"part {at}, row {row}", None


class _PartIntake(LoadIntake):
    """An intake of rows that are in data files already; only their keys are read."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[BulkPart]) -> None:
        super().__init__(snapshot, None)
        self.problems = _PartProblems(parts)
        self._record = 0

    def take(self, part: BulkPart, fragments: Sequence[FragmentMetadata]) -> None:
        """Note the keys of a part, in the order of its rows. Raises RemoteError `storage_failed`.

        In a fresh part ids cannot clash and are not noted; no row is replaced, and each end is noted once.
        """
        table = self.tables.get(part.key) or self.open_table(part.key)
        counted = isinstance(table.declared, EdgeType) and table.declared.cardinality != (0, None)
        members = list(dict.fromkeys(name for group in table.groups for name in group))
        columns = list(dict.fromkeys(("id", *table.ends, *members)))
        for fragment in fragments:
            keys = _read_columns(self.snapshot, part.path, fragment, columns)
            if keys.num_rows != fragment.physical_rows:
                detail = f"a part of {part.key} has {keys.num_rows} rows, and {fragment.physical_rows} were written"
                raise RemoteError(Code.STORAGE_FAILED, detail)
            first, start = self._record + 1, table.rows
            self._record += keys.num_rows
            table.rows += keys.num_rows
            if not part.fresh:
                for at, row_id in enumerate(keys.column("id").to_pylist()):
                    table.ids.add(row_id, first + at, start + at)
            for column, spill in table.ends.items():
                ends = keys.column(column)
                once = part.fresh and not counted
                for at, end in _distinct_texts(ends) if once else enumerate(ends.to_pylist()):
                    spill.add(end, first + at)
            cells = raw_columns(keys.select(members))
            for group, spill in table.groups.items():
                for at, values in enumerate(zip(*(cells[name] for name in group), strict=True)):
                    key = group_key(values)
                    if key is not None:
                        spill.add(key, first + at)
        table.staged += fragments


def _distinct_texts(column: pa.ChunkedArray) -> Iterator[tuple[int, str]]:
    """Each text once, with the place where it is first."""
    encoded = column.combine_chunks().dictionary_encode()
    texts, places = np.unique(encoded.indices.to_numpy(), return_index=True)
    yield from zip(places.tolist(), encoded.dictionary.take(pa.array(texts)).to_pylist(), strict=True)


def _read_columns(snapshot: Snapshot, path: str, fragment: FragmentMetadata, columns: list[str]) -> pa.Table:
    """Columns of the data file of a fragment that belongs to no version. A worker writes one file for each."""
    place = snapshot.folder.dataset(f"{path}/data/{fragment.files[0].path}")
    try:
        reader = LanceFileReader(place.uri, storage_options=place.driver_options(), columns=columns)
        return reader.read_all(batch_size=_BATCH_ROWS).to_table()
    except DRIVER_ERRORS as error:
        reason = str(error).partition("<")[0].partition("\n")[0][:200]
        raise RemoteError(Code.STORAGE_FAILED, f"{place.uri}: {reason}") from error


def _read_fragments(plan: BulkPlan, parts: Sequence[BulkPart]) -> list[list[FragmentMetadata]]:
    """The fragments of each part. Raises UsageError for a part that is not of the plan, or is given twice."""
    staged, seen = [], set[str]()
    for at, part in enumerate(parts):
        if part.bulk != plan.bulk or part.key not in plan.tables or part.path != plan.tables[part.key]["path"]:
            raise UsageError(Code.USAGE_ERROR, f"part {at} does not belong to the bulk load {plan.bulk}")
        fragments = part.staged()
        names = {file.path for fragment in fragments for file in fragment.files}
        if seen & names or sum(fragment.physical_rows for fragment in fragments) != part.rows:
            raise UsageError(Code.USAGE_ERROR, f"part {at} is given twice, or is not as the worker returned it")
        seen |= names
        staged.append(fragments)
    return staged


def _find_published(plan: BulkPlan, snapshot: Snapshot, parts: Sequence[BulkPart]) -> LoadResult | None:
    """The result of this bulk load if it was published before: the id of the plan is the commit id of the version.

    Raises UsageError for a part that is not in it.
    """
    store, line = snapshot.store, snapshot.line
    for holder, n in kept_versions(store, line):
        if n <= plan.version:
            break
        manifest = find_manifest(store, n, holder)
        if manifest is not None and manifest.txn_id == plan.bulk:
            for at, part in enumerate(parts):
                dataset = open_table(snapshot.folder, manifest.tables[part.key])
                held = {file.path for each in dataset.get_fragments() for file in each.metadata.files}
                if any(file.path not in held for fragment in part.staged() for file in fragment.files):
                    detail = f"the bulk load {plan.bulk} was published as version {n}, without part {at}"
                    raise UsageError(Code.USAGE_ERROR, detail)
            rows = Counter[str]()
            for part in parts:
                rows[part.key] += part.rows
            return LoadResult(n, dict(rows), manifest)
    return None


def _mark_begun(plan: BulkPlan, snapshot: Snapshot, context: WriteContext) -> None:
    """Mark the plan as being published, or find that it was marked before.

    The mark is a lease that ends a second earlier. Raises GitopsError `graph_version_gone` when the plan has expired, or when it
    was marked before and the versions that would show whether it was published are gone.
    """
    store, until = snapshot.store, parse_timestamp(plan.expires_at)
    lease = next((each for each in read_leases(store) if each.id == plan.bulk), None)
    if until is None or lease is None or until <= context.now():
        detail = f"the bulk load {plan.bulk} expired at {plan.expires_at}, or was discarded: begin a new one"
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=plan.uri)
    marked = replace(lease, expires_at=precise_timestamp(until - timedelta(seconds=1)))
    if lease != marked:
        store.write(layout.lease_key(lease.id), marked.to_bytes())
    elif read_floor(store, snapshot.line.id) > plan.version:
        detail = (
            f"it is unknown whether the bulk load {plan.bulk} was published: versions since it began are no longer kept"
        )
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=plan.uri)


def _end_lease(plan: BulkPlan, snapshot: Snapshot) -> None:
    """End the lease; if that fails, it expires."""
    with contextlib.suppress(RemoteError):
        snapshot.store.delete(layout.lease_key(plan.bulk))
