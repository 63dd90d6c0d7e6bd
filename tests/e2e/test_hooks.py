"""Hooks as git runs them: what a clone keeps back, what the server refuses, and that a check that cannot run refuses."""

from __future__ import annotations

import io
import json
import re
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.chain import entry_trust
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from tests.support.loop import (
    APPROVALS,
    CONFIG,
    DELETE_LEGACY,
    FILES,
    LEDGER,
    MAIN,
    SIGNERS,
    Done,
    Loop,
    email,
)

pytestmark = pytest.mark.e2e

BROKEN_SCHEMA = b"node Note {\n    title: Strin @key\n}\n"
BROKEN_QUERY = b"query titles() {\n    match {\n        $n: Nota\n    }\n    return { $n.title }\n}\n"
BROKEN_YAML = (
    FILES["cluster/cluster.yaml"]
    + b"  bad name:\n    schema: legacy.pg\npolicies:\n  p: {file: no.yaml, applies_to: [nowhere]}\n"
)


def _refused(done: Done, *reasons: str) -> None:
    assert done.code, done.text
    for reason in reasons:
        assert reason in done.text, done.text


# In a clone


@pytest.fixture
def clone(loop: Loop) -> Loop:
    """Alice has the hooks in her clone."""
    loop.gitops("alice", "hook", "install")
    return loop


def _commit(loop: Loop, *arguments: str, check: bool = True) -> Done:
    return loop.program("alice", "git", "commit", "-q", *arguments, check=check)


def test_pre_commit_validates_what_is_staged(clone: Loop) -> None:
    schema = clone.clone("alice") / "cluster" / "notes.pg"
    good = schema.read_bytes()
    schema.write_bytes(BROKEN_SCHEMA)
    clone.program("alice", "git", "add", "--all")
    schema.write_bytes(good)
    _refused(_commit(clone, "-m", "Broken", check=False), "schema_parse_error", "notes.pg:2:12")

    schema.write_bytes(good + b"// A remark.\n")
    clone.program("alice", "git", "add", "--all")
    schema.write_bytes(BROKEN_SCHEMA)
    started = time.monotonic()
    _commit(clone, "-m", "A remark")
    print(f"commit with hooks: {time.monotonic() - started:.2f} s")  # noqa: T201 - for those who look with -s

    # `git commit FILE` has an index of its own, with the broken file in it.
    _refused(_commit(clone, "-m", "Broken", "cluster/notes.pg", check=False), "schema_parse_error")


@pytest.mark.parametrize("trailer", ["Plan-Digest: " + "1" * 64, "Entry: 7", "State-Revision: 1", "Config-Digest: x"])
def test_commit_msg_refuses_what_looks_like_the_ledger(clone: Loop, trailer: str) -> None:
    done = _commit(clone, "--allow-empty", "-m", "Words", "-m", trailer, check=False)
    _refused(done, trailer.partition(":")[0])


def test_commit_msg_refuses_an_approval_made_by_hand_and_takes_words(clone: Loop, pending: Loop) -> None:
    commit = pending.sign_approval("bob", "graph.legacy").commit
    message = pending.store.commit(commit or "").message
    _refused(_commit(clone, "--allow-empty", "-m", message.rstrip("\n"), check=False), "an approval statement")
    _commit(clone, "--allow-empty", "-m", "Words", "-m", "Signed-off-by: Alice <alice@people.example>")


def test_pre_push_plans_against_the_ledger(clone: Loop) -> None:
    broken = clone.commit("alice", {"cluster/notes.gq": BROKEN_QUERY}, away=True)
    _refused(clone.push("alice", f"{broken}:refs/heads/topic", check=False), "query_typecheck_error", "notes.gq:3:")
    assert clone.store.resolve("refs/heads/topic") is None
    fine = clone.commit("alice", DELETE_LEGACY, away=True)
    pushed = clone.push("alice", f"{fine}:refs/heads/topic")
    assert "brain: 2 changes against the ledger" in pushed.text


# On the server


def test_broken_cluster_does_not_reach_the_target_branch(loop: Loop) -> None:
    files = {
        "cluster/cluster.yaml": BROKEN_YAML,
        "cluster/notes.gq": BROKEN_QUERY,
        "cluster/legacy.pg": b"node Contact {\n    name String\n}\n",
    }
    before = loop.tip()
    pushed = loop.push("alice", f"{loop.commit('alice', files, away=True)}:main", check=False)
    found = (
        "fix: correct the schema at this place",
        "schema_parse_error",
        "query_typecheck_error",
        "invalid_resource_id",
        "dangling_graph_reference",
    )
    _refused(pushed, *found, "policy_file_missing")
    for file in ("cluster.yaml", "legacy.pg", "notes.gq"):
        assert re.search(rf"\(cluster/{re.escape(file)}:\d+:\d+\)", pushed.text), pushed.text
    assert loop.tip() == before


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"gitops.yaml": CONFIG.replace("approvers", "aprovers").encode()}, "bot_config_invalid"),
        ({"gitops.yaml": CONFIG.replace("path: cluster", "path: ../x").encode()}, "bot_config_invalid"),
        ({SIGNERS: b"* ssh-ed25519 AAAA\n"}, "trust_invalid"),
        ({SIGNERS: None}, "trust_missing"),
        ({path: None for path in FILES if path.startswith("cluster/")}, "cluster_not_found"),
    ],
)
def test_unusable_rules_do_not_reach_the_target_branch(loop: Loop, files: dict[str, bytes | None], reason: str) -> None:
    _refused(loop.push("alice", f"{loop.commit('alice', files, away=True)}:main", check=False), reason, "fix: ")


def test_target_branch_moves_only_forward(loop: Loop) -> None:
    before = loop.tip()
    other = loop.store.write_commit(
        NewCommit(loop.store.commit(before).tree, (), Person("alice", email("alice"), 1), "other\n"), signing_key=None
    )
    _refused(loop.push("alice", f"+{other}:main", check=False), "the target branch only moves forward")
    _refused(loop.push("alice", ":main", check=False), "the target branch is never deleted")
    assert loop.tip() == before


def test_ledger_is_written_by_its_signers_alone(pending: Loop) -> None:
    head = pending.tip(LEDGER)
    tree = pending.store.commit(head).tree
    entry = (pending.store.read(tree, "entry.json") or b"").decode()
    previous = pending.store.commit(head).parents[0]
    entry = entry.replace(f'"{previous}"', f'"{head}"')
    for key in (None, "bob", "mallory"):
        forged = pending.commit("bob", {"entry.json": entry.encode()}, head, key=key, away=True)
        _refused(pending.push("bob", f"{forged}:{LEDGER}", check=False), "ledger_signature_invalid")
    _refused(pending.push("bob", f"+{previous}:{LEDGER}", check=False), "ledger_diverged")
    _refused(pending.push("bob", f":{LEDGER}", check=False), "a ledger is never deleted")
    assert pending.tip(LEDGER) == head


def _own_first_entry(loop: Loop) -> str:
    """The first entry of the ledger as somebody would write it who wants to be believed."""
    first = loop.tip(LEDGER)
    while loop.store.commit(first).parents:
        first = loop.store.commit(first).parents[0]
    base = loop.store.commit(first)
    tree = loop.store.write_files(
        base.tree,
        {
            "trust/gitops.yaml": CONFIG.replace("bot@", "mallory@").encode(),
            f"trust/{SIGNERS}": loop.signers("mallory", "alice"),
        },
    )
    entry = (loop.store.read(tree, "entry.json") or b"").decode()
    theirs = entry_trust(loop.store, first).digest
    stranger = trust_root(
        {
            "gitops.yaml": CONFIG.replace("bot@", "mallory@").encode(),
            SIGNERS: loop.signers("mallory", "alice"),
        }
    ).digest
    tree = loop.store.write_files(tree, {"entry.json": entry.replace(theirs, stranger).encode()})
    new = NewCommit(tree, (), Person("mallory", email("mallory"), 1), base.message)
    return loop.store.write_commit(new, signing_key=str(loop.key("mallory")))


def test_nobody_starts_a_ledger_with_keys_of_their_own(loop: Loop) -> None:
    """An entry is good by the keys that it brings, so the first one must not bring any."""
    forged = _own_first_entry(loop)
    other = f"{forged}:refs/heads/gitops/ledger/other"
    _refused(loop.push("mallory", other, check=False), "cluster other does not exist")
    loop.store.update_refs([RefUpdate(LEDGER, loop.tip(LEDGER), ZERO)])
    _refused(loop.push("mallory", f"{forged}:{LEDGER}", check=False), "other keys and rules than the")


@pytest.mark.damaged_ledger(reason="the chain is replaced by one with other keys")
def test_a_fresh_clone_does_not_believe_a_ledger_that_brings_its_own_keys(loop: Loop) -> None:
    loop.store.update_refs([RefUpdate(LEDGER, loop.tip(LEDGER), _own_first_entry(loop))])
    done = loop.gitops("carol", "status", check=False)
    _refused(done, "ledger_diverged", "the first keys and rules of the ledger")
    stray = loop.commit("mallory", {"README.md": b"elsewhere"}, message="Not of this branch\n")
    source = loop.tip()
    first = _own_first_entry(loop)
    entry = (loop.store.read(loop.store.commit(first).tree, "entry.json") or b"").decode()
    tree = loop.store.write_files(loop.store.commit(first).tree, {"entry.json": entry.replace(source, stray).encode()})
    new = NewCommit(tree, (), Person("mallory", email("mallory"), 1), loop.store.commit(first).message)
    forged = loop.store.write_commit(new, signing_key=str(loop.key("mallory")))
    loop.store.update_refs([RefUpdate(LEDGER, loop.tip(LEDGER), forged)])
    _refused(loop.gitops("alice", "status", check=False), "ledger_diverged", "does not begin with a commit of branch")


def test_refs_of_the_bot_are_not_for_people(pending: Loop) -> None:
    """Each ref of the push has its own reason to be refused."""
    assert pending.sign_approval("bob", "graph.legacy").ok
    (approval,) = pending.approvals()
    child = pending.commit("mallory", {})
    root = pending.store.write_commit(
        NewCommit(pending.store.commit(child).tree, (), Person("mallory", email("mallory"), 1), "lock\n"),
        signing_key=None,
    )
    pending.store.update_refs([RefUpdate("refs/gitops/locks/brain", "0" * 40, root)])
    refs = {
        "refs/gitops/requests/1/meta": "only the bot writes its refs",
        "refs/gitops/requests/9/head": "only the bot writes its refs",
        "refs/gitops/statuses/00": "only the bot writes its refs",
        "refs/gitops/seen/brain": "only the bot writes its refs",
        "refs/heads/gitops/anything": "only the bot writes its refs",
        "refs/heads/gitops": "only the bot writes its refs",
        "refs/gitops/locks/brain": "a lock is taken by creating it",
        "refs/heads/gitops/locks/brain": "the commit of a lock has no parent",
        "refs/gitops/locks/other/thing": "a lock has the name of a cluster",
        f"{APPROVALS}01AAAAAAAAAAAAAAAAAAAAAAAA": "approval_malformed",
        f"{APPROVALS}nothing/like/it": "approval_malformed",
        "refs/heads/gitops/approvals/other/01AAAAAAAAAAAAAAAAAAAAAAAA": "ledger_missing",
        approval: "never moved or deleted",
    }
    before = pending.store.refs("refs")
    pushed = pending.push("mallory", *(f"+{child}:{ref}" for ref in refs), check=False)
    for ref, reason in refs.items():
        assert re.search(rf"gitops: {re.escape(ref)}: .*{re.escape(reason)}", pushed.text), (ref, pushed.text)
    _refused(pending.push("bob", f":{approval}", check=False), "never moved or deleted")
    assert pending.store.refs("refs") == before


def test_lock_is_taken_and_released_by_a_push(loop: Loop) -> None:
    tree = loop.store.commit(loop.tip()).tree
    new = NewCommit(tree, (), Person("carol", email("carol"), 1), "lock\n")
    root = loop.store.write_commit(new, signing_key=None)
    loop.push("carol", f"{root}:refs/gitops/locks/brain")
    loop.push("carol", ":refs/gitops/locks/brain")
    assert loop.store.resolve("refs/gitops/locks/brain") is None


@pytest.mark.parametrize("name", ["caf\u00e9\u200b", "right\u202eleft", "blank\u2003blank", b"latin\xe9"])
def test_branch_whose_name_cannot_be_shown_is_refused(loop: Loop, name: str | bytes) -> None:
    ref = b"refs/heads/" + (name.encode() if isinstance(name, str) else name)
    pushed = loop.push("mallory", f"{loop.tip()}:{ref.decode('utf-8', 'surrogateescape')}", check=False)
    _refused(pushed, "push_refused", "the name of a ref")
    assert "b'" not in pushed.text
    assert "\\n" not in pushed.text


def test_check_that_cannot_run_refuses(loop: Loop) -> None:
    hook = loop.server / "hooks" / "pre-receive"
    hook.write_text(hook.read_text().replace("set -- ", "set -- /nowhere"))
    fine = loop.commit("alice", {"README.md": b"Fine.\n"}, away=True)
    _refused(loop.push("alice", f"{fine}:main", check=False), "cannot run /nowhere", "no push is accepted")
    loop.gitops("bot", "hook", "install", "--repo", str(loop.server))
    started = time.monotonic()
    loop.push("alice", f"{fine}:main")
    print(f"push with hooks: {time.monotonic() - started:.2f} s")  # noqa: T201 - for those who look with -s
    assert loop.tip() == fine


def test_broken_configuration_on_the_server_lets_nothing_in_but_its_repair(loop: Loop) -> None:
    """Past the guard somebody broke gitops.yaml: nothing else can be judged, so nothing else is taken."""
    broken = loop.commit("alice", {"gitops.yaml": b"version: 9\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), broken)])
    topic = loop.commit("alice", {"README.md": b"Fine.\n"}, broken, away=True)
    for ref in ("topic", "main"):
        _refused(loop.push("alice", f"{topic}:refs/heads/{ref}", check=False), "bot_config_invalid")
    repair = loop.commit("alice", {"gitops.yaml": CONFIG.encode()}, broken, away=True)
    assert "apply of brain" in loop.push("alice", f"{repair}:refs/heads/main").text
    assert loop.tip() == repair


def test_the_state_of_hooks_is_known(loop: Loop, tmp_path: Path) -> None:
    server, clone = tmp_path / "s.git", tmp_path / "c"
    loop.program("bot", "git", "init", "-q", "--bare", str(server), at=tmp_path)
    loop.program("bot", "git", "init", "-q", str(clone), at=tmp_path)

    def status(place: Path) -> dict[str, Any]:
        with redirect_stdout(io.StringIO()) as out:
            code = main(["hook", "status", "--repo", str(place), "--json"])
        form = json.loads(out.getvalue())
        assert form["ok"] is (code == 0)
        return form

    (server / "hooks").mkdir(exist_ok=True)
    (server / "hooks/post-receive").write_text("#!/bin/sh\ntrue\n")
    found = status(server)
    assert found["hooks"] == {"pre-receive": "missing", "post-receive": "foreign"}
    assert found["next"] == f"gitops hook install --repo {server} --server"
    (server / "hooks/post-receive").unlink()
    assert main(["hook", "install", "--repo", str(server)]) == main(["hook", "install", "--repo", str(clone)]) == 0
    assert set(status(server)["hooks"].values()) == set(status(clone)["hooks"].values()) == {"current"}
    hook = server / "hooks/pre-receive"
    hook.write_text(hook.read_text().replace("set -- ", "set -- /nowhere"))
    assert status(server)["hooks"] == {"pre-receive": "other", "post-receive": "current"}
    loop.program("bot", "git", "config", "core.hooksPath", ".husky", at=clone)
    found = status(clone)
    assert found["hidden"] == ["pre-commit", "commit-msg", "pre-push"]
    assert set(found["hooks"].values()) == {"missing"}
