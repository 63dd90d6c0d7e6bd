"""What GitHub says of the rights of accounts and of the rules of branches; what it does not say is not known."""

from __future__ import annotations

import pytest

from gitops.core.errors import RemoteError
from gitops.forge.port import Account, BranchRules, Permission
from tests.support.github_canned import BOT, ROOT, RULES, forge_with, given_permission, no, ok, rule, unjudged
from tests.support.github_contract import contract


@pytest.mark.parametrize(
    ("role", "permission", "found"),
    [
        ("admin", "admin", Permission.ADMIN),
        ("maintain", "write", Permission.MAINTAIN),
        ("write", "write", Permission.WRITE),
        ("triage", "read", Permission.READ),
        ("read", "read", Permission.READ),
        ("none", "none", Permission.NONE),
        ("our own role", "write", Permission.WRITE),
        # A role that people called so: the owner is not a role of a repository there.
        ("owner", "read", Permission.READ),
    ],
)
def test_what_an_account_may_do(role: str, permission: str, found: Permission) -> None:
    forge, _ = forge_with({f"GET {ROOT}/collaborators/ada/permission": ok(given_permission(role, permission))})
    assert forge.permission(Account("2", "ada")) is found


def test_words_that_are_not_known_permit_nothing_and_are_named() -> None:
    path = f"GET {ROOT}/collaborators/ada/permission"
    forge, _ = forge_with({path: ok(given_permission("our own role", "something new"))})
    with pytest.raises(
        RemoteError, match="of ada 'our own role' and 'something new', which is not known here"
    ) as caught:
        forge.permission(Account("2", "ada"))
    assert (caught.value.code, caught.value.retryable) == ("forge_refused", False)


def test_a_login_that_somebody_else_took_gives_nothing() -> None:
    forge, _ = forge_with({f"GET {ROOT}/collaborators/ada/permission": ok(given_permission("admin", "admin", 77))})
    assert forge.permission(Account("2", "ada")) is Permission.NONE


def test_a_stranger_may_nothing_and_a_refusal_is_no_answer() -> None:
    path = f"GET {ROOT}/collaborators/github-actions%5Bbot%5D/permission"
    forge, _ = forge_with({path: [no(404), no(403, "Resource not accessible by integration")]})
    assert forge.permission(Account("41898282", BOT)) is Permission.NONE
    with pytest.raises(RemoteError) as refused:
        forge.permission(Account("41898282", BOT))
    assert refused.value.code == "forge_refused"


def test_rules_of_rulesets_where_protection_cannot_be_read() -> None:
    handlers = {
        f"GET {ROOT}/rules/branches/release%2F1": ok(RULES),
        f"GET {ROOT}/branches/release%2F1/protection": no(403, "Resource not accessible by integration"),
    }
    rules = forge_with(handlers)[0].branch_rules("release/1")
    assert (rules.protected, rules.request_needed, rules.force_push, rules.deletion) == (True, None, False, False)
    assert (rules.required_checks, rules.pushers) == (("gitops/plan/library",), None)
    assert len(rules.notes) == 1


def test_a_branch_without_any_protection() -> None:
    handlers = {
        f"GET {ROOT}/rules/branches/main": ok([]),
        f"GET {ROOT}/branches/main/protection": no(404, "Branch not protected"),
    }
    assert forge_with(handlers)[0].branch_rules("main") == BranchRules(
        protected=False,
        request_needed=False,
        force_push=True,
        deletion=True,
        required_checks=(),
    )


def test_nothing_is_known_where_nothing_is_told() -> None:
    handlers = {
        f"GET {ROOT}/rules/branches/main": ok([]),
        f"GET {ROOT}/branches/main/protection": no(404, "Not Found"),
    }
    rules = forge_with(handlers)[0].branch_rules("main")
    assert (rules.protected, rules.force_push, rules.required_checks) == (None, None, None)


def test_both_kinds_of_protection_together() -> None:
    simple = {"url": "https://api.github.com/x", "enabled": False}
    protection = {
        "url": "https://api.github.com/x",
        "required_status_checks": {"contexts": ["ci"], "checks": [{"context": "ci", "app_id": None}]},
        "allow_force_pushes": {"enabled": False},
        "allow_deletions": {"enabled": True},
        "enforce_admins": simple,
    }
    handlers = {
        f"GET {ROOT}/rules/branches/main": ok([*RULES[2:], rule("merge_queue"), rule("pull_request")]),
        f"GET {ROOT}/branches/main/protection": ok(protection),
    }
    rules = forge_with(handlers)[0].branch_rules("main")
    assert (rules.protected, rules.request_needed, rules.force_push, rules.deletion) == (True, True, False, True)
    assert (rules.required_checks, rules.queue, rules.notes) == (("ci", "gitops/plan/library"), True, ())


def test_who_may_push_to_a_branch() -> None:
    example = contract().example("GET", "/repos/{owner}/{repo}/branches/{branch}/protection")
    # The official example lacks what the description asks for, so this one is read without its judge.
    forge, sender = unjudged(None)
    sender.answers = iter([ok([]), ok(example)])
    rules = forge.branch_rules("main")
    assert rules.pushers == ("justice-league", "octoapp", "octocat")
    assert (rules.force_push, rules.deletion, rules.request_needed) == (True, True, True)
    assert rules.required_checks == ("continuous-integration/travis-ci",)
