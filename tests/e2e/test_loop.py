"""The whole life of a change, with the command, the git program and real hooks: pushed, planned, approved, merged, applied."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import pytest

from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.trailers import parse_trailers
from gitops.forge.merge import MergeMethod
from gitops.forge.port import RequestState
from tests.support.loop import APPROVALS, DELETE_LEGACY, MAIN, Loop, codes, email, printed_command

pytestmark = pytest.mark.e2e


def _life(loop: Loop, method: str) -> None:
    """Push, approve, merge; everything that anybody can see of it afterwards."""
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n", away=True)
    pushed = loop.push("alice", f"{head}:refs/heads/retire")
    assert "request 1: opened for retire" in pushed.text
    assert "needs approval: graph.legacy" in pushed.text
    assert loop.status(head, "plan") == "failure: 2 changes; needs approval: graph.legacy"
    assert "gitops approve graph.legacy --request 1 --cluster brain --rows 0 --plan " in loop.comment(1)

    command = shlex.split(printed_command(loop.comment(1)))[1:]
    given = loop.gitops("bob", *command, "--json")
    commit = json.loads(given.text[given.text.index("{") :])["commit"]
    (ref,) = loop.approvals()
    assert loop.tip(ref) == commit
    assert ref.startswith(APPROVALS)
    assert loop.status(head, "plan") == "success: 2 changes"
    assert loop.graph("legacy").exists()

    loop.gitops("carol", "request", "merge", "1", "--method", method)
    tip, request = loop.tip(), loop.request(1)
    assert (request.state, request.merged_as) == (RequestState.MERGED, tip)
    assert len(loop.store.commit(tip).parents) == (2 if method == "merge" else 1)
    assert not loop.graph("legacy").exists()
    assert loop.graph("notes").exists()
    assert loop.status(tip, "apply") == "success: 2 applied"
    assert f"approved by `{email('bob')}`" in loop.comment(1)

    entry = loop.applied()
    assert entry.parents[1:] == (commit,)
    told = read_entry(loop.store.read(entry.tree, "entry.json") or b"")
    (use,) = told.approvals
    trailers = dict(parse_trailers(entry.message))
    assert trailers["Merge-Commit"] == tip
    assert trailers["Approval"] == use.approval_id == ref.removeprefix(APPROVALS)
    assert trailers["Plan-Digest"] == told.plan_digest
    assert told.source is not None
    assert told.source.tree == loop.store.subtree(loop.store.commit(tip).tree, "cluster")
    document = json.loads(loop.store.read(entry.tree, f"__cluster/approvals/{use.approval_id}.json") or b"")
    assert document["consumed_by_operation"] == "apply"
    loop.program("bob", "git", "fetch", "-q", "origin")
    assert len(tip) == (64 if loop.object_format == "sha256" else 40)
    assert loop.gitops("bob", "audit").text.startswith("audit good")
    assert f"approved by {email('bob')} ({use.approval_id}) good" in loop.gitops("bob", "log").text


@pytest.mark.journey
@pytest.mark.parametrize(
    ("loop", "method"),
    [
        ("sha1", "merge"),
        pytest.param("sha1", "squash", marks=pytest.mark.slow),
        pytest.param("sha1", "rebase", marks=pytest.mark.slow),
        ("sha256", "squash"),
    ],
    indirect=["loop"],
)
def test_whole_life_over_a_path(loop: Loop, method: str) -> None:
    _life(loop, method)


@pytest.mark.journey
@pytest.mark.parametrize("loop", ["sha1", "sha256"], indirect=True)
def test_whole_life_over_smart_http(web: Loop) -> None:
    _life(web, "merge")
    assert web.request(1).pushers == (email("alice"),)


def test_request_lists_and_shows_what_happened(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    (listed,) = json.loads(loop.gitops("bob", "request", "list", "--json").text)["requests"]
    assert (listed["number"], listed["title"], listed["state"]) == (1, "Retire legacy", "open")
    shown = loop.gitops("bob", "request", "show", "1").text
    assert "gitops/plan/brain: 2 changes; needs approval: graph.legacy" in shown
    assert re.search(r"^--- bot <bot@people.example>, \S+Z$", shown, re.MULTILINE)
    assert "request_not_found" in loop.gitops("bob", "request", "show", "2", check=False).text


def _approved(loop: Loop) -> str:
    """A request that deletes a graph, approved by bob; its head."""
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/retire", head)
    assert loop.sign_approval("bob", "graph.legacy", request=1).ok
    loop.arrived(loop.approvals()[0])
    assert loop.status(head, "plan").startswith("success")
    return head


@pytest.mark.parametrize("method", list(MergeMethod))
def test_unrelated_commit_on_main_keeps_the_approval(loop: Loop, method: MergeMethod) -> None:
    head = _approved(loop)
    loop.move(MAIN, loop.commit("carol", {"README.md": b"Still nothing of the cluster.\n"}))
    assert loop.status(head, "plan").startswith("success")
    loop.merge("carol", 1, method)
    assert not loop.graph("legacy").exists()


_MOVES: dict[str, Callable[[Loop, str], tuple[str, str]]] = {
    "a query on main": lambda loop, _: (
        MAIN,
        loop.commit("carol", {"cluster/notes.gq": b"query titles() { match { $x: Note } return { $x.title } }\n"}),
    ),
    "a README on main": lambda loop, _: (MAIN, loop.commit("carol", {"cluster/README.md": b"What we knew.\n"})),
    "a README in the request": lambda loop, head: (
        "refs/heads/retire",
        loop.commit("alice", {"cluster/README.md": b"What we knew!\n"}, head),
    ),
    "a new file in the request": lambda loop, head: (
        "refs/heads/retire",
        loop.commit("alice", {"cluster/sub/x": b"\n"}, head),
    ),
}
_FILES = {
    "a query on main": "cluster/notes.gq",
    "a README on main": "cluster/README.md",
    "a README in the request": "cluster/README.md",
    "a new file in the request": "cluster/sub/x",
}


@pytest.mark.parametrize("move", _MOVES)
def test_one_changed_byte_in_the_folder_voids_the_approval(loop: Loop, move: str) -> None:
    head = _approved(loop)
    file = _FILES[move].removeprefix("cluster/")
    loop.move(*_MOVES[move](loop, head))
    head = loop.request(1).head
    assert loop.status(head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
    assert "approval_stale" in loop.comment(1)
    assert file.replace(".", r"\.") in loop.comment(1) or file in loop.comment(1)
    # The merge that did it is named; what the author pushed is no merge.
    by = re.findall(
        r"merge ([0-9a-f]{12}) changed the cluster folder after it was given", loop.comment(1).replace("`", "")
    )
    assert by == ([loop.tip()[:12]] if "on main" in move else [])

    _, lines = loop.merge("carol", 1)
    assert "approval_stale" in codes(lines)
    assert any(file in line for line in lines if "approval_stale" in line)
    assert loop.graph("legacy").exists()
    assert loop.status(loop.tip(), "apply").startswith("failure")

    assert loop.sign_approval("bob", "graph.legacy").ok
    loop.arrived(loop.approvals()[-1])
    assert not loop.graph("legacy").exists()


def test_request_that_is_closed_or_pushed_again(loop: Loop) -> None:
    head = _approved(loop)
    other = loop.commit("alice", {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"}, head)
    lines = loop.move("refs/heads/retire", other)
    assert lines[0] == "request 1: updated for retire"
    loop.push("alice", ":refs/heads/retire")
    assert loop.request(1).state is RequestState.CLOSED
    assert "request_closed" in loop.gitops("carol", "request", "merge", "1", check=False).text
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Again\n"))
    assert loop.request(2).state is RequestState.OPEN


def test_a_conflict_is_resolved_with_the_printed_commands_in_an_old_clone(loop: Loop) -> None:
    """Alice's own `main` is as old as her clone."""
    loop.clone("alice")
    _approved(loop)
    loop.move(MAIN, loop.commit("carol", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"}))
    refused = loop.gitops("alice", "request", "merge", "1", check=False).text
    assert ("request_conflict" in refused, "--force " in refused.replace("--force-with-lease", "")) == (True, False)
    printed = loop.comment(1)
    commands = [
        re.findall(rf"(git {verb} [^`;\n]+)", text)[0]
        for text in (printed, refused)
        for verb in ("fetch", "rebase", "push")
    ]
    assert commands[:3] == commands[3:]
    fetch, rebase, push = commands[:3]
    loop.program("alice", "git", "fetch", "-q", "origin")
    loop.program("alice", "git", "switch", "-q", "retire")
    loop.program(
        "alice",
        "bash",
        "-c",
        f"{fetch}; ! {rebase}; git checkout --theirs . && git add . && GIT_EDITOR=true git rebase --continue",
    )
    # Before the push, the branch on the server is the old one: what is offered does not bring the old commits back.
    behind = loop.gitops("alice", "request", "open", check=False).text
    assert (f"fix: replace those with yours, as after a rebase: {push}" in behind, "git pull" in behind) == (
        True,
        False,
    )
    loop.program("alice", *shlex.split(push))
    assert "request_conflict" not in loop.comment(1)


def test_requests_that_do_not_merge_or_have_moved_on_are_not_merged(loop: Loop) -> None:
    head = _approved(loop)
    loop.move(MAIN, loop.commit("carol", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"}))
    assert "request_conflict" in loop.comment(1)
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (refused.code, "request_conflict" in refused.text) == (1, True)
    refused = loop.gitops("carol", "request", "merge", "1", "--head", loop.tip(), check=False)
    assert (refused.code, "request_head_moved" in refused.text) == (1, True)
    assert loop.request(1).head == head
