"""Objects in a repository, and the git program."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.git import command
from gitops.git.command import GitProgram, run_program
from gitops.git.objects import parse_tree
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.git.signatures import make_key
from gitops.git.trees import TreeLevels
from gitops.repository.wiring.local import LocalRepository
from tests.support.git_fixture import bare, commit, environment, hook, opened, run
from tests.support.git_http import GitServer


def python(script: str, tmp_path: Path, *, stdin: bytes = b"", timeout_s: float = 20.0) -> command.Output:
    return run_program((sys.executable, "-c", script), env=environment(tmp_path), stdin=stdin, timeout_s=timeout_s)


def test_input_output_and_status(tmp_path: Path) -> None:
    script = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data[::-1]); sys.stderr.write('e'); sys.exit(3)"
    output = python(script, tmp_path, stdin=b"abc" * 100_000)
    assert (output.status, output.stdout, output.stderr, output.ok) == (3, b"cba" * 100_000, "e", False)


def test_too_much_output_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_OUTPUT", 1000)
    with pytest.raises(GitopsError) as caught:
        python("while True: print('x' * 10000)", tmp_path)
    assert caught.value.code == "git_failed"


def test_messages_are_cut(tmp_path: Path) -> None:
    output = python("import sys; sys.stderr.write('x' * 1_000_000)", tmp_path)
    assert (output.ok, len(output.stderr)) == (True, 64 << 10)


def test_a_program_that_does_not_end_is_ended(tmp_path: Path) -> None:
    output = python("import sys, threading; print('x', flush=True); threading.Event().wait()", tmp_path, timeout_s=1.0)
    assert (output.timed_out, output.ok) == (True, False)
    assert output.status < 0
    assert output.stdout in (b"x\n", b"")


def test_a_program_that_closes_its_pipes_and_stays_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_GRACE_S", 0.2)
    script = "import os, signal, threading; signal.signal(15, signal.SIG_IGN); os.close(1); os.close(2); threading.Event().wait()"
    output = python(script, tmp_path)
    assert (output.timed_out, output.status) == (True, -9)


@pytest.mark.parametrize("argv", [("no-such-program-here",), ("git", "a\0b")])
def test_what_cannot_start_is_said(tmp_path: Path, argv: tuple[str, ...]) -> None:
    with pytest.raises(GitopsError) as caught:
        run_program(argv, env=environment(tmp_path))
    assert caught.value.code == "git_failed"


def test_only_the_user_runs_read_the_users_configuration(tmp_path: Path) -> None:
    repository = bare(tmp_path / "r.git")
    (tmp_path / "other").write_text("[user]\n\tname = Other\n\tsigningKey = ~/key.pub\n")
    inherited = environment(
        tmp_path, GIT_CONFIG_GLOBAL=str(tmp_path / "other"), GIT_CONFIG_PARAMETERS="'user.name=Evil'"
    )
    plain, user = (
        GitProgram(str(repository), environ=inherited),
        GitProgram(str(repository), environ=inherited, as_user=True),
    )
    assert (plain.config("user.name"), user.config("user.name")) == (None, "Other")
    assert user.config("user.signingKey", path=True) == f"{tmp_path}/key.pub"
    assert user.config("user.signingKey") == "~/key.pub"
    assert user.config("no.such") is None


def test_arguments_are_never_a_shell(tmp_path: Path) -> None:
    git = GitProgram(str(bare(tmp_path / "r.git")), environ=environment(tmp_path))
    assert not git.run("rev-parse", "--verify", "--end-of-options", f"$(touch {tmp_path}/ran); touch {tmp_path}/ran").ok
    assert not (tmp_path / "ran").exists()


def test_the_whole_configuration_is_what_single_questions_answer(tmp_path: Path) -> None:
    """In one run of git: case, subsections, values of many lines, several values, none, and other files that are included."""
    repository = bare(tmp_path / "r.git")
    (tmp_path / "more").write_text("[gitops]\n\troot = ~/graphs\n")
    (repository / "config").write_text(
        "[Gitops]\n\tTargetBranch = main\n\tempty\n\tnothing =\n"
        '[gitops "Brain.2"]\n\tStorage = "a=b # c"\n'
        "[user]\n\tname = Mira\n\tname = Ada\n\tnote = one\\ntwo\n"
        f"[include]\n\tpath = {tmp_path / 'more'}\n"
    )
    git = GitProgram(str(repository), environ=environment(tmp_path), as_user=True)
    known = git.settings()
    keys = ("gitops.targetbranch", "GITOPS.TARGETBRANCH", "gitops.empty", "gitops.nothing", "gitops.Brain.2.storage")
    for key in (*keys, "gitops.brain.2.storage", "user.name", "user.note", "gitops.root", "gitops.absent"):
        assert known.get(command.config_key(key)) == git.config(key)
    assert (known["user.name"], known["user.note"]) == ("Ada", "one\ntwo")


@pytest.mark.parametrize(
    "value", ["~/key", "/keys/a b", "key::ssh-ed25519 AAAA", "", "k%y", "%(prefix)/key", "rel/~key"]
)
def test_a_path_in_the_configuration_is_what_git_makes_of_it(tmp_path: Path, value: str) -> None:
    repository = bare(tmp_path / "r.git")
    inherited = environment(tmp_path)
    git = GitProgram(str(repository), environ=inherited, as_user=True)
    assert git.run("config", "user.signingKey", value).ok
    local = LocalRepository(str(repository), environ=inherited)
    assert local.git.setting("user.signingKey", path=True) == git.config("user.signingKey", path=True)


def test_a_configuration_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    repository = bare(tmp_path / "r.git")
    (repository / "config").write_text("[user\n")
    git = GitProgram(str(repository), environ=environment(tmp_path), as_user=True)
    assert (git.settings(), git.config("user.name")) == ({}, None)


SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "secret of the bucket",
    "GITOPS_TOKEN": "secret of the forge",
    "GITHUB_TOKEN": "secret of the job",
    "GITOPS_SIGNING_KEY": "secret of the ledger",
    "PYTHONPATH": "/secret of imports",
}


def test_a_hook_of_a_local_remote_sees_no_secret(tmp_path: Path) -> None:
    """The hook of a repository on this machine is a child of the git that we start."""
    far, near, log = bare(tmp_path / "far.git"), bare(tmp_path / "near.git"), tmp_path / "log"
    hook(far, "pre-receive", f"env > '{log}'")
    head = commit(opened(near), {"a": b"1"})
    remote = ProgramRemote(str(near), str(far), environ=environment(tmp_path, SSH_AUTH_SOCK="/agent", **SECRETS))
    remote.push([RefUpdate("refs/heads/main", ZERO, head)])
    seen = log.read_text()
    assert "secret of" not in seen
    assert "SSH_AUTH_SOCK=/agent" in seen


@pytest.mark.parametrize("named", ["", "GITHUB_TOKEN", "GITHUB_TOKEN, OTHER GIT_DIR"])
def test_a_credential_helper_sees_what_is_listed(tmp_path: Path, named: str) -> None:
    far, near, log = bare(tmp_path / "root" / "far.git"), bare(tmp_path / "near.git"), tmp_path / "log"
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\nenv > '{log}'\nprintf 'username=bot\\npassword=%s\\n' \"${{GITHUB_TOKEN-none}}\"\n")
    helper.chmod(0o755)
    (tmp_path / ".gitconfig").write_text(f"[credential]\n\thelper = {helper}\n")
    more = {"GITOPS_GIT_ENVIRONMENT": named, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/bus", "GIT_DIR": "/elsewhere"}
    with GitServer(far.parent, users={"bot": SECRETS["GITHUB_TOKEN"]}) as server:
        remote = ProgramRemote(str(near), server.url("far.git"), environ=environment(tmp_path, **SECRETS, **more))
        if named:
            assert remote.refs("refs/heads") == {}
        else:
            with pytest.raises(RemoteError):
                remote.refs("refs/heads")
    seen = log.read_text()
    assert ("secret of the job" in seen) is bool(named)
    assert not any(SECRETS[name] in seen for name in SECRETS if name != "GITHUB_TOKEN")
    assert "DBUS_SESSION_BUS_ADDRESS=unix:path=/bus" in seen
    assert "/elsewhere" not in seen


def test_a_filter_of_the_repository_sees_no_secret(tmp_path: Path) -> None:
    """Runs that do not read the user's configuration heed no list either."""
    log = tmp_path / "log"
    git = GitProgram(
        str(bare(tmp_path / "r.git")),
        environ=environment(tmp_path, GITOPS_GIT_ENVIRONMENT="GITOPS_TOKEN", SSH_AUTH_SOCK="/agent", **SECRETS),
    )
    assert git.run("-c", f"alias.look=!env > '{log}'", "look").ok
    seen = log.read_text()
    assert "secret of" not in seen
    assert "/agent" not in seen


def test_ssh_keygen_sees_no_secret(tmp_path: Path) -> None:
    log, programs = tmp_path / "log", tmp_path / "bin"
    programs.mkdir()
    (programs / "ssh-keygen").write_text(f"#!/bin/sh\nenv > '{log}'\nexit 1\n")
    (programs / "ssh-keygen").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    with pytest.raises(GitopsError):
        make_key(str(tmp_path / "key"), "bot", environ={**environment(tmp_path, **SECRETS), "PATH": path})
    assert "secret of" not in log.read_text()


_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_PERSON = "A <a@example.org> 1 +0000"
_COMMIT = f"tree {_EMPTY_TREE}\nauthor {_PERSON}\ncommitter {_PERSON}\n\n" + "line\n" * 40


@pytest.fixture
def git_dir(tmp_path: Path) -> Path:
    return bare(tmp_path / "r.git")


def stored(git_dir: Path, kind: str, data: bytes) -> tuple[str, Path]:
    """Store an object with git: its id, and its file, which may be written."""
    oid = run(
        "git", f"--git-dir={git_dir}", "hash-object", "-t", kind, "-w", "--stdin", home=git_dir.parent, stdin=data
    )
    file = git_dir / "objects" / oid[:2] / oid[2:]
    file.chmod(0o644)
    return oid, file


def test_a_flipped_bit_is_refused_or_changes_nothing(git_dir: Path) -> None:
    oid, file = stored(git_dir, "commit", _COMMIT.encode())
    sound, refused = file.read_bytes(), 0
    assert opened(git_dir).commit(oid).author.time == 1
    for bit in range(len(sound) * 8):
        broken = bytearray(sound)
        broken[bit // 8] ^= 1 << bit % 8
        file.write_bytes(broken)
        try:
            # Bits between the compressed data and their checksum mean nothing.
            assert opened(git_dir).commit(oid).message == "line\n" * 40
        except GitopsError:
            refused += 1
    assert refused > len(sound) * 7


@pytest.mark.parametrize(
    "content",
    [
        b"",
        zlib.compress(b"commit 5\0" + _COMMIT.encode()),
        zlib.compress(b"commit 9999\0" + _COMMIT.encode()),
        zlib.compress(f"commit {len(_COMMIT)}".encode() + b" " * 40 + b"\0" + _COMMIT.encode()),
        zlib.compress(f"poem {len(_COMMIT)}\0{_COMMIT}".encode()),
        zlib.compress(f"commit -1\0{_COMMIT}".encode()),
        zlib.compress(f"commit {len(_COMMIT)}\0{_COMMIT}".encode())[:-5],
        zlib.compress(f"commit {len(_COMMIT)}\0{_COMMIT}".encode()) + b"more",
        # At the fastest level, which is as much of a bomb.
        zlib.compress(b"commit 7\0" + b"\0" * 50_000_000, 1),
    ],
    ids=["empty", "too small", "too large", "long header", "kind", "negative", "cut off", "garbage", "bomb"],
)
def test_a_file_that_is_no_object_is_refused(git_dir: Path, content: bytes) -> None:
    oid, file = stored(git_dir, "commit", _COMMIT.encode())
    file.write_bytes(content)
    with pytest.raises(GitopsError):
        opened(git_dir).commit(oid)


def test_large_and_empty_objects_are_read(git_dir: Path) -> None:
    contents = [b"", b"x", os.urandom(1_500_000), b"0" * 3_000_000]
    names = [stored(git_dir, "blob", content)[0] for content in contents]
    repository = opened(git_dir)
    tree = repository.write_files(None, {f"f{i}": content for i, content in enumerate(contents)})
    assert [repository.read(tree, f"f{i}") for i in range(len(names))] == contents


def test_what_is_borrowed_is_checked_too(git_dir: Path, tmp_path: Path) -> None:
    lender = bare(tmp_path / "lender.git")
    oid, file = stored(lender, "commit", _COMMIT.encode())
    (git_dir / "objects/info").mkdir(exist_ok=True)
    (git_dir / "objects/info/alternates").write_text(f"# borrowed\n{lender}/objects\n")
    assert opened(git_dir).commit(oid).author.time == 1
    file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(GitopsError):
        opened(git_dir).commit(oid)


NAME = st.binary(min_size=1, max_size=6).filter(lambda n: not set(n) & {0, 47})
ROWS = st.dictionaries(
    NAME, st.tuples(st.sampled_from([b"100644", b"40000", b"120000", b"160000"]), st.binary(min_size=20, max_size=20))
)


def tree(rows: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    return b"".join(b"%s %s\0%s" % (mode, name, object_id) for name, (mode, object_id) in rows.items())


def attempt(raw: bytes) -> Mapping[bytes, tuple[bytes, bytes]] | None:
    """The entries, if the tree is one; modes as they are written."""
    with suppress(IntegrityError):
        entries = parse_tree("t", raw)
        return {e.name.encode("utf-8", "surrogateescape"): (b"%o" % e.mode, bytes.fromhex(e.id)) for e in entries}
    return None


@given(rows=ROWS)
def test_a_tree_is_read_back(rows: Mapping[bytes, tuple[bytes, bytes]]) -> None:
    entries = parse_tree("t", tree(rows))
    assert [(e.name.encode("utf-8", "surrogateescape"), e.mode, e.id) for e in entries] == [
        (name, int(mode, 8), object_id.hex()) for name, (mode, object_id) in rows.items()
    ]


@given(rows=ROWS.filter(bool), data=st.data())
def test_a_tree_that_is_cut_or_has_anything_more_is_refused(
    rows: Mapping[bytes, tuple[bytes, bytes]], data: st.DataObject
) -> None:
    raw = tree(rows)
    first = next(iter(rows))
    broken = data.draw(
        st.sampled_from(
            [raw[:-1], raw + b"1", b" " + raw, raw + raw[: len(raw) // 2], raw + tree({first: rows[first]}), b"9" + raw]
        )
    )
    again = attempt(broken)
    if again is not None:
        # Half of it was whole entries with other names: another tree, and not the same bytes read in two ways.
        assert tree(again) == broken


def test_reading_again_asks_for_nothing_and_little_is_kept() -> None:
    asked: list[str] = []
    leaf = tree({b"%05d" % n: (b"100644", bytes(20)) for n in range(9_000)})

    def read(object_id: str, kind: str) -> bytes:
        assert kind == "tree"
        asked.append(object_id)
        return leaf

    levels = TreeLevels(read)
    for _ in range(3):
        found = levels.find("a", "00007")
        assert found is not None
        assert levels.find("a", "missing") is None
    assert asked == ["a"]
    for name in ("b", "c"):
        assert levels.find(name, "00007") == found
    assert levels.find("c", "00001") is not None
    assert asked == ["a", "b", "c"]
    # Three of them are more than is kept: the one that was not used longest is gone.
    levels.find("a", "00007")
    assert asked == ["a", "b", "c", "a"]


@pytest.mark.parametrize("path", ["\ud800", "a/\ud800", "", "/", "..", "a//b", "a\0b"])
def test_a_path_that_names_nothing_finds_nothing(path: str) -> None:
    levels = TreeLevels(lambda _, __: tree({b"a": (b"100644", bytes(20))}))
    assert levels.find("t", path) is None
