"""Comments that are kept as files. Run this module to write the files again, then read their diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from plan_cases import APPROVAL, BASE, CHANGES, GATE, HEAD, PLAN, SEEN, ULID, digest, problems
from render_cases import VERBS

from gitops.cluster.apply.drift import DriftOutcome
from gitops.cluster.model.address import Address, graph_address, query_address, schema_address, strategy_address
from gitops.cluster.model.change import Action, Change, Disposition, Effect, GateName, Reason, Seen, Tier
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetState,
    Member,
    Orphan,
    Removal,
    RemovalState,
    Runtime,
    RuntimeState,
)
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, strategy_resources
from gitops.cluster.model.ledger import Debt
from gitops.cluster.model.others import (
    EarlierMerge,
    LaterChange,
    LaterPlan,
    MergedProblem,
    MergesFirst,
)
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome
from gitops.cluster.model.plan import (
    ApprovalRequirement,
    BreakKind,
    ContractBreak,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    NodeOutcome,
    NodeResult,
    Plan,
    ResultChange,
    SchemaImpact,
    TextChange,
)
from gitops.cluster.model.strategy import Burst, StrategyType
from gitops.cluster.plan.drift import DriftItem, DriftKind
from gitops.core.codes import Code
from gitops.core.diagnostics import SourceRef
from gitops.database.graph.port import MigrationPreview
from gitops.render.comment import (
    apply_comment,
    drift_body,
    drift_gone,
    plan_comment,
    plan_document,
    plan_summary,
    refusal_comment,
)
from gitops.render.comment_inputs import (
    ApplyComment,
    ApprovalState,
    CommentSubject,
    DriftReport,
    OtherRequest,
    PlanComment,
    RefusalComment,
    RefusedCommand,
)
from gitops.render.plan_views import PlanView
from tests.support.changeset_samples import first_record

DATA = Path(__file__).parents[2] / "data" / "comments"

SUBJECT = CommentSubject(cluster="knowledge", environment="production", request=7, head=HEAD, base=BASE)
MISSING = ApprovalState(
    resource="graph.legacy",
    satisfied=False,
    refused=(
        ("approval_self", "alice@example.com wrote commit 1a2b3c4d of this change"),
        ("approval_stale", "the cluster folder changed: `a.gq`"),
    ),
    step=4,
    command=f"gitops approve graph.legacy --request 7 --plan {PLAN.digest}",
)
GIVEN = ApprovalState(resource="graph.legacy", satisfied=True, by=("bob@example.com",))
GRAPH = ExecutionGraph(
    (
        ExecNode("graph.legacy", "graph", Action.DELETE, 0),
        ExecNode("schema.knowledge", "schema", Action.UPDATE, 1),
        ExecNode("barrier.late", "barrier", Action.UPDATE, 2),
        ExecNode("query.knowledge.find_experts", "query", Action.CREATE, 3),
    ),
    (
        ExecEdge("schema.knowledge", "barrier.late", "barrier"),
        ExecEdge("schema.knowledge", "query.knowledge.find_experts", "query_uses_schema", "by way of `x` > y"),
    ),
)
NEW_SCHEMA = b"node Person {\n    name: String @key\n    age: I32?\n}\n"
TEXTS = (
    TextChange((Address("schema.knowledge"),), NEW_SCHEMA.replace(b"age: I32", b"nick: String"), NEW_SCHEMA),
    TextChange((Address("policy.readers"),), b"# ```\nallow: [read]\n", b"# ```\n/close\nallow: [read, change]\n"),
    TextChange(
        (Address("query.knowledge.find_experts"),),
        None,
        b"query find_experts() { match { $p: Person } return { $p.name } }\n",
    ),
)
DEBT = Debt(ULID, "5d" * 20, Address("graph.legacy"), "carol@example.com", "the disk of @production was full")
MOVED = problems(("request_head_moved", "", "the head is 2b3c4d5e now", None))
OTHERS = (
    OtherRequest(
        9, "Drop [legacy](http://evil.example) now, closes #3", "https://forge.example/a/b/pull/9", ("graph.legacy",)
    ),
    OtherRequest(12, "one\n/close", "javascript:alert(1)", tuple(f"query.knowledge.q{n}" for n in range(25))),
)
BROKEN = tuple(
    MergedProblem(
        Code.QUERY_TYPECHECK_ERROR, f"graphs.knowledge.queries.q{n}", "node type `Person` has no property `nick`"
    )
    for n in range(6)
)
CLASH = OtherRequest(
    14, "drop nick", "https://forge.example/a/b/pull/14", ("schema.knowledge",), ("cluster/`knowledge`.pg",), BROKEN
)
LATER = LaterPlan(
    (
        EarlierMerge(9, MergesFirst.QUEUED),
        EarlierMerge(14, MergesFirst.APPROVED),
        EarlierMerge(77, MergesFirst.APPROVED),
    ),
    left_out=(14,),
    verdict="+0 ~1 −0",
    changes=(LaterChange(Address("query.knowledge.find_experts"), Action.UPDATE),),
)
REFUSED = RefusedCommand("/gitops approve graph.legacy 00ff", "command_refused", "the digest is that of an older plan")
JOB, KEPT = "https://ci.example/runs/5", "refs/gitops/plans/knowledge/7"
SWEPT = "found by the sweep: no run applied this merge"
DRIFT = DriftReport(
    cluster="knowledge",
    environment="production",
    at="2026-06-11T08:00:00Z",
    outcome=DriftOutcome(
        config_dir=".",
        observations=SEEN,
        items=(
            DriftItem(
                Address("query.knowledge.a"), DriftKind.CATALOG, digest("2"), detail="the blob is not what it was"
            ),
            DriftItem(
                Address("schema.knowledge"),
                DriftKind.SCHEMA,
                digest("6"),
                digest("7"),
                "Person.nick is there",
                "kb.pg",
                b"node T {}",
            ),
            DriftItem(Address("graph.legacy"), DriftKind.VANISHED, digest("3"), detail="the graph root does not exist"),
        ),
        diagnostics=problems(("cluster_recovery_pending", "graph.a", "an apply was interrupted", None)),
    ),
    adopt=("gitops bot drift --cluster knowledge",),
    reapply=("gitops refresh --cluster knowledge", "gitops apply --cluster knowledge"),
    recreate=(
        "gitops refresh --cluster knowledge",
        "gitops approve graph.legacy --cluster knowledge",
        "gitops apply --cluster knowledge",
    ),
)


def drifted(*numbers: int) -> DriftReport:
    """The report of some of the items alone, of which everything could be looked at."""
    items = tuple(DRIFT.outcome.items[number] for number in numbers)
    return replace(DRIFT, outcome=replace(DRIFT.outcome, items=items, diagnostics=()))


OWN = {
    "plan.md.j2": '{% import "builtin/macros.md.j2" as m %}\n## Ours: {{ verdict|text }}\n'
    '{{ section("Changes", 1) }}\n{{ m.changes(rows) }}\n',
    "macros.md.j2": "{% macro changes(rows) %}{% endmacro %}\n",
}


def planned(name: str) -> PlanOutcome:
    """An outcome of `plan` by the name of its case."""
    outcome = VERBS[name]
    assert isinstance(outcome, PlanOutcome)
    return outcome


def applied(name: str) -> ApplyOutcome:
    """An outcome of `apply` by the name of its case."""
    outcome = VERBS[name]
    assert isinstance(outcome, ApplyOutcome)
    return outcome


def approved(outcome: ApplyOutcome) -> ApplyOutcome:
    """The same apply with the approvals that its changes waited for."""
    waited = Reason.APPROVAL_REQUIRED
    changes = (
        replace(c, disposition=Disposition.APPLIED, reason=None) if c.reason is waited else c for c in outcome.changes
    )
    return replace(outcome, changes=tuple(changes))


def everything() -> PlanComment:
    """A plan comment with every part."""
    outcome = planned("plan_ok")
    assert outcome.plan is not None
    return PlanComment(
        subject=SUBJECT,
        outcome=replace(outcome, plan=replace(outcome.plan, graph=GRAPH), texts=TEXTS),
        approvals=(replace(MISSING, via_forge=True),),
        others=(*OTHERS, CLASH),
        later=LATER,
        voids=OTHERS,
        explained=(
            "graph.legacy",
            "query.knowledge.find_experts",
            "schema.knowledge",
            "schema.nothing",
            "graph.legacy",
        ),
        refusals=(REFUSED,),
        debts=(DEBT,),
        since=("1 change more: query.knowledge.find_experts",),
        run=JOB,
        ref=KEPT,
        forge_commands=True,
        several=True,
    )


def _plans() -> dict[str, str]:
    change = replace(CHANGES[1], disposition=Disposition.APPLIED, reason=None)
    need = ApprovalRequirement(Address("graph.legacy"), GATE.reason, GATE.change_digest, (APPROVAL,))
    approved = Plan(PLAN.config_digest, PLAN.digest, (change,), (), (need,), ExecutionGraph())
    given = PlanOutcome(config_dir=".", observations=SEEN, plan=approved)
    plain = PlanComment(subject=SUBJECT, outcome=planned("plan_ok"), approvals=(MISSING,))
    full = everything()
    return {
        "plan": plan_comment(plain),
        "plan_everything": plan_comment(full),
        "plan_summary": plan_summary(full),
        "plan_touched": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_touched"))),
        "plan_access": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_access"))),
        "plan_what_if": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_what_if"))),
        "plan_rules": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_rules"))),
        "plan_approved": plan_comment(
            PlanComment(subject=SUBJECT, outcome=given, approvals=(GIVEN,), explained=("graph.legacy",))
        ),
        "plan_no_changes": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_no_changes"))),
        "plan_failed": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_not_ok"))),
        "plan_own_template": plan_comment(replace(plain, templates=OWN)),
        "plan_broken_template": plan_comment(replace(plain, templates={"plan.md.j2": "x\n\n{{ verdict }}\n"})),
    }


def _small(*changes: Change, **facts: object) -> PlanComment:
    """The comment on a plan of a few changes."""
    digests = PLAN.config_digest, PLAN.digest
    graph = ExecutionGraph(tuple(ExecNode(c.address, c.address.kind, c.action, n) for n, c in enumerate(changes)))
    plan = replace(Plan(*digests, changes, (), (), graph), **facts)
    return PlanComment(subject=SUBJECT, outcome=PlanOutcome(config_dir=".", observations=SEEN, plan=plan))


def _examples() -> dict[str, str]:
    """What people see most, and the largest."""
    find, experts = query_address("knowledge", "find_person"), query_address("knowledge", "find_experts")
    legacy, schema = graph_address("legacy"), schema_address("knowledge")
    query = Change(experts, Action.CREATE, None, digest("5"))
    derived = Change(
        graph_address("knowledge"), Action.UPDATE, digest("2"), digest("3"), disposition=Disposition.DERIVED
    )
    drop = {
        "kind": "drop_property",
        "type_kind": "node",
        "type_name": "Person",
        "property_name": "nick",
        "mode": "soft",
    }
    migrated = Change(schema, Action.UPDATE, digest("6"), digest("7"), migration=MigrationPreview(True, (drop,)))
    gone = Change(
        legacy,
        Action.DELETE,
        digest("3"),
        None,
        disposition=Disposition.BLOCKED,
        reason=Reason.APPROVAL_REQUIRED,
        seen=Seen("01JZ0000000000000000000FFF", 1204, 412),
        tier=Tier.IRREVERSIBLE,
    )
    reason, lossy = "deleting a graph destroys its data", (GateName.LOSSY, GateName.IRREVERSIBLE)
    need = ApprovalRequirement(
        legacy, reason, digest("d"), may=("bob@example.com",), gates=lossy, environment="production"
    )
    lost = ContractBreak(find, BreakKind.COLUMN_DROPPED, "p.nick", "String?")
    impact = SchemaImpact(schema, ((),), (ResultChange(find, ("p.nick: String?",), ()),), ())
    breaking = _small(
        migrated,
        Change(find, Action.UPDATE, digest("1"), digest("4")),
        derived,
        breaks=(lost,),
        schema_impact=(impact,),
    )
    gated = _small(gone, approvals_required=(need,))
    alone = replace(need, approvals=(APPROVAL,), emergency=True)
    given = replace(gone, disposition=Disposition.APPLIED, reason=None)
    burst = strategy_address("serving", StrategyType.BURST)
    rules = [
        ComputeRules("serving", ComputeTarget("prod", "MZ_URL"), "serving", (Burst("800cc", n),)) for n in (60, 30)
    ]
    slower, faster = (strategy_resources([each])[burst] for each in rules)
    ruled = _small(Change(burst, Action.UPDATE, slower.digest, faster.digest))
    rule_texts = (TextChange((burst,), slower.content, faster.content),)
    many = [
        Change(query_address(f"g{n % 40}", f"q{n:03}"), Action.UPDATE, digest("1"), digest("2")) for n in range(612)
    ]
    many += [Change(query_address(f"h{n % 12}", f"q{n:03}"), Action.CREATE, None, digest("2")) for n in range(355)]
    broken = tuple(replace(lost, query=change.address) for change in many[:31])
    return {
        "example_one_query": plan_comment(_small(query, derived)),
        "example_breaking_schema": plan_comment(replace(breaking, outcome=replace(breaking.outcome, texts=TEXTS[:1]))),
        "example_gated_delete": plan_comment(replace(gated, approvals=(replace(MISSING, refused=()),))),
        "example_emergency": plan_comment(_small(given, approvals_required=(alone,))),
        "example_invalid": plan_comment(PlanComment(subject=SUBJECT, outcome=INVALID)),
        "example_strategy": plan_comment(replace(ruled, outcome=replace(ruled.outcome, texts=rule_texts))),
        "example_projection_pending": apply_comment(ApplyComment(subject=SUBJECT, outcome=PROJECTING)),
        "example_applied": apply_comment(
            ApplyComment(subject=SUBJECT, outcome=replace(LANDED, changes=(query, derived)))
        ),
        "example_many": plan_comment(_small(*many, gone, breaks=broken, approvals_required=(need,))),
        "example_blocked_apply": apply_comment(
            ApplyComment(
                subject=SUBJECT, outcome=BLOCKED, approvals=(replace(MISSING, refused=()),), forge_commands=True
            )
        ),
    }


INVALID = PlanOutcome(
    config_dir=".",
    observations=SEEN,
    diagnostics=problems(
        (
            "query_typecheck_error",
            "query.knowledge.find_person",
            "Person has no property nick",
            SourceRef("a.gq", 4, 9),
        ),
    ),
)
PROJECTING = replace(
    applied("apply_ok"),
    changes=(Change(strategy_address("serving", StrategyType.BURST), Action.UPDATE, digest("1"), digest("2")),),
    diagnostics=problems(
        (
            "projection_pending",
            "compute.targets.prod",
            "not on target prod yet: strategy.serving.burst; the target does not respond: connection refused",
            None,
        ),
    ),
)
LANDED = replace(applied("apply_ok"), converged=True, diagnostics=(), results=())
WAITING = [query_address("legacy", f"q{n:03}") for n in range(247)]
BLOCKED = replace(
    applied("apply_ok"),
    changes=tuple(
        Change(a, Action.DELETE, digest("1"), None, disposition=Disposition.BLOCKED, reason=Reason.APPROVAL_REQUIRED)
        for a in (graph_address("legacy"), *WAITING)
    ),
    diagnostics=problems(
        *(("apply_dependency_blocked", a, "approval_required: waits for an approval", None) for a in WAITING)
    ),
    results=tuple(NodeResult(a, NodeOutcome.BLOCKED, blocked_by="graph.legacy") for a in WAITING),
)
"""An apply that waits for one approval, with everything that depends on it."""


def _changeset(state: ChangesetState, *members: tuple[str, RuntimeState], part: str = "1/1") -> Changeset:
    made = (
        Member(Address(name), Action.CREATE, Effect.STAGE, None, digest("4"), runtime=Runtime(runtime))
        for name, runtime in members
    )
    return replace(first_record(int(part[0]), part=part), members=tuple(made), state=state)


def _ended(*records: Changeset, problem: tuple[str, str, str], **parts: object) -> str:
    """The comment on an apply whose changesets ended like this, with the problem that was met."""
    found = [(*problem, None)]
    for record in records:
        if record.state is ChangesetState.FAILED:
            words = f"nothing of it is applied: {problem[1]}: {problem[0]}: {problem[2]}"
            found.append(("changeset_rolled_back", record.key, words, None))
        found += [("changeset_orphaned", each.address, each.reason, None) for each in record.orphaned]
    left = {"disposition": Disposition.BLOCKED, "reason": Reason.CHANGESET_FAILED}
    outcome = ApplyOutcome(
        config_dir=".",
        observations=SEEN,
        changes=tuple(Change(m.address, m.action, None, m.after, **left) for r in records for m in r.members),
        changesets=records,
        counted=any(record.state is not ChangesetState.FAILED for record in records),
        results=(
            NodeResult(problem[1], NodeOutcome.FAILED),
            NodeResult("barrier.prepared", NodeOutcome.BLOCKED, blocked_by=problem[1]),
        ),
        diagnostics=problems(*found),
    )
    return apply_comment(
        ApplyComment(subject=SUBJECT, outcome=replace(outcome, **parts), forge_commands="plan" in parts)
    )


def _atomic() -> dict[str, str]:
    """Comments on merges that land whole or not at all."""
    refused = ("graph_create_failed", "graph.beta", "a graph with a different schema already exists there")
    failed, ready, back = RuntimeState.FAILED, RuntimeState.CANONICAL, RuntimeState.COMPENSATED
    rolled_back = replace(
        _changeset(
            ChangesetState.FAILED, ("graph.alpha", back), ("graph.beta", failed), ("graph.gamma", RuntimeState.READY)
        ),
        orphaned=(Orphan(Address("graph.gamma"), "it holds 3 rows"),),
    )
    first = _changeset(ChangesetState.FINALIZED, ("schema.alpha", ready), part="1/2")
    second = _changeset(ChangesetState.FAILED, ("schema.beta", failed), part="2/2")
    gone = Removal(Address("graph.legacy"), digest("3"), RemovalState.DEPROVISIONING)
    unfinished = replace(
        _changeset(ChangesetState.DRAINED, ("query.knowledge.find_experts", ready)),
        removals=(gone,),
        needs_attention=True,
    )
    kept = (Change(Address("query.knowledge.find_experts"), Action.CREATE, None, digest("4")),)
    schema, legacy, find = (
        schema_address("knowledge"),
        graph_address("legacy"),
        query_address("knowledge", "find_experts"),
    )
    person = {"type_kind": "node", "type_name": "Person"}
    renamed: dict[str, object] = {"kind": "rename_property", **person, "from": "nick", "to": "alias"}
    migration = MigrationPreview(True, (renamed,))
    moved = Change(schema, Action.UPDATE, digest("6"), digest("7"), migration=migration)
    dropped = Change(legacy, Action.DELETE, digest("3"), None)
    added = Change(find, Action.CREATE, None, digest("4"))
    effects = {schema: Effect.PIVOT, legacy: Effect.FINISH, find: Effect.STAGE}
    nodes = tuple(
        ExecNode(each.address, each.address.kind.value, each.action, at, effect=effects[each.address])
        for at, each in enumerate((moved, added, dropped))
    )
    planned = _small(moved, added, dropped, graph=ExecutionGraph(nodes, (ExecEdge(schema, find, "schema_query"),)))
    return {
        "plan_atomic": plan_comment(
            replace(planned, view=planned.outcome.plan and PlanView(planned.outcome.plan, atomic=True))
        ),
        "apply_rolled_back": _ended(rolled_back, problem=refused, plan=PLAN),
        "apply_part_failed": _ended(first, second, problem=("schema_apply_failed", "schema.beta", "the disk is full")),
        "apply_unfinished": _ended(
            unfinished,
            problem=("graph_delete_failed", "graph.legacy", "the bucket cannot be reached"),
            changes=kept,
            state_written=True,
        ),
        "apply_interrupted": _ended(
            _changeset(ChangesetState.PREPARED, ("schema.alpha", ready)),
            problem=("state_write_error", "barrier.committed", "the remote cannot be reached"),
        ),
    }


def comments() -> dict[str, str]:
    """File name to expected content."""
    failed = applied("apply_not_ok")
    told = {
        **_plans(),
        **_examples(),
        **_atomic(),
        "apply": apply_comment(
            ApplyComment(subject=SUBJECT, outcome=approved(applied("apply_ok")), approvals=(GIVEN,))
        ),
        "apply_waits": apply_comment(
            ApplyComment(subject=SUBJECT, outcome=applied("apply_ok"), approvals=(replace(MISSING, may=("bob",)),))
        ),
        "apply_failed": apply_comment(ApplyComment(subject=SUBJECT, outcome=failed)),
        "apply_everything": apply_comment(
            ApplyComment(
                subject=SUBJECT,
                outcome=replace(
                    approved(failed),
                    entry_id="7c" * 20,
                    results=(NodeResult("a|b", NodeOutcome.INDETERMINATE), *failed.results),
                ),
                approvals=(GIVEN,),
                debts=(DEBT,),
                refusals=(REFUSED,),
                notes=(SWEPT,),
                deployment="https://forge.example/a/b/deployments/3",
                run="https://ci.example/runs/6",
                forge_commands=True,
            )
        ),
        "refusal": refusal_comment(RefusalComment(subject=SUBJECT, command="apply", diagnostics=MOVED)),
        "refusal_unlock": refusal_comment(
            RefusalComment(
                subject=SUBJECT,
                command="apply",
                diagnostics=MOVED,
                unlock="/gitops unlock 01JZ0000000000000000000001",
                forge_commands=True,
            )
        ),
        "refusal_everything": refusal_comment(
            RefusalComment(
                subject=replace(SUBJECT, request=0),
                command="apply",
                diagnostics=MOVED,
                refusals=(REFUSED,),
                notes=(SWEPT,),
                run="https://ci.example/runs/6",
                forge_commands=True,
            )
        ),
        "drift": drift_body(DRIFT),
        "drift_proposed": drift_body(replace(drifted(1), proposal="https://forge.example/a/b/pull/31")),
        "drift_stuck": drift_body(replace(drifted(2), adopt=())),
        "drift_gone": drift_gone(DRIFT),
    }
    files = {f"{name}.md": body for name, body in told.items()}
    return {**files, "plan.json": plan_document(everything().outcome).decode()}


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    for stale in DATA.iterdir():
        stale.unlink()
    for file_name, content in comments().items():
        (DATA / file_name).write_text(content, "utf-8")
