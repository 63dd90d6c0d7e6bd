"""A runner of jobs on this machine: it carries out the steps of a workflow's job, or of a composite action, as GitHub's does.

What it does not know is a failure: keys, functions, contexts, actions. Actions of others are stood in for by functions that the
test hands in. Scripts run in bash as GitHub starts it, with the environment that is handed in and nothing of the test's own.

Source: https://docs.github.com/en/actions/reference/workflows-and-actions/metadata-syntax and the page on workflow commands there
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.actions.expressions import Open, evaluate, interpolate, is_true
from tests.support.cases import read_yaml

__all__ = ["Job", "Outcome", "load"]

_SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
_STEP_KEYS = {"id", "name", "if", "uses", "with", "env", "run", "shell"}
_HEREDOC = re.compile(r"([^=<]+)<<(.+)")

StandIn = Callable[["Job", Mapping[str, str]], None]


def load(path: Path) -> dict[str, Any]:
    """A workflow or an action; `on` is a boolean to YAML 1.1."""
    found = read_yaml(path)
    if True in found:
        found["on"] = found.pop(True)
    return dict(found)


@dataclass
class Outcome:
    """What is left: `text` is everything that was printed, `outputs` those of an action, `ran` the names of steps."""

    ok: bool = True
    text: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)


@dataclass
class Job:
    """One job. `github`, `vars` and `secrets` are the contexts; `standins` take the place of actions by name before the `@`."""

    folder: Path
    workspace: Path
    environ: dict[str, str]
    github: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    standins: Mapping[str, StandIn] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    _count: int = 0

    @property
    def temp(self) -> Path:
        """What jobs know as RUNNER_TEMP."""
        place = self.folder / "temp"
        place.mkdir(parents=True, exist_ok=True)
        return place

    def contexts(self) -> dict[str, Any]:
        """Those of a job, before any step."""
        event = Open(self.github.get("event", {}))
        return {
            "github": {**self.github, "event": event},
            "vars": Open(self.variables),
            "secrets": Open(self.secrets),
            "inputs": Open(self.inputs),
        }

    def wanted(self, job: Mapping[str, Any]) -> bool:
        """Return whether the condition of a job holds."""
        return is_true(evaluate(str(job.get("if", "true")), self.contexts()))

    def steps(self, job: Mapping[str, Any]) -> Outcome:
        """Carry out a job of a workflow."""
        outcome = Outcome()
        self._all(job["steps"], self.contexts(), {}, outcome)
        return outcome

    def action(self, path: Path, given: Mapping[str, Any], env: Mapping[str, str] | None = None) -> Outcome:
        """Carry out a composite action with these inputs."""
        form = load(path / "action.yml")
        declared = form["inputs"]
        if unknown := set(given) - set(declared):
            raise AssertionError(f"the action has no input {sorted(unknown)}")
        contexts = self.contexts()
        inputs = {}
        for name, about in declared.items():
            if about.get("required") and name not in given:
                raise AssertionError(f"the input {name} is required")
            inputs[name] = str(given[name]) if name in given else interpolate(str(about.get("default", "")), contexts)
        inner = {**contexts, "inputs": inputs, "steps": {}}
        for gone in ("vars", "secrets"):
            del inner[gone]  # an action sees neither
        outcome = Outcome()
        own = {**(env or {}), "GITHUB_ACTION_PATH": str(path)}
        self._all(form["runs"]["steps"], inner, own, outcome)
        outcome.outputs = {n: interpolate(o["value"], inner) for n, o in form.get("outputs", {}).items()}
        return outcome

    def _all(
        self, steps: list[dict[str, Any]], contexts: dict[str, Any], env: Mapping[str, str], outcome: Outcome
    ) -> None:
        known = contexts.setdefault("steps", {})
        for step in steps:
            if unknown := set(step) - _STEP_KEYS:
                raise AssertionError(f"a step has {sorted(unknown)}")
            if "id" in step:
                known[step["id"]] = {"outputs": Open(), "outcome": "skipped"}
            contexts["status"] = {"always": True, "success": outcome.ok, "failure": not outcome.ok, "cancelled": False}
            condition = str(step.get("if", "success()"))
            if not re.search(r"\b(always|success|failure|cancelled)\(", condition):
                condition = f"success() && ({condition})"
            if not is_true(evaluate(condition, contexts)):
                continue
            outcome.ran.append(str(step.get("name", step.get("uses", step.get("run", "")))))
            own = {**env, **{n: interpolate(str(v), contexts) for n, v in step.get("env", {}).items()}}
            done = self._uses(step, contexts, own) if "uses" in step else self._run(step, contexts, own)
            outcome.text += done.text
            outcome.ok = outcome.ok and done.ok
            if "id" in step:
                known[step["id"]] = {"outputs": Open(done.outputs), "outcome": "success" if done.ok else "failure"}

    def _uses(self, step: Mapping[str, Any], contexts: Mapping[str, Any], env: Mapping[str, str]) -> Outcome:
        given = {n: interpolate(str(v), contexts) for n, v in step.get("with", {}).items()}
        name = str(step["uses"])
        if name.startswith("./"):
            return self.action(self.workspace / name, given, env)
        self.standins[name.partition("@")[0]](self, given)
        return Outcome()

    def _run(self, step: Mapping[str, Any], contexts: Mapping[str, Any], env: Mapping[str, str]) -> Outcome:
        if "${{" in step["run"]:
            raise AssertionError("an expression stands in a script")
        self._count += 1
        place = self.temp.parent / f"step-{self._count}"
        place.mkdir()
        script, output, exported = place / "script.sh", place / "output", place / "env"
        script.write_text(step["run"])
        for file in (output, exported):
            file.touch()
        whole = {
            **self.environ,
            **env,
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_ENV": str(exported),
            "GITHUB_PATH": str(exported),
            "GITHUB_WORKSPACE": str(self.workspace),
        }
        done = subprocess.run(
            [*_SHELL, str(script)],
            cwd=self.workspace,
            env=whole,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if exported.read_bytes():
            raise AssertionError("a step leaves variables to the rest of the job")
        outputs = _outputs(output.read_text(encoding="utf-8"))
        return Outcome(done.returncode == 0, os.fsdecode(done.stdout), outputs)


def _outputs(text: str) -> dict[str, str]:
    """What a step wrote as its outputs: `name=value`, or a value of several lines in a frame."""
    found: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        frame = _HEREDOC.fullmatch(line)
        if frame is None:
            name, equals, value = line.partition("=")
            if not equals:
                raise AssertionError(f"{line!r} is no output")
            found[name] = value
            continue
        value_lines: list[str] = []
        for each in lines:
            if each == frame[2]:
                break
            value_lines.append(each)
        else:
            raise AssertionError(f"the frame {frame[2]} does not end")
        found[frame[1]] = "\n".join(value_lines)
    return found
