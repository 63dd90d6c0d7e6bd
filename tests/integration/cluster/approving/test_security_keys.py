"""An approval signed by a security key, made in software: with the touch it permits a change, without it does not."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.model.approval import APPROVAL_NAMESPACE, Approval, ApprovalStatement
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.git.sshsig import ARMOR_BEGIN, ARMOR_END
from tests.support.audited import Life, declared, person
from tests.support.governed import branches, deleted, warnings

KIND, APPLICATION = b"sk-ssh-ed25519@openssh.com", b"ssh:"


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


class SecurityKey:
    """What a FIDO authenticator does, with the flags of our choice."""

    def __init__(self) -> None:
        self._private = ed25519.Ed25519PrivateKey.from_private_bytes(b"f" * 32)
        raw = self._private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        self._blob = string(KIND) + string(raw) + string(APPLICATION)

    @property
    def line(self) -> str:
        """The public key as an allowed-signers file has it."""
        return f"{KIND.decode()} {base64.b64encode(self._blob).decode()}"

    def sign(self, payload: bytes, flags: int, namespace: bytes = b"git") -> str:
        """An armored signature; `flags` 1 is the touch, 4 the PIN."""
        digest = string(hashlib.sha512(payload).digest())
        message = b"SSHSIG" + string(namespace) + string(b"") + string(b"sha512") + digest
        tail = bytes([flags]) + b"\0\0\0\7"
        signed = hashlib.sha256(APPLICATION).digest() + tail + hashlib.sha256(message).digest()
        signature = string(KIND) + string(self._private.sign(signed)) + tail
        parts = (self._blob, namespace, b"", b"sha512", signature)
        text = base64.b64encode(b"SSHSIG\0\0\0\1" + b"".join(map(string, parts))).decode()
        lines = [text[at : at + 70] for at in range(0, len(text), 70)]
        return "\n".join([ARMOR_BEGIN, *lines, ARMOR_END, ""])


class Keyed(Life):
    """A life in which zoe, an approver, has a security key."""

    def signers(self, *people: str) -> bytes:
        """With her line."""
        return super().signers(*people) + f"zoe {SecurityKey().line}\n".encode()


def approved(life: Life, flags: int) -> str:
    """Zoe's approval of what waits, where approvals are looked for."""
    life.approve("ada", "graph.legacy")
    (ref,) = branches(life)
    commit = life.git.resolve(ref) or ""
    approval, statement = life.approval(commit)
    life.git.update_refs([RefUpdate(ref, commit, ZERO)])
    raw = _bytes(life, replace(approval, approved_by="zoe"), statement, flags)
    life.git.update_refs(
        [RefUpdate(ref, ZERO, life.git._write("commit", with_signature(raw, SecurityKey().sign(raw, flags))))]
    )
    return ref


def _bytes(life: Life, approval: Approval, statement: ApprovalStatement, flags: int) -> bytes:
    path = f"__cluster/approvals/{approval.approval_id}.json"
    base = life.git.commit(statement.ledger_head).tree
    tree = life.git.write_files(base, {path: write_approval(approval)})
    sign = partial(SecurityKey().sign, flags=flags, namespace=APPROVAL_NAMESPACE.encode())
    message = statement_message(statement, "delete graph.legacy", sign=sign)
    return format_commit(NewCommit(tree, (statement.ledger_head,), person("mallory"), message))


@pytest.mark.parametrize(("flags", "counts"), [(0, False), (4, False), (1, True), (5, True)])
def test_the_key_must_have_been_touched(tmp_path: Path, flags: int, counts: bool) -> None:
    config = Life.config.replace("[ada, ben@example.org]", "[ada, zoe]")
    life = Keyed(tmp_path, config=config)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    approved(life, flags)
    outcome = life.apply()
    assert deleted(outcome) is counts
    assert ("approval_signature_invalid" in warnings(outcome)) is not counts
    told = [d.message for d in outcome.diagnostics if d.code == "approval_signature_invalid"]
    assert all("not touched" in message for message in told)
    assert life.audit(life.chain()[-1]).ok
