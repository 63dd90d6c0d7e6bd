"""The facts that the pages of a report show, as they were read. They are only displayed and never affect a decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gitops.cluster.audit.report import AuditReport, LogRecord
from gitops.cluster.model.outcome import StatusOutcome
from gitops.cluster.model.plan import RunRecord
from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.cluster.policy.bundle import Bundle
    from gitops.database.language.query import CheckedQuery
    from gitops.database.language.schema import Schema
    from gitops.review.previews.record import PreviewRecord

PER_PAGE = 100
"""Number of entries on a page of the timeline."""

NEWEST, IN_FEED = 10, 50
"""Number of entries on the first page and in the feed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFacts:
    """An entry by its position in the chain, from 1.

    `verdict` is `good`, or the code of the first problem of its signature, place, approvals or countersignatures.
    `keys` are the fingerprints of the keys that signed its approvals, by commit. `request` is the change request of its
    changeset. `run` is the run that it records, and `run_problem` the reason why that cannot be read.
    """

    number: int
    commit: str
    record: LogRecord
    verdict: str
    keys: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    request: int | None = None
    run: RunRecord | None = None
    run_problem: str = ""


@dataclass(frozen=True, slots=True)
class FailedTestFacts:
    """A test that did not pass: its code, its line in a file (0 if unknown), and the reason."""

    code: str
    file: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class TestsFacts:
    """The tests of a plan: how many passed, how many there are, and the first that did not pass."""

    passed: int
    total: int
    failures: Sequence[FailedTestFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """A change request with its stored plan: `kept` is the commit at `ref`.

    `form` is the JSON document of the plan and `text` the plan as text; both are untrusted. The other members are from
    the record next to them and, as far as known here, from the request. The page of a request that is not `due` exists
    already, so `form` and `text` were not read. `tests` are those of the stored plan. `preview` is the newest preview of its
    head; otherwise `no_preview` says why there is none, and is empty if nothing was ever previewed.
    """

    number: int
    ref: str
    kept: str
    state: str = "not known here"
    title: str = ""
    head: str = ""
    base: str = ""
    digest: str = ""
    count: int = 0
    errors: int = 0
    missing: tuple[str, ...] = ()
    form: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    text: str = ""
    due: bool = True
    tests: TestsFacts | None = None
    preview: PreviewRecord | None = None
    no_preview: str = ""


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A kept version of a graph, with the number of rows of all its tables."""

    number: int
    at: str
    operation: str
    actor: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFigures:
    """The live graph: its newest version, the rows of each table (`node:Person`), its size if known, its kept versions."""

    version: int
    rows: Mapping[str, int]
    size: int | None
    versions: tuple[VersionFacts, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFacts:
    """An applied graph. `schema` is None if its text is not available, and `figures` if the graph was not looked at."""

    name: str
    schema: Schema | None = None
    queries: Sequence[CheckedQuery] = ()
    figures: GraphFigures | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """An applied policy. `bundle` is None if it cannot be read."""

    name: str
    digest: str
    bundle: Bundle | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """Everything that a report shows about a cluster whose ledger has `count` entries and ends at `head`.

    `entries` are the entries that were read, by number: at least the newest ones, those of the last page of the timeline,
    and those whose own pages are `due`. `first` is the commit of the first entry. `scopes` has the name of the policy of
    each served scope, empty without one. `extent` says what the audit covered. `base` is the address of the report, or
    empty.
    """

    cluster: str
    environment: str
    head: str
    first: str
    count: int
    due: range
    entries: Mapping[int, EntryFacts]
    status: StatusOutcome
    audit: AuditReport
    extent: str
    requests: Sequence[RequestFacts] = ()
    graphs: Sequence[GraphFacts] = ()
    scopes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    policies: Sequence[PolicyFacts] = ()
    base: str = ""
    filter: bool = False
