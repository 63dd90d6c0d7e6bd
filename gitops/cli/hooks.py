"""Git hooks: installs them, and does an installed hook's work."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cli.shared import (
    FAILED,
    OK,
    USAGE,
    complain,
    from_here,
    lasting,
    run_plan_tests,
    say_report,
    show_error,
    show_form,
)
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, fix_of
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, RefUpdate, or_zero
from gitops.render.characters import visible
from gitops.render.commands import completing, with_typed

if TYPE_CHECKING:
    from gitops.repository.wiring.git import IncomingPush
    from gitops.repository.wiring.local import LocalRepository

_MAX_REFS = 10_000
_OWN_NONCE = ("OK", "SLOP")
_FIELDS = 3


def install(options: argparse.Namespace) -> int:
    """`gitops hook install`."""
    from gitops.repository.wiring.repository import install_hooks

    try:
        git_dir, names = install_hooks(options.repo, server=options.server, hooks_folder=options.folder)
    except GitopsError as error:
        if error.code != Code.HOOK_EXISTS:
            raise
        with completing(partial(with_typed, "hook install", options.line)):
            return show_error(error, options, as_json=options.json)
    if options.json:
        show_form({"ok": True, "folder": git_dir, "hooks": names, "problems": []})
        return OK
    lines = [f"hooks installed in {git_dir}: {', '.join(names)}"]
    if options.folder is not None:
        lines.append("next, with the account of the host: git config --global receive.fsckObjects true")
        lines.append("and let the host link them into its repositories; with gitolite: gitolite setup --hooks-only")
    say_report("\n".join(lines), options)
    return OK


def remove(options: argparse.Namespace) -> int:
    """`gitops hook remove`."""
    from gitops.repository.wiring.repository import remove_hooks

    git_dir, names = remove_hooks(options.repo, options.folder)
    if options.json:
        show_form({"ok": True, "folder": git_dir, "hooks": names, "problems": []})
        return OK
    say_report(f"hooks removed from {git_dir}: {', '.join(names) or 'none'}", options)
    return OK


_STATES = {
    "current": "installed and current",
    "other": "starts another release or installation",
    "foreign": "belongs to another program, and does not start gitops",
    "missing": "missing",
}


def status(options: argparse.Namespace) -> int:
    """`gitops hook status`. Exits 1 unless git runs all hooks of this program."""
    from gitops.repository.wiring.repository import hook_status

    found = hook_status(options.repo)
    good = all(state == "current" for state in found.states.values())
    words = ["gitops", "hook", "install", "--repo", options.repo, *(["--server"] if found.kind == "server" else [])]
    command = None if good else shlex.join(words)
    if options.json:
        form = {"ok": good, "kind": found.kind, "folder": found.folder, "hidden": list(found.hidden), "next": command}
        problems = Diagnostics()
        for name, state in found.states.items():
            if state != "current":
                problems.add(Code.HOOK_NOT_CURRENT, name, _STATES[state], fix=command)
        hooks = {name: str(state) for name, state in found.states.items()}
        show_form({**form, "hooks": hooks, "problems": problems.to_json()})
        return OK if good else FAILED
    lines = [f"hooks of the {found.kind} in {found.folder}"]
    lines += [f"  {name}: {_STATES[state]}" for name, state in found.states.items()]
    if found.hidden:
        why = f"core.hooksPath makes git look in {found.folder}"
        lines.append(f"  git does not run {', '.join(found.hidden)} of {found.git_dir}: {why}")
    if command is not None:
        lines.append(f"next: {command}")
    say_report("\n".join(map(visible, lines)), options, ok=good)
    return OK if good else FAILED


def run(options: argparse.Namespace) -> int:
    """`gitops hook run NAME`: called by git with its own arguments and standard input."""
    handlers = {
        "pre-receive": _pre_receive,
        "post-receive": _post_receive,
        "pre-commit": _pre_commit,
        "commit-msg": _commit_msg,
        "pre-push": _pre_push,
    }
    handler = handlers.get(options.name)
    if handler is None:
        complain(f"{options.name} is not a hook of this program; known: {', '.join(handlers)}")
        return USAGE
    return handler(options.rest)


def _pre_receive(_: list[str]) -> int:
    """Refuse a push that breaks a rule of the repository."""
    from gitops.repository.guard import PushGuard
    from gitops.repository.wiring.git import IncomingPush, default_ref, open_commit_tree, open_git
    from gitops.repository.wiring.system import SystemClock

    updates = [RefUpdate(ref, old, new) for old, new, ref in _lines(_FIELDS)]
    push = IncomingPush(open_git(_git_dir()), os.environ)
    guard = PushGuard(push.objects(), default_ref(push.git), open_commit_tree, SystemClock())
    reasons = list(guard.refusals(updates))
    for reason in reasons:
        complain(visible(f"gitops: {reason}"))
    if reasons:
        return FAILED
    _record(push, updates)
    return OK


def _record(push: IncomingPush, updates: list[RefUpdate]) -> None:
    """Record who pushes, outside of the quarantine.

    If that fails, the push is still accepted, but its authors are unknown.
    """
    from gitops.cluster.approvals.pushes import identity_of
    from gitops.repository.guard import MOST_COMMITS, brought_by_people, is_governed, record_of, record_push
    from gitops.repository.wiring.git import default_ref
    from gitops.repository.wiring.system import SystemClock

    moved = brought_by_people(updates)
    if not moved or not is_governed(push.git, default_ref(push.git)):
        return
    certificate = None
    try:
        # Git's value shows whether it issued the nonce. The signature is checked when the certificate is used.
        if os.environ.get("GIT_PUSH_CERT_NONCE_STATUS") in _OWN_NONCE:
            certificate = push.blob(os.environ.get("GIT_PUSH_CERT", ""))
        key, account = identity_of(os.environ, _login())
        clock = SystemClock()
        record = record_of(moved, clock, certificate=certificate, key=key, account=account)
        # Objects of a refused push are unreachable, so the next push counts them as new again.
        commits = push.new_commits([update.new for update in moved], most=MOST_COMMITS)
        record_push(push.git, record, commits, push.git.person(), push.git.signing_key(), clock)
    except (GitopsError, OSError, ValueError) as error:
        complain(visible(f"gitops: this push is not recorded, so its authors stay unknown: {error}"))


def _login() -> str:
    """Return sshd's information about the pusher's login, if available. Raises OSError, ValueError."""
    return Path(os.environ["SSH_USER_AUTH"]).read_text(encoding="utf-8") if os.environ.get("SSH_USER_AUTH") else ""


def _pusher(local: LocalRepository) -> str | None:
    """Return the person whose key was used to log in, by the target branch's keys; otherwise the account from the server."""
    from gitops.cluster.approvals.origins import person_of_key
    from gitops.cluster.approvals.pushes import identity_of
    from gitops.cluster.config.trust_root import trust_root
    from gitops.cluster.ledger.sources import trust_at

    try:
        key, account = identity_of(os.environ, _login())
        head = local.head_of(local.default_ref)
        if key is None or head is None:
            return account
        trust = trust_root(trust_at(local.git, local.git.commit(head).tree))
        return person_of_key(trust, key, local.clock.now()) or account
    except (GitopsError, OSError, ValueError):
        return None


def _post_receive(_: list[str]) -> int:
    """Plan, apply and report. The push is already accepted and git ignores the exit code, so problems are only printed.

    Hooks can be installed for many repositories at once; in a repository without gitops they do nothing.
    """
    from gitops.bot.receive_push import receive_push
    from gitops.cli.progress import PATIENCE, LineLog
    from gitops.forge.people import COMMENTS
    from gitops.repository.guard import is_governed
    from gitops.repository.wiring.local import LocalRepository
    from gitops.repository.wiring.previews import MachinePreviews

    updates = [
        RefUpdate(ref, old, new)
        for old, new, ref in _lines(_FIELDS)
        if ref.startswith(COMMENTS) or not ref.startswith("refs/gitops/")
    ]
    if not updates:
        return OK
    local = LocalRepository(_git_dir())
    if not is_governed(local.git, local.default_ref):
        return OK
    bot = local.git.person()
    actor = local.git.setting("gitops.actor") or bot.email
    pusher = _pusher(local)
    # The pusher sees each line while the work runs. The work continues even if the pusher disconnects.
    write = lasting(sys.stdout)
    patience = {"true": timedelta(), "false": timedelta.max}.get(local.git.setting("gitops.progress") or "", PATIENCE)
    progress = LineLog(lambda line: write(f"gitops: {line}"), patience)
    try:
        pushed = receive_push(
            local,
            local.forge(),
            updates,
            pusher,
            actor=actor,
            person=bot,
            on_event=progress,
            run_tests=run_plan_tests,
            previews=MachinePreviews(local, os.environ),
        )
        for line in pushed:
            write(f"gitops: {line.text}")
    except GitopsError as error:
        write(f"gitops: {error.code}: {error.detail}")
        if fix := fix_of(error):
            write(f"gitops: fix: {fix}")
        return FAILED
    return OK


def _pre_commit(_: list[str]) -> int:
    """Check the staged `gitops.yaml` and its clusters, or the single cluster at the root.

    If git config `gitops.formatCheck` is true, the files must also be in canonical layout.
    """
    from gitops.cluster.config.checkout import check_rules
    from gitops.cluster.config.gitops_yaml import CONFIG_FILE, parse_bot_config
    from gitops.cluster.config.load import load_desired
    from gitops.render.text import diagnostic_lines
    from gitops.render.words import count
    from gitops.repository.wiring.git import open_commit_tree
    from gitops.repository.wiring.repository import open_staged

    repository, tree, checks_format = open_staged(os.environ)
    folders: list[str] = []
    content = repository.read(tree, CONFIG_FILE)
    rules = check_rules(open_commit_tree(repository, tree, "."))
    if len(rules):
        complain("\n".join(diagnostic_lines(rules, folder=from_here("."))))
    if content is not None:
        # Without readable rules, the cluster folders are unknown.
        with contextlib.suppress(GitopsError):
            folders = [rule.path for rule in parse_bot_config(content).clusters]
    elif repository.read(tree, "cluster.yaml") is not None:
        folders = ["."]
    errors = sum(each.severity == "error" for each in rules)
    for folder in folders:
        subtree = repository.subtree(tree, folder)
        if subtree is None:
            continue
        open_folder = partial(open_commit_tree, repository, subtree, folder)
        problems = load_desired(open_folder()).diagnostics
        if checks_format and not problems.has_errors:
            from gitops.cli.texts import layout_problems
            from gitops.cluster.session.fmt import format_cluster

            problems.extend(layout_problems(format_cluster(open_folder), from_here(folder)))
        if len(problems):
            complain("\n".join([f"gitops: {folder}", *diagnostic_lines(problems, folder=from_here(folder))]))
        errors += sum(each.severity == "error" for each in problems)
    if errors:
        them = "it" if errors == 1 else "them"
        complain(
            f"gitops: the commit is refused because of {count(errors, 'error')}; fix {them}, stage the files with git add, "
            "then commit again"
        )
    return FAILED if errors else OK


def _commit_msg(rest: list[str]) -> int:
    """Refuse a handwritten message that looks like that of a ledger entry or an approval.

    The bot recognises its own commits by their messages.
    """
    from gitops.cluster.approvals.documents import read_decision, read_statement
    from gitops.cluster.ledger.trailers import parse_trailers

    if len(rest) != 1:
        complain("gitops: commit-msg takes one file")
        return USAGE
    with open(rest[0], encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - the path is git's own
        message = "".join(line for line in file if not line.startswith("#"))
    names = {name for name, _ in parse_trailers(message)}
    reserved = sorted(names & {"Entry", "Plan-Digest", "State-Revision", "Config-Digest"})
    statement = False
    for read in (read_statement, read_decision):
        with contextlib.suppress(GitopsError):
            read(message)
            statement = True
    if reserved or statement:
        what = ", ".join(reserved) or "an approval statement"
        complain(
            f"gitops: a message written by hand must not contain {what}, because only gitops creates ledger entries and approvals"
        )
        return FAILED
    return OK


def _pre_push(rest: list[str]) -> int:
    """Plan the clusters of every pushed branch against the ledger. Errors refuse the push."""
    from gitops.cluster.plan.plan import plan
    from gitops.render.text import diagnostic_lines
    from gitops.render.words import count
    from gitops.repository.repository import Candidate
    from gitops.repository.wiring.local import LocalRepository

    branches = [(ref, new) for _, new, ref, _ in _lines(_FIELDS + 1) if new != ZERO and ref.startswith("refs/heads/")]
    pushed = [new for ref, new in branches if not ref.startswith("refs/heads/gitops/")]
    if not pushed:
        return OK
    try:
        local = LocalRepository(".", rest[0] if rest and "/" not in rest[0] else None)
        config = local.config()
    except GitopsError:
        # The remote has no configuration, so it does not use gitops, or not yet.
        return OK
    failed = False
    for commit in pushed:
        tree = local.git.commit(commit).tree
        for rule in config.clusters:
            if local.git.subtree(tree, rule.path) is None:
                continue
            position = local.position(rule)
            outcome = plan(local.at(rule, position, Candidate(commit), config=config).workspace(None))
            errors = [d for d in outcome.diagnostics if d.severity == "error"]
            if errors:
                lines = diagnostic_lines(errors, folder=from_here(rule.path))
                complain("\n".join([f"gitops: {rule.name}: the push is refused", *lines]))
            elif outcome.plan is not None:
                edits = len(outcome.plan.edits)
                what = f"{count(edits, 'change')} not applied yet" if edits else "only commits that are already applied"
                complain(f"gitops: {rule.name}: this push has {what}")
            failed = failed or bool(errors)
    return FAILED if failed else OK


def _git_dir() -> str:
    """Return the repository that a server hook runs in.

    Git sets GIT_DIR relative to the folder in which the hook starts.
    """
    return os.path.abspath(os.environ.get("GIT_DIR", "."))  # noqa: PTH100 - links stay as they are


def _shown(line: bytes) -> str:
    """Return a line of git that contains a ref, with unprintable bytes escaped."""
    return visible(line.decode("utf-8", "backslashreplace").removesuffix("\n"))


def _lines(count: int) -> Iterator[list[str]]:
    """Yield lines of `count` fields from git: `old new ref` for server hooks, `local-ref new ref old` for pre-push.

    A line that cannot be parsed refuses the push, because its ref cannot be checked.
    """
    for number, line in enumerate(sys.stdin.buffer):
        if number >= _MAX_REFS:
            raise GitopsError(Code.PUSH_REFUSED, f"more than {_MAX_REFS} refs in one push")
        try:
            # Only the first field, which is a revision as the user typed it, can contain blanks.
            fields = line.decode().removesuffix("\n").rsplit(" ", count - 1)
        except UnicodeDecodeError as error:
            raise GitopsError(Code.PUSH_REFUSED, f"the name of a ref is not UTF-8: {_shown(line)}") from error
        fields = [or_zero(field) for field in fields]
        if len(fields) != count or not all(map(str.isprintable, fields)):
            raise GitopsError(
                Code.PUSH_REFUSED, f"the name of a ref has characters that cannot be shown: {_shown(line)}"
            )
        yield fields
