"""Recorded against desired: the changes, in address order."""

from __future__ import annotations

from gitops.model.address import Kind, trust_address
from gitops.model.change import Action, Change
from gitops.model.plan import TrustChange
from gitops.model.resource import DesiredState
from gitops.model.state import State


def diff(desired: DesiredState, state: State, trust: TrustChange | None = None) -> tuple[Change, ...]:
    """All differences, sorted by address; dispositions are still the default.

    A policy of unchanged content whose recorded bindings are absent or differ gives an update with equal digests, marked
    `binding_change`.
    """
    changes: list[Change] = []
    after, before = desired.digests(), {address: entry.digest for address, entry in state.resources.items()}
    # Most of a large cluster is as it was: only what differs is looked at, and policies, whose bindings may.
    for address in [address for address, value in after.items() if before.get(address) != value]:
        action = Action.UPDATE if address in before else Action.CREATE
        changes.append(Change(address, action, before.get(address), after[address]))
    changes.extend(Change(gone, Action.DELETE, before[gone], None) for gone in before.keys() - after.keys())
    for address in [address for address in after if address.kind is Kind.POLICY]:
        same = before.get(address) == after[address]
        if same and state.resources[address].applies_to != desired.resources[address].applies_to:
            changes.append(Change(address, Action.UPDATE, before[address], after[address], binding_change=True))
    if trust is not None and trust.before != trust.after:
        changes.append(Change(trust_address(trust.cluster), Action.UPDATE, trust.before, trust.after))
    return tuple(sorted(changes, key=lambda c: c.address))
