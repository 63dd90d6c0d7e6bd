"""Signatures of commits: check them over the raw bytes, and make them through ssh-keygen.

The verdict is about mathematics only: is this signature good, and for which key. Author, committer and date of a commit
are claims of whoever wrote it and play no part.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.command import run_program
from gitops.git.objects import read_commit
from gitops.git.sshsig import ARMOR_BEGIN, verify_detached
from gitops.model.approval import CommitSignature

__all__ = ["NAMESPACE", "sign", "verify_commit", "verify_detached"]

NAMESPACE = "git"
# A person may have to type a passphrase or touch a key.
_SIGN_TIMEOUT_S = 120.0
_LITERAL = "key::"
_PUBLIC_KEY = re.compile(r"[a-z0-9@.-]+ [A-Za-z0-9+/]+={0,2}(?: [\x20-\x7e]*)?", re.ASCII)


def verify_commit(raw: bytes) -> CommitSignature:
    """Check the signature of a commit object, given all its bytes. Never raises for bad input.

    A commit that two readers could read in two ways is bad whatever its signature says: repeated or disordered headers,
    NUL bytes, a second signature. OpenPGP and X.509 signatures are not supported and therefore bad.
    """
    try:
        commit = read_commit(raw)
    except IntegrityError as error:
        return CommitSignature(signed=False, good=False, problem=error.detail)
    armored = commit.first(b"gpgsig").decode("utf-8", "replace")
    signed = bool(armored) or commit.first(b"gpgsig-sha256") != b""
    if defect := commit.defect():
        return CommitSignature(signed=signed, good=False, problem=defect)
    if not signed:
        return CommitSignature(signed=False, good=False)
    if not armored.startswith(ARMOR_BEGIN):
        return CommitSignature(signed=True, good=False, problem="only SSH signatures are supported")
    return verify_detached(commit.payload(), armored, NAMESPACE)


def sign(payload: bytes, key: str, *, namespace: str = NAMESPACE, environ: Mapping[str, str] | None = None) -> str:
    """Sign `payload` with an SSH key and return the armored signature.

    `key` is what git takes as `user.signingKey`: the path of a private key, that of a public key (`.pub`), or a public key
    itself behind `key::`. With a public one the private half is asked from the agent, which may be a security key that has
    to be touched. The signature is checked before it is handed out. Raises GitopsError `signing_failed`.
    Source: git-config(1), user.signingKey.
    """
    env = {**(os.environ if environ is None else environ), "LC_ALL": "C"}
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
    """The path that ssh-keygen is given: a public key that is written out lies in a file of its own meanwhile."""
    if not key.startswith(_LITERAL):
        yield key
        return
    line = key.removeprefix(_LITERAL).strip()
    if not _PUBLIC_KEY.fullmatch(line):
        raise GitopsError(Code.SIGNING_FAILED, "user.signingKey holds no public key behind key::")
    with tempfile.NamedTemporaryFile("w", suffix=".pub", encoding="ascii", prefix="gitops-") as file:
        file.write(f"{line}\n")
        file.flush()
        yield file.name
