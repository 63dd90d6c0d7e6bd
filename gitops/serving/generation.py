"""A generation: one applied revision, verified and opened, and immutable. Each request is answered from one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from gitops.cluster.model.change import Seen
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.decide import PolicyEngine
from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef
from gitops.core.errors import IntegrityError
from gitops.database import graph
from gitops.database.language.query import CheckedQuery, Query, check_query, parse_queries
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.text import LanguageError, SourceText
from gitops.serving.processes import in_children
from gitops.serving.revision import AppliedText

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache, ReadTarget, Snapshot
    from gitops.database.language.query import CheckedQuery
    from gitops.database.language.schema import Schema


class PolicyCover(StrEnum):
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


# Schemas and stored queries as a server uses them: each text is compiled once in a process, and each problem is placed in it.
#
# Every stored query is parsed and checked before it is served, and compiled for use when it is first asked for. Thousands of them
# are checked by several processes, which say only which of them are sound; what is not is checked again here, for its problems.

_FEW = 400
"""So many queries are checked sooner than processes are started."""


@dataclass(frozen=True, slots=True)
class TextOfGraph:
    """A stored query and the live schema that it is for, with its digest."""

    text: AppliedText
    schema: Schema
    live: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What decides whether it is sound."""
        return (self.live, self.text.digest, self.text.address.name)


class Compiled:
    """What was compiled and checked so far; generations that have a text in common share it."""

    def __init__(self, processes: int = 1, sound: Iterable[Sequence[str]] = ()) -> None:
        """`processes` may check texts at the same time. `sound` are those that another process found sound: its `sound`."""
        self._processes = processes
        self._schemas: dict[str, Schema] = {}
        self._queries: dict[tuple[str, str, str], StoredQuery] = {}
        self._sound = {(live, text, name) for live, text, name in sound}

    @property
    def sound(self) -> list[tuple[str, str, str]]:
        """The texts that are known to be sound, as JSON has them."""
        return sorted(self._sound)

    def schema(self, source: bytes, path: str, found: Diagnostics) -> Schema | None:
        """The compiled schema of a live graph; None where it does not compile, which is reported."""
        name = digest(source)
        if name not in self._schemas:
            try:
                self._schemas[name] = compile_schema(source)
            except LanguageError as error:
                found.add(Code.GRAPH_UNREADABLE, path, f"the live schema does not compile: {error}")
                return None
        return self._schemas[name]

    def check_many(self, texts: Iterable[TextOfGraph]) -> None:
        """Find out which of these are sound, by several processes if there are many."""
        new = list({each.key: each for each in texts if each.key not in self._sound}.values())
        if self._processes > 1 and len(new) > _FEW:
            most = -(-len(new) // self._processes)
            shares = [new[begin : begin + most] for begin in range(0, len(new), most)]
            for share, sound in zip(shares, in_children([partial(_sound, share) for share in shares]), strict=True):
                self._sound.update(share[number].key for number in sound)

    def query(self, each: TextOfGraph, found: Diagnostics) -> StoredQuery | None:
        """The stored query of a text; what is wrong with it is reported."""
        if each.key in self._queries:
            return self._queries[each.key]
        text, checked = each.text, partial(_checked, each)
        if each.key not in self._sound:
            try:
                parsed = _parsed(text.content)
            except LanguageError as error:
                _report(Code.STORED_QUERY_INVALID, error, text, found)
                return None
            if text.address.name not in parsed:
                message = "the blob does not declare a query of this name"
                found.add(Code.STORED_QUERY_INVALID, text.address, message)
                return None
            try:
                check_query(parsed[text.address.name], each.schema.catalog)
            except LanguageError as error:
                _report(Code.STORED_QUERY_CHECK_FAILED, error, text, found)
                return None
            self._sound.add(each.key)
        self._queries[each.key] = StoredQuery(text.address.name, text.digest, text.content, checked)
        return self._queries[each.key]

    def keep(self, generation: Generation) -> None:
        """Forget what this generation does not use. From now on this process checks alone: it has threads, and is not copied."""
        self._processes = 1
        graphs = [(digest(graph.schema_source), graph) for graph in generation.graphs.values()]
        self._schemas = {live: graph.schema for live, graph in graphs}
        stored = [(live, query) for live, graph in graphs for query in graph.queries.values()]
        self._queries = {(live, query.digest, query.name): query for live, query in stored}
        self._sound = set(self._queries)


def _sound(share: Sequence[TextOfGraph]) -> list[int]:
    """The positions of those that can be parsed and checked."""
    found = []
    for number, each in enumerate(share):
        try:
            _checked(each)
        except (LanguageError, KeyError):
            continue
        found.append(number)
    return found


def _checked(each: TextOfGraph) -> CheckedQuery:
    return check_query(_parsed(each.text.content)[each.text.address.name], each.schema.catalog)


# The queries of one file have one text, and come one after another.
@lru_cache(maxsize=16)
def _parsed(content: bytes) -> Mapping[str, Query]:
    """The queries of a text by name, the first of each."""
    return {each.name.text: each for each in reversed(parse_queries(content))}


def _report(code: Code, error: LanguageError, text: AppliedText, found: Diagnostics) -> None:
    lines = SourceText(text.content)
    for problem in error.problems:
        place = SourceRef(text.address, *lines.position(problem.span.start))
        fix = problem.fix or REGISTRY[code].fix
        found.extend([Diagnostic(code, Severity.ERROR, text.address, problem.rendered(), place, fix)])
