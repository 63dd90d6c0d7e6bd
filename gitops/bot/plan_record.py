"""`plan.json` behind the ref of a plan: what was told about a change request last. It explains; no permission reads it."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.documents import strict
from gitops.documents.strict import Node

__all__ = ["VERSION", "PlanRecord", "read_plan_record", "write_plan_record"]

VERSION = 1
_LIMIT = 64 * 1024
_FIELDS = ("version", "cluster", "request", "head", "base", "plan_digest", "told")


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """Which plan was told: `head` merged into `base`. `plan_digest` is None where there was no plan.

    `told` is a digest of everything in the report that people decide by, so that saying the same again can be left out.
    """

    cluster: str
    request: int
    head: str
    base: str
    plan_digest: str | None
    told: str


def read_plan_record(data: bytes) -> PlanRecord:
    """Read the document. Raises IntegrityError `request_invalid`."""
    with strict.refusing(Code.REQUEST_INVALID):
        root = strict.parse(data, limit=_LIMIT)
        strict.expect_version(root, "version", supported=VERSION, code=Code.REQUEST_INVALID)
        fields = root.fields(_FIELDS)
        return PlanRecord(
            cluster=fields["cluster"].line(),
            request=fields["request"].integer(1),
            head=fields["head"].object_id(),
            base=fields["base"].object_id(),
            plan_digest=fields["plan_digest"].nullable(Node.digest),
            told=fields["told"].digest(),
        )


def write_plan_record(record: PlanRecord) -> bytes:
    """The bytes of a record."""
    form = {
        "version": VERSION,
        "cluster": record.cluster,
        "request": record.request,
        "head": record.head,
        "base": record.base,
        "plan_digest": record.plan_digest,
        "told": record.told,
    }
    return strict.encode(form, limit=_LIMIT)
