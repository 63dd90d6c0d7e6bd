"""Applies graph, schema, query, policy and trust changes to the graph engine and the catalog.

Order within an operation that changes a graph: arm the intent, check the source, act, record the new version. A failure
after the intent was armed leaves it armed unless nothing can have happened; the next recovery settles it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace

from gitops.cluster.model.address import Kind, schema_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import Intent
from gitops.cluster.model.plan import SHARED, ExecNode, NodeOutcome, NodeResult
from gitops.cluster.model.resource import restore_order
from gitops.cluster.plan.landing import check_migration
from gitops.cluster.plan.leftovers import out_of_cluster
from gitops.cluster.plan.probe import seen_facts
from gitops.cluster.session.session import RECORD_LIVE, Session
from gitops.cluster.session.workspace import CRASHED, DISARMED
from gitops.core.cancel import CancelledError
from gitops.core.canonical import digest
from gitops.core.codes import Code, remedy
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import BugError, GitopsError, RemoteError
from gitops.database.graph.port import DeleteOrder, MigrationPreview, PreparedVersion

# This fact is used only in this module.
_UNSEEN = "unseen"


class _InjectedCrashError(Exception):
    """Injected fault after the effect: the run must end as if the process had crashed here."""


class ClusterProvider:
    """Applies the nodes of one run. Worker threads call it once per node while they hold the node's locks."""

    def __init__(self, session: Session, intents: Mapping[str, Intent], armed: Collection[str] = ()) -> None:
        """`intents` are the run's intents, by node id. `armed` are the ids of operations whose intents are already durable."""
        self._workspace = session.workspace
        self._stores = session.opened
        self._resources = session.desired.resources
        self._intents = intents
        self._armed = armed

    def apply(self, node: ExecNode, change: Change) -> NodeResult:
        """Apply one node. Returns failures as outcomes with diagnostics instead of raising them.

        Raises CancelledError if the run was asked to stop and this node has had no effect.
        """
        problems = Diagnostics()
        facts: dict[str, object] = {}
        kind, action = change.address.kind, change.action
        try:
            if kind is Kind.GRAPH and action is Action.CREATE:
                self._create(node, change.address.name, facts)
            elif kind is Kind.SCHEMA and action is Action.UPDATE:
                self._migrate(node, change, facts)
            elif kind is Kind.GRAPH and action is Action.DELETE:
                self._delete(node, change.address.name, facts)
            elif kind is Kind.RESTORE and action is not Action.DELETE:
                self._restore(node, change, facts)
            elif rules_of(change.address).catalog_suffix and action is not Action.DELETE:
                resource = self._resources[change.address]
                self._stores.ledger.put_blob(resource.address, resource.content or b"")
            # Everything else changes only the ledger: schemas created or deleted with their graph, removed texts, trust.
        except GitopsError as error:
            problems.add(error.code, error.path or node.address, error.detail, fix=error.fix)
            unseen = facts.pop(_UNSEEN, False) and not facts.get(DISARMED)
            if any(isinstance(each, RemoteError) for each in (error, error.__cause__)):
                facts[SHARED] = True
            outcome = NodeOutcome.INDETERMINATE if unseen else NodeOutcome.FAILED
            return NodeResult(node.id, outcome, tuple(problems), facts=facts)
        except _InjectedCrashError as crash:
            problems.add(Code.INJECTED_FAILPOINT, node.id, str(crash))
            return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems), facts={CRASHED: True})
        return NodeResult(node.id, NodeOutcome.DONE, tuple(problems), facts=facts)

    def _create(self, node: ExecNode, graph: str, facts: dict[str, object]) -> None:
        workspace, stores, intent = self._workspace, self._stores, self._intents[node.id]
        uri = stores.graph_uri(graph)
        self._arm(intent, facts)
        workspace.faults.reach("cluster_apply.before_graph_create")
        source = self._read_source(graph, intent, Code.GRAPH_CREATE_FAILED, facts)
        with _failing_as(Code.GRAPH_CREATE_FAILED, node):
            prepared = stores.engine.prepare_create(uri, source, actor=workspace.actor, fence=intent.fence)
            if workspace.cancel.requested:
                prepared.abort()
                raise CancelledError
            version = _publish(prepared, facts)
        self._record_version(intent, version, facts)
        self._fault_after("cluster_apply.after_graph_create")

    def _migrate(self, node: ExecNode, change: Change, facts: dict[str, object]) -> None:
        workspace, stores = self._workspace, self._stores
        intent, graph = self._intents[node.id], change.address.name
        uri = stores.graph_uri(graph)
        resource = self._resources[schema_address(graph)]
        with _failing_as(Code.SCHEMA_APPLY_FAILED, node):
            preview = check_migration(stores.engine, uri, change, resource.content or b"")
            before = stores.engine.read(uri)
        intent = replace(intent, observed_manifest_version=before.manifest_version)
        self._arm(intent, facts)
        with _failing_as(Code.SCHEMA_APPLY_FAILED, node):
            workspace.faults.reach("cluster_apply.before_schema_apply")
        source = self._read_source(graph, intent, Code.SCHEMA_APPLY_FAILED, facts)
        try:
            with _failing_as(Code.SCHEMA_APPLY_FAILED, node):
                if intent.desired_schema_digest != resource.digest:
                    source = _expanded(preview, intent)
                with _counted_before():
                    prepared = stores.engine.prepare_migration(
                        uri, source, actor=workspace.actor, incarnation=intent.incarnation, fence=intent.fence
                    )
                version = _publish(prepared, facts)
        except GitopsError:
            now = None
            with suppress(GitopsError):
                now = stores.engine.read(uri)
            # If the graph has not changed, nothing happened.
            if now is not None and (now.manifest_version, now.schema_source) == (
                before.manifest_version,
                before.schema_source,
            ):
                self._disarm(intent, facts)
            raise
        self._record_version(intent, version, facts)
        self._fault_after("cluster_apply.after_schema_apply")

    def _delete(self, node: ExecNode, graph: str, facts: dict[str, object]) -> None:
        workspace, stores, intent = self._workspace, self._stores, self._intents[node.id]
        if intent.incarnation is None or intent.max_rows is None or intent.fence is None:
            raise BugError(f"the delete of {graph} is not bound to a graph")
        seen = intent.observed_manifest_version
        order = DeleteOrder(intent.incarnation, intent.max_rows, intent.fence, intent.approval_ids, seen)
        uri, armed = stores.graph_uri(graph), intent.operation_id in self._armed
        self._arm(intent, facts)
        # The commit arms this operation. Before the commit, a refusal leaves the delete planned.
        with _failing_as(Code.GRAPH_DELETE_FAILED, node), out_of_cluster(uri) if armed else nullcontext():
            workspace.faults.reach("cluster_apply.before_graph_delete")
            with _acting(facts):
                stores.engine.delete(uri, order)
        self._fault_after("cluster_apply.after_graph_delete")

    def _arm(self, intent: Intent, facts: dict[str, object]) -> None:
        if intent.operation_id in self._armed:
            return
        try:
            self._stores.ledger.arm(intent)
        except GitopsError:
            facts[SHARED] = True
            raise

    def _restore(self, node: ExecNode, change: Change, facts: dict[str, object]) -> None:
        """Restore a graph atomically. After an error, nothing has happened, unless the storage did not respond."""
        workspace, stores = self._workspace, self._stores
        intent, graph = self._intents[node.id], change.address.name
        order = restore_order(self._resources[change.address])
        self._arm(intent, facts)
        try:
            workspace.faults.reach("cluster_apply.before_graph_restore")
            with _acting(facts):
                version = stores.engine.restore(
                    stores.graph_uri(graph),
                    order,
                    actor=workspace.actor,
                    incarnation=intent.incarnation,
                    fence=intent.fence,
                )
        except GitopsError:
            if not facts.get(_UNSEEN, False):
                self._disarm(intent, facts)
            raise
        self._record_version(intent, version, facts)
        self._fault_after("cluster_apply.after_graph_restore")

    def _read_source(self, graph: str, intent: Intent, code: Code, facts: dict[str, object]) -> bytes:
        """Read the schema text again.

        If it changed or vanished, nothing has happened yet, so the intent is disarmed.
        """
        resource = self._resources[schema_address(graph)]
        try:
            source = self._workspace.tree.read(resource.path or "")
        except GitopsError as error:
            self._disarm(intent, facts)
            raise GitopsError(code, error.detail, path=resource.address) from error
        if digest(source) != resource.digest:
            self._disarm(intent, facts)
            raise GitopsError(
                Code.RESOURCE_CONTENT_CHANGED, f"{resource.path} changed during the run", path=resource.address
            )
        return source

    def _disarm(self, intent: Intent, facts: dict[str, object]) -> None:
        self._stores.ledger.disarm(intent.operation_id)
        facts[DISARMED] = True

    def _record_version(self, intent: Intent, version: int, facts: dict[str, object]) -> None:
        self._record_seen(intent.graph_id, version, facts)
        # If this fails, nothing is lost: recovery does not need the version.
        try:
            self._stores.ledger.amend(replace(intent, expected_manifest_version=version))
        except GitopsError as error:
            facts["amend"] = error.detail

    def _record_seen(self, graph: str, version: int, facts: dict[str, object]) -> None:
        facts["manifest_version"] = version
        # This may fail as well. Then an approver must refresh first.
        with suppress(GitopsError):
            uri = self._stores.graph_uri(graph)
            reading = self._stores.engine.read(uri)
            facts |= seen_facts(uri, reading)

    def _fault_after(self, point: str) -> None:
        try:
            self._workspace.faults.reach(point)
        except GitopsError as error:
            raise _InjectedCrashError(error.detail) from error


@contextmanager
def _counted_before() -> Iterator[None]:
    """Say that rows changed since the plan if they break a step, because a plan with such rows is not applied."""
    try:
        yield
    except GitopsError as error:
        if error.code != Code.GRAPH_ROWS_BREAK_SCHEMA:
            raise
        detail = f"rows were written since the plan counted them: {error.detail}"
        raise GitopsError(Code.MIGRATION_DATA_CHANGED, detail, path=error.path) from error


def _expanded(preview: MigrationPreview, intent: Intent) -> bytes:
    """Return the intermediate schema text of a migration. Raises GitopsError if it differs from the announced one."""
    if preview.expanded is None or digest(preview.expanded) != intent.desired_schema_digest:
        detail = "the live schema is not the one that the change was planned from"
        raise GitopsError(Code.SCHEMA_APPLY_FAILED, detail, fix=RECORD_LIVE)
    return preview.expanded


def _publish(prepared: PreparedVersion, facts: dict[str, object]) -> int:
    try:
        with _acting(facts):
            return prepared.publish()
    except GitopsError:
        prepared.abort()
        raise


@contextmanager
def _acting(facts: dict[str, object]) -> Iterator[None]:
    """Carry out the effect itself. If the storage does not answer, the effect may have happened."""
    try:
        yield
    except RemoteError:
        facts[_UNSEEN] = True
        raise


@contextmanager
def _failing_as(code: Code, node: ExecNode) -> Iterator[None]:
    """Turn every failure of the block into one of this code, at the node."""
    try:
        yield
    except GitopsError as error:
        # The cause contains the remedy; the failure's code only shows where it was noticed.
        fix = error.fix or remedy(error.code, node.address)
        raise GitopsError(code, error.detail, path=node.address, fix=fix) from error
