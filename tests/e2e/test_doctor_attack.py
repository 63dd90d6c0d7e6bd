"""`gitops doctor --attack`: every defence holds on a sound setup, and each attack succeeds where its defence is taken away."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.cluster.approvals import verify as approvals
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.attack import copy, run
from gitops.doctor.attack.run import ATTACKS, attack
from gitops.doctor.findings import AttackReport, AttackResult, Defence
from gitops.forge.port import JobSecret
from gitops.git.hooks import remove_hooks
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.wiring.local import LocalRepository
from tests.support.cases import read_yaml
from tests.support.defences import DEFENCES
from tests.support.loop import CLUSTER, CONFIG, MAIN, Loop, email, with_two_people

pytestmark = pytest.mark.e2e

FOLDER_RULES = "version: 1\nclusters: [{name: brain, path: cluster}]\nledger: {store: directory}\n"
OTHER_BRANCH = CONFIG.replace("branch: main", "branch: release")


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files of a test are in a folder of its own, which is empty in the end."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield place
    assert list(place.iterdir()) == []


@pytest.fixture
def other(loop: Loop) -> Loop:
    """The same repository under quite other rules."""
    with_two_people(loop)
    return loop


def _attacked(loop: Loop, *names: str, cluster: str = CLUSTER, hosted: bool = False, **more: Any) -> AttackReport:
    local = LocalRepository(str(loop.server), environ=loop.environment("bot"))
    return attack(local, local.config().cluster(cluster), names, hosted=hosted, **more)


def _ended(report: AttackReport, how: Defence) -> set[str]:
    return {result.name for result in report.results if result.defence is how}


def _files(folder: Path) -> list[str]:
    return sorted(str(path) for path in folder.rglob("*"))


@pytest.fixture
def command(loop: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`gitops doctor --attack` in this process, on the server: its exit code and its document."""
    for name in [name for name in os.environ if name.startswith(("GIT", "CI"))]:
        monkeypatch.delenv(name)
    # Time is left for all attacks, however busy this machine is.
    monkeypatch.setattr(attack, "__kwdefaults__", {**(attack.__kwdefaults__ or {}), "limit_s": 600.0})
    for name, value in loop.environment("bot").items():
        monkeypatch.setenv(name, value)

    def run_command(*more: str) -> Any:
        code = main(["doctor", "--repo", str(loop.server), "--attack", "--json", *more])
        answer = capsys.readouterr()
        return code, {**json.loads(answer.out), "progress": answer.err.splitlines()}

    return run_command


def test_the_command_says_how_far_it_is(
    loop: Loop, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "_run_one", lambda each, *_: AttackResult(each.name, "", "", Defence.HELD, ""))
    assert command()[1]["progress"] == []
    main(["doctor", "--repo", str(loop.server), "--attack"])
    progress = capsys.readouterr().err.splitlines()
    total = len(ATTACKS)
    assert progress == [f"doctor: {done} of {total} attacks are done" for done in range(10, total + 1, 10)]


@pytest.mark.parametrize(("loop", "step"), [("sha1", 1), ("sha256", 6)], indirect=["loop"])
def test_defences_of_a_sound_set_up_hold_and_nothing_is_touched(
    loop: Loop, command: Callable[..., Any], step: int
) -> None:
    """With all attacks; and in a repository of other ids, with each sixth of them."""
    before = dict(loop.store.refs("refs")), _files(loop.server), _files(loop.folder / "data")
    names = [each.name for each in ATTACKS][::step]
    code, form = command(*(part for name in names for part in ("--only", name)))
    found = {each["name"]: each["defence"] for each in form["attacks"]}
    assert list(found) == names
    # This repository has no jobs, and its rules have neither revoked keys nor a change that two people have to approve.
    skipped = {"revoked-key", "one-person-twice", "secrets-in-a-branch"}
    assert {name for name, defence in found.items() if defence != "held"} == skipped & {*names}
    assert (code, form["ok"], form["cluster"]) == (0, True, CLUSTER)
    assert (dict(loop.store.refs("refs")), _files(loop.server), _files(loop.folder / "data")) == before


def test_other_rules_are_attacked_as_they_are(other: Loop) -> None:
    """Two people, revoked keys, a cluster at the root, and a forge before the repository: no hook records who pushes."""
    remove_hooks(str(other.server), "server")
    report = _attacked(other, hosted=True)
    assert report.ok, [result for result in report.results if result.defence is Defence.FELL]
    assert _ended(report, Defence.SKIPPED) == {"moved-approval", "spoofed-login", "secrets-in-a-branch"}


_KEY = JobSecret("GITOPS_SIGNING_KEY", "the repository")
_REFUSED = RemoteError("forge_refused", "status 403", status=403)


@pytest.mark.parametrize(
    ("secrets", "ended", "said"),
    [
        ((), "held", "no secret"),
        ((_KEY,), "held", "GITOPS_SIGNING_KEY"),
        ((JobSecret("OTHER", "the repository", "everyone"),), "held", "no secret"),
        ((replace(_KEY, open_to="everyone"),), "fell", "GITOPS_SIGNING_KEY of the repository: everyone"),
        ((JobSecret("GITOPS_TOKEN", "the repository", "everyone"),), "fell", "GITOPS_TOKEN"),
        # On GitLab, the token of plans can neither push nor approve, if applies have a token of their own.
        (
            (JobSecret("GITOPS_TOKEN", "p", "everyone"), JobSecret("GITOPS_APPLY_TOKEN", "p")),
            "held",
            "GITOPS_APPLY_TOKEN",
        ),
        (_REFUSED, "skipped", "cannot list"),
        (RemoteError("forge_unavailable", "status 503", retryable=True), "unproven", "forge_unavailable"),
    ],
)
def test_secrets_that_a_branch_could_read(loop: Loop, secrets: Any, ended: str, said: str) -> None:
    def read() -> Any:
        if isinstance(secrets, RemoteError):
            raise secrets
        return secrets

    (result,) = _attacked(loop, "secrets-in-a-branch", hosted=True, secrets=read).results
    assert result.defence.value == ended
    assert said in result.detail


def test_a_server_without_hooks_is_open(loop: Loop, command: Callable[..., Any]) -> None:
    remove_hooks(str(loop.server), "server")
    names = ("ledger-pushed-over", "moved-approval", "bot-refs")
    code, form = command(*(part for name in names for part in ("--only", name)))
    assert code == 1
    assert {each["name"]: each["defence"] for each in form["attacks"]} == dict.fromkeys(names, "fell")
    assert all("gitops hook install --server" in each["detail"] for each in form["attacks"])


def test_where_the_honest_way_does_not_work_nothing_is_proven(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    never = replace(approvals.STEPS[6], check=lambda _: ("approval_stale", "never good enough"))
    monkeypatch.setattr(approvals, "STEPS", (*approvals.STEPS[:6], never, *approvals.STEPS[7:]))
    report = _attacked(loop, "honest-approval", "no-approval")
    assert _ended(report, Defence.UNPROVEN) == {"honest-approval"}
    assert not report.ok


def test_what_there_is_no_time_for_is_not_called_good(loop: Loop) -> None:
    report = _attacked(loop, limit_s=0.0)
    assert _ended(report, Defence.UNPROVEN) == {each.name for each in ATTACKS}
    assert not report.ok


def test_a_copy_that_cannot_be_applied_is_no_ground(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy.ClusterCopy, "has_graph", lambda *_: False)
    with pytest.raises(GitopsError) as caught:
        _attacked(loop)
    assert caught.value.code == "attack_impossible"


def test_too_few_people_with_a_key_are_no_ground(loop: Loop) -> None:
    signers = loop.signers("bot", others=f'{email("alice")} valid-before="20200101Z" ssh-ed25519 {_blob(loop)}\n')
    commit = loop.commit("alice", {".gitops/allowed_signers": signers})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), commit)])
    with pytest.raises(GitopsError) as caught:
        _attacked(loop)
    assert caught.value.code == "trust_missing"


def _blob(loop: Loop) -> str:
    return loop.key("alice").with_suffix(".pub").read_text().split()[1]


def test_only_takes_names_that_there_are(loop: Loop, command: Callable[..., Any]) -> None:
    code, form = command("--only", "nothing")
    assert code == 2
    assert form["problems"][0]["code"] == "usage_error"
    assert "honest-approval" in form["problems"][0]["message"]


def test_a_ledger_folder_has_nothing_signed_to_attack(loop: Loop, command: Callable[..., Any]) -> None:
    commit = loop.commit("alice", {"gitops.yaml": FOLDER_RULES.encode()})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), commit)])
    code, form = command()
    assert (code, form["problems"][0]["code"]) == (2, "usage_error")


def test_a_cluster_that_follows_another_branch_is_attacked_there(loop: Loop) -> None:
    rules = OTHER_BRANCH.encode()
    commit = loop.commit("alice", {"gitops.yaml": rules})
    for ref in (MAIN, "refs/heads/release"):
        loop.store.update_refs([RefUpdate(ref, loop.store.resolve(ref) or ZERO, commit)])
    names = ("honest-approval", "target-rewritten", "target-deleted", "rules-twice", "own-rules", "wildcard-principal")
    assert _attacked(loop, *names).ok


_DATA = read_yaml(Path(__file__).parents[1] / "data" / "attacks" / "defences.yaml")


@dataclass(frozen=True)
class _Case:
    """One case of the data file, which says what its parts mean."""

    remove: list[str]
    setup: str = "server"
    fell: list[str] = field(default_factory=list)
    held: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Its name in a report."""
        return f"{self.setup}: {', '.join(self.remove) or 'nothing'}"


CASES = [_Case(**each) for each in _DATA["cases"]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_its_defence_an_attack_succeeds(loop: Loop, monkeypatch: pytest.MonkeyPatch, case: _Case) -> None:
    report = _attack_without(loop, monkeypatch, case)
    ended = {result.name: result.defence for result in report.results}
    assert ended == {**dict.fromkeys(case.fell, Defence.FELL), **dict.fromkeys(case.held, Defence.HELD)}, report.results
    assert report.ok is (not case.fell)


def _attack_without(loop: Loop, monkeypatch: pytest.MonkeyPatch, case: _Case) -> AttackReport:
    hosted = case.setup == "forge"
    if case.setup == "two-people":
        with_two_people(loop)
    if case.setup in ("forge", "unguarded"):
        remove_hooks(str(loop.server), "server")

    sound = copy.build_states

    def build(*given: Any, **named: Any) -> Any:
        made = sound(*given, **named)
        _take_away(monkeypatch, case)
        return made

    if hosted:
        # A sound program builds the copy: some of its steps need what is taken away.
        monkeypatch.setattr(copy, "build_states", build)
    else:
        _take_away(monkeypatch, case)
    local = LocalRepository(str(loop.server), environ=loop.environment("bot"))
    names = [*case.fell, *case.held]
    return attack(local, local.config().cluster(CLUSTER), names, hosted=hosted, limit_s=600.0)


def _take_away(monkeypatch: pytest.MonkeyPatch, case: _Case) -> None:
    for name in case.remove:
        DEFENCES[name](monkeypatch)


def test_every_attack_has_a_defence_without_which_it_succeeds() -> None:
    bites = {name for case in CASES for name in case.fell}
    assert sorted(bites | set(_DATA["otherwise"])) == sorted(each.name for each in ATTACKS)
    assert bites.isdisjoint(_DATA["otherwise"])
    assert {name for case in CASES for name in case.remove} == set(DEFENCES)
