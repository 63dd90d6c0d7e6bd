"""Reads `cluster.yaml` and `gitops.yaml` for an editor: keys and values by line and indent, even in unfinished text.

Only YAML's block style is read. A list in brackets is read as values, and a mapping in braces is skipped. Problems come
from the loader, which supports all of YAML.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from gitops.database.language.text import Span

_LINE = re.compile(
    rb"(?P<indent> *)(?P<dashes>(?:-(?: +|$))*)"
    rb"(?:(?P<key>[^\s#:\-\[\]{}\"',&*!|>%@`][^\s#:]*(?::[^\s#:]+)*|\"[^\"\n]*\"|'[^'\n]*')[ ]*:(?=[ \t\r]|$))?(?P<rest>[^\r\n]*)"
)
_VALUE = re.compile(rb"\"(?:[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?|#.*|[^\s,\[\]{}#\"'][^,\[\]{}\r\n#]*+")
_MAX_LINES = 50_000
_MAX_DEPTH = 32


class ClusterScalar(NamedTuple):
    """A scalar. Its span covers the text without quotes."""

    text: str
    span: Span


class ClusterEntry(NamedTuple):
    """A key with the path of its parent keys, or a list item, which has no key. `end` is the end of its line.

    `dashed` is true for the first entry of a list item.
    """

    path: tuple[str, ...]
    key: ClusterScalar | None
    values: tuple[ClusterScalar, ...]
    indent: int
    end: int
    dashed: bool


class ClusterView:
    """The entries of a text in order. If several keys have the same path, the first one counts."""

    def __init__(self, entries: tuple[ClusterEntry, ...]) -> None:
        self.entries = entries
        self._below: defaultdict[tuple[str, ...], list[ClusterEntry]] = defaultdict(list)
        self._at: defaultdict[tuple[str, ...], list[ClusterEntry]] = defaultdict(list)
        for each in entries:
            self._at[each.path].append(each)
            if each.key is not None:
                self._below[each.path[:-1]].append(each)

    def below(self, *path: str) -> tuple[ClusterEntry, ...]:
        """Return the keys directly below a key."""
        return tuple(self._below.get(path, ()))

    def values(self, *path: str) -> Iterator[ClusterScalar]:
        """Yield the scalars of a key, including those in its list."""
        for each in self._at.get(path, ()):
            yield from each.values

    def names(self, *section: str) -> dict[str, ClusterScalar]:
        """Return the names that a section declares."""
        found: dict[str, ClusterScalar] = {}
        for each in self.below(*section):
            if each.key is not None:
                found.setdefault(each.key.text, each.key)
        return found

    def parent(self, offset: int, indent: int) -> tuple[str, ...]:
        """Return the key path that a new line at `offset`, indented by `indent` blanks, belongs to."""
        before = [each for each in self.entries if each.end <= offset and each.key is not None]
        if not before:
            return ()
        path, depths = before[-1].path, {each.path: each.indent for each in before}
        around = [n for n in range(1, len(path) + 1) if depths.get(path[:n], 0) < indent]
        return path[: max(around, default=0)]

    def keys_before(self, offset: int, parent: tuple[str, ...]) -> set[str]:
        """Return the keys above an offset that are in the same mapping below `parent`. It can be in a list item."""
        found: set[str] = set()
        for each in reversed(self.entries):
            if each.end >= offset:
                continue
            if each.path[: len(parent)] != parent or each.path == parent:
                break
            if each.key is not None and each.path[:-1] == parent:
                found.add(each.key.text)
            if each.dashed and len(each.path) == len(parent) + 1:
                break
        return found

    def at(self, offset: int) -> tuple[ClusterEntry, ClusterScalar] | None:
        """Return the key or value at an offset."""
        for each in self.entries:
            for value in (each.key, *each.values):
                if value is not None and value.span.start <= offset <= value.span.end:
                    return each, value
        return None


def read_cluster_text(data: bytes) -> ClusterView:
    """Read a file. Never raises, whatever the bytes."""
    entries: list[ClusterEntry] = []
    open_keys: list[tuple[int, str]] = []
    at = 0
    for line in data.split(b"\n")[:_MAX_LINES]:
        found = _LINE.match(line)
        if found is not None and line.strip() and not line.lstrip().startswith(b"#"):
            indent = len(found["indent"]) + len(found["dashes"])
            written = found["key"]
            # A list item can have the same indent as the key of its list.
            level = len(found["indent"]) + (1 if found["dashes"] else 0)
            while open_keys and open_keys[-1][0] >= (level if written is None or found["dashes"] else indent):
                open_keys.pop()
            key = None if written is None else _read_scalar(written, at + found.start("key"))
            if key is not None and len(open_keys) < _MAX_DEPTH:
                open_keys.append((indent, key.text))
            scalars = []
            for value in _VALUE.finditer(found["rest"]):
                if value[0].startswith(b"#"):
                    break
                scalars.append(_read_scalar(value[0], at + found.start("rest") + value.start()))
            path = tuple(name for _, name in open_keys)
            entries.append(ClusterEntry(path, key, tuple(scalars), indent, at + len(line), bool(found["dashes"])))
        at += len(line) + 1
    return ClusterView(tuple(entries))


def _read_scalar(text: bytes, at: int) -> ClusterScalar:
    quote = text[:1]
    if quote in (b'"', b"'"):
        inner = text[1:-1] if len(text) > 1 and text.endswith(quote) else text[1:]
        return ClusterScalar(inner.decode("utf-8", "replace"), Span(at + 1, at + 1 + len(inner)))
    text = text.rstrip()
    return ClusterScalar(text.decode("utf-8", "replace"), Span(at, at + len(text)))
