"""What `gitops init --forge github` makes, on GitHub: its workflows are carried out, from an empty repository on.

The jobs have the permissions of their workflow and no more, and the action installs nothing but this very program.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.init.files import REQUIREMENTS
from tests.e2e.github.stories import audit
from tests.support.forges import landing
from tests.support.forges.hub import JOB, Hub, token_of
from tests.support.forges.records import Cause, Happening
from tests.support.forges.workflows import Actions, Ran
from tests.support.loop import EVERYBODY, LEDGER, MAIN, Loop, email
from tests.support.s3 import REGION, S3Place

pytestmark = pytest.mark.e2e

WITH_TAG = {
    "cluster/notes/schema.pg": b"node Note {\n    slug: String @key\n    title: String @index\n    text: String?\n}\n\n"
    b"node Tag {\n    name: String @key\n}\n\nedge RefersTo: Note -> Note\n"
}


def _empty(folder: Path) -> Loop:
    """People with keys, and a repository with nothing in it."""
    loop = Loop(folder)
    for who in EVERYBODY:
        loop.home(who).mkdir(parents=True)
        loop.program(
            "bot", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", who, "-f", str(loop.key(who)), at=folder
        )
    loop.configure()
    loop.program("bot", "git", "init", "-q", "--bare", "-b", "main", str(loop.server), at=folder)
    return loop


def _started(hub: Hub, *chosen: str) -> None:
    """Alice follows the page: a clone, `gitops init`, a push."""
    loop = hub.loop
    url = hub.server.git_url.replace("//", f"//x-access-token:{token_of('alice')}@", 1)
    place = loop.home("alice") / "clone"
    loop.program("alice", "git", "clone", "-q", url, str(place), at=loop.home("alice"))
    keys = ("--bot", email("bot"), "--bot-key", str(loop.key("bot")), "--approver", f"{email('bob')}={loop.key('bob')}")
    loop.gitops("alice", "init", "--yes", "--forge", "github", "--cluster", "brain", *keys, *chosen)
    loop.program("alice", "git", "add", "--all")
    loop.program("alice", "git", "commit", "-q", "--message", "Start the cluster brain")
    loop.program("alice", "git", "push", "-q", "origin", "HEAD:refs/heads/main")


def _actions(hub: Hub, folder: Path) -> Actions:
    secrets = {"gitops": {"GITOPS_SIGNING_KEY": hub.loop.key("bot").read_text()}}
    return Actions(hub, folder, secrets, {"GITOPS_ROOT": str(hub.loop.folder / "data")})


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """The repository just after the first push. Built once, never changed."""
    folder = tmp_path_factory.mktemp("pushed")
    hub = Hub.of(_empty(folder))
    with hub:
        _started(hub)
    return hub


@pytest.fixture(scope="session")
def applied(pushed: Hub, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    """The same after the jobs of that push. Built once, never changed."""
    folder = tmp_path_factory.mktemp("applied")
    with pushed.copied(folder / "loop") as hub:
        _good(_actions(hub, folder / "jobs").settle(), "apply")
    return hub


@pytest.fixture
def fresh(pushed: Hub, tmp_path: Path) -> Iterator[Actions]:
    """What the first push starts has not run yet."""
    with pushed.copied(tmp_path / "loop") as hub:
        yield _actions(hub, tmp_path / "jobs")


@pytest.fixture
def actions(applied: Hub, tmp_path: Path) -> Iterator[Actions]:
    """The cluster is applied, and nothing waits."""
    with applied.copied(tmp_path / "loop") as hub:
        actions = _actions(hub, tmp_path / "jobs")
        actions.forget()
        yield actions


def _good(ran: list[Ran], *jobs: str) -> None:
    assert [each.job for each in ran] == list(jobs), [(r.job, r.outcome.text) for r in ran]
    for each in ran:
        assert each.outcome.ok, f"{each.job}:\n{each.outcome.text}"


def test_from_an_empty_repository_to_the_second_change(fresh: Actions) -> None:
    actions, hub = fresh, fresh.hub
    _good(actions.settle(), "apply")
    assert hub.status(hub.tip(), "apply") == "success: 4 applied"
    assert hub.loop.graph("notes").exists()
    assert hub.world.store.commit(hub.tip(LEDGER)).author.email == email("bot")

    pull = hub.propose("alice", "tags", WITH_TAG)
    ran = actions.settle()
    _good(ran, "plan", "post")
    assert "Tag" in ran[0].summary
    assert hub.status(pull.head, "plan").startswith("success: ")
    assert "Tag" in hub.comment(1)

    hub.say("bob", 1, "/gitops plan")
    _good(actions.settle(), "command")
    assert actions.skipped == []
    hub.say("bob", 1, "Thank you! /gitops plan is nice")
    _good(actions.settle())
    assert actions.skipped == [("issue_comment", "command")]
    (skipped,) = [each for each in hub.world.checks.values() if each.conclusion == "skipped"]
    assert (skipped.name, skipped.sha) == ("carry out a command", hub.tip())

    tip = hub.merge("bob", 1, "squash")
    _applied(actions, tip)
    assert len(hub.comments(1)) == 1
    assert audit(hub.loop).startswith("audit good")


def _applied(actions: Actions, tip: str) -> None:
    """Whatever else runs after a merge: the apply does, and all end well."""
    ran = actions.settle()
    assert "apply" in [each.job for each in ran]
    _good(ran, *[each.job for each in ran])
    assert actions.hub.status(tip, "apply").startswith("success")


def test_a_fork_is_planned_without_a_secret_and_told_by_the_default_branch(actions: Actions) -> None:
    hub = actions.hub
    ledger = hub.tip(LEDGER)
    pull = hub.propose_from_fork("mallory", "tags", WITH_TAG)
    planned, posted = actions.settle()
    assert (planned.workflow, planned.job, planned.event) == ("gitops-plan.yml", "plan", "pull_request")
    assert planned.outcome.ok, planned.outcome.text
    assert "Tag" in planned.summary
    assert (posted.workflow, posted.job, posted.event) == ("gitops-post.yml", "post", "workflow_run")
    assert posted.outcome.ok, posted.outcome.text
    assert hub.status(pull.head, "plan").startswith("success: ")
    assert hub.tip(LEDGER) == ledger


def test_what_dependabot_proposes_is_planned_though_its_jobs_get_nothing(actions: Actions) -> None:
    """Its requests are from branches of the repository, and their jobs have what those of forks have."""
    hub = actions.hub
    hub.world.join("dependabot[bot]", "write", kind="Bot")
    hub.push("alice", "tags", WITH_TAG)
    actions.forget()
    pull = hub.world.open_pull("dependabot[bot]", "tags")
    _good(actions.settle(), "plan", "post")
    assert hub.status(pull.head, "plan").startswith("success: ")
    # Its own merge starts an apply that can sign nothing; the sweep finds the merge.
    tip = hub.merge("dependabot[bot]", pull.number)
    (applied,) = [each for each in actions.settle() if each.job == "apply"]
    assert not applied.outcome.ok
    _good(actions.tick("17 * * * *"), "sweep")
    assert hub.status(tip, "apply").startswith("success")


def test_a_workflow_that_a_fork_brings_gets_nothing(actions: Actions) -> None:
    """It may print what it likes; there is no key, no token that writes, and what is told is made anew."""
    hub = actions.hub
    evil = (
        b"name: gitops plan\non:\n  pull_request:\npermissions: {}\njobs:\n  plan:\n    runs-on: ubuntu-24.04\n"
        b"    permissions: {contents: write, statuses: write, pull-requests: write}\n    environment: {name: gitops}\n"
        b"    steps:\n      - env:\n          KEY: ${{ secrets.GITOPS_SIGNING_KEY }}\n          TOKEN: ${{ github.token }}\n"
        b'        run: \'echo "key=[$KEY] gitops/plan/brain: success"; echo "$TOKEN" > stolen\'\n'
    )
    pull = hub.propose_from_fork("mallory", "evil", {**WITH_TAG, ".github/workflows/gitops-plan.yml": evil})
    planned, posted = actions.settle()
    assert "key=[] gitops/plan/brain: success" in planned.outcome.text
    (stolen,) = actions.folder.rglob("stolen")
    assert not hub.world.tokens[stolen.read_text().strip()].may("contents", "write")
    assert posted.job == "post"
    assert hub.status(pull.head, "plan").startswith("success: ")
    assert "Tag" in hub.comment(1)


def test_runs_that_newer_ones_cancel_leave_nothing_undone(actions: Actions) -> None:
    """Of the applies of three merges, the middle one never starts; of two plans of a request, only the newer one does."""
    hub, tips = actions.hub, []
    for number, name in enumerate(("one", "two", "three"), start=1):
        hub.propose("alice", name, {f"cluster/{name}.md": b"said\n"})
        hub.push("alice", name, {f"cluster/{name}.md": b"said again\n"})
        tips.append(hub.merge("bob", number))
    ran = actions.settle()
    assert [each.job for each in ran if each.event == "push"] == ["apply", "apply"]
    assert actions.cancelled.count(("push", "apply")) == 1
    assert actions.cancelled.count(("pull_request", "plan")) >= 3
    assert [hub.status(tip, "apply").partition(":")[0] for tip in tips] == ["success"] * 3


def test_the_schedule_finds_what_was_skipped_and_what_drifted(fresh: Actions) -> None:
    actions, hub = fresh, fresh.hub
    actions.forget()
    _good(actions.tick("17 * * * *"), "sweep")
    assert hub.loop.graph("notes").exists()
    assert hub.status(hub.tip(), "apply").startswith("success")
    _good(actions.tick("41 4 * * *"), "drift")


def test_a_merge_group_is_verified(actions: Actions) -> None:
    hub = actions.hub
    hub.world.protect("queue", "main", {"merge_queue": {"merge_method": "MERGE", "max_entries_to_build": 5}})
    pull = hub.propose("alice", "tags", WITH_TAG)
    _good(actions.settle(), "plan", "post")
    entry = landing.enqueue(hub.world, pull.number, "bob")
    ran = [each for each in actions.settle() if each.event == "merge_group"]
    _good(ran, "verify")
    assert hub.status(entry.head, "plan").startswith("success")
    assert hub.tip(MAIN) != entry.head


def test_the_wheel_in_the_repository_applies_the_cluster(fresh: Actions) -> None:
    """Nothing stands in for the installation: the job runs the program that `init` packed, and pip installed."""
    hub, store = fresh.hub, fresh.hub.world.store
    tree = store.commit(hub.tip()).tree
    required = store.read(tree, REQUIREMENTS) or b""
    hub.push("alice", "main", {REQUIREMENTS: required[: required.index(b"annotated-types==")]})
    fresh.forget()
    fresh.installs = True
    started = {"workflow": ".github/workflows/gitops-apply.yml"}
    fresh.start(Happening("0-run", "workflow_dispatch", started, Cause(JOB, hub.tip(), MAIN)))
    _good(fresh.ran, "apply")
    assert hub.loop.graph("notes").exists()
    assert hub.status(hub.tip(), "apply").startswith("success")


def test_plans_need_neither_the_bucket_nor_its_address(s3: S3Place, tmp_path: Path) -> None:
    """`init --storage s3://...`: jobs without credentials plan a request of a fork and verify a merge group."""
    with Hub.of(_empty(tmp_path / "loop")) as hub:
        _started(hub, "--storage", s3.root)
        settings = {"GITOPS_STORAGE": s3.root, "AWS_REGION": REGION, "AWS_ENDPOINT_URL_S3": s3.server.url}
        secrets = {name: value for name, value in s3.environ.items() if "KEY" in name}
        secrets["GITOPS_SIGNING_KEY"] = hub.loop.key("bot").read_text()
        base = {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": s3.server.url}
        actions = Actions(hub, tmp_path / "jobs", {"gitops": secrets}, settings, base=base)
        _good(actions.settle(), "apply")
        assert any(key.startswith("graphs/notes.omni/") for key in s3.keys())  # noqa: SIM118
        hub.world.protect("queue", "main", {"merge_queue": {"merge_method": "MERGE", "max_entries_to_build": 5}})

        asked_during: set[int] = set()
        s3.server.fault = lambda _: asked_during.add(len(actions.ran))
        pull = hub.propose_from_fork("mallory", "tags", WITH_TAG)
        _good(actions.settle(), "plan", "post")
        assert "Tag" in actions.ran[1].summary
        assert hub.status(pull.head, "plan").startswith("success: ")
        entry = landing.enqueue(hub.world, pull.number, "bob")
        actions.settle()
        (verify,) = [number for number, each in enumerate(actions.ran) if each.event == "merge_group"]
        _good([actions.ran[verify]], "verify")
        assert hub.status(entry.head, "plan").startswith("success")
        assert not {1, verify} & asked_during


def test_paused_nothing_runs(fresh: Actions) -> None:
    fresh.variables["GITOPS_PAUSED"] = "true"
    assert fresh.settle() == []


@pytest.mark.parametrize(
    ("job", "permission", "said"),
    [
        pytest.param("post", "statuses", "forge_refused", marks=pytest.mark.slow),
        ("apply", "contents", "Permission to octo/brain.git denied"),
        pytest.param("apply", "statuses", "forge_refused", marks=pytest.mark.slow),
    ],
)
def test_a_permission_that_is_missing_is_missed(fresh: Actions, job: str, permission: str, said: str) -> None:
    """So that the other tests prove that the permissions suffice."""
    fresh.withhold = {job: permission}
    ran = fresh.settle()
    if job == "post":
        assert ran[-1].outcome.ok, ran[-1].outcome.text
        fresh.hub.propose("alice", "tags", WITH_TAG)
        ran = fresh.settle()
    assert ran[-1].job == job
    assert not ran[-1].outcome.ok
    assert said in ran[-1].outcome.text


def test_a_review_counts_though_its_own_job_may_do_nothing(fresh: Actions) -> None:
    """The job that a review starts has no key; that it has ended starts the one that attests the review."""
    actions, hub = fresh, fresh.hub
    hub.world.habits.creates_labels = True
    rules = (
        f"  required: 1\n  via_forge: [reversible, irreversible]\n"
        f"  accounts: {{'github:{hub.world.accounts['bob'].id}': {email('bob')}}}\n"
    )
    store = hub.world.store
    config = (store.read(store.commit(hub.tip()).tree, "gitops.yaml") or b"").replace(
        b"  required: 1\n", rules.encode()
    )
    hub.push("alice", "main", {"gitops.yaml": config})
    _good(actions.settle(), "apply", "apply")
    pull = hub.propose("alice", "retire", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"})
    _good(actions.settle(), "plan", "post")
    assert "needs approval: graph.notes" in hub.status(pull.head, "plan")
    assert "gitops/needs-approval" in hub.world.issue(pull.number).labels

    hub.world.review("bob", pull.number, "APPROVED")
    ran = actions.settle()
    _good(ran, "review", "post")
    assert f"graph.notes approved by {email('bob')}" in ran[-1].outcome.text
    assert hub.status(pull.head, "plan").startswith("success")
    assert len(hub.approvals()) == 1
