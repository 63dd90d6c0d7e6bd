"""What a folder has already: `init` declares the schemas, queries and policies that it finds, and changes none of them.

Looked for: a `cluster.yaml`, which is used as it is; else `schema.pg` in the cluster folder or one folder below it, each with
the stored queries of a `queries/` beside it; and `policies/*.policy.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gitops.cluster.model.address import is_name
from gitops.core.dataclass import dataclass

__all__ = ["FoundCluster", "FoundGraph", "find_cluster", "find_path"]

_DECLARATION, _SCHEMA, _QUERIES, _POLICIES = "cluster.yaml", "schema.pg", "queries", "policies"
_POLICY = ".policy.yaml"

List = Callable[[str], Sequence[str]]
"""The names in a folder of the repository; none if it is not a folder."""


@dataclass(frozen=True, slots=True)
class FoundGraph:
    """A schema, and the folder with its stored queries if there is one; both from the cluster folder."""

    name: str
    schema: str
    queries: str | None


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """What a cluster folder without a `cluster.yaml` has; `policies` are names and files."""

    graphs: tuple[FoundGraph, ...] = ()
    policies: tuple[tuple[str, str], ...] = ()


def find_path(names: List) -> str | None:
    """The folder that holds a cluster already, None if none or several could be it."""
    top = [name for name in names(".") if not name.startswith(".")]
    if _DECLARATION in top or _SCHEMA in top:
        return "."
    declared = [name for name in top if _DECLARATION in names(name)]
    if declared:
        return declared[0] if len(declared) == 1 else None
    if any(_SCHEMA in names(name) for name in top if name != "cluster"):
        return "."
    return None


def find_cluster(path: str, cluster: str, names: List) -> FoundCluster:
    """What the folder `path` has; nothing if it has a `cluster.yaml`. A schema directly in it is the graph named `cluster`."""
    present = names(path)
    if _DECLARATION in present:
        return FoundCluster()
    graphs = [_graph(cluster, "", path, names)] if _SCHEMA in present else []
    below = (name for name in present if is_name(name) and _SCHEMA in names(f"{path}/{name}"))
    graphs += [_graph(name, f"{name}/", path, names) for name in below]
    files = [name for name in names(f"{path}/{_POLICIES}") if name.endswith(_POLICY)] if graphs else []
    named = [(name.removesuffix(_POLICY), f"{_POLICIES}/{name}") for name in files]
    return FoundCluster(tuple(graphs), tuple((name, file) for name, file in named if is_name(name)))


def _graph(name: str, folder: str, path: str, names: List) -> FoundGraph:
    stored = any(query.endswith(".gq") for query in names(f"{path}/{folder}{_QUERIES}"))
    return FoundGraph(name, f"{folder}{_SCHEMA}", f"{folder}{_QUERIES}/" if stored else None)
