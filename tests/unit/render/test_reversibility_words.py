"""What plans say of undoing a migration: a class for each step, the worst for the migration, nothing where nothing is known."""

from __future__ import annotations

import pytest

from gitops.cluster.model.address import Address, graph_address, restore_address, schema_address
from gitops.cluster.model.change import Action, Change, Disposition, Tier
from gitops.cluster.model.plan import ExecutionGraph, Plan
from gitops.database.graph.port import MigrationPreview
from gitops.render.change_rows import change_rows
from gitops.render.migrations import MigrationView, QueryUser, StepView
from gitops.render.text import change_lines

ADD = StepView({"kind": "add_property", "type_kind": "node"})
DROP = StepView({"kind": "drop_property", "mode": "soft"})
LAST = StepView({"kind": "drop_type", "mode": "soft"}, empties=True)
PURGE = StepView({"kind": "drop_type", "mode": "hard"})
INDEX = StepView({"kind": "add_constraint"})
UNKNOWN = StepView({"kind": "fold_type"})
NEVER = StepView({"kind": "unsupported_change", "entity": "node:A", "reason": "no"})


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (ADD, "reversible"),
        (DROP, "lossy: it can only come back empty"),
        (LAST, "irreversible: removing every type destroys the data of the graph"),
        (PURGE, "irreversible: no later plan undoes it"),
        (INDEX, "irreversible: no later plan undoes it"),
        (UNKNOWN, ""),
        (NEVER, ""),
    ],
)
def test_a_step_says_what_it_costs_to_undo_it(view, words):
    assert view.back == words
    used = StepView(view.step, (QueryUser(Address("query.g.q"), "reads"),), more=2)
    assert used.used == "used by query.g.q (reads) and 2 more"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((ADD, ADD), "all of it can be taken back"),
        ((ADD, DROP), "what it drops can only come back empty"),
        ((ADD, LAST), "not all of it can be taken back"),
        ((DROP, INDEX, ADD), "not all of it can be taken back"),
        ((ADD, UNKNOWN), ""),
        ((), ""),
    ],
)
def test_a_migration_is_as_hard_to_take_back_as_its_hardest_step(steps, words):
    assert MigrationView("schema.g", supported=True, steps=steps).back == words
    assert MigrationView("schema.g", supported=False, steps=steps).back == ""


@pytest.mark.parametrize(
    ("tier", "words"), [(Tier.IRREVERSIBLE, "irreversible: removing every type"), (None, "lossy: ")]
)
def test_a_plan_says_of_the_last_type_what_its_gate_says(tier, words):
    """Without rows there is no gate, and nothing is destroyed."""
    drop = {"kind": "drop_type", "type_kind": "node", "name": "Person", "mode": "soft"}
    change = Change(
        schema_address("g"),
        Action.UPDATE,
        "a" * 64,
        "b" * 64,
        migration=MigrationPreview(True, (drop,), True),
        tier=tier,
    )
    plan = Plan("c" * 64, "d" * 64, (change,), (), (), ExecutionGraph())
    assert f"({words}" in "\n".join(change_lines(plan))


@pytest.mark.parametrize(
    ("address", "words"), [(graph_address("legacy"), "created again, empty"), (restore_address("legacy"), "created")]
)
def test_only_a_graph_is_created_again(address: Address, words: str) -> None:
    change = Change(address, Action.CREATE, None, "1" * 64, tier=Tier.IRREVERSIBLE)
    (row,) = change_rows((change,), {Disposition.APPLIED: "applied"})
    assert (row.badge, row.words) == ("IRREVERSIBLE", words)
