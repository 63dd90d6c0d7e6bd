"""Checks of what the bot's jobs execute: pinned actions, installation by hash, an isolated Python, the wheel of the repository.

1. Every action of such a job is pinned by the full id of a commit, or is a file of the repository.
2. Every `pip install` of its scripts, of those that it extends, and of the local actions that it uses has `--require-hashes`.
3. Every Python in them that is given an option or a file is isolated: `-I` comes first.
4. A job that installs from the checkout, for change requests, checks out the target branch.
5. Requirements and wheel exist on the target branch, each requirement has a hash, and the wheel has the one that is required.

Not checked: images, actions of other repositories, and scripts that a job starts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from gitops import __version__
from gitops.core.errors import GitopsError
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.doctor.jobs import ACTION, CHECKOUT, BotJob, bot_jobs, inputs_of, read_forms
from gitops.init.files import INSTALL_FOLDER, REQUIREMENTS
from gitops.init.install import Wheel

Read = Callable[[str], bytes | None]
"""A file of the target branch by its path, None if there is none."""

_PINNED = re.compile(r"(\./.*|docker://.+@sha256:[0-9a-f]{64}|[^@]+@[0-9a-f]{40}|[^@]+@[0-9a-f]{64})", re.DOTALL)
_PIP = re.compile(r"\bpip[\d.]*[\"']?\s+(?:-\S+\s+)*install\b|\buv\s+(?:pip\s+install|tool|run)\b|\buvx\b|\bpipx\b")
_HASHES = "--require-hashes"
_PYTHON = re.compile(r"\bpython[\d.]*[\"']?\s+(?:-(?!I|V\b|-version\b)|<|[\w./$\"'{}-]+\.py\b)")
_SCRIPTS = ("before_script", "script", "after_script")
# Events whose own commit is that of a change request, the verb that is for them, and the target branch as they name it.
_REQUESTS = {
    "pull_request": ("plan", "github.event.pull_request.base.ref"),
    "merge_group": ("verify", "github.event.merge_group.base_ref"),
}
_REQUIREMENT = re.compile(r"[^\s#].*?--hash=sha256:[0-9a-f]{64}.*")
_OWN = re.compile(r"\./(cluster_gitops-([^-/\s]+)-[^/\s]+\.whl)\s+--hash=sha256:([0-9a-f]{64})")
_UPGRADE = "gitops init --upgrade, and propose what it writes"


def install_findings(
    kind: str, files: Mapping[str, bytes], read: Read, own: Callable[[], Wheel]
) -> Iterator[DoctorFinding]:
    """Make these checks of workflow files, path to content, for a kind of forge.

    `read` reads the target branch; `own` makes the wheel of the program that runs, or raises GitopsError.
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
    """The actions of a job, or of steps, by name; with the form of those that are files of the repository, and theirs in turn."""
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
    """The steps of a composite action; nothing for an action of another sort, or one that cannot be read."""
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
    """The lines of all scripts of a job, continued ones joined."""
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
    """A script of a GitLab job: its own, else that of what it extends, the last first, else the default."""
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
    """Rule 1."""
    loose = sorted({name for name, _ in uses if not _PINNED.fullmatch(name)})
    if loose:
        detail = f"not pinned by the full id of a commit: {', '.join(loose)}"
        yield error("jobs.pinned", detail, "uses: owner/name@COMMIT # version", job.place)
    else:
        yield good("jobs.pinned", "every action is pinned by commit, or in the repository", job.place)


def _installed(job: BotJob, scripts: Iterable[str]) -> Iterator[DoctorFinding]:
    """Rules 2 and 3."""
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
        yield good("jobs.isolated", "no Python imports files of the checkout", job.place)


def _of_request(job: BotJob) -> Iterator[DoctorFinding]:
    """Rule 4: without a `ref`, these events check out what the change request brings. The base of a group can be a group."""
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
    """Rule 5, and whether the jobs run the program that runs here."""
    check, content = "jobs.vendored", read(REQUIREMENTS)
    if content is None:
        yield error(check, f"the target branch has no {REQUIREMENTS}", _UPGRADE, REQUIREMENTS)
        return
    text = content.decode("utf-8", "replace").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    loose = [line for line in lines if not _REQUIREMENT.fullmatch(line)]
    found = [match for line in lines if (match := _OWN.fullmatch(line))]
    if loose or len(found) != 1:
        detail = (
            f"without a hash: {loose[0][:80]}" if loose else "the wheel of this program is not required exactly once"
        )
        yield error(check, detail, _UPGRADE, REQUIREMENTS)
        return
    name, of_jobs, digest = found[0].groups()
    wheel = read(f"{INSTALL_FOLDER}/{name}")
    if wheel is None or sha256(wheel).hexdigest() != digest:
        detail = "is missing" if wheel is None else "does not have the hash that is required"
        yield error(check, f"{name} {detail}", _UPGRADE, f"{INSTALL_FOLDER}/{name}")
    elif of_jobs != __version__:
        yield warning(check, f"jobs run version {of_jobs}, this is version {__version__}", _UPGRADE, REQUIREMENTS)
    else:
        yield _compared(of_jobs, digest, own)


def _compared(version: str, digest: str, own: Callable[[], Wheel]) -> DoctorFinding:
    """Whether jobs run the very program that runs here, which has the same version."""
    check = "jobs.vendored"
    try:
        here = own().sha256
    except GitopsError as problem:
        detail = f"jobs run version {version}; not compared with this installation: {problem.detail}"
        return unknown(check, detail, "pip install again", REQUIREMENTS)
    if here != digest:
        detail = f"jobs run another version {version}: SHA-256 {digest}, here {here}"
        return warning(check, detail, _UPGRADE, REQUIREMENTS)
    return good(check, f"jobs run version {version}, the same as here", REQUIREMENTS)
