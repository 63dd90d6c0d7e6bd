"""The scaffolded jobs on a real Gitea with a real runner: requests, forks, commands, merges, cancelled and killed jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.init.install import install_files, running_wheel
from tests.support.actions.scaffolds import made
from tests.support.forges.real_runner import Ended, RealRunner, RunnerSite, actions_of, pinned
from tests.support.forges.served import ServeHost
from tests.support.forges.site import TOKEN
from tests.support.loop import LEDGER, Loop

pytestmark = [pytest.mark.e2e, pytest.mark.gitea]

QUERY = b"query titles() { match { $x: Note } return { $x.title } }\n"


@pytest.fixture
def site(known: Loop, tmp_path: Path) -> Iterator[RunnerSite]:
    with RunnerSite.at(known, tmp_path / "site") as site:
        yield site


def scaffold(site: RunnerSite, *, applies: bool) -> None:
    """The jobs that `init` writes, and what they install: this very program, without dependencies, which the runner has."""
    files = {**made("gitea", apply_in_jobs=applies), **install_files(running_wheel(), "")}
    mine = {path: content for path, content in files.items() if path.startswith((".gitea/", ".gitops/install/"))}
    site.push("carol", "main", pinned(mine, actions_of(site.world.at)))
    if applies:
        secrets = {"GITOPS_TOKEN": site.world.real[TOKEN], "GITOPS_SIGNING_KEY": site.loop.key("bot").read_text()}
        site.give(secrets, {"GITOPS_ROOT": str(site.loop.folder / "data")})


def ran(site: RunnerSite, *wanted: tuple[str, str]) -> list[Ended]:
    """Wait for jobs, which are these by name and conclusion."""
    ended = site.ended()
    assert [(each.name, each.conclusion) for each in ended] == list(wanted), "\n".join(each.log for each in ended)
    return ended


def test_a_request_a_command_and_a_merge_end_well(site: RunnerSite, tmp_path: Path) -> None:
    scaffold(site, applies=True)
    with RealRunner(site, tmp_path / "runner"):
        pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
        ran(site, ("plan", "success"))
        assert site.status(pull.head, "plan") == "success: 1 change"
        said = site.say("carol", pull.number, "/gitops plan")
        ran(site, ("carry out a command", "success"))
        assert site.reactions(said)[-1] == site.thumbs[0]
        tip = site.merge("carol", pull.number)
        ran(site, ("apply", "success"))
        assert site.status(tip, "apply").startswith("success: ")
        assert f"Merge-Commit: {tip}" in site.loop.store.commit(site.tip(LEDGER)).message
        assert set(site.skipped) == {"carry out a command"}


def test_jobs_plan_without_secrets_and_a_server_applies(site: RunnerSite, tmp_path: Path) -> None:
    """A stranger's first job waits until somebody lets it run."""
    scaffold(site, applies=False)
    (tmp_path / "jobs").mkdir()
    host = ServeHost(site, tmp_path / "host")
    with RealRunner(site, tmp_path / "runner"), host.serve() as server:
        pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
        (planned,) = ran(site, ("plan", "success"))
        assert "gitops: request 1: plan of brain: 1 change" in planned.log
        stranger = site.propose_from_fork("mallory", "query", {"cluster/notes.gq": QUERY})
        assert (site.ended(), site.waiting()) == ([], ["plan"])
        site.let_run()
        ran(site, ("plan", "success"))
        assert site.comments(pull.number) == site.comments(stranger.number) == []
        tip = site.merge("carol", pull.number)
        for each in site.webhooks():
            server.post(each.headers, each.body)
            server.log.when(host.idle)
        assert site.status(tip, "apply").startswith("success: ")
        assert site.ended() == []


def test_a_newer_push_cancels_a_plan_at_work(site: RunnerSite, tmp_path: Path) -> None:
    scaffold(site, applies=False)
    with RealRunner(site, tmp_path / "runner") as runner:
        held = runner.hold_job(tmp_path / "held")
        pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
        held.reached()
        site.push("alice", "query", {"cluster/more.md": b"more\n"}, pull.head)
        ran(site, ("plan", "cancelled"), ("plan", "success"))


def test_killed_in_an_apply_it_goes_on_when_a_person_has_removed_the_lock(site: RunnerSite, tmp_path: Path) -> None:
    """The job of the runner that is gone holds its group until the server gives it up."""
    scaffold(site, applies=True)
    with RealRunner(site, tmp_path / "runner") as runner:
        pull = site.propose("alice", "query", {"cluster/notes.gq": QUERY})
        ran(site, ("plan", "success"))
        held = site.hold_push(LEDGER, tmp_path / "pushed")
        tip = site.merge("carol", pull.number)
        held.reached()
        runner.kill()
        held.go_on()
        with runner:
            site.dispatch("gitops-apply.yml")
            assert site.waiting() == ["apply"]
            site.reap()
            _, locked = ran(site, ("apply", "failure"), ("apply", "success"))
            found = re.search(r"already running: .* gitops force-unlock ([0-9A-Z]{26})", locked.log)
            assert found is not None, locked.log
            site.say("carol", pull.number, f"/gitops unlock {found[1]}")
            ran(site, ("carry out a command", "success"))
        assert site.status(tip, "apply").startswith("success: ")
        assert f"Merge-Commit: {tip}" in site.loop.store.commit(site.tip(LEDGER)).message
    assert site.loop.gitops("carol", "audit").text.startswith("audit good")
