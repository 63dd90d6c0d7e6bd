"""Plans and what goes with them, as the kept renderings show them."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.model.access import RUN, AccessCause, AccessClass, AccessDiff, AccessRow, Actors, CauseKind
from gitops.cluster.model.address import (
    Address,
    graph_address,
    policy_address,
    query_address,
    restore_address,
    schema_address,
)
from gitops.cluster.model.approval import Approval, ClusterTarget
from gitops.cluster.model.change import Action, Change, Disposition, Effect, GateName, Reason, Tier
from gitops.cluster.model.compute import Usage, WhatIf, WhatIfAction
from gitops.cluster.model.ledger import (
    LockInfo,
    LockObservation,
)
from gitops.cluster.model.outcome import (
    ApprovalSubject,
    StateObservations,
)
from gitops.cluster.model.plan import (
    AffectedQuery,
    ApprovalRequirement,
    ExecNode,
    ExecutionGraph,
    Impact,
    Plan,
    QueryChange,
    ResultChange,
    SchemaImpact,
)
from gitops.cluster.model.resource import Dependency
from gitops.cluster.model.trust import RuleChange
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.database.graph.port import MigrationPreview

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
