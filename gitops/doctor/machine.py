"""Checks of this machine: programs, the local repository, the signing key, the hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning

_LEAST_GIT = (2, 31)
_PRIVATE = 0o077
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The key of `user.signingKey`. `mode` is the permissions of a private key file, None if it is not a file.

    `blob` is the public key, None if it is not known; `problem` says why the key cannot sign.
    """

    mode: int | None = None
    blob: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What was read on this machine and in its repository.

    `git` is the output of `git version`, empty if git fails; `keygen` says whether ssh-keygen is installed. `replaced` counts the
    refs below `refs/replace/`. `remotes_with_password` are names of remotes with a password in their address. `hooks` are the
    installed hooks of this program, `stale` those of another release or installation, `wanted` those that should be installed.
    """

    git: str
    keygen: bool
    bare: bool
    shallow: bool
    replaced: int
    named: bool
    key: KeyFacts | None
    remotes_with_password: tuple[str, ...]
    fsck: bool
    hooks: tuple[str, ...]
    wanted: tuple[str, ...]
    stale: tuple[str, ...] = ()
    hook_problem: str = ""


def machine_findings(facts: MachineFacts) -> Iterator[DoctorFinding]:
    """Make all of these checks."""
    yield _git(facts)
    yield from _repository(facts)
    yield from _key(facts)
    yield from _hooks(facts)


def _git(facts: MachineFacts) -> DoctorFinding:
    found = _VERSION.search(facts.git)
    if found is None:
        return error("git.version", "git does not report its version", "install git 2.31 or later")
    if (int(found[1]), int(found[2])) < _LEAST_GIT:
        return error("git.version", f"{facts.git} is too old", "install git 2.31 or later")
    if not facts.keygen:
        return error(
            "git.version", "ssh-keygen is not installed, so nothing can be signed", "install OpenSSH 8.2 or later"
        )
    return good("git.version", facts.git)


def _repository(facts: MachineFacts) -> Iterator[DoctorFinding]:
    if facts.shallow:
        fix = "git fetch --unshallow; in a job: fetch-depth: 0 (GitLab: GIT_DEPTH: 0)"
        yield error("git.shallow", "the clone is shallow: its history cannot be checked", fix)
    else:
        yield good("git.shallow", "the full history is present")
    if facts.replaced:
        detail = (
            f"{facts.replaced} refs/replace: git follows them and this program does not, so they show different objects"
        )
        yield warning("git.replace", detail, "git replace --list, then git replace --delete ID")
    else:
        yield good("git.replace", "no objects are replaced")
    if facts.remotes_with_password:
        names = ", ".join(facts.remotes_with_password)
        fix = "git remote set-url NAME without a password, and use a credential helper"
        yield warning("git.remote-password", f"the address of {names} contains a password", fix)
    else:
        yield good("git.remote-password", "no address of a remote contains a password")
    if facts.bare and not facts.fsck:
        detail = "malformed objects are accepted: different readers can understand them differently"
        yield error("git.fsck", detail, "git config receive.fsckObjects true")
    elif facts.bare:
        yield good("git.fsck", "pushed objects are checked")


def _key(facts: MachineFacts) -> Iterator[DoctorFinding]:
    if not facts.named:
        fix = "git config user.name NAME and git config user.email ADDRESS"
        yield warning("key.person", "git has no name and address for commits", fix)
    key = facts.key
    if key is None:
        detail = "no signing key: approvals and entries cannot be signed on this machine"
        fix = "git config user.signingKey ~/.ssh/id_ed25519"
        yield error("key.signs", detail, fix) if facts.bare else warning("key.signs", detail, fix)
        return
    if key.mode is not None and key.mode & _PRIVATE:
        detail = f"other users can read the private key: its mode is {key.mode & 0o777:04o}"
        yield error("key.mode", detail, 'chmod 600 "$(git config --type=path user.signingKey)"')
    elif key.mode is not None:
        yield good("key.mode", "only its owner can read the private key")
    if key.problem:
        yield error("key.signs", key.problem, "git config user.signingKey to a key that ssh-keygen -Y sign accepts")
    elif key.blob is None:
        yield unknown("key.signs", "not tried", "gitops doctor without --no-probe")
    else:
        yield good("key.signs", "the key can sign")


def _hooks(facts: MachineFacts) -> Iterator[DoctorFinding]:
    fix = "gitops hook install --server --repo PATH" if facts.bare else "gitops hook install"
    missing = [name for name in facts.wanted if name not in facts.hooks]
    if facts.hook_problem:
        yield (error if facts.bare else warning)("hooks.installed", facts.hook_problem, fix)
    elif missing and facts.bare:
        detail = f"missing: {', '.join(missing)}. Without them everyone who can push can write the ledger"
        yield error("hooks.installed", detail, fix)
    elif missing:
        yield warning("hooks.installed", f"missing: {', '.join(missing)}. Problems are found later without them", fix)
    else:
        yield good("hooks.installed", ", ".join(facts.hooks))
    if facts.stale:
        detail = f"of another release or another installation: {', '.join(facts.stale)}"
        yield warning("hooks.current", detail, fix)
