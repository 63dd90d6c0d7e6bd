"""Hooks as git runs them: what they start, with which arguments and input, and what happens when there is nothing to start."""

from __future__ import annotations

import shlex
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, UsageError
from gitops.git.hooks import (
    HookKind,
    erase_hooks,
    install_hooks,
    installed_hooks,
    remove_hooks,
    stale_hooks,
    write_hooks,
)
from tests.support.effort import cases
from tests.support.git_fixture import bare, environment, run

CLIENT = ("pre-commit", "commit-msg", "pre-push")
SERVER = ("pre-receive", "post-receive")
# A folder that does harm if any part of it is taken for anything but a name.
ODD = """it's a "pa th" $(touch pwned) `touch pwned`;touch pwned & *\\n\t-x"""


@dataclass
class Place:
    """A bare repository, a work tree that pushes to it, and a program that writes down how it was started."""

    home: Path
    far: Path
    work: Path
    stub: Path
    log: Path

    @property
    def git_dir(self) -> str:
        return str(self.work / ".git")

    @property
    def command(self) -> list[str]:
        return [str(self.stub), "an argument's $HOME", "-m"]

    def git(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = ("git", *arguments)
        done = subprocess.run(
            argv, cwd=self.work, env=environment(self.home), capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def commit(self, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.git("commit", "-q", "--allow-empty", "-m", "change", check=check)

    def push(self, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.git("push", "-q", "origin", "HEAD:refs/heads/main", check=check)

    def started(self) -> list[list[str]]:
        """Argument vector, then input, of each start."""
        text = self.log.read_text() if self.log.exists() else ""
        return [record.split("\0") for record in text.split("\x1e")[:-1]]

    def pushed(self) -> bool:
        return run("git", f"--git-dir={self.far}", "for-each-ref", home=self.home) != ""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home = tmp_path / "home"
    home.mkdir()
    work = tmp_path / ODD / "work"
    work.mkdir(parents=True)
    far = bare(tmp_path / ODD / "far.git")
    run("git", "init", "-q", "-b", "main", str(work), home=home)
    run("git", "remote", "add", "origin", str(far), home=home, cwd=work)
    log = tmp_path / "log"
    stub = tmp_path / ODD / "st'ub"
    made = Place(home, far, work, stub, log)
    answer(made, 0)
    return made


def answer(place: Place, status: int) -> None:
    """Write the program, which ends with `status`."""
    log = shlex.quote(str(place.log))
    body = f"""for part in "$@"; do printf '%s\\0' "$part" >> {log}; done; cat >> {log}; printf '\\036' >> {log}"""
    place.stub.write_text(f"#!/bin/sh\n{body}\nexit {status}\n")
    place.stub.chmod(0o755)


def refused(git_dir: str | Path, kind: HookKind = "client", command: tuple[str, ...] = ("/bin/true",)) -> GitopsError:
    with pytest.raises(GitopsError) as caught:
        install_hooks(str(git_dir), kind, command)
    return caught.value


def test_client_hooks_start_the_program(place: Place) -> None:
    assert install_hooks(place.git_dir, "client", place.command) == CLIENT
    place.commit()
    place.push()
    head = place.git("rev-parse", "HEAD").stdout.strip()
    start = [*place.command[1:], "hook", "run"]
    assert place.started() == [
        [*start, "pre-commit", ""],
        [*start, "commit-msg", ".git/COMMIT_EDITMSG", ""],
        [*start, "pre-push", "origin", str(place.far), f"HEAD {head} refs/heads/main {'0' * 40}\n"],
    ]
    assert list(place.home.parent.rglob("pwned")) == []


def test_server_hooks_start_the_program(place: Place) -> None:
    assert install_hooks(str(place.far), "server", place.command) == SERVER
    place.commit()
    place.push()
    head = place.git("rev-parse", "HEAD").stdout.strip()
    start = [*place.command[1:], "hook", "run"]
    line = f"{'0' * 40} {head} refs/heads/main\n"
    assert place.started() == [[*start, "pre-receive", line], [*start, "post-receive", line]]
    assert list(place.home.parent.rglob("pwned")) == []


def test_the_programs_no_is_the_hooks_no(place: Place) -> None:
    place.commit()
    answer(place, 1)
    install_hooks(place.git_dir, "client", place.command)
    assert place.commit(check=False).returncode != 0
    remove_hooks(place.git_dir, "client")
    install_hooks(str(place.far), "server", place.command)
    assert place.push(check=False).returncode != 0
    assert not place.pushed()


@pytest.mark.parametrize("gone", ["missing", "not executable", "a folder", "without interpreter"])
def test_without_the_program_nothing_is_accepted(place: Place, gone: str) -> None:
    place.commit()
    install_hooks(str(place.far), "server", place.command)
    install_hooks(place.git_dir, "client", place.command)
    break_program(place, gone)
    commit, push = place.commit(check=False), place.push(check=False)
    assert commit.returncode != 0
    assert push.returncode != 0
    if gone in ("missing", "not executable"):
        assert f"gitops: cannot run {place.stub}, so what is staged is not validated." in commit.stderr
        assert "--no-verify" in push.stderr
    server = place.git("push", "-q", "--no-verify", "origin", "HEAD:refs/heads/main", check=False)
    assert server.returncode != 0
    assert not place.pushed()
    if gone in ("missing", "not executable"):
        assert "so no push is accepted" in server.stderr


def break_program(place: Place, how: str) -> None:
    place.stub.chmod(0o644)
    if how == "not executable":
        return
    place.stub.unlink()
    if how == "a folder":
        place.stub.mkdir()
    if how == "without interpreter":
        place.stub.write_text("#!/nowhere/sh\n")
        place.stub.chmod(0o755)


def test_a_template_that_nobody_filled_in_refuses(place: Place) -> None:
    place.commit()
    source = Path(__file__).parents[3] / "hooks" / "pre-receive"
    target = place.far / "hooks" / "pre-receive"
    target.write_bytes(source.read_bytes())
    target.chmod(0o755)
    assert place.push(check=False).returncode != 0
    assert not place.pushed()


def test_installing_again_changes_nothing_and_another_command_replaces(place: Place) -> None:
    install_hooks(place.git_dir, "client", place.command)
    hook = Path(place.git_dir) / "hooks" / "pre-commit"

    def written() -> tuple[int, int, int]:
        status = hook.stat()
        return status.st_ino, status.st_mode, status.st_mtime_ns

    before = written()
    install_hooks(place.git_dir, "client", place.command)
    assert written() == before
    install_hooks(place.git_dir, "client", ["/usr/bin/other"])
    assert b"set -- /usr/bin/other hook run pre-commit" in hook.read_bytes()
    assert stat.S_IMODE(hook.stat().st_mode) == 0o755
    names = {path.name for path in hook.parent.iterdir() if not path.name.endswith(".sample")}
    assert names == set(CLIENT)


def test_an_executable_bit_that_was_lost_comes_back(place: Place) -> None:
    install_hooks(place.git_dir, "client", place.command)
    hook = Path(place.git_dir) / "hooks" / "pre-push"
    hook.chmod(0o644)
    install_hooks(place.git_dir, "client", place.command)
    assert stat.S_IMODE(hook.stat().st_mode) == 0o755


@pytest.mark.parametrize("kind", ["file", "link", "broken link", "folder", "link to ours"])
def test_a_hook_of_somebody_else_stays_and_nothing_is_written(place: Place, tmp_path: Path, kind: str) -> None:
    folder = Path(place.git_dir) / "hooks"
    hook = folder / "commit-msg"
    mine = tmp_path / "mine"
    mine.write_text(
        "#!/bin/sh\n# managed by gitops\n" if kind == "link to ours" else "#!/bin/sh\n# not managed by gitops\n"
    )
    if kind == "file":
        hook.write_bytes(mine.read_bytes())
    elif kind == "folder":
        hook.mkdir()
    else:
        hook.symlink_to(tmp_path / "nowhere" if kind == "broken link" else mine)
    error = refused(place.git_dir)
    assert error.code == "hook_exists"
    assert str(hook) in error.detail
    assert not (folder / "pre-commit").exists()
    assert remove_hooks(place.git_dir, "client") == ()
    assert hook.is_symlink() or hook.exists()


def test_removing_takes_ours_and_no_other(place: Place) -> None:
    install_hooks(place.git_dir, "client", place.command)
    folder = Path(place.git_dir) / "hooks"
    (folder / "pre-push").write_text("#!/bin/sh\nexit 0\n")
    assert remove_hooks(place.git_dir, "server") == ()
    assert remove_hooks(place.git_dir, "client") == ("pre-commit", "commit-msg")
    assert remove_hooks(place.git_dir, "client") == ()
    assert (folder / "pre-push").exists()


def test_a_hooks_path_in_the_repository_is_named(place: Place) -> None:
    place.git("config", "core.hooksPath", "../shared hooks")
    error = refused(place.git_dir)
    assert (error.code, error.path) == ("hook_exists", str(place.work / "../shared hooks"))
    assert "core.hooksPath" in error.detail
    assert not (Path(place.git_dir) / "hooks" / "pre-commit").exists()


def test_a_hooks_path_of_the_user_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.home / ".gitconfig").write_text("[core]\n\thooksPath = /srv/hooks\n")
    monkeypatch.setenv("HOME", str(place.home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    assert refused(place.git_dir).path == "/srv/hooks"


def test_hooks_of_a_linked_work_tree_are_those_of_the_repository(place: Place, tmp_path: Path) -> None:
    place.commit()
    place.git("worktree", "add", "-q", str(tmp_path / "linked"))
    install_hooks(str(Path(place.git_dir) / "worktrees" / "linked"), "client", place.command)
    assert (Path(place.git_dir) / "hooks" / "pre-commit").exists()


def test_a_shared_hooks_folder_is_not_written(place: Place, tmp_path: Path) -> None:
    folder = Path(place.git_dir) / "hooks"
    folder.rename(tmp_path / "shared")
    folder.symlink_to(tmp_path / "shared")
    assert refused(place.git_dir).code == "hook_exists"
    assert not (tmp_path / "shared" / "pre-commit").exists()


def test_a_repository_without_a_hooks_folder(place: Place) -> None:
    run("rm", "-r", str(place.far / "hooks"), home=place.home)
    assert install_hooks(str(place.far), "server", place.command) == SERVER


def test_a_folder_that_cannot_be_written(place: Place) -> None:
    run("rm", "-r", str(place.far / "hooks"), home=place.home)
    (place.far / "hooks").write_text("")
    assert refused(place.far, "server").code == "storage_failed"


def test_what_is_no_repository(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert isinstance(error, UsageError)
    assert error.code == "not_a_repository"


@pytest.mark.parametrize("command", [(), ("gitops",), ("./gitops",), ("",), ("/bin/tr\0ue",)])
def test_the_program_is_named_by_an_absolute_path(place: Place, command: tuple[str, ...]) -> None:
    assert refused(place.git_dir, "client", command).code == "usage_error"


@settings(max_examples=cases(60))
@given(st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), max_size=4))
def test_the_shell_sees_the_arguments_as_they_are(parts: list[str]) -> None:
    """The line that `install_hooks` writes, read by the shell that runs it."""
    script = f'set -- {shlex.join(["/x", *parts])} end\nfor part in "$@"; do printf \'%s\\0\' "$part"; done'
    done = subprocess.run(["/bin/sh"], input=script.encode(), capture_output=True, check=True)
    assert done.stdout == "".join(f"{part}\0" for part in ["/x", *parts, "end"]).encode()


def test_a_server_checks_what_it_is_sent_unless_its_operator_decided(place: Place) -> None:
    git = ("git", f"--git-dir={place.far}", "config", "--get", "receive.fsckObjects")
    install_hooks(str(place.far), "server", place.command)
    assert run(*git, home=place.home) == "true"
    run("git", f"--git-dir={place.far}", "config", "receive.fsckObjects", "false", home=place.home)
    install_hooks(str(place.far), "server", place.command)
    assert run(*git, home=place.home) == "false"
    install_hooks(str(place.work / ".git"), "client", place.command)
    client = run("git", "config", "--default", "unset", "--get", "receive.fsckObjects", home=place.home, cwd=place.work)
    assert client == "unset"


def test_a_signed_push_prints_no_error_of_git(place: Place) -> None:
    """Git verifies the certificate by a file that no server of ours has; the bot verifies it by its own keys."""
    install_hooks(str(place.far), "server", place.command)
    key = place.home / "key"
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key), home=place.home)
    place.commit()
    signed = ("-c", "gpg.format=ssh", "-c", f"user.signingKey={key}", "push", "-q", "--signed", "origin", "HEAD:main")
    assert place.git(*signed).stderr == ""
    assert place.pushed()


def _advised(error: GitopsError, hook: Path) -> str:
    """The line that the message tells to add to a hook."""
    return error.detail.partition(f"to {hook} add: ")[2].partition("; to ")[0]


@pytest.mark.parametrize("where", ["hooks", "core.hooksPath"])
def test_the_advised_line_makes_a_hook_of_somebody_else_start_the_program(place: Place, where: str) -> None:
    """Both hooks get the whole input, and each can refuse."""
    folder = place.far / "hooks" if where == "hooks" else place.home / "shared hooks"
    folder.mkdir(exist_ok=True)
    if where == "core.hooksPath":
        run("git", f"--git-dir={place.far}", "config", "core.hooksPath", str(folder), home=place.home)
    theirs, seen = folder / "pre-receive", place.home / "seen"
    theirs.write_text(f"#!/bin/sh\ncat > {seen}\ntest ! -e {place.home}/closed\n")
    theirs.chmod(0o755)
    error = refused(place.far, "server", tuple(place.command))
    assert installed_hooks(str(place.far), "server") == ()
    theirs.write_text(theirs.read_text().replace("sh\n", f"sh\n{_advised(error, theirs)}\n", 1))
    if where == "core.hooksPath":
        other = folder / "post-receive"
        other.write_text(f"#!/bin/sh\n{_advised(error, other)}\n")
        other.chmod(0o755)

    before = theirs.read_bytes()
    assert install_hooks(str(place.far), "server", place.command) == SERVER
    assert theirs.read_bytes() == before
    assert installed_hooks(str(place.far), "server") == SERVER
    assert stale_hooks(str(place.far), "server", place.command) == ()
    assert "pre-receive" in stale_hooks(str(place.far), "server", ["/opt/other"])
    place.commit()
    place.push()
    head = place.git("rev-parse", "HEAD").stdout.strip()
    line = f"{'0' * 40} {head} refs/heads/main\n"
    assert [record[-2:] for record in place.started()] == [["pre-receive", line], ["post-receive", line]]
    assert seen.read_text() == line

    place.commit()
    (place.home / "closed").touch()
    assert place.push(check=False).returncode
    (place.home / "closed").unlink()
    answer(place, 1)
    assert place.push(check=False).returncode


def test_client_hooks_of_somebody_else_start_the_program_by_a_line(place: Place) -> None:
    folder = Path(place.git_dir) / "hooks"
    for name in CLIENT:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    error = refused(place.git_dir, "client", tuple(place.command))
    for name in CLIENT:
        (folder / name).write_text(f"#!/bin/sh\n{_advised(error, folder / name)}\n")
    assert installed_hooks(place.git_dir, "client") == CLIENT
    place.commit()
    place.push()
    assert [record[4] for record in place.started()] == list(CLIENT)
    answer(place, 1)
    assert place.commit(check=False).returncode


def test_hooks_of_a_server_are_not_installed_in_a_clone(place: Place) -> None:
    error = refused(place.git_dir, "server")
    assert (error.code, isinstance(error, UsageError)) == ("usage_error", True)
    assert "is a clone" in error.detail
    assert remove_hooks(place.git_dir, "server") == ()


def test_a_folder_that_a_host_links_into_repositories(place: Place, tmp_path: Path) -> None:
    common = tmp_path / "common"
    common.mkdir()
    assert write_hooks(common, "server", place.command) == SERVER
    for name in SERVER:
        (place.far / "hooks" / name).symlink_to(common / name)
    assert install_hooks(str(place.far), "server", place.command) == SERVER
    assert installed_hooks(str(place.far), "server") == SERVER
    place.commit()
    place.push()
    assert len(place.started()) == 2
    assert erase_hooks(common, "server") == SERVER
    assert installed_hooks(str(place.far), "server") == ()
