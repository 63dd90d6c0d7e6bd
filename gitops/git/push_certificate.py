"""Push certificates: the statement of `git push --signed` and the bytes that its signature covers.

The lines state the requested ref moves with their old and new ids. The pusher's name and the address are only claims,
so they are not read. The server created the nonce, whose first part is the server's time.

Source: gitprotocol-pack(5), "Push Certificate"; git-receive-pack(1).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_object_id
from gitops.git.port import RefUpdate, or_zero

_ARMOR = "-----BEGIN SSH SIGNATURE-----"
_MOVE = re.compile(r"([0-9a-f]{40,64}) ([0-9a-f]{40,64}) (refs/[^\x00-\x20\x7f]{1,1000})", re.ASCII)
_VERSION = "certificate version 0.1"
_NONCE = re.compile(r"nonce ([1-9][0-9]{0,11})-[0-9a-f]+", re.ASCII)
_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PushCertificate:
    """One push certificate: the ref moves, the time of its nonce, and the bytes that `armor` signs."""

    updates: frozenset[RefUpdate]
    at: datetime
    payload: bytes
    armor: str


def read_certificate(text: str) -> PushCertificate | None:
    """Read a certificate with one nonce, at least one move and an SSH signature. Return None for anything else."""
    payload, found, rest = text.partition(_ARMOR)
    header, blank, moves = payload.partition("\n\n")
    lines = header.split("\n")
    nonces = [match for match in map(_NONCE.fullmatch, lines) if match]
    if len(text) > _MAX or not found or not blank or lines[0] != _VERSION or len(nonces) != 1:
        return None
    found_moves = [_MOVE.fullmatch(line) for line in moves.removesuffix("\n").split("\n")]
    known = frozenset(
        RefUpdate(move[3], or_zero(move[1]), or_zero(move[2]))
        for move in found_moves
        if move is not None and is_object_id(move[1]) and is_object_id(move[2])
    )
    if len(known) != len(found_moves) or len({update.ref for update in known}) != len(known):
        return None
    at = datetime.fromtimestamp(int(nonces[0][1]), UTC)
    return PushCertificate(known, at, payload.encode(), found + rest)
