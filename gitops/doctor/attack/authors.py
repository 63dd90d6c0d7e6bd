"""Attacks on who the author is: pushes by accounts that no rule names, and pushes whose pusher another run must not forget."""

from __future__ import annotations

import itertools

from gitops.cluster.approvals.pushes import PUSHES
from gitops.core.codes import Code
from gitops.doctor.attack.copy import (
    Attack,
    AttackInconclusive,
    AttackSkipped,
    AttackSucceeded,
    ClusterCopy,
    join_reasons,
    require,
)
from gitops.doctor.attack.rules import AUTHOR, CLUSTER, DELETE_LEGACY, STRANGER
from gitops.git.command import run_program
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.repository.record_push import record_of, record_push
from gitops.repository.wiring.system import SystemClock

_ACCOUNTS = ("github-actions[bot]", "login")
_SPOOFED = ("REMOTE_USER", "GL_USER")


def _unsigned_delete(copy: ClusterCopy) -> str:
    """The commit of a delete without a signature, in the name of a stranger, on a branch that does not have it yet."""
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): CLUSTER}))
    return copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}, signer=None)


def _recorded(copy: ClusterCopy, commit: str, *, key: str | None = None, account: str | None = None) -> None:
    """Push a commit to the branch, as a server does that knows the pusher by a key or an account: first it writes the record."""
    store, clock = copy.store(), SystemClock()
    update = RefUpdate(copy.target, store.resolve(copy.target) or ZERO, commit)
    record = record_of([update], clock, certificate=None, key=key, account=account)
    bot = Person("bot", copy.rules.bot)
    require(
        record_push(store, record, (commit,), bot, copy.rules.key(copy.rules.bot), clock), "the push is not recorded"
    )
    copy.move_ref(copy.target, commit)


def _unlisted(copy: ClusterCopy) -> str:
    """The token of a job pushes, or a login name; the rules name no person for either."""
    listed = {name for account, _ in copy.rules.trust.accounts for name in (account, account.partition(":")[2])}
    reasons = []
    for account in _ACCOUNTS:
        require(account not in listed, f"the rules list the account {account}")
        _recorded(copy, _unsigned_delete(copy), account=account)
        for who in copy.rules.approvers:
            copy.approve(who, blind=True)
        reasons.append(copy.expect_no_effect())
    return join_reasons(*dict.fromkeys(reasons))


def _beside_a_run(copy: ClusterCopy) -> str:
    """An approver takes the lock, pushes a delete in the name of a stranger, and gives the lock back: another run applies it."""
    store, first = copy.store(), copy.rules.first_approver
    lock = f"refs/gitops/locks/{copy.rule.name}"
    tree = store.write_files(None, {"lock.json": b"{}\n"})
    copy.move_ref(lock, copy.write_commit(NewCommit(tree, (), Person("stranger", STRANGER, 1), "lock\n"), None))
    _recorded(copy, _unsigned_delete(copy), key=copy.rules.public(first).split()[1])
    copy.apply()
    copy.move_ref(lock, ZERO)
    for who in copy.rules.approvers:
        copy.approve(who, blind=True)
    held = copy.expect_no_effect()
    require(Code.APPROVAL_SELF in held, f"the pusher is not known: {held}")
    return held


def _spoofed(copy: ClusterCopy) -> str:
    """A push over a path, where the person who pushes sets the variables in which a server names the account."""
    if not copy.has_hook:
        raise AttackSkipped("no hook of this program records pushes there")
    commit = _unsigned_delete(copy)
    (copy.server / "hooks" / "post-receive").unlink(missing_ok=True)
    environ = {**copy.environment(), **dict.fromkeys(_SPOOFED, copy.rules.first_approver)}
    command = ("git", "-C", str(copy.server), "push", "-q", str(copy.server), f"{commit}:refs/heads/spoofed")
    answer = run_program(command, env=environ)
    if not answer.ok:
        raise AttackInconclusive(f"the push failed: {answer.stderr.strip()[:200]}")
    if copy.store().resolve(PUSHES) is not None:
        raise AttackSucceeded("the server recorded the person that the pusher named")
    return "variables of the pusher do not count"


def _crossed(copy: ClusterCopy) -> str:
    """An approver removes the graph in history that is applied, and lets git choose it again where two lines cross.

    The only commits that change the graph are those of another person, who tried the same and took it back. Git may take the
    newest commit at which the lines parted as their base.
    """
    first, store, times = copy.rules.first_approver, copy.store(), itertools.count(1_760_000_000)

    def commit(who: str, tree: str | None, *parents: str) -> str:
        require(tree is not None, "the merges conflict")
        person = Person(who.partition("@")[0], who, next(times))
        key = copy.rules.key(AUTHOR if who == STRANGER else who)
        return store.write_commit(NewCommit(tree or "", parents, person, "change\n"), signing_key=key)

    start = copy.head(copy.target)
    kept = store.commit(start).tree
    removed = store.write_files(kept, {copy.path("cluster.yaml"): DELETE_LEGACY})
    gone = commit(first, removed, start)
    applied = commit(first, kept, start, gone)
    copy.move_ref(copy.target, applied)
    copy.apply()
    noted = commit(first, store.write_files(removed, {"notes.txt": b"words\n"}), gone)
    undone = commit(STRANGER, kept, commit(STRANGER, removed, start))
    has = commit(first, store.merge(applied, undone).tree, applied, undone)
    lacks = commit(first, store.merge(noted, undone).tree, noted, undone)
    copy.move_ref(copy.target, commit(first, store.commit(lacks).tree, has, lacks))
    for who in copy.rules.approvers:
        copy.approve(who, blind=True)
    return copy.expect_no_effect()


_RULE = "docs/trust.md: who is an author"
AUTHOR_ATTACKS = (
    Attack("unlisted-account", "push with the token of a job, or a login that no rule names", _RULE, _unlisted),
    Attack("pushed-beside-a-run", "let another run apply your own push", _RULE, _beside_a_run),
    Attack("spoofed-login", "name another person in the variables of a push", _RULE, _spoofed),
    Attack("crossed-merges", "delete a graph by merges that cross, and approve it", _RULE, _crossed, "applied"),
)
