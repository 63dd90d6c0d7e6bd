"""The second grammars as judges: whether a text belongs to a language, and its tree.

Beyond the grammar files, the specification has a few rules of syntax that no grammar says: sizes of integers, what must not
be said twice, and that no edge is called `not`. They are here. Limits of the implementation (size, depth, very long words) are
not rules of the languages; `beyond_limits` tells the texts that they may concern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput

_HERE = Path(__file__).parent
_LONG = re.compile(rb"[A-Za-z0-9_.]{60}")
_DEPTH = 40
_I64, _U32, _U64 = 2**63 - 1, 2**32 - 1, 2**64 - 1


@cache
def grammar(language: str) -> Lark:
    """The grammar of `pg` or `gq`."""
    text = (_HERE / f"{language}.lark").read_text("utf-8")
    return Lark(text, parser="lalr", lexer="contextual", maybe_placeholders=False)


def parse(language: str, data: bytes) -> Tree | None:
    """The tree of a text, or None if it does not belong to the language."""
    try:
        tree = grammar(language).parse(data.decode("utf-8"))
    except (UnexpectedInput, UnicodeDecodeError):
        return None
    broken = _broken_pg(tree) if language == "pg" else _broken_gq(tree)
    return None if broken else tree


def beyond_limits(data: bytes) -> bool:
    """Return whether a limit of the implementation may concern the text: a long word or number, or deep nesting."""
    depth = deepest = 0
    for byte in data:
        if byte in b"([{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b")]}":
            depth -= 1
    return deepest > _DEPTH or _LONG.search(data) is not None


def leaf(part: Tree | Token) -> Token:
    """The first token of a part."""
    while isinstance(part, Tree):
        part = part.children[0]
    return part


def _broken_pg(tree: Tree) -> bool:
    """A keyword argument is given once."""
    return any(
        _repeats(str(leaf(part)) for part in each.children if isinstance(part, Tree) and part.data == "keyword")
        for each in tree.find_data("arguments")
    )


def _broken_gq(tree: Tree) -> bool:
    """Sizes of literals, row counts and bounds; a note is given once; no edge is called `not`."""
    if any(leaf(each) == "not" for each in tree.find_data("plain_edge")):
        return True
    if any(int(part) > _U64 for each in tree.find_data("limit") for part in each.children if part.type == "INT"):
        return True
    if any(int(part) > _U32 for each in tree.find_data("bounds") for part in each.children):
        return True
    if any(_repeats(leaf(p).type for p in each.find_data("query_note")) for each in tree.find_data("query")):
        return True
    places = ("limit", "bounds", "vector_type")
    literals = (t for each in tree.iter_subtrees() if each.data not in places for t in each.children)
    return any(isinstance(token, Token) and token.type == "INT" and int(token) > _I64 for token in literals)


def _repeats(words: Iterator[str]) -> bool:
    listed = list(words)
    return len(set(listed)) < len(listed)
