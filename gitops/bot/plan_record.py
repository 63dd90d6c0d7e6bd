"""`plan.json` behind the ref of a kept plan: which plan was reported last. It only explains; no decision reads it."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.documents.codec import Document
from gitops.documents.forms import DIGEST, LINE, OBJECT_ID, integer, nullable, record

__all__ = ["PlanRecord", "read_plan_record", "write_plan_record"]


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """The plan that was reported: `head` merged into `base`. `plan_digest` is None if there was no plan.

    The last digest is over everything in the report that people decide by, so that an equal report can be left out.
    """

    cluster: str
    request: int
    head: str
    base: str
    plan_digest: str | None
    told: str


PLAN_RECORD = Document(
    versions={
        1: record(
            PlanRecord,
            {
                "cluster": LINE,
                "request": integer(1),
                "head": OBJECT_ID,
                "base": OBJECT_ID,
                "plan_digest": nullable(DIGEST),
                "told": DIGEST,
            },
        )
    },
    code=Code.REQUEST_INVALID,
    limit=64 * 1024,
)

read_plan_record = PLAN_RECORD.read
write_plan_record = PLAN_RECORD.write
