"""Git as this product needs it: read objects without a checkout, write objects, move refs only by compare-and-swap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from gitops.core.dataclass import dataclass

ZERO = "0" * 40


@dataclass(frozen=True, slots=True)
class Person:
    """Author or committer of a commit; `time` is Unix seconds."""

    name: str
    email: str
    time: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit object. Ids are 40 lower-case hex digits."""

    id: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    committer: Person
    message: str


@dataclass(frozen=True, slots=True)
class CommitSignature:
    """What cryptography says about a signed object: whether the signature is good, and for which key.

    `key` is the base64 text of the SSH public key blob (the second field of a public key line), empty when unsigned.
    `good` says that the signature is mathematically valid for the payload in `namespace`; whether the key is trusted is
    decided by the trust root. `problem` explains a bad one.
    """

    signed: bool
    good: bool
    key: str = ""
    key_type: str = ""
    namespace: str = ""
    problem: str = ""


class EntryType(StrEnum):
    """What a tree entry is; links and submodules are refused wherever content is read."""

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
    """A commit to write. `time` is Unix seconds; the offset is always UTC."""

    tree: str
    parents: tuple[str, ...]
    author: Person
    message: str


@dataclass(frozen=True, slots=True)
class RefUpdate:
    """Move `ref` from `old` to `new`; ZERO as `old` means it must not exist, ZERO as `new` deletes it."""

    ref: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The tree that a merge would give, or None with the paths that conflict."""

    tree: str | None
    conflicts: tuple[str, ...] = ()


class GitReader(Protocol):
    """The read half. Replacement refs and grafts are never honoured. Raises GitopsError `git_object_missing`."""

    def resolve(self, revision: str) -> str | None:
        """The commit id that a full ref name or 40-hex id names, or None."""
        ...

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Full ref name to object id for all refs under `prefix`, sorted."""
        ...

    def commit(self, commit_id: str) -> Commit:
        """Read a commit."""
        ...

    def subtree(self, tree_id: str, path: str) -> str | None:
        """Tree id of the folder `path` (`.` for the tree itself), or None when there is no such folder."""
        ...

    def entries(self, tree_id: str) -> tuple[TreeEntry, ...]:
        """Entries of one tree level in git order."""
        ...

    def size(self, object_id: str) -> int:
        """Bytes of an object, which is not read for it."""
        ...

    def read(self, tree_id: str, path: str) -> bytes | None:
        """Content of the regular file at `path`, or None. A link or submodule anywhere on the way gives None."""
        ...

    def changed_paths(self, old_tree: str | None, new_tree: str) -> tuple[str, ...]:
        """Paths of files that differ between two trees, sorted; equal subtrees are not visited."""
        ...

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Whether `ancestor` is reachable from `descendant` (or is it). Raises `shallow_repository` rather than guess."""
        ...

    def merge_base(self, one: str, other: str) -> str | None:
        """A best common ancestor."""
        ...

    def only_merge_base(self, one: str, other: str) -> str | None:
        """The best common ancestor; None if there is none, if there are several, or if that would take long to find out."""
        ...

    def commits_between(
        self, base: str | None, head: str, *, first_parent: bool = False, most: int | None = None
    ) -> tuple[Commit, ...]:
        """Commits reachable from `head` and not from `base`, newest first; no more than `most` are read."""
        ...

    def merge(self, ours: str, theirs: str) -> MergeResult:
        """The tree of merging commit `theirs` into `ours`, without touching a ref or a work tree."""
        ...

    def merge_trees(self, base: str | None, ours: str, theirs: str, *, favor_theirs: bool = False) -> MergeResult:
        """The tree `ours` with what differs between the trees `base` (None for an empty one) and `theirs`.

        With `favor_theirs` lines that both changed are those of `theirs`.
        """
        ...

    def replay(self, commit_id: str, onto: str) -> MergeResult:
        """The tree of applying what a commit changed against its first parent on top of commit `onto`."""
        ...

    def signature(self, commit_id: str) -> CommitSignature:
        """Check the signature of a commit over its raw bytes; duplicate headers make it bad."""
        ...

    def verify(self, payload: bytes, armor: str, namespace: str) -> CommitSignature:
        """Check a detached armored signature of `payload`; one of another namespace is bad."""
        ...


class GitStore(GitReader, Protocol):
    """The write half: objects only; nothing becomes visible before a ref moves."""

    def write_files(self, base_tree: str | None, files: Mapping[str, bytes | None]) -> str:
        """A new tree: `base_tree` with the given paths written (None removes one); returns its id."""
        ...

    def write_commit(self, commit: NewCommit, *, signing_key: str | None) -> str:
        """Write a commit object, signed with the SSH key at path `signing_key` if given; returns its id.

        Raises GitopsError `signing_failed`.
        """
        ...

    def sign(self, payload: bytes, *, signing_key: str, namespace: str) -> str:
        """The armored signature of `payload` by the SSH key at path `signing_key`. Raises GitopsError `signing_failed`."""
        ...

    def update_refs(self, updates: Sequence[RefUpdate]) -> None:
        """Move all refs of this repository or none. Raises ConflictError `git_ref_conflict`."""
        ...


class GitRemote(Protocol):
    """Another repository, or this one seen as its own remote. All calls go through the git program."""

    @property
    def url(self) -> str:
        """The address, without credentials."""
        ...

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """The refs on the remote, now, that have one of these names or are in a folder of such a name.

        Raises RemoteError `git_remote_unavailable`.
        """
        ...

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Fetch exactly these refspecs with their objects. Raises RemoteError `git_remote_unavailable`."""
        ...

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Move all refs on the remote or none, each only from its `old`; `new` objects must exist locally.

        After a failure that may hide a success the refs are read back. Raises ConflictError `git_ref_conflict`, GitopsError
        `push_refused` (a hook or rule of the remote refused it; detail carries its text), RemoteError `git_remote_unavailable`.
        """
        ...
