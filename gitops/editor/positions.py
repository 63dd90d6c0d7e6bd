"""Positions as editors count them: lines and characters from 0, in the units that client and server agreed on.

The compilers count bytes, editors count code units (of UTF-16 unless they agree on others). A line ends at LF, CRLF or CR only,
unlike `str.splitlines`. Every position has an answer: one outside of the text is moved to the nearest one inside.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import StrEnum

_CONTINUES = 0x80
_LINE_END = re.compile(rb"\r\n|\n|\r")


class Encoding(StrEnum):
    """The units in which a character of a line is counted."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


_CODECS = {Encoding.UTF8: ("utf-8", 1), Encoding.UTF16: ("utf-16-le", 2), Encoding.UTF32: ("utf-32-le", 4)}


class Lines:
    """The lines of one UTF-8 text."""

    __slots__ = ("_codec", "_data", "_ends", "_known", "_starts", "_width")

    def __init__(self, data: bytes, encoding: Encoding = Encoding.UTF16) -> None:
        """Find the line ends; positions count in units of `encoding`."""
        self._data = data
        self._codec, self._width = _CODECS[encoding]
        breaks = [found.span() for found in _LINE_END.finditer(data)]
        self._starts = [0, *(end for _, end in breaks)]
        self._ends = [*(start for start, _ in breaks), len(data)]
        self._known = (0, 0, 0)

    @property
    def count(self) -> int:
        """The number of lines; an empty one after the last line end counts."""
        return len(self._starts)

    def span(self, line: int) -> tuple[int, int]:
        """Start and end of a line in bytes, without its line end."""
        line = min(max(line, 0), self.count - 1)
        return self._starts[line], self._ends[line]

    def line_of(self, offset: int) -> int:
        """The line in which a byte offset lies."""
        return bisect_right(self._starts, max(offset, 0)) - 1

    def position(self, offset: int) -> tuple[int, int]:
        """Line and character of a byte offset; in the middle of a character or line end, those of its start.

        Offsets asked for in rising order cost one pass over a line together, however long it is.
        """
        line = self.line_of(min(offset, len(self._data)))
        start, end = self.span(line)
        offset = min(max(offset, start), end)
        while start < offset < end and _CONTINUES <= self._data[offset] < _CONTINUES + 64:
            offset -= 1
        known_line, known, units = self._known
        if known_line != line or known > offset or known < start:
            known, units = start, 0
        between = self._data[known:offset]
        if between.isascii():
            units += len(between)
        else:
            units += len(between.decode("utf-8", "replace").encode(self._codec)) // self._width
        self._known = (line, offset, units)
        return line, units

    def offset(self, line: int, character: int) -> int:
        """The byte offset of a position; after the end of a line its end, after the last line the end of the text."""
        if line >= self.count:
            return len(self._data)
        start, end = self.span(line)
        text = self._data[start:end]
        if line < 0 or character <= 0:
            return start
        if text.isascii():
            return min(start + character, end)
        units = text.decode("utf-8", "replace").encode(self._codec)[: character * self._width]
        return min(start + len(units.decode(self._codec, "ignore").encode("utf-8")), end)
