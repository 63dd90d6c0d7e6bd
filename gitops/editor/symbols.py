"""What a word in a text means (its name and where that name is declared), and positions as editors count them."""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

from gitops.database.language.schema import TypeKind
from gitops.database.language.text import Span


class SymbolKind(StrEnum):
    """Kind of a name or word, as shown in hovers."""

    QUERY = "query"
    PARAMETER = "parameter"
    VARIABLE = "variable"
    EDGE_VARIABLE = "edge variable"
    ALIAS = "alias"
    NODE = "node"
    EDGE = "edge"
    INTERFACE = "interface"
    PROPERTY = "property"
    END = "end of an edge"
    FUNCTION = "function"
    KEYWORD = "keyword"
    ANNOTATION = "annotation"
    BASE_TYPE = "type"


class Symbol(NamedTuple):
    """A name and what it means. Two words with equal symbols mean the same thing.

    `owner` is the type that a property belongs to (of kind `type_kind`), the type of a variable, or the declared type
    of a parameter; empty if unknown. `declared` is the offset of the declaration, for names that are local to a query.
    """

    kind: SymbolKind
    name: str
    owner: str = ""
    type_kind: TypeKind | None = None
    declared: int | None = None


class Occurrence(NamedTuple):
    """A word in a piece of text, with its symbol. `declares` is true if the word declares the name."""

    start: int
    end: int
    symbol: Symbol
    declares: bool = False


class PathSpan(NamedTuple):
    """A span in the file at `path`, which is a path in the tree that was read."""

    path: str
    span: Span


def is_local(symbol: Symbol) -> bool:
    """Return True if the name is local to one query."""
    return symbol.kind in (SymbolKind.PARAMETER, SymbolKind.VARIABLE, SymbolKind.EDGE_VARIABLE, SymbolKind.ALIAS)


def occurrence_at(occurrences: tuple[Occurrence, ...], offset: int) -> Occurrence | None:
    """Return the occurrence at an offset.

    The offset just after a word still belongs to the word, unless the next word begins there.
    """
    ending = None
    for occurrence in occurrences:
        if occurrence.start <= offset < occurrence.end:
            return occurrence
        if occurrence.end == offset:
            ending = occurrence
    return ending


# Positions as editors count them: lines and characters from 0, in units negotiated by client and server.
#
# The compilers count bytes, editors count code units (UTF-16 unless negotiated otherwise). A line ends only at LF, CRLF
# or CR, unlike in `str.splitlines`. All positions are accepted: a position outside of the text is moved to the nearest
# one inside.


_CONTINUES = 0x80
_LINE_ENDS = (b"\n", b"\r")


class Encoding(StrEnum):
    """The units in which characters are counted."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


_CODECS = {Encoding.UTF8: ("utf-8", 1), Encoding.UTF16: ("utf-16-le", 2), Encoding.UTF32: ("utf-32-le", 4)}


class Lines:
    """The lines of a UTF-8 text."""

    __slots__ = ("_codec", "_data", "_known", "_starts", "_width")

    def __init__(self, data: bytes, encoding: Encoding = Encoding.UTF16) -> None:
        """Find all line ends. Positions count in units of `encoding`."""
        self._data = data
        self._codec, self._width = _CODECS[encoding]
        self._starts = [0, *accumulate(map(len, data.splitlines(keepends=True)))]
        if data and not data.endswith(_LINE_ENDS):
            # The last line has no line end, so no line starts after it.
            self._starts.pop()
        self._known = (0, 0, 0)

    @property
    def count(self) -> int:
        """The number of lines, including an empty line after the last line end."""
        return len(self._starts)

    def span(self, line: int) -> tuple[int, int]:
        """Return the start and end of a line in bytes, without its line end."""
        line = min(max(line, 0), self.count - 1)
        start = self._starts[line]
        if line + 1 == self.count:
            return start, len(self._data)
        end = self._starts[line + 1]
        return start, end - (2 if self._data.endswith(b"\r\n", start, end) else 1)

    def line_of(self, offset: int) -> int:
        """Return the number of the line that contains a byte offset."""
        return bisect_right(self._starts, max(offset, 0)) - 1

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and character of a byte offset, rounded down to the start of a character or line break.

        Offsets in ascending order need only one pass over a line, regardless of its length.
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
        """Return the byte offset of a position.

        A position after the end of a line is moved to the end of that line, one after the last line to the end of the
        text.
        """
        if line >= self.count:
            return len(self._data)
        start, end = self.span(line)
        if line < 0 or character <= 0:
            return start
        if self._data[start:end].isascii():
            return min(start + character, end)
        before, _ = self.cut(line, character)
        return min(start + len(before.decode(self._codec, "ignore").encode("utf-8")), end)

    def cut(self, line: int, character: int) -> tuple[bytes, bytes]:
        """Return a line's code units before and after a position, which can be inside a surrogate pair."""
        start, end = self.span(line)
        units = self._data[start:end].decode("utf-8", "replace").encode(self._codec)
        at = len(units) if line >= self.count else max(character, 0) * self._width
        return units[:at], units[at:]


def replace_range(data: bytes, start: tuple[int, int], end: tuple[int, int], text: str, encoding: Encoding) -> bytes:
    """Replace the range between two positions of `data` with `text`, as an editor does.

    An end before the start is treated like the start. Half of a surrogate pair, which UTF-8 cannot encode, becomes
    another one-unit character, so that both sides agree on later positions.
    """
    lines, (codec, _), end = Lines(data, encoding), _CODECS[encoding], max(start, end)
    (before, _), (_, after) = lines.cut(*start), lines.cut(*end)
    changed = (before + text.encode(codec, "replace") + after).decode(codec, "replace")
    return data[: lines.span(start[0])[0]] + changed.encode() + data[lines.span(end[0])[1] :]
