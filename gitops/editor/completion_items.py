"""The items of a completion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gitops.editor.schema import Declaration, SchemaView
from gitops.editor.symbols import SymbolKind
from gitops.language.lexer import Token, TokenKind

__all__ = ["FILE", "KEY", "CompletionItem", "ends_in_comment_or_string", "property_items", "unique_items", "word_items"]

KEY, FILE, VALUE = "key", "file", "value"
_COMMENT = re.compile(rb"//[^\n]*+|/\*(?s:.*?)(?:\*/|\Z)")
_MAX_ITEMS = 500


class CompletionItem(NamedTuple):
    """A text for the place of the word at the cursor. `kind` is a SymbolKind, or `key`, `file`, `value`."""

    label: str
    kind: str
    detail: str = ""
    documentation: str = ""
    insert: str | None = None


def word_items(
    table: Mapping[str, str], kind: SymbolKind, names: Iterable[str] | None = None, *, sign: str = ""
) -> Iterator[CompletionItem]:
    """The words of a documentation table, or only those in `names`; `sign` is written before each."""
    for name in table if names is None else names:
        yield CompletionItem(f"{sign}{name}", kind, documentation=table.get(name, ""))


def property_items(view: SchemaView, owner: Declaration, suffix: str = "") -> Iterator[CompletionItem]:
    """The properties of a type; `suffix` is written after each."""
    for name, (_, each) in sorted(view.properties(owner).items()):
        yield CompletionItem(
            name, SymbolKind.PROPERTY, each.type, each.description, f"{name}{suffix}" if suffix else None
        )


def unique_items(found: Iterable[CompletionItem]) -> tuple[CompletionItem, ...]:
    """The first item of each label, at most 500."""
    return tuple({each.label: each for each in reversed([*found][:_MAX_ITEMS])}.values())[::-1]


def ends_in_comment_or_string(before: bytes, tokens: tuple[Token, ...]) -> bool:
    """Whether the end of `before`, whose tokens these are, is inside a comment or a string."""
    if tokens and tokens[-1].kind is TokenKind.STRING and tokens[-1].end == len(before):
        text = tokens[-1].text
        return len(text) == 1 or not text.endswith('"') or text.endswith('\\"')
    start = tokens[-1].end if tokens else 0
    for found in _COMMENT.finditer(before, start):
        if found.end() == len(before):
            return found[0].startswith(b"//") or not found[0].endswith(b"*/") or len(found[0]) < len("/**/")
    return False
