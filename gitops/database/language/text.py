"""Source text of both languages: byte spans, positions for messages, and a common problem type.

Spans are half-open byte offsets `[start, end)` into the UTF-8 text. Positions in messages have 1-based lines and
columns. Columns are counted in characters, as in editors.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum

from gitops.database.language.record import Record


class Stage(StrEnum):
    """The stage that found a problem. It is also the rendered message's prefix."""

    PARSE = "parse"
    CATALOG = "catalog"
    TYPE = "type"
    LIMIT = "limit"


class Span(Record):
    """A half-open byte range `[start, end)` in a source text."""

    start: int
    end: int


class Name(Record):
    """A name and its location: a type, property, edge, alias, or variable without `$`."""

    text: str
    span: Span


class LanguageProblem(Record):
    """One problem in a source text.

    `rule` is the label of the broken rule (`S-03`, `T6`; empty for a plain grammar failure), stable for tests and
    documentation. `message` mentions the items involved, and `fix` is the remedy, if known.
    """

    stage: Stage
    rule: str
    message: str
    span: Span
    fix: str | None = None

    def rendered(self) -> str:
        """The message, prefixed with its stage. Omits the rule label, which is for programs."""
        return f"{self.stage} error: {self.message}"


class LanguageError(Exception):
    """A source text was rejected. Contains all problems found (at least one), in source order."""

    def __init__(self, *problems: LanguageProblem) -> None:
        """Store the problems; the exception's text is the first problem's text."""
        super().__init__(problems[0].rendered())
        self.problems = problems


_CONTINUATION = bytes(range(0x80, 0xC0))
_BLOCK = 4096


class SourceText:
    """The bytes of one `.pg` or `.gq` file, with the line and column of each offset."""

    __slots__ = ("_blocks", "_starts", "data")

    def __init__(self, data: bytes) -> None:
        """Store the bytes; lines are counted when the first position is requested."""
        self.data = data
        self._starts: list[int] | None = None
        self._blocks: list[int] | None = None

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and column of a byte offset, both counted from 1. Columns are counted in characters.

        One pass over the text serves all offsets, in any order and for any line length.
        """
        starts = self._line_starts()
        line = bisect_right(starts, offset)
        return line, self._characters_before(offset) - self._characters_before(starts[line - 1]) + 1

    def line_span(self, line: int) -> Span:
        """Return the byte span of a line (counted from 1), without its line feed.

        Raises IndexError if the line does not exist.
        """
        starts = self._line_starts()
        end = starts[line] - 1 if line < len(starts) else len(self.data)
        return Span(starts[line - 1], end)

    def _characters_before(self, offset: int) -> int:
        """Count the characters that begin before an offset; continuation bytes do not count."""
        blocks = self._blocks
        if blocks is None:
            blocks = [0]
            for start in range(0, len(self.data), _BLOCK):
                blocks.append(blocks[-1] + _count_characters(self.data[start : start + _BLOCK]))
            self._blocks = blocks
        block = min(offset, len(self.data)) // _BLOCK
        return blocks[block] + _count_characters(self.data[block * _BLOCK : offset])

    def _line_starts(self) -> list[int]:
        starts = self._starts
        if starts is None:
            starts = [0]
            at = self.data.find(b"\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.data.find(b"\n", at + 1)
            self._starts = starts
        return starts


def _count_characters(data: bytes) -> int:
    return len(data.translate(None, _CONTINUATION))
