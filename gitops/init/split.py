"""Moves the jobs of earlier workflows, which started all jobs for each event, to one workflow for each event.

A job whose condition names another event is skipped, but it is still listed: on each comment, and as a check of each change
request. A workflow for one event has nothing to skip.

1. Trigger, name and permissions of a new file come from the template. Branches, paths and the times of schedules come from the
   existing file.
2. Each job is moved as it is, with the changes of the repository. Only its condition is that of the template.
3. A file with other triggers, other jobs or other top-level keys was changed in ways that can't be moved. Then all files stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain
from gitops.init.files import SEVERAL_EVENTS, FileState, InitFile, InitOutcome, fill

_GITHUB, _GITEA = ".github/workflows/", ".gitea/workflows/"
_SPLIT: Mapping[str, Mapping[str, str]] = {
    f"{_GITHUB}gitops.yml": {
        "post": "github/gitops-post.yml",
        "command": "github/gitops-command.yml",
        "verify": "github/gitops-verify.yml",
        "apply": "github/gitops-apply.yml",
        "sweep": "github/gitops-sweep.yml",
        "drift": "github/gitops-drift.yml",
    },
    f"{_GITHUB}gitops-plan.yml": {"plan": "github/gitops-plan.yml", "review": "github/gitops-review.yml"},
    f"{_GITEA}gitops.yml": {
        "plan": "gitea/gitops-post.yml",
        "command": "gitea/gitops-command.yml",
        "apply": "gitea/gitops-apply.yml",
        "watch": "gitea/gitops-watch.yml",
    },
}
"""The templates that the jobs of an earlier workflow are moved to, by its path and by job."""
_KEYS = frozenset({"name", "on", "permissions", "jobs"})
_JOB = re.compile(r"^(?:  #.*\n)*  ([A-Za-z_][A-Za-z0-9_-]*):[ \t]*(?:#.*)?\n", re.MULTILINE)
_CONDITION = re.compile(r"^    if: .*\n(?:      .*\n)*", re.MULTILINE)
_NAME = re.compile(r"^    name: .*\n", re.MULTILINE)
_CRON = re.compile(r"^    - cron: .*\n", re.MULTILINE)
_AT = re.compile(r"github\.event\.schedule ([!=]=) '([^']+)'")
_SWITCH = re.compile(r"vars\.\w+ [!=]= '\w*'")


@dataclass(frozen=True, slots=True)
class SplitOutcome:
    """The files of a split. If `kept` is set, nothing was split: it has a path, and the reason why it can't be moved."""

    files: tuple[InitFile, ...] = ()
    kept: tuple[str, str] | None = None


def split_workflows(
    templates: Mapping[str, str],
    existing: Callable[[str], bytes | None],
    values: Mapping[str, str],
    flags: Mapping[str, bool],
) -> SplitOutcome:
    """Return the files that replace the earlier workflows of a repository; no files if there are no earlier workflows.

    `values` and `flags` are those of the templates. `existing` reads a file of the repository; None if it does not exist.
    """
    made: dict[str, InitFile] = {}
    for path, targets in _SPLIT.items():
        content = existing(path)
        if content is None or not any(map(existing, SEVERAL_EVENTS.values())):
            continue
        try:
            old = _read(content, targets)
            parts = {
                _path_of(name): _part(old, job, templates[name], values, flags)
                for job, name in targets.items()
                if job in old.blocks
            }
            _require_place(old, parts, [new for new in parts if new != path and existing(new) is not None])
        except _KeptError as reason:
            return SplitOutcome(kept=(path, str(reason)))
        for new, part in parts.items():
            before = existing(new)
            changed = FileState.NEW if before is None else FileState.RENEWED
            made[new] = InitFile(new, part, FileState.SAME if before == part else changed, before)
        if path not in parts:
            made[path] = InitFile(path, b"", FileState.OBSOLETE, content)
    return SplitOutcome(tuple(made.values()))


class _KeptError(Exception):
    """Says why the jobs of a file cannot be moved."""


@dataclass(frozen=True, slots=True)
class _Workflow:
    """A workflow as values, and the text of each of its jobs."""

    form: Mapping[str, Any]
    triggers: Mapping[str, Any]
    blocks: Mapping[str, str]


def _read(content: bytes, known: Iterable[str]) -> _Workflow:
    try:
        form = to_plain(parse_yaml(content))
        text = content.decode()
    except (YamlError, UnicodeDecodeError):
        raise _KeptError("it cannot be read") from None
    triggers, jobs = (form.get(key) if isinstance(form, dict) else None for key in ("on", "jobs"))
    if not isinstance(triggers, dict) or not isinstance(jobs, dict):
        raise _KeptError("it has no jobs with triggers")
    others = [*(form.keys() - _KEYS - {"concurrency"}), *(jobs.keys() - set(known))]
    if others:
        raise _KeptError(f"it has {', '.join(sorted(others))}")
    below = text.partition("\njobs:\n")[2]
    starts = [*_JOB.finditer(below)]
    ends = [*(found.start() for found in starts[1:]), len(below)]
    blocks = {found[1]: below[found.start() : end].rstrip("\n") + "\n" for found, end in zip(starts, ends, strict=True)}
    if blocks.keys() != jobs.keys():
        raise _KeptError("its jobs are written in a different style")
    return _Workflow(form, triggers, blocks)


def _part(old: _Workflow, job: str, template: str, values: Mapping[str, str], flags: Mapping[str, bool]) -> bytes:
    """Return the workflow for one job."""
    condition = str(old.form["jobs"][job].get("if", ""))
    push = old.triggers.get("push") or {}
    switch = _SWITCH.match(condition.strip())
    rules = (rule for rule in old.triggers.values() if isinstance(rule, dict))
    branches = next((rule["branches"] for rule in rules if isinstance(rule.get("branches"), list)), [values["BRANCH"]])
    own = {
        "BRANCH": '", "'.join(map(str, branches)),
        "SWITCH": switch[0] if switch else values["SWITCH"],
        "PATHS": ", ".join(map(json.dumps, push.get("paths") or ())),
    }
    made = fill(template, {**values, **own}, {**flags, "paths": "paths" in push}).decode()
    head, mark, body = made.partition("\njobs:\n")
    wanted = _CONDITION.search(body)
    block = _CONDITION.sub("", old.blocks[job], count=1)
    if wanted is not None:
        block, times = _NAME.subn(lambda found: found[0] + wanted[0], block, count=1)
        if not times:
            raise _KeptError(f"its job {job} has no name")
    at = {sign: {cron for found, cron in _AT.findall(condition) if found == sign} for sign in ("==", "!=")}
    crons = [str(each["cron"]) for each in old.triggers.get("schedule") or ()]
    chosen = [cron for cron in crons if cron not in at["!="] and (not at["=="] or cron in at["=="])]
    if _CRON.search(head):
        if not chosen:
            raise _KeptError(f"its job {job} has no time")
        head = _CRON.sub("".join(f"    - cron: {json.dumps(cron)}\n" for cron in chosen), head)
    result = f"{head}{mark}{block}".encode()
    before, after = old.form["jobs"][job], to_plain(parse_yaml(result))["jobs"][job]
    if {**before, "if": None} != {**after, "if": None}:
        raise BugError(f"the job {job} was changed while it was moved")
    return result


def _require_place(old: _Workflow, parts: Mapping[str, bytes], taken: Sequence[str]) -> None:
    """Check that the new workflows have all triggers of the earlier one, and that none of them exists."""
    if taken:
        raise _KeptError(f"{', '.join(taken)} exists")
    wanted = dict(old.triggers)
    if f"{_GITEA}gitops-apply.yml" in parts:
        # There, a push can cancel an apply. A merged request starts it now.
        wanted.pop("push", None)
    for part in parts.values():
        for event, rule in to_plain(parse_yaml(part))["on"].items():
            before = wanted.pop(event, rule)
            if event == "schedule":
                left = [each for each in before if each not in rule]
                if left:
                    wanted[event] = left
            elif event not in ("workflow_run", "workflow_dispatch") and before != rule:
                raise _KeptError(f"its trigger {event} was changed")
    if wanted:
        raise _KeptError(f"it has the trigger {', '.join(wanted)}")


def is_split(outcome: InitOutcome) -> bool:
    """Return whether an upgrade replaces an earlier workflow by one for each event."""
    return any(file.state is FileState.OBSOLETE and file.path in SEVERAL_EVENTS.values() for file in outcome.files)


def _path_of(template: str) -> str:
    forge, _, name = template.partition("/")
    return f".{forge}/workflows/{name}"
