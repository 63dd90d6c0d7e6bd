"""Compute cluster strategies as values: the applied ones, and how a plan changes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.port import BlobCondition
from gitops.cluster.model.address import Address, Kind, of_kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.compute import ComputeRules, StrategyChanges, owned_rows, read_strategies, read_strategy
from gitops.cluster.model.plan import TARGET, ExecEdge, ExecNode, ExecutionGraph, LockClaim, Plan
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.session.session import Session
from gitops.cluster.targets.projection import owner_name
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError


def applied_rules(current: Session) -> tuple[ComputeRules, ...]:
    """Return the applied strategies from the ledger's catalog. Raises IntegrityError, RemoteError."""
    texts = {}
    for address in of_kind(current.state.resources, Kind.STRATEGY):
        reading = current.opened.ledger.blob(address, current.state.resources[address].digest)
        if reading.condition is not BlobCondition.OK or reading.content is None:
            detail = f"{address}: its text in the catalog is {reading.condition}: {reading.detail}"
            raise IntegrityError(Code.STRATEGY_RECORD_INVALID, detail, path=address)
        texts[address] = reading.content
    return read_strategies(texts)


def declared_rules(current: Session) -> tuple[ComputeRules, ...]:
    """Return the strategies that the folder declares. Only for sessions that are ready. Raises IntegrityError."""
    resources = current.desired.resources
    return read_strategies(
        {address: resources[address].content or b"" for address in of_kind(resources, Kind.STRATEGY)}
    )


def changed_strategies(current: Session, plan: Plan) -> StrategyChanges | None:
    """Return how a plan changes strategies, or None if the applied ones cannot be read, which other commands report."""
    changed = {each.address.compute for each in plan.changes if each.address.kind is Kind.STRATEGY}
    with suppress(GitopsError):
        keys = tuple(sorted(key for key in changed if key is not None))
        return StrategyChanges(applied_rules(current), declared_rules(current), keys, own_names(current))
    return None


def folder_owner(current: Session) -> str:
    """Return the owner name that identifies this cluster folder in a target's rows: its name and its ledger's location."""
    governance = current.workspace.governance
    if governance is not None:
        name, place = governance.target.cluster, governance.target.repository
    else:
        name = current.desired.name or "cluster"
        place = current.opened.ledger.state_path.removesuffix(f"/{layout.STATE}")
    return owner_name(name, place)


def own_names(current: Session) -> frozenset[str]:
    """Return `folder_owner` and the owner names in our recorded rows, because a folder can be renamed or moved.

    Raises IntegrityError.
    """
    recorded = (row.owner for row in owned_rows(current.state.observations))
    return frozenset({folder_owner(current), *filter(None, recorded)})


# Strategy targets in the execution graph of an apply.
#
# | node | waits for |
# | --- | --- |
# | check of a target, if strategies on it are created or updated | nothing |
# | create or update of a strategy | the check of its target (`strategy_target`) |
#
# A target is not a resource: its declaration is part of the text of each of its strategies. So a check doesn't change
# anything, and is staged in every run. The texts of strategies have no order, because they are not read before the
# commit.


def strategy_targets(changes: Iterable[Change], desired: DesiredState) -> Mapping[Address, str]:
    """Map each declared strategy that changes to the name of its target."""
    names = of_kind((change.address for change in changes if change.after is not None), Kind.STRATEGY)
    return {name: read_strategy(name, desired.resources[name].content or b"").target.name for name in names}


def with_targets(graph: ExecutionGraph, targets: Mapping[Address, str]) -> ExecutionGraph:
    """Add a node for each target with changed strategies, before the first of these changes.

    `targets` comes from `strategy_targets`.
    """
    written = [n for n in graph.nodes if n.kind == Kind.STRATEGY.value and n.action is not Action.DELETE]
    if not written:
        return graph
    names = sorted({targets[node.address] for node in written})
    looks = [ExecNode(f"{TARGET}.{name}", TARGET, Action.UPDATE, 0, (LockClaim(f"compute:{name}"),)) for name in names]
    first = min(node.position for node in written)
    ordered = sorted(graph.nodes, key=lambda node: node.position)
    placed = [*(n for n in ordered if n.position < first), *looks, *(n for n in ordered if n.position >= first)]
    edges = (
        ExecEdge(f"{TARGET}.{name}", node.id, "strategy_target", name)
        for node, name in ((node, targets[node.address]) for node in written)
    )
    nodes = tuple(replace(node, position=position) for position, node in enumerate(placed))
    return ExecutionGraph(nodes, tuple(sorted((*graph.edges, *edges))))
