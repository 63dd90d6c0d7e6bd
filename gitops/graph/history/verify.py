"""The check of a graph: every document is valid, and everything that is referred to exists.

1. The identity, the list of branches and the leases can be read.
2. Every manifest can be read; numbers of a line have no gap above its floor; each manifest names the commit before it as its
   parent.
3. Every schema has the digest of its name, compiles, and declares the tables of the versions that name it.
4. Every table opens at every version that a manifest names, with its columns and its number of rows.
5. `deep`: at the newest version of each branch ids are unique, ends of edges exist, and every rule of the schema holds.
6. Whatever is not referred to is listed as a note: it does no harm, and gc removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gitops.core.errors import GitopsError
from gitops.graph import layout
from gitops.graph.history.image import GraphImage
from gitops.graph.history.leases import read_leases
from gitops.graph.history.retention import all_lines, collect_references, purged_paths
from gitops.graph.lines import Line, read_branches, read_floor
from gitops.graph.manifest import Manifest, TableEntry, line_numbers, read_manifest
from gitops.graph.results import VerifyFinding, VerifyFindingCode, VerifyReport
from gitops.graph.snapshot import Snapshot, open_snapshot, table_keys
from gitops.graph.tables import declared_type, driver_message, key_columns, open_table
from gitops.language.schema import Catalog, EdgeType

__all__ = ["verify_graph"]


def verify_graph(uri: str, *, deep: bool = False) -> VerifyReport:
    """Check the graph at a root; changes nothing.

    Raises GitopsError `graph_missing`, and `graph_unreadable` when not even its newest version of `main` can be found.
    """
    return _Verification(open_snapshot(uri)).run(deep=deep)


class _Verification:
    """One check of a graph."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._folder = snapshot.folder
        self._store = snapshot.store
        self._findings: list[VerifyFinding] = []
        self._manifests: list[Manifest] = []
        self._catalogs: dict[str, Catalog | None] = {}

    def run(self, *, deep: bool) -> VerifyReport:
        lines = self._check_branches()
        for line_id in all_lines(self._folder):
            self._check_line(line_id)
        for line in lines:
            if not line_numbers(self._store, line.id):
                self._add(VerifyFindingCode.BRANCH_WITHOUT_VERSION, line.name, f"branch {line.name} has no version")
        for manifest in self._manifests:
            self._check_schema(manifest)
        tables = self._check_tables()
        if deep:
            for line in lines:
                self._check_rules(line)
        self._list_unreferenced(lines)
        return VerifyReport(deep, len(self._manifests), tables, tuple(self._findings))

    def _add(self, code: VerifyFindingCode, path: str, detail: str) -> None:
        self._findings.append(VerifyFinding(code, path, detail))

    def _check_branches(self) -> tuple[Line, ...]:
        """Step 1."""
        try:
            read_leases(self._store)
        except GitopsError as error:
            self._add(VerifyFindingCode.DOCUMENT_UNREADABLE, layout.LEASES, error.detail)
        try:
            return read_branches(self._store).lines()
        except GitopsError as error:
            self._add(VerifyFindingCode.DOCUMENT_UNREADABLE, layout.BRANCH_INDEX, error.detail)
            return ()

    def _check_line(self, line: str) -> None:
        """Step 2."""
        numbers = sorted(line_numbers(self._store, line))
        floor = self._read_floor(line)
        before: Manifest | None = None
        for at, n in enumerate(numbers):
            gaps = range(numbers[at - 1] + 1, n) if at else ()
            for gap in gaps:
                if gap > floor:
                    key = layout.manifest_key(gap, line)
                    self._add(
                        VerifyFindingCode.VERSION_MISSING, key, f"version {gap} is not there, and was not removed by gc"
                    )
            try:
                manifest = read_manifest(self._store, n, line)
            except GitopsError as error:
                self._add(VerifyFindingCode.MANIFEST_UNREADABLE, layout.manifest_key(n, line), error.detail)
                before = None
                continue
            self._check_parent(manifest, before)
            self._manifests.append(manifest)
            before = manifest
        if numbers and line == layout.MAIN and numbers[0] > floor + 1:
            self._add(VerifyFindingCode.VERSION_MISSING, layout.manifest_key(1), "the first versions are not there")

    def _read_floor(self, line: str) -> int:
        try:
            return read_floor(self._store, line)
        except GitopsError as error:
            self._add(VerifyFindingCode.DOCUMENT_UNREADABLE, layout.floor_key(line), error.detail)
            return 0

    def _check_parent(self, manifest: Manifest, before: Manifest | None) -> None:
        parent = manifest.parent
        if before is None or parent is None or before.n != manifest.n - 1:
            return
        if parent.line != before.line or parent.commit not in (None, before.txn_id):
            key = layout.manifest_key(manifest.n, manifest.line)
            detail = f"the parent is commit {parent.commit}, but version {before.n} is commit {before.txn_id}"
            self._add(VerifyFindingCode.PARENT_MISMATCH, key, detail)

    def _check_schema(self, manifest: Manifest) -> None:
        """Step 3, once for each schema."""
        at = Snapshot(self._snapshot.root, self._folder, self._snapshot.identity, manifest)
        key = layout.manifest_key(manifest.n, manifest.line)
        if manifest.schema_ir not in self._catalogs:
            self._catalogs[manifest.schema_ir] = None
            try:
                at.schema_source()
                self._catalogs[manifest.schema_ir] = at.schema().catalog
            except GitopsError as error:
                self._add(VerifyFindingCode.SCHEMA_DAMAGED, key, error.detail)
            return
        catalog = self._catalogs[manifest.schema_ir]
        if catalog is not None and table_keys(catalog) != set(manifest.tables):
            self._add(VerifyFindingCode.TABLES_MISMATCH, key, "the tables are not those of the schema")

    def _check_tables(self) -> int:
        """Step 4, once for each version of a table."""
        seen: set[tuple[str, int]] = set()
        purged = purged_paths(self._manifests)
        for manifest in self._manifests:
            catalog = self._catalogs.get(manifest.schema_ir)
            for key, entry in manifest.tables.items():
                if (entry.path, entry.version) in seen or entry.path in purged:
                    continue
                seen.add((entry.path, entry.version))
                self._check_table(entry, None if catalog is None else self._expected_columns(catalog, key))
        return len(seen)

    def _expected_columns(self, catalog: Catalog, key: str) -> set[str] | None:
        kind, _, name = key.partition(":")
        if name not in (catalog.nodes if kind == "node" else catalog.edges):
            return None
        declared = declared_type(catalog, key)
        return {*key_columns(declared), *declared.properties}

    def _check_table(self, entry: TableEntry, columns: set[str] | None) -> None:
        place = f"{entry.path}@{entry.version}"
        try:
            dataset = open_table(self._folder, entry)
            fields = {part.name(): part.id() for part in dataset.lance_schema.fields()}
            rows = dataset.count_rows()
        except (GitopsError, OSError, ValueError, RuntimeError) as error:
            self._add(VerifyFindingCode.TABLE_UNREADABLE, place, driver_message(error)[:300])
            return
        if fields != dict(entry.fields) or (columns is not None and set(fields) != columns):
            self._add(
                VerifyFindingCode.COLUMNS_MISMATCH, place, "the columns are not those of the manifest and the schema"
            )
        if rows != entry.rows:
            self._add(VerifyFindingCode.ROWS_MISMATCH, place, f"{rows} rows, and the manifest records {entry.rows}")

    def _check_rules(self, line: Line) -> None:
        """Step 5."""
        heads = [manifest for manifest in self._manifests if manifest.line == line.id]
        if not heads:
            return
        head = max(heads, key=lambda manifest: manifest.n)
        catalog = self._catalogs.get(head.schema_ir)
        if catalog is None:
            return
        image = GraphImage(self._folder, head.tables, catalog)
        for key in sorted(head.tables):
            try:
                for each in _find_violations(image, key):
                    self._add(
                        VerifyFindingCode.RULE_BROKEN,
                        f"{line.name}/{key}/{each.id}",
                        f"{each.kind}: {each.detail}",
                    )
            except GitopsError as error:
                self._add(VerifyFindingCode.TABLE_UNREADABLE, f"{line.name}/{key}", error.detail)

    def _list_unreferenced(self, lines: tuple[Line, ...]) -> None:
        """Step 6."""
        needs = collect_references(self._manifests, ())
        for kind in ("nodes", "edges"):
            for name in self._folder.children(kind):
                if not needs.knows(f"{kind}/{name}"):
                    self._add(VerifyFindingCode.UNREFERENCED, f"{kind}/{name}", "no version has this table")
        for name in self._store.names(layout.SCHEMA):
            if name.partition(".")[0] not in needs.schemas:
                self._add(VerifyFindingCode.UNREFERENCED, f"{layout.SCHEMA}/{name}", "no version has this schema")
        alive = {line.id for line in lines}
        for line_id in all_lines(self._folder):
            if line_id not in alive:
                self._add(VerifyFindingCode.UNREFERENCED, f"{layout.BRANCHES}/{line_id}", "no branch has this line")


def _find_violations(image: GraphImage, key: str) -> Iterator[Any]:
    yield from image.duplicate_ids(key)
    yield from image.unique(key)
    yield from image.values(key)
    if isinstance(image.declared(key), EdgeType):
        yield from image.orphans(key)
        yield from image.cardinality(key)
