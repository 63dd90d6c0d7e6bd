"""The JSON envelope of each verb: fixed field order, absent values omitted, never null.

A form is a dict of plain JSON values; `to_text` prints it. `ok` comes first and `diagnostics` last: those of the outcome, in
emission order, into which a verb has merged those of its plan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gitops.model.change import Change
from gitops.model.ledger import Debt, LedgerState
from gitops.model.outcome import (
    ApplyOutcome,
    ApproveOutcome,
    DecisionOutcome,
    PlanOutcome,
    ReadyOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
    ValidateOutcome,
    VerbOutcome,
)
from gitops.render.characters import visible_json

Form = dict[str, Any]

_MAX_DEPTH = 64
_TOO_DEEP = "[nested too deeply to show]"


def to_text(form: Mapping[str, Any] | list[Any]) -> str:
    """Pretty-printed JSON with one final newline; characters that would act on a terminal are JSON escapes."""
    return visible_json(json.dumps(plain(form), indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def to_line(value: Any) -> str:
    """Compact JSON on one line, for a step of a plan."""
    return visible_json(json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False))


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as plain JSON: maps become dicts and tuples lists.

    Free-form parts of a ledger are foreign data: a note replaces everything below 64 levels, and a number that JSON does
    not have becomes its text, so that printing an outcome never fails.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth >= _MAX_DEPTH:
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return {str(k): plain(v, depth + 1) for k, v in value.items()}
    return [plain(v, depth + 1) for v in value]


def envelope(outcome: VerbOutcome) -> Form:
    """The JSON envelope of an outcome. Raises KeyError for an unknown outcome."""
    form: Form = _FORMS[type(outcome)](outcome)
    return {"ok": outcome.ok, **form, "diagnostics": [each.to_json() for each in outcome.diagnostics]}


def _validate(outcome: ValidateOutcome) -> Form:
    """Everything that was loaded, even if there were errors."""
    resources = sorted(outcome.resources, key=lambda r: r.address)
    return {
        "config_dir": outcome.config_dir,
        "config_file": outcome.config_file,
        "resource_digests": {r.address: r.digest for r in resources},
        "resources": [
            present(address=r.address, kind=r.address.kind.value, digest=r.digest, path=r.path) for r in resources
        ],
        "dependencies": [edge.to_json() for edge in sorted(outcome.dependencies)],
    }


def _plan(outcome: PlanOutcome) -> Form:
    """Lists are empty if it failed before there was a plan. The impact is without changes that nothing depends on."""
    plan = outcome.plan
    changes, impact, required = (plan.changes, plan.impact, plan.approvals_required) if plan else ((), (), ())
    return {
        "config_dir": outcome.config_dir,
        "desired_revision": present(config_digest=outcome.config_digest),
        "resource_digests": {text: outcome.resource_digests[text] for text in sorted(outcome.resource_digests)},
        "dependencies": [edge.to_json() for edge in sorted(outcome.dependencies)],
        "state_observations": _observations(outcome.observations),
        "changes": [_change(c, migration=True) for c in changes],
        "blast_radius": [{"resource": i.resource, "affected": list(i.affected)} for i in impact if i.affected],
        "approvals_required": [
            {"resource": r.resource, "reason": r.reason, "satisfied": r.satisfied} for r in required
        ],
        **_debts(outcome.debts),
    }


def _apply(outcome: ApplyOutcome) -> Form:
    """Statuses are those on disk."""
    return {
        "config_dir": outcome.config_dir,
        **present(actor=outcome.actor),
        "desired_revision": present(config_digest=outcome.config_digest),
        "state_observations": _observations(outcome.observations),
        "changes": [_change(c) for c in outcome.changes],
        "applied_count": outcome.applied_count,
        "deferred_count": outcome.deferred_count,
        "converged": outcome.converged,
        "state_written": outcome.state_written,
        "resource_statuses": _statuses(outcome.state),
        **_debts(outcome.debts),
    }


def _approve(outcome: ApproveOutcome) -> Form:
    """`commit` is present only if the approval is a commit of a branch ledger."""
    approval = outcome.approval
    if not outcome.ok or approval is None:
        return {"config_dir": outcome.config_dir}
    return present(
        config_dir=outcome.config_dir,
        approval_id=approval.approval_id,
        resource=approval.resource,
        operation=approval.operation.value,
        approved_by=approval.approved_by,
        commit=outcome.commit,
    )


def _decision(outcome: DecisionOutcome) -> Form:
    """`revoke` and `countersign`; the decision is present only if it was made."""
    form: Form = {"operation": outcome.operation, "approval_id": outcome.approval_id}
    if outcome.commit is not None:
        form.update(resource=outcome.resource, decided_by=outcome.decided_by, commit=outcome.commit)
    return form


def _status(outcome: StatusOutcome) -> Form:
    """The ledger as recorded."""
    return {
        "config_dir": outcome.config_dir,
        "state_observations": _observations(outcome.observations),
        "resource_digests": outcome.state.digests() if outcome.state else {},
        "resource_statuses": _statuses(outcome.state),
        "observations": _observed(outcome.state),
    }


def _refresh(outcome: RefreshOutcome) -> Form:
    """`refresh` and `import`; without a ledger the digests are the desired ones."""
    digests = outcome.state.digests() if outcome.state else outcome.digests
    return {
        "operation": outcome.operation,
        "config_dir": outcome.config_dir,
        "state_observations": _observations(outcome.observations),
        "resource_digests": {text: digests[text] for text in sorted(digests)},
        "resource_statuses": _statuses(outcome.state),
        "observations": _observed(outcome.state),
    }


def _ready(outcome: ReadyOutcome) -> Form:
    return {
        "config_dir": outcome.config_dir,
        "state_observations": _observations(outcome.observations),
        "graphs": [
            {
                "id": graph.graph_id,
                "uri": graph.uri,
                "schema_digest": graph.schema_digest,
                "queries": list(graph.queries),
                **present(policy=graph.policy),
            }
            for graph in outcome.graphs
        ],
        **present(cluster_policy=outcome.cluster_policy),
    }


def _unlock(outcome: UnlockOutcome) -> Form:
    return {
        "config_dir": outcome.config_dir,
        "state_observations": _observations(outcome.observations),
        "lock_removed": outcome.lock_removed,
    }


def _observations(seen: StateObservations) -> Form:
    """The ledger and the lock as the command found them; `locked` refers to a lock that existed before."""
    holder = seen.held.info
    return present(
        state_path=seen.state_path,
        lock_path=seen.lock_path,
        state_found=seen.state_found,
        applied_config_digest=seen.applied_config_digest,
        state_revision=seen.state_revision,
        state_cas=seen.state_cas,
        resource_count=seen.resource_count,
        locked=seen.held.held,
        lock_id=holder and holder.lock_id,
        lock_operation=holder and holder.operation,
        lock_created_at=holder and holder.created_at,
        lock_pid=holder and holder.pid,
        lock_age_seconds=seen.lock_age_seconds,
        lock_acquired=seen.acquired_lock_id is not None,
        acquired_lock_id=seen.acquired_lock_id,
    )


def _change(change: Change, *, migration: bool = False) -> Form:
    """One change; the migration preview belongs to plans only."""
    return present(
        resource=change.address,
        operation=change.action.value,
        before_digest=change.before,
        after_digest=change.after,
        disposition=change.disposition.value,
        reason=change.reason.value if change.reason else None,
        binding_change=True if change.binding_change else None,
        migration=plain(change.migration.to_json()) if migration and change.migration else None,
    )


def _debts(debts: Iterable[Debt]) -> Form:
    """Emergencies that need a countersignature; no field if there are none."""
    fields = ("approval_id", "commit", "resource", "principal", "reason")
    found = [{field: getattr(debt, field) for field in fields} for debt in debts]
    return {"debts": found} if found else {}


def present(**fields: Any) -> Form:
    """The fields that have a value, in the given order."""
    return {name: value for name, value in fields.items() if value is not None}


def _statuses(state: LedgerState | None) -> dict[str, Form]:
    return {
        text: present(status=found.status.value, conditions=list(found.conditions) or None, message=found.message)
        for text, found in sorted(state.statuses.items() if state else ())
    }


def _observed(state: LedgerState | None) -> Form:
    return {text: plain(seen) for text, seen in sorted(state.observations.items() if state else ())}


_FORMS: Mapping[type[VerbOutcome], Callable[[Any], Form]] = {
    ValidateOutcome: _validate,
    PlanOutcome: _plan,
    ApplyOutcome: _apply,
    ApproveOutcome: _approve,
    DecisionOutcome: _decision,
    StatusOutcome: _status,
    RefreshOutcome: _refresh,
    ReadyOutcome: _ready,
    UnlockOutcome: _unlock,
}
