"""`gitops bot` as jobs of GitLab CI run it, against a twin of GitLab with a real repository behind it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops.bot.sweep import drift_ref
from gitops.core.faults import NoFaults
from gitops.forge.web import WebAnswer, WebRequest
from gitops.repository.wiring.stores import graph_engine
from tests.support.bot_stage import QUERY
from tests.support.gitlab import GitLabWorld
from tests.support.gitlab_server import PROJECT, GitLabServer, Project
from tests.support.hosted import READER, TOKEN, Site, gates_wait_for_authors
from tests.support.loop import CLUSTER, DELETE_LEGACY, LEDGER, MAIN, Loop

pytestmark = pytest.mark.e2e

TARGET = {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main", "CI_MERGE_REQUEST_PROJECT_PATH": PROJECT}
SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"
LIVE = b"node Note {\n    title: String @key\n    text: String?\n    rank: I32?\n}\n"


@dataclass
class GitLabSite(Site):
    """GitLab; alice, bob and carol are developers, mallory is nobody."""

    project_data: Project = field(default_factory=lambda: GitLabWorld().project)

    api = "/api/v4"
    project = PROJECT
    pulls = "refs/merge-requests"

    def __post_init__(self) -> None:
        for who in ("alice", "bob", "carol"):
            self.project_data.user(who)
            self.project_data.levels[who] = 30
        self.project_data.requests.clear()
        super().__post_init__()

    def told(self, request: WebRequest) -> WebAnswer:
        server = GitLabServer(self.project_data, base=self.base + self.api)
        return server.reply(request)

    def admitted(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"Bearer {TOKEN}"

    def branches_are(self, heads: Mapping[str, str]) -> None:
        self.project_data.branches = dict(heads)
        for row in self.project_data.requests.values():
            if row["state"] == "opened":
                row["sha"] = heads.get(row["source_branch"], row["sha"])

    def opened(self, who: str, branch: str, *, fork: bool) -> int:
        return int(self.project_data.open(branch, "main", "Change", who, fork=fork)["iid"])

    def merged(self, number: int, commit: str) -> None:
        self.project_data.requests[number] |= {"state": "merged", "merge_commit_sha": commit}

    def job_variables(self, place: Path) -> dict[str, str]:
        return {
            "GITLAB_CI": "true",
            "CI_API_V4_URL": self.base + self.api,
            "CI_PROJECT_PATH": PROJECT,
            "CI_PIPELINE_ID": "7",
            "CI_JOB_ID": "8",
            "CI_JOB_URL": f"{self.base}/{PROJECT}/-/jobs/8",
            "CI_JOB_TOKEN": READER,
            "TRIGGER_PAYLOAD": str(place / "event.json"),
        }

    def login(self, clone: Path) -> None:
        """GitLab's runner writes the job's own login into the address of the remote."""
        url = f"{self.base}/{PROJECT}.git".replace("//", f"//gitlab-ci-token:{READER}@", 1)
        subprocess.run(["git", "config", "remote.origin.url", url], cwd=clone, check=True)

    # What starts jobs

    def on_request(self, number: int) -> dict[str, str]:
        return {
            **TARGET,
            "CI_PIPELINE_SOURCE": "merge_request_event",
            "CI_MERGE_REQUEST_IID": str(number),
            "CI_COMMIT_SHA": self.loop.tip(self.head_ref(number)),
        }

    def on_push(self, old: str, who: str) -> dict[str, str]:
        return {
            "CI_PIPELINE_SOURCE": "push",
            "CI_COMMIT_BRANCH": "main",
            "CI_COMMIT_BEFORE_SHA": old,
            "CI_COMMIT_SHA": self.loop.tip(),
            "GITLAB_USER_ID": str(self.project_data.user(who)["id"]),
        }

    def say(self, who: str, number: int, text: str) -> dict[str, Any]:
        """A comment; the webhook that tells of it."""
        note, user = self.project_data.say(number, who, text), self.project_data.user(who)
        kept = {"id": note["id"], "note": text, "created_at": note["created_at"], "author_id": user["id"]}
        return {
            "object_kind": "note",
            "user": user,
            "project": {"path_with_namespace": PROJECT},
            "object_attributes": {**kept, "noteable_type": "MergeRequest", "system": False, "action": "create"},
            "merge_request": {"iid": number},
        }

    # What is to be seen

    @property
    def timer(self) -> dict[str, str]:
        return SCHEDULED

    def status(self, commit: str, verb: str) -> str:
        rows = [r for r in self.project_data.statuses if (r["sha"], r["name"]) == (commit, f"gitops/{verb}/{CLUSTER}")]
        return f"{rows[-1]['status']}: {rows[-1]['description']}"

    def comments(self, number: int) -> list[str]:
        return [n["body"] for n in self.project_data.notes.get(number, ()) if n["author"]["username"] == "gitops"]


TRIGGERED = {"CI_PIPELINE_SOURCE": "trigger"}
SCHEDULED = {"CI_PIPELINE_SOURCE": "schedule"}


@pytest.fixture
def site(known: Loop, tmp_path: Path) -> Iterator[GitLabSite]:
    with GitLabSite(tmp_path, loop=known, jobs=tmp_path / "jobs") as running:
        running.root = known.folder
        yield running


def test_the_whole_life_of_a_merge_request(site: GitLabSite) -> None:
    loop = site.loop
    number = site.propose("alice", "retire", DELETE_LEGACY)
    head = loop.tip(site.head_ref(number))
    planned = site.run("plan", site.on_request(number))
    assert planned.code == 3, planned.text
    assert site.status(head, "plan").startswith("failed: 2 changes; needs approval: graph.legacy")
    (comment,) = site.comments(number)
    assert head[:7] in comment
    assert "gitops approve graph.legacy --request 1" in comment
    assert site.project_data.actions == []
    assert site.project_data.requests[number]["labels"] == ["gitops/needs-approval"]
    # The last line says what it took.
    assert planned.text.splitlines()[-1].startswith(f"gitops: {len(planned.calls)} calls, ")

    site.approve("bob", number)
    heard = site.say("carol", number, "/gitops plan")
    for _ in range(2):
        again = site.run("command", TRIGGERED, event=heard)
        assert again.code == 0, again.text
    assert site.status(head, "plan") == "success: 2 changes"
    assert [award["name"] for award in site.project_data.awards] == ["thumbsup"]
    assert loop.graph("legacy").exists()

    spoken = site.say("carol", number, "Fine.")
    note = site.project_data.notes[number][-1]
    note["body"], note["updated_at"] = "/gitops plan", site.project_data.now()
    attributes = {**spoken["object_attributes"], "note": note["body"]}
    edited = site.run("command", TRIGGERED, event={**spoken, "object_attributes": attributes})
    assert (edited.code, "was edited" in edited.text, len(site.project_data.awards)) == (0, True, 1)

    before = loop.tip()
    tip = site.merge("carol", number)
    applied = site.run("apply", site.on_push(before, "carol"))
    assert applied.code == 0, applied.text
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    assert len(site.comments(number)) == 1
    assert "bob@people.example" in site.comments(number)[0]
    (deployment,) = site.project_data.deployments
    assert (deployment["sha"], deployment["environment"]["name"]) == (tip, "production/brain")
    assert deployment["status"] == "success"

    # The same deliveries once more change nothing.
    refs, said = dict(site.store().refs("refs")), site.comments(number)
    assert site.run("apply", site.on_push(before, "carol")).code == 0
    assert site.run("plan", site.on_request(number)).code == 0
    assert (dict(site.store().refs("refs")), site.comments(number)) == (refs, said)
    # What is merged is not planned again; the report of its apply stays, and says so below.
    assert site.run("command", TRIGGERED, event=site.say("carol", number, "/gitops plan")).code == 1
    (comment,) = site.comments(number)
    assert comment.startswith(said[0].rstrip())
    assert "is merged" in comment[len(said[0].rstrip()) :]
    assert len(site.project_data.deployments) == 1


def test_a_fork_is_planned_without_a_secret_and_told_by_a_job_that_has_one(site: GitLabSite) -> None:
    number = site.propose("mallory", "retire", DELETE_LEGACY, fork=True)
    head, refs = site.loop.tip(site.head_ref(number)), dict(site.store().refs("refs"))
    seen = site.run("plan", site.on_request(number), token=False)
    assert (seen.code, seen.calls) == (3, ())
    assert "plan of brain: 2 changes; needs approval: graph.legacy" in seen.text
    assert dict(site.store().refs("refs")) == refs
    refused = site.run("apply", site.on_push(site.loop.tip(), "carol"), token=False)
    assert (refused.code, "GITOPS_TOKEN" in refused.text) == (2, True)

    told = site.run("plan", SCHEDULED, "--request", str(number))
    assert told.code == 3, told.text
    # No branch holds this head: the status needs the ref of the request.
    assert site.status(head, "plan").startswith("failed: 2 changes")
    assert len(site.comments(number)) == 1
    heard = site.say("mallory", number, "/gitops plan")
    assert site.run("command", TRIGGERED, event=heard).code == 1
    assert [award["name"] for award in site.project_data.awards] == ["thumbsdown"]


def test_a_merge_train_is_held_against_what_was_reviewed(site: GitLabSite) -> None:
    number = site.propose("alice", "contact", {"cluster/legacy.pg": SCHEMA})
    assert site.run("plan", site.on_request(number)).code == 0
    base = site.loop.tip()
    head = site.loop.tip(site.head_ref(number))

    def on_train(base: str) -> dict[str, str]:
        group = site.loop.commit("carol", {"cluster/legacy.pg": SCHEMA}, base, head)
        site.put("refs/merge-requests/1/train", group)
        site.project_data.build(group, "refs/merge-requests/1/train")
        return {
            **site.on_request(number),
            "CI_COMMIT_SHA": group,
            "CI_MERGE_REQUEST_EVENT_TYPE": "merge_train",
            "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": base,
        }

    variables = on_train(base)
    passed = site.run("verify", variables)
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
    site.put("refs/heads/retire", head)
    number = site.opened("alice", "retire", fork=False)
    site.put(site.head_ref(number), head)
    site.merge("carol", number)
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = site.run("sweep", SCHEDULED)
    assert swept.code == 3, swept.text
    assert (
        f"commit {head[:12]}: it is not signed, and gitlab does not list who pushed to request {number}" in swept.text
    )
    assert loop.graph("legacy").exists()


def test_an_outage_of_what_names_authors_keeps_only_gates_shut(site: GitLabSite) -> None:
    gates_wait_for_authors(site, r"^GET .*/repository/commits/\w+/merge_requests$")


def test_what_no_job_did_is_found_by_the_sweep(site: GitLabSite) -> None:
    number = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    swept = site.run("sweep", SCHEDULED)
    assert swept.code == 0, swept.text
    assert "request 1: no run planned its head" in swept.text
    assert site.status(site.loop.tip(site.head_ref(number)), "plan") == "success: 1 change"
    merged = site.propose("bob", "contact", {"cluster/legacy.pg": SCHEMA})
    tip = site.merge("carol", merged, squash=True)
    swept = site.run("sweep", SCHEDULED)
    assert swept.code == 0, swept.text
    assert site.status(tip, "apply").startswith("success: ")
    assert "found by the sweep" in site.comments(merged)[0]
    quiet = site.run("sweep", SCHEDULED)
    assert "no run planned" not in quiet.text
    assert [call for call in quiet.calls if not call.startswith("GET ")] == []


def test_drift_is_proposed_and_withdrawn(site: GitLabSite) -> None:
    loop = site.loop
    shutil.copytree(loop.graph("notes"), loop.folder / "kept")
    graph_engine(NoFaults()).prepare_migration(str(loop.graph("notes")), LIVE, actor="somebody").publish()
    ledger = loop.tip(LEDGER)
    for _ in range(2):
        seen = site.run("drift", SCHEDULED)
        assert seen.code == 3, seen.text
    (row,) = site.project_data.requests.values()
    assert (f"refs/heads/{row['source_branch']}", row["state"]) == (drift_ref(CLUSTER), "opened")
    assert loop.store.read(loop.store.commit(row["sha"]).tree, "cluster/notes.pg") == LIVE
    assert loop.tip(LEDGER) == ledger

    shutil.rmtree(loop.graph("notes"))
    shutil.move(loop.folder / "kept", loop.graph("notes"))
    for _ in range(2):
        assert site.run("drift", SCHEDULED).code == 0
    assert row["state"] == "closed"
    assert len(site.comments(row["iid"])) == 1
    assert loop.tip(MAIN)
