"""Checks a test file against the graphs that it is about, and turns it into jobs for workers.

Every value is read by its declared type. A bound test holds everything that a worker needs, as JSON: nothing of it is
looked up later, so its verdict depends on nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from gitops.cluster.model.address import query_address
from gitops.cluster.policy.test_keys import AFFECTED_KEYS, BOUND_KEYS, MATCHER_KEYS
from gitops.core.canonical import canonical_digest, digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity, SourceRef
from gitops.core.errors import GitopsError
from gitops.database.language.query import CheckedQuery, QueryEffect, typed
from gitops.database.language.schema import Catalog, EdgeType, NodeType, PropType, Scalar
from gitops.database.language.suggest import choices, did_you_mean
from gitops.database.language.yaml import ScalarType, YamlList, YamlMap, YamlNode, YamlScalar, shown
from gitops.review.tests.format import (
    ROW_FORMS,
    DataAudit,
    Expectation,
    ExpectForm,
    Fixture,
    Params,
    QuerySample,
    QueryTest,
    QueryTestFile,
    TypeState,
)
from gitops.review.tests.values import ValueTypeError, filled, moment_text, read_value

MAX_ROWS = 10_000
MAX_BYTES = 8 * 1024 * 1024
_MAX_PATTERN = 1_000
_ENDS = {"from": PropType(Scalar.STRING), "to": PropType(Scalar.STRING)}
_TEXT = PropType(Scalar.STRING)
_NOWHERE = YamlScalar("", ScalarType.NULL, 1, 1)


class GraphUnderTest(Protocol):
    """A declared graph, as tests need it."""

    @property
    def name(self) -> str:
        """Its id."""

    @property
    def catalog(self) -> Catalog:
        """Its checked schema."""

    @property
    def schema_source(self) -> bytes:
        """The text of its schema."""

    @property
    def queries(self) -> Mapping[str, CheckedQuery]:
        """Its stored queries."""

    def query_source(self, name: str) -> bytes:
        """Return the text of one query."""


@dataclass(frozen=True, slots=True)
class FixtureData:
    """The records of a fixture as JSON lines, each with its place. `digest` covers schema and records."""

    digest: str
    schema: str
    records: tuple[str, ...]
    places: tuple[SourceRef, ...]

    def setup(self) -> dict[str, Any]:
        """Return the setup of a worker."""
        return {"schema": self.schema, "records": list(self.records)}


@dataclass(frozen=True, slots=True)
class BoundTest:
    """A test that can run. `id` contains the file, `at` is its place, and `expect_at` is the place of its expectation.

    `job` is what the worker gets, and `query_digest` identifies the query's text.
    """

    id: str
    graph: str
    query: str
    at: SourceRef
    expect_at: SourceRef
    fixture: FixtureData
    query_digest: str
    job: Mapping[str, Any]
    test: QueryTest = field(repr=False, compare=False)

    @property
    def resource(self) -> str:
        """The address of the tested query."""
        return query_address(self.graph, self.query)


@dataclass(frozen=True, slots=True)
class BoundSample:
    """Parameters for a stored query, as JSON."""

    graph: str
    query: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BoundAudit:
    """A query with its expectation in the form of a job."""

    id: str
    graph: str
    query: str
    at: SourceRef
    job: Mapping[str, Any]
    severity: Severity


@dataclass(frozen=True, slots=True)
class BoundFile:
    """A test file that fits its graph. It is empty if there was an error."""

    file: QueryTestFile
    tests: tuple[BoundTest, ...] = ()
    samples: tuple[BoundSample, ...] = ()
    audits: tuple[BoundAudit, ...] = ()


def bind_file(
    file: QueryTestFile, graphs: Mapping[str, GraphUnderTest], read: Callable[[str], bytes]
) -> tuple[BoundFile, Diagnostics]:
    """Return the tests of a file, and the problems that keep it from being run.

    `read` returns a file given relative to the test file's folder, and raises GitopsError.
    """
    found = Diagnostics()
    if not (file.tests or file.samples or file.audits):
        return BoundFile(file), found
    graph = _graph_of(file, graphs, found)
    if graph is None:
        return BoundFile(file), found
    binder = _Binder(file, graph, read, found)
    tests = [binder.test(each) for each in file.tests]
    samples = [binder.sample(each) for each in file.samples]
    audits = [binder.audit(each) for each in file.audits]
    if found.has_errors:
        return BoundFile(file), found
    return BoundFile(file, *(tuple(filter(None, each)) for each in (tests, samples, audits))), found  # type: ignore[arg-type]


def _graph_of(file: QueryTestFile, graphs: Mapping[str, GraphUnderTest], found: Diagnostics) -> GraphUnderTest | None:
    if file.graph is not None:
        if file.graph.text in graphs:
            return graphs[file.graph.text]
        message = f"the graph '{shown(file.graph.text)}' is not declared{choices(file.graph.text, graphs)}"
        found.add(Code.TEST_SUBJECT_UNKNOWN, file.path, message, source=file.place(file.graph))
    elif len(graphs) == 1:
        return next(iter(graphs.values()))
    elif graphs:
        message = f"the folder has {len(graphs)} graphs, and the file does not say which one it tests"
        fix = f"add the line graph: {min(graphs)}, or another one of {', '.join(sorted(graphs)[:10])}"
        found.add(Code.TEST_GRAPH_AMBIGUOUS, file.path, message, source=SourceRef(file.path, 1, 1), fix=fix)
    else:
        found.add(Code.TEST_SUBJECT_UNKNOWN, file.path, "the folder declares no graph", source=SourceRef(file.path))
    return None


class _Binder:
    """Binds one file."""

    def __init__(
        self, file: QueryTestFile, graph: GraphUnderTest, read: Callable[[str], bytes], found: Diagnostics
    ) -> None:
        self._file = file
        self._graph = graph
        self._found = found
        self._fixtures = _Fixtures(file, graph, read, found)

    def test(self, test: QueryTest) -> BoundTest | None:
        """Return a bound test, or None after reporting problems."""
        query = self._query(test.query)
        fixture = self._fixtures.data(test.fixture)
        if query is None or fixture is None:
            return None
        job = self._job(query, test.params, test.expect, test.id)
        states = [self._state(query, each, test.id) for each in test.state]
        if job is None or None in states:
            return None
        source = self._graph.query_source(query.name)
        return BoundTest(
            id=f"{self._file.path}::{test.id}",
            graph=self._graph.name,
            query=query.name,
            at=self._file.place(test.node),
            expect_at=self._file.place(test.expect.place),
            fixture=fixture,
            query_digest=digest(source),
            job={**job, "query": source.decode(), "name": query.name, "state": states, "now": self._now()},
            test=test,
        )

    def sample(self, sample: QuerySample) -> BoundSample | None:
        """Return bound parameters, or None after reporting problems."""
        query = self._query(sample.query)
        params = None if query is None else self._params(query, sample.params, sample.query, "samples")
        return None if query is None or params is None else BoundSample(self._graph.name, query.name, params)

    def audit(self, audit: DataAudit) -> BoundAudit | None:
        """Return a bound audit, or None after reporting problems."""
        query = self._query(audit.query)
        if query is None:
            return None
        if query.kind is QueryEffect.MUTATION:
            self._report(Code.TEST_FILE_INVALID, audit.query, f"audit '{audit.id}': {query.name} is a mutation")
            return None
        job = self._job(query, audit.params, audit.expect, audit.id)
        if job is None:
            return None
        place, source = self._file.place(audit.node), self._graph.query_source(query.name)
        job = {**job, "query": source.decode()}
        return BoundAudit(audit.id, self._graph.name, query.name, place, job, audit.severity)

    def _now(self) -> str:
        return moment_text(self._file.now)

    def _query(self, name: YamlScalar) -> CheckedQuery | None:
        found = self._graph.queries.get(name.text)
        if found is None:
            known = choices(name.text, self._graph.queries)
            message = f"the graph {self._graph.name} has no query '{shown(name.text)}'{known}"
            self._report(Code.TEST_SUBJECT_UNKNOWN, name, message)
        return found

    def _job(self, query: CheckedQuery, given: Params, expect: Expectation, label: str) -> dict[str, Any] | None:
        params = self._params(query, given, expect.place, label)
        expected = self._expected(query, expect, label)
        if params is None or expected is None:
            return None
        return {"params": params, "mutates": query.kind is QueryEffect.MUTATION, "expect": expected}

    def _params(self, query: CheckedQuery, given: Params, place: YamlNode, label: str) -> dict[str, Any] | None:
        values, ok = {}, True
        for name, node in given:
            kind = query.params.get(name.text)
            if kind is None:
                known = choices(name.text, query.params)
                self._report(
                    Code.TEST_SUBJECT_UNKNOWN, name, f"{query.name} has no parameter '{shown(name.text)}'{known}"
                )
                ok = False
                continue
            try:
                values[name.text] = read_value(node, kind)
            except ValueTypeError as error:
                self._wrong_type(error, f"{label}, parameter {name.text}")
                ok = False
        missing = [name for name, kind in query.params.items() if name not in values and not kind.nullable]
        if ok and missing:
            message = f"{label}: the parameter {missing[0]} of {query.name} is missing"
            self._report(Code.TEST_FILE_INVALID, place, message, fix=f"add it to params: {{{missing[0]}: VALUE}}")
        return values if ok and not missing else None

    def _expected(self, query: CheckedQuery, expect: Expectation, label: str) -> dict[str, Any] | None:
        """Return the expectation as JSON for the worker."""
        mutates = query.kind is QueryEffect.MUTATION
        if mutates is not (expect.form is ExpectForm.AFFECTED) and expect.form is not ExpectForm.ERROR:
            fix = "expect affected or error" if mutates else "expect rows, ordered, bag, contains, count or error"
            message = f"{label}: {query.name} is a {query.kind.value}, which has no {expect.form.value}"
            self._report(Code.TEST_FILE_INVALID, expect.place, message, fix=fix)
            return None
        read = {
            ExpectForm.COUNT: self._count,
            ExpectForm.AFFECTED: self._affected,
            ExpectForm.ERROR: self._error_code,
        }.get(expect.form, lambda node: self._rows(query, expect, node, label))
        value = read(expect.value)
        if value is None:
            return None
        form = expect.form.value
        if expect.form is ExpectForm.ROWS:
            form = "ordered" if isinstance(query.body, typed.TypedRead) and query.body.order else "bag"
        return {"form": form, "value": value, "tolerance": expect.tolerance}

    def _count(self, node: YamlNode) -> dict[str, int] | None:
        if isinstance(node, YamlMap):
            return self._numbers(node, BOUND_KEYS)
        number = _natural(node)
        if number is None:
            self._report(Code.TEST_FILE_INVALID, node, "count: expected a number of rows, or {min, max}")
            return None
        return {"min": number, "max": number}

    def _affected(self, node: YamlNode) -> dict[str, int] | None:
        return self._numbers(node, AFFECTED_KEYS)

    def _numbers(self, node: YamlNode, keys: Mapping[str, str]) -> dict[str, int] | None:
        known = " and ".join(keys)
        if not isinstance(node, YamlMap) or not node.entries:
            self._report(Code.TEST_FILE_INVALID, node, f"expected a mapping with {known}")
            return None
        values = {}
        for key, value in node.entries:
            number = _natural(value)
            if key.text not in keys or number is None:
                self._report(Code.TEST_FILE_INVALID, value, f"{shown(key.text)}: expected only numbers for {known}")
                return None
            values[key.text] = number
        return values

    def _error_code(self, node: YamlNode) -> str | None:
        known = [code.value for code, entry in REGISTRY.items() if entry.severity is Severity.ERROR]
        if isinstance(node, YamlScalar) and node.text in known:
            return node.text
        text = node.text if isinstance(node, YamlScalar) else ""
        # There are too many codes to compare with all of them.
        near = did_you_mean(text, [code for code in known if code[:3] == text[:3]])
        message = f"error: '{shown(text)}' is not an error code" + (f"; {near}" if near else "")
        self._report(Code.TEST_SUBJECT_UNKNOWN, node, message)
        return None

    def _rows(
        self, query: CheckedQuery, expect: Expectation, node: YamlNode, label: str
    ) -> list[dict[str, Any]] | None:
        types = {column.column: column.type or _TEXT for column in query.columns}
        where = f"{label}, column"
        return self._row_list(node, types, where, partial=expect.form is ExpectForm.CONTAINS, whole=query.name)

    def _row_list(
        self, node: YamlNode, types: Mapping[str, PropType], where: str, *, partial: bool, whole: str
    ) -> list[dict[str, Any]] | None:
        if not isinstance(node, YamlList):
            self._report(Code.TEST_FILE_INVALID, node, "expected a list of rows", fix="write [{COLUMN: VALUE}], or []")
            return None
        rows = [self._row(each, types, where, partial=partial, whole=whole) for each in node.items]
        return None if None in rows else [row for row in rows if row is not None]

    def _row(
        self, node: YamlNode, types: Mapping[str, PropType], where: str, *, partial: bool, whole: str
    ) -> dict[str, Any] | None:
        if not isinstance(node, YamlMap):
            self._report(Code.TEST_FILE_INVALID, node, "expected a row, such as {COLUMN: VALUE}")
            return None
        cells, ok = {}, True
        for name, value in node.entries:
            if name.text not in types:
                message = f"{whole} has no column '{shown(name.text)}'{choices(name.text, types)}"
                self._report(Code.TEST_SUBJECT_UNKNOWN, name, message)
                ok = False
                continue
            try:
                cells[name.text] = _cell(value, types[name.text])
            except ValueTypeError as error:
                self._wrong_type(error, f"{where} {name.text}")
                ok = False
        left_out = [name for name in types if name not in cells]
        if ok and left_out and not partial:
            message = f"the row leaves out the column {', '.join(left_out)}"
            fix = f"add {left_out[0]}: VALUE, or {left_out[0]}: {{$any: true}}; in contains, columns can be left out"
            self._report(Code.TEST_FILE_INVALID, node, message, fix=fix)
            return None
        return cells if ok else None

    def _state(self, query: CheckedQuery, state: TypeState, label: str) -> dict[str, Any] | None:
        """Return what a graph must contain of a type, as JSON for the worker."""
        declared = _type(self._graph.catalog, state.type_name.text)
        if declared is None:
            self._report(Code.TEST_SUBJECT_UNKNOWN, state.type_name, _unknown_type(self._graph, state.type_name.text))
            return None
        if query.kind is not QueryEffect.MUTATION:
            self._report(Code.TEST_FILE_INVALID, state.type_name, f"{label}: {query.name} changes nothing; omit state")
            return None
        types = {**(_ENDS if isinstance(declared, EdgeType) else {}), **declared.properties}
        rows = {
            key: [
                self._row(node, types, f"{label}, property", partial=True, whole=declared.name)
                for node in getattr(state, key)
            ]
            for key in ("has", "lacks")
        }
        if None in rows["has"] or None in rows["lacks"]:
            return None
        return {"type": declared.name, "edge": isinstance(declared, EdgeType), "count": state.count, **rows}

    def _wrong_type(self, error: ValueTypeError, where: str) -> None:
        self._report(Code.TEST_VALUE_TYPE, error.node, f"{where}: {error.message}", fix=error.fix)

    def _report(self, code: Code, node: YamlNode, message: str, fix: str | None = None) -> None:
        self._found.add(code, self._file.path, message, source=self._file.place(node), fix=fix)


class _Fixtures:
    """The fixtures of a file, each read once."""

    def __init__(
        self, file: QueryTestFile, graph: GraphUnderTest, read: Callable[[str], bytes], found: Diagnostics
    ) -> None:
        self._file = file
        self._graph = graph
        self._read = read
        self._found = found
        self._known: dict[str | None, FixtureData | None] = {}

    def data(self, name: YamlScalar | None) -> FixtureData | None:
        """Return the records of a fixture; None after reporting problems."""
        key = None if name is None else name.text
        if key not in self._known:
            self._known[key] = self._make(name)
        return self._known[key]

    def _make(self, name: YamlScalar | None) -> FixtureData | None:
        records: list[tuple[str, SourceRef]] = []
        for fixture in reversed(self._chain(name)) if name is not None else ():
            if fixture is None:
                return None
            for record, place in self._records(fixture):
                records.append((record, place))
                if len(records) > MAX_ROWS:
                    self._report(fixture.name, f"the fixture has more than {MAX_ROWS} records")
                    return None
        if sum(len(record) for record, _ in records) > MAX_BYTES:
            self._report(name or _NOWHERE, f"the fixture has more than {MAX_BYTES} bytes")
            return None
        if self._found.has_errors:
            return None
        schema = self._graph.schema_source
        lines = tuple(record for record, _ in records)
        return FixtureData(
            digest=canonical_digest([digest(schema), digest("\n".join(lines).encode())]),
            schema=schema.decode(),
            records=lines,
            places=tuple(place for _, place in records),
        )

    def _chain(self, name: YamlScalar) -> list[Fixture | None]:
        """Return a fixture and those that it extends, itself first; None stands for one that does not exist."""
        chain: list[Fixture | None] = []
        at: YamlScalar | None = name
        while at is not None:
            fixture = self._file.fixtures.get(at.text)
            if fixture is None:
                known = choices(at.text, self._file.fixtures)
                self._report(at, f"the file has no fixture '{shown(at.text)}'{known}")
            elif fixture in chain:
                self._report(at, f"the fixture {shown(at.text)} extends itself")
                fixture = None
            chain.append(fixture)
            at = None if fixture is None else fixture.origin
        return chain

    def _records(self, fixture: Fixture) -> Iterator[tuple[str, SourceRef]]:
        for type_name, rows in fixture.rows:
            declared = _type(self._graph.catalog, type_name.text)
            if declared is None:
                self._report(type_name, _unknown_type(self._graph, type_name.text))
                continue
            for row in rows:
                record = self._record(declared, row, fill=fixture.fill)
                if record is not None:
                    yield json.dumps(record, ensure_ascii=False), self._file.place(row)
        for name in fixture.files:
            try:
                lines = self._read(name.text).decode().splitlines()
            except GitopsError as error:
                self._report(name, error.detail)
            except UnicodeDecodeError:
                self._report(name, f"{shown(name.text)} is not UTF-8")
            else:
                place = self._file.place(name)
                yield from ((line, place) for line in lines if line.strip())

    def _record(self, declared: NodeType | EdgeType, row: YamlNode, *, fill: bool) -> dict[str, Any] | None:
        """Return a row as a record for the loader."""
        if not isinstance(row, YamlMap):
            self._report(row, f"expected a row of {declared.name}, such as {{PROPERTY: VALUE}}")
            return None
        ends = _ENDS if isinstance(declared, EdgeType) else {}
        types, values, ok = {**ends, **declared.properties}, {}, True
        for name, node in row.entries:
            if name.text not in types:
                message = f"{declared.name} has no property '{shown(name.text)}'{choices(name.text, types)}"
                self._report(name, message)
                ok = False
                continue
            try:
                values[name.text] = read_value(node, types[name.text])
            except ValueTypeError as error:
                where = f"{declared.name}.{name.text}: {error.message}"
                place = self._file.place(error.node)
                self._found.add(Code.TEST_VALUE_TYPE, self._file.path, where, source=place, fix=error.fix)
                ok = False
        given = set(values) | {name.text for name, _ in row.entries}
        for left_out in sorted(set(_required(declared)) - given):
            value = None if not fill or left_out in _never_filled(declared) else filled(types[left_out])
            if value is None:
                key = "the key " if isinstance(declared, NodeType) and left_out in (declared.key or ()) else ""
                fix = f"add {left_out}: VALUE" + ("" if fill or key else ", or fill: required to the fixture")
                self._report(row, f"the row of {declared.name} leaves out {key}{left_out}", fix=fix)
                ok = False
            else:
                values[left_out] = value
        if not ok:
            return None
        data = {name: value for name, value in values.items() if name not in ends}
        if isinstance(declared, NodeType):
            return {"type": declared.name, "data": data}
        return {"edge": declared.name, "from": values["from"], "to": values["to"], "data": data}

    def _report(self, node: YamlNode, message: str, fix: str | None = None) -> None:
        self._found.add(Code.TEST_FIXTURE_INVALID, self._file.path, message, source=self._file.place(node), fix=fix)


def _type(catalog: Catalog, name: str) -> NodeType | EdgeType | None:
    return catalog.nodes.get(name) or catalog.edges.get(name)


def _unknown_type(graph: GraphUnderTest, name: str) -> str:
    known = (*graph.catalog.nodes, *graph.catalog.edges)
    return f"the schema of {graph.name} has no type '{shown(name)}'{choices(name, known)}"


def _required(declared: NodeType | EdgeType) -> list[str]:
    """Return what a row must state. The loader computes the vectors of embedded properties."""
    embeds = declared.embeds if isinstance(declared, NodeType) else {}
    ends = list(_ENDS) if isinstance(declared, EdgeType) else []
    return ends + [name for name, kind in declared.properties.items() if not kind.nullable and name not in embeds]


def _never_filled(declared: NodeType | EdgeType) -> set[str]:
    key = declared.key or () if isinstance(declared, NodeType) else tuple(_ENDS)
    return {*key, *(name for group in declared.unique for name in group)}


def _cell(node: YamlNode, kind: PropType) -> list[Any]:
    """Return an expected cell for `compare`. Raises ValueTypeError."""
    if isinstance(node, YamlMap):
        (key, value), *more = node.entries or ((YamlScalar("", ScalarType.NULL, node.line, node.column), node),)
        if more or key.text not in MATCHER_KEYS:
            raise ValueTypeError(node, f"expected a value or one matcher of {', '.join(MATCHER_KEYS)}")
        if key.text == "$any":
            if not (isinstance(value, YamlScalar) and value.type is ScalarType.BOOL and value.text.lower() == "true"):
                raise ValueTypeError(value, "expected $any: true")
            return ["any"]
        if key.text == "$regex":
            return ["regex", _pattern(value, kind)]
        node = value
    return ["is", read_value(node, kind, finite=False)]


def _pattern(node: YamlNode, kind: PropType) -> str:
    if kind.scalar is not Scalar.STRING and kind.scalar not in (Scalar.DATE, Scalar.DATETIME):
        raise ValueTypeError(node, f"$regex matches text, and this is {kind}")
    if not isinstance(node, YamlScalar) or node.type is not ScalarType.TEXT:
        raise ValueTypeError(node, "expected a regular expression as text", "put it in quotes")
    if len(node.text) > _MAX_PATTERN:
        raise ValueTypeError(node, f"the regular expression has more than {_MAX_PATTERN} characters")
    try:
        re.compile(node.text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueTypeError(node, f"not a regular expression: {error}") from None
    return node.text


def _natural(node: YamlNode) -> int | None:
    if isinstance(node, YamlScalar) and node.type is ScalarType.INT and node.text.isdecimal():
        return int(node.text)
    return None


def grouped(tests: Sequence[BoundTest]) -> Mapping[str, list[BoundTest]]:
    """Return the tests by the digest of their fixture, in order."""
    groups: dict[str, list[BoundTest]] = {}
    for each in tests:
        groups.setdefault(each.fixture.digest, []).append(each)
    return groups


def has_matchers(expect: Expectation) -> bool:
    """Return whether an expectation contains matchers, which an update must not replace."""
    rows = expect.value.items if expect.form in ROW_FORMS and isinstance(expect.value, YamlList) else ()
    return any(isinstance(value, YamlMap) for row in rows if isinstance(row, YamlMap) for _, value in row.entries)
