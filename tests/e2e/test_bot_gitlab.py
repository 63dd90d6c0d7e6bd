"""What only GitLab does to `gitops bot`: merge trains, edited comments. What others do as well: `test_bot_forges.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bot_stage import QUERY
from tests.support.forges.site import GitLabSite, Started
from tests.support.loop import DELETE_LEGACY, Loop

pytestmark = pytest.mark.e2e

SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


@pytest.fixture
def site(known: Loop, tmp_path: Path) -> Iterator[GitLabSite]:
    with GitLabSite.at(known, tmp_path / "jobs") as running:
        yield running


def test_a_comment_that_was_edited_since_commands_nothing(site: GitLabSite) -> None:
    pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    variables, spoken = site.say_to("carol", pull.number, "Fine.")
    said = pull.comments[-1]
    said.body, said.updated_at = "/gitops plan", site.world.stamp()
    attributes = {**spoken["object_attributes"], "note": said.body}
    edited = site.run("command", (variables, {**spoken, "object_attributes": attributes}))
    assert (edited.code, "was edited" in edited.text, site.reactions(said)) == (0, True, [])


def test_an_apply_is_one_deployment(site: GitLabSite) -> None:
    before = site.tip()
    tip = site.merge("carol", site.propose("alice", "query", {"cluster/notes.gq": QUERY}).number)
    for _ in range(2):
        assert site.run("apply", site.on_push(before, "carol")).code == 0
    (deployment,) = site.world.deployments.values()
    assert (deployment.sha, deployment.environment) == (tip, "production/brain")
    assert deployment.statuses[-1]["state"] == "success"


def test_a_merge_train_is_held_against_what_was_reviewed(site: GitLabSite) -> None:
    number = site.propose("alice", "contact", {"cluster/legacy.pg": SCHEMA}).number
    assert site.run("plan", site.on_request(number)).code == 0
    base = site.loop.tip()
    head = site.loop.tip(site.head_ref(number))

    def on_train(base: str) -> Started:
        group = site.loop.commit("carol", {"cluster/legacy.pg": SCHEMA}, base, head)
        site.world._keep("refs/merge-requests/1/train", group)
        site.world.build(group, "refs/merge-requests/1/train")
        train = {"CI_MERGE_REQUEST_EVENT_TYPE": "merge_train", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": base}
        return {**site.on_request(number)[0], **train, "CI_COMMIT_SHA": group}, None

    variables, _ = on_train(base)
    passed = site.run("verify", (variables, None))
    assert passed.code == 0, passed.text
    assert site.status(variables["CI_COMMIT_SHA"], "plan").startswith("success")
    # In front of it is something that nobody has seen together with it.
    other = site.loop.commit("bob", {"cluster/notes.gq": QUERY}, base)
    failed = site.run("verify", on_train(other))
    assert failed.code == 1
    assert "queue_plan_differs" in failed.text


def test_a_merge_request_without_signatures_is_approved_by_nobody(site: GitLabSite) -> None:
    """GitLab does not say who pushed, so whoever opened the request may not be the one whose work it is."""
    loop = site.loop
    head = loop.commit("alice", DELETE_LEGACY, key=None)
    site.world.move("refs/heads/retire", head, "alice")
    number = site.world.open_pull("alice", "retire").number
    site.merge("carol", number)
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = site.run("sweep", site.timer)
    assert swept.code == 3, swept.text
    assert (
        f"commit {head[:12]}: it is not signed, and gitlab does not list who pushed to request {number}" in swept.text
    )
    assert loop.graph("legacy").exists()
