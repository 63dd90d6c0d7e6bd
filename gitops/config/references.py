"""References that policies declare."""

from __future__ import annotations

from collections.abc import Callable, Collection

from gitops.config.cluster_yaml import RawPolicy
from gitops.config.yaml import shown
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import CLUSTER_SCOPE

__all__ = ["resolve_bindings"]

_GRAPH_PREFIX = "graph."


def resolve_bindings(
    policy: RawPolicy, graphs: Collection[str], found: Diagnostics, *, hint: Callable[[str, Collection[str]], str]
) -> tuple[str, ...]:
    """The bindings of a policy as typed references (`cluster`, `graph.<id>`), sorted, each once.

    `graphs` are the declared ids; `hint` gives what to append to a message about a name that is none of them. Reports
    `policy_missing_applies_to`, `wrong_kind_reference` and `dangling_graph_reference` and leaves such bindings out.
    """
    path = f"policies.{shown(policy.name.value)}.applies_to"
    if not policy.applies_to:
        message = f"the policy {shown(policy.name.value)} is bound to nothing"
        found.add(Code.POLICY_MISSING_APPLIES_TO, path, message, source=policy.name.source)
    bindings = set()
    for index, item in enumerate(policy.applies_to):
        text = item.value
        if text == CLUSTER_SCOPE:
            bindings.add(text)
            continue
        graph = text.removeprefix(_GRAPH_PREFIX)
        if "." in text and graph == text:
            message = f"'{shown(text)}' is no graph; bind to cluster or graph.<id>"
            found.add(Code.WRONG_KIND_REFERENCE, f"{path}[{index}]", message, source=item.source)
        elif graph not in graphs:
            message = f"there is no graph '{shown(graph)}'{hint(graph, graphs)}"
            found.add(Code.DANGLING_GRAPH_REFERENCE, f"{path}[{index}]", message, source=item.source)
        else:
            bindings.add(f"{_GRAPH_PREFIX}{graph}")
    return tuple(sorted(bindings))
