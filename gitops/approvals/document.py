"""Approval documents (`approvals/<approval_id>.json`), version 1: permission for exactly one change."""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.documents import strict
from gitops.documents.strict import Node, optional
from gitops.model.approval import Approval
from gitops.model.change import Action

__all__ = ["VERSION", "read_approval", "write_approval"]

VERSION = 1
_LIMIT = 1024 * 1024
_REQUIRED = (
    "schema_version",
    "approval_id",
    "resource",
    "operation",
    "reason",
    "bound_config_digest",
    "approved_by",
    "created_at",
)
_NULLABLE = ("bound_before_digest", "bound_after_digest", "consumed_at", "consumed_by_operation")


def read_approval(data: bytes) -> Approval:
    """Read the bytes of an approval.

    Raises IntegrityError `unsupported_approval_version` for another version, else `invalid_approval_artifact`.
    """
    with strict.refusing(Code.INVALID_APPROVAL_ARTIFACT):
        root = strict.parse(data, limit=_LIMIT)
        strict.expect_version(root, "schema_version", supported=VERSION, code=Code.UNSUPPORTED_APPROVAL_VERSION)
        fields = root.fields(_REQUIRED, _NULLABLE)
        return Approval(
            approval_id=fields["approval_id"].text(),
            resource=fields["resource"].text(),
            operation=fields["operation"].one_of(Action),
            reason=fields["reason"].text(),
            bound_config_digest=fields["bound_config_digest"].text(),
            bound_before_digest=optional(fields, "bound_before_digest", Node.text),
            bound_after_digest=optional(fields, "bound_after_digest", Node.text),
            approved_by=fields["approved_by"].text(),
            created_at=fields["created_at"].text(),
            consumed_at=optional(fields, "consumed_at", Node.text),
            consumed_by_operation=optional(fields, "consumed_by_operation", Node.text),
        )


def write_approval(approval: Approval) -> bytes:
    """The bytes of `approval`, nulls written out."""
    return strict.encode(
        {
            "schema_version": VERSION,
            "approval_id": approval.approval_id,
            "resource": approval.resource,
            "operation": approval.operation.value,
            "reason": approval.reason,
            "bound_config_digest": approval.bound_config_digest,
            "bound_before_digest": approval.bound_before_digest,
            "bound_after_digest": approval.bound_after_digest,
            "approved_by": approval.approved_by,
            "created_at": approval.created_at,
            "consumed_at": approval.consumed_at,
            "consumed_by_operation": approval.consumed_by_operation,
        },
        limit=_LIMIT,
    )
