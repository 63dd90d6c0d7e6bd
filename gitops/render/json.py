"""Each command's JSON envelope: fixed field order, absent values left out, never null.

A form is a dict of plain JSON values, which `json_text` prints. `ok` comes first. `problems` comes last, in the order in
which they were found; a verb has already merged its plan's problems into them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Change
from gitops.cluster.model.changeset import Changeset
from gitops.cluster.model.drill import RestoreDrill
from gitops.cluster.model.ledger import Debt, LedgerState
from gitops.cluster.model.others import MergedProblem, OtherRequests
from gitops.cluster.model.outcome import (
    ApplyOutcome,
    ApproveOutcome,
    DecisionOutcome,
    DrillOutcome,
    PlanOutcome,
    ReadyOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
    ValidateOutcome,
    VerbOutcome,
)
from gitops.cluster.model.plan import Plan
from gitops.cluster.model.served import Replica, RevisionIdentity
from gitops.cluster.model.trust import RuleChange
from gitops.cluster.model.use import Callers
from gitops.render.commands import approve_command
from gitops.render.json_text import plain

if TYPE_CHECKING:
    from gitops.cluster.model.access import AccessDiff, AccessRow
    from gitops.cluster.model.compute import Usage, WhatIf
    from gitops.cluster.model.kinds import Classified
    from gitops.database.graph.port import MigrationPreview

Form = dict[str, Any]

_ACTORS = 5


def envelope(
    outcome: VerbOutcome, classes: Mapping[Address, Classified] | None = None, more: Mapping[str, Any] | None = None
) -> Form:
    """Return an outcome's JSON envelope. `classes` are the effect classes in its plan, if known.

    Raises KeyError for an unknown outcome.

    `more` precedes the problems, which the first release called `diagnostics`.
    """
    form, problems = _form(outcome, classes), [each.to_json() for each in outcome.diagnostics]
    return {"ok": outcome.ok, **form, **(more or {}), "problems": problems, "diagnostics": problems}


def _form(outcome: VerbOutcome, classes: Mapping[Address, Classified] | None) -> Form:
    if isinstance(outcome, DecisionOutcome):
        return _decision(outcome)
    form: Form = {"config_dir": outcome.config_dir}
    match outcome:
        case ValidateOutcome():
            resources = sorted(outcome.resources, key=lambda r: r.address)
            form["config_file"] = outcome.config_file
            form["resource_digests"] = {r.address: r.digest for r in resources}
            form["resources"] = [
                present(address=r.address, kind=r.address.kind.value, digest=r.digest, path=r.path) for r in resources
            ]
            form["dependencies"] = [edge.to_json() for edge in sorted(outcome.dependencies)]
        case PlanOutcome():
            form |= _plan(outcome, classes)
        case ApplyOutcome():
            form |= _apply(outcome)
            if outcome.dry_run is not None:
                form |= _dry_run(outcome)
            form |= _serving(outcome.serving)
        case ApproveOutcome():
            form |= _approve(outcome)
        case StatusOutcome(state=state):
            form["state_observations"] = _observations(outcome.observations)
            form |= _answers(outcome)
            form |= _serving(outcome.serving)
            form["resource_digests"] = state.digests() if state else {}
            form |= _recorded(state)
        case RefreshOutcome(state=state):
            form = {"operation": outcome.operation, **form}
            form["state_observations"] = _observations(outcome.observations)
            form["resource_digests"] = state.digests() if state else {}
            form |= _recorded(state or outcome.unwritten)
        case DrillOutcome(drill=drill):
            form |= present(kept=outcome.kept)
            form["recorded"] = outcome.recorded
            form["drill"] = None if drill is None else drill_form(drill)
        case ReadyOutcome():
            form["state_observations"] = _observations(outcome.observations)
            form["graphs"] = [
                present(
                    id=g.graph_id, uri=g.uri, schema_digest=g.schema_digest, queries=list(g.queries), policy=g.policy
                )
                for g in outcome.graphs
            ]
            form |= present(cluster_policy=outcome.cluster_policy)
            if outcome.issuers:
                form["issuers"] = [{"issuer": name, "available": available} for name, available in outcome.issuers]
            if (found := outcome.identity) is not None:
                grants, groups = sorted(found.grants), list(found.groups)
                form["identity"] = {"actor": found.actor, "groups": groups, "grants": grants, "issuer": found.issuer}
        case UnlockOutcome():
            form["state_observations"] = _observations(outcome.observations)
            form["lock_removed"] = outcome.lock_removed
        case _:
            raise KeyError(type(outcome).__name__)
    return form


def _decision(outcome: DecisionOutcome) -> Form:
    form: Form = {"operation": outcome.operation, "approval_id": outcome.approval_id}
    if outcome.about is not None:
        about = outcome.about
        form |= {"resource": about.resource, "approval_commit": about.commit}
        form |= {"approved_by": about.principal, "approval_reason": about.reason}
    if outcome.commit is not None:
        form.update(resource=outcome.resource, decided_by=outcome.decided_by, commit=outcome.commit)
    if outcome.recorded is not None:
        form |= {"recorded": outcome.recorded, "deleted": list(outcome.deleted)}
        form |= present(kept=outcome.kept or None)
    return form


def _plan(outcome: PlanOutcome, classes: Mapping[Address, Classified] | None) -> Form:
    """Return a plan. If it failed early, the lists are empty. The impact omits changes that nothing depends on."""
    plan = outcome.plan
    changes, impact, required = (plan.changes, plan.impact, plan.approvals_required) if plan else ((), (), ())
    if classes is None:
        from gitops.cluster.plan.classes import classes_of

        classes = classes_of(changes)
    access = None if plan is None or plan.access is None else access_form(plan.access, plan.widening)
    return {
        "desired_revision": present(config_digest=outcome.config_digest),
        **present(plan_digest=None if plan is None else plan.digest),
        "resource_digests": {text: outcome.resource_digests[text] for text in sorted(outcome.resource_digests)},
        "dependencies": [edge.to_json() for edge in sorted(outcome.dependencies)],
        "state_observations": _observations(outcome.observations),
        "changes": [
            _change(
                c,
                migration=True,
                again=plan is not None and c.address in plan.republished,
                layout=plan is not None and c.address in plan.formatting,
                classified=classes.get(c.address),
            )
            for c in changes
        ],
        **({} if plan is None else rule_forms(plan.rule_changes)),
        **present(access=access),
        **({} if plan is None else _breaks(plan)),
        **present(what_if=[_what_if(each) for each in outcome.what_if] or None),
        **({} if plan is None else _undoings(plan)),
        "blast_radius": [{"resource": i.resource, "affected": list(i.affected)} for i in impact if i.affected],
        "approvals_required": [
            {
                "resource": r.resource,
                "reason": r.reason,
                "satisfied": r.satisfied,
                "needed": r.needed,
                "gates": [gate.value for gate in r.gates],
                **({"environment": r.environment} if r.environment else {}),
                "approved_by": [a.approved_by for a in r.approvals],
                "may_approve": list(r.may),
                **present(
                    command=approve_command(plan, r.resource, outcome.selected)
                    if plan is not None and outcome.selected is not None and not r.satisfied
                    else None
                ),
            }
            for r in required
        ],
        **present(other_requests=None if outcome.others is None else _others(outcome.others)),
        **({} if plan is None else _landing(outcome)),
        **_debts(outcome.debts),
    }


def drill_form(drill: RestoreDrill) -> Form:
    """Return the result of a restore drill."""
    graphs = [
        {"graph": g.graph, "incarnation": g.incarnation, "version": g.version, "rows": g.rows, "as_of": g.as_of}
        for g in drill.graphs
    ]
    more = present(source=drill.source, as_of=drill.as_of)
    return {
        "passed": drill.passed,
        "seconds": drill.seconds,
        **more,
        "graphs": graphs,
        "findings": list(drill.findings),
    }


def _answers(outcome: StatusOutcome) -> Form:
    """Return a cluster's summary for people. `in_sync` is omitted if unknown."""
    entry, newest = outcome.entry, outcome.newest
    apply = None if newest is None else {"changeset": newest.key, "state": newest.state.value, "at": newest.at}
    last = {} if entry is None else {"number": entry.number, "kind": entry.kind.value, "at": entry.at}
    if entry is not None:
        last |= present(actor=entry.actor, commit=None if entry.source is None else entry.source.commit)
    # The people who can approve all waiting changes whose authors are recorded.
    able = sorted(set.intersection(*map(set, outcome.approvers.values()))) if outcome.approvers else []
    return {
        **present(in_sync=outcome.in_sync),
        "waiting": [present(resource=name, why=record.message) for name, record in outcome.waiting.items()],
        **({"may_approve": able} if able else {}),
        "drifted": list(outcome.drifted),
        **present(last_entry=last or None, last_apply=apply, last_drill=outcome.last_drill),
        **({"in_progress": [_progress(record) for record in outcome.in_progress]} if outcome.in_progress else {}),
        **_debts(() if outcome.state is None else outcome.state.debts),
    }


def _progress(record: Changeset) -> Form:
    facts = present(commit=record.source.merge_commit, request=record.source.pull_request)
    return {"changeset": record.key, "state": record.state.value, **facts, "beside": list(record.beside)}


def _landing(outcome: PlanOutcome) -> Form:
    """Return whether an apply of the plan would now succeed completely, and what blocks it.

    Includes the work that the apply would settle first.
    """
    found = [{"resource": each.path, "code": each.code, "message": each.message} for each in outcome.obstacles]
    first = [
        {
            "changeset": each.key,
            "course": each.course.value,
            "orphaned": [{"resource": left.address, "reason": left.reason} for left in each.orphaned],
            **present(unfinished=list(each.unfinished) or None),
        }
        for each in outcome.interrupted
    ]
    return {"lands": outcome.lands, "obstacles": found, **present(interrupted=first or None)}


def _approve(outcome: ApproveOutcome) -> Form:
    """Return an approval and its subject, which is complete if nothing was signed."""
    form: Form = {}
    subject, approval = outcome.about, outcome.approval
    if subject is not None:
        form |= present(plan_digest=subject.plan.digest, head=subject.head or None, tree=subject.tree or None)
    if subject is not None and not outcome.ok:
        form["changes"] = [_change(c, migration=True) for c in subject.plan.changes]
        form |= rule_forms(subject.plan.rule_changes)
    if outcome.ok and approval is not None:
        form["approval_id"] = approval.approval_id
        form["resource"] = approval.resource
        form["operation"] = approval.operation.value
        form["approved_by"] = approval.approved_by
        # Only approvals on a branch ledger are commits.
        form |= present(commit=outcome.commit)
    return form


def _apply(outcome: ApplyOutcome) -> Form:
    return {
        **present(actor=outcome.actor),
        "desired_revision": present(config_digest=outcome.config_digest),
        "state_observations": _observations(outcome.observations),
        "changes": [_change(c, layout=c.address in outcome.formatting) for c in outcome.changes],
        "applied_count": outcome.applied_count,
        "deferred_count": outcome.deferred_count,
        "converged": outcome.converged,
        "state_written": outcome.state_written,
        "resource_statuses": _statuses(outcome.state),
        **_debts(outcome.debts),
    }


def _dry_run(outcome: ApplyOutcome) -> Form:
    """Return the additional members of the JSON document for a dry run of an apply."""
    results, found = {result.node_id: result for result in outcome.results}, []
    for node in outcome.dry_run or ():
        work = {"change": node.address, "action": node.action.value} if node.changes else {}
        ended = results.pop(node.id).outcome.value
        found.append({"id": node.id, **work, "class": node.effect.value, "outcome": ended})
    for name, each in results.items():
        found.append({"id": name, "outcome": each.outcome.value, **present(blocked_by=each.blocked_by)})
    return {"status": "dry_run", "nodes": found}


def _serving(serving: Sequence[Replica] | None) -> Form:
    """Return the document's member `serving`; omitted if no server is known."""
    found = [
        {
            "replica": server.report.replica,
            "cluster": server.report.cluster,
            "state": server.state.value,
            "follows": server.report.follows.value,
            "accepted": _revision(server.report.accepted),
            "offered": None if server.report.offered is None else _revision(server.report.offered),
            "codes": list(server.report.codes),
            "age_s": server.age_s,
            "ttl_s": server.report.ttl_s,
        }
        for server in serving or ()
    ]
    return {"serving": found} if found else {}


def _revision(revision: RevisionIdentity) -> Form:
    return {"state_cas": f"sha256:{revision.digest}", "state_revision": revision.state_revision}


def _observations(seen: StateObservations) -> Form:
    """Return the ledger and the lock as the command found them. `locked` refers to a lock that already existed."""
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


def access_form(diff: AccessDiff, widening: Collection[str]) -> Form:
    """Return the access diff as JSON, with every row in full but only the first five actor names.

    `gated` are the classes that need an approval.
    """
    found = {row.row_class for row in diff.widenings}
    return {
        "version": 1,
        "before": diff.before,
        "after": diff.after,
        "gated": sorted(each.value for each in found if each in widening),
        "rows": [_access_row(row) for row in diff.rows],
    }


def _access_row(row: AccessRow) -> Form:
    actors, cause = row.actors, row.cause
    groups = " - ".join((" + ".join(actors.union), *actors.minus)) if actors.union else None
    form: dict[str, Any] = {
        "change": "gain" if row.gain else "loss",
        "class": row.row_class.value,
        "action": row.action,
        "scope": row.scope,
        "branches": ["*"] if row.other_branches else list(row.branches),
        "except": list(row.except_branches) or None,
        "query": row.queries[0] if len(row.queries) == 1 else None,
        "queries": list(row.queries) if len(row.queries) > 1 else None,
        "actors": present(
            count=len(actors.members),
            others=actors.others or None,
            **{"as": groups},
            names=list(actors.members[:_ACTORS]),
        ),
        "policy": row.policy,
        "rule": row.rule,
        "file": row.file,
        "line": row.line,
        "cause": present(kind=cause.kind.value, subject=cause.subject or None, line=cause.line, words=cause.words),
    }
    return present(**form)


def _undoings(plan: Plan) -> Form:
    """Return the fields of a revert plan: the class of each change, and the order in which the changes are reverted."""
    forms = []
    for each in plan.undoings:
        form: Form = {"resource": each.resource, "undo": each.undo.value}
        if each.parts:
            form["parts"] = [
                {
                    "name": part.name,
                    "undo": part.undo.value,
                    **present(version=part.version, rows=part.rows),
                    "words": part.words,
                }
                for part in each.parts
            ]
        forms.append(form)
    return {"undoings": forms, "undo_order": [node.id for node in plan.undo_graph.nodes]} if forms else {}


def _what_if(each: WhatIf) -> Form:
    form: dict[str, Any] = {"compute": each.key, "cluster": each.cluster, "target": each.target}
    if each.said:
        problem = {"code": None if each.code is None else each.code.value, "message": each.said}
        return {**form, "unknown": present(**problem)}
    form["refused"] = list(each.refused)
    form |= {"unlisted_sizes": list(each.unlisted)} if each.unlisted else {}
    form["actions"] = [{"sql": action.sql, "reasons": list(action.reasons)} for action in each.actions]
    if each.before is not None and each.after is not None:
        sides = {"before": _usage(each.before), "after": _usage(each.after)}
        form["replay"] = {"days": each.days, **sides, "assumed": list(each.assumed)}
    return form


def _usage(usage: Usage) -> Form:
    return {
        "replica_hours": round(usage.replica_hours, 4),
        "credits": round(usage.credits, 4),
        "unserved_s": usage.unserved_s,
    }


def _others(others: OtherRequests) -> Form:
    """Return what the bot said about other open requests: conflicts, and the plan after earlier merges."""
    conflicts = [
        {"request": c.request, "resources": list(c.resources), "paths": list(c.paths), "problems": _merged(c.problems)}
        for c in others.conflicts
    ]
    later = others.later
    if later is None:
        return {"conflicts": conflicts}
    merges = [{"request": each.request, "why": each.why.value} for each in later.merges]
    changes = [{"resource": each.resource, "operation": each.operation.value} for each in later.changes]
    after = {"merges": merges, "left_out": list(later.left_out), "same": later.same, "verdict": later.verdict}
    rest = {"changes": changes, "paths": list(later.paths), "problems": _merged(later.problems)}
    return {"conflicts": conflicts, "later": after | rest}


def _merged(problems: Iterable[MergedProblem]) -> list[Form]:
    return [{"code": each.code.value, "path": each.path, "message": each.message} for each in problems]


def _breaks(plan: Plan) -> Form:
    """Return the contracts with query callers that the plan breaks; no field if there are none."""
    found = [
        present(
            resource=each.query,
            kind=each.kind.value,
            subject=each.subject or None,
            before=each.before or None,
            after=each.after or None,
        )
        for each in plan.breaks
    ]
    return {"breaks": found} if found else {}


def _change(
    change: Change,
    *,
    migration: bool = False,
    again: bool = False,
    layout: bool = False,
    classified: Classified | None = None,
) -> Form:
    """Return one change. Only plans contain the migration preview.

    `again` marks a query with unchanged text, and `layout` a change of layout or comments only.
    """
    return present(
        resource=change.address,
        operation=change.action.value,
        before_digest=change.before,
        after_digest=change.after,
        disposition=change.disposition.value,
        reason=change.reason.value if change.reason else None,
        **({} if classified is None else {"class": classified.effect.value, "class_reason": classified.reason}),
        binding_change=True if change.binding_change else None,
        republished=True if again else None,
        formatting_only=True if layout else None,
        migration=_migration(change.migration) if migration and change.migration else None,
        details=list(change.details) or None,
        callers=None if change.callers is None else _callers(change.callers),
    )


def _callers(callers: Callers) -> Form:
    """Return the recorded clients that a change breaks, and how completely they are known."""
    return {
        "state": callers.state.value,
        "clients": [{"client": each.client, "calls": each.calls, "last": each.last} for each in callers.clients],
        "days": callers.days,
        "complete": callers.complete,
        **present(gap=callers.gap or None, floor=callers.floor or None, untrusted=callers.untrusted or None),
        "words": callers.words,
    }


def _migration(preview: MigrationPreview) -> Form:
    """Return the steps of a migration and, if they were counted, the rows of each step."""
    counts = preview.counts
    counted = {} if counts is None else {"counts": [count and count.to_json() for count in counts]}
    return {**preview.to_json(), **counted}


def rule_forms(changes: Iterable[RuleChange]) -> Form:
    """Return the meaning of changes to keys and rules, as a field. Returns no field if there are no changes."""
    found = [
        present(resource=each.address, rule=each.rule, before=each.before, after=each.after, widens=each.widens)
        for each in changes
    ]
    return {"rule_changes": found} if found else {}


def _debts(debts: Iterable[Debt]) -> Form:
    """Return the emergencies that need a countersignature; no field if there are none."""
    fields = ("approval_id", "commit", "resource", "principal", "reason")
    found = [{field: getattr(debt, field) for field in fields} for debt in debts]
    return {"debts": found} if found else {}


def present(**fields: Any) -> Form:
    """Return the fields that have a value, in the given order."""
    return {name: value for name, value in fields.items() if value is not None}


def _recorded(state: LedgerState | None) -> Form:
    """Return the recorded statuses and observations."""
    seen = sorted(state.observations.items() if state else ())
    return {"resource_statuses": _statuses(state), "observations": {text: plain(each) for text, each in seen}}


def _statuses(state: LedgerState | None) -> dict[str, Form]:
    return {
        text: present(status=found.status.value, conditions=list(found.conditions) or None, message=found.message)
        for text, found in sorted(state.statuses.items() if state else ())
    }
