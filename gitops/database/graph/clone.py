"""Scratch copies of a graph version that share its data files, so that a migration can be tried without writing to the graph.

A scratch copy is an ordinary graph at a separate root. Each of its tables is a shallow clone: a version file that
names the data files of the original. Versions keep their numbers, so the identity, the manifest and the schema are
copied byte for byte, and the engine reads, migrates and queries the copy like any other graph.

The original is only read. It does not know its copies, so gc can remove files that a copy still needs; reading the copy
then fails with `graph_unreadable` or `storage_failed`, and the copy must be made again.
"""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph import layout
from gitops.database.graph.lines import read_floor, write_floor
from gitops.database.graph.manifest import publish
from gitops.database.graph.root import tables_at_once
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, open_snapshot
from gitops.database.graph.tables import call_driver, open_table
from gitops.database.storage.parallel import in_parallel

_FOLDERS = (layout.MANIFESTS, layout.SCHEMA, "nodes", "edges")


@dataclass(frozen=True, slots=True)
class ScratchSize:
    """The size of a scratch copy in bytes, and the number of its tables that do not only share data files."""

    bytes: int
    tables: int


def scratch_size(uri: str) -> ScratchSize:
    """Measure the bytes that a scratch copy stores itself, without shared files. Raises the errors of `open_snapshot`."""
    snapshot = open_snapshot(uri)
    files = [each for prefix in _FOLDERS for each in snapshot.folder.files(prefix) if each.bytes]
    paths = tuple(entry.path for entry in snapshot.manifest.tables.values())
    own = {path for path in paths if any(each.path.startswith(f"{path}/data/") for each in files)}
    return ScratchSize(sum(each.bytes for each in files), len(own))


def clone_graph(uri: str, target: str, version: int | None = None) -> Snapshot:
    """Make a scratch copy of a version of `main`, by default the newest, at the root `target`. Return the opened copy.

    Both roots must be in the same folder tree or bucket service. Raises GitopsError `graph_exists` if the target is
    taken, `graph_version_gone` if gc removed the version meanwhile, `preview_unavailable` for roots on different
    storage; the errors of `open_snapshot`; RemoteError `storage_failed`.
    """
    if uri.startswith("s3:") is not target.startswith("s3:"):
        raise GitopsError(
            Code.PREVIEW_UNAVAILABLE,
            f"a scratch copy of {uri} cannot be at {target}: its data files would be on other storage",
            path=target,
            fix="choose a scratch folder on the storage of the graphs",
        )
    base = open_snapshot(uri, ReadTarget(version=version))
    staging = find_root(target).stage(base.identity)
    try:
        folder, manifest = staging.folder, base.manifest
        texts = {layout.source_key(manifest.schema_source): base.schema_source()}
        texts[layout.ir_key(manifest.schema_ir)] = base.schema_ir()
        folder.store.write(layout.IDENTITY, base.identity.to_bytes())
        for key, data in texts.items():
            folder.store.write(key, data)

        def clone(path: str, at: int) -> None:
            place = folder.dataset(path)
            opened = open_table(base.folder, next(each for each in manifest.tables.values() if each.path == path))
            call_driver(path, lambda: opened.shallow_clone(place.uri, at, place.driver_options()))

        entries = [(entry.path, entry.version) for entry in manifest.tables.values()]
        in_parallel(lambda each: clone(*each), entries, tables_at_once(folder))
        # The copy has one version; earlier ones are gone, not missing.
        write_floor(folder.store, layout.MAIN, manifest.n - 1)
        publish(folder.store, manifest)
        staging.take_root()
    except BaseException as error:
        staging.discard()
        if isinstance(error, GitopsError) and read_floor(base.store, layout.MAIN) >= base.manifest.n:
            detail = f"version {base.manifest.n} of {base.root.location} was removed while it was cloned"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=uri) from error
        raise
    return open_snapshot(target)
