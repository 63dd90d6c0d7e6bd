"""`gitops log` and `gitops audit`: the trail of a ledger branch, and its verdict."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from gitops.audit.pin import AuditPin, read_pin, write_pin
from gitops.audit.report import AuditReport, Hearsay
from gitops.audit.trail import trail
from gitops.audit.verb import AuditScope
from gitops.audit.verb import audit as run
from gitops.audit.walk import chain_of
from gitops.cli.audit.outputs import Statements, file_bytes, write_whole
from gitops.cli.options import choice_of
from gitops.cli.output import FAILED, OK, USAGE, complain, say, show_error, show_form
from gitops.config.gitops_yaml import ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.ledger.chain import BRANCHES, SIGNED, ChainEntry, first_entry
from gitops.ledger.witnesses import Line, named_entry
from gitops.render.audit import audit_form, audit_text, log_form, log_text
from gitops.wiring.project import LocalProject, open_commit_tree

_PROGRESS = 500
_MIN_PREFIX = 7


def log(options: argparse.Namespace) -> int:
    """`gitops log`. Exit code 1 also when something of what is shown does not hold, or the ledger was rewound."""
    local = LocalProject(choice_of(options, offline=True))
    rule = local.rule(options.cluster)
    head = _head(local, rule)
    found = trail(local.repository, head)
    records = tuple(islice(found, options.limit) if options.limit > 0 else found)
    if options.json:
        show_form(log_form(records))
    else:
        say(log_text(records))
    try:
        _check_seen(local, rule, head)
    except GitopsError as error:
        show_error(error, as_json=False)
        return FAILED
    return OK if all(record.ok for record in records) else FAILED


def audit(options: argparse.Namespace) -> int:
    """`gitops audit`. Exit code 1 for findings, 2 for options that do not go together."""
    form = options.format or ("json" if options.json else "text")
    problem = _misuse(options, form)
    if problem:
        complain(problem)
        return USAGE
    options.json = form == "json"  # what ends the command is told in the same form
    local = LocalProject(choice_of(options, offline=True))
    rule = local.rule(options.cluster)
    head = _head(local, rule)
    if options.verify_envelope is not None:
        from gitops.cli.audit.outputs import verify_envelopes

        _check_seen(local, rule, head)
        return verify_envelopes(local, head, options.verify_envelope, as_json=options.json)
    report = _report(local, rule, head, options)
    _show(report, form)
    return OK if report.ok else FAILED


def _misuse(options: argparse.Namespace, form: str) -> str:
    """Why the options make no sense together, or nothing."""
    if options.json and form != "json":
        return "--json and --format name two formats; leave one out"
    if options.since is not None and options.pin is not None:
        return "--since and --pin both say where to begin; leave one out"
    if (options.sign or options.output is not None) and form != "in-toto":
        return "--sign and --output go with --format in-toto"
    begins = options.since is not None or options.pin is not None or options.witness
    if options.accept is not None and (begins or options.verify_envelope is not None or form == "in-toto"):
        return "--accept verifies the whole ledger, and goes with no other option than --format text, json or sarif"
    if options.verify_envelope is not None and (begins or form not in ("text", "json")):
        return "--verify-envelope goes with no other option than --format text or json"
    return ""


def _report(local: LocalProject, rule: ClusterRule, head: str, options: argparse.Namespace) -> AuditReport:
    if options.accept is not None:
        return _accept(local, rule, head, options.accept)
    statements = None
    if options.format == "in-toto":
        statements = Statements(local, options.output, sign=options.sign)
    pin = _read_pin(options.pin, rule)
    since = pin.commit if pin is not None else _since(local, head, options.since)
    hearsay = replace(_hearsay(local, rule), witnesses=_witnesses(local, rule, options.witness))
    scope = AuditScope(since, hearsay, lambda first: local.project.anchor(rule, first), _told(statements))
    report = _run(local, rule, head, scope)
    if report.ok:
        report = _noted(local, rule, report)
        if options.pin is not None:
            write_whole(Path(options.pin), write_pin(AuditPin(rule.name, report.entries, head)))
    return report


def _run(local: LocalProject, rule: ClusterRule, head: str, scope: AuditScope) -> AuditReport:
    return run(local.repository, head, rule.name, lambda reader, tree: open_commit_tree(reader, tree, rule.path), scope)


def _told(statements: Statements | None) -> Callable[[ChainEntry], None]:
    """What happens with each entry that holds."""
    done, shown = 0, sys.stderr.isatty()

    def told(found: ChainEntry) -> None:
        nonlocal done
        done += 1
        if statements is not None:
            statements.add(found)
        if shown and done % _PROGRESS == 0:
            complain(f"audit: {done} entries verified, now at entry {found.entry.number}")

    return told


def _show(report: AuditReport, form: str) -> None:
    if form == "json":
        show_form(audit_form(report))
    elif form == "sarif":
        from gitops.render.audit_sarif import audit_sarif

        show_form(audit_sarif(report))
    elif form == "in-toto":
        complain(audit_text(report).rstrip("\n"))
    else:
        say(audit_text(report))


# -- what is known -----------------------------------------------------------------------------------------------------


def _head(local: LocalProject, rule: ClusterRule) -> str:
    """The head to look at. Raises IntegrityError `ledger_diverged` where there was one before, else `ledger_missing`."""
    heads = local.heads(rule)
    noted = heads.noted()
    if local.project.head_of(heads.ref) is None and (noted.pin or noted.local) is not None:
        raise IntegrityError(Code.LEDGER_DIVERGED, "the ledger branch was seen here before and is gone", path=heads.ref)
    return local.project.ledger_head(rule)


def _hearsay(local: LocalProject, rule: ClusterRule) -> Hearsay:
    """What the clone saw before, and all approvals and decisions that it has."""
    heads = local.heads(rule)
    noted = heads.noted()
    seen = {heads.seen_ref: noted.seen, "the note beside the refs": noted.kept, heads.ref: noted.local}
    folders = tuple(f"{folder}{rule.name}/" for folder in SIGNED)
    signed = {ref: oid for ref, oid in local.remote.refs(BRANCHES).items() if ref.startswith(folders)}
    return Hearsay({where: commit for where, commit in seen.items() if commit is not None}, signed)


def _check_seen(local: LocalProject, rule: ClusterRule, head: str) -> None:
    """Raise IntegrityError `ledger_diverged` if a head that was seen here is no entry of the ledger any more."""
    line = Line(local.repository, head)
    for where, commit in _hearsay(local, rule).seen.items():
        if commit not in line:
            detail = f"head {head[:12]} does not continue {commit[:12]}, which was seen here ({where})"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)


def _witnesses(local: LocalProject, rule: ClusterRule, names: list[str]) -> dict[str, str]:
    """The heads that others have, and have seen, with their objects. Raises RemoteError, GitopsError `witness_unproven`."""
    heads, found = local.heads(rule), dict[str, str]()
    tracked = heads.ref.replace("refs/heads/", "refs/remotes/origin/", 1)
    for name in names:
        remote, before = local.other(name), len(found)
        for ref in (heads.ref, heads.seen_ref, tracked):
            commit = remote.refs(ref).get(ref)
            if commit is None:
                continue
            if local.repository.resolve(commit) is None:
                remote.fetch([ref])
            found[f"{remote.url} ({ref})"] = commit
        if len(found) == before:
            raise GitopsError(Code.WITNESS_UNPROVEN, f"{remote.url} has no ledger of {rule.name}", path=name)
    return found


def _noted(local: LocalProject, rule: ClusterRule, report: AuditReport) -> AuditReport:
    """Note the verified head, so that the next command here is held to it; a repository that cannot be written is told of."""
    heads, problem = local.heads(rule), ""
    try:
        heads.remember(heads.noted().seen, report.head)
    except GitopsError as error:
        problem = f": {error.detail}"
    noted = heads.noted()
    if report.head in (noted.seen, noted.kept):
        return report
    return replace(report, notes=(*report.notes, f"the head could not be noted in this repository{problem}"))


# -- where to begin ----------------------------------------------------------------------------------------------------


def _since(local: LocalProject, head: str, text: str | None) -> str | None:
    """The commit of an entry that is named by its number, its commit or the beginning of that. Raises UsageError."""
    if text is None:
        return None
    chain = chain_of(local.repository, head)
    if text.isascii() and text.isdigit() and 1 <= int(text) <= len(chain):
        return chain[int(text) - 1]
    found = [commit for commit in chain if len(text) >= _MIN_PREFIX and commit.startswith(text.lower())]
    if len(found) != 1:
        raise UsageError(Code.USAGE_ERROR, f"--since {text}: the ledger has no such entry; it has {len(chain)}")
    return found[0]


def _read_pin(path: str | None, rule: ClusterRule) -> AuditPin | None:
    if path is None or not Path(path).exists():
        return None
    pin = read_pin(file_bytes(path))
    if pin.cluster != rule.name:
        raise IntegrityError(Code.PIN_INVALID, f"it is for cluster {pin.cluster}", path=path)
    return pin


# -- going on from another head ----------------------------------------------------------------------------------------


def _accept(local: LocalProject, rule: ClusterRule, head: str, wanted: str) -> AuditReport:
    """Verify the ledger as if nothing had been seen before, and then note its head in the place of what was.

    Raises UsageError when `wanted` is not the whole id of the head: nobody accepts what they have not looked at.
    """
    if wanted != head:
        raise UsageError(Code.USAGE_ERROR, f"--accept takes the whole id of the head, which is {head}")
    report = _run(local, rule, head, AuditScope())
    if not report.ok:
        return report
    local.project.anchor(rule, first_entry(local.repository, head))
    before = _hearsay(local, rule)
    local.heads(rule).accept(head)
    chain = set(chain_of(local.repository, head))
    notes = [f"seen before, and given up: {c} ({w})" for w, c in before.seen.items() if c not in chain]
    foreign = [ref for ref, commit in before.signed.items() if named_entry(local.repository, commit) not in chain]
    notes += [f"{ref.removeprefix('refs/heads/')} names no entry of it; delete that branch" for ref in foreign]
    return replace(report, notes=(*report.notes, "the head is accepted", *notes))
