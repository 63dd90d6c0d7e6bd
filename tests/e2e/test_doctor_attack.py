"""`gitops doctor --attack`: every defence holds on a sound setup, and each that is taken away is seen to fall.

A defence is taken away in this process, where the attacks run: what they would do against a program with that hole.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops.apply import adopt, refresh
from gitops.approvals import counting, data, pushes
from gitops.approvals import verify as approvals
from gitops.bot import comment_commands, guard
from gitops.bot.guard import PushGuard
from gitops.bot.project import Project
from gitops.cli.main import main
from gitops.cluster import gate
from gitops.cluster import revocations as kept
from gitops.core.errors import GitopsError
from gitops.doctor.attack import copy, execution, run
from gitops.doctor.attack.run import ATTACKS, attack
from gitops.doctor.findings import AttackReport, AttackResult, Defence
from gitops.forge.events import CommentEvent
from gitops.forge.port import Comment, Permission
from gitops.forge.refs import records
from gitops.forge.refs.document_forge import DocumentForge
from gitops.git import command as git_command
from gitops.git import remote
from gitops.git.hooks import remove_hooks
from gitops.git.port import ZERO, RefUpdate
from gitops.graph import delete
from gitops.ledger import port, witnesses
from gitops.ledger.heads import Heads
from gitops.model.kinds import SchemaKind
from gitops.model.ledger import LockObservation
from gitops.model.plan import PlanInputs
from gitops.model.trust import TrustRoot
from gitops.plan import planner, recovery_rules
from gitops.plan.draft import StateDraft
from gitops.render import markdown
from gitops.wiring.project import LocalProject
from tests.support.loop import CLUSTER, CONFIG, MAIN, TRUSTED, Loop, email

pytestmark = pytest.mark.e2e

OTHER_RULES = """\
version: 1
clusters:
  - {name: brain, path: ., environment: production}
  - {name: other, path: sub/other, environment: staging}
ledger:
  signers: [bot@people.example]
approvals:
  allowed_signers: keys/allowed
  revoked_keys: keys/revoked
  required: 2
"""
FOLDER_RULES = "version: 1\nclusters: [{name: brain, path: cluster}]\nledger: {store: directory}\n"
OTHER_BRANCH = CONFIG.replace("branch: main", "branch: release")
Weaken = Callable[[pytest.MonkeyPatch], None]


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
    """The same repository under quite other rules: two clusters, one of them the root, two people, a list of revoked keys."""
    files: dict[str, bytes | None] = {
        "gitops.yaml": OTHER_RULES.encode(),
        "keys/allowed": loop.signers(*TRUSTED),
        "keys/revoked": b"# none yet\n",
        "cluster.yaml": b"version: 1\ngraphs: {}\n",
    }
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("alice", files))])
    return loop


def _attacked(loop: Loop, *names: str, cluster: str = CLUSTER, hosted: bool = False, **limits: float) -> AttackReport:
    local = LocalProject(str(loop.server), environ=loop.environment("bot"))
    return attack(local, local.project.config().cluster(cluster), names, hosted=hosted, **limits)


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


def test_the_command_says_how_far_it_is(command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_run_one", lambda each, *_: AttackResult(each.name, "", "", Defence.HELD, ""))
    _, form = command()
    total = len(ATTACKS)
    assert form["progress"] == [f"doctor: {done} of {total} attacks are done" for done in range(10, total + 1, 10)]


def test_all_defences_of_a_sound_set_up_hold_and_nothing_is_touched(loop: Loop, command: Callable[..., Any]) -> None:
    before = dict(loop.store.refs("refs")), _files(loop.server), _files(loop.folder / "data")
    code, form = command()
    found = {each["name"]: each["defence"] for each in form["attacks"]}
    assert list(found) == [each.name for each in ATTACKS]
    assert {name for name, defence in found.items() if defence != "held"} == {"revoked-key", "one-person-twice"}
    assert (code, form["ok"], form["cluster"]) == (0, True, CLUSTER)
    assert (dict(loop.store.refs("refs")), _files(loop.server), _files(loop.folder / "data")) == before


def test_other_rules_are_attacked_as_they_are(other: Loop) -> None:
    """Two people, revoked keys, a cluster at the root, no hook in sight because a forge stands before the repository."""
    remove_hooks(str(other.server), "server")
    report = _attacked(other, hosted=True)
    assert report.ok, [result for result in report.results if result.defence is Defence.FELL]
    assert _ended(report, Defence.SKIPPED) == {"moved-approval"}


def _patched(owner: object, name: str, value: object) -> Weaken:
    return lambda monkeypatch: monkeypatch.setattr(owner, name, value)


def _all(*weakened: Weaken) -> Weaken:
    """Several defences are taken away: one alone would be held by the other."""

    def weaken(monkeypatch: pytest.MonkeyPatch) -> None:
        for each in weakened:
            each(monkeypatch)

    return weaken


def _passes(*_: object) -> None:
    """A step that refuses nothing."""


def _nothing(*_: object) -> Iterator[str]:
    return iter(())


def _forgotten(_: object, draft: StateDraft, __: object, graph: str) -> None:
    """A graph whose files are gone is recorded no more."""
    draft.remove_graph(graph, at="2026-01-01T00:00:00Z", approval_id=None, actor=None)


_BELIEVING = """\
import sys
from gitops.approvals import pushes
from gitops.cli.main import main
pushes.identity_of = lambda environ, _: (None, environ.get("REMOTE_USER"))
sys.exit(main())
"""


def _any_time(self: TrustRoot, key: str, **_: object) -> str | None:
    """Keys count always and for everything, also when they are revoked."""
    return next((signer.principals[0] for signer in self.signers if signer.key == key), None)


_REAL_COMMENTS = records.read_comments
_REAL_LOCATE = remote._locate


def _by_marker(folder: records.DocumentFolder, own: str) -> tuple[Comment, ...]:
    """A comment is the bot's if it carries the marker, whoever wrote it."""
    found = []
    for comment in _REAL_COMMENTS(folder, own):
        marked = comment.body.startswith("<!-- gitops")
        found.append(Comment(comment.author, comment.body, comment.at, "gitops" if marked else None, comment.id))
    return tuple(found)


def _with_password(url: str) -> remote._Location:
    found = _REAL_LOCATE(url)
    return remote._Location(found.argument, url, found.header)


def _anybody_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody has every right, and an event is believed as it comes."""
    monkeypatch.setattr(DocumentForge, "permission", lambda *_: Permission.ADMIN)

    def believed(_: object, event: CommentEvent, __: object) -> Comment:
        return Comment(event.author.login, event.body, event.at, None, event.comment, event.author.id, edited=False)

    monkeypatch.setattr(comment_commands, "_confirmed", believed)


_TO_TARGETS = {
    *("target-rewritten", "target-deleted", "symbolic-link", "submodule", "yaml-bomb", "wildcard-principal"),
    *("file-outside", "names-in-case"),
}
WEAKNESSES: dict[str, tuple[Weaken, set[str], set[str]]] = {
    "no check of who signed": (
        _patched(approvals, "_signer", _passes),
        {"foreign-key", "expired-key-backdated", "narrow-key", "another-cluster"},
        {"foreign-key", "expired-key-backdated", "narrow-key"},
    ),
    "keys for ever": (
        _patched(TrustRoot, "principal", _any_time),
        {"expired-key-backdated", "narrow-key", "foreign-key"},
        {"expired-key-backdated", "narrow-key"},
    ),
    "no signature besides that of the commit": (
        _patched(approvals, "own_signature_problem", lambda *_: ""),
        {"drafted-approval", "edited-approval", "pushed-after-plan"},
        {"drafted-approval"},
    ),
    "no check of who may": (
        _patched(approvals, "_permission", _passes),
        {"self-approval", "unknown-author", "break-glass-by-anybody", "bot-approves", "foreign-key"},
        {"self-approval", "unknown-author", "break-glass-by-anybody", "bot-approves"},
    ),
    "accounts that are people": (
        _patched(pushes, "person_of_account", lambda _, account: account),
        {"unlisted-account", "unknown-author"},
        {"unlisted-account"},
    ),
    "authors who may approve": (
        _patched(approvals, "_permission", _passes),
        {"unlisted-account", "pushed-beside-a-run", "spoofed-login"},
        {"unlisted-account", "pushed-beside-a-run"},
    ),
    "hooks that believe variables": (
        _patched(run, "own_command", lambda: (sys.executable, "-I", "-c", _BELIEVING)),
        {"spoofed-login", "ledger-pushed-over"},
        {"spoofed-login"},
    ),
    "a clock that may go back": (
        _patched(port, "ledger_time", lambda now, _: now),
        {"clock-behind", "expired-key-backdated"},
        {"clock-behind"},
    ),
    "locks known by their id alone": (
        _patched(LockObservation, "is_named", lambda self, name: self.info is not None and self.info.lock_id == name),
        {"garbage-lock", "lock-pushed-over"},
        {"garbage-lock"},
    ),
    "histories that are read to their end": (
        _all(
            _patched(witnesses, "read_verified_entry", _passes),
            *(_patched(witnesses, "MOST_STEPS", 10**9), _patched(counting, "_MOST_MERGES", 10**9)),
        ),
        {"junk-approvals", "criss-cross"},
        {"junk-approvals", "criss-cross"},
    ),
    "no check of the target": (
        _patched(approvals, "_target", _passes),
        {"another-repository", "another-cluster", "another-environment", "changed-after-approval"},
        {"another-repository", "another-cluster", "another-environment"},
    ),
    "no check of what was used": (
        _patched(approvals, "_validity", _passes),
        {"spent-approval", "changed-after-approval"},
        # It is also for an earlier graph, and older than the last change.
        set(),
    ),
    "no check of what is covered": (
        _patched(approvals, "_coverage", _passes),
        {"changed-after-approval", "spent-approval", "edited-approval"},
        {"changed-after-approval", "edited-approval"},
    ),
    "a hook that lets ledgers move": (
        _patched(PushGuard, "_check_ledger", _nothing),
        {"ledger-rewound", "ledger-deleted", "entry-forged", "entry-tampered", "target-rewritten"},
        {"ledger-rewound", "ledger-deleted", "entry-forged", "entry-tampered"},
    ),
    "a hook that lets targets move": (
        _patched(PushGuard, "_check_target", _nothing),
        _TO_TARGETS,
        _TO_TARGETS,
    ),
    "a hook that lets locks move": (
        _patched(PushGuard, "_check_lock", _nothing),
        {"lock-pushed-over", "moved-approval"},
        {"lock-pushed-over"},
    ),
    "a hook that lets approvals move": (
        _patched(PushGuard, "_check_approval", _nothing),
        {"lock-pushed-over", "moved-approval"},
        {"moved-approval"},
    ),
    "revocations that no entry keeps": (
        _patched(kept, "find_revocations", lambda *_, **__: ()),
        {"revocation-undone", "ledger-imported"},
        {"revocation-undone"},
    ),
    "an import that looks at no graphs": (
        _patched(adopt, "_find_former", lambda _: None),
        {"revocation-undone", "ledger-imported"},
        {"ledger-imported"},
    ),
    "documents that prove without a signature": (
        _patched(Heads, "_doubt", lambda *_: ""),
        {"foreign-document", "entry-unsigned"},
        {"foreign-document"},
    ),
    "approvals of any graph that are never used up": (
        _all(
            _patched(approvals, "_validity", _passes),
            _patched(approvals, "_coverage", _passes),
            *(_patched(module, "data_refusal", _passes) for module in (approvals, data)),
        ),
        {"left-over-approval", "emptied-graph"},
        {"left-over-approval"},
    ),
    "approvals and deletes of any data": (
        _all(
            *(_patched(module, "data_refusal", _passes) for module in (approvals, data)),
            _patched(delete, "_check_order", _passes),
        ),
        {"loaded-after-approval", "slow-run", "vanished-graph"},
        {"loaded-after-approval", "slow-run"},
    ),
    "a delete that forgets who permitted it before": (
        _all(
            _patched(recovery_rules, "_delete_row", lambda *_: recovery_rules._Row.RETIRE),
            _patched(delete, "_check_order", _passes),
        ),
        {"restored-backup", "left-over-approval"},
        {"restored-backup"},
    ),
    "graphs that vanish and are forgotten": (
        _patched(refresh, "_record_vanished", _forgotten),
        {"vanished-graph", "emptied-graph"},
        {"vanished-graph"},
    ),
    "migrations that are never gated": (
        _patched(SchemaKind, "_migration_gate", _passes),
        {"vanished-graph", "emptied-graph"},
        {"emptied-graph"},
    ),
    "comments known by their marker": (
        _patched(records, "read_comments", _by_marker),
        {"comment-marker", "spoofed-status"},
        {"comment-marker"},
    ),
    "everybody may command": (
        _anybody_commands,
        {"strangers-command", "edited-comment", "spoofed-status"},
        {"strangers-command", "edited-comment"},
    ),
    "values that are not code": (
        _patched(markdown, "_span", lambda shown: shown),
        {"markdown", "comment-marker"},
        {"markdown"},
    ),
    "addresses as they are": (
        _patched(remote, "_locate", _with_password),
        {"secret-in-address", "spoofed-status"},
        {"secret-in-address"},
    ),
    "a Python that imports from its folder": (
        _patched(execution, "own_command", lambda: (sys.executable, "-m", "gitops")),
        {"hostile-checkout", "secrets-of-a-job"},
        {"hostile-checkout"},
    ),
    "programs that see every variable": (
        _patched(git_command, "child_environment", lambda inherited, **_: dict(inherited)),
        {"hostile-checkout", "secrets-of-a-job"},
        {"secrets-of-a-job"},
    ),
}


@pytest.mark.parametrize("name", WEAKNESSES)
def test_a_defence_that_is_taken_away_is_seen_to_fall_and_no_other(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    weaken, tried, fallen = WEAKNESSES[name]
    weaken(monkeypatch)
    report = _attacked(loop, *tried)
    assert _ended(report, Defence.FELL) == fallen, report.results
    assert _ended(report, Defence.HELD) == tried - fallen, report.results
    assert report.ok is (not fallen)


BEHIND_THE_HOOK: dict[str, tuple[Weaken, set[str]]] = {
    "any history is applied": (_patched(Project, "_admit", _passes), {"target-rewritten"}),
    "any ledger is believed": (
        _patched(Heads, "newest", lambda _: None),
        {"ledger-rewound", "ledger-deleted", "ledger-pushed-over", "entry-forged"},
    ),
}


@pytest.mark.parametrize("name", BEHIND_THE_HOOK)
def test_where_a_forge_judges_pushes_the_bots_own_defences_are_tried(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    weaken, fallen = BEHIND_THE_HOOK[name]
    remove_hooks(str(loop.server), "server")
    assert _attacked(loop, *fallen, hosted=True).ok
    report = _weakened_after_building(loop, monkeypatch, weaken, fallen)
    assert _ended(report, Defence.FELL) == fallen, report.results


def _weakened_after_building(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, weaken: Weaken, names: set[str]
) -> AttackReport:
    """The copy is made by a sound program, and attacked with the hole."""

    def build(*given: Any, **named: Any) -> Any:
        made = copy.build_states(*given, **named)
        weaken(monkeypatch)
        return made

    monkeypatch.setattr(run, "build_states", build)
    return _attacked(loop, *names, hosted=True)


def test_one_person_does_not_count_twice_unless_that_defence_falls(
    other: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _attacked(other, "one-person-twice").ok
    for module in (approvals, gate):
        monkeypatch.setattr(
            module, "one_per_person", lambda verified: tuple(each for each in verified if each.accepted)
        )
    # The planner counts people once more.
    real = planner._requirements

    def each_is_a_person(changes: Any, situation: Any, inputs: PlanInputs) -> Any:
        named = tuple(replace(approval, approved_by=approval.approval_id) for approval in inputs.approvals)
        return real(changes, situation, replace(inputs, approvals=named))

    monkeypatch.setattr(planner, "_requirements", each_is_a_person)
    assert _ended(_attacked(other, "one-person-twice"), Defence.FELL) == {"one-person-twice"}


def test_a_guard_that_compares_names_byte_by_byte_is_found(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _attacked(loop, "alias-refs").ok
    monkeypatch.setattr(guard, "_folded", str)
    assert _ended(_attacked(loop, "alias-refs"), Defence.FELL) == {"alias-refs"}


def test_a_server_without_hooks_is_open(loop: Loop, command: Callable[..., Any]) -> None:
    remove_hooks(str(loop.server), "server")
    names = ("ledger-pushed-over", "moved-approval", "bot-refs")
    code, form = command(*(part for name in names for part in ("--only", name)))
    assert code == 1
    assert {each["name"]: each["defence"] for each in form["attacks"]} == dict.fromkeys(names, "fell")
    assert all("gitops hook install --server" in each["detail"] for each in form["attacks"])


def test_where_the_honest_way_does_not_work_nothing_is_proven(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "_coverage", lambda _: ("approval_stale", "never good enough"))
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
    assert code == 1
    assert form["diagnostics"][0]["code"] == "usage_error"
    assert "honest-approval" in form["diagnostics"][0]["message"]


def test_a_ledger_folder_has_nothing_signed_to_attack(loop: Loop, command: Callable[..., Any]) -> None:
    commit = loop.commit("alice", {"gitops.yaml": FOLDER_RULES.encode()})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), commit)])
    code, form = command()
    assert (code, form["diagnostics"][0]["code"]) == (1, "usage_error")


def test_a_cluster_that_follows_another_branch_is_attacked_there(loop: Loop) -> None:
    rules = OTHER_BRANCH.encode()
    commit = loop.commit("alice", {"gitops.yaml": rules})
    for ref in (MAIN, "refs/heads/release"):
        loop.store.update_refs([RefUpdate(ref, loop.store.resolve(ref) or ZERO, commit)])
    names = ("honest-approval", "target-rewritten", "target-deleted", "rules-twice", "own-rules", "wildcard-principal")
    assert _attacked(loop, *names).ok
