"""`gitops init`: collects the values, writes the files and prints the remaining steps.

On a terminal it asks for missing values; otherwise it derives them from the repository. If a value is still missing,
the command fails before it writes any file.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import gitops
from gitops.cli.shared import FAILED, OK, say_lines, show_error, show_form
from gitops.cluster.config.gitops_yaml import CONFIG_FILE
from gitops.core.codes import Code, Severity
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.init.disk import create_file, list_files, read_file, read_templates, remove_file
from gitops.init.files import (
    INSTALL_FOLDER,
    OPTIONAL_PIPELINES,
    REQUIREMENTS,
    FileState,
    ForgeKind,
    InitOutcome,
    InitRequest,
    OptionalJobs,
    PublicKey,
    find_cluster,
    find_path,
    missing_includes,
)
from gitops.init.files import init as plan_files
from gitops.init.install import JOBS, Wheel, dependencies_of_jobs, install_files, released, running_wheel
from gitops.init.install import upgrade as plan_upgrade
from gitops.init.split import is_split
from gitops.init.steps import SetupStep, next_steps, upgrade_steps
from gitops.render.commands import completing, with_typed
from gitops.render.text import diagnostic_lines
from gitops.repository.wiring.repository import Checkout, make_key, open_checkout, read_public_key

_HOSTS = {"github.com": ForgeKind.GITHUB, "gitlab.com": ForgeKind.GITLAB, "codeberg.org": ForgeKind.GITEA}
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")

Ask = Callable[[str, str | None], str | None]


def init(options: argparse.Namespace) -> int:
    """`gitops init`. Exits 1 if a file that it would write exists and differs, or if keys and rules contradict each other.

    With `--diff`, the differences are the answer and don't change the exit code.
    """
    # What a remedy adds to this command is added to what was typed, which is not asked again then.
    with completing(partial(with_typed, "init", options.line)):
        try:
            return _init(options)
        except GitopsError as error:
            return show_error(error, options, as_json=options.json)


def _init(options: argparse.Namespace) -> int:
    checkout = open_checkout(options.folder)
    options.dry_run = options.dry_run or options.diff
    if options.upgrade:
        if options.report:
            detail = "--report is for new repositories; it cannot be combined with --upgrade"
            fix = "copy the job that gitops init --report writes in an empty repository"
            raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
        return _upgrade(options, checkout)
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty() and not (options.yes or options.json)
    ask: Ask = _ask if on_terminal else lambda _, default: default
    made_key = _bot_key(options, checkout, ask)
    request, templates = _request(options, checkout, ask), read_templates()
    if request.report and request.forge not in OPTIONAL_PIPELINES[OptionalJobs.REPORT]:
        detail = f"--report adds a job that publishes pages, which {request.forge} does not have"
        fix = "write the pages on the server after each apply: gitops report --output DIR"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    # Hooks run the installed program; jobs install what the repository contains.
    has_jobs = request.forge is not ForgeKind.HOOKS
    read = partial(read_file, checkout.root)
    wanted = dependencies_of_jobs(templates, read, strategies=options.strategies)
    install = install_files(_wheel(options), wanted) if has_jobs else {}
    outcome = plan_files(request, templates, install, read)
    given = os.path.realpath(os.path.expanduser(options.bot_key)) if options.bot_key else ""  # noqa: PTH111
    private_key = options.new_bot_key or given.removesuffix(".pub") or None
    lines = [] if options.no_signing or options.dry_run else _sign_commits(options, checkout)
    graphs, policies = request.found.graphs, [f"{request.path}/{file}" for _, file in request.found.policies]
    schemas = [f"{request.path}/{graph.schema}" for graph in graphs]
    queries = [f"{request.path}/{graph.queries}" for graph in graphs if graph.queries]
    for kind, paths in (("schemas", schemas), ("queries", queries), ("policies", policies)):
        lines += [f"found {kind}: {', '.join(paths)}: declared in cluster.yaml, and not changed"] if paths else []
    lines += ["each policy applies to all graphs: check `applies_to` in cluster.yaml"] if policies else []
    if made_key:
        lines.append(f"made {options.new_bot_key}: the bot's private key. Keep it out of every repository")
    return _finish(options, checkout, outcome, next_steps(request, checkout.server, private_key), lines)


def _upgrade(options: argparse.Namespace, checkout: Checkout) -> int:
    """Upgrade the files that jobs install to the running version, and add jobs for `--forge` and optional ones."""
    templates, read = read_templates(), partial(read_file, checkout.root)
    optional = [each for each in OptionalJobs if getattr(options, each.value)]
    # Hooks run the installed program.
    forge = None if options.forge in (None, ForgeKind.HOOKS) else ForgeKind(options.forge)
    jobs = (*chain(*JOBS.values()), REQUIREMENTS)
    has_jobs = optional or forge or any(read(path) is not None for path in jobs)
    wanted = dependencies_of_jobs(templates, read, strategies=options.strategies)
    install = install_files(_wheel(options), wanted) if has_jobs else {}
    present = list_files(checkout.root, INSTALL_FOLDER)
    on_cloud = _is_on_cloud(checkout)
    outcome = plan_upgrade(install, templates, read, present, optional=optional, forge=forge, cloud=on_cloud)
    changed = any(file.state is not FileState.SAME for file in outcome.files)
    added = [file.path for file in outcome.files if file.state is FileState.NEW]
    differ = (file for file in outcome.files if file.state is FileState.DIFFERS)
    lacks = [line for file in differ for line in missing_includes(file.path, file.before or b"", file.content)]
    steps = upgrade_steps(gitops.__version__, added, lacks, split=is_split(outcome)) if changed else ()
    problems = Diagnostics(outcome.diagnostics)
    lines, form = _proposed_rules(options, checkout, problems)
    outcome = replace(outcome, diagnostics=tuple(problems))
    return _finish(options, checkout, outcome, steps, lines, {"rules": form})


def _proposed_rules(
    options: argparse.Namespace, checkout: Checkout, problems: Diagnostics
) -> tuple[list[str], dict[str, object] | None]:
    """Propose the approval rule of new repositories as a change request, if this repository lacks it.

    Returns lines about the request, and their JSON form. The `gitops.yaml` in the work tree doesn't change, because a
    repository's rules change only by review.
    """
    from gitops.cli.requests import propose
    from gitops.repository.proposals import strict_rules
    from gitops.repository.wiring.local import LocalRepository

    try:
        local = LocalRepository(checkout.root)
        found = strict_rules(local)
        if found is None:
            return [], None
        old, new = (local.git.read(tree, CONFIG_FILE) or b"" for tree in (found.old, found.new))
        diff = list(_diff(CONFIG_FILE, old, new))
        form: dict[str, object] = {"diff": "".join(f"{line}\n" for line in diff)}
        lines = [f"{CONFIG_FILE} of {found.rule.branch} lacks a rule of new repositories:", *diff]
        ref = f"refs/heads/{_RULES_BRANCH}"
        if local.head_of(ref) or local.git.resolve(ref):
            return [*lines, f"branch {_RULES_BRANCH} already proposes it"], {**form, "branch": _RULES_BRANCH}
        if options.dry_run:
            return [*lines, f"would propose it on branch {_RULES_BRANCH}"], {**form, "branch": None}
        said, made = propose(local, found, _RULES_BRANCH)
    except GitopsError as error:
        problems.add_error(error)
        return [], None
    return [*lines, *said], {**form, **made}


_RULES_BRANCH = "upgrade-approval-rules"


def _wheel(options: argparse.Namespace) -> Wheel:
    """Return the wheel that jobs install, either from a release or packed from the running installation."""
    return released(options.wheel) if options.wheel else running_wheel()


def _finish(
    options: argparse.Namespace,
    checkout: Checkout,
    outcome: InitOutcome,
    steps: Sequence[SetupStep],
    lines: list[str],
    more: Mapping[str, object] = MappingProxyType({}),
) -> int:
    """Write the files, then show `lines`, the files, the problems and the remaining steps."""
    problems = Diagnostics(
        replace(each, severity=Severity.WARNING) if options.diff and each.code is Code.INIT_FILE_DIFFERS else each
        for each in outcome.diagnostics
    )
    made: list[str] = [] if options.dry_run else list(_write(checkout.root, outcome, problems))
    if options.json:
        show_form(
            {
                "ok": not problems.has_errors,
                "files": [{"path": f.path, "state": str(f.state), "made": f.path in made} for f in outcome.files],
                "notes": lines,
                **more,
                "next": [{"text": step.text, "commands": list(step.commands)} for step in steps],
                "problems": problems.to_json(),
            }
        )
    else:
        for file in outcome.files:
            if file.path in made:
                lines.append(_DONE[file.state].format(file.path))
            elif file.state is not FileState.OWN or file.before is not None:
                lines.append(_WORDS[file.state].format(file.path))
        said = [] if options.quiet else lines
        # A warning is about the first push, which makes it final, so its remedy is always shown.
        problem_lines = diagnostic_lines(problems, verbose=True)
        lines = [*(_diffs(outcome) if options.diff else ()), *said, *problem_lines]
        if steps and not (options.dry_run or options.quiet or problems.has_errors):
            lines += ["", "Remaining steps:"]
            for number, step in enumerate(steps, start=1):
                lines += [f"{number}. {step.text}", *(f"     {command}" for command in step.commands)]
        say_lines(lines)
    return FAILED if problems.has_errors else OK


def _write(root: str, outcome: InitOutcome, problems: Diagnostics) -> Iterator[str]:
    """Write new and upgraded files, then remove obsolete ones; return the paths of both."""
    for file in outcome.files:
        if file.state in (FileState.NEW, FileState.RENEWED):
            if create_file(root, file.path, file.content, replace=file.state is FileState.RENEWED):
                yield file.path
            else:
                problems.add(Code.INIT_FILE_DIFFERS, file.path, f"{file.path} was created by another process")
    for file in outcome.files:
        if file.state is FileState.OBSOLETE:
            remove_file(root, file.path)
            yield file.path


def _ask(question: str, default: str | None) -> str | None:
    """Ask a question on the terminal. An empty answer selects the default."""
    answer = input(f"{question}{f' [{default}]' if default else ''}: ").strip()
    return answer or default


def _request(options: argparse.Namespace, checkout: Checkout, ask: Ask) -> InitRequest:
    """Collect all values.

    Raises UsageError `usage_error`, GitopsError `actor_required`, `init_key_missing`, `init_key_refused`.
    """
    # The address of origin reveals the kind of forge for well-known hosts; a local folder uses hooks.
    known = ForgeKind.HOOKS if checkout.server is not None else _HOSTS.get(checkout.host or "")
    forge = options.forge or ask("Where are change requests: github, gitlab, gitea or hooks", known)
    if forge not in [str(kind) for kind in ForgeKind]:
        raise UsageError(Code.USAGE_ERROR, "set --forge to github, gitlab, gitea or hooks")
    name = _UNFIT.sub("-", checkout.name.rpartition("/")[2]).strip("-")
    cluster = options.cluster or ask("Name of the cluster", name if name[:1].isalpha() else "main") or ""
    principal, key = _yourself(options, checkout)
    default = f"bot@{principal.partition('@')[2]}" if "@" in principal else "gitops-bot"
    bot = options.bot or ask("Name of the bot that signs the ledger", default) or ""
    public = options.bot_key or options.new_bot_key or ask("Public key of the bot", None)
    if not public:
        detail = "the bot that signs the ledger has no key"
        fix = "create one: gitops init --new-bot-key FILE; or use an existing one: gitops init --bot-key FILE"
        raise GitopsError(Code.INIT_KEY_MISSING, detail, fix=fix)
    will_be_made = options.dry_run and options.new_bot_key and not Path(options.new_bot_key).exists()
    approvers = [(principal, key, "--key FILE"), *_other_approvers(options.approver or [])]
    accounts = list(options.account or [])
    if not accounts and forge != ForgeKind.HOOKS:
        found = ask(f"Your account on {forge} by its number, such as {forge}:583231 (empty: add it later)", None)
        accounts = [found] if found else []
    pairs = [text.rpartition("=")[::2] for text in accounts]

    def names(folder: str) -> list[str]:
        try:
            return list_files(checkout.root, folder)
        except GitopsError:
            return []  # The path exists as a file or a link. The code that reads it later reports why it cannot.

    path = options.path or ask("Folder of the cluster", find_path(names) or "cluster") or ""
    record = options.record_key or ask(
        "Public key with which servers record who calls which query (empty: no record)", None
    )
    return InitRequest(
        cluster=cluster,
        accounts=tuple((account, name or principal) for name, account in pairs),
        path=path,
        found=find_cluster(path, cluster, names),
        repository=checkout.name,
        forge=ForgeKind(forge),
        bot=bot,
        bot_key=_passing_key() if will_be_made else _public_key(public, "--bot-key FILE"),
        approvers=tuple((who, _public_key(file, option)) for who, file, option in approvers),
        branch=options.branch or checkout.branch() or "main",
        storage=options.storage,
        action=options.action,
        strategies=options.strategies,
        report=options.report,
        previews=options.previews,
        drills=options.drills,
        apply_in_jobs=options.apply_in_jobs,
        record_key=_public_key(record, "--record-key FILE") if record else None,
        enterprise=forge == ForgeKind.GITHUB and not _is_on_cloud(checkout),
    )


def _other_approvers(given: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the name and the key file of each further approver, with the option that names it. Raises UsageError."""
    for text in given:
        name, equals, file = text.partition("=")
        if not equals or not name or not file:
            raise UsageError(Code.USAGE_ERROR, f"--approver takes PRINCIPAL=FILE, not {text[:80]!r}")
        yield name, file, f"--approver {shlex.quote(name)}=FILE"


def _yourself(options: argparse.Namespace, checkout: Checkout) -> tuple[str, str]:
    """Return the principal and the key of whoever runs this. Raises GitopsError `actor_required`, `init_key_missing`."""
    principal = checkout.git.config("user.email")
    key = options.key or checkout.git.config("user.signingKey", path=True)
    if not principal:
        detail, fix = "git config user.email is not set", "git config user.email ADDRESS; then run the command again"
        raise GitopsError(Code.ACTOR_REQUIRED, f"{detail}: it is your name in the rules", fix=fix)
    if not key:
        raise GitopsError(Code.INIT_KEY_MISSING, "git config user.signingKey is not set, and --key FILE names no key")
    return principal, key


def _is_on_cloud(checkout: Checkout) -> bool:
    """Return False for a self-hosted GitHub."""
    # github.com or GitHub Enterprise Cloud. An ssh alias such as `work` doesn't contain a dot.
    return re.fullmatch(r"[^.]*|(ssh\.)?github\.com|.*\.ghe\.com", checkout.host or "", re.DOTALL) is not None


def _public_key(named: str, option: str) -> PublicKey:
    """Read a public key. If it cannot be used, the remedy shows the `option` that names it."""
    try:
        return PublicKey(*read_public_key(named))
    except GitopsError as error:
        error.fix = f"pass the .pub file of an SSH key outside the repository: gitops init {option}"
        raise


def _passing_key() -> PublicKey:
    """Return the public half of a temporary key, which stands for the key that a real run would create."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/key"
        make_key(path, "gitops")
        return PublicKey(*read_public_key(path))


def _sign_commits(options: argparse.Namespace, checkout: Checkout) -> list[str]:
    """Configure git to sign the commits and pushes of this clone, so that their author is known.

    Returns lines about the settings. Existing user settings are kept, including a different signing program.
    """
    if checkout.git.config("gpg.format") not in (None, "ssh"):
        return ["kept gpg.format: only commits that are signed with SSH keys show the bot who wrote them"]
    given = os.path.realpath(os.path.expanduser(options.key)) if options.key else None  # noqa: PTH111
    key = checkout.git.config("user.signingKey", path=True) or given
    wanted = {"gpg.format": "ssh", "user.signingKey": key, "commit.gpgSign": "true", "push.gpgSign": "if-asked"}
    missing = {name: value for name, value in wanted.items() if value and checkout.git.config(name) is None}
    for name, value in missing.items():
        if not checkout.git.run("config", "--local", "--", name, value).ok:
            return [f"{name} could not be set: your commits are not signed"]
    said = ", ".join(f"{name}={value}" for name, value in missing.items())
    why = "your commits are signed, which shows the bot who wrote them; --no-signing skips this"
    return [f"set in this clone: {said}: {why}"] if missing else []


def _bot_key(options: argparse.Namespace, checkout: Checkout, ask: Ask) -> bool:
    """Create the bot's key if requested, and return whether it was created. Raises GitopsError `init_key_refused`."""
    if options.bot_key and options.new_bot_key:
        raise UsageError(
            Code.USAGE_ERROR, "--bot-key names an existing key, --new-bot-key creates one: use one of them"
        )
    if not (options.bot_key or options.new_bot_key):
        options.new_bot_key = ask("File for a new key of the bot, outside the repository (empty: it has a key)", None)
    if not options.new_bot_key:
        return False
    path = os.path.realpath(os.path.expanduser(options.new_bot_key))  # noqa: PTH111
    parents = Path(path).parents
    if Path(checkout.root) in parents or any((folder / ".git").exists() for folder in parents):
        detail = f"{path} is inside a repository, where a private key must not be"
        fix = "choose a file outside every repository: gitops init --new-bot-key FILE"
        raise GitopsError(Code.INIT_KEY_REFUSED, detail, path=path, fix=fix)
    options.new_bot_key = path
    if options.dry_run:
        return False
    try:
        return make_key(path, options.bot or "gitops")
    except GitopsError as error:
        if error.code == Code.INIT_KEY_REFUSED:
            error.fix = "restore the other file of the pair, or choose a new one: gitops init --new-bot-key FILE"
        raise


_DONE = {
    FileState.NEW: "made {}",
    FileState.RENEWED: "renewed {}",
    FileState.OBSOLETE: "removed {}: it is replaced",
}
_WORDS = {
    FileState.NEW: "would make {}",
    FileState.SAME: "kept {}: it is the same",
    FileState.OWN: "kept {}: the repository has its own",
    FileState.DIFFERS: "kept {}: it differs",
    FileState.RENEWED: "would renew {}",
    FileState.OBSOLETE: "would remove {}: it is replaced",
}


def _diffs(outcome: InitOutcome) -> Iterator[str]:
    for file in outcome.files:
        if file.state not in (FileState.NEW, FileState.DIFFERS, FileState.RENEWED):
            continue
        if b"\0" in file.content:
            yield f"binary file {file.path}: {len(file.content)} bytes, SHA-256 {sha256(file.content).hexdigest()}"
            continue
        yield from _diff(file.path, file.before, file.content)


def _diff(path: str, old: bytes | None, new: bytes) -> Iterator[str]:
    before, after = ((data or b"").decode("utf-8", "replace").splitlines() for data in (old, new))
    source = "/dev/null" if old is None else f"a/{path}"
    yield from difflib.unified_diff(before, after, source, f"b/{path}", lineterm="")
