"""What the doctor finds on a machine, in a ledger, and at targets."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.model.compute import ComputeRules, ComputeTarget
from gitops.cluster.model.identity import ClaimRule, TokenIssuer
from gitops.cluster.targets.port import StrategyTarget
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.redact import Secret
from gitops.database.storage.s3 import S3Store
from gitops.doctor.examine import KeyFacts, MachineFacts, machine_findings
from gitops.doctor.findings import DoctorFinding, Health, attempt, sort_findings
from gitops.doctor.storage import storage_finding
from gitops.doctor.targets import Examination, target_findings
from gitops.doctor.trust import issuer_findings, probe_locks
from gitops.forge.web import WebSender
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.git.repository import GitRepository
from gitops.repository.wiring.serving import open_issuer
from gitops.repository.wiring.stores import open_target
from gitops.repository.wiring.system import RandomIds
from tests.support.materialize.server_world import ServerWorld
from tests.support.memory_target import MemoryTarget
from tests.support.s3 import Asked, S3Place
from tests.support.strategies import NOW, rules
from tests.support.target_world import TargetWorld
from tests.support.token_issuer import DISCOVERY, KEYS, IdentityProvider

HOOKS = {
    "takes everything": "",
    "takes branches alone": 'case "$1" in refs/heads/*) ;; *) echo "custom refs are not taken" >&2; exit 1 ;; esac',
    "takes nothing": 'echo "nothing is taken" >&2; exit 1',
    "deletes nothing": 'case "$3" in 000*) echo "nothing is deleted" >&2; exit 1 ;; esac',
}


@pytest.fixture
def host(tmp_path: Path) -> tuple[GitRepository, ProgramRemote]:
    """A clone without commits and the bare repository behind it."""
    for name in ("host", "clone"):
        subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / name)], check=True)
    clone = GitRepository(tmp_path / "clone")
    return clone, ProgramRemote(clone.git_dir, str(tmp_path / "host"))


def _probed(host: tuple[GitRepository, ProgramRemote], rule: str) -> dict[str, DoctorFinding]:
    clone, remote = host
    hook = Path(remote.url) / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{HOOKS[rule]}\n")
    hook.chmod(0o755)
    return {f.check: f for f in probe_locks(clone, remote, RandomIds(), Person("doctor", "d@x"))}


def test_custom_refs_are_found_and_nothing_is_left(host: tuple[GitRepository, ProgramRemote]) -> None:
    found = _probed(host, "takes everything")
    assert {f.health for f in found.values()} == {Health.GOOD}
    assert "accepts custom refs" in found["ledger.lock-refs"].detail
    assert host[1].refs("refs") == {}


def test_a_host_that_takes_branches_alone_is_found(host: tuple[GitRepository, ProgramRemote]) -> None:
    found = _probed(host, "takes branches alone")
    assert {f.health for f in found.values()} == {Health.GOOD}
    assert "locks are branches" in found["ledger.lock-refs"].detail
    assert host[1].refs("refs") == {}


def test_a_host_that_takes_nothing_is_an_error_with_its_words(host: tuple[GitRepository, ProgramRemote]) -> None:
    (finding,) = _probed(host, "takes nothing").values()
    assert finding.health is Health.ERROR
    assert "nothing is taken" in finding.detail
    assert host[1].refs("refs") == {}


def test_what_cannot_be_taken_back_is_named_with_the_command(host: tuple[GitRepository, ProgramRemote]) -> None:
    finding = _probed(host, "deletes nothing")["ledger.writable"]
    (left,) = host[1].refs("refs")
    assert finding.health is Health.ERROR
    assert left in finding.detail
    assert f"--delete {left}" in finding.fix


class Broken:
    """A remote whose pushes end in one way."""

    def __init__(self, problem: GitopsError) -> None:
        self.url = "nowhere"
        self._problem = problem

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        return {}

    def fetch(self, refspecs: Sequence[str]) -> None:
        raise self._problem

    def push(self, updates: Sequence[RefUpdate]) -> None:
        assert all(update.old == ZERO for update in updates)
        raise self._problem


@pytest.mark.parametrize(
    ("problem", "health"),
    [
        (RemoteError("git_remote_unavailable", "no route to host", retryable=True), Health.UNKNOWN),
        (RemoteError("git_remote_unavailable", "authentication failed"), Health.ERROR),
        (ConflictError("git_ref_conflict", "somebody else"), Health.ERROR),
        (GitopsError("push_refused", "no"), Health.ERROR),
    ],
)
def test_a_remote_that_does_not_answer_says_nothing_about_rights(
    host: tuple[GitRepository, ProgramRemote], problem: GitopsError, health: Health
) -> None:
    (finding,) = probe_locks(host[0], Broken(problem), RandomIds(), Person("doctor", "d@x"))
    assert (finding.check, finding.health) == ("ledger.writable", health)
    assert problem.detail in finding.detail


CLONE = MachineFacts(
    git="git version 2.39.5",
    engine="libgit2",
    object_format="sha1",
    keygen=True,
    bare=False,
    shallow=False,
    replaced=0,
    named=True,
    key=KeyFacts(0o600, "AAAA"),
    remotes_with_password=(),
    fsck=False,
    hooks=("pre-commit", "pre-push"),
    wanted=("pre-commit", "pre-push"),
)
SERVER = replace(CLONE, bare=True, fsck=True, hooks=("pre-receive",), wanted=("pre-receive",))


def gaps(facts: MachineFacts) -> list[str]:
    found = list(machine_findings(facts))
    assert all(f.fix for f in found if f.health is not Health.GOOD)
    return [f"{f.health} {f.check}" for f in found if f.health is not Health.GOOD]


CASES: dict[str, tuple[MachineFacts, list[str]]] = {
    "a clone": (CLONE, []),
    "a server": (SERVER, []),
    "an old git": (replace(CLONE, git="git version 2.33.9"), ["error git.version"]),
    "a git of tomorrow": (replace(CLONE, git="git version 10.0.1 (Apple Git-99)"), []),
    "a git of its own kind": (replace(CLONE, git="something"), ["error git.version"]),
    "no ssh-keygen": (replace(CLONE, keygen=False), ["error git.version"]),
    "a shallow clone": (replace(CLONE, shallow=True), ["error git.shallow"]),
    "replaced objects": (replace(CLONE, replaced=2), ["warning git.replace"]),
    "a password": (
        replace(CLONE, remotes_with_password=(("origin", "git remote set-url origin https://x"),)),
        ["warning git.remote-password"],
    ),
    "malformed objects": (replace(SERVER, fsck=False), ["error git.fsck"]),
    "nobody": (replace(CLONE, named=False), ["warning key.person"]),
    "no key": (replace(CLONE, key=None), ["warning key.signs"]),
    "a server without a key": (replace(SERVER, key=None), ["error key.signs"]),
    "a key that others read": (replace(CLONE, key=KeyFacts(0o640, "AAAA")), ["error key.mode"]),
    "a key that is gone": (replace(CLONE, key=KeyFacts(problem="no such file")), ["error key.signs"]),
    "a key that nobody tried": (replace(CLONE, key=KeyFacts(0o600)), ["unknown key.signs"]),
    "a key in an agent": (replace(CLONE, key=KeyFacts(None, "AAAA")), []),
    "no hooks": (replace(CLONE, hooks=()), ["warning hooks.installed"]),
    "a server without hooks": (replace(SERVER, hooks=()), ["error hooks.installed"]),
    "a server that checks and does not plan": (
        replace(SERVER, hooks=("pre-receive",), wanted=("pre-receive", "post-receive")),
        ["error hooks.installed"],
    ),
    "hooks elsewhere": (replace(SERVER, hook_problem="core.hooksPath is set"), ["error hooks.installed"]),
    "old hooks": (replace(SERVER, stale=("pre-receive",)), ["warning hooks.current"]),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_are_found_and_nothing_else(name: str) -> None:
    facts, expected = CASES[name]
    assert gaps(facts) == expected


def test_what_does_not_answer_is_unknown_with_its_reason() -> None:
    def call() -> int:
        raise RemoteError("git_remote_unavailable", "no route to host")

    value, (finding,) = attempt("ledger.present", call, "brain")
    assert (value, finding.health, finding.place) == (None, Health.UNKNOWN, "brain")
    assert finding.detail == "git_remote_unavailable: no route to host"


def test_the_worst_comes_first() -> None:
    healths = (Health.GOOD, Health.UNKNOWN, Health.ERROR, Health.WARNING, Health.ERROR)
    found = sort_findings(DoctorFinding(f"c{n}", health, "") for n, health in enumerate(healths))
    assert [f.check for f in found] == ["c2", "c4", "c3", "c1", "c0"]


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ({}, "8 writers raced 2 times for each condition, and one won"),
        ({"ignores": frozenset({"If-None-Match"})}, "in 2 of 2 races"),
        ({"ignores": frozenset({"If-Match"})}, "replace the same content (If-Match): 8 of 8"),
        ({"overlap": 8}, "create the same object (If-None-Match: *): 8 of 8"),
        ({"overlap": 8, "careless": frozenset({"If-Match"})}, "replace the same content (If-Match): 8 of 8"),
    ],
    ids=["strict", "creates over", "replaces over", "creates in a race", "replaces in a race"],
)
def test_a_bucket_has_to_decide_between_writers(s3: S3Place, service: dict[str, Any], said: str) -> None:
    for name, value in service.items():
        setattr(s3.server, name, value)
    finding = storage_finding(lambda: S3Store(s3.root), "brain", rounds=2)
    assert said in finding.detail
    assert finding.health is (Health.ERROR if service else Health.GOOD)
    assert s3.keys() == (), "the objects of the races are removed"


def test_eight_writers_race_twenty_times_for_each_condition(s3: S3Place) -> None:
    assert storage_finding(lambda: S3Store(s3.root), "brain").health is Health.GOOD
    conditions = [asked.condition == "*" for asked in s3.server.log if asked.condition is not None]
    assert (conditions.count(True), conditions.count(False)) == (160, 160)


REFUSALS: dict[str, tuple[Callable[[Asked], int | None], Health]] = {
    "a wrong secret": (lambda asked: 403, Health.ERROR),
    "no right to read": (lambda asked: 403 if asked.kind == "GET" else None, Health.ERROR),
    "no right to list": (lambda asked: 403 if asked.kind == "LIST" else None, Health.ERROR),
    "no right to delete": (lambda asked: 403 if asked.method == "DELETE" else None, Health.ERROR),
    "a service that is away": (lambda asked: 503, Health.UNKNOWN),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_has_failed_and_silence_proves_nothing(s3: S3Place, name: str) -> None:
    s3.server.fault, health = REFUSALS[name]
    finding = storage_finding(lambda: S3Store(s3.root), "brain", rounds=1)
    assert (finding.health, "access is denied" in finding.detail) == (health, health is Health.ERROR)
    assert finding.fix


def test_a_missing_bucket_has_failed(s3: S3Place) -> None:
    finding = storage_finding(lambda: S3Store("s3://no-such-bucket/x"), "brain", rounds=1)
    assert finding.health is Health.ERROR
    assert "the bucket does not exist" in finding.detail
    assert "create the bucket" in finding.fix


def test_a_store_that_cannot_be_opened_says_why() -> None:
    def refuse() -> S3Store:
        raise GitopsError(Code.STORAGE_DRIVER_MISSING, "why")

    finding = storage_finding(refuse, "brain")
    assert (finding.health, finding.detail) == (Health.ERROR, "storage_driver_missing: why")


@pytest.mark.parametrize(
    ("hooks", "said"),
    [((), "write the ledger"), (("pre-receive",), "planned or applied"), (("post-receive",), "write the ledger")],
)
def test_what_a_missing_hook_of_a_server_means(hooks: tuple[str, ...], said: str) -> None:
    (found,) = [
        f
        for f in machine_findings(replace(SERVER, hooks=hooks, wanted=("pre-receive", "post-receive")))
        if f.check == "hooks.installed"
    ]
    assert said in found.detail


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


def test_identity_providers_are_asked_for_their_keys() -> None:
    """The first one answers, the second has no discovery document, and a third has only the keys of the second elsewhere."""
    with IdentityProvider() as good, IdentityProvider() as mute:
        mute.broken[DISCOVERY] = (404, b"{}")
        rules = (ClaimRule("{sub}"),)
        far = "https://login.example.org"
        issuers = [TokenIssuer(each.issuer, ("brain",), rules) for each in (good, mute)]
        issuers.append(TokenIssuer(far, ("brain",), rules, jwks=f"{mute.issuer}{KEYS}"))
        found = [(f.place, f.check, f.health) for f in issuer_findings(issuers, open_issuer)]
    local = {good.issuer: Health.GOOD, mute.issuer: Health.WARNING, far: Health.GOOD}
    assert found == [
        finding
        for place, keys in local.items()
        for finding in ((place, "oidc.issuer", Health.WARNING), (place, "oidc.keys", keys))
    ]


def test_an_identity_provider_elsewhere_is_not_called_local() -> None:
    """Nothing is sent anywhere."""

    def closed(address: str) -> WebSender:
        raise RemoteError(Code.ISSUER_UNAVAILABLE, f"{address} is not reachable")

    issuer = TokenIssuer("https://login.example.org", ("brain",), (ClaimRule("{sub}"),))
    (finding,) = issuer_findings([issuer], closed)
    assert (finding.check, finding.health) == ("oidc.keys", Health.WARNING)
    assert "https://login.example.org is not reachable" in finding.detail
