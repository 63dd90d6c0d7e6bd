"""The editor service in a warm process: what one key costs in a file of 500 lines.

Each sample has a text that was never seen before, as every key makes one: only what the key did not touch is remembered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from gitops.config.source import MemoryTree
from gitops.editor.completion import complete
from gitops.editor.describe import hover
from gitops.editor.problems import find_problems
from gitops.editor.texts import EditorFile, TextCache
from tests.bench.clusters import SCHEMA, query_text
from tests.bench.measure import Effort, Figure, repeated

_LINES = 500
_TYPE = "node T{0} {{\n  code: String @key\n  text: String? @index\n  size: I64?\n  kind: enum(a, b)\n}}\n"


def figures(effort: Effort) -> Iterator[Figure]:
    """Open a file of queries; a key in it, in a schema, and the requests that follow one."""
    queries = _lines("".join(query_text(f"q{n}", n) for n in range(_LINES // 10)))
    schema = _lines("".join(_TYPE.format(n) for n in range(_LINES // 6)))
    texts, keys = TextCache(), count(1000)

    def typed(data: bytes, before: bytes) -> bytes:
        """The text with a few more digits in the middle, which it never had before."""
        at = data.index(before, len(data) // 2)
        return data[:at] + b"%d" % next(keys) + data[at:]

    def requests() -> None:
        file = _file(texts, "q.gq", typed(queries, b"\n  }\n  return"))
        at = file.data.index(b"$p.name", len(file.data) // 2)
        hover(texts, file, at)
        complete(texts, file, at + len(b"$p."))

    def key(path: str, data: bytes, before: bytes) -> None:
        find_problems(texts, _file(texts, path, typed(data, before)))

    def opened() -> None:
        fresh = TextCache()
        find_problems(fresh, _file(fresh, "q.gq", queries))

    samples = effort.samples
    before = b"\n  }\n  return"
    yield Figure("problems of 500 lines of queries, opened", "ms", repeated(samples, opened))
    yield Figure("a key in them, to its problems", "ms", repeated(samples, lambda: key("q.gq", queries, before)))
    yield Figure("hover and completion after a key", "ms", repeated(samples, requests))
    yield Figure("a key in a schema of 500 lines", "ms", repeated(samples, lambda: key("s/a.pg", schema, b"? @index")))


def _file(texts: TextCache, path: str, data: bytes) -> EditorFile:
    file = texts.file(MemoryTree({"schema.pg": SCHEMA.encode(), path: data}), path)
    if file is None:
        raise RuntimeError(f"{path} cannot be read")
    return file


def _lines(text: str) -> bytes:
    return "".join(text.splitlines(keepends=True)[:_LINES]).encode()
