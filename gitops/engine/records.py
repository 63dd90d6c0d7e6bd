"""The record stream: strict NDJSON to typed rows, all problems collected with their record number.

    {"type": "Person", "data": {"name": "ann"}}
    {"edge": "Knows", "from": "ann", "to": "bob", "data": {}}

One object per line that is not blank. Unknown members, repeated members and unknown properties are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from gitops.core.clock import IdSource
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.engine.values import CellError, json_to_cell, key_text, odd_member
from gitops.lang.schema import Catalog, EdgeType, NodeType, RangeBound

__all__ = ["LoadError", "Problems", "Rows", "read_records"]

MAX_LINE_BYTES = 32 * 1024 * 1024
MAX_SLOTS = 131_072
MAX_RECORDS = 1_000_000
MAX_PROBLEMS = 100
_NODE_MEMBERS = frozenset({"type", "data"})
_EDGE_MEMBERS = frozenset({"edge", "from", "to", "data"})
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


class LoadError(GitopsError):
    """The records do not fit the schema; nothing was published. `problems` has at most 100 of what is wrong."""

    def __init__(self, problems: Diagnostics) -> None:
        """The detail is the first problem."""
        messages = [problem.message for problem in problems]
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        super().__init__("graph_data_invalid", f"{messages[0]}{more}")
        self.problems = problems


class Problems:
    """What is wrong with the records; gives up at 100."""

    def __init__(self) -> None:
        """Start with none."""
        self._found = Diagnostics()

    def add(self, record: int, message: str) -> None:
        """Note a problem of a record, counted from 1. Raises LoadError when there are enough."""
        self._found.add("graph_data_invalid", f"records[{record}]", f"record {record}: {message}")
        if len(self._found) >= MAX_PROBLEMS:
            self.settle()

    def settle(self) -> None:
        """End a stage. Raises LoadError when there is any problem."""
        if len(self._found):
            raise LoadError(self._found)


@dataclass(slots=True)
class Rows:
    """The incoming rows of one table, column by column; `records` has the record number of each row."""

    declared: NodeType | EdgeType
    columns: dict[str, list[Any]] = field(default_factory=dict)
    records: list[int] = field(default_factory=list)

    def append(self, record: int, row: Mapping[str, Any]) -> None:
        """Add one row, which has every column."""
        self.records.append(record)
        for name, cell in row.items():
            self.columns.setdefault(name, []).append(cell)

    def keep_last(self) -> None:
        """Of rows with one id, keep the last one."""
        kept = sorted({row_id: at for at, row_id in enumerate(self.columns["id"])}.values())
        self.records = [self.records[at] for at in kept]
        self.columns = {name: [cells[at] for at in kept] for name, cells in self.columns.items()}


def read_records(stream: BinaryIO, catalog: Catalog, ids: IdSource, problems: Problems) -> dict[str, Rows]:
    """The rows by table key (`node:T`, `edge:E`), typed and checked one by one. Raises LoadError."""
    tables: dict[str, Rows] = {}
    for number, form in _objects(stream, problems):
        record = _Record(number, problems)
        is_node = "type" in form
        if is_node == ("edge" in form):
            problems.add(number, "expected 'type' or 'edge' field, one of them")
            continue
        odd = sorted(form.keys() - (_NODE_MEMBERS if is_node else _EDGE_MEMBERS))
        data = form.get("data", {})
        if odd or not isinstance(data, dict):
            problems.add(number, f"unknown member {odd[0][:80]!r}" if odd else "'data' is not an object")
            continue
        declared = _declared(form, catalog)
        if declared is None:
            name = form["type"] if is_node else form["edge"]
            problems.add(number, f"unknown {'node' if is_node else 'edge'} type {str(name)[:80]!r}")
            continue
        row = (
            record.node(declared, data, ids)
            if isinstance(declared, NodeType)
            else record.edge(declared, form, data, ids)
        )
        if row is not None:
            tables.setdefault(f"{'node' if is_node else 'edge'}:{declared.name}", Rows(declared)).append(number, row)
    problems.settle()
    return tables


def _declared(form: Mapping[str, Any], catalog: Catalog) -> NodeType | EdgeType | None:
    name = form["type"] if "type" in form else form["edge"]
    if not isinstance(name, str):
        return None
    return catalog.nodes.get(name) if "type" in form else catalog.edge(name)


class _Record:
    """Reads one record; a problem makes the row None."""

    def __init__(self, number: int, problems: Problems) -> None:
        self._number = number
        self._problems = problems
        self._sound = True

    def node(self, declared: NodeType, data: Mapping[str, Any], ids: IdSource) -> dict[str, Any] | None:
        """The row of a node: its key makes the id, else `data.id`, else a new one."""
        cells = self._cells(declared, data)
        given = self._id(data)
        if declared.key is None:
            return self._row({"id": given or ids.ulid()}, cells)
        parts = [cells.get(name) for name in declared.key]
        if any(part is None for part in parts):
            self._fault(f"missing @key property {declared.name}.{declared.key[parts.index(None)]}")
            return None
        texts = [key_text(cell, declared.properties[name]) for cell, name in zip(parts, declared.key, strict=True)]
        own = texts[0] if len(texts) == 1 else json.dumps(texts, separators=(",", ":"), ensure_ascii=False)
        if given is not None and given != own:
            self._fault(f"'id' is {given[:80]!r} and the key of {declared.name} makes it {own[:80]!r}")
        return self._row({"id": own}, cells)

    def edge(
        self, declared: EdgeType, form: Mapping[str, Any], data: Mapping[str, Any], ids: IdSource
    ) -> dict[str, Any] | None:
        """The row of an edge: `from` and `to` are node ids."""
        ends = {}
        for column, member in (("src", "from"), ("dst", "to")):
            end = form.get(member)
            if not isinstance(end, str) or not _is_id(end):
                self._fault(f"edge missing '{member}'")
            ends[column] = end
        return self._row({"id": self._id(data) or ids.ulid(), **ends}, self._cells(declared, data))

    def _cells(self, declared: NodeType | EdgeType, data: Mapping[str, Any]) -> dict[str, Any]:
        for name in sorted(data.keys() - declared.properties.keys() - {"id"}):
            self._fault(f"{declared.name} has no property {name[:80]!r}")
        cells: dict[str, Any] = {}
        for name, kind in declared.properties.items():
            cells[name] = None
            if data.get(name) is None:
                if not kind.nullable:
                    self._fault(f"{declared.name}.{name} is required")
                continue
            owner = f"{declared.name}.{name}"
            try:
                cells[name] = json_to_cell(data[name], kind)
            except CellError as error:
                self._fault(f"strict property {owner} {error}")
                continue
            odd = odd_member(cells[name], kind)
            if odd is not None:
                self._fault(
                    f"invalid enum value {odd[:80]!r} for {owner} (expected: {', '.join(kind.enum_values or ())})"
                )
        if isinstance(declared, NodeType):
            self._ranges(declared, cells)
        return cells

    def _ranges(self, declared: NodeType, cells: Mapping[str, Any]) -> None:
        for bound in declared.ranges:
            cell = cells[bound.property_name]
            if cell is not None and not _within(cell, bound):
                low, high = ("" if end is None else end for end in (bound.low, bound.high))
                self._fault(
                    f"@range violation on {declared.name}.{bound.property_name}: {cell} is not in {low}..{high}"
                )

    def _id(self, data: Mapping[str, Any]) -> str | None:
        given = data.get("id")
        if given is None and "id" not in data:
            return None
        if not isinstance(given, str) or not _is_id(given):
            self._fault("'id' is not a text that can be an id")
            return None
        return given

    def _row(self, head: dict[str, Any], cells: dict[str, Any]) -> dict[str, Any] | None:
        return head | cells if self._sound else None

    def _fault(self, message: str) -> None:
        self._sound = False
        self._problems.add(self._number, message)


def _objects(stream: BinaryIO, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object of each line that is not blank, with its number."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            problems.add(number + 1, f"the line is longer than {MAX_LINE_BYTES} bytes")
            problems.settle()
        if not line.strip():
            continue
        number += 1
        if number > MAX_RECORDS:
            problems.add(number, f"one load takes at most {MAX_RECORDS} records")
            problems.settle()
        try:
            value = _parse(line)
        except (ValueError, RecursionError) as error:
            problems.add(number, f"invalid JSON at record {number}: {error}")
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            problems.add(number, "is not an object")


def _parse(line: bytes) -> Any:
    text = line.decode()
    if sum(map(line.count, (b"{", b"[", b",", b":"))) > MAX_SLOTS and _slots(text) > MAX_SLOTS:
        raise ValueError(f"more than {MAX_SLOTS} structural slots")
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)


def _slots(text: str) -> int:
    """Brackets, commas and colons outside texts."""
    bare = _TEXT.sub("", text)
    return sum(map(bare.count, "{[,:"))


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a member is given twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _is_id(text: str) -> bool:
    return bool(text) and "\0" not in text and text.encode("utf-8", "replace").decode() == text


def _within(cell: Any, bound: RangeBound) -> bool:
    return (bound.low is None or cell >= bound.low) and (bound.high is None or cell <= bound.high)
