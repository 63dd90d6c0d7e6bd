"""Checks of the workflows of a repository that run the bot: triggers, permissions, secrets, depth of the checkout.

Files are read from the target branch by the strict YAML reader. A file that it refuses is reported as unchecked, never as good.
Not checked: whether a workflow is active, reusable workflows of other repositories, and matrices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gitops.config.yaml import YamlError, parse_yaml, to_plain
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning

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
# The forms in which a checkout names the head of a change request.
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
    """A job that runs a command of the bot, in a workflow."""

    path: str
    name: str
    verb: str
    form: Mapping[str, Any]
    workflow: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.path}: {self.name}"


def answers_queue(facts: JobFacts) -> bool:
    """Whether a job verifies merge groups."""
    jobs = (job for path, form in _forms(facts) if isinstance(form, dict) for job in _jobs(path, form))
    return any(job.verb == "verify" and "merge_group" in _triggers(job.workflow) for job in jobs)


def job_findings(facts: JobFacts) -> Iterator[DoctorFinding]:
    """Make all of these checks. GitLab's file has no triggers to check; its jobs are found by their scripts."""
    found: list[_Job] = []
    named: set[str] = set()
    unread: list[str] = []
    for path, form in _forms(facts):
        if isinstance(form, DoctorFinding):
            yield form
            unread.append(path)
            named.update(_CALL.findall(facts.files[path].decode("utf-8", "replace")))
            continue
        found += _jobs(path, form)
        if facts.kind in _HOSTED:
            yield from _workflow(path, form)
    if facts.kind == "local":
        return
    yield _required_jobs(facts.kind, {job.verb for job in found}, named, unread)
    if facts.kind in _HOSTED:
        for job in found:
            yield from _started(job)
            yield from _checkout(facts.kind, job)
            yield from _permissions(job)
            yield from _execution(job)


def _required_jobs(kind: str, verbs: set[str], named: set[str], unread: Sequence[str]) -> DoctorFinding:
    """Whether all required jobs exist. A file that could not be read may contain the missing ones."""
    missing = [verb for verb in _NEEDED if verb not in verbs]
    if not missing:
        return good("jobs.present", f"jobs run {', '.join(sorted(verbs))}")
    if named.issuperset(missing):
        return unknown("jobs.present", f"jobs of {', '.join(unread)} were not checked")
    detail = f"no job runs gitops bot {', '.join(missing)}"
    return warning("jobs.present", detail, f"gitops init --forge {kind}")


def _forms(facts: JobFacts) -> Iterator[tuple[str, dict[str, Any] | DoctorFinding]]:
    """Each file as plain values, or the finding that it was not checked."""
    for path, content in sorted(facts.files.items()):
        try:
            form = to_plain(parse_yaml(content))
        except YamlError as problem:
            yield (
                path,
                unknown(
                    "jobs.readable",
                    f"not checked: {problem.problems[0]}",
                    "write the file without aliases and tags",
                    path,
                ),
            )
            continue
        if isinstance(form, dict):
            yield path, form


def _jobs(path: str, form: Mapping[str, Any]) -> list[_Job]:
    """The jobs that run the bot, by a script or by the action with its input `verb`."""
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
    """Every text inside a value; the strict reader bounds the depth."""
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
    """The triggers of a workflow; `on` can be a word, a list or a mapping."""
    given = form.get("on")
    if isinstance(given, str):
        return {given: None}
    if isinstance(given, list):
        return {str(name): None for name in given}
    return given if isinstance(given, dict) else {}


def _workflow(path: str, form: Mapping[str, Any]) -> Iterator[DoctorFinding]:
    """Whether a workflow ignores the bot's own branches: entries of the ledger are pushes too."""
    triggers = _triggers(form)
    if "push" not in triggers:
        return
    push = triggers["push"] if isinstance(triggers["push"], dict) else {}
    ignored = push.get("branches-ignore")
    tags_only = ("tags" in push or "tags-ignore" in push) and "branches" not in push
    if "branches" in push or tags_only or (isinstance(ignored, list) and _RESERVED in ignored):
        yield good("jobs.own-branches", "pushes to the bot's branches do not start it", path)
        return
    detail = "each ledger entry and each approval starts it"
    yield warning("jobs.own-branches", detail, f"on.push.branches-ignore: ['{_RESERVED}']", path)


def _started(job: _Job) -> Iterator[DoctorFinding]:
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
            detail = "edited and deleted comments start it too"
            yield warning("jobs.comments", detail, "on.issue_comment.types: [created]", job.place)


def _checkout(kind: str, job: _Job) -> Iterator[DoctorFinding]:
    """Whether a job with secrets checks out files of a change request, which a later step may run."""
    steps = job.form.get("steps")
    refs = [str((s.get("with") or {}).get("ref", "")) for s in _checkouts(steps)]
    untrusted = set(_triggers(job.workflow)) & {"pull_request_target", "workflow_run", "issue_comment"}
    if untrusted and any(map(_HEAD.search, refs)):
        detail = f"a job that {' or '.join(sorted(untrusted))} starts checks out files of a change request"
        yield error("jobs.checkout", detail, "actions/checkout without ref: the bot reads git objects", job.place)
    elif untrusted:
        yield good("jobs.checkout", "no files of a change request are checked out", job.place)
    if "pull_request_target" in untrusted and kind == "github":
        detail = "pull_request_target runs with secrets for anyone who opens a change request"
        yield warning("jobs.fork", detail, "on: pull_request without secrets, then workflow_run", job.place)


def _permissions(job: _Job) -> Iterator[DoctorFinding]:
    """Check the permissions of a job, and that a job that reads change requests of forks has no secret."""
    permissions = job.form.get("permissions", job.workflow.get("permissions"))
    if permissions is None:
        detail = "no permissions are set: the token has the default permissions of the repository"
        yield warning(
            "jobs.permissions", detail, "permissions: {} at the top, and per job those of docs/forges.md", job.place
        )
    elif permissions == "write-all":
        yield error(
            "jobs.permissions", "the token has all permissions", "list each permission (docs/forges.md)", job.place
        )
    else:
        yield good("jobs.permissions", "permissions are listed", job.place)
    if "pull_request" not in _triggers(job.workflow) or job.verb != "plan" or _excludes_pull_requests(job):
        return
    texts = [_OWN_TOKEN.sub("", text) for text in _texts([job.form, job.workflow.get("env")])]
    writes = isinstance(permissions, dict) and any(value == "write" for value in permissions.values())
    if any(map(_SECRET.search, texts)) or job.form.get("secrets") == "inherit":
        detail = "the job that reads change requests of forks uses a secret"
        yield error("jobs.fork", detail, "plan without secrets on pull_request; report on workflow_run", job.place)
    elif writes:
        detail = "the job that reads change requests of forks has a token that can write"
        yield warning("jobs.fork", detail, "permissions: contents: read", job.place)
    else:
        yield good("jobs.fork", "the job that reads change requests of forks has no secret", job.place)


def _excludes_pull_requests(job: _Job) -> bool:
    """Whether a condition keeps the job from running on `pull_request`, as in a workflow with several triggers."""
    condition = str(job.form.get("if", ""))
    return "github.event_name" in condition and "'pull_request'" not in condition


def _execution(job: _Job) -> Iterator[DoctorFinding]:
    if not _deep(job.form.get("steps")):
        detail = "the checkout is shallow: the bot fetches the rest in every run"
        yield warning("jobs.depth", detail, "actions/checkout with fetch-depth: 0", job.place)
    else:
        yield good("jobs.depth", "the checkout has the full history", job.place)
    if job.verb not in ("apply", "sweep"):
        return
    for form in (job.form, job.workflow):
        group = form.get("concurrency")
        if isinstance(group, dict) and group.get("cancel-in-progress") not in (None, False):
            detail = "a newer run cancels a running apply; it is recovered, but time is lost"
            yield warning("jobs.concurrency", detail, "concurrency.cancel-in-progress: false", job.place)


def _deep(steps: Any) -> bool:
    """Whether every checkout of a job fetches the full history."""
    return all(str((step.get("with") or {}).get("fetch-depth")) == "0" for step in _checkouts(steps))


def _checkouts(steps: Any) -> list[dict[str, Any]]:
    """The steps of a job that use actions/checkout and have valid inputs."""
    listed: Sequence[Any] = steps if isinstance(steps, list) else ()
    found = [s for s in listed if isinstance(s, dict) and "actions/checkout" in str(s.get("uses", ""))]
    return [s for s in found if isinstance(s.get("with") or {}, dict)]
