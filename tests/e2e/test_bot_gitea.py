"""`gitops bot` as jobs of Gitea Actions run it, against a twin of Gitea with a real repository behind it."""

from __future__ import annotations

import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops.forge.port import Permission
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.bot_stage import QUERY
from tests.support.gitea import PROJECT, Gitea
from tests.support.hosted import READER, TOKEN, Site, gates_wait_for_authors
from tests.support.loop import CLUSTER, DELETE_LEGACY, LEDGER, MAIN, Loop

pytestmark = pytest.mark.e2e

SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


@dataclass
class GiteaSite(Site):
    """Gitea; alice, bob and carol may write, mallory is somebody with an account."""

    gitea: Gitea = field(default_factory=Gitea)

    api = "/api/v1"
    project = PROJECT
    pulls = "refs/pull"

    def __post_init__(self) -> None:
        for who in ("alice", "bob", "carol"):
            self.gitea.user(who)
            self.gitea.permissions[who] = Permission.WRITE
        super().__post_init__()

    def told(self, request: WebRequest) -> WebAnswer:
        return self.gitea.answer(request)

    def admitted(self, headers: Mapping[str, str]) -> bool:
        return headers.get("authorization") == f"token {TOKEN}"

    def branches_are(self, heads: Mapping[str, str]) -> None:
        self.gitea.branches = dict(heads)
        for pull in self.gitea.pulls.values():
            if pull["state"] == "open":
                pull["head"]["sha"] = heads.get(pull["head"]["ref"], pull["head"]["sha"])

    def opened(self, who: str, branch: str, *, fork: bool) -> int:
        pull = self.gitea.open_pull(who, {"head": branch, "base": "main", "title": "Change"}, ())
        if fork:
            repository = {"id": 2, "full_name": f"{who}/library", "private": True}
            pull["head"] |= {"repo_id": 2, "repo": repository}
        return int(pull["number"])

    def merged(self, number: int, commit: str) -> None:
        how = {"state": "closed", "merged": True, "merged_at": self.gitea.now(), "merge_commit_sha": commit}
        self.gitea.pulls[number] |= how

    def job_variables(self, place: Path) -> dict[str, str]:
        return {
            "GITEA_ACTIONS": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": self.base + self.api,
            "GITHUB_SERVER_URL": self.base,
            "GITHUB_REPOSITORY": PROJECT,
            "GITHUB_EVENT_PATH": str(place / "event.json"),
            "GITHUB_RUN_ID": "7",
            "GITHUB_RUN_ATTEMPT": "1",
        }

    def login(self, clone: Path) -> None:
        """The checkout of a job leaves its login as a header in the clone's configuration."""
        name = f"http.{self.base}/.extraheader"
        value = "AUTHORIZATION: basic " + b64encode(f"x-access-token:{READER}".encode()).decode()
        subprocess.run(["git", "config", name, value], cwd=clone, check=True)

    # What starts jobs

    def on_request(self, number: int, action: str = "opened") -> tuple[dict[str, str], dict[str, Any]]:
        pull = self.gitea.pulls[number]
        return self._event("pull_request", {"action": action, "number": number, "pull_request": pull})

    def on_push(self, old: str, who: str) -> tuple[dict[str, str], dict[str, Any]]:
        form = {"ref": MAIN, "before": old, "after": self.loop.tip(), "pusher": self.gitea.user(who)}
        return self._event("push", form)

    def say(self, who: str, number: int, text: str) -> tuple[dict[str, str], dict[str, Any]]:
        """A comment; the event that tells of it."""
        comment = self.gitea.comment(who, number, text)
        issue = {"number": number, "pull_request": {"merged": False}}
        return self._event("issue_comment", {"action": "created", "issue": issue, "is_pull": True, "comment": comment})

    def _event(self, name: str, form: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        return {"GITHUB_EVENT_NAME": name}, {**form, "repository": {"full_name": PROJECT}}

    # What is to be seen

    @property
    def timer(self) -> dict[str, str]:
        return SCHEDULED

    def status(self, commit: str, verb: str) -> str:
        rows = [row for row in self.gitea.statuses.get(commit, ()) if row["context"] == f"gitops/{verb}/{CLUSTER}"]
        return f"{rows[-1]['status']}: {rows[-1]['description']}"

    def comments(self, number: int) -> list[str]:
        return [c["body"] for c in self.gitea.comments.get(number, ()) if c["user"]["login"] == "gitops"]

    def labels(self, number: int) -> list[str]:
        return [label["name"] for label in self.gitea.pulls[number]["labels"]]


SCHEDULED = {"GITHUB_EVENT_NAME": "schedule"}


@pytest.fixture
def site(known: Loop, tmp_path: Path) -> Iterator[GiteaSite]:
    with GiteaSite(tmp_path, loop=known, jobs=tmp_path / "jobs") as running:
        running.root = known.folder
        yield running


def test_the_whole_life_of_a_pull_request(site: GiteaSite) -> None:
    loop = site.loop
    number = site.propose("alice", "retire", DELETE_LEGACY)
    head = loop.tip(site.head_ref(number))
    variables, event = site.on_request(number)
    planned = site.run("plan", variables, event=event)
    assert planned.code == 3, planned.text
    assert site.status(head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
    (comment,) = site.comments(number)
    assert head[:7] in comment
    assert f"gitops approve graph.legacy --request {number}" in comment
    assert site.labels(number) == ["gitops/needs-approval"]
    assert planned.text.splitlines()[-1].startswith(f"gitops: {len(planned.calls)} calls, ")
    assert "graph.legacy" in planned.summary
    assert "waits" in planned.outputs

    site.approve("bob", number)
    variables, heard = site.say("carol", number, "/gitops plan")
    for _ in range(2):
        again = site.run("command", variables, event=heard)
        assert again.code == 0, again.text
    assert site.status(head, "plan") == "success: 2 changes"
    assert site.gitea.reactions[heard["comment"]["id"]] == ["+1"]
    assert site.labels(number) == []
    assert loop.graph("legacy").exists()

    before = loop.tip()
    tip = site.merge("carol", number)
    variables, pushed = site.on_push(before, "carol")
    applied = site.run("apply", variables, event=pushed)
    assert applied.code == 0, applied.text
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    assert len(site.comments(number)) == 1
    assert "bob@people.example" in site.comments(number)[0]
    assert site.labels(number) == ["gitops/applied"]

    # The same deliveries once more change nothing.
    refs, said = dict(site.store().refs("refs")), site.comments(number)
    assert site.run("apply", variables, event=pushed).code == 0
    variables, event = site.on_request(number, "synchronized")
    assert site.run("plan", variables, event=event).code == 0
    assert (dict(site.store().refs("refs")), site.comments(number)) == (refs, said)


def test_a_fork_is_planned_without_a_secret_and_told_by_a_job_that_has_one(site: GiteaSite) -> None:
    number = site.propose("mallory", "retire", DELETE_LEGACY, fork=True)
    head, refs = site.loop.tip(site.head_ref(number)), dict(site.store().refs("refs"))
    variables, event = site.on_request(number)
    seen = site.run("plan", {**variables, "GITHUB_BASE_REF": "main"}, event=event, token=False)
    assert (seen.code, seen.calls) == (3, ())
    assert "plan of brain: 2 changes; needs approval: graph.legacy" in seen.text
    assert "graph.legacy" in seen.summary
    assert dict(site.store().refs("refs")) == refs
    for verb in ("apply", "sweep", "drift", "command"):
        refused = site.run(verb, variables, event=event, token=False)
        assert (refused.code, "GITOPS_TOKEN" in refused.text) == (2, True)

    run = {"head_sha": head, "event": "pull_request", "status": "completed"}
    after = {"action": "completed", "workflow_run": run, "repository": {"full_name": PROJECT}}
    told = site.run("plan", {"GITHUB_EVENT_NAME": "workflow_run"}, event=after)
    assert told.code == 3, told.text
    assert site.status(head, "plan").startswith("failure: 2 changes")
    assert len(site.comments(number)) == 1
    variables, heard = site.say("mallory", number, "/gitops plan")
    assert site.run("command", variables, event=heard).code == 1
    assert site.gitea.reactions[heard["comment"]["id"]] == ["-1"]


def test_what_no_job_did_is_found_by_the_sweep(site: GiteaSite) -> None:
    number = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    swept = site.run("sweep", SCHEDULED)
    assert swept.code == 0, swept.text
    assert f"request {number}: no run planned its head" in swept.text
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


def test_a_stranger_who_deletes_a_fork_stops_no_apply(site: GiteaSite) -> None:
    """Gitea then fails to list any request. A direct push is looked for among them, and is still known as nobody's merge."""
    loop, before = site.loop, site.loop.tip()
    site.gitea.delete_fork(site.propose("mallory", "bait", {"cluster/README.md": b"Mine.\n"}, fork=True))
    tip = site.push("alice", "main", {"cluster/notes.gq": QUERY})
    variables, pushed = site.on_push(before, "alice")
    applied = site.run("apply", variables, event=pushed)
    assert applied.code == 0, applied.text
    assert site.status(tip, "apply") == "success: 1 applied"
    # Signed, and known: so its gate opens.
    site.push("alice", "main", DELETE_LEGACY)
    assert site.run("sweep", SCHEDULED).code == 3
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = site.run("sweep", SCHEDULED)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()


def test_a_request_that_gitea_cannot_show_keeps_only_gates_shut(site: GiteaSite) -> None:
    loop = site.loop
    bait = site.propose("mallory", "bait", {"cluster/README.md": b"Mine.\n"}, fork=True)
    other = site.propose("alice", "words", {"README.md": b"Other words.\n"}, fork=True)
    for number in (bait, other):
        site.gitea.delete_fork(number)
    site.failing = rf"^GET .*/pulls/{bait}$"
    tip = site.push("alice", "main", {**DELETE_LEGACY, "cluster/notes.gq": QUERY})
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = site.run("sweep", SCHEDULED)
    assert swept.code == 3, swept.text
    assert f"commit {tip[:12]}: the forge answers GET /repos/{PROJECT}/pulls/{bait} with status 500" in swept.text
    assert site.status(tip, "apply").startswith("failure: 1 applied, ")
    assert loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_an_outage_of_what_names_authors_keeps_only_gates_shut(site: GiteaSite) -> None:
    gates_wait_for_authors(site, r"^GET .*/commits/\w+/pull$")


def test_who_may_not_be_asked_about_gets_an_answer(site: GiteaSite) -> None:
    """The token of an account that may only write cannot look up what a commenter may do."""
    site.gitea.admin = False
    number = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    variables, heard = site.say("carol", number, "/gitops plan")
    refused = site.run("command", variables, event=heard)
    assert (refused.code, "command refused: command_refused: forge_refused" in refused.text) == (1, True)
    assert site.gitea.reactions[heard["comment"]["id"]] == ["-1"]


def test_whose_work_nobody_knows_is_not_approved_by_anybody(site: GiteaSite) -> None:
    """Alice pushes straight to main in bob's name, unsigned, and approves it herself; the run of her push is lost."""
    loop, before = site.loop, site.loop.tip()
    site.put(MAIN, loop.commit("bob", DELETE_LEGACY, key=None))
    assert loop.sign_approval("alice", "graph.legacy", blind=True).ok
    swept = site.run("sweep", SCHEDULED)
    assert loop.graph("legacy").exists()
    assert "approval_authors_unknown" in swept.text
    # Nor does it help that somebody tells later that it was bob.
    variables, pushed = site.on_push(before, "bob")
    assert site.run("apply", variables, event=pushed).code == 3
    assert loop.graph("legacy").exists()
    # The way out: take it out, and propose it.
    tree = {"cluster/cluster.yaml": loop.store.read(loop.store.commit(before).tree, "cluster/cluster.yaml")}
    back = site.propose("carol", "back", tree)
    site.merge("carol", back)
    assert site.run("sweep", SCHEDULED).code == 0
    number = site.propose("alice", "retire", DELETE_LEGACY)
    variables, event = site.on_request(number)
    assert site.run("plan", variables, event=event).code == 3
    site.approve("bob", number)
    site.merge("carol", number)
    assert site.run("sweep", SCHEDULED).code == 0
    assert not loop.graph("legacy").exists()


def test_drift_is_told_once_and_closed(site: GiteaSite) -> None:
    loop = site.loop
    ledger = loop.tip(LEDGER)
    shutil.move(loop.graph("legacy"), loop.folder / "aside")
    for _ in range(2):
        seen = site.run("drift", SCHEDULED)
        assert seen.code == 3, seen.text
    (issue,) = site.gitea.issues.values()
    assert (issue["state"], "graph.legacy" in issue["body"]) == ("open", True)
    shutil.move(loop.folder / "aside", loop.graph("legacy"))
    for _ in range(2):
        assert site.run("drift", SCHEDULED).code == 0
    assert issue["state"] == "closed"
    assert len(site.comments(issue["number"])) == 1
    assert loop.tip(LEDGER) == ledger
