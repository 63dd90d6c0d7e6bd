"""A newer revision takes over in one step or not at all, and a server never goes back."""

from __future__ import annotations

import gc
from dataclasses import replace
from datetime import timedelta

import pytest

from gitops.cluster.ledger.layout import STATE
from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.cluster.session.workspace import Stores
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import NoFaults
from gitops.database.graph import ReadCache
from gitops.serving.boot import BootRules
from gitops.serving.generation import Compiled, Generation
from gitops.serving.process import BootInputs, Reload, Reloader, ReloadResult, ServingGeneration, Watch, boot_process
from tests.support.cluster import QUERY, WIDER, Cluster
from tests.support.faults import FailAt
from tests.support.query_server import BundleEngine, generation, running, tokens

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
def cluster(tmp_path) -> Cluster:
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


def test_a_newer_revision_takes_over_and_requests_keep_what_they_began_with(cluster):
    process = Process(cluster)
    pinned = process.source.current()
    assert process.reload() == (ReloadResult.UNCHANGED, [])
    change(cluster)
    assert process.served == {"knowledge": ["find_person"]}
    assert process.reload() == (ReloadResult.EXCHANGED, [])
    assert process.served == {"knowledge": ["other"]}
    assert list(pinned.graphs["knowledge"].queries) == ["find_person"]
    assert [each.result for each in process.log] == [ReloadResult.EXCHANGED]


def test_what_two_generations_have_in_common_is_compiled_once_and_the_rest_is_forgotten(cluster):
    process = Process(cluster)
    before = process.source.current().graphs["knowledge"]
    change(cluster)
    process.reload()
    after = process.source.current().graphs["knowledge"]
    assert after.schema is before.schema
    assert process.compiled.sound == Process(cluster).compiled.sound


def test_generations_that_no_request_has_any_more_are_freed(cluster):
    process = Process(cluster)
    served = {process.source.current().revision.digest}
    pinned = process.source.current()
    for _ in range(12):
        cluster.put_state(replace(cluster.state, revision=cluster.state.revision + 1))
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


def test_a_revision_that_a_boot_would_refuse_leaves_the_old_one(cluster):
    process = Process(cluster)
    change(cluster)
    blob = f"__cluster/resources/query/knowledge/other/{digest(OTHER.encode())}.gq"
    good = cluster.stored(blob)
    cluster.plant(blob, b"tampered while running")
    assert process.reload() == (ReloadResult.REFUSED, ["catalog_payload_digest_mismatch"])
    assert process.served == {"knowledge": ["find_person"]}
    assert process.reloader.pending is process.log[-1]
    assert process.log[-1].behind == cluster.state.revision - process.source.current().revision.state_revision > 0
    accepted = process.source.accepted_at
    cluster.clock.advance(timedelta(seconds=5))
    cluster.plant(blob, good)
    assert process.reload() == (ReloadResult.EXCHANGED, [])
    assert process.reloader.pending is None
    assert process.source.accepted_at == accepted + timedelta(seconds=5)


def test_a_ledger_that_went_back_is_refused(cluster):
    first = cluster.state_bytes
    change(cluster)
    process = Process(cluster)
    cluster.plant(STATE, first)
    assert process.reload() == (ReloadResult.REFUSED, ["revision_rewound"])
    cluster.put_state(replace(cluster.state, revision=process.source.current().revision.state_revision))
    assert process.reload() == (ReloadResult.REFUSED, ["revision_rewound"])
    assert process.served == {"knowledge": ["other"]}


@pytest.mark.parametrize("rules", [{}, {"allow_degraded": True}])
def test_nothing_is_exchanged_while_an_operation_is_not_settled(cluster, rules):
    process = Process(cluster, **rules)
    change(cluster)
    cluster.write("knowledge.pg", WIDER)
    assert not cluster.apply(faults=FailAt("cluster_apply.after_schema_apply")).ok
    assert cluster.sidecars
    result, codes = process.reload()
    assert (result, "cluster_recovery_pending" in codes) == (ReloadResult.WAITING, True)
    assert process.served == {"knowledge": ["find_person"]}
    cluster.converge()
    assert process.reload() == (ReloadResult.EXCHANGED, [])


def test_a_ledger_that_does_not_answer_changes_nothing(cluster):
    process = Process(cluster)
    process.down = RemoteError(Code.STORAGE_FAILED, "the bucket does not answer")
    assert process.reload() == (ReloadResult.REFUSED, ["storage_failed"])
    process.down = GitopsError(Code.CONFIG_DIR_NOT_FOUND, "it is gone")
    assert process.reload() == (ReloadResult.REFUSED, ["config_dir_not_found"])
    assert process.served == {"knowledge": ["find_person"]}


POLICY = Bundle(groups={"admins": ("ada",)}, rules=(Rule("reloading", "admins", (PolicyAction.RELOAD,)),))


@pytest.mark.parametrize(
    ("result", "status"), [("exchanged", 200), ("unchanged", 200), ("waiting", 409), ("refused", 409)]
)
def test_who_may_reload_learns_what_became_of_it(result, status):
    form = {"result": result, "served_revision": "sha256:ab", "offered_revision": None, "codes": []}
    made = generation(engine=BundleEngine(POLICY))
    with running(made, tokens(ada="t-ada", bob="t-bob"), reload=lambda: form) as server:
        answer = server.ask("POST", "/-/reload", headers={"Authorization": "Bearer t-ada"})
        denied = server.ask("POST", "/-/reload", headers={"Authorization": "Bearer t-bob"})
    assert (answer.status_code, denied.status_code) == (status, 403)
    assert answer.json().get("reload", answer.json()) == form


def test_a_server_of_a_past_revision_does_not_reload():
    with running(generation(engine=BundleEngine(POLICY)), tokens(ada="t-ada")) as server:
        assert server.ask("POST", "/-/reload", headers={"Authorization": "Bearer t-ada"}).status_code == 404


def test_a_watch_reloads_what_is_new_and_tries_what_was_refused_again_later(cluster):
    process, now = Process(cluster), [0.0]

    def identify() -> str | None:
        return process.stores(None).ledger.view().cas

    watch = Watch(process.reloader, identify, lambda: now[0])
    watch.look()
    assert process.log == []
    change(cluster)
    blob = f"__cluster/resources/query/knowledge/other/{digest(OTHER.encode())}.gq"
    good = cluster.stored(blob)
    cluster.plant(blob, None)
    watch.look()
    watch.look()
    assert [each.result for each in process.log] == [ReloadResult.REFUSED]
    cluster.plant(blob, good)
    watch.look()
    assert process.served == {"knowledge": ["find_person"]}
    now[0] = 31.0
    watch.look()
    watch.look()
    assert process.served == {"knowledge": ["other"]}
    process.down = RemoteError(Code.STORAGE_FAILED, "the bucket does not answer")
    watch.look()
    assert [each.result for each in process.log] == [ReloadResult.REFUSED, ReloadResult.EXCHANGED]


def test_a_graph_that_has_left_is_let_go_of_before_its_data_are_deleted(cluster):
    """The delete is announced before the commit, and waits for the servers behind it."""
    cluster.graphs["old"] = {}
    cluster.save()
    cluster.converge()
    process = Process(cluster)
    del cluster.graphs["old"]
    cluster.save()
    assert cluster.approve("graph.old").ok
    seen = []

    class Look(NoFaults):
        def reach(self, point: str) -> None:
            if point == "changeset.commit.after_write":
                assert cluster.sidecars
                seen.append(process.reload())
                seen.append(process.served)

    assert cluster.apply(faults=Look(), atomic=True).converged
    assert seen == [(ReloadResult.EXCHANGED, []), {"knowledge": ["find_person"]}]
    assert boot_process(process.inputs).outcome.ok
