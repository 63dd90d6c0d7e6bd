"""What only Gitea does to `gitops bot`: failing lists, tokens that may not ask. What others do as well: `test_bot_forges.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bot_stage import QUERY
from tests.support.forges.gitea import PROJECT
from tests.support.forges.site import GiteaSite
from tests.support.loop import DELETE_LEGACY, MAIN, Loop

pytestmark = pytest.mark.e2e


@pytest.fixture
def site(known: Loop, tmp_path: Path) -> Iterator[GiteaSite]:
    with GiteaSite.at(known, tmp_path / "jobs") as running:
        yield running


def test_a_stranger_who_deletes_a_fork_stops_no_apply(site: GiteaSite) -> None:
    """Gitea then fails to list any request. A direct push is looked for among them, and is still known as nobody's merge."""
    loop, before = site.loop, site.loop.tip()
    site.world.delete_fork(
        site.propose_from_fork("mallory", "bait", {"cluster/README.md": b"Mine.\n"}).number, "mallory"
    )
    tip = site.push("alice", "main", {"cluster/notes.gq": QUERY})
    applied = site.run("apply", site.on_push(before, "alice"))
    assert applied.code == 0, applied.text
    assert site.status(tip, "apply") == "success: 1 applied"
    # Signed, and known: so its gate opens.
    site.push("alice", "main", DELETE_LEGACY)
    assert site.run("sweep", site.timer).code == 3
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()


def test_a_request_that_gitea_cannot_show_keeps_only_gates_shut(site: GiteaSite) -> None:
    loop = site.loop
    bait = site.propose_from_fork("mallory", "bait", {"cluster/README.md": b"Mine.\n"}).number
    other = site.propose_from_fork("alice", "words", {"README.md": b"Other words.\n"}).number
    for number in (bait, other):
        site.world.delete_fork(number, "mallory")
    site.server.fault_next(rf"^GET .*/pulls/{bait}$", status=500, times=1000)
    tip = site.push("alice", "main", {**DELETE_LEGACY, "cluster/notes.gq": QUERY})
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = site.run("sweep", site.timer)
    assert swept.code == 3, swept.text
    assert f"commit {tip[:12]}: the forge answers GET /repos/{PROJECT}/pulls/{bait} with status 500" in swept.text
    assert site.status(tip, "apply").startswith("failure: 1 applied, ")
    assert loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_who_may_not_be_asked_about_gets_an_answer(site: GiteaSite) -> None:
    """The token of an account that may only write cannot look up what a commenter may do."""
    site.world.admin = False
    pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    refused = site.run("command", site.say_to("carol", pull.number, "/gitops plan"))
    assert (refused.code, "command refused: command_refused: forge_refused" in refused.text) == (1, True)
    assert site.reactions(pull.comments[-1]) == ["-1"]


def test_whose_work_nobody_knows_is_not_approved_by_anybody(site: GiteaSite) -> None:
    """Alice pushes straight to main in bob's name, unsigned, and approves it herself; the run of her push is lost."""
    loop, before = site.loop, site.loop.tip()
    site.world.move(MAIN, loop.commit("bob", DELETE_LEGACY, key=None), "alice")
    assert loop.sign_approval("alice", "graph.legacy", blind=True).ok
    swept = site.run("sweep", site.timer)
    assert loop.graph("legacy").exists()
    assert "approval_authors_unknown" in swept.text
    # Nor does it help that somebody tells later that it was bob.
    assert site.run("apply", site.on_push(before, "bob")).code == 3
    assert loop.graph("legacy").exists()
    # The way out: take it out, and propose it.
    tree = {"cluster/cluster.yaml": loop.store.read(loop.store.commit(before).tree, "cluster/cluster.yaml")}
    site.merge("carol", site.propose("carol", "back", tree).number)
    assert site.run("sweep", site.timer).code == 0
    number = site.propose("alice", "retire", DELETE_LEGACY).number
    assert site.run("plan", site.on_request(number)).code == 3
    site.approve_as_printed("bob", number)
    site.merge("carol", number)
    assert site.run("sweep", site.timer).code == 0
    assert not loop.graph("legacy").exists()
