"""Verifies that all documents of a graph are valid and all references resolve.

1. The identity, the list of branches and the leases can be read.
2. Every manifest can be read; a line's numbers have no gaps above its floor; each manifest's parent is the previous
   commit.
3. Every schema matches the digest in its file name, compiles, and declares the tables of the versions that use it.
4. Every table opens at every version in a manifest, with the recorded columns, row count and files.
5. With `deep`: in the newest version of each branch, ids are unique, edge ends exist, every schema rule holds, and the
   statistics are true.
6. Unreferenced objects are listed as notes; they are harmless, and gc removes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

from gitops.core.errors import GitopsError, RemoteError
from gitops.database.graph import layout
from gitops.database.graph.files import TableFiles
from gitops.database.graph.history.gc import all_lines, collect_references, purged_paths
from gitops.database.graph.image import GraphImage
from gitops.database.graph.lines import Line, read_branches, read_floor
from gitops.database.graph.manifest import Manifest, TableEntry, line_numbers, read_manifest
from gitops.database.graph.results import VerifyFinding, VerifyFindingCode, VerifyReport
from gitops.database.graph.root import tables_at_once
from gitops.database.graph.snapshot import Snapshot, open_snapshot, table_keys
from gitops.database.graph.staged import read_leases
from gitops.database.graph.tables import (
    call_driver,
    declared_type,
    driver_message,
    key_columns,
    open_table,
    untrue_statistics,
)
from gitops.database.language.schema import Catalog, EdgeType
from gitops.database.storage.parallel import in_parallel


def verify_graph(uri: str, *, deep: bool = False, tables: Collection[str] | None = None) -> VerifyReport:
    """Verify the graph at a root without changing it. `tables` are the keys of the tables whose rows to read, by default all.

    Raises GitopsError `graph_missing`, and `graph_unreadable` if not even the newest version of `main` can be found;
    RemoteError `storage_failed` if a bucket's service does not respond or refuses access, because then nothing is
    known.
    """
    return _Verification(open_snapshot(uri), tables).run(deep=deep)


class _Verification:
    """State of one verification of a graph."""

    def __init__(self, snapshot: Snapshot, tables: Collection[str] | None) -> None:
        self._snapshot = snapshot
        self._tables = tables
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

    def _failed(self, code: VerifyFindingCode, path: str, error: Exception) -> None:
        """Record a finding that an object is damaged.

        If the bucket's service did not respond or refused access, raise the error, because then nothing is known.
        """
        if isinstance(error, RemoteError) and self._snapshot.root.location.startswith("s3:"):
            raise error
        self._add(code, path, error.detail if isinstance(error, GitopsError) else driver_message(error)[:300])

    def _check_branches(self) -> tuple[Line, ...]:
        """Carry out step 1."""
        try:
            read_leases(self._store)
        except GitopsError as error:
            self._failed(VerifyFindingCode.DOCUMENT_UNREADABLE, layout.LEASES, error)
        try:
            return read_branches(self._store).lines()
        except GitopsError as error:
            self._failed(VerifyFindingCode.DOCUMENT_UNREADABLE, layout.BRANCH_INDEX, error)
            return ()

    def _check_line(self, line: str) -> None:
        """Carry out step 2 for one line."""
        numbers, floor = sorted(line_numbers(self._store, line)), 0
        try:
            floor = read_floor(self._store, line)
        except GitopsError as error:
            self._failed(VerifyFindingCode.DOCUMENT_UNREADABLE, layout.floor_key(line), error)
        before: Manifest | None = None
        for at, n in enumerate(numbers):
            for gap in range(max(floor, numbers[at - 1]) + 1, n) if at else ():
                detail = f"version {gap} is missing, although gc did not remove it"
                self._add(VerifyFindingCode.VERSION_MISSING, layout.manifest_key(gap, line), detail)
            key = layout.manifest_key(n, line)
            try:
                manifest = read_manifest(self._store, n, line)
            except GitopsError as error:
                self._failed(VerifyFindingCode.MANIFEST_UNREADABLE, key, error)
                before = None
                continue
            parent = manifest.parent
            if (before is not None and parent is not None and before.n == n - 1) and (
                parent.line != line or parent.commit not in (None, before.txn_id)
            ):
                detail = f"the parent is commit {parent.commit}, but version {before.n} is commit {before.txn_id}"
                self._add(VerifyFindingCode.PARENT_MISMATCH, key, detail)
            self._manifests.append(manifest)
            before = manifest
        if numbers and line == layout.MAIN and numbers[0] > floor + 1:
            self._add(VerifyFindingCode.VERSION_MISSING, layout.manifest_key(1), "the first versions are missing")

    def _check_schema(self, manifest: Manifest) -> None:
        """Carry out step 3, once for each schema."""
        at = Snapshot(self._snapshot.root, self._folder, self._snapshot.identity, manifest)
        key = layout.manifest_key(manifest.n, manifest.line)
        if manifest.schema_ir not in self._catalogs:
            self._catalogs[manifest.schema_ir] = None
            try:
                at.schema_source()
                self._catalogs[manifest.schema_ir] = at.schema().catalog
            except GitopsError as error:
                self._failed(VerifyFindingCode.SCHEMA_DAMAGED, key, error)
            return
        catalog = self._catalogs[manifest.schema_ir]
        if catalog is not None and table_keys(catalog) != set(manifest.tables):
            self._add(VerifyFindingCode.TABLES_MISMATCH, key, "the tables are not those of the schema")

    def _check_tables(self) -> int:
        """Carry out step 4, once for each table version."""
        seen: set[tuple[str, int]] = set()
        purged = purged_paths(self._manifests)
        wanted = {(e.path, e.version): e for m in self._manifests for e in m.tables.values() if e.path not in purged}
        contents = in_parallel(self._read_table, wanted.values(), tables_at_once(self._folder))
        opened = dict(zip(wanted, contents, strict=True))
        missing = self._missing_files(entry for key, entry in wanted.items() if not isinstance(opened[key], Exception))
        for manifest in self._manifests:
            catalog = self._catalogs.get(manifest.schema_ir)
            declared_keys = set() if catalog is None else table_keys(catalog)
            for key, entry in manifest.tables.items():
                if (entry.path, entry.version) in seen or entry.path in purged:
                    continue
                seen.add((entry.path, entry.version))
                place = f"{entry.path}@{entry.version}"
                found = opened[entry.path, entry.version]
                if isinstance(found, Exception):
                    self._failed(VerifyFindingCode.TABLE_UNREADABLE, place, found)
                    continue
                for file in missing.get((entry.path, entry.version), ()):
                    self._add(VerifyFindingCode.TABLE_UNREADABLE, place, f"{file} is missing")
                fields, rows = found
                columns = set(fields)
                if catalog is not None and key in declared_keys:
                    declared = declared_type(catalog, key)
                    columns = {*key_columns(declared), *declared.properties}
                if fields != dict(entry.fields) or set(fields) != columns:
                    detail = "the columns are not those of the manifest and the schema"
                    self._add(VerifyFindingCode.COLUMNS_MISMATCH, place, detail)
                if rows != entry.rows:
                    detail = f"{rows} rows, but the manifest records {entry.rows}"
                    self._add(VerifyFindingCode.ROWS_MISMATCH, place, detail)
        return len(seen)

    def _read_table(self, entry: TableEntry) -> tuple[dict[str, int], int] | Exception:
        """Return the columns and the row count of a table, or the reason why it does not open."""
        try:
            dataset = open_table(self._folder, entry)
            fields = {part.name(): part.id() for part in dataset.lance_schema.fields()}
            return fields, call_driver(entry.path, dataset.count_rows)
        except (GitopsError, OSError, ValueError, RuntimeError) as error:
            return error

    def _missing_files(self, entries: Iterable[TableEntry]) -> dict[tuple[str, int], list[str]]:
        """Return the missing files that these table versions need."""
        tables: dict[str, list[TableEntry]] = {}
        for entry in entries:
            tables.setdefault(entry.path, []).append(entry)

        def look(path: str) -> list[list[str]]:
            files = TableFiles(self._store, path)
            return [files.missing(entry) for entry in tables[path]]

        found = in_parallel(look, tables, tables_at_once(self._folder))
        named = zip(tables.values(), found, strict=True)
        return {(e.path, e.version): files for of, lists in named for e, files in zip(of, lists, strict=True)}

    def _check_rules(self, line: Line) -> None:
        """Carry out step 5 for the newest version of one line."""
        heads = [manifest for manifest in self._manifests if manifest.line == line.id]
        if not heads:
            return
        head = max(heads, key=lambda manifest: manifest.n)
        catalog = self._catalogs.get(head.schema_ir)
        if catalog is None:
            return
        image = GraphImage(self._folder, head.tables, catalog)
        for key in sorted(head.tables if self._tables is None else head.tables.keys() & set(self._tables)):
            rules = [image.duplicate_ids, image.unique, image.values]
            if isinstance(image.declared(key), EdgeType):
                rules += [image.orphans, image.cardinality]
            try:
                for each in chain.from_iterable(rule(key) for rule in rules):
                    place = f"{line.name}/{key}/{each.id}"
                    self._add(VerifyFindingCode.RULE_BROKEN, place, f"{each.kind}: {each.detail}")
                for detail in untrue_statistics(self._folder, head.tables[key]):
                    self._add(VerifyFindingCode.STATISTICS_MISMATCH, f"{line.name}/{key}", detail)
            except GitopsError as error:
                self._failed(VerifyFindingCode.TABLE_UNREADABLE, f"{line.name}/{key}", error)

    def _list_unreferenced(self, lines: tuple[Line, ...]) -> None:
        """Carry out step 6."""
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
