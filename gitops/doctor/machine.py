"""Checks of this machine: programs, the repository as it lies here, the key that signs, the hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gitops.doctor.checks import error, good, unknown, warning
from gitops.doctor.findings import Finding

__all__ = ["KeyFacts", "MachineFacts", "machine_findings"]

_LEAST_GIT = (2, 31)
_PRIVATE = 0o077
_VERSION = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """What `user.signingKey` names. `mode` are the permissions of a private key file, None where it is no such file.

    `blob` is the public half, None where nobody signed to find out; `problem` says why it cannot sign.
    """

    mode: int | None = None
    blob: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What was read of this machine and of the repository on it.

    `git` is what the program says of its version, empty where there is none; `keygen` whether ssh-keygen is there. `replaced` are
    refs below `refs/replace/`. `open_remotes` are names of remotes with a password in their address. `hooks` are those of the
    program that are installed, `stale` those among them of another release or place, `wanted` those that belong here.
    """

    git: str
    keygen: bool
    bare: bool
    shallow: bool
    replaced: int
    named: bool
    key: KeyFacts | None
    open_remotes: tuple[str, ...]
    fsck: bool
    hooks: tuple[str, ...]
    wanted: tuple[str, ...]
    stale: tuple[str, ...] = ()
    hook_problem: str = ""


def machine_findings(facts: MachineFacts) -> Iterator[Finding]:
    """All of them."""
    yield _git(facts)
    yield from _repository(facts)
    yield from _key(facts)
    yield from _hooks(facts)


def _git(facts: MachineFacts) -> Finding:
    found = _VERSION.search(facts.git)
    if found is None:
        return error("git.version", "git does not say its version", "install git 2.31 or later")
    if (int(found[1]), int(found[2])) < _LEAST_GIT:
        return error("git.version", f"{facts.git} is too old", "install git 2.31 or later")
    if not facts.keygen:
        return error("git.version", "ssh-keygen is not there, so nothing can be signed", "install OpenSSH 8.2 or later")
    return good("git.version", facts.git)


def _repository(facts: MachineFacts) -> Iterator[Finding]:
    if facts.shallow:
        fix = "git fetch --unshallow; in a job: fetch-depth: 0 (GitLab: GIT_DEPTH: 0)"
        yield error("git.shallow", "the clone is shallow: nothing can be said about its history", fix)
    else:
        yield good("git.shallow", "the whole history is here")
    if facts.replaced:
        detail = f"{facts.replaced} refs/replace: git shows other objects than this program, which never follows them"
        yield warning("git.replace", detail, "git replace --list, then git replace --delete ID")
    else:
        yield good("git.replace", "no object is replaced")
    if facts.open_remotes:
        names = ", ".join(facts.open_remotes)
        fix = "git remote set-url NAME with no password in it, and a credential helper"
        yield warning("git.remote-password", f"the address of {names} holds a password", fix)
    else:
        yield good("git.remote-password", "no address of a remote holds a password")
    if facts.bare and not facts.fsck:
        detail = "malformed objects are taken: they can mean different things to different readers"
        yield error("git.fsck", detail, "git config receive.fsckObjects true")
    elif facts.bare:
        yield good("git.fsck", "objects that are pushed are checked")


def _key(facts: MachineFacts) -> Iterator[Finding]:
    if not facts.named:
        fix = "git config user.name NAME and git config user.email ADDRESS"
        yield warning("key.person", "nobody is named who commits from here", fix)
    key = facts.key
    if key is None:
        detail = "no signing key: approvals and entries cannot be signed here"
        fix = "git config user.signingKey ~/.ssh/id_ed25519"
        yield error("key.signs", detail, fix) if facts.bare else warning("key.signs", detail, fix)
        return
    if key.mode is not None and key.mode & _PRIVATE:
        detail = f"others may read the private key: its mode is {key.mode & 0o777:04o}"
        yield error("key.mode", detail, 'chmod 600 "$(git config --type=path user.signingKey)"')
    elif key.mode is not None:
        yield good("key.mode", "only its owner may read the private key")
    if key.problem:
        yield error("key.signs", key.problem, "git config user.signingKey with a key that ssh-keygen -Y sign takes")
    elif key.blob is None:
        yield unknown("key.signs", "not tried", "gitops doctor without --no-probe")
    else:
        yield good("key.signs", "the key signs")


def _hooks(facts: MachineFacts) -> Iterator[Finding]:
    fix = "gitops hook install --server --repo PATH" if facts.bare else "gitops hook install"
    missing = [name for name in facts.wanted if name not in facts.hooks]
    if facts.hook_problem:
        yield (error if facts.bare else warning)("hooks.installed", facts.hook_problem, fix)
    elif missing and facts.bare:
        detail = f"missing: {', '.join(missing)}. Without them everybody who pushes can write the ledger"
        yield error("hooks.installed", detail, fix)
    elif missing:
        yield warning("hooks.installed", f"missing: {', '.join(missing)}: problems are found later", fix)
    else:
        yield good("hooks.installed", ", ".join(facts.hooks))
    if facts.stale:
        detail = f"of another release or another place: {', '.join(facts.stale)}"
        yield warning("hooks.current", detail, fix)
