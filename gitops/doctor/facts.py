"""Read this machine and the repository, as facts for the checks of `gitops doctor`."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gitops.config.gitops_yaml import ClusterRule
from gitops.core.errors import GitopsError
from gitops.doctor.ledger import LedgerFacts
from gitops.doctor.machine import KeyFacts, MachineFacts
from gitops.git.command import GitProgram
from gitops.git.hooks import HookKind, expected_hooks, installed_hooks, stale_hooks
from gitops.git.port import EntryType
from gitops.git.remote import SelfRemote
from gitops.git.signatures import sign, verify_detached
from gitops.ledger.chain import ledger_ref
from gitops.wiring.project import LocalProject

# No verification accepts a signature of this namespace.
_NAMESPACE = "gitops-doctor"
_LITERAL = "key::"
_FOLDERS = {
    "github": (".github/workflows",),
    "gitea": (".github/workflows", ".gitea/workflows", ".forgejo/workflows"),
    "gitlab": (".gitlab",),
}
_GITLAB = ".gitlab-ci.yml"
_SUFFIXES = (".yml", ".yaml")
_MAX_FILES = 200
_MAX_BYTES = 1024 * 1024


def machine_facts(local: LocalProject, *, probe: bool) -> MachineFacts:
    """Read this machine. With `probe` the key signs a text that no verification accepts."""
    repository = local.repository
    git = GitProgram(repository.git_dir, as_user=True)
    bare = repository.work_tree is None
    kind: HookKind = "server" if bare else "client"
    hooks: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    problem = ""
    try:
        hooks = installed_hooks(repository.git_dir, kind)
        stale = stale_hooks(repository.git_dir, kind, [sys.executable, "-m", "gitops"])
    except GitopsError as error:
        problem = error.detail
    fsck = (local.setting(f"{section}.fsckObjects") for section in ("receive", "transfer"))
    return MachineFacts(
        git=git.run("version").stdout.decode("utf-8", "replace").strip(),
        keygen=shutil.which("ssh-keygen") is not None,
        bare=bare,
        shallow=repository.is_shallow,
        replaced=len(repository.refs("refs/replace")),
        named=local.person_or_none() is not None,
        key=_key(local.signing_key(), probe=probe),
        remotes_with_password=tuple(_remotes_with_password(git)),
        fsck=next((value for value in fsck if value is not None), "false").lower() in ("true", "yes", "on", "1"),
        hooks=hooks,
        wanted=expected_hooks(kind),
        stale=stale,
        hook_problem=problem,
    )


def _key(named: str | None, *, probe: bool) -> KeyFacts | None:
    if named is None:
        return None
    mode = None
    if not named.startswith(_LITERAL):
        try:
            found = Path(named).stat()
        except OSError as error:
            return KeyFacts(problem=f"{named}: {error.strerror}")
        mode = stat.S_IMODE(found.st_mode) if not named.endswith(".pub") else None
    if not probe:
        return KeyFacts(mode, _public_key(named))
    try:
        armored = sign(b"doctor\n", named, namespace=_NAMESPACE)
    except GitopsError as error:
        return KeyFacts(mode, _public_key(named), error.detail)
    return KeyFacts(mode, verify_detached(b"doctor\n", armored, _NAMESPACE).key)


def _public_key(named: str) -> str | None:
    """The public key, from the file beside the private one, or from the setting itself."""
    text = named.removeprefix(_LITERAL) if named.startswith(_LITERAL) else ""
    if not text:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = Path(named if named.endswith(".pub") else f"{named}.pub").read_text("ascii")
    fields = text.split()
    return fields[1] if len(fields) > 1 else None


def _remotes_with_password(git: GitProgram) -> Iterator[str]:
    """Names of remotes whose address contains a password."""
    answer = git.run("config", "-z", "--get-regexp", r"^remote\..*\.(push)?url$")
    for row in answer.stdout.decode("utf-8", "replace").split("\0"):
        key, _, url = row.partition("\n")
        with contextlib.suppress(ValueError):
            if "://" in url and urlsplit(url).password is not None:
                yield key.removeprefix("remote.").rpartition(".")[0]


def ledger_facts(local: LocalProject, rule: ClusterRule, trust: str) -> LedgerFacts:
    """Read the state of a ledger. Raises GitopsError if the remote does not answer."""
    heads = local.heads(rule).known()
    pins = (heads.seen, heads.note, *([] if isinstance(local.remote, SelfRemote) else [heads.branch]))
    lock = None
    with contextlib.suppress(GitopsError):
        lock = local.ledger(rule).observe_lock()
    known = tuple(dict.fromkeys(pin for pin in pins if pin is not None))
    return LedgerFacts(rule, local.project.head_of(ledger_ref(rule.name)), known, lock, trust)


def workflow_files(local: LocalProject, kind: str, tree: str) -> Mapping[str, bytes]:
    """Read the workflow files of a commit for a kind of forge, path to content; links are not followed."""
    store, found = local.repository, dict[str, bytes]()
    for folder in _FOLDERS.get(kind, ()):
        below = store.subtree(tree, folder)
        for entry in () if below is None else store.entries(below)[:_MAX_FILES]:
            if entry.type is EntryType.FILE and entry.name.endswith(_SUFFIXES) and entry.size <= _MAX_BYTES:
                found[f"{folder}/{entry.name}"] = store.read(below or "", entry.name) or b""
    content = store.read(tree, _GITLAB) if kind == "gitlab" else None
    if content is not None and len(content) <= _MAX_BYTES:
        found[_GITLAB] = content
    return found


def can_create_files(root: str, *, probe: bool) -> bool:
    """Whether files can be created in a local storage root, or in the nearest existing folder above it.

    With `probe` a temporary file without a name is created; otherwise only the permissions are read.
    """
    at = Path(root)
    while not at.exists() and at != at.parent:
        at = at.parent
    if not probe:
        return os.access(at, os.W_OK | os.X_OK)
    try:
        with tempfile.TemporaryFile(dir=at, prefix=".gitops-doctor-"):
            return True
    except OSError:
        return False
