"""Hooks as git runs them: what a clone keeps back, what the server refuses and shows, and change requests through them."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from gitops.cli.main import main
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.chain import entry_trust
from gitops.forge.port import RequestState
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from tests.support.bot_stage import QUERY, take_lock
from tests.support.loop import (
    APPROVALS,
    CLUSTER_YAML,
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
from tests.support.prefork import PROGRAM

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
    said = "gitops: the commit is refused because of 1 error; fix it, stage the files with git add, then commit again"
    _refused(_commit(clone, "-m", "Broken", check=False), "schema_parse_error", "notes.pg:2:12", said)

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
    assert "gitops: brain: this push has 2 changes not applied yet" in pushed.text
    same = clone.push("alice", f"{clone.tip()}:refs/heads/same")
    assert "gitops: brain: this push has only commits that are already applied" in same.text


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
        "fix: did you mean `bad-name`?",
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
    _refused(loop.push("mallory", f"{forged}:{LEDGER}", check=False), "different keys and rules from the")


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
    assert {(each["code"], each["path"]) for each in found["problems"]} == {
        ("hook_not_current", "pre-receive"),
        ("hook_not_current", "post-receive"),
    }
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


MORE = CLUSTER_YAML + "".join(f"  g{n}:\n    schema: notes.pg\n" for n in range(3))
ENDED = re.compile(r"remote: gitops: apply \d+:\d\d +(\d+)/6 create ((?:graph|schema)\.g\d), \d+\.\d s")


def pushed(loop: Loop, setting: str | None) -> str:
    """What a push to main prints that adds three graphs."""
    if setting is not None:
        loop.program("bot", "git", "config", "gitops.progress", setting, at=loop.server)
    new = loop.commit("alice", {"cluster/cluster.yaml": MORE.encode()}, away=True)
    return loop.push("alice", f"{new}:{MAIN}").text


def test_a_push_shows_each_change_before_what_came_of_it(loop: Loop) -> None:
    text = pushed(loop, "true")
    assert [number for number, _ in ENDED.findall(text)] == [str(n) for n in range(1, 7)]
    assert {name for _, name in ENDED.findall(text)} == {
        f"{kind}.g{n}" for kind in ("graph", "schema") for n in range(3)
    }
    assert text.index(" 6/6 ") < text.index("apply of brain")


def test_a_server_may_leave_them_out(loop: Loop) -> None:
    text = pushed(loop, "false")
    assert ENDED.search(text) is None
    assert "remote: gitops: apply of brain" in text


def test_an_apply_goes_on_after_the_pusher_has_hung_up(loop: Loop) -> None:
    """The hook runs as git starts it, with nobody at the other end of its output."""
    loop.program("bot", "git", "config", "gitops.progress", "true", at=loop.server)
    before, ledger = loop.tip(), loop.tip(LEDGER)
    new = loop.commit("alice", {"cluster/cluster.yaml": MORE.encode()})
    loop.program("bot", "git", "update-ref", MAIN, new, before, at=loop.server)
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [*PROGRAM, "hook", "run", "post-receive"],
        cwd=loop.server,
        env={**loop.environment("bot"), "GIT_DIR": "."},
        input=f"{before} {new} {MAIN}\n".encode(),
        stdout=writer,
        stderr=writer,
        check=False,
    )
    os.close(writer)
    assert run.returncode == 0
    assert loop.tip(LEDGER) != ledger
    assert all(loop.graph(f"g{n}").exists() for n in range(3))
    assert loop.status(new, "apply").startswith("success")


def _branch(loop: Loop, who: str, name: str) -> None:
    """A branch with a change of a stored query, in a person's clone only."""
    loop.program(who, "git", "switch", "-q", "-c", name)
    path = loop.clone(who) / "cluster" / "notes.gq"
    path.write_text(path.read_text().replace("$n.title", "$n.text"))
    loop.program(who, "git", "commit", "-q", "-a", "-m", "Return texts")


def test_a_request_is_opened_read_and_merged_from_a_clone(loop: Loop) -> None:
    _branch(loop, "alice", "texts")
    opened = loop.gitops("alice", "request", "open").text
    assert "request 1: open for texts, head " in opened
    assert "success  gitops/plan/brain: 1 change" in opened
    # It is open already: that is said, and nothing is pushed.
    assert "request 1: open for texts" in loop.gitops("alice", "request", "open", "texts").text
    listed = loop.gitops("bob", "request", "list")
    assert "success  gitops/plan/brain: 1 change" in listed.text
    (form,) = json.loads(loop.gitops("bob", "request", "list", "--json").text)["requests"]
    assert [status["context"] for status in form["statuses"]] == ["gitops/plan/brain"]
    changed = loop.gitops("bob", "request", "diff", "1").text
    assert "-    return { $n.title }" in changed
    assert "+    return { $n.text }" in changed
    merged = loop.gitops("carol", "request", "merge", "1").text
    assert f"request 1: merged as {loop.tip()}" in merged
    assert "success  gitops/apply/brain: 1 applied" in merged
    listed = loop.gitops("bob", "request", "list").text
    assert f"merged as {loop.tip()[:12]}" in listed
    assert "success  gitops/apply/brain: 1 applied" in listed
    assert "gitops/plan/brain" not in listed


def test_a_request_whose_check_fails_is_not_merged(loop: Loop) -> None:
    """A missing approval is a failing check. What is printed leads on: carol approves, then it merges."""
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    before = loop.tip()
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (refused.code, loop.tip(), loop.request(1).state) == (1, before, RequestState.OPEN)
    assert "request_checks_failed" in refused.text
    assert "gitops/plan/brain: request 1 is not merged: failure gitops/plan/brain: " in refused.text
    assert "needs approval: graph.legacy" in refused.text
    (command,) = re.findall(r"an author to run: gitops (.+?);", refused.text)
    assert loop.confirmed("carol", *shlex.split(command)).code == 0
    merged = loop.gitops("carol", "request", "merge", "1", "--json")
    form = json.loads(merged.text)
    assert (merged.code, form["ok"], form["outcome"], form["commit"]) == (0, True, "applied", loop.tip())
    assert form["clusters"] == [{"cluster": "brain", "outcome": "applied"}]
    assert not loop.graph("legacy").exists()


def test_the_check_of_another_head_does_not_count(loop: Loop) -> None:
    head = loop.commit("alice", {"cluster/notes.gq": QUERY})
    loop.move("refs/heads/texts", head)
    assert loop.status(head, "plan") == "success: 1 change"
    newer = loop.commit("alice", DELETE_LEGACY, head)
    # No hook sees this push: the request has the old head still.
    loop.store.update_refs([RefUpdate("refs/heads/texts", head, newer)])
    assert "request_head_moved" in loop.gitops("carol", "request", "merge", "1", check=False).text
    loop.book.open_or_update("refs/heads/texts", MAIN, newer, "Texts", email("alice"))
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert f"missing gitops/plan/brain: no run has planned head {newer[:12]} yet" in refused.text
    assert "gitops bot sweep" in refused.text
    assert loop.gitops("bot", "bot", "sweep", "--repo", str(loop.server), check=False).code in (0, 3)
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (refused.code, "needs approval: graph.legacy" in refused.text) == (1, True)


def test_only_an_approver_merges_in_spite_of_a_check_and_the_request_says_so(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    before = loop.tip()
    refused = loop.gitops("mallory", "request", "merge", "1", "--force", check=False)
    assert (refused.code, loop.tip()) == (1, before)
    assert "request_force_refused" in refused.text
    assert f"{email('mallory')} is not an approver of brain" in refused.text
    merged = loop.gitops("bob", "request", "merge", "1", "--force", check=False)
    assert merged.code == 3, merged.text
    assert "merged despite failure gitops/plan/brain: 2 changes; needs approval: graph.legacy" in merged.text
    assert "failure  gitops/apply/brain: 0 applied, 2 deferred or blocked" in merged.text
    comment = loop.book.comments(1)[-1]
    assert comment.author == f"bob <{email('bob')}> (not verified)"
    assert comment.body.startswith("Merging with `--force`, in spite of:\n\n- failure gitops/plan/brain: ")
    assert loop.graph("legacy").exists()
    # What is printed leads on.
    (command,) = re.findall(r"^  approve: gitops (.+)$", merged.text, re.MULTILINE)
    assert loop.confirmed("carol", *shlex.split(command)).code == 0
    assert not loop.graph("legacy").exists()


def test_a_merge_that_cannot_be_applied_is_no_success(loop: Loop) -> None:
    """The plan is good; then something else lies where the new graph belongs."""
    yaml = CLUSTER_YAML + "  drafts:\n    schema: notes.pg\n"
    loop.move("refs/heads/drafts", loop.commit("alice", {"cluster/cluster.yaml": yaml.encode()}))
    shutil.copytree(loop.graph("notes"), loop.graph("drafts"))
    merged = loop.gitops("carol", "request", "merge", "1", check=False)
    assert merged.code == 1, merged.text
    assert "failure  gitops/apply/brain: nothing is applied" in merged.text
    assert "see why: gitops request show 1" in merged.text


def test_a_merge_that_another_run_holds_up_waits(loop: Loop) -> None:
    loop.move("refs/heads/texts", loop.commit("alice", {"cluster/notes.gq": QUERY}))
    take_lock(loop)
    merged = loop.gitops("carol", "request", "merge", "1", "--timeout", "1s", check=False)
    assert merged.code == 3, merged.text
    assert f"request 1: merged as {loop.tip()}" in merged.text
    lock = "refs/gitops/locks/brain"
    loop.store.update_refs([RefUpdate(lock, loop.tip(lock), ZERO)])
    assert loop.gitops("bot", "bot", "sweep", "--repo", str(loop.server)).code == 0
    (command,) = re.findall(r"another run is in progress; to wait: gitops (.+)$", merged.text, re.MULTILINE)
    assert loop.gitops("carol", *shlex.split(command)).code == 0


def test_a_merge_that_no_hook_sees_waits(loop: Loop) -> None:
    loop.move("refs/heads/texts", loop.commit("alice", {"cluster/notes.gq": QUERY}))
    (loop.server / "hooks" / "post-receive").unlink()
    merged = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (merged.code, "no hook responded; the next `gitops bot sweep` applies it" in merged.text) == (3, True)
    assert loop.gitops("bot", "bot", "sweep", "--repo", str(loop.server)).code == 0
    assert loop.status(loop.tip(), "apply") == "success: 1 applied"


def test_a_comment_is_pushed_and_written_by_the_bot(web: Loop) -> None:
    web.move("refs/heads/retire", web.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    web.gitops("bob", "request", "comment", "1", "Who still reads\nthe contacts?")
    found = web.book.comments(1)[-1]
    assert (found.author, found.body, found.marker) == (email("bob"), "Who still reads\nthe contacts?", None)
    assert not web.store.refs("refs/gitops/comments")
    missing = web.gitops("bob", "request", "comment", "7", "Hello?", check=False)
    assert (missing.code, "request_not_found" in missing.text) == (1, True)


def test_an_author_whom_the_server_does_not_know_is_not_verified(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.gitops("bob", "request", "comment", "1", "Fine.")
    assert loop.book.comments(1)[-1].author == f"bob <{email('bob')}> (not verified)"
    # Other commits are not comments, and a request that does not exist takes none.
    head = loop.commit("mallory", {}, away=True)
    for ref in (f"refs/gitops/comments/1/{head}", "refs/gitops/comments/1/x", f"refs/gitops/comments/9/{head}"):
        assert "a comment is a commit with a message" in loop.push("mallory", f"{head}:{ref}", check=False).text
    assert len(loop.book.comments(1)) == 2


def test_a_request_is_closed_and_its_commits_stay(loop: Loop) -> None:
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/retire", head)
    closed = loop.gitops("carol", "request", "close", "1").text
    assert "request 1: closed; its branch retire was deleted on the server" in closed
    assert loop.request(1).state is RequestState.CLOSED
    assert loop.store.resolve("refs/heads/retire") is None
    assert loop.tip("refs/gitops/requests/1/head") == head
    assert "request_closed" in loop.gitops("carol", "request", "close", "1", check=False).text


def test_what_cannot_become_a_request_is_refused(loop: Loop) -> None:
    for branch, code in (
        ("main", "usage_error"),
        ("gitops/ledger/brain", "usage_error"),
        ("none", "git_object_missing"),
    ):
        assert code in loop.gitops("alice", "request", "open", branch, check=False).text
    loop.program("alice", "git", "switch", "-q", "-c", "docs")
    (loop.clone("alice") / "README.md").write_text("Only words.\n")
    loop.program("alice", "git", "commit", "-q", "-a", "-m", "Words")
    refused = loop.gitops("alice", "request", "open", check=False)
    assert refused.code == 1
    assert (
        "the server did not open a change request for it: it changes no cluster folder, keys or rules" in refused.text
    )
    # Pushed while no hook looked: the operator opens it with the sweep, or by name on the server.
    loop.store.update_refs([RefUpdate("refs/heads/late", ZERO, loop.commit("bob", DELETE_LEGACY))])
    assert "request 1: open for late" in loop.gitops("bot", "request", "open", "late", at=loop.server).text
    assert loop.tip() == loop.tip(MAIN)
