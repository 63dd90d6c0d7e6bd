"""The steps of scaffolded jobs, with a real Python and a real pip in a hostile checkout, and an index of a stranger.

What runs is the wheel of the target branch, if it has its hash: nothing of the checkout, of the index or of the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from gitops.init.files import REQUIREMENTS
from gitops.init.install import Wheel, install_files, pack, running_wheel
from tests.e2e.test_scaffolded_jobs import checkout_of_a_request, jobs_of_gitlab
from tests.support.actions.real_python import lay_python
from tests.support.actions.runner import Job, Outcome
from tests.support.actions.scaffolds import made
from tests.support.hostile import hostile_files, lay_hostile

pytestmark = pytest.mark.e2e

INSTALL = install_files(running_wheel(), "")
"""The program without its dependencies, which the Python of these jobs has already."""
(WHEEL,) = (path for path in INSTALL if path.endswith(".whl"))
CHANGED = INSTALL[WHEEL].replace(b"def entry", b"def Entry")


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

        self.asked = asked
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
    """An environment that was made before, to be copied where it does not matter how it is made."""
    folder = tmp_path_factory.mktemp("ready") / "venv"
    subprocess.run((sys.executable, "-I", "-m", "venv", str(folder)), check=True)
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
        standins={"actions/setup-python": lambda *_: None},
    )
    done = job.action(workspace / ".github/actions/gitops", {"verb": "apply", "index": index.url})
    assert list(job.temp.iterdir()) == []
    return done


def test_on_github_the_vendored_wheel_runs_and_nothing_of_the_checkout(tmp_path: Path, index: Index) -> None:
    done = _on_github(tmp_path, {**made("github"), **INSTALL}, index)
    assert "not_a_repository" in done.text, done.text
    assert not (tmp_path / "canary").exists(), (tmp_path / "canary").read_text()
    assert index.asked == []


@pytest.mark.parametrize("attack", ["another wheel", "an index with another package"])
def test_what_has_no_hash_is_not_installed(attack: str, tmp_path: Path, index: Index, ready: Path) -> None:
    files = {**made("github"), **INSTALL}
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


def test_on_gitlab_the_target_branch_says_what_runs(tmp_path: Path, index: Index, ready: Path) -> None:
    """The request brings hostile files, and a wheel of its own with the hash of that."""
    work, builds = tmp_path / "work", tmp_path / "builds"
    builds.mkdir()
    own = install_files(Wheel(WHEEL.rpartition("/")[2], CHANGED), "")
    checkout_of_a_request(work, INSTALL, {**own, **hostile_files(tmp_path / "canary")})
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
