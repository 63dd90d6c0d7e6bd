"""What a change of strategies would do: values that only explain a plan, and are never part of its digest."""

from __future__ import annotations

from gitops.cluster.model.compute import ComputeRules
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass

__all__ = ["StrategyChanges", "Usage", "WhatIf", "WhatIfAction"]


@dataclass(frozen=True, slots=True)
class StrategyChanges:
    """All strategies that are applied and all that are declared, and the keys of the compute clusters where they differ.

    `own` are the names of the cluster folder in the rows of its targets.
    """

    applied: tuple[ComputeRules, ...]
    declared: tuple[ComputeRules, ...]
    keys: tuple[str, ...]
    own: frozenset[str] = frozenset()

    def sides(self, key: str) -> tuple[ComputeRules, ComputeRules]:
        """The strategies of one of the compute clusters, as they are applied and as they are declared; one side may be empty.

        Both are on the target that is declared, or on the applied one where nothing is declared any more.
        """
        before, after = (
            next((each for each in side if each.key == key), None) for side in (self.applied, self.declared)
        )
        known = after or before
        if known is None:
            raise KeyError(key)
        nothing = ComputeRules(key, known.target, known.cluster, (), known.limits)
        moved = before is not None and (before.target, before.cluster) != (known.target, known.cluster)
        return nothing if before is None or moved else before, after or nothing


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over some days: of replicas, and of seconds in which statements ran and no replica was hydrated."""

    replica_hours: float
    credits: float
    unserved_s: int


@dataclass(frozen=True, slots=True)
class WhatIfAction:
    """A statement that the strategies would give now, and why."""

    sql: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the declared strategies of one compute cluster would do, by its key and its name on the target.

    `said` is why nothing is known of it, with the code of a problem if there is one; the rest is then empty. `refused` says which
    strategies want more than the limits permit. An apply refuses the strategies where a new size is `unlisted` on the target.
    `before` and `after` are what the last `days` add up to when they are played with the applied and with the declared
    strategies; both are None where the target recorded nothing. `assumed` is what the replay takes for granted.
    """

    key: str
    cluster: str
    target: str
    actions: tuple[WhatIfAction, ...] = ()
    refused: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()
    said: str = ""
    code: Code | None = None
    before: Usage | None = None
    after: Usage | None = None
    days: int = 0
    assumed: tuple[str, ...] = ()
