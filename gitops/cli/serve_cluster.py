"""`gitops serve`: one cluster's query server, in one or more processes.

The supervisor of several processes doesn't open graphs itself. A child process determines the revision to serve, and
each worker, including replacements, serves exactly that revision.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cli.serve_replica import WATCH_S, copy_of, copying, prepare, require_replica
from gitops.cli.shared import FAILED, OK, USAGE, complain, say, show, show_error
from gitops.cluster.model.identity import Identity, TokenRefusedError
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError, UsageError, system_reason
from gitops.render.characters import visible
from gitops.render.commands import completing, with_typed
from gitops.repository.report_folder import ServedReport
from gitops.repository.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.cluster.ledger.served import ServingReports
    from gitops.cluster.ledger.use import UseRecords
    from gitops.cluster.model.identity import TokenIssuer
    from gitops.cluster.model.outcome import ReadyOutcome
    from gitops.core.redact import Secret
    from gitops.identity.verify import TokenVerifier
    from gitops.repository.wiring.replica import ReplicaCopy
    from gitops.serving.generation import Compiled, PolicyCover
    from gitops.serving.http.admin import Asked
    from gitops.serving.listen import BoundSocket
    from gitops.serving.metrics import ServingMetrics
    from gitops.serving.previews import PreviewOpener
    from gitops.serving.process import Booted, BootInputs, Reload, ServerTokens, ServingGeneration
    from gitops.serving.processes import Companion, Lifeline, WorkerStart
    from gitops.serving.report import StatusBoard
    from gitops.serving.use import UseRecorder

_KEYS_EVERY_S, _KEYS_AGAIN_S = 15.0, 3.0
_EXTRA = ("jwt", "uvicorn", "uvloop", "httptools", "cedarpy", "pydantic", "starlette", "prometheus_client")
_OPEN = "OPEN: this server has neither tokens nor policies, and every program on this machine may read and change every graph"
_DEFAULT_DENY = "no policy is bound: holders of a token may read every graph, and nothing else"


def serve(options: argparse.Namespace, environ: Mapping[str, str] | None = None) -> int:
    """Serve until a signal arrives. With `--check`, only report whether the server could start.

    Raises GitopsError if it cannot start. Raises UsageError `serve_unavailable` if the packages of the `serve` extra
    are not installed.
    """
    with completing(partial(with_typed, "serve", getattr(options, "line", ()))):
        try:
            _require_usable(options)
            require_replica(options)
        except GitopsError as error:
            show_error(error, options, as_json=options.json)
            return USAGE
        try:
            return _serve(options, os.environ if environ is None else environ)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _EXTRA:
                raise
            message = f"the package {(error.name or '').partition('.')[0]} is not installed"
            raise UsageError(Code.SERVE_UNAVAILABLE, message) from error


def _require_usable(options: argparse.Namespace) -> None:
    """Refuse a second source before any file is opened, because neither would have precedence, and a token without a check."""
    others = {"URI": options.uri, "--target": options.target, "--config": options.config}
    given = [name for name, value in others.items() if value is not None]
    if options.cluster is None:
        fix = "name the folder of the cluster: gitops serve --cluster DIR"
        raise UsageError(Code.USAGE_ERROR, "the option --cluster is missing", fix=fix)
    if given:
        message = f"--cluster is the only source of a server; {', '.join(given)} cannot be combined with it"
        raise GitopsError(Code.EXCLUSIVE_BOOT_SOURCE, message, path=given[0], fix=f"leave out {' and '.join(given)}")
    if options.token_file is not None and not options.check:
        raise UsageError(Code.USAGE_ERROR, "--token-file requires --check", fix="gitops serve --check")
    if options.record_key is not None and options.read_replica is not None:
        detail = "a read replica records no calls, because its credentials need only read"
        raise UsageError(Code.USAGE_ERROR, detail, fix="leave out --record-key")
    if options.record_key is not None:
        from gitops.repository.wiring.serving import record_signer

        record_signer(options.record_key)


def _serve(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from gitops.repository.wiring.serving import read_token
    from gitops.serving.generation import Compiled
    from gitops.serving.listen import bind
    from gitops.serving.process import boot_process

    log = _log(options)
    inputs, copy = _inputs(options, environ), copy_of(options, log)
    if copy is not None:
        inputs = replace(inputs, open_stores=copy.stores)
    if options.check:
        prepare(copy)
        token = None if options.token_file is None else read_token(options.token_file)
        return show(_checked(boot_process(inputs, compiled=Compiled(_processes(options))), token), options)
    # A signal to reload tokens must not end the process, so it waits until the tokens have been read once.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    if options.workers is not None or options.admin_bind is not None:
        return _supervise(options, inputs, log, copy)
    prepare(copy)
    compiled = Compiled(_processes(options))
    booted = boot_process(inputs, compiled=compiled, rows=_rows)
    if booted.state is None:
        return _refuse(_refusal(inputs.place, booted.outcome))
    bound, warnings = bind(*options.bind), _warnings(booted.state, booted.outcome, environ)
    keeper = _Keeper(inputs, compiled, _watched(options), board_of(options), copy=copy)
    return _work(options, keeper, booted, bound, log, lambda: _announce(bound, warnings, log))


def _supervise(options: argparse.Namespace, inputs: BootInputs, log: logging.Logger, copy: ReplicaCopy | None) -> int:
    """Serve in child processes until a signal."""
    from gitops.serving.processes import Lifeline

    lifeline = Lifeline()
    try:
        with admin_address(options.admin_bind, options.workers or 1, lifeline, log) as admin:
            return _supervise_beside(options, inputs, log, lifeline, admin, copy)
    finally:
        lifeline.close()


def _supervise_beside(
    options: argparse.Namespace,
    inputs: BootInputs,
    log: logging.Logger,
    lifeline: Lifeline,
    admin: Admin | None,
    copy: ReplicaCopy | None,
) -> int:
    """Serve in workers.

    The supervisor is forked for each worker, so it must not open anything itself. A child process finds the revision to
    serve.
    """
    from gitops.serving.generation import AppliedRevision, Compiled
    from gitops.serving.listen import bind
    from gitops.serving.process import boot_process
    from gitops.serving.processes import in_children, supervise

    def look() -> Mapping[str, Any]:
        prepare(copy)
        compiled = Compiled(_processes(options))
        booted = boot_process(inputs, compiled=compiled)
        if booted.state is None or booted.revision is None:
            return {"refusal": _refusal(inputs.place, booted.outcome)}
        return {
            "state": booted.state.value,
            "revision": booted.revision.form,
            "sound": compiled.sound,
            "warnings": _warnings(booted.state, booted.outcome, inputs.environ),
        }

    (seen,) = in_children([look])
    if "refusal" in seen:
        return _refuse(seen["refusal"])
    revision, bound = AppliedRevision.of_form(seen["revision"]), bind(*options.bind)

    def work(start: WorkerStart) -> int:
        seat = None if admin is None else admin.seat(start)
        compiled, booted = Compiled(sound=seen["sound"]), None
        if options.watch is not None or start.hung_up or copy is not None:
            # The other workers may already serve something newer.
            booted = boot_process(inputs, compiled=compiled, rows=_rows)
        if booted is None or booted.state is None:
            booted = boot_process(inputs, revision=revision, compiled=compiled, rows=_rows)
        if booted.state is None:
            return _refuse(_refusal(inputs.place, booted.outcome))
        keeper = _Keeper(inputs, compiled, _watched(options), board, start.number, supervisor, copy)
        return _work(options, keeper, booted, bound, log, lambda: None, seat)

    supervisor, board = os.getpid(), board_of(options)
    return supervise(
        work,
        options.workers or 1,
        lifeline,
        ready=lambda: _announce(bound, seen["warnings"], log),
        let_go=bound.close,
        drain_s=options.drain.total_seconds(),
        log=log.warning,
        companion=None if admin is None else admin.companion,
    )


def _announce(bound: BoundSocket, warnings: Iterable[str], log: logging.Logger) -> None:
    """Report the address that the server listens on, and any warnings."""
    from gitops.serving.listen import address_of

    say(f"OMNIGRAPH_LISTEN_ADDR={address_of(bound)}", flush=True)
    for each in warnings:
        log.warning("%s", visible(each))


def _work(
    options: argparse.Namespace,
    keeper: _Keeper,
    booted: Booted,
    bound: BoundSocket,
    log: logging.Logger,
    ready: Callable[[], None],
    seat: AdminSeat | None = None,
) -> int:
    """Serve in this process until a signal."""
    from gitops.serving.http.admin import StatusDoor
    from gitops.serving.http.app import ROUTES, HttpApp
    from gitops.serving.http.work import HttpContext, read_limits
    from gitops.serving.listen import find_room, listen
    from gitops.serving.logs import in_background, log_record
    from gitops.serving.process import ServerTokens, ServingGeneration
    from gitops.serving.report import WorkerStatus

    if booted.generation is None or booted.state is None:
        return FAILED
    keeper.board.put(keeper.number, WorkerStatus(booted.generation.revision, booted.generation.revision))
    clock = SystemClock()
    source, tokens = ServingGeneration(booted.generation, clock.now), ServerTokens(booted.tokens)
    metrics = None if seat is None else seat.metrics

    limits, _ = read_limits(keeper.inputs.environ, hide_graphs=options.hide_graphs, strict=options.strict_changes)
    count = None if metrics is None else metrics.reloaded
    use = recorder_of(options, keeper.inputs, source, keeper.number, log, metrics)
    with (
        in_background(log, clock.now),
        copying(options, keeper.copy, log) as replica,
        reporting(options, keeper.inputs, keeper.board, keeper.number, log),
        nullcontext() if use is None else use.running(),
        _keeping_keys(lambda: (*tokens.current().issuers, *source.current().issuers)),
        keeper.keeping(source, tokens, log, count) as (hang_up, reload, pending),
    ):
        ids, known, record = RandomIds(), tokens.current, partial(log_record, log)
        context = HttpContext(source, booted.state, known, clock, ids, record, limits, reload=reload, observer=metrics)
        context = replace(context, verifier=_verifier, public_url=options.public_url, replica=replica, use=use)
        pages = None if options.pages is None else ServedReport(Path(options.pages))
        context = replace(context, report=pages, previews=_previews(options))
        if keeper.supervisor is not None:
            context = replace(context, replace=partial(os.kill, os.getpid(), signal.SIGTERM))
        app = HttpApp(context, ROUTES)
        listen(
            app,
            bound,
            connections=find_room(limits.connections),
            ready=ready,
            drain_s=options.drain.total_seconds(),
            on_signal={signal.SIGHUP: hang_up},
            beside=None if seat is None else StatusDoor(seat.place, context, source, pending, lambda: app.load).open,
        )
        log.info("stopped")
    if app.load.stuck:
        # Otherwise, the interpreter would wait for the query's thread.
        os._exit(OK if keeper.supervisor is None else FAILED)
    return OK


def _checked(booted: Booted, token: Secret | None) -> ReadyOutcome:
    """Return the outcome of a boot, with the state of the identity providers and the holder of a token.

    A server starts without an issuer's keys, so an issuer that does not respond only causes a warning.
    """
    issuers = (*booted.tokens.issuers, *(() if booted.generation is None else booted.generation.issuers))
    found, identity, failures = Diagnostics(booted.outcome.diagnostics), None, dict[str, str | None]()
    if issuers:
        _verifier().ring.keep(issuers)
        failures = _verifier().ring.failures(issuers)
        for issuer, why in failures.items():
            if why is not None:
                found.add(Code.ISSUER_UNAVAILABLE, issuer, why, severity=Severity.WARNING)
    if token is not None:
        given = token.reveal().encode()
        try:
            actor = booted.tokens.actor_of(given)
            identity = Identity(actor) if actor is not None else _verifier().identify(given, issuers)
        except TokenRefusedError as error:
            found.add(Code.OIDC_TOKEN_REFUSED, "--token-file", f"{error.reason}: {error.detail}")
        except GitopsError as error:
            found.add(error.code, "--token-file", error.detail)
    said = tuple((name, why is None) for name, why in failures.items())
    return replace(booted.outcome, diagnostics=tuple(found), issuers=said, identity=identity)


@cache
def _verifier() -> TokenVerifier:
    """Return the verifier of tokens from identity providers.

    Imported here, because most servers have no identity providers and don't need the libraries.
    """
    from gitops.identity.verify import KeyRing, TokenVerifier
    from gitops.repository.wiring.serving import open_issuer

    return TokenVerifier(KeyRing(open_issuer, SystemClock()), SystemClock())


@contextmanager
def _keeping_keys(issuers: Callable[[], tuple[TokenIssuer, ...]]) -> Iterator[None]:
    """During the block, read issuers' keys when they are missing or old, so that requests rarely wait for them."""
    stopped = threading.Event()

    def keep() -> None:
        while True:
            pause = _KEYS_EVERY_S
            if named := issuers():
                _verifier().ring.keep(named)
                failed = any(_verifier().ring.failures(named).values())
                pause = _KEYS_AGAIN_S if failed else _KEYS_EVERY_S
            if stopped.wait(pause):
                return

    threading.Thread(target=keep, name="keys", daemon=True).start()
    try:
        yield
    finally:
        stopped.set()


def _watched(options: argparse.Namespace) -> float | None:
    """Return the interval in seconds for polling newer revisions. None means never; 0 means that a past revision is served."""
    if options.revision is not None:
        return 0.0
    if options.watch is None and options.read_replica is not None:
        return WATCH_S
    return None if options.watch is None else float(options.watch.total_seconds())


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Keeps the tokens and the revision of one process up to date, and its slot `number` on the shared board.

    `supervisor` is the process that forwards its signals. `copy` is what a read replica serves.
    """

    inputs: BootInputs
    compiled: Compiled
    watch_s: float | None
    board: StatusBoard
    number: int = 0
    supervisor: int | None = None
    copy: ReplicaCopy | None = None

    @contextmanager
    def keeping(
        self,
        source: ServingGeneration,
        tokens: ServerTokens,
        log: logging.Logger,
        count: Callable[[Reload], None] | None,
    ) -> Iterator[tuple[Callable[[], None], Callable[[], Mapping[str, Any]] | None, Callable[[], Reload | None]]]:
        """Yield the actions for a hang-up signal and for a reload request, and the last attempt if it failed.

        No request reloads a pinned revision. `count` is called with each logged attempt.
        """
        from gitops.serving.process import Reloader, ReloadResult, Watch
        from gitops.serving.report import WorkerStatus

        def note(made: Reload) -> None:
            self.board.put(self.number, WorkerStatus.after(made))
            if made.result is ReloadResult.UNCHANGED:
                return
            if count is not None:
                count(made)
            level = logging.INFO if made.result is ReloadResult.EXCHANGED else logging.WARNING
            log.log(level, "reload", extra={"form": {"event": "reload", **made.form}})
            for each in made.problems:
                log.warning("%s", visible(f"{each.code} {each.path}: {each.message}"))

        reloader = Reloader(self.inputs, source, compiled=self.compiled, rows=_rows, note=note)

        def identify() -> str | None:
            stores = self.inputs.open_stores(Diagnostics())
            return None if stores is None else stores.ledger.view().cas

        def hang_up() -> None:
            others = bool(source.current().issuers)
            problems = tokens.reload(self.inputs.environ, self.inputs.oidc, others=others)
            for each in problems:
                log.error("%s", visible(f"the tokens are unchanged: {each.code} {each.path}: {each.message}"))
            if not problems.has_errors:
                log.info("the tokens were read again")
            if self.watch_s != 0:
                threading.Thread(target=reloader.reload, daemon=True).start()

        def reload() -> Mapping[str, Any]:
            made = reloader.reload()
            if self.supervisor is not None:
                # A request reaches one process of the server, but applies to all of them.
                os.kill(self.supervisor, signal.SIGHUP)
            return made.form

        stopped = threading.Event()
        if self.watch_s:
            watch = Watch(reloader, identify, SystemClock().monotonic)
            threading.Thread(target=watch.run, args=(self.watch_s, stopped), daemon=True).start()
        try:
            yield hang_up, None if self.watch_s == 0 else reload, lambda: reloader.pending
        finally:
            stopped.set()


def _inputs(options: argparse.Namespace, environ: Mapping[str, str]) -> BootInputs:
    from gitops.repository.wiring.serving import ServedSource, open_served
    from gitops.serving.access import is_loopback
    from gitops.serving.boot import BootRules
    from gitops.serving.process import BootInputs, is_truthy

    all_graphs = options.require_all_graphs or is_truthy(environ.get("OMNIGRAPH_REQUIRE_ALL_GRAPHS"))
    source = ServedSource(options.cluster, options.repo, options.remote, options.revision)
    return BootInputs(
        place=options.cluster,
        open_stores=lambda found: open_served(source, found),
        rules=BootRules(allow_degraded=options.allow_degraded and not all_graphs, strict_schema=options.strict_schema),
        clock=SystemClock(),
        environ=environ,
        unauthenticated=options.unauthenticated or is_truthy(environ.get("OMNIGRAPH_UNAUTHENTICATED")),
        loopback=is_loopback(options.bind[0]),
        oidc=options.oidc,
        strict_changes=options.strict_changes,
    )


def _previews(options: argparse.Namespace) -> PreviewOpener | None:
    """Return the reader of previewed change requests. A folder has none, and a past revision or a replica serves none."""
    if options.repo is None or options.read_replica is not None or options.revision is not None:
        return None
    from gitops.repository.wiring.serving import served_previews
    from gitops.serving.previews import PreviewOpener

    return PreviewOpener(served_previews(options.repo, options.remote, options.cluster))


def _processes(options: argparse.Namespace) -> int:
    # The client of a bucket has threads, which a fork of this process would lack.
    return 1 if options.read_replica is not None else len(os.sched_getaffinity(0))


@cache
def _rows() -> Any:
    """Return a process's row cache, which all its graphs share."""
    from gitops.database.graph import ReadCache

    return ReadCache()


def _warnings(state: PolicyCover, outcome: ReadyOutcome, environ: Mapping[str, str]) -> list[str]:
    """Return warnings for the operator of a starting server."""
    from gitops.serving.generation import PolicyCover
    from gitops.serving.http.work import read_limits
    from gitops.serving.listen import find_room

    loud = {PolicyCover.OPEN: [_OPEN], PolicyCover.DEFAULT_DENY: [_DEFAULT_DENY]}.get(state, [])
    found = [f"{each.code} {each.path}: {each.message}" for each in outcome.diagnostics]
    limits, problems = read_limits(environ)
    room = find_room(limits.connections)
    if room < limits.connections:
        few = f"each process accepts {room} connections, not {limits.connections}: raise the limit on open files (ulimit -Hn)"
        problems = (*problems, few)
    return [*loud, *found, *problems]


def _refusal(place: str, outcome: ReadyOutcome) -> list[str]:
    """Return why a server does not start: each problem with its remedy."""
    from gitops.render.text import diagnostic_lines

    lines = diagnostic_lines(Diagnostics(outcome.diagnostics))
    return [f"the cluster at '{place}' is not ready to serve", *lines]


def _refuse(lines: Iterable[str]) -> int:
    complain("\n".join(map(visible, lines)))
    return FAILED


def _log(options: argparse.Namespace) -> logging.Logger:
    """Return the log, which goes to standard error."""
    from gitops.serving.logs import make_log

    level = logging.WARNING if options.quiet else logging.DEBUG if options.verbose else logging.INFO
    return make_log(sys.stderr, level, as_json=options.json)


# -- reports: the server's name, the process that reports, and the destination -----------------------------------------

_CHANCE = 6


def board_of(options: argparse.Namespace) -> StatusBoard:
    """Return the shared memory in which processes record the revision that they serve.

    The server's name is chosen here, before other processes start.
    """
    from gitops.serving.report import StatusBoard, replica_name

    options.replica = options.replica or replica_name(os.uname().nodename, RandomIds().ulid()[-_CHANCE:])
    return StatusBoard(options.workers or 1)


def reporting(
    options: argparse.Namespace, inputs: BootInputs, board: StatusBoard, number: int, log: logging.Logger
) -> AbstractContextManager[None]:
    """Report the served revision during the block, but only in the first process of the server."""
    from gitops.cluster.model.served import Follows
    from gitops.serving.report import ReplicaFacts, Reporter

    if options.no_report or options.read_replica is not None or number:
        return nullcontext()
    follows = Follows.ASKED if options.watch is None else Follows.WATCH

    def reports() -> ServingReports | None:
        stores = inputs.open_stores(Diagnostics())
        return None if stores is None else stores.reports

    facts = ReplicaFacts(options.replica, options.cluster, Follows.NEVER if options.revision is not None else follows)
    return Reporter(board, facts, reports, SystemClock(), log).running()


def recorder_of(
    options: argparse.Namespace,
    inputs: BootInputs,
    source: ServingGeneration,
    number: int,
    log: logging.Logger,
    metrics: ServingMetrics | None,
) -> UseRecorder | None:
    """Return the recorder of one process's calls.

    A read replica has none, because its credentials need only read. Without a key, the recorder only says that calls are
    not recorded, if the rules in force ask for it.
    """
    from gitops.repository.wiring.serving import record_signer
    from gitops.serving.use import RecordKey, UseRecorder

    if options.read_replica is not None:
        return None
    key = None if options.record_key is None else RecordKey(*record_signer(options.record_key))

    def records() -> UseRecords | None:
        stores = inputs.open_stores(Diagnostics())
        return None if stores is None else stores.use

    server = f"{options.replica}.{number}"
    note = (lambda _: None) if metrics is None else metrics.recorded
    return UseRecorder(source.current, server, records, key, SystemClock(), RandomIds(), log, note)


# -- the admin address: a process next to the workers, which responds from before the boot until the end ---------------
#
# Workers' counters and addresses are in a private folder, which is removed when the server ends.

# The address of a socket in this folder can have at most 107 bytes.
_LONGEST_FOLDER = 90
_DRAIN_S = 1.0
_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True)
class AdminSeat:
    """A worker's counters, and the address at which the admin process queries them."""

    metrics: ServingMetrics
    place: Path


@dataclass(frozen=True, slots=True)
class Admin:
    """The process that serves the admin address, and the folder that it shares with the workers."""

    companion: Companion
    folder: Path

    def seat(self, start: WorkerStart) -> AdminSeat:
        """Return a worker's `AdminSeat`. Called in the worker's process."""
        from gitops.serving.metrics import ServingMetrics

        metrics = ServingMetrics(self.folder, start.number, replaces=start.replaces)
        return AdminSeat(metrics, self.folder / str(start.number))


@contextmanager
def admin_address(
    address: tuple[str, int] | None, workers: int, lifeline: Lifeline, log: logging.Logger
) -> Iterator[Admin | None]:
    """Serve an admin address during the block. Yields None if no address is given.

    Raises UsageError `listen_failed`, and ModuleNotFoundError if the metrics library is missing.
    """
    if address is None:
        yield None
        return
    from gitops.serving.listen import address_of, bind

    # Load this here, so that every forked process has it already.
    from gitops.serving.metrics import exposition
    from gitops.serving.processes import Companion

    clock, bound = SystemClock(), bind(*address, "--admin-bind")
    with _private_folder() as folder:
        supervisor = os.getpid()

        def numbers(asked: Asked) -> tuple[str, bytes]:
            return exposition(folder, asked, workers, clock.now().timestamp())

        companion = Companion(lifeline, lambda: _answer(bound, folder, workers, numbers, supervisor, log))
        with companion.beside():
            log.info("the admin address is %s", address_of(bound))
            yield Admin(companion, folder)


def _answer(
    bound: BoundSocket,
    folder: Path,
    workers: int,
    numbers: Callable[[Asked], tuple[str, bytes]],
    supervisor: int,
    log: logging.Logger,
) -> int:
    """Answer probes and metrics requests until a signal."""
    from gitops.serving.http.admin import AdminApp, ask_workers
    from gitops.serving.listen import listen

    app = AdminApp(lambda question: ask_workers(folder, workers, question), workers, numbers, log.error)
    listen(
        app,
        bound,
        connections=_CONNECTIONS,
        ready=lambda: None,
        drain_s=_DRAIN_S,
        on_signal={signal.SIGHUP: lambda: None},
    )
    if os.getppid() != supervisor:
        # The process ended without removing its files.
        shutil.rmtree(folder, ignore_errors=True)
    return OK


@contextmanager
def _private_folder() -> Iterator[Path]:
    """Create a folder that only this user can access, until the end of the block. Raises UsageError `listen_failed`."""
    fix = "set the variable TMPDIR to a writable folder with a short path"
    try:
        made = tempfile.mkdtemp(prefix="gitops-serve-")
    except OSError as error:
        detail = f"cannot create a private folder for the admin address: {system_reason(error, tempfile.tempdir)}"
        raise UsageError(Code.LISTEN_FAILED, detail, fix=fix) from error
    try:
        if len(os.fsencode(made)) > _LONGEST_FOLDER:
            detail = f"the private folder of the admin address has a path that is too long for sockets: {made}"
            raise UsageError(Code.LISTEN_FAILED, detail, fix=fix)
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)
