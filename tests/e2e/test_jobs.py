"""Jobs of build servers, carried out: the composite action, scaffolded steps, and a real pip in a hostile checkout."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from gitops.doctor.jobs import job_findings
from gitops.git.repository import GitRepository
from gitops.init.files import INSTALL_FOLDER, REQUIREMENTS
from gitops.init.install import Wheel, install_files, pack, running_wheel
from tests.support.actions.expressions import ExpressionError, Open, evaluate
from tests.support.actions.real_python import lay_python
from tests.support.actions.runner import Job, Outcome
from tests.support.actions.scaffolds import INSTALL, PIP, made
from tests.support.git_fixture import bare, branch, commit, environment, run
from tests.support.hostile import hostile_files, lay_hostile
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
        self.kept: list[dict[str, str]] = []
        self.job = Job(
            folder=folder,
            workspace=workspace,
            environ=self.environ,
            github={"token": "ghs_readonly", "server_url": "https://github.example"},
            standins={
                "actions/setup-python": lambda _, given: self.set_up.append(dict(given)),
                "actions/cache": lambda _, given: self.kept.append(dict(given)),
            },
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


def test_credentials_without_a_value_do_not_hide_those_of_the_runner(stage: Stage) -> None:
    given = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": ""}
    done = stage.job.action(ACTION, {"verb": "apply"}, given)
    assert done.ok, done.text
    seen = stage.only("gitops")["environ"]
    assert {name: seen.get(name) for name in given} == {name: value or None for name, value in given.items()}


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
    assert "-i" not in pip["arguments"]
    assert stage.left() == []


@pytest.mark.parametrize("cache", ["pip", ""])
def test_uv_of_a_runner_is_held_to_the_same_hashes(stage: Stage, cache: str) -> None:
    """And to nothing that its variables say."""
    stage.environ |= {"UV_NO_VERIFY_HASHES": "1", "UV_OVERRIDE": "elsewhere.txt"}
    uv, seen = stage.log.parent / "bin" / "uv", stage.log / "uv.txt"
    uv.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{seen}'\nenv | grep ^UV_ >> '{seen}' || :\n")
    uv.chmod(0o755)
    assert stage.run(cache=cache).ok
    words = seen.read_text().splitlines()
    held = {"--require-hashes", "--no-config", "--only-binary=:all:", "--no-deps", "--requirement=requirements.txt"}
    assert (words[:2], held - set(words)) == (["pip", "install"], set())
    assert not [word for word in words if word.startswith("UV_")]
    assert ("--no-index" in words) == bool(cache)
    assert stage.seen("pip") == []


@pytest.mark.parametrize("text", HOSTILE)
def test_a_mirror_is_one_argument(stage: Stage, text: str) -> None:
    assert stage.run(index=text).ok
    assert ("-i", text) in pairwise(stage.only("download")["arguments"])
    assert stage.run(index=text, cache="").ok
    assert ("-i", text) in pairwise(stage.seen("pip")[-1]["arguments"])
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


HOSTILE_ADDRESS = "s3://$(touch canary)/`touch canary`\"; touch canary; '"
SECRETS = {"GITOPS_SIGNING_KEY": "the key", "GITOPS_TOKEN": "the token", "MZ_URL": "the target"}


def _fake_environ(folder: Path) -> dict[str, str]:
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


def _request(action: str, **more: object) -> dict[str, object]:
    return {"action": action, "pull_request": {"number": 1, "base": {"ref": "main"}, **more}}


EVENTS = [
    ("pull_request_target", _request("opened"), ["plan"], {"main"}),
    ("pull_request_target", _request("closed", merged=True), ["apply"], {"main"}),
    ("pull_request_target", _request("closed", merged=False), [], set()),
    ("issue_comment", {"comment": {"id": 5, "body": "/gitops plan"}}, ["command"], {None}),
    ("schedule", {"schedule": "17 * * * *"}, ["tick", "sweep", "drift"], {None}),
]


@pytest.mark.parametrize(("name", "payload", "verbs", "refs"), EVENTS)
def test_an_event_of_gitea_starts_its_verbs(
    name: str, payload: dict[str, object], verbs: list[str], refs: set[str | None], tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    for path, content in made("gitea", strategies=True).items():
        place = workspace / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    workflows = [yaml.safe_load(path.read_text()) for path in sorted((workspace / ".gitea/workflows").iterdir())]
    checkouts: list[dict[str, str]] = []
    job = Job(
        folder=tmp_path,
        workspace=workspace,
        environ=_fake_environ(tmp_path),
        github={"event": payload, "event_name": name, "token": "of the job", "server_url": "https://gitea.example"},
        variables={"GITOPS_STORAGE": HOSTILE_ADDRESS},
        secrets=SECRETS,
        standins={
            "actions/checkout": lambda _, given: checkouts.append(dict(given)),
            "actions/setup-python": lambda *_: None,
            "actions/cache": lambda *_: None,
        },
    )
    started = [form for form in workflows if name in form[True]]
    if "action" in payload:
        started = [form for form in started if payload["action"] in form[True][name]["types"]]
    for each in (each for form in started for each in form["jobs"].values()):
        # A request that is closed without a merge starts a job that is skipped.
        if job.wanted(each):
            done = job.steps(each)
            assert done.ok, done.text
    assert [seen["arguments"][:2] for seen in _seen(tmp_path)] == [["bot", verb] for verb in verbs]
    assert {given.get("ref") for given in checkouts} == refs
    for seen in _seen(tmp_path):
        assert seen["environ"]["GITOPS_TOKEN"] == "the token"
        assert seen["key"] == "the key\n"
        assert seen["environ"].get("MZ_URL") == (None if seen["arguments"][1] == "drift" else "the target")
    assert not list(tmp_path.rglob("canary"))
    assert not list(job.temp.iterdir())


def test_a_comment_that_is_no_command_starts_nothing(tmp_path: Path) -> None:
    form = yaml.safe_load(made("gitea")[".gitea/workflows/gitops-command.yml"])
    github = {"event": {"comment": {"id": 5, "body": "see /gitops plan"}}, "event_name": "issue_comment"}
    job = Job(tmp_path, tmp_path, {}, github=github)
    assert not any(job.wanted(each) for each in form["jobs"].values())


def jobs_of_gitlab() -> dict[str, dict[str, Any]]:
    """The jobs of the pipeline, and of ticks, previews and drills, with what they extend."""
    files = made("gitlab", strategies=True, previews=True, drills=True)
    form = {n: job for path in files if path.startswith(".gitlab/") for n, job in yaml.safe_load(files[path]).items()}

    def whole(name: str) -> dict[str, Any]:
        job = form[name]
        return {**(whole(job["extends"]) if "extends" in job else {}), **job}

    return {name: whole(name) for name in form if not name.startswith(".")}


WRITES = (
    "gitops-command",
    "gitops-apply",
    "gitops-sweep",
    "gitops-drift",
    "gitops-tick",
    "gitops-preview",
    "gitops-drill",
)


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
        **_fake_environ(tmp_path),
        "ACTIONS_CODE": str(code),
        "CI_BUILDS_DIR": str(builds),
        "CI_JOB_ID": "77",
        "CI_PROJECT_DIR": str(work),
        "GITOPS_TOKEN": "the token",
        "GITOPS_APPLY_TOKEN": "the other token",
        "GITOPS_SIGNING_KEY": str(key),
        "GITOPS_STORAGE": HOSTILE_ADDRESS,
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


def test_a_schedule_with_a_verb_starts_nothing_else_on_gitlab() -> None:
    rules = {name: [rule["if"] for rule in job["rules"]] for name, job in jobs_of_gitlab().items()}
    for source in ("schedule", "web"):
        started = {name: rule for name, found in rules.items() for rule in found if f'"{source}"' in rule}
        for verb in ("tick", "preview", "drill"):
            named = {name for name, rule in started.items() if rule.endswith(f'&& $GITOPS_VERB == "{verb}"')}
            assert named == {f"gitops-{verb}"}
        others = started.keys() - {"gitops-tick", "gitops-preview", "gitops-drill"}
        assert {name for name, rule in started.items() if rule.endswith("&& $GITOPS_VERB == null")} == others


def test_what_pushes_the_ledger_waits_for_each_other_on_gitlab() -> None:
    jobs = jobs_of_gitlab()
    assert {jobs[name]["resource_group"] for name in ("gitops-apply", "gitops-sweep")} == {"gitops-brain"}
    assert all(job["variables"]["GIT_DEPTH"] == "0" for job in jobs.values())
    assert all(job["rules"] for job in jobs.values())


@pytest.mark.parametrize("forge", ["github", "gitlab", "gitea"])
def test_the_doctor_finds_nothing_wrong_with_what_init_makes(forge: str) -> None:
    folders = (".github/workflows/", ".gitea/workflows/", ".gitlab")
    whole = made(forge, apply_in_jobs=False, previews=True, drills=True)
    files = {path: content for path, content in whole.items() if path.startswith(folders)}
    findings = list(job_findings(forge, files))
    assert findings
    assert [each for each in findings if str(each.health) != "good"] == []


def test_the_doctor_keeps_an_error_for_each_job_of_gitea_with_secrets() -> None:
    """Whoever may push a branch can read them with a workflow there, and sign entries of the ledger."""
    files = {path: content for path, content in made("gitea").items() if path.startswith(".gitea/workflows/")}
    found = [each for each in job_findings("gitea", files) if str(each.health) != "good"]
    assert {(str(each.health), each.check) for each in found} == {("error", "jobs.secrets")}
    assert len(found) == len(files)


RUNNING = install_files(running_wheel(), "")
"""The program without its dependencies, which the Python of these jobs has already."""
(WHEEL,) = (path for path in RUNNING if path.endswith(".whl"))
CHANGED = RUNNING[WHEEL].replace(b"def entry", b"def Entry")


class Index:
    """A package index that keeps what it was asked, and has nothing but `leftpad`, in a wheel of its own making."""

    def __init__(self) -> None:
        asked: list[str] = []
        name = "leftpad-1.0-py3-none-any.whl"
        described = {"leftpad-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: leftpad\nVersion: 1.0\n"}
        answers = {
            "/simple/leftpad/": f'<a href="/{name}">{name}</a>'.encode(),
            f"/{name}": pack({"leftpad.py": b"", **described}, "leftpad-1.0.dist-info"),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                answer = answers.get(self.path, b"")
                self.send_response(200 if answer else 403)
                self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/zip")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Quiet."""

        self.asked, self.wheel = asked, answers[f"/{name}"]
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/simple"


@pytest.fixture
def index() -> Iterator[Index]:
    index = Index()
    thread = threading.Thread(target=index.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield index
    index.server.shutdown()
    index.server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that was made before, to be copied where it does not matter how it is made; pip is a dependency."""
    folder = tmp_path_factory.mktemp("ready") / "venv"
    subprocess.run((sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)), check=True)
    return folder


def _environ(folder: Path, checkout: Path, ready: Path | None) -> dict[str, str]:
    """A runner whose environments know the dependencies, and whose variables point into the checkout."""
    programs = folder / "bin"
    for place in (programs, folder / "home"):
        place.mkdir()
    lay_python(programs / "python3", folder / "packages", ready)
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder / "home"),
        "PYTHONPATH": str(checkout),
        "PYTHONSTARTUP": str(checkout / "sitecustomize.py"),
        "PIP_INDEX_URL": "http://127.0.0.1:9/elsewhere",
        "PIP_TARGET": str(folder / "elsewhere"),
    }


def _on_github(folder: Path, files: dict[str, bytes], index: Index, ready: Path | None = None) -> Outcome:
    """The job `apply` of a push, whose checkout is these files."""
    workspace = folder / "work"
    for path, content in files.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_bytes(content)
    lay_hostile(workspace, folder / "canary")
    job = Job(
        folder=folder,
        workspace=workspace,
        environ=_environ(folder, workspace, ready),
        github={"event": {}, "event_name": "push", "token": "of the job", "server_url": "https://github.example"},
        standins={"actions/setup-python": lambda *_: None, "actions/cache": lambda *_: None},
    )
    done = job.action(workspace / ".github/actions/gitops", {"verb": "apply", "index": index.url})
    assert list(job.temp.iterdir()) == []
    return done


def test_on_github_the_vendored_wheel_runs_and_nothing_of_the_checkout(tmp_path: Path, index: Index) -> None:
    done = _on_github(tmp_path, {**made("github"), **RUNNING}, index)
    assert "not_a_repository" in done.text, done.text
    assert not (tmp_path / "canary").exists(), (tmp_path / "canary").read_text()
    assert index.asked == []


@pytest.mark.parametrize("attack", ["another wheel", "an index with another package"])
def test_what_has_no_hash_is_not_installed(attack: str, tmp_path: Path, index: Index, ready: Path) -> None:
    files = {**made("github"), **RUNNING}
    if attack == "another wheel":
        files[WHEEL] = CHANGED
    else:
        files[REQUIREMENTS] += f"leftpad==1.0 --hash=sha256:{'0' * 64}\n".encode()
    done = _on_github(tmp_path, files, index, ready)
    assert not done.ok
    assert "hash" in done.text.lower(), done.text
    assert "not_a_repository" not in done.text
    assert not any("gitops" in path for path in index.asked)
    assert not (tmp_path / "canary").exists()


def test_downloads_of_earlier_jobs_are_used_if_their_hashes_fit(tmp_path: Path, index: Index, ready: Path) -> None:
    """Other workflows can write to the cache: what does not fit is downloaded again, and never run."""
    files = {**made("github"), **RUNNING}
    files[REQUIREMENTS] += f"leftpad==1.0 --hash=sha256:{sha256(index.wheel).hexdigest()}\n".encode()
    asked, kept = [], {}
    for name in ("nothing", "all", "poisoned"):
        if name == "poisoned":
            planted = f"import pathlib; pathlib.Path({str(tmp_path / 'planted')!r}).touch()\n".encode()
            info = {"leftpad-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: leftpad\nVersion: 1.0\n"}
            kept[".gitops-wheels/leftpad-1.0-py3-none-any.whl"] = pack(
                {"planted.pth": planted, **info}, "leftpad-1.0.dist-info"
            )
        done = _on_github(tmp_path / name, {**files, **kept}, index, ready)
        assert "not_a_repository" in done.text, done.text
        asked.append(bool(index.asked))
        index.asked.clear()
        after = (tmp_path / name / "work/.gitops-wheels").iterdir()
        kept = {f".gitops-wheels/{path.name}": path.read_bytes() for path in after}
        assert kept[".gitops-wheels/leftpad-1.0-py3-none-any.whl"] == index.wheel
    assert asked == [True, False, True]
    assert not (tmp_path / "planted").exists()


def test_on_gitlab_the_target_branch_says_what_runs(tmp_path: Path, index: Index, ready: Path) -> None:
    """The request brings hostile files, and a wheel of its own with the hash of that."""
    work, builds = tmp_path / "work", tmp_path / "builds"
    builds.mkdir()
    own = install_files(Wheel(WHEEL.rpartition("/")[2], CHANGED), "")
    checkout_of_a_request(work, RUNNING, {**own, **hostile_files(tmp_path / "canary")})
    key = tmp_path / "key"
    key.write_text("the key\n")
    environ = {
        **_environ(tmp_path, work, ready),
        "CI_BUILDS_DIR": str(builds),
        "CI_JOB_ID": "77",
        "CI_PROJECT_DIR": str(work),
        "GITOPS_SIGNING_KEY": str(key),
        "GITOPS_INDEX": index.url,
    }
    job = jobs_of_gitlab()["gitops-apply"]
    lines = "\n".join([*job["before_script"], *job["script"]])
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", lines],
        env=environ,
        cwd=work,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "gitops: bot_config_invalid: branch main has no gitops.yaml",
        "gitops: fix: create it: gitops init; then commit it, and push branch main",
    ]
    assert not (tmp_path / "canary").exists(), (tmp_path / "canary").read_text()
    assert index.asked == []


def test_both_halves_of_the_pipeline_install_alike() -> None:
    form = yaml.safe_load(made("gitlab")[".gitlab/gitops.gitlab-ci.yml"])
    first, second = (form[name]["before_script"] for name in (".gitops", ".gitops-writes"))
    assert second[: len(first)] == first
