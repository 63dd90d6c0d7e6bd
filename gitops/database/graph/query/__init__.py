"""Runs read queries against one graph version.

plan        clauses to operators: components, scans, hops, products, negations
execute     operators on rows; a row binds each variable to a stable row id
strategies  how a hop finds neighbours: adjacency in memory, index, or a scan of the edges
compiled    point reads and one-hop reads on rows in memory, without the executor
overlay     adjacencies of one graph version, used for another
project     rows to the result: groups, order, limit, columns
"""

from __future__ import annotations

from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.compiled import bind_read, bound_read
from gitops.database.graph.query.options import QueryOptions, Strategy
from gitops.database.graph.query.run import QueryResult, run_query

__all__ = ["QueryOptions", "QueryResult", "ReadCache", "Strategy", "bind_read", "bound_read", "run_query"]
