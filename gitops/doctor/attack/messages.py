"""Attacks on messages: comments and statuses by others, active content in texts, secrets in messages."""

from __future__ import annotations

import re
from dataclasses import replace

from gitops.bot.context import Bot
from gitops.bot.dispatch import run_verb
from gitops.bot.receive_push import receive_push
from gitops.cluster.model.ledger import LockInfo
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackSucceeded, ClusterCopy, join_reasons, require
from gitops.doctor.attack.rules import CLUSTER, DELETE_LEGACY, STRANGER
from gitops.forge.events import CommentEvent
from gitops.forge.port import Account, CheckState, CheckStatus, Comment, Permission
from gitops.forge.refs.document_forge import OperatorSettings
from gitops.forge.refs.local import LocalForge
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.render.markdown import COMMENT_LIMIT
from gitops.repository.wiring.system import RandomIds, SystemClock

_TOPIC = "refs/heads/topic"
_STRANGER = Person("stranger", STRANGER)
_HOSTILE = "<script>alert(1)</script> <img src=x> @everyone [x](http://evil.invalid) --> | `x`"
_TITLE = f"<!-- gitops cluster=x --> **Applied** closes #1 {_HOSTILE}"
_ACTIVE = re.compile(r"<(script|img|a)\b|@everyone|\]\(http://evil|closes #1", re.IGNORECASE)
_FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_SECRET = "correct-horse-battery"  # noqa: S105 - made up, to search for it


def _push(copy: ClusterCopy, commit: str) -> None:
    """Push the branch of a change request, and let the bot answer the push."""
    before = copy.store().resolve(_TOPIC) or ZERO
    copy.move_ref(_TOPIC, commit)
    local = copy.local()
    updates, person = [RefUpdate(_TOPIC, before, commit)], local.person()
    for _ in receive_push(local.project, local.forge(), updates, STRANGER, actor=copy.rules.bot, person=person):
        pass


def _forge_of_stranger(copy: ClusterCopy) -> LocalForge:
    local = copy.local()
    return LocalForge(local.repository, local.remote, _STRANGER, SystemClock())


def _comment_of_bot(copy: ClusterCopy) -> tuple[str, str]:
    """The marker and the text of the bot's own comment on change request 1."""
    own = [c for c in copy.local().forge().comments(1) if c.marker is not None]
    require(len(own) == 1, f"the bot has {len(own)} comments")
    return own[0].marker or "", own[0].body


def _marker(copy: ClusterCopy) -> str:
    """A comment of another account carries the bot's marker."""
    head = copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY})
    _push(copy, head)
    marker, before = _comment_of_bot(copy)
    lie = f"{before.partition(chr(10))[0]}\n**Approved and applied.**\n"
    _forge_of_stranger(copy).upsert_comment(1, marker, lie)
    _push(copy, copy.commit(STRANGER, {copy.path("README.md"): b"x\n"}, head))
    bodies = [c.body for c in copy.local().forge().comments(1) if c.marker is None]
    if bodies != [lie]:
        raise AttackSucceeded("the bot overwrote a comment of another account")
    if _comment_of_bot(copy)[1] == before:
        raise AttackSucceeded("the bot did not update its own comment")
    return "the bot knows its own comment by marker and author"


class _EditedComments(LocalForge):
    """A forge on which each comment was edited after it was written."""

    def comments(self, number: int) -> tuple[Comment, ...]:
        """The comments of a request."""
        return tuple(replace(each, account=each.author, edited=True) for each in super().comments(number))


def _edited_comment(copy: ClusterCopy) -> str:
    """A person who may write to the repository puts a command into the comment of an approver, who may give commands."""
    first = copy.rules.first_approver
    with (copy.server / "config").open("a", encoding="utf-8") as settings:
        settings.write(f'[gitops]\n\tadministrators = "{first}"\n')
    local = copy.local()
    edited = _EditedComments(
        local.repository,
        local.remote,
        local.person(),
        SystemClock(),
        OperatorSettings(lambda: {first: Permission.ADMIN}),
    )
    return _unlock(copy, edited, first, "edited")


def _command(copy: ClusterCopy) -> str:
    """An account without permission gives a command in a comment."""
    return _unlock(copy, copy.local().forge(), STRANGER, Code.COMMAND_REFUSED)


def _unlock(copy: ClusterCopy, forge: LocalForge, who: str, reason: str) -> str:
    """A comment has the command that removes the lock of a run. `reason` must be in the replies."""
    _push(copy, copy.commit(STRANGER, {copy.path("README.md"): b"x\n"}))
    local, now = copy.local(), timestamp(SystemClock().now())
    ledger = local.ledger(copy.rule)
    lock = LockInfo(RandomIds().ulid(), "apply", now, 1)
    ledger.acquire(lock)
    body = f"/gitops unlock {lock.lock_id}"
    forge.add_comment(1, who, body)
    comment = forge.comments(1)[-1]
    event = CommentEvent(1, comment.id, Account(comment.account or who, who), body, comment.at)
    bot = Bot(local.project, forge, copy.rules.bot, local.person())
    replies = " ".join(line.text for line in run_verb(bot, "command", event))
    if not ledger.observe_lock().held:
        raise AttackSucceeded("the lock was removed")
    require(reason in replies, f"the command was not refused, but had no effect: {replies[:200]}")
    return Code.COMMAND_REFUSED if reason == Code.COMMAND_REFUSED else "an edited comment is not a command"


def _status(copy: ClusterCopy) -> str:
    """An account with a token sets the status of the plan to success."""
    head = copy.head(copy.target)
    now = timestamp(SystemClock().now())
    for verb in ("plan", "apply"):
        status = CheckStatus(head, f"gitops/{verb}/{copy.rule.name}", CheckState.SUCCESS, "all good", now)
        _forge_of_stranger(copy).set_status(status)
    return copy.expect_no_effect()


def _markdown(copy: ClusterCopy) -> str:
    """Texts of a change request with active content: all of them must be rendered as code."""
    yaml = CLUSTER.decode() + "  '" + _HOSTILE.replace("'", "''") + "':\n    schema: legacy.pg\n"
    files: dict[str, bytes | None] = {copy.path("cluster.yaml"): yaml.encode(), copy.path(_TITLE[:60]): b"x\n"}
    _push(copy, copy.commit(STRANGER, files, message=f"{_TITLE}\n\n/gitops apply\n"))
    _, body = _comment_of_bot(copy)
    active = _ACTIVE.search(_SPAN.sub("", _FENCE.sub("", body)))
    if active:
        raise AttackSucceeded(f"{active[0]!r} is in the comment unescaped")
    if len(body) > COMMENT_LIMIT:
        raise AttackSucceeded("the comment is longer than forges accept")
    return "hostile texts are rendered as code"


def _secret(copy: ClusterCopy) -> str:
    """The address of an unreachable remote contains a password."""
    remote = ProgramRemote(
        str(copy.server), f"http://bot:{_SECRET}@127.0.0.1:9/x.git", environ=copy.environment(), timeout_s=10
    )
    replies = [remote.url, repr(remote)]
    try:
        remote.refs("refs/heads")
    except GitopsError as error:
        replies.append(f"{error.detail} {error!r}")
    else:
        require(False, "the remote answered")
    if any(_SECRET in text for text in replies):
        raise AttackSucceeded("the password is shown")
    return join_reasons(replies[0], "shown without the password")


_PAGE = "docs/forges.md"
MESSAGE_ATTACKS = (
    Attack("comment-marker", "a comment with the bot's marker", f"{_PAGE}: what is shown", _marker, "applied"),
    Attack("strangers-command", "give a command without permission", "docs/bot.md: commands", _command, "applied"),
    Attack(
        "edited-comment", "put a command into a comment of another", "docs/bot.md: commands", _edited_comment, "applied"
    ),
    Attack("spoofed-status", "set the status of the plan to success", f"{_PAGE}: forges never permit", _status),
    Attack("markdown", "texts with active content", "docs/comments.md", _markdown, "applied"),
    Attack(
        "secret-in-address", "a password in the address of a remote", f"{_PAGE}: the token is in no output", _secret
    ),
)
