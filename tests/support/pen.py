"""Keys and signatures made in this process, as ssh-keygen makes them: an Ed25519 signature has the same bytes whoever makes it.

A run of the tests signs ten thousand times. `install` has the program ask a pen in place of ssh-keygen where the key is in a file
without a passphrase; everything else (agents, other kinds of keys, a file that others may read) still runs the real program.
What is about ssh-keygen itself leaves it in place: `tests/integration/git/test_signatures.py`, and every program that is started.

Source: OpenSSH, PROTOCOL.sshsig.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from gitops.git import command, signatures
from gitops.git.command import Output

_SSH_KEYGEN = shutil.which("ssh-keygen")


class Pen:
    """Signs as `ssh-keygen -Y sign` does. Raises TypeError for a key that is not Ed25519, ValueError for a locked one."""

    def __init__(self, path: Path) -> None:
        key = load_ssh_private_key(path.read_bytes(), None)
        if not isinstance(key, Ed25519PrivateKey):
            raise TypeError("an Ed25519 key is needed")
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._public = _strings(b"ssh-ed25519", raw)

    def sign(self, payload: bytes, namespace: str = signatures.NAMESPACE) -> str:
        """The armored signature."""
        head = _strings(namespace.encode(), b"", b"sha512")
        made = self._key.sign(b"SSHSIG" + head + _strings(hashlib.sha512(payload).digest()))
        blob = b"SSHSIG\0\0\0\1" + _strings(self._public) + head + _strings(_strings(b"ssh-ed25519", made))
        text = base64.b64encode(blob).decode()
        lines = "".join(f"{text[start : start + 70]}\n" for start in range(0, len(text), 70))
        return f"-----BEGIN SSH SIGNATURE-----\n{lines}-----END SSH SIGNATURE-----\n"


def _strings(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def new_key(path: Path, comment: str, seed: bytes | None = None) -> Path:
    """A new Ed25519 key without passphrase in a file that its owner alone reads; the public half lies beside it as `.pub`.

    The same `seed` of 32 bytes makes the same key.
    """
    key = Ed25519PrivateKey.generate() if seed is None else Ed25519PrivateKey.from_private_bytes(seed)
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    path.with_suffix(".pub").write_text(f"{public} {comment}\n")
    return path


def install() -> None:
    """From now on this process signs with a pen where it can."""
    signatures.run_program = _run


def _run(argv: Sequence[str], *, env: Mapping[str, str], stdin: bytes = b"", timeout_s: float = 60.0) -> Output:
    """What `run_program` does, without a process for a signature by a key in a file."""
    if argv[:3] == ("ssh-keygen", "-Y", "sign") and shutil.which("ssh-keygen", path=env.get("PATH")) == _SSH_KEYGEN:
        namespace, path = argv[argv.index("-n") + 1], Path(argv[-1])
        try:
            if path.stat().st_mode & 0o077 == 0:
                return Output(0, Pen(path).sign(stdin, namespace).encode(), "")
        except (OSError, TypeError, ValueError):
            pass
    return command.run_program(argv, env=env, stdin=stdin, timeout_s=timeout_s)
