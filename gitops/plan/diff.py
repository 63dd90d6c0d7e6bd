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
    after, before = desired.digests(), {text: entry.digest for text, entry in state.resources.items()}
    # Most of a large cluster is as it was: only what differs is looked at, and policies, whose bindings may.
    for text in [text for text, value in after.items() if before.get(text) != value]:
        action = Action.UPDATE if text in before else Action.CREATE
        changes.append(Change(Address.parse(text), action, before.get(text), after[text]))
    changes.extend(
        Change(Address.parse(text), Action.DELETE, before[text], None) for text in before.keys() - after.keys()
    )
    prefix = f"{Kind.POLICY}."
    for text in [text for text in after if text.startswith(prefix)]:
        same = before.get(text) == after[text]
        if same and state.resources[text].applies_to != desired.resources[text].applies_to:
            changes.append(Change(Address.parse(text), Action.UPDATE, before[text], after[text], binding_change=True))
    if trust is not None and trust.before != trust.after:
        changes.append(Change(trust_address(trust.cluster), Action.UPDATE, trust.before, trust.after))
    return tuple(sorted(changes, key=lambda c: c.address.text))
