"""Every write to GitHub while answers get lost and limits are hit, over HTTP: it leaves one of what it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.github import GitHubForge
from gitops.forge.port import (
    Annotation,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    RequestState,
)
from tests.support.forge_world import MAIN
from tests.support.forges.people import GitHubWorld, open_forge, populate
from tests.support.forges.records import Pull
from tests.support.forges.server import GitHubServer
from tests.support.forges.world import host

AT = "2026-07-02T10:00:00Z"
MARKER = "<!-- gitops:plan library -->"
BODY = f"{MARKER}\nthe plan"
DRIFT = "refs/heads/gitops/drift/library"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[GitHubWorld]:
    world = host(tmp_path / "octo.git")
    populate(world)
    # These tests are about single faults.
    world.habits.be_prompt()
    with GitHubServer(world) as running:
        found = GitHubWorld(world, server=running)
        found.open_request()
        found.branch(DRIFT, files=("drift",))
        yield found


def _comments(hub: GitHubWorld) -> list[str]:
    return [comment.body for comment in hub.world.issue(1).comments]


def _proposals(hub: GitHubWorld) -> list[str]:
    return [i.title for i in hub.world.issues.values() if isinstance(i, Pull) and i.number > 1]


def _statuses(hub: GitHubWorld) -> list[str]:
    return [s.description for s in open_forge(hub.server).statuses(hub.head(1))]


Write = Callable[[GitHubForge, str], object]
Look = Callable[[GitHubWorld], list[str]]
# What is written, in one try, and what must be there exactly once afterwards.
WRITES: dict[str, tuple[str, Write, Look]] = {
    "comment": (r"POST .*/issues/1/comments$", lambda f, _: f.upsert_comment(1, MARKER, BODY), _comments),
    "issue": (
        r"POST .*/issues$",
        lambda f, _: f.upsert_issue(MARKER, "Drift", "x"),
        lambda hub: [title for title, _, _ in hub.issues()],
    ),
    "proposal": (r"POST .*/pulls$", lambda f, _: f.propose(DRIFT, MAIN, "Adopt", "x"), _proposals),
    "deployment": (
        r"POST .*/deployments$",
        lambda f, head: f.record_deployment(Deployment(head, "production", DeploymentState.SUCCESS)),
        lambda hub: [state.value for _, state in hub.deployments("production")],
    ),
    "status": (
        r"POST .*/statuses/",
        lambda f, head: f.set_status(CheckStatus(head, "gitops/plan", CheckState.SUCCESS, "ok", AT)),
        _statuses,
    ),
}


def _tried(write: Callable[[], object]) -> None:
    """A run of the bot: what fails is told, and the next run tries again."""
    try:
        write()
    except RemoteError as error:
        assert error.retryable, error.detail  # noqa: PT017 - the other way out of a try


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("fault", ["lost", "failed", "lost twice", "limited", "secondary"])
def test_one_of_what_is_made_is_left(hub: GitHubWorld, name: str, fault: str) -> None:
    pattern, write, look = WRITES[name]
    pauses: list[float] = []
    forge, head = open_forge(hub.server, pauses=pauses), hub.head(1)
    match fault:
        case "lost":
            hub.server.fault_next(pattern, lost=True)
        case "failed":
            hub.server.fault_next(pattern, status=502)
        case "lost twice":
            hub.server.fault_next(pattern, lost=True, times=2)
        case "limited":
            hub.server.fault_next(pattern, status=403, headers={"Retry-After": "9"}, message="slow down")
        case _:
            hub.server.fault_next(pattern, status=403)
    _tried(lambda: write(forge, head))
    if fault == "limited":
        assert pauses == [9.0]
    if fault == "secondary":
        assert pauses == [60.0]
    write(open_forge(hub.server), head)
    assert len(look(hub)) == 1


def test_comments_that_are_refused_for_long_end_in_peace(hub: GitHubWorld) -> None:
    hub.server.fault_next(r"/comments$", status=403, times=1000)
    pauses: list[float] = []
    with pytest.raises(RemoteError) as refused:
        open_forge(hub.server, pauses=pauses).upsert_comment(1, MARKER, BODY)
    assert (refused.value.code, refused.value.retryable) == ("forge_unavailable", True)
    assert sum(pauses) <= 180
    assert _comments(hub) == []


def test_two_bots_that_race_leave_one_comment_after_the_next_run(hub: GitHubWorld) -> None:
    def rival() -> None:
        open_forge(hub.server).upsert_comment(1, MARKER, f"{MARKER}\nrival")

    hub.server.rivals.append(rival)
    open_forge(hub.server).upsert_comment(1, MARKER, BODY)
    open_forge(hub.server).upsert_comment(1, MARKER, f"{MARKER}\nnewest")
    assert _comments(hub) == [f"{MARKER}\nnewest"]


def test_a_wrong_token_is_told_without_it(hub: GitHubWorld) -> None:
    with pytest.raises(GitopsError) as refused:
        open_forge(hub.server, "ghp_wrong_planted").me()
    assert refused.value.code == "forge_refused"
    assert "planted" not in refused.value.detail


def test_a_plan_is_six_requests_over_the_wire(hub: GitHubWorld) -> None:
    forge = open_forge(hub.server)
    del hub.server.calls[:]
    (request,) = [r for r in forge.requests(state=RequestState.OPEN, target=MAIN) if r.number == 1]
    notes = tuple(Annotation("a", n, "note", Severity.ERROR) for n in range(1, 51))
    forge.set_status(CheckStatus(request.head, "gitops/plan", CheckState.FAILURE, "50 problems", AT))
    forge.set_check(CommitCheck(request.head, "gitops/plan", CheckState.FAILURE, "50 problems", "s", notes))
    forge.upsert_comment(1, MARKER, BODY)
    assert len(hub.server.calls) == 6
    # The same plan again: nothing is written that is there already, but for status and check, of which the newest counts.
    forge.upsert_comment(1, MARKER, BODY)
    assert len(hub.server.calls) == 7
