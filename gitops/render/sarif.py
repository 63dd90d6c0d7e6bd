"""The outcome of `lint` as a SARIF log, for code scanning of forges and editors.

Rules of the log:

1. One run. Its rules are those of the language registry that a file can break, then the codes of files that could not be read.
2. Paths are relative to the root of the repository and percent-encoded; a file outside of it is left without a base.
3. Columns count Unicode code points; offsets count bytes.
4. A fingerprint is made of rule, path, query, message and the text at the place, without the line: it stays when code moves.
5. A name in a message never makes a link or a placeholder. Other braces stay as they are, although the standard requires
   doubled ones: viewers show doubled braces doubled.

Source: SARIF 2.1.0 with errata 01, https://docs.oasis-open.org/sarif/sarif/v2.1.0/.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from gitops import __version__
from gitops.cluster.lint import LintOutcome, LocatedProblem, Region
from gitops.core.canonical import canonical_digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostic
from gitops.language.lint import LintLevel
from gitops.language.rules import RULES, LanguageRule, RuleStage
from gitops.render.characters import visible
from gitops.render.json import Form, present

__all__ = ["MAX_RESULTS", "SCHEMA", "code_rule", "fingerprint", "plain_text", "sarif_log"]

MAX_RESULTS = 5_000
"""The largest number of results of a log; code scanning of GitHub shows no more."""

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASE = "%SRCROOT%"
_FINGERPRINT = "gitopsProblem/v1"
_HASH_DIGITS = 32
_SNIPPET_BYTES = 200
_LEVELS = {LintLevel.ERROR: "error", LintLevel.WARNING: "warning", LintLevel.INFO: "note"}
_WORST_FIRST = tuple(LintLevel)
_SUBJECTS = {RuleStage.PARSE: "schema", RuleStage.CATALOG: "schema", RuleStage.TYPE: "query", RuleStage.LINT: "query"}
_WARNING_MARK = "; a warning"
_LINK = re.compile(r"\[(?=[^\[\]]*\]\()")
_PLACEHOLDER = re.compile(r"\{(\d+)\}")


def sarif_log(outcome: LintOutcome, place: Callable[[str], str]) -> Form:
    """The log as plain JSON values. `place` gives the path of a file of the cluster folder from the root of the repository.

    An absolute path, or a path that starts with `..`, is outside of it. At most 5,000 results, errors first; a notification
    has the number of the others.
    """
    rules = [_rule(rule) for rule in RULES.values() if rule.found in _SUBJECTS]
    rules += [code_rule(code) for code in sorted({each.code for each in outcome.diagnostics})]
    index = {rule["id"]: at for at, rule in enumerate(rules)}
    problems = sorted(outcome.problems, key=lambda each: _WORST_FIRST.index(each.level))
    results = [*_diagnostic_results(outcome.diagnostics, index, place), *_results(problems, outcome, index, place)]
    notifications = []
    if len(results) > MAX_RESULTS:
        left_out = f"{len(results) - MAX_RESULTS} more results are left out"
        notifications.append({"level": "warning", "message": {"text": left_out}})
    run: Form = {
        "tool": {"driver": {"name": "gitops", "version": __version__, "rules": rules}},
        "automationDetails": {"id": "gitops/lint/"},
        "columnKind": "unicodeCodePoints",
        "newlineSequences": ["\n"],
        "originalUriBaseIds": {_BASE: {"description": {"text": "the root of the repository"}}},
        "invocations": [present(executionSuccessful=True, toolExecutionNotifications=notifications or None)],
        "results": results[:MAX_RESULTS],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


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


def code_rule(name: Code) -> Form:
    """The rule that stands for a code of the registry."""
    code = REGISTRY[name]
    return {
        "id": code.code,
        "shortDescription": {"text": f"{code.summary[:1].upper()}{code.summary[1:]}"},
        "fullDescription": {"text": f"{code.summary[:1].upper()}{code.summary[1:]}: {code.cause}."},
        "help": {"text": f"To fix: {code.fix}.", "markdown": f"To fix: {code.fix}."},
        "defaultConfiguration": {"level": code.severity.value},
        "properties": {"tags": ["gitops", "configuration"]},
    }


def _results(
    problems: Sequence[LocatedProblem], outcome: LintOutcome, index: Mapping[str, int], place: Callable[[str], str]
) -> Iterator[Form]:
    same: Counter[str] = Counter()
    for each in problems:
        region, artifact = _region(each.region), _artifact(place(each.path))
        there = outcome.sources[each.path].data[each.region.start : each.region.end][:_SNIPPET_BYTES]
        identity = [each.code, place(each.path), each.query, each.message, there.hex()]
        location = present(
            physicalLocation={"artifactLocation": artifact, "region": region},
            logicalLocations=None if each.query is None else [{"name": visible(each.query), "kind": "function"}],
        )
        message = each.message if each.fix is None else f"{each.message}; {each.fix}"
        change = {"deletedRegion": region, "insertedContent": {"text": each.replacement}}
        fix = {
            "description": {"text": plain_text(each.fix or "")},
            "artifactChanges": [{"artifactLocation": artifact, "replacements": [change]}],
        }
        yield present(
            ruleId=each.code,
            ruleIndex=index[each.code],
            level=_LEVELS[each.level],
            message={"text": plain_text(message)},
            locations=[location],
            partialFingerprints=fingerprint(identity, same),
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
            message={"text": plain_text(f"{each.path}: {each.message}" if each.path else each.message)},
            locations=locations,
            partialFingerprints=fingerprint([each.code, where, each.path, each.message], same),
        )


def _region(region: Region) -> Form:
    return {
        "startLine": region.line,
        "startColumn": region.column,
        "endLine": region.end_line,
        "endColumn": region.end_column,
        "byteOffset": region.start,
        "byteLength": region.end - region.start,
    }


def _artifact(path: str) -> Form:
    if path.startswith("/"):
        return {"uri": f"file://{quote(path)}"}
    if path == ".." or path.startswith("../"):
        return {"uri": quote(path)}
    return {"uri": quote(path), "uriBaseId": _BASE}


def fingerprint(identity: Sequence[str | None], same: Counter[str]) -> dict[str, str]:
    """The identity of a problem from run to run; equal ones are numbered in their order, which `same` counts."""
    key = canonical_digest([None if part is None else visible(part) for part in identity])[:_HASH_DIGITS]
    same[key] += 1
    return {_FINGERPRINT: f"{key}:{same[key]}"}


def plain_text(message: str) -> str:
    r"""A plain text message: `[` is escaped where it would start a link, and `{0}` is doubled where it would be replaced."""
    return _PLACEHOLDER.sub(r"{{\1}}", _LINK.sub(r"\\[", visible(message)))
