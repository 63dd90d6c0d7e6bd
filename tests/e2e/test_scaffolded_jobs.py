"""Scaffolded jobs of Gitea and GitLab, carried out: which verb an event starts, with what, and what is left behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gitops.doctor.jobs import job_findings
from gitops.git.repository import GitRepository
from gitops.init.files import REQUIREMENTS
from tests.support.actions.runner import Job
from tests.support.actions.scaffolds import INSTALL, PIP, made
from tests.support.git_fixture import bare, branch, commit, environment, run
from tests.support.loop import ROOT

pytestmark = pytest.mark.e2e

FAKE = ROOT / "tests/support/actions/fake_python.py"
HOSTILE = "s3://$(touch canary)/`touch canary`\"; touch canary; '"
SECRETS = {"GITOPS_SIGNING_KEY": "the key", "GITOPS_TOKEN": "the token", "MZ_URL": "the target"}


def _environ(folder: Path) -> dict[str, str]:
    for name in ("bin", "log", "home"):
        (folder / name).mkdir()
    shim = folder / "bin" / "python3"
    shim.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{FAKE}' \"$@\"\n")
    shim.chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(folder / "home"), "ACTIONS_LOG": str(folder / "log")}


def _seen(folder: Path) -> list[dict[str, Any]]:
    paths = sorted((folder / "log").glob("gitops-*.json"), key=lambda p: int(p.stem.partition("-")[2]))
    return [json.loads(path.read_text()) for path in paths]


EVENTS = {
    "pull_request_target": ({"pull_request": {"number": 1, "base": {"ref": "main"}}}, ["plan"], "main"),
    "issue_comment": ({"comment": {"id": 5, "body": "/gitops plan"}}, ["command"], None),
    "push": ({"ref": "refs/heads/main"}, ["apply"], None),
    "workflow_dispatch": ({}, ["apply"], None),
    "schedule": ({"schedule": "17 * * * *"}, ["sweep", "drift"], None),
}


@pytest.mark.parametrize(
    ("name", "workflow"), [*((name, "gitops") for name in EVENTS), ("schedule", "gitops-strategies")]
)
def test_an_event_of_gitea_starts_its_verbs(name: str, workflow: str, tmp_path: Path) -> None:
    payload, verbs, ref = EVENTS[name]
    if workflow == "gitops-strategies":
        verbs = ["tick"]
    workspace = tmp_path / "work"
    for path, content in made("gitea", strategies=True).items():
        place = workspace / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    form = yaml.safe_load((workspace / f".gitea/workflows/{workflow}.yml").read_text())
    checkouts: list[dict[str, str]] = []
    job = Job(
        folder=tmp_path,
        workspace=workspace,
        environ=_environ(tmp_path),
        github={"event": payload, "event_name": name, "token": "of the job", "server_url": "https://gitea.example"},
        variables={"GITOPS_STORAGE": HOSTILE},
        secrets=SECRETS,
        standins={
            "actions/checkout": lambda _, given: checkouts.append(dict(given)),
            "actions/setup-python": lambda *_: None,
        },
    )
    for each in form["jobs"].values():
        if job.wanted(each):
            done = job.steps(each)
            assert done.ok, done.text
    assert [seen["arguments"][:2] for seen in _seen(tmp_path)] == [["bot", verb] for verb in verbs]
    assert [given.get("ref") for given in checkouts] == [ref]
    for seen in _seen(tmp_path):
        assert seen["environ"]["GITOPS_TOKEN"] == "the token"
        assert seen["key"] == "the key\n"
        assert seen["environ"].get("MZ_URL") == (None if seen["arguments"][1] == "drift" else "the target")
    assert not list(tmp_path.rglob("canary"))
    assert not list(job.temp.iterdir())


def test_a_comment_that_is_no_command_starts_nothing(tmp_path: Path) -> None:
    form = yaml.safe_load(made("gitea")[".gitea/workflows/gitops.yml"])
    github = {"event": {"comment": {"id": 5, "body": "see /gitops plan"}}, "event_name": "issue_comment"}
    job = Job(tmp_path, tmp_path, {}, github=github)
    assert not any(job.wanted(each) for each in form["jobs"].values())


def jobs_of_gitlab() -> dict[str, dict[str, Any]]:
    """The jobs of the pipeline, and of ticks, with what they extend."""
    files = made("gitlab", strategies=True)
    form = {n: job for path in files if path.startswith(".gitlab/") for n, job in yaml.safe_load(files[path]).items()}

    def whole(name: str) -> dict[str, Any]:
        job = form[name]
        return {**(whole(job["extends"]) if "extends" in job else {}), **job}

    return {name: whole(name) for name in form if not name.startswith(".")}


WRITES = ("gitops-command", "gitops-apply", "gitops-sweep", "gitops-drift", "gitops-tick")


def checkout_of_a_request(folder: Path, install: Mapping[str, bytes], brought: Mapping[str, bytes]) -> None:
    """What a runner of GitLab leaves: the work tree of a request that brings these files, and the target branch as a ref."""
    opened = GitRepository(bare(folder.parent / "origin.git"), environ=environment(folder.parent))
    target = commit(opened, install)
    branch(opened, "refs/heads/main", target)
    branch(opened, "refs/heads/request", commit(opened, brought, target))
    run("git", "clone", "-q", "-b", "request", str(folder.parent / "origin.git"), str(folder), home=folder.parent)


@pytest.mark.parametrize("name", ["gitops-plan", "gitops-verify", *WRITES])
@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_job_of_gitlab_runs_its_verb(name: str, code: int, tmp_path: Path) -> None:
    job = jobs_of_gitlab()[name]
    builds, work = tmp_path / "builds", tmp_path / "work"
    builds.mkdir()
    checkout_of_a_request(work, INSTALL, {REQUIREMENTS: b"-e .\n"})
    key = tmp_path / "file variable"
    key.write_text("the key\n")
    environ = {
        **_environ(tmp_path),
        "ACTIONS_CODE": str(code),
        "CI_BUILDS_DIR": str(builds),
        "CI_JOB_ID": "77",
        "CI_PROJECT_DIR": str(work),
        "GITOPS_TOKEN": "the token",
        "GITOPS_APPLY_TOKEN": "the other token",
        "GITOPS_SIGNING_KEY": str(key),
        "GITOPS_STORAGE": HOSTILE,
    }
    main, after = (
        subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(lines)], env=environ, cwd=work, check=False)
        for lines in ([*job["before_script"], *job["script"]], job["after_script"])
    )
    assert after.returncode == 0
    assert (main.returncode == 0) is (code == 0 or (code == 3 and name != "gitops-verify"))
    (seen,) = _seen(tmp_path)
    assert seen["arguments"] == ["bot", name.removeprefix("gitops-"), "--repo", "."]
    (pip,) = (json.loads(path.read_text()) for path in (tmp_path / "log").glob("pip-*.json"))
    assert set(PIP) <= set(pip["arguments"])
    assert pip["required"].encode() == INSTALL[REQUIREMENTS]
    assert work not in Path(pip["at"]).parents
    if name in WRITES:
        assert seen["environ"]["GITOPS_TOKEN"] == "the other token"
        assert seen["key"] == "the key\n"
        assert seen["modes"]["key"] == stat.S_IRUSR | stat.S_IWUSR
        assert "email = bot@brain.example" in seen["config"]
    else:
        assert seen["environ"]["GITOPS_TOKEN"] == "the token"
        assert seen["config"] == ""
    assert not list(tmp_path.rglob("canary"))
    assert list(builds.iterdir()) == []


def test_a_schedule_of_ticks_starts_nothing_else_on_gitlab() -> None:
    rules = {name: [rule["if"] for rule in job["rules"]] for name, job in jobs_of_gitlab().items()}
    for source in ("schedule", "web"):
        started = {name: rule for name, found in rules.items() for rule in found if f'"{source}"' in rule}
        assert {name for name, rule in started.items() if rule.endswith('&& $GITOPS_VERB == "tick"')} == {"gitops-tick"}
        others = started.keys() - {"gitops-tick"}
        assert {name for name, rule in started.items() if rule.endswith('&& $GITOPS_VERB != "tick"')} == others


def test_what_pushes_the_ledger_waits_for_each_other_on_gitlab() -> None:
    jobs = jobs_of_gitlab()
    assert {jobs[name]["resource_group"] for name in ("gitops-apply", "gitops-sweep")} == {"gitops-brain"}
    assert all(job["variables"]["GIT_DEPTH"] == "0" for job in jobs.values())
    assert all(job["rules"] for job in jobs.values())


@pytest.mark.parametrize("forge", ["github", "gitlab", "gitea"])
def test_the_doctor_finds_nothing_wrong_with_what_init_makes(forge: str) -> None:
    folders = (".github/workflows/", ".gitea/workflows/", ".gitlab")
    files = {path: content for path, content in made(forge).items() if path.startswith(folders)}
    findings = list(job_findings(forge, files))
    assert findings
    assert [each for each in findings if str(each.health) != "good"] == []
