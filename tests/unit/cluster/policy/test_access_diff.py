"""Who gains and loses what, as a plan tells it: one row for each difference, with its rule and its cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from gitops.cluster.model.access import AccessClass, AccessRow, CauseKind, widening_words
from gitops.cluster.policy.access import AccessState, PolicyText
from gitops.cluster.policy.access_diff import access_diff
from gitops.cluster.policy.bundle import BranchScope, Bundle, PolicyAction, Rule

STAFF = tuple(f"act-{number:02}" for number in range(11))
GROUPS = {"staff": (*STAFF, "act-editor"), "editors": ("act-editor",)}
EDITING = Rule("editing", "editors", (PolicyAction.CHANGE,), line=17)
READING = Rule("reading", "staff", (PolicyAction.READ,), line=9)
STORED = Rule("stored-queries", "staff", (PolicyAction.INVOKE_QUERY,), line=13)
BUNDLE = Bundle(GROUPS, frozenset({"main"}), (READING, STORED, EDITING))
QUERIES = {"find_person": False}


def state(bundle: Bundle | None = BUNDLE, queries: Mapping[str, bool] = QUERIES, *, bound: bool = True) -> AccessState:
    """One graph, and a policy that is bound to it or to none."""
    text = PolicyText("k", "policies/k.yaml", "digest", bundle)
    return AccessState({"k": text}, {"graph.knowledge": "k"} if bound else {}, {"knowledge": queries})


def told(row: AccessRow) -> tuple[str, str, str, int, str | None, CauseKind]:
    """What a row says at least."""
    sign = "+" if row.gain else "-"
    return f"{sign}{row.row_class}", row.action, row.scope, len(row.actors.members), row.rule, row.cause.kind


def with_rules(*rules: Rule) -> Bundle:
    return replace(BUNDLE, rules=rules)


def test_larger_group_of_a_rule_is_a_gain_with_rule_line_and_cause() -> None:
    wider = with_rules(READING, STORED, replace(EDITING, group="staff"))
    diff = access_diff(state(), state(wider))

    assert [told(row) for row in diff.rows] == [
        ("+protected", "change", "graph.knowledge", 11, "editing", CauseKind.RULE),
        ("+write", "change", "graph.knowledge", 11, "editing", CauseKind.RULE),
    ]
    first = diff.rows[0]
    assert (first.file, first.line, first.branches) == ("policies/k.yaml", 17, ("main",))
    assert (first.cause.words, first.cause.line) == ("rule: group editors -> staff", 17)
    assert (first.actors.union, first.actors.minus) == (("staff",), ("editors",))
    assert diff.rows[1].except_branches == ("main",)
    assert (
        widening_words(row for row in diff.widenings if row.row_class is AccessClass.PROTECTED)
        == "widens access: change on main of knowledge for 11 actors"
    )


def test_branch_that_leaves_the_protected_ones_still_counts_as_protected() -> None:
    limited = replace(BUNDLE, rules=(replace(EDITING, branch_scope=BranchScope.UNPROTECTED),))
    diff = access_diff(state(limited), state(replace(limited, protected_branches=frozenset())))

    assert [told(row) for row in diff.rows] == [
        ("+protected", "change", "graph.knowledge", 1, "editing", CauseKind.PROTECTED_BRANCHES)
    ]
    assert diff.widenings == diff.rows


COPYING = Rule("copying", "editors", (PolicyAction.BRANCH_CREATE, PolicyAction.BRANCH_MERGE), line=21)
DRAFTS = Rule("drafts", "guests", (PolicyAction.READ,), BranchScope.UNPROTECTED, line=25)


def test_copies_of_a_protected_branch_are_a_gain_where_an_actor_reads_them_who_does_not_read_the_branch() -> None:
    guests = replace(BUNDLE, groups={**GROUPS, "guests": ("act-guest",)}, rules=(*BUNDLE.rules, DRAFTS))
    limited = replace(COPYING, target_branch_scope=BranchScope.UNPROTECTED)
    diff = access_diff(state(guests), state(replace(guests, rules=(*guests.rules, limited))))

    assert [(*told(row)[:2], row.branches, row.rule) for row in diff.rows] == [
        ("+protected", "branch_create_from", ("main",), "copying"),
        ("+protected", "branch_merge_from", ("main",), "copying"),
        ("+write", "branch_create", (), "copying"),
        ("+write", "branch_merge", (), "copying"),
    ]
    assert (
        widening_words(diff.widenings) == "widens access: branch_create_from main of knowledge for 1 actor, and 3 more"
    )
    # Where everybody reads `main` who reads a copy, there is nothing to protect.
    without = access_diff(state(), state(replace(BUNDLE, rules=(*BUNDLE.rules, limited))))
    assert {row.row_class for row in without.rows} == {AccessClass.WRITE}


def test_reading_a_protected_branch_is_a_gain_of_copying_it_too() -> None:
    """The editor reads through the group alone that it is now in."""
    guests = replace(
        BUNDLE, groups={**GROUPS, "staff": STAFF, "guests": ("act-guest",)}, rules=(READING, COPYING, DRAFTS)
    )
    diff = access_diff(state(guests), state(replace(guests, groups={**guests.groups, "staff": GROUPS["staff"]})))

    assert {(row.row_class, row.action, row.rule) for row in diff.rows if row.branches == ("main",)} == {
        ("protected", "branch_create_from", "reading"),
        ("protected", "branch_merge_from", "reading"),
    }


def test_rules_that_are_reordered_or_renamed_are_no_difference() -> None:
    renamed = with_rules(replace(EDITING, id="writing"), STORED, READING)
    assert access_diff(state(), state(renamed)).rows == ()


def test_last_policy_of_a_graph_removed_lets_every_token_read_and_takes_the_rest() -> None:
    diff = access_diff(state(), state(bound=False))

    gains = diff.gains
    assert [told(row) for row in gains] == [("+read", "read", "graph.knowledge", 0, None, CauseKind.BINDING)]
    assert gains[0].actors.others
    assert {row.action for row in diff.rows if not row.gain} == {"change", "invoke_query", "run"}


def test_one_of_two_rules_that_permit_the_same_is_lost_without_a_row() -> None:
    twice = with_rules(READING, replace(READING, id="also-reading"))
    assert access_diff(state(twice), state(with_rules(READING))).rows == ()


def test_new_query_is_run_by_those_who_may_invoke_it_and_is_not_gated() -> None:
    diff = access_diff(state(), state(queries={**QUERIES, "add_person": True}))

    assert [told(row) for row in diff.rows] == [
        ("+run", "run", "graph.knowledge", 1, "stored-queries", CauseKind.QUERY)
    ]
    assert diff.rows[0].queries == ("add_person",)
    assert diff.widenings == ()


def test_after_a_policy_that_cannot_be_read_every_right_is_a_gain() -> None:
    diff = access_diff(state(None), state())

    assert {row.gain for row in diff.rows} == {True}
    assert {row.action for row in diff.rows} == {"read", "change", "invoke_query", "run"}
    assert diff.unread == ("graph.knowledge",)
    assert {row.cause.kind for row in diff.rows} == {CauseKind.SEVERAL}


def test_new_graph_has_nothing_to_protect() -> None:
    diff = access_diff(AccessState(), state())

    assert {row.cause.kind for row in diff.rows} == {CauseKind.GRAPH}
    assert diff.widenings == ()


@pytest.mark.parametrize(
    ("after", "cause", "words"),
    [
        (
            replace(BUNDLE, groups={**GROUPS, "editors": ("act-editor", "act-00")}),
            CauseKind.MEMBERSHIP,
            "group editors: +act-00",
        ),
        (with_rules(*BUNDLE.rules, replace(EDITING, id="more", group="staff")), CauseKind.RULE, "new rule"),
        (
            with_rules(READING, STORED, replace(EDITING, actions=(PolicyAction.CHANGE, PolicyAction.EXPORT))),
            CauseKind.RULE,
            "rule: actions +export",
        ),
        (
            replace(
                with_rules(READING, STORED, replace(EDITING, group="new")),
                groups={**GROUPS, "new": ("act-00", "act-editor")},
            ),
            CauseKind.RULE,
            "rule: group editors -> new",
        ),
    ],
    ids=["member", "rule", "action", "group"],
)
def test_cause_is_the_one_part_that_changes(after: Bundle, cause: CauseKind, words: str) -> None:
    assert {(row.cause.kind, row.cause.words) for row in access_diff(state(), state(after)).rows} == {(cause, words)}


def test_difference_that_no_part_undoes_alone_is_due_to_several() -> None:
    more = [replace(EDITING, id=name, group="staff") for name in ("more", "most")]
    rows = access_diff(state(), state(with_rules(*BUNDLE.rules, *more))).rows

    assert {(row.rule, row.cause.kind) for row in rows} == {("more", CauseKind.SEVERAL)}
