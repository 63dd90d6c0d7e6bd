"""A server from its start: what it opens, listens on, writes into logs, and reads again."""

from __future__ import annotations

import gc
import io
import json
import logging
import re
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.cluster.policy.decide import AccessRequest
from gitops.cluster.session.workspace import Stores
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import NoFaults
from gitops.database.graph import ReadCache
from gitops.repository.wiring.system import SystemClock
from gitops.serving import listen
from gitops.serving.access import DECISIONS
from gitops.serving.boot import BootRules
from gitops.serving.generation import AppliedRevision, Compiled, Generation, PolicyCover
from gitops.serving.logs import in_background, make_log
from gitops.serving.process import (
    Booted,
    BootInputs,
    Reload,
    Reloader,
    ReloadResult,
    ServerTokens,
    ServingGeneration,
    Watch,
    boot_process,
    is_truthy,
)
from tests.support.cluster import POLICY, QUERY, SCHEMA, WIDER, Cluster
from tests.support.faults import FailAt
from tests.support.query_server import BundleEngine, generation, running, serving, tokens

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


OTHER = QUERY.replace("find_person", "other")


class Process:
    """What keeps the generation of one process up to date, over a cluster in memory."""

    def __init__(self, cluster: Cluster, **rules: bool) -> None:
        self.cluster, self.log, self.down = cluster, [], None
        self.inputs = inputs = BootInputs(
            "here", self.stores, BootRules(**rules), cluster.clock, {}, unauthenticated=True, loopback=True
        )
        self.compiled = Compiled()
        booted = boot_process(inputs, compiled=self.compiled)
        self.source = ServingGeneration(booted.generation, cluster.clock.now)
        self.reloader = Reloader(inputs, self.source, compiled=self.compiled, rows=ReadCache, note=self.note)

    def stores(self, _: object) -> Stores:
        if self.down is not None:
            raise self.down
        return self.cluster.workspace().open_stores(None)

    def note(self, made: Reload) -> None:
        if made.result is not ReloadResult.UNCHANGED:
            self.log.append(made)

    def reload(self) -> tuple[ReloadResult, list[str]]:
        made = self.reloader.reload()
        assert made.served == self.source.current().revision
        return made.result, list(made.form["codes"])

    @property
    def served(self) -> dict[str, list[str]]:
        return {name: list(graph.queries) for name, graph in self.source.current().graphs.items()}


@pytest.fixture
def cluster_of_reload(tmp_path) -> Cluster:
    cluster = Cluster(tmp_path, memory=True)
    cluster.policies = {}
    cluster.save()
    cluster.converge()
    return cluster


def change(cluster: Cluster) -> None:
    """Apply another query in the place of the first."""
    cluster.write("people.gq", OTHER)
    cluster.graphs = {"knowledge": {"other": "people.gq"}}
    cluster.save()
    cluster.converge()


def test_a_newer_revision_takes_over_and_requests_keep_what_they_began_with(cluster_of_reload):
    process = Process(cluster_of_reload)
    pinned = process.source.current()
    assert process.reload() == (ReloadResult.UNCHANGED, [])
    change(cluster_of_reload)
    assert process.served == {"knowledge": ["find_person"]}
    assert process.reload() == (ReloadResult.EXCHANGED, [])
    assert process.served == {"knowledge": ["other"]}
    assert list(pinned.graphs["knowledge"].queries) == ["find_person"]
    assert [each.result for each in process.log] == [ReloadResult.EXCHANGED]


def test_what_two_generations_have_in_common_is_compiled_once_and_the_rest_is_forgotten(cluster_of_reload):
    process = Process(cluster_of_reload)
    before = process.source.current().graphs["knowledge"]
    change(cluster_of_reload)
    process.reload()
    after = process.source.current().graphs["knowledge"]
    assert after.schema is before.schema
    assert process.compiled.sound == Process(cluster_of_reload).compiled.sound


def test_generations_that_no_request_has_any_more_are_freed(cluster_of_reload):
    process = Process(cluster_of_reload)
    served = {process.source.current().revision.digest}
    pinned = process.source.current()
    for _ in range(12):
        cluster_of_reload.put_state(replace(cluster_of_reload.state, revision=cluster_of_reload.state.revision + 1))
        assert process.reload() == (ReloadResult.EXCHANGED, [])
        served.add(process.source.current().revision.digest)
    assert len(served) == 13

    def alive() -> set[str]:
        gc.collect()
        return {each.revision.digest for each in gc.get_objects() if isinstance(each, Generation)} & served

    newest = process.source.current().revision.digest
    assert alive() == {pinned.revision.digest, newest}
    del pinned
    assert alive() == {newest}


def test_a_revision_that_a_boot_would_refuse_leaves_the_old_one(cluster_of_reload):
    process = Process(cluster_of_reload)
    change(cluster_of_reload)
    blob = f"__cluster/resources/query/knowledge/other/{digest(OTHER.encode())}.gq"
    good = cluster_of_reload.stored(blob)
    cluster_of_reload.plant(blob, b"tampered while running")
    assert process.reload() == (ReloadResult.REFUSED, ["catalog_payload_digest_mismatch"])
    assert process.served == {"knowledge": ["find_person"]}
    assert process.reloader.pending is process.log[-1]
    assert (
        process.log[-1].behind
        == cluster_of_reload.state.revision - process.source.current().revision.state_revision
        > 0
    )
    accepted = process.source.accepted_at
    cluster_of_reload.clock.advance(timedelta(seconds=5))
    cluster_of_reload.plant(blob, good)
    assert process.reload() == (ReloadResult.EXCHANGED, [])
    assert process.reloader.pending is None
    assert process.source.accepted_at == accepted + timedelta(seconds=5)


def test_a_ledger_that_went_back_is_refused(cluster_of_reload):
    first = cluster_of_reload.state_bytes
    change(cluster_of_reload)
    process = Process(cluster_of_reload)
    cluster_of_reload.plant(STATE, first)
    assert process.reload() == (ReloadResult.REFUSED, ["revision_rewound"])
    cluster_of_reload.put_state(
        replace(cluster_of_reload.state, revision=process.source.current().revision.state_revision)
    )
    assert process.reload() == (ReloadResult.REFUSED, ["revision_rewound"])
    assert process.served == {"knowledge": ["other"]}


@pytest.mark.parametrize("rules", [{}, {"allow_degraded": True}])
def test_nothing_is_exchanged_while_an_operation_is_not_settled(cluster_of_reload, rules):
    process = Process(cluster_of_reload, **rules)
    change(cluster_of_reload)
    cluster_of_reload.write("knowledge.pg", WIDER)
    assert not cluster_of_reload.apply(faults=FailAt("cluster_apply.after_schema_apply")).ok
    assert cluster_of_reload.sidecars
    result, codes = process.reload()
    assert (result, "cluster_recovery_pending" in codes) == (ReloadResult.WAITING, True)
    assert process.served == {"knowledge": ["find_person"]}
    cluster_of_reload.converge()
    assert process.reload() == (ReloadResult.EXCHANGED, [])


def test_a_ledger_that_does_not_answer_changes_nothing(cluster_of_reload):
    process = Process(cluster_of_reload)
    process.down = RemoteError(Code.STORAGE_FAILED, "the bucket does not answer")
    assert process.reload() == (ReloadResult.REFUSED, ["storage_failed"])
    process.down = GitopsError(Code.CONFIG_DIR_NOT_FOUND, "it is gone")
    assert process.reload() == (ReloadResult.REFUSED, ["config_dir_not_found"])
    assert process.served == {"knowledge": ["find_person"]}


RELOAD_POLICY = Bundle(groups={"admins": ("ada",)}, rules=(Rule("reloading", "admins", (PolicyAction.RELOAD,)),))


@pytest.mark.parametrize(
    ("result", "status"), [("exchanged", 200), ("unchanged", 200), ("waiting", 409), ("refused", 409)]
)
def test_who_may_reload_learns_what_became_of_it(result, status):
    form = {"result": result, "served_revision": "sha256:ab", "offered_revision": None, "codes": []}
    made = generation(engine=BundleEngine(RELOAD_POLICY))
    with running(made, tokens(ada="t-ada", bob="t-bob"), reload=lambda: form) as server:
        answer = server.ask("POST", "/-/reload", headers={"Authorization": "Bearer t-ada"})
        denied = server.ask("POST", "/-/reload", headers={"Authorization": "Bearer t-bob"})
    assert (answer.status_code, denied.status_code) == (status, 403)
    assert answer.json().get("reload", answer.json()) == form


def test_a_server_of_a_past_revision_does_not_reload():
    with running(generation(engine=BundleEngine(RELOAD_POLICY)), tokens(ada="t-ada")) as server:
        assert server.ask("POST", "/-/reload", headers={"Authorization": "Bearer t-ada"}).status_code == 404


def test_a_watch_reloads_what_is_new_and_tries_what_was_refused_again_later(cluster_of_reload):
    process, now = Process(cluster_of_reload), [0.0]

    def identify() -> str | None:
        return process.stores(None).ledger.view().cas

    watch = Watch(process.reloader, identify, lambda: now[0])
    watch.look()
    assert process.log == []
    change(cluster_of_reload)
    blob = f"__cluster/resources/query/knowledge/other/{digest(OTHER.encode())}.gq"
    good = cluster_of_reload.stored(blob)
    cluster_of_reload.plant(blob, None)
    watch.look()
    watch.look()
    assert [each.result for each in process.log] == [ReloadResult.REFUSED]
    cluster_of_reload.plant(blob, good)
    watch.look()
    assert process.served == {"knowledge": ["find_person"]}
    now[0] = 31.0
    watch.look()
    watch.look()
    assert process.served == {"knowledge": ["other"]}
    process.down = RemoteError(Code.STORAGE_FAILED, "the bucket does not answer")
    watch.look()
    assert [each.result for each in process.log] == [ReloadResult.REFUSED, ReloadResult.EXCHANGED]


def test_a_graph_that_has_left_is_let_go_of_before_its_data_are_deleted(cluster_of_reload):
    """The delete is announced before the commit, and waits for the servers behind it."""
    cluster_of_reload.graphs["old"] = {}
    cluster_of_reload.save()
    cluster_of_reload.converge()
    process = Process(cluster_of_reload)
    del cluster_of_reload.graphs["old"]
    cluster_of_reload.save()
    assert cluster_of_reload.approve("graph.old").ok
    seen = []

    class Look(NoFaults):
        def reach(self, point: str) -> None:
            if point == "changeset.commit.after_write":
                assert cluster_of_reload.sidecars
                seen.append(process.reload())
                seen.append(process.served)

    assert cluster_of_reload.apply(faults=Look(), atomic=True).converged
    assert seen == [(ReloadResult.EXCHANGED, []), {"knowledge": ["find_person"]}]
    assert boot_process(process.inputs).outcome.ok


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
Connect = Callable[[], socket.socket]


async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connect]:
    """Connects to a server with small bounds."""
    # Longer than any test waits.
    monkeypatch.setattr(listen, "_HEAD_S", 600)
    monkeypatch.setattr(listen._Bounded, "most", 3)
    monkeypatch.setattr(listen, "_HEAD_BYTES", 4096)
    with ExitStack() as stack:
        port = stack.enter_context(serving(application, http=listen._Bounded))

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))

        yield opened


def answer(connection: socket.socket) -> bytes:
    """The next answer, whose head and body may arrive apart; empty where the server has closed the connection."""
    found = b""
    with suppress(ConnectionError):
        while not _is_whole(found) and (more := connection.recv(4096)):
            found += more
    return found


def _is_whole(data: bytes) -> bool:
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


@pytest.fixture
def files() -> Iterator[tuple[int, int]]:
    """The limits on open files of this process, which few of them are left of."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, before[1]))
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_may_open_as_many_files_as_its_connections_need(files: tuple[int, int]) -> None:
    for connections, allowed in ((50, 600), (1000, 1512)):
        assert listen.find_room(connections) == connections
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, files[1])


def test_where_the_system_allows_fewer_files_there_are_fewer_connections(files: tuple[int, int]) -> None:
    if files[1] == resource.RLIM_INFINITY:
        pytest.skip("the system allows any number of files")
    assert listen.find_room(files[1]) == files[1] - 512
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (files[1], files[1])


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HT", HEALTH[:-2]])
def test_a_head_that_does_not_arrive_ends_its_connection(connect: Connect, monkeypatch, begun: bytes) -> None:
    monkeypatch.setattr(listen, "_HEAD_S", 0.1)
    half_open = connect()
    half_open.sendall(begun)
    assert answer(half_open) == b""


def test_a_large_head_ends_its_connection(connect: Connect) -> None:
    large = connect()
    large.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Much: " + b"x" * 8192)
    assert answer(large) == b""


def test_connections_beyond_the_bound_are_closed_and_the_others_are_served(connect: Connect) -> None:
    kept = [connect() for _ in range(3)]
    for each in kept:
        each.sendall(HEALTH)
        assert answer(each).endswith(b"ok")
    assert answer(connect()) == b""
    kept[0].sendall(HEALTH)
    assert answer(kept[0]).endswith(b"ok")
    kept[1].sendall(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert answer(kept[1]).endswith(b"ok")
    # The server has closed it when this one knows.
    assert answer(kept[1]) == b""
    later = connect()
    later.sendall(HEALTH)
    assert answer(later).endswith(b"ok")


FORM = {"event": "request", "status": 200, "graph": None, "path": "a\nb"}


class Standing(io.StringIO):
    """A stream whose reader takes nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        assert self.released.wait(30)
        return super().write(text)


def test_a_record_is_a_line_for_people_or_a_document():
    text, documents = io.StringIO(), io.StringIO()
    make_log(text, logging.INFO, as_json=False).info("request", extra={"form": FORM})
    log = make_log(documents, logging.INFO, as_json=True)
    log.info("request", extra={"form": FORM})
    log.debug("left out")
    DECISIONS.info("decision", extra={"form": {"event": "decision", "allowed": True}})
    log.warning("a text")
    (line,) = text.getvalue().splitlines()
    assert line.split(" ", 1)[1].split() == ["INFO", "request", "status=200", "path=a\\nb"]
    found = [json.loads(each) for each in documents.getvalue().splitlines()]
    assert [each.pop("at")[-1] for each in found] == ["Z"] * 3
    assert found == [
        {"level": "info", **FORM},
        {"level": "info", "event": "decision", "allowed": True},
        {"level": "warning", "text": "a text"},
    ]


def test_records_do_not_wait_for_a_reader_that_stands_still():
    stream = Standing()
    log = make_log(stream, logging.INFO, as_json=True)
    line = '{"at": "2026-01-01T00:00:00.000Z", "level": "info", "text": "number 0"}\n'
    with in_background(log, SystemClock().now, most_bytes=3 * len(line)):
        log.info("first")
        assert stream.entered.wait(30)
        for number in range(8):
            log.info("number %s", number)
        stream.released.set()
    texts = [json.loads(each)["text"] for each in stream.getvalue().splitlines()]
    missing = "records missing here, because the log was not read in time: 5"
    assert texts == ["first", "number 0", "number 1", "number 2", missing]
    log.info("directly")
    assert "directly" in stream.getvalue()
