"""Keeps the strategy rows on targets in sync with the ledger, after the commit of an apply and at each tick.

1. The state records which rows on a target belong to this cluster, with the commit that applies or removes a strategy.
2. Under the target's lock, the rows are compared with the applied strategies, written and deleted. All of this can be
   repeated. A compute cluster that belongs to another cluster folder is not touched.
3. The resulting rows are recorded. If a run crashes before that, the next one does step 2 again, as it does if the target
   was down.

None of this rolls back or delays an apply: rows that are not on a target yet are only a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.cluster.apply.entries import Facts, make_entry
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.address import Address
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, OwnedRow, new_sizes, observed_rows, owned_rows
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.model.plan import REFUSED, TARGET, ExecNode, NodeOutcome, NodeResult
from gitops.cluster.plan.strategies import applied_rules, folder_owner
from gitops.cluster.session.session import Session
from gitops.cluster.targets.port import TARGET_LOCK, StrategyTarget
from gitops.cluster.targets.projection import RowChanges, claimed_message, pending_rows, place_of, row_changes
from gitops.core.codes import Code, remedy
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.core.faults import around


def project(current: Session, outcome: ApplyOutcome) -> ApplyOutcome:
    """Update the rows on all targets after an apply. Return the outcome with a warning for each failure."""
    if not current.ready:
        return outcome
    before, seen = current.view, len(current.problems)
    try:
        rules, owned = applied_rules(current), owned_rows(current.state.observations)
        targets = {row.target.name: row.target for row in owned} | {each.target.name: each.target for each in rules}
        for name in sorted(targets):
            _project(current, targets[name], [each for each in rules if each.target.name == name])
    except GitopsError as error:
        current.problems.add(error.code, error.path, error.detail, severity=Severity.WARNING, fix=error.fix)
    if current.view is not before:
        outcome = replace(outcome, state=current.view.state, observations=current.observations())
    if len(current.problems) > seen:
        outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *list(current.problems)[seen:]))
    return outcome


def _project(current: Session, target: ComputeTarget, rules: Sequence[ComputeRules]) -> None:
    """Update the rows on one target. If nothing is pending, a target that is not set up here is left to the ticks."""
    waiting = pending_rows(current.state).get(target.name, ())
    try:
        with _opened(current, target) as opened:
            if opened.try_lock(TARGET_LOCK) is False:
                raise ConflictError(Code.ALREADY_RUNNING, "another run is using the target")
            changes = reconcile(current, opened, target.name, rules)
        for each in rules:
            if (owner := changes.claimed.get(each.key)) is not None:
                detail = claimed_message(each, owner)
                current.problems.add(Code.COMPUTE_CLUSTER_CLAIMED, each.place, detail, severity=Severity.WARNING)
            elif each in changes.missing:
                detail = f"target {target.name} has no compute cluster {each.cluster}"
                current.problems.add(Code.COMPUTE_CLUSTER_MISSING, each.place, detail, severity=Severity.WARNING)
    except GitopsError as error:
        fix = error.fix or remedy(error.code, place_of(target.name))
        if waiting:
            detail = f"not on target {target.name} yet: {', '.join(waiting)}; {error.detail}"
            current.problems.add(Code.PROJECTION_PENDING, place_of(target.name), detail, fix=fix)
        elif not isinstance(error, UsageError | ConflictError):
            path = error.path or place_of(target.name)
            current.problems.add(error.code, path, error.detail, severity=Severity.WARNING, fix=fix)


def _opened(current: Session, target: ComputeTarget) -> StrategyTarget:
    if current.workspace.open_target is None:
        raise UsageError(Code.TARGET_URL_MISSING, f"the environment variable {target.url_env} is not set here")
    return current.workspace.open_target(target)


def reconcile(current: Session, target: StrategyTarget, name: str, rules: Sequence[ComputeRules]) -> RowChanges:
    """Perform steps 2 and 3 on an open, locked target. `rules` are all strategies that are applied to it.

    Returns the changes that were made. Rows that belong to a different folder are reported. Raises the target's and the
    ledger's GitopsErrors.
    """
    owned = [row for row in owned_rows(current.state.observations) if row.target.name == name]
    digests = {address: each.digest for address, each in current.state.resources.items()}
    changes = row_changes(rules, digests, owned, target.clusters(), target.strategies(), folder_owner(current))
    _carry_out(current, target, changes)
    for cluster_id, strategy in changes.unmanaged:
        detail = f"the target has a row {strategy} for compute cluster {cluster_id}, which was never declared here"
        current.problems.add(Code.UNMANAGED_STRATEGY, place_of(name), detail)
    _record(current, name, changes.owned)
    return changes


def _carry_out(current: Session, target: StrategyTarget, changes: RowChanges) -> None:
    faults, at = current.workspace.faults, current.workspace.clock.now()
    if changes.written or changes.deleted:
        target.create_tables()
    if changes.written:
        with around(faults, "strategies", "write_rows"):
            target.replace_strategies(changes.written, at=at)
    if changes.deleted:
        with around(faults, "strategies", "delete_rows"):
            target.delete_strategies(changes.deleted)


def _record(current: Session, name: str, owned: Iterable[OwnedRow]) -> None:
    """Record which rows on a target belong to this cluster, if this differs from the last record.

    Raises GitopsError of the ledger.
    """
    state, rows = current.state, dict[Address, list[OwnedRow]]()
    recorded = owned_rows(state.observations)
    for row in (*(each for each in recorded if each.target.name != name), *owned):
        rows.setdefault(row.address, []).append(row)
    ours = {row.address for row in recorded}
    after = {address: each for address, each in state.observations.items() if address not in ours}
    after |= {address: observed_rows(each) for address, each in rows.items()}
    if after == state.observations:
        return
    state = replace(state, revision=state.next_revision, observations=after)
    last = current.view.entry
    entry = make_entry(current, EntryKind.CHANGESET, Facts(config_digest=state.config_digest), state)
    if entry is not None and last is not None:
        # Changes that wait still wait for the same people.
        entry = replace(entry, origins=last.origins, authors=last.authors)
    current.view = current.opened.ledger.commit(current.view, LedgerWrite(state, entry))


# -- Checks of strategies on a target before they are applied, in a staged node without effects ------------------------
#
# | finding | result |
# | --- | --- |
# | a size that no applied strategy of the target uses, and that the target does not list | refuses that compute
#   cluster: its |
# | | strategies don't change, and an atomic run fails |
# | a compute cluster that gets its first strategies and is managed | warns, because its owner may change that |
# | a target that is not known here, does not respond, or denies a read | no result, because merges don't wait for
#   targets |
#
# A compute cluster that is missing on the target is reported by the projection, after the commit, because it can be
# created later. A size that a target does not offer would be refused at every tick, and a suspended compute cluster
# would not resume.


def check_target(current: Session, node: ExecNode, *, sound: NodeOutcome, atomic: bool) -> NodeResult:
    """Check a node's target against the table in this module.

    `sound` is the outcome to return if there is no problem.
    """
    from gitops.cluster.plan.strategies import (
        applied_rules,
        declared_rules,
    )  # Imported late, because few runs change strategies.

    problems, refused = Diagnostics(), list[str]()
    with suppress(GitopsError):
        declared = [each for each in declared_rules(current) if f"{TARGET}.{each.target.name}" == node.id]
        applied = [each for each in applied_rules(current) if f"{TARGET}.{each.target.name}" == node.id]
        refused = _look(current, declared, applied, problems)
    facts: dict[str, object] = {REFUSED: tuple(refused)} if refused else {}
    return NodeResult(node.id, NodeOutcome.FAILED if refused and atomic else sound, tuple(problems), facts=facts)


def _look(
    current: Session, declared: Sequence[ComputeRules], applied: Sequence[ComputeRules], problems: Diagnostics
) -> list[str]:
    """Report the problems of a target with new values in its strategies, and return the keys of the refused compute clusters.

    Raises GitopsError if it cannot be queried.
    """
    target, opening = declared[0].target, current.workspace.open_target
    begun = {each.cluster for each in applied}
    first = [each for each in declared if each.cluster not in begun]
    sizes = {each.key: new_sizes(each, applied) for each in declared}
    if opening is None or not (first or any(sizes.values())):
        return []
    with opening(target) as opened:
        clusters, listed = opened.clusters(), opened.sizes()
    refused = {each: lacking for each in declared if (lacking := listed.lacks(sizes[each.key]))}
    for each, size in ((each, size) for each, lacking in refused.items() for size in lacking):
        detail = f"target {target.name} has no size {size}; it has {', '.join(list(listed.credits)[:20])}"
        problems.add(Code.REPLICA_SIZE_INVALID, each.place, detail)
    for each in first:
        if (there := clusters.get(each.cluster)) is not None and there.managed:
            detail = f"{each.cluster} is managed: target {target.name} creates its replicas itself, so ticks do not"
            problems.add(Code.COMPUTE_CLUSTER_MANAGED, each.place, detail, severity=Severity.WARNING)
    return [each.key for each in refused]
