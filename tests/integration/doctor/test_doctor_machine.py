"""What the checks of a machine say of facts about it, and of a place for graphs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.examine import storage_finding
from gitops.doctor.findings import DoctorFinding, Health, attempt, sort_findings
from gitops.doctor.machine import KeyFacts, MachineFacts, machine_findings
from gitops.storage import s3 as s3_module
from gitops.storage.local import LocalStore
from gitops.storage.port import ObjectStore
from gitops.storage.s3 import S3Store
from gitops.wiring.system import RandomIds
from tests.support.memory_store import MemoryStore
from tests.support.s3 import S3Place

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


class Careless(MemoryStore):
    """A store that ignores the condition of a PUT."""

    def create(self, key: str, data: bytes) -> bool:
        self.write(key, data)
        return True


def _finding(store: ObjectStore) -> DoctorFinding:
    return storage_finding(lambda: store, RandomIds(), "brain")


def test_a_strict_store_is_good_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert _finding(store).health is Health.GOOD
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_store_that_overwrites_is_an_error() -> None:
    store = Careless("memory")
    assert _finding(store).health is Health.ERROR
    assert store.names("__cluster") == ()


@pytest.mark.parametrize(
    ("ignored", "health"),
    [(set(), Health.GOOD), ({"If-None-Match"}, Health.ERROR), ({"If-Match"}, Health.ERROR)],
    ids=["strict", "creates over", "replaces over"],
)
def test_a_bucket_has_to_keep_its_conditions(s3: S3Place, ignored: set[str], health: Health) -> None:
    # What a service keeps is asked once for each process.
    s3_module._self_test.cache_clear()
    s3.server.ignores = frozenset(ignored)
    finding = _finding(S3Store(s3.root))
    s3_module._self_test.cache_clear()
    assert finding.health is health
    assert s3.keys() == ()


@pytest.mark.parametrize(
    ("code", "health"),
    [("storage_conditional_put_ignored", Health.ERROR), ("storage_failed", Health.UNKNOWN)],
)
def test_a_store_that_cannot_be_opened_says_why(code: str, health: Health) -> None:
    def refuse() -> ObjectStore:
        raise GitopsError(code, "why")

    finding = storage_finding(refuse, RandomIds(), "brain")
    assert (finding.health, finding.detail) == (health, f"{code}: why")
