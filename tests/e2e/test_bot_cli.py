"""`gitops bot` as a job runs it: exit codes, no token, shallow checkouts, a ledger that takes no push, and what a job keeps."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops.git.port import RefUpdate
from tests.support.bot_stage import QUERY
from tests.support.loop import DELETE_LEGACY, LEDGER, MAIN, Loop
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e

HOSTILE = "::add-mask::x\n::error::y ##[error]z"


@dataclass(frozen=True)
class Ran:
    """What a job left."""

    code: int
    out: str
    errors: str
    summary: str
    outputs: str


@dataclass
class Job:
    """A folder of a CI job, with nobody's identity and no token unless they are given."""

    loop: Loop
    folder: Path

    def run(self, *arguments: str, at: Path | None = None, environ: Mapping[str, str] | None = None) -> Ran:
        files = {name: self.folder / name for name in ("summary.md", "output.txt")}
        for file in files.values():
            file.write_text("")
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        env = {
            **self.loop.environment("bot"),
            "HOME": str(home),
            "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
            "GITHUB_STEP_SUMMARY": str(files["summary.md"]),
            "GITHUB_OUTPUT": str(files["output.txt"]),
            **(environ or {}),
        }
        done = subprocess.run(
            [*PROGRAM, "bot", *arguments, "--repo", str(at or self.loop.server)],
            cwd=self.folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(
            done.returncode, done.stdout, done.stderr, files["summary.md"].read_text(), files["output.txt"].read_text()
        )

    def clone(self, *options: str) -> Path:
        place = self.folder / "work"
        self.loop.program(
            "bot", "git", "clone", "-q", *options, f"file://{self.loop.server}", str(place), at=self.folder
        )
        return place

    def fork(self, head: str) -> Mapping[str, str]:
        """What a job of a fork's request knows: no token, and a forge that is not to be reached."""
        event = {
            "action": "opened",
            "number": 7,
            "pull_request": {"number": 7, "merged": False, "head": {"sha": head}},
            "repository": {"full_name": "octo/brain"},
        }
        file = self.folder / "event.json"
        file.write_text(json.dumps(event))
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": "http://127.0.0.1:9/api/v3",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(file),
            "GITHUB_REPOSITORY": "octo/brain",
            "GITHUB_BASE_REF": "main",
        }


@pytest.fixture
def job(loop: Loop, tmp_path: Path) -> Job:
    folder = tmp_path / "job"
    folder.mkdir()
    return Job(loop, folder)


def _pull(loop: Loop, files: Mapping[str, bytes | None], number: int = 7, message: str = "Change\n") -> str:
    """A request's head as GitHub keeps it: behind a ref that no branch has."""
    head = loop.commit("mallory", files, message=message)
    ref = f"refs/pull/{number}/head"
    loop.store.update_refs([RefUpdate(ref, loop.store.resolve(ref) or "0" * 40, head)])
    return head


def test_a_fork_gets_its_whole_plan_without_any_secret(job: Job) -> None:
    head = _pull(job.loop, DELETE_LEGACY)
    refs = dict(job.loop.store.refs("refs"))
    ran = job.run("plan", at=job.clone(), environ=job.fork(head))
    assert ran.code == 3, ran.out + ran.errors
    assert "plan of brain: 2 changes; needs approval: graph.legacy" in ran.out
    assert "`graph.legacy`" in ran.summary
    assert head[:7] in ran.summary
    assert "verdict<<" in ran.outputs
    assert "waits" in ran.outputs
    assert re.search(r"^[0-9a-f]{64}$", ran.outputs, re.MULTILINE)
    assert dict(job.loop.store.refs("refs")) == refs


@pytest.mark.parametrize("verb", ["apply", "sweep", "drift", "command"])
def test_what_asks_the_forge_refuses_to_guess(job: Job, verb: str) -> None:
    ran = job.run(verb, at=job.clone(), environ=job.fork(job.loop.tip()))
    assert ran.code == 2
    assert "GITOPS_TOKEN" in ran.errors


def test_a_shallow_checkout_is_completed(job: Job) -> None:
    place = job.clone("--depth=1")
    assert (place / ".git" / "shallow").exists()
    head = _pull(job.loop, DELETE_LEGACY)
    ran = job.run("plan", at=place, environ=job.fork(head))
    assert ran.code == 3, ran.out + ran.errors
    assert not (place / ".git" / "shallow").exists()


def test_a_history_that_is_not_to_be_had_is_not_guessed(job: Job) -> None:
    place = job.clone("--depth=1")
    job.loop.program("bot", "git", "config", "remote.origin.url", str(job.folder / "nowhere.git"), at=place)
    ran = job.run("plan", at=place, environ=job.fork(job.loop.tip()))
    assert ran.code == 1
    assert "git_remote_unavailable" in ran.out


def test_nothing_that_is_printed_commands_the_runner(job: Job) -> None:
    head = _pull(job.loop, {"cluster/notes.gq": f"# {HOSTILE}\nquery ::x".encode()}, message=HOSTILE)
    ran = job.run("plan", at=job.clone(), environ=job.fork(head))
    assert ran.code == 1
    for line in ran.out.splitlines():
        assert line.startswith("gitops: ")
    assert not re.search(r"^\s*::|##\[", ran.out + ran.errors + ran.summary, re.MULTILINE)
    names = re.findall(r"^([a-z-]+)<<(\S+)$", ran.outputs, re.MULTILINE)
    assert [name for name, _ in names] == ["verdict", "plan-digest", "summary"]
    assert len({frame for _, frame in names}) == 3


def test_a_catalog_that_cannot_be_published_is_not_applied(job: Job) -> None:
    loop = job.loop
    new = loop.commit("carol", {"cluster/notes.gq": QUERY})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), new)])
    hook = loop.server / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nif grep -q refs/heads/gitops/ledger; then echo protected; exit 1; fi\n")
    before, place = loop.tip(LEDGER), loop.clone("bot")
    loop.program("bot", "git", "config", "gitops.root", str(loop.folder / "data"))
    ran = loop.gitops("bot", "bot", "apply", "--repo", str(place), "--forge", "local", check=False)
    assert (ran.code, "ledger_not_writable" in ran.text) == (1, True)
    assert loop.tip(LEDGER) == before


def test_a_run_as_one_document(job: Job) -> None:
    job.loop.move("refs/heads/retire", job.loop.commit("alice", DELETE_LEGACY))
    ran = job.loop.program("bot", *PROGRAM, "bot", "plan", "--request", "1", "--json", at=job.loop.server, check=False)
    form = json.loads(ran.text)
    assert (ran.code, form["ok"], form["verdict"]) == (3, False, "waits")
    assert form["notes"] == ["request 1: plan of brain: 2 changes; needs approval: graph.legacy"]


def test_a_token_is_in_nothing_that_leaves(job: Job) -> None:
    secret = "ghs_0123456789abcdef"
    environ = {**job.fork(job.loop.tip()), "GITOPS_TOKEN": secret}
    ran = job.run("plan", at=job.clone(), environ=environ)
    assert ran.code == 1
    assert "forge_unavailable" in ran.out
    assert secret not in ran.out + ran.errors + ran.summary + ran.outputs


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--event", "no.json", "--forge", "github"), "cannot be read"),
        (("plan", "--event", "event.json"), "--forge"),
        (("plan", "--forge", "gitea"), r"gitops\.forgeUrl"),
    ],
)
def test_wrong_usage_is_exit_code_2(job: Job, arguments: tuple[str, ...], words: str) -> None:
    (job.folder / "event.json").write_text("{}")
    ran = job.run(*arguments)
    assert ran.code == 2
    assert re.search(words, ran.errors)


def test_an_event_that_is_none_is_refused(job: Job) -> None:
    environ = dict(job.fork(job.loop.tip()))
    (job.folder / "event.json").write_text('{"action": "opened", "number": "seven"}')
    ran = job.run("plan", at=job.clone(), environ=environ)
    assert (ran.code, "event_invalid" in ran.out) == (1, True)
