"""Which cluster folder a compute cluster belongs to, where several have strategies on one target: pure rules.

The tables of a target have no column for it, so each row of ours names its cluster folder in its `config`, which other programs
pass over. A compute cluster belongs to the folder that a row of it names. Every other folder leaves it alone: its rows, what its
strategies remember, and its replicas. It is free again when the last of these rows is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.targets.port import StrategyRow
from gitops.cluster.targets.signals import ComputeCluster

__all__ = ["DECLARED_BY", "claimed_message", "claims", "foreign_owners", "owner_name"]

DECLARED_BY = "declared_by"
"""The key of `config` that names the cluster folder of a row. No strategy has it."""


def owner_name(cluster: str, place: str) -> str:
    """What rows call a cluster folder: the name of the cluster, and the place of its ledger or the id of its repository."""
    return "".join(each if each.isprintable() else "?" for each in f"{cluster} ({place})")


def foreign_owners(rows: Iterable[StrategyRow], own: Collection[str]) -> Mapping[str, str]:
    """By id, the compute clusters that a row of another cluster folder is about, and that folder.

    `own` are the names of this folder: that of now, and those that it had. Rows of other programs name no folder.
    """
    named = sorted((row.cluster_id, str(row.config[DECLARED_BY])) for row in rows if DECLARED_BY in row.config)
    return {cluster_id: owner for cluster_id, owner in named if owner not in own}


def claims(
    rules: Iterable[ComputeRules],
    own: Collection[str],
    clusters: Mapping[str, ComputeCluster],
    rows: Iterable[StrategyRow],
) -> Mapping[str, str]:
    """By key, those of the compute clusters that belong to another cluster folder, and that folder."""
    owners = foreign_owners(rows, own)
    found = ((each.key, clusters.get(each.cluster)) for each in rules)
    return {key: owners[there.cluster_id] for key, there in found if there is not None and there.cluster_id in owners}


def claimed_message(rules: ComputeRules, owner: str) -> str:
    """What is said of a compute cluster that belongs to another cluster folder."""
    return f"{rules.cluster} on target {rules.target.name} belongs to the cluster folder {owner}"
