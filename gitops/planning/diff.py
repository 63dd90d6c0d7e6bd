"""Recorded against desired: the changes, in address order."""

from __future__ import annotations

from gitops.model.address import Address, Kind, trust_address
from gitops.model.change import Action, Change
from gitops.model.plan import TrustChange
from gitops.model.resource import DesiredState
from gitops.model.state import State


def diff(desired: DesiredState, state: State, trust: TrustChange | None = None) -> tuple[Change, ...]:
    """All differences, sorted by address text; dispositions are still the default.

    A policy of unchanged content whose recorded bindings are absent or differ gives an update with equal digests, marked
    `binding_change`.
    """
    changes: list[Change] = []
    for text in sorted(desired.resources.keys() | state.resources.keys()):
        wanted = desired.resources.get(text)
        recorded = state.resources.get(text)
        address = wanted.address if wanted is not None else Address.parse(text)
        if recorded is None and wanted is not None:
            changes.append(Change(address, Action.CREATE, None, wanted.digest))
        elif wanted is None and recorded is not None:
            changes.append(Change(address, Action.DELETE, recorded.digest, None))
        elif wanted is not None and recorded is not None:
            if wanted.digest != recorded.digest:
                changes.append(Change(address, Action.UPDATE, recorded.digest, wanted.digest))
            elif address.kind is Kind.POLICY and recorded.applies_to != wanted.applies_to:
                changes.append(Change(address, Action.UPDATE, recorded.digest, wanted.digest, binding_change=True))
    if trust is not None and trust.before != trust.after:
        changes.append(Change(trust_address(trust.cluster), Action.UPDATE, trust.before, trust.after))
    return tuple(sorted(changes, key=lambda c: c.address.text))
