"""What is installed is complete: the wheel has the templates, the hooks and the type marker."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from hashlib import sha256
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gitops
from examples.demo import ACT
from gitops.cli.main import main
from gitops.init.install import running_wheel
from tests.support.cases import read_yaml
from tests.support.pages import ROOT
from tests.support.runtime_lock import BUILD_LOCK, EXTRA_LOCKS, LOCK, build_lock, extra_lock, runtime_lock


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    for module in ("hatchling", "pip"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-q",
        "-w",
        str(folder),
    ]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        yield {name: archive.read(name) for name in archive.namelist()}


def _packaged(wheel: dict[str, bytes], folder: str) -> dict[str, bytes]:
    prefix = f"gitops/_data/{folder}/"
    return {name.removeprefix(prefix): content for name, content in wheel.items() if name.startswith(prefix)}


@pytest.mark.parametrize("folder", ["hooks", "templates"])
def test_the_wheel_has_every_data_file(wheel, folder):
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    expected = {path.relative_to(ROOT / folder).as_posix(): path.read_bytes() for path in found}
    assert expected
    assert _packaged(wheel, folder) == expected


def test_the_wheel_has_the_scaffold_and_the_action(wheel):
    folder = ROOT / "scaffold"
    expected = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    expected["action.yml"] = (ROOT / ".github/actions/gitops/action.yml").read_bytes()
    assert _packaged(wheel, "scaffold") == expected


def test_the_wheel_has_every_module(wheel):
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "gitops").rglob("*.py")}
    assert {n for n in wheel if n.startswith("gitops/") and n.endswith(".py")} == sources
    assert {"gitops/py.typed", "gitops/core/codes.txt"} <= wheel.keys()


def test_the_wheel_for_jobs_is_what_a_build_packs(wheel):
    """`init` makes it from the installation that runs; here that is a checkout."""
    with zipfile.ZipFile(io.BytesIO(running_wheel().content)) as archive:
        made = {name: archive.read(name) for name in archive.namelist()}
    own = {name for name in made if name.endswith((".dist-info/WHEEL", ".dist-info/RECORD"))}
    assert len(own) == 2
    assert made.keys() == wheel.keys()
    # The description of a checkout is that of the day when it was installed.
    compared = made.keys() - own - {name for name in made if name.endswith(".dist-info/METADATA")}
    assert {name: made[name] for name in compared} == {name: wheel[name] for name in compared}


def test_the_locks_are_that_of_the_tests():
    assert LOCK.read_text(encoding="utf-8") == runtime_lock(), "run `python -m tests.support.runtime_lock`"
    assert BUILD_LOCK.read_text(encoding="utf-8") == build_lock(), "run `python -m tests.support.runtime_lock`"
    for extra, place in EXTRA_LOCKS.items():
        assert place.read_text(encoding="utf-8") == extra_lock(extra), "run `python -m tests.support.runtime_lock`"


@pytest.mark.parametrize(
    ("target", "locks"),
    [("wheel", [BUILD_LOCK]), ("demo", [BUILD_LOCK, LOCK]), ("test", [ROOT / "requirements.lock"])],
)
def test_a_target_installs_only_what_it_needs(target, locks, tmp_path):
    """In a clone without an environment. A newcomer waits for it."""
    command = ("make", "--dry-run", f"VENV={tmp_path}", target)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    # Each line offers uv and pip.
    named = re.findall(r"pip install[^;]*? --requirement (\S+?)(?:;|$)", done.stdout, re.MULTILINE)
    assert [*dict.fromkeys(named)] == [str(lock.relative_to(ROOT)) for lock in locks]
    assert target == "test" or len(locked_packages(*locks)) <= 40


@pytest.mark.parametrize("extras", [("s3",), ("s3", "materialize"), ("s3", "serve")])
def test_a_lock_is_complete(extras):
    """Every package that the installed ones require on this machine, with the version that the tests ran."""
    locked = locked_packages(LOCK, *(EXTRA_LOCKS[extra] for extra in extras if extra in EXTRA_LOCKS))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    wanted, seen = [Requirement(text) for text in texts], set()
    while wanted:
        required = wanted.pop()
        name = canonicalize_name(required.name)
        if (name, *required.extras) in seen:
            continue
        seen.add((name, *required.extras))
        assert metadata.version(name) in locked[name]
        for text in metadata.requires(name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(
                inner.marker.evaluate({"extra": extra}) for extra in required.extras or {""}
            ):
                wanted.append(inner)
    assert locked.keys() == {name for name, *_ in seen}


def locked_packages(*locks):
    """What they install on this machine, with hashes for each."""
    locked = {}
    for block in "".join(lock.read_text(encoding="utf-8") for lock in locks).replace("\\\n", "").splitlines():
        required, _, hashes = block.partition("--hash=")
        assert re.fullmatch(r"sha256:[0-9a-f]{64}( +--hash=sha256:[0-9a-f]{64})*", hashes), block
        found = Requirement(required)
        if found.marker is None or found.marker.evaluate():
            assert canonicalize_name(found.name) not in locked
            locked[canonicalize_name(found.name)] = found.specifier
    return locked


IMPORTS = """
import importlib, pkgutil, sys
from importlib.metadata import packages_distributions

kept = {*sys.argv[1:]}
owners = packages_distributions()
hidden = {top for top in owners if not {each.lower().replace("_", "-") for each in owners[top]} & kept}

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"no module {name}", name=name)

sys.meta_path.insert(0, Hidden())
for room in ("serving", "server", "repository.wiring", "cluster.policy"):
    package = importlib.import_module(f"gitops.{room}")
    for each in pkgutil.walk_packages(package.__path__, f"gitops.{room}."):
        importlib.import_module(each.name)
"""


def test_a_container_that_serves_has_what_the_servers_import():
    """With all other packages hidden, all modules of the servers are imported."""
    command = (sys.executable, "-c", IMPORTS, "cluster-gitops", *locked_packages(LOCK, EXTRA_LOCKS["serve"]))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_wheel_has_its_metadata(wheel):
    (metadata,) = [content.decode() for name, content in wheel.items() if name.endswith(".dist-info/METADATA")]
    assert f"Version: {gitops.__version__}" in metadata
    assert "License-Expression: MIT" in metadata
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)
    assert any(name.endswith("entry_points.txt") and b"gitops.cli.main:entry" in wheel[name] for name in wheel)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What `make wheel` makes, twice."""
    if importlib.util.find_spec("hatchling") is None or shutil.which("make") is None:
        pytest.skip("hatchling or make is not installed")
    folders = [tmp_path_factory.mktemp("dist") for _ in range(2)]
    for folder in folders:
        # The environment of the tests is the one that make would build.
        command = ("make", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.ready", f"DIST={folder}", "wheel")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
    return folders


def test_make_wheel_gives_the_same_bytes_twice_and_their_hash(made):
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in made)
    assert first == second
    (wheel,) = [name for name in first if name.endswith(".whl")]
    assert first["SHA256SUMS"].decode() == f"{sha256(first[wheel]).hexdigest()}  {wheel}\n"


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(made, tmp_path):
    """As docs/install.md says; its dependencies come from the package index."""
    (wheel,) = made[0].glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    program = tmp_path / "venv/bin"
    environ = {**os.environ, "PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        return subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    fetched = run(program / "python", "-m", "pip", "download", "-q", "--no-deps", "-d", tmp_path / "one", "pyyaml")
    if fetched.returncode != 0:
        pytest.skip("the package index is not reachable")
    done = run(program / "python", "-m", "pip", "install", "-q", wheel)
    assert done.returncode == 0, done.stderr
    assert run(program / "gitops", "--version").stdout == f"gitops {gitops.__version__}\n"
    assert run(program / "gitops", "validate", "--config", ROOT / "examples/company-brain").returncode == 0


def test_the_container_is_small_pinned_and_not_run_by_root():
    """The rules of its file; that it builds is not tested where no container program runs."""
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and not line.startswith(("#", " "))]
    said = dict(words)
    assert said["FROM"] == "${BASE}", "the operator names the base image by its digest"
    assert said["USER"] == "gitops"
    assert not {"ADD", "SHELL"} & said.keys(), "images of the OCI format, as podman writes them, have no SHELL"
    text = "\n".join(lines)
    assert "--no-install-recommends" in text
    assert "--require-hashes" in text
    assert "rm -rf /var/lib/apt/lists/*" in text
    assert said["ENTRYPOINT"] == '["gitops-entrypoint"]'
    kept = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()}
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert all(word in kept or word.partition("/")[0] in kept for word in copied)


@pytest.mark.parametrize(
    ("serve", "strategies", "files"),
    [("yes", "no", ["", "-serve"]), ("no", "no", [""]), ("yes", "yes", ["", "-serve", "-materialize"])],
)
def test_the_container_installs_what_its_arguments_say(serve, strategies, files, tmp_path):
    """The step that installs, run by the plain shell that every container program has, with programs that only print."""
    text = (ROOT / "Containerfile").read_text("utf-8")
    step = next(each for each in text.split("\nRUN ")[1:] if each.startswith("sha256sum")).partition("\n\n")[0]
    step = step.replace("/opt/gitops/bin/python", "pip").replace("rm -rf /tmp/install", "true")
    (tmp_path / "x.whl").touch()
    stubs = 'sha256sum() { :; }\npython3() { :; }\npip() { echo "$@"; }\n'
    environ = {"PATH": "/usr/bin:/bin", "SERVE": serve, "STRATEGIES": strategies}
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", stubs + step], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    locked, own = (line.split() for line in done.stdout.splitlines())
    names = [f"requirements{each}.txt" for each in files]
    assert [word for word in locked if word.startswith("requirements")] == names
    assert "--require-hashes" in locked
    assert own[-2:] == ["--no-deps", "./x.whl"]


@pytest.mark.parametrize("words", [(), ("",), ("carol",)])
def test_the_sandbox_of_the_demo_says_whom_it_has(words, tmp_path):
    (tmp_path / "home" / "alice").mkdir(parents=True)
    (tmp_path / "alice").mkdir()
    (tmp_path / "as").write_text(ACT, "utf-8")
    done = subprocess.run(["/bin/sh", tmp_path / "as", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: ./as alice|bob [COMMAND...]\n")


SERVED = ["serve", "--bind", "0.0.0.0:8080"]


@pytest.mark.parametrize(
    ("variables", "arguments", "expected"),
    [
        ({}, ["plan", "--config", "a b"], ["plan", "--config", "a b"]),
        ({"CLUSTER": "/c", "TARGET": "x"}, ["status"], ["status"]),
        ({}, [], []),
        ({"CLUSTER": "s3://b/a b"}, [], [*SERVED, "--cluster", "s3://b/a b"]),
        (
            {"CLUSTER": "/c", "BIND": ":1"},
            ["serve", "--check"],
            ["serve", "--bind", ":1", "--cluster", "/c", "--check"],
        ),
        ({}, ["serve", "--cluster", "/d"], [*SERVED, "--cluster", "/d"]),
        ({"CLUSTER": "/c", "TARGET": "x"}, [], None),
        ({"CLUSTER": "/c", "CONFIG": "x"}, ["serve"], None),
        ({"CLUSTER": "/c", "TARGET_URI": "x"}, ["serve"], None),
    ],
)
def test_the_variables_of_a_container_are_options_of_the_server(variables, arguments, expected, tmp_path):
    program = tmp_path / "gitops"
    program.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n', "utf-8")
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", **{f"OMNIGRAPH_{name}": text for name, text in variables.items()}}
    command = [ROOT / "container" / "entrypoint.sh", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if expected is None:
        assert (done.returncode, done.stdout) == (64, "")
        assert done.stderr.startswith("ERROR exclusive_boot_source OMNIGRAPH_")
    else:
        assert (done.returncode, done.stdout.splitlines()) == (0, expected), done.stderr


@pytest.mark.parametrize("hook", read_yaml(ROOT / ".pre-commit-hooks.yaml"), ids=lambda hook: hook["id"])
def test_a_pre_commit_hook_runs_on_a_cluster_folder(hook, tmp_path, monkeypatch, capsys):
    """As pre-commit runs it: the entry with its arguments, at the root of the repository."""
    shutil.copytree(ROOT / "examples/company-brain", tmp_path / "cluster")
    monkeypatch.chdir(tmp_path)
    program, *words = [*hook["entry"].split(), *hook["args"]]
    assert (program, hook["language"], hook["pass_filenames"]) == ("gitops", "python", False)
    assert main(words) == 0, capsys.readouterr().out
    assert re.search(hook["files"], "cluster/legacy/schema.pg")
    (tmp_path / "cluster/legacy/schema.pg").write_text("node {")
    assert main(words) == 1
    assert "legacy/schema.pg" in capsys.readouterr().out


@pytest.mark.slow
def test_the_container_builds(made):
    """BASE is named by the variable GITOPS_TESTS_BASE, since a test does not choose whom to trust."""
    program = next(filter(None, map(shutil.which, ("podman", "docker"))), None)
    if program is None or subprocess.run([program, "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no container program runs on this machine")
    if "GITOPS_TESTS_BASE" not in os.environ:
        pytest.skip("GITOPS_TESTS_BASE names no base image by its digest")
    arguments = ("--file", "Containerfile", "--build-arg", f"BASE={os.environ['GITOPS_TESTS_BASE']}")
    done = subprocess.run([program, "build", *arguments, "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
