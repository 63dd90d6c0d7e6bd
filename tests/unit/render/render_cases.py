"""Outcomes whose rendering is kept as files. Run this module to write the files again, then read their diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gitops.audit.report import AuditFinding, AuditReport, LogRecord, UsedApproval, UsedCountersignature
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.graph.port import MigrationPreview
from gitops.model.access import RUN, AccessCause, AccessClass, AccessDiff, AccessRow, Actors, CauseKind
from gitops.model.address import Address, graph_address, policy_address, query_address, restore_address, schema_address
from gitops.model.approval import Approval, ClusterTarget, Via
from gitops.model.change import Action, Change, Disposition, GateName, Reason, Tier
from gitops.model.ledger import (
    AppliedResource,
    ApprovalUse,
    Debt,
    DebtSettlement,
    EntryChange,
    EntryKind,
    LedgerEntry,
    LedgerState,
    LockInfo,
    LockObservation,
    SourceRevision,
    Status,
    StatusRecord,
)
from gitops.model.outcome import (
    ApplyOutcome,
    ApprovalSubject,
    ApproveOutcome,
    DecisionOutcome,
    DecisionSubject,
    PlanOutcome,
    ReadyOutcome,
    RefreshOutcome,
    ServedGraph,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
    ValidateOutcome,
    VerbOutcome,
)
from gitops.model.plan import (
    AffectedQuery,
    ApprovalRequirement,
    Effect,
    ExecNode,
    ExecutionGraph,
    Impact,
    NodeOutcome,
    NodeResult,
    Plan,
    QueryChange,
    ResultChange,
    SchemaImpact,
)
from gitops.model.resource import Dependency, Resource
from gitops.model.trust import RuleChange
from gitops.model.what_if import Usage, WhatIf, WhatIfAction
from gitops.render import json, text
from gitops.render.audit import audit_form, audit_text, log_form, log_text
from gitops.strategies.statements import create_replica, drop_replica

DATA = Path(__file__).parents[2] / "data" / "render"

HEAD, BASE = "1a2b3c4d" * 5, "9e8f7a6b" * 5
ULID = "01JZ0000000000000000000AAA"


def digest(letter: str) -> str:
    return letter * 64


LOCK = LockObservation(held=True, info=LockInfo("01JZ0000000000000000000CCC", "apply", "2026-06-11T08:00:00.5Z", 4711))
SEEN = StateObservations(
    state_path="__cluster/state.json",
    lock_path="__cluster/lock.json",
    state_found=True,
    applied_config_digest=digest("a"),
    state_revision=9,
    state_cas=f"sha256:{digest('c')}",
    resource_count=4,
    acquired_lock_id="01JZ0000000000000000000DDD",
)
HELD = StateObservations(
    state_path="__cluster/state.json", lock_path="__cluster/lock.json", held=LOCK, lock_age_seconds=93
)
NOTHING = StateObservations(state_path="__cluster/state.json", lock_path="__cluster/lock.json")


def problems(*specs: tuple[str, str, str, SourceRef | None]) -> tuple[Diagnostic, ...]:
    found = Diagnostics()
    for code, path, message, source in specs:
        found.add(code, path, message, source=source)
    return tuple(found)


BROKEN = problems(
    (
        "schema_parse_error",
        "schema.knowledge",
        "parse error: expected a type, found `}`",
        SourceRef("knowledge.pg", 12, 3),
    ),
    ("query_dir_empty", "graphs.knowledge.queries", "no .gq file in queries/", SourceRef("queries")),
)
LOCKED = problems(
    (
        "state_lock_held",
        "__cluster/lock.json",
        "held; force-unlock 01JZ0000000000000000000CCC if its holder is gone",
        None,
    )
)
PENDING = problems(("cluster_recovery_pending", "__cluster/recoveries/x.json", "an apply was interrupted", None))

STEPS = (
    {
        "kind": "add_property",
        "type_kind": "node",
        "type_name": "Person",
        "property_name": "age",
        "property_type": {"scalar": "I32", "nullable": True, "list": False, "enum_values": None},
    },
    {"kind": "drop_property", "type_kind": "node", "type_name": "Person", "property_name": "nick", "mode": "soft"},
    {"kind": "add_constraint", "type_kind": "node", "type_name": "Person", "constraint": {"Index": ["age"]}},
)
UNSUPPORTED = {
    "kind": "unsupported_change",
    "entity": "edge:Knows",
    "reason": "changing cardinality from 0.. to 1..1 is not supported",
    "code": "OG-MF-106",
}

CHANGES = (
    Change(graph_address("knowledge"), Action.UPDATE, digest("1"), digest("2"), Disposition.DERIVED),
    Change(
        graph_address("legacy"), Action.DELETE, digest("3"), None, Disposition.BLOCKED, reason=Reason.APPROVAL_REQUIRED
    ),
    Change(policy_address("readers"), Action.UPDATE, digest("4"), digest("4"), binding_change=True),
    Change(query_address("knowledge", "find_experts"), Action.CREATE, None, digest("5")),
    Change(query_address("knowledge", "old"), Action.DELETE, digest("5"), None),
    Change(
        schema_address("knowledge"),
        Action.UPDATE,
        digest("6"),
        digest("7"),
        migration=MigrationPreview(supported=True, steps=STEPS),
    ),
    Change(
        schema_address("legacy"), Action.DELETE, digest("8"), None, Disposition.BLOCKED, reason=Reason.APPROVAL_REQUIRED
    ),
    Change(
        schema_address("social"),
        Action.UPDATE,
        digest("8"),
        digest("9"),
        Disposition.DEFERRED,
        reason=Reason.UNSUPPORTED_KIND,
        migration=MigrationPreview(supported=False, steps=(UNSUPPORTED,)),
    ),
)
EDGES = (
    Dependency(Address("graph.knowledge"), Address("schema.knowledge")),
    Dependency(Address("query.knowledge.find_experts"), Address("schema.knowledge")),
)
GATE = ApprovalRequirement(Address("graph.legacy"), "Deleting a graph destroys its data.", digest("d"))
APPROVAL = Approval(
    approval_id=ULID,
    resource=Address("graph.legacy"),
    operation=Action.DELETE,
    reason="Deleting a graph destroys its data.",
    bound_config_digest=digest("a"),
    bound_before_digest=digest("3"),
    bound_after_digest=None,
    approved_by="bob@example.com",
    created_at="2026-06-11T07:00:00Z",
)
PLAN = Plan(
    config_digest=digest("b"),
    digest="9f0e1d2c" * 8,
    changes=CHANGES,
    impact=(
        Impact(Address("graph.legacy"), ()),
        Impact(Address("schema.knowledge"), (Address("graph.knowledge"), Address("query.knowledge.find_experts"))),
    ),
    approvals_required=(GATE,),
    graph=ExecutionGraph(),
)
RULES_PLAN = Plan(
    config_digest=digest("a"),
    digest=digest("e"),
    changes=(Change(Address("trust.knowledge"), Action.UPDATE, digest("1"), digest("2"), Disposition.BLOCKED),),
    impact=(),
    approvals_required=(
        ApprovalRequirement(
            Address("trust.knowledge"),
            "It changes who may approve.",
            digest("d"),
            needed=2,
            may=("ada", "ben"),
            gates=(GateName.LOSSY, GateName.IRREVERSIBLE),
            environment="production",
        ),
    ),
    graph=ExecutionGraph(),
    rule_changes=(
        RuleChange(Address("trust.knowledge"), "approver", None, "@all`[x](http://evil)\u202e|", widens=True),
        RuleChange(Address("trust.knowledge"), "people needed", "2", "1", widens=True),
        RuleChange(Address("trust.knowledge"), "account github:1 is", "ada", None, widens=True),
        RuleChange(Address("trust.knowledge"), "revoked key", None, "SHA256:abc", widens=False),
    ),
)
_STAFF = Actors(tuple(f"act-{number:02}" for number in range(11)), others=False, union=("staff",), minus=("editors",))
_KNOWLEDGE = {"scope": "graph.knowledge", "policy": "k", "file": "policies/k.yaml"}
ACCESS = AccessDiff(
    digest("1"),
    digest("2"),
    (
        AccessRow(
            gain=True,
            row_class=AccessClass.PROTECTED,
            action="change",
            branches=("main",),
            other_branches=False,
            except_branches=(),
            queries=(),
            actors=_STAFF,
            rule="editing",
            line=17,
            cause=AccessCause(CauseKind.RULE, "rule: group editors -> staff", "editing", 17),
            **_KNOWLEDGE,
        ),
        AccessRow(
            gain=True,
            row_class=AccessClass.RUN,
            action=RUN,
            branches=(),
            other_branches=True,
            except_branches=("main",),
            queries=("add_person", "find_person", "link", "unlink"),
            actors=Actors(("eve", "kim\u202e"), others=False),
            rule="stored-queries",
            line=9,
            cause=AccessCause(CauseKind.QUERY, "new query"),
            **_KNOWLEDGE,
        ),
        AccessRow(
            gain=False,
            row_class=AccessClass.READ,
            action="read",
            scope="graph.legacy",
            branches=(),
            other_branches=True,
            except_branches=(),
            queries=(),
            actors=Actors(("ada",), others=True, union=("*",)),
            policy="k",
            rule=None,
            file=None,
            line=None,
            cause=AccessCause(CauseKind.BINDING, "policy k bound", "k"),
        ),
    ),
)
STRATEGY_PLAN = Plan(
    digest("a"),
    digest("e"),
    tuple(
        Change(Address(f"strategy.{key}.burst"), Action.CREATE, None, digest("2"), tier=Tier.REVERSIBLE)
        for key in ("odd", "quiet", "reports", "serving")
    ),
    (),
    (),
    ExecutionGraph(),
)
WHAT_IFS = (
    WhatIf(
        "odd",
        'a"b | <b> @admin',
        "prod",
        said="target prod has no compute cluster a",
        code=Code.COMPUTE_CLUSTER_MISSING,
    ),
    WhatIf("quiet", "quiet", "prod", refused=("burst: quiet would cost 8.5 credits per hour, more than its 8",)),
    WhatIf("reports", "reports", "new", said="its target is not applied as it is declared here"),
    WhatIf(
        "serving",
        "serving",
        "prod",
        (
            WhatIfAction(create_replica("serving", 'x"` | @admin', "800cc"), ("burst: main not hydrated",)),
            WhatIfAction(drop_replica("serving", "old"), ("target_size: main of size 50cc is hydrated",)),
        ),
        before=Usage(168.0, 84.0, 0),
        after=Usage(60.5, 35.125, 900),
        days=7,
        assumed=("no replica crashes",),
    ),
)
ACCESS_PLAN = Plan(
    config_digest=digest("a"),
    digest=digest("e"),
    changes=(
        Change(Address("policy.k"), Action.UPDATE, digest("1"), digest("2"), Disposition.BLOCKED, tier=Tier.REVERSIBLE),
    ),
    impact=(),
    approvals_required=(
        ApprovalRequirement(
            Address("policy.k"),
            "widens access: change on main of knowledge for 11 actors",
            digest("d"),
            tier=Tier.REVERSIBLE,
            gates=(GateName.WIDENING,),
            environment="production",
        ),
    ),
    graph=ExecutionGraph(),
    access=ACCESS,
    widening=frozenset({"control", "protected"}),
)
RULES = ApprovalSubject(
    address=Address("trust.knowledge"),
    plan=RULES_PLAN,
    target=ClusterTarget("repo-1", "knowledge", "production", "refs/heads/main", "clusters/knowledge"),
    head=HEAD,
    tree=BASE,
)
RENAMED = {
    "kind": "rename_property",
    "type_kind": "node",
    "type_name": "Person",
    "from": "mail",
    "to": "email",
}
TOUCHED = replace(
    PLAN,
    changes=(
        CHANGES[0],
        replace(CHANGES[5], migration=MigrationPreview(supported=True, steps=(*STEPS, RENAMED))),
    ),
    impact=(
        Impact(
            Address("graph.knowledge"),
            tuple(
                map(Address, ("policy.readers", *(f"query.knowledge.q{n:02}" for n in range(24)), "schema.knowledge"))
            ),
        ),
        Impact(Address("schema.knowledge"), tuple(Address(f"query.knowledge.q{n:02}") for n in range(24))),
    ),
    approvals_required=(),
    schema_impact=(
        SchemaImpact(
            schema=Address("schema.knowledge"),
            queries=(
                tuple(
                    AffectedQuery(
                        Address(f"query.knowledge.q{n:02}"), reads=True, writes=False, change=QueryChange.KEPT
                    )
                    for n in range(3)
                ),
                (
                    AffectedQuery(
                        Address("query.knowledge.`odd`"), reads=True, writes=True, change=QueryChange.REMOVED
                    ),
                    *(
                        AffectedQuery(
                            Address(f"query.knowledge.q{n:02}"), reads=True, writes=False, change=QueryChange.CHANGED
                        )
                        for n in range(22)
                    ),
                ),
                (),
                (),
            ),
            results=(
                ResultChange(Address("query.knowledge.q00"), ("p.nick: String?", "p.age: I32?"), ("p.age: I32?",)),
                ResultChange(Address("query.knowledge.q01"), ("age: I32?",), ("age: I32?", "nick: [String]")),
                ResultChange(Address("query.knowledge.q02"), ("a: I32", "b: I32"), ("b: I32", "a: I32")),
            ),
            policies=(Address("policy.readers"),),
        ),
    ),
)
DROP = {"kind": "drop_property", "type_kind": "node", "type_name": "Note", "property_name": "nick", "mode": "soft"}
MOVES = tuple(
    Change(
        schema_address(name),
        Action.UPDATE,
        digest("6"),
        digest("7"),
        migration=MigrationPreview(True, steps, expanded=expanded),
    )
    for name, steps, expanded in (
        ("drafts", (DROP,), None),
        ("halves", (STEPS[0], DROP), b"node Note {}"),
        ("knowledge", (RENAMED,), None),
        ("social", (RENAMED,), None),
    )
)
RESTORE = Change(
    restore_address("halves"), Action.CREATE, None, digest("1"), Disposition.BLOCKED, Reason.APPROVAL_REQUIRED
)
# What waits for an approval has a class, but no node, and the rest is carried out without it. A migration that is not supported
# has neither.
ATOMIC = replace(
    PLAN,
    changes=(
        CHANGES[0],
        CHANGES[1],
        CHANGES[3],
        RESTORE,
        *MOVES,
        replace(CHANGES[7], address=schema_address("refused")),
    ),
    impact=(),
    graph=ExecutionGraph(
        tuple(
            ExecNode(address, address.kind.value, Action.UPDATE, at, effect=effect)
            for at, (address, effect) in enumerate(
                (
                    (CHANGES[3].address, Effect.STAGE),
                    *zip(
                        (each.address for each in MOVES),
                        (Effect.FINISH, Effect.STAGE, Effect.PIVOT, Effect.PIVOT),
                        strict=True,
                    ),
                )
            )
        )
    ),
)
NO_CHANGE = Plan(digest("b"), digest("e"), (), (), (), ExecutionGraph())

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
            ServedGraph("empty", "/srv/graphs/empty.omni", digest("1")),
            ServedGraph("knowledge", "/srv/graphs/knowledge.omni", digest("7"), ("find_person",), "base"),
        ),
        cluster_policy="all",
    ),
    "ready_not_ok": ReadyOutcome(
        config_dir=".",
        observations=SEEN,
        diagnostics=problems(("policy_scope_conflict", "graph.knowledge", "bound by base, other", None)),
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

USE = ApprovalUse(ULID, "5d" * 20, Address("graph.legacy"), "bob@example.com")
DELETED = EntryChange(Address("graph.legacy"), "delete", digest("3"), None, "applied")
APPLIED_ENTRY = LedgerEntry(
    number=4,
    kind=EntryKind.APPLY,
    operation="apply",
    at="2026-06-11T08:00:00Z",
    actor="bot",
    target=ClusterTarget("repo-1", "knowledge", "production", "refs/heads/main", "clusters/knowledge"),
    previous="6d" * 20,
    source=SourceRevision(HEAD, "2f" * 20),
    changeset=ULID,
    plan_digest=PLAN.digest,
    config_digest=digest("b"),
    state_revision=9,
    policy_digest=digest("f"),
    trust_digest=digest("f"),
    changes=(
        DELETED,
        EntryChange(Address("policy.readers"), "update", digest("4"), digest("4"), "applied", binding_change=True),
        EntryChange(Address("query.knowledge.x"), "create", None, digest("5"), "blocked", "dependency_not_applied"),
    ),
    approvals=(USE,),
    authors=("alice@example.com",),
)
ANNOUNCED_ENTRY = replace(
    APPLIED_ENTRY, number=3, kind=EntryKind.INTENT, previous="6b" * 20, state_revision=8, changes=(DELETED,)
)
ALONE = replace(USE, approval_id=ULID[:-1] + "C", via=Via.BREAK_GLASS)
DEBT = Debt(ALONE.approval_id, ALONE.commit, ALONE.resource, ALONE.principal, "the disk is full")
PAID = DebtSettlement(ALONE.approval_id, ULID[:-1] + "B", "5e" * 20, "carol@example.com")
RECORDS = (
    LogRecord(
        commit="7e" * 20,
        entry=replace(APPLIED_ENTRY, number=6, kind=EntryKind.COUNTERSIGN, changes=(), approvals=(), settled=(PAID,)),
        settlements=(UsedCountersignature(PAID, "good"),),
    ),
    LogRecord(
        commit="7d" * 20,
        entry=replace(APPLIED_ENTRY, number=5, approvals=(ALONE,), debts=(DEBT,)),
        approvals=(UsedApproval(ALONE, "good"), UsedApproval(replace(USE, via=Via.FORGE), "good")),
        owed=(ALONE.approval_id,),
    ),
    LogRecord(
        commit="7c" * 20,
        entry=APPLIED_ENTRY,
        approvals=(UsedApproval(USE, "good"),),
    ),
    LogRecord(
        commit="7f" * 20,
        entry=replace(
            APPLIED_ENTRY,
            number=7,
            changes=(EntryChange(Address("trust.knowledge"), "update", digest("1"), digest("2"), "applied"),),
            approvals=(),
        ),
        rules=RULES_PLAN.rule_changes,
    ),
    LogRecord(commit="6d" * 20, entry=ANNOUNCED_ENTRY, approvals=(UsedApproval(USE, "approval_self"),)),
    LogRecord(
        commit="6b" * 20,
        entry=LedgerEntry(
            number=1,
            kind=EntryKind.IMPORT,
            operation="import",
            at="2026-06-10T08:00:00Z",
            actor=None,
            target=ClusterTarget("repo-1", "knowledge", "production", "refs/heads/main", "clusters/knowledge"),
            previous=None,
            source=None,
            changeset=None,
            plan_digest=None,
            config_digest=None,
            state_revision=1,
            policy_digest=digest("f"),
            trust_digest=digest("f"),
        ),
        approvals=(),
        signature="ledger_signature_invalid",
    ),
)
BAD = AuditReport(
    "knowledge",
    "7c" * 20,
    entries=4,
    verified=3,
    findings=(AuditFinding("7c" * 20, 4, "ledger_change_unapproved", "graph.legacy was deleted without an approval"),),
)
CUT = AuditReport(
    "knowledge", "7c" * 20, 0, 0, (AuditFinding("7c" * 20, 0, "shallow_repository", "the repository is shallow"),)
)
SINCE = AuditReport(
    "knowledge",
    "7c" * 20,
    entries=4,
    verified=4,
    findings=(
        AuditFinding("7c" * 20, 0, "ledger_diverged", "gitops/approvals/knowledge/X names entry 6e, which is not here"),
        AuditFinding("7c" * 20, 0, "ledger_behind", "witness /srv/other.git has a newer head, 6f"),
    ),
    since=2,
)
GOOD = AuditReport(
    "knowledge", "7c" * 20, 4, 4, notes=("entry 2: source commit 1a2b3c4d5e6f is not in this repository",)
)

VERBS["status_branch"] = StatusOutcome(
    config_dir=".",
    observations=SEEN,
    state=STATE,
    in_sync=False,
    entry=RECORDS[0].entry,
    approvers=("ada@example.com", "bob@example.com"),
)


def files() -> dict[str, str]:
    """File name to expected content."""
    result: dict[str, str] = {}
    for name, outcome in VERBS.items():
        result[f"{name}.txt"] = text.to_text(outcome)
        result[f"{name}.json"] = json.to_text(json.envelope(outcome))
    result["log.txt"] = log_text(RECORDS)
    result["log.json"] = json.to_text(log_form(RECORDS))
    for name, report in (("audit_good", GOOD), ("audit_failed", BAD), ("audit_cut", CUT), ("audit_since", SINCE)):
        result[f"{name}.txt"] = audit_text(report)
        result[f"{name}.json"] = json.to_text(audit_form(report))
    return result


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    for stale in DATA.iterdir():
        stale.unlink()
    for file_name, content in files().items():
        (DATA / file_name).write_text(content, "utf-8")
