"""The disposition table, row by row, and the survey that feeds it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.kinds import Situation, rules_of
from gitops.cluster.plan.planner import classify, survey
from tests.support.planning import change, desired, rows

CASES = rows("dispositions.tsv")


def situation(flags: str, of: Change) -> Situation:
    def graph(flag: str) -> frozenset[str]:
        return frozenset({"g"} if flag in flags.split() else ())

    found = Situation(
        pending=graph("P"),
        created=graph("GC"),
        deleted=graph("GD"),
        schema_unsettled=graph("SP"),
        approved=frozenset({Address("graph.g")} if "A" in flags.split() else ()),
        policy_graphs={Address("policy.p"): ("f", "g"), Address("policy.elsewhere"): ("f",)},
    )
    gated = rules_of(of.address).gate(of, found) is not None
    return replace(found, gated=frozenset({of.address} if gated else ()))


def ruling(ruled: Change) -> str:
    return ruled.disposition.value + (f":{ruled.reason.value}" if ruled.reason else "")


@pytest.mark.parametrize(("row", "flags", "address", "action", "wanted"), CASES, ids=[" ".join(c[:4]) for c in CASES])
def test_disposition(row, flags, address, action, wanted):
    asked = change(address, action)
    (ruled,) = classify([asked], situation(flags, asked))
    assert ruling(ruled) == wanted
    assert (ruled.address, ruled.action) == (change(address, action).address, Action(action))


def test_every_row_of_the_table_has_a_case():
    assert {int(case[0]) for case in CASES} == set(range(1, 26))


def test_survey_sees_creates_deletes_and_unsettled_schemas():
    changes = [
        change("graph.made", "create"),
        change("schema.made", "create"),
        change("graph.gone", "delete"),
        change("schema.gone", "delete"),
        change("schema.alone", "create"),
        change("schema.lost", "delete"),
        change("schema.moved", "update"),
    ]
    seen = survey(changes, (), {"x"})
    assert seen.created == {"made"}
    assert seen.deleted == {"gone"}
    assert seen.schema_unsettled == {"alone", "gone", "lost"}
    assert seen.pending == {"x"}
    assert seen.approved == frozenset()


def test_survey_takes_the_graphs_of_a_policy_from_its_declared_bindings():
    wanted = desired({"graph.f": "1", "graph.g": "2", "policy.p": "3"}, {"policy.p": ["cluster", "graph.f", "graph.g"]})
    assert survey([], wanted.dependencies, ()).policy_graphs == {"policy.p": ("f", "g")}
