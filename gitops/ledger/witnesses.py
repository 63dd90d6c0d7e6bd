"""Who else knows of a ledger: approvals name the entry that their signer saw, other copies have heads of their own.

An entry that a ledger key signed cannot be unsaid. If somebody names one that the ledger at hand does not have, then that
ledger was rewound, forked or replaced, or its server shows an old state of it. Whoever only made an entry up proves nothing: a
word counts if the entries back to one that is believed, or to the first one with its anchor, stand up to the rules of any head.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from enum import StrEnum

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import GitReader
from gitops.ledger.chain import ChainEntry, first_entry, verify_chain

__all__ = ["Anchor", "Known", "Ledger", "Line", "Word", "judge", "named_entry"]

Anchor = Callable[[ChainEntry], None]
"""Raises GitopsError for a first entry that is not this cluster's."""


class Line(Container[str]):
    """The entries of a ledger, by id: read from its head as far back as somebody asks, each once."""

    def __init__(self, reader: GitReader, head: str | None) -> None:
        """Of the ledger that ends in `head`; None for one that has no entry."""
        self._reader = reader
        self._next = head
        self._ids: set[str] = set()

    def __contains__(self, commit_id: object) -> bool:
        """Whether a commit is an entry of this ledger. Raises GitopsError for history that cannot be read."""
        while commit_id not in self._ids and self._next is not None:
            self._ids.add(self._next)
            self._next = next(iter(self._reader.commit(self._next).parents), None)
        return commit_id in self._ids


class Known(StrEnum):
    """What a named entry is to a ledger: part of it, newer than all of it, of another line, or nothing that is proven."""

    PART = "part"
    NEWER = "newer"
    ELSEWHERE = "elsewhere"
    UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True)
class Word:
    """The verdict on a named entry; `detail` says why it proves nothing, or where the lines part."""

    known: Known
    entry: str
    detail: str = ""

    @property
    def alarming(self) -> bool:
        """Whether it proves that the ledger at hand is not all that there was."""
        return self.known in (Known.NEWER, Known.ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger that words are held against: its cluster, its head (None if there is none) and its entries."""

    cluster: str
    head: str | None
    line: Container[str]
    anchor: Anchor


def named_entry(reader: GitReader, commit_id: str) -> str | None:
    """The entry that the signer of an approval or decision saw: the commit's only parent. None if it is no such commit."""
    try:
        parents = reader.commit(commit_id).parents
    except GitopsError:
        return None
    return parents[0] if len(parents) == 1 else None


def judge(reader: GitReader, entry: str, ledger: Ledger) -> Word:
    """What `entry` is to the ledger. Never raises for what the named commits hold or lack."""
    try:
        if entry in ledger.line:
            return Word(Known.PART, entry)
        joins = _joins(reader, entry, ledger.line)
        found = verify_chain(reader, entry, joins)
        if found.entry.target.cluster != ledger.cluster:
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"it is an entry of cluster {found.entry.target.cluster}")
        if joins is None:
            ledger.anchor(first_entry(reader, entry))
            return Word(Known.ELSEWHERE, entry, "of another beginning")
    except GitopsError as error:
        return Word(Known.UNPROVEN, entry, error.detail)
    known = Known.NEWER if joins == ledger.head else Known.ELSEWHERE
    return Word(known, entry, f"which follows entry {joins[:12]}")


def _joins(reader: GitReader, entry: str, line: Container[str]) -> str | None:
    """The newest commit on the line of first parents of `entry` that is also part of `line`."""
    at: str | None = entry
    while at is not None and at not in line:
        at = next(iter(reader.commit(at).parents), None)
    return at
