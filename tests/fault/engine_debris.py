"""What lies in the folder of a graph and belongs to no version of it: what a dead process left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import lance

from gitops.database.graph import layout
from gitops.database.graph.history.gc import all_lines, collect_references, read_manifests
from gitops.database.graph.lines import read_branches
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import read_leases
from gitops.database.graph.tables import dataset_versions, open_latest
from gitops.database.storage.port import TEMP_PREFIX

UNVERIFIED_S = 8 * 24 * 3600
"""Files that belong to no version of a table are a week old before the driver takes them for nobody's work."""


@dataclass(frozen=True, slots=True)
class Debris:
    """How many there are: versions of tables that no version of the graph names, data files in no version of their table, folders
    of tables that nothing names, lines without a branch, leases, and unfinished small files.
    """

    versions: int
    files: int
    folders: int
    lines: int
    leases: int
    unfinished: int

    def more_than(self, *, leases: int = 0) -> bool:
        """Whether there is anything but so many leases."""
        return replace(self, leases=self.leases - leases) != Debris(0, 0, 0, 0, 0, 0)


def debris(uri: str) -> Debris:
    """What lies there."""
    snapshot = open_snapshot(uri)
    folder, store = snapshot.folder, snapshot.store
    needs = collect_references(read_manifests(folder, {}), ())
    versions = files = folders = 0
    for kind in ("nodes", "edges"):
        for path in (f"{kind}/{name}" for name in folder.children(kind)):
            if not needs.knows(path):
                folders += 1
                continue
            numbers = [number for number, _ in dataset_versions(folder, path)]
            versions += sum(not needs.keeps(path, number) for number in numbers)
            files += len(_data_files(folder, path) - _named_files(folder, path, numbers))
    named = {line.id for line in read_branches(store).lines()}
    return Debris(
        versions=versions,
        files=files,
        folders=folders,
        lines=sum(line not in named for line in all_lines(folder)),
        leases=len(read_leases(store)),
        unfinished=sum(1 for _ in _unfinished(folder)),
    )


def grow_old(uri: str) -> None:
    """Let a week pass for the files of the tables of a graph on disk."""
    for kind in ("nodes", "edges"):
        for file in Path(uri, kind).rglob("*"):
            moment = file.stat().st_mtime - UNVERIFIED_S
            os.utime(file, (moment, moment))


def _data_files(folder: GraphFolder, path: str) -> set[str]:
    return {file.path.rpartition("/")[2] for file in folder.files(f"{path}/data")}


def _named_files(folder: GraphFolder, path: str, numbers: list[int]) -> set[str]:
    dataset: lance.LanceDataset = open_latest(folder, path)
    found: set[str] = set()
    for number in numbers:
        for fragment in dataset.checkout_version(number).get_fragments():
            found.update(file.path for file in fragment.metadata.files)
    return found


def _unfinished(folder: GraphFolder) -> Iterator[str]:
    for prefix in (layout.MANIFESTS, layout.BRANCHES, layout.LEASES, layout.FLOORS, layout.SCHEMA):
        for file in folder.files(prefix):
            if file.path.rpartition("/")[2].startswith(TEMP_PREFIX):
                yield file.path
