"""Loose object files: checks them before libgit2 reads them, and writes them where git would start a process for each.

Up to 1.9, libgit2 never returns from a loose object whose compressed data end too early (libgit2#7342), and writes past
its buffer for one whose header states a smaller size than it has (libgit2#7177). Git refuses both. The files of a
repository that is verified come from another machine, so each is first inflated here, once, with bounded memory. This
takes about 5 microseconds per object, a quarter of the time for reading one.

Source: gitformat-loose(5), gitrepository-layout(5).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gitops.core.codes import Code
from gitops.core.errors import GitopsError

_CHUNK = 256 * 1024
_MAX_HEADER = 32
_MAX_DEPTH = 5
_KINDS = (b"commit", b"tree", b"blob", b"tag")


def is_whole(file: BinaryIO) -> bool:
    """Return True if a file is a complete loose object: zlib data up to its end, and a header with the right size."""
    inflate = zlib.decompressobj()
    try:
        start = inflate.decompress(file.read(_CHUNK), _MAX_HEADER)
        header, end, content = start.partition(b"\0")
        kind, _, size = header.partition(b" ")
        if not end or kind not in _KINDS or not size.isdigit():
            return False
        length = len(content)
        while not inflate.eof and length <= int(size):
            data = inflate.unconsumed_tail or file.read(_CHUNK)
            found = inflate.decompress(data, _CHUNK)
            if not data and not found:
                return False
            length += len(found)
    except zlib.error:
        return False
    return inflate.eof and length == int(size) and not inflate.unused_data and not file.read(1)


def object_folders(objects: Path, depth: int = 0) -> Iterator[Path]:
    """Yield an object folder and its alternates (gitrepository-layout(5), `objects/info/alternates`)."""
    yield objects
    try:
        lines = (objects / "info" / "alternates").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        if depth < _MAX_DEPTH and line and not line.startswith("#"):
            yield from object_folders(objects / line, depth + 1)


def write_loose(objects: Path, object_id: str, raw: bytes) -> None:
    """Atomically write an object, given its header and content, into an object folder.

    Raises GitopsError `git_failed`.
    """
    folder = objects / object_id[:2]
    path = folder / object_id[2:]
    if path.exists():
        return
    part = folder / f"tmp_obj_{secrets.token_hex(8)}"
    try:
        folder.mkdir(exist_ok=True)
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444), "wb") as file:
                file.write(zlib.compress(raw, 1))
            part.rename(path)
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise GitopsError(Code.GIT_FAILED, f"object {object_id} cannot be written: {error}", path=str(path)) from error
