"""The cluster folder that the tests of the editor work in, and texts with a cursor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gitops.cluster.config.source import MemoryTree

DATA = Path(__file__).parents[1] / "data" / "editor"
_FOLDER = DATA / "world"
CURSOR = "|"

WORLD: dict[str, bytes] = {
    path.relative_to(_FOLDER).as_posix(): path.read_bytes() for path in sorted(_FOLDER.rglob("*")) if path.is_file()
}
"""Files by path. Nothing is wrong with them."""


def world(changed: Mapping[str, bytes]) -> MemoryTree:
    """The folder with some files of other contents."""
    return MemoryTree({**WORLD, **changed})


def cursor(text: str) -> tuple[bytes, int]:
    """The text without its one cursor, and the offset of that in bytes."""
    before, mark, after = text.partition(CURSOR)
    assert mark, "the text has no cursor"
    return (before + after).encode(), len(before.encode())
