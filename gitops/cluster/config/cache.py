"""What earlier runs of this very program found out and may be asked again: a hint, never a fact that permits anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

from gitops.core.canonical import digest

# Pairs are spread over entries by the first two digits of their keys; each entry drops its oldest pairs beyond this many.
_MAX_PAIRS = 4096


class CompileCache(Protocol):
    """Entries by name. Nothing here fails: what cannot be read is not there, and what cannot be kept is forgotten.

    An entry is given back only as it was kept, whole, by the same edition of the program: the same sources of the languages
    and of the loader on the same Python. Processes may use one cache at the same time; the last to keep an entry wins.
    """

    def load(self, name: str) -> bytes | None:
        """The entry of this name, or None."""

    def save(self, name: str, data: bytes) -> None:
        """Keep an entry, in place of an older one of its name."""


class MemoryCache:
    """A CompileCache in a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    def load(self, name: str) -> bytes | None:
        """The entry, or None."""
        return self.entries.get(name)

    def save(self, name: str, data: bytes) -> None:
        """Keep an entry."""
        self.entries[name] = data


class SoundPairs:
    """The query files that are known to parse and to check against a schema, by the digests of both.

    A schema alone is a pair with the empty text, a policy one with the kinds of its bindings. Only soundness is kept, never a
    problem: problems are found again on every load. A pair is addressed by content alone, so it holds in every folder, commit
    and clone.
    """

    def __init__(self, cache: CompileCache) -> None:
        self._cache = cache
        self._groups: dict[str, dict[str, list[str]]] = {}
        self._grown: set[str] = set()

    def names(self, schema: str, query: str = "") -> Sequence[str] | None:
        """The queries that the file declares, in its order, all sound against the schema; None if the pair is not known."""
        key = digest(f"{schema} {query}".encode())
        return self._group(key).get(key)

    def add(self, schema: str, query: str, names: Sequence[str]) -> None:
        """Record a pair as sound."""
        key = digest(f"{schema} {query}".encode())
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
        """The pairs that share an entry with a key; an entry of another form holds none."""
        name = key[:2]
        if name not in self._groups:
            data = self._cache.load(f"units {name}")
            try:
                pairs = {} if data is None else json.loads(data)
            except (ValueError, RecursionError):
                pairs = {}
            good = isinstance(pairs, dict) and all(
                isinstance(names, list) and all(type(name) is str for name in names) for names in pairs.values()
            )
            self._groups[name] = pairs if good else {}
        return self._groups[name]
