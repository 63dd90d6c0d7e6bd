"""A git repository on disk: read and written without a checkout, refs moved only by compare-and-swap.

Rules:

1. Objects are read as raw bytes and parsed here; libgit2 checks ids against the content.
2. Grafts are refused when the repository is opened, because libgit2 follows them; it ignores replacement refs.
3. Questions about history are answered only from full history.
4. Each thread has its own libgit2 repository, because the library's objects must not be shared.
5. Refs move through `git update-ref` transactions, because libgit2's own reference creation lets two racing creators both win.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pygit2
from pygit2.enums import ConfigLevel, MergeFavor, ObjectType, RepositoryOpenFlag, SortMode

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, UsageError
from gitops.git.command import GitProgram, Output, Quarantine, config_key
from gitops.git.objects import (
    check_updates,
    format_commit,
    is_below,
    is_id,
    is_ref,
    parse_commit,
    parse_tree,
    transaction,
    with_signature,
)
from gitops.git.port import (
    ZERO,
    Commit,
    CommitSignature,
    EntryType,
    MergeResult,
    NewCommit,
    Person,
    RefUpdate,
    TreeEntry,
)
from gitops.git.signatures import sign, verify_commit, verify_detached
from gitops.git.trees import (
    RecentTrees,
    TreeLevels,
    TreeWriter,
    changed_paths,
    check_size,
    is_parted_once,
    merge_apart,
    merged_index,
)

_KINDS = {"commit": ObjectType.COMMIT, "tree": ObjectType.TREE, "blob": ObjectType.BLOB, "tag": ObjectType.TAG}
_OUTSIDE = (ConfigLevel.PROGRAMDATA, ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL)
_MAX_TAGS = 8


class GitRepository:
    """GitStore implementation for one repository on disk, usable from several threads."""

    def __init__(
        self,
        path: str | Path,
        *,
        environ: Mapping[str, str] | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """Open the work tree or bare repository at `path` itself, of any owner.

        `quarantine` adds the objects of a push that is not accepted yet. Raises UsageError `not_a_repository`,
        GitopsError `git_failed` for a repository with grafts.
        """
        self._path = os.path.realpath(path)
        self._environ = environ
        self._quarantine = quarantine
        self._local = threading.local()
        self.git_dir = self._repo.path
        self._git = GitProgram(self.git_dir, environ=environ, quarantine=quarantine)
        self._settings: dict[str, str] | None = None
        grafts = self.common_dir / "info" / "grafts"
        if grafts.is_file() and grafts.stat().st_size:
            raise GitopsError(Code.GIT_FAILED, f"the repository has grafts, which rewrite history; remove {grafts}")

    @classmethod
    def discover(cls, start: str | Path, *, environ: Mapping[str, str] | None = None) -> GitRepository:
        """Open the repository that contains the folder `start`. Raises UsageError `not_a_repository`."""
        with _failures(os.fspath(start)):
            found = pygit2.discover_repository(os.fspath(start))
        if found is None:
            raise UsageError(Code.NOT_A_REPOSITORY, f"{start} is not inside a git repository")
        return cls(found, environ=environ)

    @property
    def work_tree(self) -> str | None:
        """The checked-out folder, or None for a bare repository."""
        return self._repo.workdir

    @property
    def is_shallow(self) -> bool:
        """True if the history is incomplete."""
        return bool(self._repo.is_shallow)

    def reopen(self) -> None:
        """Drop cached handles. An open handle does not notice that a fetch has completed a shallow history."""
        self._local = threading.local()

    def setting(self, key: str, *, path: bool = False) -> str | None:
        """Return a value of the current user's git configuration, which is read only once."""
        if self._settings is None:
            self._settings = self._as_user.settings()
        found = self._settings.get(config_key(key))
        # Only these need git to be read as a path: `~/x`, `~user/x`, `%(prefix)/x`, `:(optional)x` (git-config(1), pathname).
        return self._as_user.config(key, path=True) if path and found and found.startswith(("~", "%", ":")) else found

    def configure(self, values: Mapping[str, str]) -> None:
        """Set values in the repository's configuration."""
        for key, value in values.items():
            self._as_user.run("config", "--local", "--", key, value)
        self._settings = None

    @property
    def _as_user(self) -> GitProgram:
        return GitProgram(self.git_dir, environ=self._environ, as_user=True)

    def person(self) -> Person:
        """Return the author for commits from here. Call it before writing anything. Raises UsageError `actor_required`."""
        person = self.person_or_none()
        if person is None:
            raise UsageError(Code.ACTOR_REQUIRED, "git has no user.name or user.email for your commits")
        return person

    def person_or_none(self) -> Person | None:
        """Return the author for commits from here, or None if git has no name and address."""
        name, email = self.setting("user.name"), self.setting("user.email")
        return Person(name, email) if name and email else None

    def signing_key(self) -> str | None:
        """Return the path of the SSH key that signs commits from here."""
        return self.setting("user.signingKey", path=True)

    @property
    def _repo(self) -> pygit2.Repository:
        """The libgit2 repository of the current thread."""
        repo: pygit2.Repository | None = getattr(self._local, "repo", None)
        if repo is None:
            # Reading data of another owner is harmless: no hook and no program named in its configuration is run.
            pygit2.settings.owner_validation = False
            # No configuration outside of the repository: it could change merges, and may be in a home that cannot be read.
            for level in _OUTSIDE:
                pygit2.settings.search_path[level] = ""
            try:
                repo = pygit2.Repository(self._path, RepositoryOpenFlag.NO_SEARCH)
            except (pygit2.GitError, KeyError) as error:
                asked = GitProgram(self._path, environ=self._environ).run("rev-parse", "--show-object-format")
                if asked.stdout.strip() == b"sha256":
                    detail = f"{self._path} has object ids of SHA-256"
                    raise UsageError(Code.REPOSITORY_UNSUPPORTED, detail) from error
                raise UsageError(Code.NOT_A_REPOSITORY, f"{self._path}: {error}") from error
            objects = _common_dir(Path(repo.path)) / "objects"
            folders = list(object_folders(objects))
            if not os.access(objects, os.W_OK, effective_ids=True):
                # An auditor may only read: trees of merges go where they are forgotten. Refs cannot move there anyway.
                aside = tempfile.mkdtemp(prefix="gitops-objects-")
                weakref.finalize(repo, shutil.rmtree, aside, ignore_errors=True)
                repo.odb.add_backend(pygit2.OdbBackendLoose(aside, 1, False), PRIORITY + 1)
            if self._quarantine is not None:
                repo.odb.add_disk_alternate(self._quarantine.object_directory)
                folders.append(Path(self._quarantine.object_directory))
            repo.odb.add_backend(LooseObjectGuard(folders), PRIORITY)
            self._local.repo = repo
        return repo

    @property
    def _levels(self) -> TreeLevels:
        """The trees that the current thread has read recently."""
        levels: TreeLevels | None = getattr(self._local, "levels", None)
        if levels is None:
            levels = self._local.levels = TreeLevels(self._read)
        return levels

    @property
    def common_dir(self) -> Path:
        """The folder that a linked work tree shares with the main one."""
        return _common_dir(Path(self.git_dir))

    def _read(self, object_id: str, kind: str) -> bytes:
        """Bytes of an object of the expected kind."""
        with _failures(object_id):
            try:
                found, data = self._repo.odb.read(object_id)
            except KeyError:
                self._refuse_partial(object_id)
                raise
        if found != _KINDS[kind]:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"object {object_id} is not a {kind}")
        return data

    def _header(self, object_id: str) -> tuple[int, int]:
        """Kind and size of an object, without reading it."""
        with _failures(object_id):
            try:
                return self._repo.odb.read_header(object_id)
            except KeyError:
                self._refuse_partial(object_id)
                raise

    def _refuse_partial(self, object_id: str) -> None:
        """Raise GitopsError `partial_clone` if this is a partial clone, which left the object out."""
        if any(entry.name.endswith((".promisor", ".partialclone")) for entry in self._repo.config):
            raise GitopsError(Code.PARTIAL_CLONE, f"object {object_id[:12]} was left out (--filter)")

    def _write(self, kind: str, data: bytes) -> str:
        """Store an object."""
        with _failures("new object"):
            return str(self._repo.odb.write(_KINDS[kind], data))

    def _history_of(self, *commits: str) -> pygit2.Repository:
        """Return the repository if it has these commits and their whole history."""
        if self.is_shallow:
            raise GitopsError(Code.SHALLOW_REPOSITORY, "the repository is shallow, so its history cannot be checked")
        for commit_id in commits:
            self._read(commit_id, "commit")
        return self._repo

    # Reading refs and objects

    def resolve(self, revision: str) -> str | None:
        """Return the commit for a full ref name, `HEAD` or a full id, following tags. None for anything else."""
        object_id = revision if is_id(revision) else self._ref_target(revision)
        for _ in range(_MAX_TAGS):
            if object_id is None or object_id not in self._repo.odb:
                return None
            kind, _size = self._header(object_id)
            if kind == ObjectType.COMMIT:
                return object_id
            if kind != ObjectType.TAG:
                return None
            target = self._read(object_id, "tag").partition(b"\n")[0].removeprefix(b"object ").decode("latin-1")
            object_id = target if is_id(target) else None
        return None

    def revision(self, text: str) -> str | None:
        """The commit that a person names as git takes it: `HEAD~1`, `origin/main`, a tag, the beginning of an id; else None."""
        if is_id(text):
            return self.resolve(text)
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
        found = GitProgram(self._path, environ=self._environ).run(*words)
        return found.stdout.decode().strip() if found.ok else None

    def _ref_target(self, name: str) -> str | None:
        """Return the id that a ref points to, after following symbolic refs."""
        if not is_ref(name) and name != "HEAD":
            return None
        with _failures(name):
            try:
                return str(self._repo.lookup_reference(name).resolve().target)
            except KeyError:
                return None

    def symbolic_target(self, name: str) -> str | None:
        """Return the full name of the ref that a symbolic ref points to, even if it does not exist. None for other refs."""
        with _failures(name):
            try:
                target = self._repo.lookup_reference(name).raw_target
            except KeyError:
                return None
        return target.decode("utf-8", "replace") if isinstance(target, bytes) else None

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map the ref `prefix` and all refs below it to object ids, sorted by name."""
        # Where there is a ref, there is no folder of that name; to list all refs takes long where there are many.
        alone = self._ref_target(prefix)
        if alone is not None:
            return {prefix: alone}
        with _failures(prefix):
            names = [str(name) for name in self._repo.references if is_below(str(name), prefix)]
        targets = {name: self._ref_target(name) for name in sorted(names)}
        return {name: target for name, target in targets.items() if target is not None}

    def commit(self, commit_id: str) -> Commit:
        """Read a commit strictly from its raw bytes."""
        return parse_commit(commit_id, self._read(commit_id, "commit"))

    def subtree(self, tree_id: str, path: str) -> str | None:
        """Return the tree id of a folder. None also if a link or submodule is on the way."""
        entry = self._levels.find(tree_id, path)
        return entry.id if entry is not None and entry.type is EntryType.TREE else None

    def entries(self, tree_id: str) -> tuple[TreeEntry, ...]:
        """Return the entries of one tree level."""
        recent: RecentTrees[tuple[TreeEntry, ...]] | None = getattr(self._local, "entries", None)
        if recent is None:

            def read(tree_id: str) -> tuple[TreeEntry, ...]:
                return tuple(TreeEntry(e.name, e.type, e.id) for e in parse_tree(tree_id, self._read(tree_id, "tree")))

            recent = self._local.entries = RecentTrees(read)
        return recent.level(tree_id)

    def size(self, object_id: str) -> int:
        """Return the size of an object in bytes, from its header."""
        return self._header(object_id)[1]

    def read(self, tree_id: str, path: str) -> bytes | None:
        """Return the content of a regular file. None for anything else at `path` or on the way."""
        entry = self._levels.find(tree_id, path)
        return self._read(entry.id, "blob") if entry is not None and entry.type is EntryType.FILE else None

    def changed_paths(self, old_tree: str | None, new_tree: str) -> tuple[str, ...]:
        """Return the sorted paths of files, links and submodules that differ."""
        return tuple(sorted(changed_paths(self._read, old_tree, new_tree)))

    def signature(self, commit_id: str) -> CommitSignature:
        """Check the signature of a commit over its raw bytes."""
        return verify_commit(self._read(commit_id, "commit"))

    # History

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return True if `ancestor` is `descendant` or reachable from it."""
        repo = self._history_of(ancestor, descendant)
        with _failures(f"{ancestor}..{descendant}"):
            return ancestor == descendant or repo.descendant_of(descendant, ancestor)

    def merge_base(self, one: str, other: str) -> str | None:
        """Return one best common ancestor, or None."""
        repo = self._history_of(one, other)
        with _failures(f"{one}...{other}"):
            base: Any = repo.merge_base(one, other)
        return None if base is None else str(base)

    def only_merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor. None if there is none, or several, or the search would take too long."""
        base = self.merge_base(one, other)
        return base if base is not None and is_parted_once(self._repo, base, one, other) else None

    def commits_between(
        self, base: str | None, head: str, *, first_parent: bool = False, most: int | None = None
    ) -> tuple[Commit, ...]:
        """Return up to `most` commits that are reachable from `head` but not from `base`, each before its parents.

        With `first_parent`, only commits on the line of first parents from `head`.
        """
        repo = self._history_of(head, *([] if base is None else [base]))
        with _failures(f"{base}..{head}"):
            walker = repo.walk(head, SortMode.TOPOLOGICAL | SortMode.TIME)
            if base is not None:
                walker.hide(base)
            ids = [str(commit.id) for commit in islice(walker, None if first_parent else most)]
        if not first_parent:
            return tuple(self.commit(commit_id) for commit_id in ids)
        reachable, line, at = frozenset(ids), list[Commit](), [head]
        while at and at[0] in reachable and (most is None or len(line) < most):
            line.append(self.commit(at[0]))
            at = list(line[-1].parents[:1])
        return tuple(line)

    def merge(self, ours: str, theirs: str) -> MergeResult:
        """Merge `theirs` into `ours` in memory. Merge drivers and filters are never run."""
        repo = self._history_of(ours, theirs)
        trees = {commit_id: self.commit(commit_id).tree for commit_id in (ours, theirs)}
        check_size(self._read, trees[ours], trees[theirs])
        with _failures(f"{ours} and {theirs}"):
            base = self.merge_base(ours, theirs)
            if base is None:
                return merged_index(repo, repo.merge_commits(ours, theirs))
            if base in trees:
                # One continues the other, and is what merging gives: a merge would write the trees of all files again.
                return MergeResult(trees[theirs if base == ours else ours])
            apart = None
            if is_parted_once(repo, base, ours, theirs):
                apart = merge_apart(self._read, self._write, self.commit(base).tree, trees[ours], trees[theirs])
            return apart or merged_index(repo, repo.merge_commits(ours, theirs))

    def merge_trees(self, base: str | None, ours: str, theirs: str, *, favor_theirs: bool = False) -> MergeResult:
        """Apply the differences between the trees `base` (None for an empty one) and `theirs` to `ours`, in memory.

        With `favor_theirs`, `theirs` wins for lines that both changed.
        """
        repo, base = self._repo, base or self._write("tree", b"")
        check_size(self._read, base, theirs)
        with _failures(f"the trees {ours} and {theirs}"):
            if (apart := merge_apart(self._read, self._write, base, ours, theirs)) is not None:
                return apart
            ancestor, mine, others = (repo[tree].peel(pygit2.Tree) for tree in (base, ours, theirs))
            favor = MergeFavor.THEIRS if favor_theirs else MergeFavor.NORMAL
            return merged_index(repo, repo.merge_trees(ancestor, mine, others, favor))

    def replay(self, commit_id: str, onto: str) -> MergeResult:
        """Apply the changes of a commit, relative to its first parent, on top of the commit `onto`, in memory."""
        commit = self.commit(commit_id)
        base = self.commit(commit.parents[0]).tree if commit.parents else None
        return self.merge_trees(base, self.commit(onto).tree, commit.tree)

    def verify(self, payload: bytes, armor: str, namespace: str) -> CommitSignature:
        """Check a detached armored signature of `payload`. A signature for another namespace is invalid."""
        return verify_detached(payload, armor, namespace)

    # Writing

    def write_files(self, base_tree: str | None, files: Mapping[str, bytes | None]) -> str:
        """Write `base_tree` with the given paths added, replaced, or removed (None). Raises `source_name_unsafe`."""
        return TreeWriter(self._read, self._write).write(base_tree, files)

    def write_commit(self, commit: NewCommit, *, signing_key: str | None) -> str:
        """Write a commit and return its id. If `signing_key` is the path of an SSH key, sign the commit with it.

        For a `.pub` path, the ssh agent signs. Tree and parents must exist. Raises GitopsError `signing_failed`,
        `git_object_missing`.
        """
        self._read(commit.tree, "tree")
        for parent in commit.parents:
            self._read(parent, "commit")
        raw = format_commit(commit)
        if signing_key is not None:
            raw = with_signature(raw, sign(raw, signing_key, environ=self._environ))
        return self._write("commit", raw)

    def sign(self, payload: bytes, *, signing_key: str, namespace: str) -> str:
        """Return the armored signature of `payload`, made by ssh-keygen. Raises GitopsError `signing_failed`."""
        return sign(payload, signing_key, namespace=namespace, environ=self._environ)

    def update_refs(self, updates: Sequence[RefUpdate]) -> None:
        """Move all refs or none, in one transaction. Symbolic refs are replaced, not followed, and no hook runs.

        Raises ConflictError `git_ref_conflict`, GitopsError `git_object_missing` and `git_failed`.
        """
        if not updates:
            return
        check_updates(updates)
        for update in updates:
            if update.new != ZERO:
                self._header(update.new)
        output = self._git.run("update-ref", "--stdin", "-z", stdin=transaction(updates))
        if not output.ok:
            raise self._update_failure(updates, output)

    def _update_failure(self, updates: Sequence[RefUpdate], output: Output) -> GitopsError:
        """Return a conflict if a ref has moved or another process just locked it, otherwise the failure that git reports."""
        moved = [u.ref for u in updates if (self._ref_target(u.ref) or ZERO) != u.old]
        # A lock file that exists is another process; one that cannot be made for another reason is a problem of this repository.
        unusable = "Unable to create" in output.stderr and "File exists" not in output.stderr
        if moved or ("cannot lock ref" in output.stderr and not unusable):
            names = ", ".join(moved) or output.stderr.strip()
            return ConflictError(Code.GIT_REF_CONFLICT, f"a ref is not where it was expected: {names}")
        return GitopsError(Code.GIT_FAILED, output.stderr.strip() or "git update-ref did not answer in time")


def _common_dir(git_dir: Path) -> Path:
    """The folder that all work trees of a repository share (gitrepository-layout(5), `commondir`)."""
    link = git_dir / "commondir"
    return Path(os.path.normpath(git_dir / link.read_text(encoding="utf-8").strip())) if link.is_file() else git_dir


@contextmanager
def _failures(subject: str) -> Iterator[None]:
    """Turn the exceptions of libgit2 into ours."""
    try:
        yield
    except KeyError as error:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"{subject}: {error}") from error
    except ValueError as error:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"{subject} is not an object id or ref name: {error}") from error
    except pygit2.GitError as error:
        raise IntegrityError(Code.GIT_FAILED, f"{subject}: {error}") from error


# A check of loose objects before libgit2 reads them.
#
# Up to 1.9, libgit2 never returns from a loose object whose compressed data end too early (libgit2#7342), and writes past its
# buffer for one whose header states a smaller size than it has (libgit2#7177). Git refuses both. The files of a repository that
# is verified come from another machine, so each is inflated here first, once, with bounded memory. It
# costs some 5 microseconds an object, a quarter of what reading one takes.

# That of libgit2's packs: an object that is in a pack is found there, before its loose copy is looked at.
PRIORITY = 2
_CHUNK = 256 * 1024
_MAX_HEADER = 32
_MAX_DEPTH = 5
_MOST_REMEMBERED = 50_000
_LOOSE_KINDS = (b"commit", b"tree", b"blob", b"tag")


class LooseObjectGuard(pygit2.OdbBackend):
    """Object database backend that refuses broken loose objects and leaves all others to libgit2's backends."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """`folders` are the object folders of the repository, its own first."""
        super().__init__()
        self._folders = tuple(f"{folder}/" for folder in folders)
        # A merge reads the same history again and again; git never changes the file of an object.
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

    # The other ways in which libgit2 reads an object; it asks for none by less than its full id.
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
        """No object is here."""
        return iter(())

    def write_cb(self, _oid: object, data: bytes, kind: int) -> None:
        """Write a loose object as libgit2 does, which asks the first backend that can write."""
        pygit2.Odb(self._folders[0]).write(kind, data)


def is_whole(file: BinaryIO) -> bool:
    """Return True if a file is a complete loose object: zlib data to its end, and a header with the right size."""
    inflate = zlib.decompressobj()
    try:
        start = inflate.decompress(file.read(_CHUNK), _MAX_HEADER)
        header, end, content = start.partition(b"\0")
        kind, _, size = header.partition(b" ")
        if not end or kind not in _LOOSE_KINDS or not size.isdigit():
            return False
        length = len(content)
        while not inflate.eof and length <= int(size):
            data = inflate.unconsumed_tail or file.read(_CHUNK)
            found = inflate.decompress(data, _CHUNK)
            if not data and not found:
                return False
            length += len(found)
    except zlib.error:
        return False
    return inflate.eof and length == int(size) and not inflate.unused_data and not file.read(1)


def object_folders(objects: Path, depth: int = 0) -> Iterator[Path]:
    """Iterate over an object folder and its alternates (gitrepository-layout(5), `objects/info/alternates`)."""
    yield objects
    try:
        lines = (objects / "info" / "alternates").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        if depth < _MAX_DEPTH and line and not line.startswith("#"):
            yield from object_folders(objects / line, depth + 1)
