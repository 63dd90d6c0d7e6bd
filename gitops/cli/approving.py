"""`approve`, `revoke` and `countersign`: show what the signature is about, have that confirmed, and sign it.

1. On a terminal the command shows it and asks. What is signed has the digest of what was shown.
2. Without a terminal the command has to name it: the plan by its digest (`--plan`), an approval by its commit (`--commit`).
   Without that it only shows it, with the command that signs it.
3. What is named on a terminal is shown and asked for as well, because the text that the command was copied from may have been
   edited by others; `--yes` does without the question.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from gitops.cli.cluster import folder_of, project_of, selecting_words
from gitops.cli.shared import FAILED, USAGE, actor_of, complain, open_project, say, show
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError
from gitops.model.address import Address
from gitops.model.approval import DecisionKind
from gitops.model.outcome import ApproveOutcome, DecisionOutcome
from gitops.render.text import to_text

if TYPE_CHECKING:
    from gitops.approving.decide import DecisionContext

_Outcome = TypeVar("_Outcome", ApproveOutcome, DecisionOutcome)


def approve(options: argparse.Namespace) -> ApproveOutcome | int:
    """`gitops approve`."""
    from gitops.approving.approve import approve as record_approval
    from gitops.approving.approve import review, sign_approval

    if options.break_glass != (options.reason is not None):
        raise UsageError(Code.USAGE_ERROR, "--break-glass and --reason must be used together")
    _check_yes(options, options.plan, "--plan")
    actor, emergency, address = actor_of(options), options.reason, Address(options.resource)
    project = project_of(options)
    publisher = None
    if project is not None:
        rule = project.rule(options.cluster, options.config)
        publisher = project.approval_publisher(rule)
        workspace = project.workspace(rule, actor or project.person().email, options.request)
    elif emergency is not None:
        raise UsageError(Code.USAGE_ERROR, "an emergency approval needs a ledger branch, which records its debt")
    elif not actor:
        fix = "name yourself with --as NAME; or for all commands: git config gitops.actor NAME"
        raise UsageError(Code.ACTOR_REQUIRED, "an approval needs the name of its approver", fix=fix)
    else:
        workspace = folder_of(options, actor)
    digest = options.plan
    if digest is None or _on_terminal(options):
        seen = review(workspace, address)
        if not seen.ok or seen.about is None:
            return seen
        now = seen.about.plan.digest
        change = seen.about.plan.change(address)
        rows = None if change is None or change.seen is None else change.seen.rows
        alone = [] if emergency is None else ["--break-glass", "--reason", emergency]
        alone += [] if rows is None else ["--rows", str(rows)]
        if digest in (None, now) and not _confirmed(options, seen, digest, ["approve", address, *alone], "--plan", now):
            return FAILED if _on_terminal(options) else USAGE
        digest = digest or now
        options.rows = rows if options.rows is None else options.rows
    if publisher is None:
        return record_approval(workspace, address, plan_digest=digest)
    return sign_approval(workspace, address, publisher, plan_digest=digest, rows=options.rows, emergency=emergency)


def revoke(options: argparse.Namespace) -> DecisionOutcome | int:
    """`gitops revoke`."""
    return _decide(options, DecisionKind.REVOKE)


def countersign(options: argparse.Namespace) -> DecisionOutcome | int:
    """`gitops countersign`."""
    return _decide(options, DecisionKind.COUNTERSIGN)


def _decide(options: argparse.Namespace, kind: DecisionKind) -> DecisionOutcome | int:
    from gitops.approving.decide import countersign, review, revoke

    _check_yes(options, options.commit, "--commit")
    context, commit = _decision_context(options), options.commit
    if commit is None or _on_terminal(options):
        seen = review(context, kind, options.approval)
        if not seen.ok or seen.about is None:
            return seen
        words = [kind.value, options.approval, "--reason", options.reason]
        if commit in (None, seen.about.commit) and not _confirmed(
            options, seen, commit, words, "--commit", seen.about.commit
        ):
            return FAILED if _on_terminal(options) else USAGE
        commit = commit or seen.about.commit
    decide = revoke if kind is DecisionKind.REVOKE else countersign
    return decide(context, options.approval, options.reason, commit=commit)


def _decision_context(options: argparse.Namespace) -> DecisionContext:
    """The ledger and the signer. Raises UsageError `signing_key_missing`, `actor_required`."""
    from gitops.approving.decide import DecisionContext
    from gitops.core.faults import NoFaults
    from gitops.wiring.system import RandomIds, SystemClock

    local = open_project(options)
    rule = local.rule(options.cluster, options.config)
    project, ledger, publisher = local.project, local.ledger(rule), local.approval_publisher(rule)
    target = project.recorded_target(rule, project.position(rule), project.config())
    return DecisionContext(ledger, target, publisher, SystemClock(), RandomIds(), NoFaults(), os.getpid())


def _confirmed(
    options: argparse.Namespace, seen: _Outcome, named: str | None, words: list[str], option: str, value: str
) -> bool:
    """Show what `seen` is about, and whether its user confirms it. `named` is what the command names.

    Without a terminal the command that names it is shown: `words`, and the `option` with its `value`.
    """
    if not _on_terminal(options):
        command = shlex.join(["gitops", *words, *selecting_words(options), option, value])
        problems = Diagnostics(seen.diagnostics)
        problems.add(Code.APPROVAL_NOT_CONFIRMED, words[1], f"to sign what is shown above, run: {command}")
        # An approver sees what the signature covers, with --quiet too.
        options.quiet = False
        show(replace(seen, diagnostics=tuple(problems)), options)
        return False
    say(to_text(seen), flush=True)
    if named is not None and options.yes:
        return True
    try:
        answer = input("Type yes to sign this: ")
    except EOFError:
        answer = ""
    if answer.strip() != "yes":
        complain(f"{Code.APPROVAL_NOT_CONFIRMED}: nothing was signed")
        return False
    return True


def _on_terminal(options: argparse.Namespace) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not options.json


def _check_yes(options: argparse.Namespace, named: str | None, option: str) -> None:
    if options.yes and named is None:
        raise UsageError(Code.USAGE_ERROR, f"--yes needs {option}: name what you have seen")
