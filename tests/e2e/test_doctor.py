"""`gitops doctor` on a served repository and on a clone: what is sound is called good, each planted gap is found and no other.

The program itself is started where its hooks and its outputs matter; the planted gaps are looked at in this process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.git.hooks import install_hooks, remove_hooks
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.repository.wiring.system import own_command
from tests.e2e.conftest import Built
from tests.support.loop import CONFIG, DELETE_LEGACY, LEDGER, MAIN, SIGNERS, UNMAPPED, Done, Loop, email
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e


def _doctor(loop: Loop, who: str, *more: str, at: Path | None = None) -> Done:
    place = at or (loop.server if who == "bot" else loop.clone(who))
    return loop.program(who, *PROGRAM, "doctor", "--repo", str(place), *more, at=place, check=False)


GROWTH = "  data_growth: {percent: 10, rows: 0}\n"
"""As new repositories have it; without it, doctor has something to advise."""


@pytest.fixture
def loop(request: pytest.FixtureRequest, built: Built, tmp_path: Path) -> Loop:
    """The cluster is applied, with the rules of a new repository. A test may name the object format."""
    how = (request.param,) if hasattr(request, "param") else ()
    return built(CONFIG + GROWTH, *how).copied(tmp_path / "loop")


@pytest.fixture
def served(loop: Loop) -> Loop:
    """With hooks on the server that start the very program, as doctor wants them there."""
    install_hooks(str(loop.server), "server", own_command())
    return loop


@pytest.fixture
def look(served: Loop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """The command in this process, on the server, as the bot; without its probes."""
    for name in [name for name in os.environ if name.startswith(("GIT", "CI"))]:
        monkeypatch.delenv(name)
    for name, value in served.environment("bot").items():
        monkeypatch.setenv(name, value)

    def run(*more: str) -> Done:
        code = main(["doctor", "--repo", str(served.server), "--no-probe", *more])
        return Done(code, capsys.readouterr().out)

    return run


def _gaps(done: Done) -> dict[str, str]:
    """Checks that are not good, with how they ended."""
    form = json.loads(done.text)
    assert form["ok"] is (done.code == 0)
    assert all(f.get("fix") for f in form["findings"] if f["health"] in ("error", "warning"))
    return {f["check"]: f["health"] for f in form["findings"] if f["health"] != "good"}


def _things(loop: Loop) -> dict[str, str]:
    return dict(loop.store.refs("refs"))


@pytest.mark.journey
def test_a_sound_server_has_no_gap_and_is_left_as_it_was(served: Loop) -> None:
    before = _things(served)
    files = sorted(p for p in (served.folder / "data").rglob("*"))
    done = _doctor(served, "bot", "--strict")
    assert done.code == 0, done.text
    assert "ERROR" not in done.text
    assert done.text.splitlines()[-1].startswith("doctor: 0 errors, 0 warnings, 0 unknown")
    assert _things(served) == before
    assert sorted(p for p in (served.folder / "data").rglob("*")) == files


@pytest.mark.parametrize(("loop", "engine"), [("sha1", "libgit2"), ("sha256", "git")], indirect=["loop"])
def test_what_reads_the_repository_is_named(look: Callable[..., Done], engine: str) -> None:
    done = look("--json")
    (detail,) = [each["detail"] for each in json.loads(done.text)["findings"] if each["check"] == "git.engine"]
    assert detail.startswith(f"{engine} reads this repository")


def test_a_fresh_clone_is_told_what_it_lacks(loop: Loop) -> None:
    gaps = _gaps(_doctor(loop, "alice", "--json"))
    assert gaps.pop("hooks.installed") == "warning"
    assert gaps.pop("ledger.pin") == "warning"
    # Only the server's key signs entries: that a lock can be pushed proves nothing about the ledger.
    assert gaps["ledger.writable"] == "unknown"
    assert not [check for check in gaps if check.startswith("forge.")]
    assert set(gaps.values()) == {"unknown"}
    loop.gitops("alice", "hook", "install")
    loop.gitops("alice", "audit")
    assert set(_gaps(_doctor(loop, "alice", "--json")).values()) == {"unknown"}
    assert [ref for ref in _things(loop) if "doctor" in ref] == []


def _nothing_knows_authors(loop: Loop) -> None:
    loop.program("bot", "git", "config", "--unset", "receive.certNonceSeed", at=loop.server)
    unsigned = loop.commit("alice", {"gitops.yaml": (UNMAPPED + GROWTH).encode()}, key=None)
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), unsigned)])


def _unlisted_accounts(loop: Loop) -> None:
    _to(loop, {"gitops.yaml": f"{UNMAPPED}{GROWTH}  accounts: {{'github:11': alice@people.example}}\n".encode()})


def _no_hooks(loop: Loop) -> None:
    remove_hooks(str(loop.server), "server")


def _other_hooks(loop: Loop) -> None:
    hook = loop.server / "hooks" / "pre-receive"
    hook.write_text(hook.read_text() + "# of an older release\n")


def _open_key(loop: Loop) -> None:
    loop.key("bot").chmod(0o644)


def _key_of_a_person(loop: Loop) -> None:
    loop.program("bot", "git", "config", "user.signingKey", str(loop.key("alice")), at=loop.server)


def _no_fsck(loop: Loop) -> None:
    loop.program("bot", "git", "config", "receive.fsckObjects", "false", at=loop.server)


def _replaced(loop: Loop) -> None:
    loop.program("bot", "git", "replace", loop.tip(), loop.commit("mallory", {"x": b"x\n"}), at=loop.server)


def _password(loop: Loop) -> None:
    url = "https://bot:correct-horse@git.example/x.git"
    loop.program("bot", "git", "remote", "add", "mirror", url, at=loop.server)


def _to(loop: Loop, files: dict[str, bytes | None]) -> None:
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("alice", files))])


def _broken_rules(loop: Loop) -> None:
    _to(loop, {"gitops.yaml": b"version: 1\nclusterz: []\n"})


def _no_rules(loop: Loop) -> None:
    _to(loop, {"gitops.yaml": None})


def _wildcard(loop: Loop) -> None:
    _to(loop, {SIGNERS: loop.signers("bot", "alice") + b"* ssh-ed25519 AAAA\n"})


def _waiting_rules(loop: Loop) -> None:
    _to(loop, {"gitops.yaml": (CONFIG + GROWTH + "  required: 2\n").encode()})


def _broken_folder(loop: Loop) -> None:
    _to(loop, {"cluster/notes.pg": b"nodes Note {}\n"})


def _rewound(loop: Loop) -> None:
    before = loop.store.commit(loop.tip(LEDGER)).parents[0]
    loop.store.update_refs([RefUpdate(LEDGER, loop.tip(LEDGER), before)])


def _forged(loop: Loop) -> None:
    head = loop.tip(LEDGER)
    commit = NewCommit(loop.store.commit(head).tree, (head,), Person("mallory", email("mallory"), 1), "entry\n")
    forged = loop.store.write_commit(commit, signing_key=str(loop.key("mallory")))
    loop.store.update_refs([RefUpdate(LEDGER, head, forged)])


def _deleted(loop: Loop) -> None:
    loop.drop(LEDGER)


def _locked(loop: Loop) -> None:
    tree = loop.store.write_files(None, {"lock.json": b"not a lock\n"})
    commit = loop.store.write_commit(NewCommit(tree, (), Person("mallory", "m", 1), "lock\n"), signing_key=None)
    loop.store.update_refs([RefUpdate("refs/gitops/locks/brain", ZERO, commit)])


def _no_root(loop: Loop) -> None:
    loop.program("bot", "git", "config", "gitops.root", "/dev/null/nowhere", at=loop.server)


GAPS: dict[Callable[[Loop], None], dict[str, str]] = {
    _nothing_knows_authors: {"hooks.origins": "error", "trust.pending": "warning"},
    _no_hooks: {
        "hooks.installed": "error",
        **{
            f"forge.{what}.{part}": "unknown"
            for what in ("target", "ledger", "approvals", "revocations", "countersignatures")
            for part in ("force-push", "deletion")
        },
    },
    _other_hooks: {"hooks.current": "warning"},
    _open_key: {"key.mode": "error"},
    _key_of_a_person: {"trust.own-key": "error"},
    _no_fsck: {"git.fsck": "error"},
    _replaced: {"git.replace": "warning"},
    _password: {"git.remote-password": "warning"},
    _broken_rules: {"config.file": "error"},
    _no_rules: {"config.file": "error"},
    _wildcard: {"trust.readable": "error"},
    _waiting_rules: {"trust.pending": "warning"},
    _broken_folder: {"cluster.valid": "error"},
    _rewound: {"ledger.chain": "error"},
    _forged: {"ledger.chain": "error"},
    _deleted: {"ledger.present": "error"},
    _locked: {"ledger.lock": "error"},
    _no_root: {"storage.writable": "error"},
}


DAMAGES = {_forged: pytest.mark.damaged_ledger(reason="an entry is signed by mallory")}
PLANTS = [pytest.param(p, marks=DAMAGES.get(p, ()), id=p.__name__.strip("_")) for p in GAPS]


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_gap_is_found_and_nothing_else(
    loop: Loop, look: Callable[..., Done], plant: Callable[[Loop], None]
) -> None:
    plant(loop)
    before = _things(loop)
    done = look("--json")
    untried = {"key.signs": "unknown", "ledger.writable": "unknown"}
    found = _gaps(done)
    assert {check: health for check, health in found.items() if untried.get(check) != health} == GAPS[plant]
    assert "correct-horse" not in done.text
    assert (plant is _password) == ("git remote set-url mirror https://bot@git.example/x.git" in done.text)
    assert "PATH" not in done.text
    assert done.code == ("error" in GAPS[plant].values())
    if "warning" in GAPS[plant].values():
        assert look("--strict").code == 1
    assert _things(loop) == before


def test_approvers_without_an_account_of_the_forge_are_named(loop: Loop, look: Callable[..., Done]) -> None:
    _unlisted_accounts(loop)
    findings = {f["check"]: f for f in json.loads(look("--json", "--forge", "github").text)["findings"]}
    found = findings["trust.accounts"]
    assert found["health"] == "error"
    # By the rules in force: those of the branch, which list an account of alice, wait for an approval.
    assert "listed for alice@people.example, bob@people.example, carol@people.example" in found["detail"]
    assert "{'github:NUMBER': alice@people.example}" in found["fix"]
    assert "trust.accounts" not in look("--json").text


def test_ledger_folders_leave_the_rest_out(loop: Loop, look: Callable[..., Done]) -> None:
    _to(loop, {"gitops.yaml": b"version: 1\nclusters: [{name: brain, path: cluster}]\nledger: {store: directory}\n"})
    found = {f["check"] for f in json.loads(look("--json").text)["findings"]}
    assert "config.ledger" in found
    assert not [check for check in found if check.startswith(("trust.", "ledger.", "forge."))]


@pytest.mark.damaged_ledger(reason="the repository has no HEAD")
def test_a_remote_that_does_not_answer_leaves_things_unknown(loop: Loop) -> None:
    clone = loop.clone("alice")
    (loop.server / "HEAD").rename(loop.server / "HEAD.away")
    gaps = _gaps(_doctor(loop, "alice", "--json", at=clone))
    assert gaps["config.branch"] == "unknown"


def test_a_shallow_clone_is_told_how_to_get_the_rest(loop: Loop) -> None:
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    place = loop.home("alice") / "shallow"
    loop.program("alice", "git", "clone", "-q", "--depth", "1", f"file://{loop.server}", str(place), at=loop.folder)
    done = _doctor(loop, "alice", at=place)
    assert done.code == 1
    assert "git fetch --unshallow" in done.text
