"""Commit signatures and SSH keys. Signatures are checked over the raw bytes. ssh-keygen creates them.

A check answers only mathematical questions: whether the signature is valid, and for which key. Author, committer and date
are claims of the person who wrote the commit and are irrelevant here.

Sources: git-config(1) `user.signingKey`, ssh-keygen(1).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.command import child_environment, run_program
from gitops.git.objects import SIGNATURE_HEADERS, read_commit
from gitops.git.port import CommitSignature

NAMESPACE = "git"
# A person may need time to type a passphrase or touch a key.
_SIGN_TIMEOUT_S = 120.0
_LITERAL_KEY = "key::"
_KEY_LINE = re.compile(r"([a-z0-9@.-]+) ([A-Za-z0-9+/]+={0,2})(?:[ \t][^\r\n]*)?\s*", re.ASCII)
_MAX_KEY_BYTES = 16 * 1024
_PUBLIC_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}(?: [\x20-\x7e]*)?", re.ASCII)


def verify_commit(raw: bytes) -> CommitSignature:
    """Check the signature of a commit object, given all its bytes. Never raises for invalid input.

    A commit that two parsers could interpret differently is refused even if its signature is valid: repeated or
    disordered headers, NUL bytes, a second signature. OpenPGP and X.509 signatures are not supported, so they count as
    invalid.
    """
    from gitops.git.sshsig import ARMOR_BEGIN

    try:
        commit = read_commit(raw)
    except IntegrityError as error:
        return CommitSignature(signed=False, good=False, problem=error.detail)
    armored = commit.first(commit.signature_header).decode("utf-8", "replace")
    signed = any(commit.first(name) for name in SIGNATURE_HEADERS)
    if defect := commit.defect():
        return CommitSignature(signed=signed, good=False, problem=defect)
    if not signed:
        return CommitSignature(signed=False, good=False)
    if not armored.startswith(ARMOR_BEGIN):
        return CommitSignature(signed=True, good=False, problem="only SSH signatures are supported")
    return verify_detached(commit.payload(), armored, NAMESPACE)


def verify_detached(payload: bytes, armored: str, namespace: str) -> CommitSignature:
    """Check a detached signature by the steps of `gitops.git.sshsig`. Never raises for invalid input."""
    # Most pushes contain nothing to verify, and importing the cryptography library takes as long as a git run.
    from gitops.git import sshsig

    return sshsig.verify_detached(payload, armored, namespace)


def sign(payload: bytes, key: str, *, namespace: str = NAMESPACE, environ: Mapping[str, str] | None = None) -> str:
    """Sign `payload` with an SSH key and return the armored signature.

    `key` is a value that git accepts as `user.signingKey`: the path of a private key, the path of a public key
    (`.pub`), or a public key after `key::`. For a public key, the agent provides the private half, which can be on a
    security key that must be touched. The signature is checked before it is returned. Raises GitopsError
    `signing_failed`. Source: git-config(1), user.signingKey.
    """
    env = {**child_environment(os.environ if environ is None else environ, as_user=True), "LC_ALL": "C"}
    with _key_file(key) as path:
        argv = ("ssh-keygen", "-Y", "sign", "-q", "-n", namespace, "-f", path)
        output = run_program(argv, env=env, stdin=payload, timeout_s=_SIGN_TIMEOUT_S)
    if not output.ok:
        reason = "no answer in time" if output.timed_out else output.stderr.strip()
        raise GitopsError(Code.SIGNING_FAILED, f"ssh-keygen could not sign with {key}: {reason}")
    armored = output.stdout.decode("ascii", "replace")
    verdict = verify_detached(payload, armored, namespace)
    if not verdict.good:
        raise GitopsError(Code.SIGNING_FAILED, f"the signature made with {key} is not acceptable: {verdict.problem}")
    return armored


@contextlib.contextmanager
def _key_file(key: str) -> Iterator[str]:
    """Yield the path for ssh-keygen: a literal public key is written to a temporary file."""
    if not key.startswith(_LITERAL_KEY):
        yield key
        return
    line = key.removeprefix(_LITERAL_KEY).strip()
    if not _PUBLIC_KEY.fullmatch(line):
        raise GitopsError(Code.SIGNING_FAILED, "user.signingKey has no public key after key::")
    with tempfile.NamedTemporaryFile("w", suffix=".pub", encoding="ascii", prefix="gitops-") as file:
        file.write(f"{line}\n")
        file.flush()
        yield file.name


def read_public_key(named: str) -> tuple[str, str]:
    """Return the type and base64 text of a public key.

    `named` is a value that git accepts as `user.signingKey`: the path of a public key, the path of a private key with its
    public half next to it as `.pub`, or a key itself, optionally after `key::`. The private half is never opened. Raises
    GitopsError `init_key_refused`.
    """
    text = named.removeprefix(_LITERAL_KEY).strip()
    if not named.startswith(_LITERAL_KEY) and not _KEY_LINE.fullmatch(text):
        path = named if named.endswith(".pub") else f"{named}.pub"
        try:
            with Path(path).open("rb") as file:
                text = file.read(_MAX_KEY_BYTES).decode("utf-8", "replace")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise GitopsError(
                Code.INIT_KEY_REFUSED, f"the public key {path} cannot be read: {reason}", path=path
            ) from error
    found = _KEY_LINE.fullmatch(text)
    if found is None:
        # Show no more of it than a path could have.
        name = named[:200] if named.isprintable() else "the key"
        raise GitopsError(Code.INIT_KEY_REFUSED, f"{name} is not a public SSH key", path=name)
    return found[1], found[2]


def make_key(path: str, principal: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Create an Ed25519 key at `path`, without passphrase and readable only by its owner. Return True if a key was created.

    An existing pair is kept. Raises GitopsError `init_key_refused` if only half of one exists, and `signing_failed` if
    ssh-keygen cannot create it.
    """
    halves = [os.path.lexists(path), os.path.lexists(f"{path}.pub")]
    if all(halves):
        return False
    if any(halves):
        raise GitopsError(Code.INIT_KEY_REFUSED, f"only one file of the key pair {path} exists", path=path)
    env = {**child_environment(os.environ if environ is None else environ, as_user=True), "LC_ALL": "C"}
    output = run_program(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", principal, "-f", path), env=env)
    if not output.ok:
        raise GitopsError(Code.SIGNING_FAILED, f"ssh-keygen could not make {path}: {output.stderr.strip()}", path=path)
    Path(path).chmod(0o600)
    return True
