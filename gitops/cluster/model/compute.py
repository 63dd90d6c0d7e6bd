"""Replica strategies as resources: one self-contained text for each strategy on a compute cluster.

The text is stored in the ledger's catalog and contains everything that a tick needs: the target's address, the name of the
compute cluster there, the rule, and the limits of the cluster. A change to a limit or to the target therefore changes all
strategies that use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from gitops.cluster.model.address import Address, strategy_address
from gitops.cluster.model.resource import Resource
from gitops.cluster.model.strategy import (
    Burst,
    IdleSuspend,
    Limits,
    ShrinkToFit,
    StrategyRule,
    StrategyType,
    TargetSize,
    sizes_of,
    type_of,
)
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    LINE,
    Form,
    FormMember,
    enum,
    integer,
    list_of,
    nullable,
    optional,
    record,
    variants,
)
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import IntegrityError

APPLICATION_NAME = "cluster-gitops"
"""The name under which this program connects to a target, unless another one is declared."""


class TargetKind(StrEnum):
    """Kind of a target."""

    MATERIALIZE = "materialize"


@dataclass(frozen=True, slots=True)
class ComputeTarget:
    """A database with compute clusters that strategies control.

    `url_env` is the environment variable with its URL; the URL itself is never declared or recorded. `prune` lets an apply
    delete strategy rows that were never declared here.
    """

    name: str
    url_env: str
    kind: TargetKind = TargetKind.MATERIALIZE
    application_name: str = APPLICATION_NAME
    prune: bool = False


@dataclass(frozen=True, slots=True)
class StrategyText:
    """One strategy's content. `cluster` is the compute cluster's name on the target."""

    target: ComputeTarget
    cluster: str
    rule: StrategyRule
    limits: Limits


@dataclass(frozen=True, slots=True)
class ComputeRules:
    """One compute cluster's strategies, in the order in which they decide.

    `key` is its name in `cluster.yaml` and in addresses; `cluster` is its name on the target, which is often the same.
    """

    key: str
    target: ComputeTarget
    cluster: str
    rules: tuple[StrategyRule, ...]
    limits: Limits = Limits()

    @property
    def place(self) -> str:
        """Path of these strategies in `cluster.yaml`, for messages."""
        return f"compute.strategies.{self.key}"


@dataclass(frozen=True, slots=True)
class OwnedRow:
    """A row in a target's strategy table that this cluster wrote or is about to write.

    `digest` is the digest of the text from which the row was last written, `cluster_id` is the id of its compute
    cluster at that time, and `owner` is the name of this cluster folder in the row; all are None until the write is
    known to be done. A row of a compute cluster that now belongs to another cluster folder has no digest.
    """

    address: Address
    target: ComputeTarget
    cluster: str
    cluster_id: str | None = None
    digest: str | None = None
    owner: str | None = None

    @property
    def strategy(self) -> str:
        """The strategy's type."""
        return self.address.name


def credits_text(value: float) -> str:
    """Format a number of credits as a string such as `12.5`, because documents have no floating-point numbers."""
    return f"{value:.15g}"


def _credits(value: Any) -> float:
    text = LINE.read(value)
    try:
        found = float(text)
    except ValueError:
        raise MalformedError("expected a number in quotes") from None
    if not 0 <= found < float("inf"):
        raise MalformedError("expected a number that is not negative")
    return found


_SECONDS = integer(0)
_COUNT = integer(1)
_COOLDOWN = {"cooldown_s": _SECONDS}
_RULE = variants(
    "type",
    {
        StrategyType.TARGET_SIZE.value: (
            TargetSize,
            {
                "target_size": LINE,
                "replica_name": optional(LINE, written=False),
                "drop_first": optional(BOOLEAN, default=False, written=False),
                **_COOLDOWN,
            },
        ),
        StrategyType.SHRINK_TO_FIT.value: (
            ShrinkToFit,
            {"max_replica_size": LINE, "min_oom_count": _COUNT, "min_crash_count": _COUNT, **_COOLDOWN},
        ),
        StrategyType.BURST.value: (Burst, {"burst_replica_size": LINE, **_COOLDOWN}),
        StrategyType.IDLE_SUSPEND.value: (IdleSuspend, {"idle_after_s": integer(1), **_COOLDOWN}),
    },
)
_TARGET = record(
    ComputeTarget,
    {
        "name": LINE,
        "kind": enum(TargetKind),
        "url": {"env": FormMember(LINE, "url_env")},
        "application_name": LINE,
        "prune": BOOLEAN,
    },
)
_CREDITS: Form[float] = Form(_credits, credits_text)
_LIMITS = record(Limits, {"max_replicas": _COUNT, "max_credits_per_hour": optional(_CREDITS, written=False)})
STRATEGY = Document(
    versions={1: record(StrategyText, {"cluster": LINE, "target": _TARGET, "rule": _RULE, "limits": _LIMITS})},
    code=Code.STRATEGY_RECORD_INVALID,
)
"""The document of a strategy."""


def rule_config(rule: StrategyRule) -> dict[str, Any]:
    """Return a rule's values without its type, as JSON for the `config` column of a target's strategy table."""
    form: dict[str, Any] = _RULE.write(rule)
    return {name: value for name, value in form.items() if name != "type"}


def new_sizes(declared: ComputeRules, applied: Iterable[ComputeRules]) -> tuple[str, ...]:
    """Return the sizes that a compute cluster declares but no applied strategy on its target uses."""
    known = {size for each in applied if each.target.name == declared.target.name for size in sizes_of(each.rules)}
    return tuple(size for size in sizes_of(declared.rules) if size not in known)


def strategy_resources(clusters: Iterable[ComputeRules]) -> dict[Address, Resource]:
    """Return compute clusters' strategies as resources, by address."""
    found = {}
    for each in clusters:
        for rule in each.rules:
            address = strategy_address(each.key, type_of(rule))
            content = STRATEGY.write(StrategyText(each.target, each.cluster, rule, each.limits))
            found[address] = Resource(address, digest(content), data=content)
    return found


def read_strategy(address: Address, content: bytes) -> StrategyText:
    """Parse a strategy's text. Raises IntegrityError `strategy_record_invalid`, also for another strategy's text."""
    try:
        found = STRATEGY.read(content)
    except IntegrityError as error:
        raise IntegrityError(error.code, f"{address}: {error.detail}", path=error.path) from error
    if type_of(found.rule).value != address.name:
        raise _invalid(address, f"the text is of a strategy {type_of(found.rule).value}")
    return found


def drops_first(resources: Iterable[Resource]) -> frozenset[Address]:
    """Return the strategies that leave a compute cluster without replicas while its size changes. Raises IntegrityError."""
    rules = {each.address: read_strategy(each.address, each.content or b"").rule for each in resources}
    return frozenset(name for name, rule in rules.items() if isinstance(rule, TargetSize) and rule.drop_first)


def read_strategies(texts: Mapping[Address, bytes]) -> tuple[ComputeRules, ...]:
    """Return the compute clusters of all recorded strategies, by key.

    `texts` are the contents of all strategies of one applied state, by address. Raises IntegrityError
    `strategy_record_invalid` if one cannot be read, or if two of them contradict each other about their compute cluster or
    target.
    """
    found: dict[str, ComputeRules] = {}
    targets: dict[str, ComputeTarget] = {}
    for address in sorted(texts):
        text, key = read_strategy(address, texts[address]), address.compute or ""
        known = found.get(key) or ComputeRules(key, text.target, text.cluster, (), text.limits)
        if (text.target, text.cluster, text.limits) != (known.target, known.cluster, known.limits):
            raise _invalid(address, f"another strategy of {key} records a different target, compute cluster or limits")
        if targets.setdefault(text.target.name, text.target) != text.target:
            raise _invalid(address, f"another strategy records a different target {text.target.name}")
        rules = sorted((*known.rules, text.rule), key=lambda rule: type_of(rule).priority)
        found[key] = ComputeRules(key, text.target, text.cluster, tuple(rules), text.limits)
    return tuple(found.values())


_OWNED = list_of(
    record(
        lambda **values: values,
        {
            "target": _TARGET,
            "cluster": LINE,
            "cluster_id": nullable(LINE),
            "digest": nullable(DIGEST),
            "owner": optional(nullable(LINE)),
        },
    )
)
_OBSERVED = "strategy"


def owned_rows(observations: Mapping[Address, Mapping[str, Any]]) -> tuple[OwnedRow, ...]:
    """Return the target rows that belong to this cluster according to a state, by address.

    Raises IntegrityError `strategy_record_invalid`.
    """
    found: list[OwnedRow] = []
    for address, observation in sorted(observations.items()):
        if observation.get("kind") == _OBSERVED:
            try:
                found += (OwnedRow(address, **row) for row in _OWNED.read(observation.get("rows")))
            except MalformedError as error:
                raise _invalid(address, f"its recorded rows cannot be read: {error}") from error
    return tuple(found)


def observed_rows(rows: Iterable[OwnedRow]) -> Mapping[str, Any]:
    """Return the record of one strategy's rows for the state document. `owned_rows` reads it."""
    ordered = sorted(rows, key=lambda row: (row.target.name, row.cluster, row.cluster_id or ""))
    return {
        "kind": _OBSERVED,
        "rows": [
            {
                "target": _TARGET.write(row.target),
                "cluster": row.cluster,
                "cluster_id": row.cluster_id,
                "digest": row.digest,
                **({} if row.owner is None else {"owner": row.owner}),
            }
            for row in ordered
        ],
    }


def intended_rows(address: Address, content: bytes, observed: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the row record for an applied strategy: the existing rows and the intended one.

    It is recorded with the commit, so that every row is known to be ours even if a run crashes.
    """
    text = read_strategy(address, content)
    rows = owned_rows({address: observed or {}})
    if any((row.target.name, row.cluster) == (text.target.name, text.cluster) for row in rows):
        return observed_rows(rows)
    return observed_rows((*rows, OwnedRow(address, text.target, text.cluster)))


def _invalid(address: Address, detail: str) -> IntegrityError:
    return IntegrityError(Code.STRATEGY_RECORD_INVALID, f"{address}: {detail}", path=str(address))


# Predicted effects of strategy changes. They only explain a plan, and are never part of its digest.


@dataclass(frozen=True, slots=True)
class StrategyChanges:
    """All applied and declared strategies, and the keys of the compute clusters where the two differ.

    `own` are the names of the cluster folder in its targets' rows.
    """

    applied: tuple[ComputeRules, ...]
    declared: tuple[ComputeRules, ...]
    keys: tuple[str, ...]
    own: frozenset[str] = frozenset()

    def sides(self, key: str) -> tuple[ComputeRules, ComputeRules]:
        """Return the applied and the declared strategies of one compute cluster. Either can be empty.

        Both are on the declared target, or on the applied one if nothing is declared any longer.
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
    """Totals over several days: replicas, and the seconds in which statements ran while no replica was hydrated."""

    replica_hours: float
    credits: float
    unserved_s: int


@dataclass(frozen=True, slots=True)
class WhatIfAction:
    """A statement that the strategies would execute now, with the reason."""

    sql: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Prediction for the declared strategies of one compute cluster, with its key and its name on the target.

    If nothing is known, `said` contains the reason, with the code of a problem if there is one, and the rest is empty.
    `refused` lists the strategies that want more than the limits permit. An apply refuses the strategies if a new size
    is `unlisted` on the target. `before` and `after` are the totals of the last `days`, replayed with the applied and
    with the declared strategies; both are None if the target recorded nothing. `assumed` are the assumptions of the
    replay.
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
