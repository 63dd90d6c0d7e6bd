"""Commands in comments. The grammar is strict, so that no word can become an option of a program.

Only the first nonblank line matters. If its first word is not `/gitops`, the comment is not a command. Otherwise the
line must be exactly one of these, with single blanks between words:

    /gitops plan
    /gitops approve ADDRESS DIGEST
    /gitops unlock LOCK_ID
    /gitops explain ADDRESS
    /gitops retry
    /gitops preview HEAD

each optionally followed by ` --cluster NAME`. The text below that line is for people and is ignored. There are no
quotes, abbreviations or other options: anything else is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum

from gitops.cluster.model.address import Address, Kind, is_name
from gitops.core.clock import is_ulid
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_object_id

_WORD = "/gitops"
_MAX_LINE = 1024
_MAX_NAME = 200
_ADDRESS = re.compile(r"[A-Za-z0-9_.-]{1,600}\Z", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class CommandAction(StrEnum):
    """A command's action, which is its first word."""

    PLAN = "plan"
    APPROVE = "approve"
    UNLOCK = "unlock"
    EXPLAIN = "explain"
    RETRY = "retry"
    PREVIEW = "preview"


@dataclass(frozen=True, slots=True)
class CommentCommand:
    """A command with `address` (approve, explain), `digest` (approve), `lock_id` (unlock), `head` (preview), and `cluster`."""

    action: CommandAction
    address: str = ""
    digest: str = ""
    lock_id: str = ""
    head: str = ""
    cluster: str | None = None

    def __str__(self) -> str:
        """Return the command line."""
        words = [_WORD, self.action.value, self.address, self.digest, self.lock_id, self.head]
        if self.cluster is not None:
            words += ["--cluster", self.cluster]
        return " ".join(filter(None, words))


@dataclass(frozen=True, slots=True)
class MalformedCommand:
    """A line that starts like a command but is malformed.

    `why` describes the expected form, without quoting the comment.
    """

    why: str


def _is_address(text: str) -> bool:
    """Return whether a text is an address of a known kind that contains only characters allowed in names."""
    return _ADDRESS.match(text) is not None and Address(text).kind is not Kind.UNKNOWN


def _is_lock_id(text: str) -> bool:
    """Return whether a text can identify a lock: an id, or the commit id of an unreadable lock."""
    return is_ulid(text) or is_object_id(text)


# The operands of each action, how each is checked, and the text of its refusal.
_OPERANDS: Mapping[CommandAction, tuple[Mapping[str, Callable[[str], object]], str]] = {
    CommandAction.PLAN: ({}, f"{_WORD} plan accepts only --cluster NAME"),
    CommandAction.APPROVE: (
        {"address": _is_address, "digest": _DIGEST.match},
        f"use {_WORD} approve ADDRESS DIGEST, with the full digest of the plan: 64 hex digits",
    ),
    CommandAction.UNLOCK: (
        {"lock_id": _is_lock_id},
        f"use {_WORD} unlock LOCK_ID, with the exact id that the bot showed",
    ),
    CommandAction.EXPLAIN: (
        {"address": _is_address},
        f"use {_WORD} explain ADDRESS, with an address such as graph.legacy",
    ),
    CommandAction.RETRY: ({}, f"{_WORD} retry accepts only --cluster NAME"),
    CommandAction.PREVIEW: (
        {"head": is_object_id},
        f"use {_WORD} preview HEAD, with the full id of the commit that you reviewed",
    ),
}


def parse_command(body: str) -> CommentCommand | MalformedCommand | None:
    """Return the command in a comment, or None if the comment is not a command."""
    line = next((text for text in body[: 4 * _MAX_LINE].split("\n") if text.strip()), "").rstrip("\r")
    if line.split(" ", 1)[0] != _WORD:
        return None
    if len(line) > _MAX_LINE:
        return MalformedCommand("the line is too long for a command")
    words = line.split(" ")[1:]
    cluster = None
    if len(words) > 2 and words[-2] == "--cluster":  # noqa: PLR2004 - a command and the option with its value
        cluster = words[-1]
        words = words[:-2]
        if not is_name(cluster) or len(cluster) > _MAX_NAME:
            return MalformedCommand("--cluster requires the name of a cluster")
    if not words or words[0] not in set(CommandAction):
        return MalformedCommand(f"use one of {', '.join(f'{_WORD} {action}' for action in CommandAction)}")
    action = CommandAction(words[0])
    checks, usage = _OPERANDS[action]
    operands = dict(zip(checks, words[1:], strict=False))
    if len(words[1:]) != len(checks) or not all(check(operands[name]) for name, check in checks.items()):
        return MalformedCommand(usage)
    return CommentCommand(action, **operands, cluster=cluster)
