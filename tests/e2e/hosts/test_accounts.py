"""Repositories that several accounts of a machine use: shared by a group, unreadable homes, other locales, missing rights."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.hosts import HostKind, Hosts
from tests.support.loop import FILES, LEDGER, Loop
from tests.support.prefork import started_programs

pytestmark = pytest.mark.e2e

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
