"""What installed hooks do with pushes that are not about a cluster, and what becomes of a push whose hook did not end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gitops.bot.receive_push import receive_push
from gitops.forge.port import RequestState
from gitops.git.hooks import install_hooks
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.git.repository import GitRepository
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import DELETE_LEGACY, MAIN, Loop
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", [HostKind.FILE, HostKind.SSH, HostKind.GITOLITE])
def test_a_repository_without_configuration_is_left_alone(kind: HostKind, hosts: Hosts, tmp_path: Path) -> None:
    """Hooks are installed for many repositories at once; most of them have no bot, no name and no cluster."""
    loop = Loop.empty(tmp_path)
    settings = loop.server / "config"
    settings.write_text(settings.read_text().replace(loop.server_config(), ""))
    install_hooks(str(loop.server), "server", PROGRAM)
    loop.published(hosts, kind)
    first = loop.commit("alice", {"README.md": b"one"}, away=True)
    other = loop.commit("alice", {"README.md": b"two"}, away=True)
    replaced = f"{other}:refs/replace/{first}"
    for refspec in (
        f"{first}:{MAIN}",
        f"{first}:refs/heads/topic",
        f"{first}:refs/tags/v1",
        f"+{other}:main",
        ":topic",
        replaced,
    ):
        pushed = loop.push("alice", refspec)
        assert "remote:" not in pushed.text, pushed.text
    assert loop.tip() == other
    reserved = loop.push("alice", f"{first}:refs/heads/gitops/ledger/brain", check=False)
    assert reserved.code
    assert "ledger_entry_invalid" in reserved.text


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ("refs/heads/GitOps/ledger/brain", "a ref of the bot"),
        ("refs/heads/GITOPS", "a ref of the bot"),
        ("refs/GitOps/locks/brain", "a ref of the bot"),
        ("refs/heads/gitop\u017f/approvals/brain/x", "a ref of the bot"),
        ("refs/heads/Main", "this is refs/heads/main"),
        (f"refs/replace/{'1' * 40}", "refs/replace makes git show other commits"),
        (f"refs/Replace/{'1' * 40}", "refs/replace makes git show other commits"),
    ],
)
def test_names_that_stand_for_other_refs_are_refused(loop: Loop, ref: str, reason: str) -> None:
    before = loop.store.refs("refs")
    for spec in (f"{loop.tip()}:{ref}", f"{loop.commit('mallory', {})}:{ref}"):
        pushed = loop.push("mallory", spec, check=False)
        assert pushed.code
        assert re.search(f"push_refused: .*{re.escape(reason)}", pushed.text), pushed.text
    assert loop.store.refs("refs") == before


def test_a_ref_that_replaces_an_object_can_be_deleted(loop: Loop) -> None:
    ref = f"refs/replace/{loop.tip()}"
    loop.store.update_refs([RefUpdate(ref, ZERO, loop.commit("mallory", {}))])
    loop.push("alice", f":{ref}")
    assert not loop.store.refs("refs/replace")


def test_a_push_whose_hook_did_not_end_is_found_by_the_sweep(loop: Loop) -> None:
    """Somebody closed the notebook: the refs have moved, and nothing else has happened."""
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/merged", loop.commit("alice", {"cluster/new.md": b"new"}, message="Add\n"))
    loop.move("refs/heads/moved", loop.commit("alice", {"cluster/README.md": b"moved"}, message="Move\n"))
    loop.move("refs/heads/gone", loop.commit("alice", {"cluster/README.md": b"gone"}, message="Go\n"))
    (loop.server / "hooks" / "post-receive").unlink()
    again = loop.commit("alice", {"cluster/README.md": b"moved again"}, message="Move again\n", away=True)
    unrelated = loop.commit("alice", {"README.md": b"nothing"}, away=True)
    squashed = loop.commit("carol", {"cluster/new.md": b"new"}, message="Add, squashed\n", away=True)
    specs = (f"{head}:refs/heads/retire", f"+{again}:refs/heads/moved", ":refs/heads/gone")
    loop.push("alice", *specs, f"{unrelated}:refs/heads/unrelated", f"{squashed}:main")

    swept = loop.gitops("bot", "bot", "sweep", at=loop.server).text
    states = {request.source: (request.state, request.head) for request in loop.book.requests()}
    assert states.pop("refs/heads/gone")[0] is RequestState.CLOSED
    assert states.pop("refs/heads/merged")[0] is RequestState.MERGED
    assert states == {
        "refs/heads/retire": (RequestState.OPEN, head),
        "refs/heads/moved": (RequestState.OPEN, again),
    }
    assert "found by the sweep" in loop.status(loop.tip(), "apply") or "apply of brain" in swept
    assert loop.status(head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")

    quiet = loop.gitops("bot", "bot", "sweep", at=loop.server).text
    assert not re.search("opened|updated|closed|merged", quiet), quiet


class _CountingRemote(SelfRemote):
    """Counts how often all refs are asked for."""

    asked = 0

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """As the remote's, counted."""
        self.asked += 1
        return super().refs(prefix, *more)


def test_what_a_push_costs_does_not_grow_with_branches_that_touch_no_cluster(loop: Loop) -> None:
    counts = []
    for number in (1, 40):
        heads = [loop.commit("alice", {"README.md": f"{number} {i}".encode()}) for i in range(number)]
        updates = [RefUpdate(f"refs/heads/{number}-{i}", ZERO, head) for i, head in enumerate(heads)]
        loop.store.update_refs(updates)
        local = loop.local()
        remote = _CountingRemote(GitRepository(loop.server))
        local.remote = remote
        assert list(receive_push(local, loop.book, updates, actor="bot")) == []
        counts.append(remote.asked)
    assert counts[0] == counts[1]
