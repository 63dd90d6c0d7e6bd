"""Blast radius: what directly needs a resource that changes."""

from __future__ import annotations

from collections.abc import Sequence

from gitops.model.change import Change
from gitops.model.plan import Impact
from gitops.model.resource import Dependency


def impact(changes: Sequence[Change], dependencies: Sequence[Dependency]) -> tuple[Impact, ...]:
    """Per change, in order, the resources with a desired edge to it; changes that nothing needs are left out."""
    needed_by: dict[str, list[str]] = {}
    for edge in dependencies:
        needed_by.setdefault(edge.target, []).append(edge.source)
    return tuple(
        Impact(change.address.text, tuple(needed_by[change.address.text]))
        for change in changes
        if change.address.text in needed_by
    )
