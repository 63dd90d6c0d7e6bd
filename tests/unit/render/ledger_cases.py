"""Entries of a ledger and reports of audits, as the kept renderings show them."""

from __future__ import annotations

from dataclasses import replace

from plan_cases import HEAD, PLAN, RULES_PLAN, ULID, digest

from gitops.cluster.audit.report import AuditFinding, AuditReport, LogRecord, UsedApproval, UsedCountersignature
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ClusterTarget, Via
from gitops.cluster.model.ledger import (
    ApprovalUse,
    Debt,
    DebtSettlement,
    EntryChange,
    EntryKind,
    LedgerEntry,
    SourceRevision,
)

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
