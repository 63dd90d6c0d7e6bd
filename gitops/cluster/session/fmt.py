"""`fmt`: computes the canonical layout of a cluster's files. Read-only.

Steps: 1 find the files; 2 format each of them; 3 find the resources whose digests change. The third step loads the
folder before and after formatting, so its result is the same as in a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.config.cluster_yaml import parse_cluster, read_cluster
from gitops.cluster.config.declaration import CONFIG_FILE, QueryRegistry
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import PathKind, SourceError, SourceTree, normalize
from gitops.cluster.model.address import Address
from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.core.errors import UsageError
from gitops.database.language.format import format_queries, format_schema, format_yaml
from gitops.database.language.schema import Schema
from gitops.database.language.schema.reversal import without_spent_hints
from gitops.database.language.text import LanguageError, SourceText
from gitops.database.language.yaml import YamlError

# -- named files -------------------------------------------------------------------------------------------------------
# Files given on the command line, directly or through a folder.


_MAX_FOLDERS = 10_000


def named_files(
    tree: SourceTree, paths: Sequence[str], found: Diagnostics, *, is_known: Callable[[str], bool]
) -> Iterator[str]:
    """Yield the given files, and files with a known name in the given folders. Skips hidden folders.

    The paths are normalized. Files that cannot be read are added to `found`. Raises UsageError if there are more than 10,000
    folders.
    """
    waiting = [normalize(path, confined=False) for path in paths]
    folders = 0
    while waiting:
        path = waiting.pop()
        try:
            if tree.kind(path) is not PathKind.DIR:
                yield path
                continue
            folders += 1
            if folders > _MAX_FOLDERS:
                raise UsageError(Code.USAGE_ERROR, f"there are more than {_MAX_FOLDERS} folders; name fewer")
            for name in tree.names(path):
                inner = name if path == "." else f"{path}/{name}"
                is_folder = not name.startswith(".") and tree.kind(inner) is PathKind.DIR
                if is_folder or is_known(name):
                    waiting.append(inner)
        except SourceError as error:
            found.add_error(error)


_LANGUAGES: Mapping[str, tuple[Callable[[bytes], bytes], Code]] = {
    ".pg": (format_schema, Code.SCHEMA_PARSE_ERROR),
    ".gq": (format_queries, Code.QUERY_PARSE_ERROR),
}


@dataclass(frozen=True, slots=True)
class FileLayout:
    """A file with its canonical layout. `updates` are the resources whose recorded digest covers its bytes."""

    path: str
    before: bytes
    after: bytes
    updates: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the canonical layout differs from the file."""
        return self.before != self.after

    @property
    def digest_moves(self) -> bool:
        """Whether formatting changes a recorded digest. The digest of `cluster.yaml` does not cover its layout."""
        return self.changed and not _is_cluster_file(self.path)

    @property
    def digests(self) -> tuple[str, str]:
        """The file's digests before and after formatting."""
        return digest(self.before), digest(self.after)


@dataclass(frozen=True, slots=True)
class FormatOutcome:
    """The files that parse, sorted by path, and the problems of the others.

    `updates` are the resources that a plan shows as updated once all files are formatted.
    """

    files: tuple[FileLayout, ...] = ()
    updates: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def changed(self) -> tuple[FileLayout, ...]:
        """The files that formatting changes."""
        return tuple(file for file in self.files if file.changed)


def format_cluster(
    open_tree: Callable[[], SourceTree],
    paths: Sequence[str] | None = None,
    applied: Mapping[str, Schema] | None = None,
) -> FormatOutcome:
    """Return the canonical layout of `paths` (files, or folders with all their files), or of every file in `cluster.yaml`.

    Paths are relative to the cluster folder, which `open_tree` opens. Hints for migrations are removed from the schema
    files in `applied` if they have no effect on the migration from the applied schema. Raises UsageError for a file of
    another type. A file that does not parse or cannot be read is in the diagnostics and not among the files.
    """
    tree, found = open_tree(), Diagnostics()
    listed = _declared_files(tree, found) if paths is None else named_files(tree, paths, found, is_known=_is_known)
    files = [
        layout for path in sorted(set(listed)) if (layout := _lay_out(tree, path, found, applied or {})) is not None
    ]
    updates: tuple[Address, ...] = ()
    if any(file.digest_moves for file in files):
        changed = {file.path: file.after for file in files if file.changed}
        before = load_desired(open_tree()).resources
        after = load_desired(_Overlay(open_tree(), changed)).resources
        updates = tuple(each for each in after if each in before and before[each].digest != after[each].digest)
        by_file: dict[str, list[str]] = {}
        for address in updates:
            if (path := before[address].path) is not None:
                # The load already normalized the path, so this cannot fail.
                by_file.setdefault(normalize(path, confined=False), []).append(address)
        files = [replace(file, updates=tuple(by_file.get(file.path, ()))) if file.changed else file for file in files]
    return FormatOutcome(tuple(files), updates, tuple(found))


def _declared_files(tree: SourceTree, found: Diagnostics) -> Iterator[str]:
    """Yield `cluster.yaml`, and the schema and query files that it refers to."""
    cluster, problems = read_cluster(tree)
    found.extend(problems)
    if cluster is None:
        return
    yield CONFIG_FILE
    for graph in cluster.graphs:
        queries = graph.queries
        by_name = isinstance(queries, QueryRegistry)
        listed = [query.file for query in queries.entries] if isinstance(queries, QueryRegistry) else queries.items
        for written in (graph.schema, *listed):
            try:
                place = normalize(written.value, confined=True)
                # Only a list entry can refer to a folder.
                if written is graph.schema or by_name or tree.kind(place) is not PathKind.DIR:
                    yield place
                else:
                    inside = "" if place == "." else f"{place}/"
                    yield from (f"{inside}{name}" for name in tree.names(place) if name.endswith(".gq"))
            except SourceError as error:
                found.add_error(error)


def _lay_out(tree: SourceTree, path: str, found: Diagnostics, applied: Mapping[str, Schema]) -> FileLayout | None:
    if not _is_known(path):
        raise UsageError(
            Code.USAGE_ERROR,
            f"{path} is not a schema (.pg), a query file (.gq) or a {CONFIG_FILE}",
            fix="pass files that end in .pg or .gq, or omit them: gitops fmt",
        )
    try:
        data = tree.read(path)
    except SourceError as error:
        found.add_error(error)
        return None
    if _is_cluster_file(path):
        try:
            return FileLayout(path, data, format_yaml(data))
        except YamlError:
            _, problems = parse_cluster(data)
            found.extend(problems)
            return None
    make, code = _LANGUAGES[path[-3:]]
    try:
        accepted = applied.get(normalize(path, confined=False))
        return FileLayout(path, data, make(data if accepted is None else without_spent_hints(data, accepted)))
    except LanguageError as error:
        text, entry = SourceText(data), REGISTRY[code]
        for problem in error.problems:
            place = SourceRef(path, *text.position(problem.span.start))
            fix = problem.fix or entry.fix or None
            found.extend([Diagnostic(code, entry.severity, path, problem.rendered(), place, fix)])
        return None


def _is_cluster_file(path: str) -> bool:
    return path.rpartition("/")[2] == CONFIG_FILE


def _is_known(path: str) -> bool:
    return _is_cluster_file(path) or path.endswith(tuple(_LANGUAGES))


class _Overlay:
    """A tree in which some files have different content."""

    def __init__(self, tree: SourceTree, contents: Mapping[str, bytes]) -> None:
        self.root, self.kind, self.names = tree.root, tree.kind, tree.names
        self._tree = tree
        self._contents = contents

    def read(self, path: str) -> bytes:
        changed = self._contents.get(normalize(path, confined=False))
        return self._tree.read(path) if changed is None else changed
