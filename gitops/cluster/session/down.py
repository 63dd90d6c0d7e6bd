"""`down`: computes the reverse of a schema change before it is applied, or between two schema files. Read-only.

Steps: 1 read the applied and the desired schema; 2 plan the migration from the first to the second; 3 plan the reverse
migration, and find the schema text with that plan; 4 report the reasons if either of them is unsupported.
"""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.config.compiler import LanguageCompiler
from gitops.cluster.config.reader import SourceFile
from gitops.cluster.config.source import SourceError, SourceTree, normalize
from gitops.cluster.model.address import Kind, is_name, schema_address
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.steps import Migration
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.text import LanguageError


@dataclass(frozen=True, slots=True)
class ReverseMigration:
    """A migration, its reverse, and the schema text that the reverse migrates to."""

    forward: Migration
    back: Migration
    source: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOutcome(VerbOutcome):
    """The reverse of a change to `subject`: a schema address or two files. `migrations` is None if nothing was planned."""

    subject: str
    migrations: ReverseMigration | None = None


def down_of_graph(workspace: Workspace, graph: str) -> DownOutcome:
    """Plan from a graph's declared schema back to its applied schema.

    Raises UsageError if the folder does not declare the graph.
    """
    if not is_name(graph):
        raise UsageError(Code.USAGE_ERROR, "the name of a graph has only letters, digits, _ and -")
    return reading(workspace, "down", StateNeed.REQUIRED, lambda current: _down_in_session(current, graph))


def down_between(tree: SourceTree, old: str, new: str) -> DownOutcome:
    """Plan from the schema file `new` back to the file `old`, without reading a cluster."""
    problems = Diagnostics()
    compiler = LanguageCompiler(problems)
    schemas = []
    for path in (old, new):
        try:
            schemas.append(compiler.schema(SourceFile(path, tree.read(path)), path))
        except SourceError as error:
            problems.add(error.code if error.is_refusal else Code.SCHEMA_FILE_MISSING, path, error.detail)
            schemas.append(None)
    accepted, desired = schemas
    planned = None if accepted is None or desired is None else _plan(accepted, desired, new, problems)
    subject = f"{old} -> {new}"
    return DownOutcome(config_dir=tree.root, subject=subject, migrations=planned, diagnostics=tuple(problems))


def _down_in_session(current: Session, graph: str) -> DownOutcome:
    subject, planned, problems = schema_address(graph), None, current.problems
    if current.ready:
        if graph not in current.desired.graphs:
            near = did_you_mean(graph, current.desired.graphs)
            raise UsageError(Code.USAGE_ERROR, f"the folder declares no graph {graph}{f'; {near}' if near else ''}")
        desired = current.desired.graphs[graph].schema
        if subject not in current.state.resources:
            problems.add(Code.SCHEMA_NOT_RECORDED, subject, f"the ledger records no schema of {graph}")
        elif desired is not None and (accepted := _applied_schema(current, graph)) is not None:
            planned = _plan(accepted, desired, subject, problems)
    folder = current.workspace.config_dir
    return DownOutcome(config_dir=folder, subject=subject, migrations=planned, diagnostics=tuple(problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSchemas(VerbOutcome):
    """The applied schemas of declared graphs, by the path of their schema file."""

    schemas: Mapping[str, Schema]


def applied_schemas(workspace: Workspace) -> AppliedSchemas:
    """Read the applied schema of each declared graph. The problems name the graphs whose schema cannot be read."""

    def read(current: Session) -> AppliedSchemas:
        found: dict[str, Schema] = {}
        for address in current.state.resources if current.ready else ():
            declared = current.desired.resources.get(address) if address.kind is Kind.SCHEMA else None
            if declared is None or declared.path is None:
                continue
            if (accepted := _applied_schema(current, address.name)) is not None:
                found[normalize(declared.path, confined=False)] = accepted
        folder = current.workspace.config_dir
        return AppliedSchemas(config_dir=folder, schemas=found, diagnostics=tuple(current.problems))

    return reading(workspace, "fmt", StateNeed.REQUIRED, read)


def _applied_schema(current: Session, graph: str) -> Schema | None:
    """Return the schema recorded as applied: from git if available, otherwise from the live graph.

    None if it cannot be read, which becomes a problem of the session.
    """
    subject = schema_address(graph)
    try:
        source = current.workspace.accepted_schema(graph, current.state.resources[subject].digest)
        if source is None:
            source = current.opened.engine.read(current.opened.graph_uri(graph)).schema_source
        return compile_schema(source)
    except LanguageError as error:
        current.problems.add(Code.GRAPH_UNREADABLE, subject, f"the applied schema does not compile: {error}")
    except GitopsError as error:
        current.problems.add_error(error)
    return None


def _plan(accepted: Schema, desired: Schema, path: str, problems: Diagnostics) -> ReverseMigration:
    """Perform steps 2 to 4."""
    forward, back = plan_migration(accepted, desired), plan_down(accepted, desired)
    for migration in (forward, back):
        if not migration.supported:
            first, more = migration.unsupported[0], len(migration.unsupported) - 1
            problems.add(
                Code.GRAPH_MIGRATION_UNSUPPORTED,
                path,
                f"{first.entity}: {first.text}" + (f" (and {more} more)" if more else ""),
            )
            break
    return ReverseMigration(forward, back, down_source(accepted, desired))
