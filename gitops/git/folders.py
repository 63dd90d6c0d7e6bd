"""Cluster folders in git: none has a link, a submodule or an unsafe name; and which files of two of them differ."""

from __future__ import annotations

import contextlib

from gitops.config.sound import PlainFolder
from gitops.config.source import SourceLimits, checked_listing
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import EntryType, GitReader

_LINKS = {
    EntryType.SYMLINK: (Code.SOURCE_SYMLINK, "symbolic link"),
    EntryType.SUBMODULE: (Code.SOURCE_SUBMODULE, "submodule"),
}
_MAX_FOLDERS = 20_000
_LISTING = SourceLimits(files=1_000_000)


def require_plain(store: GitReader, folder: str, path: str, known: PlainFolder | None = None) -> PlainFolder:
    """Refuse a cluster folder with a link, a submodule or an unsafe name anywhere in it, declared or not.

    None of them is ever followed. But reviewers, and programs in a checkout, would see other bytes than an approval covers.
    What is at the same place in a `known` folder, which was accepted before, is not looked at again.

    Raises GitopsError `source_symlink`, `source_submodule`, `source_name_unsafe`, `source_too_large`.
    """
    if known is not None and known.tree == folder:
        return known
    if known is not None:
        with contextlib.suppress(GitopsError):
            found = _require_plain(store, folder, path, known)
            if found.folders <= _MAX_FOLDERS:
                return found
    # The known folder may not be here any more, and with it folders that are new may be counted twice.
    return _require_plain(store, folder, path, None)


def _require_plain(store: GitReader, folder: str, path: str, known: PlainFolder | None) -> PlainFolder:
    """Look at all that `known` does not have at the same place."""
    pending, seen = [(path, folder, None if known is None else known.tree)], {folder}
    while pending:
        directory, tree, old = pending.pop()
        entries = store.entries(tree)
        same = frozenset() if old is None else frozenset((e.name, e.id, e.type) for e in store.entries(old))
        below = {name: found for name, found, kind in same if kind is EntryType.TREE}
        checked_listing(directory, (entry.name for entry in entries), _LISTING)
        for entry in entries:
            name = f"{directory}/{entry.name}"
            if entry.type in _LINKS:
                code, what = _LINKS[entry.type]
                raise GitopsError(code, f"{name} is a {what}", path=name)
            if entry.type is EntryType.TREE and entry.id not in seen and (entry.name, entry.id, entry.type) not in same:
                seen.add(entry.id)
                pending.append((name, entry.id, below.get(entry.name)))
        if len(seen) > _MAX_FOLDERS:
            raise GitopsError(Code.SOURCE_TOO_LARGE, f"{path} has more than {_MAX_FOLDERS} folders", path=path)
    return PlainFolder(folder, len(seen) + (0 if known is None else known.folders))


def changed_paths(store: GitReader, other: str, folder: str) -> tuple[str, ...]:
    """Files that differ from another tree of the folder; empty if that tree is missing here."""
    try:
        return store.changed_paths(other, folder)
    except GitopsError:
        return ()
