"""Worker tasks of a load over an executor. The arguments and answers of all tasks are JSON."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError, system_reason
from gitops.database.executor.port import Tools
from gitops.database.graph.bulk import RowMaker
from gitops.database.graph.distributed.documents import Piece, SharedLoad, read_inputs, recorded
from gitops.database.graph.distributed.keyfiles import all_keys, read_keys, read_rows, write_keys, write_rows
from gitops.database.graph.distributed.sources import open_file, open_lines, open_parquet, require_size
from gitops.database.graph.load import Columns, JointChecks, TableCheck
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.tables import call_driver, declared_type, open_table
from gitops.database.graph.write.columns import ColumnRows
from gitops.database.graph.write.committed import ADDRESS
from gitops.database.graph.write.intake import LoadError, LoadIntake, RecordProblems, RecordReader, TableIntake
from gitops.database.graph.write.keys import KeyBatch, Keys, group_keys, joined, key_batch
from gitops.database.language.schema import EdgeType, NodeType

_ROWS = 1 << 14
_SCAN_ROWS = 1 << 16


def write_piece(form: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    """Check a piece's records one by one, then write them and their keys to files.

    `form` has `uri`, `bulk`, `piece` (its number) and `records`, the number of records before the piece, as far as
    known. Returns the number of `records`, `blanks` (for each blank line, the records before it) and `tables`; or, if
    records are invalid, `problems` and their `total`. `cut` means that the rest of the piece was not read.
    """
    return recorded("bulk.write", form, tools, partial(_write, form, tools))


def _write(form: Mapping[str, Any], tools: Tools, load: SharedLoad, snapshot: Snapshot) -> dict[str, Any]:
    piece, before = load.pieces[form["piece"]], int(form["records"])
    with LoadIntake(snapshot, None, load.salt) as intake:
        reader = RecordReader(intake.catalog, tools.ids, intake.problems, records=before)
        rows = _parquet_rows(reader, piece) if piece.table else _line_rows(reader, piece)
        cut = False
        try:
            for incoming in rows:
                intake.add(incoming)
            intake.finish()
            _settle_files(intake)
        except LoadError:
            cut = True
        except BaseException:
            intake.discard()
            raise
        answer: dict[str, Any] = {"records": reader.records - before, "blanks": intake.problems.blanks.tolist()}
        if intake.problems.total:
            intake.discard()
            return {**answer, "problems": intake.problems.listed(), "total": intake.problems.total, "cut": cut}
        tools.faults.reach("engine.bulk.after_files")
        tables = {key: _table_answer(load, snapshot, table, tools) for key, table in intake.tables.items()}
        return {**answer, "tables": tables}


def _line_rows(reader: RecordReader, piece: Piece) -> Iterator[Any]:
    with open_lines(piece) as lines:
        yield from reader.read(lines)


def _parquet_rows(reader: RecordReader, piece: Piece) -> Iterator[ColumnRows]:
    """Yield the rows of row groups, checked as batches of a bulk load."""
    key = piece.table or ""
    declared = declared_type(reader.catalog, key)
    maker = RowMaker(declared, reader.ids, reader.problems)
    maker.count = reader.records
    with open_file(piece.file) as raw:
        require_size(piece, raw)
    with open_parquet(piece.file) as opened:
        for batch in opened.iter_batches(_ROWS, row_groups=range(piece.start, piece.end)):
            rows = maker.rows(batch)
            records = np.arange(reader.records + 1, reader.records + batch.num_rows + 1)
            reader.records += batch.num_rows
            if reader.problems.total:
                continue
            given = np.ones(batch.num_rows, np.bool_)
            if isinstance(declared, EdgeType) or declared.key is None:
                named = "id" in batch.schema.names
                given = batch.column("id").is_valid().to_numpy(zero_copy_only=False) if named else ~given
            yield ColumnRows(key, rows, records, given, rows.nbytes)


def _settle_files(intake: LoadIntake) -> None:
    folder = intake.snapshot.folder
    try:
        for table in intake.tables.values():
            path = intake.snapshot.manifest.tables[table.key].path
            folder.settle(path, [f"data/{file.path}" for part in table.staged for file in part.files])
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, intake.snapshot.root.location)) from error


def _table_answer(load: SharedLoad, snapshot: Snapshot, table: TableIntake, tools: Tools) -> dict[str, Any]:
    collections = {"id": table.ids, **table.ends}
    collections |= {_group_name(table.declared, group): keys for group, keys in table.groups.items()}
    held = {name: all_keys(keys) for name, keys in collections.items() if keys.rows}
    keys = write_keys(snapshot.store, load.key(f"keys/{tools.ids.ulid()}"), held, load.buckets)
    fragments = [json.dumps(part.to_json()) for part in table.staged]
    return {"rows": table.rows, "fragments": fragments, "keys": keys}


def _group_name(declared: NodeType | EdgeType, group: tuple[str, ...]) -> str:
    return f"unique:{list(declared.unique).index(group)}"


def scan_keys(form: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    """Write the keys of some fragments of a committed table, with their addresses.

    `form` has `uri`, `bulk`, `version`, `table`, `fragments` and `collections`. Returns `keys`.
    """

    def work(load: SharedLoad, snapshot: Snapshot) -> dict[str, Any]:
        base = _version(form, load)
        declared = declared_type(base.schema().catalog, form["table"])
        entry = base.manifest.tables[form["table"]]
        dataset = open_table(base.folder, entry)
        columns = {name: _columns_of(declared, name) for name in form["collections"]}
        read = list(dict.fromkeys(name for group in columns.values() for name in group))
        wanted = set(form["fragments"])
        fragments = [each for each in dataset.get_fragments() if each.fragment_id in wanted]
        scanner = dataset.scanner(columns=read, fragments=fragments, with_row_address=True, batch_size=_SCAN_ROWS)
        found: dict[str, list[KeyBatch]] = {name: [] for name in columns}
        for batch in call_driver(entry.path, lambda: list(scanner.to_batches())):
            addresses = batch.column(ADDRESS).to_numpy()
            for name, group in columns.items():
                cells = [batch.column(each) for each in group]
                texts = group_keys(cells) if name.startswith("unique:") else cells[0]
                found[name].append(key_batch(texts, addresses, 0, load.salt))
        held = {name: joined(batches) for name, batches in found.items()}
        keys = write_keys(snapshot.store, load.key(f"keys/{tools.ids.ulid()}"), held, load.buckets)
        return {"keys": keys}

    return recorded("bulk.scan", form, tools, work)


def _columns_of(declared: NodeType | EdgeType, collection: str) -> tuple[str, ...]:
    kind, _, number = collection.partition(":")
    return tuple(list(declared.unique)[int(number)]) if kind == "unique" else (collection,)


def check_bucket(form: Mapping[str, Any], tools: Tools) -> dict[str, Any]:
    """Check one bucket of a table against the other pieces and a version.

    `form` has `uri`, `bulk`, `version`, `stage` (`ids` or `rest`), `table`, `bucket` and `inputs`. For each of the
    three steps of a load's check, returns the `problems` with their rank and `totals`, and `rows`: the committed rows
    that are replaced, and the loaded records and rows that a later record replaces.
    """

    def work(load: SharedLoad, snapshot: Snapshot) -> dict[str, Any]:
        base = _version(form, load)
        inputs = read_inputs(form["uri"], form["bulk"], form["inputs"])
        with LoadIntake(base, None) as intake:
            checks = _BucketChecks(base, intake, load.mode, inputs=inputs, bucket=form["bucket"])
            try:
                answer = checks.ids(form["table"]) if form["stage"] == "ids" else checks.rest(form["table"])
                sets = checks.found(form["table"])
                return {**answer, "rows": write_rows(snapshot.store, load.key(f"rows/{tools.ids.ulid()}"), sets)}
            finally:
                checks.close()

    return recorded("bulk.check", form, tools, work)


def _version(form: Mapping[str, Any], load: SharedLoad) -> Snapshot:
    return _opened(load.plan.uri, load.plan.graph_id, load.plan.branch, form["version"])


@lru_cache(maxsize=4)
def _opened(uri: str, graph_id: str, branch: str, version: int) -> Snapshot:
    snapshot = open_snapshot(uri, ReadTarget(branch, version=version))
    if snapshot.identity.graph_id != graph_id:
        raise GitopsError(Code.GRAPH_CONFLICT, f"{uri} contains a different graph now", path=uri)
    return snapshot


@dataclass(slots=True)
class _BucketChecks(JointChecks):
    """The checks of a load, over one bucket of the keys.

    `inputs` has for each loaded table its `parts` in order (`record` and `row` before the part, and its `keys`), for
    committed tables the `scans` of their keys, and for each loaded table the `rows` of the first stage.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict)
    bucket: int = 0
    _problems: list[list[Any]] = field(default_factory=list)
    _totals: list[int] = field(default_factory=lambda: [0, 0, 0])

    def ids(self, key: str) -> dict[str, Any]:
        """Check the ids of a table."""
        table = self._loaded(key, ("id",))
        self._outcomes = {key: TableCheck()}
        self._run(0, 0, lambda: self._check_ids(key, table))
        return {"problems": self._problems, "totals": self._totals}

    def rest(self, key: str) -> dict[str, Any]:
        """Check unique groups, edge ends and numbers of edges of a loaded table; of another one, what its edges lose."""
        declared = declared_type(self.intake.catalog, key)
        if key not in self.inputs["parts"]:
            if isinstance(declared, EdgeType):
                for owner in {declared.source, declared.target}:
                    self._owner(owner)
                self._run(1, 0, lambda: self._check_orphans(declared))
            return {"problems": self._problems, "totals": self._totals}
        names = [_group_name(declared, group) for group in declared.unique]
        table = self._loaded(key, (*names, *(("src", "dst") if isinstance(declared, EdgeType) else ())))
        self._outcomes = {key: self._first_outcome(key)}
        for rank, (group, keys) in enumerate(table.groups.items(), 1):
            self._run(0, rank, partial(self._check_unique, key, table, group, keys))
        if isinstance(declared, EdgeType):
            for rank, (column, keys) in enumerate(table.ends.items()):
                self._owner(declared.source if column == "src" else declared.target)
                self._run(1, rank, partial(self._check_ends, key, table, column, keys))
            if declared.cardinality != (0, None):
                self._run(2, 0, lambda: self._check_cardinality(key, declared, table))
        return {"problems": self._problems, "totals": self._totals}

    def found(self, key: str) -> list[Any]:
        """Return the replaced rows, and the superseded records and rows, that the first stage found."""
        found = self._outcomes.get(key, TableCheck())
        return [found.replaced.sorted(), found.superseded.sorted(), found.superseded_rows.sorted()]

    def close(self) -> None:
        """Close every key collection."""
        for keys in self._made:
            keys.close()

    def _run(self, step: int, rank: int, check: Callable[[], None]) -> None:
        problems = self.intake.problems = RecordProblems()
        # A check ends early if there are too many problems, which are counted.
        with contextlib.suppress(LoadError):
            check()
        self._totals[step] += problems.total
        self._problems += [[step, rank, *problem] for problem in problems.listed()]

    def _loaded(self, key: str, collections: Sequence[str]) -> TableIntake:
        """Return a loaded table with the keys of this bucket."""
        table = self.intake.tables.get(key) or self.intake.open_table(key)
        held = {"id": table.ids, **table.ends}
        held |= {_group_name(table.declared, group): keys for group, keys in table.groups.items()}
        for part in self.inputs["parts"].get(key, ()):
            for name in collections:
                batch = read_keys(self.snapshot.store, part["keys"], name, self.bucket)
                if batch is not None:
                    others = batch.others + part["row"] if name == "id" else batch.others
                    held[name].add(batch._replace(records=batch.records + part["record"], others=others))
        return table

    def _owner(self, owner: str) -> None:
        """Read the ids of the loaded nodes of a type, if there are any."""
        key = f"node:{owner}"
        if key in self.inputs["parts"] and key not in self.intake.tables:
            self._loaded(key, ("id",))

    def _first_outcome(self, key: str) -> TableCheck:
        outcome = TableCheck()
        for index in self.inputs["rows"].get(key, ()):
            replaced, superseded, rows = read_rows(self.snapshot.store, index)
            outcome.replaced.add(replaced)
            outcome.superseded.add(superseded)
            outcome.superseded_rows.add(rows)
        return outcome

    def _committed_keys(self, key: str, columns: Columns, wanted: Keys) -> Keys:
        del wanted
        return self._scanned(key, columns)

    def _edges_of_sources(self, key: str, table: TableIntake, outcome: TableCheck) -> Keys:
        del table, outcome
        return self._scanned(key, "src")

    def _read_all(self, key: str, columns: Columns) -> Keys:
        return self._scanned(key, columns)

    def _scanned(self, key: str, columns: Columns) -> Keys:
        """Return the committed keys of this bucket. None were scanned for a table that is overwritten."""
        found = self._keys()
        declared = declared_type(self.intake.catalog, key)
        name = columns if isinstance(columns, str) else _group_name(declared, columns)
        for index in self.inputs["scans"].get(key, ()):
            batch = read_keys(self.snapshot.store, index, name, self.bucket)
            if batch is not None:
                found.add(batch)
        return found
