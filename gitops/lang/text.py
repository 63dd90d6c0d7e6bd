"""Source text of both languages: spans in bytes, positions for people, one kind of problem.

Spans are half-open byte offsets `[start, end)` into the UTF-8 text. Positions shown to people are 1-based
lines and 1-based columns counted in characters, as editors show them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import StrEnum


class Stage(StrEnum):
    """Where in the front end a problem was found; also the prefix of its rendered message."""

    PARSE = "parse"
    CATALOG = "catalog"
    TYPE = "type"


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open byte range `[start, end)` of a source text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a source text.

    `rule` is the label of the broken rule (`S-03`, `T6`; empty for a plain grammar failure), stable for tests and
    documentation. `message` names the items involved; `fix` says the way out, when one is known.
    """

    stage: Stage
    rule: str
    message: str
    span: Span
    fix: str | None = None

    def rendered(self) -> str:
        """The message with its stage in front, and the rule code of a type rule."""
        code = f"{self.rule}: " if self.stage is Stage.TYPE and self.rule else ""
        return f"{self.stage} error: {code}{self.message}"


class LanguageError(Exception):
    """A source text was refused; carries every problem found, in source order, at least one."""

    def __init__(self, *problems: Problem) -> None:
        """Keep the problems; the exception's text is the first one's."""
        super().__init__(problems[0].rendered())
        self.problems = problems


@dataclass(slots=True)
class SourceText:
    """The bytes of one `.pg` or `.gq` file, and the way from offsets to lines and columns."""

    data: bytes
    _starts: list[int] | None = field(default=None, repr=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of a byte offset, both from 1; the column counts characters."""
        starts = self._starts
        if starts is None:
            starts = [0]
            at = self.data.find(b"\n")
            while at >= 0:
                starts.append(at + 1)
                at = self.data.find(b"\n", at + 1)
            self._starts = starts
        line = bisect_right(starts, offset)
        begin = starts[line - 1]
        return line, len(self.data[begin:offset].decode("utf-8", "replace")) + 1
