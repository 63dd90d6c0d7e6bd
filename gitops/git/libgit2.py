"""The engine for most repositories: libgit2, which needs no extra process.

It supports neither SHA-256 ids nor reftables.

1. Objects are read as raw bytes; libgit2 checks ids against the content.
2. Reading another owner's data is harmless, because hooks and programs in its configuration are never run.
3. Configuration outside of the repository is not read, because it could change merges, and can be in an unreadable home
   folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import pygit2
from pygit2.enums import ConfigLevel, MergeFavor, ObjectType, RepositoryOpenFlag, SortMode

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.git.command import Quarantine
from gitops.git.loose import is_whole, object_folders
from gitops.git.objects import is_below, is_ref
from gitops.git.port import MergeResult

_KINDS = {"commit": ObjectType.COMMIT, "tree": ObjectType.TREE, "blob": ObjectType.BLOB, "tag": ObjectType.TAG}
_NAMES = {value: name for name, value in _KINDS.items()}
_OUTSIDE = (ConfigLevel.PROGRAMDATA, ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL)
_MAX_WALKED = 10_000
_MOST_REMEMBERED = 50_000

# The priority of libgit2's packs. An object that is also in a pack is found there before its loose copy is checked.
PRIORITY = 2


def find_git_dir(start: str, *, search: bool = True) -> str | None:
    """Return the git folder of the repository at `start` or, with `search`, of a parent folder.

    None if there is none.
    """
    ceiling = "" if search else os.path.dirname(start)  # noqa: PTH120 - the path is text
    with _failures(start):
        found: str | None = pygit2.discover_repository(start, False, ceiling)
    return found


class Libgit2Engine:
    """A GitEngine that uses libgit2, for one thread."""

    name = "libgit2"
    object_format = "sha1"

    def __init__(self, path: str, quarantine: Quarantine | None = None) -> None:
        """Open the repository at `path` itself. Raises UsageError `not_a_repository` also if libgit2 cannot read it."""
        pygit2.settings.owner_validation = False
        for level in _OUTSIDE:
            pygit2.settings.search_path[level] = ""
        try:
            self.repo = pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
        except (pygit2.GitError, KeyError) as error:
            raise UsageError(Code.NOT_A_REPOSITORY, f"{path}: {error}") from error
        self.git_dir: str = self.repo.path
        self.work_tree: str | None = self.repo.workdir
        objects = common_dir(self.git_dir) / "objects"
        folders = list(object_folders(objects))
        if not os.access(objects, os.W_OK, effective_ids=True):
            # An auditor may have only read access, so trees of merges are written to a place that is discarded. Refs
            # cannot move there anyway.
            aside = tempfile.mkdtemp(prefix="gitops-objects-")
            weakref.finalize(self.repo, shutil.rmtree, aside, ignore_errors=True)
            self.repo.odb.add_backend(pygit2.OdbBackendLoose(aside, 1, False), PRIORITY + 1)
        if quarantine is not None:
            self.repo.odb.add_disk_alternate(quarantine.object_directory)
            folders.append(Path(quarantine.object_directory))
        self.repo.odb.add_backend(LooseObjectGuard(folders), PRIORITY)

    @property
    def is_shallow(self) -> bool:
        """True if the history is incomplete."""
        return bool(self.repo.is_shallow)

    @property
    def is_partial(self) -> bool:
        """True if objects might be missing."""
        return any(entry.name.endswith((".promisor", ".partialclone")) for entry in self.repo.config)

    # Objects and refs

    def read(self, object_id: str) -> tuple[str, bytes] | None:
        """Return kind and bytes of an object, or None if it is missing."""
        with _failures(object_id):
            try:
                kind, data = self.repo.odb.read(object_id)
            except (KeyError, ValueError):
                return None
        return _NAMES[ObjectType(kind)], data

    def header(self, object_id: str) -> tuple[str, int] | None:
        """Return kind and size of an object without reading it, or None if it is missing."""
        with _failures(object_id):
            try:
                kind, size = self.repo.odb.read_header(object_id)
            except (KeyError, ValueError):
                return None
        return _NAMES[ObjectType(kind)], size

    def write(self, kind: str, data: bytes) -> str:
        """Store an object and return its id."""
        with _failures("new object"):
            return str(self.repo.odb.write(_KINDS[kind], data))

    def target(self, name: str) -> str | None:
        """Return the id that a ref points to, after following symbolic refs."""
        with _failures(name):
            try:
                return str(self.repo.lookup_reference(name).resolve().target)
            except KeyError:
                return None

    def symbolic_target(self, name: str) -> str | None:
        """Return the name of the ref that a symbolic ref points to, or None for other refs."""
        with _failures(name):
            try:
                target = self.repo.lookup_reference(name).raw_target
            except KeyError:
                return None
        return target.decode("utf-8", "replace") if isinstance(target, bytes) else None

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map the ref `prefix` and all refs below it to object ids, sorted by name."""
        # If a ref has this name, no folder does. Listing all refs is slow if there are many.
        alone = self.target(prefix) if is_ref(prefix) else None
        if alone is not None:
            return {prefix: alone}
        with _failures(prefix):
            names = [str(name) for name in self.repo.references if is_below(str(name), prefix)]
        targets = {name: self.target(name) for name in sorted(names)}
        return {name: target for name, target in targets.items() if target is not None}

    # History and merges

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return True if `ancestor` is reachable from `descendant`."""
        with _failures(f"{ancestor}..{descendant}"):
            return ancestor == descendant or self.repo.descendant_of(descendant, ancestor)

    def merge_base(self, one: str, other: str) -> str | None:
        """Return one best common ancestor, or None."""
        with _failures(f"{one}...{other}"):
            base: Any = self.repo.merge_base(one, other)
        return None if base is None else str(base)

    def is_only_base(self, base: str, one: str, other: str) -> bool:
        """Return True if `base` is the only best common ancestor. False also if the search would take too long."""
        sides = []
        with _failures(f"{one}...{other}"):
            for head in (one, other):
                walker = self.repo.walk(head, SortMode.NONE)
                walker.hide(base)
                sides.append({commit.id for commit in islice(walker, _MAX_WALKED)})
        # A second common ancestor would be reachable from both commits, but not from the first ancestor.
        return all(len(side) < _MAX_WALKED for side in sides) and sides[0].isdisjoint(sides[1])

    def commits(self, base: str | None, head: str, most: int | None) -> Sequence[str]:
        """Return up to `most` commits that are reachable from `head` but not from `base`, each before its parents."""
        with _failures(f"{base}..{head}"):
            walker = self.repo.walk(head, SortMode.TOPOLOGICAL | SortMode.TIME)
            if base is not None:
                walker.hide(base)
            return [str(commit.id) for commit in islice(walker, most)]

    def merge_commits(self, ours: str, theirs: str) -> MergeResult:
        """Merge two commits by lines, detecting renamed files."""
        with _failures(f"{ours} and {theirs}"):
            return self._merged(self.repo.merge_commits(ours, theirs))

    def merge_trees(self, base: str, ours: str, theirs: str, *, favor_theirs: bool) -> MergeResult:
        """Merge two trees by lines, detecting renamed files."""
        favor = MergeFavor.THEIRS if favor_theirs else MergeFavor.NORMAL
        with _failures(f"the trees {ours} and {theirs}"):
            ancestor, mine, others = (self.repo[tree].peel(pygit2.Tree) for tree in (base, ours, theirs))
            return self._merged(self.repo.merge_trees(ancestor, mine, others, favor))

    def _merged(self, index: pygit2.Index) -> MergeResult:
        """Return the tree of a merge, or its conflicts."""
        if index.conflicts is not None:
            sides = (side for conflict in index.conflicts for side in conflict)
            return MergeResult(None, tuple(sorted({side.path for side in sides if side is not None})))
        return MergeResult(str(index.write_tree(self.repo)))


def common_dir(git_dir: str) -> Path:
    """Return the folder that all work trees of a repository share (gitrepository-layout(5), `commondir`)."""
    folder = Path(git_dir)
    link = folder / "commondir"
    return Path(os.path.normpath(folder / link.read_text(encoding="utf-8").strip())) if link.is_file() else folder


@contextmanager
def _failures(subject: str) -> Iterator[None]:
    """Convert libgit2's exceptions to ours."""
    try:
        yield
    except KeyError as error:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"{subject}: {error}") from error
    except ValueError as error:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"{subject} is not an object id or ref name: {error}") from error
    except pygit2.GitError as error:
        raise IntegrityError(Code.GIT_FAILED, f"{subject}: {error}") from error


class LooseObjectGuard(pygit2.OdbBackend):
    """Object database backend that refuses broken loose objects and leaves the others to libgit2's backends."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """`folders` are the object folders of the repository, its own first."""
        super().__init__()
        self._folders = tuple(f"{folder}/" for folder in folders)
        # A merge reads the same history again and again, and git never changes an object's file.
        self._whole: set[str] = set()

    def read_cb(self, oid: object) -> NoReturn:
        """Refuse a broken loose object with GitError. Otherwise raise KeyError, which means "not here"."""
        name = str(oid)
        if name in self._whole:
            raise KeyError(name)
        for folder in self._folders:
            try:
                with open(f"{folder}{name[:2]}/{name[2:]}", "rb") as file:  # noqa: PTH123 - on the path of every object
                    whole = is_whole(file)
            except OSError:
                continue
            if not whole:
                raise pygit2.GitError(f"the file of object {name} is broken")
            if len(self._whole) < _MOST_REMEMBERED:
                self._whole.add(name)
        raise KeyError(name)

    # Other ways in which libgit2 reads an object. It always requests full ids.
    read_prefix_cb = read_cb
    read_header_cb = read_cb

    def exists_cb(self, _oid: object) -> bool:
        """Report that this backend has no object."""
        return False

    def exists_prefix_cb(self, oid: object) -> NoReturn:
        """Report that this backend has no object."""
        raise KeyError(str(oid))

    def refresh_cb(self) -> None:
        """Discard cached checks, because files may have been added or removed."""
        self._whole.clear()

    def __iter__(self) -> Iterator[pygit2.Oid]:
        """Iterate over no objects, because none are stored here."""
        return iter(())

    def write_cb(self, _oid: object, data: bytes, kind: int) -> None:
        """Write a loose object as libgit2 does. Libgit2 asks the first backend that can write."""
        pygit2.Odb(self._folders[0]).write(kind, data)
