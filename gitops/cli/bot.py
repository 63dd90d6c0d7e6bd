"""`gitops bot`: handles one forge event per run, as a step of a CI job.

Every verb can be repeated safely, because objects that exist are not created again. Without a token, `plan` and
`verify` don't access the forge; they use only git and the ledger, and print their results. The other verbs fail without
a token.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.bot.context import Bot, ClusterReport
from gitops.bot.dispatch import run_verb
from gitops.bot.silent_forge import SilentForge
from gitops.cli.progress import heeding_signals, watching
from gitops.cli.shared import USAGE, bot_of, complain, lasting, open_repository, show_form, shows_progress
from gitops.core.cancel import Cancellation
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, fix_of
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import Redactor
from gitops.forge.events import Event, ManualEvent, RequestEvent, TimerEvent
from gitops.forge.port import ChangeRequest, Forge, RequestState
from gitops.forge.registry import FORGES
from gitops.git.port import Person
from gitops.render.characters import visible
from gitops.render.comment import apply_comment, plan_summary, refusal_comment
from gitops.render.comment_inputs import ApplyComment, PlanComment, RefusalComment
from gitops.render.words import count
from gitops.repository.results import LogLine, RunResult, combined_result, diagnostics_of, result_of
from gitops.repository.wiring.forge import (
    LOCAL,
    UNAUTHENTICATED,
    choose_forge,
    is_private,
    job_kind,
    open_forge,
    remote_login,
    run_address,
    secrets_of,
)

if TYPE_CHECKING:
    from gitops.forge.client import Traffic

_MAX_EVENT = 32 * 1024 * 1024
# Without a token, the authors of a change are unknown, and the bot must not apply anything on a guess.
_NEED_TOKEN = frozenset({"command", "apply", "drift", "drill", "sweep", "tick", "preview"})
_WRITE_LEDGER = frozenset({"command", "apply", "drill", "sweep", "tick", "preview"})
_ANONYMOUS = Person("gitops", "gitops@localhost")
_MAX_SUMMARY = 1024 * 1024
"""Maximum size of one step's summary in bytes: https://docs.github.com/en/actions/reference/limits."""


def run(options: argparse.Namespace) -> int:
    """`gitops bot plan`, `command`, `apply`, `preview`, `verify`, `drift`, `drill`, `sweep` and `tick`.

    Prints each line when it is logged.
    """
    with heeding_signals() as cancel:
        return _run(options, cancel)


def _run(options: argparse.Namespace, cancel: Cancellation) -> int:
    verb: str = options.command.name
    environ, kind = os.environ, options.forge or job_kind(os.environ) or LOCAL
    redact = Redactor(secrets_of(environ))
    lines: list[LogLine] = []
    reports: list[ClusterReport] = []
    problems = Diagnostics()
    traffic: Traffic | None = None
    say_now = lasting(sys.stdout)

    def log(line: LogLine) -> None:
        lines.append(line)
        # Each line begins with a fixed word, so that the CI runner never takes its text for a workflow command.
        if not options.json and not (options.quiet and line.result is RunResult.DONE):
            say_now(f"gitops: {redact(line.text)}")

    try:
        event = _event(options, environ, kind)
        bot, traffic = _bot(verb, options, environ, kind, event, reports)
        with watching(options) as on_event:
            heard = replace(bot, on_event=on_event, cancel=cancel)
            for line in run_verb(heard, verb, event, getattr(options, "cluster", None)):
                log(line)
    except UsageError as error:
        if options.json:
            fix = None if error.fix is None else redact(error.fix)
            raise UsageError(error.code, redact(error.detail), path=error.path, fix=fix) from None
        complain(visible(redact(f"gitops: {error.code}: {error.detail}")))
        if fix := fix_of(error):
            complain(visible(redact(f"gitops: fix: {fix}")))
        return USAGE
    except GitopsError as error:
        problems.add_error(error)
        log(LogLine(f"{error.code}: {error.detail}", result_of(diagnostics_of(error)) or RunResult.PROBLEMS))
        if fix := fix_of(error):
            log(LogLine(f"fix: {fix}"))
    result = combined_result(line.result for line in lines)
    if traffic is not None and shows_progress(options):
        say_now(f"gitops: {traffic.requests} calls, {-(-traffic.received // 1024)} KiB from the forge")
    if options.json:
        texts = [redact(line.text) for line in lines]
        form: dict[str, Any] = {"ok": result is RunResult.DONE, "verdict": result.name.lower(), "notes": texts}
        if traffic is not None:
            form["forge"] = {"calls": traffic.requests, "bytes": traffic.received}
        for report in reports:
            comment = report.comment
            problems.extend((comment if isinstance(comment, RefusalComment) else comment.outcome).diagnostics)
            if isinstance(comment, PlanComment) and comment.tests is not None:
                problems.extend(comment.tests.diagnostics())
        show_form({**form, "problems": json.loads(redact(json.dumps(problems.to_json())))})
    _write_outputs(environ, result, reports, redact)
    return int(result)


def _event(options: argparse.Namespace, environ: Mapping[str, str], kind: str) -> Event:
    """Return the event that this run handles: from a file, from the CI job, or one for a manual start.

    Raises UsageError `usage_error`.
    """
    number = getattr(options, "request", None)
    if number is not None:
        return ManualEvent((("request", str(number)),))
    if getattr(options, "scheduled", False):
        return TimerEvent()
    mode = getattr(options, "mode", None)
    if mode is not None:
        return ManualEvent((("mode", mode),))
    if kind == LOCAL or (not options.event and job_kind(environ) != kind):
        if options.event:
            fix = f"select it: --forge {'|'.join(FORGES)}"
            raise UsageError(Code.USAGE_ERROR, "the forge of the event is not known", fix=fix)
        return ManualEvent()
    row = FORGES[kind]
    file = options.event or environ.get(row.event_file)
    content = b""
    if file:
        try:
            with Path(file).open("rb") as source:
                content = source.read(_MAX_EVENT + 1)
        except OSError as error:
            raise UsageError(
                Code.USAGE_ERROR,
                f"the event file {file} cannot be read: {error.strerror}",
                fix="name a file that exists with --event FILE",
            ) from error
    return row.load().decode_job(environ, content).event


def _bot(
    verb: str,
    options: argparse.Namespace,
    environ: Mapping[str, str],
    kind: str,
    event: Event,
    reports: list[ClusterReport],
) -> tuple[Bot, Traffic | None]:
    """Build the bot of this run, which appends its reports to `reports`, and the counter of its forge calls, if any.

    Raises GitopsError if the repository or the forge cannot be used.
    """
    login = partial(remote_login, kind, environ)
    local = open_repository(options, login=login, forge=options.forge or job_kind(environ))
    local.complete()
    rule = local.config().forge
    kind = options.forge or rule.kind or kind
    remote = local.git.setting(f"remote.{options.remote or 'origin'}.url")
    found = choose_forge(kind, environ, local.git.setting, rule, remote)
    if found.silent and verb in _NEED_TOKEN:
        detail = f"gitops bot {verb} has no token for the forge"
        raise UsageError(Code.USAGE_ERROR, detail, fix=UNAUTHENTICATED)
    forge: Forge
    traffic: Traffic | None = None
    if found.kind == LOCAL:
        forge = local.forge()
    elif found.silent:
        forge = SilentForge(_request_of_job(environ, found.kind, event, local.default_ref))
    else:
        forge, traffic = open_forge(found, time.sleep, local.clock)
    # Ledger entries need a real name and key; stored plans can have any name.
    person = local.git.person() if verb in _WRITE_LEDGER else local.git.person_or_none() or _ANONYMOUS
    bot = bot_of(
        local,
        forge,
        kind,
        person,
        reports.append,
        run_url=run_address(environ),
        silent=found.silent,
        private=is_private(found.kind, environ),
    )
    return bot, traffic


def _request_of_job(environ: Mapping[str, str], kind: str, event: Event, default_ref: str) -> tuple[ChangeRequest, ...]:
    """Return the change request of a job without a token: number and head from the event, target from the job."""
    if not isinstance(event, RequestEvent):
        return ()
    row = FORGES[kind]
    branch = environ.get(row.target)
    return (
        ChangeRequest(
            number=event.number,
            title="",
            source="",
            target=f"refs/heads/{branch}" if branch else default_ref,
            head=event.head,
            state=RequestState.OPEN,
            opened_at="",
            head_ref=row.head_ref.format(event.number),
            fork=True,
        ),
    )


def _write_outputs(
    environ: Mapping[str, str], result: RunResult, reports: Sequence[ClusterReport], redact: Callable[[str], str]
) -> None:
    """Write the summary page and the outputs of a CI job to the files that the runner specifies.

    Gitea and Forgejo set the same variables as GitHub. A value is enclosed in a random delimiter, so that text in a
    value cannot end it and start another one. Raises OSError for a file that cannot be written. Source:
    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#multiline-strings
    """
    if environ.get("GITHUB_STEP_SUMMARY") and reports:
        # Reports that don't fit are left out. A last line gives their number.
        parts: list[str] = []
        room = _MAX_SUMMARY - 1024
        for report in reports:
            comment = report.comment
            if isinstance(comment, PlanComment):
                text = plan_summary(comment)
            else:
                text = apply_comment(comment) if isinstance(comment, ApplyComment) else refusal_comment(comment)
            room -= len(text.encode()) + 1
            if room < 0:
                parts.append(
                    f"{count(len(reports) - len(parts), 'more report')} left out, because this page is full.\n"
                )
                break
            parts.append(text)
        _append(environ["GITHUB_STEP_SUMMARY"], redact("\n".join(parts)))
    if environ.get("GITHUB_OUTPUT"):
        values = {
            "verdict": result.name.lower(),
            "plan-digest": "\n".join(report.plan.digest for report in reports if report.plan is not None),
            "summary": "\n".join(report.line for report in reports),
        }
        text = ""
        for name, value in values.items():
            frame = f"gitops_{secrets.token_hex(16)}"
            text += f"{name}<<{frame}\n{redact(value)}\n{frame}\n"
        _append(environ["GITHUB_OUTPUT"], text)


def _append(file: str, text: str) -> None:
    with Path(file).open("a", encoding="utf-8") as target:
        target.write(text)
