"""Finds the texts of applied schemas. An entry records only a digest; the source commits in the ledger have the text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from gitops.cluster.config.load import declared_schema
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.address import schema_address
from gitops.cluster.model.change import Disposition
from gitops.core.errors import GitopsError
from gitops.git.port import GitReader


def recorded_schema(
    reader: GitReader, head: str | None, graph: str, digest: str, open_tree: Callable[[GitReader, str, str], SourceTree]
) -> bytes | None:
    """Find the schema text with this digest in the source commits up to entry `head`. Reads only local objects.

    The sources are tried from the newest back to the one that applied it, because an entry can refer to a commit
    without applying anything from it. The digest proves the text, so the chain need not be verified. Returns None if no
    source has the text, for example if it was found in a graph.
    """
    tried: set[str] = set()
    with suppress(GitopsError):
        while head is not None:
            commit = reader.commit(head)
            entry = read_entry(reader.read(commit.tree, ENTRY) or b"")
            if entry.source is not None and entry.source.tree not in tried:
                tried.add(entry.source.tree)
                with suppress(GitopsError):
                    text = declared_schema(open_tree(reader, entry.source.tree, entry.target.path), graph, digest)
                    if text is not None:
                        return text
            applied = {c.resource: c.after for c in entry.changes if c.disposition == Disposition.APPLIED}
            if applied.get(schema_address(graph)) == digest:
                return None
            head = next(iter(commit.parents), None)
    return None
