"""A proxy of PostgreSQL's protocol that knows the statements of Materialize about clusters and replicas, with faults.

What a client sends up to a Query or a Sync is one unit. A unit that carries something out is a statement: it is counted, and a
fault may happen to it. Texts of Query and Parse messages that match a pattern as a whole become a call of a procedure, and the
tag of the reply becomes that of the statement. Errors get the words of the target. Everything else goes through as it came.

Source: https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Self

from tests.support.target_world import Fault

__all__ = ["Delay", "MaterializeProxy"]

_NEGOTIATIONS = (80877103, 80877104)  # TLS, GSS
_CANCEL = 80877102
_NAME = r'"((?:[^"]|"")+)"'
_CREATE_REPLICA = re.compile(rf"CREATE CLUSTER REPLICA {_NAME}\.{_NAME} \(SIZE '((?:[^']|'')*)'\)")
_DROP_REPLICA = re.compile(rf"DROP CLUSTER REPLICA (IF EXISTS )?{_NAME}\.{_NAME}")
_SET_CLUSTER = re.compile(rf"SET cluster = {_NAME}")
# What reads one of the three tables runs on the compute cluster of the session, which must not be that of the catalog.
_READS_TABLES = re.compile(r"(SELECT|DELETE)\b.*\bmz_cluster_strateg", re.DOTALL)
# To a target, ANY is a function of arrays, lists and maps: it does not guess which of them a parameter is.
_BARE_ANY = re.compile(r"\bANY\s*\(\s*\$\d+\s*\)", re.IGNORECASE)
_NOT_UNIQUE = "function unnest(unknown) is not unique"
_NOT_ALLOWED = 'querying the following items "materialize.public.t" is not allowed from the "mz_catalog_server" cluster'
# A target has one state for nearly all errors of its catalog, and words of its own.
_WORDS = {
    b"42P01": (rb'relation "(.*)" does not exist', rb"unknown catalog item '\1'"),
    b"3F000": (rb'schema "(.*)" does not exist', rb"unknown schema '\1'"),
    b"42703": (rb"(column) ", rb"\1 "),
    b"42883": (rb"(function) ", rb"\1 "),
    b"42501": (rb"for table (.*)", rb'for TABLE "materialize.public.\1"'),
}
_ERRORS = {Fault.ERROR: ("XX000", "something unexpected happened"), Fault.CANCELLED: ("57014", "canceling statement")}

_LATE_S = 0.02
_LONGEST = b"SELECT pg_sleep(86400)"

Message = tuple[bytes, bytes]


class Delay(StrEnum):
    """A statement, or its answer, that takes long.

    IN_TIME: the answer comes late. TOO_LONG: the statement takes longer than the server permits, which ends it without an
    effect. UNANSWERED: it is carried out, and no answer comes for as long as the client waits.
    """

    IN_TIME = "in_time"
    TOO_LONG = "too_long"
    UNANSWERED = "unanswered"


class MaterializeProxy:
    """A proxy on loopback in a thread of its own; use as a context manager.

    `statements` counts those of all connections, `log` has their texts, and `faults` says what happens at which of them.
    `silent` lets it accept connections and statements, and answer nothing. `says` is the message of an error that is a fault.
    """

    def __init__(self, socket: str) -> None:
        self.statements = 0
        self.log: list[str] = []
        self.faults: dict[int, Fault | Delay] = {}
        self.silent = False
        self.says: str | None = None
        self.port = 0
        self._socket = socket
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        """Listen, on the same port as before."""

        async def listen() -> None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

        if self._server is None:
            asyncio.run_coroutine_threadsafe(listen(), self._loop).result()

    def stop(self) -> None:
        """Refuse connections, and cut those that are there."""

        async def end() -> None:
            if self._server is not None:
                self._server.close()
                self._server = None
            clients = list(self._clients)
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        back: asyncio.StreamWriter | None = None
        try:
            start = await _startup(reader, writer)
            answers, back = await asyncio.open_unix_connection(self._socket)
            back.write(start)
            if start[4:8] == struct.pack("!I", _CANCEL):
                await back.drain()
                return
            if not self.silent and await _relay(answers, writer):
                await self._units(reader, writer, answers, back)
            else:
                await asyncio.Event().wait()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # one side went away
        finally:
            self._clients.discard(task)
            for side in (writer, back):
                if side is not None:
                    side.close()

    async def _units(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        """Carry units forward and their replies back, until the client leaves or a fault cuts the connection."""
        tags: dict[bytes, bytes | None] = {}
        cluster = ""
        while unit := await _unit(reader):
            forward, tag = _rewritten(unit, tags)
            fault = None
            texts = [text for kind, body in unit if (text := _text(kind, body))]
            cluster = next((found[1] for text in texts if (found := _SET_CLUSTER.fullmatch(text))), cluster)
            if cluster == "mz_catalog_server" and any(_READS_TABLES.search(text) for text in texts):
                writer.write(_error("2F003", _NOT_ALLOWED, None))
                continue
            if any(_BARE_ANY.search(text) for text in texts):
                writer.write(_error("XX000", _NOT_UNIQUE, None))
                continue
            if any(kind in (b"Q", b"E") for kind, _ in unit):
                self.statements += 1
                self.log += texts
                fault = self.faults.pop(self.statements, None)
            if fault is Fault.CUT_BEFORE:
                return
            if fault in _ERRORS:
                writer.write(_error(*_ERRORS[fault], self.says))
                continue
            if self.silent:
                await asyncio.Event().wait()
            if fault is Delay.IN_TIME:
                await asyncio.sleep(_LATE_S)
            if fault is Delay.TOO_LONG:
                forward = [(b"Q", _LONGEST + b"\0")]
            back.writelines(_packed(each) for each in forward)
            reply: list[Message] = []
            while not await _relay(answers, None, reply.append):
                pass
            if fault is Fault.CUT_AFTER:
                return
            if fault is Delay.UNANSWERED:
                await reader.read()
                return
            if fault is Delay.TOO_LONG:
                reply = [each for each in reply if each[0] in (b"E", b"Z")]
            writer.writelines(_packed(_answered(each, tag)) for each in reply)
        back.write(_packed((b"X", b"")))


async def _startup(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The first packet that is no question for TLS or GSS, which are both refused."""
    while True:
        size = await reader.readexactly(4)
        packet = await reader.readexactly(int.from_bytes(size) - 4)
        if int.from_bytes(packet[:4]) not in _NEGOTIATIONS:
            return size + packet
        writer.write(b"N")


async def _message(reader: asyncio.StreamReader) -> Message:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(int.from_bytes(head[1:]) - 4)


async def _unit(reader: asyncio.StreamReader) -> list[Message]:
    """The messages of a client up to the one that asks for the replies; empty where it leaves."""
    unit: list[Message] = []
    while not unit or unit[-1][0] not in (b"Q", b"S"):
        message = await _message(reader)
        if message[0] == b"X":
            return []
        unit.append(message)
    return unit


async def _relay(
    answers: asyncio.StreamReader, writer: asyncio.StreamWriter | None, keep: Callable[[Message], None] = lambda _: None
) -> bool:
    """Carry messages of the server back until it is ready; False where only one was read, and that was not the last."""
    while True:
        message = await _message(answers)
        keep(message)
        if writer is not None:
            writer.write(_packed(message))
        if message[0] == b"Z" or writer is None:
            return message[0] == b"Z"


def _packed(message: Message) -> bytes:
    kind, body = message
    return kind + struct.pack("!I", len(body) + 4) + body


def _rewritten(unit: list[Message], tags: dict[bytes, bytes | None]) -> tuple[list[Message], bytes | None]:
    """A unit for the server, and the tag that its reply is to have; `tags` has those of prepared statements, by name."""
    forward, tag = [], None
    for kind, body in unit:
        message = kind, body
        if kind in (b"Q", b"P"):
            name, rest = (b"", body) if kind == b"Q" else _cut(body)
            rest = _cut(rest)[1]
            new, tag = _translated(_text(kind, body))
            tags[name] = tag
            message = kind, (name if kind == b"P" else b"") + new.encode() + b"\0" + rest
        elif kind == b"B":
            tag = tags.get(_cut(_cut(body)[1])[0])
        forward.append(message)
    return forward, tag


def _cut(body: bytes) -> tuple[bytes, bytes]:
    """Split behind the end of the first text."""
    end = body.index(b"\0") + 1
    return body[:end], body[end:]


def _translated(text: str) -> tuple[str, bytes | None]:
    statement = text.strip().removesuffix(";")
    if found := _CREATE_REPLICA.fullmatch(statement):
        names = ", ".join((_literal(found[1], '"'), _literal(found[2], '"'), f"'{found[3]}'"))
        return f"CALL mz_internal.create_replica({names})", b"CREATE CLUSTER REPLICA"
    if found := _DROP_REPLICA.fullmatch(statement):
        names = ", ".join((_literal(found[2], '"'), _literal(found[3], '"'), str(found[1] is not None)))
        return f"CALL mz_internal.drop_replica({names})", b"DROP CLUSTER REPLICA"
    if found := _SET_CLUSTER.fullmatch(statement):
        return "SET mz.cluster = " + _literal(found[1], '"'), None
    return text, None


def _literal(quoted: str, mark: str) -> str:
    """The inside of a name between quotes, as a text between quotes."""
    return "'" + quoted.replace(mark * 2, mark).replace("'", "''") + "'"


def _text(kind: bytes, body: bytes) -> str:
    """The statement in a Query or a Parse, empty for other messages."""
    if kind == b"P":
        body = _cut(body)[1]
    return _cut(body)[0][:-1].decode() if kind in (b"Q", b"P") else ""


def _answered(message: Message, tag: bytes | None) -> Message:
    """A message of the server in the words of the target."""
    kind, body = message
    if kind == b"C" and tag is not None:
        return kind, tag + b"\0"
    if kind != b"E":
        return message
    fields = {field[:1]: field[1:] for field in body.split(b"\0") if field}
    if fields[b"C"] in _WORDS:
        fields[b"M"] = re.sub(*_WORDS[fields[b"C"]], fields[b"M"])
        fields[b"C"] = fields[b"C"] if fields[b"C"] == b"42501" else b"XX000"
    return kind, b"".join(name + value + b"\0" for name, value in fields.items()) + b"\0"


def _error(state: str, message: str, says: str | None) -> bytes:
    fields = {"S": "ERROR", "V": "ERROR", "C": state, "M": says or message}
    body = b"".join(name.encode() + value.encode() + b"\0" for name, value in fields.items()) + b"\0"
    return _packed((b"E", body)) + _packed((b"Z", b"I"))
