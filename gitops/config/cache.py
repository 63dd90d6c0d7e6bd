"""What earlier runs of this very program found out and may be asked again: a hint, never a fact that permits anything."""

from __future__ import annotations

from typing import Protocol


class CompileCache(Protocol):
    """Entries by name. Nothing here fails: what cannot be read is not there, and what cannot be kept is forgotten.

    An entry is given back only as it was kept, whole, by the same edition of the program: the same sources of the languages
    and of the loader on the same Python. Processes may use one cache at the same time; the last to keep an entry wins.
    """

    def load(self, name: str) -> bytes | None:
        """The entry of this name, or None."""
        ...

    def save(self, name: str, data: bytes) -> None:
        """Keep an entry, in place of an older one of its name."""
        ...
