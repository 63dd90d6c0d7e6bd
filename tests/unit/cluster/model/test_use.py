"""What a plan says about recorded use, and which calls a change breaks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gitops.cluster.model.access import RUN, AccessCause, AccessClass, AccessDiff, AccessRow, Actors, CauseKind
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import BreakKind, ContractBreak
from gitops.cluster.model.use import (
    CallerRules,
    Callers,
    ClientCalls,
    ClientNames,
    KnownSegment,
    QueryCalls,
    RecordedUse,
    UseReading,
    UseRecord,
    UseState,
    UseWindow,
    callers_moved,
    hashed_client,
    why_asked,
)
from gitops.cluster.plan.callers import asked_for, broken_calls, callers_of

AT = "2026-03-10T12:00:00Z"
BILLING = ClientCalls("billing", 308, "2026-03-10T09:30:00Z")
REPORT = ClientCalls("act-report", 3, "2026-03-07T12:00:00Z")
COUNTED = Callers(UseState.COUNTED, (BILLING, REPORT), 7, AT)
FIND, LIST = Address("query.knowledge.find"), Address("query.knowledge.list")


def callers(**more: object) -> Callers:
    return Callers(**{"state": UseState.COUNTED, "clients": (), "days": 7, "at": AT, **more})  # type: ignore[arg-type]


WORDS = {
    "two clients": (
        COUNTED,
        "breaks 2 clients: billing (41 calls a day, last 2 h ago), act-report (3 calls in 7 days, last 3 d ago)",
    ),
    "one client, a moment ago": (
        callers(clients=(ClientCalls("crm", 1, AT),), days=1),
        "breaks 1 client: crm (1 call a day, last 1 min ago)",
    ),
    "more than are shown": (
        callers(clients=tuple(ClientCalls(f"c{n}", 1, "") for n in range(7)), days=30),
        (
            "breaks 7 clients: c0 (1 call in 30 days), c1 (1 call in 30 days), c2 (1 call in 30 days), "
            "c3 (1 call in 30 days), c4 (1 call in 30 days) and 2 more"
        ),
    ),
    "none": (callers(), "no recorded call in 7 days"),
    "a part of the time": (
        callers(gap="recorded only since 2026-03-08"),
        "no recorded call in 7 days; recorded only since 2026-03-08",
    ),
    "too many keys": (
        callers(floor=12),
        (
            "no recorded call in 7 days; there are more clients than are counted, so counts are upper bounds, and a client "
            "with up to 12 calls may be missing"
        ),
    ),
    "forged": (callers(untrusted=1), "no recorded call in 7 days; 1 record is not trusted and not counted"),
    "off": (callers(state=UseState.NOT_RECORDED), "callers are not recorded"),
    "a clone": (callers(state=UseState.ELSEWHERE), "calls are not counted here"),
}


@pytest.mark.parametrize("case", WORDS)
def test_who_is_hit_is_said_and_nothing_unknown_is_called_safe(case: str) -> None:
    found, words = WORDS[case]
    assert found.words == words
    assert found.complete is (case in ("two clients", "one client, a moment ago", "more than are shown", "none"))


GAPS = {
    "whole": (["03-08", "03-09", "03-10"], "12:00", ""),
    "today not yet": (["03-08", "03-09"], "00:05", ""),
    "today missing": (["03-08", "03-09"], "12:00", "not recorded since 2026-03-10"),
    "the newest are gone": (["03-08"], "12:00", "not recorded since 2026-03-09"),
    "just begun": (["03-10"], "12:00", "recorded only since 2026-03-10"),
    "one in between": (["03-08", "03-10"], "12:00", "not recorded on 1 day, such as 2026-03-09"),
}


@pytest.mark.parametrize("case", GAPS)
def test_a_day_without_a_record_is_a_gap_and_not_a_day_without_calls(case: str) -> None:
    days, time, gap = GAPS[case]
    reading = UseReading(UseWindow(datetime.fromisoformat(f"2026-03-10T{time}").replace(tzinfo=UTC), 2))
    for number, day in enumerate(days):
        reading.add(record(f"{number:026}", f"2026-{day}"))
    assert reading.use(AT, "i").gap == gap


def record(segment: str, day: str, *knows: KnownSegment) -> UseRecord:
    return UseRecord("r", "c", "knowledge", "i", "s", segment, day, ClientNames.NAMED, 0, knows, ())


@pytest.mark.parametrize(("known", "missing"), [("0" * 26, False), ("9" * 26, True)])
def test_a_record_that_another_one_names_is_missed(known: str, *, missing: bool) -> None:
    reading = UseReading(UseWindow(datetime(2026, 3, 10, 12, tzinfo=UTC), 1))
    reading.add(record("0" * 26, "2026-03-09"))
    reading.add(record("1" * 26, "2026-03-10", KnownSegment(known, "2026-03-09", 0)))
    assert reading.use(AT, "i").gap == ("1 of its records is missing" if missing else "")


ASKED = {
    "every client is listed": (COUNTED, {"billing", "act-report"}, ""),
    "no client": (callers(), set(), ""),
    "one is not listed": (COUNTED, {"billing"}, "it breaks a client that approvals.may_break does not list"),
    "nothing is known": (
        callers(state=UseState.NOT_RECORDED),
        {"billing"},
        "it may break a client, because the record of its calls is not complete",
    ),
    "hidden names": (
        callers(clients=(ClientCalls(hashed_client("billing", "i"), 1, AT),), hashed_for="i"),
        {"billing"},
        "",
    ),
}


@pytest.mark.parametrize("case", ASKED)
def test_the_rule_decides_and_the_record_only_says_who(case: str) -> None:
    found, listed, reason = ASKED[case]
    assert why_asked(found, frozenset(listed)) == reason


MOVED = {
    "the same": (COUNTED, COUNTED, ""),
    "a little more": (COUNTED, callers(clients=(ClientCalls("billing", 1308, AT),)), ""),
    "far more": (
        COUNTED,
        callers(clients=(ClientCalls("billing", 1309, AT),)),
        "billing made 308 calls at the approval, and 1,309 now",
    ),
    "another client": (callers(), COUNTED, "it also breaks billing now, which its approver did not see"),
    "no longer known": (
        COUNTED,
        callers(state=UseState.NOT_RECORDED),
        "its approver saw complete records, and now: callers are not recorded",
    ),
    "approved without counts": (callers(state=UseState.NOT_RECORDED), COUNTED, ""),
    "not readable here": (COUNTED, callers(state=UseState.ELSEWHERE), ""),
}


@pytest.mark.parametrize("case", MOVED)
def test_an_approval_covers_the_clients_that_its_approver_saw(case: str) -> None:
    approved, now, reason = MOVED[case]
    assert callers_moved(approved, now, lambda seen: seen + 1000) == reason


def call(client: str, *parameters: str, query: str = "find") -> QueryCalls:
    return QueryCalls(query, parameters, client, 5, AT)


USE = RecordedUse(
    UseState.COUNTED,
    7,
    AT,
    (call("slug", "slug: text"), call("none"), call("null", "slug: null"), call("other", query="list")),
)
ALL = {"slug", "none", "null"}
BREAKS = {
    "removed": (ContractBreak(FIND, BreakKind.REMOVED), ALL),
    "a mutation now": (ContractBreak(FIND, BreakKind.EFFECT, "", "read", "mutation"), ALL),
    "a column less": (ContractBreak(FIND, BreakKind.COLUMN_DROPPED, "p.nick", "String"), ALL),
    "another type of a column": (ContractBreak(FIND, BreakKind.COLUMN_CHANGED, "p.nick", "String", "I32"), ALL),
    "a parameter that all must pass": (ContractBreak(FIND, BreakKind.PARAMETER_ADDED, "$x", "", "String"), ALL),
    "a parameter that is ignored": (ContractBreak(FIND, BreakKind.PARAMETER_DROPPED, "$slug", "String"), {"slug", "null"}),
    "a narrower parameter": (ContractBreak(FIND, BreakKind.PARAMETER_CHANGED, "$slug", "String?", "I32?"), {"slug", "null"}),
    "a parameter that is required now": (ContractBreak(FIND, BreakKind.PARAMETER_CHANGED, "$slug", "String?", "String"), ALL),
}  # fmt: skip


@pytest.mark.parametrize("case", BREAKS)
def test_only_calls_that_rely_on_what_breaks_are_hit(case: str) -> None:
    broken, hit = BREAKS[case]
    changes = (Change(FIND, Action.UPDATE, "1", "2"),)
    found = callers_of(broken_calls(changes, [broken], (), None), {"knowledge": USE}, CallerRules())
    assert {each.client for each in found[FIND].clients} == hit


def test_a_migration_asks_once_and_a_deleted_graph_hits_every_client() -> None:
    schema, graph = Address("schema.knowledge"), Address("graph.knowledge")
    changes = (Change(FIND, Action.UPDATE, "1", "2"), Change(schema, Action.UPDATE, "1", "2"))
    dropped = [ContractBreak(FIND, BreakKind.COLUMN_DROPPED, "p.nick", "String")]
    found = callers_of(broken_calls(changes, dropped, (), None), {"knowledge": USE}, CallerRules())
    assert found.keys() == {FIND, schema}
    assert found[schema] == found[FIND]
    assert asked_for(changes, found, CallerRules()).keys() == {schema}
    # A removed query does not wait for the schema, so it has an approval of its own.
    removed = (Change(FIND, Action.DELETE, "1", None), changes[1])
    assert asked_for(removed, found, CallerRules()).keys() == {FIND, schema}
    deleted = (Change(graph, Action.DELETE, "1", None),)
    found = callers_of(broken_calls(deleted, (), (), None), {"knowledge": USE}, CallerRules())
    assert {each.client for each in found[graph].clients} == {*ALL, "other"}


def test_clients_below_the_numbers_of_the_rules_do_not_count_and_are_not_missing() -> None:
    changes, removed = (Change(FIND, Action.DELETE, "1", None),), [ContractBreak(FIND, BreakKind.REMOVED)]
    use = RecordedUse(UseState.COUNTED, 7, AT, USE.calls, floor=4)
    for rules, hit, complete in (
        (CallerRules(ignored=frozenset({"none"})), {"slug", "null"}, False),
        (CallerRules(min_calls=5), ALL, True),
        (CallerRules(min_calls=6), set(), True),
    ):
        found = callers_of(broken_calls(changes, removed, (), None), {"knowledge": use}, rules)[FIND]
        assert ({each.client for each in found.clients}, found.complete) == (hit, complete)


def test_an_actor_that_may_no_longer_run_a_query_it_called_is_hit() -> None:
    policy = Address("policy.staff")
    row = AccessRow(
        gain=False,
        row_class=AccessClass.RUN,
        action=RUN,
        scope="graph.knowledge",
        branches=(),
        other_branches=False,
        except_branches=(),
        queries=("find",),
        actors=Actors(("slug", "eve"), others=False),
        policy="staff",
        rule="all",
        file="p.yaml",
        line=1,
        cause=AccessCause(CauseKind.RULE, "rule: all"),
    )
    changes = (Change(policy, Action.UPDATE, "1", "2"),)
    broken = broken_calls(changes, (), (), AccessDiff("a", "b", (row,)))
    found = callers_of(broken, {"knowledge": USE}, CallerRules())[policy]
    assert [each.client for each in found.clients] == ["slug"]
