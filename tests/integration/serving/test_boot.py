"""What refuses a boot, what does not, and what is served: the numbers are those of the scenarios of the specification."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.policy.bundle import PolicyAction
from gitops.cluster.policy.decide import AccessRequest
from gitops.cluster.session.workspace import Stores
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError
from gitops.serving.boot import BootRules
from gitops.serving.generation import AppliedRevision, Compiled, Generation, PolicyCover
from gitops.serving.process import Booted, BootInputs, ServerTokens, boot_process, is_truthy
from tests.support.cluster import POLICY, QUERY, SCHEMA, WIDER, Cluster

QUERY_BLOB = f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq"
POLICY_BLOB = f"__cluster/resources/policy/base/{digest(POLICY.encode())}.yaml"
ALLOWS = """\
version: 1
groups: {team: [ada]}
rules:
  - id: all
    allow:
      actors: {group: team}
      actions: [%s]
"""
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada", "ben": "t-ben"}'}


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    """A converged cluster without policies, in memory but for its files."""
    cluster = Cluster(tmp_path)
    cluster.policies = {}
    cluster.save()
    cluster.converge()
    return cluster


def boot(
    cluster: Cluster, environ: dict[str, str] | None = None, *, open_: bool = True, compiled: Any = None, **rules: bool
) -> Booted:
    def stores(_: object) -> Stores:
        return cluster.workspace().open_stores(None)

    inputs = BootInputs("here", stores, BootRules(**rules), cluster.clock, environ or {}, open_, loopback=True)
    return boot_process(inputs, compiled=compiled)


def served(cluster: Cluster, environ: dict[str, str] | None = None, **rules: bool) -> Generation:
    booted = boot(cluster, environ, **rules)
    assert booted.generation is not None, booted.outcome.diagnostics
    return booted.generation


def refused(cluster: Cluster, environ: dict[str, str] | None = None, **options: Any) -> list[str]:
    """The codes and places of the problems that refuse a boot."""
    booted = boot(cluster, environ, **options)
    assert (booted.generation, booted.state, booted.outcome.ok) == (None, None, False)
    assert all(each.fix for each in booted.outcome.diagnostics)
    return [f"{each.code} {each.path}" for each in booted.outcome.diagnostics]


def apply(cluster: Cluster, **policies: tuple[str, list[str]]) -> None:
    """Apply policies with these texts and bindings."""
    for name, (text, bindings) in policies.items():
        cluster.write(f"{name}.policy.yaml", text)
        cluster.policies[name] = bindings
    cluster.save()
    cluster.converge()


def record(cluster: Cluster, **resources: AppliedResource) -> None:
    """Record something else than was applied; `__` stands for the dots of an address."""
    changed = {name.replace("__", "."): each for name, each in resources.items()}
    cluster.put_state(replace(cluster.state, resources={**cluster.state.resources, **changed}))


def test_01_a_converged_cluster_is_served_as_it_was_applied(cluster):
    generation = served(cluster)
    (graph,) = generation.graphs.values()
    assert generation.revision.digest == digest(cluster.state_bytes)
    assert generation.revision.converged
    assert (graph.graph_id, graph.uri, graph.schema_source) == ("knowledge", cluster.uri("knowledge"), SCHEMA.encode())
    assert [(each.name, each.source) for each in graph.queries.values()] == [("find_person", QUERY.encode())]
    assert (graph.engine, generation.engine, generation.guarded, graph.drifted) == (None, None, False, False)


def test_04_without_a_ledger_import_and_apply_are_suggested(tmp_path):
    empty = Cluster(tmp_path)
    booted = boot(empty)
    (problem,) = booted.outcome.diagnostics
    assert (problem.code, problem.fix) == (
        "cluster_state_missing",
        "start a ledger: gitops import; then apply: gitops apply",
    )


def test_05_one_refusal_lists_what_is_tampered_with_and_what_is_gone(cluster):
    apply(cluster, base=(POLICY, ["knowledge"]))
    cluster.plant(QUERY_BLOB, b"tampered")
    cluster.plant(POLICY_BLOB, None)
    assert refused(cluster, TOKENS) == [
        "catalog_payload_missing policy.base",
        "catalog_payload_digest_mismatch query.knowledge.find_person",
    ]


def test_06_a_policy_without_bindings_is_refused_until_an_apply_records_them(cluster):
    apply(cluster, base=(POLICY, ["knowledge"]))
    record(cluster, policy__base=AppliedResource(digest(POLICY.encode())))
    assert "policy_bindings_missing policy.base" in refused(cluster, TOKENS)
    cluster.converge()
    assert served(cluster, TOKENS).guarded


def test_08_a_held_lock_is_left_untouched(cluster):
    held = cluster.hold_lock()
    assert served(cluster)
    assert cluster.stored(LOCK) == held


def test_09_a_newer_or_malformed_ledger_is_refused(cluster):
    state = json.loads(cluster.state_bytes)
    cluster.plant(STATE, json.dumps({**state, "version": 2}).encode())
    assert refused(cluster) == ["unsupported_state_version state.version"]
    cluster.plant(STATE, json.dumps({**state, "surprise": 1}).encode())
    assert refused(cluster) == ["invalid_state_json __cluster/state.json"]


def test_10_a_revision_without_graphs_is_empty(cluster):
    cluster.put_state(LedgerState(revision=3))
    assert refused(cluster) == ["cluster_empty graphs"]


def test_11_a_graph_has_one_policy_and_a_policy_many_graphs(cluster):
    cluster.graphs["second"] = {}
    reads = ALLOWS % "read"
    apply(cluster, base=(reads, ["knowledge", "second"]))
    generation = served(cluster, TOKENS)
    for graph in generation.graphs.values():
        assert graph.policy == "base"
        assert graph.policy_digest == digest(reads.encode())
        assert graph.engine is not None
        assert graph.engine.decide(AccessRequest("ada", PolicyAction.READ, "main")).allowed
        assert not graph.engine.decide(AccessRequest("ben", PolicyAction.READ, "main")).allowed
    blob = digest(POLICY.encode())
    cluster.plant(f"__cluster/resources/policy/other/{blob}.yaml", POLICY.encode())
    record(cluster, policy__other=AppliedResource(blob, ("graph.knowledge",)))
    assert refused(cluster, TOKENS) == ["policy_scope_conflict graph.knowledge"]


def test_13_what_is_declared_and_not_applied_never_shows(cluster):
    before = served(cluster)
    cluster.write("people.gq", "broken")
    cluster.write("knowledge.pg", WIDER)
    cluster.graphs["second"] = {}
    cluster.policies["base"] = ["knowledge"]
    cluster.save()
    after = served(cluster)
    assert (after.revision, list(after.graphs), after.guarded) == (before.revision, ["knowledge"], False)
    assert after.graphs["knowledge"].queries["find_person"].source == QUERY.encode()


def test_14_a_generation_stays_what_it_was_after_an_apply(cluster):
    generation = served(cluster)
    cluster.write("knowledge.pg", WIDER)
    cluster.converge()
    assert generation.graphs["knowledge"].schema_source == SCHEMA.encode()
    assert served(cluster).revision.state_revision > generation.revision.state_revision


@pytest.mark.parametrize(
    ("action", "scope", "elsewhere"), [("graph_list", "graph.knowledge", "cluster"), ("read", "cluster", "graph.<id>")]
)
def test_15_a_rule_of_the_other_kind_is_refused_and_the_remedy_says_to_move_it(cluster, action, scope, elsewhere):
    text = ALLOWS % action
    cluster.plant(f"__cluster/resources/policy/base/{digest(text.encode())}.yaml", text.encode())
    record(cluster, policy__base=AppliedResource(digest(text.encode()), (scope,)))
    (problem,) = boot(cluster, TOKENS).outcome.diagnostics
    assert (problem.code, problem.path) == ("policy_kind_mismatch", "policy.base")
    assert problem.fix == f"move the action to a policy that is bound to {elsewhere}"


def test_16_an_id_that_no_server_takes_is_refused(cluster):
    cluster.make_graph("my_graph")
    schema = AppliedResource(digest(SCHEMA.encode()))
    record(cluster, graph__my_graph=AppliedResource("0" * 64), schema__my_graph=schema)
    assert refused(cluster) == ["graph_id_unservable graph.my_graph"]
    assert list(served(cluster, allow_degraded=True).graphs) == ["knowledge"]


def test_17_a_graph_that_does_not_open_is_quarantined_where_that_is_allowed(cluster):
    cluster.graphs["second"] = {}
    cluster.save()
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("second"))
    assert refused(cluster) == ["graph_missing graph.second"]
    generation = served(cluster, allow_degraded=True)
    assert list(generation.graphs) == ["knowledge"]
    assert [each.code for each in generation.quarantined["second"]] == ["graph_missing"]
    assert boot(cluster, allow_degraded=True).outcome.ok
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    assert boot(cluster, allow_degraded=True).outcome.diagnostics[-1].code == "cluster_no_healthy_graphs"


def test_a_graph_that_is_not_the_recorded_one_or_an_older_copy_of_it_is_not_served(cluster):
    cluster.refresh()
    copy = cluster.twin.read(cluster.uri("knowledge")).manifest_version
    cluster.migrate_graph("knowledge", WIDER)
    cluster.refresh()
    assert served(cluster).graphs
    state = cluster.state
    seen = state.observations["graph.knowledge"]
    assert seen["manifest_version"] == copy + 1
    cluster.put_state(replace(state, observations={"graph.knowledge": {**seen, "manifest_version": copy + 2}}))
    assert [each.code for each in boot(cluster).outcome.diagnostics] == ["graph_rewound"]
    cluster.refresh()
    assert served(cluster).graphs
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    cluster.make_graph("knowledge", WIDER)
    assert refused(cluster) == ["graph_replaced graph.knowledge"]
    (problem,) = boot(cluster).outcome.diagnostics
    assert problem.fix == "record the graph that is there now: gitops refresh; then start the server again"
    cluster.refresh()
    assert served(cluster).graphs


def test_the_only_policy_on_a_quarantined_graph_still_guards_the_server(cluster):
    cluster.graphs["second"] = {}
    apply(cluster, base=(POLICY, ["second"]))
    cluster.twin.delete_tree(cluster.uri("second"))
    assert "policy_without_tokens bearer tokens" in refused(cluster, allow_degraded=True)
    assert boot(cluster, TOKENS, allow_degraded=True).state is PolicyCover.POLICY_ENABLED


def test_19_and_20_the_state_of_the_server(cluster):
    assert refused(cluster, open_=False) == ["auth_not_configured bearer tokens"]
    assert boot(cluster).state is PolicyCover.OPEN
    assert boot(cluster, TOKENS, open_=False).state is PolicyCover.DEFAULT_DENY
    apply(cluster, base=(POLICY, ["knowledge"]))
    assert refused(cluster) == ["policy_without_tokens bearer tokens"]
    assert boot(cluster, TOKENS).state is PolicyCover.POLICY_ENABLED


def test_problems_are_reported_in_the_order_in_which_they_are_looked_for(cluster):
    cluster.plant(QUERY_BLOB, None)
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    assert refused(cluster, {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": "{"}) == [
        "catalog_payload_missing query.knowledge.find_person",
        "token_source_invalid OMNIGRAPH_SERVER_BEARER_TOKENS_JSON",
        "graph_missing graph.knowledge",
    ]


def test_a_live_schema_that_drifted_is_served_with_a_warning_unless_it_must_be_the_applied_one(cluster):
    cluster.migrate_graph("knowledge", WIDER)
    generation = served(cluster)
    assert generation.graphs["knowledge"].drifted
    assert [each.code for each in generation.warnings] == ["schema_drift"]
    assert refused(cluster, strict_schema=True) == ["schema_drift graph.knowledge"]


def test_bindings_that_mean_nothing_are_warnings_and_unknown_ones_are_refused(cluster):
    apply(cluster, base=(POLICY, ["knowledge"]))
    blob = cluster.state.resources["policy.base"].digest
    record(cluster, policy__base=AppliedResource(blob, ("graph.gone",)))
    generation = served(cluster)
    assert ([each.code for each in generation.warnings], generation.guarded) == (["policy_binding_unknown"], False)
    record(cluster, policy__base=AppliedResource(blob, ("knowledge",)))
    assert [each.code for each in boot(cluster).outcome.diagnostics] == ["policy_binding_unrecognized"]


def test_what_did_not_change_is_compiled_once_for_all_generations(cluster):
    compiled = Compiled()
    first = boot(cluster, compiled=compiled).generation
    cluster.graphs["second"] = {}
    cluster.save()
    cluster.converge()
    second = boot(cluster, compiled=compiled).generation
    assert first is not None
    assert second is not None
    assert second.graphs["knowledge"].schema is first.graphs["knowledge"].schema
    assert second.graphs["knowledge"].queries["find_person"] is first.graphs["knowledge"].queries["find_person"]


# The driver is loaded by other tests of this process; a server checks before it loads it, and the children never use it.
@pytest.mark.filterwarnings("ignore:lance is not fork-safe:UserWarning")
def test_many_queries_are_checked_by_several_processes_and_each_problem_keeps_its_place(cluster):
    names = [f"q{number}" for number in range(500)]
    cluster.write("people.gq", "\n".join(QUERY.replace("find_person", name) for name in names))
    cluster.graphs = {"knowledge": dict.fromkeys(names, "people.gq")}
    cluster.save()
    cluster.converge()
    compiled = Compiled(2)
    booted = boot(cluster, compiled=compiled)
    assert booted.generation is not None
    queries = booted.generation.graphs["knowledge"].queries
    assert queries["q7"].checked.name == "q7"
    assert len(compiled.sound) == len(queries) == 500
    assert booted.revision is not None
    again = AppliedRevision.of_form(json.loads(json.dumps(booted.revision.form)))
    assert again == booted.revision
    broken = QUERY.replace("find_person", "q7").replace("$p.handle }", "$p.gone }")
    cluster.plant(f"__cluster/resources/query/knowledge/q7/{digest(broken.encode())}.gq", broken.encode())
    record(cluster, query__knowledge__q7=AppliedResource(digest(broken.encode())))
    assert refused(cluster, compiled=Compiled(2)) == ["stored_query_check_failed query.knowledge.q7"]


def test_tokens_that_are_read_again_count_from_the_next_request_on(cluster):
    tokens = ServerTokens(boot(cluster, TOKENS).tokens)
    assert tokens.current().actor_of(b"t-ada") == "ada"
    assert not tokens.reload({"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "new"}'}).has_errors
    for broken in ("{", "{}"):
        assert tokens.reload({"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": broken}).codes() == ("token_source_invalid",)
        assert (tokens.current().actor_of(b"new"), tokens.current().actor_of(b"t-ada")) == ("ada", None)


def test_a_remote_that_does_not_answer_is_reported_like_any_problem(cluster):
    def fails(_: object) -> Stores:
        raise GitopsError("storage_failed", "the bucket does not answer")

    booted = boot_process(BootInputs("here", fails, BootRules(), cluster.clock, {}, True))
    assert [each.code for each in booted.outcome.diagnostics] == ["storage_failed"]


@pytest.mark.parametrize(
    ("value", "truthy"), [(None, False), ("", False), (" 0 ", False), ("False", False), ("1", True), ("no", True)]
)
def test_a_variable_says_yes_unless_it_is_blank_zero_or_false(value, truthy):
    assert is_truthy(value) is truthy
