"""The worker of a bulk load: writes Arrow batches of one table to data files that belong to no version."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
from lance.fragment import FragmentMetadata

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.graph.bulk.plan import BulkPart, BulkTask
from gitops.graph.bulk.rows import RowMaker
from gitops.graph.root import GraphFolder
from gitops.graph.tables import declared_type, stage_rows
from gitops.graph.write.intake import FILE_BYTES
from gitops.graph.write.records import RecordProblems
from gitops.language.schema import EdgeType, NodeType, Scalar

__all__ = ["remove_files", "write_part"]

_BATCH_ROWS = 1 << 14


def write_part(task: BulkTask, batches: Iterable[pa.RecordBatch] | pa.Table, ids: IdSource) -> BulkPart:
    """Check each row by itself and write it; the part is durable, and not visible to readers.

    `batches` has a column per property, which may be missing where the property may be; `id` where the type has no key; and for
    edges `from` and `to`, the ids of their ends (`src` and `dst` if properties have these names). `ids` makes ids that are not
    given. Memory is bounded by the larger of a batch and a data file of 64 MiB.

    Raises LoadError with the rows that do not fit, counted from 1, and nothing stays; as `BulkTask.open`; RemoteError.
    """
    snapshot = task.open()
    folder, entry = snapshot.folder, snapshot.manifest.tables[task.key]
    problems = RecordProblems()
    declared = declared_type(snapshot.schema().catalog, task.key)
    require_readable_keys(declared)
    maker = RowMaker(declared, ids, problems)
    known = folder.begin(task.path)
    staged: list[FragmentMetadata] = []
    waiting: list[pa.Table] = []
    try:
        for batch in _small(batches):
            waiting.append(maker.rows(batch))
            if problems.total:
                waiting.clear()
            if sum(table.nbytes for table in waiting) >= FILE_BYTES:
                staged += stage_rows(folder, entry, pa.concat_tables(waiting))
                waiting.clear()
        problems.settle()
        if sum(table.num_rows for table in waiting):
            staged += stage_rows(folder, entry, pa.concat_tables(waiting))
        if staged:
            folder.settle(task.path, known)
    except OSError as error:
        remove_files(folder, task.path, staged)
        raise RemoteError(Code.STORAGE_FAILED, f"{snapshot.root.location}: {error.strerror or error}") from error
    except BaseException:
        remove_files(folder, task.path, staged)
        raise
    fragments = tuple(json.dumps(fragment.to_json()) for fragment in staged)
    return BulkPart(task.bulk, task.key, task.path, maker.count, maker.fresh, fragments)


def require_readable_keys(declared: NodeType | EdgeType) -> None:
    """Refuse a type whose keys the publisher could not read back.

    The driver reads columns of a file that belongs to no version only as far as no Blob column comes before them.
    Raises UsageError `usage_error`.
    """
    first = next((name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB), None)
    behind = [name for group in declared.unique for name in group if first is not None and first < name]
    behind = [name for name in behind if name in declared.properties]
    if behind:
        detail = f"{declared.name}.{behind[0]} is unique and its column follows the Blob {first}: use gitops graph load"
        raise UsageError(Code.USAGE_ERROR, detail)


def remove_files(folder: GraphFolder, path: str, staged: Iterable[FragmentMetadata]) -> None:
    """Remove data files that no version names; stops at the first failure, and gc removes the rest."""
    for fragment in staged:
        for file in fragment.files:
            try:
                folder.remove(f"{path}/data/{file.path}")
                folder.remove(f"{path}/data/{file.path.removesuffix('.lance')}")
            except (OSError, RemoteError):
                return


def _small(batches: Iterable[pa.RecordBatch] | pa.Table) -> Iterable[pa.RecordBatch]:
    """The same rows in batches of at most 16,384."""
    for batch in batches.to_batches() if isinstance(batches, pa.Table) else batches:
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield batch.slice(start, _BATCH_ROWS)
