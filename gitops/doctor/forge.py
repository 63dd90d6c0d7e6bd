"""Checks of what a forge enforces: the account of the bot, its permissions, and the rules of protected branches.

The protection of a cluster does not rely on these rules. They prevent accidents, and stop people with write access from
deleting the ledger. What the token cannot read is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.core.errors import GitopsError
from gitops.doctor.findings import DoctorFinding, attempt, error, good, unknown, warning
from gitops.forge.port import Account, BranchRules, ForgeReader, Permission

_ANY_CHECK = "*"
_MENUS = {
    "github": "Settings > Rules > Rulesets",
    "gitlab": "Settings > Repository > Protected branches",
    "gitea": "Settings > Branches",
}
# Branches that are created and never changed, by the checks of their rules.
_CREATED = {
    "forge.approvals": "gitops/approvals",
    "forge.revocations": "gitops/revocations",
    "forge.countersignatures": "gitops/countersignatures",
}
_HOOK = "gitops hook install --server --repo PATH, on the server"


def unreachable_forge_findings(reason: str) -> Iterator[DoctorFinding]:
    """Report every check of the forge as unknown."""
    for check in ("forge.token", "forge.target", "forge.ledger", *_CREATED):
        yield unknown(check, reason, "set GITOPS_TOKEN, and outside a CI job --forge KIND")


def forge_findings(
    forge: ForgeReader, kind: str, clusters: Sequence[ClusterRule], *, queue: bool = False
) -> Iterator[DoctorFinding]:
    """Make all of these checks for a kind of forge. `queue` means that a workflow of the repository answers a merge queue."""
    if kind != "local":
        try:
            me = forge.me()
        except GitopsError as problem:
            yield error("forge.token", f"{problem.code}: {problem.detail}", "renew the token (docs/forges.md)")
            return
        yield good("forge.token", f"the bot is {me.login}")
        yield from _permission(forge, me)
    menu = _MENUS.get(kind, _HOOK)
    for branch in dict.fromkeys(rule.branch for rule in clusters):
        rules, gaps = attempt("forge.target", partial(forge.branch_rules, branch), branch)
        yield from gaps
        if rules is None:
            continue
        yield from _permanence("forge.target", branch, branch, menu, rules, warning)
        if kind != "local":
            wanted = [f"gitops/plan/{rule.name}" for rule in clusters if rule.branch == branch]
            yield from _merging(branch, wanted, menu, rules, queue=queue)
    for rule in clusters:
        for check, branch in (
            ("forge.ledger", f"gitops/ledger/{rule.name}"),
            *((check, f"{folder}/{rule.name}/x") for check, folder in _CREATED.items()),
        ):
            rules, gaps = attempt(check, partial(forge.branch_rules, branch), branch)
            yield from gaps
            if rules is not None:
                yield from _reserved_branch(kind, check, branch, rules)


def _permission(forge: ForgeReader, me: Account) -> Iterator[DoctorFinding]:
    found, gaps = attempt("forge.permission", lambda: forge.permission(me))
    yield from gaps
    fix = "give the bot write access (docs/forges.md lists what each job needs)"
    if found is None:
        return
    if found >= Permission.WRITE:
        yield good("forge.permission", f"the bot may {found.name.lower()}")
    elif me.bot:
        # No forge lists the permissions of an app or a job token among those of people.
        yield unknown("forge.permission", f"{me.login} is an app; its permissions depend on the token", fix)
    else:
        yield error("forge.permission", f"{me.login} may {found.name.lower()}: it cannot push the ledger", fix)


def _merging(
    branch: str, wanted: Sequence[str], menu: str, rules: BranchRules, *, queue: bool
) -> Iterator[DoctorFinding]:
    """Whether a branch that clusters follow changes only by change requests whose plans (`wanted`) succeeded."""
    fix = f"{menu}: require a change request for {branch}"
    if rules.request_needed is None:
        yield unknown("forge.target.request", _why_unknown(rules), fix, branch)
    elif rules.request_needed:
        yield good("forge.target.request", "a change request is required", branch)
    else:
        yield warning("forge.target.request", f"{branch} accepts pushes without a change request", fix, branch)
    checks = rules.required_checks
    missing = ", ".join(check for check in wanted if checks is None or not {check, _ANY_CHECK}.intersection(checks))
    if checks is None:
        yield unknown("forge.target.check", _why_unknown(rules), place=branch)
    elif missing:
        detail = f"changes can be merged into {branch} although {missing} failed"
        yield warning("forge.target.check", detail, f"{menu}: require the status {missing} on {branch}", branch)
    else:
        yield good("forge.target.check", "a failed plan blocks the merge", branch)
    if rules.queue and not queue:
        fix = "run gitops bot verify on merge_group (docs/bot.md)"
        yield error("forge.target.queue", f"{branch} has a merge queue, and no workflow answers it", fix, branch)
    elif rules.queue:
        yield good("forge.target.queue", "a workflow answers the merge queue", branch)


def _reserved_branch(kind: str, check: str, branch: str, rules: BranchRules) -> Iterator[DoctorFinding]:
    """The rules of a branch that only the bot writes, or that must never change."""
    menu, pattern = _MENUS.get(kind, _HOOK), branch.rpartition("/")[0] + "/**"
    is_ledger = check == "forge.ledger"
    yield from _permanence(check, branch, pattern, menu, rules, error if is_ledger else warning)
    check, fix = f"{check}.pushers", f"{menu}: let only the bot push {pattern}"
    if kind == "local":
        if rules.protected:
            yield good(check, "the server's hook accepts only signed commits", branch)
    elif rules.request_needed:
        detail = f"{branch} accepts no pushes without a change request, so the bot cannot write it"
        yield error(check, detail, f"{menu}: let the bot push {pattern}, or exclude it from that rule", branch)
    elif not is_ledger:
        return
    elif rules.pushers is None and rules.protected is False:
        yield error(check, f"everyone with write access can push {branch}", fix, branch)
    elif rules.pushers is None:
        yield unknown(check, _why_unknown(rules), fix, branch)
    elif len(rules.pushers) > 1:
        yield warning(check, f"may push {branch}: {', '.join(rules.pushers)}", fix, branch)
    else:
        yield good(check, f"may push {branch}: {', '.join(rules.pushers) or 'no account by name'}", branch)


def _permanence(
    check: str,
    branch: str,
    pattern: str,
    menu: str,
    rules: BranchRules,
    report: Callable[[str, str, str, str], DoctorFinding],
) -> Iterator[DoctorFinding]:
    """Whether a branch can be rewritten or deleted. `report` makes the finding if it can."""
    for part, allowed, damage, fix in (
        ("force-push", rules.force_push, "rewritten", "block force pushes"),
        ("deletion", rules.deletion, "deleted", "restrict deletions"),
    ):
        name, remedy = f"{check}.{part}", f"{menu}: {fix} of {pattern}"
        if allowed is None:
            yield unknown(name, _why_unknown(rules), remedy, branch)
        elif allowed:
            yield report(name, f"{branch} can be {damage}", remedy, branch)
        else:
            yield good(name, f"it cannot be {damage}", branch)


def _why_unknown(rules: BranchRules) -> str:
    return "; ".join(rules.notes) or "the forge does not report it, or the token cannot read it"
