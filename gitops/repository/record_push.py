"""Before a push moves any ref: write down who brought which commits, so that whichever run applies them knows.

The record is written beside the quarantine of the push, as the next commit of one chain (`approvals.pushes`). A push by an
unknown person leaves none. Its commits stay without an origin: they are new to the repository only once.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops.cluster.approvals.pushes import PUSHES, PushRecord, record_paths, write_push
from gitops.core.clock import Clock, timestamp
from gitops.core.errors import ConflictError
from gitops.git.port import ZERO, GitStore, NewCommit, Person, RefUpdate

MOST_COMMITS = 20_000
"""How many commits of one push are recorded."""

_MOST_TRIES = 100
_OWN = ("refs/gitops/", "refs/heads/gitops/")


def brought_by_people(updates: Sequence[RefUpdate]) -> tuple[RefUpdate, ...]:
    """The moves of a push that can bring commits of people: those of the bot's own refs are left out."""
    return tuple(update for update in updates if update.new != ZERO and not update.ref.startswith(_OWN))


def record_push(
    store: GitStore, record: PushRecord, commits: tuple[str, ...], person: Person, signing_key: str | None, clock: Clock
) -> bool:
    """Append a record for the commits that a push brings; False if there is nothing to record.

    Two pushes at once append one after the other. Raises ConflictError if others were faster a hundred times, GitopsError if
    the chain cannot be written.
    """
    if not commits or (record.certificate, record.key, record.account) == (None, None, None):
        return False
    files = record_paths(commits, write_push(record))
    message = f"Record a push\n\n{''.join(f'{update.new} {update.ref}' + chr(10) for update in record.updates)}"
    author = Person(person.name, person.email, int(clock.now().timestamp()))
    for _ in range(_MOST_TRIES):
        head = store.resolve(PUSHES)
        base = None if head is None else store.commit(head).tree
        parents = () if head is None else (head,)
        tree = store.write_files(base, files)
        commit = store.write_commit(NewCommit(tree, parents, author, message), signing_key=signing_key)
        try:
            store.update_refs([RefUpdate(PUSHES, head or ZERO, commit)])
        except ConflictError as error:
            conflict = error
            continue
        return True
    raise conflict


def record_of(
    updates: Sequence[RefUpdate], clock: Clock, *, certificate: str | None, key: str | None, account: str | None
) -> PushRecord:
    """The record of a push that happens now."""
    return PushRecord(timestamp(clock.now()), tuple(updates), certificate, key, account)
