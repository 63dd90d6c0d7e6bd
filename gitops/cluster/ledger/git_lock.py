"""A lock that is a git ref. To take it, a process creates the ref with a unique commit that has no parent.

The commit has no parent, because a descendant could be pushed over its holder. It has a new id each time, because pushing the
same object again would look like success. Hosts that refuse refs outside of `refs/heads/` get a branch.

So the lock can be at either of two refs, and a host might refuse one of them only for some writers or for some time.
After creating one ref, a writer therefore checks the other: if two writers hold the two refs, at least one of them
notices.

Hosts can permit an account to create refs but not to delete them. Such a lock would lock out everyone else. So a clone
creates its first lock in one atomic push with the deletion of another ref, which was created for this purpose.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from gitops.cluster.ledger.documents import write_lock
from gitops.cluster.ledger.files import lock_held_message, lock_observation
from gitops.cluster.model.ledger import LockInfo, LockObservation
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate

_DOCUMENT = "lock.json"
_TRIAL = "_trial"
_LOOKS = 3


@dataclass(frozen=True, slots=True)
class _FoundLock:
    """A lock ref on the remote: its name, its commit, and the observed lock."""

    ref: str
    oid: str
    seen: LockObservation


def push_own(remote: GitRemote, *updates: RefUpdate) -> None:
    """Atomically push or delete refs of a commit that this process created. Raises the errors of `push`.

    If a transport loses the answer and pushes again, the second push finds the ref moved by the first. As the commit is
    unique, the ref shows whether the first push succeeded.
    """
    try:
        remote.push(updates)
    except ConflictError:
        if any(remote.refs(update.ref).get(update.ref, ZERO) != update.new for update in updates):
            raise


@dataclass(frozen=True, slots=True)
class LockRefs:
    """The refs for the lock: `fallback` is used if the host refuses `ref`. `proven` means that this account can delete `ref`.

    `remember` is called with the ref that is in use and proven to work.
    """

    ref: str
    fallback: str
    remember: Callable[[str], None]
    proven: bool = True


class GitLock:
    """One cluster's lock. It tries `ref` first, which is the ref of the last lock, if any."""

    def __init__(self, store: GitStore, remote: GitRemote, refs: LockRefs, faults: Faults) -> None:
        """Create the lock of the cluster that uses these refs."""
        self._store = store
        self._remote = remote
        self.ref = refs.ref
        self._places = tuple(dict.fromkeys((refs.ref, refs.fallback)))
        self._remember = refs.remember
        self._proven = refs.proven
        self._faults = faults
        # The lock that this process created: its id and its commit, at `ref`.
        self._ours: tuple[str, str] | None = None

    def observe(self) -> LockObservation:
        """Return the remote's current lock. Raises RemoteError."""
        return next((found.seen for found in self._find(*self._order())), LockObservation(held=False))

    def acquire(self, info: LockInfo, author: Person) -> None:
        """Create the ref. Raises ConflictError `state_lock_held`, or RemoteError or GitopsError `state_lock_error`."""
        created = parse_timestamp(info.created_at)
        author = author if created is None else replace(author, time=int(created.timestamp()))
        tree = self._store.write_files(None, {_DOCUMENT: write_lock(info)})
        message = f"lock: {info.operation} {info.lock_id}\n"
        oid = self._store.write_commit(NewCommit(tree, (), author, message), signing_key=None)
        try:
            with around(self._faults, "ledger.lock", "take"):
                self._create(oid)
            self._ours = info.lock_id, oid
            rival = next(self._find(*self._order()[1:]), None)
        except ConflictError as error:
            held = LockObservation(held=True)
            with contextlib.suppress(GitopsError):
                held = self.observe()
            raise ConflictError(
                Code.STATE_LOCK_HELD, lock_held_message(held, info.created_at), path=self.ref
            ) from error
        except RemoteError as error:
            self._take_back(oid)
            raise error.during(Code.STATE_LOCK_ERROR, self.ref) from error
        except GitopsError as error:
            raise GitopsError(Code.STATE_LOCK_ERROR, error.detail, path=self.ref) from error
        if rival is not None:
            self._take_back(oid)
            raise ConflictError(Code.STATE_LOCK_HELD, lock_held_message(rival.seen, info.created_at), path=rival.ref)

    def release(self, lock_id: str) -> None:
        """Delete the ref if it is still ours. Raises GitopsError `state_unlock_error` on failure.

        A lock created by this process need not be looked up, because it is deleted only if its commit is still there.
        """
        try:
            if self._ours is not None and self._ours[0] == lock_id:
                ours = RefUpdate(self.ref, self._ours[1], ZERO)
            else:
                infos = ((each, each.seen.info) for each in self._find(*self._order()))
                found = next((each for each, info in infos if info is not None and info.lock_id == lock_id), None)
                if found is None:
                    return
                ours = RefUpdate(found.ref, found.oid, ZERO)
            with around(self._faults, "ledger.lock", "give_back"):
                push_own(self._remote, ours)
        except ConflictError:
            # The lock was broken, and another process may hold it now.
            return
        except GitopsError as error:
            raise GitopsError(Code.STATE_UNLOCK_ERROR, error.detail, path=self.ref) from error

    def break_lock(self, lock_id: str) -> None:
        """Delete the ref whose document or commit has exactly this id.

        Raises the codes of the force-unlock decision table.
        """
        try:
            locks = tuple(self._find(*self._order()))
        except RemoteError as error:
            raise RemoteError(Code.STATE_LOCK_READ_ERROR, error.detail, path=self.ref) from error
        if not locks:
            raise ConflictError(Code.STATE_LOCK_MISSING, "the ledger is not locked", path=self.ref)
        wanted = next((found for found in locks if found.seen.is_named(lock_id)), None)
        if wanted is None:
            other = locks[0]
            if other.seen.info is None:
                problem = other.seen.problem or Code.INVALID_STATE_LOCK
                raise IntegrityError(problem, lock_held_message(other.seen), path=other.ref)
            raise ConflictError(Code.STATE_LOCK_ID_MISMATCH, lock_held_message(other.seen), path=other.ref)
        try:
            with around(self._faults, "ledger.lock", "break"):
                push_own(self._remote, RefUpdate(wanted.ref, wanted.oid, ZERO))
        except GitopsError as error:
            raise GitopsError(Code.STATE_UNLOCK_ERROR, error.detail, path=wanted.ref) from error

    def _create(self, oid: str) -> None:
        """Push the new ref to the first place that the host does not refuse. That place becomes `ref`."""
        *others, last = self._order()
        for place in (*others, last):
            try:
                if self._proven and place == self.ref:
                    push_own(self._remote, RefUpdate(place, ZERO, oid))
                else:
                    self._create_where_it_can_be_deleted(place, oid)
            except GitopsError as error:
                if error.code != Code.PUSH_REFUSED or place == last:
                    raise
            else:
                if place != self.ref or not self._proven:
                    self.ref, self._proven = place, True
                    self._remember(place)
                return

    def _create_where_it_can_be_deleted(self, place: str, oid: str) -> None:
        """Push the new ref and delete another one of its kind in one atomic push. Raises the errors of `push`."""
        other = f"{place}{_TRIAL}"
        # It can exist because an earlier attempt was refused.
        left = self._remote.refs(other).get(other)
        if left is None:
            push_own(self._remote, RefUpdate(other, ZERO, oid))
        try:
            self._remote.push([RefUpdate(other, left or oid, ZERO), RefUpdate(place, ZERO, oid)])
        except ConflictError:
            if self._remote.refs(place).get(place) != oid:
                raise
        except GitopsError as error:
            if error.code != Code.PUSH_REFUSED:
                raise
            detail = f"this account can create {other} but not delete it, so a lock could not be released; allow it to"
            raise GitopsError(Code.PUSH_REFUSED, f"{detail} delete (gitolite: RW+ or RWD): {error.detail}") from error

    def _take_back(self, oid: str) -> None:
        """Remove our own ref after a failed attempt. Another holder's ref is kept."""
        for place in self._places:
            with contextlib.suppress(GitopsError):
                if self._remote.refs(place).get(place) == oid:
                    self._remote.push([RefUpdate(place, oid, ZERO)])

    def _order(self) -> tuple[str, ...]:
        """Return all places, the most likely one first."""
        return (self.ref, *(place for place in self._places if place != self.ref))

    def _find(self, *places: str) -> Iterator[_FoundLock]:
        """Return the lock in each of `places` that contains it. Raises RemoteError."""
        found = (self._look(place) for place in places)
        return (lock for lock in found if lock is not None)

    def _look(self, ref: str) -> _FoundLock | None:
        """Return the lock at one ref. A lock that is released while it is read is looked up again, not reported as broken."""
        oid, code, detail = "", Code.INVALID_STATE_LOCK, ""
        for _ in range(_LOOKS):
            oid = self._remote.refs(ref).get(ref, "")
            if not oid:
                return None
            try:
                if self._store.resolve(oid) is None:
                    self._remote.fetch([ref])
                content = self._store.read(self._store.commit(oid).tree, _DOCUMENT)
            except RemoteError as error:
                code, detail = Code.STATE_LOCK_READ_ERROR, error.detail
            except GitopsError as error:
                code, detail = Code.INVALID_STATE_LOCK, error.detail
            else:
                if content is not None:
                    return _FoundLock(ref, oid, lock_observation(content, oid))
                code, detail = Code.INVALID_STATE_LOCK, f"{_DOCUMENT} is missing"
        return _FoundLock(ref, oid, LockObservation(held=True, problem=code, detail=detail, key=oid))
