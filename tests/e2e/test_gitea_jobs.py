"""The scaffolded jobs of Gitea that apply, carried out as its runner does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.actions.scaffolds import made
from tests.support.forges.gitea_jobs import GiteaActions
from tests.support.forges.site import TOKEN, GiteaSite
from tests.support.loop import Loop

pytestmark = pytest.mark.e2e

FILES = (".gitea/", ".gitops/install/")
QUERY = b"query titles() { match { $x: Note } return { $x.title } }\n"


@pytest.fixture
def actions(known: Loop, tmp_path: Path) -> Iterator[GiteaActions]:
    """The repository has the jobs, and nothing waits."""
    with GiteaSite.at(known, tmp_path / "site") as site:
        jobs = {path: content for path, content in made("gitea").items() if path.startswith(FILES)}
        site.push("carol", "main", jobs)
        given = {"GITOPS_TOKEN": TOKEN, "GITOPS_SIGNING_KEY": known.key("bot").read_text()}
        (tmp_path / "jobs").mkdir()
        root = {"GITOPS_ROOT": str(known.folder / "data")}
        actions = GiteaActions(site, tmp_path / "jobs", variables=root, given=given)
        actions.forget()
        yield actions


def _good(actions: GiteaActions) -> list[str]:
    """Run what has happened; every job ends well."""
    ran = actions.settle()
    assert [each.outcome.text for each in ran if not each.outcome.ok] == []
    return [each.job for each in ran]


@pytest.mark.parametrize("heeds_groups", [False, True], ids=["1.25", "1.26"])
def test_merges_at_the_same_time_are_all_applied(actions: GiteaActions, heeds_groups: bool) -> None:
    """No push cancels an apply. Where a newer apply replaces one that waits, it applies both merges."""
    actions.heeds_groups = heeds_groups
    site, tips = actions.hub, []
    changes = [{"cluster/notes.gq": QUERY}, {"cluster/two.md": b"2\n"}, {"cluster/three.md": b"3\n"}]
    for number, files in enumerate(changes, start=1):
        site.propose("alice", f"topic-{number}", files)
        tips.append(site.merge("carol", number))
    assert _good(actions).count("apply") == (2 if heeds_groups else 3)
    assert actions.cancelled == ([("pull_request_target", "apply")] if heeds_groups else [])
    assert [site.status(tip, "apply").partition(":")[0] for tip in tips] == ["success"] * 3


def test_a_job_for_a_fork_has_secrets_only_if_the_target_says_what_it_does(actions: GiteaActions) -> None:
    """So its request is planned, and a command on it is not answered; the same command on a branch is."""
    site = actions.hub
    stranger = site.propose_from_fork("mallory", "query", {"cluster/notes.gq": QUERY})
    assert _good(actions) == ["plan"]
    assert site.status(stranger.head, "plan") == "success: 1 change"
    said = site.say("carol", stranger.number, "/gitops plan")
    (unanswered,) = actions.settle()
    assert (unanswered.job, "GITOPS_TOKEN" in unanswered.outcome.text) == ("command", True)
    assert site.reactions(said) == []
    pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
    said = site.say("carol", pull.number, "/gitops plan")
    assert _good(actions) == ["plan", "command"]
    assert site.reactions(said) == [site.thumbs[0]]


def test_the_first_job_of_a_stranger_waits_for_somebody_who_may_write(known: Loop, tmp_path: Path) -> None:
    with GiteaSite.at(known, tmp_path / "site") as site:
        site.push("carol", "main", {p: c for p, c in made("gitea", apply_in_jobs=False).items() if p.startswith(FILES)})
        (tmp_path / "jobs").mkdir()
        actions = GiteaActions(site, tmp_path / "jobs")
        actions.forget()
        for branch in ("first", "second"):
            site.propose_from_fork("mallory", branch, {"cluster/notes.gq": QUERY})
            if branch == "first":
                assert _good(actions) == []
                actions.let_run()
                assert [each.job for each in actions.ran] == ["plan"]
        assert _good(actions) == ["plan"]


def test_a_workflow_of_a_branch_reads_the_key_of_the_bot(actions: GiteaActions) -> None:
    """Which is why a server applies by default."""
    evil = (
        b"name: evil\non: {push: {}}\njobs:\n  read:\n    runs-on: ubuntu-latest\n    permissions: {}\n"
        b"    steps:\n      - env:\n          KEY: ${{ secrets.GITOPS_SIGNING_KEY }}\n"
        b"        run: printf '%s' \"$KEY\" > stolen\n"
    )
    actions.hub.push("alice", "topic", {".gitea/workflows/evil.yml": evil})
    assert _good(actions) == ["read"]
    (stolen,) = actions.folder.rglob("stolen")
    assert stolen.read_text() == actions.given["GITOPS_SIGNING_KEY"]
