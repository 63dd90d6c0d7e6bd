"""The signature inside the message of a statement or a decision: made by a key, or as cryptography would describe it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gitops.cluster.model.approval import APPROVAL_NAMESPACE
from gitops.git.port import CommitSignature
from gitops.git.repository import GitRepository

ARMOR = "-----BEGIN SSH SIGNATURE-----\nU1NIU0lH\n-----END SSH SIGNATURE-----\n"
"""A signature as the form of a message wants it; it is nobody's."""


def own_signature(key: str) -> CommitSignature:
    """A good signature inside a message, by `key` as `CommitSignature` names keys."""
    return CommitSignature(signed=True, good=True, key=key, key_type="ssh-ed25519", namespace=APPROVAL_NAMESPACE)


def signer(repository: GitRepository, key: Path | str) -> Callable[[bytes], str]:
    """What signs the JSON of a message with a private key."""
    return partial(repository.sign, signing_key=str(key), namespace=APPROVAL_NAMESPACE)


def drafted(_: bytes) -> str:
    """What stands in a message whose author does not have the key that the approval needs."""
    return ARMOR
