"""Completion in schema text, decided by the tokens of the declaration before the cursor."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.editor.completion_items import CompletionItem, property_items, word_items
from gitops.editor.documentation import ANNOTATIONS, SCHEMA_WORDS, TYPE_WORDS
from gitops.editor.schema import CONSTRAINTS, SchemaView
from gitops.editor.symbols import SymbolKind
from gitops.language.lexer import Token, TokenKind
from gitops.language.schema import TypeKind

_DECLARATIONS = ("node", "edge", "interface")
_HEAD = {
    "node": ("description", "instruction", "rename_from"),
    "edge": ("card", "description", "instruction", "rename_from"),
    "interface": (),
}
_ON_PROPERTY = {
    "node": ("key", "unique", "index", "embed", "description", "rename_from"),
    "edge": ("unique", "index", "description", "rename_from"),
    "interface": ("key", "unique", "index", "embed", "description", "rename_from"),
}
_IN_BODY = {"node": CONSTRAINTS, "edge": ("unique", "index"), "interface": ()}


def complete_schema(view: SchemaView, tokens: tuple[Token, ...], word: str) -> Iterator[CompletionItem]:
    """The items that may follow the tokens of one piece; `word` is the beginning of the next token."""
    head = tokens[0].text if tokens else ""
    brace = next((at for at, token in enumerate(tokens) if token.kind is TokenKind.LBRACE), None)
    if head not in _DECLARATIONS or (brace is not None and tokens[-1].kind is TokenKind.RBRACE):
        yield from word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, _DECLARATIONS)
        return
    opened = _open_parenthesis(tokens)
    if opened is not None:
        yield from _argument_items(view, tokens, opened)
    elif brace is None:
        yield from _head_items(view, tokens, word)
    else:
        yield from _member_items(tokens[brace:], head, word)


def _open_parenthesis(tokens: tuple[Token, ...]) -> int | None:
    """The parenthesis that is open at the end."""
    depth = 0
    for at, token in reversed([*enumerate(tokens)]):
        if token.kind is TokenKind.RPAREN:
            depth += 1
        elif token.kind is TokenKind.LPAREN:
            if depth == 0:
                return at
            depth -= 1
        elif token.kind in (TokenKind.LBRACE, TokenKind.RBRACE):
            break
    return None


def _argument_items(view: SchemaView, tokens: tuple[Token, ...], opened: int) -> Iterator[CompletionItem]:
    """The properties of the type that a constraint or `@embed` may name."""
    name = tokens[opened - 1].text if opened else ""
    if name not in (*CONSTRAINTS, "embed") or len(tokens) < 2:  # noqa: PLR2004 - keyword and name
        return
    if name in ("range", "check", "embed") and tokens[-1].kind is not TokenKind.LPAREN:
        return
    kind = TypeKind(tokens[0].text)
    owner = view.declaration(kind, tokens[1].text)
    if owner is not None:
        yield from property_items(view, owner)
    if kind is TypeKind.EDGE:
        yield CompletionItem("src", SymbolKind.END, documentation="The source of the edge.")
        yield CompletionItem("dst", SymbolKind.END, documentation="The target of the edge.")


def _head_items(view: SchemaView, tokens: tuple[Token, ...], word: str) -> Iterator[CompletionItem]:
    head, last = tokens[0].text, tokens[-1]
    listing = any(token.text == "implements" for token in tokens[2:])
    if word.startswith("@"):
        yield from word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _HEAD[head], sign="@")
    elif head == "edge" and last.kind in (TokenKind.COLON, TokenKind.ARROW):
        yield from (
            CompletionItem(each.name, SymbolKind.NODE, documentation=each.description)
            for each in view.declarations(TypeKind.NODE)
        )
    elif listing and (last.text == "implements" or last.kind is TokenKind.COMMA):
        yield from (CompletionItem(each.name, SymbolKind.INTERFACE) for each in view.declarations(TypeKind.INTERFACE))
    elif len(tokens) > 1 and (last.kind is TokenKind.TYPE_NAME or last.kind is TokenKind.RPAREN) and not listing:
        if head == "node":
            yield from word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, ["implements"])
        if head != "edge" or any(token.kind is TokenKind.ARROW for token in tokens):
            yield from word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _HEAD[head], sign="@")


def _member_items(body: tuple[Token, ...], head: str, word: str) -> Iterator[CompletionItem]:
    """A type after `name:`, annotations after a type, constraints where a member may begin."""
    last, before = body[-1], body[-2] if len(body) > 1 else body[-1]
    if last.kind is TokenKind.COLON:
        yield from word_items(TYPE_WORDS, SymbolKind.BASE_TYPE)
    elif last.kind is TokenKind.LBRACKET:
        names = [name for name in TYPE_WORDS if name not in ("Vector", "enum", "Blob")]
        yield from word_items(TYPE_WORDS, SymbolKind.BASE_TYPE, names)
    elif last.kind is TokenKind.LBRACE:
        yield from _constraint_items(head)
    elif last.kind is TokenKind.NAME and before.kind is not TokenKind.AT and not word:
        return
    else:
        yield from word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _ON_PROPERTY[head], sign="@")
        yield from _constraint_items(head)


def _constraint_items(head: str) -> Iterator[CompletionItem]:
    for name in _IN_BODY[head]:
        yield CompletionItem(f"@{name}(..)", SymbolKind.ANNOTATION, documentation=ANNOTATIONS[name], insert=f"@{name}(")
