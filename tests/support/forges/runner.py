"""What a runner of GitHub does with this program's jobs: which events start one, with which token, in which environment.

    job      on                                  token                        keys of the bot
    plan     pull_request                        writes; forks: none          no
    plan     pull_request_review                 writes                       yes
    plan     workflow_run (after a fork's plan)  writes                       no
    command  issue_comment                       writes                       yes
    verify   merge_group                         writes                       no
    apply    push to main                        writes                       yes
    sweep    schedule                            writes                       yes
    drift    schedule                            writes                       no

Events that a job's own token caused start nothing, nor do commits that say so: that is GitHub's doing, in `World.happen`. A push
to a branch of the bot starts nothing either: the workflow is read from the commit that was pushed, and those have none.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from gitops.git.port import ZERO
from tests.support.forges.hub import JOB, Hub, bot_environment, token_of, within
from tests.support.forges.records import Cause, Happening
from tests.support.loop import MAIN
from tests.support.prefork import PROGRAM, run

_PLANNED = ("opened", "reopened", "synchronize", "edited")


@dataclass(frozen=True)
class Job:
    """A step that runs one verb for one event. Without `secrets` it has no token at all; `keys` are those of the bot."""

    verb: str
    event: Happening
    secrets: bool = True
    keys: bool = False


@dataclass(frozen=True)
class Run:
    """What a job left behind; `calls` are those of the interface."""

    job: Job
    code: int
    text: str
    summary: str
    outputs: str
    calls: tuple[str, ...] = ()


@dataclass
class Workplace:
    """The folder of one job."""

    folder: Path
    environ: dict[str, str]
    arguments: list[str] = field(default_factory=list)

    @property
    def clone(self) -> Path:
        return self.folder / "work"

    @property
    def event(self) -> Path:
        return self.folder / "event.json"

    @property
    def summary(self) -> Path:
        return self.folder / "summary.md"

    @property
    def outputs(self) -> Path:
        return self.folder / "output.txt"

    def left(self, job: Job, code: int, text: str, calls: tuple[str, ...] = ()) -> Run:
        """What is there when the job has ended."""
        return Run(job, code, text, self.summary.read_text(), self.outputs.read_text(), calls)


@dataclass
class Runner:
    """Runs the jobs of a hub, one after the other, each in a fresh clone below `folder`, by default a whole one.

    They run in this process, or are processes of `program`, which may be killed.
    """

    hub: Hub
    folder: Path
    login: str = JOB
    depth: int | None = None
    bare: bool = False
    program: tuple[str, ...] = ()
    waited: list[float] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    _seen: int = 0
    _number: int = 0

    @classmethod
    def after(cls, hub: Hub, folder: Path) -> Self:
        """A runner that has dealt with everything that happened so far."""
        runner = cls(hub, folder)
        runner.cancel()
        return runner

    def pending(self) -> Iterator[Happening]:
        """What has happened since the last time, and starts workflows."""
        while self._seen < len(self.hub.world.happenings):
            event = self.hub.world.happenings[self._seen]
            self._seen += 1
            if not event.cause.quiet:
                yield event

    def settle(self) -> list[Run]:
        """Run the jobs of everything that has happened, and of what they cause."""
        done = []
        for event in self.pending():
            for job in jobs(event):
                done.append(self.run(job))
                if not job.secrets:
                    self._planned_without_token(job.event)
        return done

    def cancel(self) -> None:
        """Drop the runs that wait: what happened stays, and nothing is run for it."""
        self._seen = len(self.hub.world.happenings)

    def tick(self, verb: str) -> Run:
        """A scheduled run."""
        tip = self.hub.tip()
        payload = self.hub.world.payloads.schedule("17 * * * *")
        event = Happening("00000000-tick", "schedule", payload, Cause(JOB, tip, MAIN))
        return self.run(Job(verb, event, keys=verb == "sweep"))

    def run(self, job: Job) -> Run:
        """Run one job. What it would wait is noted in `waited`, not waited."""
        place = self._prepare(job)
        before = len(self.hub.server.calls)
        code, text = self._started(place) if self.program else within(place.arguments, place.environ, self.waited)
        run = place.left(job, code, text, tuple(self.hub.server.calls[before:]))
        if any(token_of(self.login) in told for told in (run.text, run.summary, run.outputs)):
            raise AssertionError(f"{job.verb} tells its token")
        self.runs.append(run)
        return run

    def _started(self, place: Workplace) -> tuple[int, str]:
        done = run([*self.program, *place.arguments], env=place.environ, merged=True)
        return done.returncode, done.stdout

    def together(self, *wanted: Job) -> list[Run]:
        """Run jobs at the same time, each in a process of its own."""
        places = [self._prepare(job) for job in wanted]
        programs = [
            subprocess.Popen(
                [*PROGRAM, *place.arguments],
                env=place.environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for place in places
        ]
        ended = [program.communicate()[0] for program in programs]
        return [
            place.left(job, program.returncode, text)
            for place, job, program, text in zip(places, wanted, programs, ended, strict=True)
        ]

    def _prepare(self, job: Job) -> Workplace:
        """A fresh clone and the environment of a job."""
        self._number += 1
        place = self.folder / f"job-{self._number}"
        place.mkdir(parents=True)
        work = Workplace(place, self._environment(job, self._home(job, place), place))
        work.event.write_text(json.dumps(job.event.payload))
        work.summary.touch()
        work.outputs.touch()
        self._clone(job, work.clone)
        work.arguments += ["bot", job.verb, "--repo", str(work.clone), "--event", str(work.event)]
        return work

    # -- inside ----------------------------------------------------------------------------------------------------

    def _planned_without_token(self, event: Happening) -> None:
        """The workflow of a fork has ended: what starts is the one of the default branch, which may write."""
        world = self.hub.world
        pull = event.payload["pull_request"]
        payload = world.payloads.workflow_run("pull_request", pull["head"]["sha"], pull["head"]["ref"], event.cause.by)
        world.happen("workflow_run", payload, Cause(event.cause.by, self.hub.tip(), MAIN))

    def _home(self, job: Job, place: Path) -> Path:
        """The home of a job: with the key of the bot, or empty."""
        loop = self.hub.loop
        if job.keys:
            return loop.home("bot")
        home = place / "home"
        home.mkdir()
        return home

    def _environment(self, job: Job, home: Path, place: Path) -> dict[str, str]:
        environ = {
            **bot_environment(home),
            **self.hub.job_variables(job.event, place),
            "GITHUB_OUTPUT": str(place / "output.txt"),
            "GITHUB_RUN_ID": str(7000 + self._number),
            "RUNNER_TEMP": str(place),
        }
        return environ | {"GITHUB_TOKEN": token_of(self.login)} if job.secrets else environ

    def _clone(self, job: Job, place: Path) -> None:
        """A checkout of the default branch with its whole history; its credentials do not stay in it.

        The fork's job has what anybody may read.
        """
        loop, url = self.hub.loop, self.hub.server.git_url
        git = (
            ("git", "-c", f"http.extraHeader=Authorization: Bearer {token_of(self.login)}") if job.secrets else ("git",)
        )
        depth = () if self.depth is None else ("--depth", str(self.depth))
        loop.program(
            "bot",
            *git,
            "clone",
            "-q",
            "--bare" if self.bare else "--no-checkout",
            *depth,
            url,
            str(place),
            at=place.parent,
        )
        if job.keys or job.verb == "drift":
            loop.program("bot", "git", "config", "gitops.root", str(loop.folder / "data"), at=place)


def jobs(event: Happening) -> Iterator[Job]:
    """The jobs that an event starts."""
    action = event.payload.get("action")
    if event.name == "pull_request" and action in _PLANNED:
        yield Job("plan", event, secrets=not event.cause.fork)
    elif event.name == "pull_request_review":
        yield Job("plan", event, keys=True)
    elif event.name == "workflow_run":
        yield Job("plan", event)
    elif event.name == "issue_comment" and action == "created":
        yield Job("command", event, keys=True)
    elif event.name == "merge_group":
        yield Job("verify", event)
    elif event.name == "push" and event.payload["ref"] == MAIN and event.payload["after"] != ZERO:
        yield Job("apply", event, keys=True)
