"""Bounds of the work of one load, besides those of its tree."""

from __future__ import annotations

__all__ = ["MAX_QUERIES", "MAX_QUERY_BYTES"]

# Several graphs may list one file, so that what is read is no bound of the work: queries, and bytes of query files, count
# once for each graph. Ten times the largest cluster that is planned for.
MAX_QUERIES = 100_000
MAX_QUERY_BYTES = 256 * 1024 * 1024
