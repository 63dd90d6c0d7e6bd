"""The files that are named on the command line, directly or by a folder above them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gitops.cluster.config.source import EntryKind, SourceError, SourceTree, normalize
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError

_MAX_FOLDERS = 10_000


def named_files(
    tree: SourceTree, paths: Sequence[str], found: Diagnostics, *, is_known: Callable[[str], bool]
) -> Iterator[str]:
    """The named files, and those with a known name in the named folders, without hidden folders.

    The paths are normalized. Files that cannot be read are added to `found`. Raises UsageError for more than 10,000 folders.
    """
    waiting = [normalize(path, confined=False) for path in paths]
    folders = 0
    while waiting:
        path = waiting.pop()
        try:
            if tree.kind(path) is not EntryKind.DIR:
                yield path
                continue
            folders += 1
            if folders > _MAX_FOLDERS:
                raise UsageError(Code.USAGE_ERROR, f"there are more than {_MAX_FOLDERS} folders; name fewer")
            for name in tree.names(path):
                inner = name if path == "." else f"{path}/{name}"
                is_folder = not name.startswith(".") and tree.kind(inner) is EntryKind.DIR
                if is_folder or is_known(name):
                    waiting.append(inner)
        except SourceError as error:
            found.add_error(error)
