"""Converts `lint` outcomes and `audit` findings to SARIF logs, for code scanning, editors and dashboards.

Rules for the `lint` log:

1. One run. Its rules are those of the language registry that a file can break, then the codes of files that could not
   be read.
2. Paths are relative to the root of the repository and percent-encoded. A file outside of it has no base.
3. Columns count Unicode code points; offsets count bytes.
4. A fingerprint is computed from rule, path, query, message and the text at the place, but not from the line number, so
   that it is stable if code moves.
5. A name in a message never becomes a link or a placeholder. Other braces are unchanged, although the standard requires
   doubling them, because viewers show doubled braces as they are.

An audit finding is placed at the document of the invalid entry, or at that of the head if the entire ledger is invalid.
Paths are relative to the tree of the ledger branch, which is not in a checkout of the sources. Rules are registered
codes. A fingerprint is computed from cluster, rule, commit and message, so that a finding keeps its identity while the
ledger grows. A skipped check is a notification.

Source: SARIF 2.1.0 with errata 01, https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from gitops import __version__
from gitops.cluster.audit.report import AuditFinding, AuditReport
from gitops.cluster.session.lint import LintOutcome, LocatedProblem
from gitops.core.canonical import canonical_digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic
from gitops.database.language.lint import LintLevel
from gitops.database.language.rules import RULES, LanguageRule, RuleStage
from gitops.render.characters import visible
from gitops.render.json import Form, present

MAX_RESULTS = 5_000
"""Maximum number of results in a log. GitHub's code scanning shows no more."""

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE, _LEDGER_BASE = "%SRCROOT%", "%LEDGER%"
_SHORT = 12
_FINGERPRINT = "gitopsProblem/v1"
_HASH_DIGITS = 32
_SNIPPET_BYTES = 200
_LEVELS = {LintLevel.ERROR: "error", LintLevel.WARNING: "warning", LintLevel.INFO: "note"}
_WORST_FIRST = tuple(LintLevel)
_SUBJECTS = {
    RuleStage.PARSE: "schema",
    RuleStage.CATALOG: "schema",
    RuleStage.TYPE: "query",
    RuleStage.LIMIT: "query",
    RuleStage.LINT: "query",
}
_WARNING_MARK = "; a warning"
_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")
_PLACEHOLDER = re.compile(r"\{(\d+)\}")


def sarif_log(outcome: LintOutcome, place: Callable[[str], str]) -> Form:
    """Return the log as plain JSON values.

    `place` converts a path in the cluster folder to a path from the root of the repository.

    An absolute path, or a path that starts with `..`, is outside of the repository. There are at most 5,000 results,
    errors first; a notification contains the number of omitted ones.
    """
    rules = [_rule(rule) for rule in RULES.values() if rule.found in _SUBJECTS]
    rules += [_code_rule(code) for code in sorted({each.code for each in outcome.diagnostics})]
    index = {rule["id"]: at for at, rule in enumerate(rules)}
    problems = sorted(outcome.problems, key=lambda each: _WORST_FIRST.index(each.level))
    results = [*_diagnostic_results(outcome.diagnostics, index, place), *_results(problems, outcome, index, place)]
    notifications = []
    if len(results) > MAX_RESULTS:
        left_out = f"{len(results) - MAX_RESULTS} more results are left out"
        notifications.append({"level": "warning", "message": {"text": left_out}})
    return _log(
        "lint",
        rules,
        {_BASE: {"description": {"text": "the root of the repository"}}},
        notifications,
        results[:MAX_RESULTS],
        newlines=["\n"],
    )


def verdicts_sarif(diagnostics: Sequence[Diagnostic], place: Callable[[str], str]) -> Form:
    """Return the SARIF log of a test run, with each failure at its expectation. `place` is as in `sarif_log`."""
    rules = [_code_rule(code) for code in sorted({each.code for each in diagnostics})]
    index = {rule["id"]: at for at, rule in enumerate(rules)}
    results = [*_diagnostic_results(diagnostics, index, place)]
    return _log(
        "test", rules, {_BASE: {"description": {"text": "the root of the repository"}}}, [], results[:MAX_RESULTS]
    )


def audit_sarif(report: AuditReport) -> Form:
    """Return the log as plain JSON values: one run with at most 5,000 results."""
    codes = sorted({finding.code for finding in report.findings})
    same: Counter[str] = Counter()
    return _log(
        f"audit/{report.cluster}",
        [_code_rule(code) for code in codes],
        {_LEDGER_BASE: {"description": {"text": _plain_text(f"the tree of branch gitops/ledger/{report.cluster}")}}},
        [{"level": "note", "message": {"text": _plain_text(note)}} for note in report.notes[:MAX_RESULTS]],
        [_finding(each, report, codes, same) for each in report.findings[:MAX_RESULTS]],
        properties={
            "head": report.head,
            "entries": report.entries,
            "verified": report.verified,
            "since": report.since,
        },
    )


def _log(
    name: str,
    rules: Sequence[Form],
    bases: Form,
    notifications: Sequence[Form],
    results: Sequence[Form],
    *,
    newlines: Sequence[str] | None = None,
    properties: Form | None = None,
) -> Form:
    run = present(
        tool={"driver": {"name": "gitops", "version": __version__, "rules": rules}},
        automationDetails={"id": f"gitops/{name}/"},
        columnKind="unicodeCodePoints",
        newlineSequences=newlines,
        originalUriBaseIds=bases,
        invocations=[present(executionSuccessful=True, toolExecutionNotifications=notifications or None)],
        results=results,
        properties=properties,
    )
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: LanguageRule) -> Form:
    subject, refuses = _SUBJECTS[rule.found], rule.refuses.removesuffix(_WARNING_MARK)
    level = "warning" if rule.refuses.endswith(_WARNING_MARK) else "error"
    verb = "Reported in a file" if rule.found is RuleStage.LINT else f"Refused in a {subject}"
    where = "docs/language-rules.md"
    return {
        "id": rule.label,
        "shortDescription": {"text": f"{refuses[:1].upper()}{refuses[1:]}"},
        "fullDescription": {"text": f"{verb}: {refuses}."},
        "help": {
            "text": f"{verb}: {refuses}. All rules are listed in {where} of cluster-gitops.",
            "markdown": f"{verb}: {refuses}. All rules are listed in `{where}` of cluster-gitops.",
        },
        "defaultConfiguration": {"level": level},
        "properties": {"tags": ["gitops", subject, rule.found.value]},
    }


def _code_rule(name: Code) -> Form:
    """Return the SARIF rule for a registered code."""
    code = REGISTRY[name]
    about = f"Cause: {code.cause}." if code.fix is None else f"To fix: {code.fix}."
    return {
        "id": code.code,
        "shortDescription": {"text": f"{code.summary[:1].upper()}{code.summary[1:]}"},
        "fullDescription": {"text": f"{code.summary[:1].upper()}{code.summary[1:]}: {code.cause}."},
        "help": {"text": about, "markdown": about},
        "defaultConfiguration": {"level": code.severity.value},
        "properties": {"tags": ["gitops", "configuration"]},
    }


def _results(
    problems: Sequence[LocatedProblem], outcome: LintOutcome, index: Mapping[str, int], place: Callable[[str], str]
) -> Iterator[Form]:
    same: Counter[str] = Counter()
    for each in problems:
        artifact, span = _artifact(place(each.path)), each.region
        region = {
            "startLine": span.line,
            "startColumn": span.column,
            "endLine": span.end_line,
            "endColumn": span.end_column,
            "byteOffset": span.start,
            "byteLength": span.end - span.start,
        }
        there = outcome.sources[each.path].data[span.start : span.end][:_SNIPPET_BYTES]
        identity = [each.code, place(each.path), each.query, each.message, there.hex()]
        location = present(
            physicalLocation={"artifactLocation": artifact, "region": region},
            logicalLocations=None if each.query is None else [{"name": visible(each.query), "kind": "function"}],
        )
        message = each.message if each.fix is None else f"{each.message}; {each.fix}"
        change = {"deletedRegion": region, "insertedContent": {"text": each.replacement}}
        fix = {
            "description": {"text": _plain_text(each.fix or "")},
            "artifactChanges": [{"artifactLocation": artifact, "replacements": [change]}],
        }
        yield present(
            ruleId=each.code,
            ruleIndex=index[each.code],
            level=_LEVELS[each.level],
            message={"text": _plain_text(message)},
            locations=[location],
            partialFingerprints=_fingerprint(identity, same),
            fixes=None if each.replacement is None else [fix],
        )


def _diagnostic_results(
    diagnostics: Sequence[Diagnostic], index: Mapping[str, int], place: Callable[[str], str]
) -> Iterator[Form]:
    same: Counter[str] = Counter()
    for each in diagnostics:
        source, locations, where = each.source, [], None
        if source is not None:
            where, region = place(source.file), None
            if source.line:
                region = {"startLine": source.line, "startColumn": max(1, source.column)}
            locations = [{"physicalLocation": present(artifactLocation=_artifact(where), region=region)}]
        yield present(
            ruleId=each.code,
            ruleIndex=index[each.code],
            level=each.severity.value,
            message={"text": _plain_text(f"{each.path}: {each.message}" if each.path else each.message)},
            locations=locations,
            partialFingerprints=_fingerprint([each.code, where, each.path, each.message], same),
        )


def _finding(finding: AuditFinding, report: AuditReport, rules: Sequence[str], same: Counter[str]) -> Form:
    name = f"entry {finding.number}" if finding.number else "ledger"
    place = f"{report.cluster}/{finding.number}/{finding.commit}"
    # A finding about the entire chain is reported at its head, which changes.
    at, detail = (finding.commit, finding.detail) if finding.number else ("", finding.code)
    return {
        "ruleId": finding.code,
        "ruleIndex": rules.index(finding.code),
        "level": "error",
        "message": {"text": _plain_text(f"{name} ({finding.commit[:_SHORT]}): {finding.detail}")},
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": "entry.json", "uriBaseId": _LEDGER_BASE}},
                "logicalLocations": [{"name": visible(name), "fullyQualifiedName": visible(place), "kind": "member"}],
            }
        ],
        "partialFingerprints": _fingerprint((report.cluster, finding.code, at, detail), same),
        "properties": {"commit": finding.commit, "entry": finding.number},
    }


def _artifact(path: str) -> Form:
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    if path == ".." or path.startswith("../"):
        return {"uri": quote(path)}
    return {"uri": quote(path), "uriBaseId": _BASE}


def _fingerprint(identity: Sequence[str | None], same: Counter[str]) -> dict[str, str]:
    """Return a problem's identity across runs. Equal problems are numbered in order, which `same` counts."""
    key = canonical_digest([None if part is None else visible(part) for part in identity])[:_HASH_DIGITS]
    same[key] += 1
    return {_FINGERPRINT: f"{key}:{same[key]}"}


def _plain_text(message: str) -> str:
    r"""Return a plain text message, with `[` escaped if it would start a link and `{0}` doubled if it would be replaced."""
    return _PLACEHOLDER.sub(r"{{\1}}", _LINK.sub(r"\\[", visible(message)))
