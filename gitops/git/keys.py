"""SSH keys of this machine: reading a public half, and making a pair for the bot.

Sources: git-config(1) `user.signingKey`, ssh-keygen(1).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.command import run_program

__all__ = ["make_key", "read_public_key"]

_LITERAL = "key::"
_LINE = re.compile(r"([a-z0-9@.-]+) ([A-Za-z0-9+/]+={0,2})(?:[ \t][^\r\n]*)?\s*", re.ASCII)
_MAX = 16 * 1024


def read_public_key(named: str) -> tuple[str, str]:
    """Type and base64 of a public key.

    `named` is what git takes as `user.signingKey`: the path of a public key, that of a private one whose public half lies beside
    it as `.pub`, or a key itself, perhaps behind `key::`. The private half is never opened. Raises GitopsError
    `init_key_refused`.
    """
    text = named.removeprefix(_LITERAL).strip()
    if not named.startswith(_LITERAL) and not _LINE.fullmatch(text):
        text = _public_half(named)
    found = _LINE.fullmatch(text)
    if found is None:
        raise GitopsError(Code.INIT_KEY_REFUSED, f"{_shown(named)} is no public SSH key", path=_shown(named))
    return found[1], found[2]


def _public_half(named: str) -> str:
    path = named if named.endswith(".pub") else f"{named}.pub"
    try:
        with Path(path).open("rb") as file:
            return file.read(_MAX).decode("utf-8", "replace")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise GitopsError(
            Code.INIT_KEY_REFUSED, f"the public key {path} cannot be read: {reason}", path=path
        ) from error


def make_key(path: str, principal: str, *, environ: Mapping[str, str] | None = None) -> bool:
    """Make an Ed25519 key without passphrase at `path`, readable by its owner alone; whether one was made.

    A pair that is there already is kept. Raises GitopsError `init_key_refused` if only half of one is there, and
    `signing_failed` if ssh-keygen cannot make it.
    """
    halves = [os.path.lexists(path), os.path.lexists(f"{path}.pub")]
    if all(halves):
        return False
    if any(halves):
        raise GitopsError(Code.INIT_KEY_REFUSED, f"there is one half of a key at {path} already", path=path)
    env = {**(os.environ if environ is None else environ), "LC_ALL": "C"}
    output = run_program(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", principal, "-f", path), env=env)
    if not output.ok:
        raise GitopsError(Code.SIGNING_FAILED, f"ssh-keygen could not make {path}: {output.stderr.strip()}", path=path)
    Path(path).chmod(0o600)
    return True


def _shown(named: str) -> str:
    """The name of a key in a message: never more of it than a path."""
    return named[:200] if named.isprintable() else "the key"
