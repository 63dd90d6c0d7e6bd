"""The meaning of one word of a text: which name it is, and where that name is declared."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gitops.database.language.schema import TypeKind
from gitops.database.language.text import Span


class SymbolKind(StrEnum):
    """The kinds of names and words, as hovers name them."""

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
    """A name with its meaning; two words with equal symbols mean the same.

    `owner` is the type of a property (with its `type_kind`), the type of a variable, or the declared type of a parameter;
    empty if it is not known. `declared` is the offset of the word that declares a name of one query.
    """

    kind: SymbolKind
    name: str
    owner: str = ""
    type_kind: TypeKind | None = None
    declared: int | None = None


class Occurrence(NamedTuple):
    """A word of a piece of text and its symbol; `declares` if the word declares the name."""

    start: int
    end: int
    symbol: Symbol
    declares: bool = False


class FileSpan(NamedTuple):
    """A span of the file at `path`, a path of the tree that was read."""

    path: str
    span: Span


def is_local(symbol: Symbol) -> bool:
    """Whether the name is known in one query only."""
    return symbol.kind in (SymbolKind.PARAMETER, SymbolKind.VARIABLE, SymbolKind.EDGE_VARIABLE, SymbolKind.ALIAS)


def occurrence_at(occurrences: tuple[Occurrence, ...], offset: int) -> Occurrence | None:
    """The occurrence over an offset; the offset after a word still belongs to it, unless the next word begins there."""
    ending = None
    for occurrence in occurrences:
        if occurrence.start <= offset < occurrence.end:
            return occurrence
        if occurrence.end == offset:
            ending = occurrence
    return ending
