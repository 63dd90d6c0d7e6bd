"""The composite action, carried out by a runner: what reaches the program, what stays behind, and that inputs stay inert."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from gitops.init.files import INSTALL_FOLDER, REQUIREMENTS
from tests.support.actions.expressions import ExpressionError, Open, evaluate
from tests.support.actions.runner import Job, Outcome
from tests.support.actions.scaffolds import INSTALL, PIP
from tests.support.loop import ROOT
from tests.support.prefork import PROGRAM

pytestmark = pytest.mark.e2e

ACTION = ROOT / ".github" / "actions" / "gitops"
FAKE = ROOT / "tests/support/actions/fake_python.py"
TOKEN = "ghs_0123456789abcdef"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----"
HOSTILE = [
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "x\ntouch canary\n::add-mask::x",
    "::set-output name=verdict::done",
    "--repo=/etc",
    "-",
    "$GITOPS_TOKEN ${SIGNING_KEY} ${{ secrets.KEY }}",
    "a b  c\t* ? [a-z] ~ \\ !",
]


class Stage:
    """A job whose `python3` installs nothing, and what it saw."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        shims = folder / "bin"
        workspace = folder / "workspace"
        for place in (self.log, shims, workspace):
            place.mkdir(parents=True)
        for path, content in INSTALL.items():
            (workspace / path).parent.mkdir(parents=True, exist_ok=True)
            (workspace / path).write_bytes(content)
        shim = shims / "python3"
        shim.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{FAKE}' \"$@\"\n")
        shim.chmod(0o755)
        self.environ = {
            "PATH": f"{shims}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "ACTIONS_LOG": str(self.log),
        }
        self.set_up: list[dict[str, str]] = []
        self.job = Job(
            folder=folder,
            workspace=workspace,
            environ=self.environ,
            github={"token": "ghs_readonly", "server_url": "https://github.example"},
            standins={"actions/setup-python": lambda _, given: self.set_up.append(dict(given))},
        )

    def run(self, **given: str) -> Outcome:
        """Run the action; names of inputs with `_` for `-`."""
        return self.job.action(ACTION, {"verb": "plan"} | {n.replace("_", "-"): v for n, v in given.items()})

    def move_to(self, folder: str) -> None:
        """The repository is in a folder of the workspace."""
        shutil.copytree(self.job.workspace / ".gitops", self.job.workspace / folder / ".gitops")

    def seen(self, program: str) -> list[dict]:
        return [json.loads(path.read_text()) for path in sorted(self.log.glob(f"{program}-*.json"))]

    def only(self, program: str) -> dict:
        (found,) = self.seen(program)
        return found

    def left(self) -> list[str]:
        return sorted(path.name for path in self.job.temp.iterdir())


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_inputs_reach_the_program(stage: Stage) -> None:
    done = stage.run(
        verb="apply",
        token=TOKEN,
        signing_key=KEY,
        cluster="brain",
        bot_name="bot",
        bot_email="bot@x.example",
        root="/g",
    )
    assert done.ok, done.text
    seen = stage.only("gitops")
    assert seen["arguments"] == ["bot", "apply", "--repo=.", "--cluster=brain"]
    assert seen["environ"]["GITOPS_TOKEN"] == TOKEN
    assert seen["key"] == f"{KEY}\n"
    for line in ("name = bot", "email = bot@x.example", "root = /g", f"signingKey = {seen['folder']}/key"):
        assert line in seen["config"]
    assert done.outputs == {"verdict": "done", "plan-digest": "a\nb", "summary": "one line"}
    assert stage.set_up == [{"python-version": "3.13"}]


def test_secrets_are_for_nobody_else_and_gone_in_the_end(stage: Stage) -> None:
    done = stage.run(token=TOKEN, signing_key=KEY)
    seen = stage.only("gitops")
    assert set(seen["modes"].values()) == {stat.S_IRUSR | stat.S_IWUSR, stat.S_IRWXU}
    assert seen["modes"]["key"] == 0o600
    assert not {"SIGNING_KEY", "GIT_TOKEN"} & set(seen["environ"])
    assert stage.left() == []
    assert TOKEN not in done.text
    assert "OPENSSH" not in done.text


@pytest.mark.parametrize("code", ["1", "2", "137"])
def test_they_are_gone_after_a_failure_too(stage: Stage, code: str) -> None:
    stage.environ["ACTIONS_CODE"] = code
    done = stage.run(token=TOKEN, signing_key=KEY)
    assert not done.ok
    assert "Clean up" in done.ran
    assert stage.left() == []


@pytest.mark.parametrize(
    ("verb", "code", "good"),
    [
        ("apply", 3, True),
        ("sweep", 4, True),
        ("plan", 3, True),
        ("verify", 3, False),
        ("verify", 4, False),
        ("apply", 1, False),
    ],
)
def test_what_waits_for_a_person_fails_only_a_queue(stage: Stage, verb: str, code: int, good: bool) -> None:
    stage.environ["ACTIONS_CODE"] = str(code)
    assert stage.run(verb=verb).ok is good


def test_without_a_token_git_may_only_fetch(stage: Stage) -> None:
    stage.run()
    seen = stage.only("gitops")
    assert seen["environ"]["GITOPS_TOKEN"] == ""
    assert '[http "https://github.example/"]' in seen["config"]
    assert "Authorization: Basic eC1hY2Nlc3MtdG9rZW46Z2hzX3JlYWRvbmx5" in seen["config"]


def test_with_a_token_git_gets_no_other(stage: Stage) -> None:
    stage.run(token=TOKEN)
    assert "http" not in stage.only("gitops")["config"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_inputs_stay_texts(stage: Stage, text: str) -> None:
    names = (
        "cluster",
        "working_directory",
        "bot_name",
        "bot_email",
        "storage",
        "root",
        "token",
        "git_token",
        "signing_key",
    )
    stage.move_to(text)
    done = stage.run(**dict.fromkeys(names, text))
    assert done.ok, done.text
    seen = stage.only("gitops")
    assert seen["arguments"] == ["bot", "plan", f"--repo={text}", f"--cluster={text}"]
    assert seen["environ"]["GITOPS_TOKEN"] == text
    assert seen["key"] == f"{text}\n"
    assert _settings(seen["config"], stage.job.folder) == {
        "user.name": text,
        "user.email": text,
        "gitops.storage": text,
        "gitops.root": text,
        "user.signingkey": f"{seen['folder']}/key",
    }
    assert not list(stage.job.folder.rglob("canary"))
    assert stage.left() == []


def _settings(config: str, folder: Path) -> dict[str, str]:
    """What git reads in a configuration."""
    file = folder / "config"
    file.write_text(config)
    listed = subprocess.run(
        ["git", "config", "--file", file, "-z", "--list"], capture_output=True, text=True, check=True
    )
    return dict(line.partition("\n")[::2] for line in listed.stdout.split("\0") if line)


def test_a_script_that_evaluates_would_be_seen(stage: Stage) -> None:
    """The same inputs, in actions with the two mistakes that the tests here are about."""
    text = (ACTION / "action.yml").read_text()
    for right, wrong in (
        ('"--cluster=$CLUSTER"', '"--cluster=${{ inputs.cluster }}"'),
        ('+=("--cluster=$CLUSTER")', '+=("$(eval "$CLUSTER")")'),
    ):
        assert right in text
        copy = stage.job.workspace / "copy"
        copy.mkdir(exist_ok=True)
        (copy / "action.yml").write_text(text.replace(right, wrong))
        given = {"verb": "plan", "cluster": "touch canary"}
        if "${{" in wrong:
            with pytest.raises(AssertionError, match="an expression stands in a script"):
                stage.job.action(copy, given)
        else:
            stage.job.action(copy, given)
            assert list(stage.job.folder.rglob("canary"))


@pytest.mark.parametrize("text", [*HOSTILE, "serve", "plan ", "PLAN", ""])
def test_an_unknown_verb_starts_nothing(stage: Stage, text: str) -> None:
    done = stage.run(verb=text)
    assert not done.ok
    assert "::error::the input verb is none of" in done.text
    assert stage.seen("pip") == stage.seen("gitops") == []
    assert not list(stage.job.folder.rglob("canary"))


def test_what_is_installed_is_copied_out_of_the_checkout_and_held_to_hashes(stage: Stage) -> None:
    assert stage.run().ok
    pip = stage.only("pip")
    assert set(PIP) <= set(pip["arguments"])
    assert pip["required"].encode() == INSTALL[REQUIREMENTS]
    assert stage.job.workspace not in Path(pip["at"]).parents
    assert not any("index" in word for word in pip["arguments"])
    assert stage.left() == []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_mirror_is_one_argument(stage: Stage, text: str) -> None:
    assert stage.run(index=text).ok
    assert ("-i", text) in pairwise(stage.only("pip")["arguments"])
    assert not list(stage.job.folder.rglob("canary"))


@pytest.mark.parametrize("missing", ["requirements.txt", "cluster_gitops-1.2.3-py3-none-any.whl"])
def test_without_the_files_nothing_is_installed(stage: Stage, missing: str) -> None:
    (stage.job.workspace / INSTALL_FOLDER / missing).unlink()
    done = stage.run()
    assert not done.ok
    assert "::error::the files to install are not in the checkout: run gitops init --upgrade" in done.text
    assert stage.seen("pip") == stage.seen("gitops") == []
    assert stage.left() == []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_folder_to_install_from_is_a_name(stage: Stage, text: str) -> None:
    done = stage.run(install=text)
    assert not done.ok
    assert stage.seen("pip") == []
    assert not list(stage.job.folder.rglob("canary"))


def test_the_real_program_runs_and_refuses_with_reason(stage: Stage) -> None:
    stage.environ["ACTIONS_REAL"] = json.dumps(PROGRAM)
    stage.environ["PYTHONPATH"] = str(ROOT)
    stage.move_to("::add-mask::x")
    done = stage.run(verb="apply", cluster="$(touch canary)", working_directory="::add-mask::x")
    assert not done.ok
    assert "not_a_repository" in done.text
    assert not any(line.startswith("::") for line in done.text.splitlines())
    assert not list(stage.job.folder.rglob("canary"))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("'it''s' == 'IT''S'", True),
        ("!github.event.none && startsWith(github.event.comment.body, '/gitops')", True),
        ("github.event.none || inputs.verb", "plan"),
        ("(1 < 2) && null", None),
        ("contains('abc', 'B') != false", True),
        ("format('{0}-{1}', 1, true)", "1-true"),
    ],
)
def test_expressions_mean_what_they_mean_there(source: str, value: object) -> None:
    contexts = {"github": {"event": Open({"comment": {"body": "/gitops plan"}})}, "inputs": {"verb": "plan"}}
    assert evaluate(source, contexts) == value


@pytest.mark.parametrize(
    "source", ["github.evnt.x", "secrets.KEY", "hashFiles('x')", "1 +", "inputs.verb extra", "'open"]
)
def test_what_the_runner_does_not_know_is_no_answer(source: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(source, {"github": {"event": Open()}, "inputs": {"verb": "plan"}})
