"""Bodies that are longer than memory should hold: records that come in, and records that go out.

1. What goes out is made piece by piece, each when the one before it was taken, in a thread that is free in between: a slow reader
   costs a place among the streams, and no thread.
2. What comes in is put aside on disk before any work begins: a slow sender costs neither a thread nor the turn of a branch, and
   one that stops leaves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, MutableMapping
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from gitops.serving.problem import ApiProblem, ProblemError

if TYPE_CHECKING:
    from gitops.serving.http.answers import StreamAnswer
    from gitops.serving.http.call import Call
    from gitops.serving.http.work import StreamSlots

__all__ = ["PieceStream", "receive_aside", "send_stream"]

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_IN_MEMORY = 2**20
_TOO_LARGE = 413


class PieceStream:
    """Pieces that a generator makes in threads, one at a time. It has a place among the streams until it is closed."""

    def __init__(self, call: Call, pieces: Generator[bytes, None, None], slots: StreamSlots) -> None:
        """The place is taken already."""
        self._call, self._pieces, self._slots = call, pieces, slots
        self._making: asyncio.Future[bytes | None] | None = None
        self._open = True

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self._making = asyncio.ensure_future(self._call.work(lambda: next(self._pieces, None)))
        # Who waits for a piece may be cancelled; the thread that makes it is not.
        piece = await asyncio.shield(self._making)
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        """Make nothing more, once the piece in the making is done, and give the place back."""
        if not self._open:
            return
        self._open = False
        try:
            if self._making is not None:
                await asyncio.wait((self._making,))
                if not self._making.cancelled():
                    # Where the client went away, no one is left to see a failure.
                    self._making.exception()
            self._pieces.close()
        finally:
            self._slots.free()


async def send_stream(call: Call, answer: StreamAnswer, headers: list[tuple[bytes, bytes]], send: Send) -> int:
    """Send an answer in pieces; how many bytes of it were sent.

    It ends where the client goes away. Raises TimeoutError where the client takes nothing for `idle_s` seconds, and what making
    a piece raises: the server then cuts the connection off, and the client sees that the body is not complete.
    """
    sent = 0

    async def send_pieces() -> None:
        nonlocal sent
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.pieces:
            async with asyncio.timeout(call.context.limits.idle_s):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            sent += len(piece)
        await send({"type": "http.response.body", "body": b""})

    sending, gone = asyncio.ensure_future(send_pieces()), asyncio.ensure_future(call.until_gone())
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
        return sent
    finally:
        gone.cancel()
        sending.cancel()
        await asyncio.wait((sending, gone))
        close = getattr(answer.pieces, "aclose", None)
        if close is not None:
            await close()


@contextlib.asynccontextmanager
async def receive_aside(call: Call) -> AsyncIterator[BinaryIO]:
    """The body of a request as a file, which is gone afterwards.

    Raises ProblemError 413 `graph_batch_request_bytes`, ClientGoneError.
    """
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        held = bytearray()
        try:
            async for piece in call.pieces():
                held += piece
                if len(held) >= _IN_MEMORY:
                    await call.work(lambda data=bytes(held): file.write(data))  # type: ignore[misc]
                    held.clear()
        except ProblemError as error:
            if error.problem.status != _TOO_LARGE:
                raise
            more = {"graph_batch_request_bytes": {"limit": call.route.limit}}
            problem = error.problem
            raise ProblemError(
                ApiProblem(problem.status, problem.code, problem.message, more, problem.headers)
            ) from None
        file.write(held)
        file.seek(0)
        yield cast("BinaryIO", file)
