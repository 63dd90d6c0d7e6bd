"""Commands in comments: a strict grammar, with nothing in it that could become an option of anything.

The first line that is not blank decides. If its first word is not `/gitops`, the comment is none of our business. Otherwise the
line is one of these, to the letter, its words one blank apart:

    /gitops plan
    /gitops approve ADDRESS DIGEST
    /gitops unlock LOCK_ID
    /gitops explain ADDRESS
    /gitops retry

each with ` --cluster NAME` at its end or without. What follows below that line is for people and is not read. There is no
quoting, no abbreviation and no further option: whatever else stands there is refused, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from gitops.core.clock import is_ulid
from gitops.model.address import Address, Kind, is_name

_WORD = "/gitops"
_MAX_LINE = 1024
_MAX_NAME = 200
_ADDRESS = re.compile(r"[A-Za-z0-9_.-]{1,600}\Z", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class Action(StrEnum):
    """What a command asks for."""

    PLAN = "plan"
    APPROVE = "approve"
    UNLOCK = "unlock"
    EXPLAIN = "explain"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Command:
    """A command: `address` of approve and explain, `digest` of approve, `lock_id` of unlock; `cluster` None for the only one."""

    action: Action
    address: str = ""
    digest: str = ""
    lock_id: str = ""
    cluster: str | None = None

    def __str__(self) -> str:
        """The line that it is written as."""
        words = [_WORD, self.action.value, self.address, self.digest, self.lock_id]
        if self.cluster is not None:
            words += ["--cluster", self.cluster]
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that begins like a command and is none; `why` says what was expected, in words of ours only."""

    why: str


def parse_command(body: str) -> Command | Malformed | None:
    """The command that a comment gives; None for a comment that is not meant for us."""
    line = next((text for text in body[: 4 * _MAX_LINE].split("\n") if text.strip()), "").rstrip("\r")
    if line.split(" ", 1)[0] != _WORD:
        return None
    if len(line) > _MAX_LINE:
        return Malformed("the line is too long for a command")
    words = line.split(" ")[1:]
    cluster = None
    if len(words) > 2 and words[-2] == "--cluster":  # noqa: PLR2004 - a command and the option with its value
        cluster = words[-1]
        words = words[:-2]
        if not is_name(cluster) or len(cluster) > _MAX_NAME:
            return Malformed("--cluster takes the name of a cluster")
    if not words or words[0] not in set(Action):
        return Malformed(f"use one of {', '.join(f'{_WORD} {action}' for action in Action)}")
    return _command(Action(words[0]), words[1:], cluster)


def _command(action: Action, given: list[str], cluster: str | None) -> Command | Malformed:
    """A command from its operands."""
    if action is Action.APPROVE:
        if len(given) == 2 and _is_address(given[0]) and _DIGEST.match(given[1]):  # noqa: PLR2004 - as the message says
            return Command(action, address=given[0], digest=given[1], cluster=cluster)
        return Malformed(f"use {_WORD} approve ADDRESS DIGEST, with the whole digest of the plan: 64 hex digits")
    if action is Action.EXPLAIN:
        if len(given) == 1 and _is_address(given[0]):
            return Command(action, address=given[0], cluster=cluster)
        return Malformed(f"use {_WORD} explain ADDRESS, with an address such as graph.legacy")
    if action is Action.UNLOCK:
        if len(given) == 1 and is_ulid(given[0]):
            return Command(action, lock_id=given[0], cluster=cluster)
        return Malformed(f"use {_WORD} unlock LOCK_ID, with the exact id that the bot showed")
    if given:
        return Malformed(f"{_WORD} {action} takes nothing but --cluster NAME")
    return Command(action, cluster=cluster)


def _is_address(text: str) -> bool:
    """Whether a text is an address of a known kind, in the letters that names have."""
    return _ADDRESS.match(text) is not None and Address(text).kind is not Kind.UNKNOWN
