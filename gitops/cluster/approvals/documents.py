"""Approval documents: the approvals, the statements that approval commits sign, and decisions about approvals.

An approval (`approvals/<approval_id>.json`) permits exactly one change. A statement and a decision are commit messages
(`gitops.core.documents.codec`); a decision's commit changes no file.

Version 1 of a statement is an approver's own signature. Version 2 records how else the approval was given: the bot attests a
review on a forge, or it is an emergency. Version 3 has all of this and a separate signature in the message. The first
release wrote the earlier versions; they can still be read, so that old ledgers can be verified. Version 4 also has the
clients that the change breaks, as the approver saw them.
"""

from __future__ import annotations

from functools import partial

from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    Approval,
    ApprovalStatement,
    ClusterTarget,
    Decision,
    DecisionKind,
    ForgeGrant,
    GrantSource,
    Via,
)
from gitops.cluster.model.change import Action, Seen
from gitops.cluster.model.use import Callers, ClientCalls, SeenCallers, UseState
from gitops.core.codes import Code
from gitops.core.documents.codec import Document, SignedMessage
from gitops.core.documents.forms import (
    DIGEST,
    LINE,
    LINE_OR_EMPTY,
    OBJECT_ID,
    TEXT,
    TIME,
    ULID,
    Form,
    Members,
    enum,
    integer,
    is_line,
    list_of,
    nullable,
    optional,
    record,
    text_form,
)
from gitops.core.documents.json_bytes import MalformedError

_MESSAGE_LIMIT = 64 * 1024

# -- an observed graph, which is a member of several documents ----------------------------------------------------------

SEEN: Form[Seen] = record(Seen, {"incarnation": LINE, "rows": integer(), "version": integer(1)})

# -- the clients that a change breaks, which are a member of several documents ------------------------------------------

CALLERS: Form[Callers] = record(
    Callers,
    {
        "state": enum(UseState),
        "clients": list_of(record(ClientCalls, {"client": LINE, "calls": integer(1), "last": LINE_OR_EMPTY})),
        "days": integer(),
        "at": LINE_OR_EMPTY,
        "gap": LINE_OR_EMPTY,
        "floor": integer(),
        "untrusted": integer(),
        "hashed_for": LINE_OR_EMPTY,
    },
)

SEEN_CALLERS: Form[SeenCallers] = record(
    SeenCallers,
    {
        "resource": Form(lambda value: Address(LINE.read(value))),
        "before": nullable(DIGEST),
        "after": nullable(DIGEST),
        "callers": CALLERS,
    },
)

# -- approvals/<approval_id>.json --------------------------------------------------------------------------------------

APPROVAL = Document(
    versions={
        1: record(
            Approval,
            {
                "approval_id": TEXT,
                "resource": Form(lambda value: Address(TEXT.read(value))),
                "operation": enum(Action),
                "reason": TEXT,
                "bound_config_digest": TEXT,
                "bound_before_digest": optional(nullable(TEXT)),
                "bound_after_digest": optional(nullable(TEXT)),
                "approved_by": TEXT,
                "created_at": TEXT,
                "consumed_at": optional(nullable(TEXT)),
                "consumed_by_operation": optional(nullable(TEXT)),
                # Written only if known, because few readers know this member.
                "seen": optional(nullable(SEEN), written=False),
            },
        )
    },
    version_name="schema_version",
    code=Code.INVALID_APPROVAL_ARTIFACT,
    version_code=Code.UNSUPPORTED_APPROVAL_VERSION,
    limit=1024 * 1024,
)

# -- the target, a member of several documents -------------------------------------------------------------------------

_BRANCH = text_form(lambda ref: is_line(ref) and ref.startswith("refs/heads/"), "the full name of a branch")

TARGET: Form[ClusterTarget] = record(
    ClusterTarget, {"repository": LINE, "cluster": LINE, "environment": LINE, "ref": _BRANCH, "path": LINE}
)

# -- the message of an approval commit ---------------------------------------------------------------------------------

_STATEMENT: Members = {
    "approval_id": ULID,
    "target": TARGET,
    "cluster_tree": OBJECT_ID,
    "plan_digest": DIGEST,
    "config_digest": DIGEST,
    "change_digest": DIGEST,
    "policy_digest": DIGEST,
    "ledger_head": OBJECT_ID,
    "expires_at": TIME,
    "nonce": LINE,
}
_GRANT: Form[ForgeGrant] = record(
    ForgeGrant,
    {
        "account": LINE,
        "login": LINE,
        "request": integer(1),
        "source": enum(GrantSource),
        "reference": LINE,
        "commit": OBJECT_ID,
        "at": TIME,
        # A missing address is stored as null and represented as an empty string.
        "url": Form(lambda url: "" if url is None else LINE.read(url), lambda url: url or None),
        "tree": OBJECT_ID,
    },
)


def _check_via(statement: ApprovalStatement) -> None:
    """Check that a review has a grant, that an emergency has its reason, and that version 2 is one of these."""
    belongs = {Via.FORGE: (True, False), Via.BREAK_GLASS: (False, True), Via.SIGNATURE: (False, False)}[statement.via]
    if (statement.grant is not None, statement.emergency is not None) != belongs:
        raise MalformedError(f"an approval via {statement.via} does not have this form", "via")
    if statement.version == 2 and statement.via is Via.SIGNATURE:  # noqa: PLR2004 - the version of the other ways
        raise MalformedError("an approval via signature has version 1 or 3", "via")


_STATEMENT_2: Members = {**_STATEMENT, "via": enum(Via), "grant": nullable(_GRANT), "emergency": nullable(LINE)}

_STATEMENT_3: Members = {**_STATEMENT_2, "seen": nullable(SEEN)}

STATEMENT = Document(
    versions={
        1: record(partial(ApprovalStatement, version=1), _STATEMENT),
        2: record(partial(ApprovalStatement, version=2), _STATEMENT_2, check=_check_via),
        3: record(partial(ApprovalStatement, version=3), _STATEMENT_3, check=_check_via),
        4: record(partial(ApprovalStatement, version=4), {**_STATEMENT_3, "callers": CALLERS}, check=_check_via),
    },
    version_of=lambda statement: statement.version,
    code=Code.APPROVAL_MALFORMED,
    limit=_MESSAGE_LIMIT,
)
STATEMENT_MESSAGE = SignedMessage(STATEMENT, lambda statement: f"approve({statement.target.cluster}): ", signed_from=3)

# -- the message of a revocation or a countersignature -----------------------------------------------------------------

_DECISION: Members = {
    "kind": enum(DecisionKind),
    "decision_id": ULID,
    "target": TARGET,
    "approval_id": ULID,
    "subject": OBJECT_ID,
    "reason": LINE,
    "ledger_head": OBJECT_ID,
    "created_at": TIME,
    "nonce": LINE,
}

DECISION = Document(
    versions={
        1: record(partial(Decision, version=1), _DECISION),
        2: record(partial(Decision, version=2), _DECISION),
    },
    version_of=lambda decision: decision.version,
    code=Code.DECISION_MALFORMED,
    limit=_MESSAGE_LIMIT,
)
DECISION_MESSAGE = SignedMessage(
    DECISION,
    lambda decision: f"{decision.kind}({decision.target.cluster}): approval {decision.approval_id}",
    signed_from=2,
)

read_approval = APPROVAL.read
write_approval = APPROVAL.write
read_statement = STATEMENT_MESSAGE.read
statement_message = STATEMENT_MESSAGE.write
read_decision = DECISION_MESSAGE.read
decision_message = DECISION_MESSAGE.write
