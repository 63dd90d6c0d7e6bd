"""What the commands of `gitops graph` share: graph, version, query, parameters and embedder from options, and the output."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gitops.cli.options import actor_of
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.config.cluster_yaml import load_header
from gitops.config.folder import FolderTree
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import resolve
from gitops.graph import ReadTarget
from gitops.model.address import Kind, is_name
from gitops.wiring.stores import graph_uri, storage_root
from gitops.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.graph import Embedder, WriteContext
    from gitops.graph.results import GraphOutcome
    from gitops.language.query import CheckedQuery
    from gitops.language.schema import Catalog, PropType

_PLACE = re.compile(r"(?:(?P<branch>[^@]+)@)?(?P<when>.+)")
_MAX_INPUT_BYTES = 1 << 20
_KEY_REFERENCE = "${GITOPS_EMBEDDINGS_KEY}"


def show_result(result: GraphOutcome, options: argparse.Namespace) -> int:
    """Print what a verb returned, as text or as one JSON document, and return the exit code."""
    from gitops.render.graph_data import graph_form, graph_text

    if options.json:
        show_form(graph_form(result))
    else:
        say(
            graph_text(result, options.graph, width=shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
        )
    return OK if result.ok else FAILED


def write_context(options: argparse.Namespace) -> WriteContext:
    """The clock, the ids and the actor of a verb that writes."""
    from gitops.graph import WriteContext

    return WriteContext(SystemClock(), RandomIds(), actor_of(options))


def graph_root(options: argparse.Namespace) -> str:
    """The root of the graph that the options name."""
    if options.root is not None:
        return str(options.root)
    if not is_name(options.graph):
        raise GitopsError(Code.INVALID_RESOURCE_ID, f"{options.graph!r} is not a graph id", path="graph")
    header, problems = load_header(FolderTree(options.config, confined=False))
    if header is None:
        first = next(iter(problems))
        raise GitopsError(first.code, first.message, path=first.path)
    return graph_uri(storage_root(header.storage, options.config), options.graph)


def read_target(options: argparse.Namespace) -> ReadTarget:
    """The version that `--branch` and `--at` name."""
    return _read_target(options.branch, options.at)


def parse_revision(text: str) -> ReadTarget:
    """The version that `BRANCH`, `WHEN` or `BRANCH@WHEN` names; WHEN is a version, a commit or a time."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} is not a version: use BRANCH, BRANCH@VERSION or a commit id")
    branch, when = match["branch"], match["when"]
    if branch is None and not (when.isdecimal() or is_ulid(when) or parse_timestamp(when)):
        return ReadTarget(when)
    return _read_target(branch or "main", when)


def _read_target(branch: str, when: str | None) -> ReadTarget:
    if when is None:
        return ReadTarget(branch)
    if when.isascii() and when.isdecimal():
        return ReadTarget(branch, version=int(when[:20]))
    if is_ulid(when):
        return ReadTarget(branch, commit=when)
    return ReadTarget(branch, time=when)


def checked_query(options: argparse.Namespace, catalog: Catalog) -> CheckedQuery:
    """The query that the options name, checked against the schema of the graph.

    A name alone is that of a stored query of the cluster folder. Raises GitopsError `query_parse_error`,
    `query_typecheck_error`, `query_unknown`.
    """
    from gitops.language.query import check_query, parse_queries
    from gitops.language.suggest import did_you_mean
    from gitops.language.text import LanguageError, SourceText, Stage

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
            hint = did_you_mean(name, declared)
            raise GitopsError(
                Code.QUERY_UNKNOWN, f"{place} declares no query {name[:80]!r}" + (f"; {hint}" if hint else "")
            )
        return check_query(declared[name], catalog)
    except LanguageError as error:
        first = error.problems[0]
        line, column = SourceText(source).position(first.span.start)
        code = Code.QUERY_PARSE_ERROR if first.stage is Stage.PARSE else Code.QUERY_TYPECHECK_ERROR
        fix = f"; {first.fix}" if first.fix else ""
        raise GitopsError(code, f"{place}:{line}:{column}: {first.rendered()}{fix}", path=place) from None


def _query_source(options: argparse.Namespace) -> tuple[str, bytes]:
    """A name of the source for messages, and the text."""
    if options.text is not None:
        # A byte of the command line that is not UTF-8 is passed on unchanged, and the parser reports it.
        return "the query", options.text.encode(errors="surrogateescape")
    if options.file is not None:
        if options.file == "-" == options.params:
            raise UsageError(Code.USAGE_ERROR, "--file - and --params - both read standard input; use a file for one")
        return options.file, _read_small(options.file)
    if options.query is None:
        raise UsageError(Code.USAGE_ERROR, "name a stored query, or use --file or --text")
    return _stored_query(options)


def _stored_query(options: argparse.Namespace) -> tuple[str, bytes]:
    from gitops.config.cluster_yaml import read_cluster
    from gitops.config.loader import ResourceLoader
    from gitops.config.reader import SourceReader
    from gitops.language.suggest import did_you_mean

    tree = FolderTree(options.config, confined=False)
    cluster, found = read_cluster(tree)
    graph = None if cluster is None else next((g for g in cluster.graphs if g.id.value == options.graph), None)
    if graph is None:
        detail = f"the folder {options.config} declares no graph {options.graph[:80]!r}; use --file for another query"
        raise GitopsError(Code.QUERY_UNKNOWN, detail)
    loader = ResourceLoader(SourceReader(tree, found))
    loader.graph(graph)
    stored = {address.name: each for address, each in loader.resources.items() if address.kind is Kind.QUERY}
    resource = stored.get(options.query) if is_name(options.query) else None
    if resource is None or resource.content is None:
        hint = did_you_mean(options.query, stored)
        detail = f"graph {options.graph} has no stored query {options.query[:80]!r}" + (f"; {hint}" if hint else "")
        raise GitopsError(Code.QUERY_UNKNOWN, detail, path=f"query.{options.graph}")
    return resource.path or options.query, resource.content


def query_parameters(options: argparse.Namespace, checked: CheckedQuery) -> dict[str, Any]:
    """The values of the query's parameters, from `--params` (a JSON object) and `--param NAME=VALUE`.

    Raises UsageError `usage_error`; GitopsError `query_params_invalid`.
    """
    from gitops.language.query.params import ParameterError, coerce_params

    values: dict[str, Any] = {}
    if options.params is not None:
        try:
            values = json.loads(_read_small(options.params))
        except (ValueError, RecursionError) as error:
            raise UsageError(Code.USAGE_ERROR, f"{options.params} is not JSON: {error}") from None
    for text in options.param:
        name, equals, value = text.partition("=")
        if not equals or name not in checked.params:
            known = ", ".join(f"{each}: {kind}" for each, kind in checked.params.items()) or "none"
            raise UsageError(
                Code.USAGE_ERROR, f"--param {text[:80]!r}: use NAME=VALUE; parameters of {checked.name}: {known}"
            )
        if not isinstance(values, dict):
            raise UsageError(Code.USAGE_ERROR, f"{options.params} is not a JSON object")
        values[name] = _parse_value(value, checked.params[name])
    try:
        return coerce_params(checked.params, values)
    except ParameterError as error:
        raise GitopsError(Code.QUERY_PARAMS_INVALID, error.message, path=error.parameter or "") from None


def _parse_value(text: str, kind: PropType) -> Any:
    """Texts are taken literally, other types as JSON; invalid JSON is refused by the conversion."""
    from gitops.language.schema import Scalar

    textual = kind.scalar in (Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BLOB)
    if textual and not kind.is_list:
        return None if text == "null" and kind.nullable else text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def open_records(name: str) -> BinaryIO:
    """A file, or standard input for `-`."""
    if name == "-":
        return sys.stdin.buffer
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise GitopsError(Code.USAGE_ERROR, f"cannot read {name}: {error.strerror}", path=name) from error
    except ValueError:
        raise UsageError(Code.USAGE_ERROR, f"{name!r} is not a file name") from None


def _read_small(name: str) -> bytes:
    """The content of a file that is no longer than a query or its parameters may be."""
    with open_records(name) as stream:
        data = stream.read(_MAX_INPUT_BYTES + 1)
    if len(data) > _MAX_INPUT_BYTES:
        raise UsageError(Code.USAGE_ERROR, f"{name} has more than {_MAX_INPUT_BYTES} bytes")
    return data


def find_embedder(options: argparse.Namespace) -> Embedder | None:
    """What makes vectors of texts: `hash`, or `MODEL@https://HOST/v1` with the key in GITOPS_EMBEDDINGS_KEY; None if not set.

    Raises GitopsError `embedding_failed` for an invalid address.
    """
    spec = options.embeddings or os.environ.get("GITOPS_EMBEDDINGS", "")
    if not spec:
        return None
    if spec == "hash":
        from gitops.graph import HashEmbedder

        return HashEmbedder()
    model, at, base = spec.partition("@")
    if not at or not model:
        raise UsageError(Code.USAGE_ERROR, f"--embeddings {spec[:80]!r}: use hash, or MODEL@https://HOST/v1")
    from gitops.forge.client import Service, WebClient
    from gitops.graph import ServiceEmbedder

    key = resolve(_KEY_REFERENCE, os.environ)
    headers = {} if key is None else {"Authorization": key.prefixed("Bearer ")}
    return ServiceEmbedder(
        WebClient(Service(base, Code.EMBEDDING_FAILED, headers), time.sleep, SystemClock()).post, model
    )
