"""Decisions about earlier approvals as commit messages, version 1: what the signature of such a commit covers.

    revoke(<cluster>): <summary>                countersign(<cluster>): <summary>

then an empty line and canonical JSON, as for approvals. The commit changes no file: the message is all of it.
"""

from __future__ import annotations

from typing import Any

from gitops.approvals.target import read_target, target_json
from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.documents import strict
from gitops.documents.message import read_message, write_message
from gitops.documents.strict import Node
from gitops.model.approval import Decision, DecisionKind

__all__ = ["VERSION", "decision_message", "read_decision"]

VERSION = 1
_LIMIT = 64 * 1024
_CODE = Code.DECISION_MALFORMED
_FIELDS = (
    "version",
    "kind",
    "decision_id",
    "target",
    "approval_id",
    "subject",
    "reason",
    "ledger_head",
    "created_at",
    "nonce",
)


def decision_message(decision: Decision) -> str:
    """The commit message that carries `decision`. Raises IntegrityError `decision_malformed` when it could not be read back."""
    message = write_message(_prefix(decision) + decision.approval_id, _json(decision), _CODE)
    if read_decision(message) != decision:
        raise IntegrityError(_CODE, "the decision does not survive being written down")
    return message


def read_decision(message: str) -> Decision:
    """The decision in a commit's message.

    Raises IntegrityError `decision_malformed` for anything but what `decision_message` writes. Does not check the signature,
    nor that the approval exists.
    """
    with strict.refusing(_CODE):
        text = read_message(message)
        decision = _read_json(strict.parse(text.data, limit=_LIMIT))
        text.expect(_prefix(decision) + decision.approval_id, canonical(_json(decision)))
        return decision


def _prefix(decision: Decision) -> str:
    return f"{decision.kind.value}({decision.target.cluster}): approval "


def _read_json(root: Node) -> Decision:
    strict.expect_version(root, "version", supported=VERSION, code=_CODE)
    fields = root.fields(_FIELDS)
    return Decision(
        kind=fields["kind"].one_of(DecisionKind),
        decision_id=fields["decision_id"].ulid(),
        target=read_target(fields["target"]),
        approval_id=fields["approval_id"].ulid(),
        subject=fields["subject"].object_id(),
        reason=fields["reason"].line(),
        ledger_head=fields["ledger_head"].object_id(),
        created_at=fields["created_at"].moment(),
        nonce=fields["nonce"].line(),
    )


def _json(decision: Decision) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": decision.kind.value,
        "decision_id": decision.decision_id,
        "target": target_json(decision.target),
        "approval_id": decision.approval_id,
        "subject": decision.subject,
        "reason": decision.reason,
        "ledger_head": decision.ledger_head,
        "created_at": decision.created_at,
        "nonce": decision.nonce,
    }
