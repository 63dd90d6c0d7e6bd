"""Formats both languages and YAML: returns the same text in its canonical layout.

Tests check these laws: the syntax tree stays the same except for positions, and the tokens stay the same except for
optional commas; comments keep their order and text; formatting is idempotent.

A layout is a list of operations, built from tokens with their comments. The printer follows these rules:

1. A group is written on one line if it fits into `WIDTH` and contains neither a comment nor a line break; otherwise every
   `LINE` and `SOFT` directly in it is a line break.
2. A comment stays on the line that it followed, or on a separate line, as written. The token after a comment
   that ended a line goes to a new line, indented one step more if the layout has no line break there.
3. At most one blank line is kept, where the layout allows it, but never at the start or end of a block.

Decisions depend only on tokens and comments, never on the old line breaks, which makes the layout idempotent.

In query text, the tree determines which tokens belong together, but the tokens are written. In schema text, each
declaration and each member is on one line, unless it is too long.

In a strict YAML document, only indentation, the space after a key, and spaces at line ends are changed:

1. Read the document; a document that the reader rejects is rejected here too.
2. For each line, find the block keys and list items that begin on it, and their depth.
3. Indent each line by two spaces per depth, with one space after `:` and `-`; comments move with the line below them.
4. Read the result; if it is not the same document, keep the original text.

A document is also unchanged if a line begins in the middle of a value (multi-line text, or a multi-line list in
brackets), or if it has tabs, directives or line ends other than LF and CRLF.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from gitops.core.errors import BugError
from gitops.database.language.lexer import Lexer, Token, TokenKind
from gitops.database.language.query.ast import Bind, Clause, Delete, Hop, Insert, Not, Query, Read, Statement
from gitops.database.language.query.parser import parse_queries
from gitops.database.language.schema.ast import SchemaDocument
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ProblemCollector
from gitops.database.language.text import LanguageError, Span
from gitops.database.language.yaml import ScalarType, YamlList, YamlMap, YamlNode, YamlScalar, is_absent, parse_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def format_schema(source: bytes) -> bytes:
    """Format schema text. Only the grammar is checked.

    Raises `LanguageError` with every grammar problem.
    """

    def parse(data: bytes) -> SchemaDocument:
        found = ProblemCollector()
        tree = parse_schema(data, found)
        if found.incomplete:
            raise LanguageError(*found.problems())
        return tree

    tree, tokens = parse(source), read_source_tokens(source, enums=True)
    result = write(schema_layout(LayoutWriter(tokens, tight=frozenset({TokenKind.EQ})))).encode("utf-8")
    _require_same(tokens, read_source_tokens(result, enums=True))
    _require(without_spans(parse(result)) == without_spans(tree))
    return result


def format_queries(source: bytes) -> bytes:
    """Format query text. Only the grammar is checked, not names and types.

    Raises `LanguageError` with every grammar problem.
    """
    tree, tokens = parse_queries(source), read_source_tokens(source, enums=False)
    result = write(query_layout(LayoutWriter(tokens), tree)).encode("utf-8")
    _require_same(tokens, read_source_tokens(result, enums=False))
    _require(without_spans(parse_queries(result)) == without_spans(tree))
    return result


def without_spans(tree: Any) -> Any:
    """Convert a syntax tree to nested tuples of class name and fields without spans. Formatting must not change these."""
    if isinstance(tree, tuple):
        fields = tuple(without_spans(each) for each in tree if not isinstance(each, Span))
        return (type(tree).__name__, fields) if hasattr(tree, "_fields") else fields
    return tree


def _require_same(before: list[SourceToken], after: list[SourceToken]) -> None:
    """Raise an error if formatting changed words or comments."""
    words = [[each.text for each in tokens if each.kind is not TokenKind.COMMA] for tokens in (before, after)]
    comments = [[comment.text for each in tokens for comment in each.comments] for tokens in (before, after)]
    _require(words[0] == words[1] and comments[0] == comments[1])


def _require(same: bool) -> None:
    # Check this on every run, because formatting must never change what a text means.
    if not same:
        raise BugError("formatting would change what a text means; the file is left as it is")


WIDTH = 120
"""Maximum line length, in characters, where the formatter can break lines."""

_STEP = "    "
_NO_SPACE_BEFORE = frozenset(
    {
        TokenKind.COMMA,
        TokenKind.RPAREN,
        TokenKind.RBRACKET,
        TokenKind.DOT,
        TokenKind.DOTDOT,
        TokenKind.LPAREN,
        TokenKind.COLON,
        TokenKind.QUESTION,
    }
)
_NO_SPACE_AFTER = frozenset(
    {TokenKind.LPAREN, TokenKind.LBRACKET, TokenKind.DOT, TokenKind.DOTDOT, TokenKind.AT, TokenKind.MINUS}
)
_COMMENT = re.compile(rb"//[^\n]*+|/\*(?s:.*?)\*/")


class SourceComment(NamedTuple):
    """A comment, whether it is on a separate line, and whether a blank line precedes it."""

    text: str
    own_line: bool
    blank: bool


class LayoutToken(NamedTuple):
    """A token as written, with the comments before it. `closes` marks the closing bracket of a block or list."""

    text: str
    comments: tuple[SourceComment, ...] = ()
    blank: bool = False
    closes: bool = False


class LayoutOp(Enum):
    """Operations between tokens. Without an operation, there is no space between two tokens."""

    SPACE = auto()
    SOFT = auto()
    """Nothing if the group is on one line, otherwise a line break."""
    LINE = auto()
    """A space if the group is on one line, otherwise a line break."""
    HARD = auto()
    """A line break, without a blank line."""
    KEEP = auto()
    """A line break, with a blank line if there was one."""
    BLANK = auto()
    """A line break with a blank line."""
    OPEN = auto()
    CLOSE = auto()
    INDENT = auto()
    DEDENT = auto()


Layout = list[LayoutToken | LayoutOp]

_BREAKS = frozenset({LayoutOp.HARD, LayoutOp.KEEP, LayoutOp.BLANK})
_GAPS = {LayoutOp.SPACE: 1, LayoutOp.LINE: 1, LayoutOp.SOFT: 0}


def write(layout: Layout) -> str:
    """Print a layout, with a line feed after each line. Without tokens, the result is empty."""
    text = _Printer(layout).text()
    return text + "\n" if text else ""


class _Printer:
    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._ends, self._broken = _measure_groups(layout)
        self._out: list[str] = []
        self._column = 0
        self._indent = 0
        self._pending: LayoutOp | None = None
        self._modes = [True]

    def text(self) -> str:
        for at, op in enumerate(self._layout):
            if isinstance(op, LayoutToken):
                self._write_token(op)
            elif op is LayoutOp.OPEN:
                self._modes.append(self._broken[at] or not self._fits(at))
            elif op is LayoutOp.CLOSE:
                self._modes.pop()
            elif op is LayoutOp.INDENT:
                self._indent += 1
            elif op is LayoutOp.DEDENT:
                self._indent -= 1
            elif op in (LayoutOp.LINE, LayoutOp.SOFT) and self._modes[-1]:
                self._pending = LayoutOp.HARD
            else:
                self._pending = op
        return "".join(self._out)

    def _write_token(self, token: LayoutToken) -> None:
        gap, self._pending = self._pending, None
        breaks = gap in _BREAKS
        alone = ended = False
        inner = self._indent + (1 if token.closes or not breaks else 0)
        for comment in token.comments:
            if comment.own_line or ended or not self._out:
                self._break(inner, blank=breaks and (comment.blank if alone else _has_blank_line(gap, comment.blank)))
                alone = True
            else:
                self._put(" ")
            self._put(comment.text)
            ended = comment.text.startswith("//")
        if not token.text:
            return
        if breaks or alone or ended:
            blank = breaks and not token.closes and (token.blank if alone else _has_blank_line(gap, token.blank))
            self._break(self._indent if breaks or token.closes else inner, blank=blank)
        elif token.comments or (gap is not None and _GAPS[gap]):
            self._put(" ")
        self._put(token.text)

    def _break(self, indent: int, *, blank: bool) -> None:
        if self._out:
            self._out.append("\n\n" if blank else "\n")
            self._column = 0
            self._put(_STEP * indent)

    def _put(self, text: str) -> None:
        self._out.append(text)
        last = text.rfind("\n")
        self._column = self._column + len(text) if last < 0 else len(text) - last - 1

    def _fits(self, start: int) -> bool:
        """Return whether a group, with everything that must follow on the same line, fits into `WIDTH`."""
        column = self._column
        if self._pending in _BREAKS:
            column = len(_STEP) * self._indent
        elif self._pending is not None:
            column += _GAPS[self._pending]
        end, depth = self._ends[start], len(self._modes)
        for at in range(start + 1, len(self._layout)):
            op = self._layout[at]
            if isinstance(op, LayoutToken):
                head, newline, _ = op.text.partition("\n")
                column += len(head)
                if newline:
                    return column <= WIDTH
            elif op in _BREAKS:
                return column <= WIDTH
            elif op is LayoutOp.OPEN and at > end:
                depth += 1
            elif op is LayoutOp.CLOSE and at > end:
                depth -= 1
            elif op in _GAPS:
                if at > end and op is not LayoutOp.SPACE and depth <= len(self._modes) and self._modes[depth - 1]:
                    return column <= WIDTH
                column += _GAPS[op]
            if column > WIDTH:
                return False
        return True


def _has_blank_line(gap: LayoutOp | None, written: bool) -> bool:
    return gap is LayoutOp.BLANK or (gap is LayoutOp.KEEP and written)


def _measure_groups(layout: Layout) -> tuple[dict[int, int], dict[int, bool]]:
    """Return the end of each group, and whether its content prevents a single line."""
    ends: dict[int, int] = {}
    broken: dict[int, bool] = {}
    opened: list[int] = []
    fresh = False
    for at, op in enumerate(layout):
        if op is LayoutOp.OPEN:
            opened.append(at)
            broken[at] = False
            fresh = True
        elif op is LayoutOp.CLOSE:
            start = opened.pop()
            ends[start] = at
            if opened and broken[start]:
                broken[opened[-1]] = True
        elif isinstance(op, LayoutToken):
            # Comments before a group's first token are written before the group.
            if opened and ((op.comments and not fresh) or "\n" in op.text):
                broken[opened[-1]] = True
            fresh = False
        elif op in _BREAKS and opened:
            broken[opened[-1]] = True
    return ends, broken


class SourceToken(NamedTuple):
    """One token of the source. `blank` is true if a blank line precedes it."""

    kind: TokenKind
    text: str
    start: int
    comments: tuple[SourceComment, ...]
    blank: bool


def read_source_tokens(data: bytes, *, enums: bool) -> list[SourceToken]:
    """Return all tokens in order, including the end of the file.

    With `enums`, members of `enum(..)` are read by the schema language's rules.

    Trailing spaces in comments are removed. Raises `LanguageError` for text that is not a token.
    """
    found: list[SourceToken] = []
    lexer = Lexer(data)
    before = TokenKind.EOF
    end = 0

    def add(token: Token) -> TokenKind:
        nonlocal end
        comments: list[SourceComment] = []
        for comment in _COMMENT.finditer(data, end, token.start):
            lines = data.count(b"\n", end, comment.start())
            text = "\n".join(line.rstrip(" \t\r") for line in comment[0].decode("utf-8").split("\n"))
            comments.append(SourceComment(text, lines > 0, lines > 1))
            end = comment.end()
        lines = data.count(b"\n", end, token.start)
        found.append(SourceToken(token.kind, token.text, token.start, tuple(comments), lines > 1))
        end = token.end
        return token.kind

    while True:
        token = lexer.advance()
        if add(token) is TokenKind.EOF:
            return found
        opens_enum = enums and token.kind is TokenKind.NAME and token.text == "enum" and before is not TokenKind.AT
        before = token.kind
        if opens_enum and lexer.at(TokenKind.LPAREN):
            while add(lexer.advance()) in (TokenKind.LPAREN, TokenKind.COMMA):
                add(lexer.enum_member())


class LayoutWriter:
    """Writes one text's tokens in order, with the layout between them.

    The text must already have been parsed.
    """

    def __init__(self, tokens: list[SourceToken], *, tight: frozenset[TokenKind] = frozenset()) -> None:
        """Start at the first token; tokens of kinds in `tight` are written without spaces around them."""
        self.layout: Layout = []
        self._touches_left = _NO_SPACE_BEFORE | tight
        self._touches_right = _NO_SPACE_AFTER | tight
        self._tokens = tokens
        self._at = 0
        self._carried: tuple[SourceComment, ...] = ()

    @property
    def current(self) -> SourceToken:
        """The next token to write. The last token is the end of the file."""
        return self._tokens[self._at]

    def at(self, kind: TokenKind, text: str | None = None) -> bool:
        """Return True if the next token has this kind and, if given, this text."""
        return self.current.kind is kind and text in (None, self.current.text)

    def following(self, distance: int) -> SourceToken:
        """Return the token `distance` positions after the next one, or the end of the file."""
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def put(self, *ops: LayoutOp) -> None:
        """Add layout operations before the next token."""
        self.layout.extend(ops)

    def take(self, count: int = 1, *, closes: bool = False) -> None:
        """Write the next tokens.

        Comments before a comma are written after it, because a comma is written directly after the preceding token.
        """
        for _ in range(count):
            piece = self.current
            if piece.kind is TokenKind.COMMA:
                self.comma(wanted=True)
            else:
                self.layout.append(LayoutToken(piece.text, self._carried + piece.comments, piece.blank, closes))
                self._carried = ()
                self._at += 1

    def words(self, count: int) -> None:
        """Write the next tokens with a space between them."""
        for number in range(count):
            if number:
                self.put(LayoutOp.SPACE)
            self.take()

    def block(self, write_member: Callable[[], None]) -> None:
        """Write the members up to a closing brace, each on a separate line, and then the brace."""
        if not self.at(TokenKind.RBRACE):
            self.put(LayoutOp.INDENT, LayoutOp.HARD)
            write_member()
            while not self.at(TokenKind.RBRACE):
                self.put(LayoutOp.KEEP)
                write_member()
            self.put(LayoutOp.DEDENT, LayoutOp.KEEP)
        self.take(closes=True)

    def comma(self, *, wanted: bool) -> None:
        """Write a comma if `wanted`, and skip a comma in the text. Its comments move to the next token."""
        if wanted:
            self.layout.append(LayoutToken(","))
        if self.at(TokenKind.COMMA):
            self._carried += self.current.comments
            self._at += 1

    def take_until(self, end: int) -> None:
        """Write the tokens that start before byte `end`, with the usual spaces between them."""
        before: TokenKind | None = None
        while self.current.start < end and self.current.kind is not TokenKind.EOF:
            kind = self.current.kind
            if before is not None and before not in self._touches_right and kind not in self._touches_left:
                self.put(LayoutOp.SPACE)
            self.take()
            before = kind

    def bracketed(self, ends: Sequence[int], *, gap: LayoutOp) -> None:
        """Write an opening bracket, parts separated by commas, and the closing bracket, as one group.

        Parts are given by their byte ends. `gap` is written just inside both brackets. A comma after the last part is
        removed; missing commas are added.
        """
        self.put(LayoutOp.OPEN)
        self.take()
        for number, end in enumerate(ends):
            self.put(*((LayoutOp.LINE,) if number else (LayoutOp.INDENT, gap)))
            self.take_until(end)
            self.comma(wanted=number + 1 < len(ends))
        if ends:
            self.put(LayoutOp.DEDENT, gap)
        self.take(closes=True)
        self.put(LayoutOp.CLOSE)

    def end(self) -> Layout:
        """Return the finished layout, including the comments at the end of the file."""
        self.put(LayoutOp.KEEP)
        self.layout.append(LayoutToken("", self._carried + self.current.comments))
        return self.layout


def query_layout(writer: LayoutWriter, queries: Sequence[Query]) -> Layout:
    """Lay out a query file, given its parsed queries."""
    for query in queries:
        writer.put(LayoutOp.BLANK)
        writer.words(2)
        writer.bracketed([param.span.end for param in query.params], gap=LayoutOp.SOFT)
        while writer.at(TokenKind.AT):
            writer.put(LayoutOp.SPACE)
            writer.take(4)
            writer.take(closes=True)
        writer.put(LayoutOp.SPACE)
        writer.take()
        if isinstance(query.body, Read):
            writer.block(partial(_sections, writer, query.body))
        else:
            writer.block(partial(_next_statement, writer, iter(query.body)))
    return writer.end()


def _sections(writer: LayoutWriter, read: Read) -> None:
    writer.take()
    writer.put(LayoutOp.SPACE)
    _clauses(writer, read.clauses)
    for parts in (read.items, read.order):
        if parts:
            writer.put(LayoutOp.KEEP)
            writer.take()
            writer.put(LayoutOp.SPACE)
            writer.bracketed([each.span.end for each in parts], gap=LayoutOp.LINE)
    if read.limit is not None:
        writer.put(LayoutOp.KEEP)
        writer.words(2)


def _clauses(writer: LayoutWriter, clauses: Sequence[Clause]) -> None:
    """Lay out clauses in braces, each on a separate line."""
    waiting = iter(clauses)
    writer.take()
    writer.block(lambda: _clause(writer, next(waiting)))


def _clause(writer: LayoutWriter, clause: Clause) -> None:
    if isinstance(clause, Not):
        writer.take()
        writer.put(LayoutOp.SPACE)
        if len(clause.clauses) > 1:
            _clauses(writer, clause.clauses)
            return
        writer.put(LayoutOp.OPEN)
        writer.take()
        writer.put(LayoutOp.INDENT, LayoutOp.LINE)
        _clause(writer, clause.clauses[0])
        writer.put(LayoutOp.DEDENT, LayoutOp.LINE)
        writer.take(closes=True)
        writer.put(LayoutOp.CLOSE)
    elif isinstance(clause, Bind):
        writer.take_until(clause.type_name.span.end)
        if clause.pairs:
            writer.put(LayoutOp.SPACE)
            writer.bracketed([pair.span.end for pair in clause.pairs], gap=LayoutOp.LINE)
    elif isinstance(clause, Hop):
        # Between the two variables, an edge is written without spaces: `$e:link`, `<link>`, `link{1,2}`.
        writer.take()
        writer.put(LayoutOp.SPACE)
        while writer.current.start < clause.right.span.start:
            writer.take()
        writer.put(LayoutOp.SPACE)
        writer.take()
    else:
        writer.take_until(clause.span.end)


def _next_statement(writer: LayoutWriter, statements: Iterator[Statement]) -> None:
    statement = next(statements)
    writer.take_until(statement.type_name.span.end)
    writer.put(LayoutOp.SPACE)
    if isinstance(statement, Delete):
        writer.take_until(statement.span.end)
        return
    if not isinstance(statement, Insert):
        writer.take()
        writer.put(LayoutOp.SPACE)
    writer.bracketed([pair.span.end for pair in statement.pairs], gap=LayoutOp.LINE)
    if not isinstance(statement, Insert):
        writer.put(LayoutOp.SPACE)
        writer.take_until(statement.span.end)


_CONSTRAINTS = frozenset({"key", "unique", "index", "range", "check"})


def schema_layout(writer: LayoutWriter) -> Layout:
    """Lay out a parsed schema text."""
    before = ""
    while not writer.at(TokenKind.EOF):
        word = writer.current.text
        # Edges are often listed like a table, so keep the author's blank lines between them.
        writer.put(LayoutOp.KEEP if word == before == "edge" else LayoutOp.BLANK)
        _declaration(writer)
        before = word
    return writer.end()


def _declaration(writer: LayoutWriter) -> None:
    writer.put(LayoutOp.OPEN)
    writer.words(2)
    if writer.at(TokenKind.COLON):
        writer.take()
        writer.put(LayoutOp.SPACE)
        writer.words(3)
        if writer.at(TokenKind.AT) and writer.following(1).text == "card":
            writer.put(LayoutOp.SPACE)
            _annotation(writer)
    writer.put(LayoutOp.INDENT)
    _annotations(writer)
    if writer.at(TokenKind.NAME, "implements"):
        writer.put(LayoutOp.LINE)
        writer.words(2)
        while writer.at(TokenKind.COMMA):
            writer.words(2)
    writer.put(LayoutOp.DEDENT)
    has_body = writer.at(TokenKind.LBRACE)
    if has_body:
        writer.put(LayoutOp.LINE)
        writer.take()
    writer.put(LayoutOp.CLOSE)
    if has_body:
        writer.block(lambda: _member(writer))


def _member(writer: LayoutWriter) -> None:
    writer.put(LayoutOp.OPEN)
    if writer.at(TokenKind.AT):
        writer.take(2)
        writer.bracketed(_argument_ends(writer), gap=LayoutOp.SOFT)
    else:
        writer.take(2)
        writer.put(LayoutOp.SPACE)
        writer.take(3 if writer.at(TokenKind.LBRACKET) else 1)
        if writer.at(TokenKind.LPAREN):
            writer.bracketed(_argument_ends(writer), gap=LayoutOp.SOFT)
        if writer.at(TokenKind.QUESTION):
            writer.take()
        writer.put(LayoutOp.INDENT)
        _annotations(writer)
        writer.put(LayoutOp.DEDENT)
    writer.put(LayoutOp.CLOSE)


def _annotations(writer: LayoutWriter) -> None:
    while writer.at(TokenKind.AT):
        if writer.following(1).text in _CONSTRAINTS and writer.following(2).kind is TokenKind.LPAREN:
            return  # a body constraint
        writer.put(LayoutOp.LINE)
        _annotation(writer)


def _annotation(writer: LayoutWriter) -> None:
    writer.take(2)
    if writer.at(TokenKind.LPAREN):
        writer.take_until(_argument_ends(writer)[-1])
        writer.take(closes=True)


def _argument_ends(writer: LayoutWriter) -> list[int]:
    """Return the end of each argument in the open bracket; arguments contain no brackets."""
    ends = []
    distance = 1
    while (piece := writer.following(distance)).kind is not TokenKind.RPAREN:
        if piece.kind is TokenKind.COMMA:
            ends.append(piece.start)
        distance += 1
    return [*ends, piece.start]


_YAML_STEP = 2
_ODD = re.compile(r"[\t\v\f\x1c-\x1e\x85\u2028\u2029\ufeff]|\r(?!\n)|^(?:%|\.\.\.|---.)", re.MULTILINE)


class _UnusualError(Exception):
    """Raised if a document must not be reformatted."""


def format_yaml(data: bytes) -> bytes:
    """Format a YAML document. Return `data` unchanged if its style is unusual.

    Raises YamlError for a document that is not strict YAML.
    """
    root = parse_yaml(data)
    text = data.decode()
    if _ODD.search(text):
        return data
    lines = [line.rstrip(" ") for line in text.replace("\r\n", "\n").split("\n")]
    places = _Places(lines)
    try:
        if not is_absent(root):
            places.block(root, 0)
        result = ("\n".join(places.moved()).strip("\n") + "\n").encode() if any(lines) else b""
    except _UnusualError:
        return data
    return result if _plain(parse_yaml(result)) == _plain(root) else data


class _Places:
    """Line depths and spacing, according to the document's tree."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._depths: dict[int, int] = {}
        # The columns of a line (from 0) to replace with one space: start and end.
        self._gaps: dict[int, list[tuple[int, int]]] = {}

    def block(self, node: YamlNode, depth: int) -> None:
        """Record a block collection whose lines are indented by `depth` spaces."""
        if isinstance(node, YamlScalar) or self._at(node) in "[{":
            self._refuse_block_text(node)
            self._begin(node, depth)
        elif isinstance(node, YamlMap):
            for key, value in node.entries:
                self._begin(key, depth)
                if is_absent(value):
                    continue
                if isinstance(value, YamlScalar) or self._at(value) in "[{":
                    self._refuse_block_text(value)
                    if value.line != key.line:
                        raise _UnusualError
                    self._behind(":", value)
                elif value.line == key.line:
                    raise _UnusualError
                else:
                    self.block(value, depth + _YAML_STEP)
        else:
            for item in node.items:
                if is_absent(item):
                    raise _UnusualError
                if not self._behind("-", item)[:-1].strip(" "):
                    self._depths.setdefault(item.line, depth)
                self.block(item, depth + _YAML_STEP)

    def moved(self) -> list[str]:
        """Return the reindented lines; a comment gets the depth of the line below it, unless it was indented further."""
        result: list[str] = []
        below: tuple[int, int] | None = None
        above = list(accumulate(range(len(self._lines) + 1), lambda last, n: self._depths.get(n, last)))
        for number in range(len(self._lines), 0, -1):
            line = self._lines[number - 1]
            bare = line.lstrip(" ")
            if bare.startswith("#"):
                written = len(line) - len(bare)
                if below is None:
                    # A comment in the first column at the end belongs to the whole document.
                    depth = above[number] if written else 0
                else:
                    depth = below[1] if written <= below[0] else max(above[number], below[1])
                result.append(" " * depth + bare)
            elif not bare or bare == "---":
                result.append(bare)
            elif number not in self._depths:
                raise _UnusualError
            else:
                below = (len(line) - len(bare), self._depths[number])
                for start, end in sorted(self._gaps.get(number, ()), reverse=True):
                    line = f"{line[:start]} {line[end:]}"
                result.append(" " * below[1] + line[below[0] :])
        return result[::-1]

    def _begin(self, node: YamlNode, depth: int) -> None:
        """Record that a key or value begins here; if it is the first on its line, the line gets its depth."""
        if not self._before(node):
            self._depths.setdefault(node.line, depth)
        elif node.line not in self._depths:
            raise _UnusualError

    def _behind(self, mark: str, node: YamlNode) -> str:
        """Record that one space separates a value from the mark before it; return the line up to the mark."""
        before = self._before(node)
        if not before.endswith(mark):
            raise _UnusualError
        self._gaps.setdefault(node.line, []).append((len(before), node.column - 1))
        return before

    def _refuse_block_text(self, node: YamlNode) -> None:
        """Raise `_UnusualError` for block text. Other multi-line values have lines on which no key or value begins."""
        if isinstance(node, YamlScalar) and node.type is ScalarType.TEXT and self._at(node) in "|>":
            raise _UnusualError

    def _before(self, node: YamlNode) -> str:
        return self._lines[node.line - 1][: node.column - 1].rstrip(" ")

    def _at(self, node: YamlNode) -> str:
        return self._lines[node.line - 1][node.column - 1 : node.column] or " "


def _plain(node: YamlNode) -> Any:
    """Return the document without positions, with the type of each scalar."""
    if isinstance(node, YamlScalar):
        return node.text, node.type
    if isinstance(node, YamlList):
        return [_plain(item) for item in node.items]
    return {"map": [(_plain(key), _plain(value)) for key, value in node.entries]}
