"""`gitops graph query`, `gitops graph mutate` and `gitops graph queries`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gitops.cli.finding import cluster_folder
from gitops.cli.graph import query_form
from gitops.cli.graph.data import graph_root, read_target, write_context
from gitops.cli.shared import FAILED, OK, complain, say_coloured, show, show_form, shown_folder
from gitops.cluster.config.cluster_yaml import read_cluster
from gitops.cluster.config.compiler import find_query_file
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.model.address import Kind, is_name
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import NoFaults
from gitops.database import graph
from gitops.database.graph.port import Existence
from gitops.database.graph.results import GraphOutcome, QueryRows
from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.query.codes import QUERY_CODES
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.suggest import choices, did_you_mean
from gitops.database.language.text import LanguageError, SourceText
from gitops.render.graph_data import operator_lines, queries_form, queries_text
from gitops.repository.wiring.stores import cache_folder, open_embedder
from gitops.repository.wiring.system import SystemClock

_MIB = 2**20


def query(options: argparse.Namespace) -> int:
    """`gitops graph query GRAPH QUERY`: print rows as a table, a JSON document, JSON lines, CSV, or one value per line."""
    form = query_form.row_format(options)
    root = graph_root(options) if options.preview is None else _previewed_root(options)
    snapshot = graph.open_snapshot(root, read_target(options.branch, options.at))
    checked = _checked_query(options, snapshot)
    parameters = _query_parameters(options, checked)
    settings = graph.QueryOptions(
        now=SystemClock().now(),
        timeout_s=options.timeout,
        memory_bytes=options.memory * _MIB,
        strategy=graph.Strategy(options.strategy),
        explain=options.explain,
        embedder=open_embedder(options.embeddings, os.environ),
        cache_dir=cache_folder(os.environ),
        approximate=options.approximate,
    )
    with _with_source(options, checked.name), _of_copy(options):
        by_key = graph.read_by_key(snapshot, checked, parameters, settings)
        rows = by_key or _run(snapshot, checked, parameters, settings)
    if not query_form.print_rows(form, rows.columns, rows.rows):
        options.json = form == "json"
        show(rows, options)
    if rows.explanation is not None and form != "json":
        complain("\n".join(operator_lines(rows.explanation)))
    if by_key is None:
        sys.stdout.flush()
        graph.note_read_by_key(snapshot, checked, parameters, settings)
    return OK


def _previewed_root(options: argparse.Namespace) -> str:
    """Return the root of the newest copy of a graph that the bot made for a change request, after its migration if there was one.

    Raises GitopsError `graph_version_gone` if there is no longer a copy, `preview_unavailable`.
    """
    from gitops.repository.wiring.local import LocalRepository
    from gitops.repository.wiring.previews import MachinePreviews
    from gitops.repository.wiring.stores import graph_engine
    from gitops.review.previews.run import scratch_roots

    local, number = LocalRepository(options.config or "."), options.preview
    declared = local.config().preview.scratch
    if declared is None:
        raise GitopsError(Code.PREVIEW_UNAVAILABLE, "gitops.yaml sets no preview.scratch", path="preview.scratch")
    rule = local.rule(None, options.config)
    scratch = MachinePreviews(local, os.environ).scratch(rule.name, declared, "")
    engine = graph_engine(NoFaults())
    for claim in reversed([each for each in scratch.claims() if each.request == number]):
        for root in reversed(scratch_roots(scratch.place(claim), options.graph)):
            if engine.exists(root) is Existence.PRESENT:
                return root
    raise _gone(options, f"there is no copy of {options.graph} for request {number}")


def _gone(options: argparse.Namespace, detail: str) -> GitopsError:
    fix = f"make one: gitops preview --request {options.preview} --graph {options.graph} --keep"
    return GitopsError(Code.GRAPH_VERSION_GONE, detail, path=options.graph, fix=fix)


@contextmanager
def _of_copy(options: argparse.Namespace) -> Iterator[None]:
    """Let the error of a copy that cannot be read say why: it shares data files with the live graph, which lost them."""
    try:
        yield
    except GitopsError as error:
        if options.preview is None or error.code is not Code.QUERY_FAILED:
            raise
        detail = f"the copy of {options.graph} cannot be read, as after gitops graph gc: {error.detail}"
        raise _gone(options, detail) from error


def _run(snapshot: graph.Snapshot, query: CheckedQuery, params: object, settings: graph.QueryOptions) -> QueryRows:
    result = graph.run_query(snapshot, query, params, settings)
    explanation = result.explanation if settings.explain else None
    return QueryRows(result.manifest_version, result.columns, result.rows(), explanation)


def mutate(options: argparse.Namespace) -> GraphOutcome:
    """`gitops graph mutate GRAPH QUERY`."""
    root, context = graph_root(options), write_context(options)
    checked = _checked_query(options, graph.open_snapshot(root, graph.ReadTarget(options.branch)))
    parameters = _query_parameters(options, checked)
    settings = graph.MutationOptions(
        now=context.now(),
        branch=options.branch,
        actor=context.actor,
        expected_head=options.expect_head,
        embedder=open_embedder(options.embeddings, os.environ),
    )
    with _with_source(options, checked.name):
        return graph.Mutator(context.clock, context.ids).run(root, checked, parameters, settings)


@contextmanager
def _with_source(options: argparse.Namespace, name: str) -> Iterator[None]:
    """Let a remedy that runs the query by the other command find it where this command did, with the same parameters."""
    try:
        yield
    except GitopsError as error:
        given = [("--file", options.file), ("--text", options.text), ("--params", options.params)]
        given += [("--param", text) for text in options.param]
        words = [word for option, value in given if value is not None for word in (option, value)]
        error.fix = error.fix and error.fix.replace(f"GRAPH {name}", shlex.join((options.graph, name, *words)))
        raise


def _checked_query(options: argparse.Namespace, snapshot: graph.Snapshot) -> CheckedQuery:
    """Return the selected query, checked against the schema of the version that it reads or changes.

    A bare name refers to a stored query of the cluster folder. Raises GitopsError `query_parse_error`,
    `query_typecheck_error`, `query_unknown`.
    """
    catalog = snapshot.schema().catalog
    place, source = _query_source(options)
    try:
        declared = {query.name.text: query for query in reversed(parse_queries(source))}
        name = options.query or (next(iter(declared)) if len(declared) == 1 else None)
        if name is None:
            raise UsageError(
                Code.USAGE_ERROR,
                f"{place} declares {len(declared)} queries; name one of them: {', '.join(sorted(declared)[:20])}",
            )
        if name not in declared:
            detail = f"{place} declares no query {name[:80]!r}{choices(name, declared)}"
            raise GitopsError(Code.QUERY_UNKNOWN, detail)
        return check_query(declared[name], catalog)
    except LanguageError as error:
        first = error.problems[0]
        line, column = SourceText(source).position(first.span.start)
        path, fix = f"{place}:{line}:{column}", first.fix or ""
        refused = GitopsError(QUERY_CODES[first.stage], first.rendered(), path=path, fix=fix)
        refused.rule = first.rule
        raise refused from None


def _query_source(options: argparse.Namespace) -> tuple[str, bytes]:
    """Return the query's name for messages, and its text."""
    if options.text is not None:
        # Command-line bytes that are not UTF-8 are passed on unchanged, so that the parser reports them.
        return "--text", options.text.encode(errors="surrogateescape")
    if options.file is not None:
        if options.file == "-" == options.params:
            raise UsageError(Code.USAGE_ERROR, "--file - and --params - both read standard input; use a file for one")
        return options.file, query_form.read_small(options.file)
    if options.query is None:
        fix = f"list the stored queries: gitops graph queries {options.graph}"
        raise UsageError(Code.USAGE_ERROR, "name a stored query, or use --file or --text", fix=fix)
    return _stored_query(options)


def _stored_query(options: argparse.Namespace) -> tuple[str, bytes]:
    folder = cluster_folder(options)
    tree = FolderTree(folder, confined=True)
    cluster, found = read_cluster(tree)
    declared = None if cluster is None else next((g for g in cluster.graphs if g.id.value == options.graph), None)
    if declared is None:
        detail = f"the folder {folder} declares no graph {options.graph[:80]!r}; use --file for another query"
        raise GitopsError(Code.QUERY_UNKNOWN, detail)
    reader = SourceReader(tree, found)
    known = find_query_file(reader, declared, options.query) if is_name(options.query) else None
    if known is not None:
        return known[0], known[1].data
    from gitops.cluster.config.loader import ResourceLoader

    loader = ResourceLoader(reader)
    loader.graph(declared)
    stored = [address.name for address in loader.resources if address.kind is Kind.QUERY]
    detail = f"graph {options.graph} has no stored query {options.query[:80]!r}{choices(options.query, stored)}"
    raise GitopsError(Code.QUERY_UNKNOWN, detail, path=f"query.{options.graph}")


def _query_parameters(options: argparse.Namespace, checked: CheckedQuery) -> dict[str, Any]:
    """Return the values of the query's parameters, from `--params` (a JSON object) and `--param NAME=VALUE`.

    Raises UsageError `usage_error`; GitopsError `query_params_invalid`.
    """
    values = query_form.read_parameters(options.params)
    for text in options.param:
        name, equals, value = text.partition("=")
        if not equals or name not in checked.params:
            wrong = f"{checked.name} has no parameter {name[:80]!r}" if equals else "use NAME=VALUE"
            near = did_you_mean(name, checked.params) if equals else None
            known = ", ".join(f"{each}: {kind}" for each, kind in checked.params.items()) or "none"
            detail = f"--param {text[:80]!r}: {wrong}; {f'{near} ' if near else ''}parameters: {known}"
            fix = f"write --param NAME=VALUE, with NAME one of: {', '.join(checked.params)}" if checked.params else None
            raise UsageError(
                Code.USAGE_ERROR, detail, fix=fix or f"leave out --param: {checked.name} has no parameters"
            )
        if not isinstance(values, dict):
            raise UsageError(
                Code.USAGE_ERROR, f"{options.params} is not a JSON object", fix=query_form.UNREAD_PARAMETERS
            )
        kind = checked.params[name]
        values[name] = query_form.parse_value(value, textual=query_form.is_textual(kind), nullable=kind.nullable)
    try:
        return coerce_params(checked.params, values)
    except ParameterError as error:
        name, fix = error.parameter or "", None
        if name in checked.params:
            what = f"a value of type {checked.params[name]}" if name in values else "a value"
            example = "2" if str(checked.params[name])[:2] in ("I3", "I6", "U3", "U6") else "VALUE"
            fix = f"give it {what}{', a whole number' if example == '2' else ''}: --param {name}={example}"
        raise GitopsError(Code.QUERY_PARAMS_INVALID, error.message, path=name, fix=fix) from None


# -- `gitops graph queries`: the stored queries of a cluster -----------------------------------------------------------


def queries(options: argparse.Namespace) -> int:
    """`gitops graph queries [GRAPH]`: list the stored queries that `gitops plan` would plan, or the applied ones."""
    from gitops.cli.cluster import planning_workspace, to_read
    from gitops.cluster.session.queries import applied_queries, declared_queries

    if options.applied and options.request is not None:
        raise UsageError(Code.USAGE_ERROR, "--applied and --request cannot be combined; omit one of them")
    if options.applied:
        (workspace,) = to_read(options)
        outcome = applied_queries(workspace, options.graph)
    else:
        outcome = declared_queries(planning_workspace(options), options.graph)
    if options.json:
        show_form(queries_form(outcome))
    else:
        say_coloured(queries_text(outcome, shown_folder(options, outcome.config_dir), verbose=options.verbose), options)
    return OK if outcome.ok else FAILED
