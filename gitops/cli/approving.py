"""`approve`, `revoke` and `countersign`: show what you are about to sign, ask for confirmation, and sign.

1. On a terminal, the command shows the subject and asks. It signs the digest of the subject that it showed.
2. Without a terminal the command must identify the subject: the plan by its digest (`--plan`), an approval by its
   commit (`--commit`). Otherwise it only shows the subject, with the command that signs it.
3. On a terminal, an identified subject must also be confirmed, because the command may have been copied from text
   that others can edit; `--yes` skips the question.
4. `approve` takes several changes, which can belong to different clusters. All are shown, confirmed once, signed one by
   one, and pushed together. `--all` never signs changes that were not reviewed. It needs a terminal, or prints the
   command that signs the changes that it found.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gitops.cli import shared
from gitops.cli.cluster import folder_of
from gitops.cli.finding import repository_of, selecting_words
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import DecisionKind
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.outcome import ApprovalSubject, ApproveOutcome, DecisionOutcome
from gitops.core.codes import Code, remedy
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines, subject_lines, to_text

if TYPE_CHECKING:
    from gitops.cluster.approving.approve import ChosenChange
    from gitops.cluster.config.gitops_yaml import ClusterRule
    from gitops.cluster.session.workspace import Workspace
    from gitops.repository.wiring.local import LocalRepository

NOT_RECORDED = 3
"""Exit code for a valid revocation that is not recorded in a ledger entry yet."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A change selected by the argument `word`: an address, optionally after a cluster and a slash."""

    word: str
    cluster: str
    change: ChosenChange

    def shown(self, about: ApprovalSubject) -> _Chosen:
        """Bind the change to the state that was shown. Values given on the command line take precedence."""
        change, planned = self.change, about.plan.change(about.address)
        seen = None if planned is None or planned.seen is None else planned.seen.rows
        rows = seen if change.rows is None else change.rows
        return replace(self, change=replace(change, plan_digest=change.plan_digest or about.plan.digest, rows=rows))


def approve(options: argparse.Namespace) -> ApproveOutcome | int:
    """`gitops approve`. Raises UsageError `usage_error` for options that contradict each other."""
    from gitops.cluster.approvals.verify import UNKNOWN_AUTHORS
    from gitops.cluster.approving.approve import review, sign_approvals

    options.all = options.all or not options.resources
    problem, fix = "", "name one change: gitops approve ADDRESS --break-glass --reason TEXT"
    if options.break_glass != (options.reason is not None):
        problem = "--break-glass and --reason must be used together"
    elif options.all and (options.plan or options.rows or options.break_glass):
        problem = "--all cannot be combined with --plan, --rows or --break-glass"
        fix = "leave them out: gitops approve --all; or name the changes: gitops approve ADDRESS"
    elif options.break_glass and len(options.resources) > 1:
        problem = "--break-glass approves one change"
    if problem:
        raise UsageError(Code.USAGE_ERROR, problem, fix=fix)
    _check_yes(options, options.plan, "--plan")
    local = repository_of(options)
    if local is None:
        return _approve_in_folder(options)
    local.list_once()
    _choose_cluster(options)
    chosen, others = _missing(options, local) if options.all else (_named(options, local), ())
    if not chosen:
        problems = Diagnostics(others)
        if not problems.has_errors:
            detail = "no change is waiting for an approval that you can give"
            look = "gitops status" if options.request is None else f"gitops plan --request {options.request}"
            first = next((each.fix for each in others if each.code in UNKNOWN_AUTHORS), None)
            look = first or f"list the pending approvals and who can give them: {look}"
            problems.add(Code.APPROVAL_NOT_REQUIRED, "", detail, fix=look)
        return shared.show(ApproveOutcome(config_dir=options.config or ".", diagnostics=tuple(problems)), options)
    named = all(each.change.plan_digest is not None for each in chosen)
    if not named or _on_terminal(options):
        key = _public_key(local)
        seen = [
            review(
                c.workspace, c.address, plan_digest=c.plan_digest, rows=c.rows, key=key, alone=bool(options.break_glass)
            )
            for c in (e.change for e in chosen)
        ]
        seen = _with_remedies(seen, chosen, options)
        about = [each.about for each in seen if each.ok and each.about is not None]
        if len(about) < len(chosen):
            return _show_outcomes(seen, options, others)
        chosen = [each.shown(subject) for each, subject in zip(chosen, about, strict=True)]
        if not _confirmed(options, seen, _approve_words(chosen, about, options), named=named, others=others):
            return shared.FAILED if _on_terminal(options) else shared.USAGE
        # The user may have taken a while to confirm, so the plan to sign is made from the current state of the remote.
        local.relist()
    signed = sign_approvals([each.change for each in chosen], emergency=options.reason)
    return _show_outcomes(_with_remedies(signed, chosen, options), options, others)


def _approve_in_folder(options: argparse.Namespace) -> ApproveOutcome | int:
    """Approve one change of a cluster whose ledger is in its folder. Raises UsageError `actor_required`, `usage_error`."""
    from gitops.cluster.approving.approve import approve as record_approval
    from gitops.cluster.approving.approve import review

    if options.reason is not None:
        detail = "an emergency approval needs a ledger branch, which records its debt"
        fix = "leave out --break-glass and --reason: gitops approve ADDRESS"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    if not options.resources:
        fix = "list the changes that need one: gitops plan; then name one: gitops approve ADDRESS"
        raise UsageError(Code.USAGE_ERROR, "the command line does not name the change to approve", fix=fix)
    if len(options.resources) != 1:
        raise UsageError(
            Code.USAGE_ERROR,
            "a ledger in a folder accepts only one approval at a time",
            fix="name one change: gitops approve ADDRESS",
        )
    (word,), actor = options.resources, shared.actor_of(options)
    if not actor:
        fix = "pass your name with --as NAME; or set it for all commands: git config gitops.actor NAME"
        raise UsageError(Code.ACTOR_REQUIRED, "an approval needs the name of its approver", fix=fix)
    workspace, address = folder_of(options, actor), Address(word)
    digest = _bound(options.plan, "--plan", [word]).get(word)
    if digest is None or _on_terminal(options):
        seen = review(workspace, address, plan_digest=digest)
        if not seen.ok or seen.about is None:
            return seen
        now = seen.about.plan.digest
        words = ["approve", word, *selecting_words(options), "--plan", now]
        if not _confirmed(options, [seen], words, named=digest is not None):
            return shared.FAILED if _on_terminal(options) else shared.USAGE
        digest = now
    return record_approval(workspace, address, plan_digest=digest)


def _choose_cluster(options: argparse.Namespace) -> None:
    """Rewrite `brain/graph.legacy` as `graph.legacy --cluster brain`, so that printed commands include the cluster."""
    clusters = {word.rpartition("/")[0] for word in options.resources}
    if options.cluster is None and options.config is None and len(clusters) == 1 and (cluster := clusters.pop()):
        options.cluster = cluster
        options.resources = [word.removeprefix(f"{cluster}/") for word in options.resources]
        options.rows = options.rows and [each.removeprefix(f"{cluster}/") for each in options.rows]


def _named(options: argparse.Namespace, local: LocalRepository) -> list[_Chosen]:
    """Return the changes given on the command line, with the plans and row counts that the command binds them to."""
    found: dict[tuple[str, Address], _Chosen] = {}
    known = {rule.name for rule in local.clusters()}
    for word in options.resources:
        cluster, _, text = word.rpartition("/")
        address = Address(text)
        if cluster and options.cluster not in (None, cluster):
            fix = f"leave out --cluster {options.cluster}"
            raise UsageError(Code.USAGE_ERROR, f"{word} does not belong to --cluster {options.cluster}", fix=fix)
        if not cluster and options.cluster is None and not rules_of(address).in_folder and address.name in known:
            cluster = address.name
        rule = local.rule(cluster or options.cluster, options.config)
        found.setdefault((rule.name, address), _Chosen(word, rule.name, _change_of(options, local, rule, address)))
    plans = _bound(options.plan, "--plan", list(dict.fromkeys(each.cluster for each in found.values())))
    rows = _bound(options.rows, "--rows", [each.word for each in found.values()])
    try:
        seen = {word: int(number) for word, number in rows.items()}
    except ValueError as error:
        fix = "copy the number that the command shows without --rows: gitops approve ADDRESS"
        raise UsageError(Code.USAGE_ERROR, "--rows requires a number", fix=fix) from error
    return [
        replace(each, change=replace(each.change, plan_digest=plans.get(each.cluster), rows=seen.get(each.word)))
        for each in found.values()
    ]


def _missing(options: argparse.Namespace, local: LocalRepository) -> tuple[list[_Chosen], tuple[Diagnostic, ...]]:
    """Return the changes of all clusters that the person may approve, and the reasons why others are left out.

    Returns None if a cluster has errors.
    """
    from gitops.cluster.approving.approve import missing_approvals
    from gitops.repository.wiring.repository import read_public_key

    alone = options.cluster is not None or options.config is not None
    rules = (local.rule(options.cluster, options.config),) if alone else local.clusters()
    if options.request is not None and len({rule.ref for rule in rules}) > 1:
        fix = "name one cluster with --cluster NAME, or the changes"
        raise UsageError(
            Code.USAGE_ERROR, "the clusters follow several branches, but a change request is for only one", fix=fix
        )
    key = local.git.signing_key()
    if key is None:
        raise UsageError(Code.SIGNING_KEY_MISSING, "git config user.signingKey is not set")
    try:
        public_key = read_public_key(key)[1]
    except GitopsError as error:
        fix = "write it next to the private key: ssh-keygen -y -f KEY > KEY.pub; or name the changes"
        raise UsageError(Code.SIGNING_KEY_MISSING, f"--all needs your public key: {error.detail}", fix=fix) from error
    found, others = list[_Chosen](), Diagnostics()
    for rule in rules:
        missing = missing_approvals(_workspace(options, local, rule), public_key)

        def name(address: Address, cluster: str = rule.name) -> str:
            """Return a resource's name for use in a command.

            The name includes the cluster if there are several clusters, unless the resource is the cluster itself.
            """
            alone = len(rules) == 1 or (not rules_of(address).in_folder and address.name == cluster)
            return address if alone else f"{cluster}/{address}"

        left_out = _for_others(missing.diagnostics, options, None if len(rules) == 1 else rule.name)
        others.extend(replace(each, path=name(Address(each.path))) for each in left_out)
        found += [
            _Chosen(name(address), rule.name, _change_of(options, local, rule, address))
            for address in missing.addresses
        ]
    return [] if others.has_errors else found, tuple(others)


def _public_key(local: LocalRepository) -> str | None:
    """Return the public key for signing, if it can be read without signing anything."""
    from gitops.repository.wiring.repository import read_public_key

    with suppress(GitopsError):
        return read_public_key(local.git.signing_key() or "")[1]
    return None


def _change_of(
    options: argparse.Namespace, local: LocalRepository, rule: ClusterRule, address: Address
) -> ChosenChange:
    from gitops.cluster.approving.approve import ChosenChange

    return ChosenChange(_workspace(options, local, rule), address, local.approval_publisher(rule))


def _workspace(options: argparse.Namespace, local: LocalRepository, rule: ClusterRule) -> Workspace:
    return local.workspace(rule, shared.actor_of(options) or local.git.person().email, options.request)


def _bound(values: list[str] | None, option: str, names: list[str]) -> dict[str, str]:
    """Map each name to its value of an option: `NAME=VALUE`, or `VALUE` if there is a single name.

    Raises UsageError `usage_error`.
    """
    found: dict[str, str] = {}
    for given in values or ():
        name, _, value = given.rpartition("=")
        name = names[0] if not name and len(names) == 1 else name
        if name not in names or name in found:
            shapes = ", ".join(f"{option} {each}=..." for each in names)
            raise UsageError(Code.USAGE_ERROR, f"{option} {given}: the command needs one for each: {shapes}")
        found[name] = value
    return found


def _approve_words(chosen: list[_Chosen], about: list[ApprovalSubject], options: argparse.Namespace) -> list[str]:
    """Return the command that signs the shown subjects, with the rows of each change and the plan of each cluster."""
    words = ["approve", *(each.word for each in chosen)]
    words += [] if options.reason is None else ["--break-glass", "--reason", options.reason]
    for each in chosen:
        rows = each.change.rows
        bound = "" if len(chosen) == 1 else f"{each.word}="
        words += [] if rows is None else ["--rows", f"{bound}{rows}"]
    words += selecting_words(options)
    plans = {each.cluster: subject.plan.digest for each, subject in zip(chosen, about, strict=True)}
    for cluster, digest in plans.items():
        words += ["--plan", digest if len(plans) == 1 else f"{cluster}={digest}"]
    return words


def _show_outcomes(
    outcomes: Sequence[ApproveOutcome | DecisionOutcome],
    options: argparse.Namespace,
    others: tuple[Diagnostic, ...] = (),
) -> int:
    """Print each approval and the reasons why `others` were left out.

    A single outcome is printed like that of any command.
    """
    if len(outcomes) == 1 and not others:
        return shared.show(outcomes[0], options)
    ok = all(each.ok for each in outcomes)
    if options.json:
        from gitops.render.json import envelope

        left_out = [each.to_json() for each in others]
        problems = [problem.to_json() for each in outcomes for problem in each.diagnostics]
        approvals = [envelope(each) for each in outcomes]
        shared.show_form({"ok": ok, "approvals": approvals, "left_out": left_out, "problems": problems})
    else:
        texts = _texts(outcomes, quiet=options.quiet, verbose=options.verbose)
        shared.say_coloured(texts + _left_out(others, options), options)
        if not ok:
            shared.complain("nothing was signed")
    return shared.OK if ok else shared.FAILED


def _with_remedies(
    outcomes: Sequence[ApproveOutcome], chosen: Sequence[_Chosen], options: argparse.Namespace
) -> list[ApproveOutcome]:
    """Return the outcome of each change with remedies that select its cluster, if its name in the command does so."""
    clusters = [None if each.word == each.change.address else each.cluster for each in chosen]
    return [
        replace(outcome, diagnostics=tuple(_for_others(outcome.diagnostics, options, cluster)))
        for outcome, cluster in zip(outcomes, clusters, strict=True)
    ]


def _for_others(problems: Iterable[Diagnostic], options: argparse.Namespace, cluster: str | None) -> Diagnostics:
    """Return the same problems with remedies for a different person.

    They include the cluster: `cluster`, if the command did not select one.
    """
    chosen = options.cluster or cluster
    words = "" if chosen is None else shlex.join(("--cluster", chosen))

    def name(each: Diagnostic) -> Diagnostic:
        if each.fix is None or each.code == Code.APPROVAL_NOT_CONFIRMED:
            return each
        fix, more = each.fix, words
        if options.break_glass and each.code == Code.APPROVAL_VIA_REFUSED:
            fix = f"ask an approver who is not an author to run: gitops approve {each.path}"
        elif options.break_glass and each.code == Code.APPROVAL_SIGNER_NOT_ALLOWED:
            fix = f"ask a person listed in approvals.break_glass to run: gitops approve {each.path}"
            more = f"{words} --break-glass --reason {shlex.quote(options.reason)}".strip()
        elif options.request is not None and fix == remedy(Code.APPROVAL_NOT_REQUIRED, ""):
            fix = f"list the changes that need approval: gitops plan {words}".strip()
        return replace(each, fix=re.sub(r"(gitops approve [a-z]+\.[\w.-]+)(?! -)", rf"\1 {more}", fix) if more else fix)

    return Diagnostics(map(name, problems))


def _texts(outcomes: Sequence[ApproveOutcome | DecisionOutcome], *, quiet: bool = False, verbose: bool = False) -> str:
    """Describe each change. A plan that several changes share is shown once, below the last of them."""
    subjects = [each.about if isinstance(each, ApproveOutcome) and each.approval is None else None for each in outcomes]
    texts = []
    for at, (each, subject) in enumerate(zip(outcomes, subjects, strict=True)):
        again = subject is not None and any(x and replace(subject, address=x.address) == x for x in subjects[at + 1 :])
        if subject is None or quiet or not again:
            texts.append(to_text(each, quiet=quiet, verbose=verbose))
        else:
            lines = [*subject_lines(subject, whole=False), *diagnostic_lines(each.diagnostics, verbose=verbose)]
            texts.append("".join(f"{visible(line)}\n" for line in lines))
    return "".join(texts)


def _left_out(others: tuple[Diagnostic, ...], options: argparse.Namespace) -> str:
    lines = diagnostic_lines(others, verbose=options.verbose)
    return "".join(
        f"{visible(line)}\n"
        for line in (["skipped because you are not allowed to approve it:", *lines] if lines else [])
    )


def revoke(options: argparse.Namespace) -> DecisionOutcome | int:
    """`gitops revoke`: withdraw an approval."""
    return _decide(options, DecisionKind.REVOKE)


def countersign(options: argparse.Namespace) -> DecisionOutcome | int:
    """`gitops countersign`: sign a recorded change afterwards."""
    return _decide(options, DecisionKind.COUNTERSIGN)


def _decide(options: argparse.Namespace, kind: DecisionKind) -> DecisionOutcome | int:
    from gitops.cluster.approving.decide import DecisionContext, countersign, review, revoke
    from gitops.core.faults import NoFaults
    from gitops.repository.wiring.system import RandomIds, SystemClock

    _check_yes(options, options.commit, "--commit")
    local = shared.open_repository(options)
    local.list_once()
    rule, commit = local.rule(options.cluster, options.config), options.commit
    ledger, publisher = local.ledger(rule), local.approval_publisher(rule)
    target = local.recorded_target(rule, local.position(rule), local.config())
    context = DecisionContext(ledger, target, publisher, SystemClock(), RandomIds(), NoFaults(), os.getpid())
    if commit is None or _on_terminal(options):
        seen = review(context, kind, options.approval)
        if not seen.ok or seen.about is None:
            return seen
        words = [kind.value, options.approval, "--reason", options.reason, *selecting_words(options)]
        words += ["--commit", seen.about.commit]
        # What is revoked already is not signed again: the command only says whether an entry records it.
        asks = seen.commit is None and commit in (None, seen.about.commit)
        if asks and not _confirmed(options, [seen], words, named=commit is not None):
            return shared.FAILED if _on_terminal(options) else shared.USAGE
        local.relist()
        commit = commit or seen.about.commit
    decide = revoke if kind is DecisionKind.REVOKE else countersign
    done = decide(context, options.approval, options.reason, commit=commit)
    if kind is DecisionKind.REVOKE and options.wait is not None and done.recorded is False:
        from gitops.cli.progress import heeding_signals
        from gitops.cluster.approving.decide import await_recorded

        with heeding_signals() as cancel, cancel.work():
            done = await_recorded(context, done, options.wait, cancel, local.relist)
    code = shared.show(done, options)
    return NOT_RECORDED if code == shared.OK and done.recorded is False else code


def _confirmed(
    options: argparse.Namespace,
    seen: Sequence[ApproveOutcome | DecisionOutcome],
    words: list[str],
    *,
    named: bool,
    others: tuple[Diagnostic, ...] = (),
) -> bool:
    """Show the subjects `seen`, and return whether the user confirms all of them.

    `named` means that the command line identified them. Without a terminal, print the command that identifies them:
    `gitops` followed by `words`.
    """
    if not _on_terminal(options):
        *first, last = seen
        problems = Diagnostics(last.diagnostics)
        command = shlex.join(["gitops", *words])
        path = "" if first else words[1]
        problems.add(Code.APPROVAL_NOT_CONFIRMED, path, f"to sign what is shown above, run: {command}")
        # Approvers always see what the signature covers, even with --quiet.
        options.quiet = False
        _show_outcomes([*first, replace(last, diagnostics=tuple(problems))], options, others)
        return False
    shared.say(_texts(seen) + _left_out(others, options), flush=True)
    if named and options.yes:
        return True
    try:
        answer = input(
            "Type yes to sign this: " if len(seen) == 1 else f"Type yes to sign these {len(seen)} approvals: "
        )
    except EOFError:
        answer = ""
    if answer.strip() != "yes":
        shared.complain(f"{Code.APPROVAL_NOT_CONFIRMED}: nothing was signed; to sign, answer with the whole word: yes")
        return False
    return True


def _on_terminal(options: argparse.Namespace) -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not options.json


def _check_yes(options: argparse.Namespace, named: str | list[str] | None, option: str) -> None:
    if options.yes and named is None:
        fix = f"review it first: without --yes, the command shows what it signs and prints the {option} to pass"
        raise UsageError(Code.USAGE_ERROR, f"--yes requires {option}, which identifies what you reviewed", fix=fix)
