"""`state.json`, version 1: the ledger's state as a document.

Reading refuses unknown fields in the envelope, in `applied_revision`, in each resource entry and in each status record;
the values of the three record maps are free-form objects. Writing gives fields in a fixed order and maps by code point, so
that two documents of one state are the same bytes and their differences read well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from gitops.core.codes import Code
from gitops.documents import strict
from gitops.documents.strict import Node, optional
from gitops.model.state import AppliedResource, State, Status, StatusRecord

__all__ = ["VERSION", "read_state", "write_state"]

T = TypeVar("T")

VERSION = 1
_PLAIN_STATUSES = {status.value: StatusRecord(status) for status in Status}


def read_state(data: bytes) -> State:
    """Read the bytes of a state document.

    Raises IntegrityError `unsupported_state_version` when the document names another version, else `invalid_state_json`.
    """
    with strict.refusing(Code.INVALID_STATE_JSON):
        root = strict.parse(data)
        strict.expect_version(root, "version", supported=VERSION, code=Code.UNSUPPORTED_STATE_VERSION)
        fields = root.fields(
            ("version", "applied_revision"),
            ("state_revision", "resource_statuses", "approval_records", "recovery_records", "observations"),
        )
        applied = fields["applied_revision"].fields((), ("config_digest", "resources"))
        return State(
            revision=fields["state_revision"].integer() if "state_revision" in fields else 0,
            config_digest=optional(applied, "config_digest", Node.text),
            resources=_map(applied, "resources", _read_resource, _plain_resource),
            statuses=_map(fields, "resource_statuses", _read_status, _plain_status),
            approval_records=_map(fields, "approval_records", Node.mapping),
            recovery_records=_map(fields, "recovery_records", Node.mapping),
            observations=_map(fields, "observations", Node.mapping),
        )


def write_state(state: State) -> bytes:
    """The bytes of `state`; reading them gives an equal value."""
    return strict.encode(
        {
            "version": VERSION,
            "state_revision": state.revision,
            "applied_revision": {
                "config_digest": state.config_digest,
                "resources": _sorted(state.resources, _resource_json),
            },
            "resource_statuses": _sorted(state.statuses, _status_json),
            "approval_records": _sorted(state.approval_records, dict),
            "recovery_records": _sorted(state.recovery_records, dict),
            "observations": _sorted(state.observations, dict),
        }
    )


def _map(
    fields: dict[str, Node], name: str, read: Callable[[Node], T], plain: Callable[[Any], T | None] = lambda _: None
) -> Mapping[str, T]:
    """A map that may be absent, but not null; `plain` answers for values of the usual form, of which there may be many."""
    node = fields.get(name)
    if node is None:
        return MappingProxyType({})
    members = node.mapping()
    return MappingProxyType(
        {key: plain(value) or read(Node(value, f"[{key}]", node)) for key, value in members.items()}
    )


def _sorted(values: Mapping[str, T], form: Callable[[T], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {key: form(values[key]) for key in sorted(values)}


def _plain_resource(value: Any) -> AppliedResource | None:
    """A resource that has nothing but its digest."""
    digest = value.get("digest") if type(value) is dict and len(value) == 1 else None
    return AppliedResource(digest) if type(digest) is str else None


def _plain_status(value: Any) -> StatusRecord | None:
    """A status that nothing is added to."""
    status = value.get("status") if type(value) is dict and len(value) == 1 else None
    return _PLAIN_STATUSES.get(status) if type(status) is str else None


def _read_resource(node: Node) -> AppliedResource:
    fields = node.fields(("digest",), ("applies_to",))
    return AppliedResource(fields["digest"].text(), optional(fields, "applies_to", _texts))


def _resource_json(resource: AppliedResource) -> dict[str, Any]:
    form: dict[str, Any] = {"digest": resource.digest}
    if resource.applies_to is not None:
        form["applies_to"] = list(resource.applies_to)
    return form


def _read_status(node: Node) -> StatusRecord:
    fields = node.fields(("status",), ("conditions", "message"))
    conditions = _texts(fields["conditions"]) if "conditions" in fields else ()
    return StatusRecord(fields["status"].one_of(Status), conditions, optional(fields, "message", Node.text))


def _status_json(record: StatusRecord) -> dict[str, Any]:
    form: dict[str, Any] = {"status": record.status.value}
    if record.conditions:
        form["conditions"] = list(record.conditions)
    if record.message is not None:
        form["message"] = record.message
    return form


def _texts(node: Node) -> tuple[str, ...]:
    return tuple(item.text() for item in node.items())
