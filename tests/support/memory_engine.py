"""The in-memory twin of the graph engine: schema text, version, migration support, and a number of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from gitops.core.canonical import digest as digest_of
from gitops.core.errors import BugError, ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.port import (
    DeleteOrder,
    Existence,
    GraphReading,
    HeldData,
    KeptData,
    MigrationPreview,
    PreparedVersion,
    RestoreOrder,
    StepCount,
)
from gitops.database.graph.snapshot import accept_schema, table_keys
from gitops.database.language.schema import TypeKind
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.step_terms import Sort
from gitops.database.language.schema.steps import AddProperty, UnsupportedChange


@dataclass
class MemoryGraph:
    """A graph, or with no source a partial root."""

    source: bytes | None
    version: int = 1
    actors: list[str | None] = field(default_factory=list)
    incarnation: str = ""
    rows: int = 0
    fence: int = 0
    deleted: bool = False
    earlier: list[tuple[int, bytes, int]] = field(default_factory=list)
    restored: RestoreOrder | None = None
    restores: list[tuple[int, int]] = field(default_factory=list)
    breaking: int = 0


class MemoryEngine:
    """A GraphEngine in a dictionary. `calls` counts the calls of each method."""

    def __init__(self, faults: Faults | None = None) -> None:
        """Start with no graph."""
        self._faults = faults or NoFaults()
        self._graphs: dict[str, MemoryGraph] = {}
        self._unknown: set[str] = set()
        self._births = 0
        self._deleted: dict[tuple[str, str], set[str]] = {}
        self.left: set[str] = set()
        self.calls: Counter[str] = Counter()

    def leave_partial_root(self, uri: str) -> None:
        """Put a root there that does not open, as a crash of an older program may leave."""
        self._graphs[uri] = MemoryGraph(None)

    def cut_delete_short(self, uri: str, order: DeleteOrder) -> None:
        """Delete a graph up to the point of no return."""
        self._graphs[uri].deleted = True
        self._deleted.setdefault((uri, order.incarnation), set()).update(order.approvals)

    def cut_removal_short(self, uri: str) -> None:
        """Free the root of a graph, whose files stay, and are `left`."""
        del self._graphs[uri]
        self.left.add(uri)

    def lose_sight_of(self, uri: str) -> None:
        """Answer UNKNOWN for this root from now on."""
        self._unknown.add(uri)

    def load(self, uri: str, rows: int) -> None:
        """Let the graph have so many rows, in a new version."""
        graph = self._graphs[uri]
        graph.earlier.append((graph.version, graph.source or b"", graph.rows))
        graph.rows, graph.version = rows, graph.version + 1

    def let_rows_break(self, uri: str, rows: int) -> None:
        """Let so many rows break every checked step from now on; all of them lack a new required property anyway."""
        self._graphs[uri].breaking = rows

    def back_up(self, uri: str) -> Callable[[], None]:
        """A copy of the graph as it is; calling it restores the copy."""
        copy = replace(self._graphs[uri])
        return lambda: self._graphs.update({uri: replace(copy)})

    def moved(self, before: str, after: str) -> MemoryEngine:
        """A copy of everything, below another folder."""
        made = MemoryEngine(self._faults)
        made._graphs = {uri.replace(before, after, 1): replace(graph) for uri, graph in self._graphs.items()}
        made._births = self._births
        return made

    def dump(self) -> dict[str, str]:
        """Every root with its version and schema text, for people."""
        return {
            uri: "partial root" if graph.source is None else f"version {graph.version}\n{graph.source.decode()}"
            for uri, graph in sorted(self._graphs.items())
        }

    def exists(self, uri: str) -> Existence:
        """Return whether there is a root."""
        self.calls["exists"] += 1
        if uri in self._unknown:
            return Existence.UNKNOWN
        return Existence.PRESENT if uri in self._graphs else Existence.ABSENT

    def read(self, uri: str) -> GraphReading:
        """The text and the version."""
        self.calls["read"] += 1
        graph = self._opened(uri)
        return GraphReading(graph.source or b"", graph.version, graph.incarnation, graph.rows, graph.fence)

    def schema_text(self, uri: str, digest: str) -> bytes:
        """A text that it has or had."""
        graph = self._opened(uri)
        known = {digest_of(text): text for text in (*(text for _, text, _ in graph.earlier), graph.source or b"")}
        if digest not in known:
            raise GitopsError("graph_unreadable", f"{uri} does not keep this schema", path=uri)
        return known[digest]

    def check_files(self, uri: str) -> None:
        """A graph in memory has no files."""
        self._opened(uri)

    def deleted_by(self, uri: str, incarnation: str) -> frozenset[str]:
        """What `delete` noted."""
        return frozenset(self._deleted.get((uri, incarnation), ()))

    def kept_data(self, uri: str, names: Collection[str], converted: Collection[str] = ()) -> KeptData:
        """Every table counts all rows of the graph, and every column has a value in each."""
        graph, held = self._opened(uri), dict[str, HeldData]()
        known = _names(graph.source or b"")
        for version, source, rows in graph.earlier:
            held |= {name: HeldData(version, rows) for name in set(names) - known if rows and name in _names(source)}
        tables = table_keys(accept_schema(graph.source or b"").catalog) | known.intersection(names)
        return KeptData(graph.version, dict.fromkeys(tables, graph.rows), held, complete=True)

    def replaced_rows(self, uri: str, since: int, types: Collection[str] = (), rows: int = 0) -> int:
        """Rows in memory only come and go."""
        graph = self._opened(uri)
        if not 1 <= since <= graph.version:
            raise GitopsError("graph_version_unknown", f"{uri} has no version {since}", path=uri)
        return 0

    def preview(self, uri: str, schema_source: bytes) -> MigrationPreview:
        """The plan of the real planner."""
        self.calls["preview"] += 1
        accepted = accept_schema(self._opened(uri).source or b"")
        return MigrationPreview.between(accepted, accept_schema(schema_source))

    def count_steps(self, uri: str, schema_source: bytes) -> tuple[StepCount | None, ...]:
        """Every step affects all rows of the graph."""
        self.calls["count_steps"] += 1
        graph, counts = self._opened(uri), list[StepCount | None]()
        for step in plan_migration(accept_schema(graph.source or b""), accept_schema(schema_source)).steps:
            if isinstance(step, UnsupportedChange) or step.type_kind is TypeKind.INTERFACE:
                counts.append(None)
                continue
            breaking = graph.rows if isinstance(step, AddProperty) else min(graph.breaking, graph.rows)
            counts.append(StepCount(graph.rows, breaking if step.sort is Sort.CHECKED else 0))
        return tuple(counts)

    def check_migration(self, uri: str, schema_source: bytes, *, incarnation: str | None = None) -> None:
        """Refuse what the real planner does not support, and another graph."""
        graph = self._opened(uri)
        if incarnation not in (None, graph.incarnation):
            raise ConflictError("graph_replaced", f"{uri} is a different graph", path=uri)
        migration = plan_migration(accept_schema(graph.source or b""), accept_schema(schema_source))
        if not migration.supported:
            first = migration.unsupported[0]
            raise GitopsError("graph_migration_unsupported", f"{first.entity}: {first.text}", path=uri)

    def prepare_create(
        self, uri: str, schema_source: bytes, *, actor: str | None, fence: int | None = None
    ) -> PreparedVersion:
        """Refuse a root that is taken."""
        self.calls["prepare_create"] += 1
        accept_schema(schema_source)
        if uri in self._graphs:
            raise GitopsError("graph_exists", f"{uri} is taken", path=uri)

        def publish() -> int:
            if uri in self._graphs:
                raise ConflictError("graph_conflict", f"another writer made {uri}", path=uri)
            self._births += 1
            self._graphs[uri] = MemoryGraph(schema_source, 1, [actor], f"{self._births:026}", 0, fence or 0)
            return 1

        return _Staged("engine.create", publish, self._faults)

    def prepare_migration(
        self,
        uri: str,
        schema_source: bytes,
        *,
        actor: str | None,
        incarnation: str | None = None,
        fence: int | None = None,
    ) -> PreparedVersion:
        """Refuse what the real planner does not support, another graph, and an operation that is too late."""
        self.calls["prepare_migration"] += 1
        self.check_migration(uri, schema_source, incarnation=incarnation)
        if any(count is not None and count.breaking for count in self.count_steps(uri, schema_source)):
            raise GitopsError("graph_rows_break_schema", f"rows of {uri} break a step", path=uri)
        graph = self._opened(uri)
        self._check_fence(uri, graph, fence)
        base = graph.version

        def publish() -> int:
            if self._graphs.get(uri) is not graph or graph.version != base:
                raise ConflictError("graph_conflict", f"another writer changed {uri}", path=uri)
            graph.earlier.append((base, graph.source or b"", graph.rows))
            graph.source, graph.version, graph.fence = schema_source, base + 1, max(fence or 0, graph.fence)
            graph.actors.append(actor)
            return graph.version

        return _Staged("engine.migrate", publish, self._faults)

    def check_restore(self, uri: str, order: RestoreOrder, schema_source: bytes) -> int:
        """Refuse a version that was never made, and types that are in no schema."""
        earlier = {version: source for version, source, _ in self._opened(uri).earlier}
        if order.version not in earlier:
            raise GitopsError("graph_version_unknown", f"{uri} has no version {order.version}", path=uri)
        for source in (earlier[order.version], schema_source):
            if not {f"node:{name}" for name in order.types} <= _names(source):
                raise GitopsError("graph_restore_refused", f"no type {order.types}", path=uri)
        graph = self._opened(uri)
        return 0 if graph.restored == order else graph.rows

    def was_restored(self, uri: str, fence: int, since: int) -> bool:
        """By the numbers of operations, as they were given."""
        return any(number == fence and version > since for number, version in self._opened(uri).restores)

    def restore(
        self,
        uri: str,
        order: RestoreOrder,
        *,
        actor: str | None,
        incarnation: str | None = None,
        fence: int | None = None,
    ) -> int:
        """All rows of the graph are those of the version."""
        graph = self._opened(uri)
        self._check_fence(uri, graph, fence)
        if incarnation not in (None, graph.incarnation):
            raise ConflictError("graph_replaced", f"{uri} is a different graph", path=uri)
        self.check_restore(uri, order, graph.source or b"")
        (rows,) = (rows for version, _, rows in graph.earlier if version == order.version)
        if (order, rows) == (graph.restored, graph.rows):
            return graph.version
        graph.earlier.append((graph.version, graph.source or b"", graph.rows))
        self._faults.reach("engine.restore.before_publish")
        graph.rows, graph.version, graph.restored = rows, graph.version + 1, order
        graph.fence = max(fence or 0, graph.fence)
        graph.restores.append((graph.fence, graph.version))
        graph.actors.append(actor)
        self._faults.reach("engine.restore.after_publish")
        return graph.version

    def fence(self, uri: str, fence: int) -> None:
        """Only raise the number, in a new version."""
        self.calls["fence"] += 1
        if uri not in self._graphs:
            return
        graph = self._opened(uri)
        self._faults.reach("engine.fence.before_publish")
        graph.fence, graph.version = max(fence, graph.fence + 1), graph.version + 1
        self._faults.reach("engine.fence.after_publish")

    def check_delete(self, uri: str, order: DeleteOrder) -> None:
        """The checks of the real one."""
        graph = self._graphs.get(uri)
        if graph is None or (graph.deleted and graph.incarnation == order.incarnation):
            return
        if self._opened(uri).incarnation != order.incarnation:
            raise ConflictError("graph_replaced", f"{uri} is a different graph", path=uri)
        if graph.rows > order.max_rows:
            raise GitopsError("graph_grown", f"{uri} has {graph.rows} rows", path=uri)
        if self.deleted_by(uri, order.incarnation) & set(order.approvals):
            raise GitopsError("graph_restored", f"{uri} was deleted before", path=uri)

    def delete(self, uri: str, order: DeleteOrder) -> None:
        """The checks of the real one, and one step."""
        self.calls["delete"] += 1
        if uri not in self._graphs:
            self.left.discard(uri)
            return
        if (half := self._graphs[uri]).deleted and half.incarnation == order.incarnation:
            self._remove(uri, lambda: None)
            return
        self.check_delete(uri, order)
        self._check_fence(uri, self._opened(uri), order.fence)
        used = self._deleted.setdefault((uri, order.incarnation), set())
        self._remove(uri, lambda: used.update(order.approvals))

    def finish_delete(self, uri: str) -> None:
        """Forget a graph that is past the point of no return, and what is left at a free root."""
        self.left -= {uri} - self._graphs.keys()
        if uri in self._graphs and self._graphs[uri].deleted:
            self._remove(uri, lambda: None)

    def _remove(self, uri: str, note: Callable[[], None]) -> None:
        """What a delete does once nothing speaks against it."""
        note()
        self._graphs.pop(uri, None)

    def _check_fence(self, uri: str, graph: MemoryGraph, fence: int | None) -> None:
        if fence is not None and fence < graph.fence:
            raise ConflictError("graph_fenced", f"{uri} was changed by a newer run", path=uri)

    def delete_tree(self, uri: str) -> None:
        """Forget the root."""
        self.calls["delete_tree"] += 1
        self._graphs.pop(uri, None)

    def _opened(self, uri: str) -> MemoryGraph:
        graph = self._graphs.get(uri)
        if graph is not None and graph.deleted and uri not in self._unknown:
            raise GitopsError("graph_deleted", f"{uri} is past the point of no return", path=uri)
        if graph is None and uri not in self._unknown:
            raise GitopsError("graph_missing", f"{uri} does not exist", path=uri)
        if graph is None or graph.source is None or uri in self._unknown:
            raise GitopsError("graph_unreadable", f"{uri} does not open", path=uri)
        return graph


class _Staged:
    def __init__(self, point: str, publish: Callable[[], int], faults: Faults) -> None:
        self._point = point
        self._publish = publish
        self._faults = faults
        self._open = True

    def publish(self) -> int:
        if not self._open:
            raise BugError("staged work is used twice")
        self._faults.reach(f"{self._point}.before_publish")
        self._open = False
        version = self._publish()
        self._faults.reach(f"{self._point}.after_publish")
        return version

    def abort(self) -> None:
        self._open = False


def _names(source: bytes) -> set[str]:
    """The tables and columns of a schema."""
    catalog = accept_schema(source).catalog
    types = {f"node:{name}": each for name, each in catalog.nodes.items()}
    types |= {f"edge:{name}": each for name, each in catalog.edges.items()}
    return {*types, *(f"{key}.{column}" for key, each in types.items() for column in each.properties)}
