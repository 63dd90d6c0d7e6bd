"""A git repository on disk. Reads and writes it without a checkout, and moves refs only by compare-and-swap.

Rules:

1. Files are read and written by an engine: libgit2, because it is faster, or the git program if libgit2 cannot read the
   repository. `open_engine` chooses. Objects are read as raw bytes and parsed here; engines check ids against the
   content.
2. Grafts are refused when the repository is opened, because libgit2 follows them; engines ignore replacement refs.
3. Queries about history are answered only from full history.
4. Each thread has its own engine, because the objects of libgit2 must not be shared.
5. Refs move through `git update-ref` transactions, because libgit2's own reference creation lets two racing creators both win.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import ConflictError, GitopsError, UsageError
from gitops.git.command import GitProgram, Output, Quarantine, config_key
from gitops.git.libgit2 import Libgit2Engine, common_dir, find_git_dir
from gitops.git.objects import (
    check_updates,
    format_commit,
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
    GitEngine,
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
    merge_apart,
)

_MAX_TAGS = 8


def open_engine(path: str, environ: Mapping[str, str] | None, quarantine: Quarantine | None) -> GitEngine:
    """Return the engine for the repository at `path`: libgit2 if it can read the repository, otherwise the git program.

    Raises UsageError `not_a_repository`, and `repository_unsupported` if this git program cannot read it either.
    """
    try:
        return Libgit2Engine(path, quarantine)
    except UsageError:
        git_dir = find_git_dir(path, search=False)
        if git_dir is None:
            raise
    from gitops.git.plumbing import PlumbingEngine

    return PlumbingEngine(git_dir, environ, quarantine)


class GitRepository:
    """A GitStore for one repository on disk. Several threads can use it."""

    def __init__(
        self,
        path: str | Path,
        *,
        environ: Mapping[str, str] | None = None,
        quarantine: Quarantine | None = None,
    ) -> None:
        """Open the work tree or bare repository at `path` itself, of any owner.

        `quarantine` adds the objects of a push that is not accepted yet. Raises UsageError `not_a_repository` and
        `repository_unsupported`, GitopsError `git_failed` for a repository with grafts.
        """
        self._path = os.path.realpath(path)
        self._environ = environ
        self._quarantine = quarantine
        self._local = threading.local()
        self.git_dir = self._engine.git_dir
        self._git = GitProgram(self.git_dir, environ=environ, quarantine=quarantine)
        self._settings: dict[str, str] | None = None
        self._refuse_grafts()

    def _refuse_grafts(self) -> None:
        """Raise GitopsError `git_failed` if the repository has grafts."""
        grafts = self.common_dir / "info" / "grafts"
        if grafts.is_file() and grafts.stat().st_size:
            detail = f"the repository has grafts, which change its history: {grafts}"
            raise GitopsError(Code.GIT_FAILED, detail, fix=f"remove the file: rm {shlex.quote(str(grafts))}")

    @classmethod
    def discover(cls, start: str | Path, *, environ: Mapping[str, str] | None = None) -> GitRepository:
        """Open the repository that contains the folder `start`. Raises UsageError `not_a_repository`."""
        found = find_git_dir(os.fspath(start))
        if found is None:
            raise UsageError(Code.NOT_A_REPOSITORY, f"{start} is not inside a git repository")
        return cls(found, environ=environ)

    @property
    def work_tree(self) -> str | None:
        """The checked-out folder, or None for a bare repository."""
        return self._engine.work_tree

    @property
    def engine_name(self) -> str:
        """The name of the engine that reads this repository."""
        return self._engine.name

    @property
    def object_format(self) -> str:
        """Format of object ids: `sha1` or `sha256`."""
        return self._engine.object_format

    @property
    def is_shallow(self) -> bool:
        """True if the history is incomplete."""
        return self._engine.is_shallow

    def reopen(self) -> None:
        """Drop cached handles. An open handle does not notice that a fetch has completed a shallow history."""
        self._local = threading.local()

    def setting(self, key: str, *, path: bool = False) -> str | None:
        """Return a value of the current user's git configuration. The configuration is read only once."""
        if self._settings is None:
            self._settings = self._as_user.settings()
        found = self._settings.get(config_key(key))
        # Git must read only these as a path: `~/x`, `~user/x`, `%(prefix)/x`, `:(optional)x` (git-config(1), pathname).
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
        """Return the author for commits from here. None if git has no name and address."""
        name, email = self.setting("user.name"), self.setting("user.email")
        return Person(name, email) if name and email else None

    def signing_key(self) -> str | None:
        """Return the path of the SSH key that signs commits from here."""
        return self.setting("user.signingKey", path=True)

    @property
    def _engine(self) -> GitEngine:
        """The current thread's engine."""
        engine: GitEngine | None = getattr(self._local, "engine", None)
        if engine is None:
            engine = self._local.engine = open_engine(self._path, self._environ, self._quarantine)
        return engine

    @property
    def _levels(self) -> TreeLevels:
        """Trees that the current thread has read recently."""
        levels: TreeLevels | None = getattr(self._local, "levels", None)
        if levels is None:
            levels = self._local.levels = TreeLevels(self._read)
        return levels

    @property
    def common_dir(self) -> Path:
        """The folder that a linked work tree shares with the main one."""
        return common_dir(self.git_dir)

    def _read(self, object_id: str, kind: str) -> bytes:
        """Read the bytes of an object of the expected kind."""
        found = self._engine.read(object_id)
        if found is None:
            raise self._missing(object_id)
        if found[0] != kind:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"object {object_id} is not a {kind}")
        return found[1]

    def _missing(self, object_id: str) -> GitopsError:
        """Return the error for a missing object, which a partial or shallow clone may have omitted."""
        if self._engine.is_partial:
            return GitopsError(Code.PARTIAL_CLONE, f"object {object_id[:12]} was left out (--filter)")
        if self.is_shallow:
            detail = f"the repository is shallow, and object {object_id[:12]} is not in it"
            return GitopsError(Code.SHALLOW_REPOSITORY, detail)
        return GitopsError(Code.GIT_OBJECT_MISSING, f"there is no object {object_id}")

    @contextmanager
    def _merging(self, subject: str) -> Iterator[None]:
        """Report a partial clone, because the engine does not report which object of a merge is missing."""
        try:
            yield
        except GitopsError as error:
            if error.code in (Code.GIT_FAILED, Code.GIT_OBJECT_MISSING) and self._engine.is_partial:
                detail = f"{subject}: an object that the merge needs was left out (--filter)"
                raise GitopsError(Code.PARTIAL_CLONE, detail) from error
            raise

    def _write(self, kind: str, data: bytes) -> str:
        """Store an object."""
        return self._engine.write(kind, data)

    def _history_of(self, *commits: str) -> GitEngine:
        """Return the engine if the repository has these commits and their complete history."""
        if self.is_shallow:
            raise GitopsError(Code.SHALLOW_REPOSITORY, "the repository is shallow, so its history cannot be checked")
        for commit_id in commits:
            self._read(commit_id, "commit")
        return self._engine

    # Reading refs and objects

    def resolve(self, revision: str) -> str | None:
        """Return the commit for a full ref name, `HEAD` or a full id, following tags. None for anything else."""
        object_id = revision if is_object_id(revision) else self._ref_target(revision)
        for _ in range(_MAX_TAGS):
            found = None if object_id is None else self._engine.header(object_id)
            if object_id is None or found is None or found[0] not in ("commit", "tag"):
                return None
            if found[0] == "commit":
                return object_id
            target = self._read(object_id, "tag").partition(b"\n")[0].removeprefix(b"object ").decode("latin-1")
            object_id = target if is_object_id(target) else None
        return None

    def revision(self, text: str) -> str | None:
        """Return the commit id of a revision in git's syntax. None if there is no such commit.

        A revision is, for example, `HEAD~1`, `origin/main`, a tag or an abbreviated id.
        """
        if is_object_id(text):
            return self.resolve(text)
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}")
        found = GitProgram(self._path, environ=self._environ).run(*words)
        return found.stdout.decode().strip() if found.ok else None

    def _ref_target(self, name: str) -> str | None:
        """Return the id that a ref points to, after following symbolic refs."""
        return self._engine.target(name) if is_ref(name) or name == "HEAD" else None

    def symbolic_target(self, name: str) -> str | None:
        """Return the full name of the ref that a symbolic ref points to, even if it does not exist. None for other refs."""
        return self._engine.symbolic_target(name) if is_ref(name) or name == "HEAD" else None

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map the ref `prefix` and all refs below it to object ids, sorted by name."""
        return self._engine.refs(prefix)

    def commit(self, commit_id: str) -> Commit:
        """Read a commit strictly from its raw bytes."""
        return parse_commit(commit_id, self._read(commit_id, "commit"))

    def subtree(self, tree_id: str, path: str) -> str | None:
        """Return the tree id of a folder. None if it does not exist, or if a link or submodule is on the way."""
        entry = self._levels.find(tree_id, path)
        return entry.id if entry is not None and entry.type is EntryType.TREE else None

    def has_changes(self, tree_id: str, path: str) -> bool:
        """Return True if a folder of the work tree differs from the folder in a tree, in files that git does not ignore."""
        head = self.resolve("HEAD")
        if head is None or self.subtree(self.commit(head).tree, path) != self.subtree(tree_id, path):
            return True
        words = (f"--work-tree={self.work_tree}", "status", "--porcelain", "--untracked-files=all", "--", path)
        found = self._git.run(*words, folder=self.work_tree)
        return not found.ok or bool(found.stdout)

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
        found = self._engine.header(object_id)
        if found is None:
            raise self._missing(object_id)
        return found[1]

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
        return self._history_of(ancestor, descendant).is_ancestor(ancestor, descendant)

    def merge_base(self, one: str, other: str) -> str | None:
        """Return one best common ancestor, or None."""
        return self._history_of(one, other).merge_base(one, other)

    def only_merge_base(self, one: str, other: str) -> str | None:
        """Return the best common ancestor. None if there is none or more than one, or if the search would take too long."""
        base = self.merge_base(one, other)
        return base if base is not None and self._engine.is_only_base(base, one, other) else None

    def commits_between(
        self, base: str | None, head: str, *, first_parent: bool = False, most: int | None = None
    ) -> tuple[Commit, ...]:
        """Return up to `most` commits that are reachable from `head` but not from `base`, each before its parents.

        With `first_parent`, only commits on the line of first parents from `head`.
        """
        engine = self._history_of(head, *([] if base is None else [base]))
        ids = engine.commits(base, head, None if first_parent else most)
        if not first_parent:
            return tuple(self.commit(commit_id) for commit_id in ids)
        reachable, line, at = frozenset(ids), list[Commit](), [head]
        while at and at[0] in reachable and (most is None or len(line) < most):
            line.append(self.commit(at[0]))
            at = list(line[-1].parents[:1])
        return tuple(line)

    def merge(self, ours: str, theirs: str) -> MergeResult:
        """Merge `theirs` into `ours` in memory. Merge drivers and filters are never run."""
        engine = self._history_of(ours, theirs)
        trees = {commit_id: self.commit(commit_id).tree for commit_id in (ours, theirs)}
        check_size(self._read, trees[ours], trees[theirs])
        with self._merging(f"{ours} and {theirs}"):
            base = self.merge_base(ours, theirs)
            if base is None:
                return engine.merge_commits(ours, theirs)
            if base in trees:
                # If one commit continues the other, it is the result, because a merge would write the trees of all
                # files again.
                return MergeResult(trees[theirs if base == ours else ours])
            apart = None
            if engine.is_only_base(base, ours, theirs):
                apart = merge_apart(self._read, self._write, self.commit(base).tree, trees[ours], trees[theirs])
            return apart or engine.merge_commits(ours, theirs)

    def merge_trees(
        self, base: str | None, ours: str | None, theirs: str, *, favor_theirs: bool = False
    ) -> MergeResult:
        """Apply what changed from the tree `base` to `theirs` to `ours`, in memory. None stands for an empty tree.

        With `favor_theirs`, `theirs` wins for lines that both changed.
        """
        base, ours = (tree or self._write("tree", b"") for tree in (base, ours))
        check_size(self._read, base, theirs)
        with self._merging(f"the trees {ours} and {theirs}"):
            apart = merge_apart(self._read, self._write, base, ours, theirs)
            return apart or self._engine.merge_trees(base, ours, theirs, favor_theirs=favor_theirs)

    def replay(self, commit_id: str, onto: str) -> MergeResult:
        """Apply what a commit changed, relative to its first parent, on top of the commit `onto`, in memory."""
        commit = self.commit(commit_id)
        base = self.commit(commit.parents[0]).tree if commit.parents else None
        return self.merge_trees(base, self.commit(onto).tree, commit.tree)

    def verify(self, payload: bytes, armor: str, namespace: str) -> CommitSignature:
        """Check a detached armored signature of `payload`. It is invalid if it was made for a different namespace."""
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
        """Move refs in one transaction. Replaces symbolic refs instead of following them, and runs no hooks.

        Raises ConflictError `git_ref_conflict`, GitopsError `git_object_missing` and `git_failed`.
        """
        if not updates:
            return
        check_updates(updates)
        for update in updates:
            if update.new != ZERO:
                self.size(update.new)
        output = self._git.run("update-ref", "--stdin", "-z", stdin=transaction(updates))
        if not output.ok:
            raise self._update_failure(updates, output)

    def _update_failure(self, updates: Sequence[RefUpdate], output: Output) -> GitopsError:
        """Return a conflict if a ref has moved or another process has just locked it, otherwise the failure that git reports."""
        moved = [u.ref for u in updates if (self._ref_target(u.ref) or ZERO) != u.old]
        # An existing lock file belongs to another process. If it cannot be created for any other reason, this
        # repository has a problem.
        unusable = "Unable to create" in output.stderr and "File exists" not in output.stderr
        if moved or ("cannot lock ref" in output.stderr and not unusable):
            names = ", ".join(moved) or output.stderr.strip()
            return ConflictError(Code.GIT_REF_CONFLICT, f"a ref is not where it was expected: {names}")
        return GitopsError(Code.GIT_FAILED, output.stderr.strip() or "git update-ref did not respond in time")
