"""`gitops changeset`: lists, shows, watches, abandons and retries changesets, in a ledger folder or on a branch."""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cli.cluster import apply, folder_of
from gitops.cli.finding import repository_of
from gitops.cli.shared import (
    FAILED,
    OK,
    UNWRITTEN,
    actor_of,
    say,
    say_coloured,
    say_lines,
    say_report,
    show_error,
    show_form,
)
from gitops.cluster.changesets.stream import ChangesetAnswer, StreamItem, Until
from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.ledger.changesets import CHANGESET, EVENT
from gitops.cluster.ledger.files import lock_held_message
from gitops.cluster.ledger.records import RUN
from gitops.cluster.model.changeset import ChangesetKind, ChangesetState
from gitops.cluster.model.ledger import is_changeset_key
from gitops.cluster.session import changesets
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.documents.forms import is_line, is_object_id
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, UsageError
from gitops.render.changesets import item_form, item_lines, list_form, list_text, record_text, to_gantt
from gitops.render.characters import visible
from gitops.render.commands import completed
from gitops.render.json import present
from gitops.render.json_text import to_line
from gitops.render.text import diagnostic_lines
from gitops.repository.changes import brings_nothing, trees_differ, waiting_changes
from gitops.repository.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gitops.cluster.ledger.port import LedgerStore
    from gitops.cluster.model.changeset import Changeset
    from gitops.cluster.model.plan import RunRecord

_NOT_ENDED, _NOT_FOUND, _UNREADABLE = 3, 4, 5
_ANSWERS = {
    ChangesetAnswer.DONE: OK,
    ChangesetAnswer.NO_CHANGE: OK,
    ChangesetAnswer.FAILED: FAILED,
    ChangesetAnswer.WAITING: _NOT_ENDED,
}
_PARTS = 1 << 16
_UNNAMED = "cluster"


def list_all(options: argparse.Namespace) -> int:
    """`gitops changeset list`."""
    cluster, ledger = (opened := _open(options)).cluster, opened.ledger
    state = None if options.state is None else ChangesetState(options.state)
    found = changesets.list_changesets(ledger, ended=options.all, state=state, limit=options.limit)
    problems = Diagnostics()
    _warn_of_newest(opened, problems)
    if options.json:
        form = {"ok": True, "cluster": cluster, "changesets": list_form(found), "problems": problems.to_json()}
        show_form(form)
        return OK
    if not found and not (options.all or state):
        say(completed("no changeset is open; to list those that have ended: gitops changeset list --all"))
    else:
        say_coloured(list_text(found, SystemClock().now()), options)
    say_lines(diagnostic_lines(problems, verbose=options.verbose))
    return OK


def show(options: argparse.Namespace) -> int:
    """`gitops changeset show`. With `--exit-code`, the exit code reports the changeset's outcome, as for `watch`.

    The ledger files are authoritative, not the commit messages; a message that contradicts them is reported.
    """
    wanted, problems = _wanted(options, latest=options.latest), Diagnostics()
    runs: dict[str, RunRecord] = {}
    try:
        ledger = (opened := _open(options)).ledger
        records = changesets.find_changesets(ledger, wanted, opened.brings_nothing)
        if options.latest and (waits := _waits_for_approvals(wanted, opened)):
            # If all of the newest merge waits, it has no changeset yet, and the latest changeset is an earlier merge's.
            if all(each.source.merge_commit != opened.newest() for each in records):
                raise waits
            problems.add(waits.code, waits.path, waits.detail, severity=Severity.WARNING, fix=waits.fix)
        if options.gantt is not None:
            runs = _runs(ledger, records, options.gantt, problems)
        events = {each.key: ledger.events(0, each.key) if options.events else () for each in records}
        for each in records:
            try:
                ledger.check_trailers(each.key)
            except IntegrityError as error:
                problems.add_error(error)
    except UsageError:
        raise
    except GitopsError as error:
        if error.code is Code.CHANGESET_NOT_FOUND:
            error = _waits_for_approvals(wanted, opened) or error
        code = show_error(error, options, as_json=options.json)
        return _code_of(error) if options.exit_code else code
    if not records:
        if options.json:
            show_form({"ok": True, "no_change": True, "changesets": [], "problems": []})
        else:
            say_report(_no_change(opened.cluster, wanted), options)
    elif options.json:
        forms = [CHANGESET.form(each) for each in records]
        if options.events:
            forms = [{**form, "events": list(map(EVENT.form, events[form["key"]]))} for form in forms]
        forms = [{**form, **present(run=runs.get(form["key"]) and RUN.form(runs[form["key"]]))} for form in forms]
        show_form({"ok": not problems.has_errors, "changesets": forms, "problems": problems.to_json()})
    else:
        texts = (record_text(each, events[each.key], runs.get(each.key)) for each in records)
        say_coloured("\n".join(texts), options)
        say_lines(diagnostic_lines(problems, verbose=options.verbose))
    if options.exit_code:
        rules = changesets.WatchRules(Until(options.until), require_converged=options.require_converged)
        return _ANSWERS[changesets.answer_now(wanted, records, rules)]
    return FAILED if problems.has_errors else OK


def watch(options: argparse.Namespace, pacing: changesets.Pacing | None = None) -> int:
    """`gitops changeset watch`. Prints problems to standard error, so that every line of standard output is an item."""
    wanted = _wanted(options)

    def emit(item: StreamItem) -> None:
        if options.json:
            say(to_line(item_form(item)), flush=True)
        elif not options.quiet:
            say("\n".join(item_lines(item)), flush=True)

    try:
        opened = _open(options)
        rules = changesets.WatchRules(
            Until(options.until), options.timeout, require_converged=options.require_converged, idle=opened.idle
        )
        found, records = changesets.watch_changeset(
            opened.ledger, opened.cluster, wanted, rules, pacing or usual_pacing(), emit, opened.brings_nothing
        )
        if found is ChangesetAnswer.WAITING:
            raise _time_over(wanted, bool(records), opened)
        if found is ChangesetAnswer.NO_CHANGE and not (options.json or options.quiet):
            say(_no_change(opened.cluster, wanted))
    except UsageError:
        raise
    except GitopsError as error:
        show_error(error, options, as_json=False)
        return _code_of(error)
    return _ANSWERS[found]


def usual_pacing() -> changesets.Pacing:
    """Return a command's default polling intervals."""
    return changesets.Pacing(SystemClock(), time.sleep, lambda: secrets.randbelow(_PARTS) / _PARTS)


def fail(options: argparse.Namespace) -> int:
    """`gitops changeset fail`."""
    _check_key(options.key)
    if not is_line(options.error):
        raise UsageError(Code.USAGE_ERROR, "--error is one line without control characters")
    steering = changesets.Steering(_open(options, writes=True).ledger, SystemClock(), RandomIds(), actor_of(options))
    record = steering.fail(options.key, options.error, force=options.force)
    if options.json:
        show_form({"ok": True, "changeset": CHANGESET.form(record), "problems": []})
    else:
        rest = (
            ""
            if record.ended
            else "; the running apply, otherwise the next one, rolls back the prepared changes: gitops apply"
        )
        lines = [f"changeset {record.key}: {record.state}{rest}"]
        lines += [f"  left behind {each.address}: {each.reason}" for each in record.orphaned]
        say_report("\n".join(map(visible, map(completed, lines))), options)
    return OK


def retry(options: argparse.Namespace) -> int:
    """`gitops changeset retry`: apply again, as the next attempt. Raises ConflictError `changeset_state_invalid`."""
    _check_key(options.key)
    ledger = (opened := _open(options, writes=True)).ledger
    (record,) = changesets.find_changesets(ledger, changesets.WatchedChangeset(options.key))
    if record.state is not ChangesetState.FAILED:
        raise ConflictError(
            Code.CHANGESET_STATE_INVALID,
            f"it is {record.state}; only a failed changeset can be retried",
            path=record.key,
        )
    if record.kind is ChangesetKind.TICK:
        fix = "start a new tick, which reads the current signals: gitops strategies apply"
        raise ConflictError(
            Code.CHANGESET_STATE_INVALID,
            "a tick can't be retried, because the next tick makes its own decisions",
            path=record.key,
            fix=fix,
        )
    merge = record.source.merge_commit
    newest = (
        (record,) if merge is None else changesets.find_changesets(ledger, changesets.WatchedChangeset(commit=merge))
    )
    if record.key not in {each.key for each in newest}:
        fix = f"show the newer attempt: gitops changeset show {newest[-1].key}"
        raise ConflictError(Code.CHANGESET_STATE_INVALID, "a newer attempt exists", path=record.key, fix=fix)
    if merge is not None and opened.moved_on(merge):
        detail = "a later merge changes the cluster, and its changeset includes this merge"
        fix = "apply the branch: gitops apply"
        raise ConflictError(Code.CHANGESET_STATE_INVALID, detail, path=record.key, fix=fix)
    return apply(options, record)


def _runs(ledger: LedgerStore, records: Sequence[Changeset], file: str, problems: Diagnostics) -> dict[str, RunRecord]:
    """Return the runs of these changesets by key. With `file`, draw the only run there. Raises UsageError."""
    if file and len(records) > 1:
        detail = f"--gantt {file}: {len(records)} changesets were found, but a chart shows only one"
        fix = "select one by its key; to list the keys: gitops changeset list --all"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    found = {}
    for each in records:
        try:
            run = ledger.run_of(each.key)
            if run is None:
                problems.add(Code.RUN_RECORD_INVALID, each.key, "the ledger records no run of this changeset")
            else:
                found[each.key] = run
        except IntegrityError as error:
            problems.add(error.code, each.key, error.detail)
    for run in found.values() if file else ():
        try:
            Path(file).write_text(to_gantt(run))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "this is not a file name"
            raise UsageError(Code.USAGE_ERROR, f"--gantt {file}: {reason}", fix=UNWRITTEN) from error
    return found


def _time_over(wanted: changesets.WatchedChangeset, exists: bool, opened: _OpenedLedger) -> GitopsError:
    path = wanted.key or wanted.commit or ""
    if not exists and (waits := _waits_for_approvals(wanted, opened)):
        return waits
    if not exists:
        fix = "list the changesets: gitops changeset list --all"
        fix += f"; to wait longer: {_watching(path)} --timeout DURATION" if wanted.commit else ""
        detail = f"the ledger did not record a {wanted} within the time limit"
        return GitopsError(Code.CHANGESET_NOT_FOUND, detail, path=path, fix=fix)
    return GitopsError(Code.CHANGESET_NOT_ENDED, f"the {wanted} did not end within the time limit", path=path)


def _waits_for_approvals(wanted: changesets.WatchedChangeset, opened: _OpenedLedger) -> GitopsError | None:
    """Return the approvals that a merge without a changeset waits for, if any; without a key, the newest merge."""
    commit = wanted.commit or ("" if wanted.key else opened.newest())
    if not commit or not (waiting := opened.waiting(commit)):
        return None
    detail = f"commit {commit} is not applied completely: approvals are missing for {', '.join(waiting)}"
    commands = "; ".join(f"gitops approve {each}" for each in waiting)
    fix = f"ask an approver who is not an author to run: {commands}; then watch again: {_watching(commit)}"
    return GitopsError(Code.CHANGESET_NOT_ENDED, detail, path=commit, fix=fix)


def _warn_of_newest(opened: _OpenedLedger, problems: Diagnostics) -> None:
    """Warn if the newest merge waits for approvals: it may have no changeset in a list."""
    if waits := _waits_for_approvals(changesets.WatchedChangeset(), opened):
        detail = f"{waits.detail}; {waits.fix}"
        problems.add(waits.code, waits.path, detail, severity=Severity.WARNING, fix=waits.fix)


def _watching(commit: str) -> str:
    return f"gitops changeset watch --commit {commit}"


def _code_of(error: GitopsError) -> int:
    return {Code.CHANGESET_NOT_FOUND: _NOT_FOUND, Code.CHANGESET_NOT_ENDED: _NOT_ENDED}.get(error.code, _UNREADABLE)


def _wanted(options: argparse.Namespace, *, latest: bool = False) -> changesets.WatchedChangeset:
    """Return the selected changeset.

    Raises UsageError if none is selected, or if the argument is not a changeset key.
    """
    if options.key is not None:
        _check_key(options.key)
    elif options.commit is None and not latest:
        fix = "specify the merge with --commit OID, or pass a key that gitops changeset list --all shows"
        raise UsageError(Code.USAGE_ERROR, "the command line does not specify a changeset", fix=fix)
    return changesets.WatchedChangeset(options.key, None if options.commit is None else _commit(options))


def _commit(options: argparse.Namespace) -> str:
    """Return the full id of `--commit`. The commit may be missing from this clone.

    Raises UsageError for a name that does not resolve to a commit here.
    """
    given: str = options.commit
    local = None if is_object_id(given) else repository_of(options)
    found = given if local is None else local.git.revision(given)
    if found is None or not is_object_id(found):
        detail = f"--commit {given[:70]} is not a commit of this repository"
        raise UsageError(
            Code.USAGE_ERROR, detail, fix="pass a revision that git can resolve; to check it: git rev-parse REVISION"
        )
    return found


def _check_key(key: str) -> None:
    if not is_changeset_key(key):
        detail = f"'{key[:40]}' is not the key of a changeset"
        raise UsageError(Code.USAGE_ERROR, detail, fix="list the keys: gitops changeset list --all")


def _no_change(cluster: str, wanted: changesets.WatchedChangeset) -> str:
    return f"commit {wanted.commit} has nothing to apply to {cluster}, so no changeset is recorded for it"


@dataclass(frozen=True, slots=True)
class _OpenedLedger:
    """A cluster and its ledger.

    `idle` is as in `WatchRules`: for a folder the lock decides, and behind a branch a job may start later. `waiting`
    returns the changes of a merge that wait for approvals, and `newest` the merge that the ledger names, empty if none.
    """

    cluster: str
    ledger: LedgerStore
    brings_nothing: changesets.BringsNothing = lambda _: False
    moved_on: Callable[[str], bool] = lambda _: False
    idle: Callable[[], GitopsError | None] = lambda: None
    waiting: Callable[[str], Sequence[str]] = lambda _: ()
    newest: Callable[[], str] = lambda: ""


def _open(options: argparse.Namespace, *, writes: bool = False) -> _OpenedLedger:
    """Open the selected cluster. Raises GitopsError, UsageError.

    With `writes`, an entry on a branch ledger needs an author: UsageError `actor_required`.
    """
    local = repository_of(options)
    if local is not None:
        if writes:
            local.git.person()
        rule = local.rule(options.cluster, options.config)

        def moved_on(commit: str) -> bool:
            head, store = local.head_of(rule.ref), local.git
            return head is not None and trees_differ(local, rule, store.commit(head).tree, store.commit(commit).tree)

        return _OpenedLedger(
            rule.name,
            local.ledger(rule),
            lambda commit: brings_nothing(local, rule, commit),
            moved_on,
            waiting=lambda commit: waiting_changes(local, rule, commit),
            newest=lambda: local.position(rule).applied or "",
        )
    workspace = folder_of(options, None)
    header, problems = load_header(workspace.tree)
    if header is None:
        problem = next(iter(problems))
        raise GitopsError(problem.code, problem.message, path=problem.path, fix=problem.fix)
    ledger = workspace.open_stores(header.storage).ledger

    def idle() -> GitopsError | None:
        held, again = ledger.observe_lock(), f"gitops apply{workspace.selected}"
        if held.abandoned:
            detail = f"no apply is running: {lock_held_message(held, workspace.stamp(), workspace.selected)}"
            fix = f"remove the lock, then continue: {again}"
        elif held.held or not header.lock:
            return None
        else:
            detail, fix = "no apply is running: no run holds the ledger lock", f"continue: {again}"
        return GitopsError(
            Code.CHANGESET_NOT_ENDED, detail, path=_wanted(options).key or header.name or _UNNAMED, fix=fix
        )

    return _OpenedLedger(header.name or _UNNAMED, ledger, idle=idle)
