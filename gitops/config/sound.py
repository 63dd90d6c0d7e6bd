"""What is known to be sound: the query files that parse and check against a schema, by the digests of both.

Only soundness is kept, never a problem: whatever is wrong is found anew on every load. A unit is addressed by content alone, so
it holds in every folder, commit and clone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from gitops.core.canonical import digest

__all__ = ["Lookup", "Units", "compiled_names"]

# An entry that was kept by its name, or None.
Lookup = Callable[[str], bytes | None]

# Units are spread over files by the first two digits of their keys; each file forgets its oldest beyond this many.
_MAX_UNITS = 4096
_MAX_SCHEMAS = 64


class Units:
    """Sound pairs of schema and query file. A schema alone is a pair with the empty text."""

    def __init__(self, remembered: Lookup) -> None:
        """Nothing is looked up yet."""
        self._remembered = remembered
        self._groups: dict[str, dict[str, list[str]]] = {}
        self._grown: set[str] = set()

    def names(self, schema: str, query: str = "") -> Sequence[str] | None:
        """The queries that the file declares, in its order, all of them sound against the schema; None if it is not known."""
        key = _key(schema, query)
        return self._group(key).get(key)

    def add(self, schema: str, query: str, names: Sequence[str]) -> None:
        """Say that a pair is sound."""
        key = _key(schema, query)
        group = self._group(key)
        if key not in group:
            group[key] = list(names)
            self._grown.add(key[:2])

    def entries(self) -> dict[str, bytes]:
        """The entries to keep: those that have grown."""
        found = {}
        for name in sorted(self._grown):
            newest = list(self._groups[name].items())[-_MAX_UNITS:]
            found[f"units {name}"] = json.dumps(dict(newest), separators=(",", ":")).encode()
        return found

    def _group(self, key: str) -> dict[str, list[str]]:
        name = key[:2]
        if name not in self._groups:
            self._groups[name] = _read(self._remembered(f"units {name}"))
        return self._groups[name]


def compiled_names(schemas: dict[bytes, Any], schema: bytes, query: bytes | None) -> tuple[str, ...] | None:
    """The queries that a file declares if it and the schema are sound, else None; `schemas` keeps what was compiled.

    Without a file it is about the schema alone.
    """
    # The languages are large to import: a load that finds everything as it was does without.
    from gitops.language.query import check_query, parse_queries
    from gitops.language.schema import compile_schema
    from gitops.language.text import LanguageError

    try:
        compiled = schemas.get(schema)
        if compiled is None:
            if len(schemas) >= _MAX_SCHEMAS:
                schemas.clear()
            compiled = schemas[schema] = compile_schema(schema)
        declared = () if query is None else parse_queries(query)
        for each in declared:
            check_query(each, compiled.catalog)
    except LanguageError:
        return None
    return tuple(each.name.text for each in declared)


def _key(schema: str, query: str) -> str:
    return digest(f"{schema} {query}".encode())


def _read(data: bytes | None) -> dict[str, list[str]]:
    """The units of an entry; what does not have the form of one holds none."""
    try:
        value = {} if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return {}
    good = isinstance(value, dict) and all(
        isinstance(names, list) and all(type(name) is str for name in names) for names in value.values()
    )
    return value if good else {}
