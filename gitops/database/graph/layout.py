"""Folder layout of a graph.

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

The name of a table's folder is a generated id, so a rename moves nothing, and a type that is dropped and declared again
starts in a folder of its own.
"""

from __future__ import annotations

from gitops.core.clock import is_ulid

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


def is_line(text: str) -> bool:
    """Return whether this is the id of a line: the main line, or one incarnation of a branch."""
    return text == MAIN or is_ulid(text)


def manifests(line: str) -> str:
    """Return the folder of the manifests of a line."""
    return MANIFESTS if line == MAIN else f"{BRANCHES}/{line}/{MANIFESTS}"


def manifest_key(n: int, line: str = MAIN) -> str:
    """Return the object key of manifest `n`, from 1."""
    return f"{manifests(line)}/{_NEWEST - n:020}.json"


def floor_key(line: str) -> str:
    """Return the object key of the number up to which manifests of the line may have been removed."""
    return f"{FLOORS}/{line}.json"


def lease_key(lease_id: str) -> str:
    """Return the object key of a lease."""
    return f"{LEASES}/{lease_id}.json"


def manifest_number(name: str) -> int | None:
    """Return the version number in a manifest's file name; None for any other name."""
    stem, dot, suffix = name.partition(".")
    if dot + suffix != ".json" or len(stem) != len(str(_NEWEST)) or not (stem.isascii() and stem.isdigit()):
        return None
    n = _NEWEST - int(stem)
    return n if n >= 1 else None


def source_key(digest: str) -> str:
    """Return the object key of a schema text."""
    return f"{SCHEMA}/{digest}.pg"


def ir_key(digest: str) -> str:
    """Return the object key of a canonical schema."""
    return f"{SCHEMA}/{digest}.json"


def table_path(kind: str, table_id: str) -> str:
    """Return the path of a new table below the root; `kind` is `node` or `edge`."""
    return f"{kind}s/{table_id}.lance"
