"""The section `compute` of `cluster.yaml`: targets, and the strategies of their compute clusters.

Its form is read with the file. What fits together is checked by the load, from the same declaration in its JSON form, so that a
folder that did not change is checked without reading its YAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.rule_forms import Refused, choice, derived, keyed, mapping, optional, text, truth, whole
from gitops.cluster.config.rule_problems import CHOSEN_KEY, Place, place_problem
from gitops.cluster.config.strategy_forms import (
    SIZE,
    STRATEGIES,
    TIME,
    DeclaredStrategies,
    check_strategies,
    strategy_warnings,
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
from gitops.cluster.model.strategy import Limits, type_of
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlNode, shown

__all__ = ["ComputeSection", "check_compute", "compute_form", "compute_resources", "place_of", "read_compute"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z", re.ASCII)
# What PostgreSQL's protocol keeps of the name of an application.
_APPLICATION = re.compile(r"[!-~](?:[ -~]{0,61}[!-~])?\Z", re.ASCII)
_NOT_A_NAME = "is not a valid name: use letters, digits, _ and -, starting with a letter or _"
_LITERAL_URL = (
    "expected the name of an environment variable, such as url: {env: MZ_URL}; a URL has a password, which is not kept in git: "
    "change the password if one stood here"
)


@dataclass(frozen=True, slots=True)
class DeclaredTarget:
    """One entry of `targets`; `url` is the name of an environment variable."""

    kind: str
    url: str
    application_name: str = APPLICATION_NAME
    prune: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredComputeCluster(DeclaredStrategies):
    """One entry of `strategies`; `cluster` is its name on the target, where that is not the key."""

    target: str
    cluster: str | None = None
    max_replicas: int = Limits().max_replicas
    max_credits_per_hour: float | None = None
    experimental: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeSection:
    """The section. `interval` is the seconds between two ticks, as the schedule has it: it only serves warnings."""

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
        # As the JSON form has it.
        with suppress(ValueError):
            found = float(value)
    if found is None or not 0 <= found < float("inf"):
        raise ValueError("expected a number that is not negative")
    return float(found)


def _interval(value: object) -> int:
    seconds = TIME(value)
    if not seconds:
        raise ValueError("expected a time that is longer than nothing")
    return seconds


@dataclass(frozen=True, slots=True)
class _Environment:
    env: str


_ENVIRONMENT = mapping(
    _Environment,
    {"env": text(lambda name: bool(_VARIABLE.match(name)), "expected the name of a variable, such as MZ_URL")},
)
_TARGET = mapping(
    DeclaredTarget,
    {
        "kind": choice(*TargetKind),
        "url": _url,
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
        "max_credits_per_hour": optional(derived(_credits)),
        "experimental": truth,
    },
)
_COMPUTE = mapping(
    ComputeSection,
    {
        "targets": keyed(text(is_name, _NOT_A_NAME), _TARGET),
        "strategies": keyed(
            text(is_name, f"{_NOT_A_NAME}; below such a name, cluster: NAME is what the target calls it"), _CLUSTER
        ),
        "interval": derived(_interval),
    },
)


def read_compute(value: object) -> ComputeSection:
    """The section from plain values, of the YAML or of its JSON form. Raises Refused with places below the section."""
    return _COMPUTE(value)


def compute_form(declared: ComputeSection) -> dict[str, Any]:
    """The JSON form, by which the configuration digest covers the section; `read_compute` gives the same declaration."""
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
    """The strategies of the compute clusters whose target is declared, by address."""
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
    """Add what does not fit together, with its place in `cluster.yaml`; `section` is asked for where there is a problem."""
    for code, place, message in _problems(declared):
        path, source = place_of(section(), place, message)
        found.add(code, path, message, source=source)


def place_of(section: YamlNode, place: Place, message: str) -> tuple[str, SourceRef]:
    """The dotted path of a problem below the section, and where it is in `cluster.yaml`."""
    line, column, _ = place_problem(section, place, message)
    path = ".".join(("compute", *(shown(str(step)) for step in place if step != CHOSEN_KEY)))
    return path, SourceRef(CONFIG_FILE, line, column)


def _problems(declared: ComputeSection) -> Iterator[tuple[Code, Place, str]]:
    variables: dict[str, str] = {}
    for name, target in sorted(declared.targets.items()):
        other = variables.setdefault(target.url, name)
        if other != name:
            message = f"the target {other} has the variable {target.url} already; one database is one target"
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
