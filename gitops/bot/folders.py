"""Cluster folders in git: none has a link, a submodule or an unsafe name; and which files of two of them differ."""

from __future__ import annotations

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


def require_plain(store: GitReader, folder: str, path: str) -> None:
    """Refuse a cluster folder with a link, a submodule or an unsafe name anywhere in it, declared or not.

    None of them is ever followed. But reviewers, and programs in a checkout, would see other bytes than an approval covers.

    Raises GitopsError `source_symlink`, `source_submodule`, `source_name_unsafe`, `source_too_large`.
    """
    pending, seen = [(path, folder)], {folder}
    while pending:
        directory, tree = pending.pop()
        entries = store.entries(tree)
        checked_listing(directory, (entry.name for entry in entries), _LISTING)
        for entry in entries:
            name = f"{directory}/{entry.name}"
            if entry.type in _LINKS:
                code, what = _LINKS[entry.type]
                raise GitopsError(code, f"{name} is a {what}", path=name)
            if entry.type is EntryType.TREE and entry.id not in seen:
                seen.add(entry.id)
                pending.append((name, entry.id))
        if len(seen) > _MAX_FOLDERS:
            raise GitopsError(Code.SOURCE_TOO_LARGE, f"{path} has more than {_MAX_FOLDERS} folders", path=path)


def changed_paths(store: GitReader, other: str, folder: str) -> tuple[str, ...]:
    """Files that differ from another tree of the folder; empty if that tree is missing here."""
    try:
        return store.changed_paths(other, folder)
    except GitopsError:
        return ()
