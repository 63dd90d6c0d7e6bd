"""The forge of a job without a token: it knows what the job knows, permits nothing and tells nobody."""

from __future__ import annotations

import pytest

from gitops.bot.silent_forge import SilentForge
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    Account,
    ChangeRequest,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    Features,
    Forge,
    MergedRequests,
    Permission,
    Reaction,
    RequestState,
    ReviewDecision,
)

REQUEST = ChangeRequest(7, "", "", "refs/heads/main", "a" * 40, RequestState.OPEN, "", fork=True)


def test_it_knows_the_one_request_of_the_job() -> None:
    forge: Forge = SilentForge([REQUEST])
    assert forge.requests(state=RequestState.OPEN, target="refs/heads/main") == (REQUEST,)
    assert forge.requests(state=RequestState.MERGED) == forge.requests(target="refs/heads/other") == ()
    assert forge.request(7) == REQUEST
    with pytest.raises(GitopsError) as caught:
        forge.request(8)
    assert caught.value.code == "request_not_found"


def test_what_it_cannot_know_is_unknown_and_never_permitted() -> None:
    forge: Forge = SilentForge([REQUEST])
    assert forge.features == Features()
    assert forge.permission(Account("1", "root")) is Permission.NONE
    assert forge.review_decision(7) is ReviewDecision.UNKNOWN
    assert (forge.reviews(7), forge.comments(7), forge.files(7), forge.statuses("a" * 40)) == ((), (), (), ())
    assert forge.merged_by(["a" * 40]) == MergedRequests()
    assert forge.me() == Account("", "")
    assert forge.branch_rules("main").protected is None


def test_it_tells_nobody_and_proposes_nothing() -> None:
    forge: Forge = SilentForge([REQUEST])
    forge.upsert_comment(7, "gitops cluster=brain", "text")
    forge.set_status(CheckStatus("a" * 40, "gitops/plan/brain", CheckState.SUCCESS, "", ""))
    forge.set_check(CommitCheck("a" * 40, "gitops brain", CheckState.SUCCESS, "", ""))
    forge.react(7, "1", Reaction.DONE)
    forge.set_labels(7, add=["x"])
    forge.record_deployment(Deployment("a" * 40, "production/brain", DeploymentState.SUCCESS))
    forge.close_issue("gitops drift=brain", "gone")
    assert forge.upsert_issue("gitops drift=brain", "Drift", "text") == ""
    assert (forge.comments(7), forge.statuses("a" * 40)) == ((), ())
    with pytest.raises(GitopsError) as caught:
        forge.propose("refs/heads/gitops/drift/brain", "refs/heads/main", "Drift", "text")
    assert caught.value.code == "forge_refused"
