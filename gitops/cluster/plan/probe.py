"""Observes a cluster's graphs without changing them."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.model.change import Seen
from gitops.cluster.model.ledger import Intent, IntentKind
from gitops.cluster.session.workspace import Stores
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.port import Existence, GraphReading


@dataclass(frozen=True, slots=True)
class GraphProbe:
    """Observation of a root: whether a graph exists, and its content if it can be opened.

    `deleted` means that a delete has passed the point of no return. `deleted_by` are the approvals with which this
    graph was deleted before. `restored` is whether the operation in question restored rows of it; None if that can no
    longer be determined.
    """

    existence: Existence
    reading: GraphReading | None = None
    deleted: bool = False
    deleted_by: frozenset[str] = frozenset()
    restored: bool | None = False

    @property
    def live(self) -> str | None:
        """Digest of the live schema text, or None if the graph cannot be opened."""
        return None if self.reading is None else digest(self.reading.schema_source)


def seen_facts(uri: str, reading: GraphReading) -> dict[str, object]:
    """Return the facts about an observed graph, for a node result."""
    return {
        "seen": Seen(reading.incarnation, reading.rows, reading.manifest_version),
        "schema_digest": digest(reading.schema_source),
        "graph_uri": uri,
    }


def probe_operation(stores: Stores, intent: Intent) -> GraphProbe:
    """Observe an interrupted operation's graph, including traces that only some kinds of operation leave.

    Raises GitopsError if they cannot be read.
    """
    uri, found = stores.graph_uri(intent.graph_id), probe_graph(stores, intent.graph_id)[0]
    if found.reading is None:
        return found
    if intent.kind is IntentKind.GRAPH_DELETE:
        return replace(found, deleted_by=stores.engine.deleted_by(uri, found.reading.incarnation))
    if intent.kind is IntentKind.GRAPH_RESTORE and intent.incarnation == found.reading.incarnation:
        return replace(found, restored=was_restored(stores, intent))
    return found


def was_restored(stores: Stores, intent: Intent) -> bool | None:
    """Return True if the graph's versions show that a restore took place, or None if they are no longer kept.

    Raises GitopsError if they cannot be read.
    """
    uri, since = stores.graph_uri(intent.graph_id), intent.observed_manifest_version
    try:
        return stores.engine.was_restored(uri, intent.fence or 0, since or 0)
    except GitopsError as error:
        if error.code != Code.GRAPH_VERSION_GONE:
            raise
        return None


def probe_graph(stores: Stores, graph: str, *, files: bool = False) -> tuple[GraphProbe, str | None]:
    """Observe a live graph. Also return the reason if it could not be opened.

    With `files`, a graph whose newest version lacks a file cannot be opened.
    """
    uri = stores.graph_uri(graph)
    existence = stores.engine.exists(uri)
    if existence is not Existence.PRESENT:
        return GraphProbe(existence), None if existence is Existence.ABSENT else f"it is not known whether {uri} exists"
    try:
        reading = stores.engine.read(uri)
        if files:
            stores.engine.check_files(uri)
        return GraphProbe(existence, reading), None
    except GitopsError as error:
        return GraphProbe(existence, deleted=error.code == Code.GRAPH_DELETED), error.detail
