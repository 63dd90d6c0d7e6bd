"""The git operations that this product needs: read objects without a checkout, write objects, compare-and-swap refs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from gitops.core.dataclass import dataclass

ZERO = "0" * 40
"""The null id, in repositories of every object format. Ids from git or a forge are read with `or_zero`."""
_LONG_ZERO = "0" * 64


def or_zero(object_id: str) -> str:
    """Return an id unchanged, but ZERO for the longer null id of a SHA-256 repository."""
    return ZERO if object_id == _LONG_ZERO else object_id


@dataclass(frozen=True, slots=True)
class Person:
    """Author or committer of a commit. `time` is in Unix seconds."""

    name: str
    email: str
    time: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit object. Ids are lower-case hex digits, in the length of the repository's object format."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclass(frozen=True, slots=True)
class CommitSignature:
    """Result of checking a signature cryptographically: whether it is valid, and the key that made it.

    `key` is the base64 text of the SSH public key blob (the second field of a public key line), empty if unsigned.
    `good` means that the signature is mathematically valid for the payload in `namespace`. The trust root decides
    whether the key is trusted. `problem` explains an invalid signature.
    """

    signed: bool
    good: bool
    key: str = ""
    key_type: str = ""
    namespace: str = ""
    problem: str = ""


class EntryType(StrEnum):
    """Type of a tree entry. Links and submodules are refused wherever content is read."""

    FILE = "file"
    TREE = "tree"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One entry of a tree."""

    name: str
    type: EntryType
    id: str


@dataclass(frozen=True, slots=True)
class NewCommit:
    """A commit to write. `time` is in Unix seconds, and the offset is always UTC."""

    tree: str
    parents: tuple[str, ...]
    author: Person
    message: str


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """A move of `ref` from `old` to `new`. ZERO as `old` means that the ref must not exist; ZERO as `new` deletes it."""

    ref: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The merged tree, or None and the conflicting paths."""

    tree: str | None
    conflicts: tuple[str, ...] = ()


class GitReader(Protocol):
    """The reading half of git. It never follows replacement refs or grafts. Raises GitopsError `git_object_missing`."""

    def resolve(self, revision: str) -> str | None:
        """Return the commit id for a full ref name or a full id, or None."""
        ...

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map full ref names under `prefix` to object ids, sorted by name."""
        ...

    def commit(self, commit_id: str) -> Commit:
        """Read a commit."""
        ...

    def subtree(self, tree_id: str, path: str) -> str | None:
        """Return the tree id of the folder `path` (`.` for the tree itself), or None if there is no such folder."""
        ...

    def entries(self, tree_id: str) -> tuple[TreeEntry, ...]:
        """Return the entries of one tree level in git order."""
        ...

    def size(self, object_id: str) -> int:
        """Return the size of an object in bytes without reading it."""
        ...

    def read(self, tree_id: str, path: str) -> bytes | None:
        """Return the content of the regular file at `path`.

        Returns None if it is missing, or if the path contains a link or submodule.
        """
        ...

    def changed_paths(self, old_tree: str | None, new_tree: str) -> tuple[str, ...]:
        """Return the sorted paths of files that differ between two trees, skipping equal subtrees."""
        ...

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return True if `ancestor` is `descendant` or reachable from it. Raises `shallow_repository` if that is unknown."""
        ...

    def merge_base(self, one: str, other: str) -> str | None:
        """Return one best common ancestor, or None."""
        ...

    def only_merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor. None if there is none or more than one, or if the search would take too long."""
        ...

    def commits_between(
        self, base: str | None, head: str, *, first_parent: bool = False, most: int | None = None
    ) -> tuple[Commit, ...]:
        """Return up to `most` commits that are reachable from `head` but not from `base`, newest first."""
        ...

    def merge(self, ours: str, theirs: str) -> MergeResult:
        """Merge commit `theirs` into `ours` without touching a ref or a work tree."""
        ...

    def merge_trees(
        self, base: str | None, ours: str | None, theirs: str, *, favor_theirs: bool = False
    ) -> MergeResult:
        """Apply what changed from the tree `base` to `theirs` to the tree `ours`. None stands for an empty tree.

        With `favor_theirs`, `theirs` wins for lines that both changed.
        """
        ...

    def replay(self, commit_id: str, onto: str) -> MergeResult:
        """Apply what a commit changed, relative to its first parent, on top of the commit `onto`."""
        ...

    def signature(self, commit_id: str) -> CommitSignature:
        """Check the signature of a commit over its raw bytes. Duplicate headers make it invalid."""
        ...

    def verify(self, payload: bytes, armor: str, namespace: str) -> CommitSignature:
        """Check a detached armored signature of `payload`. It is invalid if it was made for a different namespace."""
        ...


class GitStore(GitReader, Protocol):
    """The writing half of git. It writes only objects, so nothing is visible before a ref moves."""

    def write_files(self, base_tree: str | None, files: Mapping[str, bytes | None]) -> str:
        """Write `base_tree` with the given paths added, replaced, or removed (None), and return the new tree's id."""
        ...

    def write_commit(self, commit: NewCommit, *, signing_key: str | None) -> str:
        """Write a commit object and return its id. If `signing_key` is the path of an SSH key, sign the commit with it.

        Raises GitopsError `signing_failed`.
        """
        ...

    def sign(self, payload: bytes, *, signing_key: str, namespace: str) -> str:
        """Return the armored signature of `payload` by the SSH key at path `signing_key`. Raises GitopsError `signing_failed`."""
        ...

    def update_refs(self, updates: Sequence[RefUpdate]) -> None:
        """Atomically move refs of this repository. Raises ConflictError `git_ref_conflict`."""
        ...


class GitEngine(Protocol):
    """Reads and writes the files of one repository for `GitRepository`, which has the rules. For one thread.

    Ids and names are passed unchanged: an id of a different object format is a missing object. Commits in history
    queries exist.
    """

    name: str
    object_format: str
    git_dir: str

    @property
    def work_tree(self) -> str | None:
        """The checked-out folder, or None for a bare repository."""
        ...

    @property
    def is_shallow(self) -> bool:
        """True if the history is incomplete."""
        ...

    @property
    def is_partial(self) -> bool:
        """True if objects might be missing."""
        ...

    def read(self, object_id: str) -> tuple[str, bytes] | None:
        """Return kind and bytes of an object whose content has this id, or None if it is missing."""
        ...

    def header(self, object_id: str) -> tuple[str, int] | None:
        """Return kind and size of an object without reading it, or None if it is missing."""
        ...

    def write(self, kind: str, data: bytes) -> str:
        """Store an object and return its id."""
        ...

    def target(self, name: str) -> str | None:
        """Return the id that a ref or `HEAD` points to, after following symbolic refs."""
        ...

    def symbolic_target(self, name: str) -> str | None:
        """Return the name of the ref that a symbolic ref points to, even if it does not exist. None for other refs."""
        ...

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map the ref `prefix` and all refs below it to object ids, sorted by name."""
        ...

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return True if `ancestor` is `descendant` or reachable from it."""
        ...

    def merge_base(self, one: str, other: str) -> str | None:
        """Return one best common ancestor, or None."""
        ...

    def is_only_base(self, base: str, one: str, other: str) -> bool:
        """Return True if `base` is the only best common ancestor. False also if the search would take too long."""
        ...

    def commits(self, base: str | None, head: str, most: int | None) -> Sequence[str]:
        """Return up to `most` commits that are reachable from `head` but not from `base`, newest first, parents last."""
        ...

    def merge_commits(self, ours: str, theirs: str) -> MergeResult:
        """Merge two commits by lines, detecting renamed files. Merge drivers and filters are never run."""
        ...

    def merge_trees(self, base: str, ours: str, theirs: str, *, favor_theirs: bool) -> MergeResult:
        """Merge two trees like `merge_commits`. With `favor_theirs`, `theirs` wins for lines that both changed."""
        ...


class GitRemote(Protocol):
    """Another repository, or this one as its own remote. All calls use the git program."""

    @property
    def url(self) -> str:
        """The address, without credentials."""
        ...

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """Return the remote's current refs that have one of these names, or are below one of them.

        Raises RemoteError `git_remote_unavailable`.
        """
        ...

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Fetch exactly these refspecs with their objects. Raises RemoteError `git_remote_unavailable`."""
        ...

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Atomically move refs on the remote, each only if it is still at its `old`. The `new` objects must exist locally.

        If a failure might hide a success, the refs are read back. Raises ConflictError `git_ref_conflict`, GitopsError
        `push_refused` if a hook or rule of the remote refused it (the detail has its text), RemoteError
        `git_remote_unavailable`.
        """
        ...
