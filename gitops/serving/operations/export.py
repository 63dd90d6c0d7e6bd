"""The records of a branch in the format that a load reads, in pieces of at most 64 KiB that are made when they are asked for.

Whatever can be refused is refused before the first piece: the branch, the names of types, and tables that do not open.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from gitops.cluster.policy.bundle import Action
from gitops.core.dataclass import dataclass
from gitops.database import graph
from gitops.serving.operations.permit import Permit

if TYPE_CHECKING:
    from gitops.serving.generation import ServedGraph

__all__ = ["PIECE_BYTES", "Export", "cut_pieces", "export_records"]

PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Export:
    """The records of one version in pieces; `commit` is its id, and `cursor` where its changes go on."""

    commit: str
    cursor: str
    pieces: Generator[bytes, None, None]


def export_records(served: ServedGraph, permit: Permit, branch: str, types: Sequence[str] = ()) -> Callable[[], Export]:
    """The records of the types that are named, or of all, at the head of a branch.

    The work opens what will be read. Raises as `graph.export_records`. A failure while pieces are read raises from the iterator:
    what was read until then is not the whole.
    """
    permit(Action.EXPORT, branch=branch)

    def begin() -> Export:
        snapshot = served.open(graph.ReadTarget(branch))
        records = graph.export_records(snapshot, types or None)
        return Export(snapshot.manifest.txn_id, graph.position_of(snapshot).token, cut_pieces(records))

    return begin


def cut_pieces(lines: Iterable[str], size: int = PIECE_BYTES) -> Generator[bytes, None, None]:
    """The lines, each with its line end, in pieces of at most so many bytes."""
    piece = bytearray()
    for line in lines:
        piece += line.encode()
        piece += b"\n"
        while len(piece) >= size:
            yield bytes(piece[:size])
            del piece[:size]
    if piece:
        yield bytes(piece)
