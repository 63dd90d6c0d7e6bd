"""What a load of a cluster folder found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gitops.config.opening import Header
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Address
from gitops.model.resource import Dependency, DesiredState, Resource, digests_of

__all__ = ["LoadResult"]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a full load found.

    `desired` and `header` are None when there is an error that concerns them. `resources` (in address order) and
    `dependencies` hold what could be loaded even then: for reports, never to plan from.
    """

    desired: DesiredState | None
    header: Header | None
    resources: Mapping[Address, Resource]
    dependencies: Sequence[Dependency]
    diagnostics: Diagnostics

    def digests(self) -> Mapping[Address, str]:
        """Address to digest of the resources, in address order."""
        return digests_of(self.resources)
