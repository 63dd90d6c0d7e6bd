"""`gitops bot serve`: the bot as a long-running webhook server. `gitops bot queue`: the events in that server's queue.

Secrets come from a file or the environment, never from arguments, which every user of a machine can read.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cli.shared import OK, say, show_form
from gitops.core.cancel import Cancellation
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.faults import Faults, NoFaults
from gitops.core.redact import Redactor, Secret
from gitops.forge.events import Event
from gitops.render.characters import visible
from gitops.render.words import count
from gitops.repository.report_folder import ServedReport
from gitops.repository.results import LogLine
from gitops.repository.wiring.system import SystemClock
from gitops.server.queue import EventQueue
from gitops.server.shared import ServerContext, StopSignal

if TYPE_CHECKING:
    from gitops.cli.served import ServedRepository
    from gitops.server.api import ApiToken
    from gitops.server.http import ListenAddress
    from gitops.server.service import Server

_SECRET = "GITOPS_WEBHOOK_SECRET"  # noqa: S105 - the name of a variable
_API_TOKENS = "GITOPS_API_TOKENS"
_SHORTEST = 16
_MAX_SECRETS = 64 * 1024
_EXTRA = ("starlette", "uvicorn", "anyio", "h11", "jwt")


def serve(options: argparse.Namespace, environ: Mapping[str, str] | None = None, faults: Faults | None = None) -> int:
    """`gitops bot serve`: serve until a signal stops it. Raises GitopsError if it cannot start.

    Raises UsageError `serve_unavailable` if the packages of the extra `serve` are not installed.
    """
    # Imported here, because `gitops bot queue` doesn't need the code that handles events.
    from gitops.cli.served import ServedRepository, read_tokens, server_environment

    environ, faults = os.environ if environ is None else environ, faults or NoFaults()
    stop, cancel = StopSignal(), Cancellation()
    own_environ, secrets = server_environment(environ), _secrets(options.secret_file, environ)
    report = _report(options)
    api_tokens = read_tokens(_text_of(options.api_tokens, environ.get(_API_TOKENS, ""), Code.API_TOKENS_INVALID))
    served = [
        ServedRepository(path, options.remote, options.forge, own_environ, stop.pause, cancel, faults)
        for path in options.repo
    ]
    tokens = [each.token for each in served]
    context = ServerContext(
        SystemClock(),
        _logger(options),
        Redactor([*secrets, *tokens, *(each.secret for each in api_tokens)]),
        stop=stop,
        faults=faults,
    )
    server = _server(options, {each.name: each for each in served}, secrets, api_tokens, context, report)
    signals = (signal.SIGTERM, signal.SIGINT)

    def heed(*_: object) -> None:
        # The first signal asks applies to start no more changes, the second to stop waiting. A third ends the process
        # immediately, which doesn't lose anything either.
        if cancel.requested:
            for number in signals:
                signal.signal(number, signal.SIG_DFL)
        cancel.request()
        server.stop()

    for number in signals:
        signal.signal(number, heed)
    server.run()
    context.log("stopped")
    return OK


def _server(
    options: argparse.Namespace,
    served: Mapping[str, ServedRepository],
    secrets: tuple[Secret, ...],
    api_tokens: tuple[ApiToken, ...],
    context: ServerContext,
    report: tuple[ServedReport, list[Secret]] | None,
) -> Server:
    from gitops.cli.served import IssuerRules, open_cluster, webhook_format

    try:
        from gitops.server.api import ClusterApi
        from gitops.server.http import ListenAddress
        from gitops.server.service import Server, ServerSettings

        if options.oidc:
            from gitops.identity.verify import KeyRing, TokenVerifier
            from gitops.repository.wiring.serving import open_issuer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        message = f"the package {(error.name or '').partition('.')[0]} is not installed"
        raise UsageError(Code.SERVE_UNAVAILABLE, message) from error
    if len(served) != len(options.repo):
        raise UsageError(Code.USAGE_ERROR, "two of the repositories are the same project of the forge")
    settings = ServerSettings(
        address=ListenAddress(*options.listen),
        formats={kind: webhook_format(kind, secrets) for kind in sorted({each.kind for each in served.values()})},
        repositories=tuple(sorted(served)),
        workers=options.workers,
        every=options.every,
        tick_every=options.tick_every,
        grace=options.grace,
        metrics=options.metrics,
    )

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        found = served.get(repository)
        if found is None:
            raise GitopsError(Code.QUEUE_EVENT_INVALID, f"{repository} is no longer served")
        return found.handle(event, partial(events.enqueue_all, repository))

    def ready(address: ListenAddress) -> None:
        context.log(f"listening on {address} for {', '.join(sorted(served))}")

    events = EventQueue(Path(options.queue), context.clock, attempts=settings.retry.attempts, faults=context.faults)
    identify = None
    if options.oidc:
        identify = IssuerRules(
            served, TokenVerifier(KeyRing(open_issuer, context.clock), context.clock), context.clock
        ).identify
    api = None
    if api_tokens or identify is not None:
        api = ClusterApi(api_tokens, partial(open_cluster, served), events, context, identify)
    return Server(events, settings, handle, context, ready, api, report)


def _report(options: argparse.Namespace) -> tuple[ServedReport, list[Secret]] | None:
    """Return the report to serve and the tokens for it. Raises UsageError if strangers could read it."""
    from gitops.cli.served import read_tokens
    from gitops.serving.access import is_loopback

    if options.pages is None:
        return None
    if options.pages_token_file is None and not is_loopback(options.listen[0]):
        detail = f"--pages needs --pages-token-file with --listen {options.listen[0]}, because a report names people"
        raise UsageError(Code.USAGE_ERROR, detail)
    text = "" if options.pages_token_file is None else _text_of(options.pages_token_file, "", Code.API_TOKENS_INVALID)
    tokens = read_tokens(text)
    if options.pages_token_file is not None and not tokens:
        raise UsageError(Code.API_TOKENS_INVALID, f"the file {options.pages_token_file} has no token")
    return ServedReport(Path(options.pages)), [each.secret for each in tokens]


def _secrets(file: str | None, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return the webhook secrets.

    Raises UsageError `webhook_secret_missing` if there are none, because anyone could then send events.
    """
    lines = _text_of(file, environ.get(_SECRET, ""), Code.WEBHOOK_SECRET_MISSING).splitlines()
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise UsageError(Code.WEBHOOK_SECRET_MISSING, f"set {_SECRET}, or name a file with --secret-file")
    if any(len(text) < _SHORTEST for text in found):
        raise UsageError(
            Code.WEBHOOK_SECRET_MISSING, f"a secret has fewer than {_SHORTEST} characters; use a random one"
        )
    return tuple(Secret(_SECRET, text) for text in found)


def _text_of(file: str | None, default: str, code: Code) -> str:
    """Return the content of a file with secrets, or the default if no file is given.

    Raises UsageError if it cannot be read.
    """
    if file is None:
        return default
    try:
        with Path(file).open(encoding="utf-8") as source:
            return source.read(_MAX_SECRETS)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(code, f"the file {file} cannot be read: {error}") from error


def _logger(options: argparse.Namespace) -> logging.Logger:
    """Return the server's log, which goes to standard output."""
    from gitops.serving.logs import make_log

    level = logging.WARNING if options.quiet else logging.DEBUG if options.verbose else logging.INFO
    return make_log(sys.stdout, level, as_json=options.json)


def queue(options: argparse.Namespace) -> int:
    """`gitops bot queue`: retry or remove one event if an option selects it, then list all events.

    This works whether or not the server is running.
    """
    with closing(EventQueue(Path(options.queue), SystemClock())) as events:
        events.open_shared()
        if options.retry is not None:
            events.retry(options.retry)
        if options.forget is not None:
            events.forget(options.forget)
        found = events.listed()
    if options.json:
        forms = [
            {
                "number": event.number,
                "repository": event.repository,
                "subject": event.subject,
                "state": event.state.value,
                "attempts": event.attempts,
                "received": _time(event.received),
                "due": _time(event.due),
                "reason": event.reason,
            }
            for event in found
        ]
        show_form({"ok": True, "events": forms, "problems": []})
    else:
        lines = []
        for event in found:
            text = f"#{event.number} {event.state} {event.repository} {event.subject}, received {_time(event.received)}"
            text += f", tried {count(event.attempts, 'time')}" if event.attempts else ""
            lines.append(visible(f"{text}: {event.reason}" if event.reason else text))
        say("\n".join(lines) or "nothing waits")
    return OK


def _time(milliseconds: int) -> str:
    return timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
