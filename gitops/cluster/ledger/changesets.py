"""Changesets as stored documents.

`changesets/<key>.json` is the record of one changeset after its newest event. `events/<key>.jsonl` contains its events, one
canonical JSON object per line. Replaying the events produces the record. `changesets/index.json` lists the changesets that
have not ended, with the number of the newest event, in a single read. `changesets/ended.jsonl` has one line for each ended
record that is still kept, in the order in which they ended; `changesets/archive.jsonl` has one for each that is not.

The content of an event is in `data`; its other members are the same for every event. Readers refuse undeclared members.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from gitops.cluster.model import changeset as model
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.ledger import is_changeset_key
from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    LINE,
    OBJECT,
    OBJECT_ID,
    TEXT,
    TIME,
    Form,
    FormMember,
    Members,
    constant,
    enum,
    integer,
    list_of,
    map_of,
    nullable,
    one_of,
    optional,
    record,
    text_form,
    variants,
)
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import IntegrityError

T = TypeVar("T")

_ADDRESS = Form(lambda value: Address(LINE.read(value)))
_KEY = text_form(is_changeset_key, "the key of a changeset")

_RUNTIME = record(
    model.Runtime,
    {
        "state": enum(model.RuntimeState),
        "attempts": integer(),
        "started_at": nullable(TIME),
        "updated_at": nullable(TIME),
        "outputs": OBJECT,
        "error": nullable(TEXT),
    },
)
_MEMBER = record(
    model.Member,
    {
        "address": _ADDRESS,
        "action": enum(Action),
        "class": FormMember(enum(Effect), "effect"),
        "lifted": BOOLEAN,
        "expanded": optional(nullable(DIGEST), written=False),
        "before": nullable(DIGEST),
        "after": nullable(DIGEST),
        "binding_change": BOOLEAN,
        "runtime": _RUNTIME,
    },
)
_REMOVAL = record(
    model.Removal,
    {"address": _ADDRESS, "digest": DIGEST, "state": enum(model.RemovalState), "approval": nullable(LINE)},
)
_ORPHANS = list_of(record(model.Orphan, {"address": _ADDRESS, "reason": LINE}))
_RESULT = record(
    model.ChangesetResult,
    {
        "state_revision": integer(),
        "converged": BOOLEAN,
        "no_change": BOOLEAN,
        "counts": map_of(integer(), key=str),
        "duration_ms": integer(),
        "failed": list_of(_ADDRESS),
    },
)
_BARRIERS = ("prepared", "committed", "drained", "finalized")
_RECORD: Members = {
    "key": _KEY,
    "cluster": LINE,
    "kind": enum(model.ChangesetKind),
    "attempt": integer(1),
    "part": text_form(lambda text: text.replace("/", "").isdecimal() and text.count("/") == 1, "a part such as 1/2"),
    "state": enum(model.ChangesetState),
    "phase": one_of("provisioning", "committed", "failed"),
    "error": nullable(TEXT),
    "created_at": TIME,
    "updated_at": TIME,
    "atomic": BOOLEAN,
    "source": record(
        model.ChangesetSource,
        {
            "branch": nullable(LINE),
            "merge_commit": nullable(OBJECT_ID),
            "previous_commit": nullable(OBJECT_ID),
            "pull_request": nullable(integer(1)),
            "actor": nullable(LINE),
        },
    ),
    "base": record(
        model.ChangesetBase,
        {
            "state_revision": integer(),
            "state_cas": nullable(LINE),
            "applied_digest": DIGEST,
            "config_digest": nullable(DIGEST),
        },
    ),
    "desired": {"config_digest": FormMember(DIGEST, "desired_digest")},
    "plan": record(model.PlanFacts, {"digest": DIGEST, "nodes": integer(), "edges": integer(), "layers": integer()}),
    "changes": FormMember(list_of(_MEMBER), "members"),
    "removals": list_of(_REMOVAL),
    "excluded": list_of(record(model.Excluded, {"address": _ADDRESS, "disposition": LINE, "reason": nullable(LINE)})),
    "barriers": record(model.Barriers, {name: nullable(TIME) for name in _BARRIERS}),
    "orphaned": _ORPHANS,
    "needs_attention": BOOLEAN,
    "retry_of": nullable(_KEY),
    "covers": list_of(OBJECT_ID),
    "result": nullable(_RESULT),
    "beside": optional(list_of(_KEY), (), written=False),
}


def _changeset(*, phase: str, **members: Any) -> model.Changeset:
    """Return a record whose phase, which is intended for simple readers, matches its state."""
    found = model.Changeset(**members)
    if found.phase != phase:
        raise MalformedError(f"a changeset that is {found.state} is not in the phase {phase}", "phase")
    return found


_CHANGESET = record(_changeset, _RECORD)
CHANGESET = Document(versions={1: _CHANGESET}, code=Code.CHANGESET_INVALID, read_back=True)

# -- events/<key>.jsonl ------------------------------------------------------------------------------------------------

_UPDATE: Members = {"address": _ADDRESS, "runtime": _RUNTIME}

_KINDS: dict[str, tuple[type[Any], Members]] = {
    "changeset_created": (model.Created, {"record": _CHANGESET}),
    "changeset_prepared": (model.Prepared, {"ready": list_of(_ADDRESS), "pending_approvals": constant([])}),
    "changeset_committed": (
        model.Committed,
        {
            "state_revision": integer(),
            "previous_revision": integer(),
            "addresses": list_of(_ADDRESS),
            "converged": BOOLEAN,
        },
    ),
    "changeset_drained": (model.Drained, {"waited_ms": integer(), "evidence": LINE}),
    "changeset_finalized": (model.Finalized, {"result": _RESULT}),
    "changeset_rolling_back": (
        model.RollingBack,
        {
            "error": TEXT,
            "failed_address": FormMember(nullable(_ADDRESS), "failed"),
            "policy": FormMember(one_of("rollback", "keep"), "on_failure"),
        },
    ),
    "changeset_failed": (model.Failed, {"error": TEXT, "orphaned": _ORPHANS}),
    "resource_staged": (model.Staged, {"address": _ADDRESS, "digest": DIGEST}),
    "resource_runtime_updated": (model.RuntimeUpdated, _UPDATE),
    "resource_removed": (model.Removed, {"address": _ADDRESS}),
    "approval_required": (model.ApprovalRequired, {"address": _ADDRESS, "digest": DIGEST}),
    "approval_consumed": (
        model.ApprovalConsumed,
        {"address": _ADDRESS, "approval": LINE, "actor": nullable(LINE), "digest": DIGEST},
    ),
}
_HAPPENING = variants("type", {name: (kind, {"data": members}) for name, (kind, members) in _KINDS.items()})
_ENVELOPE: Form[Any] = record(dict, {"seq": integer(1), "at": TIME, "cluster": LINE, "changeset": _KEY})


_TYPES = {kind: name for name, (kind, _) in _KINDS.items()}


def event_type(happening: model.Happening) -> str:
    """Return the name that the stored document uses for an event type."""
    return _TYPES[type(happening)]


def _read_event(value: Any) -> model.ChangesetEvent:
    members = dict(OBJECT.read(value))
    what = {name: members.pop(name) for name in ("type", "data") if name in members}
    return model.ChangesetEvent(**_ENVELOPE.read(members), happening=_HAPPENING.read(what))


EVENT = Document(
    versions={1: Form(_read_event, lambda event: {**_ENVELOPE.write(event), **_HAPPENING.write(event.happening)})},
    version_name="v",
    code=Code.CHANGESET_INVALID,
)


def _read_lines(document: Document[T], data: bytes) -> tuple[T, ...]:
    """Read the documents in a file with one document per line. Raises IntegrityError `changeset_invalid`."""
    if data and not data.endswith(b"\n"):
        raise IntegrityError(Code.CHANGESET_INVALID, "the last line is cut off")
    return tuple(map(document.read, data.splitlines()))


def _write_lines(document: Document[T], values: Iterable[T]) -> bytes:
    return b"".join(canonical(document.form(value)) + b"\n" for value in values)


def read_events(data: bytes) -> tuple[model.ChangesetEvent, ...]:
    """Read one changeset's events. Raises IntegrityError `changeset_invalid`."""
    return _read_lines(EVENT, data)


def write_events(events: Iterable[model.ChangesetEvent]) -> bytes:
    """Encode events as lines of canonical JSON, to be appended to the existing ones."""
    return _write_lines(EVENT, events)


# -- changesets/ended.jsonl, changesets/archive.jsonl ------------------------------------------------------------------

ENDED = Document(
    versions={
        1: record(
            model.EndedChangeset,
            {
                "key": _KEY,
                "state": enum(model.ChangesetState),
                "at": TIME,
                "first": integer(1),
                "last": integer(1),
                "commits": list_of(OBJECT_ID),
            },
        )
    },
    version_name="v",
    code=Code.CHANGESET_INVALID,
)


def read_ended(data: bytes) -> tuple[model.EndedChangeset, ...]:
    """Read the lines of ended changesets that are still kept, earliest end first. Raises IntegrityError `changeset_invalid`."""
    return _read_lines(ENDED, data)


def write_ended(ended: Iterable[model.EndedChangeset]) -> bytes:
    """Encode ended changesets as lines to be appended to the existing ones."""
    return _write_lines(ENDED, ended)


def read_archive(data: bytes) -> tuple[model.Changeset, ...]:
    """Read an archive's records, without their members. Raises IntegrityError `changeset_invalid`."""
    return _read_lines(CHANGESET, data)


def write_archive(records: Iterable[model.Changeset]) -> bytes:
    """Encode records for appending. Their lists are left out, because those grow with the number of changes."""
    return _write_lines(
        CHANGESET, (replace(each, members=(), removals=(), excluded=(), orphaned=()) for each in records)
    )


# -- changesets/index.json ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangesetIndex:
    """The open changesets: the active one, and all others, oldest first.

    The others are still cleaning up, or are the earlier ones beside which the active one was created. `seq` is the number
    of the newest event, and `covered` is the newest commit that a changeset has applied or tried to apply. A store that
    cannot write several files atomically has the events of its newest write in `newest`, as lines, or, if there are many,
    in a separate file with the digest `batch`. They are recorded with the index, and their files follow. With
    `committing`, these events come after `seq` and take effect with the state document of that digest: they count as
    recorded once the state is that document, and as discarded if it is a different one.
    """

    seq: int = 0
    active: str | None = None
    open: tuple[str, ...] = ()
    covered: str | None = None
    committing: str | None = None
    newest: tuple[str, ...] = ()
    batch: str | None = None


INDEX = Document(
    versions={
        1: record(
            ChangesetIndex,
            {
                "seq": integer(),
                "active": nullable(_KEY),
                "open": list_of(_KEY),
                "covered": nullable(OBJECT_ID),
                "committing": nullable(DIGEST),
                "newest": list_of(TEXT),
                "batch": nullable(DIGEST),
            },
        )
    },
    code=Code.CHANGESET_INVALID,
)
read_record = CHANGESET.read
write_record = CHANGESET.write
read_index = INDEX.read
write_index = INDEX.write
