"""Who pushed, as each kind of real host knows it: an unsigned change under another author line is the work of its pusher.

A host that checks nobody, and a person whom the rules do not know, leave the author unknown: then no approval counts.
"""

from __future__ import annotations

import signal
import subprocess

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cli.shared import bot_of
from gitops.cluster.model.ledger import How
from gitops.forge.events import ManualEvent
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from tests.support.bot_stage import take_lock
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import DELETE_LEGACY, LEDGER, MAIN, Loop, email
from tests.support.origins import approved, newest_origins, pushed

pytestmark = pytest.mark.e2e

_BOB = {
    HostKind.SSH_AUTH: f"ssh login of {email('bob')}",
    HostKind.GITOLITE: "local:bob",
    HostKind.HTTP: "local:bob",
}


@pytest.mark.parametrize("kind", _BOB)
def test_the_person_who_logged_in_is_the_author(kind: HostKind, loop: Loop, hosts: Hosts) -> None:
    loop.published(hosts, kind)
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    pushed(loop, "bob", f"{head}:{MAIN}", signed=False)
    assert newest_origins(loop) == {head: (How.PUSH, _BOB[kind])}
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()
    assert approved(loop, "carol") == set()
    assert not loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


@pytest.mark.parametrize(
    ("kind", "author"),
    [
        (HostKind.FILE, f"bob <{email('bob')}> (not verified)"),
        (HostKind.SSH_AUTH, email("bob")),
        (HostKind.GITOLITE, "bob"),
        (HostKind.HTTP, "bob"),
    ],
)
def test_the_person_who_logged_in_is_the_author_of_a_comment(
    kind: HostKind, author: str, loop: Loop, hosts: Hosts
) -> None:
    """A variable that the person sets is not a login: on a shared path nobody checked it."""
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    loop.published(hosts, kind)
    message = loop.store.write_commit(
        NewCommit(loop.store.write_files(None, {}), (), Person("bob", email("bob"), 1), "Who reads them?"),
        signing_key=None,
    )
    variables = {"REMOTE_USER": "alice", "GL_USER": "alice"} if kind is HostKind.FILE else {}
    pushed(loop, "bob", f"{message}:refs/gitops/comments/1/{message}", environ=variables, signed=False)
    assert loop.book.comments(1)[-1].author == author


@pytest.mark.parametrize(
    ("kind", "who", "why"),
    [
        (HostKind.FILE, "bob", "the server recorded no push of it by a known person"),
        (HostKind.SSH, "bob", "the server recorded no push of it by a known person"),
        (HostKind.SSH_AUTH, "mallory", "the rules do not list the key that pushed it"),
        (HostKind.GITOLITE, "mallory", "the rules name no person for local:mallory"),
        (HostKind.HTTP, "mallory", "the rules name no person for local:mallory"),
    ],
)
def test_without_a_known_pusher_nobody_approves(kind: HostKind, who: str, why: str, loop: Loop, hosts: Hosts) -> None:
    """The variables of the client do not help: a server sets its own."""
    loop.published(hosts, kind)
    head = loop.commit("alice", DELETE_LEGACY, key=None, away=True)
    pushed(loop, who, f"{head}:{MAIN}", environ={"GL_USER": "alice", "REMOTE_USER": "alice"}, signed=False)
    how, by = newest_origins(loop)[head]
    assert (how, why in by) == (How.UNKNOWN, True), by
    assert "approval_authors_unknown" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


def test_who_cannot_read_the_key_of_the_ledger_records_no_name(loop: Loop, hosts: Hosts) -> None:
    """On a shared path bob sets the variables of a web server, too."""
    loop.published(hosts, HostKind.FILE)
    head = loop.commit("alice", DELETE_LEGACY, key=None, away=True)
    key = loop.key("bot").rename(loop.folder / "unreadable")
    pushed(
        loop, "bob", f"{head}:{MAIN}", environ={"GATEWAY_INTERFACE": "CGI/1.1", "REMOTE_USER": "alice"}, signed=False
    )
    assert loop.tip() == head
    key.rename(loop.key("bot"))
    assert "approval_authors_unknown" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


@pytest.mark.parametrize("kind", [HostKind.SSH, HostKind.HTTP])
def test_a_signed_push_is_an_origin_on_a_host(kind: HostKind, loop: Loop, hosts: Hosts) -> None:
    """Over HTTP the nonce is that of an earlier request."""
    loop.published(hosts, kind)
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    done = pushed(loop, "bob", f"{head}:{MAIN}")
    assert done.code == 0, done.text
    assert newest_origins(loop) == {head: (How.CERTIFICATE, email("bob"))}
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()
    assert approved(loop, "carol") == set()
    assert not loop.graph("legacy").exists()


_DISCONNECT = """\
#!/bin/sh
# The target has moved: end the client, and go on when the connection is closed.
[ "$1" = committed ] && grep -q refs/heads/main || exit 0
rm "$0"
kill -s KILL -- "-$(cat {place})"
trap '' PIPE
while echo gone >&2; do :; done
exit 0
"""


def test_a_client_that_dies_before_the_report_stays_the_pusher(loop: Loop, hosts: Hosts) -> None:
    """receive-pack then ends before post-receive; the next sweep applies the commit."""
    loop.published(hosts, HostKind.SSH_AUTH)
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    loop.push("bob", f"{loop.tip()}:refs/heads/unused")  # makes the clone
    place, before = loop.folder / "client", loop.tip(LEDGER)
    hook = loop.server / "hooks" / "reference-transaction"
    hook.write_text(_DISCONNECT.format(place=place))
    hook.chmod(0o755)
    script = f"echo $$ > {place}; exec git push origin {head}:{MAIN}"
    client = subprocess.Popen(
        ["sh", "-c", script],
        cwd=loop.clone("bob"),
        env=loop.environment("bob"),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert client.wait() == -signal.SIGKILL
    assert loop.tip() == head
    assert loop.tip(LEDGER) == before
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    local = loop.local()
    list(run_verb(bot_of(local, local.forge(), "local", local.git.person()), "sweep", ManualEvent()))
    assert newest_origins(loop) == {head: (How.PUSH, _BOB[HostKind.SSH_AUTH])}
    assert loop.graph("legacy").exists()
    assert approved(loop, "carol") == set()
    assert not loop.graph("legacy").exists()


@pytest.mark.parametrize("kind", [HostKind.GITOLITE, HostKind.HTTP])
def test_a_push_during_a_run_keeps_its_pusher(kind: HostKind, loop: Loop, hosts: Hosts) -> None:
    """Bob holds the lock, pushes, and gives the lock back; the push of carol applies his commit."""
    loop.published(hosts, kind)
    take_lock(loop)
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    assert "already running" in pushed(loop, "bob", f"{head}:{MAIN}", signed=False).text
    lock = "refs/gitops/locks/brain"
    loop.store.update_refs([RefUpdate(lock, loop.store.resolve(lock) or "", ZERO)])
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    words = loop.commit("carol", {"README.md": b"More words.\n"}, away=True)
    pushed(loop, "carol", f"{words}:{MAIN}", signed=False)
    assert newest_origins(loop)[head] == (How.PUSH, _BOB[kind])
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()
