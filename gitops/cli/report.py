"""`gitops report`: writes the state of a cluster and its ledger as pages."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from gitops.cli import report_facts as read
from gitops.cli import shared
from gitops.cli.audit import check_seen, ledger_head, local_witnesses, open_branch_ledgers, run_audit
from gitops.cli.cluster import status_of
from gitops.cluster.audit.report import AuditFinding, AuditReport
from gitops.cluster.audit.verb import AuditScope
from gitops.cluster.audit.walk import entry_ids
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.model.ledger import LedgerState
from gitops.core.canonical import canonical_digest
from gitops.core.canonical import digest as digest_of
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.documents.forms import LINE, OBJECT_ID, enum, integer, list_of, optional, record
from gitops.core.documents.json_bytes import MalformedError, parse
from gitops.core.errors import GitopsError, UsageError
from gitops.render.characters import visible
from gitops.render.environment import page_form
from gitops.render.site.facts import GraphFacts, SiteFacts
from gitops.render.site.pages import INDEX, pages, paths, request_path
from gitops.render.text import diagnostic_lines
from gitops.render.words import count
from gitops.repository.report_folder import ReportFolder, ReportRecord
from gitops.repository.wiring.local import LocalRepository

_CHAIN, _FULL = "chain", "full"
_MOST = 64 * 1024 * 1024
_SHOWN = 20
_EXTENTS = {
    _CHAIN: "parents, numbers, times, signatures, approvals and countersignatures of every entry",
    _FULL: "everything that `gitops audit` verifies",
}
_FINDING = record(AuditFinding, {"commit": OBJECT_ID, "number": integer(), "code": enum(Code), "detail": LINE})


def report(options: argparse.Namespace) -> int:
    """`gitops report`. Exits 1 if the ledger cannot be read, if a file cannot be written, or if `--check` finds a difference."""
    local = open_branch_ledgers(options)
    rule = local.rule(options.cluster, options.config)
    head = ledger_head(local, rule)
    problems = Diagnostics()
    try:
        check_seen(local, rule, head)
    except GitopsError as error:
        problems.add_error(error)
    folder = ReportFolder(Path(options.output))
    form = canonical_digest({"base": _base(local, rule, options), "filter": options.filter, "form": page_form()})
    known = ReportFolder(Path(options.output), fresh=True) if options.check else folder
    site, bad = _facts(options, local, rule, head, known, form)
    new = ReportRecord(site.cluster, site.head, site.count, form, {}, bad, _request_keys(site))
    written = _check(site, folder) if options.check else _write(site, folder, new, problems)
    _say(options, site, written, problems)
    return shared.FAILED if problems.has_errors or (options.check and written.changed) else shared.OK


@dataclass(frozen=True, slots=True)
class _Written:
    """The files that were written or that differ, the number of removed files, and the number of all files."""

    changed: tuple[str, ...]
    removed: int
    files: int


def _base(local: LocalRepository, rule: ClusterRule, options: argparse.Namespace) -> str:
    """Return the address of the report with a slash at its end: that of the option, otherwise that of `gitops.yaml`."""
    return f"{options.base_url}/" if options.base_url else local.config().report_address(rule.name)


def _facts(
    options: argparse.Namespace, local: LocalRepository, rule: ClusterRule, head: str, folder: ReportFolder, form: str
) -> tuple[SiteFacts, dict[str, str]]:
    """Return the facts, and the problems of all entries by number, as `report.json` keeps them."""
    chain = entry_ids(local.git, head)
    due = read.due_entries(folder, chain, rule.name, form)
    entries = read.read_entries(local.git, chain, due)
    earlier = {} if folder.record is None else folder.record.problems
    checked = read.chain_audit(rule.name, chain, entries, due, earlier)
    audit, extent = _audit(options, local, rule, head)
    status = status_of(local, rule)
    state = status.state or LedgerState()
    scopes, policies = read.read_policies(local.git, head, state)
    graphs: tuple[GraphFacts, ...] = ()
    if state.resources:
        graphs = tuple(read.read_graphs(local.workspace(rule, None, in_place=True), state, live=options.graphs))
    site = SiteFacts(
        cluster=rule.name,
        environment=rule.environment,
        head=head,
        first=chain[0],
        count=len(chain),
        due=due,
        entries=entries,
        status=status,
        audit=audit or checked,
        extent=extent,
        requests=read.read_requests(local, rule, folder, all_due=due.start == 1),
        graphs=graphs,
        scopes=scopes,
        policies=policies,
        base=_base(local, rule, options),
        filter=options.filter,
    )
    return site, {str(each.number): each.code.value for each in checked.findings}


def _request_keys(site: SiteFacts) -> dict[str, str]:
    return {request_path(each.number): read.request_key(each) for each in site.requests}


def _audit(
    options: argparse.Namespace, local: LocalRepository, rule: ClusterRule, head: str
) -> tuple[AuditReport | None, str]:
    """Return the audit that `--audit` selects and what it verified; None for the checks of the entries that are read."""
    if options.audit == _CHAIN:
        return None, _EXTENTS[_CHAIN]
    if options.audit == _FULL:
        scope = AuditScope(None, local_witnesses(local, rule), lambda first: local.anchor(rule, first))
        return run_audit(local, rule, head, scope), _EXTENTS[_FULL]
    file = Path(options.audit)
    try:
        found = dict(parse(file.read_bytes(), limit=_MOST))
        for member in ("ok", "problems"):
            found.pop(member, None)
        audit = _AUDIT.read(found)
    except (OSError, MalformedError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        fix = f"write it first: gitops audit --cluster {rule.name} --json > {options.audit}"
        raise UsageError(Code.USAGE_ERROR, f"--audit {options.audit}: {reason}", fix=fix) from error
    if audit.cluster != rule.name:
        raise UsageError(Code.USAGE_ERROR, f"--audit {options.audit}: it is an audit of cluster {audit.cluster}")
    now = "" if audit.head == head else "; the ledger has moved since"
    return audit, f"{_EXTENTS[_FULL]}, by an earlier run{now}"


def _made(**members: Any) -> AuditReport:
    return AuditReport(**members)


_AUDIT = record(
    _made,
    {
        "cluster": LINE,
        "head": OBJECT_ID,
        "entries": integer(),
        "verified": integer(),
        "since": optional(integer(), 0),
        "findings": list_of(_FINDING),
        "notes": list_of(LINE),
    },
)


def _check(site: SiteFacts, folder: ReportFolder) -> _Written:
    """Return the files that a report would change, without writing anything."""
    known = {} if folder.record is None else folder.record.files
    changed = [page.path for page in pages(site) if folder.differs(page.path, page.data)]
    gone = known.keys() - set(paths(site))
    return _Written((*changed, *sorted(gone)), len(gone), len(paths(site)))


def _write(site: SiteFacts, folder: ReportFolder, new: ReportRecord, problems: Diagnostics) -> _Written:
    """Write the files that differ. Raises GitopsError `report_write_failed`."""
    wanted = paths(site)
    before = {} if folder.record is None else folder.record.files
    folder.begin(new, wanted)
    changed, files = list[str](), {path: digest for path in wanted if (digest := before.get(path)) is not None}
    for page in pages(site):
        written = folder.write(page.path, page.data, problems)
        if written is None:
            files.pop(page.path, None)
            continue
        changed += [page.path] if written else []
        files[page.path] = digest_of(page.data)
        if page.cut:
            problems.add(Code.REPORT_PAGE_CUT, page.path, "the page is too long, so it does not show everything")
    removed = folder.end(replace(new, files={path: files[path] for path in wanted if path in files}))
    return _Written(tuple(changed), removed, len(files))


def _say(options: argparse.Namespace, site: SiteFacts, written: _Written, problems: Diagnostics) -> None:
    place = Path(options.output, INDEX).as_posix()
    if options.json:
        form = {"ok": not problems.has_errors and not (options.check and written.changed), "cluster": site.cluster}
        facts = {"head": site.head, "entries": site.count, "index": place, "audit": site.audit.ok}
        numbers = {"changed": list(written.changed), "removed": written.removed, "files": written.files}
        shared.show_form({**form, **facts, **numbers, "problems": problems.to_json()})
        return
    done = f"{count(len(written.changed), 'file')} of {written.files:,} {'differ' if options.check else 'written'}"
    done += f", {written.removed:,} removed" if written.removed else ""
    lines = [f"report of {site.cluster}, {count(site.count, 'entry', 'entries')}: {done}"]
    lines += [f"  {path}" for path in written.changed[:_SHOWN]] if options.check else []
    if not site.audit.ok:
        lines.append(f"  the audit fails: {count(len(site.audit.findings), 'finding')}, see audit.html")
    lines += [] if options.check else [f"  {place}"]
    shared.say_report(
        "".join(visible(line) + "\n" for line in lines), options, ok=not options.check or not written.changed
    )
    for line in diagnostic_lines(problems, verbose=options.verbose):
        shared.complain(visible(line))
