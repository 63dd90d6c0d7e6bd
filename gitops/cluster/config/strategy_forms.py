"""The strategies of one compute cluster, as `cluster.yaml` and scenarios of simulations declare them."""

from __future__ import annotations

import re
from typing import Any

from gitops.cluster.config.rule_forms import Form, Refused, derived, mapping, optional, truth, whole
from gitops.cluster.config.rule_problems import CHOSEN_KEY, Place
from gitops.cluster.model.strategy import Burst, IdleSuspend, ShrinkToFit, StrategyRule, TargetSize
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_line

__all__ = [
    "AMOUNT",
    "RESERVED_REPLICAS",
    "SIZE",
    "STRATEGIES",
    "TIME",
    "DeclaredStrategies",
    "check_strategies",
    "strategy_warnings",
]

RESERVED_REPLICAS = ("mzclusterctl",)
"""Names of replicas that other tools make for a moment: they are neither seen nor given."""

_SPAN = re.compile(r"(0|[1-9][0-9]{0,5})([smhd])\Z", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_YEAR_S = 366 * 24 * 3600
# What sizes look like where the name of a replica is made from one.
_LADDER = re.compile(r"[0-9]+(cc|C)", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeclaredStrategies:
    """At most one rule of each strategy."""

    target_size: TargetSize | None = None
    shrink_to_fit: ShrinkToFit | None = None
    burst: Burst | None = None
    idle_suspend: IdleSuspend | None = None

    @property
    def rules(self) -> tuple[StrategyRule, ...]:
        """The rules that are declared, in the order in which they decide."""
        found = (self.target_size, self.shrink_to_fit, self.burst, self.idle_suspend)
        return tuple(rule for rule in found if rule is not None)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a text that is not empty")
    if not is_line(value):
        raise ValueError("must be one line without control characters and outer blanks")
    return value


def _span(value: object) -> int:
    found = _SPAN.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a time such as 30s, 5m, 8h or 2d")
    return int(found[1]) * _SECONDS[found[2]]


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError("expected a number that is not negative")
    return float(value)


SIZE: Form[str] = derived(_name)
"""A name of a size, a replica or a compute cluster."""
TIME: Form[int] = derived(_span)
"""A text such as `5m`, as seconds."""
AMOUNT: Form[float] = derived(_amount)
"""A number of credits."""
_COOLDOWN = whole(0, _YEAR_S)
_COUNT = whole(1, 10_000)

STRATEGIES: dict[str, Form[Any]] = {
    "target_size": optional(
        mapping(
            TargetSize,
            {"target_size": SIZE, "replica_name": optional(SIZE), "drop_first": truth, "cooldown_s": _COOLDOWN},
        )
    ),
    "shrink_to_fit": optional(
        mapping(
            ShrinkToFit,
            {"max_replica_size": SIZE, "min_oom_count": _COUNT, "min_crash_count": _COUNT, "cooldown_s": _COOLDOWN},
        )
    ),
    "burst": optional(mapping(Burst, {"burst_replica_size": SIZE, "cooldown_s": _COOLDOWN})),
    "idle_suspend": optional(mapping(IdleSuspend, {"idle_after_s": whole(1, _YEAR_S), "cooldown_s": _COOLDOWN})),
}
"""The form of each strategy by its key."""


def check_strategies(declared: DeclaredStrategies, cluster: str, *, experimental: bool) -> None:
    """Check what may not stand together. Raises Refused, with places below the compute cluster `cluster`."""
    target, shrink, burst = declared.target_size, declared.shrink_to_fit, declared.burst
    problems: list[tuple[Place, str]] = []
    if shrink is not None and target is not None:
        problems.append((("shrink_to_fit", CHOSEN_KEY), "cannot be combined with target_size: keep one of the two"))
    if shrink is not None and not experimental:
        problems.append((("shrink_to_fit", CHOSEN_KEY), "is experimental: add experimental: true next to it"))
    if target is not None and burst is not None and target.target_size == burst.burst_replica_size:
        message = f"is target_size as well; a burst replica of size {target.target_size} would not help"
        problems.append((("burst", "burst_replica_size"), message))
    if target is not None and target.drop_first and burst is not None:
        message = "cannot be combined with drop_first: a cluster that may have one replica only gets no burst replica"
        problems.append((("burst", CHOSEN_KEY), message))
    name = None if target is None else target.replica_name
    if name is not None and _is_taken(name, cluster, declared):
        message = f"'{name}' is a name that strategies or tools give to replicas of their own; choose another one"
        problems.append((("target_size", "replica_name"), message))
    if problems:
        raise Refused(*problems)


def strategy_warnings(declared: DeclaredStrategies, interval_s: int) -> list[tuple[Place, str]]:
    """What is permitted and hardly meant, where a tick comes every so many seconds."""
    idle, found = declared.idle_suspend, list[tuple[Place, str]]()
    if idle is None:
        return found
    if declared.target_size is None and declared.shrink_to_fit is None:
        message = "suspends a cluster that never comes back: declare target_size or shrink_to_fit next to it"
        found.append((("idle_suspend", CHOSEN_KEY), message))
    if idle.idle_after_s < 2 * interval_s:
        message = f"is less than two intervals of {interval_s} s, so one quiet interval suspends the cluster"
        found.append((("idle_suspend", "idle_after_s"), message))
    return found


def _is_taken(name: str, cluster: str, declared: DeclaredStrategies) -> bool:
    if name in RESERVED_REPLICAS:
        return True
    own, _, rest = name.rpartition("_")
    target = declared.target_size
    return own == cluster and (
        rest == "burst" or _LADDER.fullmatch(rest) is not None or rest == (target and target.target_size)
    )
