"""Applies with a branch ledger, for the command line, the bot and hooks: first the cluster's location, then the rest.

1. If the declared location differs from the recorded one and is approved, it is recorded, and the rest of the apply
   uses it. If it is not approved, the rest uses the current location.
2. If it is approved but cannot be carried out, or if it removes the cluster, nothing else is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gitops.cluster.apply.scope import apply_scope
from gitops.cluster.config.gitops_yaml import BotConfig, ClusterRule
from gitops.cluster.model.address import cluster_address
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.workspace import Workspace
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.repository.cluster import LedgerPosition, rule_at
from gitops.repository.repository import Repository
from gitops.repository.results import diagnostics_of


@dataclass(frozen=True, slots=True)
class ClusterMove:
    """The result of a move. `rule` has the cluster's new location, or is None if the cluster was removed.

    `outcome` is the outcome of its entry.

    `refused` are the problems of an approved move that failed, and `waits` those of a move without approval.
    """

    rule: ClusterRule | None
    outcome: ApplyOutcome | None = None
    refused: tuple[Diagnostic, ...] = ()
    waits: tuple[Diagnostic, ...] = ()


def move_cluster(
    repository: Repository,
    rule: ClusterRule,
    position: LedgerPosition,
    config: BotConfig,
    declared: Callable[[], Workspace],
    *,
    dry_run: bool = False,
) -> ClusterMove:
    """Record a cluster's new location if a merge moved it and the move is approved. Raises RemoteError.

    `declared` opens its workspace at the declared location. With `dry_run`, nothing is recorded, and the move is
    `refused` with a warning.
    """
    try:
        if not repository.scope_waits(rule, position, config):
            return ClusterMove(rule)
        outcome = apply_scope(declared(), dry_run=dry_run)
    except GitopsError as error:
        # A declaration that cannot be used is not approved either, so the cluster is not moved.
        return ClusterMove(rule, waits=diagnostics_of(error))
    if outcome.state_written:
        entry = repository.ledger(rule).view().entry
        scope = None if entry is None else entry.scope
        return ClusterMove(None if scope is None or scope.closed else rule_at(scope.target), outcome)
    if any(change.disposition is Disposition.APPLIED for change in outcome.changes):
        return ClusterMove(rule, outcome, refused=outcome.diagnostics)
    address = cluster_address(rule.name)
    return ClusterMove(rule, waits=tuple(each for each in outcome.diagnostics if each.path == address))


def governed_apply(moved: ClusterMove, rest: Callable[[ClusterRule], ApplyOutcome]) -> ApplyOutcome:
    """Return the outcome of an apply, including a move of the cluster if it started with one.

    `rest` applies everything else, at the cluster's current location.
    """
    entry = moved.outcome
    if entry is not None and (moved.refused or moved.rule is None):
        return entry
    if moved.rule is None:
        raise AssertionError("only an entry takes a cluster out")
    outcome = rest(moved.rule)
    if entry is not None:
        outcome = replace(
            outcome,
            changes=(*entry.changes, *outcome.changes),
            approvals_used={**entry.approvals_used, **outcome.approvals_used},
            state_written=entry.state_written or outcome.state_written,
        )
    return replace(outcome, diagnostics=(*moved.waits, *outcome.diagnostics))
