"""Which declared resources need which others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gitops.model.address import Address
from gitops.model.kinds import rules_of
from gitops.model.resource import Dependency

__all__ = ["dependencies"]


def dependencies(addresses: Iterable[Address], bindings: Mapping[Address, Sequence[str]]) -> tuple[Dependency, ...]:
    """Each pair once, sorted: what the rules of each kind say that it needs.

    `addresses` are those of all resources, `bindings` those of each policy that has any.
    """
    edges: list[Dependency] = []
    for address in addresses:
        edges += (Dependency(address, target) for target in rules_of(address).needs(address, bindings.get(address, ())))
    return tuple(sorted(edges))
