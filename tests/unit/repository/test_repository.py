"""Scopes of clusters, and the results that a branch keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.cluster.model.scope import ClusterScope, ScopeChange
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.repository.cluster import clusters_in_force, declared_rule, successor
from gitops.repository.results import RunResult, combined_result, diagnostics_of, result_of

TARGET = ClusterTarget("loop", "brain", "production", "refs/heads/main", "cluster")
SCOPE = ClusterScope(TARGET, None, "brain")


def entry(scope: ClusterScope | None = SCOPE, target: ClusterTarget = TARGET) -> LedgerEntry:
    """The newest entry of a ledger."""
    return LedgerEntry(
        number=1,
        kind=EntryKind.APPLY,
        operation="x",
        at="2026-01-01T00:00:00Z",
        actor=None,
        target=target,
        previous=None,
        source=None,
        changeset=None,
        plan_digest=None,
        config_digest=None,
        state_revision=1,
        policy_digest="0" * 64,
        trust_digest="0" * 64,
        scope=scope,
    )


def config(*rules: str) -> bytes:
    return ("version: 1\nclusters:\n" + "".join(f"  - {{{rule}}}\n" for rule in rules)).encode()


@pytest.mark.parametrize(
    ("rules", "heads", "expected"),
    [
        (["name: brain, path: other"], {}, ["brain at other on main"]),
        (["name: brain, path: other, branch: dev"], {"brain": entry()}, ["brain at cluster on main"]),
        (["name: brain, path: other"], {"brain": entry(None)}, ["brain at cluster on main"]),
        (["name: mind, path: other, renamed_from: brain"], {"brain": entry()}, ["brain at cluster on main"]),
        (["name: mind, path: other"], {"brain": entry()}, ["mind at other on main", "brain at cluster on main"]),
        (["name: mind, path: other"], {"brain": entry(replace(SCOPE, closed=True))}, ["mind at other on main"]),
        (
            ["name: mind, path: other, renamed_from: brain"],
            {
                "brain": entry(replace(SCOPE, target=replace(TARGET, cluster="mind"))),
                "mind": entry(replace(SCOPE, target=replace(TARGET, cluster="mind"))),
            },
            ["mind at cluster on main"],
        ),
    ],
)
def test_what_a_ledger_records_is_in_force(
    rules: list[str], heads: dict[str, LedgerEntry], expected: list[str]
) -> None:
    found = clusters_in_force(parse_bot_config(config(*rules)), heads)
    assert [f"{each.name} at {each.path} on {each.branch}" for each in found] == expected


def test_the_declaration_of_a_ledger_is_by_its_name_or_by_the_former_one() -> None:
    declared = parse_bot_config(config("name: mind, path: a, renamed_from: brain", "name: other, path: b"))
    found = {name: declared_rule(declared, name) for name in ("mind", "brain", "other", "gone")}
    assert {name: None if each is None else each.path for name, each in found.items()} == {
        "mind": "a",
        "brain": "a",
        "other": "b",
        "gone": None,
    }


@pytest.mark.parametrize(
    "rules",
    [
        ["name: mind, path: a, renamed_from: mind"],
        ["name: mind, path: a, renamed_from: brain", "name: brain, path: b"],
        ["name: mind, path: a, renamed_from: brain", "name: other, path: b, renamed_from: Brain"],
    ],
)
def test_no_two_clusters_go_on_with_one_ledger(rules: list[str]) -> None:
    with pytest.raises(GitopsError, match="has this name already"):
        parse_bot_config(config(*rules))


def test_every_part_of_a_place_is_in_its_digest() -> None:
    others = [
        replace(SCOPE, storage="elsewhere"),
        replace(SCOPE, home="mind"),
        replace(SCOPE, closed=True),
        *(replace(SCOPE, target=replace(TARGET, **{part: "refs/heads/x"})) for part in TARGET.__slots__),
    ]
    assert len({SCOPE.digest, *(each.digest for each in others)}) == len(others) + 1


def test_a_change_says_what_is_left_behind() -> None:
    moved = ScopeChange(SCOPE, replace(SCOPE, storage="s3://there/brain"))
    assert moved.details(1) == (
        "storage: default becomes s3://there/brain",
        "1 graph is not copied: the folder of each has to be in s3://there/brain before this is applied",
    )
    assert ScopeChange(SCOPE, None).details(2) == (
        "2 graphs are left in storage default without a ledger",
        "branch gitops/ledger/brain is left with its last entry",
    )
    assert ScopeChange(SCOPE, None, "mind").details(2)[2:] == (
        "to rename brain to mind, add renamed_from: brain to the entry of mind: that keeps ledger and graphs",
    )
    assert ScopeChange(None, SCOPE).details(0)[:2] == ("name: brain", "path: cluster")
    assert ScopeChange(SCOPE, None).recorded == replace(SCOPE, closed=True)


@pytest.mark.parametrize(
    ("rule", "storage", "expected"),
    [
        ("name: mind, path: cluster", None, "mind"),
        ("name: mind, path: other", "s3://there/brain", "mind"),
        ("name: mind, path: other", None, None),
        ("name: mind, path: cluster, branch: release", None, None),
        ("name: known, path: cluster", "s3://there/brain", None),
        ("name: mind, path: cluster, renamed_from: known", "s3://there/brain", None),
    ],
)
def test_a_new_cluster_in_the_place_of_one_that_goes_may_be_a_rename(
    rule: str, storage: str | None, expected: str | None
) -> None:
    before = parse_bot_config(config("name: brain, path: cluster", "name: known, path: third"))
    gone = replace(SCOPE, storage="s3://there/brain")
    assert successor(before, parse_bot_config(config(rule)), gone, {"other": storage}.get) == expected


def test_the_verdicts_are_the_exit_codes_of_the_manual() -> None:
    assert {v.name: int(v) for v in RunResult} == {"DONE": 0, "PROBLEMS": 1, "WAITS": 3, "LOST": 4}


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ((), RunResult.DONE),
        ((RunResult.DONE, RunResult.WAITS), RunResult.WAITS),
        ((RunResult.WAITS, RunResult.LOST, RunResult.DONE), RunResult.LOST),
        ((RunResult.LOST, RunResult.PROBLEMS, RunResult.WAITS), RunResult.PROBLEMS),
    ],
)
def test_the_worst_part_counts(parts: tuple[RunResult, ...], whole: RunResult) -> None:
    assert combined_result(parts) is whole


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        ([], RunResult.DONE),
        (["state_cas_mismatch"], RunResult.LOST),
        (["git_ref_conflict", "request_head_moved"], RunResult.LOST),
        (["state_cas_mismatch", "request_conflict"], RunResult.PROBLEMS),
    ],
)
def test_only_lost_races_are_lost(codes: list[str], verdict: RunResult) -> None:
    found = Diagnostics()
    for code in codes:
        found.add(code, "", "x")
    found.add("approval_stale", "graph.a", "a warning weighs nothing", severity=Severity.WARNING)
    assert result_of(found) is verdict


def test_an_exception_is_one_problem() -> None:
    (problem,) = diagnostics_of(GitopsError("request_conflict", "they conflict", path="brain"))
    assert (problem.code, problem.message, problem.path) == ("request_conflict", "they conflict", "brain")
