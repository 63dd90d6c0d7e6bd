"""What the commands of `gitops graph` share: the graph, the version and the input that options name."""

from __future__ import annotations

import argparse
import re

from gitops.cli.shared import actor_of, cluster_folder
from gitops.cluster.config.cluster_yaml import header_of, read_cluster
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.model.address import is_name
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.database import graph
from gitops.database.graph.port import Existence
from gitops.database.language.suggest import choices
from gitops.repository.wiring.stores import graph_uri, storage_root
from gitops.repository.wiring.system import RandomIds, SystemClock

_PLACE = re.compile(r"(?:(?P<branch>[^@]+)@)?(?P<when>.+)")


def write_context(options: argparse.Namespace) -> graph.WriteContext:
    """The clock, the ids and the actor of a verb that writes."""
    return graph.WriteContext(SystemClock(), RandomIds(), actor_of(options))


def graph_root(options: argparse.Namespace) -> str:
    """The root of the graph that the options name."""
    if options.root is not None:
        return str(options.root)
    if not is_name(options.graph):
        raise GitopsError(Code.INVALID_RESOURCE_ID, f"{options.graph!r} is not a graph id", path="graph")
    cluster, problems = read_cluster(FolderTree(cluster_folder(options), confined=True))
    header = None if cluster is None else header_of(cluster, problems)
    if cluster is None or header is None:
        first = next(iter(problems))
        raise GitopsError(first.code, first.message, path=first.path, fix=first.fix)
    uri = graph_uri(storage_root(header.storage, options.config), options.graph)
    declared = {each.id.value for each in cluster.graphs}
    in_bucket = uri.startswith("s3:") and options.graph in declared
    # The graph of a delete that waits for an approval is no longer declared.
    if in_bucket or graph.LanceEngine(SystemClock(), RandomIds()).exists(uri) is not Existence.ABSENT:
        return uri
    if options.graph in declared:
        from gitops.cli.graph.served import served_root

        return served_root(options.config, options.graph) or uri
    detail = f"cluster.yaml does not declare a graph {options.graph!r}{choices(options.graph, declared)}"
    raise GitopsError(Code.GRAPH_UNKNOWN, detail, path="graphs")


def parse_revision(text: str) -> graph.ReadTarget:
    """The version that `BRANCH`, `WHEN` or `BRANCH@WHEN` names; WHEN is a version, a commit or a time."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} is not a version: use BRANCH, BRANCH@VERSION or a commit id")
    branch, when = match["branch"], match["when"]
    if branch is None and not (when.isdecimal() or is_ulid(when) or parse_timestamp(when)):
        return graph.ReadTarget(when)
    return read_target(branch or "main", when)


def read_target(branch: str, when: str | None) -> graph.ReadTarget:
    """A version of a branch: a version number, a commit id or a time; by default its newest."""
    if when is None:
        return graph.ReadTarget(branch)
    if when.isascii() and when.isdecimal():
        return graph.ReadTarget(branch, version=int(when[:20]))
    if is_ulid(when):
        return graph.ReadTarget(branch, commit=when)
    return graph.ReadTarget(branch, time=when)
