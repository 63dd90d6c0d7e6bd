"""The editor service in a warm process, and the server as editors start it: what one key costs, and a hover.

Each sample has a text that was never seen before, as every key makes one: only what the key did not touch is remembered.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from itertools import count

from gitops.cluster.config.source import MemoryTree
from gitops.editor.completion import complete
from gitops.editor.navigate import hover
from gitops.editor.problems import find_problems
from gitops.editor.texts import EditorFile, TextCache
from tests.bench.clusters import SCHEMA, query_text
from tests.bench.measure import GITOPS, Effort, Figure, repeated

_LINES, _SCHEMA_LINES = 500, 1000
_TYPE = "node T{0} {{\n  code: String @key\n  text: String? @index\n  size: I64?\n  kind: enum(a, b)\n}}\n"


def figures(effort: Effort) -> Iterator[Figure]:
    """Open a file of queries; a key in it, in a schema, and the requests that follow one."""
    queries = "".join(
        "".join(query_text(f"q{n}", n) for n in range(_LINES // 10)).splitlines(keepends=True)[:_LINES]
    ).encode()
    schema = "".join(_TYPE.format(n) for n in range(_SCHEMA_LINES // 6)).encode()
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
    yield Figure(
        "a key in a schema of 1,000 lines", "ms", repeated(samples, lambda: key("s/a.pg", schema, b"? @index"))
    )
    yield from _served(samples, schema.decode())


def _served(samples: int, schema: str) -> Iterator[Figure]:
    """The same over standard input and output, as an editor asks for it."""
    document, line, versions = {"uri": "file:///nowhere/a.pg"}, _SCHEMA_LINES // 2, count(2)
    server = subprocess.Popen([*GITOPS, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(**message: object) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        server.stdin.flush()

    def wait(wanted: Callable[[dict], bool]) -> None:
        while True:
            size = int(server.stdout.readline().removeprefix(b"Content-Length: "))
            while server.stdout.readline().strip():
                pass
            if wanted(json.loads(server.stdout.read(size))):
                return

    def ask(method: str, **params: object) -> None:
        send(id=method, method=method, params=params)
        wait(lambda message: message.get("id") == method)

    def hovered() -> None:
        ask("textDocument/hover", textDocument=document, position={"line": line, "character": 4})

    def key() -> None:
        version, start = next(versions), {"line": line, "character": 0}
        change = {"range": {"start": start, "end": start}, "text": " "}
        send(
            method="textDocument/didChange",
            params={"textDocument": {**document, "version": version}, "contentChanges": [change]},
        )
        wait(lambda message: message.get("params", {}).get("version") == version)

    with server:
        ask("initialize", processId=None, rootUri=None, capabilities={})
        opened = {**document, "languageId": "pg", "version": 1, "text": schema}
        send(method="textDocument/didOpen", params={"textDocument": opened})
        wait(lambda message: message.get("params", {}).get("version") == 1)
        yield Figure("served: a hover in it", "ms", repeated(samples, hovered))
        yield Figure("served: a key in it, to its problems", "ms", repeated(samples, key))
        ask("shutdown")
        send(method="exit")


def _file(texts: TextCache, path: str, data: bytes) -> EditorFile:
    file = texts.file(MemoryTree({"schema.pg": SCHEMA.encode(), path: data}), path)
    if file is None:
        raise RuntimeError(f"{path} cannot be read")
    return file
