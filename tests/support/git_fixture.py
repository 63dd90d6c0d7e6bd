"""Repositories, keys and hooks for tests, made with the real programs in an environment that never varies."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.repository import GitRepository
from tests.support.pen import new_key

FORMATS = ("GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT")
"""Variables of a test that say what kind of repositories `git init` makes."""

ALICE = Person("Alice", "alice@example.org", 1_700_000_000)


def environment(home: Path, **more: str) -> dict[str, str]:
    """The whole environment of a program started by a test: no configuration but that in `home`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LC_ALL": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": ALICE.name,
        "GIT_AUTHOR_EMAIL": ALICE.email,
        "GIT_AUTHOR_DATE": f"@{ALICE.time} +0000",
        "GIT_COMMITTER_NAME": ALICE.name,
        "GIT_COMMITTER_EMAIL": ALICE.email,
        "GIT_COMMITTER_DATE": f"@{ALICE.time} +0000",
        **{name: os.environ[name] for name in FORMATS if name in os.environ},
        **more,
    }


def run(*argv: str, home: Path, cwd: Path | None = None, stdin: bytes = b"", check: bool = True) -> str:
    """Run a program in that environment and return its output."""
    done = subprocess.run(argv, env=environment(home), cwd=cwd or home, input=stdin, capture_output=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"{argv}: {done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode().rstrip("\n")


def bare(path: Path) -> Path:
    """A new bare repository that accepts pushes over HTTP."""
    path.parent.mkdir(parents=True, exist_ok=True)
    run("git", "init", "-q", "--bare", "-b", "main", "--template=", str(path), home=path.parent)
    (path / "hooks").mkdir()
    with (path / "config").open("a") as config:
        config.write("[http]\n\treceivepack = true\n[receive]\n\tautogc = false\n")
    return path


def git_version() -> tuple[int, ...]:
    """The version of the git program."""
    return tuple(map(int, re.findall(r"\d+", subprocess.check_output(("git", "version"), text=True))[:2]))


def opened(path: Path) -> GitRepository:
    """The driver on a repository, in the fixed environment."""
    return GitRepository(path, environ=environment(path.parent))


def commit(
    repository: GitRepository,
    files: Mapping[str, bytes | None],
    *parents: str,
    message: str = "change\n",
    signing_key: str | None = None,
) -> str:
    """A commit by Alice that changes `files` of its first parent."""
    base = repository.commit(parents[0]).tree if parents else None
    new = NewCommit(repository.write_files(base, files), parents, ALICE, message)
    return repository.write_commit(new, signing_key=signing_key)


def branch(repository: GitRepository, ref: str, commit_id: str, old: str = ZERO) -> None:
    """Point `ref` at a commit."""
    repository.update_refs([RefUpdate(ref, old, commit_id)])


def hook(repository: Path, name: str, script: str) -> None:
    """Install a shell hook."""
    path = repository / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def ssh_key(folder: Path, name: str, kind: str = "ed25519", bits: int = 0) -> Path:
    """A new SSH key without passphrase; the public half lies beside it as `.pub`."""
    if kind == "ed25519":
        return new_key(folder / name, name)
    size = ("-b", str(bits)) if bits else ()
    run("ssh-keygen", "-q", "-t", kind, *size, "-N", "", "-C", name, "-f", str(folder / name), home=folder)
    return folder / name


def public_key(key: Path) -> str:
    """Key type and key of a public key file, as one line without comment."""
    return " ".join(key.with_suffix(".pub").read_text().split()[:2])
