"""The findings of an audit as a SARIF log, for code scanning of forges and dashboards.

A finding is at the document of the entry that does not hold, or at that of the head where the ledger as a whole does not.
Paths are relative to the tree of the ledger branch, which no checkout of the sources has. Rules are codes of the
registry; a fingerprint is made of cluster, rule, commit and message, so that a finding stays the same one while the
ledger grows. What could not be checked is a notification.

Source: SARIF 2.1.0 with errata 01, https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gitops import __version__
from gitops.audit.report import AuditFinding, AuditReport
from gitops.render.characters import visible
from gitops.render.json import Form, present
from gitops.render.sarif import MAX_RESULTS, SCHEMA, code_rule, fingerprint, plain_text

__all__ = ["audit_sarif"]

_BASE = "%LEDGER%"
_DOCUMENT = "entry.json"
_SHORT = 12


def audit_sarif(report: AuditReport) -> Form:
    """The log as plain JSON values: one run, at most 5,000 results."""
    rules = sorted({finding.code for finding in report.findings})
    same: Counter[str] = Counter()
    run: Form = {
        "tool": {"driver": {"name": "gitops", "version": __version__, "rules": [code_rule(code) for code in rules]}},
        "automationDetails": {"id": f"gitops/audit/{report.cluster}/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            _BASE: {"description": {"text": plain_text(f"the tree of branch gitops/ledger/{report.cluster}")}}
        },
        "invocations": [_invocation(report)],
        "results": [_result(each, report, rules, same) for each in report.findings[:MAX_RESULTS]],
        "properties": {
            "head": report.head,
            "entries": report.entries,
            "verified": report.verified,
            "since": report.since,
        },
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _invocation(report: AuditReport) -> Form:
    notes = [{"level": "note", "message": {"text": plain_text(note)}} for note in report.notes[:MAX_RESULTS]]
    return present(executionSuccessful=True, toolExecutionNotifications=notes or None)


def _result(finding: AuditFinding, report: AuditReport, rules: Sequence[str], same: Counter[str]) -> Form:
    name = f"entry {finding.number}" if finding.number else "ledger"
    place = f"{report.cluster}/{finding.number}/{finding.commit}"
    subject = f"{name} ({finding.commit[:_SHORT]})"
    return {
        "ruleId": finding.code,
        "ruleIndex": rules.index(finding.code),
        "level": "error",
        "message": {"text": plain_text(f"{subject}: {finding.detail}")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": _DOCUMENT, "uriBaseId": _BASE}},
                "logicalLocations": [{"name": visible(name), "fullyQualifiedName": visible(place), "kind": "member"}],
            }
        ],
        "partialFingerprints": fingerprint(_identity(finding, report), same),
        "properties": {"commit": finding.commit, "entry": finding.number},
    }


def _identity(finding: AuditFinding, report: AuditReport) -> Sequence[str]:
    """A finding about the whole chain is reported at its head, which changes."""
    at = finding.commit if finding.number else ""
    return (report.cluster, finding.code, at, finding.detail if finding.number else finding.code)
