"""The items of a completion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gitops.editor.schema import Declaration, SchemaView
from gitops.editor.symbols import SymbolKind

KEY, FILE, VALUE = "key", "file", "value"
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
