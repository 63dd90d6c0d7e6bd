"""`gitops bot`: one event of a forge, carried out in one run, as a CI step calls it.

Every verb may be repeated: what is there already is not made again. Where there is no token, `plan` and `verify` ask no forge and
tell none: they plan from git and the ledger, and print; the other verbs refuse.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.bot.context import Bot, Told
from gitops.bot.dispatch import Dispatcher
from gitops.bot.results import Note, Verdict, overall, problem_of, verdict_of
from gitops.bot.silent_forge import SilentForge
from gitops.cli.bot.outputs import write_outputs
from gitops.cli.options import choice_of
from gitops.cli.output import USAGE, complain, say, show_form
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import Redactor
from gitops.forge.events import Event, ManualEvent, RequestEvent
from gitops.forge.port import ChangeRequest, Forge, RequestState
from gitops.git.port import Person
from gitops.render.characters import visible
from gitops.wiring.bot import Means, build_bot
from gitops.wiring.forge import (
    LOCAL,
    ForgeChoice,
    choose,
    decoder,
    forge_over,
    job_kind,
    login_of,
    open_client,
    run_address,
    secrets_of,
)
from gitops.wiring.project import LocalProject

if TYPE_CHECKING:
    from gitops.forge.client import Traffic

_MAX_EVENT = 32 * 1024 * 1024
# Without a token there is nobody to ask who is behind a change, and nothing may be carried out on a guess.
_NEED_TOKEN = frozenset({"command", "apply", "drift", "sweep"})
_WRITE_LEDGER = frozenset({"command", "apply", "sweep"})
_SOMEBODY = Person("gitops", "gitops@localhost")

Handle = Callable[[Dispatcher, Event, argparse.Namespace], Iterator[Note]]


@dataclass(slots=True)
class _Run:
    """One run of a verb: its surroundings, what it said so far, and what it used; None where there is nothing to count."""

    verb: str
    options: argparse.Namespace
    environ: Mapping[str, str]
    notes: list[Note] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    traffic: Traffic | None = None


def plan(options: argparse.Namespace) -> int:
    """`gitops bot plan`."""
    return _run("plan", options, lambda bot, event, _: bot.plan(event))


def command(options: argparse.Namespace) -> int:
    """`gitops bot command`."""
    return _run("command", options, lambda bot, event, _: bot.command(event))


def apply(options: argparse.Namespace) -> int:
    """`gitops bot apply`."""
    return _run("apply", options, lambda bot, event, given: bot.apply(event, given.cluster))


def verify(options: argparse.Namespace) -> int:
    """`gitops bot verify`."""
    return _run("verify", options, lambda bot, event, _: bot.verify(event))


def drift(options: argparse.Namespace) -> int:
    """`gitops bot drift`."""
    return _run("drift", options, lambda bot, _, given: bot.drift(given.cluster))


def sweep(options: argparse.Namespace) -> int:
    """`gitops bot sweep`."""
    return _run("sweep", options, lambda bot, _, given: bot.sweep(given.cluster))


def _run(verb: str, options: argparse.Namespace, handle: Handle) -> int:
    """Carry out one verb: print each line when it is said, then what the job wants to have at its end."""
    run = _Run(verb, options, os.environ)
    kind = options.forge or job_kind(run.environ) or LOCAL
    redact = Redactor(secrets_of(run.environ))
    try:
        event = _event(run, kind)
        bot = _bot(run, kind, event)
        for note in handle(Dispatcher(bot), event, options):
            run.notes.append(note)
            _say(run, redact(note.text))
    except UsageError as error:
        complain(visible(redact(f"gitops: {error.code}: {error.detail}")))
        return USAGE
    except GitopsError as error:
        found = verdict_of(problem_of(error)) or Verdict.PROBLEMS
        run.notes.append(Note(f"{error.code}: {error.detail}", found))
        _say(run, redact(run.notes[-1].text))
    verdict, used = overall(note.verdict for note in run.notes), run.traffic
    if used is not None:
        _say(run, f"{used.requests} calls, {-(-used.received // 1024)} KiB from the forge")
    if options.json:
        lines = [redact(note.text) for note in run.notes]
        form: dict[str, Any] = {"ok": verdict is Verdict.DONE, "verdict": verdict.name.lower(), "notes": lines}
        if used is not None:
            form["forge"] = {"calls": used.requests, "bytes": used.received}
        show_form(form)
    write_outputs(run.environ, verdict, run.told, redact)
    return int(verdict)


def _say(run: _Run, text: str) -> None:
    """One line. It begins with a word of ours, so that nothing in it is a command to whoever runs the job."""
    if not run.options.json:
        say(visible(f"gitops: {text}"))


def _event(run: _Run, kind: str) -> Event:
    """The event that the run is about: of a file, of the CI job, or none but the will of who started it."""
    number = getattr(run.options, "request", None)
    if number is not None:
        return ManualEvent((("request", str(number)),))
    file = run.options.event or run.environ.get("GITHUB_EVENT_PATH" if kind != "gitlab" else "TRIGGER_PAYLOAD")
    if kind == LOCAL or (not run.options.event and job_kind(run.environ) != kind):
        if run.options.event:
            raise UsageError(Code.USAGE_ERROR, "say with --forge which forge the event is of")
        return ManualEvent()
    return decoder(kind)(run.environ, _read(file)).event


def _read(file: str | None) -> bytes:
    """The content of an event file, up to a bound. Raises UsageError `usage_error`."""
    if not file:
        return b""
    try:
        with Path(file).open("rb") as source:
            return source.read(_MAX_EVENT + 1)
    except OSError as error:
        raise UsageError(Code.USAGE_ERROR, f"the event file {file} cannot be read: {error.strerror}") from error


def _bot(run: _Run, kind: str, event: Event) -> Bot:
    """The bot of this run. Raises GitopsError where the repository or the forge cannot be used."""
    choice = choice_of(run.options)
    login = login_of(kind, run.environ, LocalProject(choice).setting) if kind != LOCAL else None
    local = LocalProject(choice, login=login)
    local.complete()
    rule = local.project.config().forge
    kind = run.options.forge or rule.kind or kind
    remote = local.setting(f"remote.{run.options.remote or 'origin'}.url")
    found = choose(kind, run.environ, local.setting, rule, remote)
    if found.silent and run.verb in _NEED_TOKEN:
        raise UsageError(Code.USAGE_ERROR, f"gitops bot {run.verb} asks the forge: set GITOPS_TOKEN")
    forge = _forge(run, local, found, event)
    # Entries of the ledger need somebody's name and key; plans that are kept need no more than any name.
    person = local.person() if run.verb in _WRITE_LEDGER else local.person_or_none() or _SOMEBODY
    means = Means(kind, person, run_address(run.environ), run.told.append, silent=found.silent)
    return build_bot(local, forge, means)


def _forge(run: _Run, local: LocalProject, choice: ForgeChoice, event: Event) -> Forge:
    if choice.kind == LOCAL:
        return local.forge()
    if choice.silent:
        return SilentForge(_told_of(run.environ, choice.kind, event, local.project.default_ref))
    clock = local.project.tools.clock
    client = open_client(choice, time.sleep, clock)
    run.traffic = client.traffic
    return forge_over(choice, client, clock)


def _told_of(environ: Mapping[str, str], kind: str, event: Event, default_ref: str) -> tuple[ChangeRequest, ...]:
    """The request that a job without a token knows of: its number and head from the event, its target from the job."""
    if not isinstance(event, RequestEvent):
        return ()
    named = environ.get("CI_MERGE_REQUEST_TARGET_BRANCH_NAME" if kind == "gitlab" else "GITHUB_BASE_REF")
    folder = "merge-requests" if kind == "gitlab" else "pull"
    return (
        ChangeRequest(
            number=event.number,
            title="",
            source="",
            target=f"refs/heads/{named}" if named else default_ref,
            head=event.head,
            state=RequestState.OPEN,
            opened_at="",
            head_ref=f"refs/{folder}/{event.number}/head",
            fork=True,
        ),
    )
