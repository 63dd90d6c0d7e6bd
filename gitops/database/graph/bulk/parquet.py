"""Parquet files as rows of a graph: the columns of a file are the properties of its type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError
from gitops.database.graph.bulk.plan import BulkPart, plan_bulk
from gitops.database.graph.bulk.publish import discard_bulk, publish_bulk
from gitops.database.graph.bulk.worker import write_part
from gitops.database.graph.layout import MAIN
from gitops.database.graph.load import LoadError, LoadMode
from gitops.database.graph.results import LoadResult
from gitops.database.graph.snapshot import ReadTarget, open_snapshot
from gitops.database.graph.staged import WriteContext

__all__ = ["load_parquet"]


def load_parquet(
    uri: str,
    files: Sequence[tuple[str, Path]],
    context: WriteContext,
    mode: LoadMode = LoadMode.MERGE,
    branch: str = MAIN,
) -> LoadResult:
    """Load files, each of rows of one type, in one publish.

    Raises LoadError as `write_part` (with the name of the file) and `publish_bulk` (parts are the files, from 0); UsageError
    for a type that the graph does not have and a file that does not read.
    """
    catalog = open_snapshot(uri, ReadTarget(branch)).schema().catalog
    keys = []
    for name, _ in files:
        edge = catalog.edge(name)
        if name not in catalog.nodes and edge is None:
            raise UsageError(Code.USAGE_ERROR, f"the graph has no type {name[:80]!r}")
        keys.append(f"node:{name}" if name in catalog.nodes or edge is None else f"edge:{edge.name}")
    plan = plan_bulk(uri, context, branch)
    parts: list[BulkPart] = []
    try:
        for key, (_, file) in zip(keys, files, strict=True):
            try:
                parts.append(write_part(plan.task(key), _batches(file), context.ids))
            except LoadError as error:
                found = Diagnostics()
                for problem in error.problems:
                    found.add(problem.code, problem.path, f"{file.name}, {problem.message}")
                raise LoadError(found, error.total) from None
        return publish_bulk(plan, parts, context, mode)
    except BaseException:
        discard_bulk(plan, parts)
        raise


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0][:200]
        fix = "name a Parquet file; a file of JSON lines goes without --parquet: gitops graph load GRAPH FILE"
        detail = f"cannot read {file} as Parquet: {reason}"
        raise UsageError(Code.USAGE_ERROR, detail, path=str(file), fix=fix) from error
