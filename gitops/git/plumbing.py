"""The engine for repositories that libgit2 cannot read (SHA-256 ids or reftables). It uses the git program.

1. One `git cat-file` runs as long as the engine and reads objects by full id. Every other request is a run of git with
   an argument vector. Ids are checked first, so none can be an option, and a short or foreign id is never searched for
   as a prefix.
2. Content is hashed here, because cat-file does not compare content with its id.
3. Refs are read as files, if they are files.
4. Objects are written as loose files, because running `git hash-object` for each would take a hundred times as long.
5. Objects are never fetched, so an object that a partial clone omitted is missing.
6. Merges never run drivers or filters, because attributes are not read from a work tree or a commit. Trees are merged
   as three commits, which every git since 2.38 can do.
7. Answers about history never change for full ids, so some are remembered.

Sources: git-cat-file(1), git-merge-tree(1), git-for-each-ref(1), git-merge-base(1), git-merge-file(1),
gitattributes(5).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.git.command import Conversation, GitProgram, Output, Quarantine
from gitops.git.libgit2 import common_dir
from gitops.git.loose import object_folders, write_loose
from gitops.git.objects import format_commit, is_below, is_ref, parse_commit
from gitops.git.port import MergeResult, NewCommit, Person
from gitops.git.ref_files import RefFiles, UnusualRefsError
from gitops.git.trees import TreeWriter

_HASHES: Mapping[str, Callable[[bytes], hashlib._Hash]] = {
    "sha1": lambda raw: hashlib.sha1(raw, usedforsecurity=False),
    "sha256": hashlib.sha256,
}
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
_OLDEST = (2, 38)
_VERSION = re.compile(r"git version (\d+)\.(\d+)")
_NOT_SUPPORTED = ("repository extension", "repo version", "invalid value for 'extensions.", "the object format is")
_STAGE = re.compile(r"([0-7]{6}) ([0-9a-f]+) ([123])\t(.*)", re.DOTALL)
_MERGER = Person("merge", "merge@localhost", 1)
_REGULAR = frozenset({"100644", "100755"})
_MOST_FAVORED = 1_000
_MAX_WORDS = 16 << 10
_MOST_REMEMBERED = 10_000
_NEAR = 8


class PlumbingEngine:
    """A GitEngine that uses the git program, for one thread."""

    name = "git"

    def __init__(self, git_dir: str, environ: Mapping[str, str] | None, quarantine: Quarantine | None = None) -> None:
        """Open the git folder of a repository. Raises UsageError `not_a_repository`, `repository_unsupported`."""
        self.git_dir = git_dir
        self._git = GitProgram(git_dir, environ=environ, quarantine=quarantine)
        output = self._git.run("rev-parse", "--show-object-format", "--is-bare-repository")
        words = output.stdout.decode("utf-8", "replace").split()
        if not output.ok or len(words) != 2 or words[0] not in _HASHES:  # noqa: PLR2004 - one for each question
            raise self._refused(output.stderr.strip() or f"the object format is {' '.join(words) or 'unknown'}")
        self.object_format = words[0]
        self._id_length = len(_HASHES[self.object_format](b"").hexdigest())
        self._is_bare = words[1] == "true"
        self._ref_files = RefFiles(git_dir, self._id_length)
        objects = common_dir(git_dir) / "objects"
        given = {} if quarantine is None else quarantine.variables()
        self._writable = {"GIT_OBJECT_DIRECTORY": given.get("GIT_OBJECT_DIRECTORY", str(objects))}
        alternates = [given.get("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")]
        self._objects, self._folders = objects, tuple(object_folders(objects))
        if not os.access(objects, os.W_OK, effective_ids=True):
            # An auditor may have only read access, so trees of merges are written to a place that is discarded. Refs
            # cannot move there anyway.
            aside = tempfile.mkdtemp(prefix="gitops-objects-")
            weakref.finalize(self, shutil.rmtree, aside, ignore_errors=True)
            alternates = [*self._writable.values(), *alternates]
            self._objects, self._writable = Path(aside), {"GIT_OBJECT_DIRECTORY": aside}
        if any(alternates):
            self._writable["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(filter(None, alternates))
        self._reader: Conversation | None = None
        self._known: dict[tuple[str, ...], Output] = {}
        self._parents: dict[str, tuple[str, ...]] = {}

    def _refused(self, reason: str) -> UsageError:
        """Return the error for a repository that this git program cannot read."""
        unsupported = any(part in reason for part in _NOT_SUPPORTED)
        code = Code.REPOSITORY_UNSUPPORTED if unsupported else Code.NOT_A_REPOSITORY
        return UsageError(code, f"{self.git_dir}: {' '.join(reason.split())}")

    @cached_property
    def _settings(self) -> Mapping[str, str]:
        return self._git.settings()

    @property
    def work_tree(self) -> str | None:
        """The checked-out folder: a linked work tree, the configured one, or the folder that contains the git folder."""
        if self._is_bare:
            return None
        git_dir = Path(self.git_dir)
        link = git_dir / "gitdir"
        if (git_dir / "commondir").is_file() and link.is_file():
            folder = Path(link.read_text(encoding="utf-8").strip()).parent
        else:
            folder = git_dir / self._settings.get("core.worktree", "..")
        return f"{os.path.normpath(folder)}/"

    @property
    def is_shallow(self) -> bool:
        """True if the history is incomplete."""
        file = common_dir(self.git_dir) / "shallow"
        return file.is_file() and file.stat().st_size > 0

    @property
    def is_partial(self) -> bool:
        """True if objects might be missing."""
        return any(key.endswith((".promisor", ".partialclone")) for key in self._settings)

    # Objects

    def _asked(self, question: str, object_id: str) -> tuple[str, int, Conversation] | None:
        """Return kind and size from a response of `git cat-file`, which continues with the content.

        None if the object is missing.
        """
        if len(object_id) != self._id_length or not is_object_id(object_id):
            return None
        if self._reader is None or not self._reader.is_ours:
            self._reader = self._git.converse("cat-file", "--batch-command", extra={**_OFFLINE, **self._writable})
        words = self._reader.ask(f"{question} {object_id}").split()
        if words[1:] == [b"missing"]:
            # Git reports this for a file that is not an object.
            words = self._reader.ask(f"{question} {object_id}").split() if self._has_file(object_id) else []
            if not words:
                return None
        if len(words) != 3 or words[0] != object_id.encode():  # noqa: PLR2004 - id, kind, size
            raise GitopsError(Code.GIT_FAILED, "git cat-file cannot read it")
        return words[1].decode("ascii"), int(words[2]), self._reader

    def _has_file(self, object_id: str) -> bool:
        return any((folder / object_id[:2] / object_id[2:]).exists() for folder in self._folders)

    def read(self, object_id: str) -> tuple[str, bytes] | None:
        """Return kind and bytes of an object, or None if it is missing."""
        try:
            found = self._asked("contents", object_id)
            if found is None:
                return None
            kind, size, reader = found
            data = reader.take(size + 1)[:size]
        except GitopsError as error:
            raise self._broken(object_id, error) from error
        if self._hash(b"%b %d\0" % (kind.encode(), size) + data) != object_id:
            raise IntegrityError(Code.GIT_FAILED, f"{object_id}: the content has a different id")
        return kind, data

    def header(self, object_id: str) -> tuple[str, int] | None:
        """Return kind and size of an object without reading it, or None if it is missing."""
        try:
            found = self._asked("info", object_id)
        except GitopsError as error:
            raise self._broken(object_id, error) from error
        return None if found is None else found[:2]

    def _broken(self, object_id: str, error: GitopsError) -> GitopsError:
        """Return the error for a response that git cat-file did not finish. The next request starts a new process."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._check_version()
        return IntegrityError(Code.GIT_FAILED, f"{object_id}: {error.detail}")

    def _check_version(self) -> None:
        """Reject a git program that lacks required features. Raises UsageError `repository_unsupported`."""
        match = _VERSION.match(self._git.run("version").stdout.decode("utf-8", "replace"))
        if match is not None and (int(match[1]), int(match[2])) < _OLDEST:
            detail = f"{self.git_dir}: libgit2 cannot read this format, and git needs to be 2.38 or later for it, not {match[0]}"
            raise UsageError(Code.REPOSITORY_UNSUPPORTED, detail)

    def _hash(self, raw: bytes) -> str:
        return _HASHES[self.object_format](raw).hexdigest()

    def write(self, kind: str, data: bytes) -> str:
        """Store an object and return its id."""
        raw = b"%b %d\0" % (kind.encode(), len(data)) + data
        object_id = self._hash(raw)
        # Git finds the empty tree everywhere, even if it is not stored.
        if not data or self.header(object_id) is None:
            write_loose(self._objects, object_id, raw)
        return object_id

    # Refs

    def target(self, name: str) -> str | None:
        """Return the id that a ref or `HEAD` points to, after following symbolic refs."""
        with suppress(UnusualRefsError):
            return self._ref_files.target(name)
        if name == "HEAD":
            followed = self.symbolic_target(name)
            if followed is None:
                # HEAD is detached. Without this, no branch with that name would be found.
                found = self._git.run("rev-parse", "--verify", "--quiet", "--end-of-options", name)
                return found.stdout.decode("ascii", "replace").strip() if found.ok else None
            name = followed
        return self._listed(name).get(name)

    def symbolic_target(self, name: str) -> str | None:
        """Return the name of the ref that a symbolic ref points to, or None for other refs."""
        with suppress(UnusualRefsError):
            return self._ref_files.symbolic_target(name)
        found = self._git.run("symbolic-ref", "--quiet", "--", name)
        return found.stdout.decode("utf-8", "replace").rstrip("\n") if found.ok else None

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map the ref `prefix` and all refs below it to object ids, sorted by name."""
        with suppress(UnusualRefsError):
            return dict(sorted(self._ref_files.refs(prefix).items()))
        listed = sorted(self._listed(prefix.rstrip("/")).items())
        return {name: found for name, found in listed if is_below(name, prefix)}

    def _listed(self, prefix: str) -> dict[str, str]:
        """Return the ref `prefix`, or the refs below it. A pattern with several characters never matches a ref."""
        output = self._git.run("for-each-ref", "--format=%(objectname) %(refname)", "--", prefix)
        self._check(output, prefix)
        rows = (line.partition(" ") for line in output.stdout.decode("utf-8", "replace").split("\n"))
        return {name: found for found, _, name in rows if is_object_id(found) and is_ref(name)}

    # History

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return True if `ancestor` is `descendant` or reachable from it."""
        if ancestor in self._line(descendant):
            return True
        return self._history("merge-base", "--is-ancestor", ancestor, descendant).status == 0

    def merge_base(self, one: str, other: str) -> str | None:
        """Return one best common ancestor, or None."""
        return next(iter(self._bases(one, other)), None)

    def is_only_base(self, base: str, one: str, other: str) -> bool:
        """Return True if `base` is the only best common ancestor of two commits."""
        return self._bases(one, other) == [base]

    def _bases(self, one: str, other: str) -> list[str]:
        for old, new in ((one, other), (other, one)):
            if old in self._line(new):
                return [old]
        return self._history("merge-base", "--all", one, other).stdout.decode("ascii", "replace").split()

    def commits(self, base: str | None, head: str, most: int | None) -> Sequence[str]:
        """Return up to `most` commits that are reachable from `head` but not from `base`, each before its parents."""
        line = self._line(head)
        if base in line and all(len(self._parents[commit]) == 1 for commit in line[: line.index(base)]):
            return line[: line.index(base)][:most]
        limit = () if most is None else (f"--max-count={most}",)
        output = self._history("rev-list", "--date-order", *limit, head, *(() if base is None else (f"^{base}",)))
        return output.stdout.decode("ascii", "replace").split()

    def _line(self, head: str) -> list[str]:
        """Return the first commits on the line of first parents from `head`.

        Most queries are about nearby commits.
        """
        if len(self._parents) > _MOST_REMEMBERED:
            self._parents.clear()
        line = [head]
        while len(line) < _NEAR:
            at = line[-1]
            if at not in self._parents:
                self._parents[at] = parse_commit(at, self._content(at, "commit")).parents
            if not self._parents[at]:
                break
            line.append(self._parents[at][0])
        return line

    def _history(self, *arguments: str) -> Output:
        """Run a history query of git for full ids. Status 1 is a valid answer."""
        known = self._known.get(arguments)
        if known is None:
            known = self._git.run(*arguments, extra=_OFFLINE)
            self._check(known, " ".join(arguments), no=1)
            if len(self._known) < _MOST_REMEMBERED and len(known.stdout) < _MAX_WORDS:
                self._known[arguments] = known
        return known

    def _check(self, output: Output, subject: str, *, no: int = 0) -> None:
        """Refuse a run without an answer. `no` is a status that counts as an answer."""
        if output.timed_out or output.status not in (0, no):
            self._check_version()
            raise IntegrityError(Code.GIT_FAILED, f"{subject}: {output.stderr.strip() or 'no answer in time'}")

    # Merges

    @cached_property
    def _calm(self) -> Mapping[str, str]:
        """Return the environment for merges: their output folder, and the empty tree as the only source of attributes."""
        return {**_OFFLINE, **self._writable, "GIT_ATTR_SOURCE": self.write("tree", b""), "GIT_ATTR_NOSYSTEM": "1"}

    def _merge(self, ours: str, theirs: str) -> tuple[str, Sequence[tuple[str, str, int, str]]]:
        """Return the tree of a merge, and mode, id, stage and path of every conflicting version of a file."""
        options = ("-c", "merge.renormalize=false", "-c", f"core.attributesFile={os.devnull}")
        command = ("merge-tree", "--write-tree", "-z", "--no-messages", "--allow-unrelated-histories")
        # Git looks for work tree attributes in the folder in which it runs.
        output = self._git.run(*options, *command, ours, theirs, extra=self._calm, folder=self.git_dir)
        self._check(output, f"{ours} and {theirs}", no=1)
        tree, *rows = output.stdout.decode("utf-8", "surrogateescape").split("\0")
        stages = [(m[1], m[2], int(m[3]), m[4]) for m in map(_STAGE.fullmatch, rows) if m is not None]
        if not is_object_id(tree) or (output.status and not stages):
            raise GitopsError(Code.GIT_FAILED, f"{ours} and {theirs}: git merge-tree returned an unexpected answer")
        return tree, stages

    def merge_commits(self, ours: str, theirs: str) -> MergeResult:
        """Merge two commits by lines, detecting renamed files."""
        tree, stages = self._merge(ours, theirs)
        return _conflicts(path for *_, path in stages) if stages else MergeResult(tree)

    def merge_trees(self, base: str, ours: str, theirs: str, *, favor_theirs: bool) -> MergeResult:
        """Merge two trees by lines, detecting renamed files."""
        start = self._commit(base)
        tree, stages = self._merge(self._commit(ours, start), self._commit(theirs, start))
        if not stages:
            return MergeResult(tree)
        if not favor_theirs:
            return _conflicts(path for *_, path in stages)
        return self._favored(tree, stages)

    def _commit(self, tree: str, *parents: str) -> str:
        """Return a commit for a merge. The same trees give the same commit, so repeated merges create only one."""
        return self.write("commit", format_commit(NewCommit(tree, parents, _MERGER, "merge\n")))

    def _favored(self, tree: str, stages: Sequence[tuple[str, str, int, str]]) -> MergeResult:
        """Return the tree of a merge in which conflicts within files are resolved in favour of `theirs`."""
        found: dict[str, dict[int, str]] = {}
        for mode, object_id, stage, path in stages:
            found.setdefault(path, {})[stage] = object_id if mode in _REGULAR else ""
        # A file that one side removed or moved, or that is a link, is not a conflict between lines.
        if len(found) > _MOST_FAVORED or any(not (v.get(2) and v.get(3) and v.get(1) != "") for v in found.values()):
            return _conflicts(found)
        files = {
            path: self._favored_file(*(versions.get(stage) for stage in (1, 2, 3))) for path, versions in found.items()
        }
        return MergeResult(TreeWriter(self._content, self.write).write(tree, files))

    def _favored_file(self, *versions: str | None) -> bytes:
        """Merge the base version, our version and their version of a file."""
        contents = [b"" if version is None else self._content(version, "blob") for version in versions]
        with tempfile.TemporaryDirectory(prefix="gitops-merge-") as folder:
            base, ours, theirs = (Path(folder) / name for name in ("base", "ours", "theirs"))
            for path, content in zip((base, ours, theirs), contents, strict=True):
                path.write_bytes(content)
            output = self._git.run("merge-file", "-p", "-q", "--theirs", "--", str(ours), str(base), str(theirs))
        # Git does not merge binary files.
        return output.stdout if output.ok else contents[-1]

    def _content(self, object_id: str, kind: str) -> bytes:
        """Return the bytes of an object in a merge result."""
        found = self.read(object_id)
        if found is None or found[0] != kind:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"there is no {kind} {object_id}")
        return found[1]


def _conflicts(paths: Iterable[str]) -> MergeResult:
    return MergeResult(None, tuple(sorted(set(paths))))
