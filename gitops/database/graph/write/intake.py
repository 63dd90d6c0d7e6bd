"""First pass of a load: checks single records, writes their rows to data files and records their keys.

Records are read by columns if possible (`columns`). A part of the stream with anything unusual is read line by line
here. Only this module decides which records are valid and creates the messages.

Memory is bounded regardless of the size of the stream: rows wait in small groups, groups wait as Arrow tables until
they fill a data file, and keys spill to disk. The data files do not belong to a table version. If a load fails, `gc`
removes them.

The stream is strict NDJSON. It is converted to typed rows, and problems are collected with record and line numbers.

    {"type": "Person", "data": {"name": "ann"}}
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {}}

There is one object per line. Blank lines are skipped. Unknown members, repeated members and unknown properties are
rejected.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO, NamedTuple, Self

import lance
import numpy as np
import pyarrow as pa

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.graph.embedding import Embedder
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.root import tables_at_once
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import (
    StagedFragment,
    arrow_schema,
    arrow_table,
    declared_type,
    open_table,
    read_staged,
    remove_files,
    stage_rows,
)
from gitops.database.graph.values import CellError, is_unicode, json_to_cell
from gitops.database.graph.write.columns import (
    ColumnRows,
    OddError,
    is_columnar,
    line_starts,
    lines_by_type,
    read_rows,
)
from gitops.database.graph.write.keys import KeyBatch, Keys, Numbers, Salt, group_keys, key_batch
from gitops.database.graph.write.rules import cell_faults, embed_rows, find_mismatches, node_id, pattern_fault
from gitops.database.language.schema import Catalog, EdgeType, NodeType
from gitops.database.language.suggest import did_you_mean
from gitops.database.storage.parallel import in_parallel

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_SLOTS = 131_072
MAX_REPORTED = 100
MAX_PROBLEMS = 10_000
_PIECE_BYTES = 4 * 1024 * 1024
_LEAST_BYTES = 16 * 1024  # Below this number of lines, reading one by one is faster.
_NODE_MEMBERS = frozenset({"type", "data"})
_EDGE_MEMBERS = frozenset({"edge", "from", "to", "data"})
_NONE: frozenset[str] = frozenset()
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SHOWN = 80
_BLANK = " \t\r\n"


class LoadError(GitopsError):
    """Records are invalid, and nothing was published. `problems` has the first 100 of `total` problems.

    `clash` is the table and id of the first record whose key already exists, or None if there is none. `joint` means
    that the problems depend on the graph's content. Earlier stages check only the records.
    """

    def __init__(self, problems: Diagnostics, total: int, clash: tuple[str, str] | None = None) -> None:
        """Create the error; its detail is the first problem."""
        first = next(iter(problems)).message
        super().__init__(Code.GRAPH_DATA_INVALID, f"{first} (and {total - 1} more)" if total > 1 else first)
        self.problems = problems
        self.total = total
        self.clash = clash
        self.joint = False


_RECORD = 'write one record a line, with its properties in "data": {"type": "Person", "data": {"name": "Ada"}}'


class RecordProblems:
    """Problems found in records: keeps the first 100, counts all of them, and stops reading at 10,000.

    Problems are reported in record order, not in order of discovery.
    """

    def __init__(self) -> None:
        self._found: list[tuple[int, str, Code, str, str | None, tuple[str, str] | None]] = []
        self.blanks = array("Q")
        self.total = 0

    def blank_line(self, records: int) -> None:
        """Record that a blank line follows this many records, so that records can be located by line."""
        self.blanks.append(records)

    def add(
        self,
        record: int,
        message: str,
        code: Code = Code.GRAPH_DATA_INVALID,
        clash: tuple[str, str] | None = None,
        *,
        fix: str | None = None,
    ) -> None:
        """Add a problem with a record, counted from 1. The number 0 means the whole load.

        For `clash`, see `LoadError`. Raises LoadError at the 10,000th problem.
        """
        self.total += 1
        # One record's problems have a fixed order; the load's problems are found in hash order.
        insort(self._found, (record, "" if record else message, code, message, fix, clash), key=itemgetter(0, 1))
        del self._found[MAX_REPORTED:]
        if self.total >= MAX_PROBLEMS:
            self.settle()

    def listed(self) -> list[tuple[int, str, str, str | None, tuple[str, str] | None]]:
        """Return the first problems in record order: record, code, message, fix and clash."""
        return [(record, code, message, fix, clash) for record, _, code, message, fix, clash in self._found]

    def place(self, record: int) -> tuple[str, str, SourceRef | None]:
        """Return a record's location in three forms: for programs, for people, and as a position in the stream."""
        line = record + bisect_right(self.blanks, record - 1)
        return f"records[{record}]", f"record {record}", SourceRef("records", line)

    def settle(self) -> None:
        """End a stage. Raises LoadError if there are any problems."""
        if not self.total:
            return
        reported = Diagnostics()
        for record, _, code, message, fix, _ in self._found:
            if record:
                path, name, source = self.place(record)
                reported.add(code, path, f"{name}: {message}", source=source, fix=fix)
            else:
                reported.add(code, "records", message, fix=fix)
        clash = next((each[-1] for each in self._found if each[-1] is not None), None)
        raise LoadError(reported, self.total, clash)


class IncomingRow(NamedTuple):
    """A record as a row. `key` is the table key, `given` the record's data, and `bytes` the line length.

    `new` means that the id was generated, because the record has no `id` and is an edge or a node without a key. No
    other row can have this id.
    """

    key: str
    record: int
    row: dict[str, Any]
    given: Mapping[str, Any]
    bytes: int
    new: bool


@dataclass(slots=True)
class RecordReader:
    """Reads a stream of records once. A record with a problem does not produce a row.

    `ids` generates the ids of edges and nodes without a key. With `embeds`, a required vector may be missing if its
    source text exists. `records` and `bytes_read` count the input so far.
    """

    catalog: Catalog
    ids: IdSource
    problems: RecordProblems
    embeds: bool = False
    records: int = 0
    bytes_read: int = 0

    def read(
        self, stream: BinaryIO, before: Callable[[bytes], None] = lambda _: None
    ) -> Iterator[IncomingRow | ColumnRows]:
        """Yield the stream's rows. The rows of each table are in stream order.

        `before` is called with each block of complete lines, once the rows of all earlier blocks have been processed.
        If a part cannot be read by columns, a smaller part is tried. If that also fails, some lines are read one by
        one, more of them each time, until a part can be read by columns again. Raises LoadError if a line is so long
        that reading cannot continue.
        """
        size, span = _PIECE_BYTES, _LEAST_BYTES
        for block in _blocks(stream):
            before(block)
            at = 0
            while at < len(block):
                end = _lines_end(block, at, size)
                by_columns = end - at > _LEAST_BYTES
                if by_columns:
                    try:
                        yield from self._columns(block[at:end])
                        size, span = min(2 * size, _PIECE_BYTES), _LEAST_BYTES
                    except OddError:
                        if size > 2 * _LEAST_BYTES and block.find(b"\n", at) + 1 < end:
                            size //= 2
                            continue
                        end, span = _lines_end(block, at, span), min(2 * span, _PIECE_BYTES)
                        by_columns = False
                if not by_columns:
                    yield from self._rows(BytesIO(block[at:end]))
                at = end

    def _columns(self, piece: bytes) -> Iterator[IncomingRow | ColumnRows]:
        """Yield the rows of a part, by columns or, for types that are not columnar, line by line.

        Raises OddError before the first row.
        """
        starts = line_starts(piece)
        before, count = self.records, starts.size - 1
        found: list[ColumnRows] = []
        others: list[int] = []
        for declared, lines in lines_by_type(piece, starts, self.catalog):
            if not is_columnar(declared, embeds=self.embeds):
                others += lines.tolist()
                continue
            text = piece
            if lines.size < count:
                mine = np.zeros(count, np.bool_)
                mine[lines] = True
                text = np.frombuffer(piece, np.uint8)[np.repeat(mine, np.diff(starts))[: len(piece)]].tobytes()
            rows, given = read_rows(declared, text, lines.size, self.ids)
            key = f"{'edge' if isinstance(declared, EdgeType) else 'node'}:{declared.name}"
            found.append(ColumnRows(key, rows, before + 1 + lines, given, len(text)))
        for at in sorted(others):
            self.records = before + at
            yield from self._rows(BytesIO(piece[starts[at] : starts[at + 1]]))
        self.records = before + count
        self.bytes_read += sum(each.bytes for each in found)
        yield from found

    def _rows(self, lines: BinaryIO) -> Iterator[IncomingRow]:
        """Yield the rows of lines, in line order."""
        for size, form in self._objects(lines):
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
        """Return the record's type if its members are valid; otherwise None."""
        is_node = "type" in form
        if is_node == ("edge" in form):
            self._fault("expected either 'type', for a node, or 'edge'", _RECORD)
            return None
        members = _NODE_MEMBERS if is_node else _EDGE_MEMBERS
        if not form.keys() <= members or not isinstance(data, dict):
            odd = form.keys() - members
            self._fault(f"unknown member {min(odd)[:_SHOWN]!r}" if odd else "'data' is not an object", _RECORD)
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
        """Return the id of a node with valid cells: from its key, otherwise `data.id`, otherwise a new id."""
        if declared.key is None:
            return self._given_id(data)
        own = node_id(declared, cells)
        given = self._given_id(data) if "id" in data and data["id"] != own else None
        if given is not None:
            self._fault(f"'id' is {given[:_SHOWN]!r}, but the key of {declared.name} requires {str(own)[:_SHOWN]!r}")
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
                # The vectors that must still be computed.
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
            self._fault("'id' is not a valid id")
            return None
        return given

    def _fault(self, message: str, fix: str | None = None) -> None:
        self.problems.add(self.records, message, fix=fix)

    def _objects(self, stream: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the object and length of each non-blank line."""
        while line := stream.readline(MAX_LINE_BYTES + 2):
            self.bytes_read += len(line)
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
                self._fault(f"invalid JSON at record {self.records}: {error}", _RECORD)
                continue
            if isinstance(value, dict):
                yield len(line), value
            else:
                self._fault('the line is not a JSON object such as {"type": "Person", "data": {}}', _RECORD)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the stream in blocks of complete lines. A line that is too long can be incomplete."""
    rest = b""
    # As much again as there is of an unfinished line: a long one is not copied once for each piece.
    while data := stream.read(min(max(_PIECE_BYTES - len(rest), _LEAST_BYTES, len(rest)), MAX_LINE_BYTES + 2)):
        end = data.rfind(b"\n") + 1
        if end or len(rest) + len(data) > MAX_LINE_BYTES + 1:
            yield rest + data[: end or len(data)]
            rest = data[end:] if end else b""
        else:
            rest += data
    if rest:
        yield rest


def _lines_end(block: bytes, at: int, size: int) -> int:
    """Return the end of the complete lines within `size` bytes from `at`, or of one line if it is longer."""
    if at + size >= len(block):
        return len(block)
    return block.rfind(b"\n", at, at + size) + 1 or block.find(b"\n", at) + 1 or len(block)


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
        raise ValueError("a member appears twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_unique_members, parse_constant=_no_constant)


GROUP_BYTES = 8 * 1024 * 1024
"""Maximum bytes of lines that wait as Python rows, over all tables."""

KEY_BYTES = 128 * 1024 * 1024
"""Maximum bytes of keys in memory, over all tables."""

FILE_BYTES = 64 * 1024 * 1024
"""Maximum bytes that wait as Arrow tables, over all tables."""


@dataclass(slots=True)
class TableIntake:
    """One table's rows, and the keys to check across records.

    `ids` has the record and ordinal of each row whose id can clash; `ends` has edge ends by column, with record and 1;
    `groups` has unique groups by columns, with record. The first `kept` of the staged fragments are not discarded if
    the load fails.
    """

    key: str
    declared: NodeType | EdgeType
    rows: int = 0
    ids: Keys = field(default_factory=Keys)
    ends: dict[str, Keys] = field(default_factory=dict)
    groups: dict[tuple[str, ...], Keys] = field(default_factory=dict)
    pending: list[IncomingRow | ColumnRows] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    staged: list[StagedFragment] = field(default_factory=list)
    kept: int = 0

    @property
    def waiting_bytes(self) -> int:
        """The size of the Arrow tables that have not been written to a file yet."""
        return sum(table.nbytes for table in self.tables)

    def all_keys(self) -> list[Keys]:
        """Return all key collections of the table."""
        return [self.ids, *self.ends.values(), *self.groups.values()]


def key_columns_of(declared: NodeType | EdgeType) -> list[str]:
    """Return the columns needed by the rules that involve several records."""
    ends = ["src", "dst"] if isinstance(declared, EdgeType) else []
    return list(dict.fromkeys(["id", *ends, *(name for group in declared.unique for name in group)]))


class LoadIntake:
    """Accepts a load's rows. It is a context manager that closes the key files."""

    def __init__(self, snapshot: Snapshot, embedder: Embedder | None, salt: Salt | None = None) -> None:
        """Create the intake. Data files are written to the snapshot's tables, and rows must match the snapshot's schema.

        `salt` is for keys that other processes read.
        """
        self.snapshot = snapshot
        self.catalog = snapshot.schema().catalog
        self.problems = RecordProblems()
        self._embedder = embedder
        self._opened: dict[str, tuple[TableEntry, lance.LanceDataset]] = {}
        self._pending_bytes = 0
        self._salt = salt
        self.tables: dict[str, TableIntake] = {}
        self.recorded: list[tuple[str, Numbers, Numbers | None]] | None = None
        """If it is not None, the table, records and given ids of the accepted rows are added here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for table in self.tables.values():
            for keys in table.all_keys():
                keys.close()

    @property
    def rows(self) -> int:
        """The number of accepted rows in all tables."""
        return sum(table.rows for table in self.tables.values())

    def add(self, incoming: IncomingRow | ColumnRows) -> None:
        """Accept one or more rows. Raises LoadError, RemoteError `storage_failed`, and the embedder's errors."""
        table = self.tables.get(incoming.key) or self.open_table(incoming.key)
        table.pending.append(incoming)
        self._pending_bytes += incoming.bytes
        if self._pending_bytes >= GROUP_BYTES:
            self._convert_pending()

    def finish(self) -> None:
        """Write the pending rows. Raises the same errors as `add`."""
        self._convert_pending()
        in_parallel(self._stage, self.tables.values(), tables_at_once(self.snapshot.folder))

    def discard(self) -> None:
        """Remove the unreferenced data files, except those to be kept."""
        for table in self.tables.values():
            path = self.snapshot.manifest.tables[table.key].path
            remove_files(self.snapshot.folder, path, table.staged[table.kept :])

    def take_staged(
        self, key: str, fragments: Sequence[StagedFragment], records: Numbers, given: Numbers | None
    ) -> None:
        """Accept rows that are already in data files, which are kept. Only the rows' keys are read.

        For `given` see `record_keys`.

        Raises RemoteError `storage_failed`.
        """
        table, start = self.tables.get(key) or self.open_table(key), 0
        path = self.snapshot.manifest.tables[key].path
        for fragment in fragments:
            rows = read_staged(self.snapshot.folder, path, fragment, key_columns_of(table.declared))
            end = start + rows.num_rows
            if rows.num_rows != fragment.physical_rows:
                detail = f"a part of {key} has {rows.num_rows} rows, and {fragment.physical_rows} were written"
                raise RemoteError(Code.STORAGE_FAILED, detail)
            known = None if given is None or not given[start:end].any() else given[start:end]
            self.record_keys(table, rows, records[start:end], known)
            start = end
        table.staged += fragments
        table.kept = len(table.staged)

    def open_table(self, key: str) -> TableIntake:
        """Start loading a table."""
        declared = declared_type(self.catalog, key)
        table = TableIntake(key, declared, groups={group: Keys() for group in declared.unique})
        if isinstance(declared, EdgeType):
            table.ends = {"src": Keys(), "dst": Keys()}
        self.tables[key] = table
        return table

    def opened(self, key: str, entry: TableEntry) -> lance.LanceDataset:
        """Return a table's dataset at the entry's version, reopening it only if the version has changed.

        Raises the same errors as `open_table`.
        """
        held = self._opened.get(key)
        if held is None or (held[0], held[0].commits) != (entry, entry.commits):
            held = self._opened[key] = entry, open_table(self.snapshot.folder, entry)
        return held[1]

    def _convert_pending(self) -> None:
        """Convert waiting rows to Arrow tables, and write the largest of these to data files while there are too many."""
        self._pending_bytes = 0
        for table in self.tables.values():
            pending, table.pending = table.pending, []
            for _, group in groupby(pending, type):
                run = list(group)
                done = [each for each in run if isinstance(each, ColumnRows)]
                lines = [each for each in run if isinstance(each, IncomingRow)]
                for part in done or [self._as_columns(table.declared, lines)]:
                    if not self.problems.total:
                        table.tables.append(part.rows)
                        self.record_keys(table, part.rows, part.records, part.given)
        while sum(table.waiting_bytes for table in self.tables.values()) >= FILE_BYTES:
            self._stage(max(self.tables.values(), key=lambda table: table.waiting_bytes))

    def _as_columns(self, declared: NodeType | EdgeType, pending: list[IncomingRow]) -> ColumnRows:
        """Convert rows to columns; None if the load already has problems."""
        rows, records = [each.row for each in pending], np.array([each.record for each in pending])
        columns: dict[str, list[Any]] = {name: [] for name in arrow_schema(declared).names}
        if not self.problems.total:
            embed_rows(declared, rows, [each.given for each in pending], self._embedder)
            columns = {name: [row[name] for row in rows] for name in columns}
            for check in declared.checks if isinstance(declared, NodeType) else ():
                for at in find_mismatches(check, columns[check.property_name]):
                    self.problems.add(pending[at].record, pattern_fault(declared, check))
        given = np.array([not each.new for each in pending])
        return ColumnRows(pending[0].key, arrow_table(declared, columns), records, given, 0)

    def record_keys(self, table: TableIntake, rows: pa.Table, records: Numbers, given: Numbers | None) -> None:
        """Record the keys of a table's next rows. `given` is a mask of ids that can clash, or None without any."""
        if self.recorded is not None:
            self.recorded.append((table.key, records, given))
        ordinals = np.arange(table.rows, table.rows + rows.num_rows)
        table.rows += rows.num_rows
        if given is not None:
            ids = rows.column("id") if given.all() else rows.column("id").filter(pa.array(given))
            table.ids.add(self._keys(ids, records[given], ordinals[given]))
        for column, ends in table.ends.items():
            ends.add(self._keys(rows.column(column), records, 1))
        for group, keys in table.groups.items():
            keys.add(self._keys(group_keys([rows.column(name) for name in group]), records))
        held = [keys for each in self.tables.values() for keys in each.all_keys()]
        if sum(keys.nbytes for keys in held) >= KEY_BYTES:
            for keys in held:
                keys.spill()

    def _keys(self, texts: pa.Array | pa.ChunkedArray, records: Numbers, others: Numbers | int = 0) -> KeyBatch:
        return key_batch(texts, records, others, *(() if self._salt is None else (self._salt,)))

    def _stage(self, table: TableIntake) -> None:
        tables, table.tables = table.tables, []
        if tables and not self.problems.total:
            entry = self.snapshot.manifest.tables[table.key]
            opened = self.opened(table.key, entry)
            table.staged += stage_rows(self.snapshot.folder, entry, pa.concat_tables(tables), opened)
