"""A job with an event file holds to the very rules that a server with hooks holds to: the same forgeries, the same words.

Nothing is switched off where there is no server: every forged approval of `tests/e2e/test_approvals.py` is refused by a CI job
for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest

from gitops.git.port import ZERO, RefUpdate
from tests.e2e.github.conftest import CAROL, WithConfig
from tests.e2e.github.stories import good
from tests.e2e.test_approvals import FORGERIES, MUCH_LATER
from tests.support.loop import APPROVALS, DELETE_LEGACY, LEDGER, MAIN, Loop, codes

pytestmark = pytest.mark.e2e

HEAD = re.compile(r"approval ([0-9a-f]{12})")


def _place(loop: Loop, commit: str) -> Mapping[str, str]:
    """Every forgery of a genuine approval under a name of its own; what each of them is, by its commit."""
    made = {}
    approval, statement = loop.evidence(commit)
    for number, (name, (_, forge)) in enumerate(FORGERIES.items()):
        told = replace(statement, expires_at=MUCH_LATER) if name == "longer than the rules allow" else statement
        forged = forge(loop, approval, told)
        loop.store.update_refs([RefUpdate(f"{APPROVALS}01BBBBBBBBBBBBBBBBBBBB{number:04}", ZERO, forged)])
        made[forged[:12]] = name
    return made


def test_every_forgery_is_refused_by_a_job_as_by_a_hook(with_config: WithConfig) -> None:
    runner = with_config(CAROL)
    hub = runner.hub
    hub.push("alice", "main", DELETE_LEGACY)
    (waiting,) = runner.settle()
    genuine = hub.approve("bob", "graph.legacy")
    (ref,) = hub.approvals()
    hub.loop.drop(ref)
    made = _place(hub.loop, genuine.commit or "")

    by_hook = hub.loop.arrived(APPROVALS + "01BBBBBBBBBBBBBBBBBBBB0000")
    again = runner.run(waiting.job)
    by_job = [line.removeprefix("gitops: ") for line in again.text.splitlines()]
    expected = {code for code, _ in FORGERIES.values()}
    assert codes(by_hook) & expected == codes(by_job) & expected == expected
    assert _told(by_hook) == _told(by_job)
    assert {made[commit]: code for code, commit in _told(by_job)} == {
        name: code for name, (code, _) in FORGERIES.items()
    }
    assert len(_told(by_job)) == len(made) == len(FORGERIES)
    assert hub.loop.graph("legacy").exists()
    assert len(hub.world.store.commit(hub.tip(LEDGER)).parents) == 1

    assert hub.approve("carol", "graph.legacy").ok
    good(runner)
    assert runner.tick("sweep").code == 0
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(hub.tip(MAIN), "apply").startswith("success")


def _told(lines: list[str]) -> set[tuple[str, str]]:
    """Code and commit of every refused approval in the lines that the bot says."""
    return {(line.split()[1], found[1]) for line in lines if (found := HEAD.search(line))}
