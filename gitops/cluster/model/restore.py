"""What `restores` of `cluster.yaml` declares: for one graph, the types whose rows come back, and the version that has them.

It is a resource, so that it is planned, approved, applied and recorded like any other. Its digest covers the graph, the version
and the types: it is done once, and the same declaration is not done again while it stays.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gitops.cluster.model.address import Address, is_name, restore_address
from gitops.cluster.model.resource import Resource
from gitops.core.canonical import canonical, digest
from gitops.database.graph.port import RestoreOrder

__all__ = ["restore_digest", "restore_order", "restore_resources", "restore_words"]


def restore_resources(forms: Mapping[str, Mapping[str, Any]]) -> dict[Address, Resource]:
    """The resources of the declarations, by address; each is under its graph and has `version` and `types`."""
    found = {}
    # A graph with another name is reported where it is declared.
    for graph in filter(is_name, forms):
        content = _content(graph, RestoreOrder(forms[graph]["version"], tuple(forms[graph]["types"])))
        found[restore_address(graph)] = Resource(restore_address(graph), digest(content), data=content)
    return found


def restore_digest(graph: str, order: RestoreOrder) -> str:
    """The digest of the resource that declares this."""
    return digest(_content(graph, order))


def _content(graph: str, order: RestoreOrder) -> bytes:
    return canonical({"graph": graph, "types": sorted(order.types), "version": order.version})


def restore_words(resource: Resource) -> str:
    """What it does, in a line."""
    order = restore_order(resource)
    names = ", ".join(order.types)
    return f"{names}: the rows of version {order.version} come back, in place of those that are there now"


def restore_order(resource: Resource) -> RestoreOrder:
    """The version and the types of a resource that `restore_resources` made."""
    form = json.loads(resource.content or b"")
    return RestoreOrder(form["version"], tuple(form["types"]))
