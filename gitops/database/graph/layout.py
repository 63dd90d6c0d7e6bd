"""The folder layout of a graph.

    graph.json                 identity and format, written once
    manifests/<10^20-1-n>.json the graph versions; the first name in a listing is the newest
    manifests/newest           the number of a recent version, where a reader on a disk starts to look for the newest
    branches/index.json        the existing branches, with their lines and fork points
    branches/<id>/manifests/   the versions of one line, in the same form
    floors/<line>.json         the number up to which a line's manifests may have been removed
    leases/<id>.json           versions that gc keeps for a reader or writer
    loads/<id>.json            loads that can be continued, until they are published
    loads/<id>-<part>.arrow    their data files and record numbers, by checkpoint
    bulk/<id>/                 a bulk load in progress over an executor, protected by the lease with the same id
    schema/<sha256>.pg         accepted schema texts, byte for byte, by their digest
    schema/<sha256>.json       their canonical forms, by their digest
    nodes/<id>.lance/          one dataset per incarnation of a node type
    edges/<id>.lance/          one dataset per incarnation of an edge type

A table's folder name is a generated id, so a rename moves no files, and a type that is dropped and declared again gets
a new folder.
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
LOADS = "loads"
BULK = "bulk"
MAIN = "main"
ARTIFACTS = ("_schema.pg", "_schema.ir.json", "__schema_state.json", IDENTITY, MANIFESTS, SCHEMA)
"""Names that mark a folder as a graph root in this or an older format. No graph is created in a folder with one of them."""

_NEWEST = 10**20 - 1


def is_line(text: str) -> bool:
    """Return whether `text` is a line id, either of the main line or of one incarnation of a branch."""
    return text == MAIN or is_ulid(text)


def manifests(line: str) -> str:
    """Return the manifests folder of a line."""
    return MANIFESTS if line == MAIN else f"{BRANCHES}/{line}/{MANIFESTS}"


def manifest_key(n: int, line: str = MAIN) -> str:
    """Return the object key of a line's manifest `n` (counted from 1)."""
    return f"{manifests(line)}/{_NEWEST - n:020}.json"


def newest_key(line: str) -> str:
    """Return the key of the note with the number of a line's newest version, which can be outdated."""
    return f"{manifests(line)}/newest"


def floor_key(line: str) -> str:
    """Return the object key of a line's floor. Manifests up to this number may have been removed."""
    return f"{FLOORS}/{line}.json"


def lease_key(lease_id: str) -> str:
    """Return the object key of a lease."""
    return f"{LEASES}/{lease_id}.json"


def load_key(load_id: str) -> str:
    """Return the object key of a load that can be continued."""
    return f"{LOADS}/{load_id}.json"


def checkpoint_key(load_id: str, part: int) -> str:
    """Return the object key of a load's checkpoint, counted from 0."""
    return f"{LOADS}/{load_id}-{part}.arrow"


def manifest_number(name: str) -> int | None:
    """Return the version number in a manifest's file name, or None for any other name."""
    stem, dot, suffix = name.partition(".")
    if dot + suffix != ".json" or len(stem) != len(str(_NEWEST)) or not (stem.isascii() and stem.isdigit()):
        return None
    n = _NEWEST - int(stem)
    return n if n >= 1 else None


def source_key(digest: str) -> str:
    """Return the object key of a schema text, given its digest."""
    return f"{SCHEMA}/{digest}.pg"


def ir_key(digest: str) -> str:
    """Return the object key of a canonical schema, given its digest."""
    return f"{SCHEMA}/{digest}.json"


def table_path(kind: str, table_id: str) -> str:
    """Return the path of a new table below the root; `kind` is `node` or `edge`."""
    return f"{kind}s/{table_id}.lance"
