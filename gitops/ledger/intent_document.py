"""Recovery sidecars (`recoveries/<operation_id>.json`), version 1: an operation on a graph root that has begun."""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.documents import strict
from gitops.documents.strict import Node, optional
from gitops.model.address import is_name
from gitops.model.intent import Intent, IntentKind

__all__ = ["VERSION", "read_intent", "write_intent"]

VERSION = 1
_LIMIT = 1024 * 1024
_REQUIRED = (
    "schema_version",
    "operation_id",
    "started_at",
    "kind",
    "graph_id",
    "graph_uri",
    "desired_schema_digest",
)
_NULLABLE = ("actor", "observed_manifest_version", "expected_manifest_version", "state_cas_base", "approval_id")
_CO_APPROVALS = "co_approval_ids"


def read_intent(data: bytes) -> Intent:
    """Read the bytes of a sidecar.

    Raises IntegrityError `unsupported_recovery_sidecar_version` for another version, else `invalid_recovery_sidecar`.
    """
    with strict.refusing(Code.INVALID_RECOVERY_SIDECAR):
        root = strict.parse(data, limit=_LIMIT)
        strict.expect_version(root, "schema_version", supported=VERSION, code=Code.UNSUPPORTED_RECOVERY_SIDECAR_VERSION)
        fields = root.fields(_REQUIRED, (*_NULLABLE, _CO_APPROVALS))
        return Intent(
            operation_id=fields["operation_id"].text(),
            started_at=fields["started_at"].text(),
            actor=optional(fields, "actor", Node.text),
            kind=fields["kind"].one_of(IntentKind),
            graph_id=_graph_id(fields["graph_id"]),
            graph_uri=fields["graph_uri"].text(),
            observed_manifest_version=optional(fields, "observed_manifest_version", Node.integer),
            expected_manifest_version=optional(fields, "expected_manifest_version", Node.integer),
            desired_schema_digest=fields["desired_schema_digest"].text(),
            state_cas_base=optional(fields, "state_cas_base", Node.text),
            approval_id=optional(fields, "approval_id", Node.text),
            co_approvals=optional(fields, _CO_APPROVALS, _texts) or (),
        )


def write_intent(intent: Intent) -> bytes:
    """The bytes of `intent`, nulls written out; further approvals only where there are some, as few readers know them."""
    return strict.encode(
        {
            "schema_version": VERSION,
            "operation_id": intent.operation_id,
            "started_at": intent.started_at,
            "actor": intent.actor,
            "kind": intent.kind.value,
            "graph_id": intent.graph_id,
            "graph_uri": intent.graph_uri,
            "observed_manifest_version": intent.observed_manifest_version,
            "expected_manifest_version": intent.expected_manifest_version,
            "desired_schema_digest": intent.desired_schema_digest,
            "state_cas_base": intent.state_cas_base,
            "approval_id": intent.approval_id,
            **({_CO_APPROVALS: list(intent.co_approvals)} if intent.co_approvals else {}),
        },
        limit=_LIMIT,
    )


def _graph_id(node: Node) -> str:
    """The id of a graph, whose root is derived from it: anything else could be a path to somewhere."""
    text = node.text()
    if not is_name(text):
        raise node.refuse("expected the id of a graph")
    return text


def _texts(node: Node) -> tuple[str, ...]:
    return tuple(item.text() for item in node.items())
