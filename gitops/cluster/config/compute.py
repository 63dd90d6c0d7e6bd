"""The `compute` section of `cluster.yaml`: targets, and the strategies for their compute clusters.

Its structure is read with the file. The load checks consistency on the same declaration in its JSON form, so an unchanged
folder is checked without reading its YAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from gitops.cluster.config.rule_forms import (
    CHOSEN_KEY,
    Form,
    KnownForm,
    Place,
    Refused,
    choice,
    derived,
    keyed,
    mapping,
    optional,
    place_in,
    schema_of,
    text,
    truth,
    whole,
)
from gitops.cluster.model.address import Address, is_name
from gitops.cluster.model.compute import (
    APPLICATION_NAME,
    ComputeRules,
    ComputeTarget,
    TargetKind,
    credits_text,
    rule_config,
    strategy_resources,
)
from gitops.cluster.model.resource import Resource
from gitops.cluster.model.strategy import Burst, IdleSuspend, Limits, ShrinkToFit, StrategyRule, TargetSize, type_of
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.documents.forms import is_line
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlNode, shown

# -- strategies --------------------------------------------------------------------------------------------------------
# Strategies of one compute cluster, as declared in `cluster.yaml` and in simulation scenarios.


RESERVED_REPLICAS = ("mzclusterctl",)
"""Names of replicas that other tools create temporarily. Strategies ignore and never use them."""

_SPAN = re.compile(r"(0|[1-9][0-9]{0,5})([smhd])\Z", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_YEAR_S = 366 * 24 * 3600
# Sizes that can be part of a replica name.
_LADDER = re.compile(r"[0-9]+(cc|C)|[A-Z]\.[0-9]+-[0-9a-z]+", re.ASCII)
# The target refuses to create replicas with these name prefixes. Source: Materialize, BUILTIN_PREFIXES.
_RESERVED = ("mz_", "pg_", "external_")


@dataclass(frozen=True, slots=True)
class DeclaredStrategies:
    """The declared rules, at most one for each strategy."""

    target_size: TargetSize | None = None
    shrink_to_fit: ShrinkToFit | None = None
    burst: Burst | None = None
    idle_suspend: IdleSuspend | None = None

    @property
    def rules(self) -> tuple[StrategyRule, ...]:
        """Return the declared rules in the order in which they apply."""
        found = (self.target_size, self.shrink_to_fit, self.burst, self.idle_suspend)
        return tuple(rule for rule in found if rule is not None)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("must be a string that is not empty")
    if not is_line(value):
        raise ValueError("must be one line without control characters or surrounding spaces")
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
"""The name of a size, a replica or a compute cluster."""
TIME: Form[int] = derived(_span)
"""A duration such as `5m`, in seconds."""
AMOUNT: Form[float] = derived(_amount, {"type": "number", "minimum": 0}.copy)
"""An amount of credits."""
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
"""The form of each strategy, by its key."""


def check_strategies(declared: DeclaredStrategies, cluster: str, *, experimental: bool) -> None:
    """Check that the strategies can be combined. Raises Refused, with places below the compute cluster `cluster`."""
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
        message = (
            "cannot be combined with drop_first, because a cluster limited to one replica cannot get a burst replica"
        )
        problems.append((("burst", CHOSEN_KEY), message))
    name = None if target is None else target.replica_name
    if name is not None and name.startswith(_RESERVED):
        message = f"'{name}' cannot be created: names that begin with {', '.join(_RESERVED)} belong to the target"
        problems.append((("target_size", "replica_name"), message))
    elif name is not None and _is_taken(name, cluster, declared):
        message = f"'{name}' is a name that strategies or tools give to replicas of their own; choose a different one"
        problems.append((("target_size", "replica_name"), message))
    if problems:
        raise Refused(*problems)


def strategy_warnings(declared: DeclaredStrategies, interval_s: int) -> list[tuple[Place, str]]:
    """Return warnings about strategies that are valid but probably unintended. The tick interval is in seconds."""
    idle, found = declared.idle_suspend, list[tuple[Place, str]]()
    if idle is None:
        return found
    if declared.target_size is None and declared.shrink_to_fit is None:
        message = "suspends a cluster that nothing resumes: declare target_size or shrink_to_fit next to it"
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


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII)
# Number of characters that PostgreSQL's protocol keeps of an application name.
_APPLICATION = re.compile(r"[!-~](?:[ -~]{0,61}[!-~])?\Z", re.ASCII)
_NOT_A_NAME = "is not a valid name: use letters, digits, _ and -, starting with a letter or _"
_LITERAL_URL = (
    "expected the name of an environment variable, such as url: {env: MZ_URL}; a URL has a password, which is not kept in git: "
    "change the password if one stood here"
)


@dataclass(frozen=True, slots=True)
class DeclaredTarget:
    """One entry of `targets`. `url` is the name of an environment variable."""

    kind: str
    url: str
    application_name: str = APPLICATION_NAME
    prune: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredComputeCluster(DeclaredStrategies):
    """One entry of `strategies`. `cluster` is its name on the target, if the key is a different name."""

    target: str
    cluster: str | None = None
    max_replicas: int = Limits().max_replicas
    max_credits_per_hour: float | None = None
    experimental: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSection:
    """The `compute` section.

    `interval` is the scheduled time between two ticks in seconds, which is used only for warnings.
    """

    targets: Mapping[str, DeclaredTarget]
    strategies: Mapping[str, DeclaredComputeCluster]
    interval: int = 300


def _url(value: object) -> str:
    if isinstance(value, str):
        raise Refused(((), _LITERAL_URL))
    return _ENVIRONMENT(value).env


def _credits(value: object) -> float:
    found = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if isinstance(value, str):
        # In the JSON form.
        with suppress(ValueError):
            found = float(value)
    if found is None or not 0 <= found < float("inf"):
        raise ValueError("expected a number that is not negative")
    return float(found)


def _interval(value: object) -> int:
    seconds = TIME(value)
    if not seconds:
        raise ValueError("expected a time longer than 0")
    return seconds


@dataclass(frozen=True, slots=True)
class _Variables:
    env: str


_ENVIRONMENT = mapping(
    _Variables,
    {"env": text(lambda name: bool(_VARIABLE.match(name)), "expected the name of a variable, such as MZ_URL")},
)
_TARGET = mapping(
    DeclaredTarget,
    {
        "kind": choice(*TargetKind),
        "url": KnownForm(_url, shape=lambda: schema_of(_ENVIRONMENT)),
        "application_name": text(
            lambda name: bool(_APPLICATION.match(name)), "expected from 1 to 63 printable ASCII characters"
        ),
        "prune": truth,
    },
)
_CLUSTER = mapping(
    DeclaredComputeCluster,
    {
        **STRATEGIES,
        "target": text(bool, "expected the name of a target of this file"),
        "cluster": optional(SIZE),
        "max_replicas": whole(1, 1000),
        "max_credits_per_hour": optional(derived(_credits, {"type": ["number", "string"], "minimum": 0}.copy)),
        "experimental": truth,
    },
)
COMPUTE_FORM = mapping(
    ComputeSection,
    {
        "targets": keyed(text(is_name, _NOT_A_NAME), _TARGET),
        "strategies": keyed(
            text(is_name, f"{_NOT_A_NAME}; if the target uses another name, add cluster: NAME below"), _CLUSTER
        ),
        "interval": derived(_interval),
    },
)
"""The form of the section."""


def read_compute(value: object) -> ComputeSection:
    """Read the section from plain values, which come from YAML or from its JSON form.

    Raises Refused with places below the section.
    """
    return COMPUTE_FORM(value)


def compute_form(declared: ComputeSection) -> dict[str, Any]:
    """Return the JSON form that the configuration digest covers. `read_compute` converts it back."""
    return {
        "targets": {
            name: {
                "kind": target.kind,
                "url": {"env": target.url},
                "application_name": target.application_name,
                "prune": target.prune,
            }
            for name, target in sorted(declared.targets.items())
        },
        "interval": f"{declared.interval}s",
        "strategies": {name: _cluster_form(each) for name, each in sorted(declared.strategies.items())},
    }


def _cluster_form(declared: DeclaredComputeCluster) -> dict[str, Any]:
    credits_limit = declared.max_credits_per_hour
    form = {
        "target": declared.target,
        "cluster": declared.cluster,
        **{type_of(rule).value: rule_config(rule) for rule in declared.rules},
        "max_replicas": declared.max_replicas,
        "max_credits_per_hour": None if credits_limit is None else credits_text(credits_limit),
        "experimental": declared.experimental,
    }
    return {name: value for name, value in form.items() if value is not None}


def compute_resources(declared: ComputeSection) -> dict[Address, Resource]:
    """Return the strategies of all compute clusters with a declared target, by address."""
    targets = {
        name: ComputeTarget(name, each.url, TargetKind(each.kind), each.application_name, each.prune)
        for name, each in declared.targets.items()
    }
    return strategy_resources(
        ComputeRules(
            key,
            targets[each.target],
            each.cluster or key,
            each.rules,
            Limits(each.max_replicas, each.max_credits_per_hour),
        )
        for key, each in declared.strategies.items()
        if each.target in targets
    )


def check_compute(declared: ComputeSection, section: Callable[[], YamlNode], found: Diagnostics) -> None:
    """Report contradictions with their places in `cluster.yaml`. `section` is called only if there is a problem."""
    for code, place, message in _problems(declared):
        path, source = place_in("compute", section(), place, message)
        found.add(code, path, message, source=source)


def _problems(declared: ComputeSection) -> Iterator[tuple[Code, Place, str]]:
    variables: dict[str, str] = {}
    for name, target in sorted(declared.targets.items()):
        other = variables.setdefault(target.url, name)
        if other != name:
            message = (
                f"the target {other} already uses the variable {target.url}, and a database can be only one target"
            )
            yield Code.STRATEGY_INVALID, ("targets", name, "url"), message
    first: dict[tuple[str, str], str] = {}
    for key, each in sorted(declared.strategies.items()):
        at, cluster = ("strategies", key), each.cluster or key
        if each.target not in declared.targets:
            near = did_you_mean(each.target, sorted(declared.targets))
            message = (
                f"target '{shown(each.target)}' is not declared below compute.targets{f'; {near}' if near else ''}"
            )
            yield Code.COMPUTE_TARGET_UNDECLARED, (*at, "target"), message
        other = first.setdefault((each.target, cluster), key)
        if other != key:
            message = f"{other} is the compute cluster '{shown(cluster)}' of {each.target} already"
            yield Code.STRATEGY_INVALID, (*at, CHOSEN_KEY), message
        if not each.rules:
            message = f"declares no strategy, so the replicas of {key} stay as they are"
            yield Code.STRATEGY_QUESTIONABLE, (*at, CHOSEN_KEY), message
        try:
            check_strategies(each, cluster, experimental=each.experimental)
        except Refused as refused:
            for place, message in refused.problems:
                yield Code.STRATEGY_INVALID, (*at, *place), message
        for place, message in strategy_warnings(each, declared.interval):
            yield Code.STRATEGY_QUESTIONABLE, (*at, *place), message
