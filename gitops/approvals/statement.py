"""The approval statement inside a commit message: what the signature of an approval commit covers.

    approve(<cluster>): <summary>
                                                (one empty line)
    {"approval_id":"…", …}                      (canonical JSON on one line)

There is exactly one message per statement and summary, and reading accepts no other spelling of it: a message that two
readers could understand differently is no approval.

Version 1 is an approver's own signature. Version 2 says how else it was given: what the bot attests of a forge, or an emergency.
Each statement has one version, so that old ones keep their bytes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gitops.approvals.target import read_target, target_json
from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.documents import strict
from gitops.documents.message import read_message, write_message
from gitops.documents.strict import Node
from gitops.model.approval import ApprovalStatement, ForgeGrant, GrantSource, Via

__all__ = ["VERSIONS", "read_statement", "statement_message"]

VERSIONS = (1, 2)
_LIMIT = 64 * 1024
_CODE = Code.APPROVAL_MALFORMED
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
_LATER_FIELDS = ("via", "grant", "emergency")
_GRANT_FIELDS = ("account", "login", "request", "source", "reference", "commit", "at", "url", "tree")


def statement_message(statement: ApprovalStatement, summary: str) -> str:
    """The commit message that carries `statement`; `summary` is one line for people and decides nothing.

    Raises IntegrityError `approval_malformed` when a value could not be read back.
    """
    message = write_message(f"approve({statement.target.cluster}): {summary}", _statement_json(statement), _CODE)
    if read_statement(message) != statement:
        raise IntegrityError(_CODE, "the statement does not survive being written down")
    return message


def read_statement(message: str) -> ApprovalStatement:
    """The statement of an approval commit's message.

    Raises IntegrityError `approval_malformed` for anything but what `statement_message` writes. Does not check the
    signature, nor that the statement is true.
    """
    with strict.refusing(_CODE):
        text = read_message(message)
        statement = _read_json(strict.parse(text.data, limit=_LIMIT))
        text.expect(f"approve({statement.target.cluster}): ", canonical(_statement_json(statement)))
        return statement


def _read_json(root: Node) -> ApprovalStatement:
    version = strict.one_version(root, "version", supported=VERSIONS, code=_CODE)
    fields = root.fields(_FIELDS if version == 1 else (*_FIELDS, *_LATER_FIELDS))
    statement = ApprovalStatement(
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
    if version == 1:
        return statement
    statement = replace(
        statement,
        via=fields["via"].one_of(Via),
        grant=fields["grant"].nullable(_read_grant),
        emergency=fields["emergency"].nullable(Node.line),
    )
    if (statement.grant is None, statement.emergency is None) != _ABSENT.get(statement.via):
        raise fields["via"].refuse(f"an approval via {statement.via} does not have this form")
    return statement


# Whether grant and emergency are absent; version 2 is for nothing else.
_ABSENT = {Via.FORGE: (False, True), Via.BREAK_GLASS: (True, False)}


def _read_grant(node: Node) -> ForgeGrant:
    fields = node.fields(_GRANT_FIELDS)
    return ForgeGrant(
        account=fields["account"].line(),
        login=fields["login"].line(),
        request=fields["request"].integer(1),
        source=fields["source"].one_of(GrantSource),
        reference=fields["reference"].line(),
        commit=fields["commit"].object_id(),
        at=fields["at"].moment(),
        url=fields["url"].nullable(Node.line) or "",
        tree=fields["tree"].object_id(),
    )


def _statement_json(statement: ApprovalStatement) -> dict[str, Any]:
    form: dict[str, Any] = {
        "version": 1,
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
    if statement.via is Via.SIGNATURE:
        return form
    grant = None if statement.grant is None else _grant_json(statement.grant)
    return {**form, "version": 2, "via": statement.via.value, "grant": grant, "emergency": statement.emergency}


def _grant_json(grant: ForgeGrant) -> dict[str, Any]:
    return {
        "account": grant.account,
        "login": grant.login,
        "request": grant.request,
        "source": grant.source.value,
        "reference": grant.reference,
        "commit": grant.commit,
        "at": grant.at,
        "url": grant.url or None,
        "tree": grant.tree,
    }
