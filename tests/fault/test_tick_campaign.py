"""Every kind of fault at every statement of a tick over PostgreSQL: what is looked at after each is in `tick_campaign.py`.

The slow tests are the whole campaign, of which `make faults` prints a table.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.tick_campaign import KINDS, STORIES, TABLE, After, Campaign
from tests.support.materialize.server_world import ServerWorld

# A statement about a replica, its audit row, and the rows of strategies; and each thing that may be left to the next tick.
_SAMPLE = [
    ("first tick", "CREATE CLUSTER REPLICA", "unanswered", After.NOTHING),
    ("shrink", "DROP CLUSTER REPLICA", "too_long", After.AGAIN),
    ("create and drop", "INSERT INTO mz_cluster_strategy_actions", "error twice", After.SETTLED),
    ("owed rows", "INSERT INTO mz_cluster_strategy_actions", "cut_before", After.SETTLED),
    ("grow", "INSERT INTO mz_cluster_strategies", "cut_after", After.AGAIN),
]


@pytest.mark.parametrize(("story", "statement", "kind", "after"), _SAMPLE)
def test_a_fault_of_a_sample(
    tmp_path: Path,
    stand_in: ServerWorld,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
    statement: str,
    kind: str,
    after: After,
) -> None:
    campaign = Campaign(tmp_path, stand_in, story, monkeypatch)
    [first, *_] = [at for at, text in enumerate(campaign.statements()) if text.startswith(statement)]
    assert campaign.fault_at(first, kind)[3] == after


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("story", STORIES)
def test_a_fault_at_every_statement(
    tmp_path: Path,
    stand_in: ServerWorld,
    monkeypatch: pytest.MonkeyPatch,
    story: str,
    kind: str,
    record_property: Callable[[str, object], None],
) -> None:
    campaign = Campaign(tmp_path, stand_in, story, monkeypatch)
    sent = campaign.statements()
    assert len(sent) >= 14
    for statement in range(len(sent)):
        record_property(TABLE, campaign.fault_at(statement, kind))
