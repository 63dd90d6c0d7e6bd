"""What the doctor concludes from what it read."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops import __version__
from gitops.cluster.config.gitops_yaml import KEY_ROWS, ClusterRule, parse_bot_config
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.model.compute import ComputeRules, ComputeTarget
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.attack.run import ATTACKS
from gitops.doctor.examine import forge_findings, unreachable_forge_findings
from gitops.doctor.findings import DoctorFinding, Health
from gitops.doctor.jobs import answers_queue, install_findings, interval_of, job_findings, tick_findings
from gitops.doctor.trust import people_findings, served_preview_findings, trust_findings
from gitops.forge.port import Account, BranchRules, ForgeReader, Permission
from gitops.init.files import INSTALL_FOLDER, REQUIREMENTS
from gitops.init.install import Wheel, install_files
from tests.support.actions.scaffolds import PINNED, made
from tests.support.pages import ROOT, read_page
from tests.support.strategies import rules

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CONFIG = """\
version: 1
repository: brain
clusters: [{name: brain, path: .}]
ledger: {signers: [bot]}
approvals: {allowed_signers: keys, required: 1, data_growth: {percent: 10, rows: 0}%s}
"""


def key(number: int) -> str:
    """The text of a public key that nobody has."""
    name = b"ssh-ed25519"
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([number]) * 32
    return base64.b64encode(blob).decode()


def line(who: str, number: int, options: str = 'namespaces="git"') -> str:
    return f"{who} {options} ssh-ed25519 {key(number)}\n".replace("  ", " ")


BOT, ADA, BEN = line("bot", 1), line("ada", 2), line("ben", 3)


def found(
    signers: str, more: str = "", *, config: str = CONFIG, own: str | None = key(2), serves: bool = False
) -> list[DoctorFinding]:
    files = {"gitops.yaml": (config % more).encode(), "keys": signers.encode()}
    config_now = parse_bot_config(files["gitops.yaml"])
    root = trust_root(files)
    checks = trust_findings(config_now, root, NOW, own, serves=serves, source=files["gitops.yaml"])
    return [*checks, *people_findings(config_now, root, NOW, "local")]


def gaps(findings: list[DoctorFinding]) -> list[str]:
    return [f"{f.health} {f.check}" for f in findings if f.health is not Health.GOOD]


def test_a_sound_set_up_has_no_gap() -> None:
    assert gaps(found(BOT + ADA + BEN)) == []


def test_the_remedy_for_approvals_that_cover_many_more_rows_is_a_line_of_the_rules() -> None:
    strict = "data_growth: {percent: 10, rows: 0}"
    findings = found(BOT + ADA + BEN, config=CONFIG.replace(f", {strict}", ""))
    assert gaps(findings) == ["warning trust.data-growth"]
    (loose,) = [each for each in findings if each.health is not Health.GOOD]
    assert (strict in loose.fix, "1,005 rows" in loose.detail) == (True, True)
    assert gaps(found(BOT + ADA + BEN, config=CONFIG.replace(strict, "data_growth: {rows: 500}"))) == []


CASES = {
    "nobody may be away": (BOT + ADA, "", ["warning trust.quorum"]),
    "all keys have ended": (
        BOT + line("ada", 2, 'namespaces="git",valid-before="20260101Z"'),
        "",
        ["error trust.quorum", "warning trust.own-key"],
    ),
    "all keys end soon": (
        BOT + line("ada", 2, 'namespaces="git",valid-before="20260620Z"'),
        "",
        ["error trust.quorum", "warning trust.expiring"],
    ),
    "a key of many ends soon": (
        BOT + ADA + BEN + line("eve", 4, 'namespaces="git",valid-before="20260620Z"'),
        "",
        ["warning trust.expiring"],
    ),
    "two names of one person": (BOT + line("ada,ben", 2), "", ["warning trust.quorum"]),
    "two keys of one person": (BOT + ADA + line("ada", 4), "", ["warning trust.quorum"]),
    "the ledger's key ends soon": (
        line("bot", 1, 'namespaces="git",valid-before="20260620Z"') + ADA + BEN,
        "",
        ["error trust.ledger-key", "warning trust.expiring"],
    ),
    "the ledger's key for files alone": (
        line("bot", 1, 'namespaces="file"') + ADA + BEN,
        "",
        ["error trust.ledger-key", "warning trust.roles"],
    ),
    "one key for both roles": (
        line("bot,ada", 1) + ADA + BEN,
        "",
        ["error trust.shared-key", "warning trust.quorum"],
    ),
    "the bot as an approver": (BOT + ADA + BEN, ", approvers: [ada, ben, bot]", ["warning trust.roles"]),
    "an approver without a key": (BOT + ADA + BEN, ", approvers: [ada, ben, eve]", ["warning trust.roles"]),
    "an account of nobody": (BOT + ADA + BEN, ", accounts: {'github:1': eve}", ["warning trust.roles"]),
    "an emergency by nobody": (BOT + ADA + BEN, ", break_glass: [eve]", ["warning trust.roles"]),
    "keys for everything": (line("bot", 1, "") + ADA + BEN, "", ["warning trust.namespaces"]),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_are_found_and_nothing_else(name: str) -> None:
    signers, more, expected = CASES[name]
    findings = found(signers, more)
    assert sorted(gaps(findings)) == sorted(expected)
    assert all(f.fix for f in findings if f.health is not Health.GOOD)


@pytest.mark.parametrize(
    ("own", "serves", "health"),
    [
        (key(1), True, Health.GOOD),
        (key(2), True, Health.ERROR),
        (key(9), True, Health.ERROR),
        (key(9), False, Health.WARNING),
        (None, True, Health.UNKNOWN),
    ],
)
def test_the_key_of_a_machine_has_to_fit_what_it_does(own: str | None, serves: bool, health: Health) -> None:
    (finding,) = [f for f in found(BOT + ADA + BEN, own=own, serves=serves) if f.check == "trust.own-key"]
    assert finding.health is health


@pytest.mark.parametrize(
    ("more", "health"),
    [
        ("", []),
        ("serve: {previews: true, previewers: [act-ada]}\n", [Health.WARNING]),
        ("serve: {previews: true, previewers: [act-ada]}\npreview: {enabled: true}\n", [Health.WARNING]),
        ("serve: {previews: true}\npreview: {enabled: true, scratch: previews}\n", [Health.WARNING]),
        (
            "serve: {previews: true, previewers: [act-ada]}\npreview: {enabled: true, scratch: previews}\n",
            [Health.GOOD],
        ),
    ],
)
def test_served_change_requests_need_previews_and_people(more: str, health: list[Health]) -> None:
    findings = list(served_preview_findings(parse_bot_config((CONFIG % "" + more).encode())))
    assert [each.health for each in findings] == health
    for each in findings:
        if each.health is Health.WARNING:
            # What it says to write is a rule of the file.
            key, _, value = each.fix.partition(": ")[2].partition(": ")
            assert key in KEY_ROWS
            assert value


def test_copies_share_the_identity_of_a_repository_without_a_name() -> None:
    assert "warning trust.repository-id" in gaps(
        found(BOT + ADA + BEN, config=CONFIG.replace("repository: brain\n", ""))
    )


def test_a_quorum_is_that_of_the_gate_and_environment_that_ask_for_most_people() -> None:
    config = CONFIG.replace("required: 1", "required: 1, gates: {lossy: 2}, environments: {lab: {irreversible: 3}}")
    config = config.replace("path: .}", "path: a}, {name: lab, path: b, environment: lab}")
    checks = found(BOT + ADA + BEN + line("eve", 4), config=config)
    lab = "3 people can approve, 3 are required in lab (irreversible 3, lossy 2)"
    assert [(f.health, f.detail) for f in checks if f.check == "trust.quorum"] == [
        (
            Health.WARNING,
            f"{lab}: an approver's own changes cannot be approved, and no approver may be absent or lose a key",
        ),
        (Health.GOOD, "3 people can approve, 2 are required in production (irreversible 1, lossy 2)"),
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "no gate accepts a review"),
        (", gates: [lossy]", "a review counts for: reversible"),
        (", gates: {irreversible: 1, lossy: 1}, via_forge: [irreversible]", "a review counts for: irreversible"),
        (", gates: [lossy], via_forge: []", "no gate accepts a review"),
    ],
)
def test_the_changes_for_which_a_review_counts_are_those_that_are_gated(more: str, says: str) -> None:
    assert [f.detail for f in found(BOT + ADA + BEN, more) if f.check == "trust.reviews"] == [says]


@given(st.integers(min_value=2, max_value=8), st.integers(min_value=1, max_value=8))
def test_a_quorum_is_good_exactly_if_one_may_be_away(people: int, required: int) -> None:
    """People with a key: fewer than required cannot be, exactly as many is a warning, more is good."""
    signers = BOT + "".join(line(f"p{number}", number + 10) for number in range(people))
    if required > people:
        return
    config = CONFIG.replace("required: 1", f"required: {required}")
    (finding,) = [f for f in found(signers, config=config) if f.check == "trust.quorum"]
    assert finding.health is (Health.GOOD if people > required else Health.WARNING)


ME = Account("7", "gitops-bot")
CLUSTER = ClusterRule(name="brain", path="cluster")
TARGET = BranchRules(
    protected=True,
    request_needed=True,
    force_push=False,
    deletion=False,
    required_checks=("gitops/plan/brain",),
    pushers=(),
    queue=False,
)
LEDGER = BranchRules(protected=True, request_needed=False, force_push=False, deletion=False, pushers=("gitops-bot",))
APPROVALS = BranchRules(protected=True, request_needed=False, force_push=False, deletion=False)


@dataclass
class Told:
    """What a forge tells, as values."""

    target: BranchRules = TARGET
    ledger: BranchRules = LEDGER
    approvals: BranchRules = APPROVALS
    account: Account = ME
    level: Permission = Permission.WRITE
    refuses: set[str] = field(default_factory=set)

    def me(self) -> Account:
        if "me" in self.refuses:
            raise RemoteError("forge_refused", "Bad credentials", status=401)
        return self.account

    def permission(self, account: Account) -> Permission:
        if "permission" in self.refuses:
            raise GitopsError("forge_refused", "Must have admin rights")
        if "others" in self.refuses and account != self.account:
            raise RemoteError("forge_refused", "only of its own account", status=403)
        return self.level if account == self.account else Permission.NONE

    def branch_rules(self, branch: str) -> BranchRules:
        if branch in self.refuses:
            raise RemoteError("forge_unavailable", "no answer")
        if branch.startswith("gitops/ledger/"):
            return self.ledger
        return self.approvals if branch.startswith("gitops/") else self.target


def forge_gaps(told: Told, *, queue: bool = False) -> list[str]:
    forge: ForgeReader = told  # type: ignore[assignment]
    found = list(forge_findings(forge, "github", [CLUSTER], queue=queue))
    assert all(f.fix for f in found if f.health in (Health.WARNING, Health.ERROR))
    return [f"{f.health} {f.check}" for f in found if f.health is not Health.GOOD]


def test_a_sound_forge_has_no_gap() -> None:
    assert forge_gaps(Told()) == []


_CREATED = ("approvals", "revocations", "countersignatures")
FORGE_CASES: dict[str, tuple[Callable[[], Told], list[str]]] = {
    "a bad token": (lambda: Told(refuses={"me"}), ["error forge.token"]),
    "a reader": (lambda: Told(level=Permission.READ), ["error forge.permission"]),
    "an app": (
        lambda: Told(level=Permission.NONE, account=replace(ME, bot=True)),
        ["unknown forge.permission"],
    ),
    "the permissions of others are not told": (lambda: Told(refuses={"others"}), ["error forge.commands"]),
    "permissions are not told": (lambda: Told(refuses={"permission"}), ["unknown forge.permission"]),
    "a target that may be rewritten": (
        lambda: Told(replace(TARGET, force_push=True)),
        ["warning forge.target.force-push"],
    ),
    "a target that may be deleted": (lambda: Told(replace(TARGET, deletion=True)), ["warning forge.target.deletion"]),
    "a target without requests": (
        lambda: Told(replace(TARGET, request_needed=False)),
        ["warning forge.target.request"],
    ),
    "a plan that stops nothing": (lambda: Told(replace(TARGET, required_checks=())), ["warning forge.target.check"]),
    "the check of another cluster": (
        lambda: Told(replace(TARGET, required_checks=("gitops/plan/brains",))),
        ["warning forge.target.check"],
    ),
    "checks are not told": (lambda: Told(replace(TARGET, required_checks=None)), ["unknown forge.target.check"]),
    "a queue that nobody answers": (lambda: Told(replace(TARGET, queue=True)), ["error forge.target.queue"]),
    "nothing is told of the target": (
        lambda: Told(BranchRules()),
        [
            "unknown forge.target.force-push",
            "unknown forge.target.deletion",
            "unknown forge.target.request",
            "unknown forge.target.check",
        ],
    ),
    "the forge does not answer": (lambda: Told(refuses={"main"}), ["unknown forge.target"]),
    "a ledger that may be rewritten": (
        lambda: Told(ledger=replace(LEDGER, force_push=True)),
        ["error forge.ledger.force-push"],
    ),
    "a ledger that may be deleted": (
        lambda: Told(ledger=replace(LEDGER, deletion=True)),
        ["error forge.ledger.deletion"],
    ),
    "a ledger that takes requests alone": (
        lambda: Told(ledger=replace(LEDGER, request_needed=True)),
        ["error forge.ledger.pushers"],
    ),
    "a ledger that anybody may push": (
        lambda: Told(ledger=BranchRules(False, False, True, True)),
        ["error forge.ledger.force-push", "error forge.ledger.deletion", "error forge.ledger.pushers"],
    ),
    "a ledger that two may push": (
        lambda: Told(ledger=replace(LEDGER, pushers=("gitops-bot", "mira"))),
        ["warning forge.ledger.pushers"],
    ),
    "who may push the ledger is not told": (
        lambda: Told(ledger=replace(LEDGER, pushers=None)),
        ["unknown forge.ledger.pushers"],
    ),
    "approvals that may be moved": (
        lambda: Told(approvals=replace(APPROVALS, force_push=True)),
        [f"warning forge.{what}.force-push" for what in _CREATED],
    ),
    "approvals that need a request": (
        lambda: Told(approvals=replace(APPROVALS, request_needed=True)),
        [f"error forge.{what}.pushers" for what in _CREATED],
    ),
}


@pytest.mark.parametrize("name", FORGE_CASES)
def test_gaps_of_a_forge_are_found_and_nothing_else(name: str) -> None:
    told, expected = FORGE_CASES[name]
    assert forge_gaps(told()) == expected


def test_every_status_of_a_head_is_enough() -> None:
    assert forge_gaps(Told(replace(TARGET, required_checks=("*",)))) == []


def test_a_queue_that_a_workflow_answers_is_good() -> None:
    assert forge_gaps(Told(replace(TARGET, queue=True)), queue=True) == []


def test_without_a_token_nothing_is_called_good() -> None:
    found = list(unreachable_forge_findings("there is no token"))
    assert {f.health for f in found} == {Health.UNKNOWN}
    assert all("there is no token" in f.detail for f in found)


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


@pytest.mark.parametrize(("version", "expected"), [(__version__, []), ("0.0.9", ["warning jobs.vendored"])])
def test_a_wheel_of_a_release_is_known_by_its_hash(version: str, expected: list[str]) -> None:
    name = f"cluster_gitops-{version}-py3-none-any.whl"
    wheel = Wheel(name, None, f"https://forge.example/releases/{name}", "0" * 64)
    assert _found("github", {**made("github"), WHEEL: b"", **install_files(wheel, "")}) == expected


def test_an_installation_that_cannot_be_packed_compares_nothing() -> None:
    def own() -> Wheel:
        raise GitopsError(Code.INSTALLATION_UNUSABLE, "not installed")

    files = {**made("github"), **INSTALL}
    workflows = {path: content for path, content in files.items() if path.startswith(FOLDERS)}
    findings = [
        each for each in install_findings("github", workflows, files.get, own) if each.health is not Health.GOOD
    ]
    assert [(each.check, each.health) for each in findings] == [("jobs.vendored", Health.UNKNOWN)]


JOBS = sorted((ROOT / "tests/data/doctor/jobs").glob("*.yml"))
JOB_FOLDERS = (".github/workflows/", ".gitea/workflows/", ".gitlab-ci.yml", ".gitlab/")


def _seen(kind: str, files: Mapping[str, bytes]) -> list[str]:
    return [f"{f.health} {f.check}" for f in job_findings(kind, files) if f.health is not Health.GOOD]


@pytest.mark.parametrize("case", JOBS, ids=lambda path: path.stem)
def test_gaps_of_a_workflow_are_found_and_nothing_else(case: Path) -> None:
    text = case.read_text(encoding="utf-8")
    kind = re.findall(r"^# kind: (.+)$", text, re.MULTILINE)[0]
    expected = re.findall(r"^# expect: (.+)$", text, re.MULTILINE)
    assert sorted(_seen(kind, {case.name: text.encode()})) == sorted(expected)


@pytest.mark.parametrize("case", JOBS, ids=lambda path: path.stem)
def test_every_gap_names_its_way_out(case: Path) -> None:
    for finding in job_findings("github", {case.name: case.read_bytes()}):
        assert finding.fix or finding.health in (Health.GOOD, Health.UNKNOWN), finding


@pytest.mark.parametrize("forge", ["github", "gitea", "gitlab"])
@pytest.mark.parametrize("strategies", [False, True])
def test_what_init_makes_has_no_gap(forge: str, strategies: bool) -> None:
    made_by_init = made(forge, strategies=strategies, apply_in_jobs=False)
    files = {path: text for path, text in made_by_init.items() if path.startswith(JOB_FOLDERS)}
    assert files
    assert _seen(forge, files) == []


@pytest.mark.parametrize(
    ("folders", "missed"),
    [(["cluster"], False), (["cluster/eu"], False), (["cluster", "other"], True), (["."], True), (["clusters"], True)],
)
def test_a_filter_of_paths_has_the_folder_of_every_cluster(folders: list[str], missed: bool) -> None:
    path = ".github/workflows/gitops-apply.yml"
    (found,) = [f for f in job_findings("github", {path: made()[path]}, folders) if f.check == "jobs.paths"]
    assert (found.health is Health.WARNING) == missed
    every = made(path=".")
    assert "jobs.paths" not in {f.check for f in job_findings("github", {path: every[path]}, folders)}


def test_only_a_job_that_verifies_groups_answers_a_merge_queue() -> None:
    sound = (ROOT / "tests/data/doctor/jobs/sound.yml").read_bytes()
    assert not answers_queue({"a.yml": sound})
    verify = sound.replace(b"pull_request:", b"merge_group:").replace(b"bot plan", b"bot verify")
    assert answers_queue({"a.yml": verify})
    assert answers_queue(made("github"))


def test_a_bare_repository_needs_no_jobs() -> None:
    assert list(job_findings("local", {})) == []


_SOURCES = [*(ROOT / "gitops/doctor").glob("*.py")]
_GROUPS = (
    "preview|drill|tests|report|use|targets|git|key|hooks|config|trust|oidc|ledger|cluster|storage|executor|forge|jobs"
)
_CHECK = re.compile(rf'"((?:{_GROUPS})\.[a-z]+(?:-[a-z]+)*)"')
_NO_CHECKS = {"ledger.signers", "tests.required", "report.json"}
"""Names in the code that look like checks."""
_PART = re.compile(r'f?"(?:forge\.target|\{check\})\.([a-z-]+)"|^\s+\("(force-push|deletion)", ', re.MULTILINE)


def _rows(heading: str) -> set[str]:
    section = read_page("doctor.md").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([a-z.-]+)`", cell)}


def test_every_check_is_on_the_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in _SOURCES)
    assert _rows("Checks") == set(_CHECK.findall(text)) - _NO_CHECKS


def test_every_part_of_a_check_is_on_the_page() -> None:
    text = (ROOT / "gitops/doctor/examine.py").read_text(encoding="utf-8")
    parts = {part for found in _PART.findall(text) for part in found if part}
    assert parts >= {"force-push", "deletion", "request", "queue", "pushers"}
    page = read_page("doctor.md")
    assert {part for part in parts if f"`.{part}`" not in page} == set()


def test_every_attack_is_on_the_page_and_has_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)
    assert _rows("Attacks") - {"held", "skipped"} == set(names)


def test_every_attack_names_a_page_that_there_is() -> None:
    assert [a.name for a in ATTACKS if not (ROOT / a.rule.partition(":")[0]).is_file()] == []


def _table(text: str) -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in rows if row[0] not in ("attack", "situation")]


def _covered() -> list[list[str]]:
    return _table(read_page("doctor.md").partition("### What is covered where\n")[2])


def test_what_is_said_to_find_an_attack_is_an_attack_or_a_check() -> None:
    known = _rows("Checks") | {attack.name for attack in ATTACKS}
    found_by = [row[-1] for row in _covered()]
    assert {name for cell in found_by for name in re.findall(r"`([a-z.-]+)`", cell)} <= known
    assert [cell for cell in found_by if "`" not in cell and not cell.startswith("only in a test")] == []


def test_every_row_has_tests_that_exist() -> None:
    rows = _table(read_page("attack-tests.md"))
    assert [row[0] for row in rows] == [row[0] for row in _covered()]
    assert rows
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = [re.findall(r"`(test_\w+)`", row[1]) for row in rows]
    assert all(named)
    assert [name for names in named for name in names if f"def {name}(" not in text] == []


FORGES = ["github", "gitea"]


def _rules(variable: str = "MZ_URL", **declared: Mapping[str, Any]) -> dict[str, list[ComputeRules]]:
    strategies = tuple(rules(declared or {"target_size": {"target_size": "50cc"}}))
    return {"brain": [ComputeRules("serving", ComputeTarget("prod", variable), "serving", strategies)]}


def _seen_ticks(
    kind: str, files: Mapping[str, bytes], declared: dict[str, list[ComputeRules]]
) -> list[tuple[Health, str]]:
    findings = list(tick_findings(kind, files, declared))
    assert all(each.fix for each in findings if each.health is not Health.GOOD)
    return [(each.health, each.detail) for each in findings]


@pytest.mark.parametrize(
    ("cron", "seconds"),
    [
        ("*/5 * * * *", 300),
        ("*/7 * * * *", 420),
        ("17 * * * *", 3600),
        ("0,20,30 * * * *", 1800),
        ("0-30/10 * * * *", 1800),
        ("3/20 * * * *", 1200),
        ("* * * * *", 60),
        ("*/5 8-18 * * *", None),
        ("*/5 * * *", None),
        ("@hourly", None),
        ("x * * * *", None),
        ("75 * * * *", None),
        ("", None),
    ],
)
def test_how_often_a_schedule_runs(cron: str, seconds: int | None) -> None:
    assert interval_of(cron) == seconds


@pytest.mark.parametrize("forge", FORGES)
def test_what_init_makes_ticks_often_enough(forge: str) -> None:
    (found,) = _seen_ticks(forge, made(forge, strategies=True), _rules(idle_suspend={"idle_after_s": 600}))
    assert found == (Health.GOOD, "ticks come every 300 s")


@pytest.mark.parametrize("forge", [*FORGES, "gitlab"])
def test_strategies_without_a_job_for_ticks_are_seen(forge: str) -> None:
    missing = Health.WARNING, "clusters have strategies, but no job runs ticks"
    elsewhere = Health.UNKNOWN, "whether a server runs ticks cannot be seen"
    upgrade = "gitops init --upgrade --strategies"
    for files, told, fix in (
        (made(forge), missing, upgrade),
        ({}, elsewhere if forge == "gitea" else missing, f"{upgrade} --forge {forge}"),
    ):
        (found,) = tick_findings(forge, files, _rules())
        assert (found.health, found.detail) == told
        assert found.fix == (
            "gitops bot serve with --tick-every 5m" if told == elsewhere else f"{fix}, and propose what it writes"
        )


def test_without_strategies_no_ticks_are_missed() -> None:
    assert list(tick_findings("github", made("github"), {"brain": []})) == []


def test_a_suspension_that_comes_before_the_next_tick_is_seen() -> None:
    (found,) = _seen_ticks("github", made("github", strategies=True), _rules(idle_suspend={"idle_after_s": 599}))
    assert found[0] is Health.WARNING
    assert "suspends after 599 s" in found[1]


def test_a_variable_that_the_job_does_not_get_is_seen() -> None:
    found = _seen_ticks("github", made("github", strategies=True), _rules("PROD_URL"))
    assert (Health.WARNING, "the job does not get PROD_URL, the URL of a target") in found


def test_what_cannot_be_seen_from_here_is_not_called_good() -> None:
    files = made("github", strategies=True)
    path = ".github/workflows/gitops-strategies.yml"
    odd = {path: files[path].replace(b"*/5 * * * *", b"*/5 8-18 * * *")}
    for kind, files in (("gitlab", made("gitlab", strategies=True)), ("local", {}), ("github", odd)):
        assert [health for health, _ in _seen_ticks(kind, files, _rules())] == [Health.UNKNOWN], kind
