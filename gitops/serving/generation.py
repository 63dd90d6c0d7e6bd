"""A generation: one applied revision, verified and opened, and immutable. Each request is answered from one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from gitops.cluster.model.change import Seen
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.decide import PolicyEngine
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import IntegrityError
from gitops.database import graph

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache, ReadTarget, Snapshot
    from gitops.database.language.query import CheckedQuery
    from gitops.database.language.schema import Schema

__all__ = ["Generation", "RuntimeState", "ServedGraph", "StoredQuery"]


class RuntimeState(StrEnum):
    """How requests without a policy are treated: see `classify` in `gitops.serving.access`."""

    OPEN = "open"
    DEFAULT_DENY = "default_deny"
    POLICY_ENABLED = "policy_enabled"


class StoredQuery:
    """A stored query: the text that its digest names, and its checked form, which is made when it is first asked for.

    Not every query of thousands is ever asked for; that each of them can be checked is known before.
    """

    __slots__ = ("_checked", "digest", "name", "source")

    def __init__(
        self, name: str, digest: str, source: bytes, checked: CheckedQuery | Callable[[], CheckedQuery]
    ) -> None:
        """The checked form, or how to make it, which must not fail."""
        self.name = name
        self.digest = digest
        self.source = source
        self._checked = checked

    @property
    def checked(self) -> CheckedQuery:
        """The checked form. Two threads that are the first to ask may both make it."""
        if callable(self._checked):
            self._checked = self._checked()
        return self._checked


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """One graph as it is served: where it is, its schema, its stored queries in order of names, and who decides about access.

    `engine` is None where no bundle is bound to it; `policy` and `policy_digest` are name and digest of the bundle. `drifted`
    says that the live schema is not the applied one. `cache` keeps what was read of immutable versions, and is shared between
    graphs and generations. `seen` is what was there when the generation was made, None where that is not known.
    """

    graph_id: str
    uri: str
    schema: Schema
    schema_source: bytes
    schema_digest: str
    queries: Mapping[str, StoredQuery]
    engine: PolicyEngine | None
    cache: ReadCache
    drifted: bool = False
    policy: str | None = None
    policy_digest: str | None = None
    seen: Seen | None = None

    def open(self, target: ReadTarget) -> Snapshot:
        """A version of the graph. Raises as `graph.open_snapshot`.

        Raises IntegrityError `graph_unreadable` where another graph is at the root than when the generation was made, and
        `graph_rewound` for an older copy of it.
        """
        found, seen = graph.open_snapshot(self.uri, target, self.cache), self.seen
        if seen is not None and found.identity.graph_id != seen.incarnation:
            detail = f"graph {found.identity.graph_id} is at the root, and {seen.incarnation} is served"
            raise IntegrityError(Code.GRAPH_UNREADABLE, detail, path=self.uri)
        newest = (target.version, target.commit, target.time) == (None, None, None)
        if seen is not None and newest and found.line.fork is None and found.manifest.n < seen.version:
            detail = f"the newest version is {found.manifest.n}, and version {seen.version} was served"
            raise IntegrityError(Code.GRAPH_REWOUND, detail, path=self.uri)
        return found


@dataclass(frozen=True, slots=True)
class Generation:
    """A revision with its graphs by id. `quarantined` are the graphs that are not served, with the reasons.

    `engine` decides about the server, by the bundle `policy` of that digest. `guarded` says whether any bundle of the
    revision is bound to the server or a graph, served or not; `warnings` are what boot found that does not keep it from serving.
    """

    revision: RevisionIdentity
    graphs: Mapping[str, ServedGraph]
    engine: PolicyEngine | None
    quarantined: Mapping[str, tuple[Diagnostic, ...]]
    guarded: bool
    warnings: tuple[Diagnostic, ...] = ()
    policy: str | None = None
    policy_digest: str | None = None
