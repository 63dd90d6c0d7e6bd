"""Stores complete plans as git objects, because comments have a size limit and commits do not.

    refs/gitops/plans/<cluster>/<number>    a chain of commits, each with

    plan.json       the identity of the plan, and the differences from the previous one
    outcome.json    the complete plan with its execution graph
    plan.md         the same as text for people
    others.json     what the report says about other open requests

Code that permits or applies changes never reads these plans, because anyone with push rights can move the refs. A clone
has no graphs, so it shows the plan's data about graphs to the person who signs, and the bot compares that data with the
graphs when it applies. If the host or the token does not allow such refs, plans are not stored, and approvers must
enter the number of rows that they have seen.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, reduce

from gitops.cluster.approvals.documents import SEEN, SEEN_CALLERS
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import UnknownAuthors
from gitops.cluster.model.change import Action, Change, Seen
from gitops.cluster.model.others import (
    EarlierMerge,
    LaterChange,
    LaterPlan,
    MergedProblem,
    MergesFirst,
    OtherRequests,
    RequestConflict,
)
from gitops.cluster.model.use import Callers, SeenCallers, UseState
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    LINE,
    OBJECT_ID,
    TEXT,
    Form,
    FormMember,
    Members,
    enum,
    integer,
    list_of,
    nullable,
    optional,
    record,
)
from gitops.core.errors import GitopsError
from gitops.database.graph.port import StepCount
from gitops.repository.repository import Repository

PLANS = "refs/gitops/plans"
RECORD, OTHERS = "plan.json", "others.json"


@dataclass(frozen=True, slots=True)
class SeenChange:
    """The graph state that a plan read for a data change. The digests identify the change to `resource`.

    `recorded_at` is that of `seen`, so it is None if the bot read the graph for the plan. `counts` are the rows of each
    step of a migration, or None if it counts none.
    """

    resource: Address
    before: str | None
    after: str | None
    seen: Seen
    recorded_at: str | None = None
    counts: tuple[StepCount | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class PlanTestFailure:
    """A test that did not pass: its code, its line in a file of the cluster folder (0 if unknown), and the reason."""

    code: Code
    file: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class PlanTests:
    """The verdicts of a plan's query tests, and the first failures."""

    passed: int
    failed: int
    error: int
    not_run: int
    failures: tuple[PlanTestFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A reported plan for merging `head` into `base`. `plan_digest` is None if there was no plan.

    `report_digest` covers everything in the report that people base decisions on, so that a repeated report can be
    omitted. The next report is compared with the first of the `changes` (`count` is their total number), the ones
    `missing` an approval, and the number of `errors`. `since` are the differences from the previous report that this
    report listed. `shown` is False until the forge has accepted the comment, so the next run writes it again. `seen`
    are the graphs of its data changes. `approved` are the changes with an approval that counts, `voids` are the requests
    whose approvals become stale if this one is merged first, as the report warns, `unknown` are the changes that no one
    can approve yet, and `tests` are the verdicts of its query tests, None if it has none. `callers` are the recorded clients
    that its changes break.
    """

    cluster: str
    request: int
    head: str
    base: str
    plan_digest: str | None
    report_digest: str
    changes: tuple[str, ...] = ()
    count: int = 0
    missing: tuple[str, ...] = ()
    errors: int = 0
    since: tuple[str, ...] = ()
    shown: bool = True
    seen: tuple[SeenChange, ...] = ()
    approved: tuple[str, ...] = ()
    voids: tuple[int, ...] = ()
    unknown: tuple[UnknownAuthors, ...] = ()
    tests: PlanTests | None = None
    callers: tuple[SeenCallers, ...] = ()


_ADDRESS = Form(lambda value: Address(LINE.read(value)))
_MEMBERS: Members = {
    "cluster": LINE,
    "request": integer(1),
    "head": OBJECT_ID,
    "base": OBJECT_ID,
    "plan_digest": nullable(DIGEST),
    "told": FormMember(DIGEST, attribute="report_digest"),
}
_COMPARED: Members = {
    **_MEMBERS,
    "changes": list_of(LINE),
    "count": integer(),
    "missing": list_of(LINE),
    "errors": integer(),
    "since": list_of(LINE),
}
_SHOWN: Members = {**_COMPARED, "shown": BOOLEAN}
_SEEN_CHANGE: Members = {
    "resource": _ADDRESS,
    "before": nullable(DIGEST),
    "after": nullable(DIGEST),
    "seen": SEEN,
}
_DATED: Members = {**_SEEN_CHANGE, "recorded_at": nullable(LINE)}
_COUNT: Form[StepCount] = record(
    StepCount,
    {
        "rows": integer(),
        "breaking": integer(),
        "lost": integer(),
        "characters": optional(integer(), 0, written=False),
    },
)
_COUNTED: Members = {**_DATED, "counts": nullable(list_of(nullable(_COUNT)))}
_UNKNOWN: Members = {
    "resource": _ADDRESS,
    "code": enum(Code),
    "detail": LINE,
    "fix": LINE,
}
_WITH_APPROVALS: Members = {
    **_SHOWN,
    "seen": list_of(record(SeenChange, _COUNTED)),
    "approved": list_of(LINE),
    "voids": list_of(integer(1)),
    "unknown": list_of(record(UnknownAuthors, _UNKNOWN)),
}


_TESTS: Form[PlanTests] = record(
    PlanTests,
    {
        **dict.fromkeys(("passed", "failed", "error", "not_run"), integer()),
        "failures": list_of(
            record(PlanTestFailure, {"code": enum(Code), "file": TEXT, "line": integer(), "message": TEXT})
        ),
    },
)


def _version(kept: PlanRecord) -> int:
    if kept.callers:
        return 8
    if kept.tests is not None:
        return 7
    counted = any(each.counts is not None for each in kept.seen)
    if counted or kept.approved or kept.voids or kept.unknown:
        return 6
    if any(each.recorded_at for each in kept.seen):
        return 5
    return 4 if kept.seen else 2 if kept.shown else 3


PLAN_RECORD = Document(
    versions={
        1: record(PlanRecord, _MEMBERS),
        2: record(PlanRecord, _COMPARED),
        3: record(PlanRecord, _SHOWN),
        4: record(PlanRecord, {**_SHOWN, "seen": list_of(record(SeenChange, _SEEN_CHANGE))}),
        5: record(PlanRecord, {**_SHOWN, "seen": list_of(record(SeenChange, _DATED))}),
        6: record(PlanRecord, _WITH_APPROVALS),
        7: record(PlanRecord, {**_WITH_APPROVALS, "tests": _TESTS}),
        8: record(PlanRecord, {**_WITH_APPROVALS, "tests": nullable(_TESTS), "callers": list_of(SEEN_CALLERS)}),
    },
    code=Code.REQUEST_INVALID,
    limit=1024 * 1024,
    version_of=_version,
)
_PROBLEM: Form[MergedProblem] = record(MergedProblem, {"code": enum(Code), "path": TEXT, "message": TEXT})
OTHER_REQUESTS = Document(
    versions={
        1: record(
            OtherRequests,
            {
                "compared": DIGEST,
                "conflicts": list_of(
                    record(
                        RequestConflict,
                        {
                            "request": integer(1),
                            "resources": list_of(_ADDRESS),
                            "paths": list_of(TEXT),
                            "problems": list_of(_PROBLEM),
                        },
                    )
                ),
                "later": nullable(
                    record(
                        LaterPlan,
                        {
                            "merges": list_of(record(EarlierMerge, {"request": integer(1), "why": enum(MergesFirst)})),
                            "left_out": list_of(integer(1)),
                            "same": BOOLEAN,
                            "verdict": TEXT,
                            "changes": list_of(record(LaterChange, {"resource": _ADDRESS, "operation": enum(Action)})),
                            "paths": list_of(TEXT),
                            "problems": list_of(_PROBLEM),
                        },
                    )
                ),
            },
        )
    },
    code=Code.REQUEST_INVALID,
    limit=1024 * 1024,
)
_MOST_READ = 50


def plan_ref(cluster: str, number: int) -> str:
    """Return the ref of a change request's newest plan."""
    return f"{PLANS}/{cluster}/{number}"


def kept_plan(repository: Repository, cluster: str, number: int) -> PlanRecord | None:
    """Return a request's last reported plan, or None if it has none or the plan cannot be read."""
    store = repository.git
    try:
        commit = repository.head_of(plan_ref(cluster, number))
        content = None if commit is None else store.read(store.commit(commit).tree, RECORD)
        kept = None if content is None else PLAN_RECORD.read(content)
    except GitopsError:
        return None
    return kept if kept is not None and (kept.cluster, kept.request) == (cluster, number) else None


def kept_others(repository: Repository, cluster: str, number: int) -> OtherRequests | None:
    """Return the part of a request's last report that is about other requests, or None if there is none."""
    store = repository.git
    try:
        commit = repository.head_of(plan_ref(cluster, number))
        content = None if commit is None else store.read(store.commit(commit).tree, OTHERS)
        return None if content is None else OTHER_REQUESTS.read(content)
    except GitopsError:
        return None


class PlannedData:
    """What the bot read for its plans about graphs that cannot be read here, from the plans' refs.

    With a `number`, only the plan of that request counts. A plan of an earlier head counts as well.
    """

    def __init__(self, repository: Repository, cluster: str, number: int | None) -> None:
        self._repository = repository
        self._cluster = cluster
        self._number = number

    def seen(self, change: Change, recorded: Seen | None) -> Seen | None:
        """Return the newest data about a changed graph, in a stored plan or a later ledger record.

        Without a plan, the ledger's record does not count, because rows may have been loaded since. All of it is dated:
        what the bot read for a plan has the time of the plan.
        """
        found = [replace(each.seen, recorded_at=each.recorded_at or made) for made, each in self._about(change)]
        if found and recorded is not None:
            found.append(recorded)
        return reduce(_newer, found) if found else None

    def counts(self, change: Change) -> tuple[StepCount | None, ...] | None:
        """Return the rows that the newest plan counted for each step of a migration, or None if none did."""
        known = [(made, each.counts) for made, each in self._about(change) if each.counts is not None]
        return max(known, key=lambda each: each[0])[1] if known else None

    def callers(self, change: Change) -> Callers | None:
        """Return the clients that the newest plan counted for a change, or None if none did."""
        identity = change.address, change.before, change.after
        known = [
            (made, each.callers)
            for made, kept in self._plans
            for each in kept.callers
            if (each.resource, each.before, each.after) == identity and each.callers.state is UseState.COUNTED
        ]
        return max(known, key=lambda each: each[0])[1] if known else None

    def unknown(self, commit: str, address: Address) -> UnknownAuthors | None:
        """Return why no one can approve the change of `address` yet, from the stored plans of a commit.

        Anyone with push rights can replace a stored plan, but that can only keep people from approving until the bot
        plans again.
        """
        plans = (kept for _, kept in self._plans if kept.head == commit)
        found = (each for kept in plans for each in kept.unknown if each.resource == address)
        return next(found, None)

    def _about(self, change: Change) -> list[tuple[str, SeenChange]]:
        identity = change.address, change.before, change.after
        return [
            (made, each)
            for made, kept in self._plans
            for each in kept.seen
            if (each.resource, each.before, each.after) == identity
        ]

    @cached_property
    def _plans(self) -> tuple[tuple[str, PlanRecord], ...]:
        """Each plan with its creation time, the newest request first."""
        repository, cluster, number = self._repository, self._cluster, self._number
        with suppress(GitopsError):
            names = () if number is not None else repository.remote.refs(f"{PLANS}/{cluster}")
            texts = (name.rpartition("/")[2] for name in names)
            newest = sorted((int(text) for text in texts if text.isdecimal()), reverse=True)[:_MOST_READ]
            numbers = newest if number is None else [number]
            refs = {each: plan_ref(cluster, each) for each in numbers}
            # a single fetch for all plans
            heads = repository.fetch_refs(*refs.values()) if refs else {}
            kept = ((heads.get(ref), kept_plan(repository, cluster, each)) for each, ref in refs.items())
            return tuple((_made_at(repository, head), plan) for head, plan in kept if head and plan)
        return ()


def _newer(first: Seen, second: Seen) -> Seen:
    """Return the newer of two statements, the first if they are of one version.

    For the same graph, the version number decides, because times only have whole seconds.
    """
    if first.incarnation == second.incarnation:
        return max(first, second, key=lambda each: each.version)
    return max(first, second, key=lambda each: each.recorded_at or "")


def _made_at(repository: Repository, commit: str) -> str:
    return timestamp(datetime.fromtimestamp(repository.git.commit(commit).committer.time, UTC))
