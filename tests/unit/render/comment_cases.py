"""Comments that are kept as files. Run this module to write the files anew, then read their diff."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from render_cases import APPROVAL, BASE, CHANGES, GATE, HEAD, PLAN, SEEN, ULID, VERBS, digest, problems

from gitops.apply.drift import DriftItem, DriftKind, DriftOutcome
from gitops.model.address import Address
from gitops.model.change import Action, Disposition
from gitops.model.ledger import Debt
from gitops.model.outcome import ApplyOutcome, PlanOutcome
from gitops.model.plan import (
    ApprovalRequirement,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    NodeOutcome,
    NodeResult,
    Plan,
    TextChange,
)
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

DATA = Path(__file__).parents[2] / "data" / "comments"

SUBJECT = CommentSubject(cluster="knowledge", environment="production", request=7, head=HEAD, base=BASE)
MISSING = ApprovalState(
    resource="graph.legacy",
    satisfied=False,
    refused=(
        ("approval_self", "alice@example.com wrote commit 1a2b3c4d of this change"),
        ("approval_stale", "the cluster folder changed: `a.gq`"),
    ),
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


def everything() -> PlanComment:
    """A plan comment with every part."""
    outcome = planned("plan_ok")
    assert outcome.plan is not None
    return PlanComment(
        subject=SUBJECT,
        outcome=replace(outcome, plan=replace(outcome.plan, graph=GRAPH), texts=TEXTS),
        approvals=(replace(MISSING, via_forge=True),),
        others=OTHERS,
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
        "plan_rules": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_rules"))),
        "plan_approved": plan_comment(
            PlanComment(subject=SUBJECT, outcome=given, approvals=(GIVEN,), explained=("graph.legacy",))
        ),
        "plan_no_changes": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_no_changes"))),
        "plan_failed": plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_not_ok"))),
        "plan_own_template": plan_comment(replace(plain, templates=OWN)),
        "plan_broken_template": plan_comment(replace(plain, templates={"plan.md.j2": "x\n\n{{ verdict }}\n"})),
    }


def comments() -> dict[str, str]:
    """File name to expected content."""
    failed = applied("apply_not_ok")
    told = {
        **_plans(),
        "apply": apply_comment(ApplyComment(subject=SUBJECT, outcome=applied("apply_ok"), approvals=(GIVEN,))),
        "apply_waits": apply_comment(
            ApplyComment(subject=SUBJECT, outcome=applied("apply_ok"), approvals=(replace(MISSING, may=("bob",)),))
        ),
        "apply_failed": apply_comment(ApplyComment(subject=SUBJECT, outcome=failed)),
        "apply_everything": apply_comment(
            ApplyComment(
                subject=SUBJECT,
                outcome=replace(
                    failed, entry_id="7c" * 20, results=(NodeResult("a|b", NodeOutcome.UNKNOWN), *failed.results)
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
