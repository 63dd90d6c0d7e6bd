"""What the checks of a forge say of what it tells: rules of branches, permissions, and what a token may not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.examine import forge_findings, unreachable_forge_findings
from gitops.doctor.findings import Health
from gitops.forge.port import Account, BranchRules, ForgeReader, Permission

ME = Account("7", "gitops-bot")
CLUSTER = ClusterRule(name="brain", path="cluster")
TARGET = BranchRules(
    protected=True,
    request_needed=True,
    force_push=False,
    deletion=False,
    required_checks=("gitops/plan/brain",),
    pushers=(),
    queue=False,
)
LEDGER = BranchRules(protected=True, request_needed=False, force_push=False, deletion=False, pushers=("gitops-bot",))
APPROVALS = BranchRules(protected=True, request_needed=False, force_push=False, deletion=False)


@dataclass
class Told:
    """What a forge tells, as values."""

    target: BranchRules = TARGET
    ledger: BranchRules = LEDGER
    approvals: BranchRules = APPROVALS
    account: Account = ME
    level: Permission = Permission.WRITE
    refuses: set[str] = field(default_factory=set)

    def me(self) -> Account:
        if "me" in self.refuses:
            raise RemoteError("forge_refused", "Bad credentials", status=401)
        return self.account

    def permission(self, account: Account) -> Permission:
        if "permission" in self.refuses:
            raise GitopsError("forge_refused", "Must have admin rights")
        return self.level if account == self.account else Permission.NONE

    def branch_rules(self, branch: str) -> BranchRules:
        if branch in self.refuses:
            raise RemoteError("forge_unavailable", "no answer")
        if branch.startswith("gitops/ledger/"):
            return self.ledger
        return self.approvals if branch.startswith("gitops/") else self.target


def gaps(told: Told, *, queue: bool = False) -> list[str]:
    forge: ForgeReader = told  # type: ignore[assignment]
    found = list(forge_findings(forge, "github", [CLUSTER], queue=queue))
    assert all(f.fix for f in found if f.health in (Health.WARNING, Health.ERROR))
    return [f"{f.health} {f.check}" for f in found if f.health is not Health.GOOD]


def test_a_sound_set_up_has_no_gap() -> None:
    assert gaps(Told()) == []


_CREATED = ("approvals", "revocations", "countersignatures")
CASES: dict[str, tuple[Callable[[], Told], list[str]]] = {
    "a bad token": (lambda: Told(refuses={"me"}), ["error forge.token"]),
    "a reader": (lambda: Told(level=Permission.READ), ["error forge.permission"]),
    "an app": (
        lambda: Told(level=Permission.NONE, account=replace(ME, bot=True)),
        ["unknown forge.permission"],
    ),
    "permissions are not told": (lambda: Told(refuses={"permission"}), ["unknown forge.permission"]),
    "a target that may be rewritten": (
        lambda: Told(replace(TARGET, force_push=True)),
        ["warning forge.target.force-push"],
    ),
    "a target that may be deleted": (lambda: Told(replace(TARGET, deletion=True)), ["warning forge.target.deletion"]),
    "a target without requests": (
        lambda: Told(replace(TARGET, request_needed=False)),
        ["warning forge.target.request"],
    ),
    "a plan that stops nothing": (lambda: Told(replace(TARGET, required_checks=())), ["warning forge.target.check"]),
    "the check of another cluster": (
        lambda: Told(replace(TARGET, required_checks=("gitops/plan/brains",))),
        ["warning forge.target.check"],
    ),
    "checks are not told": (lambda: Told(replace(TARGET, required_checks=None)), ["unknown forge.target.check"]),
    "a queue that nobody answers": (lambda: Told(replace(TARGET, queue=True)), ["error forge.target.queue"]),
    "nothing is told of the target": (
        lambda: Told(BranchRules()),
        [
            "unknown forge.target.force-push",
            "unknown forge.target.deletion",
            "unknown forge.target.request",
            "unknown forge.target.check",
        ],
    ),
    "the forge does not answer": (lambda: Told(refuses={"main"}), ["unknown forge.target"]),
    "a ledger that may be rewritten": (
        lambda: Told(ledger=replace(LEDGER, force_push=True)),
        ["error forge.ledger.force-push"],
    ),
    "a ledger that may be deleted": (
        lambda: Told(ledger=replace(LEDGER, deletion=True)),
        ["error forge.ledger.deletion"],
    ),
    "a ledger that takes requests alone": (
        lambda: Told(ledger=replace(LEDGER, request_needed=True)),
        ["error forge.ledger.pushers"],
    ),
    "a ledger that anybody may push": (
        lambda: Told(ledger=BranchRules(False, False, True, True)),
        ["error forge.ledger.force-push", "error forge.ledger.deletion", "error forge.ledger.pushers"],
    ),
    "a ledger that two may push": (
        lambda: Told(ledger=replace(LEDGER, pushers=("gitops-bot", "mira"))),
        ["warning forge.ledger.pushers"],
    ),
    "who may push the ledger is not told": (
        lambda: Told(ledger=replace(LEDGER, pushers=None)),
        ["unknown forge.ledger.pushers"],
    ),
    "approvals that may be moved": (
        lambda: Told(approvals=replace(APPROVALS, force_push=True)),
        [f"warning forge.{what}.force-push" for what in _CREATED],
    ),
    "approvals that need a request": (
        lambda: Told(approvals=replace(APPROVALS, request_needed=True)),
        [f"error forge.{what}.pushers" for what in _CREATED],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_are_found_and_nothing_else(name: str) -> None:
    told, expected = CASES[name]
    assert gaps(told()) == expected


def test_every_status_of_a_head_is_enough() -> None:
    assert gaps(Told(replace(TARGET, required_checks=("*",)))) == []


def test_a_queue_that_a_workflow_answers_is_good() -> None:
    assert gaps(Told(replace(TARGET, queue=True)), queue=True) == []


def test_without_a_token_nothing_is_called_good() -> None:
    found = list(unreachable_forge_findings("there is no token"))
    assert {f.health for f in found} == {Health.UNKNOWN}
    assert all("there is no token" in f.detail for f in found)
