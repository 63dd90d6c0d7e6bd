"""Rulesets of branches, and what they ask of a commit. What holds them against pushes is the hook in `host.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from tests.support.github.nouns import CheckRun, Ruleset, Status


class Rulebook:
    """The rules of one repository; statuses and check runs are what meets them."""

    def __init__(self) -> None:
        self._ids = count(1001)
        self.rulesets: list[Ruleset] = []
        self.statuses: list[Status] = []
        self.checks: dict[int, CheckRun] = {}

    def protect(self, name: str, pattern: str, rules: Mapping[str, dict[str, Any] | None], *bypass: str) -> Ruleset:
        """Rules on branches, which the repository's own hook enforces for every push."""
        ruleset = Ruleset(next(self._ids), name, pattern, dict(rules), frozenset(bypass))
        self.rulesets.append(ruleset)
        return ruleset

    def rules(self, branch: str) -> Iterator[tuple[Ruleset, str, dict[str, Any] | None]]:
        for ruleset in self.rulesets:
            if ruleset.covers(branch):
                yield from ((ruleset, kind, parameters) for kind, parameters in ruleset.rules.items())

    def rule(self, branch: str, kind: str) -> dict[str, Any] | None:
        """Parameters of the first rule of a kind on a branch, or None."""
        return next((parameters or {} for _, k, parameters in self.rules(branch) if k == kind), None)

    def good(self, sha: str, context: str) -> bool:
        """Whether a required check is met for a commit: by its newest status or check run of that name."""
        states = [s.state for s in self.statuses if (s.sha, s.context) == (sha, context)]
        runs = [r.conclusion for r in self.checks.values() if (r.sha, r.name) == (sha, context)]
        return states[-1:] == ["success"] or runs[-1:] in (["success"], ["neutral"], ["skipped"])

    def missing_checks(self, branch: str, sha: str) -> list[str]:
        rule = self.rule(branch, "required_status_checks") or {}
        return [c["context"] for c in rule.get("required_status_checks", ()) if not self.good(sha, c["context"])]
