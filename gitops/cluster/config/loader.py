"""Steps 6 and 7 of a load: turns declarations of graphs, queries and texts into resources.

With `sound`, which contains pairs that earlier loads found valid, a text is compiled only if its pair is missing, or to
report a problem. Files, their order and problems are the same as without it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gitops.cluster.config.cache import SoundPairs
from gitops.cluster.config.declaration import (
    DeclaredGraph,
    DeclaredText,
    Placed,
    QueryRegistry,
    QuerySources,
    Text,
    source_of,
)
from gitops.cluster.config.reader import FileSpan, SourceFile, SourceReader
from gitops.cluster.config.source import (
    QUERY_EXTENSION,
    PathKind,
    SourceError,
    SourceMovedError,
    listing_digest,
    normalize,
    query_files,
)
from gitops.cluster.model.address import (
    CLUSTER_SCOPE,
    Address,
    Kind,
    graph_address,
    is_name,
    named_address,
    query_address,
    schema_address,
)
from gitops.cluster.model.kinds import KINDS, SECTIONS
from gitops.cluster.model.resource import GraphDeclaration, Resource, graph_composite
from gitops.core.codes import Code
from gitops.core.diagnostics import SourceRef
from gitops.database.language.text import LanguageError
from gitops.database.language.yaml import shown

if TYPE_CHECKING:
    from gitops.cluster.config.compiler import LanguageCompiler
    from gitops.database.language.query import CheckedQuery, Query
    from gitops.database.language.schema import Schema

_GRAPH_PREFIX = "graph."
# The first time registers the declarations of a file, and the second time reports them as repeated. More would only
# repeat that.
_MAX_LISTED = 2
# File names have at most 255 bytes on most file systems, and the folder of a graph that is being created has 31 more
# than its id.
_LONGEST_GRAPH = 224


class LoadedGraph(NamedTuple):
    """A graph's sources, by normalized path: its files, and the digest of each folder listing.

    `queries` is the path of each query as written.
    """

    files: Mapping[str, SourceFile]
    listings: Mapping[str, str]
    queries: Mapping[str, str]


class LoadedPolicy(NamedTuple):
    """A policy with its file and its normalized binding scopes."""

    declared: DeclaredText
    file: SourceFile
    scopes: tuple[str, ...]

    @property
    def at(self) -> str:
        """The policy's path in `cluster.yaml`."""
        return f"policies.{shown(self.declared.name.value)}"


class ResourceLoader:
    """Loads graphs and texts one by one.

    `resources` contains everything that could be loaded, by address; resources with an invalid name have no address.
    `compiled` contains the graphs whose texts were all compiled, and `without_problems` the graphs for which nothing
    was reported. `policies` are not checked yet: see `gitops.cluster.config.load`.
    """

    def __init__(self, reader: SourceReader, sound: SoundPairs | None = None) -> None:
        """Create the loader. Every text is compiled unless `sound` is given."""
        self.reader = reader
        self.sound = sound
        self.resources: dict[Address, Resource] = {}
        self.compiled: dict[str, GraphDeclaration] = {}
        self.without_problems: dict[str, LoadedGraph] = {}
        self.policies: dict[str, LoadedPolicy] = {}
        self._compiler: LanguageCompiler | None = None

    @property
    def compiler(self) -> LanguageCompiler:
        """The load's compiler, imported on first use."""
        if self._compiler is None:
            from gitops.cluster.config.compiler import LanguageCompiler

            self._compiler = LanguageCompiler(self.reader.found)
        return self._compiler

    def graph(self, declared: DeclaredGraph) -> None:
        """Load one graph with its schema and queries."""
        graph, at = declared.id.value, f"graphs.{shown(declared.id.value)}"
        problems = len(self.reader.found)
        named = self.check_name(graph, at, declared.id, most=_LONGEST_GRAPH)
        path = declared.schema.value
        file = self.reader.file(path, f"{at}.schema", declared.schema, missing=Code.SCHEMA_FILE_MISSING)
        loading = _GraphLoading(self, at, file)
        queries = loading.queries(declared.queries)
        if self.sound is not None:
            loading.record_sound(self.sound)
        if self._compiler is not None:
            self._compiler.drop_trees()
        if not named:
            return
        digests = {query.name: query.file.digest for query, _ in queries}
        composite = graph_composite(graph, "" if file is None else file.digest, digests)
        resources = [Resource(query_address(graph, q.name), q.file.digest, q.path, q.file.content) for q, _ in queries]
        if file is not None:
            resources.append(Resource(schema_address(graph), file.digest, path, file.content))
        for resource in (*resources, Resource(graph_address(graph), composite)):
            self.resources[resource.address] = resource
        if not loading.needs_schema and not loading.skipped:
            checked = {query.name: found for query, found in queries if found is not None}
            self.compiled[graph] = GraphDeclaration(loading.schema(), MappingProxyType(checked))
        if len(self.reader.found) == problems:
            paths = {query.name: query.path for query, _ in queries}
            self.without_problems[graph] = LoadedGraph(loading.files, loading.listings, paths)

    def text(self, section: str, declared: DeclaredText, graphs: Collection[str]) -> None:
        """Load one of a section's texts. `graphs` are the declared ids."""
        kind = SECTIONS[section]
        name, at = declared.name.value, f"{section}.{shown(declared.name.value)}"
        named = self.check_name(name, at, declared.name)
        path = declared.file.value
        file = self.reader.file(path, f"{at}.file", declared.file, missing=KINDS[kind].file_missing)
        scopes = self._bindings(declared, at, graphs) if KINDS[kind].binds else None
        if named and file is not None:
            address = named_address(kind, name)
            self.resources[address] = Resource(address, file.digest, path, file.content, scopes)
            if kind is Kind.POLICY:
                self.policies[name] = LoadedPolicy(declared, file, scopes or ())

    def _bindings(self, declared: DeclaredText, at: str, graphs: Collection[str]) -> tuple[str, ...]:
        """Return the sorted bindings of a policy. Invalid bindings are reported and omitted."""
        name, found = declared.name.value, self.reader.found
        if not declared.applies_to:
            message = f"the policy {shown(name)} is not bound to anything"
            found.add(Code.POLICY_MISSING_APPLIES_TO, f"{at}.applies_to", message, source=declared.name.source)
        bindings = set()
        for index, item in enumerate(declared.applies_to):
            text, place = item.value, f"{at}.applies_to[{index}]"
            graph = text.removeprefix(_GRAPH_PREFIX)
            if text == CLUSTER_SCOPE:
                bindings.add(text)
            elif "." in text and graph == text:
                message = f"'{shown(text)}' is not a graph; bind to cluster or graph.<id>"
                found.add(Code.WRONG_KIND_REFERENCE, place, message, source=item.source)
            elif graph not in graphs:
                message = f"graph '{shown(graph)}' is not declared{self.reader.hint(graph, graphs)}"
                found.add(Code.DANGLING_GRAPH_REFERENCE, place, message, source=item.source)
            else:
                bindings.add(f"{_GRAPH_PREFIX}{graph}")
        return tuple(sorted(bindings))

    def check_name(self, name: str, at: str, place: Placed | SourceRef, *, most: int | None = None) -> bool:
        """Return True for a valid name; report any other. `most` is the maximum length, for graph ids."""
        if is_name(name) and (most is None or len(name) <= most):
            return True
        message = f"'{shown(name)}' is not a valid name: use letters, digits, _ and -, starting with a letter or _"
        near = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-").lstrip("0123456789")
        fix = "use a shorter name" if is_name(name) else f"did you mean `{near}`?" if is_name(near) else None
        if is_name(name):
            message = (
                f"the name has {len(name)} characters: use at most {most}, because it becomes the name of a folder"
            )
        elif most is not None:
            # Other names can contain _, but no server serves a graph with such an id.
            near = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-").lstrip("-0123456789")
            fix = f"did you mean `{near}`?" if near else "use only letters, digits and -, and start with a letter"
            message = f"'{shown(name)}' is not a valid graph id: use letters, digits and -, starting with a letter"
        self.reader.found.add(Code.INVALID_RESOURCE_ID, at, message, source=source_of(place), fix=fix)
        return False


class _QueryFile:
    """Queries of a file by name, in file order.

    A file known to be `sound` is parsed only if a place in it is needed; any other file is already parsed.
    """

    def __init__(self, file: SourceFile, names: Sequence[str], parsed: Sequence[Query] | None) -> None:
        self.file = file
        self.names = names
        self.parsed = parsed

    @cached_property
    def positions(self) -> Mapping[str, Sequence[int]]:
        """The positions of the declarations of each name. Many names can be in one large file."""
        positions: dict[str, list[int]] = {}
        for position, name in enumerate(self.names):
            positions.setdefault(name, []).append(position)
        return positions


class _Candidate(NamedTuple):
    """A listed name with its file.

    `position` is the position of its declaration. `declared` is None if the file lacks the query.
    """

    name: str
    path: str
    file: SourceFile
    place: Placed | SourceRef
    declared: _QueryFile | None = None
    position: int = 0


class _GraphLoading:
    """A graph while it is being loaded. `files` and `listings` are as in LoadedGraph.

    `skipped` means that a query was not compiled because it is known to be valid; `needs_schema` means that the schema
    must still be compiled.
    """

    def __init__(self, loader: ResourceLoader, at: str, schema: SourceFile | None) -> None:
        """Compile the schema, unless it is known to be valid."""
        self._loader = loader
        self._reader = loader.reader
        self._found = loader.reader.found
        self._at = f"{at}.queries"
        self._schema_at = f"{at}.schema"
        self._schema_file = schema
        self._schema: Schema | None = None
        self.needs_schema = schema is not None
        self.skipped = False
        self._declared: dict[str, _QueryFile | None] = {}
        self._checked: dict[tuple[str, int], bool] = {}
        self._listed: Counter[str] = Counter()
        self.files: dict[str, SourceFile] = {} if schema is None else {schema.path: schema}
        self.listings: dict[str, str] = {}
        if schema is not None and (loader.sound is None or loader.sound.names(schema.digest) is None):
            self.schema()

    def schema(self) -> Schema | None:
        """Return the compiled schema, or None if it is missing or has problems, which are reported once."""
        if self.needs_schema and self._schema_file is not None:
            self.needs_schema = False
            self._schema = self._loader.compiler.schema(self._schema_file, self._schema_at)
        return self._schema

    def queries(self, declared: QueryRegistry | QuerySources) -> Sequence[tuple[_Candidate, CheckedQuery | None]]:
        """Return all queries in name order, each checked against the schema.

        A query that was not compiled, or that has a problem, is None.

        Without a schema, there is a warning `query_typecheck_skipped` for each query. Queries with an unreadable file
        or an invalid name are reported and omitted, but their other checks are still done.
        """
        if self._reader.full:
            return ()
        candidates = self._registered(declared) if isinstance(declared, QueryRegistry) else self._discovered(declared)
        loaded = []
        # Check file by file from top to bottom, so that problems are in text order.
        listed = list(candidates)
        order = {path: place for place, path in enumerate(self._declared)}
        for candidate in sorted(listed, key=lambda each: (order[each.file.path], each.position)):
            if not self._reader.admit(self._at, candidate.place, queries=1):
                break
            checked = self._check(candidate)
            if is_name(candidate.name):
                loaded.append((candidate, checked))
        return sorted(loaded, key=lambda each: each[0].name)

    def record_sound(self, sound: SoundPairs) -> None:
        """Record the schema, and each file whose queries are all valid for it, if they were compiled now."""
        schema, file = self._schema, self._schema_file
        if schema is None or file is None:
            return
        if not schema.warnings:
            sound.add(file.digest, "", ())
        for each in self._declared.values():
            if each is None or each.parsed is None or len(set(each.names)) < len(each.names):
                continue
            # The map form can list only some of a file's queries.
            unlisted = [query for n, query in enumerate(each.parsed) if (each.file.path, n) not in self._checked]
            good = all(self._checked.get((each.file.path, n), True) for n in range(len(each.parsed)))
            if good and all(map(is_name, each.names)) and self._loader.compiler.are_sound(unlisted, schema):
                sound.add(file.digest, each.file.digest, each.names)

    def _registered(self, registry: QueryRegistry) -> Iterator[_Candidate]:
        """Yield the queries of the map form one by one."""
        for entry in registry.entries:
            name, path = entry.name.value, entry.file.value
            at = f"{self._at}.{shown(name)}"
            self._loader.check_name(name, at, entry.name)
            file = self._reader.file(path, f"{at}.file", entry.file, missing=Code.QUERY_FILE_MISSING)
            if file is None:
                continue
            declared = self._declarations(file, at)
            if declared is None:
                yield _Candidate(name, path, file, entry.name)
                continue
            positions = declared.positions.get(name, ())
            if not positions:
                message = f"{file.path} declares no query '{shown(name)}'{self._reader.hint(name, declared.positions)}"
                self._found.add(Code.QUERY_KEY_MISMATCH, at, message, source=entry.name.source)
                yield _Candidate(name, path, file, entry.name)
                continue
            for again in positions[1:]:
                self._report_duplicate(declared, again, file)
            yield _Candidate(name, path, file, entry.name, declared, positions[0])

    def _discovered(self, sources: QuerySources) -> Iterator[_Candidate]:
        """Yield the queries of the other forms: every declaration in every file, the first for each name."""
        first: dict[str, _Candidate] = {}
        folded: dict[str, str] = {}
        for item in sources.items:
            for path in self._expand(item):
                if self._is_listed_too_often(path):
                    continue
                file = self._reader.file(path, self._at, item, missing=Code.QUERY_FILE_MISSING)
                declared = None if file is None else self._declarations(file, self._at)
                if file is None or declared is None:
                    continue
                for position, name in enumerate(declared.names):
                    if name in first:
                        self._report_duplicate(declared, position, first[name].file)
                        continue
                    # A file that is known to be valid has no problems, so no place has to be reported.
                    parsed = declared.parsed
                    place = SourceRef(file.path) if parsed is None else FileSpan(file, parsed[position].name.span)
                    self._loader.check_name(name, f"{self._at}.{shown(name)}", place)
                    other = folded.setdefault(name.lower(), name)
                    if other != name:
                        message = f"the queries '{shown(name)}' and '{shown(other)}' differ only in case"
                        self._found.add(
                            Code.NAME_DIFFERS_IN_CASE, f"{self._at}.{shown(name)}", message, source=source_of(place)
                        )
                    first[name] = _Candidate(name, path, file, place, declared, position)
        yield from first.values()

    def _check(self, candidate: _Candidate) -> CheckedQuery | None:
        """Return the checked query.

        None if it has a problem, which is reported, or if it is already known to be valid.
        """
        declared = candidate.declared
        if declared is None:
            return None
        if declared.parsed is None:
            self.skipped = True
            return None
        at = f"{self._at}.{shown(candidate.name)}"
        schema = self.schema()
        if schema is None:
            message = "this query was not checked: the schema of its graph does not compile"
            self._found.add(Code.QUERY_TYPECHECK_SKIPPED, at, message, source=source_of(candidate.place))
            return None
        query = declared.parsed[candidate.position]
        checked = self._loader.compiler.check(query, candidate.file, schema, at)
        self._checked[candidate.file.path, candidate.position] = checked is not None
        return checked

    def _declarations(self, file: SourceFile, at: str) -> _QueryFile | None:
        """Return a file's declarations. Its problems are reported once per graph."""
        if file.path not in self._declared:
            self._reader.admit(self._at, SourceRef(file.path), size=file.size)
        if self._reader.full:
            return None
        if file.path in self._declared:
            return self._declared[file.path]
        self.files[file.path] = file
        self._declared[file.path] = None
        sound, schema = self._loader.sound, self._schema_file
        names = None if sound is None or schema is None else sound.names(schema.digest, file.digest)
        if names is not None:
            self._declared[file.path] = _QueryFile(file, names, None)
        elif isinstance(parsed := self._loader.compiler.queries(file), LanguageError):
            self._loader.compiler.report_query(parsed, file, at)
        else:
            self._declared[file.path] = _QueryFile(file, [query.name.text for query in parsed], parsed)
        return self._declared[file.path]

    def _expand(self, item: Text) -> Iterator[str]:
        """Yield the files that one entry refers to, spelled as in the entry."""
        tree, written = self._reader.tree, item.value
        try:
            place = normalize(written, confined=True)
            if tree.kind(place) is not PathKind.DIR:
                yield written
                return
            if self._is_listed_too_often(f"{written}/"):
                return
            names = query_files(tree.names(place))
            self.listings[place] = listing_digest(names)
        except SourceError as error:
            self._reader.report(error, self._at, item, otherwise=Code.QUERY_DIR_UNREADABLE)
            return
        if not names:
            message = f"'{shown(written)}' contains no {QUERY_EXTENSION} file"
            self._found.add(Code.QUERY_DIR_EMPTY, self._at, message, source=item.source)
        folder = written if not written or written.endswith("/") else f"{written}/"
        yield from (folder + name for name in names)

    def _is_listed_too_often(self, path: str) -> bool:
        """Return True if this graph lists a file or folder so often that no more problems are reported about it."""
        try:
            place = normalize(path, confined=True)
        except SourceError:
            return False
        self._listed[place] += 1
        return self._listed[place] > _MAX_LISTED

    def _report_duplicate(self, declared: _QueryFile, position: int, first: SourceFile) -> None:
        """Report a declaration whose name was already declared.

        Raises SourceMovedError if the file does not contain it.
        """
        parsed = self._loader.compiler.queries(declared.file) if declared.parsed is None else declared.parsed
        if isinstance(parsed, LanguageError) or len(parsed) <= position:
            raise SourceMovedError
        query = parsed[position]
        name = shown(query.name.text)
        where = first.path
        known = self._loader.compiler.queries(first)
        if not isinstance(known, LanguageError):
            spans = [each.name.span for each in known if each.name.text == query.name.text]
            where = first.at(spans[0]).shown() if spans else where
        message = f"the query {name} is declared again; its declaration at {where} is used"
        source = declared.file.at(query.name.span)
        self._found.add(Code.DUPLICATE_QUERY_NAME, f"{self._at}.{name}", message, source=source)
