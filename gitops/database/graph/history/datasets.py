"""The versions of a dataset, read from its files, for gc, verify and optimize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import lance

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.tables import DRIVER_ERRORS, driver_message, service_failure

__all__ = [
    "call_driver",
    "data_files",
    "dataset_versions",
    "drop_left_files",
    "drop_versions",
    "kept_bytes",
    "open_latest",
]

_NEVER = timedelta(days=36_500)
_T = TypeVar("_T")


def open_latest(folder: GraphFolder, path: str) -> lance.LanceDataset:
    """The dataset at its newest version, which readers must not use. Raises RemoteError `storage_failed`."""
    place = folder.dataset(path)
    return call_driver(path, lambda: lance.dataset(place.uri, storage_options=place.driver_options()))


def dataset_versions(folder: GraphFolder, path: str) -> tuple[tuple[int, datetime], ...]:
    """Number and time of each version that can be opened, oldest first. Raises RemoteError `storage_failed`."""
    listed: list[Any] = list(call_driver(path, open_latest(folder, path).versions))
    # The driver gives naive local times.
    return tuple(sorted((each["version"], each["timestamp"].astimezone(UTC)) for each in listed))


def drop_versions(folder: GraphFolder, path: str, numbers: Sequence[int]) -> int:
    """Remove these versions, and the files that no other version has; the newest version always stays. Returns the bytes freed.

    Files that belong to no version may belong to a writer, and stay for seven days. Raises RemoteError `storage_failed`.
    """
    dataset = open_latest(folder, path)
    listed = sorted(set(numbers) - {dataset.version})
    if not listed:
        return 0
    stats = call_driver(path, lambda: dataset.cleanup_old_versions(versions=listed, error_if_tagged_old_versions=False))
    return int(stats.bytes_removed)


def drop_left_files(folder: GraphFolder, path: str) -> int:
    """Remove files that belong to no version and are older than seven days: the files of dead writers.

    No version is removed. Returns the bytes freed. Raises RemoteError `storage_failed`.
    """
    dataset = open_latest(folder, path)
    return int(call_driver(path, lambda: dataset.cleanup_old_versions(older_than=_NEVER)).bytes_removed)


def data_files(folder: GraphFolder, path: str) -> set[str]:
    """The names of the data files of all versions. Raises RemoteError `storage_failed`."""
    dataset = open_latest(folder, path)
    found: set[str] = set()
    for number, _ in dataset_versions(folder, path):
        at = call_driver(path, partial(dataset.checkout_version, number))
        found |= {file.path for part in at.get_fragments() for file in part.metadata.files}
    return found


def kept_bytes(folder: GraphFolder, path: str, gone: Sequence[int]) -> int:
    """The bytes of the data files that only these versions have: what `drop_versions` would free, near enough."""
    dataset = open_latest(folder, path)
    sizes: dict[str, int] = {}
    kept: set[str] = set()
    for number, _ in dataset_versions(folder, path):
        version = call_driver(path, partial(dataset.checkout_version, number))
        files = {f.path: f.file_size_bytes or 0 for part in version.get_fragments() for f in part.metadata.files}
        sizes |= files
        if number not in gone or number == dataset.version:
            kept |= files.keys()
    return sum(size for file, size in sizes.items() if file not in kept)


def call_driver(path: str, call: Callable[[], _T]) -> _T:
    """Call the driver. Raises RemoteError `storage_failed` for its failures; the detail quotes nothing of a request."""
    try:
        return call()
    except DRIVER_ERRORS as error:
        if (refused := service_failure(f"table {path}", error)) is not None:
            raise refused from None
        reason = driver_message(error).partition("<")[0][:200]
        raise RemoteError(Code.STORAGE_FAILED, f"table {path}: {reason}", path=path) from error
