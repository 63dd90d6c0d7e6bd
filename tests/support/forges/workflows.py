"""GitHub Actions for a hub: what happens starts the jobs of the workflows that lie in the repository, and these are carried out.

Each job gets a token of its own with the permissions that its workflow gives it and no more, and the secrets of an environment
only if it names the environment and runs for the default branch. Jobs for requests get the workflow of the request.

What happens before the next look at it happens at the same time. Of the runs of one concurrency group, the first is at work then,
the newest waits for it, and those between are cancelled; `cancel-in-progress` cancels the first, too.
https://docs.github.com/en/actions/how-tos/write-workflows/choose-when-workflows-run/control-workflow-concurrency
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml

from gitops.git.port import ZERO
from tests.support.actions.expressions import Open, evaluate, interpolate, is_true
from tests.support.actions.real_python import lay_python
from tests.support.actions.runner import Job, Outcome
from tests.support.forges.hub import JOB, Hub, bot_environment
from tests.support.forges.records import Cause, CheckRun, Happening
from tests.support.loop import MAIN, ROOT
from tests.support.prefork import PROGRAM

_FAKE = ROOT / "tests" / "support" / "actions" / "fake_python.py"
_FROM_REQUESTS = ("pull_request", "pull_request_review")
_DEPENDABOT = "dependabot[bot]"
_DEFAULT_TYPES = {"pull_request": {"opened", "synchronize", "reopened"}}


@dataclass(frozen=True)
class Ran:
    """One job that was carried out."""

    workflow: str
    job: str
    event: str
    outcome: Outcome
    summary: str


@dataclass
class Actions:
    """Runs what happens at a hub. `secrets` are those of environments by name; `variables` those of the repository.

    `base` are more variables of every runner. With `installs`, jobs run what they install.
    `skipped` are jobs by event whose condition did not hold: the forge lists them, and as checks that count as passed.
    `cancelled` are jobs by event that a newer one of their group replaced.
    `withhold` lets a job only read one thing that its workflow says it may write.
    """

    hub: Hub
    folder: Path
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    withhold: dict[str, str] = field(default_factory=dict)
    base: dict[str, str] = field(default_factory=dict)
    installs: bool = False
    ran: list[Ran] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    cancelled: list[tuple[str, str]] = field(default_factory=list)
    _seen: int = 0

    place: ClassVar[str] = ".github/workflows"
    """The folder of workflows."""
    account: ClassVar[str] = JOB
    """Whose token a job has by itself."""

    def forget(self) -> None:
        """Drop the runs that wait, as when they are cancelled."""
        self._seen = len(self.hub.world.happenings)

    def settle(self) -> list[Ran]:
        """Run the jobs of everything that has happened, and of what they cause."""
        before = len(self.ran)
        while new := self.hub.world.happenings[self._seen :]:
            self._seen += len(new)
            self.start(*(event for event in new if not event.cause.quiet))
        return self.ran[before:]

    def tick(self, cron: str) -> list[Ran]:
        """A moment of the schedule."""
        before, tip = len(self.ran), self.hub.tip()
        payload = self.hub.world.payloads.schedule(cron)
        self.start(Happening("0-tick", "schedule", payload, Cause(JOB, tip, MAIN)))
        return self.ran[before:]

    def start(self, *events: Happening) -> None:
        """Run the workflows of events that happen at the same time."""
        wanted = [
            (event, path, workflow)
            for event in events
            for path, workflow in self._workflows(self._read_from(event))
            # A person starts one workflow.
            if _is_on(workflow["on"], event)
            and (event.name != "workflow_dispatch" or event.payload["workflow"] == path)
        ]
        replaced = self._replaced(wanted)
        for number, (event, path, workflow) in enumerate(wanted):
            for name, job in workflow["jobs"].items():
                if not is_true(evaluate(str(job.get("if", "true")), self._contexts(event))):
                    self.skipped.append((event.name, name))
                    self._not_run(event, name, job, "skipped")
                elif (number, name) in replaced:
                    self.cancelled.append((event.name, name))
                    self._not_run(event, name, job, "cancelled")
                else:
                    self.ran.append(self._run(event, path, name, job))
            self._ended(event, workflow["name"])

    def _replaced(self, wanted: Sequence[tuple[Happening, str, dict[str, Any]]]) -> set[tuple[int, str]]:
        """The jobs, by the number of their run and their name, that a newer one of a concurrency group cancels."""
        groups: dict[str, list[tuple[int, str]]] = {}
        replaced: set[tuple[int, str]] = set()
        for number, (event, _, workflow) in enumerate(wanted):
            contexts = self._contexts(event)
            for name, job in workflow["jobs"].items():
                if not is_true(evaluate(str(job.get("if", "true")), contexts)):
                    continue
                for rule in (each["concurrency"] for each in (workflow, job) if "concurrency" in each):
                    group = groups.setdefault(interpolate(rule["group"], contexts), [])
                    replaced.update(group[0 if rule["cancel-in-progress"] else 1 :])
                    group.append((number, name))
        return replaced

    def _contexts(self, event: Happening) -> dict[str, Any]:
        """What conditions and groups of jobs may read."""
        github = {"event": Open(event.payload), "event_name": event.name}
        return {"github": github, "vars": Open(self.variables), "inputs": Open(event.payload.get("inputs") or {})}

    def _not_run(self, event: Happening, name: str, form: Mapping[str, Any], conclusion: str) -> None:
        """List a job that did not run as a check of the commit; a skipped one counts as passed where it is required."""
        world, at = self.hub.world, self.hub.world.stamp()
        number, shown = world.next_id(), str(form.get("name", name))
        world.checks[number] = CheckRun(number, event.cause.sha, shown, "github-actions", "completed", conclusion, at)

    def _read_from(self, event: Happening) -> str:
        """The commit whose workflows count: that of the request, of the group or of the push, else the default branch's."""
        if event.name in _FROM_REQUESTS:
            return str(event.payload["pull_request"]["head"]["sha"])
        if event.name == "merge_group":
            return str(event.payload["merge_group"]["head_sha"])
        if event.name == "push" and event.payload["after"] != ZERO:
            return str(event.payload["after"])
        return self.hub.tip()

    def _workflows(self, commit: str) -> Iterator[tuple[str, dict[str, Any]]]:
        store = self.hub.loop.store
        folder = store.subtree(store.commit(commit).tree, self.place)
        for entry in store.entries(folder) if folder is not None else ():
            form = yaml.safe_load(store.read(folder or "", entry.name) or b"")
            form["on"] = form.pop(True, form.get("on"))
            yield f"{self.place}/{entry.name}", form

    def _ended(self, event: Happening, name: str) -> None:
        """A workflow that a request started has ended: say so to those that wait for it."""
        if event.name in _FROM_REQUESTS:
            world, head = self.hub.world, event.payload["pull_request"]["head"]
            payload = world.payloads.workflow_run(event.name, head["sha"], head["ref"], event.cause.by)
            payload["workflow_run"]["name"] = name
            world.happen("workflow_run", payload, Cause(event.cause.by, self.hub.tip(), MAIN))

    def _run(self, event: Happening, path: str, name: str, form: Mapping[str, Any]) -> Ran:
        place = self.folder / f"job-{len(list(self.folder.glob('job-*'))) + 1}"
        place.mkdir(parents=True)
        given = {n: "read" if self.withhold.get(name) == n else level for n, level in form["permissions"].items()}
        job = Job(
            folder=place,
            workspace=place / "work",
            environ=self._environ(event, place),
            github={
                "event": event.payload,
                "event_name": event.name,
                "token": self._token(place, given, foreign=self._is_foreign(event)),
                "server_url": self.hub.server.base,
            },
            variables=self.variables,
            secrets=self._secrets_of(event, form),
            inputs=event.payload.get("inputs") or {},
            standins={
                "actions/checkout": self._checkout(event),
                **dict.fromkeys(("actions/setup-python", "actions/cache"), lambda *_: None),
            },
        )
        job.workspace.mkdir()
        summary = place / "summary.md"
        summary.touch()
        return Ran(path.rpartition("/")[2], name, event.name, job.steps(form), summary.read_text())

    def _is_foreign(self, event: Happening) -> bool:
        """Whether a job gets no secret and a token that reads: it is for a fork, or Dependabot started it."""
        return event.cause.fork or (event.cause.by == _DEPENDABOT and event.name in (*_FROM_REQUESTS, "push"))

    def _secrets_of(self, event: Happening, form: Mapping[str, Any]) -> Mapping[str, str]:
        """The secrets of a job."""
        trusted = event.name not in (*_FROM_REQUESTS, "merge_group") and not self._is_foreign(event)
        return self.secrets.get(form.get("environment", {}).get("name", ""), {}) if trusted else {}

    def _token(self, place: Path, permissions: Mapping[str, str], *, foreign: bool) -> str:
        """A token of this job alone; one for a fork or for Dependabot reads at most."""
        text = f"ghs_{hashlib.sha256(str(place).encode()).hexdigest()[:36]}"
        scopes = {name.replace("-", "_"): "read" if foreign else level for name, level in permissions.items()}
        self.hub.world.lend(text, self.account, "actions", **scopes)
        return text

    def _checkout(self, event: Happening) -> Any:
        def checkout(job: Job, given: Mapping[str, str]) -> None:
            """actions/checkout with the whole history and without credentials that stay."""
            assert (given["fetch-depth"], given["persist-credentials"].lower()) == ("0", "false")
            token = job.github["token"]
            git = ("git", "-c", f"http.extraHeader=Authorization: Bearer {token}")
            loop = self.hub.loop
            loop.program("bot", *git, "clone", "-q", self.hub.server.git_url, str(job.workspace), at=job.folder)
            wanted = given.get("ref") or event.cause.sha
            loop.program("bot", "git", "checkout", "-q", wanted, at=job.workspace)

        return checkout

    def _environ(self, event: Happening, place: Path) -> dict[str, str]:
        programs, home, log = place / "bin", place / "home", place / "log"
        for folder in (programs, home, log):
            folder.mkdir()
        shim = programs / "python3"
        if self.installs:
            lay_python(shim, place / "packages")
        else:
            shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(_FAKE))} "$@"\n')
            shim.chmod(0o755)
        (place / "event.json").write_text(json.dumps(event.payload))
        return {
            **self.base,
            **bot_environment(home),
            **self.hub.job_variables(event, place),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "ACTIONS_LOG": str(log),
            "ACTIONS_REAL": json.dumps(PROGRAM),
            "GITHUB_RUN_ID": str(9000 + len(self.ran)),
            "GITHUB_RUN_NUMBER": str(1 + len(self.ran)),
        }


def _is_on(triggers: Mapping[str, Any], event: Happening) -> bool:
    """Whether the triggers of a workflow name an event: https://docs.github.com/en/actions/reference/events-that-trigger-workflows."""
    if event.name not in triggers:
        return False
    rule = triggers[event.name] or {}
    if event.name == "schedule":
        return event.payload["schedule"] in [each["cron"] for each in rule]
    if event.name == "workflow_run" and event.payload["workflow_run"]["name"] not in rule["workflows"]:
        return False
    types = rule.get("types", _DEFAULT_TYPES.get(event.name))
    if types is not None and event.payload["action"] not in types:
        return False
    if "branches" not in rule:
        return True
    if event.name == "push":
        target = event.payload["ref"].removeprefix("refs/heads/")
    else:
        target = event.payload["pull_request"]["base"]["ref"]
    return any(fnmatch.fnmatchcase(target, pattern) for pattern in rule["branches"])
