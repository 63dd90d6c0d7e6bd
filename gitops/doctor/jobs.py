"""Checks the bot's workflows: triggers, permissions, secrets, checkout depth, executed code and ticks.

Files are read from the target branch by the strict YAML reader. A file that it rejects is reported as unchecked, never
as good. The checks don't cover whether a workflow is active, reusable workflows of other repositories, and matrices.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, NamedTuple

from gitops import __version__
from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.strategy import IdleSuspend
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.git.port import EntryType, GitReader
from gitops.init.files import INSTALL_FOLDER, REQUIREMENTS
from gitops.init.install import REQUIRED, Wheel

_TRIGGERS = {
    "plan": ("pull_request", "workflow_run", "pull_request_target", "issue_comment"),
    "command": ("issue_comment",),
    "apply": ("push",),
    "verify": ("merge_group",),
    "sweep": ("schedule",),
    "drift": ("schedule",),
    "drill": ("schedule",),
    "preview": ("workflow_run", "pull_request_target", "schedule"),
    "tick": ("schedule",),
}
_NEEDED = ("plan", "apply", "sweep")
_BY_A_SERVER = frozenset({"apply", "sweep"})
_CALL = re.compile(r"\bgitops\s+(?:--as\s+\S+\s+)?bot\s+(plan|preview|command|apply|verify|sweep|drift|drill|tick)\b")
ACTION = re.compile(r"(^|/)gitops(@|$)")
CHECKOUT = re.compile(r"actions/checkout")
_SECRET = re.compile(r"\bsecrets\s*[.\[]")
_OWN_TOKEN = re.compile(r"\bsecrets\s*\.\s*GITHUB_TOKEN\b")
# How a checkout can refer to the head of a change request.
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
    """A job in a workflow that runs a bot command."""

    place: str
    verb: str
    form: Mapping[str, Any]
    workflow: Mapping[str, Any]
    triggers: Mapping[str, Any]


def read_workflows(store: GitReader, kind: str, tree: str) -> Mapping[str, bytes]:
    """Read a root tree's workflow files for a kind of forge, by path. Links are not followed."""
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
    """Return True if a job in these workflow files (path to content) verifies merge groups."""
    return any(job.verb == "verify" and "merge_group" in job.triggers for job in all_jobs(files))


def all_jobs(files: Mapping[str, bytes]) -> list[BotJob]:
    """Return the jobs of all workflow files (path to content) that can be read."""
    return [job for path, form in read_forms(files) if isinstance(form, dict) for job in bot_jobs(path, form)]


def job_findings(kind: str, files: Mapping[str, bytes], folders: Iterable[str] = ()) -> Iterator[DoctorFinding]:
    """Run these checks on workflow files (path to content) for a kind of forge. `folders` are the cluster folders.

    GitLab's file has no triggers to check, and its jobs are recognised by their scripts.
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
            if any(job.verb == "apply" for job in bot_jobs(path, form)):
                yield from _filtered(path, triggers["push"], folders)
    if kind == "local":
        return
    verbs = sorted({job.verb for job in found})
    missing = [verb for verb in _NEEDED if verb not in verbs]
    if kind == "gitea" and verbs and _BY_A_SERVER.issuperset(missing):
        yield good("jobs.present", f"jobs run {', '.join(verbs)}; a server runs {', '.join(missing) or 'nothing else'}")
    elif not missing:
        yield good("jobs.present", f"jobs run {', '.join(verbs)}")
    elif set(missing).issubset(verb for named in unread.values() for verb in named):
        yield unknown("jobs.present", f"jobs of {', '.join(unread)} were not checked")
    else:
        detail = f"no job runs gitops bot {', '.join(missing)}"
        fix = f"gitops init --upgrade --forge {kind}, and propose what it writes"
        if found:
            fix = f"compare the workflows with those of this release: gitops init --diff --forge {kind} --bot-key FILE"
        yield warning("jobs.present", detail, fix)
    for job in found if kind in _HOSTED else ():
        yield from _started(kind, job)
        yield from _checkout(kind, job)
        yield from _permissions(job)
        yield from _execution(job)
    # A job can run several verbs.
    for job in {job.place: job for job in found}.values() if kind == "gitea" else ():
        yield from _secrets(job)


def read_forms(files: Mapping[str, bytes]) -> Iterator[tuple[str, dict[str, Any] | DoctorFinding]]:
    """Yield each file as plain values, or a finding that it was not checked."""
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
    """Return the jobs that run the bot, through the action with its input `verb` or through a script."""
    named = form.get("jobs") if isinstance(form.get("jobs"), dict) else form
    found = []
    for name, job in named.items() if isinstance(named, dict) else ():
        if isinstance(job, dict):
            verbs = [verb for given in inputs_of(job, ACTION) if (verb := str(given.get("verb"))) in _TRIGGERS]
            verbs += [verb for text in texts_of(job) for verb in _CALL.findall(text)]
            found += [BotJob(f"{path}: {name}", verb, job, form, _triggers(form)) for verb in dict.fromkeys(verbs)]
    return found


def inputs_of(job: Mapping[str, Any], action: re.Pattern[str]) -> list[dict[str, Any]]:
    """Return the inputs of the job's steps that use an action. Leaves out steps whose inputs are not a mapping."""
    steps = job.get("steps")
    using = [s for s in steps if isinstance(s, dict)] if isinstance(steps, list) else []
    given = [step.get("with") or {} for step in using if action.search(str(step.get("uses", "")))]
    return [inputs for inputs in given if isinstance(inputs, dict)]


def texts_of(value: Any) -> Iterator[str]:
    """Yield every string inside a value. The strict reader limits the depth."""
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
    """Return a workflow's triggers. `on` can be a word, a list or a mapping."""
    given = form.get("on")
    if isinstance(given, str):
        return {given: None}
    if isinstance(given, list):
        return {str(name): None for name in given}
    return given if isinstance(given, dict) else {}


def _own_branches(path: str, trigger: Any) -> DoctorFinding:
    """Check that a workflow ignores pushes to the bot's own branches, because pushing ledger entries would trigger it."""
    push = trigger if isinstance(trigger, dict) else {}
    ignored = push.get("branches-ignore")
    tags_only = "tags" in push or "tags-ignore" in push
    if "branches" in push or (isinstance(ignored, list) and _RESERVED in ignored) or tags_only:
        return good("jobs.own-branches", "pushes to the bot's branches do not start it", path)
    detail = "each ledger entry and each approval starts it"
    return warning("jobs.own-branches", detail, f"on.push.branches-ignore: ['{_RESERVED}']", path)


def _filtered(path: str, trigger: Any, folders: Iterable[str]) -> Iterator[DoctorFinding]:
    """Report the cluster folders that a path filter excludes, so that only the sweep finds their merges."""
    listed = trigger.get("paths") if isinstance(trigger, dict) else None
    if not isinstance(listed, list):
        return
    kept = [str(each).removesuffix("**") for each in listed if str(each).endswith("/**") or each == "**"]
    missed = [folder for folder in folders if not any(f"{folder}/".startswith(each) for each in kept)]
    if missed:
        add = " and ".join(f"'{folder}/**'" if folder != "." else "'**'" for folder in missed)
        yield warning(
            "jobs.paths",
            f"a merge that changes only {', '.join(missed)} waits for the sweep",
            f"on.push.paths: add {add}",
            path,
        )
    else:
        yield good("jobs.paths", "the filter of paths contains the folder of every cluster", path)


def _started(kind: str, job: BotJob) -> Iterator[DoctorFinding]:
    wanted, triggers = _TRIGGERS[job.verb], job.triggers
    if kind == "gitea" and job.verb == "apply":
        wanted = ("pull_request_target", *wanted)
        yield from _cancelled(job)
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


def _cancelled(job: BotJob) -> Iterator[DoctorFinding]:
    """Check that a push can't cancel an apply.

    Gitea up to 1.25 and Forgejo cancel the unfinished runs of the same workflow, branch and event at each push, whatever
    `concurrency` says. A run that a merged request started goes on.
    """
    condition = str(job.form.get("if", ""))
    if "push" in job.triggers and ("github.event_name" not in condition or "'push'" in condition):
        detail = "each push cancels the apply that an earlier push started, which leaves a lock"
        fix = "apply in a separate workflow that merges start: on.pull_request_target.types: [closed] (docs/forge-gitea.md)"
        yield warning("jobs.concurrency", detail, fix, job.place)
    else:
        yield good("jobs.concurrency", "a push does not cancel an apply", job.place)


def _checkout(kind: str, job: BotJob) -> Iterator[DoctorFinding]:
    """Check that no job with secrets checks out files of a change request, which a later step could run."""
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
    """Check a job's permissions, and that a job that reads change requests from forks has no secrets."""
    check, permissions = "jobs.permissions", job.form.get("permissions", job.workflow.get("permissions"))
    if permissions is None:
        detail = "no permissions are set: the token has the default permissions of the repository"
        yield warning(check, detail, "permissions: {} at the top, and per job those of docs/forges.md", job.place)
    elif permissions == "write-all":
        yield error(check, "the token has all permissions", "list each permission (docs/forges.md)", job.place)
    else:
        yield good(check, "permissions are listed", job.place)
    # In a workflow with several triggers, a condition can keep the job from running on `pull_request`.
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


def _secrets(job: BotJob) -> Iterator[DoctorFinding]:
    """Check that a job on Gitea or Forgejo has no secrets, because these forges give them to the workflows of all branches."""
    if any(map(_SECRET.search, texts_of([job.form, job.workflow.get("env")]))) or job.form.get("secrets") == "inherit":
        detail = (
            "everyone with write access can read the job's secrets with a workflow in a branch, and sign ledger entries"
        )
        fix = "run the bot on a server (docs/serve.md), delete the secrets, and create a new bot key"
        yield error("jobs.secrets", detail, fix, job.place)
    else:
        yield good("jobs.secrets", "the job has no secrets", job.place)


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


# Checks of the code that the bot's jobs execute: pinned actions, installation by hash, isolated Python, and the
# repository's wheel.
#
# 1. Every action in such a job is pinned by a full commit id, or is a file in the repository.
# 2. Every `pip install` and `pip download` in its scripts, in scripts that it extends, and in its local actions uses
#    `--require-hashes`.
# 3. Every Python in them that runs with an option or a file is isolated: `-I` comes first.
# 4. A job that installs from the checkout for change requests checks out the target branch.
# 5. Requirements and wheel exist on the target branch, each requirement has a hash, and the wheel's hash matches.
#
# Images, actions of other repositories, and scripts that a job starts are not checked.


Read = Callable[[str], bytes | None]
"""Reads a file on the target branch by its path; None if it does not exist."""

_PINNED = re.compile(r"(\./.*|docker://.+@sha256:[0-9a-f]{64}|[^@]+@[0-9a-f]{40}|[^@]+@[0-9a-f]{64})", re.DOTALL)
_PIP = re.compile(
    r"\bpip[\d.]*[\"']?\s+(?:-\S+\s+)*(?:install|download)\b|\buv\s+(?:pip\s+install|tool|run)\b|\buvx\b|\bpipx\b"
)
_HASHES = "--require-hashes"
_PYTHON = re.compile(r"\bpython[\d.]*[\"']?\s+(?:-(?!I|V\b|-version\b)|<|[\w./$\"'{}-]+\.py\b)")
_SCRIPTS = ("before_script", "script", "after_script")
# Events whose commit belongs to a change request, the verb that handles each, and their name for the target branch.
_REQUESTS = {
    "pull_request": ("plan", "github.event.pull_request.base.ref"),
    "merge_group": ("verify", "github.event.merge_group.base_ref"),
}
_REQUIREMENT = re.compile(r"[^\s#].*?--hash=sha256:[0-9a-f]{64}.*")
_OWN = re.compile(
    r"\./(?P<name>cluster_gitops-(?P<version>[^-/\s]+)-[^/\s]+\.whl)\s+--hash=sha256:(?P<sha256>[0-9a-f]{64})"
)
_UPGRADE = "gitops init --upgrade, and propose what it writes"


class InstalledWheel(NamedTuple):
    """The wheel that jobs install: its file name, version and SHA-256, and whether a release or the repository provides it."""

    name: str
    version: str
    sha256: str
    released: bool


def install_findings(
    kind: str, files: Mapping[str, bytes], read: Read, own: Callable[[], Wheel]
) -> Iterator[DoctorFinding]:
    """Check how workflow files (path to content) install the program, for a kind of forge.

    `read` reads the target branch; `own` packs the wheel of the running program, or raises GitopsError.
    """
    forms = {path: form for path, form in read_forms(files) if isinstance(form, dict)}
    jobs = [job for path, form in forms.items() for job in bot_jobs(path, form)] if kind != "local" else []
    vendored = False
    for job in jobs:
        uses = list(_uses(job.form, read))
        scripts = list(_scripts(job.form, forms, uses))
        yield from _pinned(job, uses)
        yield from _installed(job, scripts)
        installs = bool(inputs_of(job.form, ACTION)) or any(INSTALL_FOLDER in text for text in scripts)
        vendored = vendored or installs
        if installs:
            yield from _of_request(job)
    if vendored:
        yield from _vendored(read, own)


def _uses(
    form: Mapping[str, Any], read: Read, seen: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the actions of a job or of steps by name, with the content of local ones and, recursively, their actions."""
    steps = form.get("steps")
    for part in (form, *(steps if isinstance(steps, list) else ())):
        name = str(part.get("uses", "")) if isinstance(part, dict) else ""
        if not name or name in seen:
            continue
        inner: Mapping[str, Any] = {}
        if name.startswith("./"):
            path = name.removeprefix("./").rstrip("/")
            content = next((c for end in ("yml", "yaml") if (c := read(f"{path}/action.{end}")) is not None), None)
            inner = _runs(content)
        yield name, inner
        yield from _uses(inner, read, seen | {name})


def _runs(content: bytes | None) -> Mapping[str, Any]:
    """Return the steps of a composite action; empty for an unreadable action or a different type."""
    try:
        form = to_plain(parse_yaml(content or b""))
    except YamlError:
        return {}
    runs = form.get("runs") if isinstance(form, dict) else None
    return runs if isinstance(runs, dict) else {}


def _scripts(
    form: Mapping[str, Any],
    forms: Mapping[str, Mapping[str, Any]],
    uses: Iterable[tuple[str, Mapping[str, Any]]],
) -> Iterator[str]:
    """Yield the lines of all scripts of a job, with continuation lines joined."""
    texts: list[Any] = []
    for part in (form, *(inner for _, inner in uses)):
        steps = part.get("steps")
        texts += [step.get("run") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    texts += [_inherited(form, key, forms) for key in _SCRIPTS]
    for text in texts:
        whole = "\n".join(map(str, text)) if isinstance(text, list) else str(text or "")
        lines = (line.strip() for line in whole.replace("\\\n", " ").splitlines())
        yield from (line for line in lines if line and not line.startswith("#"))


def _inherited(form: Mapping[str, Any], key: str, forms: Mapping[str, Mapping[str, Any]], depth: int = 10) -> Any:
    """Return a script of a GitLab job: its own, otherwise from the last `extends` that has one, otherwise the default."""
    if key in form or not depth:
        return form.get(key)
    names = form.get("extends")
    for name in reversed(names if isinstance(names, list) else [names] if names else []):
        for each in forms.values():
            parent = each.get(str(name))
            found = _inherited(parent, key, forms, depth - 1) if isinstance(parent, dict) else None
            if found is not None:
                return found
    defaults = [each.get("default") for each in forms.values()]
    return next((each[key] for each in defaults if isinstance(each, dict) and key in each), None)


def _pinned(job: BotJob, uses: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[DoctorFinding]:
    """Check rule 1."""
    loose = sorted({name for name, _ in uses if not _PINNED.fullmatch(name)})
    if loose:
        detail = f"not pinned by the full id of a commit: {', '.join(loose)}"
        yield error("jobs.pinned", detail, "uses: owner/name@COMMIT # version", job.place)
    else:
        yield good("jobs.pinned", "every action is pinned by commit, or in the repository", job.place)


def _installed(job: BotJob, scripts: Iterable[str]) -> Iterator[DoctorFinding]:
    """Check rules 2 and 3."""
    lines = list(scripts)
    unhashed = [line for line in lines if _PIP.search(line) and _HASHES not in line]
    if unhashed:
        detail = f"installs without hashes: {unhashed[0][:120]}"
        yield error("jobs.install", detail, f"pip install {_HASHES} --requirement {REQUIREMENTS}", job.place)
    else:
        yield good("jobs.install", "nothing is installed without its hash", job.place)
    open_to_files = [line for line in lines if _PYTHON.search(line)]
    if open_to_files:
        detail = f"a Python that imports files of the checkout: {open_to_files[0][:120]}"
        yield error("jobs.isolated", detail, "python -I", job.place)
    else:
        yield good("jobs.isolated", "Python does not import any file from the checkout", job.place)


def _of_request(job: BotJob) -> Iterator[DoctorFinding]:
    """Check rule 4.

    Without a `ref`, these events check out the content of the change request. The base of a group can itself be a
    group.
    """
    condition = str(job.form.get("if", ""))
    for event, (verb, target) in _REQUESTS.items():
        excluded = "github.event_name" in condition and f"'{event}'" not in condition
        if event not in job.triggers or verb != job.verb or excluded:
            continue
        refs = [str(inputs.get("ref", "")) for inputs in inputs_of(job.form, CHECKOUT)]
        if not refs or any(not ref or ("${{" in ref and target not in ref) for ref in refs):
            detail = f"on {event} the program is not that of the target branch"
            yield error("jobs.install", detail, f"actions/checkout with ref: ${{{{ {target} }}}}", job.place)


def _vendored(read: Read, own: Callable[[], Wheel]) -> Iterator[DoctorFinding]:
    """Check rule 5, and whether jobs run the same program as this one."""
    check, content = "jobs.vendored", read(REQUIREMENTS)
    if content is None:
        yield error(check, f"the target branch has no {REQUIREMENTS}", _UPGRADE, REQUIREMENTS)
        return
    found = required_wheel(content)
    if isinstance(found, str):
        yield error(check, found, _UPGRADE, REQUIREMENTS)
        return
    name, of_jobs, digest, released = found
    wheel = None if released else read(f"{INSTALL_FOLDER}/{name}")
    if not released and (wheel is None or sha256(wheel).hexdigest() != digest):
        detail = "is missing" if wheel is None else "does not have the hash that is required"
        yield error(check, f"{name} {detail}", _UPGRADE, f"{INSTALL_FOLDER}/{name}")
    elif of_jobs != __version__:
        yield warning(check, f"jobs run version {of_jobs}, this is version {__version__}", _UPGRADE, REQUIREMENTS)
    elif released:
        yield good(check, f"jobs run version {of_jobs} of a release, by its hash", REQUIREMENTS)
    else:
        yield _compared(of_jobs, digest, own)


def required_wheel(content: bytes) -> InstalledWheel | str:
    """Return the program's wheel from a requirements file in which everything has hashes, or what is wrong with the file."""
    text = content.decode("utf-8", "replace").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    loose = [line for line in lines if not _REQUIREMENT.fullmatch(line)]
    found = [match for line in lines if (match := _OWN.fullmatch(line) or REQUIRED.fullmatch(line))]
    if loose:
        return f"without a hash: {loose[0][:80]}"
    if len(found) != 1:
        return "the wheel of this program is not required exactly once"
    return InstalledWheel(found[0]["name"], found[0]["version"], found[0]["sha256"], found[0].re is REQUIRED)


def _compared(version: str, digest: str, own: Callable[[], Wheel]) -> DoctorFinding:
    """Check that jobs run exactly the running program, which has the same version."""
    check = "jobs.vendored"
    try:
        here = own().sha256
    except GitopsError as problem:
        detail = f"jobs run version {version}; not compared with this installation: {problem.detail}"
        return unknown(check, detail, "pip install again", REQUIREMENTS)
    if here != digest:
        detail = f"jobs run a different version, {version}: SHA-256 {digest}, here {here}"
        return warning(check, detail, _UPGRADE, REQUIREMENTS)
    return good(check, f"jobs run version {version}, the same as here", REQUIREMENTS)


# Checks that ticks run: which job runs them, how often, and whether it can reach the targets.


_CHECK = "jobs.ticks"
_SCHEDULES = "docs/strategy-ticks.md#schedules"
_MINUTES = re.compile(r"(\*|\d{1,2})(?:-(\d{1,2}))?(?:/(\d{1,2}))?", re.ASCII)


def tick_findings(
    kind: str, files: Mapping[str, bytes], rules: Mapping[str, Sequence[ComputeRules]]
) -> Iterator[DoctorFinding]:
    """Run the tick checks on workflow files (path to content), for a kind of forge.

    `rules` are the strategies that the repository's clusters declare, by cluster name. Without any, nothing is checked.
    """
    if not any(rules.values()):
        return
    if kind == "local":
        fix = f"on the server, by a timer: gitops bot tick --scheduled ({_SCHEDULES})"
        yield unknown(_CHECK, "a timer of the server is not visible from here", fix)
        return
    every = all_jobs(files)
    jobs = [job for job in every if job.verb == "tick"]
    if not jobs and kind == "gitea" and not any(job.verb == "apply" for job in every):
        yield unknown(_CHECK, "whether a server runs ticks cannot be seen", "gitops bot serve with --tick-every 5m")
    elif not jobs:
        detail = "clusters have strategies, but no job runs ticks"
        chosen = "" if every else f" --forge {kind}"
        yield warning(_CHECK, detail, f"gitops init --upgrade --strategies{chosen}, and propose what it writes")
    for job in jobs:
        if kind == "gitlab":
            detail = "GitLab keeps schedules outside of the repository"
            fix = f"Build > Pipeline schedules: one with the variable GITOPS_VERB = tick ({_SCHEDULES})"
            yield unknown(_CHECK, detail, fix, job.place)
        else:
            yield from _schedule(job, rules)
            yield from _variables(job, rules)


def interval_of(cron: str) -> int | None:
    """Return the longest time in seconds between two runs of a schedule; None if it differs between hours."""
    first_field, *others = cron.split() or [""]
    if others != ["*"] * 4:
        return None
    minutes: set[int] = set()
    for part in first_field.split(","):
        found = _MINUTES.fullmatch(part)
        if found is None:
            return None
        first, last, step = found.groups()
        start = 0 if first == "*" else int(first)
        end = 59 if first == "*" or (step and not last) else int(last or first)
        minutes |= set(range(start, min(end, 59) + 1, int(step or 1) or 60))
    if not minutes:
        return None
    ordered = sorted(minutes)
    return 60 * max(after - before for before, after in pairwise([*ordered, ordered[0] + 60]))


def _schedule(job: BotJob, rules: Mapping[str, Sequence[ComputeRules]]) -> Iterator[DoctorFinding]:
    schedule = job.triggers.get("schedule")
    crons = [str(each.get("cron")) for each in schedule if isinstance(each, dict)] if isinstance(schedule, list) else []
    intervals = [seconds for cron in crons if (seconds := interval_of(cron)) is not None]
    if not intervals:
        yield unknown(_CHECK, "how often it runs was not found", 'on.schedule: [{cron: "*/5 * * * *"}]', job.place)
        return
    interval, short = min(intervals), False
    for folder, clusters in rules.items():
        for each in clusters:
            for rule in each.rules:
                if isinstance(rule, IdleSuspend) and rule.idle_after_s < 2 * interval:
                    short = True
                    detail = (
                        f"{each.key} suspends after {rule.idle_after_s} s without activity, and ticks come every {interval} s:"
                        " a short pause suspends it"
                    )
                    fix = f"idle_after_s: {2 * interval} or more, or a shorter schedule"
                    yield warning(_CHECK, detail, fix, f"{folder}: {each.key}")
    if not short:
        yield good(_CHECK, f"ticks come every {interval} s", job.place)


def _variables(job: BotJob, rules: Mapping[str, Sequence[ComputeRules]]) -> Iterator[DoctorFinding]:
    """Check that a job sets all variables that targets need, because runners don't pass on any others."""
    named = set(re.findall(r"\w+", " ".join(texts_of([job.form, job.workflow.get("env")]))))
    wanted = {each.target.url_env for clusters in rules.values() for each in clusters}
    for variable in sorted(wanted - named):
        detail = f"the job does not get {variable}, the URL of a target"
        yield warning(_CHECK, detail, f"env: {{{variable}: ${{{{ secrets.{variable} }}}}}}", job.place)
