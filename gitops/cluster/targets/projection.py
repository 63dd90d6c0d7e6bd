"""Computes which strategy rows a target should have, from the ledger and with pure rules.

| a row | is |
| --- | --- |
| is declared, and missing, different, or not known to be written | written |
| is ours, and no longer declared, or its compute cluster now has another id | deleted, with its state |
| was never declared here | reported; deleted only if the target has `prune` |
| belongs to a compute cluster of another cluster folder | not touched, like all rows of that compute cluster (`claims`) |

A row is ours if the ledger records that it was written, or was about to be. Writing it again produces the same row, because
readers use the newest one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gitops.cluster.model.address import Address, strategy_address
from gitops.cluster.model.compute import ComputeRules, OwnedRow, owned_rows, rule_config
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.strategy import type_of
from gitops.cluster.targets.port import StrategyRow
from gitops.cluster.targets.signals import ComputeCluster
from gitops.core.dataclass import dataclass

Pair = tuple[str, str]
"""A compute cluster's id, and a strategy's type."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """How a target's rows change, and which rows belong to this cluster afterwards.

    `missing` are the compute clusters that the target lacks, and `unmanaged` the pairs of rows that are kept and are
    not ours. `claimed` maps the keys of compute clusters that belong to another cluster folder to that folder.
    """

    written: tuple[StrategyRow, ...]
    deleted: tuple[Pair, ...]
    owned: tuple[OwnedRow, ...]
    missing: tuple[ComputeRules, ...]
    unmanaged: tuple[Pair, ...]
    claimed: Mapping[str, str]


def row_changes(
    rules: Iterable[ComputeRules],
    digests: Mapping[Address, str],
    owned: Iterable[OwnedRow],
    clusters: Mapping[str, ComputeCluster],
    rows: Mapping[Pair, StrategyRow],
    owner: str,
) -> RowChanges:
    """Compare one target with the applied strategies.

    `rules` are the applied strategies of the target, `digests` are the digests of their texts by address, and `owned`
    are its rows that are recorded as ours; `clusters` (by name) and the newest `rows` are the target's content. `owner`
    is the name of this cluster folder in its rows.
    """
    known, rules = set(owned), tuple(rules)
    own = {owner}.union(row.owner for row in known if row.owner is not None)
    claimed, foreign = claims(rules, own, clusters, rows.values()), foreign_owners(rows.values(), own)
    wanted: dict[Pair, StrategyRow] = {}
    after: set[OwnedRow] = set()
    kept: set[Pair] = set()
    missing: list[ComputeRules] = []
    for each in rules:
        there = clusters.get(each.cluster)
        if there is None:
            missing.append(each)
        for rule in each.rules:
            kind = type_of(rule)
            address = strategy_address(each.key, kind)
            pending = OwnedRow(address, each.target, each.cluster)
            if there is None:
                after.add(pending)
                continue
            pair = there.cluster_id, kind.value
            if each.key in claimed:
                kept.add(pair)
                before = {row for row in known if (row.address, row.cluster) == (address, each.cluster)} or {pending}
                after.update(replace(row, digest=None) for row in before)
                continue
            wanted[pair] = StrategyRow(*pair, {**rule_config(rule), DECLARED_BY: owner})
            after.add(OwnedRow(address, each.target, each.cluster, there.cluster_id, digests[address], owner))
    written_before = {(row.cluster_id, row.strategy) for row in known & after}
    others = {pair for pair, row in rows.items() if foreign_owners([row], own)}
    left = {pair for row in known for pair in _pairs(row, clusters)} - wanted.keys() - kept - others
    unmanaged = {pair for pair in rows if pair[0] not in foreign} - wanted.keys() - left
    prune = any(each.target.prune for each in rules)
    return RowChanges(
        written=tuple(
            row
            for pair, row in sorted(wanted.items())
            if pair not in written_before or pair not in rows or rows[pair].config != row.config
        ),
        deleted=tuple(sorted(left | unmanaged if prune else left)),
        owned=tuple(sorted(after, key=lambda row: (row.address, row.cluster, row.cluster_id or ""))),
        missing=tuple(missing),
        unmanaged=() if prune else tuple(sorted(unmanaged)),
        claimed=claimed,
    )


def _pairs(row: OwnedRow, clusters: Mapping[str, ComputeCluster]) -> list[Pair]:
    """Return the possible pairs of one of our rows.

    A row that might not have been written has its compute cluster's current id.
    """
    if row.cluster_id is not None:
        return [(row.cluster_id, row.strategy)]
    there = clusters.get(row.cluster)
    return [] if there is None else [(there.cluster_id, row.strategy)]


def pending_rows(state: LedgerState) -> Mapping[str, tuple[str, ...]]:
    """Return, by target, the strategies whose rows do not match the ledger yet, according to the ledger's own records.

    Raises IntegrityError.
    """
    found: dict[str, set[str]] = {}
    for row in owned_rows(state.observations):
        applied = state.resources.get(row.address)
        if applied is None or applied.digest != row.digest:
            found.setdefault(row.target.name, set()).add(row.address)
    return {name: tuple(sorted(each)) for name, each in sorted(found.items())}


def place_of(target: str) -> str:
    """Return the place at which to report a target's problems."""
    return f"compute.targets.{target}"


# Determines the cluster folder to which a compute cluster belongs, if several folders have strategies on one target.
# Pure.
#
# The tables of a target have no column for it, so each of our rows contains its cluster folder in `config`, where other
# programs ignore it. A compute cluster belongs to the folder in its rows. All other folders leave it alone: its rows,
# its strategy states and its replicas. It becomes free again when the last of these rows is gone.


DECLARED_BY = "declared_by"
"""The key in `config` with the cluster folder of a row. No strategy has such a key."""


def owner_name(cluster: str, place: str) -> str:
    """Return a cluster folder's owner name in rows: the cluster name, and its ledger's location or the repository id."""
    return "".join(each if each.isprintable() else "?" for each in f"{cluster} ({place})")


def foreign_owners(rows: Iterable[StrategyRow], own: Collection[str]) -> Mapping[str, str]:
    """Map compute cluster ids to the other cluster folder that has rows for them.

    `own` are the current and former names of this folder. Rows of other programs have no folder.
    """
    named = sorted((row.cluster_id, str(row.config[DECLARED_BY])) for row in rows if DECLARED_BY in row.config)
    return {cluster_id: owner for cluster_id, owner in named if owner not in own}


def claims(
    rules: Iterable[ComputeRules],
    own: Collection[str],
    clusters: Mapping[str, ComputeCluster],
    rows: Iterable[StrategyRow],
) -> Mapping[str, str]:
    """Map compute cluster keys to the other cluster folder that they belong to."""
    owners = foreign_owners(rows, own)
    found = ((each.key, clusters.get(each.cluster)) for each in rules)
    return {key: owners[there.cluster_id] for key, there in found if there is not None and there.cluster_id in owners}


def claimed_message(rules: ComputeRules, owner: str) -> str:
    """Return the message for a compute cluster that belongs to another cluster folder."""
    return f"{rules.cluster} on target {rules.target.name} belongs to the cluster folder {owner}"
