"""Digests that both configuration and ledger compute from their own resources."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.core.canonical import digest


def graph_composite(graph: str, schema_digest: str, queries: Mapping[str, str]) -> str:
    """Digest of a graph: its id, the digest of its schema (empty if there is none) and of its queries by name.

    The input is `graph NUL <id> NUL schema NUL <digest> NUL`, then `query NUL <name> NUL <digest> NUL` per query by name.
    """
    parts = ["graph", graph, "schema", schema_digest]
    for name in sorted(queries):
        parts += ["query", name, queries[name]]
    return digest("".join(f"{part}\0" for part in parts).encode())
