"""What a word of a text stands for."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gitops.language.schema import TypeKind
from gitops.language.text import Span

__all__ = ["FileSpan", "Occurrence", "Symbol", "SymbolKind", "is_local", "occurrence_at"]


class SymbolKind(StrEnum):
    """The sorts of names and words, as hovers name them."""

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
    """What is meant: two words with equal symbols mean the same.

    `owner` is the type of a property (with its `kind`), or that of a variable, or the declared type of a parameter; empty
    if it is not known. `declared` tells names of one query from each other: the offset of the word that introduces it.
    """

    sort: SymbolKind
    name: str
    owner: str = ""
    kind: TypeKind | None = None
    declared: int | None = None


class Occurrence(NamedTuple):
    """A word and what it stands for; `declares` if it is the one that introduces the name."""

    start: int
    end: int
    symbol: Symbol
    declares: bool = False


class FileSpan(NamedTuple):
    """A span of a file; `path` as in the tree that was asked."""

    path: str
    span: Span


LOCAL = frozenset({SymbolKind.PARAMETER, SymbolKind.VARIABLE, SymbolKind.EDGE_VARIABLE, SymbolKind.ALIAS})


def is_local(symbol: Symbol) -> bool:
    """Whether the name belongs to one query and means nothing outside of it."""
    return symbol.sort in LOCAL


def occurrence_at(marks: tuple[Occurrence, ...], offset: int) -> Occurrence | None:
    """The mark over an offset; the end of a word still belongs to it, unless the next one begins there."""
    ending = None
    for mark in marks:
        if mark.start <= offset < mark.end:
            return mark
        if mark.end == offset:
            ending = mark
    return ending
