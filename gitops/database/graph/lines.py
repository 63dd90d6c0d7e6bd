"""Graph branches, and the line to which each branch publishes.

Rules of this module:

1. One document lists all branches and changes only by compare-and-replace. So a branch is created or deleted in one
   step. A reused name gets a new line, so work staged for the old line cannot be published on the new one.
2. The branch `main` is not listed. It is the line `main`, and it exists as long as the graph does.
3. A line records from which lines it inherits older versions, and up to which numbers.
4. Names that begin with two underscores are internal. They are not listed, and users cannot use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import TEXT, ULID, FormMember, list_of, map_of, nullable, record, text_form
from gitops.core.errors import GitopsError
from gitops.database.graph import layout
from gitops.database.graph.manifest import (
    LINE_ID,
    NAME,
    TIME,
    VERSION_REF,
    CommitRef,
    graph_document,
    number,
    read_document,
)
from gitops.database.language.suggest import choices
from gitops.database.storage.port import ObjectStore

INTERNAL = "__"
_MAX_NAME = 100
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")


@dataclass(frozen=True, slots=True)
class InheritedVersions:
    """Versions inherited from another line, up to number `until`."""

    line: str
    until: int


@dataclass(frozen=True, slots=True)
class Line:
    """A branch: its name, its line id, and its inherited versions, nearest line first.

    A line is the sequence of versions that one incarnation of a branch published.

    `fork` is the version from which it was created, or None for `main`. `created_at` and `actor` are informational
    only.
    """

    name: str
    id: str
    inherits: tuple[InheritedVersions, ...] = ()
    fork: CommitRef | None = None
    forked_from: str = ""
    created_at: str = ""
    actor: str | None = None

    def holder(self, n: int) -> str:
        """Return the id of the line that contains version `n` of this branch."""
        held = self.id
        for older in self.inherits:
            if n > older.until:
                break
            held = older.line
        return held

    def child_inherits(self, n: int) -> tuple[InheritedVersions, ...]:
        """Return the inherited versions of a line that is forked from version `n` of this branch."""
        return (InheritedVersions(self.holder(n), n), *(older for older in self.inherits if older.until < n))


MAIN_LINE = Line(layout.MAIN, layout.MAIN)


@dataclass(frozen=True, slots=True)
class BranchIndex:
    """A graph's branches except `main`, and the stored bytes (None if there is no document yet)."""

    branches: Mapping[str, Line]
    data: bytes | None = None

    def line(self, name: str) -> Line | None:
        """Return a branch's line."""
        return MAIN_LINE if name == layout.MAIN else self.branches.get(name)

    def lines(self) -> tuple[Line, ...]:
        """Return all lines, `main` first, then by name."""
        return (MAIN_LINE, *(self.branches[name] for name in sorted(self.branches)))

    def swap(self, store: ObjectStore, branches: Mapping[str, Line]) -> bool:
        """Replace the branches if the stored document has not changed. Return False if it has changed."""
        data = BRANCHES.write(BranchIndex(branches))
        if self.data is None:
            return store.create(layout.BRANCH_INDEX, data)
        return store.replace(layout.BRANCH_INDEX, data, expected=self.data)


def check_name(name: str, *, internal: bool = False) -> str:
    """Return a branch name without surrounding whitespace. Raises GitopsError `graph_branch_name` if it is invalid.

    Names are parts joined by `/`. A part has letters, digits and `_ . -`, and cannot begin with a dot or hyphen.
    """
    text = name.strip()
    if len(text) > _MAX_NAME or not _NAME.fullmatch(text) or ".." in text:
        detail = f"{text[:_MAX_NAME]!r} is not a branch name: use letters, digits and _ . - in parts joined by /"
        raise GitopsError(Code.GRAPH_BRANCH_NAME, detail)
    if text.startswith(INTERNAL) and not internal:
        raise GitopsError(Code.GRAPH_BRANCH_NAME, f"{text!r} is reserved: names of branches do not begin with __")
    return text


def read_branches(store: ObjectStore) -> BranchIndex:
    """Read a graph's branch index. Raises IntegrityError `graph_unreadable`."""
    data = store.read(layout.BRANCH_INDEX)
    if data is None:
        return BranchIndex({})
    branches = read_document(BRANCHES, data, store.display(layout.BRANCH_INDEX)).branches
    return BranchIndex({name: replace(line, name=name) for name, line in branches.items()}, data)


def read_line(store: ObjectStore, name: str) -> Line:
    """Read a branch's line. Raises GitopsError `graph_branch_missing`, `graph_branch_name`."""
    if name == layout.MAIN:
        return MAIN_LINE
    index = read_branches(store)
    line = index.line(check_name(name, internal=True))
    if line is None:
        known = [each.name for each in index.lines() if not each.name.startswith(INTERNAL)]
        raise GitopsError(
            Code.GRAPH_BRANCH_MISSING, f"{store.location} has no branch {name!r}{choices(name, known)}", path=name
        )
    return line


def read_floor(store: ObjectStore, line: str) -> int:
    """Return the number up to which a line's manifests may have been removed, or 0. Raises `graph_unreadable`."""
    key = layout.floor_key(line)
    data = store.read(key)
    return 0 if data is None else read_document(FLOOR, data, store.display(key)).n


def write_floor(store: ObjectStore, line: str, n: int) -> None:
    """Record that a line's manifests up to number `n` may have been removed."""
    store.write(layout.floor_key(line), FLOOR.write(_Floor(n)))


@dataclass(frozen=True, slots=True)
class _Floor:
    n: int


_LINE = record(
    # Each line is stored under its branch name.
    partial(Line, ""),
    {
        "line": FormMember(ULID, "id"),
        "fork": VERSION_REF,
        "forked_from": NAME,
        "inherits": list_of(record(InheritedVersions, {"line": LINE_ID, "until": number(1)})),
        "created_at": TIME,
        "actor": nullable(TEXT),
    },
)
_BRANCH = text_form(lambda name: name != layout.MAIN and _NAME.fullmatch(name) is not None, "the name of a branch")
BRANCHES = graph_document({1: record(BranchIndex, {"branches": map_of(_LINE, key=_BRANCH.read)})})
FLOOR = graph_document({1: record(_Floor, {"n": number(0)})})
