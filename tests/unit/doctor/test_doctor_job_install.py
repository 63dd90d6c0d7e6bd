"""What the checks of installations see: the jobs of `init` are sound, those of the first release and each weaker form are not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gitops import __version__
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.findings import Health
from gitops.doctor.jobs import install_findings
from gitops.init.files import INSTALL_FOLDER, REQUIREMENTS
from gitops.init.install import Wheel, install_files
from tests.support.actions.scaffolds import PINNED, made
from tests.support.pages import ROOT

FIRST = ROOT / "tests/data/doctor/first-release"
OWN = Wheel(f"cluster_gitops-{__version__}-py3-none-any.whl", b"PK\0 is not unpacked")
INSTALL = install_files(OWN, f"six==1.17.0 \\\n    --hash=sha256:{'0' * 64}\n")
WHEEL = f"{INSTALL_FOLDER}/{OWN.name}"
FOLDERS = (".github/workflows/", ".gitea/workflows/", ".gitlab")
JOB = """
on: {{{event}: }}
jobs:
  plan:
    steps:
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8
        with: {{ref: "{ref}"}}
      - {step}
      - run: gitops bot {verb}
"""


def _found(kind: str, files: Mapping[str, bytes], own: Wheel = OWN) -> list[str]:
    """What is not good, as `health check`, in order."""
    workflows = {path: content for path, content in files.items() if path.startswith(FOLDERS)}
    findings = list(install_findings(kind, workflows, files.get, lambda: own))
    assert all(each.fix for each in findings if each.health is not Health.GOOD)
    return sorted({f"{each.health} {each.check}" for each in findings if each.health is not Health.GOOD})


def _job(step: str, event: str = "push", verb: str = "apply", ref: str = "main", **files: bytes) -> list[str]:
    workflow = JOB.format(step=step, event=event, verb=verb, ref=ref).encode()
    return _found("github", {".github/workflows/a.yml": workflow, **INSTALL, **files})


@pytest.mark.parametrize("forge", ["github", "gitea", "gitlab"])
@pytest.mark.parametrize("given", [{}, {"action": PINNED}, {"storage": "s3://bucket/brain"}])
def test_what_init_makes_is_sound(forge: str, given: dict[str, str]) -> None:
    assert _found(forge, {**made(forge, **given), **INSTALL}) == []


def test_the_jobs_of_the_first_release_are_errors() -> None:
    for kind, files in {
        "github": {
            ".github/workflows/gitops.yml": (FIRST / "gitops.yml").read_bytes(),
            ".github/actions/gitops/action.yml": (FIRST / "action.yml").read_bytes(),
        },
        "gitlab": {".gitlab/gitops.gitlab-ci.yml": (FIRST / "gitops.gitlab-ci.yml").read_bytes()},
    }.items():
        found = _found(kind, files)
        assert {"error jobs.install", "error jobs.isolated"} <= set(found)
        assert ("error jobs.vendored" in found) is (kind == "github")


@pytest.mark.parametrize(
    "line",
    [
        "pip install cluster-gitops",
        "python3 -I -m pip install --quiet 'cluster-gitops[s3]==0.1.0'",
        "python -I -m pip --isolated install .",
        "pip3.13 install -e .",
        "uv pip install cluster-gitops",
        "uvx cluster-gitops",
        "pipx run cluster-gitops",
        '"$VENV/bin/python" -I -m pip install \\\\\\n  --no-deps x',
    ],
)
def test_an_installation_without_hashes_is_an_error(line: str) -> None:
    assert _job(
        f"run: '{line}'" if "'" not in line and "\\" not in line else f'run: "{line.replace(chr(34), "")}"'
    ) == ["error jobs.install"]


@pytest.mark.parametrize(
    "line", ["python3 -m venv x", "python -c 1", "python tools/plan.py", "python3 - <x", "python3.13 -s -I -m gitops"]
)
def test_a_python_that_is_not_isolated_is_an_error(line: str) -> None:
    assert _job(f"run: {line}") == ["error jobs.isolated"]


@pytest.mark.parametrize(
    "line",
    ["python3 --version", "python -V", "python3 -I -m venv x", "'# python -m pip install x'", "echo install pip"],
)
def test_other_lines_are_no_finding(line: str) -> None:
    assert _job(f"run: {line}") == []


def test_hashes_on_a_continued_line_count() -> None:
    step = 'run: "python -I -m pip install \\\\\\n  --require-hashes -r requirements.txt"'
    assert _job(step) == []


@pytest.mark.parametrize(
    "name", ["actions/setup-python@v6", "actions/setup-python@main", "owner/x", "docker://python:3", "owner/x@0123456"]
)
def test_an_action_that_is_not_pinned_is_an_error(name: str) -> None:
    assert _job(f"uses: {name}") == ["error jobs.pinned"]
    inner = f"runs: {{using: composite, steps: [{{uses: {name}}}]}}".encode()
    assert _job("uses: ./own", **{"own/action.yml": inner}) == ["error jobs.pinned"]


def test_scripts_of_local_actions_are_read_and_a_circle_ends() -> None:
    first = b"runs: {steps: [{uses: ./b}, {uses: ./a}, {run: python3 -m venv x}]}"
    second = b"runs: {steps: [{uses: ./a}, {run: pip install x}]}"
    assert _job("uses: ./a", **{"a/action.yml": first, "b/action.yaml": second}) == [
        "error jobs.install",
        "error jobs.isolated",
    ]


@pytest.mark.parametrize(
    ("event", "verb", "ref", "sound"),
    [
        ("pull_request", "plan", "${{ github.event.pull_request.base.ref }}", True),
        ("pull_request", "plan", "main", True),
        ("pull_request", "plan", "", False),
        ("pull_request", "plan", "${{ github.event.pull_request.head.sha }}", False),
        ("merge_group", "verify", "${{ github.event.merge_group.base_ref }}", True),
        ("merge_group", "verify", "${{ github.event.merge_group.base_sha }}", False),
        ("merge_group", "verify", "", False),
        ("push", "apply", "", True),
    ],
)
def test_the_program_of_a_request_is_not_installed(event: str, verb: str, ref: str, sound: bool) -> None:
    found = _job(f"uses: {PINNED}", event, verb, ref)
    assert found == ([] if sound else ["error jobs.install"])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({REQUIREMENTS: None}, "error jobs.vendored"),
        ({WHEEL: None}, "error jobs.vendored"),
        ({WHEEL: b"PK\0 is another"}, "error jobs.vendored"),
        ({REQUIREMENTS: INSTALL[REQUIREMENTS] + b"leftpad==1.0\n"}, "error jobs.vendored"),
        ({REQUIREMENTS: INSTALL[REQUIREMENTS] + b"--extra-index x\n"}, "error jobs.vendored"),
        ({REQUIREMENTS: b"# nothing\n"}, "error jobs.vendored"),
    ],
)
def test_files_to_install_must_hold_together(changed: dict[str, bytes | None], expected: str) -> None:
    files = {path: content for path, content in {**made("github"), **INSTALL, **changed}.items() if content is not None}
    assert _found("github", files) == [expected]


def test_another_program_than_here_is_a_warning() -> None:
    older = install_files(Wheel("cluster_gitops-0.0.9-py3-none-any.whl", OWN.content), "")
    assert _found("github", {**made("github"), **older}) == ["warning jobs.vendored"]
    other = Wheel(OWN.name, b"PK\0 is another")
    assert _found("github", {**made("github"), **INSTALL}, other) == ["warning jobs.vendored"]


def test_an_installation_that_cannot_be_packed_compares_nothing() -> None:
    def own() -> Wheel:
        raise GitopsError(Code.INSTALLATION_UNUSABLE, "not installed")

    files = {**made("github"), **INSTALL}
    workflows = {path: content for path, content in files.items() if path.startswith(FOLDERS)}
    findings = [
        each for each in install_findings("github", workflows, files.get, own) if each.health is not Health.GOOD
    ]
    assert [(each.check, each.health) for each in findings] == [("jobs.vendored", Health.UNKNOWN)]
