"""Signatures of commits: check them over the raw bytes, and make them through ssh-keygen.

The verdict is about mathematics only: is this signature good, and for which key. Author, committer and date of a commit
are claims of whoever wrote it and play no part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.command import run_program
from gitops.git.objects import read_commit
from gitops.git.sshsig import ARMOR_BEGIN, verify_detached
from gitops.model.approval import CommitSignature

__all__ = ["NAMESPACE", "sign", "verify_commit", "verify_detached"]

NAMESPACE = "git"
# A person may have to type a passphrase or touch a key.
_SIGN_TIMEOUT_S = 120.0


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
    """Sign `payload` with the SSH key at path `key` and return the armored signature.

    With a `.pub` file the private half is asked from the agent. The signature is checked before it is handed out.
    Raises GitopsError `signing_failed`.
    """
    env = {**(os.environ if environ is None else environ), "LC_ALL": "C"}
    argv = ("ssh-keygen", "-Y", "sign", "-q", "-n", namespace, "-f", key)
    output = run_program(argv, env=env, stdin=payload, timeout_s=_SIGN_TIMEOUT_S)
    if not output.ok:
        reason = "no answer in time" if output.timed_out else output.stderr.strip()
        raise GitopsError("signing_failed", f"ssh-keygen could not sign with {key}: {reason}")
    armored = output.stdout.decode("ascii", "replace")
    verdict = verify_detached(payload, armored, namespace)
    if not verdict.good:
        raise GitopsError("signing_failed", f"the signature made with {key} is not acceptable: {verdict.problem}")
    return armored
