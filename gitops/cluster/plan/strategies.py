"""Strategies of compute clusters as values: what the ledger has applied, and what a plan changes of that."""

from __future__ import annotations

from contextlib import suppress

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.port import BlobCondition
from gitops.cluster.model.address import Kind, of_kind
from gitops.cluster.model.compute import ComputeRules, StrategyChanges, owned_rows, read_strategies
from gitops.cluster.model.plan import Plan
from gitops.cluster.session.session import Session
from gitops.cluster.targets.claims import owner_name
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError

__all__ = ["applied_rules", "changed_strategies", "declared_rules", "folder_owner", "own_names"]


def applied_rules(current: Session) -> tuple[ComputeRules, ...]:
    """The strategies that the ledger has applied, from the texts of its catalog. Raises IntegrityError, RemoteError."""
    texts = {}
    for address in of_kind(current.state.resources, Kind.STRATEGY):
        reading = current.opened.ledger.blob(address, current.state.resources[address].digest)
        if reading.condition is not BlobCondition.OK or reading.content is None:
            detail = f"{address}: its text in the catalog is {reading.condition}: {reading.detail}"
            raise IntegrityError(Code.STRATEGY_RECORD_INVALID, detail, path=address)
        texts[address] = reading.content
    return read_strategies(texts)


def declared_rules(current: Session) -> tuple[ComputeRules, ...]:
    """The strategies that the folder declares; only for sessions that are ready. Raises IntegrityError."""
    resources = current.desired.resources
    return read_strategies(
        {address: resources[address].content or b"" for address in of_kind(resources, Kind.STRATEGY)}
    )


def changed_strategies(current: Session, plan: Plan) -> StrategyChanges | None:
    """What a plan changes of strategies; None if what is applied cannot be read, which other verbs report."""
    changed = {each.address.compute for each in plan.changes if each.address.kind is Kind.STRATEGY}
    with suppress(GitopsError):
        keys = tuple(sorted(key for key in changed if key is not None))
        return StrategyChanges(applied_rules(current), declared_rules(current), keys, own_names(current))
    return None


def folder_owner(current: Session) -> str:
    """What the rows of a target call this cluster folder: its name, and where its ledger is."""
    governance = current.workspace.governance
    if governance is not None:
        name, place = governance.target.cluster, governance.target.repository
    else:
        name = current.desired.name or "cluster"
        place = current.opened.ledger.state_path.removesuffix(f"/{layout.STATE}")
    return owner_name(name, place)


def own_names(current: Session) -> frozenset[str]:
    """`folder_owner`, and what rows that are recorded as ours were written under: a folder may be renamed or moved.

    Raises IntegrityError.
    """
    recorded = (row.owner for row in owned_rows(current.state.observations))
    return frozenset({folder_owner(current), *filter(None, recorded)})
