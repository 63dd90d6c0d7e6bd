"""What the doctor finds out about a target: the same on the twin and on a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gitops.cluster.model.compute import ComputeRules, ComputeTarget
from gitops.cluster.targets.port import StrategyTarget
from gitops.core.redact import Secret
from gitops.doctor.findings import DoctorFinding, Health
from gitops.doctor.targets import Examination, target_findings
from gitops.repository.wiring.stores import open_target
from tests.support.materialize.server_world import ServerWorld
from tests.support.memory_target import MemoryTarget
from tests.support.strategies import NOW, rules
from tests.support.target_world import TargetWorld

URL = "postgresql://bot:secret@mz.example:6875/materialize?sslmode=verify-full"
DECLARED = {"target_size": {"target_size": "50cc"}, "burst": {"burst_replica_size": "800cc"}}
World = TargetWorld | ServerWorld


@pytest.fixture(params=["memory", "server"])
def world(request: pytest.FixtureRequest) -> World:
    """A target whose tables are there, with a compute cluster."""
    found: World = TargetWorld() if request.param == "memory" else request.getfixturevalue("stand_in")
    found.add_cluster("serving")
    with _open(found, Secret("MZ_URL", _url(found))) as target:
        target.create_tables()
    return found


def _url(world: World) -> str:
    return URL if isinstance(world, TargetWorld) else world.url()


def _open(world: World, url: Secret) -> StrategyTarget:
    if isinstance(world, TargetWorld):
        return MemoryTarget(world)
    return open_target("compute.targets.prod", url, application_name="doctor")


def _rules(*clusters: str, declared: Any = None) -> list[ComputeRules]:
    found = tuple(rules(declared or DECLARED))
    return [ComputeRules(each, ComputeTarget("prod", "MZ_URL"), each, found) for each in clusters or ("serving",)]


def _examined(
    world: World,
    folders: dict[str, list[ComputeRules]] | None = None,
    *,
    probe: bool = True,
    url: str | None = None,
    owners: dict[str, str] | None = None,
) -> Iterator[DoctorFinding]:
    how = Examination({"MZ_URL": url or _url(world)}, lambda _, given: _open(world, given), NOW, probe, owners or {})
    return target_findings(folders or {"brain": _rules()}, how)


def _gaps(findings: Iterator[DoctorFinding]) -> list[tuple[Health, str]]:
    found = list(findings)
    assert not any("secret" in each.detail + each.fix for each in found)
    assert all(each.fix for each in found if each.health is not Health.GOOD)
    return [(each.health, each.check) for each in found if each.health is not Health.GOOD]


def test_a_target_that_has_everything_is_good_and_left_as_it_was(world: World) -> None:
    found = list(_examined(world))
    assert {each.health for each in found} == {Health.GOOD}
    names = "url tls driver reachable signals grants clusters sizes tables locks"
    assert {each.check for each in found} == {f"targets.{name}" for name in names.split()}
    with _open(world, Secret("MZ_URL", _url(world))) as target:
        assert not target.strategies()
        assert not target.state_owners()


def test_a_grant_that_is_missing_is_named(world: World) -> None:
    world.deny("SELECT", "mz_catalog.mz_clusters")
    (problem,) = [each for each in _examined(world) if each.health is not Health.GOOD]
    assert (problem.health, problem.check) == (Health.ERROR, "targets.grants")
    assert "GRANT SELECT ON mz_catalog.mz_clusters" in problem.fix


def test_a_grant_to_write_is_missed_by_writing_only() -> None:
    world = TargetWorld()
    world.add_cluster("serving")
    with MemoryTarget(world) as target:
        target.create_tables()
    world.deny("INSERT", "mz_cluster_strategies")
    assert _gaps(_examined(world, probe=False)) == [(Health.UNKNOWN, "targets.tables")]
    assert _gaps(_examined(world)) == [(Health.ERROR, "targets.grants")]


def test_compute_clusters_and_sizes_are_those_of_the_target(world: World) -> None:
    world.add_cluster("by itself", managed=True)
    wrong = _rules("servng", "by itself") + _rules(declared={"target_size": {"target_size": "5Occ"}})
    assert _gaps(_examined(world, {"brain": wrong})) == [
        (Health.ERROR, "targets.clusters"),
        (Health.ERROR, "targets.clusters"),
        (Health.ERROR, "targets.sizes"),
    ]


def test_signals_that_a_target_does_not_report_are_named(world: World) -> None:
    world.hide("mz_internal.mz_hydration_statuses", "hydrated")
    assert _gaps(_examined(world)) == [(Health.ERROR, "targets.signals")]


def test_a_target_that_does_not_answer_ends_the_checks(world: World) -> None:
    world.stop()
    assert _gaps(_examined(world)) == [(Health.ERROR, "targets.reachable")]


def test_tables_that_are_not_there_yet_are_no_fault() -> None:
    world = TargetWorld()
    world.add_cluster("serving")
    assert _gaps(_examined(world)) == [(Health.UNKNOWN, "targets.tables")]


@pytest.mark.parametrize(
    ("url", "gaps"),
    [
        ("postgresql://bot:secret@mz.example/db", 1),
        ("postgresql://bot:secret@mz.example/db?sslmode=require", 1),
        ("postgresql://bot:secret@mz.example/db?sslmode=verify-full", 0),
        ("postgresql://bot:secret@127.0.0.1/db", 0),
    ],
)
def test_a_connection_that_others_can_read_is_seen(url: str, gaps: int) -> None:
    world = TargetWorld()
    found = [each for each in _gaps(_examined(world, url=url)) if each[1] == "targets.tls"]
    assert found == [(Health.WARNING, "targets.tls")] * gaps


def test_a_machine_without_the_url_says_so() -> None:
    how = Examination({}, lambda *_: MemoryTarget(TargetWorld()), NOW, probe=True)
    assert _gaps(target_findings({"brain": _rules()}, how)) == [(Health.UNKNOWN, "targets.url")]


def test_folders_that_share_a_target_or_a_compute_cluster_are_seen() -> None:
    world = TargetWorld()
    for name in ("serving", "reports"):
        world.add_cluster(name)
    with MemoryTarget(world) as target:
        target.create_tables()
    apart = {"brain": _rules(), "heart": _rules("reports")}
    assert _gaps(_examined(world, apart)) == []
    world.without_locks()
    assert _gaps(_examined(world, apart)) == [(Health.WARNING, "targets.shared")]
    assert _gaps(_examined(world, {**apart, "lungs": _rules()})) == [(Health.ERROR, "targets.shared")]


def test_a_compute_cluster_of_another_folder_is_seen(world: World) -> None:
    with _open(world, Secret("MZ_URL", _url(world))) as target:
        serving = target.clusters()["serving"].cluster_id
    world.insert_strategy(serving, "burst", {"declared_by": "heart (company/organs)"}, NOW)
    assert _gaps(_examined(world)) == []
    assert _gaps(_examined(world, owners={"brain": "heart (company/organs)"})) == []
    found = list(_examined(world, owners={"brain": "brain (company/organs)"}))
    [problem] = [each for each in found if each.health is not Health.GOOD]
    assert (problem.health, problem.check) == (Health.ERROR, "targets.clusters")
    assert "belongs to the cluster folder heart (company/organs)" in problem.detail
