"""Cluster folders in git: none has a link, a submodule or an unsafe name; and which files of two of them differ."""

from __future__ import annotations

import contextlib

from gitops.cluster.config.sound import ComparedFolder, FolderDifference, PlainFolder
from gitops.cluster.config.source import SourceLimits, checked_listing
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import EntryType, GitReader

_LINKS = {
    EntryType.SYMLINK: (Code.SOURCE_SYMLINK, "symbolic link"),
    EntryType.SUBMODULE: (Code.SOURCE_SUBMODULE, "submodule"),
}
_MAX_FOLDERS = 20_000
_LISTING = SourceLimits(files=1_000_000)


def require_plain(store: GitReader, folder: str, path: str, known: PlainFolder | None = None) -> ComparedFolder:
    """Refuse a cluster folder with a link, a submodule or an unsafe name anywhere in it, declared or not.

    None of them is ever followed. But reviewers, and programs in a checkout, would see other bytes than an approval covers.
    What is at the same place in a `known` folder, which was accepted before, is not looked at again. Returns the folder, and
    where it differs from the known one, if that is still here.

    Raises GitopsError `source_symlink`, `source_submodule`, `source_name_unsafe`, `source_too_large`.
    """
    if known is not None and known.tree == folder:
        return ComparedFolder(known, FolderDifference(frozenset(), frozenset()))
    if known is not None:
        with contextlib.suppress(GitopsError):
            found = _require_plain(store, folder, path, known)
            if found.plain.folders <= _MAX_FOLDERS:
                return found
    # The known folder may not be here any more, and with it folders that are new may be counted twice.
    return ComparedFolder(_require_plain(store, folder, path, None).plain)


def _require_plain(store: GitReader, folder: str, path: str, known: PlainFolder | None) -> ComparedFolder:
    """Look at all that `known` does not have at the same place."""
    pending, seen = [("", folder, None if known is None else known.tree)], {folder}
    places, whole = set[str](), set[str]()
    while pending:
        prefix, tree, old = pending.pop()
        entries, before = store.entries(tree), () if old is None else store.entries(old)
        same = frozenset((e.name, e.id, e.type) for e in before)
        below = {name: found for name, found, kind in same if kind is EntryType.TREE}
        checked_listing(f"{path}/{prefix}".removesuffix("/"), (entry.name for entry in entries), _LISTING)
        gone = {entry.name for entry in before}.difference(entry.name for entry in entries)
        whole.update(f"{prefix}{name}" for name in gone)
        for entry in entries:
            if (entry.name, entry.id, entry.type) in same:
                continue
            place = f"{prefix}{entry.name}"
            if entry.type in _LINKS:
                code, what = _LINKS[entry.type]
                raise GitopsError(code, f"{path}/{place} is a {what}", path=f"{path}/{place}")
            places.add(place)
            compared = entry.type is EntryType.TREE and entry.id not in seen
            if compared:
                seen.add(entry.id)
                pending.append((f"{place}/", entry.id, below.get(entry.name)))
            if not compared or entry.name not in below:
                whole.add(place)
        if len(seen) > _MAX_FOLDERS:
            raise GitopsError(Code.SOURCE_TOO_LARGE, f"{path} has more than {_MAX_FOLDERS} folders", path=path)
    plain = PlainFolder(folder, len(seen) + (0 if known is None else known.folders))
    return ComparedFolder(plain, FolderDifference(frozenset(places | whole), frozenset(whole)))


def changed_paths(store: GitReader, other: str, folder: str) -> tuple[str, ...]:
    """Files that differ from another tree of the folder; empty if that tree is missing here."""
    try:
        return store.changed_paths(other, folder)
    except GitopsError:
        return ()
