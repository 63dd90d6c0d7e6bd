"""`down`: the way back from a schema change before it is made, or between two schema files; writes nothing.

Steps: 1 the applied and the desired schema; 2 the migration from one to the other; 3 the migration back, and the text that
asks for it; 4 what keeps either from being carried out is an error. Source of both plans: `gitops.language.schema`.
"""

from __future__ import annotations

from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.way_back import DownOutcome, WayBack
from gitops.cluster.workspace import Workspace
from gitops.config.source import SourceError, SourceTree
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.core.errors import GitopsError, UsageError
from gitops.language.schema import Migration, Schema, compile_schema, down_source, plan_down, plan_migration
from gitops.language.suggest import did_you_mean
from gitops.language.text import LanguageError, SourceText, Stage
from gitops.model.address import is_name, schema_address

__all__ = ["down_between", "down_of_graph"]

_REQUIRED = StateNeed.REQUIRED


def down_of_graph(workspace: Workspace, graph: str) -> DownOutcome:
    """The way back from what the folder declares to the schema that is applied to a graph.

    Raises UsageError if the folder declares no such graph.
    """
    if not is_name(graph):
        raise UsageError(Code.USAGE_ERROR, "a graph is named by letters, digits, _ and -")
    return in_session(workspace, "down", _REQUIRED, lambda current: _of_graph(current, graph), exclusive=False)


def down_between(tree: SourceTree, old: str, new: str) -> DownOutcome:
    """The way back from the schema file `new` to the file `old`; no cluster is looked at."""
    found = Diagnostics()
    accepted, desired = (_file(tree, path, found) for path in (old, new))
    way = None if accepted is None or desired is None else _way(accepted, desired, new, found)
    return DownOutcome(config_dir=tree.root, subject=f"{old} -> {new}", way=way, diagnostics=tuple(found))


def _of_graph(current: Session, graph: str) -> DownOutcome:
    subject, way = schema_address(graph), None
    if current.ready:
        if graph not in current.desired.graphs:
            near = did_you_mean(graph, current.desired.graphs)
            raise UsageError(Code.USAGE_ERROR, f"the folder declares no graph {graph}{f'; {near}' if near else ''}")
        try:
            accepted = _applied(current, graph)
            desired = current.desired.graphs[graph].schema
            if accepted is not None and desired is not None:
                way = _way(accepted, desired, subject, current.problems)
        except GitopsError as error:
            current.problems.add_error(error)
    return DownOutcome(
        config_dir=current.workspace.config_dir, subject=subject, way=way, diagnostics=tuple(current.problems)
    )


def _applied(current: Session, graph: str) -> Schema | None:
    """Step 1: the schema that the ledger says is applied, out of git where that has it, else out of the live graph."""
    subject = schema_address(graph)
    recorded = current.state.resources.get(subject)
    if recorded is None:
        current.problems.add(Code.SCHEMA_NOT_RECORDED, subject, f"the ledger records no schema of {graph}")
        return None
    source = current.workspace.accepted_schema(graph, recorded.digest)
    if source is None:
        source = current.opened.engine.read(current.opened.graph_uri(graph)).schema_source
    try:
        return compile_schema(source)
    except LanguageError as error:
        raise GitopsError(
            Code.GRAPH_UNREADABLE, f"the applied schema does not compile: {error}", path=subject
        ) from error


def _way(accepted: Schema, desired: Schema, path: str, found: Diagnostics) -> WayBack:
    """Steps 2 to 4."""
    forward, back = plan_migration(accepted, desired), plan_down(accepted, desired)
    for migration, code in ((forward, Code.GRAPH_MIGRATION_UNSUPPORTED), (back, Code.WAY_BACK_UNSUPPORTED)):
        if not migration.supported:
            found.add(code, path, _reasons(migration))
            break
    return WayBack(forward, back, down_source(accepted, desired))


def _reasons(migration: Migration) -> str:
    first = migration.unsupported[0]
    more = len(migration.unsupported) - 1
    return f"{first.entity}: {first.text}" + (f" (and {more} more)" if more else "")


def _file(tree: SourceTree, path: str, found: Diagnostics) -> Schema | None:
    try:
        data = tree.read(path)
    except SourceError as error:
        found.add(Code.SCHEMA_FILE_MISSING if not error.is_refusal else error.code, path, error.detail)
        return None
    try:
        return compile_schema(data)
    except LanguageError as error:
        text = SourceText(data)
        for problem in error.problems:
            code = REGISTRY[Code.SCHEMA_PARSE_ERROR if problem.stage is Stage.PARSE else Code.SCHEMA_CATALOG_ERROR]
            place = SourceRef(path, *text.position(problem.span.start))
            fix = problem.fix or code.fix
            found.extend([Diagnostic(code.code, code.severity, path, problem.rendered(), place, fix)])
        return None
