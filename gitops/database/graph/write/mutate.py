"""Runs mutations. Each mutation publishes all of its statements in one version, or none of them.

Statements run in order, on a snapshot's rows plus the changes made by earlier statements (§4.3 to §4.6). A mutation's
changes are written rows by id, which replace committed rows, and removed rows. A statement's values are constants,
parameters and the instant of `now()`. A written value is converted to a cell of its property. A compared number stays
unchanged, because numbers of different types compare exactly (K12), except for 32-bit floats. Dates and times given as
strings are converted to cells.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError, ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.embedding import Embedder
from gitops.database.graph.layout import MAIN
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.query.tables import TableRows
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.database.graph.staged import StagedVersion, WriteContext, retry_until_published, sleep_jittered
from gitops.database.graph.tables import TableWriter, arrow_table, key_columns, raw_columns
from gitops.database.graph.values import CellError, compared_with, json_to_cell, nearest_single
from gitops.database.graph.write import rules
from gitops.database.graph.write.committed import (
    ADDRESS,
    NEVER,
    ROW_ID,
    CommittedTable,
    comparison_filter,
    comparison_holds,
)
from gitops.database.graph.write.memory import WriterMemory
from gitops.database.language.query import CheckedQuery, ComparisonOperator, QueryEffect, typed
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.schema import INTEGERS, NUMERIC, Catalog, EdgeType, NodeType, PropType, Scalar, TypeKind

LOCK_BRANCH = "__schema_apply_lock__"
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class MutationOptions:
    """Options for a mutation. `now` is the instant of `now()`, and `actor` is recorded in the manifest.

    With `expected_head`, the branch must be at that version, and with `expected_commit` at that commit. With `begun`,
    the version that the caller started from, later changes by others are never overwritten; see `_require_unmoved`.
    `embedder` computes vectors that an insert leaves out (`@embed`). Without it, they are missing.
    """

    now: datetime
    branch: str = MAIN
    actor: str | None = None
    expected_head: int | None = None
    embedder: Embedder | None = None
    expected_commit: str | None = None
    begun: Manifest | None = None


@dataclass(slots=True, eq=False)
class QueuedMutation:
    """A mutation, and its outcome, which is set after it ran."""

    statements: tuple[typed.TypedStatement, ...]
    operands: Operands
    options: MutationOptions
    outcome: MutationResult | BaseException | None = None

    def fits(self, first: QueuedMutation) -> bool:
        """Return whether this mutation can join the group that `first` starts."""
        own, others = self.options, first.options
        guarded = any(
            (each.expected_head, each.expected_commit, each.begun) != (None, None, None) for each in (own, others)
        )
        deletes, delete = (isinstance(each.statements[0], typed.TypedDelete) for each in (self, first))
        return self is first or (not guarded and own.actor == others.actor and deletes == delete)

    def named(self, catalog: Catalog) -> Iterator[tuple[str, str]]:
        """Yield node types and the ids in the statements: keys of updated nodes and ends of inserted edges."""
        for each in self.statements:
            if isinstance(each, typed.TypedUpdate):
                declared, by = catalog.nodes.get(each.type_name), each.predicate
                if declared is not None and _is_id(declared, by):
                    yield each.type_name, self.operands.raw(by.value)
            elif isinstance(each, typed.TypedInsert) and each.type_name in catalog.edges:
                edge = catalog.edges[each.type_name]
                ends = {"from": edge.source, "to": edge.target}
                yield from (
                    (ends[one.name], self.operands.raw(one.value)) for one in each.assignments if one.name in ends
                )


class Mutator:
    """Runs mutations with a given clock and id source.

    Safe for several processes. Writers take turns, and a writer that still loses a race starts over from the newest
    version.
    """

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        faults: Faults | None = None,
        pause: Callable[[int], None] = sleep_jittered,
        memory: WriterMemory | None = None,
    ) -> None:
        """Create a mutator.

        `ids` generates ids for edges, nodes without key and the transaction; `pause` waits between attempts. Mutations
        of one process can share a `memory`. Without it, each mutation finds its rows by reading the tables.
        """
        self._clock = clock
        self._ids = ids
        self._faults = faults or NoFaults()
        self._pause = pause
        self._memory = memory or WriterMemory()

    def run(self, uri: str, query: CheckedQuery, params: object, options: MutationOptions) -> MutationResult:
        """Run a checked mutation. `params` is a JSON object or None.

        Before reading, raises GitopsError `mutation_mixed`, `query_params_invalid`, `mutation_invalid` for a read
        query. Later, raises `mutation_invalid`, `resource_limit`, `head_moved`; `graph_conflict` if other writers were
        faster 32 times; the errors of `open_snapshot`, and RemoteError `storage_failed`. After an error, nothing was
        published.
        """
        return self.enqueue(uri, query, params, options)()

    def enqueue(
        self, uri: str, query: CheckedQuery, params: object, options: MutationOptions
    ) -> Callable[[], MutationResult]:
        """Queue a mutation. Return a function that runs it together with the other waiting mutations.

        Raises the same errors as `run`. The function must be called once, in any thread. An earlier call for another
        mutation may already have run this one.
        """
        if query.kind is not QueryEffect.MUTATION:
            detail = f"query {query.name} reads and changes nothing, so it is not a mutation"
            raise GitopsError(
                Code.MUTATION_INVALID, detail, fix=f"run it as a query: gitops graph query GRAPH {query.name}"
            )
        statements = query.body
        if isinstance(statements, typed.TypedRead):
            raise BugError(f"query {query.name} is called as a mutation but only reads")
        if len({isinstance(each, typed.TypedDelete) for each in statements}) > 1:
            raise GitopsError(Code.MUTATION_MIXED, f"query {query.name} mixes inserts/updates and deletes")
        operands = Operands.of(query.params, params, options.now)
        branch = options.branch.strip()
        if branch == LOCK_BRANCH:
            raise GitopsError(Code.MUTATION_INVALID, f"branch {LOCK_BRANCH} does not accept writes")
        queue = self._memory.queue(find_root(uri).location, branch)
        mutation = QueuedMutation(statements, operands, options)
        queue.add(mutation)
        return lambda: queue.finish(mutation, partial(self._run_group, uri))

    def _run_group(self, uri: str, group: Sequence[QueuedMutation]) -> None:
        """Run a group of mutations as one version, and set their outcomes."""
        for mutation, outcome in retry_until_published(lambda: self._attempt(uri, group), self._pause):
            mutation.outcome = outcome

    def _attempt(
        self, uri: str, group: Sequence[QueuedMutation]
    ) -> list[tuple[QueuedMutation, MutationResult | Exception]]:
        """Carry out mutations in order, up to one that is too large for the version of those before it.

        A mutation that fails changes nothing. Raises ConflictError `graph_conflict` if another writer was faster,
        RemoteError `storage_failed`, and the errors of `open_snapshot`.
        """
        options = group[0].options
        with find_root(uri).lease():
            snapshot = open_snapshot(uri, ReadTarget(branch=options.branch), self._memory.heads)
            # Compiling a schema is slow.
            key = ("catalog", snapshot.manifest.schema_ir, frozenset(snapshot.manifest.tables))
            catalog = self._memory.heads.value(key, lambda: snapshot.schema().catalog)
            changes = GraphChanges(snapshot, catalog, self._memory)
            if len(group) > 1:
                changes.hold(each for mutation in group for each in mutation.named(catalog))
            done: list[tuple[QueuedMutation, MutationRun | Exception]] = []
            for mutation in group:
                before = changes.begin()
                try:
                    done.append((mutation, self._evaluate(mutation, changes)))
                except Exception as error:
                    code = error.code if isinstance(error, GitopsError) else None
                    if code in (Code.GRAPH_CONFLICT, Code.STORAGE_FAILED):
                        raise
                    changes.restore(before)
                    if code is Code.RESOURCE_LIMIT and changes.touched():
                        break
                    done.append((mutation, error))
            published = self._publish(snapshot, changes, options.actor) if changes.touched() else None
        n = snapshot.manifest.n if published is None else published.n
        return [
            (mutation, found if isinstance(found, Exception) else found.result(n, published))
            for mutation, found in done
        ]

    def _evaluate(self, mutation: QueuedMutation, changes: GraphChanges) -> MutationRun:
        """Add a mutation's changes, and check the resulting graph."""
        statements, options = mutation.statements, mutation.options
        _require_head(changes.snapshot, options)
        _require_types(changes.catalog, statements)
        run = MutationRun(changes.catalog, changes, mutation.operands, self._ids, options.embedder)
        for statement in statements:
            run.run(statement)
        _require_unmoved(changes.snapshot, options, statements, changes)
        _check_final_image(run)
        return run

    def _publish(self, snapshot: Snapshot, changes: GraphChanges, actor: str | None) -> Manifest:
        """Stage each table's changes in one new table version, and publish them together."""
        self._faults.reach("engine.mutate.before_tables")
        base = snapshot.manifest
        tables, written = {}, {}
        for key, table in changes.touched().items():
            replaced = table.find_replaced()
            # Replacement rows come first and keep the row ids.
            rows = sorted(table.written.values(), key=lambda row: row["id"] not in replaced)
            kept = [replaced[row["id"]][1] for row in rows[: len(replaced)]]
            gone = [*table.gone.values(), *(address for address, _ in replaced.values())]
            writer = TableWriter(snapshot.folder, base.tables[key], table.committed.opened)
            names = [*key_columns(table.declared), *table.declared.properties]
            cells = arrow_table(table.declared, {name: [row[name] for row in rows] for name in names})
            staged = []
            if rows:
                staged = writer.stage(cells)
                table.committed.wrote(staged, rows)
            writer.exchange(staged, gone, kept)
            writer.tidy()
            same = len(gone) == len(kept) == len(rows)
            tables[key] = writer.finish(recount=True, changed=table.changed if same else None)
            written[key] = writer.dataset, TableRows.of(kept, cells) if same else None
        self._faults.reach("engine.mutate.staged")
        context = WriteContext(self._clock, self._ids, actor, faults=self._faults)
        version = StagedVersion(snapshot, "mutate", context, stamp=timestamp, tables={**base.tables, **tables})
        for key, (dataset, rewritten) in written.items():
            # Readers of this process find the new version in their cache as soon as they see the manifest.
            self._memory.heads.offer(snapshot, key, version.manifest.tables[key], dataset, rewritten)
        version.publish()
        return version.manifest


def _require_head(snapshot: Snapshot, options: MutationOptions) -> None:
    """Raise ConflictError `head_moved` if the branch is not at the expected commit.

    An unwritten branch is also at the commit from which it was created, because it has the same rows.
    """
    head, fork = snapshot.manifest, snapshot.line.fork
    origin = fork.commit if fork is not None and head.n == fork.n + 1 else None
    for what, expected, found in (
        ("version", options.expected_head, (head.n,)),
        ("commit", options.expected_commit, (head.txn_id, origin)),
    ):
        if expected not in (None, *found):
            detail = f"branch {snapshot.branch} is at {what} {found[0]}, not at {expected}"
            raise ConflictError(Code.HEAD_MOVED, detail, path=snapshot.root.location)


def _require_unmoved(
    snapshot: Snapshot,
    options: MutationOptions,
    statements: tuple[typed.TypedStatement, ...],
    changes: GraphChanges,
) -> None:
    """Raise ConflictError `head_moved` if the mutation would overwrite changes that others made after it was started.

    An update or delete chose its rows from the branch's earlier state, so any later version is a conflict. An insert
    can still run on the current state, unless it replaces a row in a table that has changed, because that row may be
    new.
    """
    begun, head = options.begun, snapshot.manifest
    if begun is None or begun.txn_id == head.txn_id:
        return
    moved = {key: table for key, table in changes.touched().items() if begun.tables.get(key) != head.tables[key]}
    inserts = all(isinstance(each, typed.TypedInsert) for each in statements)
    if not inserts or any(table.find_replaced() for table in moved.values()):
        detail = f"branch {snapshot.branch} is at commit {head.txn_id}, and the change was begun at {begun.txn_id}"
        raise ConflictError(Code.HEAD_MOVED, detail, path=snapshot.root.location)


def _require_types(catalog: Catalog, statements: tuple[typed.TypedStatement, ...]) -> None:
    """Check that the statements match the current schema, which may have changed since the query was checked."""
    for each in statements:
        is_edge = not isinstance(each, typed.TypedUpdate) and each.kind is TypeKind.EDGE
        declared = (catalog.edges if is_edge else catalog.nodes).get(each.type_name)
        named = [] if isinstance(each, typed.TypedDelete) else [(one.name, one.type) for one in each.assignments]
        tested = [] if isinstance(each, typed.TypedInsert) else [(each.predicate.name, each.predicate.type)]
        ends = ("from", "to") if is_edge else ()
        for name, kind in (*named, *tested):
            if declared is not None and (name in ends or declared.properties.get(name) == kind):
                continue
            raise mutation_error(
                f"the schema of the graph has no {each.type_name}.{name} of type {kind}; check the query again"
            )


def _check_final_image(run: MutationRun) -> None:
    """Check the graph rules at the end of a mutation (§4.7): ends of edges, unique groups, cardinalities.

    Only affected rows are checked, in the resulting state, so a value that the query freed can be reused. Raises
    GitopsError `mutation_invalid` for the first broken rule; the errors of reading the tables.
    """
    for owner in sorted(run.ends):
        wanted = run.ends[owner]
        present = run.changes.node(owner).committed.addresses(wanted.keys())
        for end, (edge, column) in wanted.items():
            if end not in present:
                raise mutation_error(f"edge {edge}: {column} {end[:_SHOWN]!r} not found in {owner}")
    for table in run.changes.touched().values():
        for group in table.declared.unique if table.own else ():
            _check_unique(table, group)
    for name in sorted(run.sources):
        _check_cardinality(run, run.catalog.edges[name])


def _check_unique(table: TableChanges, group: tuple[str, ...]) -> None:
    """Check that no other row of the final table has a written row's unique group; rows with a null member are exempt."""
    owners: dict[tuple[Any, ...], str] = {}
    for row_id, row in table.written.items():
        cells = rules.hashable_cells(row[name] for name in group)
        if None not in cells and owners.setdefault(cells, row_id) != row_id:
            raise mutation_error(rules.unique_violation(table.declared, group, cells))
    # Rows written by other mutations of this version were checked together with these.
    mine = [cells for cells, row_id in owners.items() if row_id in table.own]
    if not mine:
        return
    at = table.committed.first_findable(group, mine[0])
    for columns in table.committed.find(group[at], {cells[at] for cells in mine}, ["id", *group]):
        for row_id, *members in zip(columns["id"], *(columns[name] for name in group), strict=True):
            cells = rules.hashable_cells(members)
            if cells in owners and row_id not in table.written and row_id not in table.gone:
                raise mutation_error(rules.unique_violation(table.declared, group, cells))


def _check_cardinality(run: MutationRun, edge: EdgeType) -> None:
    """Check the cardinality of every source whose edges changed, unless the source itself was removed."""
    low, high = edge.cardinality
    if (low, high) == (0, None):
        return
    table = run.changes.edge(edge.name)
    sources = run.sources[edge.name] - run.changes.node(edge.source).gone.keys()
    counts = Counter(row["src"] for row in table.written.values())
    for columns in table.committed.find("src", sources, ["id", "src"]):
        counts.update(
            source for row_id, source in zip(columns["id"], columns["src"], strict=True) if row_id not in table.gone
        )
    for source in sorted(sources):
        count = counts[source]
        if count < low or (high is not None and count > high):
            raise mutation_error(rules.cardinality_violation(edge, source, count))


MAX_ENTITIES = 8192
"""Maximum rows that one mutation can write to one table."""

MAX_BYTES = 32 * 1024 * 1024
"""Maximum bytes of cells that one mutation can write to one table."""

_FIXED_BYTES = 8

_ENDS = {"from": "src", "to": "dst"}
Row = dict[str, Any]


@dataclass(slots=True)
class TableChanges:
    """One table's changes.

    `written` has complete rows by id. `gone` has the addresses of deleted rows by id. `replaced` has the address and
    row id of committed rows that written rows are known to replace; ids in `new` are known to replace no row. `changed`
    lists the columns of replaced rows that may have new values. `own` has the ids of rows that the current mutation
    wrote.
    """

    declared: NodeType | EdgeType
    committed: CommittedTable
    written: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, tuple[int, int]] = field(default_factory=dict)
    new: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    bytes: int = 0

    @property
    def touched(self) -> bool:
        """Return whether there are any changes."""
        return bool(self.written or self.gone)

    def copy(self) -> TableChanges:
        """Return a copy of the changes for another mutation, without its own writes."""
        written, gone, replaced = dict(self.written), dict(self.gone), dict(self.replaced)
        new, changed = set(self.new), set(self.changed)
        return TableChanges(self.declared, self.committed, written, gone, replaced, new, changed, bytes=self.bytes)

    def write(self, row_id: str, row: dict[str, Any]) -> None:
        """Add a complete row. Raises GitopsError `resource_limit`."""
        self.bytes += sum(map(_size, row.values())) - sum(map(_size, self.written.get(row_id, {}).values()))
        self.written[row_id] = row
        self.own.add(row_id)
        name = self.declared.name
        if len(self.written) > MAX_ENTITIES:
            raise GitopsError(Code.RESOURCE_LIMIT, f"one mutation writes at most {MAX_ENTITIES} rows of {name}")
        if self.bytes > MAX_BYTES:
            raise GitopsError(Code.RESOURCE_LIMIT, f"one mutation writes at most {MAX_BYTES} bytes to {name}")

    def find_replaced(self) -> dict[str, tuple[int, int]]:
        """Find the address and row id of each committed row that a written row replaces."""
        unknown = self.written.keys() - self.replaced.keys() - self.new
        self.replaced.update(self.committed.places(unknown))
        self.new.update(unknown - self.replaced.keys())
        return self.replaced


@dataclass(slots=True)
class GraphChanges:
    """Changes to all tables of a snapshot, created on demand."""

    snapshot: Snapshot
    catalog: Catalog
    memory: WriterMemory
    _tables: dict[str, TableChanges] = field(default_factory=dict)

    def node(self, name: str) -> TableChanges:
        """Return the changes of a node type."""
        return self._table(f"node:{name}", self.catalog.nodes[name])

    def edge(self, name: str) -> TableChanges:
        """Return the changes of an edge type."""
        return self._table(f"edge:{name}", self.catalog.edges[name])

    def hold(self, named: Iterable[tuple[str, object]]) -> None:
        """Prefetch nodes by type and id, with one read per type."""
        ids = defaultdict[str, set[str]](set)
        for name, node_id in named:
            if isinstance(node_id, str):
                ids[name].add(node_id)
        for name in ids:
            self.node(name).committed.hold(ids[name])

    def begin(self) -> dict[str, TableChanges]:
        """Start another mutation. Return the changes of the earlier ones, for `restore`."""
        before = self._tables
        self._tables = {key: table.copy() for key, table in before.items()}
        return before

    def restore(self, before: dict[str, TableChanges]) -> None:
        """Undo all changes since the matching `begin`."""
        self._tables = before

    def touched(self) -> dict[str, TableChanges]:
        """Return the changed tables by key, in key order."""
        return {key: self._tables[key] for key in sorted(self._tables) if self._tables[key].touched}

    def _table(self, key: str, declared: NodeType | EdgeType) -> TableChanges:
        if key not in self._tables:
            entry = self.snapshot.manifest.tables[key]
            memory = self.memory.table(self.snapshot.root.location, entry.path)
            committed = CommittedTable(self.snapshot.folder, entry, declared, memory=memory)
            self._tables[key] = TableChanges(declared, committed)
        return self._tables[key]


def _size(cell: Any) -> int:
    """Return the approximate bytes that a cell needs in a column."""
    if isinstance(cell, str | bytes):
        return len(cell)
    return _FIXED_BYTES if not isinstance(cell, list) else sum(map(_size, cell))


@dataclass(slots=True)
class MutationRun:
    """One run of a mutation. Each statement adds to `changes` and to the counts.

    `ends` has, by node type, the node ids that inserted edges need in the snapshot, each with the first edge type and
    column that needed it. `sources` has, by edge type, the nodes whose number of edges changes.
    """

    catalog: Catalog
    changes: GraphChanges
    operands: Operands
    ids: IdSource
    embedder: Embedder | None = None
    nodes: int = 0
    edges: int = 0
    ends: dict[str, dict[str, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    sources: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def result(self, n: int, published: Manifest | None) -> MutationResult:
        """Return the result for version `n`. `published` is the published version, if there is one."""
        changed = bool(self.nodes or self.edges)
        return MutationResult(self.nodes, self.edges, n, changed, published if changed else None)

    def run(self, statement: typed.TypedStatement) -> None:
        """Run one statement.

        Raises GitopsError `mutation_invalid`, `resource_limit`, and the errors of reading the tables.
        """
        if isinstance(statement, typed.TypedUpdate):
            self._update(statement)
        elif isinstance(statement, typed.TypedDelete):
            self._delete(statement)
        elif statement.kind is TypeKind.EDGE:
            self._insert_edge(statement)
        else:
            self._insert_node(statement)

    def _insert_node(self, statement: typed.TypedInsert) -> None:
        declared = self.catalog.nodes[statement.type_name]
        row: Row = dict.fromkeys(declared.properties)
        given = self._assigned(declared, statement.assignments)
        row.update(given)
        rules.embed_rows(declared, [row], [given], self.embedder)
        _check(declared, row)
        table = self.changes.node(declared.name)
        own = rules.node_id(declared, row)
        if own is None:
            own = self.ids.ulid()
            table.new.add(own)
        table.write(own, {"id": own, **row})
        table.changed.update(row)
        self.nodes += 1

    def _insert_edge(self, statement: typed.TypedInsert) -> None:
        declared = self.catalog.edges[statement.type_name]
        row: Row = {"id": self.ids.ulid(), "src": None, "dst": None, **dict.fromkeys(declared.properties)}
        row.update(self._assigned(declared, statement.assignments))
        _check(declared, row)
        for column, owner in (("src", declared.source), ("dst", declared.target)):
            if row[column] is None:
                raise mutation_error(f"edge {declared.name}: {column} is null")
            if row[column] not in self.changes.node(owner).written:
                self.ends[owner].setdefault(row[column], (declared.name, column))
        table = self.changes.edge(declared.name)
        table.new.add(row["id"])
        table.write(row["id"], row)
        self.sources[declared.name].add(row["src"])
        self.edges += 1

    def _update(self, statement: typed.TypedUpdate) -> None:
        declared = self.catalog.nodes[statement.type_name]
        for each in statement.assignments:
            if each.name in (declared.key or ()):
                raise mutation_error(
                    f"cannot update @key property {declared.name}.{each.name}; delete the node, insert another"
                )
        values = self._assigned(declared, statement.assignments)
        table = self.changes.node(declared.name)
        column, sign, operand = self._comparison(declared, statement.predicate)
        found = {row["id"]: row for row in table.written.values() if comparison_holds(row[column], sign, operand)}
        found |= self._committed_rows(table, statement.predicate)
        table.changed.update(values)
        for row_id in sorted(found):
            row = found[row_id] | values
            _check(declared, row)
            table.write(row_id, row)
        self.nodes += len(found)

    def _committed_rows(self, table: TableChanges, predicate: typed.Predicate) -> dict[str, Row]:
        """Return the complete committed rows that pass the predicate, without rows that the query has written."""
        kinds = table.declared.properties
        blobs = [name for name, kind in kinds.items() if kind.scalar is Scalar.BLOB]
        plain = ["id", ROW_ID, *(name for name in kinds if name not in blobs)]
        found: dict[str, Row] = {}
        for row in self._select(table, predicate, plain):
            if row["id"] in table.written:
                continue
            table.replaced[row["id"]] = row.pop(ADDRESS), row.pop(ROW_ID)
            found[row["id"]] = row
            if len(found) > MAX_ENTITIES:
                raise GitopsError(
                    Code.RESOURCE_LIMIT, f"one mutation writes at most {MAX_ENTITIES} rows of {table.declared.name}"
                )
        if blobs and found:
            cells = table.committed.blobs(blobs, [table.replaced[row_id][0] for row_id in found])
            for name in blobs:
                for row, cell in zip(found.values(), cells[name], strict=True):
                    row[name] = cell
        return found

    def _delete(self, statement: typed.TypedDelete) -> None:
        name = statement.type_name
        if statement.kind is TypeKind.EDGE:
            table = self.changes.edge(name)
            self._remove_edges(table, list(self._select(table, statement.predicate, ["id", "src"])))
            return
        table = self.changes.node(name)
        found = [row for row in self._select(table, statement.predicate, ["id"]) if row["id"] not in table.gone]
        table.gone.update((row["id"], row[ADDRESS]) for row in found)
        self.nodes += len(found)
        removed = {row["id"] for row in found}
        for edge in self.catalog.edges.values():
            for column, owner in (("src", edge.source), ("dst", edge.target)):
                if owner == name:
                    table = self.changes.edge(edge.name)
                    for columns in table.committed.find(column, removed, ["id", "src"]):
                        self._remove_edges(table, _rows(columns))

    def _remove_edges(self, table: TableChanges, rows: Sequence[Row]) -> None:
        rows = [row for row in rows if row["id"] not in table.gone]
        table.gone.update((row["id"], row[ADDRESS]) for row in rows)
        self.sources[table.declared.name].update(row["src"] for row in rows)
        self.edges += len(rows)

    def _select(self, table: TableChanges, predicate: typed.Predicate, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the committed rows that pass the predicate, with at least these columns."""
        name, sign, operand = self._comparison(table.declared, predicate)
        by_id = _is_id(table.declared, predicate)
        if by_id and operand in table.committed.held:
            held = table.committed.held[operand]
            yield from () if held is None else ({column: held[column] for column in (*columns, ADDRESS)},)
            return
        narrowed = None
        if sign is ComparisonOperator.EQ and operand is not None:
            narrowed = table.committed.known("id" if by_id else name, [operand])
        if narrowed is None:
            narrowed = comparison_filter(name, table.committed.kind(name), sign, operand)
        if narrowed == NEVER:
            return
        if narrowed is not None:
            for batch in table.committed.scan(list(dict.fromkeys((*columns, name))), narrowed):
                yield from (row for row in _rows(raw_columns(batch)) if comparison_holds(row[name], sign, operand))
            return
        ids: list[str] = []
        for batch in table.committed.scan(["id", name]):
            ids += [row["id"] for row in _rows(raw_columns(batch)) if comparison_holds(row[name], sign, operand)]
        for found in table.committed.find("id", ids, columns):
            yield from _rows(found)

    def _comparison(
        self, declared: NodeType | EdgeType, predicate: typed.Predicate
    ) -> tuple[str, ComparisonOperator, Any]:
        """Return a predicate's column, operator and compared value."""
        column = _ENDS.get(predicate.name, predicate.name) if isinstance(declared, EdgeType) else predicate.name
        place = f"{declared.name}.{predicate.name}"
        return column, predicate.operator, self.operands.compared(predicate.value, predicate.type, place)

    def _assigned(self, declared: NodeType | EdgeType, assignments: Sequence[typed.Assignment]) -> Row:
        ends = _ENDS if isinstance(declared, EdgeType) else {}
        return {
            ends.get(each.name, each.name): self.operands.written(each.value, each.type, f"{declared.name}.{each.name}")
            for each in assignments
        }


def _is_id(declared: NodeType | EdgeType, predicate: typed.Predicate) -> bool:
    """Return whether a predicate selects one node by its key, so that the key's text is the node's id."""
    single = isinstance(declared, NodeType) and declared.key == (predicate.name,)
    return single and predicate.operator is ComparisonOperator.EQ and predicate.type.scalar is Scalar.STRING


def _check(declared: NodeType | EdgeType, row: Row) -> None:
    for fault in rules.row_faults(declared, row):
        raise mutation_error(fault)


def _rows(columns: dict[str, list[Any]]) -> list[Row]:
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def mutation_error(message: str) -> GitopsError:
    """Return the error for a mutation that does not match the schema or the graph."""
    return GitopsError(Code.MUTATION_INVALID, message)


@dataclass(frozen=True, slots=True)
class Operands:
    """One run's parameters, and the instant of `now()` in milliseconds since 1970."""

    params: Mapping[str, Any]
    now: int

    @classmethod
    def of(cls, types: Mapping[str, PropType], params: object, now: datetime) -> Operands:
        """Read the parameters. Raises GitopsError `query_params_invalid` for the first missing or invalid parameter."""
        try:
            values = coerce_params(types, params)
        except ParameterError as error:
            raise GitopsError(Code.QUERY_PARAMS_INVALID, error.message, path=error.parameter or "") from error
        return cls(values, (now - _EPOCH) // timedelta(milliseconds=1))

    def written(self, value: typed.TypedExpr, kind: PropType, place: str) -> Any:
        """Convert a written value to a cell of this type, or None. Raises GitopsError `mutation_invalid`."""
        raw = self.raw(value)
        if raw is None or isinstance(value, typed.NowValue):
            return raw
        try:
            if kind.scalar not in NUMERIC:
                return json_to_cell(raw, kind)
            return [_number(item, kind) for item in raw] if kind.is_list else _number(raw, kind)
        except CellError as error:
            raise mutation_error(f"{place} {error}") from error

    def compared(self, value: typed.TypedExpr, kind: PropType, place: str) -> Any:
        """Convert a value for comparison with cells of this type. Comparisons with None are never true.

        Raises GitopsError `mutation_invalid`.
        """
        raw = self.raw(value)
        if raw is None or isinstance(value, typed.NowValue):
            return raw
        if kind.scalar in (*NUMERIC, Scalar.VECTOR):
            return compared_with(kind, raw)
        try:
            return json_to_cell(raw, PropType(kind.scalar, is_list=kind.is_list))
        except CellError as error:
            raise mutation_error(f"{place} {error}") from error

    def raw(self, value: typed.TypedExpr) -> Any:
        """Return an expression's value before conversion to a cell."""
        if isinstance(value, typed.NowValue):
            return self.now
        if not isinstance(value, typed.ParameterValue):
            if not isinstance(value, typed.Constant):
                raise TypeError(f"{type(value).__name__} is not a value of a statement")
            return list(value.value) if isinstance(value.value, tuple) else value.value
        raw = self.params[value.name]
        if raw is None or value.type.scalar is not Scalar.F32:
            return raw
        # A parameter declared as F32 has a 32-bit value.
        return [nearest_single(item) for item in raw] if isinstance(raw, list) else nearest_single(raw)


def _number(value: Any, kind: PropType) -> Any:
    """Convert a number.

    An integer becomes a float only if that is exact, a float becomes an integer only if it is whole (K15).
    """
    if kind.scalar in INTEGERS and isinstance(value, float) and value.is_integer():
        value = int(value)
    return json_to_cell(value, PropType(kind.scalar, nullable=kind.nullable))
