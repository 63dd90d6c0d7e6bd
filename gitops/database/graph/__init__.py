"""The graph database: one Lance dataset per type below a graph root, published through immutable manifests.

This is the front door of the room: other rooms import these names from here, and the light nouns from `port` and `results`. A
name is loaded when it is first used, so that a command which reads no rows starts without the Lance driver. Nothing here knows of
the control plane.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# The driver writes answers of the service to standard error, with whatever they quote. It reads this when it is loaded; its
# failures are reported as problems of this program.
os.environ["LANCE_LOG"] = "lance=off"

if TYPE_CHECKING:
    from gitops.database.graph.bulk import load_parquet
    from gitops.database.graph.embedding import Embedder, HashEmbedder, ServiceEmbedder
    from gitops.database.graph.engine import LanceEngine
    from gitops.database.graph.history.branches import (
        create_branch,
        delete_branch,
        delete_merged_branch,
        describe_version,
        ensure_branch,
        list_branches,
        read_log,
    )
    from gitops.database.graph.history.diff import (
        FeedLimits,
        diff_versions,
        feed_position,
        parse_position,
        position_of,
        read_feed,
        summarize_diff,
    )
    from gitops.database.graph.history.gc import Retention, collect_garbage
    from gitops.database.graph.history.merge import merge_branch
    from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
    from gitops.database.graph.history.preview import preview_migration
    from gitops.database.graph.history.verify import verify_graph
    from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
    from gitops.database.graph.manifest import MANIFEST_FORMAT, Manifest
    from gitops.database.graph.migrate import purge_dropped
    from gitops.database.graph.query import QueryOptions, QueryResult, ReadCache, Strategy, run_query
    from gitops.database.graph.read import BlobCell, describe_graph, export_records, open_blob, read_rows
    from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
    from gitops.database.graph.staged import WriteContext
    from gitops.database.graph.write.mutate import MutationOptions, Mutator

__all__ = [
    "MANIFEST_FORMAT",
    "BlobCell",
    "Embedder",
    "FeedLimits",
    "HashEmbedder",
    "LanceEngine",
    "LoadError",
    "LoadMode",
    "LoadRequest",
    "Manifest",
    "MutationOptions",
    "Mutator",
    "OptimizeOptions",
    "QueryOptions",
    "QueryResult",
    "ReadCache",
    "ReadTarget",
    "Retention",
    "ServiceEmbedder",
    "Snapshot",
    "Strategy",
    "WriteContext",
    "collect_garbage",
    "create_branch",
    "delete_branch",
    "delete_merged_branch",
    "describe_graph",
    "describe_version",
    "diff_versions",
    "ensure_branch",
    "export_records",
    "feed_position",
    "list_branches",
    "load_parquet",
    "load_records",
    "merge_branch",
    "open_blob",
    "open_snapshot",
    "optimize_tables",
    "parse_position",
    "position_of",
    "preview_migration",
    "purge_dropped",
    "read_feed",
    "read_log",
    "read_rows",
    "run_query",
    "summarize_diff",
    "verify_graph",
]

_HOMES = {
    "bulk": ("load_parquet",),
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
    "history.diff": (
        "FeedLimits",
        "diff_versions",
        "feed_position",
        "parse_position",
        "position_of",
        "read_feed",
        "summarize_diff",
    ),
    "history.gc": ("Retention", "collect_garbage"),
    "history.merge": ("merge_branch",),
    "history.optimize": ("OptimizeOptions", "optimize_tables"),
    "history.preview": ("preview_migration",),
    "history.verify": ("verify_graph",),
    "load": ("LoadError", "LoadMode", "LoadRequest", "load_records"),
    "manifest": ("MANIFEST_FORMAT", "Manifest"),
    "migrate": ("purge_dropped",),
    "query": ("QueryOptions", "QueryResult", "ReadCache", "Strategy", "run_query"),
    "read": ("BlobCell", "describe_graph", "export_records", "open_blob", "read_rows"),
    "embedding": ("Embedder", "HashEmbedder", "ServiceEmbedder"),
    "snapshot": ("ReadTarget", "Snapshot", "open_snapshot"),
    "staged": ("WriteContext",),
    "write.mutate": ("MutationOptions", "Mutator"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # or every misspelt name would type-check

    def __getattr__(name: str) -> Any:
        """Load a name of the front door. Raises GitopsError `engine_unavailable` if the packages of Lance are missing."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from gitops.database.graph.engine import require_driver

        with require_driver():
            found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
            return found
