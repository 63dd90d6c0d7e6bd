"""Checks the targets of a repository's strategies.

A target gets the same queries as from a tick. A probe writes rows for a compute cluster that cannot exist to the tables
of strategies and their states, and deletes them again. Whether replicas can be created and dropped is not checked,
because that would require doing it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from types import MappingProxyType
from urllib.parse import parse_qs, urlsplit

from gitops.cluster.model.compute import ComputeRules, ComputeTarget
from gitops.cluster.model.strategy import IdleSuspend, StrategyType, sizes_of
from gitops.cluster.targets.port import StrategyRow, StrategyTarget
from gitops.cluster.targets.projection import claimed_message, claims
from gitops.cluster.targets.signals import ComputeCluster, StrategyState
from gitops.compute.strategies.statements import identifier
from gitops.core.codes import Code, remedy
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.core.redact import Secret
from gitops.database.language.suggest import did_you_mean
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.render.words import count

Rules = Mapping[str, Sequence[ComputeRules]]
"""The strategies that the repository's clusters declare, by cluster name."""

_PLACE = "docs/strategy-ticks.md"
_LOCK = "cluster-gitops:doctor"
_PROBE_ID = "cluster-gitops doctor"
_CHECKS = {
    Code.TARGET_URL_INVALID: "targets.url",
    Code.MATERIALIZE_UNAVAILABLE: "targets.driver",
    Code.SIGNAL_UNAVAILABLE: "targets.signals",
    Code.TARGET_DENIED: "targets.grants",
}
_LOCKS = "the target has advisory locks, which keep ticks apart, also those of other cluster folders"
_NO_LOCKS = "the target has no advisory locks: the lock of the ledger keeps ticks apart"
_LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Examination:
    """Settings of a target check: variables, a function that opens a target, the time, and whether to write rows.

    `owners` are the cluster names that a target's rows contain, if known.
    """

    environ: Mapping[str, str]
    open_target: Callable[[ComputeTarget, Secret], StrategyTarget]
    now: datetime
    probe: bool
    owners: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def database(self, target: ComputeTarget) -> tuple[object, ...]:
        """Return a value that is equal for two targets in the same database, as far as this machine knows their URLs."""
        url = urlsplit(self.environ.get(target.url_env) or f"//{target.url_env}")
        return url.hostname, url.netloc.rpartition(":")[2], url.path


def target_findings(rules: Rules, how: Examination) -> Iterator[DoctorFinding]:
    """Run these checks for each target of each cluster."""
    lockless: set[tuple[object, ...]] = set()
    for folder, clusters in rules.items():
        for name in sorted({each.target.name for each in clusters}):
            found = [each for each in clusters if each.target.name == name]
            yield from _target(folder, found, how, lockless)
    yield from _shared(rules, how, lockless)


def _target(
    folder: str, rules: Sequence[ComputeRules], how: Examination, lockless: set[tuple[object, ...]]
) -> Iterator[DoctorFinding]:
    target = rules[0].target
    place = f"{folder}: {target.name}"
    url = how.environ.get(target.url_env)
    if not url:
        detail = f"the variable {target.url_env} is not set on this machine; where merges are applied and ticks run, it is needed"
        yield unknown("targets.url", detail, f"export {target.url_env}=postgresql://..., then gitops doctor", place)
        return
    try:
        opened = how.open_target(target, Secret(target.url_env, url))
        yield good("targets.url", f"{target.url_env} has the URL of the target", place)
        yield _tls(url, place)
        with opened:
            yield good("targets.driver", "the driver is installed", place)
            yield good("targets.reachable", "the target answers", place)
            yield from _catalog(opened, rules, place, how)
            yield from _tables(opened, place, how)
            yield from _claims(opened, rules, place, how.owners.get(folder))
            has_locks = opened.try_lock(_LOCK) is not None
            if not has_locks:
                lockless.add(how.database(target))
            yield good("targets.locks", _LOCKS if has_locks else _NO_LOCKS, place)
    except GitopsError as problem:
        check = _CHECKS.get(problem.code, "targets.reachable")
        yield error(
            check, f"{problem.code}: {problem.detail}", problem.fix or remedy(problem.code, problem.path) or "", place
        )


def _tls(url: str, place: str) -> DoctorFinding:
    """Check that the URL enables encryption and the verification of the server's name.

    The driver does neither by default.
    """
    check, parts = "targets.tls", urlsplit(url)
    mode = parse_qs(parts.query).get("sslmode", ["prefer"])[-1]
    if mode == "verify-full":
        return good(check, "the connection is encrypted, and the certificate of the server is checked", place)
    if parts.hostname in _LOCAL:
        return good(check, "the target is on this machine", place)
    weak = "any server is accepted" if mode in ("require", "verify-ca") else "the password may be sent in clear"
    detail = f"sslmode is {mode}: {weak}"
    return warning(check, detail, "end the URL with ?sslmode=verify-full&sslrootcert=system", place)


def _catalog(
    target: StrategyTarget, rules: Sequence[ComputeRules], place: str, how: Examination
) -> Iterator[DoctorFinding]:
    """Check the sources of signals, and that the target has the objects that strategies refer to.

    Raises GitopsError.
    """
    target.probe()
    yield good("targets.signals", "every relation and column that signals are read from exists", place)
    known = target.clusters()
    there = [known[each.cluster] for each in rules if each.cluster in known]
    idle = [rule.idle_after_s for each in rules for rule in each.rules if isinstance(rule, IdleSuspend)]
    signals = target.observe(there, now=how.now, lookback=timedelta(seconds=max(idle, default=1)))
    yield good("targets.grants", "every signal can be read", place)
    for each in rules:
        yield _cluster(each, known, f"{place}: {each.key}")
        if (cluster := known.get(each.cluster)) is not None and (seen := signals.get(cluster.cluster_id)) is not None:
            yield from _sizes(each, seen.sizes.credits, f"{place}: {each.key}")


def _cluster(rules: ComputeRules, known: Mapping[str, ComputeCluster], place: str) -> DoctorFinding:
    check, found = "targets.clusters", known.get(rules.cluster)
    if found is None:
        near = did_you_mean(rules.cluster, sorted(known))
        fix = f"cluster.yaml: compute.strategies.{rules.key}: cluster: NAME" + (f"; {near}" if near else "")
        return error(check, f"the target has no compute cluster {rules.cluster}", fix, place)
    if found.managed:
        fix = f"let its owner run: ALTER CLUSTER {identifier(rules.cluster)} SET (MANAGED = false)"
        return error(check, f"{rules.cluster} is managed: the target creates its replicas itself", fix, place)
    return good(check, f"{rules.cluster} has {count(len(found.replicas), 'replica')}, and is not managed", place)


def _sizes(rules: ComputeRules, known: Mapping[str, object], place: str) -> Iterator[DoctorFinding]:
    check, wanted = "targets.sizes", sizes_of(rules.rules)
    missing = [size for size in wanted if size not in known]
    for size in missing:
        near = did_you_mean(size, list(known))
        fix = f"{near}" if near else f"use one of {', '.join(list(known)[:20])}"
        yield error(check, f"the target has no size {size}", fix, place)
    if wanted and not missing:
        yield good(check, f"the target has {', '.join(wanted)}", place)


def _tables(target: StrategyTarget, place: str, how: Examination) -> Iterator[DoctorFinding]:
    """Check that the strategy tables can be read and written. Raises GitopsError for unreadable tables."""
    check = "targets.tables"
    target.strategies()
    target.states()
    if not how.probe:
        yield unknown(check, "not tried to write", "gitops doctor without --no-probe", place)
        return
    try:
        _write(target, how.now)
    except GitopsError as problem:
        if problem.code is not Code.TARGET_FAILED:
            raise
        detail = f"cannot be written yet, but the first tick creates them: {problem.detail}"
        yield unknown(check, detail, f"GRANT CREATE on their schema to the role of the URL ({_PLACE})", place)
    else:
        yield good(check, "rows of strategies and states were written, and deleted again", place)


def _write(target: StrategyTarget, at: datetime) -> None:
    """Write a row to each table that supports deletes, and delete it again. Raises GitopsError."""
    kind = StrategyType.TARGET_SIZE
    target.replace_strategies([StrategyRow(_PROBE_ID, kind.value, {})], at=at)
    try:
        target.replace_states(_PROBE_ID, [StrategyState(kind, _PROBE_ID, at)], at=at)
    finally:
        target.delete_strategies([(_PROBE_ID, kind.value)])


def _claims(
    target: StrategyTarget, rules: Sequence[ComputeRules], place: str, owner: str | None
) -> Iterator[DoctorFinding]:
    """Yield compute clusters that belong to a different cluster folder, in any repository. Raises GitopsError."""
    if owner is None:
        return
    claimed = claims(rules, {owner}, target.clusters(), target.strategies().values())
    for each in rules:
        if (other := claimed.get(each.key)) is not None:
            fix = remedy(Code.COMPUTE_CLUSTER_CLAIMED, each.key) or ""
            yield error("targets.clusters", claimed_message(each, other), fix, f"{place}: {each.key}")


def _shared(rules: Rules, how: Examination, lockless: Collection[tuple[object, ...]]) -> Iterator[DoctorFinding]:
    """Report clusters of the repository with strategies on one database, whose lock (if any) separates their ticks."""
    check = "targets.shared"
    found: dict[tuple[object, ...], dict[str, set[str]]] = {}
    for folder, clusters in rules.items():
        for each in clusters:
            found.setdefault(how.database(each.target), {}).setdefault(folder, set()).add(each.cluster)
    for database, folders in found.items():
        names = sorted(folders)
        place = ", ".join(names)
        twice = sorted({cluster for a in names for b in names if a < b for cluster in folders[a] & folders[b]})
        if twice:
            detail = f"the compute cluster {twice[0]} has strategies in several cluster folders, but only one of them decides"
            yield error(check, detail, "declare the strategies of a compute cluster in one folder", place)
        elif len(names) > 1 and database in lockless:
            detail = "several cluster folders share a target that has no locks: their ticks may run at the same time"
            yield warning(
                check,
                detail,
                "do not declare the same compute cluster in two folders, or declare all of them in one",
                place,
            )
