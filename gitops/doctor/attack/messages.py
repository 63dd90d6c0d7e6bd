"""Attacks on what is told: comments and statuses by others, texts that act when they are shown, secrets in messages."""

from __future__ import annotations

import re

from gitops.bot.context import Bot
from gitops.bot.dispatch import Dispatcher
from gitops.bot.receive_push import PushEvent, PushHandler
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.play import Attack, need, nothing_happens, together
from gitops.doctor.attack.rules import CLUSTER, DELETE_LEGACY, STRANGER
from gitops.doctor.attack.world import Fell, Twin
from gitops.forge.events import CommentEvent
from gitops.forge.port import Account, CheckState, CheckStatus
from gitops.forge.refs.local import LocalForge
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.model.lock import LockInfo
from gitops.render.markdown import COMMENT_LIMIT
from gitops.wiring.system import RandomIds, SystemClock

__all__ = ["TELLING_ATTACKS"]

_TOPIC = "refs/heads/topic"
_STRANGER = Person("stranger", STRANGER)
_HOSTILE = "<script>alert(1)</script> <img src=x> @everyone [x](http://evil.invalid) --> | `x`"
_TITLE = f"<!-- gitops cluster=x --> **Applied** closes #1 {_HOSTILE}"
_ACTS = re.compile(r"<(script|img|a)\b|@everyone|\]\(http://evil|closes #1", re.IGNORECASE)
_FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_SECRET = "correct-horse-battery"  # noqa: S105 - made up, to be looked for


def _pushed(twin: Twin, commit: str) -> None:
    """A request moves, and the bot does what it does after a push."""
    before = twin.store().resolve(_TOPIC) or ZERO
    twin.move(_TOPIC, commit)
    local = twin.local()
    handler = PushHandler(local.project, local.forge(), actor=twin.rules.bot, person=local.person())
    for _ in handler.handle(PushEvent([RefUpdate(_TOPIC, before, commit)], STRANGER)):
        pass


def _strangers_forge(twin: Twin) -> LocalForge:
    local = twin.local()
    return LocalForge(local.repository, local.remote, _STRANGER, SystemClock())


def _bots_comment(twin: Twin) -> tuple[str, str]:
    """Marker and text of the comment that the bot itself wrote on request 1."""
    own = [c for c in twin.local().forge().comments(1) if c.marker is not None]
    need(len(own) == 1, f"the bot has {len(own)} comments")
    return own[0].marker or "", own[0].body


def _marker(twin: Twin) -> str:
    """Somebody else's comment carries the bot's marker."""
    head = twin.commit(STRANGER, {twin.path("cluster.yaml"): DELETE_LEGACY})
    _pushed(twin, head)
    marker, before = _bots_comment(twin)
    lie = f"{before.partition(chr(10))[0]}\n**Approved and applied.**\n"
    _strangers_forge(twin).upsert_comment(1, marker, lie)
    _pushed(twin, twin.commit(STRANGER, {twin.path("README.md"): b"x\n"}, head))
    bodies = [c.body for c in twin.local().forge().comments(1) if c.marker is None]
    if bodies != [lie]:
        raise Fell("the bot took somebody else's comment for its own")
    if _bots_comment(twin)[1] == before:
        raise Fell("the bot did not bring its own comment up to date")
    return "the bot keeps its own comment, known by marker and author"


def _command(twin: Twin) -> str:
    """Somebody without rights gives a command in a comment: to take the lock of a run away."""
    _pushed(twin, twin.commit(STRANGER, {twin.path("README.md"): b"x\n"}))
    local, now = twin.local(), timestamp(SystemClock().now())
    forge, ledger = local.forge(), local.ledger(twin.rule)
    lock = LockInfo(RandomIds().ulid(), "apply", now, 1)
    ledger.acquire(lock)
    body = f"/gitops unlock {lock.lock_id}"
    forge.add_comment(1, STRANGER, body)
    comment = forge.comments(1)[-1]
    event = CommentEvent(1, comment.id, Account(comment.account or STRANGER, STRANGER), body, comment.at)
    bot = Bot(local.project, forge, twin.rules.bot, local.person())
    said = " ".join(note.text for note in Dispatcher(bot).command(event))
    if not ledger.observe_lock().held:
        raise Fell("the lock is gone")
    need(Code.COMMAND_REFUSED in said, f"the command was not refused, but came to nothing: {said[:200]}")
    return Code.COMMAND_REFUSED


def _status(twin: Twin) -> str:
    """Anybody with a token sets the status that says the plan is good."""
    tip = twin.tip(twin.target)
    now = timestamp(SystemClock().now())
    for verb in ("plan", "apply"):
        status = CheckStatus(tip, f"gitops/{verb}/{twin.rule.name}", CheckState.SUCCESS, "all good", now)
        _strangers_forge(twin).set_status(status)
    return nothing_happens(twin)


def _markdown(twin: Twin) -> str:
    """Texts of a request that would act in a page: all of them must stand in code, where nothing does."""
    yaml = CLUSTER.decode() + "  '" + _HOSTILE.replace("'", "''") + "':\n    schema: legacy.pg\n"
    files: dict[str, bytes | None] = {twin.path("cluster.yaml"): yaml.encode(), twin.path(_TITLE[:60]): b"x\n"}
    _pushed(twin, twin.commit(STRANGER, files, message=f"{_TITLE}\n\n/gitops apply\n"))
    _, body = _bots_comment(twin)
    acting = _ACTS.search(_SPAN.sub("", _FENCE.sub("", body)))
    if acting:
        raise Fell(f"{acting[0]!r} stands in the comment as it is")
    if len(body) > COMMENT_LIMIT:
        raise Fell("the comment is longer than forges take")
    return "hostile texts are shown as code"


def _secret(twin: Twin) -> str:
    """A password in the address of a remote, which does not answer."""
    remote = ProgramRemote(
        str(twin.server), f"http://bot:{_SECRET}@127.0.0.1:9/x.git", environ=twin.environment(), timeout_s=10
    )
    said = [remote.url, repr(remote)]
    try:
        remote.refs("refs/heads")
    except GitopsError as error:
        said.append(f"{error.detail} {error!r}")
    else:
        need(False, "something answered")
    if any(_SECRET in text for text in said):
        raise Fell("the password is shown")
    return together(said[0], "shown without it")


_PAGE = "docs/forges.md"
TELLING_ATTACKS = (
    Attack("comment-marker", "a comment that carries the bot's marker", f"{_PAGE}: what is shown", _marker, "applied"),
    Attack("strangers-command", "give a command without rights", "docs/bot.md: commands", _command, "applied"),
    Attack("spoofed-status", "set the status of the plan to success", f"{_PAGE}: forges never permit", _status),
    Attack("markdown", "texts that act when they are shown", "docs/comments.md", _markdown, "applied"),
    Attack(
        "secret-in-address", "a password in the address of a remote", f"{_PAGE}: the token is in no output", _secret
    ),
)
