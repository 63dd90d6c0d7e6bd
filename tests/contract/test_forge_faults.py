"""Faults and races on each forge, over HTTP: whatever is lost, refused or overtaken, one of everything is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.port import (
    Annotation,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    Forge,
    RequestState,
)
from tests.support.forge_world import MAIN
from tests.support.forges.people import TOKEN, OverHttp, on_gitea, on_github, on_gitlab, open_forge, over_http
from tests.support.forges.records import Pull
from tests.support.forges.world import World

AT = "2026-07-02T10:00:00Z"
MARKER = "<!-- gitops:plan library -->"
BODY = f"{MARKER}\nthe plan"
DRIFT = "refs/heads/gitops/drift/library"


FORGES = {"github": partial(on_github, prompt=True), "gitea": on_gitea, "gitlab": on_gitlab}


@pytest.fixture(params=FORGES)
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OverHttp]:
    """Each forge, with request 1 by mira, and a branch that is proposed nowhere."""
    with over_http(FORGES[request.param](tmp_path)) as found:
        found.open_request()
        found.branch(DRIFT, files=("drift",))
        yield found


def me(hub: OverHttp) -> str:
    """The login of the bot."""
    return str(hub.world.tokens[TOKEN].account)


def _comments(hub: OverHttp) -> list[str]:
    return [comment.body for comment in hub.world.issue(1).comments]


def _proposals(hub: OverHttp) -> list[str]:
    return [i.title for i in hub.world.issues.values() if isinstance(i, Pull) and i.number > 1]


def _statuses(hub: OverHttp) -> list[str]:
    return [s.description for s in open_forge(hub.server).statuses(hub.head(1))]


Write = Callable[[Forge, str], object]
Look = Callable[[OverHttp], list[str]]
# What is written, in one try, and what must be there exactly once afterwards.
WRITES: dict[str, tuple[str, Write, Look]] = {
    "comment": (
        r"POST .*/(issues|merge_requests)/1/(comments|notes)$",
        lambda f, _: f.upsert_comment(1, MARKER, BODY),
        _comments,
    ),
    "issue": (
        r"POST .*/issues$",
        lambda f, _: f.upsert_issue(MARKER, "Drift", "x"),
        lambda hub: [title for title, _, _ in hub.issues()],
    ),
    "proposal": (r"POST .*/(pulls|merge_requests)$", lambda f, _: f.propose(DRIFT, MAIN, "Adopt", "x"), _proposals),
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
def test_one_of_what_is_made_is_left(hub: OverHttp, name: str, fault: str) -> None:
    pattern, write, look = WRITES[name]
    on_github = type(hub.world) is World
    if (name == "deployment" and not hub.bot().features.deployments) or (fault == "secondary" and not on_github):
        pytest.skip("this forge has nothing of the kind")
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
            status = 403 if on_github else 429
            hub.server.fault_next(pattern, status=status, headers={"Retry-After": "9"}, message="slow down")
        case _:
            hub.server.fault_next(pattern, status=403)
    _tried(lambda: write(forge, head))
    if name == "comment" and fault in ("lost", "failed"):
        assert _comments(hub) == [BODY], "what is lost once is made good at once"
    if fault == "limited":
        assert pauses == [9.0]
    if fault == "secondary":
        assert pauses == [60.0]
    write(open_forge(hub.server), head)
    assert len(look(hub)) == 1


@pytest.mark.parametrize("hub", ["github"], indirect=True)
def test_comments_that_are_refused_for_long_end_in_peace(hub: OverHttp) -> None:
    hub.server.fault_next(r"/comments$", status=403, times=1000)
    pauses: list[float] = []
    with pytest.raises(RemoteError) as refused:
        open_forge(hub.server, pauses=pauses).upsert_comment(1, MARKER, BODY)
    assert (refused.value.code, refused.value.retryable) == ("forge_unavailable", True)
    assert sum(pauses) <= 180
    assert _comments(hub) == []


def test_a_wrong_token_is_told_without_it(hub: OverHttp) -> None:
    with pytest.raises(GitopsError) as refused:
        open_forge(hub.server, "ghp_wrong_planted").me()
    assert refused.value.code == "forge_refused"
    assert "planted" not in refused.value.detail


def test_the_same_comment_again_is_not_written(hub: OverHttp) -> None:
    forge = hub.bot()
    forge.upsert_comment(1, MARKER, BODY)
    del hub.server.calls[:]
    forge.upsert_comment(1, MARKER, BODY + "\n")
    assert [call.partition(" ")[0] for call in hub.server.calls] == ["GET"]


def test_what_a_race_left_behind_is_removed(hub: OverHttp) -> None:
    for text in ("one", "two", "three"):
        hub.world.comment(me(hub), 1, f"{MARKER}\n{text}")
    hub.world.comment("mallory", 1, f"{MARKER}\nposing")
    hub.bot().upsert_comment(1, MARKER, BODY)
    found = hub.bot().comments(1)
    assert [(c.author, c.body, c.marker) for c in found] == [
        (me(hub), BODY, MARKER),
        ("mallory", f"{MARKER}\nposing", None),
    ]


def test_a_comment_that_is_removed_meanwhile_is_written_anew(hub: OverHttp) -> None:
    hub.bot().upsert_comment(1, MARKER, "old")
    hub.bot(overtaken_by=hub.world.issue(1).comments.clear).upsert_comment(1, MARKER, BODY)
    assert _comments(hub) == [BODY]


def test_a_proposal_that_somebody_else_opens_first(hub: OverHttp) -> None:
    late = hub.bot(overtaken_by=lambda: hub.bot().propose(DRIFT, MAIN, "Adopt", "the rival's"))
    request = late.propose(DRIFT, MAIN, "Adopt it", "mine")
    assert [(each.number, each.title) for each in hub.bot().requests()] == [
        (1, "Add authors"),
        (request.number, "Adopt it"),
    ]


def test_a_forks_branch_of_the_same_name_is_another(hub: OverHttp) -> None:
    fork = hub.open_fork(DRIFT.removeprefix("refs/heads/"))
    hub.branch(DRIFT, files=("a",))
    assert hub.bot().request(fork).fork
    assert hub.bot().propose(DRIFT, MAIN, "Adopt", "both ways out").number != fork
    assert hub.bot().request(fork).title == "Add authors"


def test_issues_that_a_race_left_behind_are_closed(hub: OverHttp) -> None:
    for text in ("one", "two"):
        hub.issue_as(me(hub), "Drift", f"{MARKER}\n{text}")
    hub.issue_as("mallory", "Drift", f"{MARKER}\nposing")
    hub.bot().upsert_issue(MARKER, "Drift", f"{MARKER}\nthree")
    found = {text.splitlines()[1] for _, text, is_open in hub.issues() if is_open}
    assert (found, len(hub.issues())) == ({"three", "posing"}, 3)


@pytest.mark.parametrize("hub", ["github"], indirect=True)
def test_a_plan_is_six_requests_over_the_wire(hub: OverHttp) -> None:
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
