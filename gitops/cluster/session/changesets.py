"""Lists, finds and watches a cluster's changesets, for people and programs.

These verbs only read. They need neither a lock nor a cluster folder. The ledger does not record whether a merge has
anything for a changeset to apply; the caller determines that from git (`BringsNothing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from gitops.cluster.changesets.stream import (
    ChangesetAnswer,
    FullState,
    StreamItem,
    StreamReading,
    Until,
    answer,
    answer_of_merge,
    newest_attempt,
    pull,
)
from gitops.cluster.ledger.files import following
from gitops.cluster.ledger.port import ChangesetListing, LedgerReader, LedgerStore, LedgerView
from gitops.cluster.model.change import Effect
from gitops.cluster.model.changeset import (
    BLOCKING,
    ENDED,
    Changeset,
    ChangesetState,
    EventDraft,
    Failed,
    Happening,
    Orphan,
    RollingBack,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import EntryKind, Intent, LedgerEntry, LedgerState, LockInfo
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError

BringsNothing = Callable[[str], bool]
"""Returns True if a merge commit without a changeset has nothing for a changeset to apply. Raises GitopsError."""

_SHORTEST, _LONGEST = 1.0, 10.0
_JITTER = 0.25


@dataclass(frozen=True, slots=True)
class WatchedChangeset:
    """Selects a changeset by key, or the newest attempt at a merge commit, or, without both, the newest of all."""

    key: str | None = None
    commit: str | None = None

    def __str__(self) -> str:
        """Describe the selected changeset in words."""
        return (
            f"changeset {self.key}"
            if self.key
            else f"changeset of commit {self.commit}"
            if self.commit
            else "changeset"
        )


@dataclass(frozen=True, slots=True)
class WatchRules:
    """When a watch ends: at an outcome, at a time limit, or if no run is active on the cluster.

    `idle` returns the problem for the last case, or None while a run might be active.
    """

    until: Until = Until.COMMITTED
    timeout: timedelta = timedelta(minutes=30)
    require_converged: bool = False
    idle: Callable[[], GitopsError | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Pacing:
    """Timing of a watch: its clock, a sleep function, and a random number between 0 and 1 that spreads watchers over time."""

    clock: Clock
    pause: Callable[[float], None]
    chance: Callable[[], float]


def list_changesets(
    ledger: LedgerReader, *, ended: bool = False, state: ChangesetState | None = None, limit: int | None = None
) -> tuple[Changeset, ...]:
    """Return open changesets, newest first. With `ended` or a final `state`, ended changesets are included in the search.

    Raises GitopsError if the ledger cannot be read.
    """
    _view(ledger)
    found: Iterable[Changeset] = reversed(_listing(ledger).open)
    if ended or state in ENDED:
        found = filter(None, map(ledger.changeset, ledger.changeset_keys()))
    return tuple(islice((each for each in found if state in (None, each.state)), limit))


def find_changesets(
    ledger: LedgerReader, wanted: WatchedChangeset, brings_nothing: BringsNothing = lambda _: False
) -> tuple[Changeset, ...]:
    """Return a changeset's record or, for a merge commit, the records of all parts of its newest attempt.

    The result is empty for a merge that has nothing to apply. Raises GitopsError `changeset_not_found`, and the errors
    of the ledger.
    """
    _view(ledger)
    found = _records(ledger, wanted)
    if not found and not (wanted.commit and brings_nothing(wanted.commit)):
        raise GitopsError(
            Code.CHANGESET_NOT_FOUND, f"the ledger has no {wanted}", path=wanted.key or wanted.commit or ""
        )
    return found


def answer_now(wanted: WatchedChangeset, records: tuple[Changeset, ...], rules: WatchRules) -> ChangesetAnswer:
    """Return the result of the watched changeset, given the records from `find_changesets`."""
    if wanted.commit is not None and not records:
        return ChangesetAnswer.NO_CHANGE
    if wanted.commit is not None:
        return answer_of_merge(records, rules.until, require_converged=rules.require_converged)
    found = [answer(each, rules.until, require_converged=rules.require_converged) for each in records]
    return found[0] if found else ChangesetAnswer.WAITING


def read_stream(
    ledger: LedgerReader, cluster: str, at: str, after: int | None, wanted: WatchedChangeset | None = None
) -> tuple[StreamReading, frozenset[str] | None]:
    """Return a consistent view of a ledger with its events after a position, and the `wanted` changesets' keys.

    The full state contains the wanted changesets, or without `wanted` those that have not ended. Raises the errors of
    the ledger.
    """
    while True:
        view, listing = _view(ledger), _listing(ledger)
        keys = None if wanted is None else frozenset(_keys(ledger, wanted))
        records = listing.open if wanted is None else _records(ledger, wanted)
        events = () if after is None else ledger.events(after)
        # A folder has no snapshots, so data that is written between two reads must be read again.
        if ledger.snapshot_reads or (ledger.view().cas, _listing(ledger).index) == (view.cas, listing.index):
            break
    state = view.state or LedgerState()
    full = FullState(state.revision, state.config_digest, state.digests(), records)
    return StreamReading(cluster, listing.index.seq, at, full, events), keys


def watch_changeset(
    ledger: LedgerReader,
    cluster: str,
    wanted: WatchedChangeset,
    rules: WatchRules,
    pacing: Pacing,
    emit: Callable[[StreamItem], None],
    brings_nothing: BringsNothing = lambda _: False,
) -> tuple[ChangesetAnswer, tuple[Changeset, ...]]:
    """Emit a changeset's events until it has an outcome or the time is up. It need not exist yet.

    Returns the answer (WAITING if the time is up) and the corresponding records. For a merge that has nothing to apply,
    there is no wait. If a remote temporarily does not respond, the query is repeated; when the time is up, its error is
    raised. Every other error is raised immediately.
    """
    end, wait = pacing.clock.now() + rules.timeout, _SHORTEST
    position: int | None = None
    records: tuple[Changeset, ...] = ()
    while True:
        failure, items = None, tuple[StreamItem, ...]()
        try:
            reading, keys = read_stream(ledger, cluster, timestamp(pacing.clock.now()), position, wanted)
            nothing = wanted.commit is not None and not keys and brings_nothing(wanted.commit)
            # Events that were recorded in the meantime count as well.
            nothing = nothing and _view(ledger).found and not _keys(ledger, wanted)
        except RemoteError as error:
            if not error.retryable:
                raise
            failure = error
        else:
            items = pull(reading, position, keys, first=position is None)
            for item in items:
                emit(item)
            position, records = reading.seq, reading.state.changesets
            if nothing:
                return ChangesetAnswer.NO_CHANGE, ()
            found = answer_now(wanted, records, rules) if records else ChangesetAnswer.WAITING
            if found is not ChangesetAnswer.WAITING:
                return found, records
            # A run that ended after this reading recorded its end.
            idle = rules.idle() if records and not items else None
            if idle is not None and _records(ledger, wanted) == records:
                raise idle
        left = (end - pacing.clock.now()).total_seconds()
        if left <= 0 and failure is not None:
            raise failure
        if left <= 0:
            return ChangesetAnswer.WAITING, records
        wait = _SHORTEST if items else min(2 * wait, _LONGEST)
        pacing.pause(min(left, wait * (1 - _JITTER + 2 * _JITTER * pacing.chance())))


def _keys(ledger: LedgerReader, wanted: WatchedChangeset) -> tuple[str, ...]:
    if wanted.key is not None:
        return (wanted.key,)
    return ledger.changeset_keys()[:1] if wanted.commit is None else ledger.changeset_of(wanted.commit)


def _records(ledger: LedgerReader, wanted: WatchedChangeset) -> tuple[Changeset, ...]:
    found = tuple(filter(None, map(ledger.changeset, _keys(ledger, wanted))))
    return found if wanted.commit is None else newest_attempt(found)


def _view(ledger: LedgerReader) -> LedgerView:
    """Return the view of a readable ledger, or of one that does not exist yet."""
    view = ledger.view()
    if view.found and view.state is None:
        problem = view.problems[0]
        raise GitopsError(problem.code, problem.message, path=problem.path, fix=problem.fix)
    return view


def _listing(ledger: LedgerReader) -> ChangesetListing:
    listing = ledger.changesets()
    if listing.problem is not None:
        raise IntegrityError(Code.CHANGESET_INVALID, listing.problem)
    return listing


# -- decisions ---------------------------------------------------------------------------------------------------------
# Decisions of people and programs about a changeset, recorded in the ledger. Only events are written; the next run acts
# on them. An active run holds the lock, so its changeset is abandoned without the lock: the run finds the decision at
# its next write, and then applies nothing.


_OPERATION, _APPLY = "changeset", "apply"
_ATTEMPTS = 5
_SIGN = "sign with the key of a ledger signer: git config user.signingKey FILE"

_LEFT_BEHIND = frozenset({RuntimeState.PROVISIONING, RuntimeState.READY, RuntimeState.FAILED})


class Steering:
    """Changes to one ledger's changesets. Each method takes the lock if it can, and returns the resulting record.

    Raises GitopsError `changeset_not_found`, `state_lock_held`, and the errors of the ledger.
    """

    def __init__(self, ledger: LedgerStore, clock: Clock, ids: IdSource, actor: str | None) -> None:
        """Create the actions; `actor` is the person who decides."""
        self._ledger, self._clock, self._ids, self._actor = ledger, clock, ids, actor

    def fail(self, key: str, error: str, *, force: bool = False) -> Changeset:
        """Abandon a changeset that is not committed. The next run rolls back its prepared changes. `error` is the reason.

        With `force`, a changeset that is rolling back ends immediately: changes that were not rolled back are left
        behind and listed. Raises ConflictError `changeset_state_invalid` for a changeset that is committed, has ended,
        or can only go forward.
        """
        return self._record(key, lambda record: self._failure(record, error, force=force), during_apply=not force)

    def update(self, key: str, what: RuntimeUpdated) -> Changeset:
        """Report the progress of a member in the active changeset.

        Raises ConflictError `changeset_state_invalid` for an update that is not allowed now.
        """

        def check(record: Changeset) -> Happening:
            if record.state not in BLOCKING:
                raise _refusal(record, f"it is {record.state}: only members of the active changeset are reported")
            return what

        return self._record(key, check)

    def _record(self, key: str, decide: Callable[[Changeset], Happening], *, during_apply: bool = False) -> Changeset:
        info = LockInfo(self._ids.ulid(), _OPERATION, timestamp(self._clock.now()), 0)
        try:
            self._ledger.acquire(info)
        except ConflictError:
            holder = self._ledger.observe_lock().info
            if not (during_apply and holder and holder.operation == _APPLY):
                raise
        try:
            return self._write(key, decide)
        finally:
            self._ledger.release(info.lock_id)

    def _write(self, key: str, decide: Callable[[Changeset], Happening]) -> Changeset:
        attempt = 1
        while True:
            view, record = self._ledger.view(), self._ledger.changeset(key)
            if record is None:
                raise GitopsError(Code.CHANGESET_NOT_FOUND, f"the ledger has no changeset {key}", path=key)
            at = timestamp(view.time(self._clock.now()))
            draft = EventDraft(key, at, decide(record))
            # No later run continues what is left of a changeset.
            left = self._intents(record) if isinstance(draft.happening, Failed) else ()
            retire = [intent.operation_id for intent in left]
            try:
                self._ledger.begin(view, (), self._entry(view, key, at), events=[draft], retire=retire)
                break
            except ConflictError as error:
                # The active run wrote first, and that can change the decision.
                if error.code != Code.STATE_CAS_MISMATCH or attempt == _ATTEMPTS:
                    raise
                attempt += 1
            except GitopsError as error:
                # No operation on a graph was announced, so writing the entry is what failed.
                if error.code == Code.RECOVERY_SIDECAR_WRITE_ERROR:
                    fix = None if isinstance(error, RemoteError) else _SIGN
                    raise GitopsError(Code.LEDGER_NOT_WRITABLE, error.detail, path=error.path, fix=fix) from error
                raise
        self._ledger.view()
        return self._ledger.changeset(key) or record

    def _failure(self, record: Changeset, error: str, *, force: bool) -> Happening:
        if record.state in (ChangesetState.COMMITTED, ChangesetState.DRAINED, ChangesetState.FINALIZED):
            fix = "to restore the previous state, revert its merge: gitops revert --help"
            raise _refusal(record, f"it is {record.state}, so the cluster uses its changes", fix=fix)
        if record.state is ChangesetState.ROLLING_BACK and not force:
            fix = f"end it without rolling back the rest: gitops changeset fail {record.key} --error TEXT --force"
            raise _refusal(record, "it is already being rolled back; the next run continues the rollback", fix=fix)
        if force and record.state is not ChangesetState.ROLLING_BACK:
            fix = f"roll it back first: gitops changeset fail {record.key} --error TEXT"
            raise _refusal(record, f"it is {record.state}: --force only ends one that is rolling back", fix=fix)
        if force:
            announced = {intent.address for intent in self._intents(record)}
            left = [m.address for m in record.members if m.runtime.state in _LEFT_BEHIND or m.address in announced]
            return Failed(error, tuple(Orphan(address, "it was not taken back") for address in left))
        pivots = [member.address for member in record.members if member.effect is Effect.PIVOT]
        if pivots and record.state is ChangesetState.PREPARED:
            detail = (
                f"{', '.join(pivots)} cannot be rolled back and may have started; the next run finds out how far it got"
            )
            raise _refusal(record, detail, fix="continue it: gitops apply")
        return RollingBack(error, None)

    def _intents(self, record: Changeset) -> tuple[Intent, ...]:
        """Return the operations that a changeset announced and that are not settled yet."""
        return tuple(each for each in self._ledger.intents().intents if each.address in record.addresses)

    def _entry(self, view: LedgerView, key: str, at: str) -> LedgerEntry | None:
        """Return the entry for a branch ledger. It doesn't apply anything, and repeats the last applied source."""
        if view.entry is None:
            return None
        in_force = view.entry.trust_digest if view.trust is None else view.trust.digest
        entry = following(
            view.entry, EntryKind.CHANGESET, operation=self._ids.ulid(), at=at, actor=self._actor, trust_digest=in_force
        )
        return replace(entry, changeset=key)


def _refusal(record: Changeset, why: str, *, fix: str | None = None) -> ConflictError:
    return ConflictError(Code.CHANGESET_STATE_INVALID, why, path=record.key, fix=fix)
