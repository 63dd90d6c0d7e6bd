"""Checks of this machine: programs, the local repository, the signing key, the hooks."""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.git.command import GitProgram
from gitops.git.hooks import HookKind, expected_hooks, hooks_folder, installed_hooks, stale_hooks
from gitops.git.signatures import sign, verify_detached
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.system import own_command

_LEAST_GIT = (2, 31)
_OF_OTHERS = 0o077
_VERSION = re.compile(r"(\d+)\.(\d+)")
# No verification accepts a signature of this namespace.
_NAMESPACE = "gitops-doctor"
_LITERAL = "key::"


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
    hook_folder: str = ""


def read_machine(local: LocalRepository, *, probe: bool) -> MachineFacts:
    """Read this machine. With `probe` the key signs a text that no verification accepts."""
    repository = local.git
    git = GitProgram(repository.git_dir, as_user=True)
    bare = repository.work_tree is None
    kind: HookKind = "server" if bare else "client"
    hooks: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    problem = ""
    try:
        hooks = installed_hooks(repository.git_dir, kind)
        stale = stale_hooks(repository.git_dir, kind, own_command())
    except GitopsError as refused:
        problem = refused.detail
    fsck = (local.git.setting(f"{section}.fsckObjects") for section in ("receive", "transfer"))
    with_password = []
    addresses = git.run("config", "-z", "--get-regexp", r"^remote\..*\.(push)?url$").stdout.decode("utf-8", "replace")
    for row in addresses.split("\0"):
        name, _, url = row.partition("\n")
        with contextlib.suppress(ValueError):
            if "://" in url and urlsplit(url).password is not None:
                with_password.append(name.removeprefix("remote.").rpartition(".")[0])
    return MachineFacts(
        git=git.run("version").stdout.decode("utf-8", "replace").strip(),
        keygen=shutil.which("ssh-keygen") is not None,
        bare=bare,
        shallow=repository.is_shallow,
        replaced=len(repository.refs("refs/replace")),
        named=local.git.person_or_none() is not None,
        key=_read_key(local.git.signing_key(), probe=probe),
        remotes_with_password=tuple(with_password),
        fsck=next((value for value in fsck if value is not None), "false").lower() in ("true", "yes", "on", "1"),
        hooks=hooks,
        wanted=expected_hooks(kind),
        stale=stale,
        hook_problem=problem,
        hook_folder=str(hooks_folder(repository.git_dir)),
    )


def _read_key(named: str | None, *, probe: bool) -> KeyFacts | None:
    if named is None:
        return None
    mode, text = None, ""
    if named.startswith(_LITERAL):
        text = named.removeprefix(_LITERAL)
    else:
        try:
            found = Path(named).stat()
        except OSError as problem:
            return KeyFacts(problem=f"{named}: {problem.strerror}")
        mode = stat.S_IMODE(found.st_mode) if not named.endswith(".pub") else None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = Path(named if named.endswith(".pub") else f"{named}.pub").read_text("ascii")
    fields = text.split()
    blob = fields[1] if len(fields) > 1 else None
    if not probe:
        return KeyFacts(mode, blob)
    try:
        armored = sign(b"doctor\n", named, namespace=_NAMESPACE)
    except GitopsError as problem:
        return KeyFacts(mode, blob, problem.detail)
    return KeyFacts(mode, verify_detached(b"doctor\n", armored, _NAMESPACE).key)


def machine_findings(facts: MachineFacts) -> Iterator[DoctorFinding]:
    """Make all of these checks."""
    yield _git(facts)
    if facts.shallow:
        fix = "git fetch --unshallow; in a job: fetch-depth: 0 (GitLab: GIT_DEPTH: 0)"
        yield error("git.shallow", "the clone is shallow: its history cannot be checked", fix)
    else:
        yield good("git.shallow", "the full history is present")
    if facts.replaced:
        what = "git follows them and this program does not, so they show different objects"
        fix = "git replace --list, then git replace --delete ID"
        yield warning("git.replace", f"{facts.replaced} refs/replace: {what}", fix)
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
    if not facts.named:
        fix = "git config user.name NAME and git config user.email ADDRESS"
        yield warning("key.person", "git has no name and address for commits", fix)
    yield from _key(facts.key, error if facts.bare else warning)
    yield from _hooks(facts, error if facts.bare else warning)


def _git(facts: MachineFacts) -> DoctorFinding:
    found = _VERSION.search(facts.git)
    if found is None:
        return error("git.version", "git does not report its version", "install git 2.31 or later")
    if (int(found[1]), int(found[2])) < _LEAST_GIT:
        return error("git.version", f"{facts.git} is too old", "install git 2.31 or later")
    if not facts.keygen:
        detail = "ssh-keygen is not installed, so nothing can be signed"
        return error("git.version", detail, "install OpenSSH 8.2 or later")
    return good("git.version", facts.git)


def _key(key: KeyFacts | None, report: Callable[[str, str, str], DoctorFinding]) -> Iterator[DoctorFinding]:
    """Whether the key can sign and only its owner can read it. `report` makes the finding if there is no key."""
    if key is None:
        detail = "no signing key: approvals and entries cannot be signed on this machine"
        yield report("key.signs", detail, "git config user.signingKey ~/.ssh/id_ed25519")
        return
    if key.mode is not None and key.mode & _OF_OTHERS:
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


def _hooks(facts: MachineFacts, report: Callable[[str, str, str], DoctorFinding]) -> Iterator[DoctorFinding]:
    """Whether the hooks are installed and those of this program. `report` makes the finding if they are not installed."""
    fix = "gitops hook install --server --repo PATH" if facts.bare else "gitops hook install"
    missing = ", ".join(name for name in facts.wanted if name not in facts.hooks)
    if facts.hook_problem:
        yield report("hooks.installed", facts.hook_problem, fix)
    elif missing:
        yield report("hooks.installed", f"missing in {facts.hook_folder}: {missing}. {_without(missing)}", fix)
    else:
        yield good("hooks.installed", ", ".join(facts.hooks))
    if facts.stale:
        detail = f"of another release or another installation: {', '.join(facts.stale)}"
        yield warning("hooks.current", f"{detail}; those of the first release execute files of the checkout", fix)


def _without(missing: str) -> str:
    """What happens without these hooks."""
    if "pre-receive" in missing:
        return "Everyone who can push can write the ledger"
    if "post-receive" in missing:
        return "Pushes are checked, but nothing is planned or applied until gitops bot sweep runs"
    return "Problems are found later without them"
