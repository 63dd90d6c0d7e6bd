"""Run one mutation: all of its statements in one version, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError, ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.layout import MAIN
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.results import MutationResult
from gitops.database.graph.search.embedding import Embedder
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.database.graph.staged import StagedVersion, WriteContext, retry_until_published, sleep_jittered
from gitops.database.graph.tables import TableWriter, arrow_table, key_columns
from gitops.database.graph.write.operands import Operands, mutation_error
from gitops.database.graph.write.rules import cardinality_violation, hashable_cells, unique_violation
from gitops.database.graph.write.statements import GraphChanges, MutationRun, TableChanges
from gitops.database.language.query import CheckedQuery, QueryEffect
from gitops.database.language.query.typed import TypedDelete, TypedInsert, TypedRead, TypedStatement, TypedUpdate
from gitops.database.language.schema import Catalog, EdgeType, TypeKind

__all__ = ["MutationOptions", "Mutator"]

LOCK_BRANCH = "__schema_apply_lock__"
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class MutationOptions:
    """`now` is the instant of `now()`; `actor` is named in the manifest.

    With `expected_head` the branch must be at that version, with `expected_commit` at that commit. `embedder` makes vectors that
    an insert leaves out (`@embed`); without one they are missing.
    """

    now: datetime
    branch: str = MAIN
    actor: str | None = None
    expected_head: int | None = None
    embedder: Embedder | None = None
    expected_commit: str | None = None


class Mutator:
    """Runs mutations; time and ids come from the arguments.

    Safe for several processes: writers take turns, and a writer that still loses a race starts again with the newest version,
    where everything is evaluated and checked again.
    """

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        faults: Faults | None = None,
        pause: Callable[[int], None] = sleep_jittered,
    ) -> None:
        """`ids` makes the ids of edges, of nodes without key, and of the transaction; `pause` waits between attempts."""
        self._clock = clock
        self._ids = ids
        self._faults = faults or NoFaults()
        self._pause = pause
        self._known: tuple[tuple[str, frozenset[str]], Catalog] | None = None

    def run(self, uri: str, query: CheckedQuery, params: object, options: MutationOptions) -> MutationResult:
        """Carry out a checked mutation; `params` is a JSON object or None.

        Before anything is read: GitopsError `mutation_mixed`, `query_params_invalid`, `mutation_invalid` for a query that
        only reads. Then: `mutation_invalid`, `resource_limit`, `head_moved`; `graph_conflict` when other writers were faster
        32 times; as `open_snapshot`, and RemoteError `storage_failed`. Nothing is published by a run that raises.
        """
        if query.kind is not QueryEffect.MUTATION:
            detail = f"query {query.name} reads and changes nothing, so it is not a mutation"
            raise GitopsError(
                Code.MUTATION_INVALID, detail, fix=f"run it as a query: gitops graph query GRAPH {query.name}"
            )
        statements = query.body
        if isinstance(statements, TypedRead):
            raise BugError(f"query {query.name} is called a mutation and is a read")
        if len({isinstance(each, TypedDelete) for each in statements}) > 1:
            raise GitopsError(Code.MUTATION_MIXED, f"query {query.name} mixes inserts/updates and deletes")
        operands = Operands.of(query.params, params, options.now)
        if options.branch.strip() == LOCK_BRANCH:
            raise GitopsError(Code.MUTATION_INVALID, f"branch {LOCK_BRANCH} takes no writes")
        target = ReadTarget(branch=options.branch)

        def attempt() -> MutationResult:
            with find_root(uri).lease():
                snapshot = open_snapshot(uri, target)
                _require_head(snapshot, options)
                # The catalog of the accepted schema is kept, since compiling takes a while; another thread may exchange it.
                key, known = (snapshot.manifest.schema_ir, frozenset(snapshot.manifest.tables)), self._known
                if known is None or known[0] != key:
                    known = self._known = key, snapshot.schema().catalog
                catalog = known[1]
                _require_types(catalog, statements)
                changes = GraphChanges(snapshot.folder, snapshot.manifest.tables, catalog)
                run = MutationRun(catalog, changes, operands, self._ids, options.embedder)
                for statement in statements:
                    run.run(statement)
                if not changes.touched():
                    return MutationResult(0, 0, snapshot.manifest.n, changed=False)
                _check_final_image(run)
                published = self._publish(snapshot, changes, options.actor)
            return MutationResult(run.nodes, run.edges, published.n, changed=True, published=published)

        return retry_until_published(attempt, self._pause)

    def _publish(self, snapshot: Snapshot, changes: GraphChanges, actor: str | None) -> Manifest:
        """Stage the changes of each table in one new version of it, and publish them together."""
        self._faults.reach("engine.mutate.before_tables")
        base = snapshot.manifest
        tables = {}
        for key, table in changes.touched().items():
            gone = {**table.gone, **table.replaced_addresses()}
            writer = TableWriter(snapshot.folder, base.tables[key])
            staged = []
            if table.written:
                rows = table.written.values()
                names = [*key_columns(table.declared), *table.declared.properties]
                staged = writer.stage(
                    arrow_table(table.declared, {name: [row[name] for row in rows] for name in names})
                )
            writer.exchange(staged, gone.values())
            tables[key] = writer.finish(recount=True)
        self._faults.reach("engine.mutate.staged")
        context = WriteContext(self._clock, self._ids, actor, faults=self._faults)
        version = StagedVersion(snapshot, "mutate", context, stamp=timestamp, tables={**base.tables, **tables})
        version.publish()
        return version.manifest


def _require_head(snapshot: Snapshot, options: MutationOptions) -> None:
    """Raise ConflictError `head_moved` where the branch is not where the caller expects it."""
    head = snapshot.manifest
    for what, expected, found in (
        ("version", options.expected_head, head.n),
        ("commit", options.expected_commit, head.txn_id),
    ):
        if expected not in (None, found):
            detail = f"branch {snapshot.branch} is at {what} {found}, not at {expected}"
            raise ConflictError(Code.HEAD_MOVED, detail, path=snapshot.root.location)


def _require_types(catalog: Catalog, statements: tuple[TypedStatement, ...]) -> None:
    """The statements must be checked against the schema that the graph has: it may have changed since."""
    for each in statements:
        is_edge = not isinstance(each, TypedUpdate) and each.kind is TypeKind.EDGE
        declared = (catalog.edges if is_edge else catalog.nodes).get(each.type_name)
        named = [] if isinstance(each, TypedDelete) else [(one.name, one.type) for one in each.assignments]
        tested = [] if isinstance(each, TypedInsert) else [(each.predicate.name, each.predicate.type)]
        ends = ("from", "to") if is_edge else ()
        for name, kind in (*named, *tested):
            if declared is not None and (name in ends or declared.properties.get(name) == kind):
                continue
            raise mutation_error(
                f"the schema of the graph has no {each.type_name}.{name} of type {kind}; check the query again"
            )


def _check_final_image(run: MutationRun) -> None:
    """What must hold of the graph at the end of a mutation (§4.7): ends of edges, unique groups, numbers of edges.

    Only what the query touched is looked at, in the image that it leaves: a value that it freed may be used again. Raises
    GitopsError `mutation_invalid` for the first rule that is broken; as reading the tables.
    """
    for owner in sorted(run.ends):
        wanted = run.ends[owner]
        present = run.changes.node(owner).committed.addresses(wanted.keys())
        for end, (edge, column) in wanted.items():
            if end not in present:
                raise mutation_error(f"edge {edge}: {column} {end[:_SHOWN]!r} not found in {owner}")
    for table in run.changes.touched().values():
        for group in table.declared.unique:
            _check_unique(table, group)
    for name in sorted(run.sources):
        _check_cardinality(run, run.catalog.edges[name])


def _check_unique(table: TableChanges, group: tuple[str, ...]) -> None:
    """No row of the final table has the group of a written one, but for itself; a null member exempts."""
    owners: dict[tuple[Any, ...], str] = {}
    for row_id, row in table.written.items():
        cells = hashable_cells(row[name] for name in group)
        if None not in cells and owners.setdefault(cells, row_id) != row_id:
            raise mutation_error(unique_violation(table.declared, group, cells))
    if not owners:
        return
    at = table.committed.first_findable(group, next(iter(owners)))
    for columns in table.committed.find(group[at], {cells[at] for cells in owners}, ["id", *group]):
        for row_id, *members in zip(columns["id"], *(columns[name] for name in group), strict=True):
            cells = hashable_cells(members)
            if cells in owners and row_id not in table.written and row_id not in table.gone:
                raise mutation_error(unique_violation(table.declared, group, cells))


def _check_cardinality(run: MutationRun, edge: EdgeType) -> None:
    """The number of edges of every source whose edges changed, unless the source itself is gone."""
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
            raise mutation_error(cardinality_violation(edge, source, count))
