"""Checks of the workflows of a repository that run the bot: triggers, permissions, secrets, depth of the checkout.

Files are read from the target branch by the strict YAML reader. One that it refuses is told as unchecked, never as good.
What is not looked at: whether a workflow is active, reusable workflows elsewhere, and matrices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gitops.config.yaml import YamlError, parse_yaml, to_plain
from gitops.doctor.checks import error, good, unknown, warning
from gitops.doctor.findings import Finding

__all__ = ["JobFacts", "answers_queue", "job_findings"]

_TRIGGERS = {
    "plan": ("pull_request", "workflow_run", "pull_request_target", "issue_comment"),
    "command": ("issue_comment",),
    "apply": ("push",),
    "verify": ("merge_group",),
    "sweep": ("schedule",),
    "drift": ("schedule",),
}
_NEEDED = ("plan", "apply", "sweep")
_CALL = re.compile(r"\bgitops\s+(?:--as\s+\S+\s+)?bot\s+(plan|command|apply|verify|sweep|drift)\b")
_ACTION = re.compile(r"(^|/)gitops(@|$)")
_SECRET = re.compile(r"\bsecrets\s*[.\[]")
_OWN_TOKEN = re.compile(r"\bsecrets\s*\.\s*GITHUB_TOKEN\b")
# The head of a request, in the ways in which a checkout names it.
_HEAD = re.compile(r"\bhead(_ref|_sha|_branch|\.(ref|sha))\b|refs/pull/|workflow_run\.head")
_RESERVED = "gitops/**"
_HOSTED = ("github", "gitea")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The workflow files of the target branch, path to content, and the kind of forge."""

    kind: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that runs a verb of the bot, in a workflow with these triggers."""

    path: str
    name: str
    verb: str
    form: Mapping[str, Any]
    workflow: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.path}: {self.name}"


def answers_queue(facts: JobFacts) -> bool:
    """Whether a job verifies groups of a merge queue."""
    jobs = (job for path, form in _forms(facts) if isinstance(form, dict) for job in _jobs(path, form))
    return any(job.verb == "verify" and "merge_group" in _triggers(job.workflow) for job in jobs)


def job_findings(facts: JobFacts) -> Iterator[Finding]:
    """All of them. GitLab's one file has no triggers of its own to look at; its jobs are found by their scripts."""
    found: list[_Job] = []
    named: set[str] = set()
    unread: list[str] = []
    for path, form in _forms(facts):
        if isinstance(form, Finding):
            yield form
            unread.append(path)
            named.update(_CALL.findall(facts.files[path].decode("utf-8", "replace")))
            continue
        found += _jobs(path, form)
        if facts.kind in _HOSTED:
            yield from _workflow(path, form)
    if facts.kind == "local":
        return
    yield _present(facts.kind, {job.verb for job in found}, named, unread)
    if facts.kind in _HOSTED:
        for job in found:
            yield from _triggered(job)
            yield from _checked_out(facts.kind, job)
            yield from _trusted(job)
            yield from _carried_out(job)


def _present(kind: str, verbs: set[str], named: set[str], unread: Sequence[str]) -> Finding:
    """Whether the bot runs at all. What stands in a file that was not read may be there."""
    missing = [verb for verb in _NEEDED if verb not in verbs]
    if not missing:
        return good("jobs.present", f"jobs run {', '.join(sorted(verbs))}")
    if named.issuperset(missing):
        return unknown("jobs.present", f"jobs of {', '.join(unread)} were not checked")
    detail = f"no job runs gitops bot {', '.join(missing)}"
    return warning("jobs.present", detail, f"gitops init --forge {kind}")


def _forms(facts: JobFacts) -> Iterator[tuple[str, dict[str, Any] | Finding]]:
    """Each file as plain values, or why it was not checked."""
    for path, content in sorted(facts.files.items()):
        try:
            form = to_plain(parse_yaml(content))
        except YamlError as problem:
            yield (
                path,
                unknown(
                    "jobs.readable", f"not checked: {problem.problems[0]}", "write it without aliases and tags", path
                ),
            )
            continue
        if isinstance(form, dict):
            yield path, form


def _jobs(path: str, form: Mapping[str, Any]) -> list[_Job]:
    """The jobs that run the bot: by a script, or by the action with its input `verb`."""
    named = form.get("jobs") if isinstance(form.get("jobs"), dict) else form
    found = []
    for name, job in named.items() if isinstance(named, dict) else ():
        if isinstance(job, dict):
            found += [_Job(path, str(name), verb, job, form) for verb in dict.fromkeys(_verbs(job))]
    return found


def _verbs(job: Mapping[str, Any]) -> Iterator[str]:
    steps = job.get("steps")
    for step in steps if isinstance(steps, list) else ():
        inputs = step.get("with") if isinstance(step, dict) else None
        if isinstance(inputs, dict) and _ACTION.search(str(step.get("uses", ""))) and inputs.get("verb") in _TRIGGERS:
            yield str(inputs["verb"])
    for text in _texts(job):
        yield from _CALL.findall(text)


def _texts(value: Any) -> Iterator[str]:
    """Every text below a value; the strict reader bounds the depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield str(key)
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _triggers(form: Mapping[str, Any]) -> Mapping[str, Any]:
    """`on` in its three forms: a word, a list, a mapping."""
    given = form.get("on")
    if isinstance(given, str):
        return {given: None}
    if isinstance(given, list):
        return {str(name): None for name in given}
    return given if isinstance(given, dict) else {}


def _workflow(path: str, form: Mapping[str, Any]) -> Iterator[Finding]:
    """Every workflow of the repository: entries of the ledger are pushes, too, and should start none of them."""
    triggers = _triggers(form)
    if "push" not in triggers:
        return
    push = triggers["push"] if isinstance(triggers["push"], dict) else {}
    ignored = push.get("branches-ignore")
    tags_only = ("tags" in push or "tags-ignore" in push) and "branches" not in push
    if "branches" in push or tags_only or (isinstance(ignored, list) and _RESERVED in ignored):
        yield good("jobs.own-branches", "pushes of the bot's own branches do not start it", path)
        return
    detail = "each entry of a ledger and each approval starts it"
    yield warning("jobs.own-branches", detail, f"on.push.branches-ignore: ['{_RESERVED}']", path)


def _triggered(job: _Job) -> Iterator[Finding]:
    triggers = _triggers(job.workflow)
    wanted = _TRIGGERS[job.verb]
    if not any(name in triggers for name in wanted) and "workflow_call" not in triggers:
        fix = f"on: {wanted[0]}"
        yield warning(
            "jobs.triggers", f"gitops bot {job.verb} is never started by {' or '.join(wanted)}", fix, job.place
        )
    else:
        yield good("jobs.triggers", f"gitops bot {job.verb} is started by {', '.join(triggers)}", job.place)
    comment = triggers.get("issue_comment")
    if "issue_comment" in triggers:
        types = comment.get("types") if isinstance(comment, dict) else None
        if types != ["created"]:
            detail = "edited and deleted comments start it, too"
            yield warning("jobs.comments", detail, "on.issue_comment.types: [created]", job.place)


def _checked_out(kind: str, job: _Job) -> Iterator[Finding]:
    """Whether a job with secrets takes files of a request into its folder, where the next step may run them."""
    steps = job.form.get("steps")
    taken = [str((s.get("with") or {}).get("ref", "")) for s in _checkouts(steps)]
    strangers = set(_triggers(job.workflow)) & {"pull_request_target", "workflow_run", "issue_comment"}
    if strangers and any(map(_HEAD.search, taken)):
        detail = f"a job that {' or '.join(sorted(strangers))} starts checks out what a request brings"
        yield error("jobs.checkout", detail, "actions/checkout without ref: the bot reads git objects", job.place)
    elif strangers:
        yield good("jobs.checkout", "nothing of a request is checked out", job.place)
    if "pull_request_target" in strangers and kind == "github":
        detail = "pull_request_target runs with secrets for whoever opens a request"
        yield warning("jobs.fork", detail, "on: pull_request without secrets, then workflow_run", job.place)


def _trusted(job: _Job) -> Iterator[Finding]:
    """What a job may do, and whether one that reads requests of strangers holds a secret."""
    permissions = job.form.get("permissions", job.workflow.get("permissions"))
    if permissions is None:
        detail = "no permissions are set: the token may what the settings of the repository give"
        yield warning(
            "jobs.permissions", detail, "permissions: {} at the top, and what docs/forges.md names", job.place
        )
    elif permissions == "write-all":
        yield error("jobs.permissions", "the token may everything", "name each permission (docs/forges.md)", job.place)
    else:
        yield good("jobs.permissions", "permissions are named", job.place)
    if "pull_request" not in _triggers(job.workflow) or job.verb != "plan" or _elsewhere(job):
        return
    texts = [_OWN_TOKEN.sub("", text) for text in _texts([job.form, job.workflow.get("env")])]
    writes = isinstance(permissions, dict) and any(value == "write" for value in permissions.values())
    if any(map(_SECRET.search, texts)) or job.form.get("secrets") == "inherit":
        detail = "the job that reads requests of forks names a secret"
        yield error("jobs.fork", detail, "plan without secrets on pull_request; tell on workflow_run", job.place)
    elif writes:
        detail = "the job that reads requests of forks asks for a token that writes"
        yield warning("jobs.fork", detail, "permissions: contents: read", job.place)
    else:
        yield good("jobs.fork", "the job that reads requests of forks holds no secret", job.place)


def _elsewhere(job: _Job) -> bool:
    """Whether a condition keeps the job from running on `pull_request`, as in a workflow with several triggers."""
    condition = str(job.form.get("if", ""))
    return "github.event_name" in condition and "'pull_request'" not in condition


def _carried_out(job: _Job) -> Iterator[Finding]:
    if not _deep(job.form.get("steps")):
        detail = "the checkout is shallow: the bot fetches the rest each time"
        yield warning("jobs.depth", detail, "actions/checkout with fetch-depth: 0", job.place)
    else:
        yield good("jobs.depth", "the checkout has the whole history", job.place)
    if job.verb not in ("apply", "sweep"):
        return
    for form in (job.form, job.workflow):
        group = form.get("concurrency")
        if isinstance(group, dict) and group.get("cancel-in-progress") not in (None, False):
            detail = "a newer run cancels an apply that is under way; it is recovered, and lost time"
            yield warning("jobs.concurrency", detail, "concurrency.cancel-in-progress: false", job.place)


def _deep(steps: Any) -> bool:
    """Whether every checkout of a job takes all of the history."""
    return all(str((step.get("with") or {}).get("fetch-depth")) == "0" for step in _checkouts(steps))


def _checkouts(steps: Any) -> list[dict[str, Any]]:
    """The steps that check a repository out, as far as they can be told; their inputs are a mapping or nothing."""
    listed: Sequence[Any] = steps if isinstance(steps, list) else ()
    found = [s for s in listed if isinstance(s, dict) and "actions/checkout" in str(s.get("uses", ""))]
    return [s for s in found if isinstance(s.get("with") or {}, dict)]
