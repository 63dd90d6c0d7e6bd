"""One cell of a Blob property, whole or in part: of what an answer has, and of what a command writes."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import TYPE_CHECKING

from gitops.core.dataclass import dataclass
from gitops.serving.answers import ApiProblem, ProblemError

if TYPE_CHECKING:
    from gitops.database.graph import BlobCell

PIECE_BYTES = 64 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class BlobPart:
    """So many bytes of a cell from `start` on; `whole` where no part was asked for."""

    cell: BlobCell
    start: int
    length: int
    whole: bool

    @property
    def content_range(self) -> str:
        """The part as a header names it."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{self.cell.size}"

    def pieces(self) -> Generator[bytes, None, None]:
        """The bytes, in pieces of at most 64 KiB."""
        for at in range(0, self.length, PIECE_BYTES):
            yield self.cell.read(self.start + at, min(PIECE_BYTES, self.length - at))


def find_part(cell: BlobCell, asked: str | None, only_of: str | None) -> BlobPart:
    """The part that a Range header asks for, if the cell is that of an If-Range header; else all of it.

    A header that is malformed, or asks for several parts, asks for nothing (RFC 9110, 14.2). Raises ProblemError 416.
    """
    match = None if asked is None else _RANGE.fullmatch(asked.replace(" ", ""))
    if match is None or match[0] == "bytes=-" or only_of not in (None, f'"{cell.tag}"'):
        return BlobPart(cell, 0, cell.size, whole=True)
    first, last = match[1], match[2]
    if not first:
        length = min(int(last), cell.size)
        start = cell.size - length
    else:
        start = int(first)
        if last and int(last) < start:
            return BlobPart(cell, 0, cell.size, whole=True)
        length = min(int(last) + 1 if last else cell.size, cell.size) - start
    if length <= 0:
        more = {"blob_range": {"size": cell.size}}
        message = f"the blob has {cell.size} bytes, and none in this range"
        raise ProblemError(ApiProblem(416, None, message, more, {"Content-Range": f"bytes */{cell.size}"}))
    return BlobPart(cell, start, length, whole=False)


def find_precondition(cell: BlobCell, if_match: str | None, if_none_match: str | None) -> bool:
    """Whether the client has the cell already. Raises ProblemError 412 where it is not the one that the client is after."""
    if if_match is not None and not _names(if_match, cell.tag):
        more = {"precondition_failure": {"expected": if_match[:200], "actual": f'"{cell.tag}"'}}
        raise ProblemError(ApiProblem(412, None, "the blob is another one now", more))
    return if_none_match is not None and _names(if_none_match, cell.tag, weak=True)


def _names(header: str, tag: str, *, weak: bool = False) -> bool:
    each = [text.strip() for text in header.split(",")]
    return "*" in each or f'"{tag}"' in each or (weak and f'W/"{tag}"' in each)
