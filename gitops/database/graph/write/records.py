"""The record stream: strict NDJSON to typed rows, problems collected with the number and the line of their record.

    {"type": "Person", "data": {"name": "ann"}}
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {}}

One object per line that is not blank. Unknown members, repeated members and unknown properties are refused.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import GitopsError
from gitops.database.graph.values import CellError, is_unicode, json_to_cell
from gitops.database.graph.write.rules import cell_faults, node_id
from gitops.database.language.schema import Catalog, EdgeType, NodeType
from gitops.database.language.suggest import did_you_mean

__all__ = ["IncomingRow", "LoadError", "RecordProblems", "RecordReader"]

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_SLOTS = 131_072
MAX_REPORTED = 100
MAX_PROBLEMS = 10_000
_NODE_MEMBERS = frozenset({"type", "data"})
_EDGE_MEMBERS = frozenset({"edge", "from", "to", "data"})
_NONE: frozenset[str] = frozenset()
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHOWN = 80
_BLANK = " \t\r\n"


class LoadError(GitopsError):
    """The records do not fit; nothing was published. `problems` has the first 100 of the `total` that were found."""

    def __init__(self, problems: Diagnostics, total: int) -> None:
        """The detail is the first problem."""
        first = next(iter(problems)).message
        super().__init__(Code.GRAPH_DATA_INVALID, f"{first} (and {total - 1} more)" if total > 1 else first)
        self.problems = problems
        self.total = total


class RecordProblems:
    """What is wrong with the records: the first 100 are kept, all are counted, and reading stops at 10,000.

    They are reported in the order of the records, not in the order of discovery.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._found: list[tuple[int, str, Code, str]] = []
        self._blanks = array("Q")
        self.total = 0

    def blank_line(self, records: int) -> None:
        """Note a blank line after so many records, so that records can be named by their lines."""
        self._blanks.append(records)

    def add(self, record: int, message: str, code: Code = Code.GRAPH_DATA_INVALID) -> None:
        """Note a problem of a record, counted from 1; 0 stands for the load as a whole.

        Raises LoadError at the 10,000th.
        """
        self.total += 1
        # Problems of one record are found in an order of their own; those of the load come as its keys are hashed.
        insort(self._found, (record, "" if record else message, code, message), key=itemgetter(0, 1))
        del self._found[MAX_REPORTED:]
        if self.total >= MAX_PROBLEMS:
            self.settle()

    def place(self, record: int) -> tuple[str, str, SourceRef | None]:
        """Where a record is: for programs, for people, and in the stream."""
        line = record + bisect_right(self._blanks, record - 1)
        return f"records[{record}]", f"record {record}", SourceRef("records", line)

    def settle(self) -> None:
        """End a stage. Raises LoadError when there is any problem."""
        if not self.total:
            return
        reported = Diagnostics()
        for record, _, code, message in self._found:
            if record:
                path, name, source = self.place(record)
                reported.add(code, path, f"{name}: {message}", source=source)
            else:
                reported.add(code, "records", message)
        raise LoadError(reported, self.total)


class IncomingRow(NamedTuple):
    """A record as a row: `key` names its table, `given` are the members of its data, and `bytes` is the length of its line.

    A node of a type without key, or an edge, whose record has no `id` is `new`: nothing else can have its id.
    """

    key: str
    record: int
    row: dict[str, Any]
    given: Mapping[str, Any]
    bytes: int
    new: bool


@dataclass(slots=True)
class RecordReader:
    """Reads a stream once, record by record; a record with a problem gives no row.

    `ids` makes the ids of edges and of nodes without key. With `embeds`, a required vector may be missing where the text is
    there that it is made of. `records` and `bytes` were read so far.
    """

    catalog: Catalog
    ids: IdSource
    problems: RecordProblems
    embeds: bool = False
    records: int = 0
    bytes: int = 0

    def rows(self, stream: BinaryIO) -> Iterator[IncomingRow]:
        """The rows, in the order of the stream. Raises LoadError for a line that is too long to go on after."""
        for size, form in self._objects(stream):
            before, data = self.problems.total, form.get("data", {})
            declared = self._declared(form, data)
            if declared is None:
                continue
            cells = self._cells(declared, data)
            if isinstance(declared, EdgeType):
                key, own = f"edge:{declared.name}", self._given_id(data)
                for member in ("from", "to"):
                    end = form.get(member)
                    if not isinstance(end, str) or not (end.isascii() or is_unicode(end)):
                        self._fault(f"edge missing '{member}'")
                ends = {"src": form.get("from"), "dst": form.get("to")}
            elif self.problems.total == before:
                key, own, ends = f"node:{declared.name}", self._node_id(declared, data, cells), {}
            if self.problems.total == before:
                row = {"id": self.ids.ulid() if own is None else own, **ends, **cells}
                yield IncomingRow(key, self.records, row, data, size, own is None)

    def _declared(self, form: dict[str, Any], data: object) -> NodeType | EdgeType | None:
        """The type of the record, if the record has the members of one."""
        is_node = "type" in form
        if is_node == ("edge" in form):
            self._fault("expected either 'type', for a node, or 'edge'")
            return None
        members = _NODE_MEMBERS if is_node else _EDGE_MEMBERS
        if not form.keys() <= members or not isinstance(data, dict):
            odd = form.keys() - members
            self._fault(f"unknown member {min(odd)[:_SHOWN]!r}" if odd else "'data' is not an object")
            return None
        name = form["type"] if is_node else form["edge"]
        declared: NodeType | EdgeType | None = None
        if isinstance(name, str):
            declared = self.catalog.nodes.get(name) if is_node else self.catalog.edge(name)
        if declared is None:
            known = self.catalog.nodes if is_node else self.catalog.edges
            near = did_you_mean(str(name), known)
            hint = f"; {near}" if near else ""
            self._fault(f"unknown {'node' if is_node else 'edge'} type {str(name)[:_SHOWN]!r}{hint}")
        return declared

    def _node_id(self, declared: NodeType, data: Mapping[str, Any], cells: Mapping[str, Any]) -> str | None:
        """The id of a node with sound cells: its key makes it, else it is `data.id`, else the node is new."""
        if declared.key is None:
            return self._given_id(data)
        own = node_id(declared, cells)
        given = self._given_id(data) if "id" in data and data["id"] != own else None
        if given is not None:
            self._fault(f"'id' is {given[:_SHOWN]!r} and the key of {declared.name} makes it {str(own)[:_SHOWN]!r}")
        return own

    def _cells(self, declared: NodeType | EdgeType, data: Mapping[str, Any]) -> dict[str, Any]:
        kinds = declared.properties
        cells: dict[str, Any] = dict.fromkeys(kinds)
        before = self.problems.total
        for name, value in data.items():
            kind = kinds.get(name)
            if kind is None:
                if name != "id":
                    near = did_you_mean(name, kinds)
                    self._fault(f"{declared.name} has no property {name[:_SHOWN]!r}{f'; {near}' if near else ''}")
            elif value is not None:
                try:
                    cells[name] = json_to_cell(value, kind)
                except CellError as error:
                    self._fault(f"strict property {declared.name}.{name} {error}")
        if self.problems.total == before:
            pending = _NONE
            if self.embeds and isinstance(declared, NodeType):
                # The vectors that are still to be made.
                pending = frozenset(
                    target
                    for target, source in declared.embeds.items()
                    if target not in data and cells[source] is not None
                )
            for fault in cell_faults(declared, cells, pending):
                self._fault(fault)
        return cells

    def _given_id(self, data: Mapping[str, Any]) -> str | None:
        if "id" not in data:
            return None
        given = data["id"]
        if not isinstance(given, str) or not given or "\0" in given or not (given.isascii() or is_unicode(given)):
            self._fault("'id' is not a text that can be an id")
            return None
        return given

    def _fault(self, message: str) -> None:
        self.problems.add(self.records, message)

    def _objects(self, stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        """The object of each line that is not blank, with the length of the line."""
        while line := stream.readline(MAX_LINE_BYTES + 2):
            self.bytes += len(line)
            if len(line) > MAX_LINE_BYTES and len(line.rstrip(b"\r\n")) > MAX_LINE_BYTES:
                self.records += 1
                self._fault(f"the line is longer than {MAX_LINE_BYTES} bytes")
                self.problems.settle()
            if line.isspace():
                self.problems.blank_line(self.records)
                continue
            self.records += 1
            try:
                value = _parse(line)
            except UnicodeDecodeError as error:
                self._fault(f"the line is not UTF-8 at byte {error.start}")
                continue
            except (ValueError, RecursionError) as error:
                self._fault(f"invalid JSON at record {self.records}: {error}")
                continue
            if isinstance(value, dict):
                yield len(line), value
            else:
                self._fault('the line is not a JSON object such as {"type": "Person", "data": {}}')


def _parse(line: bytes) -> Any:
    text = line.decode()
    if len(line) > MAX_SLOTS and sum(map(line.count, (b"{", b"[", b",", b":"))) > MAX_SLOTS:
        bare = _TEXT.sub("", text)
        if sum(map(bare.count, "{[,:")) > MAX_SLOTS:
            raise ValueError(f"more than {MAX_SLOTS} structural slots")
    text = text.strip(_BLANK)
    value, end = _DECODER.raw_decode(text)
    if end != len(text):
        raise ValueError("the line contains more than one value")
    return value


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is given twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_no_constant)
