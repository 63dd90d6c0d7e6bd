"""Reads a test file `*.test.yaml` strictly, without the schemas that its values depend on.

Each part keeps its place. What a value means depends on the declared type, so values stay YAML nodes until `bind`.
Policy cases are read by the reader that validation uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum

from gitops.cluster.policy.cases import Case, CaseReader, read_top
from gitops.cluster.policy.read import NodeReader, what
from gitops.cluster.policy.test_keys import (
    AUDIT_KEYS,
    FIXTURE_KEYS,
    QUERY_EXPECT_KEYS,
    QUERY_TEST_KEYS,
    SAMPLE_KEYS,
    STATE_KEYS,
)
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity, SourceRef
from gitops.database.language.yaml import ScalarType, YamlMap, YamlNode, YamlScalar, shown

SUFFIX = ".test.yaml"
MAX_TESTS = 2_000
"""Largest number of tests, samples, audits or cases in one file."""
DEFAULT_NOW = datetime(2000, 1, 1, tzinfo=UTC)


class ExpectForm(StrEnum):
    """The forms of an expectation, named after their keys."""

    ROWS = "rows"
    ORDERED = "ordered"
    BAG = "bag"
    CONTAINS = "contains"
    COUNT = "count"
    AFFECTED = "affected"
    ERROR = "error"


_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_FORMS = frozenset(form.value for form in ExpectForm)
ROW_FORMS = frozenset({ExpectForm.ROWS, ExpectForm.ORDERED, ExpectForm.BAG, ExpectForm.CONTAINS})


@dataclass(frozen=True, slots=True)
class Fixture:
    """A named fixture. `origin` is the fixture that it extends. `rows` are pairs of a type's name and its rows."""

    name: YamlScalar
    origin: YamlScalar | None = None
    rows: tuple[tuple[YamlScalar, tuple[YamlNode, ...]], ...] = ()
    files: tuple[YamlScalar, ...] = ()
    fill: bool = False


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation: `value` in the form of the key at `place`. `tolerance` is relative."""

    form: ExpectForm
    place: YamlScalar
    value: YamlNode
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class TypeState:
    """The expected rows of a type after a mutation. A `count` of None is not compared."""

    type_name: YamlScalar
    count: int | None = None
    has: tuple[YamlNode, ...] = ()
    lacks: tuple[YamlNode, ...] = ()


Params = tuple[tuple[YamlScalar, YamlNode], ...]


@dataclass(frozen=True, slots=True)
class QueryTest:
    """A test of a stored query, which starts at `node`."""

    id: str
    node: YamlNode
    query: YamlScalar
    expect: Expectation
    fixture: YamlScalar | None = None
    params: Params = ()
    state: tuple[TypeState, ...] = ()


@dataclass(frozen=True, slots=True)
class QuerySample:
    """Parameters with which a preview runs a query."""

    query: YamlScalar
    params: Params


@dataclass(frozen=True, slots=True)
class DataAudit:
    """A query with an expected result on the live data."""

    id: str
    node: YamlNode
    query: YamlScalar
    expect: Expectation
    params: Params = ()
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True)
class QueryTestFile:
    """A test file. `digest` covers its bytes, and `graph` is the scalar with its graph, if it has one."""

    path: str
    digest: str
    graph: YamlScalar | None
    now: datetime
    fixtures: Mapping[str, Fixture]
    tests: tuple[QueryTest, ...]
    samples: tuple[QuerySample, ...]
    audits: tuple[DataAudit, ...]
    cases: tuple[Case, ...]

    def place(self, node: YamlNode) -> SourceRef:
        """Return a node's place."""
        return SourceRef(self.path, node.line, node.column)


def read_test_file(data: bytes, path: str) -> tuple[QueryTestFile | None, Diagnostics]:
    """Return a test file and its problems (`test_file_invalid`). Returns no file if it has an error."""
    found = Diagnostics()
    nodes = NodeReader(path, path, Code.TEST_FILE_INVALID, found)
    root = nodes.parse(data)
    file = None if root is None else _FileReader(nodes, path, digest(data)).file(root)
    return None if found.has_errors else file, found


class _FileReader:
    """Reads one file."""

    def __init__(self, nodes: NodeReader, path: str, file_digest: str) -> None:
        self._nodes = nodes
        self._path = path
        self._digest = file_digest

    def file(self, root: YamlNode) -> QueryTestFile:
        """Return the file, which is usable if no error was reported."""
        nodes = self._nodes
        top, _ = read_top(nodes, root)
        graph = top.get("graph")
        fixtures = {
            name.text: self._fixture(name, node, f"fixtures.{shown(name.text)}")
            for name, node in (nodes.entries(top["fixtures"], "fixtures") if "fixtures" in top else ())
        }
        tests = [self._test(node, at) for at, node in self._listed(top, "tests")]
        audits = [self._audit(node, at) for at, node in self._listed(top, "audits")]
        for each in (*tests, *audits):
            if each is not None and not is_id(each.id):
                nodes.wrong(each.node, "id", f"'{shown(each.id)}' is not an id: use letters, digits, '.', '_' and '-'")
        for kind, group in (("test", tests), ("audit", audits)):
            seen: set[str] = set()
            for each in group:
                if each is not None and each.id in seen:
                    nodes.wrong(each.node, "id", f"the {kind} '{shown(each.id)}' exists already in this file")
                seen.add("" if each is None else each.id)
        self._listed(top, "cases")
        return QueryTestFile(
            path=self._path,
            digest=self._digest,
            graph=graph if isinstance(graph, YamlScalar) else None,
            now=self._now(top["now"]) if "now" in top else DEFAULT_NOW,
            fixtures=fixtures,
            tests=tuple(each for each in tests if each is not None),
            samples=tuple(filter(None, (self._sample(node, at) for at, node in self._listed(top, "samples")))),
            audits=tuple(each for each in audits if each is not None),
            cases=CaseReader(nodes, graph.text if isinstance(graph, YamlScalar) else None).cases(top["cases"])
            if "cases" in top
            else (),
        )

    def _listed(self, top: Mapping[str, YamlNode], key: str) -> tuple[tuple[str, YamlNode], ...]:
        items = self._nodes.items(top[key], key) if key in top else ()
        if len(items) > MAX_TESTS:
            message = f"the list has {len(items)} items; at most {MAX_TESTS} are read"
            self._nodes.wrong(top[key], key, message, fix="split the file")
        return items[:MAX_TESTS]

    def _now(self, node: YamlNode) -> datetime:
        text = self._nodes.text(node, "now")
        found = parse_timestamp(text)
        if text and found is None:
            self._nodes.wrong(node, "now", f"'{shown(text)}' is not a time", fix="write it as 2026-01-31T12:00:00Z")
        return found or DEFAULT_NOW

    def _fixture(self, name: YamlScalar, node: YamlNode, at: str) -> Fixture:
        nodes = self._nodes
        fields = nodes.fields(node, at, FIXTURE_KEYS)
        rows = nodes.entries(fields["rows"], f"{at}.rows", "TYPE") if "rows" in fields else ()
        files = nodes.items(fields["files"], f"{at}.files") if "files" in fields else ()
        if "fill" in fields and nodes.text(fields["fill"], f"{at}.fill") not in ("", "required"):
            nodes.wrong(fields["fill"], f"{at}.fill", "the only value is required")
        return Fixture(
            name=name,
            origin=self._name(fields, "from", at),
            rows=tuple(
                (key, tuple(row for _, row in nodes.items(value, f"{at}.rows.{shown(key.text)}")))
                for key, value in rows
            ),
            files=tuple(each for place, item in files if (each := self._scalar(item, place)) is not None),
            fill="fill" in fields,
        )

    def _test(self, node: YamlNode, at: str) -> QueryTest | None:
        nodes = self._nodes
        fields = nodes.fields(node, at, QUERY_TEST_KEYS, required=("id", "query", "expect"))
        query, expect = self._name(fields, "query", at), self._expectation(fields, at)
        states = nodes.entries(fields["state"], f"{at}.state", "TYPE") if "state" in fields else ()
        state = tuple(self._state(name, value, f"{at}.state.{shown(name.text)}") for name, value in states)
        if query is None or expect is None or "id" not in fields:
            return None
        test_id = nodes.text(fields["id"], f"{at}.id")
        fixture = self._name(fields, "fixture", at)
        return QueryTest(test_id, node, query, expect, fixture, self._params(fields, at), state)

    def _sample(self, node: YamlNode, at: str) -> QuerySample | None:
        fields = self._nodes.fields(node, at, SAMPLE_KEYS, required=("query",))
        query = self._name(fields, "query", at)
        return None if query is None else QuerySample(query, self._params(fields, at))

    def _audit(self, node: YamlNode, at: str) -> DataAudit | None:
        nodes = self._nodes
        fields = nodes.fields(node, at, AUDIT_KEYS, required=("id", "query", "expect"))
        query, expect = self._name(fields, "query", at), self._expectation(fields, at)
        severity = nodes.one_of(Severity, fields["severity"], f"{at}.severity") if "severity" in fields else None
        if query is None or expect is None or "id" not in fields:
            return None
        audit_id = nodes.text(fields["id"], f"{at}.id")
        return DataAudit(audit_id, node, query, expect, self._params(fields, at), severity or Severity.ERROR)

    def _expectation(self, fields: Mapping[str, YamlNode], at: str) -> Expectation | None:
        if "expect" not in fields:
            return None
        nodes, node, where = self._nodes, fields["expect"], f"{at}.expect"
        inner = nodes.fields(node, where, QUERY_EXPECT_KEYS)
        chosen = [key for key, _ in nodes.entries(node, where) if key.text in _FORMS]
        if len(chosen) != 1:
            what_is = "none is written" if not chosen else f"{', '.join(key.text for key in chosen)} are written"
            if isinstance(node, YamlMap):
                nodes.wrong(node, where, f"expected one of {', '.join(form.value for form in ExpectForm)}; {what_is}")
            return None
        tolerance = self._tolerance(inner["tolerance"], f"{where}.tolerance") if "tolerance" in inner else None
        return Expectation(ExpectForm(chosen[0].text), chosen[0], inner[chosen[0].text], tolerance)

    def _tolerance(self, node: YamlNode, at: str) -> float | None:
        if isinstance(node, YamlScalar) and node.type in (ScalarType.INT, ScalarType.FLOAT):
            try:
                found = float(node.text)
            except ValueError:
                found = -1.0
            if 0 <= found <= 1:
                return found
        self._nodes.wrong(node, at, f"expected a number from 0 to 1, got {what(node)}")
        return None

    def _state(self, name: YamlScalar, node: YamlNode, at: str) -> TypeState:
        nodes = self._nodes
        fields = nodes.fields(node, at, STATE_KEYS)
        count = nodes.number(fields["count"], f"{at}.count") if "count" in fields else ""
        rows = {
            key: tuple(item for _, item in nodes.items(fields[key], f"{at}.{key}")) if key in fields else ()
            for key in ("has", "lacks")
        }
        return TypeState(name, int(count) if count.isdecimal() else None, rows["has"], rows["lacks"])

    def _params(self, fields: Mapping[str, YamlNode], at: str) -> Params:
        return self._nodes.entries(fields["params"], f"{at}.params") if "params" in fields else ()

    def _name(self, fields: Mapping[str, YamlNode], key: str, at: str) -> YamlScalar | None:
        return self._scalar(fields[key], f"{at}.{key}") if key in fields else None

    def _scalar(self, node: YamlNode, at: str) -> YamlScalar | None:
        """Return a text's node, or None after reporting that it is none."""
        self._nodes.text(node, at)
        return node if isinstance(node, YamlScalar) and node.type is ScalarType.TEXT else None


def is_id(text: str) -> bool:
    """Return whether a text can be the id of a test: it is shown, selected by pattern, and part of JUnit names."""
    return _ID.fullmatch(text) is not None
