"""The records of a branch in the format that a load reads, in pieces of at most 64 KiB that are made when they are asked for.

Whatever can be refused is refused before the first piece: the branch, the names of types, and tables that do not open. Only a
certain number of exports is under way at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING

from gitops import graph
from gitops.core.dataclass import dataclass
from gitops.policy.bundle import Action
from gitops.serving.operations.permit import Permit
from gitops.serving.problem import ApiCode, ApiProblem, ProblemError

if TYPE_CHECKING:
    from gitops.serving.generation import ServedGraph

__all__ = ["PIECE_BYTES", "Export", "ExportSlots", "cut_pieces", "export_records"]

PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Export:
    """The records of one version in pieces; `commit` is its id. To be closed, which frees its slot."""

    commit: str
    pieces: Generator[bytes, None, None]
    _release: Callable[[], None]

    def close(self) -> None:
        """Read nothing more. Not while a piece is being made."""
        self.pieces.close()
        self._release()


class ExportSlots:
    """How many exports are under way at once."""

    def __init__(self, count: int = 8, wait_s: float = 0.25) -> None:
        """A further export waits so long for the end of another one."""
        self._count, self._wait = count, wait_s
        self._free = threading.BoundedSemaphore(count)

    def take(self) -> Callable[[], None]:
        """Take a slot; the result frees it, however often it is called. Raises ProblemError 413."""
        if not self._free.acquire(timeout=self._wait):
            message = f"{self._count} exports are under way already: ask again when one of them has ended"
            more = {"resource_limit": {"resource": "exports", "limit": self._count}}
            raise ProblemError(ApiProblem(413, ApiCode.BAD_REQUEST, message, more))
        held = threading.Lock()

        def release() -> None:
            if held.acquire(blocking=False):
                self._free.release()

        return release


def export_records(
    served: ServedGraph, permit: Permit, slots: ExportSlots, branch: str, types: Sequence[str] = ()
) -> Callable[[], Export]:
    """The records of the types that are named, or of all, at the head of a branch.

    The work opens what will be read. Raises as `graph.export_records`; ProblemError 413. A failure while pieces are read raises
    from the iterator: what was read until then is not the whole.
    """
    permit(Action.EXPORT, branch=branch)

    def begin() -> Export:
        release = slots.take()
        try:
            snapshot = graph.open_snapshot(served.uri, graph.ReadTarget(branch))
            records = graph.export_records(snapshot, types or None)
        except BaseException:
            release()
            raise
        return Export(snapshot.manifest.txn_id, cut_pieces(records), release)

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
