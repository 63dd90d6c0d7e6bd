"""The in-memory twin of the graph engine: schema text, version and migration support, no rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from gitops.core.errors import BugError, ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.graph.port import Existence, GraphReading, MigrationPreview, PreparedVersion
from gitops.graph.snapshot import accept_schema
from gitops.language.schema.migration import plan_migration


@dataclass
class _Graph:
    """A graph, or with no source a partial root."""

    source: bytes | None
    version: int = 1
    actors: list[str | None] = field(default_factory=list)


class MemoryEngine:
    """A GraphEngine in a dictionary. `calls` counts the calls of each method."""

    def __init__(self, faults: Faults | None = None) -> None:
        """Start with no graph."""
        self._faults = faults or NoFaults()
        self._graphs: dict[str, _Graph] = {}
        self._unknown: set[str] = set()
        self.calls: Counter[str] = Counter()

    def leave_partial_root(self, uri: str) -> None:
        """Put a root there that does not open, as a crash of an older program may leave."""
        self._graphs[uri] = _Graph(None)

    def lose_sight_of(self, uri: str) -> None:
        """Answer UNKNOWN for this root from now on."""
        self._unknown.add(uri)

    def dump(self) -> dict[str, str]:
        """Every root with its version and schema text, for people."""
        return {
            uri: "partial root" if graph.source is None else f"version {graph.version}\n{graph.source.decode()}"
            for uri, graph in sorted(self._graphs.items())
        }

    def exists(self, uri: str) -> Existence:
        """Whether there is a root."""
        self.calls["exists"] += 1
        if uri in self._unknown:
            return Existence.UNKNOWN
        return Existence.PRESENT if uri in self._graphs else Existence.ABSENT

    def read(self, uri: str) -> GraphReading:
        """The text and the version."""
        self.calls["read"] += 1
        graph = self._opened(uri)
        return GraphReading(graph.source or b"", graph.version)

    def preview(self, uri: str, schema_source: bytes) -> MigrationPreview:
        """The plan of the real planner."""
        self.calls["preview"] += 1
        migration = plan_migration(accept_schema(self._opened(uri).source or b""), accept_schema(schema_source))
        return MigrationPreview(migration.supported, tuple(step.to_json() for step in migration.steps))

    def prepare_create(self, uri: str, schema_source: bytes, *, actor: str | None) -> PreparedVersion:
        """Refuse a root that is taken."""
        self.calls["prepare_create"] += 1
        accept_schema(schema_source)
        if uri in self._graphs:
            raise GitopsError("graph_exists", f"{uri} is taken", path=uri)

        def publish() -> int:
            if uri in self._graphs:
                raise ConflictError("graph_conflict", f"another writer made {uri}", path=uri)
            self._graphs[uri] = _Graph(schema_source, 1, [actor])
            return 1

        return _Staged("engine.create", publish, self._faults)

    def prepare_migration(self, uri: str, schema_source: bytes, *, actor: str | None) -> PreparedVersion:
        """Refuse what the real planner does not support."""
        self.calls["prepare_migration"] += 1
        desired, graph = accept_schema(schema_source), self._opened(uri)
        migration = plan_migration(accept_schema(graph.source or b""), desired)
        if not migration.supported:
            first = migration.unsupported[0]
            raise GitopsError("graph_migration_unsupported", f"{first.entity}: {first.text}", path=uri)
        base = graph.version

        def publish() -> int:
            if self._graphs.get(uri) is not graph or graph.version != base:
                raise ConflictError("graph_conflict", f"another writer changed {uri}", path=uri)
            graph.source, graph.version = schema_source, base + 1
            graph.actors.append(actor)
            return graph.version

        return _Staged("engine.migrate", publish, self._faults)

    def delete_tree(self, uri: str) -> None:
        """Forget the root."""
        self.calls["delete_tree"] += 1
        self._graphs.pop(uri, None)

    def _opened(self, uri: str) -> _Graph:
        graph = self._graphs.get(uri)
        if graph is None and uri not in self._unknown:
            raise GitopsError("graph_missing", f"nothing lies at {uri}", path=uri)
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
