"""Checks of the workflows of a repository that run the bot: triggers, permissions, secrets, depth of the checkout.

Files are read from the target branch by the strict YAML reader. A file that it refuses is reported as unchecked, never as good.
Not checked: whether a workflow is active, reusable workflows of other repositories, and matrices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.git.port import EntryType, GitReader

_TRIGGERS = {
    "plan": ("pull_request", "workflow_run", "pull_request_target", "issue_comment"),
    "command": ("issue_comment",),
    "apply": ("push",),
    "verify": ("merge_group",),
    "sweep": ("schedule",),
    "drift": ("schedule",),
    "tick": ("schedule",),
}
_NEEDED = ("plan", "apply", "sweep")
_CALL = re.compile(r"\bgitops\s+(?:--as\s+\S+\s+)?bot\s+(plan|command|apply|verify|sweep|drift|tick)\b")
ACTION = re.compile(r"(^|/)gitops(@|$)")
CHECKOUT = re.compile(r"actions/checkout")
_SECRET = re.compile(r"\bsecrets\s*[.\[]")
_OWN_TOKEN = re.compile(r"\bsecrets\s*\.\s*GITHUB_TOKEN\b")
# The forms in which a checkout names the head of a change request.
_HEAD = re.compile(r"\bhead(_ref|_sha|_branch|\.(ref|sha))\b|refs/pull/|workflow_run\.head")
_RESERVED = "gitops/**"
_HOSTED = ("github", "gitea")
_FOLDERS = {
    "github": (".github/workflows",),
    "gitea": (".github/workflows", ".gitea/workflows", ".forgejo/workflows"),
    "gitlab": (".gitlab",),
}
_GITLAB = ".gitlab-ci.yml"
_SUFFIXES = (".yml", ".yaml")
_MAX_FILES = 200
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BotJob:
    """A job that runs a command of the bot, in a workflow."""

    place: str
    verb: str
    form: Mapping[str, Any]
    workflow: Mapping[str, Any]
    triggers: Mapping[str, Any]


def read_workflows(store: GitReader, kind: str, tree: str) -> Mapping[str, bytes]:
    """Read the workflow files of a root tree for a kind of forge, path to content; links are not followed."""
    found: dict[str, bytes] = {}
    for folder in _FOLDERS.get(kind, ()):
        below = store.subtree(tree, folder)
        for entry in () if below is None else store.entries(below)[:_MAX_FILES]:
            if entry.type is not EntryType.FILE or not entry.name.endswith(_SUFFIXES):
                continue
            if store.size(entry.id) <= _MAX_BYTES:
                found[f"{folder}/{entry.name}"] = store.read(below or "", entry.name) or b""
    content = store.read(tree, _GITLAB) if kind == "gitlab" else None
    if content is not None and len(content) <= _MAX_BYTES:
        found[_GITLAB] = content
    return found


def answers_queue(files: Mapping[str, bytes]) -> bool:
    """Whether a job of these workflow files (path to content) verifies merge groups."""
    jobs = (job for path, form in read_forms(files) if isinstance(form, dict) for job in bot_jobs(path, form))
    return any(job.verb == "verify" and "merge_group" in job.triggers for job in jobs)


def job_findings(kind: str, files: Mapping[str, bytes]) -> Iterator[DoctorFinding]:
    """Make all of these checks of workflow files, path to content, for a kind of forge.

    GitLab's file has no triggers to check; its jobs are found by their scripts.
    """
    found: list[BotJob] = []
    unread: dict[str, list[str]] = {}
    for path, form in read_forms(files):
        if isinstance(form, DoctorFinding):
            yield form
            unread[path] = _CALL.findall(files[path].decode("utf-8", "replace"))
            continue
        found += bot_jobs(path, form)
        if kind in _HOSTED and "push" in (triggers := _triggers(form)):
            yield _own_branches(path, triggers["push"])
    if kind == "local":
        return
    verbs = sorted({job.verb for job in found})
    missing = [verb for verb in _NEEDED if verb not in verbs]
    if not missing:
        yield good("jobs.present", f"jobs run {', '.join(verbs)}")
    elif set(missing).issubset(verb for named in unread.values() for verb in named):
        yield unknown("jobs.present", f"jobs of {', '.join(unread)} were not checked")
    else:
        detail = f"no job runs gitops bot {', '.join(missing)}"
        yield warning("jobs.present", detail, f"gitops init --forge {kind}")
    for job in found if kind in _HOSTED else ():
        yield from _started(job)
        yield from _checkout(kind, job)
        yield from _permissions(job)
        yield from _execution(job)


def read_forms(files: Mapping[str, bytes]) -> Iterator[tuple[str, dict[str, Any] | DoctorFinding]]:
    """Each file as plain values, or the finding that it was not checked."""
    for path, content in sorted(files.items()):
        try:
            form = to_plain(parse_yaml(content))
        except YamlError as problem:
            detail = f"not checked: {problem.problems[0]}"
            yield path, unknown("jobs.readable", detail, "write the file without aliases and tags", path)
            continue
        if isinstance(form, dict):
            yield path, form


def bot_jobs(path: str, form: Mapping[str, Any]) -> list[BotJob]:
    """The jobs that run the bot, by the action with its input `verb` or by a script."""
    named = form.get("jobs") if isinstance(form.get("jobs"), dict) else form
    found = []
    for name, job in named.items() if isinstance(named, dict) else ():
        if isinstance(job, dict):
            verbs = [verb for given in inputs_of(job, ACTION) if (verb := str(given.get("verb"))) in _TRIGGERS]
            verbs += [verb for text in texts_of(job) for verb in _CALL.findall(text)]
            found += [BotJob(f"{path}: {name}", verb, job, form, _triggers(form)) for verb in dict.fromkeys(verbs)]
    return found


def inputs_of(job: Mapping[str, Any], action: re.Pattern[str]) -> list[dict[str, Any]]:
    """The inputs of the steps of a job that use an action; a step whose inputs are not a mapping is left out."""
    steps = job.get("steps")
    using = [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []
    given = [step.get("with") or {} for step in using if action.search(str(step.get("uses", "")))]
    return [inputs for inputs in given if isinstance(inputs, dict)]


def texts_of(value: Any) -> Iterator[str]:
    """Every text inside a value; the strict reader bounds the depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield str(key)
            yield from texts_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_of(part)


def _triggers(form: Mapping[str, Any]) -> Mapping[str, Any]:
    """The triggers of a workflow; `on` can be a word, a list or a mapping."""
    given = form.get("on")
    if isinstance(given, str):
        return {given: None}
    if isinstance(given, list):
        return {str(name): None for name in given}
    return given if isinstance(given, dict) else {}


def _own_branches(path: str, trigger: Any) -> DoctorFinding:
    """Whether a workflow ignores pushes to the bot's own branches: entries of the ledger are pushes too."""
    push = trigger if isinstance(trigger, dict) else {}
    ignored = push.get("branches-ignore")
    tags_only = "tags" in push or "tags-ignore" in push
    if "branches" in push or (isinstance(ignored, list) and _RESERVED in ignored) or tags_only:
        return good("jobs.own-branches", "pushes to the bot's branches do not start it", path)
    detail = "each ledger entry and each approval starts it"
    return warning("jobs.own-branches", detail, f"on.push.branches-ignore: ['{_RESERVED}']", path)


def _started(job: BotJob) -> Iterator[DoctorFinding]:
    wanted, triggers = _TRIGGERS[job.verb], job.triggers
    if triggers.keys().isdisjoint({*wanted, "workflow_call"}):
        detail = f"gitops bot {job.verb} is never started by {' or '.join(wanted)}"
        yield warning("jobs.triggers", detail, f"on: {wanted[0]}", job.place)
    else:
        yield good("jobs.triggers", f"gitops bot {job.verb} is started by {', '.join(triggers)}", job.place)
    if "issue_comment" in triggers:
        comment = triggers["issue_comment"]
        if not isinstance(comment, dict) or comment.get("types") != ["created"]:
            detail = "edited and deleted comments start it too"
            yield warning("jobs.comments", detail, "on.issue_comment.types: [created]", job.place)


def _checkout(kind: str, job: BotJob) -> Iterator[DoctorFinding]:
    """Whether a job with secrets checks out files of a change request, which a later step may run."""
    untrusted = sorted(job.triggers.keys() & {"pull_request_target", "workflow_run", "issue_comment"})
    if untrusted and any(_HEAD.search(str(inputs.get("ref", ""))) for inputs in inputs_of(job.form, CHECKOUT)):
        detail = f"a job that {' or '.join(untrusted)} starts checks out files of a change request"
        yield error("jobs.checkout", detail, "actions/checkout without ref: the bot reads git objects", job.place)
    elif untrusted:
        yield good("jobs.checkout", "no files of a change request are checked out", job.place)
    if "pull_request_target" in untrusted and kind == "github":
        detail = "pull_request_target runs with secrets for anyone who opens a change request"
        yield warning("jobs.fork", detail, "on: pull_request without secrets, then workflow_run", job.place)


def _permissions(job: BotJob) -> Iterator[DoctorFinding]:
    """Check the permissions of a job, and that a job that reads change requests of forks has no secret."""
    check, permissions = "jobs.permissions", job.form.get("permissions", job.workflow.get("permissions"))
    if permissions is None:
        detail = "no permissions are set: the token has the default permissions of the repository"
        yield warning(check, detail, "permissions: {} at the top, and per job those of docs/forges.md", job.place)
    elif permissions == "write-all":
        yield error(check, "the token has all permissions", "list each permission (docs/forges.md)", job.place)
    else:
        yield good(check, "permissions are listed", job.place)
    # In a workflow with several triggers, a condition may keep the job from running on `pull_request`.
    condition = str(job.form.get("if", ""))
    excluded = "github.event_name" in condition and "'pull_request'" not in condition
    if "pull_request" not in job.triggers or job.verb != "plan" or excluded:
        return
    texts = [_OWN_TOKEN.sub("", text) for text in texts_of([job.form, job.workflow.get("env")])]
    if any(map(_SECRET.search, texts)) or job.form.get("secrets") == "inherit":
        detail = "the job that reads change requests of forks uses a secret"
        yield error("jobs.fork", detail, "plan without secrets on pull_request; report on workflow_run", job.place)
    elif isinstance(permissions, dict) and "write" in permissions.values():
        detail = "the job that reads change requests of forks has a token that can write"
        yield warning("jobs.fork", detail, "permissions: contents: read", job.place)
    else:
        yield good("jobs.fork", "the job that reads change requests of forks has no secret", job.place)


def _execution(job: BotJob) -> Iterator[DoctorFinding]:
    if all(str(inputs.get("fetch-depth")) == "0" for inputs in inputs_of(job.form, CHECKOUT)):
        yield good("jobs.depth", "the checkout has the full history", job.place)
    else:
        detail = "the checkout is shallow: the bot fetches the rest in every run"
        yield warning("jobs.depth", detail, "actions/checkout with fetch-depth: 0", job.place)
    for form in (job.form, job.workflow) if job.verb in ("apply", "sweep", "tick") else ():
        group = form.get("concurrency")
        if isinstance(group, dict) and group.get("cancel-in-progress") not in (None, False):
            detail = "a newer run cancels a running apply; it is recovered, but time is lost"
            yield warning("jobs.concurrency", detail, "concurrency.cancel-in-progress: false", job.place)
