"""`gitops bot` as jobs of Gitea Actions and of GitLab CI run it, against a twin of each with a real repository behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bot_stage import QUERY
from tests.support.forges.site import GiteaSite, GitLabSite, Site
from tests.support.loop import DELETE_LEGACY, Loop

pytestmark = pytest.mark.e2e

SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


@pytest.fixture(params=[GiteaSite, GitLabSite])
def site(request: pytest.FixtureRequest, known: Loop, tmp_path: Path) -> Iterator[Site]:
    with request.param.at(known, tmp_path / "jobs") as running:
        yield running


def test_the_whole_life_of_a_request(site: Site) -> None:
    loop = site.loop
    pull = site.propose("alice", "retire", DELETE_LEGACY)
    number, head = pull.number, pull.head
    planned = site.run("plan", site.on_request(number))
    assert planned.code == 3, planned.text
    assert site.status(head, "plan").startswith(f"{site.failed}: 2 changes; needs approval: graph.legacy")
    (comment,) = site.comments(number)
    assert head[:7] in comment
    assert f"gitops approve graph.legacy --request {number}" in comment
    assert pull.labels == ["gitops/needs-approval"]
    # The last line says what it took.
    assert planned.text.splitlines()[-1].startswith(f"gitops: {len(planned.calls)} calls, ")
    if isinstance(site, GiteaSite):
        assert "graph.legacy" in planned.summary
        assert "waits" in planned.outputs
    else:
        assert site.world.actions == []

    site.approve_as_printed("bob", number)
    heard = site.say_to("carol", number, "/gitops plan")
    said = pull.comments[-1]
    for _ in range(2):
        again = site.run("command", heard)
        assert again.code == 0, again.text
    assert site.status(head, "plan") == "success: 2 changes"
    assert site.reactions(said) == [site.thumbs[0]]
    assert pull.labels == []
    assert loop.graph("legacy").exists()

    before = loop.tip()
    tip = site.merge("carol", number)
    pushed = site.on_push(before, "carol")
    applied = site.run("apply", pushed)
    assert applied.code == 0, applied.text
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    assert len(site.comments(number)) == 1
    assert "bob@people.example" in site.comments(number)[0]
    assert pull.labels == ["gitops/applied"]

    # The same deliveries once more change nothing.
    refs, texts = dict(site.world.refs()), site.comments(number)
    assert site.run("apply", pushed).code == 0
    assert site.run("plan", site.on_request(number, "synchronized")).code == 0
    assert (dict(site.world.refs()), site.comments(number)) == (refs, texts)
    # What is merged is not planned again; the report of its apply stays, and says so below.
    assert site.run("command", site.say_to("carol", number, "/gitops plan")).code == 1
    (comment,) = site.comments(number)
    assert comment.startswith(texts[0].rstrip())
    assert "is merged" in comment[len(texts[0].rstrip()) :]
    assert len(site.world.deployments) == isinstance(site, GitLabSite)


def test_a_fork_is_planned_without_a_secret_and_told_by_a_job_that_has_one(site: Site) -> None:
    pull = site.propose_from_fork("mallory", "retire", DELETE_LEGACY)
    number, refs = pull.number, dict(site.world.store.refs("refs"))
    seen = site.run("plan", site.on_request(number), token=False)
    assert (seen.code, seen.calls) == (3, ())
    assert "plan of brain: 2 changes; needs approval: graph.legacy" in seen.text
    assert dict(site.world.store.refs("refs")) == refs
    refused = site.run("apply", site.on_push(site.tip(), "carol"), token=False)
    assert (refused.code, "GITOPS_TOKEN" in refused.text) == (2, True)
    if isinstance(site, GiteaSite):
        assert "graph.legacy" in seen.summary
        for verb in ("sweep", "drift", "command"):
            refused = site.run(verb, site.on_request(number), token=False)
            assert (refused.code, "GITOPS_TOKEN" in refused.text) == (2, True)
        run = {"head_sha": pull.head, "event": "pull_request", "status": "completed"}
        ended = {"action": "completed", "workflow_run": run, "repository": {"full_name": site.world.project}}
        told = site.run("plan", ({"GITHUB_EVENT_NAME": "workflow_run"}, ended))
    else:
        told = site.run("plan", site.timer, "--request", str(number))
    assert told.code == 3, told.text
    # No branch holds this head: on GitLab, the status needs the ref of the request.
    assert site.status(pull.head, "plan").startswith(f"{site.failed}: 2 changes")
    assert len(site.comments(number)) == 1
    assert site.run("command", site.say_to("mallory", number, "/gitops plan")).code == 1
    assert [r for c in pull.comments for r in site.reactions(c)] == [site.thumbs[1]]


def test_what_no_job_did_is_found_by_the_sweep(site: Site) -> None:
    pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert f"request {pull.number}: no run planned its head" in swept.text
    assert site.status(pull.head, "plan") == "success: 1 change"
    merged = site.propose("bob", "contact", {"cluster/legacy.pg": SCHEMA}).number
    tip = site.merge("carol", merged, "squash")
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert site.status(tip, "apply").startswith("success: ")
    assert "found by the sweep" in site.comments(merged)[0]
    quiet = site.run("sweep", site.timer)
    assert "no run planned" not in quiet.text
    assert [call for call in quiet.calls if not call.startswith("GET ")] == []


def test_an_outage_of_what_names_authors_keeps_only_gates_shut(site: Site) -> None:
    loop = site.loop
    site.server.fault_next(site.authors, status=500, times=1000)
    harmless = site.propose("alice", "query", {"cluster/notes.gq": QUERY}).number
    tip = site.merge("carol", harmless, "squash")
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert site.status(tip, "apply") == "success: 1 applied"

    site.server.faults.clear()
    gated = site.propose("alice", "retire", DELETE_LEGACY).number
    site.run("sweep", site.timer)
    site.approve_as_printed("bob", gated)
    site.server.fault_next(site.authors, status=500, times=1000)
    tip = site.merge("carol", gated, "squash")
    for _ in range(2):
        waiting = site.run("sweep", site.timer)
        assert waiting.code == 1, waiting.text
        assert re.search(
            "who the authors are is not known for now, .*: forge_unavailable: .* with status 500", waiting.text
        )
        assert loop.graph("legacy").exists()
    assert site.status(tip, "apply").endswith(": pushers_pending")

    site.server.faults.clear()
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    assert "bob@people.example" in site.comments(gated)[0]
    assert loop.gitops("carol", "audit").text.startswith("audit good")
