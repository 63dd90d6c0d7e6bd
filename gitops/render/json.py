"""The JSON envelope of each verb: fixed field order, absent values omitted, never null.

A form is a dict of plain JSON values; `to_text` prints it. `diagnostics` are those of the outcome, in emission order:
a verb has merged those of its plan into them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gitops.core.diagnostics import Diagnostic
from gitops.model.change import Change
from gitops.model.ledger import Debt, LedgerState, StatusRecord
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
from gitops.model.plan import ApprovalRequirement, Impact
from gitops.model.resource import Dependency
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
    return form


def validate_form(outcome: ValidateOutcome) -> Form:
    """The envelope of `validate`: everything that was loaded, even if there were errors."""
    resources = sorted(outcome.resources, key=lambda r: r.address)
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "config_file": outcome.config_file,
        "resource_digests": {r.address: r.digest for r in resources},
        "resources": [
            present(address=r.address, kind=r.address.kind.value, digest=r.digest, path=r.path) for r in resources
        ],
        "dependencies": _dependencies(outcome.dependencies),
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def plan_form(outcome: PlanOutcome) -> Form:
    """The envelope of `plan`; its lists are empty if it failed before there was a plan."""
    plan = outcome.plan
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "desired_revision": present(config_digest=outcome.config_digest),
        "resource_digests": {text: outcome.resource_digests[text] for text in sorted(outcome.resource_digests)},
        "dependencies": _dependencies(outcome.dependencies),
        "state_observations": observations_form(outcome.observations),
        "changes": [change_form(c, migration=True) for c in plan.changes] if plan else [],
        "blast_radius": impact_form(plan.impact) if plan else [],
        "approvals_required": approvals_form(plan.approvals_required) if plan else [],
        **debts_form(outcome.debts),
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def apply_form(outcome: ApplyOutcome) -> Form:
    """The envelope of `apply`; statuses are those on disk."""
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        **present(actor=outcome.actor),
        "desired_revision": present(config_digest=outcome.config_digest),
        "state_observations": observations_form(outcome.observations),
        "changes": [change_form(c) for c in outcome.changes],
        "applied_count": outcome.applied_count,
        "deferred_count": outcome.deferred_count,
        "converged": outcome.converged,
        "state_written": outcome.state_written,
        "resource_statuses": _statuses(outcome.state),
        **debts_form(outcome.debts),
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def approve_form(outcome: ApproveOutcome) -> Form:
    """The envelope of `approve`; `commit` is present only if the approval is a commit of a branch ledger."""
    form: Form = {"ok": outcome.ok, "config_dir": outcome.config_dir}
    approval = outcome.approval
    if outcome.ok and approval is not None:
        form["approval_id"] = approval.approval_id
        form["resource"] = approval.resource
        form["operation"] = approval.operation.value
        form["approved_by"] = approval.approved_by
        form.update(present(commit=outcome.commit))
    form["diagnostics"] = _diagnostics(outcome.diagnostics)
    return form


def decision_form(outcome: DecisionOutcome) -> Form:
    """The envelope of `revoke` and `countersign`; the decision is present only if it was made."""
    form: Form = {"ok": outcome.ok, "operation": outcome.operation, "approval_id": outcome.approval_id}
    if outcome.commit is not None:
        form.update(resource=outcome.resource, decided_by=outcome.decided_by, commit=outcome.commit)
    form["diagnostics"] = _diagnostics(outcome.diagnostics)
    return form


def status_form(outcome: StatusOutcome) -> Form:
    """The envelope of `status`: the ledger as recorded."""
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "state_observations": observations_form(outcome.observations),
        "resource_digests": outcome.state.digests() if outcome.state else {},
        "resource_statuses": _statuses(outcome.state),
        "observations": _observed(outcome.state),
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def refresh_form(outcome: RefreshOutcome) -> Form:
    """The envelope of `refresh` and `import`; without a ledger the digests are the desired ones."""
    digests = outcome.state.digests() if outcome.state else outcome.digests
    return {
        "ok": outcome.ok,
        "operation": outcome.operation,
        "config_dir": outcome.config_dir,
        "state_observations": observations_form(outcome.observations),
        "resource_digests": {text: digests[text] for text in sorted(digests)},
        "resource_statuses": _statuses(outcome.state),
        "observations": _observed(outcome.state),
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def ready_form(outcome: ReadyOutcome) -> Form:
    """`ok, config_dir, state_observations, graphs, cluster_policy?, diagnostics`."""
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "state_observations": observations_form(outcome.observations),
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
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def unlock_form(outcome: UnlockOutcome) -> Form:
    """The envelope of `force-unlock`."""
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "state_observations": observations_form(outcome.observations),
        "lock_removed": outcome.lock_removed,
        "diagnostics": _diagnostics(outcome.diagnostics),
    }


def observations_form(seen: StateObservations) -> Form:
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


def change_form(change: Change, *, migration: bool = False) -> Form:
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


def impact_form(impact: Iterable[Impact]) -> list[Form]:
    """The impact of a plan, without changes that nothing depends on."""
    return [{"resource": i.resource, "affected": list(i.affected)} for i in impact if i.affected]


def approvals_form(required: Iterable[ApprovalRequirement]) -> list[Form]:
    """The approval gates of a plan."""
    return [{"resource": r.resource, "reason": r.reason, "satisfied": r.satisfied} for r in required]


def debts_form(debts: Iterable[Debt]) -> Form:
    """Emergencies that need a countersignature; no field if there are none."""
    found = [
        {
            "approval_id": debt.approval_id,
            "commit": debt.commit,
            "resource": debt.resource,
            "principal": debt.principal,
            "reason": debt.reason,
        }
        for debt in debts
    ]
    return {"debts": found} if found else {}


def present(**fields: Any) -> Form:
    """The fields that have a value, in the given order."""
    return {name: value for name, value in fields.items() if value is not None}


def _diagnostics(items: Iterable[Diagnostic]) -> list[Form]:
    return [d.to_json() for d in items]


def _dependencies(edges: Iterable[Dependency]) -> list[Form]:
    return [edge.to_json() for edge in sorted(edges)]


def _statuses(state: LedgerState | None) -> dict[str, Form]:
    return {text: _status(state.statuses[text]) for text in sorted(state.statuses)} if state else {}


def _status(record: StatusRecord) -> Form:
    return present(
        status=record.status.value,
        conditions=list(record.conditions) or None,
        message=record.message,
    )


def _observed(state: LedgerState | None) -> Form:
    return {text: plain(state.observations[text]) for text in sorted(state.observations)} if state else {}


_FORMS: Mapping[type[VerbOutcome], Callable[[Any], Form]] = {
    ValidateOutcome: validate_form,
    PlanOutcome: plan_form,
    ApplyOutcome: apply_form,
    ApproveOutcome: approve_form,
    DecisionOutcome: decision_form,
    StatusOutcome: status_form,
    RefreshOutcome: refresh_form,
    ReadyOutcome: ready_form,
    UnlockOutcome: unlock_form,
}
