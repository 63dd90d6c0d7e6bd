"""Finds the test files of a cluster folder, binds them to what the folder declares, and selects tests.

A file below one of the repository's test folders (`tests.paths` in gitops.yaml) belongs to every cluster; its path is
shown relative to the cluster folder, like all paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from posixpath import dirname, join, normpath, relpath
from typing import NamedTuple

from gitops.cluster.config.load import decides_cases_of, enforced_by, load_desired
from gitops.cluster.config.loader import LoadedPolicy
from gitops.cluster.config.source import PathKind, SourceError, SourceTree
from gitops.cluster.model.address import Address, query_address, schema_address
from gitops.cluster.model.resource import DesiredState, GraphDeclaration
from gitops.cluster.policy.cases import Guarded, failures, read_cases, rules_met, scopes_of
from gitops.core.canonical import canonical_digest, digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity, SourceRef
from gitops.core.errors import GitopsError
from gitops.database.language.query import CheckedQuery, query_texts
from gitops.database.language.schema import Catalog
from gitops.review.tests.bind import BoundAudit, BoundFile, BoundSample, BoundTest, bind_file
from gitops.review.tests.format import SUFFIX, read_test_file
from gitops.review.tests.verdicts import QueryTestCoverage, QueryTestResult, QueryTestVerdict

MAX_RUN = 10_000
"""Largest number of tests in one run."""
_MAX_DEPTH = 16
_MAX_FOLDERS = 20_000
# A local storage root below the cluster folder has the ledger and graphs, which can have any number of files.
_DATA = ("__cluster",)
_DATA_SUFFIX = ".omni"


class GraphSubject:
    """A graph that a cluster folder declares, as tests need it."""

    def __init__(self, name: str, desired: DesiredState) -> None:
        self.name = name
        self._declared: GraphDeclaration = desired.graphs[name]
        self._desired = desired
        self._sources: dict[bytes, Mapping[str, bytes]] = {}

    @property
    def catalog(self) -> Catalog:
        """Its checked schema."""
        if self._declared.schema is None:
            raise KeyError(self.name)
        return self._declared.schema.catalog

    @property
    def schema_source(self) -> bytes:
        """The text of its schema."""
        return self._desired.resources[schema_address(self.name)].content or b""

    @property
    def queries(self) -> Mapping[str, CheckedQuery]:
        """Its stored queries."""
        return self._declared.queries

    def query_source(self, name: str) -> bytes:
        """Return the text of one query."""
        content = self._desired.resources[query_address(self.name, name)].content or b""
        if content not in self._sources:
            # A file has many queries, and each of them many tests.
            self._sources[content] = query_texts(content)
        return self._sources[content][name]


class FoundFile(NamedTuple):
    """A test file: where it is in which tree, and its path relative to the cluster folder."""

    tree: SourceTree
    path: str
    shown: str


@dataclass(frozen=True, slots=True)
class QueryTestFolders:
    """The folders that are searched for tests: the cluster folder, and test folders elsewhere in the repository's tree.

    `cluster_path` is the path of the cluster folder in that tree.
    """

    cluster: SourceTree
    repository: SourceTree | None = None
    paths: tuple[str, ...] = ()
    cluster_path: str = "."

    def files(self, found: Diagnostics) -> Iterator[FoundFile]:
        """Yield the test files, each once. Reports folders that cannot be searched."""
        seen = set()
        for path in _search(self.cluster, ".", found):
            seen.add(path)
            yield FoundFile(self.cluster, path, path)
        yield from (each for each in self.outside(found) if each.shown not in seen)

    def outside(self, found: Diagnostics) -> Iterator[FoundFile]:
        """Yield the files of the test folders, each once. Reports folders that cannot be searched."""
        seen = set()
        for folder in self.paths if self.repository is not None else ():
            for path in _search(self.repository, normpath(folder), found) if self.repository is not None else ():
                shown = relpath(path, self.cluster_path)
                if shown not in seen and self.repository is not None:
                    seen.add(shown)
                    yield FoundFile(self.repository, path, shown)


def _search(tree: SourceTree, start: str, found: Diagnostics) -> Iterator[str]:
    """Yield the test files below a folder, in order of their paths."""
    waiting, visited = [(start, 0)], 0
    while waiting:
        folder, depth = waiting.pop(0)
        visited += 1
        try:
            if visited > _MAX_FOLDERS or tree.kind(folder) is not PathKind.DIR:
                continue
            names = tree.names(folder)
        except SourceError as error:
            message = f"the folder is not searched for tests: {error.detail}"
            found.add(error.code, folder, message, severity=Severity.WARNING)
            continue
        inner = []
        for name in names:
            path = name if folder == "." else f"{folder}/{name}"
            if name.startswith(".") or name in _DATA or name.endswith(_DATA_SUFFIX):
                continue
            try:
                kind = tree.kind(path)
            except SourceError:
                continue  # a link or a submodule, which no test is in
            if kind is PathKind.DIR and depth < _MAX_DEPTH:
                inner.append((path, depth + 1))
            elif name.endswith(SUFFIX) and name != SUFFIX:
                yield path
        waiting = [*inner, *waiting]


@dataclass(frozen=True, slots=True)
class CollectedTests:
    """The tests of a cluster folder, and the `problems` of their files. A file with an error has no tests here."""

    files: tuple[BoundFile, ...]
    problems: Diagnostics
    desired: DesiredState
    policies: tuple[LoadedPolicy, ...]

    @property
    def tests(self) -> tuple[BoundTest, ...]:
        """All tests of queries."""
        return tuple(test for file in self.files for test in file.tests)

    @property
    def samples(self) -> tuple[BoundSample, ...]:
        """All parameters for previews."""
        return tuple(sample for file in self.files for sample in file.samples)

    @property
    def audits(self) -> tuple[BoundAudit, ...]:
        """All audits of live data."""
        return tuple(audit for file in self.files for audit in file.audits)


def collect_tests(
    folders: QueryTestFolders,
    desired: DesiredState,
    policies: Iterable[LoadedPolicy],
    wanted: Callable[[str], bool] = lambda _: True,
) -> CollectedTests:
    """Read and bind the test files whose paths are `wanted`."""
    problems, files = Diagnostics(), []
    graphs = {name: GraphSubject(name, desired) for name in desired.graphs}
    for each in folders.files(problems):
        if not wanted(each.shown):
            continue
        try:
            data = each.tree.read(each.path)
        except SourceError as error:
            problems.add(Code.TEST_FILE_INVALID, each.shown, error.detail, source=SourceRef(each.shown))
            continue
        file, found = read_test_file(data, each.shown)
        if file is not None:
            bound, more = bind_file(file, graphs, _beside(each))
            files.append(bound)
            found.extend(more)
        problems.extend(found)
    return CollectedTests(tuple(files), problems, desired, tuple(policies))


def _beside(file: FoundFile) -> Callable[[str], bytes]:
    """Return a function that reads files relative to a test file. Paths out of the tree, and links, are refused."""

    def read(path: str) -> bytes:
        if path.startswith("/"):
            raise GitopsError(Code.TEST_FIXTURE_INVALID, f"{path} is absolute; write it relative to this file")
        return file.tree.read(join(dirname(file.path) or ".", path))

    return read


def id_matches(test_id: str, pattern: str) -> bool:
    """Return whether a whole id, or its part after the file, matches a glob."""
    return fnmatchcase(test_id, pattern) or fnmatchcase(test_id.rpartition("::")[2], pattern)


def versions(collected: CollectedTests) -> dict[str, str]:
    """Return a digest of everything that a test's or case's verdict depends on, by id.

    For a test these are its file, fixture, schema and query; for a case, its file and the enforced policies.
    """
    policies = canonical_digest(
        sorted([each.declared.name.value, digest(each.file.data), sorted(each.scopes)] for each in collected.policies)
    )
    found = {}
    for file in collected.files:
        for each in file.tests:
            found[each.id] = canonical_digest([file.file.digest, each.fixture.digest, each.query_digest])
        for case in file.file.cases:
            found[f"{file.file.path}::{case.id}"] = canonical_digest([file.file.digest, policies])
    return found


def changed_since(collected: CollectedTests, before: CollectedTests | None) -> frozenset[str]:
    """Return the ids of tests and cases whose verdict may have changed since an earlier state."""
    old = {} if before is None else versions(before)
    return frozenset(key for key, value in versions(collected).items() if old.get(key) != value)


def guard_of(collected: CollectedTests) -> Guarded:
    """Return the subject of a folder's policy cases."""
    desired = collected.desired

    def writes(scope: str, query: str) -> bool | None:
        found = desired.graphs[Address(scope).graph or ""].queries.get(query)
        return None if found is None else bool(found.writes)

    return Guarded(enforced_by(collected.policies), tuple(desired.graphs), writes)


def decide_cases(collected: CollectedTests, chosen: Callable[[str], bool]) -> list[QueryTestResult]:
    """Decide the policy cases whose ids are `chosen`, as validation does."""
    results = []
    guarded = guard_of(collected) if any(file.file.cases for file in collected.files) else None
    for file in collected.files if guarded is not None else ():
        for case in file.file.cases:
            case_id = f"{file.file.path}::{case.id}"
            if guarded is None or not chosen(case_id):
                continue
            problems = [*failures(case, file.file.path, guarded)]
            scopes = sorted(scope for scope in scopes_of(case, guarded) if scope is not None)
            resource, at = ", ".join(scopes) or "cluster", SourceRef(file.file.path, case.line, case.column)
            if not problems:
                results.append(QueryTestResult(case_id, resource, at, QueryTestVerdict.PASSED))
                continue
            failed = problems[0].code is Code.POLICY_TEST_FAILED
            verdict = QueryTestVerdict.FAILED if failed else QueryTestVerdict.ERROR
            begin = f"case '{case.id}': "
            message = "; ".join(each.message.removeprefix(begin) for each in problems)
            results.append(
                QueryTestResult(case_id, resource, at, verdict, 0, problems[0].code, message, problems[0].fix)
            )
    return results


def decide_other_cases(collected: CollectedTests) -> list[QueryTestResult]:
    """Decide the policy cases that validation does not decide: those outside of the folders of policies."""
    decided = {
        f"{file.file.path}::{case.id}"
        for file in collected.files
        if decides_cases_of(file.file.path, collected.policies)
        for case in file.file.cases
    }
    return decide_cases(collected, lambda case_id: case_id not in decided)


def problems_of_cases(folders: QueryTestFolders) -> Diagnostics:
    """Decide the policy cases in the test folders, and return their problems as validation would.

    A cluster folder with an error has no problems here, because nothing can be decided.
    """
    found, files = Diagnostics(), []
    for each in folders.outside(found):
        try:
            data = each.tree.read(each.path)
        except SourceError as error:
            found.add(Code.POLICY_TESTS_INVALID, each.shown, error.detail, source=SourceRef(each.shown))
            continue
        if b"cases" in data:
            files.append((each.shown, data))
    if not files:
        return found
    loaded = load_desired(folders.cluster)
    # A case of the folder itself that fails does not hide others.
    desired = loaded.desired or load_desired(folders.cluster, applied=True).desired
    if desired is None:
        return found
    guarded = guard_of(CollectedTests((), found, desired, loaded.judgement.policies))
    for shown, data in files:
        if not decides_cases_of(shown, loaded.judgement.policies):
            cases, problems = read_cases(data, shown)
            found.extend(problems)
            for case in cases:
                found.extend(failures(case, shown, guarded))
    return found


def coverage_of(collected: CollectedTests, judged: Sequence[QueryTestResult]) -> QueryTestCoverage:
    """Return the coverage of the judged tests and cases. Tests that were not run don't count."""
    ran = {each.id for each in judged if each.verdict is not QueryTestVerdict.NOT_RUN}
    queries = {
        query_address(name, query) for name, graph in collected.desired.graphs.items() for query in graph.queries
    }
    tested = {each.resource for each in collected.tests if each.id in ran}
    guarded = guard_of(collected)
    rules = {f"{place.policy}/{rule.id}" for place in guarded.enforced.values() for rule in place.bundle.rules}
    met = {
        rule
        for file in collected.files
        for case in file.file.cases
        if f"{file.file.path}::{case.id}" in ran
        for rule in rules_met(case, guarded)
    }
    return QueryTestCoverage(len(queries), tuple(sorted(queries - tested)), len(rules), tuple(sorted(rules - met)))
