"""`gitops bot` as jobs of Gitea Actions and of GitLab CI run it: what both do, and what only one of them does."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.bot_stage import QUERY
from tests.support.forges.hub import bot_environment, within
from tests.support.forges.site import TOKEN, GiteaSite, GitLabSite, RealGiteaSite, Site, Started
from tests.support.loop import DELETE_LEGACY, MAIN, Loop

pytestmark = pytest.mark.e2e

PROTECTED = {"enable_push": False, "enable_force_push": False, "require_signed_commits": False}
SCHEMA = b"node Contact {\n    name: String @key\n    mail: String?\n}\n"


REAL = pytest.param(RealGiteaSite, marks=pytest.mark.gitea)


@pytest.fixture(params=[GiteaSite, REAL, GitLabSite])
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
    assert f"request {pull.number}: no run has planned its head" in swept.text
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


def test_a_killed_apply_is_named_on_its_request_and_continued_after_its_lock_is_removed(site: Site) -> None:
    number = site.propose("alice", "query", {"cluster/notes.gq": QUERY}).number
    assert site.run("plan", site.on_request(number)).code == 0
    before = site.loop.tip()
    tip = site.merge("carol", number)
    killed = site.run("apply", site.on_push(before, "carol"), dying="ledger.branch.after_push")
    assert killed.code == -signal.SIGKILL, killed.text
    assert "ready to merge" in site.comments(number)[0]
    # A second push finds the lock, and can't know whether its holder still runs.
    site.push("carol", "main", {"README.md": b"Other words.\n"})
    assert "already running" in site.run("apply", site.on_push(tip, "carol")).text
    assert "ready to merge" in site.comments(number)[0]

    for _ in range(2):
        swept = site.run("sweep", site.timer)
        assert swept.code == 0, swept.text
        (comment,) = site.comments(number)
        assert "interrupted or still running" in comment
    (command,) = re.findall(r"\n(/gitops unlock [0-9A-Z]{26})\n", comment)
    done = site.run("command", site.say_to("carol", number, command))
    assert done.code == 0, done.text
    assert site.reactions(site.world.pull(number).comments[-1]) == [site.thumbs[0]]
    assert site.status(tip, "apply") == "success: 1 applied"
    assert " · converged**" in site.comments(number)[0]
    assert "unlock" not in site.comments(number)[0]
    assert site.loop.gitops("carol", "audit").text.startswith("audit good")


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
        assert re.search("the authors are not known yet; .*: forge_unavailable: .* with status 500", waiting.text)
        assert loop.graph("legacy").exists()
    assert site.status(tip, "apply").endswith(": pushers_pending")

    site.server.faults.clear()
    swept = site.run("sweep", site.timer)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    assert "bob@people.example" in site.comments(gated)[0]
    assert loop.gitops("carol", "audit").text.startswith("audit good")


@pytest.fixture(params=[GiteaSite, REAL])
def gitea(request: pytest.FixtureRequest, known: Loop, tmp_path: Path) -> Iterator[GiteaSite]:
    with request.param.at(known, tmp_path / "jobs") as running:
        yield running


def test_a_stranger_who_deletes_a_fork_stops_no_apply(gitea: GiteaSite) -> None:
    """Gitea then fails to list any request. A direct push is looked for among them, and is still known as nobody's merge."""
    loop, before = gitea.loop, gitea.loop.tip()
    gitea.world.delete_fork(
        gitea.propose_from_fork("mallory", "bait", {"cluster/README.md": b"Mine.\n"}).number, "mallory"
    )
    tip = gitea.push("alice", "main", {"cluster/notes.gq": QUERY})
    applied = gitea.run("apply", gitea.on_push(before, "alice"))
    assert applied.code == 0, applied.text
    assert gitea.status(tip, "apply") == "success: 1 applied"
    # Signed, and known: so its gate opens.
    gitea.push("alice", "main", DELETE_LEGACY)
    assert gitea.run("sweep", gitea.timer).code == 3
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = gitea.run("sweep", gitea.timer)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()


def test_a_request_that_gitea_cannot_show_keeps_only_gates_shut(gitea: GiteaSite) -> None:
    loop = gitea.loop
    bait = gitea.propose_from_fork("mallory", "bait", {"cluster/README.md": b"Mine.\n"}).number
    other = gitea.propose_from_fork("alice", "words", {"README.md": b"Other words.\n"}).number
    for number in (bait, other):
        gitea.world.delete_fork(number, "mallory")
    gitea.server.fault_next(rf"^GET .*/pulls/{bait}$", status=500, times=1000)
    # Releases that list requests of deleted forks fail for other reasons.
    gitea.server.fault_next(r"^GET .*/pulls$", status=500, times=1000, query="state=closed")
    tip = gitea.push("alice", "main", {**DELETE_LEGACY, "cluster/notes.gq": QUERY})
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = gitea.run("sweep", gitea.timer)
    assert swept.code == 3, swept.text
    assert (
        f"commit {tip[:12]}: the forge answers GET /repos/{gitea.world.project}/pulls/{bait} with status 500"
        in swept.text
    )
    assert gitea.status(tip, "apply").startswith("failure: 1 applied, ")
    assert loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_a_merged_request_starts_the_apply_of_a_job(gitea: GiteaSite) -> None:
    """Not the push, which would cancel the apply of an earlier push. Another event of the request applies nothing."""
    number = gitea.propose("alice", "query", {"cluster/notes.gq": QUERY}).number
    assert "nothing to do" in gitea.run("apply", gitea.on_request(number)).text
    tip = gitea.merge("carol", number)
    applied = gitea.run("apply", gitea.on_request(number, "closed"))
    assert applied.code == 0, applied.text
    assert gitea.status(tip, "apply") == "success: 1 applied"
    assert " · converged**" in gitea.comments(number)[0]


def test_who_may_not_be_asked_about_gets_an_answer(gitea: GiteaSite) -> None:
    """The token of an account that may only write cannot look up what a commenter may do in an organization."""
    gitea.world.organization = True
    pull = gitea.propose("alice", "query", {"cluster/notes.gq": QUERY})
    refused = gitea.run("command", gitea.say_to("carol", pull.number, "/gitops plan"))
    assert (refused.code, "command refused: command_refused: forge_refused" in refused.text) == (1, True)
    assert gitea.reactions(pull.comments[-1]) == ["-1"]


def examined(gitea: GiteaSite) -> tuple[int, dict[str, str]]:
    """What the doctor finds in a bare clone that is set up as docs/serve.md says: its exit code, and the health of each check."""
    loop, place = gitea.loop, gitea.jobs / "serve.git"
    url = gitea.server.git_url.replace("//", f"//gitops:{TOKEN}@", 1)
    loop.program("bot", "git", "clone", "-q", "--bare", url, str(place), at=loop.folder)
    settings = {
        "gitops.root": loop.folder / "data",
        "gitops.forgeUrl": gitea.server.base,
        "remote.origin.url": gitea.server.git_url,
    }
    for name, value in settings.items():
        loop.program("bot", "git", "config", name, str(value), at=place)
    environ = {**bot_environment(loop.home("bot")), "GITOPS_TOKEN": TOKEN}
    code, text = within(["doctor", "--repo", str(place), "--forge", "gitea", "--json"], environ, gitea.waited)
    return code, {each["check"]: each["health"] for each in json.loads(text)["findings"]}


def test_the_clone_of_a_server_needs_neither_hooks_nor_jobs(gitea: GiteaSite) -> None:
    """With rules of branches that nobody has pushed yet."""
    gitea.world.admin = True
    gitea.world.rules_of = {
        "main": {**PROTECTED, "enable_status_check": True, "status_check_contexts": ["gitops/plan/brain"]},
        "gitops/**": {
            **PROTECTED,
            "enable_push": True,
            "enable_push_whitelist": True,
            "push_whitelist_usernames": ["gitops"],
        },
    }
    code, found = examined(gitea)
    assert (code, [check for check, health in found.items() if health == "error"]) == (0, [])
    assert not any(check.startswith(("hooks.", "jobs.")) for check in found)
    assert [found[f"forge.{check}"] for check in ("commands", "target.check", "ledger.force-push")] == ["good"] * 3


@pytest.mark.parametrize(
    ("permission", "expected"),
    [
        ("write", {"permission": "good", "commands": "good", "approvals.deletion": "unknown", "writable": "good"}),
        ("read", {"permission": "error", "approvals.deletion": "unknown", "writable": "error"}),
    ],
)
def test_a_poor_token_is_told_what_it_lacks(gitea: GiteaSite, permission: str, expected: dict[str, str]) -> None:
    """A writer cannot see the rules of branches that nobody has pushed; a reader's token is no use."""
    gitea.world.give("gitops", permission)
    _, found = examined(gitea)
    named = {check.removeprefix("forge.").removeprefix("ledger."): health for check, health in found.items()}
    assert {check: named.get(check) for check in expected} == expected
    assert ("commands" in named) == ("commands" in expected)


def test_whose_work_nobody_knows_is_not_approved_by_anybody(gitea: GiteaSite) -> None:
    """Alice pushes straight to main in bob's name, unsigned, and approves it herself; the run of her push is lost."""
    loop, before = gitea.loop, gitea.loop.tip()
    gitea.world.move(MAIN, loop.commit("bob", DELETE_LEGACY, key=None), "alice")
    assert loop.sign_approval("alice", "graph.legacy", blind=True).ok
    swept = gitea.run("sweep", gitea.timer)
    assert loop.graph("legacy").exists()
    assert "approval_authors_unknown" in swept.text
    # Nor does it help that somebody tells later that it was bob.
    assert gitea.run("apply", gitea.on_push(before, "bob")).code == 3
    assert loop.graph("legacy").exists()
    # The way out: take it out, and propose it.
    tree = {"cluster/cluster.yaml": loop.store.read(loop.store.commit(before).tree, "cluster/cluster.yaml")}
    gitea.merge("carol", gitea.propose("carol", "back", tree).number)
    assert gitea.run("sweep", gitea.timer).code == 0
    number = gitea.propose("alice", "retire", DELETE_LEGACY).number
    assert gitea.run("plan", gitea.on_request(number)).code == 3
    gitea.approve_as_printed("bob", number)
    gitea.merge("carol", number)
    assert gitea.run("sweep", gitea.timer).code == 0
    assert not loop.graph("legacy").exists()


@pytest.mark.parametrize("method", ["merge", "rebase", "rebase-merge", "squash", "fast-forward-only"])
def test_each_way_of_merging_is_applied_with_its_approval(gitea: GiteaSite, method: str) -> None:
    """The gated change is not in the last commit, and main has moved meanwhile where that does not keep it from being merged."""
    loop = gitea.loop
    first = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    gitea.push("alice", "retire", {"cluster/notes.gq": QUERY}, first)
    number = gitea.world.open_pull("alice", "retire").number
    assert gitea.run("plan", gitea.on_request(number)).code == 3
    gitea.approve_as_printed("bob", number)
    if method != "fast-forward-only":
        gitea.push("carol", "main", {"elsewhere.md": b"Something else.\n"})
    tip = gitea.merge("carol", number, method)
    swept = gitea.run("sweep", gitea.timer)
    assert swept.code == 0, swept.text
    assert not loop.graph("legacy").exists()
    assert gitea.status(tip, "apply") == "success: 3 applied"
    assert "bob@people.example" in gitea.comments(number)[0]
    assert loop.gitops("carol", "audit").text.startswith("audit good")


@pytest.fixture
def gitlab(known: Loop, tmp_path: Path) -> Iterator[GitLabSite]:
    with GitLabSite.at(known, tmp_path / "jobs") as running:
        yield running


def test_a_comment_that_was_edited_since_commands_nothing(gitlab: GitLabSite) -> None:
    pull = gitlab.propose("alice", "query", {"cluster/notes.gq": QUERY})
    variables, spoken = gitlab.say_to("carol", pull.number, "Fine.")
    said = pull.comments[-1]
    said.body, said.updated_at = "/gitops plan", gitlab.world.stamp()
    attributes = {**spoken["object_attributes"], "note": said.body}
    edited = gitlab.run("command", (variables, {**spoken, "object_attributes": attributes}))
    assert (edited.code, "was edited" in edited.text, gitlab.reactions(said)) == (0, True, [])


def test_an_apply_is_one_deployment(gitlab: GitLabSite) -> None:
    before = gitlab.tip()
    tip = gitlab.merge("carol", gitlab.propose("alice", "query", {"cluster/notes.gq": QUERY}).number)
    for _ in range(2):
        assert gitlab.run("apply", gitlab.on_push(before, "carol")).code == 0
    (deployment,) = gitlab.world.deployments.values()
    assert (deployment.sha, deployment.environment) == (tip, "production/brain")
    assert deployment.statuses[-1]["state"] == "success"


def test_a_merge_train_is_held_against_what_was_reviewed(gitlab: GitLabSite) -> None:
    number = gitlab.propose("alice", "contact", {"cluster/legacy.pg": SCHEMA}).number
    assert gitlab.run("plan", gitlab.on_request(number)).code == 0
    base = gitlab.loop.tip()
    head = gitlab.loop.tip(gitlab.head_ref(number))

    def on_train(base: str) -> Started:
        group = gitlab.loop.commit("carol", {"cluster/legacy.pg": SCHEMA}, base, head)
        gitlab.world._keep("refs/merge-requests/1/train", group)
        gitlab.world.build(group, "refs/merge-requests/1/train")
        train = {"CI_MERGE_REQUEST_EVENT_TYPE": "merge_train", "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": base}
        return {**gitlab.on_request(number)[0], **train, "CI_COMMIT_SHA": group}, None

    variables, _ = on_train(base)
    passed = gitlab.run("verify", (variables, None))
    assert passed.code == 0, passed.text
    assert gitlab.status(variables["CI_COMMIT_SHA"], "plan").startswith("success")
    # In front of it is something that nobody has seen together with it.
    other = gitlab.loop.commit("bob", {"cluster/notes.gq": QUERY}, base)
    failed = gitlab.run("verify", on_train(other))
    assert failed.code == 1
    assert "queue_plan_differs" in failed.text


def test_a_merge_request_without_signatures_is_approved_by_nobody(gitlab: GitLabSite) -> None:
    """GitLab does not say who pushed, so whoever opened the request may not be the one whose work it is."""
    loop = gitlab.loop
    head = loop.commit("alice", DELETE_LEGACY, key=None)
    gitlab.world.move("refs/heads/retire", head, "alice")
    number = gitlab.world.open_pull("alice", "retire").number
    gitlab.merge("carol", number)
    assert loop.sign_approval("bob", "graph.legacy", blind=True).ok
    swept = gitlab.run("sweep", gitlab.timer)
    assert swept.code == 3, swept.text
    assert (
        f"commit {head[:12]}: it is not signed, and gitlab does not list who pushed to request {number}" in swept.text
    )
    assert loop.graph("legacy").exists()
