"""Where the graphs of a cluster are whose ledger a server keeps: where the ledger records them, below the root of the server."""

from __future__ import annotations

from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.repository.wiring.project import LocalProject
from gitops.repository.wiring.stores import graph_uri


def served_root(folder: str, graph: str) -> str | None:
    """The root of a graph of the cluster folder in a clone, None if no ledger on its `origin` records the cluster.

    The repository has to be on this machine, because its git configuration says where graphs are. Raises GitopsError
    `graph_missing` if it is on another one, and as the stores of a server do.
    """
    try:
        local = LocalProject(folder)
        rule = local.rule(folder=folder)
        scope = local.project.position(rule).scope
    except GitopsError:
        return None  # not in a clone, a folder that gitops.yaml does not list, or a remote that does not answer
    if scope is None:
        return None
    url = local.remote.url
    if not Path(url).is_dir():
        place = f"--root ROOT/{scope.home}/graphs/{graph}.omni"
        detail = f"the rows of cluster {rule.name} are on the machine of {url}; there, with its gitops.root as ROOT, add {place}"
        raise GitopsError(Code.GRAPH_MISSING, detail, path=graph)
    base = LocalProject(url).storage_base(rule, scope.storage, scope.home)
    if base is None:
        detail = f"the rows of cluster {rule.name} have no place yet: {url} has no git config gitops.root"
        raise GitopsError(Code.GRAPH_MISSING, detail, path=graph)
    return graph_uri(base, graph)
