"""The layout of the folder of a graph, and the addresses of local roots.

    graph.json                 identity and format, written once
    manifests/<10^20-1-n>.json the graph versions; the first name of a listing is the newest
    branches/index.json        the branches that exist: their lines and where they were forked
    branches/<id>/manifests/   the versions of one line, likewise
    floors/<line>.json         up to which number manifests of a line may have been removed
    leases/<id>.json           versions that gc keeps for readers and writers
    schema/<sha256>.pg         accepted schema texts, byte for byte, by their digest
    schema/<sha256>.json       their canonical forms, by their digest
    nodes/<id>.lance/          one dataset per incarnation of a node type
    edges/<id>.lance/          one dataset per incarnation of an edge type

A table's folder is named by an id that is made for it, so a rename moves nothing, and a type that is dropped and declared
again starts in a folder of its own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.port import Existence

IDENTITY = "graph.json"
MANIFESTS = "manifests"
SCHEMA = "schema"
BRANCHES = "branches"
BRANCH_INDEX = "branches/index.json"
FLOORS = "floors"
LEASES = "leases"
MAIN = "main"
ARTIFACTS = ("_schema.pg", "_schema.ir.json", "__schema_state.json", IDENTITY, MANIFESTS, SCHEMA)
"""Names that mark a folder as a graph root, of this format or of an older one; a new graph is never created beside one."""

_NEWEST = 10**20 - 1


def locate(uri: str) -> Path:
    """The absolute local path of a graph root given as a path or a `file:` URI.

    Raises GitopsError `graph_unreadable` for any other scheme, a relative or empty URI path and a NUL.
    """
    text = uri
    if "://" in uri or uri.startswith("file:"):
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise GitopsError(
                Code.GRAPH_UNREADABLE,
                f"{uri[:200]}: unknown scheme; use a path, file:///path or s3://bucket/prefix",
                path=uri,
            )
        text = unquote(parts.path)
    if not text or "\0" in text:
        raise GitopsError(Code.GRAPH_UNREADABLE, "the graph root has no path", path=uri)
    return Path(os.path.abspath(text))  # noqa: PTH100 - a symbolic link at the root must stay visible


def existence(root: Path) -> Existence:
    """Whether anything is at the root, a dangling link included; only a definite not-found is ABSENT."""
    try:
        root.lstat()
    except FileNotFoundError:
        return Existence.ABSENT
    except OSError:
        return Existence.UNKNOWN
    return Existence.PRESENT


def is_folder(root: Path) -> bool:
    """Whether the root is a real folder, not a link to one. Raises OSError."""
    return stat.S_ISDIR(root.lstat().st_mode)


def is_line(text: str) -> bool:
    """Whether this is the id of a line: the main line's, or that of one incarnation of a branch."""
    return text == MAIN or is_ulid(text)


def manifests(line: str) -> str:
    """The folder of the manifests of a line."""
    return MANIFESTS if line == MAIN else f"{BRANCHES}/{line}/{MANIFESTS}"


def manifest_key(n: int, line: str = MAIN) -> str:
    """The object key of manifest `n`, from 1."""
    return f"{manifests(line)}/{_NEWEST - n:020}.json"


def floor_key(line: str) -> str:
    """The object key of the number up to which manifests of the line may have been removed."""
    return f"{FLOORS}/{line}.json"


def lease_key(lease_id: str) -> str:
    """The object key of a lease."""
    return f"{LEASES}/{lease_id}.json"


def manifest_number(name: str) -> int | None:
    """The number behind a file name of the manifests folder; None when it is not the name of a manifest."""
    stem, dot, suffix = name.partition(".")
    if dot + suffix != ".json" or len(stem) != len(str(_NEWEST)) or not (stem.isascii() and stem.isdigit()):
        return None
    n = _NEWEST - int(stem)
    return n if n >= 1 else None


def source_key(digest: str) -> str:
    """The object key of a schema text."""
    return f"{SCHEMA}/{digest}.pg"


def ir_key(digest: str) -> str:
    """The object key of a canonical schema."""
    return f"{SCHEMA}/{digest}.json"


def table_path(kind: str, table_id: str) -> str:
    """The path of a new table below the root; `kind` is `node` or `edge`."""
    return f"{kind}s/{table_id}.lance"
