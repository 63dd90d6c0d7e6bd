"""Checks of what a forge enforces: who the bot is there, what it may do, and the rules of the branches that carry trust.

Nothing that protects a cluster relies on these rules; they keep honest people from accidents, and the ledger from being
deleted by somebody who may write. What a token may not see stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gitops.config.gitops_yaml import ClusterRule
from gitops.core.errors import GitopsError
from gitops.doctor.checks import asked, error, good, unknown, warning
from gitops.doctor.findings import Finding
from gitops.forge.port import Account, BranchRules, ForgeReader, Permission

__all__ = ["ForgeFacts", "forge_findings", "silent_findings"]

_ANY_CHECK = "*"
_MENUS = {
    "github": "Settings > Rules > Rulesets",
    "gitlab": "Settings > Repository > Protected branches",
    "gitea": "Settings > Branches",
}
_HOOK = "gitops hook install --server --repo PATH, where the repository is"


@dataclass(frozen=True, slots=True)
class ForgeFacts:
    """Which forge, and which clusters are on it. `queue` says that a workflow of the repository answers a merge queue."""

    kind: str
    clusters: Sequence[ClusterRule]
    queue: bool = False


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule of a branch: what was seen (None: not told) against what is wanted, and what to say and do otherwise."""

    check: str
    seen: bool | None
    wanted: bool
    detail: str
    fix: str
    held: str = "a change request is needed"
    grave: bool = False


def silent_findings(reason: str) -> Iterator[Finding]:
    """Where nobody can be asked: nothing is known, and that is said."""
    for check in ("forge.token", "forge.target", "forge.ledger", "forge.approvals"):
        yield unknown(check, reason, "set GITOPS_TOKEN, and --forge KIND outside of a job")


def forge_findings(forge: ForgeReader, facts: ForgeFacts) -> Iterator[Finding]:
    """All of them."""
    if facts.kind != "local":
        try:
            me = forge.me()
        except GitopsError as problem:
            yield error("forge.token", f"{problem.code}: {problem.detail}", "renew the token (docs/forges.md)")
            return
        yield good("forge.token", f"the bot is {me.login}")
        yield from _permission(forge, me)
    for branch in dict.fromkeys(rule.branch for rule in facts.clusters):
        rules, gaps = asked("forge.target", partial(forge.branch_rules, branch), branch)
        yield from gaps
        if rules is not None:
            names = [rule.name for rule in facts.clusters if rule.branch == branch]
            yield from _target(facts, branch, names, rules)
    for rule in facts.clusters:
        for check, branch in (
            ("forge.ledger", f"gitops/ledger/{rule.name}"),
            ("forge.approvals", f"gitops/approvals/{rule.name}/x"),
        ):
            rules, gaps = asked(check, partial(forge.branch_rules, branch), branch)
            yield from gaps
            if rules is not None:
                yield from _reserved(facts, check, branch, rules)


def _permission(forge: ForgeReader, me: Account) -> Iterator[Finding]:
    found, gaps = asked("forge.permission", lambda: forge.permission(me))
    yield from gaps
    fix = "give the bot write access; docs/forges.md names what each job needs"
    if found is None:
        return
    if found >= Permission.WRITE:
        yield good("forge.permission", f"the bot may {found.name.lower()}")
    elif me.bot:
        # The token of an app or a job has permissions of its own, which no forge lists among those of people.
        yield unknown("forge.permission", f"{me.login} is an app: its permissions are those of the token", fix)
    else:
        yield error("forge.permission", f"{me.login} may {found.name.lower()}: it cannot push the ledger", fix)


def _target(facts: ForgeFacts, branch: str, clusters: Sequence[str], rules: BranchRules) -> Iterator[Finding]:
    """Rules of a branch that clusters follow."""
    menu = _MENUS.get(facts.kind, _HOOK)
    for part, seen, bad, fix in (
        ("force-push", rules.force_push, "rewritten", "block force pushes"),
        ("deletion", rules.deletion, "deleted", "restrict deletions"),
    ):
        detail, held = f"{branch} may be {bad}", f"it cannot be {bad}"
        rule = _Rule(f"forge.target.{part}", seen, False, detail, f"{menu}: {fix} of {branch}", held)
        yield _judged(rule, branch, rules)
    if facts.kind == "local":
        return
    detail = f"{branch} takes pushes without a change request"
    fix = f"{menu}: require a request before merging to {branch}"
    yield _judged(_Rule("forge.target.request", rules.request_needed, True, detail, fix), branch, rules)
    yield from _checks(branch, [f"gitops/plan/{name}" for name in clusters], menu, rules)
    if rules.queue and not facts.queue:
        fix = "run gitops bot verify on merge_group (docs/bot.md)"
        yield error("forge.target.queue", f"{branch} has a merge queue, and no workflow answers it", fix, branch)
    elif rules.queue:
        yield good("forge.target.queue", "a workflow answers the merge queue", branch)


def _checks(branch: str, wanted: Sequence[str], menu: str, rules: BranchRules) -> Iterator[Finding]:
    check = "forge.target.check"
    if rules.required_checks is None:
        yield unknown(check, _unseen(rules), place=branch)
        return
    missing = [] if _ANY_CHECK in rules.required_checks else [c for c in wanted if c not in rules.required_checks]
    if missing:
        detail = f"{branch} can be merged to although {', '.join(missing)} is bad"
        yield warning(check, detail, f"{menu}: require the status {', '.join(missing)} on {branch}", branch)
    else:
        yield good(check, "a bad plan stops a merge", branch)


def _reserved(facts: ForgeFacts, check: str, branch: str, rules: BranchRules) -> Iterator[Finding]:
    """Rules of a branch that the bot alone, or nobody, writes."""
    menu, pattern = _MENUS.get(facts.kind, _HOOK), branch.rpartition("/")[0] + "/**"
    sure = check == "forge.ledger"
    for part, seen, bad, fix in (
        ("force-push", rules.force_push, "rewritten", "block force pushes"),
        ("deletion", rules.deletion, "deleted", "restrict deletions"),
    ):
        detail, held = f"{branch} may be {bad}", f"it cannot be {bad}"
        rule = _Rule(f"{check}.{part}", seen, False, detail, f"{menu}: {fix} of {pattern}", held, grave=sure)
        yield _judged(rule, branch, rules)
    if rules.request_needed and facts.kind != "local":
        texts = f"{branch} takes no pushes without a change request, so the bot cannot write it"
        yield error(
            f"{check}.pushers", texts, f"{menu}: let the bot push {pattern}, or leave it out of that rule", branch
        )
    elif sure and facts.kind != "local":
        yield _pushers(branch, menu, pattern, rules)
    elif facts.kind == "local" and rules.protected:
        yield good(f"{check}.pushers", "the server's hook takes signed commits alone", branch)


def _pushers(branch: str, menu: str, pattern: str, rules: BranchRules) -> Finding:
    check, fix = "forge.ledger.pushers", f"{menu}: let nobody but the bot push {pattern}"
    if rules.pushers is None and rules.protected is False:
        return error(check, f"everybody who may write can push {branch}", fix, branch)
    if rules.pushers is None:
        return unknown(check, _unseen(rules), fix, branch)
    if len(rules.pushers) > 1:
        return warning(check, f"may push {branch}: {', '.join(rules.pushers)}", fix, branch)
    return good(check, f"may push {branch}: {', '.join(rules.pushers) or 'nobody by name'}", branch)


def _judged(rule: _Rule, branch: str, rules: BranchRules) -> Finding:
    if rule.seen is None:
        return unknown(rule.check, _unseen(rules), rule.fix, branch)
    if rule.seen is rule.wanted:
        return good(rule.check, rule.held, branch)
    return (error if rule.grave else warning)(rule.check, rule.detail, rule.fix, branch)


def _unseen(rules: BranchRules) -> str:
    return "; ".join(rules.notes) or "the forge does not tell it, or the token may not see it"
