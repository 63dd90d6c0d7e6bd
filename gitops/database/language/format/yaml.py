"""The layout of a strict YAML document: indentation, the blank behind a key, blanks at ends of lines, and nothing else.

Steps:

1. Read the document; one that is refused is refused here as well.
2. Find for each line the block keys and list items that begin on it, and how deep they are.
3. Move each line to its depth, two blanks each; one blank behind `:` and `-`; comments go with the line below them.
4. Read the result; if it is not the same document, the text stays as it was.

A document stays as it was, too, if a line of it begins in the middle of a value (text over several lines, a list in brackets
over several lines), or if it has tabs, directives or line ends other than LF and CRLF.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

from gitops.database.language.yaml import ScalarType, YamlList, YamlMap, YamlNode, YamlScalar, is_absent, parse_yaml

_STEP = 2
_ODD = re.compile(r"[\t\v\f\x1c-\x1e\x85\u2028\u2029\ufeff]|\r(?!\n)|^(?:%|\.\.\.|---.)", re.MULTILINE)


class _UnusualError(Exception):
    """The document is written in a way that is left alone."""


def format_yaml(data: bytes) -> bytes:
    """The document in its layout, or `data` itself if it is written in an unusual way. Raises YamlError as the reader does."""
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
    """Where lines begin, by the tree of the document."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._depths: dict[int, int] = {}
        # Columns (from 0) of a line that become one blank: from, to.
        self._gaps: dict[int, list[tuple[int, int]]] = {}

    def block(self, node: YamlNode, depth: int) -> None:
        """Note a collection in block style whose lines begin `depth` blanks in."""
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
                    self.block(value, depth + _STEP)
        else:
            for item in node.items:
                if is_absent(item):
                    raise _UnusualError
                if not self._behind("-", item)[:-1].strip(" "):
                    self._depths.setdefault(item.line, depth)
                self.block(item, depth + _STEP)

    def moved(self) -> list[str]:
        """The lines at their depths; a comment has the depth of the line below it, unless it stood deeper."""
        result: list[str] = []
        below: tuple[int, int] | None = None
        above = list(accumulate(range(len(self._lines) + 1), lambda last, n: self._depths.get(n, last)))
        for number in range(len(self._lines), 0, -1):
            line = self._lines[number - 1]
            bare = line.lstrip(" ")
            if bare.startswith("#"):
                written = len(line) - len(bare)
                if below is None:
                    # A comment at the very end in the first column belongs to the whole document.
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
        """Note that a key or value begins here; if it is the first of its line, the line has its depth."""
        if not self._before(node):
            self._depths.setdefault(node.line, depth)
        elif node.line not in self._depths:
            raise _UnusualError

    def _behind(self, mark: str, node: YamlNode) -> str:
        """Note that one blank parts a value from the mark before it; returns the line up to there."""
        before = self._before(node)
        if not before.endswith(mark):
            raise _UnusualError
        self._gaps.setdefault(node.line, []).append((len(before), node.column - 1))
        return before

    def _refuse_block_text(self, node: YamlNode) -> None:
        """Other values over several lines have lines that nothing begins on."""
        if isinstance(node, YamlScalar) and node.type is ScalarType.TEXT and self._at(node) in "|>":
            raise _UnusualError

    def _before(self, node: YamlNode) -> str:
        return self._lines[node.line - 1][: node.column - 1].rstrip(" ")

    def _at(self, node: YamlNode) -> str:
        return self._lines[node.line - 1][node.column - 1 : node.column] or " "


def _plain(node: YamlNode) -> Any:
    """The document without places, and with the sort of each scalar."""
    if isinstance(node, YamlScalar):
        return node.text, node.type
    if isinstance(node, YamlList):
        return [_plain(item) for item in node.items]
    return {"map": [(_plain(key), _plain(value)) for key, value in node.entries]}
