"""A real runner of jobs for a real Gitea: they run on this machine (its host mode), with a home of their own.

The workflows are those that `gitops init` writes. Of the three actions of others that they use, the instance has stand-ins of a
few lines, by other commits, so the pins are replaced; `actions_of` is the place of both.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

from tests.support.actions.real_python import lay_python
from tests.support.forges.gitea_program import RUNNER
from tests.support.forges.real_gitea import Instance
from tests.support.forges.site import RealGiteaSite
from tests.support.paused import Pause

_LONGEST_S = 240.0
_AT_WORK = ("queued", "in_progress")
_LABEL = "ubuntu-latest"
_OWNER = "actions"
_PIN = re.compile(rb"uses: (actions/[a-z-]+)@[0-9a-f]{40}")
_SETTINGS = """\
log: {{level: info}}
runner: {{file: {folder}/registration, fetch_interval: 1s, fetch_interval_max: 1s}}
cache: {{enabled: false}}
host: {{workdir_parent: {folder}/work}}
"""
_CHECKOUT = """\
name: checkout
description: The whole history, without credentials that stay.
inputs:
  ref: {description: What to check out., default: ""}
  fetch-depth: {description: Zero., required: true}
  persist-credentials: {description: No., required: true}
runs:
  using: composite
  steps:
    - shell: bash
      env:
        TOKEN: ${{ github.token }}
        URL: ${{ github.server_url }}/${{ github.repository }}
        REF: ${{ inputs.ref }}
      run: |
        git init --quiet .
        git remote add origin "$URL"
        login=$(printf 'x-access-token:%s' "$TOKEN" | base64 | tr -d '\\n')
        git -c "http.extraHeader=Authorization: Basic $login" fetch --quiet origin '+refs/heads/*:refs/remotes/origin/*'
        git checkout --quiet "${REF:+origin/$REF}${REF:-$GITHUB_SHA}" 2> /dev/null || git checkout --quiet "${REF:-$GITHUB_SHA}"
"""
_NOTHING = """\
name: nothing
description: The runner has it already.
inputs:
  python-version: {description: Any., default: ""}
  path: {description: Any., default: ""}
  key: {description: Any., default: ""}
runs:
  using: composite
  steps:
    - shell: bash
      run: "true"
"""
STAND_INS = {"checkout": _CHECKOUT, "cache": _NOTHING, "setup-python": _NOTHING}


@dataclass(frozen=True)
class Ended:
    """A job that has ended, with what it printed; `conclusion` is `success`, `failure`, `cancelled` or `skipped`."""

    number: int
    name: str
    conclusion: str
    log: str


def actions_of(at: Instance) -> Mapping[str, str]:
    """Give an instance the stand-ins, unless it has them: their commits by their names."""
    at.admin("POST", "/orgs", {"username": _OWNER}, admits=(422,))
    found = {}
    for name, form in STAND_INS.items():
        place = f"/repos/{_OWNER}/{name}"
        if "id" not in at.admin("GET", place, admits=(404,)):
            at.admin("POST", f"/orgs/{_OWNER}/repos", {"name": name, "default_branch": "main"})
            file = {"content": b64encode(form.encode()).decode(), "message": "Stand in"}
            at.admin("POST", f"{place}/contents/action.yml", file)
        found[f"{_OWNER}/{name}"] = str(at.admin("GET", f"{place}/branches/main")["commit"]["id"])
    return found


def pinned(files: Mapping[str, bytes], commits: Mapping[str, str]) -> dict[str, bytes]:
    """The files of jobs with the actions of others at these commits."""

    def pin(found: re.Match[bytes]) -> bytes:
        return b"uses: %s@%s" % (found[1], commits[found[1].decode()].encode())

    return {path: content if path.endswith(".whl") else _PIN.sub(pin, content) for path, content in files.items()}


def _waits(pause: Pause) -> str:
    """Whether nobody waited there yet, as a command of the shell."""
    return f"mkdir '{pause.folder}/taken' 2> /dev/null"


def _held(pause: Pause) -> str:
    return f"echo $$ > '{pause.folder}/ready'; cat '{pause.folder}/go'"


class RunnerSite(RealGiteaSite):
    """A repository whose jobs run; see the module. `skipped` are the jobs whose condition did not hold."""

    with_jobs: ClassVar[bool] = True
    skipped: list[str]
    _known: set[int]

    def __enter__(self) -> Self:
        self.skipped, self._known = [], set()
        return super().__enter__()

    def give(self, secrets: Mapping[str, str], variables: Mapping[str, str]) -> None:
        """Set what jobs get."""
        for name, value in secrets.items():
            self.world.ask("PUT", f"/actions/secrets/{name}", {"data": value})
        for name, value in variables.items():
            self.world.ask("POST", f"/actions/variables/{name}", {"value": value})

    def dispatch(self, workflow: str) -> None:
        """Press the button of a workflow."""
        # The server answers with an error of its own while it has not looked at the first push to a repository.
        self.world.at.flush()
        self.world.ask("POST", f"/actions/workflows/{workflow}/dispatches", {"ref": "main"})

    def reap(self) -> None:
        """It is time for the server to give up jobs whose runner says nothing."""
        self.world.at.admin("POST", "/admin/cron/stop_zombie_tasks")

    def listed(self) -> list[Any]:
        """All jobs, the first ones first."""
        return sorted(self.world.ask("GET", "/actions/jobs?limit=50")["jobs"] or (), key=itemgetter("id"))

    def ended(self) -> list[Ended]:
        """Wait until no job is at work: those that have ended since the last time, in the order in which they were made."""
        while True:
            arrived = self.world.told_of_jobs()
            # What waits for a job that has ended is queued by then.
            self.world.at.flush()
            if not any(each["status"] in _AT_WORK for each in self.listed()):
                break
            self.world.more_of_jobs(arrived, _LONGEST_S)
        new = [self._read(each) for each in self.listed() if each["status"] == "completed"]
        new = [each for each in new if each.number not in self._known]
        self._known.update(each.number for each in new)
        self.skipped += [each.name for each in new if each.conclusion == "skipped"]
        return [each for each in new if each.conclusion != "skipped"]

    def waiting(self) -> list[str]:
        """The jobs that wait for one of their group, or for a person."""
        return [str(each["name"]) for each in self.listed() if each["status"] == "waiting"]

    def let_run(self) -> None:
        """Press the button that lets the jobs of a stranger run."""
        for each in self.listed():
            if each["status"] == "waiting":
                self.world.at.press(f"/{self.world.project}/actions/runs/{each['run_id']}/approve")

    def hold_push(self, ref: str, folder: Path) -> Pause:
        """The next push of this name waits when it arrives, and is refused when it may go on."""
        pause = Pause(folder)
        hook = self.world.git_dir / "hooks" / "pre-receive.d" / "held"
        hook.write_text(f"#!/bin/sh\ngrep -q {shlex.quote(ref)} && {_waits(pause)} || exit 0\n{_held(pause)}\nexit 1\n")
        hook.chmod(0o755)
        return pause

    def _read(self, form: Any) -> Ended:
        at = f"/repos/{self.world.project}/actions/jobs/{form['id']}/logs"
        return Ended(
            form["id"], form["name"], form["conclusion"], self.world.at.text(at) if form.get("runner_id") else ""
        )


@dataclass
class RealRunner:
    """The program, registered for one repository; use as a context manager. `folder` is all that it and its jobs write to."""

    site: RunnerSite
    folder: Path
    environ: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        program = RUNNER.installed()
        if program is None:
            pytest.skip(RUNNER.missing)
        programs, home = self.folder / "bin", self.folder / "home"
        for place in (programs, home):
            place.mkdir(parents=True)
        lay_python(programs / "python3", self.folder / "packages")
        self._program = str(program)
        self._settings = self.folder / "config.yaml"
        self._settings.write_text(_SETTINGS.format(folder=self.folder))
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.environ = {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"}
        token = self.site.world.ask("POST", "/actions/runners/registration-token")["token"]
        given = ["--instance", self.site.world.at.url, "--token", token, "--name", "here", "--labels", f"{_LABEL}:host"]
        command = self._command("register", "--no-interactive", *given)
        subprocess.run(command, env=self.environ, cwd=self.folder, capture_output=True, check=True)

    def _command(self, *words: str) -> list[str]:
        return [self._program, "--config", str(self._settings), *words]

    def __enter__(self) -> Self:
        with (self.folder / "runner.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("daemon"), env=self.environ, cwd=self.folder, stdout=log, stderr=log
            )
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def hold_job(self, folder: Path) -> Pause:
        """The next job waits at its first Python."""
        shim, pause = self.folder / "bin" / "python3", Pause(folder)
        first, _, rest = shim.read_text().partition("\n")
        shim.write_text(f"{first}\n{_waits(pause)} && {{ {_held(pause)}; }}\n{rest}")
        return pause

    def kill(self) -> None:
        """The machine is gone: the program, and all that it started."""
        self._process.kill()
        self._process.wait()
        mark = f"HOME={self.environ['HOME']}".encode()
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    os.kill(int(place.name), signal.SIGKILL)
