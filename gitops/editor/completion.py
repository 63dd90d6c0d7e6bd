"""Completion at an offset. It looks only at the text before the offset, so it works in unfinished text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.gitops_yaml import DEFAULT_SIGNERS, KEY_ROWS
from gitops.cluster.config.keys import LISTS, documentation_path, keys_below
from gitops.cluster.config.rule_forms import form_of
from gitops.cluster.config.source import PathKind, SourceError, SourceTree
from gitops.database.language.lexer import Token, TokenKind
from gitops.database.language.schema import TypeKind
from gitops.database.language.schema.conversion import HINTS
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.text import Span
from gitops.editor.cluster import ClusterView
from gitops.editor.documentation import ANNOTATIONS, FUNCTION_WORDS, QUERY_WORDS, SCHEMA_WORDS, TYPE_WORDS
from gitops.editor.navigate import keys_of
from gitops.editor.query import BracketContent, QueryView, read_query
from gitops.editor.schema import CONSTRAINTS, Declaration, SchemaView
from gitops.editor.symbols import Symbol, SymbolKind
from gitops.editor.texts import MAX_READ_BYTES, QUERIES, SCHEMA, EditorFile, TextCache, folder_of, join_path
from gitops.editor.tokens import TextPiece, ends_in_comment_or_string, read_tokens, word_start

_WORD_ENDS = b" \t\r\n,[]{}\"'"


class Completion(NamedTuple):
    """Completion items for the word in a span that ends at the cursor."""

    span: Span
    items: tuple[CompletionItem, ...]


_NOTHING = Completion(Span(0, 0), ())


def complete(cache: TextCache, file: EditorFile, offset: int) -> Completion:
    """Return the items that fit at an offset. In comments there are none; in strings, only enum members.

    Never raises, whatever the text.
    """
    if len(file.data) > MAX_READ_BYTES:
        return _NOTHING
    keys = keys_of(file.path)
    if keys is not None:
        return _complete_settings(cache, file, keys, offset)
    if not file.path.endswith((SCHEMA, QUERIES)):
        return _NOTHING
    start = word_start(file.data, offset)
    word = file.data[start:offset].decode("utf-8", "replace")
    # The piece that the user is editing contains the character before the cursor.
    if file.path.endswith(QUERIES):
        begin = cache.piece_at(file.data, max(offset - 1, 0)).start
    else:
        pieces = (piece for piece, _ in reversed(cache.schema_view(file.data).pieces) if piece.start < offset)
        begin = next(pieces, TextPiece(0, b"")).start
    before = file.data[begin:offset]
    tokens = read_tokens(before)
    schema = cache.view_of(file)
    if ends_in_comment_or_string(before, tokens):
        if not file.path.endswith(QUERIES) or not tokens or tokens[-1].end != len(before):
            return _NOTHING
        return _complete_string(file, schema, tokens, begin, offset)
    tokens = tuple([each for each in tokens if begin + each.end <= start])
    if file.path.endswith(QUERIES):
        found = complete_query(read_query(tokens, schema), tokens, schema, word)
    else:
        found = complete_schema(cache.schema_view(file.data), tokens, word)
    return Completion(Span(start, offset), unique_items(found))


def _complete_string(
    file: EditorFile, schema: SchemaView, tokens: tuple[Token, ...], begin: int, offset: int
) -> Completion:
    """Return the values that fit into an open string. The quote that many editors insert after the cursor is kept."""
    start, before = begin + tokens[-1].start, tokens[:-1]
    items = complete_query(read_query(before, schema), before, schema, "")
    quoted = [each for each in items if each.label.startswith('"')]
    if file.data[offset : offset + 1] == b'"':
        quoted = [each._replace(insert=each.label[:-1]) for each in quoted]
    return Completion(Span(start, offset), unique_items(quoted))


def _complete_settings(cache: TextCache, file: EditorFile, keys: Mapping[str, str], offset: int) -> Completion:
    begin = file.data.rfind(b"\n", 0, offset) + 1
    line = file.data[begin:offset]
    if b"#" in line:
        return _NOTHING
    start = offset
    while start > begin and file.data[start - 1] not in _WORD_ENDS:
        start -= 1
    items = _settings(cache, file, keys, line.decode("utf-8", "replace"), offset)
    return Completion(Span(start, offset), unique_items(items))


def _settings(
    cache: TextCache, file: EditorFile, keys: Mapping[str, str], line: str, offset: int
) -> Iterator[CompletionItem]:
    """Yield keys by depth, and values; `line` is the line up to the cursor."""
    view = cache.cluster_view(file.data)
    bare = line.lstrip(" ")
    indent = len(line) - len(bare)
    written, colon, _ = bare.removeprefix("- ").partition(":")
    start, dashed = offset - len(line.encode()), bare.startswith("-")
    # A list can have the same indent as its key.
    parent = view.parent(start, indent + 1 if dashed else indent)
    if colon:
        yield from value_items(file, view, documentation_path((*parent, written.strip().strip("\"'")), keys))
        return
    if dashed:
        yield from value_items(file, view, documentation_path(parent, keys))
    taken = set() if dashed else view.keys_before(start, parent)
    in_list = documentation_path(parent, keys) in LISTS
    for name, documentation in keys_below(parent, keys).items():
        if name not in taken and (in_list or not dashed):
            yield CompletionItem(name, KEY, documentation=documentation, insert=f"{name}: ")


# Completion in schema and query text, decided by the tokens before the cursor: the tokens of a declaration, or the open
# bracket.


KEY, FILE, VALUE = "key", "file", "value"
_MAX_ITEMS = 500
_DECLARATIONS = ("node", "edge", "interface")
_HEAD = {
    "node": ("description", "instruction", "rename_from"),
    "edge": ("card", "description", "instruction", "rename_from"),
    "interface": (),
}
_ON_PROPERTY = {
    "node": ("key", "unique", "index", "embed", "description", *HINTS),
    "edge": ("unique", "index", "description", *HINTS),
    "interface": ("key", "unique", "index", "embed", "description", *HINTS),
}
_IN_BODY = {"node": CONSTRAINTS, "edge": ("unique", "index"), "interface": ()}
_COMPARISONS = (TokenKind.EQ, TokenKind.NE, TokenKind.LT, TokenKind.LE, TokenKind.GT, TokenKind.GE)
_OPERATORS = ("contains", "starts_with")
_INSTANTS = ("now", "date", "datetime")
_WRITES = ("insert", "update", "delete", "where")
_NEXT_SECTIONS = {"match": ("return",), "return": ("order", "limit"), "order": ("limit",), "limit": ()}
_MEMBER = re.compile(r"[A-Za-z0-9_\-]+")


class CompletionItem(NamedTuple):
    """A replacement for the word at the cursor. `kind` is a SymbolKind, or `key`, `file`, `value`."""

    label: str
    kind: str
    detail: str = ""
    documentation: str = ""
    insert: str | None = None


def _word_items(
    table: Mapping[str, str], kind: SymbolKind, names: Iterable[str] | None = None, *, sign: str = ""
) -> Iterator[CompletionItem]:
    """Yield the words of a documentation table, or only the words in `names`; `sign` is the prefix of each."""
    for name in table if names is None else names:
        yield CompletionItem(f"{sign}{name}", kind, documentation=table.get(name, ""))


def _property_items(view: SchemaView, owner: Declaration, suffix: str = "") -> Iterator[CompletionItem]:
    """Yield the properties of a type; `suffix` is written after each."""
    for name, (_, each) in sorted(view.properties(owner).items()):
        yield CompletionItem(
            name, SymbolKind.PROPERTY, each.type, each.description, f"{name}{suffix}" if suffix else None
        )


def unique_items(found: Iterable[CompletionItem]) -> tuple[CompletionItem, ...]:
    """Return the first item for each label, at most 500."""
    return tuple({each.label: each for each in reversed([*found][:_MAX_ITEMS])}.values())[::-1]


def complete_schema(view: SchemaView, tokens: tuple[Token, ...], word: str) -> Iterator[CompletionItem]:
    """Yield the items that can follow the tokens of one piece. `word` is the start of the next token."""
    head = tokens[0].text if tokens else ""
    brace = next((at for at, token in enumerate(tokens) if token.kind is TokenKind.LBRACE), None)
    if head not in _DECLARATIONS or (brace is not None and tokens[-1].kind is TokenKind.RBRACE):
        yield from _word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, _DECLARATIONS)
        return
    opened = _open_parenthesis(tokens)
    if opened is not None:
        yield from _argument_items(view, tokens, opened)
    elif brace is None:
        yield from _head_items(view, tokens, word)
    else:
        yield from _member_items(tokens[brace:], head, word)


def _open_parenthesis(tokens: tuple[Token, ...]) -> int | None:
    """Return the index of the parenthesis that is open at the end."""
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
    """Yield the properties of the type that a constraint or `@embed` can refer to."""
    name = tokens[opened - 1].text if opened else ""
    if name not in (*CONSTRAINTS, "embed") or len(tokens) < 2:  # noqa: PLR2004 - keyword and name
        return
    if name in ("range", "check", "embed") and tokens[-1].kind is not TokenKind.LPAREN:
        return
    kind = TypeKind(tokens[0].text)
    owner = view.declaration(kind, tokens[1].text)
    if owner is not None:
        yield from _property_items(view, owner)
    if kind is TypeKind.EDGE:
        yield CompletionItem("src", SymbolKind.END, documentation="The source of the edge.")
        yield CompletionItem("dst", SymbolKind.END, documentation="The target of the edge.")


def _head_items(view: SchemaView, tokens: tuple[Token, ...], word: str) -> Iterator[CompletionItem]:
    head, last = tokens[0].text, tokens[-1]
    listing = any(token.text == "implements" for token in tokens[2:])
    if word.startswith("@"):
        yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _HEAD[head], sign="@")
    elif head == "edge" and last.kind in (TokenKind.COLON, TokenKind.ARROW):
        yield from (
            CompletionItem(each.name, SymbolKind.NODE, documentation=each.description)
            for each in view.declarations(TypeKind.NODE)
        )
    elif listing and (last.text == "implements" or last.kind is TokenKind.COMMA):
        yield from (CompletionItem(each.name, SymbolKind.INTERFACE) for each in view.declarations(TypeKind.INTERFACE))
    elif len(tokens) > 1 and (last.kind is TokenKind.TYPE_NAME or last.kind is TokenKind.RPAREN) and not listing:
        if head == "node":
            yield from _word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, ["implements"])
        ended = head == "edge" and any(token.kind is TokenKind.ARROW for token in tokens)
        if head != "edge" or ended:
            yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _HEAD[head], sign="@")
        if ended:
            # An edge doesn't need a body, so the next declaration can follow.
            yield from _word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, _DECLARATIONS)


def _member_items(body: tuple[Token, ...], head: str, word: str) -> Iterator[CompletionItem]:
    """Yield a type after `name:`, annotations after a type, and constraints at the start of a member."""
    last, before = body[-1], body[-2] if len(body) > 1 else body[-1]
    if last.kind is TokenKind.COLON:
        yield from _word_items(TYPE_WORDS, SymbolKind.BASE_TYPE)
    elif last.kind is TokenKind.LBRACKET:
        names = [name for name in TYPE_WORDS if name not in ("Vector", "enum", "Blob")]
        yield from _word_items(TYPE_WORDS, SymbolKind.BASE_TYPE, names)
    elif last.kind is TokenKind.LBRACE:
        yield from _constraint_items(head)
    elif last.kind is TokenKind.NAME and before.kind is not TokenKind.AT and not word:
        return
    else:
        yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _ON_PROPERTY[head], sign="@")
        yield from _constraint_items(head)


def _constraint_items(head: str) -> Iterator[CompletionItem]:
    for name in _IN_BODY[head]:
        yield CompletionItem(f"@{name}(..)", SymbolKind.ANNOTATION, documentation=ANNOTATIONS[name], insert=f"@{name}(")


def complete_query(
    view: QueryView, tokens: tuple[Token, ...], schema: SchemaView, word: str
) -> Iterator[CompletionItem]:
    """Yield the items that can follow the tokens of one piece, read as `view`."""
    return _QueryCompletion(view, tokens, schema, word).items()


class _QueryCompletion:
    def __init__(self, view: QueryView, tokens: tuple[Token, ...], schema: SchemaView, word: str) -> None:
        self._view = view
        self._tokens = tokens
        self._schema = schema
        self._is_variable = word.startswith("$")

    def items(self) -> Iterator[CompletionItem]:
        if self._kind(1) is TokenKind.DOT:
            symbol = self._view.variables.get(self._text(2))
            owner = None if symbol is None else self._schema.declaration(symbol.type_kind, symbol.owner)
            return iter(()) if owner is None else _property_items(self._schema, owner)
        by_block: Mapping[BracketContent, Callable[[], Iterator[CompletionItem]]] = {
            BracketContent.FILE: self._outside,
            BracketContent.PARAMETERS: self._parameter_type,
            BracketContent.BODY: self._section,
            BracketContent.MATCH: self._clause,
            BracketContent.NOT: self._clause,
            BracketContent.PAIRS: self._pair,
            BracketContent.SET: self._pair,
            BracketContent.RETURN: self._return_item,
            BracketContent.ORDER: self._order_item,
            BracketContent.CALL: self._argument,
            BracketContent.LIST: self._parameter_type,
        }
        found = by_block.get(self._view.frames[-1].block)
        return iter(()) if found is None else found()

    def _kind(self, back: int) -> TokenKind | None:
        return self._tokens[-back].kind if len(self._tokens) >= back else None

    def _text(self, back: int) -> str:
        return self._tokens[-back].text if len(self._tokens) >= back else ""

    def _outside(self) -> Iterator[CompletionItem]:
        if self._view.ended or not self._tokens:
            yield CompletionItem("query", SymbolKind.KEYWORD, documentation=QUERY_WORDS["query"], insert="query ")
        elif self._kind(1) is TokenKind.RPAREN:
            yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, ("description", "instruction"), sign="@")

    def _parameter_type(self) -> Iterator[CompletionItem]:
        blocks = [frame.block for frame in self._view.frames]
        if BracketContent.PARAMETERS in blocks and self._kind(1) in (TokenKind.COLON, TokenKind.LBRACKET):
            left_out = ("enum", "Vector", "Blob") if blocks[-1] is BracketContent.LIST else ("enum",)
            names = [name for name in TYPE_WORDS if name not in left_out]
            yield from _word_items(TYPE_WORDS, SymbolKind.BASE_TYPE, names)

    def _section(self) -> Iterator[CompletionItem]:
        last = self._text(1)
        if last in ("insert", "update", "delete"):
            yield from self._types(TypeKind.NODE)
            if last != "update":
                yield from self._types(TypeKind.EDGE)
        elif last == "where" and self._view.written is not None:
            yield from self._properties_of_type(self._view.written, "")
        elif self._kind(1) is TokenKind.TYPE_NAME:
            yield from _keywords(("set", "where") if self._text(2) == "update" else ("where",))
        elif self._kind(1) in _COMPARISONS:
            yield from _named(self._view.parameters)
            yield from _functions(_INSTANTS)
        elif last != "limit":
            written = {each.symbol.name for each in self._view.occurrences if each.symbol.kind is SymbolKind.KEYWORD}
            sections = [name for name in ("match", "return", "order", "limit") if name in written]
            if sections:
                yield from _keywords(_NEXT_SECTIONS[sections[-1]])
            else:
                yield from _keywords(
                    _WRITES if written.intersection(_WRITES) else ("match", "insert", "update", "delete")
                )

    def _clause(self) -> Iterator[CompletionItem]:
        last = self._kind(1)
        if last is TokenKind.COLON:
            # `$a $e:` is followed by the edge that `$e` stands for, and `$v:` by a node type.
            if self._kind(2) is TokenKind.VAR and self._kind(3) is TokenKind.VAR and not self._ends_hop(3):
                yield from self._edges(self._text(3), undirected=False)
            else:
                yield from self._types(TypeKind.NODE)
        elif last is TokenKind.LT and self._kind(2) is TokenKind.VAR and not self._is_variable:
            yield from self._edges(self._text(2), undirected=True)
            yield from self._values()
        elif last in _COMPARISONS:
            yield from self._members_of_compared()
            yield from self._values()
        elif last is TokenKind.VAR and not self._ends_hop(1) and self._kind(2) not in _COMPARISONS:
            if not self._is_variable:
                yield from self._edges(self._text(1), undirected=False)
                yield from _keywords(_OPERATORS)
        else:
            yield from _named(self._view.variables)
            if not self._is_variable:
                yield from _keywords(("not", *(_OPERATORS if self._kind(2) is TokenKind.DOT else ())))
                yield from _functions(("search", "fuzzy", "match_text"))

    def _ends_hop(self, back: int) -> bool:
        """Return whether a variable ends a hop, so that the clause is complete after it."""
        start = self._tokens[-back].start
        before = [each for each in self._view.occurrences if each.end <= start]
        return bool(before) and before[-1].symbol.kind is SymbolKind.EDGE

    def _pair(self) -> Iterator[CompletionItem]:
        owner = self._view.frames[-1].owner
        if self._kind(1) is TokenKind.COLON:
            name = self._text(2)
            if owner is not None:
                yield from self._members(Symbol(SymbolKind.PROPERTY, name, owner.name, owner.type_kind))
            yield from _named(self._view.parameters)
            yield from _functions(_INSTANTS)
            yield from _keywords(("true", "false"))
        elif owner is not None and not self._is_variable:
            yield from self._properties_of_type(owner, ": ")

    def _members_of_compared(self) -> Iterator[CompletionItem]:
        """Yield the enum members of the property in `$variable.property` before a comparison."""
        symbol = self._view.variables.get(self._text(4)) if self._kind(3) is TokenKind.DOT else None
        if symbol is not None:
            yield from self._members(Symbol(SymbolKind.PROPERTY, self._text(2), symbol.owner, symbol.type_kind))

    def _members(self, name: Symbol) -> Iterator[CompletionItem]:
        found = self._schema.property(name)
        if found is not None and found[1].type.startswith("enum"):
            for member in _MEMBER.findall(found[1].type.partition("(")[2].rpartition(")")[0]):
                yield CompletionItem(f'"{member}"', VALUE, f"{name.owner}.{name.name}")

    def _return_item(self) -> Iterator[CompletionItem]:
        yield from _named(self._view.variables)
        yield from _named(self._view.parameters)
        if not self._is_variable:
            yield from _functions(("count", "sum", "avg", "min", "max"))
            yield from self._after_item("as")

    def _order_item(self) -> Iterator[CompletionItem]:
        yield from _named(self._view.variables)
        if not self._is_variable:
            yield from (CompletionItem(each, SymbolKind.ALIAS) for each in self._view.aliases)
            yield from _functions(("nearest", "bm25", "rrf"))
            yield from self._after_item("asc", "desc")

    def _after_item(self, *names: str) -> Iterator[CompletionItem]:
        """Yield the words that can follow an item, if there is one."""
        return _keywords(() if self._kind(1) in (TokenKind.LBRACE, TokenKind.COMMA) else names)

    def _argument(self) -> Iterator[CompletionItem]:
        if self._kind(1) is TokenKind.LPAREN and self._text(2) == "rrf":
            return _functions(("nearest", "bm25"))
        return self._values()

    def _values(self) -> Iterator[CompletionItem]:
        yield from _named(self._view.parameters)
        yield from _named(self._view.variables)
        if not self._is_variable:
            yield from _functions(_INSTANTS)
            yield from _keywords(("true", "false"))

    def _properties_of_type(self, owner: Symbol, suffix: str) -> Iterator[CompletionItem]:
        """Yield the properties that can be written or tested."""
        declared = self._schema.declaration(owner.type_kind, owner.name)
        if declared is None:
            return
        if owner.type_kind is TypeKind.EDGE:
            for name, end in (("from", declared.source), ("to", declared.target)):
                insert = f"{name}{suffix}" if suffix else None
                yield CompletionItem(name, SymbolKind.END, end, f"The key of the {end}.", insert)
        yield from _property_items(self._schema, declared, suffix)

    def _types(self, kind: TypeKind) -> Iterator[CompletionItem]:
        for each in self._schema.declarations(kind):
            detail = f"{each.source} -> {each.target}" if kind is TypeKind.EDGE else ""
            yield CompletionItem(each.name, SymbolKind(kind.value), detail, each.description)

    def _edges(self, left: str, *, undirected: bool) -> Iterator[CompletionItem]:
        """Yield the edges that fit a variable; all edges if its type is not known."""
        symbol = self._view.variables.get(left)
        for each in self._schema.declarations(TypeKind.EDGE):
            if symbol is not None and symbol.owner and symbol.owner not in (each.source, each.target):
                continue
            if not undirected or each.source == each.target:
                # In queries, edge names start with a lower-case letter.
                name = each.name[:1].lower() + each.name[1:]
                yield CompletionItem(name, SymbolKind.EDGE, f"{each.source} -> {each.target}", each.description)


def _keywords(names: Iterable[str]) -> Iterator[CompletionItem]:
    return _word_items(QUERY_WORDS, SymbolKind.KEYWORD, names)


def _functions(names: Iterable[str]) -> Iterator[CompletionItem]:
    return _word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, names)


def _named(symbols: Mapping[str, Symbol]) -> Iterator[CompletionItem]:
    return (CompletionItem(each.name, each.kind, each.owner) for each in symbols.values())


# The possible values of a key in `cluster.yaml` or `gitops.yaml`, for completion and for corrections.


_MAX_FOLDERS = 64
_MAX_ENTRIES = 5_000
_MAX_PRINCIPALS = 200
_TRUTH = ("true", "false")
_WORDS = {
    "state.backend": ("cluster",),
    "state.lock": _TRUTH,
    "compute.targets.*.kind": ("materialize",),
    "compute.targets.*.prune": _TRUTH,
    "compute.strategies.*.experimental": _TRUTH,
    "hosts.*.transport": ("ssh", "local"),
    **{key: form_of(row).values for key, row in KEY_ROWS.items()},
}
# YAML 1.1 and other languages use these words for true and false.
_OTHER_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_FILE_ENDINGS = {
    "graphs.*.schema": (SCHEMA,),
    "graphs.*.queries": (QUERIES, "/"),
    "graphs.*.queries.*.file": (QUERIES,),
    "policies.*.file": (".yaml", ".yml"),
    "hosts.*.resources": (".yaml", ".yml"),
}
_PRINCIPALS = frozenset(key for key, row in KEY_ROWS.items() if form_of(row).names == "principals")
_TARGET = "compute.strategies.*.target"
_JUMP = "hosts.*.jump"
_BOUND, _CLUSTER_FOLDER = "policies.*.applies_to", "clusters.path"


def value_items(file: EditorFile, view: ClusterView, key: str) -> Iterator[CompletionItem]:
    """Yield the allowed values of a key. The key is given as in the documentation."""
    yield from (CompletionItem(word, VALUE) for word in _WORDS.get(key, ()))
    if key == _TARGET:
        yield from (CompletionItem(name, VALUE, "target") for name in view.names("compute", "targets"))
    if key == _JUMP:
        yield from (CompletionItem(name, VALUE, "host") for name in view.names("hosts"))
    if key == _BOUND:
        yield CompletionItem("cluster", VALUE, documentation="The whole cluster.")
        yield from (CompletionItem(name, SymbolKind.NODE, "graph") for name in view.names("graphs"))
    if key in _PRINCIPALS:
        yield from (CompletionItem(name, VALUE, "principal") for name in _principals(file, view))
    if key == _CLUSTER_FOLDER:
        for each in _file_items(file.tree, folder_of(file.path), (CONFIG_FILE,)):
            yield CompletionItem(folder_of(each.label), FILE)
    if key in _FILE_ENDINGS:
        for each in _file_items(file.tree, folder_of(file.path), _FILE_ENDINGS[key]):
            if each.label.rpartition("/")[2] != CONFIG_FILE:
                yield each


def nearest_value(file: EditorFile, view: ClusterView, key: str, written: str) -> str | None:
    """Return the allowed value closest to the written one. None if the key has no fixed values or none is similar."""
    words = _WORDS.get(key, ())
    if words == _TRUTH and written.lower() in _OTHER_TRUTH:
        return _OTHER_TRUTH[written.lower()]
    if len(words) == 1:
        return None if written == words[0] else words[0]
    # For paths in the same folder, compare only the names. Otherwise, the longer the folder, the more alike its paths
    # would look.
    folder = written[: written.rstrip("/").rfind("/") + 1]
    labels = [each.label.removeprefix(folder) for each in value_items(file, view, key) if each.label.startswith(folder)]
    found = did_you_mean(written.removeprefix(folder), labels)
    return None if found is None else folder + found.name


def _principals(file: EditorFile, view: ClusterView) -> Iterator[str]:
    """Yield the principals with keys. An unfinished file is read as far as possible."""
    written = next((value.text for value in view.values("approvals", "allowed_signers")), DEFAULT_SIGNERS)
    try:
        data = file.tree.read(join_path(folder_of(file.path), written))
    except SourceError:
        return
    lines = data.decode("utf-8", "replace").splitlines()
    named = (line.split()[0].partition(",")[0] for line in lines if line.strip() and not line.startswith("#"))
    yield from list(dict.fromkeys(named))[:_MAX_PRINCIPALS]


def _file_items(tree: SourceTree, folder: str, endings: tuple[str, ...]) -> Iterator[CompletionItem]:
    """Yield the files below a folder with one of the endings, and subfolders if `/` is an ending.

    Hidden ones are omitted.
    """
    waiting, entries = [""], 0
    for _ in range(_MAX_FOLDERS):
        if not waiting:
            return
        below = waiting.pop(0)
        try:
            names = tree.names(join_path(folder, below or "."))
        except SourceError:
            continue
        for name in names:
            entries += 1
            if name.startswith(".") or entries > _MAX_ENTRIES:
                continue
            inner = f"{below}{name}"
            if name.endswith(endings):
                yield CompletionItem(inner, FILE)
                continue
            try:
                is_folder = tree.kind(join_path(folder, inner)) is PathKind.DIR
            except SourceError:
                continue
            if is_folder:
                waiting.append(f"{inner}/")
                if "/" in endings:
                    yield CompletionItem(f"{inner}/", FILE)
