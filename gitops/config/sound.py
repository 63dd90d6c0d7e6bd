"""The query files that are known to parse and to check against a schema, by the digests of both.

Only soundness is kept, never a problem: problems are found again on every load. A pair is addressed by content alone, so it holds
in every folder, commit and clone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from gitops.config.cache import CompileCache
from gitops.core.canonical import digest

__all__ = ["SoundPairs"]

# Pairs are spread over entries by the first two digits of their keys; each entry drops its oldest pairs beyond this many.
_MAX_PAIRS = 4096


class SoundPairs:
    """Sound pairs of schema and query file. A schema alone is a pair with the empty text."""

    def __init__(self, cache: CompileCache) -> None:
        """Nothing is looked up yet."""
        self._cache = cache
        self._groups: dict[str, dict[str, list[str]]] = {}
        self._grown: set[str] = set()

    def names(self, schema: str, query: str = "") -> Sequence[str] | None:
        """The queries that the file declares, in its order, all sound against the schema; None if the pair is not known."""
        key = _key(schema, query)
        return self._group(key).get(key)

    def add(self, schema: str, query: str, names: Sequence[str]) -> None:
        """Record a pair as sound."""
        key = _key(schema, query)
        group = self._group(key)
        if key not in group:
            group[key] = list(names)
            self._grown.add(key[:2])

    def save(self) -> None:
        """Keep in the cache what was added."""
        for name in sorted(self._grown):
            newest = list(self._groups[name].items())[-_MAX_PAIRS:]
            self._cache.save(f"units {name}", json.dumps(dict(newest), separators=(",", ":")).encode())

    def _group(self, key: str) -> dict[str, list[str]]:
        name = key[:2]
        if name not in self._groups:
            self._groups[name] = _read(self._cache.load(f"units {name}"))
        return self._groups[name]


def _key(schema: str, query: str) -> str:
    return digest(f"{schema} {query}".encode())


def _read(data: bytes | None) -> dict[str, list[str]]:
    """The pairs of an entry; an entry of another form holds none."""
    try:
        value = {} if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return {}
    good = isinstance(value, dict) and all(
        isinstance(names, list) and all(type(name) is str for name in names) for names in value.values()
    )
    return value if good else {}
