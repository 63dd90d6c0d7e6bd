"""Which updates of queries only publish a file again: the text of the query itself stays."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gitops.cluster.model.address import Address, Kind

__all__ = ["republished_queries"]


def republished_queries(
    updates: Iterable[tuple[Address, str | None, str | None]], read: Callable[[Address, str], bytes | None]
) -> frozenset[Address]:
    """The queries whose own text is in both files, by their addresses and the digests of their files before and after.

    `read` gives a file by a query of it and its digest, None where it cannot be read; each file is read once. Changes that are no
    update of a query are left out.
    """
    files: dict[tuple[str | None, str, str], list[Address]] = {}
    for address, before, after in updates:
        if address.kind is Kind.QUERY and before is not None and after is not None:
            files.setdefault((address.graph, before, after), []).append(address)
    if not files:
        return frozenset()
    # The language of queries is large to import: many changes are about something else.
    from gitops.database.language.query import query_texts

    found = set[Address]()
    for (_, before, after), queries in files.items():
        old, new = (query_texts(read(queries[0], digest) or b"") for digest in (before, after))
        found.update(each for each in queries if each.name in old and old[each.name] == new.get(each.name))
    return frozenset(found)
