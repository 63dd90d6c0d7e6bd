"""What the checks of a machine say of facts about it, and of a place for graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.storage.s3 import S3Store
from gitops.doctor.examine import KeyFacts, MachineFacts, machine_findings, storage_finding
from gitops.doctor.findings import DoctorFinding, Health, attempt, sort_findings
from tests.support.s3 import Asked, S3Place

CLONE = MachineFacts(
    git="git version 2.39.5",
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
    "an old git": (replace(CLONE, git="git version 2.30.9"), ["error git.version"]),
    "a git of tomorrow": (replace(CLONE, git="git version 10.0.1 (Apple Git-99)"), []),
    "a git of its own kind": (replace(CLONE, git="something"), ["error git.version"]),
    "no ssh-keygen": (replace(CLONE, keygen=False), ["error git.version"]),
    "a shallow clone": (replace(CLONE, shallow=True), ["error git.shallow"]),
    "replaced objects": (replace(CLONE, replaced=2), ["warning git.replace"]),
    "a password": (replace(CLONE, remotes_with_password=("origin",)), ["warning git.remote-password"]),
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
