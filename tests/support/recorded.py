"""Pushes to the server of a `Life`, as its hook records them: real records and certificates, on the real chain."""

from __future__ import annotations

from gitops.git.port import ZERO, RefUpdate
from gitops.repository.guard import record_of, record_push
from gitops.repository.wiring.git import IncomingPush
from tests.reference.trust import Push
from tests.support.audited import Life, person
from tests.support.git_fixture import environment, public_key


def push(life: Life, ref: str, new: str, by: Push) -> None:
    """Move a ref, after the hook wrote down what it knew of the push."""
    store, update = life.git, RefUpdate(ref, life.git.resolve(ref) or ZERO, new)
    login = None if by.login is None else public_key(life.keys[by.login]).split()[1]
    text = None if by.certifies is None else certificate(life, by.certifies, update)
    record = record_of([update], life.clock, certificate=text, key=login, account=by.account)
    if (by.certifies, by.login, by.account) != (None, None, None):
        commits = IncomingPush(store, environment(life.home)).new_commits([new], most=1000)
        key = None if by.recorder is None else str(life.keys[by.recorder])
        record_push(store, record, commits, person("bot"), key, life.clock)
    store.update_refs([update])


def certificate(life: Life, who: str, *updates: RefUpdate) -> str:
    """What `git push --signed` sends, with a nonce of this moment."""
    lines = [
        "certificate version 0.1",
        f"pusher {who}@example.org 1782986400 +0000",
        f"nonce {int(life.clock.now().timestamp())}-0123456789abcdef",
        "",
        *(f"{each.old} {each.new} {each.ref}" for each in updates),
    ]
    payload = "".join(f"{line}\n" for line in lines)
    return payload + life.git.sign(payload.encode(), signing_key=str(life.keys[who]), namespace="git")
