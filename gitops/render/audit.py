"""Text and JSON for `gitops log` and `gitops audit`: entries with their approvals, and an audit's findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gitops.cluster.approvals.decisions import debt_form
from gitops.cluster.approvals.documents import SEEN, TARGET
from gitops.cluster.audit.report import AuditReport, LogRecord
from gitops.cluster.model.approval import Via
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import EntryChange, EntryKind, LedgerEntry
from gitops.core.codes import REGISTRY
from gitops.core.diagnostics import Diagnostics
from gitops.render.characters import visible
from gitops.render.commands import completed
from gitops.render.json import Form, drill_form, present, rule_forms
from gitops.render.plan_views import automatic_lines
from gitops.render.text import rule_line
from gitops.render.words import FORMATTING_ONLY, count

_SHORT = 8
_CHANGES = 10
_VIA = {Via.SIGNATURE: "", Via.FORGE: " on the forge", Via.BREAK_GLASS: " alone, in an emergency"}


def log_text(records: Sequence[LogRecord], steps: int = 0, *, verbose: bool = False) -> str:
    """Return a line for each entry, with its changes and their approvers indented below. `verbose` lists all changes.

    `steps` is the number of entries that are omitted because they only record steps of runs.
    """
    lines = [line for record in records for line in _entry_lines(record, verbose=verbose)]
    if steps:
        lines.append(f"not listed: {count(steps, 'entry', 'entries')} with steps of runs (list them with -v)")
    return "".join(visible(line) + "\n" for line in lines or ["no ledger entries"])


def log_form(records: Sequence[LogRecord], problems: Diagnostics) -> Form:
    """Return `{ok, entries: […], problems}`, with the entries in the given order. Absent values are left out."""
    ok = not problems.has_errors and all(record.ok for record in records)
    return {"ok": ok, "entries": [_entry_form(record) for record in records], "problems": problems.to_json()}


def audit_text(report: AuditReport) -> str:
    """Return a line with the result, then the findings, then notes on parts that could not be checked."""
    entries = count(report.entries - report.since, "ledger entry", "ledger entries")
    extent = f"{report.verified - report.since} of {entries} verified"
    behind = f" after entry {report.since}" if report.since else ""
    verdict = "good" if report.ok else "failed"
    lines = [f"audit {verdict}: {report.cluster}: {extent}{behind}, head {report.head[:_SHORT]}"]
    fixes = set[str]()
    for finding in report.findings:
        place = f"entry {finding.number}" if finding.number else "chain"
        lines.append(f"ERROR {finding.code} {place} ({finding.commit[:_SHORT]}): {finding.detail}")
        if (fix := REGISTRY[finding.code].fix) is not None and fix not in fixes:
            fixes.add(fix)
            lines.append(f"      fix: {completed(fix)}")
    lines += [f"NOTE  {note}" for note in report.notes]
    return "".join(visible(line) + "\n" for line in lines)


def audit_form(report: AuditReport) -> Form:
    """Return `ok, cluster, head, entries, verified, since?, findings[{commit, number, code, detail}], notes, problems`."""
    problems = Diagnostics()
    for each in report.findings:
        problems.add(each.code, f"entry {each.number}" if each.number else report.cluster, each.detail)
    return {
        "ok": report.ok,
        "cluster": report.cluster,
        "head": report.head,
        "entries": report.entries,
        "verified": report.verified,
        **present(since=report.since or None),
        "findings": [
            {"commit": each.commit, "number": each.number, "code": each.code, "detail": each.detail}
            for each in report.findings
        ],
        "notes": list(report.notes),
        "problems": problems.to_json(),
    }


def _listed(changes: Sequence[EntryChange], record: LogRecord) -> list[EntryChange]:
    """Return the first changes of an entry for each result, and all changes that were approved or that change rules."""
    marked = {each.use.resource for each in record.approvals} | {each.address for each in record.rules}
    listed, alike = [], Counter[tuple[str, str | None]]()
    for change in changes:
        result = (change.disposition, change.reason)
        if alike[result] < _CHANGES or change.resource in marked:
            listed.append(change)
        alike[result] += 1
    return listed


def _entry_lines(record: LogRecord, *, verbose: bool) -> list[str]:
    entry = record.entry
    if entry is None:
        return [f"entry unreadable  commit {record.commit[:_SHORT]}  {record.signature}"]
    facts = [f"entry {entry.number}", entry.kind.value, entry.at]
    if entry.actor is not None:
        facts.append(f"by {entry.actor}")
    if entry.source is not None:
        facts.append(f"merge {entry.source.commit[:_SHORT]}")
    if entry.plan_digest is not None:
        facts.append(f"plan {entry.plan_digest[:_SHORT]}")
    if entry.kind is EntryKind.INTENT:
        operations = count(len(entry.changes), "graph operation")
        facts.append(f"announces {operations}" if entry.changes else f"prepares changeset {entry.changeset}")
    if record.owed:
        facts.append(f"{count(len(record.owed), 'open debt')}")
    facts.append(f"signature {record.signature}")
    lines = ["  ".join(facts)]
    if entry.kind is EntryKind.CHANGESET and entry.changeset is not None:
        lines.append(completed(f"  what happened: gitops changeset show {entry.changeset}"))
    derived = [change.resource for change in entry.changes if change.disposition == Disposition.DERIVED]
    follow = record.republished.union(derived)
    shown = [change for change in entry.changes if change.resource not in follow]
    shown.sort(key=lambda change: change.resource in record.formatting)
    listed = shown if verbose else _listed(shown, record)
    for change in listed:
        mark = " [bindings]" if change.binding_change else ""
        mark += f" [{FORMATTING_ONLY}]" if change.resource in record.formatting else ""
        reason = f": {change.reason}" if change.reason is not None else ""
        result = "" if change.disposition == "applied" else f"  {change.disposition}{reason}"
        approved = _approved(change.resource, record)
        lines.append(f"  {change.operation} {change.resource}{mark}{result}{approved}")
        if change.seen is not None and change.disposition == Disposition.APPLIED:
            # The state of the graph when each approver saw it, and when it was applied.
            then = f"applied to {change.seen.held} in version {change.seen.version}"
            for given in record.approvals:
                if given.seen is not None and given.use.resource == change.resource:
                    saw = f"saw {given.seen.held} in version {given.seen.version}"
                    lines.append(f"    {given.use.principal} {saw}; {then}")
        lines += [f"    {rule_line(each)}" for each in record.rules if each.address == change.resource]
    lines += [f"  and {len(shown) - len(listed)} more changes; -v lists them"] if len(listed) < len(shown) else []
    lines += [f"  {line}" for line in automatic_lines(derived, dict.fromkeys(record.republished))]
    changed = {change.resource for change in entry.changes}
    others = dict.fromkeys(v.use.resource for v in record.approvals if v.use.resource not in changed)
    lines += [f"  {resource}{_approved(resource, record)}" for resource in others]
    for debt in entry.debts:
        alone = f"{debt.resource} by {debt.principal} ({debt.approval_id}): {debt.reason}"
        lines.append(f"  needs a countersignature: {alone}")
    for each in record.settlements:
        done, by = each.settlement, f"{each.settlement.principal} ({each.settlement.countersignature})"
        lines.append(f"  countersigned {done.approval_id} by {by} {each.result}")
    lines += [f"  revoked {each.approval_id} by {each.principal}" for each in entry.revoked]
    lines += [f"  quarantined {commit}" for commit in entry.quarantined]
    if entry.drill is not None:
        lines.append(f"  restored {count(len(entry.drill.graphs), 'graph')} in {entry.drill.seconds} s")
        lines += [f"  finding: {finding}" for finding in entry.drill.findings]
    if entry.former is not None:
        lines.append(f"  follows an earlier ledger: {entry.former.found}")
    return lines


def _approved(resource: str, record: LogRecord) -> str:
    given = [
        f"{v.use.principal}{_VIA[v.use.via]} ({v.use.approval_id}) {v.result}"
        for v in record.approvals
        if v.use.resource == resource
    ]
    return f"  approved by {', '.join(given)}" if given else ""


def _kept_form(entry: LedgerEntry) -> Form:
    """Return the debts of an entry, and its records of deletable branches and of an earlier ledger."""
    found, former = entry.revoked, entry.former
    revoked = [
        {"approval_id": r.approval_id, **present(approver=r.approver), "commit": r.commit, "principal": r.principal}
        for r in found
    ]
    before = {} if former is None else {"found": former.found, **present(genesis=former.genesis, head=former.head)}
    scope = None if entry.scope is None else {**entry.scope.facts(), "closed": entry.scope.closed}
    return {
        "debts": [{"approval_id": debt.approval_id, **debt_form(debt)} for debt in entry.debts],
        "revoked": revoked,
        "quarantined": list(entry.quarantined),
        **present(former=before or None, scope=scope, drill=None if entry.drill is None else drill_form(entry.drill)),
    }


def _change_form(change: EntryChange, record: LogRecord) -> Form:
    return {
        "resource": change.resource,
        "operation": change.operation,
        **present(before_digest=change.before, after_digest=change.after),
        "disposition": change.disposition,
        **present(
            reason=change.reason,
            binding_change=change.binding_change or None,
            republished=(change.resource in record.republished) or None,
            formatting_only=(change.resource in record.formatting) or None,
            seen=None if change.seen is None else SEEN.write(change.seen),
        ),
    }


def _entry_form(record: LogRecord) -> Form:
    entry = record.entry
    if entry is None:
        return {"commit": record.commit, "signature": record.signature}
    source = {"commit": entry.source.commit, "tree": entry.source.tree} if entry.source is not None else None
    return {
        "commit": record.commit,
        "signature": record.signature,
        "number": entry.number,
        "kind": entry.kind.value,
        "operation": entry.operation,
        "at": entry.at,
        **present(actor=entry.actor),
        "target": TARGET.write(entry.target),
        **present(
            previous=entry.previous,
            source=source,
            changeset=entry.changeset,
            plan_digest=entry.plan_digest,
            config_digest=entry.config_digest,
        ),
        "state_revision": entry.state_revision,
        "policy_digest": entry.policy_digest,
        "trust_digest": entry.trust_digest,
        "changes": [_change_form(change, record) for change in entry.changes],
        "approvals": [
            {
                "approval_id": each.use.approval_id,
                "commit": each.use.commit,
                "resource": each.use.resource,
                "principal": each.use.principal,
                "via": each.use.via.value,
                "verdict": each.result,
                **present(seen=None if each.seen is None else SEEN.write(each.seen)),
            }
            for each in record.approvals
        ],
        "authors": list(entry.authors),
        "recovered": list(entry.recovered),
        "settled": [
            {
                "approval_id": each.settlement.approval_id,
                "countersignature": each.settlement.countersignature,
                "commit": each.settlement.commit,
                "principal": each.settlement.principal,
                "verdict": each.result,
            }
            for each in record.settlements
        ],
        "owed": list(record.owed),
        **_kept_form(entry) | rule_forms(record.rules),
    }
