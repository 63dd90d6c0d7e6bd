"""The graph database: one Lance dataset per type below a graph root, published through immutable manifests.

Other packages import these names from here and lightweight types from `port` and `results`. A name is loaded on first
use, so a command that reads no rows starts without the Lance driver. This package does not depend on the control plane.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

# The driver logs service responses to standard error, including any secrets in them. It reads this setting on import; its
# failures are reported as problems of this program instead.
os.environ["LANCE_LOG"] = "lance=off"

if TYPE_CHECKING:
    from gitops.database.graph.bulk import load_parquet as load_parquet
    from gitops.database.graph.checkpoints import LoadSource as LoadSource
    from gitops.database.graph.clone import clone_graph as clone_graph
    from gitops.database.graph.clone import scratch_size as scratch_size
    from gitops.database.graph.distributed.documents import Piece as Piece
    from gitops.database.graph.distributed.driver import begin_load as begin_load
    from gitops.database.graph.distributed.driver import find_load as find_load
    from gitops.database.graph.distributed.driver import run_load as run_load
    from gitops.database.graph.distributed.sources import input_pieces as input_pieces
    from gitops.database.graph.embedding import Embedder as Embedder
    from gitops.database.graph.embedding import HashEmbedder as HashEmbedder
    from gitops.database.graph.embedding import ServiceEmbedder as ServiceEmbedder
    from gitops.database.graph.engine import LanceEngine as LanceEngine
    from gitops.database.graph.history.branches import create_branch as create_branch
    from gitops.database.graph.history.branches import delete_branch as delete_branch
    from gitops.database.graph.history.branches import delete_merged_branch as delete_merged_branch
    from gitops.database.graph.history.branches import describe_version as describe_version
    from gitops.database.graph.history.branches import ensure_branch as ensure_branch
    from gitops.database.graph.history.branches import list_branches as list_branches
    from gitops.database.graph.history.branches import read_log as read_log
    from gitops.database.graph.history.copy import GraphCopy as GraphCopy
    from gitops.database.graph.history.copy import copy_graph as copy_graph
    from gitops.database.graph.history.diff import ChangeScope as ChangeScope
    from gitops.database.graph.history.diff import FeedLimits as FeedLimits
    from gitops.database.graph.history.diff import ForeignPositionError as ForeignPositionError
    from gitops.database.graph.history.diff import SchemaBoundaryError as SchemaBoundaryError
    from gitops.database.graph.history.diff import branches_since as branches_since
    from gitops.database.graph.history.diff import diff_versions as diff_versions
    from gitops.database.graph.history.diff import feed_position as feed_position
    from gitops.database.graph.history.diff import first_unreadable as first_unreadable
    from gitops.database.graph.history.diff import parse_position as parse_position
    from gitops.database.graph.history.diff import position_of as position_of
    from gitops.database.graph.history.diff import read_feed as read_feed
    from gitops.database.graph.history.diff import summarize_diff as summarize_diff
    from gitops.database.graph.history.diff import type_id as type_id
    from gitops.database.graph.history.gc import Retention as Retention
    from gitops.database.graph.history.gc import collect_garbage as collect_garbage
    from gitops.database.graph.history.merge import merge_branch as merge_branch
    from gitops.database.graph.history.optimize import OptimizeOptions as OptimizeOptions
    from gitops.database.graph.history.optimize import optimize_tables as optimize_tables
    from gitops.database.graph.history.preview import preview_migration as preview_migration
    from gitops.database.graph.history.verify import verify_graph as verify_graph
    from gitops.database.graph.load import LoadError as LoadError
    from gitops.database.graph.load import LoadMode as LoadMode
    from gitops.database.graph.load import LoadRequest as LoadRequest
    from gitops.database.graph.load import load_records as load_records
    from gitops.database.graph.manifest import MANIFEST_FORMAT as MANIFEST_FORMAT
    from gitops.database.graph.manifest import Manifest as Manifest
    from gitops.database.graph.migrate import purge_dropped as purge_dropped
    from gitops.database.graph.mirror import GraphMirror as GraphMirror
    from gitops.database.graph.mirror import MirrorLimits as MirrorLimits
    from gitops.database.graph.query.by_key import read_by_key as read_by_key
    from gitops.database.graph.query.cache import ReadCache as ReadCache
    from gitops.database.graph.query.compiled import bind_read as bind_read
    from gitops.database.graph.query.compiled import bound_read as bound_read
    from gitops.database.graph.query.key_writer import note_read_by_key as note_read_by_key
    from gitops.database.graph.query.options import QueryOptions as QueryOptions
    from gitops.database.graph.query.options import Strategy as Strategy
    from gitops.database.graph.query.run import QueryResult as QueryResult
    from gitops.database.graph.query.run import run_query as run_query
    from gitops.database.graph.read import BlobCell as BlobCell
    from gitops.database.graph.read import describe_graph as describe_graph
    from gitops.database.graph.read import export_records as export_records
    from gitops.database.graph.read import open_blob as open_blob
    from gitops.database.graph.read import read_rows as read_rows
    from gitops.database.graph.snapshot import ReadTarget as ReadTarget
    from gitops.database.graph.snapshot import Snapshot as Snapshot
    from gitops.database.graph.snapshot import newest_in_memory as newest_in_memory
    from gitops.database.graph.snapshot import open_snapshot as open_snapshot
    from gitops.database.graph.staged import WriteContext as WriteContext
    from gitops.database.graph.write.memory import WriterMemory as WriterMemory
    from gitops.database.graph.write.mutate import MutationOptions as MutationOptions
    from gitops.database.graph.write.mutate import Mutator as Mutator


@contextlib.contextmanager
def require_driver() -> Iterator[None]:
    """Convert an ImportError for one of the engine's packages to GitopsError `engine_unavailable`."""
    try:
        yield
    except ImportError as error:
        from gitops.core.codes import Code
        from gitops.core.errors import GitopsError

        raise GitopsError(
            Code.ENGINE_UNAVAILABLE, f"the graph engine needs the packages pylance and pyarrow: {error}"
        ) from error


_HOMES = {
    "bulk": ("load_parquet",),
    "checkpoints": ("LoadSource",),
    "clone": ("clone_graph", "scratch_size"),
    "distributed.documents": ("Piece",),
    "distributed.driver": ("begin_load", "find_load", "run_load"),
    "distributed.sources": ("input_pieces",),
    "engine": ("LanceEngine",),
    "history.branches": (
        "create_branch",
        "delete_branch",
        "delete_merged_branch",
        "describe_version",
        "ensure_branch",
        "list_branches",
        "read_log",
    ),
    "history.copy": ("GraphCopy", "copy_graph"),
    "history.diff": (
        "ChangeScope",
        "FeedLimits",
        "ForeignPositionError",
        "SchemaBoundaryError",
        "branches_since",
        "diff_versions",
        "feed_position",
        "first_unreadable",
        "parse_position",
        "position_of",
        "read_feed",
        "summarize_diff",
        "type_id",
    ),
    "history.gc": ("Retention", "collect_garbage"),
    "history.merge": ("merge_branch",),
    "history.optimize": ("OptimizeOptions", "optimize_tables"),
    "history.preview": ("preview_migration",),
    "history.verify": ("verify_graph",),
    "load": ("LoadError", "LoadMode", "LoadRequest", "load_records"),
    "manifest": ("MANIFEST_FORMAT", "Manifest"),
    "migrate": ("purge_dropped",),
    "mirror": ("GraphMirror", "MirrorLimits"),
    "query.by_key": ("read_by_key",),
    "query.cache": ("ReadCache",),
    "query.compiled": ("bind_read", "bound_read"),
    "query.key_writer": ("note_read_by_key",),
    "query.options": ("QueryOptions", "Strategy"),
    "query.run": ("QueryResult", "run_query"),
    "read": ("BlobCell", "describe_graph", "export_records", "open_blob", "read_rows"),
    "embedding": ("Embedder", "HashEmbedder", "ServiceEmbedder"),
    "snapshot": ("ReadTarget", "Snapshot", "newest_in_memory", "open_snapshot"),
    "staged": ("WriteContext",),
    "write.memory": ("WriterMemory",),
    "write.mutate": ("MutationOptions", "Mutator"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # otherwise every misspelt name would type-check

    def __getattr__(name: str) -> Any:
        """Import a public name on first use. Raises GitopsError `engine_unavailable` if the Lance packages are missing."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with require_driver():
            found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
            return found
