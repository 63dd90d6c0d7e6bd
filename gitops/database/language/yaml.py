"""Strict YAML 1.2: a tree of nodes with positions, built from parser events without recursion.

Differences from other loaders, with reasons:

1. Scalars follow the YAML 1.2 core schema: `yes`, `on`, `010` with a leading zero, and dates are plain strings.
2. Anchors, aliases and tags are rejected, because an alias can make a small file enormous, and a tag can refer to code.
3. A duplicate mapping key is reported at its line, in block and flow style. No value is silently preferred.
4. Only one document is allowed. Bytes, depth and nodes are limited during reading, not afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from enum import StrEnum
from typing import Any, NoReturn

from gitops.core.dataclass import dataclass

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 100_000
_SHOWN_CHARACTERS = 128
_MAX_INTEGER_CHARACTERS = 18


class ScalarType(StrEnum):
    """A scalar's type under the YAML 1.2 core schema. A quoted or block scalar is always TEXT."""

    NULL = "null"
    BOOL = "boolean"
    INT = "integer"
    FLOAT = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class YamlScalar:
    """A scalar with its text as written, after unquoting. `line` and `column` count from 1, as in every node."""

    text: str
    type: ScalarType
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlList:
    """A sequence."""

    items: tuple[YamlNode, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class YamlMap:
    """A mapping in source order. Every key is a scalar."""

    entries: tuple[tuple[YamlScalar, YamlNode], ...]
    line: int
    column: int


YamlNode = YamlScalar | YamlList | YamlMap


_TABS = "indent with spaces: YAML does not allow tabs there"
_OPENED = {
    "while parsing a flow mapping": ("the `{`", "}"),
    "while parsing a flow sequence": ("the `[`", "]"),
    "while scanning a quoted scalar": ("the quote", '"'),
}
_SYNTAX = "look for a missing colon, quote or bracket at this line or the line before it"


class YamlFault(StrEnum):
    """The kinds of problems in a document."""

    SYNTAX = "syntax"
    DUPLICATE_KEY = "duplicate key"
    ALIAS = "alias"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class YamlProblem:
    """One problem and its location.

    `path` is the dotted path of a repeated key, and otherwise empty. `fix` is the remedy, if known.
    """

    fault: YamlFault
    message: str
    line: int
    column: int
    path: str = ""
    fix: str | None = None

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


class YamlError(Exception):
    """Raised for a rejected document.

    `problems` has at least one problem, in source order. If the only problems are repeated keys, `root` is the
    document, so that more problems can be reported, but it must not be used as a valid document.
    """

    def __init__(self, problems: tuple[YamlProblem, ...], root: YamlNode | None) -> None:
        """Create the exception; its text is the first problem's."""
        super().__init__(str(problems[0]))
        self.problems = problems
        self.root = root


def shown(text: str) -> str:
    """Return `text` for use in paths and messages: on one line, without invisible characters, and not too long."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_SHOWN_CHARACTERS])
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def parse_yaml(data: bytes) -> YamlNode:
    """Parse one document. An empty document is a null scalar. For any input, raises only YamlError."""
    return _Builder().read(data)


def spans(text: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Return where each node of a valid document ends: from its line and column to its start and end as character offsets.

    A block collection ends with its last node, not with the space and comments that follow. A key that starts a block
    mapping has the position of that mapping; the span is then the mapping's.
    """
    import yaml

    found: dict[tuple[int, int], tuple[int, int]] = {}
    stack: list[tuple[Any, int]] = []
    events: Iterator[Any] = yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    for event in events:
        name = type(event).__name__
        if name in ("SequenceStartEvent", "MappingStartEvent"):
            stack.append((event, event.end_mark.index))
            continue
        if name == "ScalarEvent":
            start, end = event.start_mark, event.end_mark.index
        elif name in ("SequenceEndEvent", "MappingEndEvent"):
            opened, last = stack.pop()
            start, end = opened.start_mark, event.end_mark.index if opened.flow_style else last
        else:
            continue
        found[start.line + 1, start.column + 1] = start.index, end
        if stack:
            stack[-1] = stack[-1][0], end
    return found


def to_plain(node: YamlNode) -> Any:
    """Convert a document to JSON values. Keys become strings, and integers with more than 18 digits remain strings."""
    if isinstance(node, YamlMap):
        return {key.text: to_plain(value) for key, value in node.entries}
    if isinstance(node, YamlList):
        return [to_plain(item) for item in node.items]
    text = node.text
    if node.type is ScalarType.NULL:
        return None
    if node.type is ScalarType.BOOL:
        return text.lower() == "true"
    if node.type is ScalarType.FLOAT:
        return float(text.replace(".", "", 1) if text.lower().endswith(("inf", "nan")) else text)
    if node.type is ScalarType.INT and len(text) <= _MAX_INTEGER_CHARACTERS:
        return integer(text)
    return text


def is_absent(node: YamlNode) -> bool:
    """Return True if the value is missing. An explicit null counts as a value."""
    return isinstance(node, YamlScalar) and node.type is ScalarType.NULL and node.text == ""


def integer(text: str) -> int:
    """Return the value of an INT scalar that is not excessively long. A leading zero does not make it octal."""
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_RESOLVE = re.compile(
    r"""(?P<null>|~|null|Null|NULL)
      | (?P<boolean>true|True|TRUE|false|False|FALSE)
      | (?P<integer>[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)
      | (?P<number>[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?
                 |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))""",
    re.VERBOSE,
)


@dataclass(slots=True)
class _Frame:
    """A collection under construction: `key` waits for its value, `keys` is None for a sequence."""

    line: int
    column: int
    keys: dict[str, int] | None
    entries: list[tuple[YamlScalar, YamlNode]] = field(default_factory=list)
    items: list[YamlNode] = field(default_factory=list)
    key: YamlScalar | None = None


class _Builder:
    """Turns parser events into nodes with a stack of open collections."""

    def __init__(self) -> None:
        self._root: YamlNode = YamlScalar("", ScalarType.NULL, 1, 1)
        self._repeated: list[YamlProblem] = []
        self._stack: list[_Frame] = []
        self._nodes = 0

    def read(self, data: bytes) -> YamlNode:
        """Parse the document. Raises YamlError."""
        import yaml

        if len(data) > MAX_BYTES:
            self._stop(YamlFault.LIMIT, f"the document has more than {MAX_BYTES} bytes", 1, 1)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            place = _position(data, error.start)
            self._stop(YamlFault.SYNTAX, "the document is not UTF-8", *place, fix="save the file as UTF-8")
        documents = 0
        try:
            events: Iterator[Any] = yaml.parse(data, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            for event in events:
                name, line, column = type(event).__name__, event.start_mark.line + 1, event.start_mark.column + 1
                if name == "DocumentStartEvent":
                    documents += 1
                    if documents > 1:
                        message, fix = (
                            "the file contains more than one YAML document",
                            "delete the line --- between them",
                        )
                        self._stop(YamlFault.SYNTAX, message, line, column, fix=fix)
                elif name in ("SequenceEndEvent", "MappingEndEvent"):
                    frame = self._stack.pop()
                    if frame.keys is None:
                        self._put(YamlList(tuple(frame.items), frame.line, frame.column))
                    else:
                        self._put(YamlMap(tuple(frame.entries), frame.line, frame.column))
                elif name in ("ScalarEvent", "SequenceStartEvent", "MappingStartEvent", "AliasEvent"):
                    self._node(event, name, line, column)
        except yaml.YAMLError as error:
            opened = _OPENED.get(getattr(error, "context", None) or "")
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            if opened is not None and mark is not None and not data.decode()[mark.index :].strip():
                # An unclosed item is detected at the end of the text, but the user needs its start.
                mark = error.context_mark  # type: ignore[attr-defined]
            place = (mark.line + 1, mark.column + 1) if mark else _position(data, getattr(error, "position", None) or 0)
            if place[1] == 1 and mark and mark.index >= len(data.decode()) and not data.endswith((b"\n", b"\r")):
                # The parser adds a missing line end to the last line, but there is no line after it.
                place = (mark.line, 1)
            message = getattr(error, "problem", None) or getattr(error, "reason", None) or "the document is not YAML"
            line = data.split(b"\n")[place[0] - 1 : place[0]]
            fix = _TABS if line and line[0].lstrip(b" ").startswith(b"\t") else _SYNTAX
            if opened is not None and mark is getattr(error, "context_mark", None):
                message, fix = f"{opened[0]} is not closed", f"close it with `{opened[1]}`"
            self._stop(YamlFault.SYNTAX, f"not valid YAML: {shown(str(message))}", *place, fix=fix)
        if self._repeated:
            raise YamlError(tuple(self._repeated), self._root)
        return self._root

    def _node(self, event: Any, name: str, line: int, column: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            self._stop(YamlFault.LIMIT, f"the document has more than {MAX_NODES} nodes", line, column)
        if event.anchor is not None:
            mark = "*" if name == "AliasEvent" else "&"
            detail = f"`{mark}{shown(event.anchor)}`: anchors and aliases are not allowed; write out the value"
            self._stop(YamlFault.ALIAS, detail, line, column)
        if event.tag is not None:
            message = f"the tag '{shown(event.tag)}' is not allowed, because values must be plain"
            self._stop(YamlFault.SYNTAX, message, line, column, fix="delete the tag")
        if name == "ScalarEvent":
            match = _RESOLVE.fullmatch(event.value) if event.implicit[0] else None
            kind = ScalarType.TEXT if match is None else ScalarType(str(match.lastgroup))
            self._put(YamlScalar(event.value, kind, line, column))
            return
        parent = self._stack[-1] if self._stack else None
        if parent is not None and parent.keys is not None and parent.key is None:
            message, fix = (
                "a mapping key must be a plain or quoted scalar",
                "write one word before the colon, or put the key in quotes",
            )
            self._stop(YamlFault.SYNTAX, message, line, column, fix=fix)
        if len(self._stack) >= MAX_DEPTH:
            self._stop(YamlFault.LIMIT, f"the document is nested deeper than {MAX_DEPTH}", line, column)
        self._stack.append(_Frame(line, column, {} if name == "MappingStartEvent" else None))

    def _put(self, node: YamlNode) -> None:
        if not self._stack:
            self._root = node
            return
        frame = self._stack[-1]
        if frame.keys is None:
            frame.items.append(node)
        elif frame.key is not None:
            frame.entries.append((frame.key, node))
            frame.key = None
        elif isinstance(node, YamlScalar):
            frame.key = node
            if node.text in frame.keys:
                path = self._path()
                message = f"the key {path} is repeated; it is in line {frame.keys[node.text]} already"
                self._repeated.append(YamlProblem(YamlFault.DUPLICATE_KEY, message, node.line, node.column, path))
            frame.keys.setdefault(node.text, node.line)

    def _path(self) -> str:
        """Return the dotted path of the last key that was read."""
        path = ""
        for frame in self._stack:
            if frame.keys is None:
                path += f"[{len(frame.items)}]"
            elif frame.key is not None:
                path += f".{shown(frame.key.text)}" if path else shown(frame.key.text)
        return path

    def _stop(self, fault: YamlFault, message: str, line: int, column: int, *, fix: str | None = None) -> NoReturn:
        raise YamlError((*self._repeated, YamlProblem(fault, message, line, column, fix=fix)), None)


def _position(data: bytes, offset: int) -> tuple[int, int]:
    before = data[:offset]
    start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[start:].decode("utf-8", "replace")) + 1
