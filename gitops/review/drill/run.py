"""`drill`: restores a cluster from its storage into a scratch root, checks the copy, and records how that went.

1. The ledger: the applied state, with every text that it refers to, is read and written to the scratch root.
2. The graphs: the newest versions of each applied graph are copied from the storage, or from a backup of it.
3. The copy: each graph is verified deeply, it is the graph that the ledger records, and it has the applied schema.
4. The audits of test files run on the copies, if the folder is the applied one. One of severity `error` must pass.
5. The result is an entry of the ledger. If everything passed, the state remembers it, so that `status` can show it.

Nothing is locked while files are copied, so applies go on. A graph that an apply changed meanwhile is compared with the
newer state. The scratch root is a ledger folder with its graphs, which `gitops serve --cluster` can serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gitops.cluster.apply.entries import Facts, commit_entry, make_entry
from gitops.cluster.ledger.port import LedgerView, LedgerWrite
from gitops.cluster.model.address import Address, Kind, cluster_address, schema_address
from gitops.cluster.model.drill import MOST_FINDINGS, DrilledGraph, RestoreDrill
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import EntryKind, LedgerState
from gitops.cluster.model.outcome import DrillOutcome
from gitops.cluster.plan.draft import recorded_data
from gitops.cluster.session.session import Session, StateNeed, reading, writing
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.canonical import digest
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.database.graph import GraphCopy
from gitops.review.tests.bind import BoundAudit
from gitops.review.tests.select import QueryTestFolders, collect_tests

_DETAIL = 300


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """The source and target of a drill: `copy` copies a graph to a folder, and everything goes to an empty scratch root.

    `audit` runs an audit on the graph at an address, and returns what is wrong, if anything.

    `copy_of` returns the address of a graph in the backup at the storage root `source`; without it, the graphs are
    copied from the cluster's own storage.
    """

    scratch: Stores
    copy: Callable[[str, str], GraphCopy]
    audit: Callable[[str, BoundAudit], str | None]
    source: str | None = None
    copy_of: Callable[[str], str] | None = None


def drill(workspace: Workspace, planned: DrillPlan) -> DrillOutcome:
    """Carry out a drill. Each finding is an error `drill_failed` of the outcome.

    A ledger in a folder has no entries, so nothing is recorded there.
    """
    began = workspace.clock.now()
    runs: list[_Drill] = []

    def begin(current: Session) -> DrillOutcome:
        if current.ready:
            audits: tuple[BoundAudit, ...] = ()
            if current.state.config_digest == current.desired.config_digest:
                audits = collect_tests(QueryTestFolders(workspace.tree), current.desired, ()).audits
            runs.append(_Drill(current.opened, current.state, planned, timestamp(began), audits))
        return DrillOutcome(config_dir=workspace.config_dir, diagnostics=tuple(current.problems))

    first = reading(workspace, "drill", StateNeed.REQUIRED, begin)
    if not runs:
        return first
    run = runs[-1]
    run.restore_ledger()
    for address in sorted(each for each in run.state.resources if each.kind is Kind.GRAPH):
        run.restore_graph(address)
    seconds = int((workspace.clock.now() - began).total_seconds())
    findings = tuple(f"{where}: {detail}"[:_DETAIL] for where, detail in run.findings)
    found = RestoreDrill(seconds, tuple(run.graphs), findings[:MOST_FINDINGS], planned.source)

    def record(current: Session) -> DrillOutcome:
        recorded = current.ready and _record(current, found)
        for where, detail in run.findings:
            current.problems.add(Code.DRILL_FAILED, where, detail)
        return replace(first, drill=found, recorded=recorded, diagnostics=tuple(current.problems))

    if workspace.governance is not None:
        return writing(workspace, "drill", StateNeed.REQUIRED, record)
    problems = Diagnostics()
    for where, detail in run.findings:
        problems.add(Code.DRILL_FAILED, where, detail)
    return replace(first, drill=found, diagnostics=(*first.diagnostics, *problems))


class _Drill:
    """One drill: what was restored so far, and what is wrong, by resource."""

    def __init__(
        self, stores: Stores, state: LedgerState, planned: DrillPlan, began: str, audits: Sequence[BoundAudit]
    ) -> None:
        self._stores, self.state, self._planned, self._began, self._audits = stores, state, planned, began, audits
        self.graphs: list[DrilledGraph] = []
        self.findings: list[tuple[str, str]] = []

    def restore_ledger(self) -> None:
        """Carry out step 1."""
        ledger = self._planned.scratch.ledger
        try:
            for address, recorded in sorted(self.state.resources.items()):
                if rules_of(address).catalog_suffix:
                    found = self._stores.ledger.blob(address, recorded.digest)
                    if found.content is None:
                        self.findings.append((address, found.detail or f"its text is {found.condition.value}"))
                        continue
                    ledger.put_blob(address, found.content)
            # The copy has the revision of the original.
            before = LedgerView(state=replace(self.state, revision=max(0, self.state.revision - 1)))
            ledger.commit(before, LedgerWrite(self.state))
        except GitopsError as error:
            self.findings.append((error.path or "ledger", f"{error.code}: {error.detail}"))

    def restore_graph(self, address: Address) -> None:
        """Carry out steps 2 to 4 for one graph."""
        graph = address.name
        live = self._stores.graph_uri(graph)
        source = live if self._planned.copy_of is None else self._planned.copy_of(graph)
        try:
            copy = self._planned.copy(source, self._planned.scratch.graph_uri(graph))
        except GitopsError as error:
            self.findings.append((address, f"{error.code}: {error.detail}"))
            return
        except OSError as error:
            self.findings.append((address, f"the copy failed: {error.strerror or type(error).__name__}"))
            return
        self.findings += ((address, problem) for problem in copy.problems)
        # An apply can have changed the graph, and recorded that, while it was copied.
        state = self._stores.ledger.view().state or self.state
        self.findings += ((address, problem) for problem in _differences(state, address, copy))
        for audit in self._audits:
            if audit.graph == graph and audit.severity is Severity.ERROR:
                problem = self._planned.audit(self._planned.scratch.graph_uri(graph), audit)
                self.findings += [(address, f"audit {audit.id}: {problem}")] if problem else []
        as_of = self._began if source == live or self._is_newest(copy, live) else copy.written_at
        self.graphs.append(DrilledGraph(graph, copy.incarnation, copy.version, copy.rows, as_of))

    def _is_newest(self, copy: GraphCopy, live: str) -> bool:
        """Return whether the graph has no newer version than its copy. A graph that cannot be read may have one."""
        try:
            found = self._stores.engine.read(live)
        except GitopsError:
            return False
        return (found.incarnation, found.manifest_version) == (copy.incarnation, copy.version)


def _differences(state: LedgerState, address: Address, copy: GraphCopy) -> list[str]:
    """Compare a copy with what the ledger records about the graph."""
    schema, seen = state.resources.get(schema_address(address.name)), recorded_data(state, address)
    if seen is not None and copy.incarnation != seen.incarnation:
        return [f"the copy is of graph {copy.incarnation}, but the ledger records {seen.incarnation}"]
    if seen is not None and copy.version < seen.version:
        return [f"the copy has version {copy.version}, but the ledger records {seen.version}"]
    if schema is not None and digest(copy.schema_source) != schema.digest:
        return ["the schema of the copy is not the applied one"]
    return []


def _record(current: Session, found: RestoreDrill) -> bool:
    """Write the entry of a drill. Returns False if it could not be written, or without governance."""
    governance = current.workspace.governance
    if governance is None:
        return False
    state = current.state.with_drill(cluster_address(governance.target.cluster), found, timestamp(current.at))
    entry = make_entry(current, EntryKind.DRILL, Facts(config_digest=current.desired.config_digest), state)
    return entry is not None and commit_entry(current, LedgerWrite(state, replace(entry, drill=found)))
