"""Real hosts of git repositories: the whole way on each kind, pushes, who pushed, accounts and rights, and forms of clones."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from gitops.bot.dispatch import run_verb
from gitops.bot.receive_push import receive_push
from gitops.cli.shared import bot_of
from gitops.cluster.model.ledger import How
from gitops.forge.events import ManualEvent
from gitops.forge.port import RequestState
from gitops.git.hooks import erase_hooks, install_hooks
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.git.repository import GitRepository
from tests.support.bot_stage import take_lock
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import DELETE_LEGACY, FILES, LEDGER, MAIN, Loop, email
from tests.support.origins import approved, newest_origins, pushed
from tests.support.prefork import PROGRAM, started_programs

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", list(HostKind))
def test_from_an_empty_repository_to_an_audited_change(kind: HostKind, hosts: Hosts, tmp_path: Path) -> None:
    loop = Loop.empty(tmp_path).published(hosts, kind)
    loop.gitops("bot", "hook", "install", "--server", "--repo", str(loop.server), at=tmp_path)
    people = [part for who in ("bob", "carol") for part in ("--approver", f"{email(who)}={loop.key(who)}")]
    loop.gitops("alice", "init", "--forge", "hooks", "--cluster", "brain", "--bot-key", str(loop.key("bot")), *people)
    loop.program("alice", "git", "add", "--all")
    loop.program("alice", "git", "commit", "-q", "-m", "Start")
    assert "gitops: apply of brain: 4 applied" in loop.push("alice", "HEAD:main").text

    schema = loop.clone("alice") / "cluster" / "notes" / "schema.pg"
    schema.write_text(schema.read_text().replace("node Note {", "node Note {\n    seen: Bool?", 1))
    loop.program("alice", "git", "commit", "-q", "-a", "-m", "Notes can be seen")
    assert "request 1: opened for seen" in loop.push("alice", "HEAD:seen").text
    assert loop.gitops("bob", "request", "show", "1").text.count("success") == 2
    merged = loop.gitops("carol", "request", "merge", "1").text
    assert "request 1: merged as" in merged
    loop.program("bob", "git", "fetch", "-q")
    assert loop.gitops("bob", "audit").text.startswith("audit good")
    assert loop.gitops("bob", "status").code == 0


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
        (f"refs/replace/{'1' * 40}", "refs/replace makes git show different commits"),
        (f"refs/Replace/{'1' * 40}", "refs/replace makes git show different commits"),
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


_SUPERUSER = os.geteuid() == 0
# As root, a program that may not override the rights of files, like any other account.
_PLAIN = ("setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all") if _SUPERUSER else ()
_MORE = {"cluster/cluster.yaml": FILES["cluster/cluster.yaml"] + b"  more:\n    schema: legacy.pg\n"}

needs_setpriv = pytest.mark.skipif(
    _SUPERUSER and not shutil.which("setpriv"), reason="needs the Debian package util-linux"
)


@contextmanager
def _closed(folder: Path, mode_inside: int = 0) -> Iterator[None]:
    """A folder that its owner may not change, or not even read."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(mode_inside)
    try:
        yield
    finally:
        folder.chmod(mode)


def test_what_hooks_write_in_a_shared_repository_belongs_to_its_group(loop: Loop) -> None:
    for folder in (loop.server, *(p for p in loop.server.rglob("*") if p.is_dir())):
        folder.chmod(0o2775)
    loop.program("bot", "git", "-C", str(loop.server), "config", "core.sharedRepository", "group", at=loop.folder)
    old = os.umask(0o022)
    try:
        loop.push("alice", f"{loop.commit('alice', _MORE, away=True)}:main")
    finally:
        os.umask(old)
    private = {
        str(path.relative_to(loop.server))
        for path in loop.server.rglob("*")
        if not path.is_symlink() and not path.stat().st_mode & (stat.S_IWGRP if path.is_dir() else stat.S_IRGRP)
    }
    assert private == set()
    assert (loop.server / "gitops" / "seen").stat().st_mode & stat.S_IWGRP
    new = loop.folder / "data" / "brain" / "graphs" / "more.omni"
    assert all(path.stat().st_mode & stat.S_IWGRP for path in (new, *new.rglob("*")) if path.is_dir())


@pytest.mark.skipif(not _SUPERUSER, reason="only root can be two accounts")
def test_another_account_of_the_group_pushes_after_the_hooks_have_written(loop: Loop) -> None:
    """Plain git, without our hooks: it must be able to write where our hooks have written."""
    other, at = 65534, loop.server
    loop.program("bot", "git", "-C", str(at), "config", "core.sharedRepository", "group", at=loop.folder)
    for folder in (at, *(p for p in at.rglob("*") if p.is_dir())):
        folder.chmod(0o2775)
    for number in range(3):
        # Many objects, so that most of their 256 folders exist afterwards.
        files = {f"cluster/{number}/{i}.md": f"{number} {i}".encode() for i in range(60)}
        loop.push("alice", f"{loop.commit('alice', {**files, **_MORE}, away=True)}:main")
        loop.gitops("bot", "bot", "sweep", at=at)
    (at / "hooks").rename(at / "no-hooks")
    place = loop.folder.parent / "other"
    place.mkdir(mode=0o777)
    place.chmod(0o777)
    for folder in (loop.folder, *place.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    script = (
        "umask 022 && git init -q . && mkdir f && for i in $(seq 300); do echo other $i > f/$i; done && git add f && "
        f"git -c user.name=o -c user.email=o@o commit -qm other && git push -q {at} HEAD:refs/heads/other"
    )
    (place / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    environ = {"PATH": os.environ["PATH"], "HOME": str(place)}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=place,
        env=environ,
        user=other,
        group=0,
        extra_groups=[0],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


@needs_setpriv
def test_a_home_that_cannot_be_read_does_not_stop_the_hooks(loop: Loop) -> None:
    """Web servers and service accounts often have the home of another account."""
    closed = loop.folder / "closed"
    closed.mkdir()
    (loop.home("bot") / ".gitconfig").write_text("")
    environ = {**loop.environment("bot"), "HOME": str(closed)}
    del environ["GIT_CONFIG_GLOBAL"]
    commit = loop.commit("alice", _MORE, away=True)
    place = loop.clone("alice")
    (place / ".git" / "objects" / "info" / "alternates").write_text(f"{loop.workshop}/objects\n")
    with _closed(closed), started_programs():
        done = subprocess.run(
            [*_PLAIN, "git", "push", "origin", f"{commit}:main"],
            cwd=place,
            env=environ,
            capture_output=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()
    assert "apply of brain: 2 applied" in done.stderr.decode()


@needs_setpriv
@pytest.mark.parametrize(
    ("folder", "code", "reason"),
    [
        ("data/brain/graphs", "graph_create_failed", "Permission denied (EACCES)"),
        ("server.git/refs/heads/gitops/ledger", "ledger_not_writable", "Permission denied"),
    ],
)
def test_missing_rights_are_reported_with_the_place(loop: Loop, folder: str, code: str, reason: str) -> None:
    commit = loop.commit("alice", _MORE, away=True)
    loop.clone("alice")
    loop.push("alice", f"{loop.tip()}:refs/heads/same")
    with _closed(loop.folder / folder, 0o500), started_programs():
        done = loop.program("alice", *_PLAIN, "git", "push", "origin", f"{commit}:main", check=False)
    line = next((line for line in done.text.splitlines() if f"error {code}" in line), done.text)
    assert reason in line
    assert str(loop.folder / folder) in line.replace("//", "/")


@pytest.fixture(scope="module")
def latin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a locale that has no UTF-8."""
    if not Path("/usr/share/i18n/locales/en_US").exists():
        pytest.skip("needs the Debian package locales")
    place = tmp_path_factory.mktemp("locale")
    compiled = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(place / "en_US.ISO-8859-1")]
    subprocess.run(compiled, check=True, capture_output=True)
    return place


def test_the_locale_of_who_pushes_decides_nothing(loop: Loop, latin: Path, tmp_path: Path) -> None:
    """OpenSSH hands `LC_ALL` of the client on to hooks, as Debian configures it."""
    with Hosts(tmp_path / "hosts", {"LOCPATH": str(latin)}) as hosts:
        loop.published(hosts, HostKind.SSH)
        environ = {**loop.environment("alice"), "LC_ALL": "en_US.ISO-8859-1", "LOCPATH": str(latin)}
        commit = loop.commit("alice", _MORE, message="Добавить граф → more\n", away=True)
        place = loop.clone("alice")
        (place / ".git" / "objects" / "info" / "alternates").write_text(f"{loop.workshop}/objects\n")
        with started_programs():
            command = ["git", "push", "origin", f"{commit}:refs/heads/граф-é"]
            done = subprocess.run(command, cwd=place, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "opened for граф-é" in done.stderr.decode(), done.stderr
    assert loop.request(1).source == "refs/heads/граф-é"
    assert loop.request(1).title == "Добавить граф → more"
    assert loop.tip(LEDGER)


_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"1" * 64 + b"\nsize 70\n"


def _clone(loop: Loop, *options: str) -> Path:
    place = loop.home("carol") / "other"
    loop.program("bot", "git", "config", "uploadpack.allowFilter", "true", at=loop.server)
    loop.program("carol", "git", "clone", "-q", *options, loop.server.as_uri(), str(place), at=loop.folder)
    return place


def _carry_out_the_fix(loop: Loop, text: str, place: Path) -> None:
    """Run the commands of the remedy exactly as they are printed."""
    (fix,) = re.findall(r"fix: (git .*)", text)
    for command in fix.split("; "):
        if not command.startswith("git "):
            # What a job does instead.
            continue
        loop.program("carol", *shlex.split(command), at=place)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--filter=blob:none",), "partial_clone"),
        (("--filter=tree:0",), "partial_clone"),
        (("--depth=1", "--no-single-branch"), "shallow_repository"),
    ],
)
def test_a_clone_without_all_objects_is_refused_until_it_is_whole(
    loop: Loop, options: tuple[str, ...], code: str
) -> None:
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    loop.gitops("bot", "bot", "apply", at=loop.server, check=False)
    place, before = _clone(loop, *options), loop.store.refs("refs/heads")
    commands = (("status",), ("plan",), ("approve", "graph.legacy", "--rows", "5"), ("audit",))
    for command in commands:
        refused = loop.gitops("carol", *command, at=place, check=False)
        assert (refused.code, f"ERROR {code}" in refused.text) == (1, True), refused.text
    _carry_out_the_fix(loop, loop.gitops("carol", "status", at=place, check=False).text, place)
    assert loop.store.refs("refs/heads") == before
    loop.gitops("carol", "status", at=place)
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")


def test_grafts_and_replaced_objects_neither_show_nor_hide_a_commit(loop: Loop) -> None:
    """With both of them, git itself would show a history in which alice did not remove the graph."""
    head = loop.commit("alice", DELETE_LEGACY)
    loop.move(MAIN, head)
    loop.gitops("bot", "bot", "apply", at=loop.server, check=False)
    place = _clone(loop)
    grafts = {at: at / "info" / "grafts" for at in (loop.server, place / ".git")}
    for at, file in grafts.items():
        loop.program("carol", "git", "replace", head, f"{head}~1", at=at)
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{head}\n")
    told = {}
    for who, at, command in (
        ("carol", place, ("plan",)),
        ("carol", place, ("approve", "graph.legacy", "--rows", "5")),
        ("carol", place, ("audit",)),
        ("bot", loop.server, ("bot", "sweep")),
        ("bot", loop.server, ("bot", "apply")),
    ):
        refused = loop.gitops(who, *command, at=at, check=False)
        told[command] = refused.text
        assert (refused.code, "git_failed" in refused.text, "grafts" in refused.text) == (1, True, True), refused.text
    for file in grafts.values():
        assert all(f"fix: remove the file: rm {file}" in text for text in told.values() if str(file) in text)
        file.unlink()
    assert "delete graph.legacy" in loop.gitops("carol", "plan", at=place).text.lower()
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")
    swept = loop.gitops("bot", "bot", "apply", at=loop.server, check=False)
    assert "graph.legacy: approval_required" in swept.text


@pytest.mark.parametrize("looked", [False, True])
def test_a_single_branch_clone_learns_to_fetch_ledgers(loop: Loop, *, looked: bool) -> None:
    """Importing the cluster, as it was once told to do, would start a second ledger."""
    place = _clone(loop, "--single-branch")
    if looked:
        loop.gitops("carol", "status", at=place)
    refused = loop.gitops("carol", "audit", at=place, check=False)
    assert refused.code == 1
    assert "ledger_not_fetched" in refused.text
    _carry_out_the_fix(loop, refused.text, place)
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")


def test_a_ledger_that_is_gone_is_not_taken_for_one_that_is_not_fetched(loop: Loop) -> None:
    place = _clone(loop)
    loop.gitops("carol", "audit", at=place)
    loop.store.update_refs([RefUpdate(LEDGER, loop.tip(LEDGER), "0" * 40)])
    loop.program("carol", "git", "fetch", "-q", "--prune", at=place)
    assert "ledger_diverged" in loop.gitops("carol", "audit", at=place, check=False).text


@pytest.mark.parametrize("command", [("status",), ("hook", "install", "--server"), ("bot", "sweep")])
def test_a_repository_of_another_format_is_refused_with_the_reason(loop: Loop, command: tuple[str, ...]) -> None:
    place = loop.folder / "new.git"
    loop.program("bot", "git", "init", "-q", "--bare", str(place), at=loop.folder)
    for key, value in (("core.repositoryFormatVersion", "1"), ("extensions.ofTomorrow", "true")):
        loop.program("bot", "git", "config", "--file", str(place / "config"), key, value, at=loop.folder)
    refused = loop.gitops("bot", *command, "--repo", str(place), at=loop.folder, check=False)
    assert refused.code in (1, 2)
    assert "repository_unsupported" in refused.text
    assert "oftomorrow" in refused.text


def test_a_pointer_of_lfs_is_not_a_schema(loop: Loop) -> None:
    """In the work tree of its author the file looks right: a filter puts the text there."""
    commit = loop.commit("alice", {"cluster/notes.pg": _POINTER}, away=True)
    refused = loop.push("alice", f"{commit}:main", check=False)
    assert refused.code
    assert "source_lfs_pointer" in refused.text
    assert "cluster/notes.pg" in refused.text or "notes.pg is a Git LFS pointer" in refused.text
    assert "schema_parse_error" not in refused.text


def test_a_remote_without_authentication_is_refused_with_the_reason(loop: Loop) -> None:
    place = _clone(loop)
    loop.program("carol", "git", "remote", "set-url", "origin", "git://host.example/company.git", at=place)
    refused = loop.gitops("carol", "status", at=place, check=False)
    assert refused.code == 2
    assert "has no authentication" in refused.text
    assert "git remote set-url" in refused.text
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")


def test_line_ends_of_a_work_tree_change_nothing(tmp_path: Path) -> None:
    """With `core.autocrlf` git writes other bytes into a work tree than the commit has: not below our `.gitattributes`."""
    loop = Loop.empty(tmp_path)
    loop.gitops("bot", "hook", "install", "--repo", str(loop.server), at=tmp_path)
    people = [part for who in ("bob", "carol") for part in ("--approver", f"{email(who)}={loop.key(who)}")]
    loop.gitops("alice", "init", "--forge", "hooks", "--cluster", "brain", "--bot-key", str(loop.key("bot")), *people)
    loop.program("alice", "git", "add", "--all")
    loop.program("alice", "git", "commit", "-q", "-m", "Start")
    loop.push("alice", "HEAD:main")
    place = _clone(loop, "-c", "core.autocrlf=true")
    assert b"\r" in (place / "gitops.yaml").read_bytes()
    planned = loop.gitops("carol", "plan", "--config", "cluster", at=place)
    assert "no changes" in planned.text, planned.text


def test_hooks_of_all_repositories_are_installed_in_the_common_folder(loop: Loop, hosts: Hosts) -> None:
    """gitolite replaces the hooks of a repository by links; doctor knows them, and installing again is not needed."""
    loop.published(hosts, HostKind.GITOLITE)
    for name in ("pre-receive", "post-receive"):
        (loop.server / "hooks" / name).unlink()
    common = hosts.folder / "gitolite" / ".gitolite" / "hooks" / "common"
    try:
        told = loop.gitops("bot", "hook", "install", "--folder", str(common), at=loop.folder).text
        assert "git config --global receive.fsckObjects true" in told
        hosts.gitolite("setup", "--hooks-only")
        assert (loop.server / "hooks" / "pre-receive").is_symlink()
        head = loop.commit("alice", {"cluster/README.md": b"new"}, away=True)
        assert "request 1: opened for new" in loop.push("alice", f"{head}:refs/heads/new").text
        again = loop.gitops("bot", "hook", "install", "--server", "--repo", str(loop.server), at=loop.folder)
        assert "pre-receive, post-receive" in again.text
        found = loop.gitops("bot", "doctor", "--repo", str(loop.server), at=loop.folder, check=False).text
        assert not [line for line in found.splitlines() if "hooks." in line and "ok" not in line], found
    finally:
        erase_hooks(common, "server")


def test_who_may_not_delete_takes_no_lock(pending: Loop, hosts: Hosts) -> None:
    """`RW` permits creating refs and not deleting them: the lock of such a person would lock the cluster for everybody."""
    assert pending.sign_approval("bob", "graph.legacy").ok
    (approval,) = pending.approvals()
    revoke = ("revoke", approval.rpartition("/")[2], "--commit", pending.tip(approval), "--reason", "not yet")
    pending.published(hosts, HostKind.GITOLITE, deletes=False)
    for _ in range(2):
        # It is revoked all the same, and the message says what was not possible.
        told = pending.gitops("carol", *revoke).text
        assert "RW+ or RWD" in told, told
        assert list(pending.store.refs("refs/gitops/locks")) == ["refs/gitops/locks/brain_trial"]
    swept = pending.gitops("bot", "bot", "sweep", at=pending.server, check=False).text
    assert "approval_revoked graph.legacy" in swept
    assert "held the lock" not in swept
    pending.published(hosts, HostKind.GITOLITE)
    pending.program("carol", "git", "remote", "set-url", "origin", pending.url("carol"))
    assert "Revoked" in pending.gitops("carol", *revoke).text
    assert not pending.store.refs("refs/gitops/locks")
    # From now on the lock costs one push again.
    assert pending.program("carol", "git", "config", "gitops.lockProven").text == "true\n"
