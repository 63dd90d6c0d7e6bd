"""Edits of the state that keep a graph's own records consistent with each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gitops.model.digests import graph_composite
from gitops.model.state import AppliedResource, State


def recorded_composite(state: State, graph: str) -> str:
    """The composite digest of a graph from the ledger's own schema and query entries."""
    prefix = f"query.{graph}."
    schema = state.resources.get(f"schema.{graph}")
    queries = {text[len(prefix) :]: r.digest for text, r in state.resources.items() if text.startswith(prefix)}
    return graph_composite(graph, "" if schema is None else schema.digest, queries)


def recompute_graph(state: State, graph: str, *, create: bool = False) -> State:
    """The state with the composite of one graph renewed; a graph that is not recorded is left out unless `create`."""
    address = f"graph.{graph}"
    if address not in state.resources and not create:
        return state
    entry = AppliedResource(recorded_composite(state, graph))
    return replace(state, resources={**state.resources, address: entry})


def recompute_graphs(state: State, graphs: Iterable[str]) -> State:
    """`recompute_graph` for many, in one pass over the resources."""
    queries: dict[str, dict[str, str]] = {}
    for text, entry in state.resources.items():
        if text.startswith("query."):
            graph, _, name = text.removeprefix("query.").partition(".")
            queries.setdefault(graph, {})[name] = entry.digest
    resources = dict(state.resources)
    for graph in graphs:
        if f"graph.{graph}" in resources:
            schema = resources.get(f"schema.{graph}")
            composite = graph_composite(graph, "" if schema is None else schema.digest, queries.get(graph, {}))
            resources[f"graph.{graph}"] = AppliedResource(composite)
    return replace(state, resources=resources)


def owned_by(text: str, graph: str) -> bool:
    """Whether an address belongs to the subtree of a graph: itself, its schema, its queries."""
    return text in (f"graph.{graph}", f"schema.{graph}") or text.startswith(f"query.{graph}.")


def remove_graph(state: State, graph: str, *, at: str, approval_id: str | None, actor: str | None) -> State:
    """The state without a graph's subtree, with its tombstone."""
    tombstone = {"kind": "tombstone", "deleted_at": at, "approval_id": approval_id, "actor": actor}
    return replace(
        state,
        resources={t: r for t, r in state.resources.items() if not owned_by(t, graph)},
        statuses={t: s for t, s in state.statuses.items() if not owned_by(t, graph)},
        observations={**state.observations, f"graph.{graph}": tombstone},
    )
