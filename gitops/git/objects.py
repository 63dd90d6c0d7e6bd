"""Reads git commits and trees strictly from bytes, writes them canonically, and checks ref names. Pure.

libgit2 is lenient, but a signature check must be strict: libgit2 uses the first of two `tree` headers and lets grafts change
parents. This module reads exactly the stored bytes.

Sources: git-check-ref-format(1); git's commit.c and fsck.c for the order of headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.git.port import ZERO, Commit, EntryType, NewCommit, Person, RefUpdate

_HEADER = re.compile(rb"([A-Za-z0-9-]+) (.*)", re.DOTALL)
_PERSON = re.compile(rb"([^<>\n\0]*) <([^<>\n\0]*)> ([0-9]{1,18}) ([+-][0-9]{4})")
_ENTRIES = {n: re.compile(rb"([0-7]{5,6}) ([^/\0]+)\0(.{%d})" % n, re.DOTALL) for n in (20, 32)}
_REF_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(?:/|$)|[./]$")
_NOT_IN_NAMES = re.compile(r"[<>\n\0]")
# Headers that a commit can contain only once. If one occurs twice, two parsers could see two different commits.
SIGNATURE_HEADERS = (b"gpgsig", b"gpgsig-sha256")
_ONCE = (b"tree", b"author", b"committer", b"encoding", *SIGNATURE_HEADERS)
_TYPES = {0o040000: EntryType.TREE, 0o120000: EntryType.SYMLINK, 0o160000: EntryType.SUBMODULE}
_MAX_REF = 512
_LONG = 64


def is_ref(name: str) -> bool:
    """Return True if `name` is a full, well-formed ref name below `refs/`."""
    return (
        name.startswith("refs/")
        and name.isprintable()
        and len(name.encode("utf-8", "replace")) <= _MAX_REF
        and _REF_FORBIDDEN.search(name) is None
    )


@dataclass(frozen=True, slots=True)
class RawCommit:
    """A commit exactly as stored: headers in order with continuation lines joined, the message, and all bytes."""

    headers: tuple[tuple[bytes, bytes], ...]
    message: bytes
    raw: bytes

    def first(self, name: bytes) -> bytes:
        """Return the value of the first header with this name, or empty bytes."""
        return next((value for key, value in self.headers if key == name), b"")

    @property
    def signature_header(self) -> bytes:
        """Return the name of the signature header. Repositories with SHA-256 ids use a different one."""
        return _signature_header(self.first(b"tree"))

    def payload(self) -> bytes:
        """Return the bytes that the signature covers: the commit without the signature header."""
        head, _, rest = self.raw.partition(b"\n\n")
        kept: list[bytes] = []
        signature, start = False, self.signature_header + b" "
        for line in head.split(b"\n"):
            signature = line.startswith(start) or (signature and line.startswith(b" "))
            if not signature:
                kept.append(line)
        return b"\n".join(kept) + b"\n\n" + rest

    def defect(self) -> str:
        """Describe why two readers could interpret this commit differently, or return an empty string."""
        names = [key for key, _ in self.headers]
        if b"\0" in self.raw:
            return "the commit contains a NUL byte"
        for name in _ONCE:
            if names.count(name) > 1:
                return f"the commit has more than one {name.decode()} header"
        if any(name in SIGNATURE_HEADERS and name != self.signature_header for name in names):
            return "the commit has a second signature of another kind"
        count = names.count(b"parent")
        if names[: count + 3] != [b"tree", *[b"parent"] * count, b"author", b"committer"]:
            return "the headers of the commit are not in order"
        ids = [value for key, value in self.headers if key in (b"tree", b"parent")]
        if not all(is_object_id(value.decode("latin-1")) for value in ids) or len({len(value) for value in ids}) != 1:
            return "the commit names an object by something that is not an id"
        if not all(_PERSON.fullmatch(self.first(name)) for name in (b"author", b"committer")):
            return "the author or committer line is malformed"
        return ""


def _signature_header(tree: bytes) -> bytes:
    """Return the header in which git stores a commit's signature, given the id of the commit's tree."""
    return SIGNATURE_HEADERS[len(tree) == _LONG]


def read_commit(raw: bytes) -> RawCommit:
    """Split a commit object into headers and message. Raises IntegrityError `git_failed` if it is malformed."""
    head, separator, message = raw.partition(b"\n\n")
    headers: list[tuple[bytes, bytes]] = []
    for line in head.split(b"\n"):
        if line.startswith(b" ") and headers:
            name, value = headers[-1]
            headers[-1] = (name, value + b"\n" + line[1:])
            continue
        match = _HEADER.fullmatch(line)
        if match is None:
            raise IntegrityError(Code.GIT_FAILED, "a commit object has a malformed header")
        headers.append((match[1], match[2]))
    if not separator:
        raise IntegrityError(Code.GIT_FAILED, "a commit object has no end of its headers")
    return RawCommit(tuple(headers), message, raw)


def parse_commit(commit_id: str, raw: bytes) -> Commit:
    """Read a commit from any source, replacing text that is not UTF-8. Raises IntegrityError `git_failed`."""
    commit = read_commit(raw)
    tree = commit.first(b"tree").decode("latin-1")
    parents = tuple(value.decode("latin-1") for key, value in commit.headers if key == b"parent")
    if not all(is_object_id(name) for name in (tree, *parents)):
        raise IntegrityError(Code.GIT_FAILED, f"commit {commit_id} names an object by something that is not an id")
    author, committer = (_person(commit.first(name)) for name in (b"author", b"committer"))
    return Commit(commit_id, tree, parents, author, committer, commit.message.decode("utf-8", "replace"))


def _person(value: bytes) -> Person:
    """Parse a person line. A malformed line is kept as a name, because old histories contain such lines."""
    match = _PERSON.fullmatch(value)
    if match is None:
        return Person(value.decode("utf-8", "replace"), "")
    return Person(match[1].decode("utf-8", "replace"), match[2].decode("utf-8", "replace"), int(match[3]))


def format_commit(commit: NewCommit) -> bytes:
    """Return the bytes of an unsigned commit. The author is also the committer, and the offset is UTC.

    Raises GitopsError `git_failed` for a name, address or message that a commit cannot represent.
    """
    author = commit.author
    unfit = _NOT_IN_NAMES.search(author.name + author.email) or "\0" in commit.message
    if unfit or not author.name.strip() or author.time < 0:
        raise GitopsError(Code.GIT_FAILED, "git cannot store the author or message of the new commit")
    person = f"{author.name.strip()} <{author.email.strip()}> {author.time} +0000"
    lines = [f"tree {commit.tree}", *(f"parent {parent}" for parent in commit.parents)]
    lines += [f"author {person}", f"committer {person}", "", commit.message]
    return "\n".join(lines).encode()


def with_signature(payload: bytes, armored: str) -> bytes:
    """Add `armored` to a commit as its signature header, after all other headers, like git."""
    head, _, message = payload.partition(b"\n\n")
    name = _signature_header(head.partition(b"\n")[0].removeprefix(b"tree "))
    value = armored.strip().replace("\n", "\n ").encode()
    return head + b"\n" + name + b" " + value + b"\n\n" + message


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry of a tree object. Non-UTF-8 bytes of `name` are kept as lone surrogates."""

    name: str
    mode: int
    id: str

    @property
    def type(self) -> EntryType:
        """The entry type. All modes of regular files are one type."""
        return _TYPES.get(self.mode, EntryType.FILE)


def parse_tree(tree_id: str, raw: bytes) -> tuple[RawEntry, ...]:
    """Return the entries of a tree object in stored order.

    Raises IntegrityError `git_failed` if git's fsck would refuse the tree.

    Refused: truncated entries, unknown modes, empty names, names with a slash, and duplicate names.
    """
    return tuple(raw_entry(name, *found) for name, found in tree_level(tree_id, raw).items())


def tree_level(tree_id: str, raw: bytes) -> dict[bytes, tuple[bytes, bytes]]:
    """Map names to mode and id of a tree object's entries, as bytes in stored order. Refuses what `parse_tree` refuses.

    A ledger folder can have tens of thousands of entries, of which a reader needs only one.
    """
    rows = _ENTRIES[32 if len(tree_id) == _LONG else 20].findall(raw)
    # If the entries do not fill the object, there is something else between them.
    if sum(map(len, chain.from_iterable(rows))) + 2 * len(rows) != len(raw):
        raise IntegrityError(Code.GIT_FAILED, f"tree {tree_id} is malformed")
    level = {name: (mode, object_id) for mode, name, object_id in rows}
    if len(level) != len(rows):
        raise IntegrityError(Code.GIT_FAILED, f"tree {tree_id} has a repeated name")
    return level


def format_level(level: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a tree object with these entries. Git sorts folders as if their names ended with a slash."""
    rows = sorted((name + b"/" * is_folder(mode), mode, name, object_id) for name, (mode, object_id) in level.items())
    return b"".join(b"%b %b\0%b" % (mode, name, object_id) for _, mode, name, object_id in rows)


def is_folder(mode: bytes) -> bool:
    """Return True for the mode of a folder. Some programs wrote it with a leading zero."""
    return mode in (b"40000", b"040000")


def raw_entry(name: bytes, mode: bytes, object_id: bytes) -> RawEntry:
    """Convert an entry of `tree_level` to a RawEntry."""
    return RawEntry(name.decode("utf-8", "surrogateescape"), int(mode, 8), object_id.hex())


# Names of refs, and updates of several refs in one git transaction.


def is_below(name: str, prefix: str) -> bool:
    """Return True if the ref `name` is `prefix` or is below it."""
    folder = prefix.rstrip("/")
    return name == folder or name.startswith(f"{folder}/")


def check_updates(updates: Sequence[RefUpdate]) -> None:
    """Refuse ambiguous ref updates. Raises UsageError `git_failed`."""
    names = [update.ref for update in updates]
    ids = [object_id for update in updates for object_id in (update.old, update.new)]
    empty = any(update.old == update.new == ZERO for update in updates)
    if empty or len(set(names)) != len(names) or not all(map(is_ref, names)) or not all(map(is_object_id, ids)):
        raise UsageError(Code.GIT_FAILED, f"each ref must be updated once, with full names and ids: {', '.join(names)}")


def transaction(updates: Sequence[RefUpdate]) -> bytes:
    """Format the input of `git update-ref --stdin -z`. Contains no null id, because git would check its length."""
    lines = ["start"]
    for update in updates:
        lines.append("option no-deref")
        if update.old == update.new:
            lines += [f"verify {update.ref}", update.old]
        elif update.new == ZERO:
            lines += [f"delete {update.ref}", update.old]
        elif update.old == ZERO:
            lines += [f"create {update.ref}", update.new]
        else:
            lines += [f"update {update.ref}", update.new, update.old]
    return "".join(f"{line}\0" for line in (*lines, "prepare", "commit")).encode()
