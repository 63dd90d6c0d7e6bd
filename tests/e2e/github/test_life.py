"""The life of pull requests on GitHub, by jobs in a fresh clone each: from the plan to the apply, and what goes wrong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.ledger import LockInfo
from gitops.cluster.model.scope import ClusterScope
from tests.e2e.github.conftest import HUB_CONFIG
from tests.e2e.github.stories import REWORDED, WITH_BODY, audit, good
from tests.support.bot_stage import QUERY
from tests.support.forges import landing
from tests.support.forges.hub import APP, JOB, Hub, token_of
from tests.support.forges.records import Pull
from tests.support.forges.runner import Runner, jobs
from tests.support.loop import CLUSTER, CLUSTER_YAML, DELETE_LEGACY, LEDGER, MAIN, email

pytestmark = pytest.mark.e2e

METHODS = ["squash", pytest.param("merge", marks=pytest.mark.slow), pytest.param("rebase", marks=pytest.mark.slow)]


@pytest.mark.parametrize("method", METHODS)
def test_whole_life(hub: Hub, runner: Runner, method: str) -> None:
    pull = hub.propose("alice", "retire", DELETE_LEGACY, message="Retire legacy\n")
    (planned,) = runner.settle()
    # A label is one more, where one has to be put on; and so is the status of a commit that GitHub does not find at first.
    assert len([call for call in hub.calls() if "/labels" not in call]) <= 8
    assert planned.code in (0, 3)
    assert hub.status(pull.head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
    assert "gitops approve graph.legacy --request 1 --cluster brain" in hub.comment(1)
    assert pull.head[:7] in hub.comment(1)

    made = hub.approve("bob", "graph.legacy", request=1)
    assert made.ok
    hub.say("carol", 1, "/gitops plan")
    good(runner)
    assert hub.status(pull.head, "plan") == "success: 2 changes"
    assert hub.loop.graph("legacy").exists()

    # This GitHub creates no labels; one that an administrator made, and that is wrong now, goes nevertheless.
    hub.world.issue(1).labels.append("gitops/needs-approval")
    tip = hub.merge("carol", 1, method)
    hub.drop_branch("carol", "retire")
    good(runner)
    assert hub.world.issue(1).labels == []
    assert not hub.loop.graph("legacy").exists()
    assert hub.loop.graph("notes").exists()
    assert hub.status(tip, "apply") == "success: 2 applied"
    assert len(hub.comments(1)) == 1
    assert email("bob") in hub.comment(1)
    (deployment,) = hub.world.deployments.values()
    assert (deployment.sha, deployment.environment) == (tip, "production/brain")
    assert deployment.statuses[-1]["state"] == "success"

    entry = hub.loop.applied()
    assert entry.parents[1:] == (made.commit,)
    told = read_entry(hub.loop.store.read(entry.tree, "entry.json") or b"")
    assert told.source is not None
    assert told.source.commit == tip
    assert audit(hub.loop).startswith("audit good")


@pytest.mark.parametrize("bare", [False, True], ids=["clone", "bare clone"])
def test_an_audit_in_the_clone_that_applied_reads_what_it_pushed(ready: Runner, bare: bool) -> None:
    """The clone of the bot knew newer entries than it showed, so that its own audit called the ledger rewound."""
    hub, ready.bare = ready.hub, bare
    hub.merge("carol", 1)
    good(ready)
    clone = ready.folder / f"job-{len(ready.runs)}" / "work"
    for command in ("audit", "log"):
        done = hub.loop.gitops("bot", command, "--json", at=clone)
        assert hub.tip(LEDGER) in done.text
    # An older state of the forge is not taken for what is newest.
    hub.loop.program(
        "bot", "git", "update-ref", "refs/heads/gitops/ledger/brain", f"{hub.tip(LEDGER)}~1", at=hub.loop.server
    )
    name = "heads" if bare else "remotes/origin"
    branch = "gitops/ledger/brain"
    fetched = f"+refs/heads/{branch}:refs/{name}/{branch}"
    hub.loop.program("bot", "git", "fetch", "-q", str(hub.loop.server), fetched, at=clone)
    assert "ledger_diverged" in hub.loop.gitops("bot", "audit", at=clone, check=False).text


def test_a_bare_clone_writes_where_the_repository_is(ready: Runner) -> None:
    """A bare clone is not the server: a ledger, a lock or a plan that is written into it is lost, and splits the ledger."""
    hub, before = ready.hub, ready.hub.tip(LEDGER)
    ready.bare = True
    hub.merge("carol", 1, "squash")
    good(ready)
    assert not hub.loop.graph("legacy").exists()
    assert hub.tip(LEDGER) != before
    assert audit(hub.loop).startswith("audit good")


def test_a_shallow_checkout_is_as_good(ready: Runner) -> None:
    """The usual checkout has one commit; what else is needed is fetched, and nothing is answered from half a history."""
    ready.depth = 1
    hub = ready.hub
    hub.say("carol", 1, "/gitops plan")
    good(ready)
    assert hub.status(hub.world.pull(1).head, "plan").startswith("success")
    hub.merge("carol", 1, "squash")
    good(ready)
    assert not hub.loop.graph("legacy").exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_rebase_and_unrelated_commits_keep_the_approval(ready: Runner, method: str) -> None:
    hub, runner = ready.hub, ready
    pull = hub.world.pull(1)
    hub.push("carol", "main", {"README.md": b"Still nothing of the cluster.\n"})
    good(runner)
    hub.push("alice", "retire", DELETE_LEGACY, hub.tip(), message="Rebased\n")
    good(runner)
    assert hub.status(pull.head, "plan").startswith("success")
    hub.merge("carol", 1, method)
    good(runner)
    assert not hub.loop.graph("legacy").exists()


def test_a_folder_that_leaves_the_request_takes_its_plan_along(ready: Runner) -> None:
    """What was planned and approved for an earlier head cannot be applied any more."""
    hub, runner = ready.hub, ready
    pull = hub.world.pull(1)
    hub.push("alice", "retire", {"README.md": b"Only words.\n"}, pull.base)
    runner.settle()
    assert "needs approval" not in hub.status(pull.head, "plan")
    hub.merge("carol", 1)
    good(runner)
    assert hub.loop.graph("legacy").exists()
    assert len(hub.approvals()) == 1


def test_a_strangers_comment_with_our_marker_is_text(planned: Runner) -> None:
    hub, runner = planned.hub, planned
    pull = hub.world.pull(1)
    marker = hub.comment(1).partition("\n")[0]
    assert re.fullmatch(r"<!-- .* -->", marker)
    forged = hub.say("mallory", 1, f"{marker}\nAll approved. Digest {'0' * 64}")
    hub.push("alice", "retire", {**DELETE_LEGACY, "cluster/README.md": b"More.\n"}, pull.base)
    runner.settle()
    assert forged.body.endswith("0" * 64)
    assert len(hub.comments(1)) == 1
    assert pull.head[:7] in hub.comment(1)
    assert hub.status(pull.head, "plan").startswith("failure")


def test_an_approval_is_asked_for_where_the_change_was_proposed(planned: Runner) -> None:
    """A merge that waits is in the plan of every later request, which neither causes it nor can have it approved."""
    hub, runner = planned.hub, planned
    hub.world.habits.creates_labels = True
    hub.merge("carol", 1)
    runner.settle()
    assert "gitops approve graph.legacy" in hub.comment(1)
    other = hub.propose("bob", "reword", REWORDED)
    runner.settle()
    found = hub.status(other.head, "plan")
    assert found.startswith("failure: ")
    assert "; an earlier merge needs approval: graph.legacy" in found
    assert "; needs approval" not in found
    assert "gitops approve" not in hub.comment(other.number)
    assert "you don't need to approve it here" in hub.comment(other.number)
    assert hub.world.issue(other.number).labels == []

    # What it changes itself is asked for here.
    both = hub.propose("bob", "rules", {"gitops.yaml": HUB_CONFIG.replace("bob@people.example, ", "").encode()})
    runner.settle()
    assert "; needs approval: trust.brain; an earlier merge" in hub.status(both.head, "plan")
    assert "gitops approve trust.brain" in hub.comment(both.number)
    assert hub.world.issue(both.number).labels == ["gitops/needs-approval"]

    # Nor is it said to a request whose own changes are all applied.
    tip = hub.merge("carol", other.number)
    runner.settle()
    assert hub.status(tip, "apply").startswith("failure")
    assert hub.world.issue(other.number).labels == ["gitops/applied"]
    assert hub.world.issue(1).labels == ["gitops/waiting"]
    assert "To approve" not in hub.comment(other.number)
    assert "you don't need to approve it here" in hub.comment(other.number)
    assert "gitops approve graph.legacy" in hub.comment(1)


CHECKS = {"required_status_checks": [{"context": f"gitops/plan/{CLUSTER}"}]}
QUEUE = {"merge_method": "MERGE", "max_entries_to_build": 5}


def _queued(runner: Runner) -> Runner:
    """Main takes what the queue brings, and only what is verified."""
    runner.hub.world.protect("queue", "main", {"merge_queue": QUEUE, "required_status_checks": CHECKS})
    return runner


def test_a_group_is_verified_lands_and_is_applied(ready: Runner) -> None:
    hub = _queued(ready).hub
    pull = hub.world.pull(1)
    entry = landing.enqueue(hub.world, pull.number, "carol")
    (verified,) = ready.settle()
    assert (verified.job.verb, verified.code) == ("verify", 0), verified.text
    assert hub.status(entry.head, "plan").startswith("success")
    assert landing.settle_queue(hub.world) == [pull.number]
    assert hub.tip(MAIN) == entry.head
    good(ready)
    assert hub.status(entry.head, "apply").startswith("success")
    assert not hub.loop.graph("legacy").exists()


def test_a_gate_that_is_closed_keeps_a_group_out(planned: Runner) -> None:
    """Whatever the request's own status says: the group is computed anew."""
    hub, queued = planned.hub, _queued(planned)
    pull = hub.world.pull(1)
    hub.world.statuses[-1].state = "success"
    entry = landing.enqueue(hub.world, pull.number, "carol")
    (verified,) = queued.settle()
    assert verified.code != 0
    assert hub.status(entry.head, "plan").startswith("failure")
    assert landing.settle_queue(hub.world) == []
    assert hub.tip(MAIN) == entry.base


def test_drift_is_one_issue_until_it_is_gone(hub: Hub, runner: Runner) -> None:
    quiet = runner.tick("drift")
    assert (quiet.code, "none" in quiet.text) == (0, True)
    assert hub.world.issues == {}

    aside = hub.loop.folder / "aside"
    shutil.move(hub.loop.graph("legacy"), aside)
    entry = hub.tip(LEDGER)
    for _ in range(2):
        seen = runner.tick("drift")
        assert "graph.legacy" in seen.text
    (issue,) = hub.world.issues.values()
    assert not isinstance(issue, Pull)
    assert (issue.state, "graph.legacy" in issue.body) == ("open", True)
    assert "gitops refresh" in issue.body
    assert hub.tip(LEDGER) == entry

    shutil.move(aside, hub.loop.graph("legacy"))
    assert runner.tick("drift").code == 0
    assert issue.state == "closed"


def test_the_comments_of_an_app_are_no_commands(hub: Hub, runner: Runner) -> None:
    """What an app's token writes starts workflows, other than what a job's own token writes: the bot hears itself."""
    runner.login = APP
    pull = hub.propose("alice", "retire", DELETE_LEGACY)
    planned, heard = runner.settle()
    assert (planned.job.verb, heard.job.verb) == ("plan", "command")
    assert (heard.code, heard.calls) == (0, ())
    assert "not a command" in heard.text
    assert runner.settle() == []
    (comment,) = hub.world.issue(pull.number).comments
    assert (comment.author, comment.reactions) == (APP, [])
    hub.push("alice", "retire", {**DELETE_LEGACY, "README.md": b"More.\n"}, pull.base)
    runner.settle()
    assert [c.author for c in hub.world.issue(pull.number).comments] == [APP]
    good(runner)


def _scope(hub: Hub) -> ClusterScope:
    entry = hub.loop.local().ledger(ClusterRule(name="brain", path="cluster")).view().entry
    assert entry is not None
    assert entry.scope is not None
    return entry.scope


def test_jobs_move_a_cluster_only_when_that_is_approved(hub: Hub, runner: Runner) -> None:
    rules = hub.loop.store.read(hub.loop.store.commit(hub.tip(MAIN)).tree, "gitops.yaml") or b""
    hub.push("carol", "main", {"gitops.yaml": rules.replace(b"environment: production", b"environment: staging")})
    (waiting,) = runner.settle()
    assert "cluster_change_pending" in waiting.text
    assert _scope(hub).target.environment == "production"
    head = hub.tip(LEDGER)

    assert hub.approve("bob", "cluster.brain").ok
    assert runner.tick("sweep").code == 0
    assert _scope(hub).target.environment == "staging"
    assert hub.tip(LEDGER) != head
    assert hub.loop.gitops("carol", "audit").code == 0


MANY = 3000
LONG = "with_a_name_that_says_at_length_what_it_is_about_" * 3


def test_a_plan_of_three_megabytes_is_one_comment(hub: Hub, runner: Runner) -> None:
    queries = "".join(
        f"query q{n}_{LONG}() {{\n    match {{\n        $n: Note\n    }}\n    return {{ $n.title }}\n}}\n"
        for n in range(MANY)
    )
    cluster = CLUSTER_YAML.replace("    queries:\n      titles:\n        file: notes.gq\n", "    queries: many.gq\n")
    files = {"cluster/cluster.yaml": cluster.encode(), "cluster/many.gq": queries.encode()}
    pull = hub.propose("alice", "many", files)
    (run,) = runner.settle()
    store, tree = hub.world.store, hub.world.store.commit(hub.tip("refs/gitops/plans/brain/1")).tree
    sizes = [len(store.read(tree, entry.name) or b"") for entry in store.entries(tree)]
    assert max(sizes) >= 3_000_000

    body = hub.comment(pull.number)
    assert len(body) <= 65_536
    assert len(re.findall(r"^(?:`{3,}|~{3,})", body, re.MULTILINE)) % 2 == 0
    assert body.count("<details>") == body.count("</details>")
    (digest,) = set(re.findall(r"\b[0-9a-f]{64}\b", body))
    assert re.search(r"Plan for `production/brain`: `\+3,00\d ~", body)
    # What breaks is named; of what is only new, the first are named and the others counted.
    assert "`query.notes.titles`" in body
    assert re.search(
        rf"^- \*\*`ADDS`\*\* (`query\.notes\.q\w+`(, )?){{5}} and {MANY - 5:,} more queries$", body, re.MULTILINE
    )
    assert f"plan `{digest[:12]}`" in run.summary
    assert len(run.summary.encode()) <= 1 << 20
    assert hub.status(pull.head, "plan").startswith("success")


def test_what_changes_nothing_costs_few_calls_beside_conflicts(hub: Hub, runner: Runner) -> None:
    hub.world.habits.be_prompt()
    for number in range(5):
        hub.propose("alice", f"conflict-{number}", {"cluster/notes.gq": QUERY + b"\n" * number})
    runner.settle()
    hub.push("alice", "main", REWORDED)
    runner.settle()
    hub.push("alice", "main", {"README.md": b"Words.\n"})
    hub.calls()
    (run,) = runner.settle()
    assert run.text.count("refused as before") == 5
    # The push is elsewhere: no status, no deployment, and no question which request it merged.
    assert run.calls == ("GET /repos/octo/brain/pulls",)


OTHER = b"query titles() { match { $y: Note } return { $y.title } }\n"
Counted = Callable[[str], int]


@pytest.fixture
def counted(hub: Hub, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Run the one job that waits, and count the conversations of its program, without those of its clone."""
    begun: list[str] = []
    answer, prepare = hub.server.answer, runner._prepare

    def noting(environ: dict[str, str], body: bytes) -> bytes:
        # Each begins with the list of refs or of what the server can do, and this is asked for once.
        if environ["PATH_INFO"].endswith("/info/refs"):
            begun.append(environ["QUERY_STRING"])
        return answer(environ, body)

    def prepared(job: object) -> object:
        place = prepare(job)
        begun.clear()
        return place

    monkeypatch.setattr(hub.server, "answer", noting)
    monkeypatch.setattr(runner, "_prepare", prepared)

    def run(verb: str) -> int:
        (done,) = runner.settle()
        assert (done.job.verb, done.code) == (verb, 0), done.text
        return len(begun)

    return run


def test_an_event_talks_to_the_forge_a_few_times(hub: Hub, counted: Counted) -> None:
    number = hub.propose("alice", "query", {"cluster/notes.gq": QUERY}).number
    # What refs there are; whether the head is still the head; and the plan is kept. The new clone has the head.
    assert counted("plan") == 3
    # The plan before this one is fetched.
    hub.push("alice", "query", {"cluster/README.md": b"More.\n"}, hub.tip("refs/heads/query"))
    assert counted("plan") == 4
    # The other requests' heads are fetched, and their plans before and after. Each of them conflicts now and is planned again:
    # whether its head is still the head, and its plan is kept.
    for others, name in enumerate(("other", "third", "fourth"), 1):
        hub.propose("bob", name, {"cluster/notes.gq": OTHER})
        assert counted("plan") <= 7 + 2 * others
    hub.merge("carol", number)
    # One fetches the plans of the three requests that are planned again, and each of these has two: whether its head is still
    # the head, and its plan is kept. One records the changeset before it begins.
    assert counted("apply") <= 18


LOCK_ID = "01BX5ZZKBKACTAV9WEVGEMMVS0"


def test_a_ledger_that_takes_no_push_stops_an_apply_before_any_effect(ready: Runner) -> None:
    hub, runner = ready.hub, ready
    pull = hub.world.pull(1)
    rules = hub.world.protect("ledger", "gitops/ledger/**", {"update": None, "non_fast_forward": None})
    entry = hub.tip(LEDGER)
    tip = hub.merge("carol", pull.number)
    (run,) = runner.settle()
    assert run.code == 1
    assert "GH013" in run.text
    assert "ledger_not_writable" in run.text
    assert hub.world.tip("refs/gitops/locks/brain") is None
    assert hub.loop.graph("legacy").exists()
    assert hub.tip(LEDGER) == entry
    assert hub.status(tip, "apply").startswith("failure")

    # With the bypass that `gitops doctor` asks for, the sweep finds what is left to do.
    rules.bypass = frozenset({JOB})
    swept = runner.tick("sweep")
    assert swept.code == 0, swept.text
    assert not hub.loop.graph("legacy").exists()
    assert hub.status(tip, "apply").startswith("success")


def test_ten_minutes_without_comments_change_no_outcome(hub: Hub, runner: Runner) -> None:
    limit = hub.server.fault_next(
        r"(GET|POST|PATCH) .*/comments", status=403, times=10_000, headers={"Retry-After": "600"}
    )
    pull = hub.propose("alice", "reword", REWORDED)
    good(runner)
    assert hub.status(pull.head, "plan") == "success: 1 change"
    assert hub.comments(pull.number) == []
    assert "comment" in runner.runs[-1].text
    tip = hub.merge("carol", pull.number)
    good(runner)
    assert hub.status(tip, "apply").startswith("success")
    # A job does not sit out the ten minutes.
    assert sum(runner.waited) < 600

    # What was not written is not lost, whichever run comes next: a plan that did not change gets its comment.
    one, two = (hub.propose("bob", branch, WITH_BODY) for branch in ("body", "same"))
    good(runner)
    limit.times = 0
    hub.push("alice", "main", {"README.md": b"Words.\n"})
    good(runner)
    assert [len(hub.comments(each.number)) for each in (one, two)] == [1, 1]
    limit.times = 10_000
    hub.push("bob", "body", {"cluster/README.md": b"More words.\n"}, one.head)
    good(runner)
    limit.times = 0
    assert "the forge did not accept its comment" in runner.tick("sweep").text
    assert hub.tip("refs/heads/body")[:12] in hub.comment(one.number)
    assert "the forge did not accept its comment" not in runner.tick("sweep").text
    hub.server.calls.clear()


def test_a_token_that_may_do_less_tells_what_it_can(hub: Hub, runner: Runner) -> None:
    """Without `contents: write` the plan is kept nowhere, without `checks: write` there is no check; the rest is as ever."""
    name = token_of(JOB)
    hub.world.lend(name, JOB, "actions", contents="read", pull_requests="write", statuses="write")
    pull = hub.propose("alice", "reword", REWORDED)
    (run,) = runner.settle()
    assert run.code == 0, run.text
    assert hub.status(pull.head, "plan").startswith("success")
    assert len(hub.comments(pull.number)) == 1
    assert hub.world.checks == {}
    assert hub.world.tip(f"refs/gitops/plans/brain/{pull.number}") is None

    hub.world.lend(name, JOB, "actions", contents="write", pull_requests="write")
    hub.push("alice", "reword", {"cluster/README.md": b"More.\n"}, pull.head)
    (run,) = runner.settle()
    assert run.code == 1
    assert "forge_refused" in run.text


def test_a_lost_answer_leaves_one_comment_and_one_deployment(hub: Hub, runner: Runner) -> None:
    for pattern in (r"^POST .*/issues/1/comments$", r"^POST .*/deployments$", r"^POST .*/statuses/"):
        hub.server.fault_next(pattern, lost=True)
    hub.server.fault_next(r"^GET .*/pulls$", status=502)
    pull = hub.propose("alice", "reword", REWORDED)
    good(runner)
    tip = hub.merge("carol", pull.number)
    good(runner)
    assert len(hub.comments(pull.number)) == 1
    assert [d.sha for d in hub.world.deployments.values()] == [tip]


def test_an_apply_while_another_one_runs_does_not_say_success(hub: Hub, runner: Runner) -> None:
    pull = hub.propose("alice", "reword", REWORDED)
    good(runner)
    local = hub.loop.local()
    ledger = local.ledger(local.config().cluster(None))
    ledger.acquire(LockInfo(LOCK_ID, "apply", "2026-01-01T00:00:00Z", 1))
    tip = hub.merge("carol", pull.number)
    (run,) = runner.settle()
    assert (run.code, "already running" in run.text) == (0, True)
    contexts = {s.context for s in hub.world.statuses if s.sha == tip and s.state == "success"}
    assert "gitops/apply/brain" not in contexts
    held = runner.tick("sweep")
    assert f"/gitops unlock {LOCK_ID}" in held.text

    comment = hub.say("carol", pull.number, f"/gitops unlock {LOCK_ID}")
    good(runner)
    assert [r.content for r in comment.reactions] == ["+1"]
    assert runner.tick("sweep").code == 0
    assert hub.status(tip, "apply").startswith("success")


def test_a_merge_during_an_apply_is_applied_by_the_same_run(hub: Hub, runner: Runner) -> None:
    """Its own run may find the lock held and leave; the one that holds it goes up to the newest commit."""
    one, two = hub.propose("alice", "reword", REWORDED), hub.propose("bob", "body", WITH_BODY)
    good(runner)
    hub.merge("carol", one.number)
    (first,) = [job for event in runner.pending() for job in jobs(event)]
    hub.server.meanwhile.append(lambda: hub.merge("carol", two.number))
    before = hub.tip()
    run = runner.run(first)
    assert run.code == 0, run.text
    assert hub.tip() != before
    assert hub.status(hub.tip(), "apply").startswith("success")
    entry = hub.tip(LEDGER)
    good(runner)
    assert hub.tip(LEDGER) == entry
    assert audit(hub.loop).startswith("audit good")


def test_two_applies_at_once_leave_one_line_of_entries(hub: Hub, runner: Runner) -> None:
    """Two jobs of two merges start together, each in a process of its own."""
    pulls = [hub.propose("alice", "reword", REWORDED), hub.propose("bob", "body", WITH_BODY)]
    good(runner)
    for pull in pulls:
        hub.merge("carol", pull.number)
    wanted = [job for event in runner.pending() for job in jobs(event) if job.verb == "apply"]
    runs = runner.together(*wanted)
    assert [run.code for run in runs] == [0, 0], [run.text for run in runs]
    assert runner.tick("sweep").code == 0
    assert hub.status(hub.tip(), "apply").startswith("success")
    assert audit(hub.loop).startswith("audit good")
    assert hub.world.tip("refs/gitops/locks/brain") is None
