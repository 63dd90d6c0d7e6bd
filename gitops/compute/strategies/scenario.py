"""The document that describes a scenario: a compute cluster, its strategies and what happens to it, in YAML.

cluster: serving
length: 1d
interval: 5m
sizes: {25cc: 0.25, 50cc: 0.5}          # credits per hour, smallest first
replicas: {main: 25cc}                  # at the start, hydrated
hydration: {25cc: 10m, 50cc: 5m}        # how long a new replica of a size takes; 5m where it is not said
rehydrate: [14h]                        # when every replica begins again, as for a new index
activity: [{from: 8h, to: 18h, daily: true}]
crashes: {25cc: {every: 2m, out_of_memory: true}}
strategies: {target_size: {target_size: 50cc}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from gitops.cluster.config.compute import (
    AMOUNT,
    SIZE,
    STRATEGIES,
    TIME,
    DeclaredStrategies,
    check_strategies,
    strategy_warnings,
)
from gitops.cluster.config.rule_forms import (
    Place,
    Refused,
    derived,
    keyed,
    listed,
    mapping,
    optional,
    place_problem,
    truth,
    whole,
)
from gitops.cluster.model.strategy import Limits
from gitops.cluster.targets.signals import SizeTable
from gitops.compute.strategies.simulation import HYDRATION_S, Activity, Crashing, Scenario
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain

__all__ = ["read_scenario"]

_DAY_S = 24 * 3600
_MOST_TICKS = 200_000


@dataclass(frozen=True, slots=True)
class _ActivityForm:
    start: int
    to: int
    daily: bool = False


@dataclass(frozen=True, slots=True)
class _CrashForm:
    every: int
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class _Document:
    """As written; times are in seconds."""

    cluster: str
    length: int
    sizes: Mapping[str, float]
    strategies: DeclaredStrategies
    interval: int = 300
    start: datetime = datetime(2000, 1, 3, tzinfo=UTC)
    replicas: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hydration: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    rehydrate: tuple[int, ...] = ()
    activity: tuple[_ActivityForm, ...] = ()
    crashes: Mapping[str, _CrashForm] = field(default_factory=lambda: MappingProxyType({}))
    max_replicas: int = Limits().max_replicas
    max_credits_per_hour: float | None = None
    experimental: bool = False


def _moment(value: object) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else None
    if found is None or found.tzinfo is None:
        raise ValueError("is not a time with its zone, such as 2026-06-01T00:00:00Z")
    return found


def _activity(value: object) -> _ActivityForm:
    # `from` is a word of the programming language.
    renamed = (
        {("start" if key == "from" else key): each for key, each in value.items()} if isinstance(value, dict) else value
    )
    try:
        return _ACTIVITY(renamed)
    except Refused as refused:
        raise Refused(
            *((tuple("from" if step == "start" else step for step in place), said) for place, said in refused.problems)
        ) from None


_ACTIVITY = mapping(_ActivityForm, {"start": TIME, "to": TIME, "daily": truth})
_DOCUMENT = mapping(
    _Document,
    {
        "cluster": SIZE,
        "length": TIME,
        "sizes": keyed(SIZE, AMOUNT),
        "strategies": mapping(DeclaredStrategies, STRATEGIES),
        "interval": TIME,
        "start": derived(_moment),
        "replicas": keyed(SIZE, SIZE),
        "hydration": keyed(SIZE, TIME),
        "rehydrate": listed(TIME),
        "activity": listed(_activity),
        "crashes": keyed(SIZE, mapping(_CrashForm, {"every": TIME, "out_of_memory": truth})),
        "max_replicas": whole(1, 1000),
        "max_credits_per_hour": optional(AMOUNT),
        "experimental": truth,
    },
)


def read_scenario(data: bytes, path: str, found: Diagnostics) -> Scenario | None:
    """The scenario of a document; None where it has problems, which are added to `found` with their lines in `path`."""
    try:
        root = parse_yaml(data)
    except YamlError as error:
        for problem in error.problems:
            found.add(
                Code.SCENARIO_INVALID, path, problem.message, source=SourceRef(path, problem.line, problem.column)
            )
        return None
    try:
        document = _DOCUMENT(to_plain(root))
        _check(document)
    except Refused as refused:
        for place, message in refused.problems:
            line, column, said = place_problem(root, place, message)
            found.add(Code.SCENARIO_INVALID, path, said, source=SourceRef(path, line, column))
        return None
    for place, message in strategy_warnings(document.strategies, document.interval):
        line, column, said = place_problem(root, ("strategies", *place), message)
        found.add(Code.STRATEGY_QUESTIONABLE, path, said, source=SourceRef(path, line, column))
    return Scenario(
        document.cluster,
        document.strategies.rules,
        SizeTable(document.sizes),
        document.start,
        document.length,
        document.interval,
        Limits(document.max_replicas, document.max_credits_per_hour),
        document.replicas,
        {size: document.hydration.get(size, HYDRATION_S) for size in document.sizes},
        tuple(Activity(each.start, each.to, each.daily) for each in document.activity),
        tuple(sorted(document.rehydrate)),
        {size: Crashing(each.every, each.out_of_memory) for size, each in document.crashes.items()},
    )


def _check(document: _Document) -> None:
    """Raises Refused for values that do not fit each other."""
    problems: list[tuple[Place, str]] = []
    if document.interval < 1 or not 0 < document.length <= document.interval * _MOST_TICKS:
        problems.append((("length",), f"expected from one to {_MOST_TICKS} intervals of {document.interval} s"))
    for number, each in enumerate(document.activity):
        if not each.start < each.to <= (_DAY_S if each.daily else document.length):
            end = "24h" if each.daily else "the end of the scenario"
            problems.append((("activity", number), f"expected a time from, and a later one to, until {end}"))
    for size, crash in document.crashes.items():
        if crash.every < 1:
            problems.append((("crashes", size, "every"), "expected a time that is longer than nothing"))
    named: list[tuple[Place, str]] = [(("replicas", name), size) for name, size in document.replicas.items()]
    named += [((key, size), size) for key in ("hydration", "crashes") for size in getattr(document, key)]
    named += [(("strategies", *place), size) for place, size in _sizes(document.strategies)]
    problems += [
        (place, f"the size '{size}' is not among sizes") for place, size in named if size not in document.sizes
    ]
    try:
        check_strategies(document.strategies, document.cluster, experimental=document.experimental)
    except Refused as refused:
        problems += [(("strategies", *place), message) for place, message in refused.problems]
    if problems:
        raise Refused(*problems)


def _sizes(declared: DeclaredStrategies) -> list[tuple[Place, str]]:
    found: list[tuple[str, str, Any]] = [
        ("target_size", "target_size", declared.target_size),
        ("shrink_to_fit", "max_replica_size", declared.shrink_to_fit),
        ("burst", "burst_replica_size", declared.burst),
    ]
    return [((strategy, key), getattr(rule, key)) for strategy, key, rule in found if rule is not None]
