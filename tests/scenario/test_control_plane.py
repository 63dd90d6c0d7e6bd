"""Stories of the control plane: plan, apply of the catalog, its execution graph, guards, and whether plans land."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.address import Address, policy_address, query_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.ledger import AppliedResource, IntentKind, LedgerState
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, NodeOutcome, NodeResult, RunEvent
from gitops.cluster.model.resource import Dependency, graph_composite
from gitops.cluster.plan.classes import atomic_graph
from gitops.cluster.plan.graph import build_graph
from gitops.cluster.plan.layers import cycles, layers
from gitops.core.canonical import digest
from gitops.core.errors import BugError
from tests.scenario.test_recovery import OTHER, plant_intent
from tests.support.clock import FixedClock
from tests.support.cluster import (
    ALL,
    GRAPH,
    OTHER_QUERY,
    POLICY,
    QUERY,
    QUERY_ADDRESS,
    RETYPED,
    SCHEMA,
    SCHEMA_ADDRESS,
    START,
    WIDER,
    Cluster,
    codes,
    found,
    gates,
    remove_graph,
    rulings,
)
from tests.support.faults import DoAt, FailAt


def blob(cluster: Cluster, kind: str, text: str) -> bytes | None:
    place, suffix = ("query/knowledge/find_person", "gq") if kind == "query" else ("policy/base", "yaml")
    return cluster.stored(f"__cluster/resources/{place}/{digest(text.encode())}.{suffix}")


# Plan.


def test_plan_without_a_ledger_is_all_creates_and_leaves_nothing_behind(cluster):
    outcome = cluster.plan()
    assert outcome.ok
    assert rulings(outcome.plan.changes) == dict.fromkeys(sorted(ALL), "create applied")
    assert outcome.observations.acquired_lock_id is not None
    assert not cluster.locked
    assert cluster.files() == []


def test_plan_lists_create_delete_and_update_by_address(cluster):
    cluster.put_state(
        LedgerState(
            resources={
                Address(SCHEMA_ADDRESS): AppliedResource("0" * 64),
                Address(GRAPH): AppliedResource("1" * 64),
                Address("policy.old"): AppliedResource("2" * 64, ("cluster",)),
            }
        )
    )
    outcome = cluster.plan()
    assert [(c.address, c.action.value) for c in outcome.plan.changes] == [
        (GRAPH, "update"),
        ("policy.base", "create"),
        ("policy.old", "delete"),
        (QUERY_ADDRESS, "create"),
        (SCHEMA_ADDRESS, "update"),
    ]


def test_plan_reads_a_ledger_without_optional_sections(cluster):
    cluster.plant(STATE, b'{\n  "version": 1,\n  "applied_revision": { "resources": {} }\n}\n')
    seen = cluster.plan().observations
    assert (seen.state_found, seen.state_revision, seen.resource_count) == (True, 0, 0)
    assert seen.state_cas == "sha256:27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"


def test_plan_reports_revision_and_the_token_of_the_exact_bytes(cluster):
    cluster.put_state(LedgerState(revision=7))
    seen = cluster.plan().observations
    assert seen.state_revision == 7
    assert seen.state_cas == "sha256:" + digest(cluster.state_bytes)
    assert not seen.held.held
    assert seen.acquired_lock_id is not None


def test_a_plan_reads_while_another_run_holds_the_lock(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    before, lock = cluster.state_bytes, cluster.hold_lock()
    outcome = cluster.plan()
    assert rulings(outcome.plan.changes)[SCHEMA_ADDRESS] == "update applied"
    assert found(outcome, "state_lock_held").severity == "warning"
    assert outcome.observations.held.info.operation == "apply"
    assert (cluster.stored(LOCK), cluster.state_bytes) == (lock, before)


@pytest.mark.parametrize("verb", ["apply", "refresh", "import_", "approve"])
def test_a_held_lock_stops_the_verb_and_names_the_way_out(cluster, verb):
    cluster.converge()
    before = cluster.state_bytes
    lock = cluster.hold_lock()
    outcome = cluster.approve(GRAPH) if verb == "approve" else getattr(cluster, verb)()
    place = f" --config {cluster.folder}"
    assert codes(outcome) == ["state_lock_held"]
    assert found(outcome, "state_lock_held").message == (
        "the ledger is locked by apply since 2026-06-11T07:59:00Z, for 60 s (process 4711); "
        f"if that process has ended: gitops force-unlock 01JZ0000000000000000000CCC{place}"
    )
    if verb != "approve":
        assert outcome.observations.held.info.operation == "apply"
        assert outcome.observations.lock_age_seconds == 60
        assert outcome.observations.acquired_lock_id is None
        assert not getattr(outcome, "changes", ())
        assert getattr(outcome, "plan", None) is None
    assert cluster.stored(LOCK) == lock
    assert cluster.state_bytes == before


def test_a_lock_switched_off_is_a_warning_and_no_lock_file_ever(cluster):
    cluster.options["state"] = {"lock": False}
    cluster.save()
    cluster.put_state(LedgerState(revision=1))
    seen = []
    outcome = cluster.apply(faults=DoAt("cluster_apply.before_state_write", lambda: seen.append(cluster.locked)))
    assert outcome.ok
    assert outcome.converged
    assert codes(outcome) == ["state_lock_disabled"]
    assert seen == [False]
    assert outcome.observations.acquired_lock_id is None


def test_plan_previews_a_schema_update_on_the_live_graph(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    change = cluster.plan().plan.change(SCHEMA_ADDRESS)
    assert change.migration.supported
    assert [s["kind"] for s in change.migration.steps] == ["add_property"]


def test_plan_shows_a_migration_that_cannot_be_done(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RETYPED)
    outcome = cluster.plan()
    assert outcome.ok
    migration = outcome.plan.change(SCHEMA_ADDRESS).migration
    assert not migration.supported
    assert "unsupported_change" in [s["kind"] for s in migration.steps]


def test_plan_of_a_schema_update_without_a_live_graph_warns_and_stays_ok(cluster):
    cluster.seed()
    cluster.write("knowledge.pg", WIDER)
    outcome = cluster.plan()
    assert outcome.ok
    assert found(outcome, "schema_preview_unavailable").path == SCHEMA_ADDRESS
    assert outcome.plan.change(SCHEMA_ADDRESS).migration is None


def test_plan_opens_no_graph_unless_a_schema_is_updated(cluster):
    cluster.converge()
    cluster.write("people.gq", OTHER_QUERY)
    cluster.twin.calls.clear()
    assert cluster.plan().ok
    assert set(cluster.twin.calls) == {"exists"}


def test_plan_of_a_removed_graph_has_one_gate_for_the_subtree(cluster):
    cluster.converge()
    remove_graph(cluster)
    outcome = cluster.plan()
    assert gates(outcome) == {GRAPH: False}
    assert rulings(outcome.plan.changes)[GRAPH] == "delete blocked:approval_required"


def test_plan_of_edited_bindings_is_an_update_of_equal_digests(cluster):
    cluster.converge()
    cluster.policies["base"] = ["knowledge", "cluster"]
    cluster.save()
    (change,) = cluster.plan().plan.changes
    assert (change.address, change.action.value, change.binding_change) == ("policy.base", "update", True)
    assert change.before == change.after


def test_plan_warns_of_a_sidecar_and_leaves_it_alone(cluster):
    cluster.converge()
    key = "__cluster/recoveries/01JZ0000000000000000000DDD.json"
    cluster.plant(key, b"{}\n")
    outcome = cluster.plan()
    assert outcome.ok
    assert found(outcome, "cluster_recovery_pending").path == key
    assert cluster.stored(key) == b"{}\n"


# Apply of the catalog.


def test_apply_without_a_ledger_asks_for_an_import(cluster):
    outcome = cluster.apply()
    assert codes(outcome) == ["state_missing"]
    assert "import" in found(outcome, "state_missing").message
    assert cluster.files() == []


def test_apply_on_a_seeded_ledger_publishes_query_and_policy(cluster):
    cluster.seed()
    outcome = cluster.apply()
    assert outcome.ok
    assert (outcome.applied_count, outcome.deferred_count, outcome.converged) == (2, 0, True)
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "policy", POLICY) == POLICY.encode()
    state = cluster.state
    assert state.revision == 2
    assert state.config_digest == cluster.desired().config_digest
    assert state.resources[GRAPH].digest == graph_composite(
        "knowledge", digest(SCHEMA.encode()), {"find_person": digest(QUERY.encode())}
    )
    assert state.resources["policy.base"].applies_to == ("graph.knowledge",)
    assert state.resources[QUERY_ADDRESS].applies_to is None


def test_apply_of_a_converged_cluster_writes_nothing(cluster):
    cluster.converge()
    before = cluster.state_bytes
    outcome = cluster.apply()
    assert outcome.ok
    assert (outcome.changes, outcome.state_written, outcome.converged) == ((), False, True)
    assert cluster.state_bytes == before


def test_apply_of_an_edited_query_keeps_the_old_blob_and_derives_the_graph(cluster):
    cluster.converge()
    cluster.write("people.gq", OTHER_QUERY)
    outcome = cluster.apply()
    assert rulings(outcome.changes) == {GRAPH: "update derived", QUERY_ADDRESS: "update applied"}
    assert (outcome.applied_count, outcome.deferred_count) == (1, 0)
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "query", OTHER_QUERY) == OTHER_QUERY.encode()
    assert cluster.state.digests() == cluster.desired().digests()


def test_removed_query_and_policy_leave_the_ledger_but_not_the_catalog(cluster):
    cluster.converge()
    cluster.graphs["knowledge"] = {}
    cluster.policies = {}
    cluster.save()
    outcome = cluster.apply()
    assert outcome.converged
    assert set(cluster.state.resources) == {GRAPH, SCHEMA_ADDRESS}
    assert set(cluster.state.statuses) == {GRAPH, SCHEMA_ADDRESS}
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "policy", POLICY) == POLICY.encode()


@pytest.mark.parametrize("verb", ["plan", "apply", "refresh", "import_"])
def test_an_invalid_folder_leaves_no_trace(cluster, verb):
    cluster.write("people.gq", "query find_person(")
    outcome = getattr(cluster, verb)()
    assert not outcome.ok
    assert cluster.files() == []


def test_bindings_that_an_older_ledger_lacks_are_filled_in_once(cluster):
    cluster.converge()
    state = cluster.state
    bare = AppliedResource(state.resources["policy.base"].digest)
    cluster.put_state(replace(state, resources={**state.resources, "policy.base": bare}))
    assert rulings(cluster.plan().plan.changes) == {"policy.base": "update applied"}
    assert cluster.apply().applied_count == 1
    assert cluster.state.resources["policy.base"].applies_to == ("graph.knowledge",)
    assert not cluster.apply().state_written


def test_a_failed_state_write_reports_what_is_on_disk(cluster):
    cluster.seed()
    before = cluster.state_bytes
    outcome = cluster.apply(faults=FailAt("cluster_apply.before_state_write"))
    assert "injected_failpoint" in codes(outcome)
    assert (outcome.state_written, outcome.converged) == (False, False)
    assert outcome.state.statuses == {}
    assert outcome.observations.state_revision == 1
    assert cluster.state_bytes == before
    assert cluster.apply().converged


def test_a_corrupt_blob_is_replaced_and_a_correct_one_reused(cluster):
    cluster.seed()
    for address, text in ((query_address("knowledge", "find_person"), QUERY), (policy_address("base"), POLICY)):
        kind, suffix = ("query/knowledge", "gq") if address.kind == "query" else ("policy", "yaml")
        key = f"__cluster/resources/{kind}/{address.name}/{digest(text.encode())}.{suffix}"
        cluster.plant(key, b"corrupt" if address.kind == "query" else text.encode())
    assert cluster.apply().converged
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "policy", POLICY) == POLICY.encode()


def test_only_the_name_of_the_cluster_changed(cluster):
    cluster.converge()
    cluster.options["metadata"] = {"name": "archive"}
    cluster.save()
    outcome = cluster.apply()
    assert (outcome.changes, outcome.converged, outcome.state_written) == ((), True, True)
    assert cluster.state.config_digest == cluster.desired().config_digest
    assert not cluster.apply().state_written


NAMES = ("knowledge", "notes", "people")
WAITS = "blocked:dependency_not_applied"


@pytest.fixture
def guarded(cluster: Cluster) -> Cluster:
    """Three graphs under one policy, all applied."""
    for name in NAMES:
        declare(cluster, name)
    cluster.policies = {"base": list(NAMES)}
    cluster.save()
    cluster.converge()
    return cluster


def declare(cluster: Cluster, name: str) -> None:
    cluster.graphs.setdefault(name, {})
    cluster.write(f"{name}.pg", SCHEMA)


def withdraw(cluster: Cluster, *names: str) -> None:
    for name in names:
        del cluster.graphs[name]
    cluster.policies = {"base": [name for name in cluster.policies["base"] if name not in names]}
    cluster.save()


def policies(cluster: Cluster) -> dict[str, str | None]:
    """The policy under which each graph is served."""
    outcome = cluster.ready()
    assert codes(outcome) == []
    return {graph.graph_id: graph.policy for graph in outcome.graphs}


def test_what_stays_is_served_while_one_graph_is_gone_and_another_one_waits(guarded):
    withdraw(guarded, "notes", "people")
    assert guarded.approve("graph.notes").ok
    changes = rulings(guarded.apply().changes)
    assert (changes["graph.notes"], changes["policy.base"]) == ("delete applied", f"update {WAITS}")
    assert policies(guarded) == {"knowledge": "base", "people": "base"}
    assert guarded.approve("graph.people").ok
    assert guarded.apply().converged
    assert policies(guarded) == {"knowledge": "base"}


def test_a_new_graph_waits_for_the_policy_that_it_is_bound_to(guarded):
    withdraw(guarded, "people")
    declare(guarded, "later")
    declare(guarded, "free")
    guarded.policies["base"].append("later")
    guarded.save()
    changes = rulings(guarded.apply().changes)
    assert {changes[f"{kind}.later"] for kind in ("graph", "schema")} == {f"create {WAITS}"}
    assert changes["graph.free"] == "create applied"
    assert policies(guarded) == {"knowledge": "base", "notes": "base", "people": "base", "free": None}
    assert guarded.approve("graph.people").ok
    assert guarded.apply().converged
    assert policies(guarded) == {"knowledge": "base", "notes": "base", "later": "base", "free": None}


@pytest.mark.parametrize("scope", ["cluster", "knowledge"])
def test_who_takes_a_scope_waits_with_the_policy_that_still_guards_a_graph(cluster, scope):
    """Two policies of one scope cannot be served."""
    mixed = ["policy_mixed_binding_kinds"] if scope == "cluster" else []
    declare(cluster, "notes")
    cluster.policies = {"base": ["notes", scope]}
    cluster.save()
    cluster.converge()
    del cluster.graphs["notes"]
    declare(cluster, "later")
    cluster.policies = {"next": [scope, "later"]}
    cluster.save()
    changes = rulings(cluster.apply().changes)
    assert changes["policy.base"] == f"delete {WAITS}"
    assert {changes[name] for name in ("policy.next", "graph.later", "schema.later")} == {f"create {WAITS}"}
    served = cluster.ready()
    assert codes(served) == mixed
    assert "base" in (served.cluster_policy, *(graph.policy for graph in served.graphs))
    assert cluster.approve("graph.notes").ok
    assert cluster.apply().converged
    assert codes(cluster.ready()) == mixed


def test_a_line_of_policies_waits_for_its_first(cluster):
    declare(cluster, "notes")
    cluster.policies = {"base": ["notes", "cluster"], "next": ["knowledge"]}
    cluster.save()
    cluster.converge()
    del cluster.graphs["notes"]
    cluster.policies = {"last": ["knowledge"], "next": ["cluster"]}
    cluster.save()
    changes = rulings(cluster.apply().changes)
    assert (changes["policy.next"], changes["policy.last"]) == (f"update {WAITS}", f"create {WAITS}")
    assert codes(cluster.ready()) == ["policy_mixed_binding_kinds"]
    assert cluster.approve("graph.notes").ok
    assert cluster.apply().converged


# Only ever reached by a test that fails.
PATIENCE_S = 30


def change(text: str, action: str) -> Change:
    kind = Action(action)
    before, after = None if kind is Action.CREATE else "a" * 64, None if kind is Action.DELETE else "b" * 64
    return Change(Address(text), kind, before, after)


def needs(*pairs: str) -> tuple[Dependency, ...]:
    return tuple(Dependency(*map(Address, pair.split(" -> "))) for pair in pairs)


def done(node: ExecNode) -> NodeResult:
    return NodeResult(node.id, NodeOutcome.DONE)


def run(graph: ExecutionGraph, execute: Callable[[ExecNode], NodeResult] = done) -> list[RunEvent]:
    """The events of a run with four workers."""
    events: list[RunEvent] = []
    run_graph(graph, execute, clock=FixedClock(START), limits=RunLimits(4), on_event=events.append)
    return events


def started(events: Iterable[RunEvent]) -> list[str]:
    return [event.node for event in events if event.type == "node_started" and event.node is not None]


def planned(outcome: PlanOutcome) -> ExecutionGraph:
    assert codes(outcome) == []
    assert outcome.plan is not None
    return outcome.plan.graph


def together(*names: str) -> Callable[[ExecNode], NodeResult]:
    """Work of which these nodes only finish when all of them are at it."""
    meeting = threading.Barrier(len(names))

    def execute(node: ExecNode) -> NodeResult:
        if node.id in names:
            meeting.wait(PATIENCE_S)
        return done(node)

    return execute


def test_3_a_reference_to_what_is_not_declared_is_refused_and_nothing_runs(cluster):
    cluster.converge()
    state = cluster.state_bytes
    cluster.write("people.gq", QUERY.replace("$p.handle }\n}", "$p.handle, $p.born }\n}"))
    cluster.policies["base"] = ["knowledge", "nowhere"]
    cluster.save()
    problem = found(cluster.apply(), "dangling_graph_reference")
    assert (problem.path, "nowhere" in problem.message) == ("policies.base.applies_to[1]", True)
    assert cluster.state_bytes == state


def test_4_an_address_with_two_changes_is_refused_with_their_number():
    graph, (problem,) = build_graph([change("graph.kb", "create"), change("graph.kb", "delete")], (), ())
    assert graph == ExecutionGraph()
    assert (problem.code, problem.path) == ("duplicate_resource_id", "graph.kb")
    assert "2 changes" in problem.message


def test_5_and_6_a_cycle_is_refused_without_what_is_behind_it_and_nothing_starts():
    changes = [change(f"query.g.{name}", "update") for name in "abcd"]
    links = needs(
        "query.g.a -> query.g.b", "query.g.b -> query.g.a", "query.g.c -> query.g.a", "query.g.d -> query.g.d"
    )
    graph, problems = build_graph(changes, links, ())
    assert graph == ExecutionGraph()
    assert [(p.code, p.message.partition(": ")[2]) for p in problems] == [
        ("dependency_cycle", "query.g.a, query.g.b"),
        ("dependency_cycle", "query.g.d"),
    ]
    nodes = tuple(ExecNode(each.address, "query", each.action, i) for i, each in enumerate(changes))
    forced = ExecutionGraph(nodes, tuple(ExecEdge(link.target, link.source, "x") for link in links))
    assert cycles(forced) == (("query.g.a", "query.g.b"), ("query.g.d",))
    events: list[RunEvent] = []
    with pytest.raises(BugError):
        run_graph(forced, done, clock=FixedClock(START), on_event=events.append)
    assert events == []


def test_7_order_holds_across_a_resource_that_does_not_change():
    links = needs("query.kb.last -> schema.kb", "schema.kb -> graph.kb")
    graph, problems = build_graph([change("query.kb.last", "create"), change("graph.kb", "create")], links, ())
    assert problems == ()
    assert graph.edges == (ExecEdge("graph.kb", "query.kb.last", "via_unchanged", "schema.kb"),)
    assert started(run(graph)) == ["graph.kb", "query.kb.last"]


def test_8_a_query_lets_go_of_what_is_deleted_before_that_goes():
    changes = [change("query.kb.user", "update"), change("query.old.used", "delete"), change("graph.old", "delete")]
    recorded = needs("query.kb.user -> graph.old", "query.kb.user -> query.old.used", "query.old.used -> graph.old")
    graph, problems = build_graph(changes, (), recorded)
    assert problems == ()
    assert started(run(graph)) == ["query.kb.user", "barrier.catalog", "query.old.used", "graph.old"]


def test_9_a_query_that_still_uses_a_deleted_graph_is_refused():
    links = needs("query.kb.user -> graph.old")
    graph, (problem,) = build_graph([change("query.kb.user", "update"), change("graph.old", "delete")], links, links)
    assert graph == ExecutionGraph()
    assert problem.code == "depends_on_deleted"
    assert ("query.kb.user" in problem.message, "graph.old" in problem.message) == (True, True)


def test_12_one_run_makes_a_graph_with_all_that_is_in_it(cluster):
    cluster.write("people.gq", QUERY + QUERY.replace("find_person", "other"))
    cluster.graphs = {"knowledge": {"find_person": "people.gq", "other": "people.gq"}}
    cluster.workers = 4
    cluster.save()
    assert cluster.import_().ok
    graph = planned(cluster.plan())
    queries = ("query.knowledge.find_person", "query.knowledge.other")
    assert layers(graph) == (("graph.knowledge",), ("policy.base", "schema.knowledge"), queries)
    order = started(run(atomic_graph(graph), together(*queries)))
    assert order[0] == "graph.knowledge"
    assert order.index("policy.base") < order.index("barrier.prepared")
    assert cluster.apply().converged


@pytest.fixture
def twins(cluster: Cluster) -> Cluster:
    """Two graphs with a query each, which are changed to the same text."""
    cluster.graphs = {name: {"find_person": f"{name}.gq"} for name in ("knowledge", "notes")}
    for name, limit in (("knowledge", 1), ("notes", 2)):
        cluster.write(f"{name}.gq", QUERY.replace("$p.handle }\n}", f"$p.handle }}\n  limit {limit}\n}}"))
        cluster.write(f"{name}.pg", SCHEMA)
    cluster.workers = 4
    cluster.save()
    cluster.converge()
    for name in cluster.graphs:
        cluster.write(f"{name}.gq", QUERY)
    return cluster


def test_13_texts_of_equal_content_are_published_one_after_the_other(twins):
    graph = planned(twins.plan())
    assert [{lock.key.partition(":")[0] for lock in node.locks} for node in graph.nodes] == [{"blob", "graph"}] * 2
    events: list[RunEvent] = []
    assert apply(replace(twins.workspace(), on_event=events.append)).converged
    (wait,) = [event for event in events if event.type == "node_lock_wait"]
    assert (wait.node, wait.facts["holders"]) == ("query.notes.find_person", ("query.knowledge.find_person",))
    seen = [(event.type, event.node) for event in events]
    after = seen.index(("node_started", "query.notes.find_person"))
    assert seen.index(("node_finished", "query.knowledge.find_person")) < after


def test_13_the_queries_of_one_file_are_published_at_the_same_time(cluster):
    names = ("find_person", "other", "third")
    cluster.write("people.gq", "".join(QUERY.replace("find_person", name) for name in names))
    cluster.graphs = {"knowledge": dict.fromkeys(names, "people.gq")}
    cluster.save()
    cluster.converge()
    cluster.write("people.gq", "// once more\n" + "".join(QUERY.replace("find_person", name) for name in names))
    graph = planned(cluster.plan())
    queries = [f"query.knowledge.{name}" for name in names]
    assert sorted(started(run(graph, together(*queries)))) == queries


def test_a_scope_goes_from_one_policy_to_the_other_in_one_run(cluster):
    cluster.policies = {"base": ["cluster", "knowledge"]}
    cluster.save()
    cluster.converge()
    cluster.policies = {"all": ["cluster"], "base": ["knowledge"]}
    cluster.save()
    graph = planned(cluster.plan())
    assert graph.edges == (ExecEdge("policy.base", "policy.all", "scope_handover", "cluster"),)
    assert cluster.apply().converged
    ready = cluster.ready()
    assert (ready.cluster_policy, [each.policy for each in ready.graphs]) == ("all", ["base"])


def obstacles(outcome: PlanOutcome) -> list[tuple[str, str]]:
    return [(each.path, each.code) for each in outcome.obstacles]


def assert_does_not_land(cluster: Cluster, *expected: tuple[str, str]) -> None:
    """The plan names these obstacles and no other, stays a plan, and an apply of it does not land."""
    planned = cluster.plan()
    assert planned.ok
    assert obstacles(planned) == list(expected)
    assert not planned.lands
    outcome = cluster.apply()
    assert not (outcome.ok and outcome.converged)


def assert_lands(cluster: Cluster) -> None:
    assert cluster.plan().lands
    outcome = cluster.apply()
    assert (outcome.ok, outcome.converged) == (True, True)


def test_a_first_plan_needs_a_ledger(cluster):
    assert_does_not_land(cluster, ("__cluster/state.json", "state_missing"))
    assert cluster.import_().ok
    assert_lands(cluster)
    assert cluster.plan().lands


def test_a_property_cannot_get_another_type(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RETYPED)
    assert codes(cluster.plan()) == ["graph_migration_unsupported"]
    assert_does_not_land(cluster, (SCHEMA_ADDRESS, "graph_migration_unsupported"))


def test_a_root_is_in_the_way_of_a_new_graph(cluster):
    cluster.put_state(LedgerState(revision=1))
    cluster.make_graph("knowledge", OTHER)
    assert_does_not_land(cluster, (GRAPH, "graph_exists"))


def test_a_graph_that_does_not_open_is_not_migrated(cluster):
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.write("knowledge.pg", WIDER)
    assert_does_not_land(cluster, (SCHEMA_ADDRESS, "graph_unreadable"))


def test_a_delete_waits_for_its_approval(cluster):
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    waiting = ["graph.knowledge", "query.knowledge.find_person", "schema.knowledge"]
    named = [path for path, code in obstacles(cluster.plan()) if code == "apply_dependency_blocked"]
    assert set(waiting) <= set(named)
    assert cluster.approve(GRAPH).ok
    assert_lands(cluster)


def test_an_approved_delete_of_a_graph_that_does_not_open_waits(cluster):
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    planned = cluster.plan()
    assert GRAPH in {path for path, _ in obstacles(planned)}
    assert not cluster.apply().converged


def test_a_delete_that_a_backup_of_the_ledger_forgot_lands(cluster):
    """The graph is gone, so that the second use of its approval finds nothing to delete."""
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    backup = {key: cluster.stored(key) for key in cluster.files()}
    assert_lands(cluster)
    for key, document in backup.items():
        cluster.plant(key, document)
    assert "graph_vanished" in codes(cluster.refresh())
    assert_lands(cluster)


def test_a_graph_that_came_back_with_a_backup_of_the_ledger_is_not_deleted_again(cluster):
    """The plan says what the engine will answer: the approval is unused in the ledger, and used by the marker of the graph."""
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    backup = {key: cluster.stored(key) for key in cluster.files()}
    bring_back = cluster.twin.back_up(cluster.uri("knowledge"))
    assert_lands(cluster)
    bring_back()
    for key, document in backup.items():
        cluster.plant(key, document)
    assert [each.message for each in cluster.plan().obstacles if each.code == "graph_restored"] == [
        f"{cluster.uri('knowledge')} was deleted before"
    ]
    assert not cluster.apply().converged
    assert cluster.live("knowledge") is not None


def test_an_interrupted_migration_that_recovery_completes_lands(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    cluster.apply(faults=FailAt("cluster_apply.after_schema_apply"))
    assert "cluster_recovery_pending" in codes(cluster.plan())
    assert_lands(cluster)


def test_an_interrupted_migration_that_nobody_can_settle_does_not(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", OTHER)
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.plan()
    assert (SCHEMA_ADDRESS, "apply_dependency_blocked") in obstacles(planned)
    assert not cluster.apply().converged


@pytest.mark.parametrize("by_hand", [OTHER, RETYPED])
def test_a_schema_changed_by_hand_is_not_migrated_further(cluster, by_hand):
    """The recorded schema is not the live one: what would be planned from it is not what would be done."""
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    cluster.make_graph("knowledge", by_hand)
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.plan()
    outcome = cluster.apply()
    assert planned.lands is (outcome.ok and outcome.converged)


def test_text_and_json_say_it(cluster):
    from gitops.render.json import envelope
    from gitops.render.text import to_text

    cluster.converge()
    assert envelope(cluster.plan())["lands"] is True
    cluster.write("knowledge.pg", RETYPED)
    planned = cluster.plan()
    form = envelope(planned)
    assert form["ok"] is True
    assert form["lands"] is False
    assert [each["code"] for each in form["obstacles"]] == ["graph_migration_unsupported"]
    assert f"    {SCHEMA_ADDRESS}: changing property type of `Person.born`" in to_text(planned)


def test_only_a_plan_reports_that_a_migration_cannot_be_previewed(cluster):
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.write("knowledge.pg", WIDER)
    assert "schema_preview_unavailable" in codes(cluster.plan())
    assert codes(cluster.apply()).count("schema_preview_unavailable") == 0


def test_an_approval_is_stale_also_for_a_graph_that_is_created(cluster):
    """It was given to delete a graph, which was taken out of the ledger in another way and is declared again."""
    cluster.converge()
    graphs, policies = cluster.graphs, cluster.policies
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    cluster.put_state(LedgerState(revision=7))
    cluster.graphs, cluster.policies = graphs, policies
    cluster.save()
    assert [(d.code, d.path) for d in cluster.plan().diagnostics if d.code == "approval_stale"] == [
        ("approval_stale", GRAPH)
    ]
