"""Outcomes whose rendering is kept as files. Run this module to write the files again, then read their diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ledger_cases import BAD, CUT, GOOD, RECORDS, SINCE
from plan_cases import (
    ACCESS_PLAN,
    APPROVAL,
    ATOMIC,
    BROKEN,
    CHANGES,
    EDGES,
    HEAD,
    HELD,
    LOCK,
    LOCKED,
    NO_CHANGE,
    NOTHING,
    PENDING,
    PLAN,
    RULES,
    RULES_PLAN,
    SEEN,
    STRATEGY_PLAN,
    TOUCHED,
    ULID,
    WHAT_IFS,
    digest,
    problems,
)

from gitops.cluster.model.address import Address, graph_address, schema_address
from gitops.cluster.model.change import Action, Disposition, Effect, Reason
from gitops.cluster.model.ledger import (
    AppliedResource,
    LedgerState,
    LockObservation,
    Status,
    StatusRecord,
)
from gitops.cluster.model.outcome import (
    ApplyOutcome,
    ApprovalSubject,
    ApproveOutcome,
    DecisionOutcome,
    DecisionSubject,
    OfferedGraph,
    PlanOutcome,
    ReadyOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
    ValidateOutcome,
    VerbOutcome,
)
from gitops.cluster.model.plan import ExecNode, NodeOutcome, NodeResult
from gitops.cluster.model.resource import Resource
from gitops.core.diagnostics import Diagnostics
from gitops.render import json, text
from gitops.render.audit import audit_form, audit_text, log_form, log_text
from gitops.render.json_text import to_text

DATA = Path(__file__).parents[2] / "data" / "render"


STATE = LedgerState(
    revision=9,
    config_digest=digest("a"),
    resources={
        Address("policy.readers"): AppliedResource(digest("4"), ("cluster",)),
        Address("graph.knowledge"): AppliedResource(digest("2")),
    },
    statuses={
        Address("graph.legacy"): StatusRecord(Status.BLOCKED, ("approval_required",), "an approval is missing"),
        Address("graph.knowledge"): StatusRecord(Status.APPLIED),
    },
    observations={Address("graph.scratch"): {"kind": "tombstone", "approval_id": ULID, "actor": None}},
)

RESOURCES = (
    Resource(graph_address("knowledge"), digest("2")),
    Resource(schema_address("knowledge"), digest("7"), path="./knowledge.pg", data=b"node T {}"),
)

FINAL = tuple(
    replace(c, disposition=Disposition.BLOCKED, reason=Reason.SCHEMA_APPLY_FAILED)
    if c.address == "schema.knowledge"
    else c
    for c in CHANGES
)

VERBS: dict[str, VerbOutcome] = {
    "validate_ok": ValidateOutcome(
        config_dir=".", config_file="./cluster.yaml", resources=RESOURCES, dependencies=EDGES[:1]
    ),
    "validate_not_ok": ValidateOutcome(
        config_dir="deploy", config_file="deploy/cluster.yaml", resources=RESOURCES[:1], diagnostics=BROKEN
    ),
    "plan_ok": PlanOutcome(
        config_dir=".",
        observations=SEEN,
        config_digest=digest("b"),
        resource_digests={Address("schema.knowledge"): digest("7"), Address("graph.knowledge"): digest("2")},
        dependencies=EDGES,
        plan=PLAN,
        obstacles=problems(
            ("graph_migration_unsupported", "schema.social", "changing cardinality of `Knows` is not supported", None)
        ),
        diagnostics=PENDING,
    ),
    "plan_atomic": PlanOutcome(config_dir=".", observations=SEEN, config_digest=digest("b"), plan=ATOMIC, atomic=True),
    "plan_touched": PlanOutcome(config_dir=".", observations=SEEN, config_digest=digest("b"), plan=TOUCHED),
    "plan_rules": PlanOutcome(
        config_dir=".", observations=SEEN, config_digest=digest("b"), plan=RULES_PLAN, selected=("--request", "7")
    ),
    "plan_access": PlanOutcome(config_dir=".", observations=SEEN, config_digest=digest("b"), plan=ACCESS_PLAN),
    "plan_what_if": PlanOutcome(
        config_dir=".", observations=SEEN, config_digest=digest("b"), plan=STRATEGY_PLAN, what_if=WHAT_IFS
    ),
    "plan_no_changes": PlanOutcome(config_dir=".", observations=SEEN, config_digest=digest("b"), plan=NO_CHANGE),
    "plan_not_ok": PlanOutcome(config_dir=".", observations=HELD, diagnostics=LOCKED),
    "apply_ok": ApplyOutcome(
        config_dir=".",
        observations=SEEN,
        actor="bot",
        config_digest=digest("b"),
        changes=CHANGES,
        state_written=True,
        state=STATE,
        plan_digest=PLAN.digest,
        entry_id="7c" * 20,
    ),
    "apply_not_ok": ApplyOutcome(
        config_dir=".",
        observations=SEEN,
        config_digest=digest("b"),
        changes=FINAL,
        state_written=True,
        state=STATE,
        plan_digest=PLAN.digest,
        results=(
            NodeResult("graph.knowledge", NodeOutcome.DONE),
            NodeResult("schema.knowledge", NodeOutcome.FAILED),
            NodeResult("query.knowledge.find_experts", NodeOutcome.BLOCKED, blocked_by="schema.knowledge"),
        ),
        diagnostics=problems(("schema_apply_failed", "schema.knowledge", "the disk is full", None)),
    ),
    "apply_dry_run_ok": ApplyOutcome(
        config_dir=".",
        observations=SEEN,
        actor="bot",
        config_digest=digest("b"),
        changes=CHANGES,
        converged=True,
        state=STATE,
        plan_digest=PLAN.digest,
        results=(
            NodeResult("graph.knowledge", NodeOutcome.DRY_RUN),
            NodeResult("barrier.prepared", NodeOutcome.DRY_RUN),
        ),
        dry_run=(
            ExecNode("graph.knowledge", "graph", Action.CREATE, 0),
            ExecNode("barrier.prepared", "barrier", Action.UPDATE, 1, effect=Effect.COMMIT),
        ),
    ),
    "apply_dry_run_not_ok": ApplyOutcome(
        config_dir=".",
        observations=SEEN,
        config_digest=digest("b"),
        changes=FINAL,
        state=STATE,
        plan_digest=PLAN.digest,
        results=(
            NodeResult("schema.knowledge", NodeOutcome.FAILED),
            NodeResult("query.knowledge.find_experts", NodeOutcome.BLOCKED, blocked_by="schema.knowledge"),
        ),
        dry_run=(ExecNode("schema.knowledge", "schema", Action.UPDATE, 0),),
        diagnostics=problems(("schema_apply_failed", "schema.knowledge", "it takes steps that were not planned", None)),
    ),
    "approve_ok": ApproveOutcome(config_dir=".", approval=APPROVAL),
    "approve_branch_ok": ApproveOutcome(config_dir=".", approval=APPROVAL, commit=HEAD),
    "approve_asked": ApproveOutcome(
        config_dir=".", about=RULES, diagnostics=problems(("approval_not_confirmed", RULES.address, "run it", None))
    ),
    "approve_moved": ApproveOutcome(
        config_dir=".",
        about=ApprovalSubject(address=Address("graph.legacy"), plan=PLAN),
        diagnostics=problems(("approval_plan_changed", "graph.legacy", "the plan is another one now", None)),
    ),
    "revoke_asked": DecisionOutcome(
        config_dir=".",
        operation="revoke",
        approval_id=ULID,
        about=DecisionSubject(
            resource=Address("graph.legacy"), principal="ada@example.org", commit=HEAD, reason="a\x1b[2Kb"
        ),
        diagnostics=problems(("approval_not_confirmed", ULID, "run it", None)),
    ),
    "approve_not_ok": ApproveOutcome(
        config_dir=".", diagnostics=problems(("approval_not_required", "query.a.b", "nothing to approve", None))
    ),
    "status_ok": StatusOutcome(config_dir=".", observations=SEEN, state=STATE),
    "status_missing": StatusOutcome(config_dir=".", observations=HELD),
    "status_not_ok": StatusOutcome(config_dir=".", observations=NOTHING, diagnostics=BROKEN[:1]),
    "refresh_ok": RefreshOutcome(config_dir=".", operation="refresh", observations=SEEN, state=STATE),
    "import_not_ok": RefreshOutcome(
        config_dir=".",
        operation="import",
        observations=NOTHING,
        diagnostics=problems(("graph_observation_error", "graphs", "graph knowledge does not open", None)),
    ),
    "ready_ok": ReadyOutcome(
        config_dir=".",
        observations=SEEN,
        graphs=(
            OfferedGraph("empty", "/srv/graphs/empty.omni", digest("1")),
            OfferedGraph("knowledge", "/srv/graphs/knowledge.omni", digest("7"), ("find_person",), "base"),
        ),
        cluster_policy="all",
    ),
    "ready_not_ok": ReadyOutcome(
        config_dir=".",
        observations=SEEN,
        diagnostics=problems(
            ("policy_scope_conflict", "graph.knowledge", "more than one policy is bound to it: base, other", None)
        ),
    ),
    "unlock_ok": UnlockOutcome(
        config_dir=".",
        observations=StateObservations(
            state_path="__cluster/state.json",
            lock_path="__cluster/lock.json",
            held=LockObservation(held=False, info=LOCK.info),
            lock_age_seconds=93,
        ),
        lock_removed=True,
    ),
    "unlock_not_ok": UnlockOutcome(
        config_dir=".",
        observations=HELD,
        diagnostics=problems(("state_lock_id_mismatch", "__cluster/lock.json", "the lock has another id", None)),
    ),
}


VERBS["status_branch"] = StatusOutcome(
    config_dir=".",
    observations=SEEN,
    state=STATE,
    in_sync=False,
    entry=RECORDS[0].entry,
)
VERBS["status_branch"] = replace(
    VERBS["status_branch"],
    approvers=dict.fromkeys(VERBS["status_branch"].waiting, ("ada@example.com", "bob@example.com")),
)


def files() -> dict[str, str]:
    """File name to expected content."""
    result: dict[str, str] = {}
    for name, outcome in VERBS.items():
        result[f"{name}.txt"] = text.to_text(outcome)
        result[f"{name}.json"] = to_text(json.envelope(outcome))
    result["log.txt"] = log_text(RECORDS)
    result["log.json"] = to_text(log_form(RECORDS, Diagnostics()))
    for name, report in (("audit_good", GOOD), ("audit_failed", BAD), ("audit_cut", CUT), ("audit_since", SINCE)):
        result[f"{name}.txt"] = audit_text(report)
        result[f"{name}.json"] = to_text(audit_form(report))
    return result


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    for stale in DATA.iterdir():
        stale.unlink()
    for file_name, content in files().items():
        (DATA / file_name).write_text(content, "utf-8")
