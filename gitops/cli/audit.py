"""`gitops log`, `gitops audit` and `gitops ledger repair`: show, verify and repair a ledger branch's entries."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gitops.cli import shared
from gitops.cli.finding import repository_of
from gitops.cluster.audit import statement
from gitops.cluster.audit.report import AuditPin, AuditReport, AuditWitnesses, read_pin, write_pin
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.audit.verb import audit as run
from gitops.cluster.audit.walk import entry_ids
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.chain import (
    BRANCHES,
    SIGNED,
    VerifiedEntry,
    entry_trust,
    first_entry,
    quarantine_ref,
    read_verified_entry,
)
from gitops.cluster.ledger.evidence import LedgerEntries, named_entry
from gitops.cluster.ledger.layout import STATE
from gitops.cluster.ledger.port import ledger_time
from gitops.cluster.ledger.repair import Damage
from gitops.cluster.model.ledger import LockInfo
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.git.cached_remote import TrackingRemote
from gitops.render.audit import audit_form, audit_text, log_form, log_text
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines
from gitops.repository.wiring.git import open_commit_tree
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.repository import sign_statement, verify_statement
from gitops.repository.wiring.system import RandomIds, SystemClock

_PROGRESS = 500
_MIN_PREFIX = 7
_SHORT = 12
_MAX_FILE = 1 << 30


def log(options: argparse.Namespace) -> int:
    """`gitops log`. Exits 1 if a shown entry cannot be verified, or if the ledger was rewound."""
    local = open_branch_ledgers(options)
    rule = local.rule(options.cluster, options.config)
    head = ledger_head(local, rule)
    found = read_trail(local.git, head, open_commit_tree)
    records, steps, problems = [], 0, Diagnostics()
    for record in found:
        if record.is_step and not (options.verbose or options.json):
            steps += 1
            continue
        records.append(record)
        if len(records) == options.limit:
            break
    try:
        check_seen(local, rule, head)
    except GitopsError as error:
        problems.add_error(error)
    if options.json:
        shared.show_form(log_form(records, problems))
    else:
        shared.say_coloured(log_text(records, steps, verbose=options.verbose), options)
        for line in diagnostic_lines(problems, verbose=options.verbose):
            shared.complain(visible(line))
    return shared.OK if not problems.has_errors and all(record.ok for record in records) else shared.FAILED


def audit(options: argparse.Namespace) -> int:
    """`gitops audit`. Exits 1 if there are findings, and 2 if options contradict each other."""
    form = options.format or ("json" if options.json else "text")
    begins = options.since is not None or options.pin is not None or options.witness
    problem = ""
    if options.json and form != "json":
        problem = "--json and --format cannot be combined; omit one of them"
    elif options.since is not None and options.pin is not None:
        problem = "--since and --pin cannot be combined; omit one of them"
    elif (options.sign or options.output is not None) and form != "in-toto":
        problem = "--sign and --output need --format in-toto"
    elif options.accept is not None and (begins or options.verify_envelope is not None or form == "in-toto"):
        taken = "--format text, json or sarif"
        problem = f"--accept verifies the whole ledger; the only other option that it accepts is {taken}"
    elif options.verify_envelope is not None and (begins or form not in ("text", "json")):
        problem = "the only other option that --verify-envelope accepts is --format text or json"
    if problem:
        raise UsageError(Code.USAGE_ERROR, problem, fix="see which options go together: gitops audit --help")
    options.json = form == "json"  # errors that end the command have the same form
    local = open_branch_ledgers(options)
    rule = local.rule(options.cluster, options.config)
    head = ledger_head(local, rule)
    if options.verify_envelope is not None:
        check_seen(local, rule, head)
        return _verify_envelopes(local, head, options)
    report = _report(local, rule, head, options)
    if form == "json":
        shared.show_form(audit_form(report))
    elif form == "sarif":
        from gitops.render.sarif import audit_sarif

        shared.show_document(audit_sarif(report))
    elif form == "in-toto":
        if not (options.quiet and report.ok):
            shared.complain(audit_text(report).rstrip("\n"))
    else:
        shared.say_report(audit_text(report), options, ok=report.ok)
    return shared.OK if report.ok else shared.FAILED


def open_branch_ledgers(options: argparse.Namespace) -> LocalRepository:
    """Return the repository of the command.

    Raises UsageError for a ledger in a folder, because it has no entries.
    """
    try:
        return repository_of(options) or shared.open_repository(options, offline=True)
    except UsageError as error:
        if error.code != Code.NOT_A_REPOSITORY or not Path(options.repo or ".", STATE).is_file():
            raise
        detail = "the ledger is a folder, which stores only its newest state and no entries"
        raise UsageError(error.code, detail, fix="show that state: gitops status") from error


def _report(local: LocalRepository, rule: ClusterRule, head: str, options: argparse.Namespace) -> AuditReport:
    """Verify the ledger; write the statement of each valid entry if requested, and remember the verified head."""
    if options.accept is not None:
        return _accept(local, rule, head, options.accept)
    _check_fetched(local, rule, head)
    write_statement = None
    if options.format == "in-toto":
        write_statement = _statement_writer(local, options.output, sign=options.sign)
    done, shown = 0, sys.stderr.isatty() and shared.shows_progress(options)

    def on_verified(found: VerifiedEntry) -> None:
        nonlocal done
        done += 1
        if write_statement is not None:
            write_statement(found)
        if shown and done % _PROGRESS == 0:
            shared.complain(f"audit: {done} entries verified, now at entry {found.entry.number}")

    since, text = None, options.since
    if text is not None:
        # An entry number, a commit id, or a prefix of one.
        chain = entry_ids(local.git, head)
        found = [commit for commit in chain if len(text) >= _MIN_PREFIX and commit.startswith(text.lower())]
        if text.isascii() and text.isdigit() and 1 <= int(text) <= len(chain):
            found = [chain[int(text) - 1]]
        if len(found) != 1:
            detail = f"--since {text}: the ledger has no such entry; it has {len(chain)}"
            raise UsageError(Code.USAGE_ERROR, detail, fix="list the entries: gitops log")
        (since,) = found
    if options.pin is not None and Path(options.pin).exists():
        since = _pinned(options.pin, rule.name)
    witnesses = replace(local_witnesses(local, rule), copies=_copies(local, rule, options.witness))
    scope = AuditScope(since, witnesses, lambda first: local.anchor(rule, first), on_verified)
    report = run_audit(local, rule, head, scope)
    if report.ok:
        heads, problem = local.heads(rule), ""
        try:
            heads.remember(heads.known().seen, report.head)
        except GitopsError as error:
            problem = f": {error.detail}"
        known = heads.known()
        if report.head not in (known.seen, known.note):
            notes = (*report.notes, f"this repository could not store the head{problem}")
            report = replace(report, notes=notes)
        if options.pin is not None:
            _write_whole(Path(options.pin), write_pin(AuditPin(rule.name, report.entries, head)))
    return report


def _pinned(file: str, cluster: str) -> str:
    """Return the entry that an earlier audit verified. Raises IntegrityError `pin_invalid`."""
    try:
        pin = read_pin(_file_bytes(file))
        if pin.cluster != cluster:
            raise IntegrityError(Code.PIN_INVALID, f"the pin belongs to cluster {pin.cluster}", path=file)
    except GitopsError as error:
        if error.code is Code.PIN_INVALID:
            again = shlex.join(("gitops", "audit", "--cluster", cluster, "--pin", file))
            error.fix = (
                f"move it away: {shlex.join(('mv', file, f'{file}.old'))}; then verify from the first entry: {again}"
            )
        raise
    return pin.commit


def run_audit(local: LocalRepository, rule: ClusterRule, head: str, scope: AuditScope) -> AuditReport:
    """Verify a cluster's ledger up to the entry `head`."""
    return run(local.git, head, rule.name, lambda reader, tree: open_commit_tree(reader, tree, rule.path), scope)


# -- known heads -----------------------------------------------------------------------------------------------------


def ledger_head(local: LocalRepository, rule: ClusterRule) -> str:
    """Return the head of the ledger branch.

    Raises IntegrityError `ledger_diverged` if the branch was deleted, otherwise `ledger_missing`.
    """
    heads = local.heads(rule)
    known = heads.known()
    if local.head_of(heads.ref) is None and (known.pin or known.branch) is not None:
        raise IntegrityError(
            Code.LEDGER_DIVERGED, "the ledger branch is missing, although it existed earlier", path=heads.ref
        )
    return local.ledger_head(rule)


def local_witnesses(local: LocalRepository, rule: ClusterRule) -> AuditWitnesses:
    """Return the ledger heads that this clone saw earlier, and all approvals and decisions that it contains."""
    heads = local.heads(rule)
    known = heads.known()
    seen = {heads.seen_ref: known.seen, "the note beside the refs": known.note, heads.ref: known.branch}
    folders = tuple(f"{folder}{rule.name}/" for folder in SIGNED)
    signed = {ref: oid for ref, oid in local.remote.refs(BRANCHES).items() if ref.startswith(folders)}
    return AuditWitnesses({where: commit for where, commit in seen.items() if commit is not None}, signed)


def check_seen(local: LocalRepository, rule: ClusterRule, head: str) -> None:
    """Raise IntegrityError `ledger_diverged` if the ledger no longer contains a head that this clone saw earlier."""
    entries = LedgerEntries(local.git, head)
    _check_fetched(local, rule, head)
    for where, commit in local_witnesses(local, rule).seen.items():
        if commit not in entries:
            detail = f"head {head[:12]} does not descend from {commit[:12]}, which was seen here before ({where})"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=rule.name)


def _check_fetched(local: LocalRepository, rule: ClusterRule, head: str) -> None:
    """Raise GitopsError `ledger_behind` if this clone once saw newer entries than the ones it has fetched."""
    remote, repository, heads = local.remote, local.git, local.heads(rule)
    seen = heads.known().seen
    if not isinstance(remote, TrackingRemote) or seen in (None, head) or repository.resolve(seen) is None:
        return
    if repository.is_ancestor(head, seen) and remote.newest_fetched(heads.ref, head):
        newer = len(entry_ids(repository, seen)) - len(entry_ids(repository, head))
        behind = f"{newer} {'entry' if newer == 1 else 'entries'} behind"
        detail = f"this clone is {behind}: it has fetched up to {head[:_SHORT]}, and has seen {seen[:_SHORT]} since"
        raise GitopsError(Code.LEDGER_BEHIND, detail, path=rule.name)


def _copies(local: LocalRepository, rule: ClusterRule, names: list[str]) -> dict[str, str]:
    """Fetch the ledger from other copies, and return the heads that they have now and had earlier.

    Raises RemoteError, GitopsError `witness_unproven`.
    """
    heads, found = local.heads(rule), dict[str, str]()
    tracked = heads.ref.replace("refs/heads/", "refs/remotes/origin/", 1)
    for name in names:
        remote, before = local.other(name), len(found)
        for ref in (heads.ref, heads.seen_ref, tracked):
            commit = remote.refs(ref).get(ref)
            if commit is None:
                continue
            if local.git.resolve(commit) is None:
                remote.fetch([ref])
            found[f"{remote.url} ({ref})"] = commit
        if len(found) == before:
            raise GitopsError(Code.WITNESS_UNPROVEN, f"{remote.url} has no ledger of {rule.name}", path=name)
    return found


def _accept(local: LocalRepository, rule: ClusterRule, head: str, wanted: str) -> AuditReport:
    """Verify the ledger without relying on remembered heads, then remember its current head.

    Raises UsageError if `wanted` is not the full id of that head, because operators must check which head they accept.
    """
    if wanted != head:
        raise UsageError(Code.USAGE_ERROR, f"--accept requires the full id of the head, which is {head}")
    report = run_audit(local, rule, head, AuditScope())
    if not report.ok:
        return report
    local.anchor(rule, first_entry(local.git, head))
    before = local_witnesses(local, rule)
    local.heads(rule).accept(head)
    chain = set(entry_ids(local.git, head))
    notes = [f"no longer remembered: {c} ({w})" for w, c in before.seen.items() if c not in chain]
    foreign = [ref for ref, commit in before.signed.items() if named_entry(local.git, commit) not in chain]
    notes += [
        f"{ref.removeprefix('refs/heads/')} names an entry that the ledger does not have; delete that branch"
        for ref in foreign
    ]
    return replace(report, notes=(*report.notes, "the head is accepted", *notes))


# -- statements ------------------------------------------------------------------------------------------------------


def _statement_writer(local: LocalRepository, folder: str | None, *, sign: bool) -> Callable[[VerifiedEntry], None]:
    """Return a function that writes the statement of a verified entry, into a folder or to standard output.

    With `sign`, the statement is signed. Raises UsageError `signing_key_missing` and OSError; the returned function
    raises GitopsError `signing_failed` and OSError.
    """
    key = local.git.signing_key() if sign else None
    if sign and key is None:
        raise UsageError(Code.SIGNING_KEY_MISSING, "git config user.signingKey is not set")
    place = None if folder is None else Path(folder)
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)

    def write_statement(found: VerifiedEntry) -> None:
        payload = statement.statement_of(local.git, found)
        if key is None:
            kind, data = "statement", payload + b"\n"
        else:
            armor, signature = sign_statement(statement.pae(statement.PAYLOAD_TYPE, payload), key)
            kind = "envelope"
            data = statement.write_envelope(
                statement.Envelope(statement.PAYLOAD_TYPE, payload, (statement.signature_of(armor, signature.key),))
            )
        if place is None:
            shared.say(data.decode())
        else:
            _write_whole(place / f"{found.entry.number:06}-{found.commit.id[:_SHORT]}.{kind}.json", data)

    return write_statement


def _verify_envelopes(local: LocalRepository, head: str, options: argparse.Namespace) -> int:
    """Print for each envelope in a file whether it is valid. The file contains one envelope, or one per line.

    Returns exit code 1 if any envelope is invalid.
    """
    entries = LedgerEntries(local.git, head)
    trust, newest = entry_trust(local.git, head), read_verified_entry(local.git, head).entry
    now = ledger_time(local.clock.now(), newest)
    forms: list[dict[str, Any]] = []
    problems = Diagnostics()
    for number, data in enumerate(_envelopes(_file_bytes(options.verify_envelope)), start=1):
        try:
            found = statement.check_envelope(
                local.git, data, entries=entries, trust=trust, now=now, verify=verify_statement
            )
        except GitopsError as error:
            forms.append({"ok": False, "code": error.code, "detail": error.detail})
            problems.add(error.code, f"envelope {number}", error.detail, fix=error.fix)
        else:
            signers = list(found.signers)
            forms.append({"ok": True, "entry": found.number, "commit": found.commit, "signers": signers})
    if not forms:
        problems.add(Code.ENVELOPE_INVALID, "", "the file is empty")
    ok = not problems.has_errors
    if options.json:
        shared.show_form({"ok": ok, "envelopes": forms, "problems": problems.to_json()})
    else:
        for number, form in enumerate(forms, start=1):
            if form["ok"]:
                entry, who = f"entry {form['entry']} ({form['commit']})", ", ".join(form["signers"])
                shared.say_report(visible(f"envelope {number} good: {entry}, signed by {who}"), options)
        for line in diagnostic_lines(problems):
            shared.say(visible(line))
    return shared.OK if ok else shared.FAILED


def _envelopes(data: bytes) -> list[bytes]:
    """Split a file into its envelopes: a single envelope, or one per line."""
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) < 2:  # noqa: PLR2004 - more than one
        return lines
    try:
        statement.read_envelope(data)
    except GitopsError:
        return lines
    return [data]


def _file_bytes(path: str) -> bytes:
    """Read a file given on the command line. Raises UsageError `source_missing`, `source_too_large`."""
    place = Path(path)
    if not place.is_file():
        raise UsageError(Code.SOURCE_MISSING, f"{path} does not exist", path=path)
    if place.stat().st_size > _MAX_FILE:
        raise UsageError(Code.SOURCE_TOO_LARGE, f"{path} is larger than {_MAX_FILE} bytes", path=path)
    return place.read_bytes()


def _write_whole(path: Path, data: bytes) -> None:
    """Replace a file atomically, so that readers never see a partial file. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


# -- `gitops ledger repair`: back to the newest valid entry ------------------------------------------------------------

_GONE = "none"


def repair(options: argparse.Namespace) -> int:
    """Repair the ledger if both ids are given. Otherwise show the damage and the repair command, and exit 1.

    Raises UsageError `usage_error` and `actor_required`, GitopsError `ledger_repair_refused`, and the ledger's errors.
    """
    local = shared.open_repository(options)
    rule = local.rule(options.cluster, options.config)
    look = f"gitops ledger repair --cluster {rule.name}"
    if (options.old is None) != (options.new is None):
        fix = f"to see the damage and the command that repairs it: {look}"
        raise UsageError(Code.USAGE_ERROR, "--from and --to must be used together", fix=fix)
    ledger = local.repair_ledger(rule)
    if options.old is None:
        damage = ledger.damage()
        _show(damage, rule.name, options)
        return shared.OK if damage is None else shared.FAILED
    actor, ids, now = shared.actor_of(options) or local.git.person().email, RandomIds(), timestamp(SystemClock().now())
    info = LockInfo(ids.ulid(), "repair", now, os.getpid())
    ledger.acquire(info)
    try:
        damage = ledger.damage()
        if damage is None:
            detail = "nothing to repair: every entry of the branch is good"
            fix = f"nothing to do; to check it: gitops audit --cluster {rule.name}"
            raise GitopsError(Code.LEDGER_REPAIR_REFUSED, detail, fix=fix)
        if (options.old, options.new) != (damage.head or _GONE, damage.good.commit.id):
            detail = f"the head is {damage.head or _GONE}, and the newest good entry is {damage.good.commit.id}"
            fix = f"show the damage again: {look}; then run the command that it prints"
            raise GitopsError(Code.LEDGER_REPAIR_REFUSED, detail, fix=fix)
        view = ledger.repair(damage, operation=ids.ulid(), at=now, actor=actor)
    finally:
        ledger.release(info.lock_id)
    number = damage.good.entry.number + 1
    if options.json:
        form = {"ok": True, "cluster": rule.name, "head": view.head, "entry": number, "quarantined": list(damage.bad)}
        shared.show_form({**form, "problems": []})
    else:
        done = f"{rule.name}: repaired; entry {number}, {view.head}, follows {damage.good.commit.id}"
        shared.say_report(visible(done), options)
    return shared.OK


def _show(damage: Damage | None, cluster: str, options: argparse.Namespace) -> None:
    """Print the damage and the command that repairs it."""
    if damage is None:
        if options.json:
            shared.show_form({"ok": True, "cluster": cluster, "problems": []})
        else:
            shared.say_report(visible(f"{cluster}: every entry of the branch is good"), options)
        return
    good, head = damage.good, damage.head or _GONE
    command = f"gitops ledger repair --cluster {cluster} --from {head} --to {good.commit.id}"
    if options.json:
        known = {"entry": good.entry.number, "commit": good.commit.id, "found": damage.found}
        form = {"ok": False, "cluster": cluster, "head": damage.head, "good": known, "bad": list(damage.bad)}
        problems = Diagnostics()
        problems.add(Code.LEDGER_DIVERGED, cluster, damage.problem, fix=command)
        shared.show_form({**form, "problem": damage.problem, "command": command, "problems": problems.to_json()})
        return
    lines = [
        f"{cluster}: {damage.problem}",
        f"  newest good entry: {good.entry.number}, {good.commit.id}, from {damage.found}",
        *(f"  not good: {commit}" for commit in damage.bad),
    ]
    if damage.head is not None and damage.bad:
        lines.append(f"  will be kept at {quarantine_ref(cluster, damage.head).removeprefix('refs/heads/')}")
    lines.append(f"to repair the branch, with a key that signs the ledger: {command}")
    shared.say("\n".join(visible(line) for line in lines))
