"""What plans say of undoing a migration: a class for each step, the worst for the migration, nothing where nothing is known."""

from __future__ import annotations

import pytest

from gitops.render.impact import MigrationView, StepView

ADD = StepView({"kind": "add_property", "type_kind": "node"})
DROP = StepView({"kind": "drop_property", "mode": "soft"})
PURGE = StepView({"kind": "drop_type", "mode": "hard"})
INDEX = StepView({"kind": "add_constraint"})
UNKNOWN = StepView({"kind": "fold_type"})
NEVER = StepView({"kind": "unsupported_change", "entity": "node:A", "reason": "no"})


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (ADD, "reversible"),
        (DROP, "lossy: it can only come back empty"),
        (PURGE, "irreversible: no later plan undoes it"),
        (INDEX, "irreversible: no later plan undoes it"),
        (UNKNOWN, ""),
        (NEVER, ""),
    ],
)
def test_a_step_says_what_it_costs_to_undo_it(view, words):
    assert view.back == words
    used = StepView(view.step, ({"query": "query.g.q", "how": "reads"},), more=2)
    assert used.used == "used by query.g.q (reads) and 2 more"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((ADD, ADD), "all of it can be taken back"),
        ((ADD, DROP), "what it drops can only come back empty"),
        ((DROP, INDEX, ADD), "not all of it can be taken back"),
        ((ADD, UNKNOWN), ""),
        ((), ""),
    ],
)
def test_a_migration_is_as_hard_to_take_back_as_its_hardest_step(steps, words):
    assert MigrationView("schema.g", supported=True, steps=steps).back == words
    assert MigrationView("schema.g", supported=False, steps=steps).back == ""
