"""Schemas and stored queries as a server uses them: each text is compiled once in a process, and each problem is placed in it.

Every stored query is parsed and checked before it is served, and compiled for use when it is first asked for. Thousands of them
are checked by several processes, which say only which of them are sound; what is not is checked again here, for its problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial

from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef
from gitops.database.language.query import CheckedQuery, Query, check_query, parse_queries
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.text import LanguageError, SourceText
from gitops.serving.children import in_children
from gitops.serving.generation import Generation, StoredQuery
from gitops.serving.revision import AppliedText

__all__ = ["Compiled", "TextOfGraph"]

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
                parsed = _parsed(text)
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
    return check_query(_parsed(each.text)[each.text.address.name], each.schema.catalog)


def _parsed(text: AppliedText) -> Mapping[str, Query]:
    """The queries of a text by name, the first of each."""
    return _parse(text.content)


# The queries of one file have one text, and come one after another.
@lru_cache(maxsize=16)
def _parse(content: bytes) -> Mapping[str, Query]:
    return {each.name.text: each for each in reversed(parse_queries(content))}


def _report(code: Code, error: LanguageError, text: AppliedText, found: Diagnostics) -> None:
    lines = SourceText(text.content)
    for problem in error.problems:
        place = SourceRef(text.address, *lines.position(problem.span.start))
        fix = problem.fix or REGISTRY[code].fix
        found.extend([Diagnostic(code, Severity.ERROR, text.address, problem.rendered(), place, fix)])
