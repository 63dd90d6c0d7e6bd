"""The approval statement inside a commit message: what the signature of an approval commit covers.

    approve(<cluster>): <summary>
                                                (one empty line)
    {"approval_id":"…", …}                      (canonical JSON on one line)

There is exactly one message per statement and summary, and reading accepts no other spelling of it: a message that two
readers could understand differently is no approval.
"""

from __future__ import annotations

from typing import Any

from gitops.core.canonical import canonical
from gitops.core.errors import IntegrityError
from gitops.model.approval import ApprovalStatement
from gitops.wire import strict
from gitops.wire.strict import MalformedError
from gitops.wire.target import read_target, target_json

__all__ = ["VERSION", "read_statement", "statement_message"]

VERSION = 1
_LIMIT = 64 * 1024
_CODE = "approval_malformed"
_FIELDS = (
    "version",
    "approval_id",
    "target",
    "cluster_tree",
    "plan_digest",
    "config_digest",
    "change_digest",
    "policy_digest",
    "ledger_head",
    "expires_at",
    "nonce",
)


def statement_message(statement: ApprovalStatement, summary: str) -> str:
    """The commit message that carries `statement`; `summary` is one line for people and decides nothing.

    Raises IntegrityError `approval_malformed` when a value could not be read back.
    """
    try:
        line = canonical(_statement_json(statement)).decode()
    except UnicodeEncodeError:
        raise IntegrityError(_CODE, "a value of the statement is not valid Unicode") from None
    message = f"approve({statement.target.cluster}): {summary}\n\n{line}\n"
    if read_statement(message) != statement:
        raise IntegrityError(_CODE, "the statement does not survive being written down")
    return message


def read_statement(message: str) -> ApprovalStatement:
    """The statement of an approval commit's message.

    Raises IntegrityError `approval_malformed` for anything but what `statement_message` writes. Does not check the
    signature, nor that the statement is true.
    """
    with strict.refusing(_CODE):
        lines = message.removesuffix("\n").split("\n")
        if len(lines) != 3 or lines[1]:  # noqa: PLR2004 - subject, empty line, statement
            raise MalformedError("", "expected a subject, an empty line and one line of JSON")
        subject, _, line = lines
        try:
            data = line.encode()
        except UnicodeEncodeError:
            raise MalformedError("", "the message is not valid Unicode") from None
        statement = _read_json(data)
        if canonical(_statement_json(statement)) != data:
            raise MalformedError("", "the JSON is not in canonical form")
        if not strict.is_line(subject) or not subject.startswith(f"approve({statement.target.cluster}): "):
            raise MalformedError("", "the subject does not belong to the statement")
        return statement


def _read_json(data: bytes) -> ApprovalStatement:
    root = strict.parse(data, limit=_LIMIT)
    strict.expect_version(root, "version", supported=VERSION, code=_CODE)
    fields = root.fields(_FIELDS)
    return ApprovalStatement(
        approval_id=fields["approval_id"].ulid(),
        target=read_target(fields["target"]),
        cluster_tree=fields["cluster_tree"].object_id(),
        plan_digest=fields["plan_digest"].digest(),
        config_digest=fields["config_digest"].digest(),
        change_digest=fields["change_digest"].digest(),
        policy_digest=fields["policy_digest"].digest(),
        ledger_head=fields["ledger_head"].object_id(),
        expires_at=fields["expires_at"].moment(),
        nonce=fields["nonce"].line(),
    )


def _statement_json(statement: ApprovalStatement) -> dict[str, Any]:
    return {
        "version": VERSION,
        "approval_id": statement.approval_id,
        "target": target_json(statement.target),
        "cluster_tree": statement.cluster_tree,
        "plan_digest": statement.plan_digest,
        "config_digest": statement.config_digest,
        "change_digest": statement.change_digest,
        "policy_digest": statement.policy_digest,
        "ledger_head": statement.ledger_head,
        "expires_at": statement.expires_at,
        "nonce": statement.nonce,
    }
