"""Workflows that we run and workflows that we give away: clean to every checker, and the checkers see what they are for."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gitops.init.disk import read_templates as templates
from tests.support.actions.scaffolds import PINNED, made
from tests.support.pages import ROOT

VARIANTS = [
    pytest.param(forge, given, id=f"{forge}-{name}")
    for forge in ("github", "gitea")
    for name, given in (
        ("plain", {}),
        ("storage", {"storage": "s3://bucket/brain", "branch": "release/2.x"}),
        ("pinned", {"action": PINNED, "path": "."}),
        ("enterprise", {"enterprise": True, "strategies": True}),
        ("report", {"report": True}),
        ("strategies", {"storage": "s3://bucket/brain", "strategies": True}),
        ("previews", {"previews": True, "drills": True}),
        ("readers", {"storage": "s3://bucket/brain", "previews": True, "drills": True}),
        ("server", {"apply_in_jobs": False}),
    )
    if name not in {"github": ["server"], "gitea": ["enterprise", "report"]}[forge]
]
_SCHEMAS = {
    "workflows": ("--builtin-schema", "vendor.github-workflows"),
    "actions": ("--builtin-schema", "vendor.github-actions"),
    "gitlab": ("--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"),
}
_POLICY = 'rules:\n  unpinned-uses:\n    config:\n      policies:\n        "*": hash-pin\n'


def _program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _run(*command: str, at: Path) -> tuple[int, str]:
    done = subprocess.run(command, cwd=at, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def _validate(schema: str, *paths: object) -> tuple[int, str]:
    """What check-jsonschema answers. It is called, not started: its imports take longer than its work."""
    command = pytest.importorskip("check_jsonschema.cli.main_command", reason="check-jsonschema is not installed").main
    done = CliRunner().invoke(command, [*_SCHEMAS[schema], *map(str, paths)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def _lay(folder: Path, files: dict[str, bytes]) -> Path:
    """The files in a repository; those of Gitea where the checkers look, which know GitHub's folders only."""
    (folder / ".git").mkdir(parents=True)
    for path, content in files.items():
        place = folder / path.replace(".gitea/", ".github/")
        place.parent.mkdir(parents=True, exist_ok=True)
        # The action of Gitea is in a folder of its own, which moved with it.
        place.write_bytes(content.replace(b"./.gitea/", b"./.github/"))
    return folder


def _complaints(folder: Path) -> list[str]:
    """What the checkers say of the workflows and actions of a repository."""
    workflows = sorted((folder / ".github/workflows").glob("*.yml"))
    actions = sorted((folder / ".github/actions").rglob("action.yml"))
    policy = folder / "policy.yml"
    policy.write_text(_POLICY)
    zizmor = (
        _program("zizmor"),
        "--offline",
        "--no-progress",
        "--quiet",
        "--persona",
        "pedantic",
        "--config",
        str(policy),
    )
    checks = [(*zizmor, ".github"), (_program("actionlint"), "-no-color", *map(str, workflows))]
    results = [(Path(command[0]).name, *_run(*command, at=folder)) for command in checks]
    results.append(("check-jsonschema", *_validate("workflows", *workflows)))
    if actions:
        results.append(("check-jsonschema", *_validate("actions", *actions)))
    return [f"{name}: {text}" for name, code, text in results if code]


@pytest.mark.parametrize(("forge", "given"), VARIANTS)
def test_scaffolded_workflows_are_clean(forge, given, tmp_path):
    assert _complaints(_lay(tmp_path / "repo", made(forge, **given))) == []


def test_the_action_is_clean(tmp_path):
    path = ".github/actions/gitops/action.yml"
    files = {**made("github", action=PINNED), path: (ROOT / path).read_bytes()}
    assert _complaints(_lay(tmp_path / "repo", files)) == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"storage": "s3://bucket/brain", "strategies": True},
        {"report": True},
        {"storage": "s3://bucket/brain", "previews": True, "drills": True},
    ],
    ids=["plain", "strategies", "report", "readers"],
)
def test_pipelines_of_gitlab_fit_their_schema(given, tmp_path):
    files = made("gitlab", **given)
    paths = []
    for path in (path for path in files if path.startswith(".gitlab")):
        place = tmp_path / path
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(files[path])
        paths.append(str(place))
    code, text = _validate("gitlab", *paths)
    assert code == 0, text


FAULTS = {
    "an action that is not pinned": (
        r"actions/checkout@[0-9a-f]{40} # v5\.0\.0",
        "actions/checkout@v5",
        "unpinned-uses",
    ),
    "credentials that stay": (r"\n +persist-credentials: false", "", "artipacked"),
    "permissions for everything": (r"permissions: \{\}", "permissions: write-all", "excessive-permissions"),
    "a title in a script": (
        r"echo 'The workflow[^\n]*",  # in the job of a review
        "echo '${{ github.event.pull_request.title }}'",
        "template-injection",
    ),
    "a trigger of strangers": (
        r"  pull_request:\n    types",
        "  pull_request_target:\n    types",
        "dangerous-triggers",
    ),
    "a misspelt key": ("timeout-minutes", "timeout-minuets", "timeout-minuets"),
    "a name that nobody knows": (r"github\.event\.comment\.id", "github.evnt.comment.id", "evnt"),
    "an input that is none": ("verb: plan", "verbs: plan", "verbs"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_checkers_see_a_planted_fault(fault, tmp_path):
    pattern, planted, named = FAULTS[fault]
    files = made("github")
    places = [path for path in files if "/workflows/" in path and re.search(pattern, files[path].decode())]
    files[places[0]] = re.sub(pattern, lambda _: planted, files[places[0]].decode()).encode()
    complaints = _complaints(_lay(tmp_path / "repo", files))
    assert any(named in text for text in complaints), complaints


def test_a_broken_pipeline_of_gitlab_is_seen(tmp_path):
    place = tmp_path / "gitlab-ci.yml"
    place.write_bytes(made("gitlab")[".gitlab/gitops.gitlab-ci.yml"].replace(b"resource_group:", b"resource_groups:"))
    assert _validate("gitlab", place)[0] != 0


def _jobs(forge):
    folder = ".github" if forge == "github" else ".gitea"
    files = made(forge, storage="s3://bucket/brain", strategies=True)
    for path in files:
        if path.startswith(f"{folder}/workflows/"):
            form = yaml.safe_load(files[path])
            for name, job in form["jobs"].items():
                yield path, name, form, job


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_no_event_starts_a_job_to_skip_it(forge):
    """One event and one job for each workflow; only a comment is looked at, because no trigger can look at its text."""
    seen = set()
    for path, name, form, job in _jobs(forge):
        events = form[True].keys() - {"workflow_dispatch"}
        assert (len(events), [*form["jobs"]]) == (1, [name]), path
        seen |= events
        conditions = str(job.get("if", "vars.GITOPS_PAUSED != 'true'")).split(" && ")
        # Nor can a trigger tell a merged request from one that is closed.
        looked_at = events == {"issue_comment"} or (forge, name) == ("gitea", "apply")
        assert conditions == ["vars.GITOPS_PAUSED != 'true'"] or looked_at, path
    assert len(seen) == {"github": 7, "gitea": 3}[forge]


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_every_job_has_its_own_permissions_and_a_bound(forge):
    for path, name, form, job in _jobs(forge):
        assert form["permissions"] == {}, path
        assert "permissions" in job, name
        assert job["timeout-minutes"] <= 120, name


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_every_checkout_has_the_history_and_keeps_no_credentials(forge):
    steps = [step for *_, job in _jobs(forge) for step in job["steps"] if "checkout" in step.get("uses", "")]
    assert len(steps) > 3
    assert all(step["with"]["fetch-depth"] == 0 and step["with"]["persist-credentials"] is False for step in steps)


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_no_job_checks_out_what_a_request_brings(forge):
    """The trusted ref of each event, or none, which is that of the event itself: the default branch for all but pushes."""
    trusted = {"${{ github.event.pull_request.base.ref }}", "${{ github.event.merge_group.base_ref }}", None}
    for _, name, form, job in _jobs(forge):
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                ref = step["with"].get("ref")
                assert ref in trusted, name
                # Without a ref, these would check out the merge of the request or the group.
                assert ref is not None or not {"pull_request", "merge_group"} & set(form[True]), name


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_the_jobs_that_look_at_a_request_get_no_secret_and_cannot_write(forge):
    """Stage one of GitHub, and all jobs of Gitea: everything in the file, since a request can change the file."""
    files = made(forge, strategies=True, apply_in_jobs=False)
    text = files[f".{forge}/workflows/gitops-plan.yml"].decode()
    assert forge == "github" or [path for path in files if "/workflows/" in path] == [
        ".gitea/workflows/gitops-plan.yml"
    ]
    assert "secrets." not in text
    assert "environment" not in text
    form = yaml.safe_load(text)
    rights = [tuple(job["permissions"].items()) for job in form["jobs"].values()]
    assert set(itertools.chain.from_iterable(rights)) <= {("contents", "read")}


def test_what_writes_takes_nothing_from_the_job_that_looked():
    files = made("github")
    writing = [
        files[f".github/workflows/gitops-{name}.yml"].decode()
        for name in ("post", "command", "apply", "sweep", "drift")
    ]
    lines = "\n".join(writing).splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    for word in ("artifact", "cache", "head_branch", "head_repository", "comment.body }}", "github.head_ref"):
        assert word not in text


def test_applies_wait_for_each_other_and_are_never_cancelled():
    for name in ("apply", "sweep"):
        form = yaml.safe_load(made("github")[f".github/workflows/gitops-{name}.yml"])
        assert form["jobs"][name]["concurrency"] == {
            "group": "gitops-apply",
            "cancel-in-progress": False,
            "queue": "max",
        }


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_only_the_jobs_that_reach_a_target_have_its_address(forge):
    having = {
        step["with"]["verb"]
        for *_, job in _jobs(forge)
        for step in job["steps"]
        if step.get("env", {}).get("MZ_URL") == "${{ secrets.MZ_URL }}"
    }
    assert having == {"plan", "command", "apply", "sweep", "tick"}
    assert not any(b"MZ_URL" in text for path, text in made(forge).items() if "/workflows/" in path)


@pytest.mark.parametrize("forge", ["github", "gitea"])
def test_ticks_come_every_five_minutes_and_by_hand_they_carry_out_nothing(forge):
    form = yaml.safe_load(made(forge, strategies=True)[f".{forge}/workflows/gitops-strategies.yml"])
    started = form.get("on", form.get(True))
    assert started["schedule"] == [{"cron": "*/5 * * * *"}]
    assert started["workflow_dispatch"]["inputs"]["mode"]["default"] == "dry-run"
    assert form["concurrency"]["cancel-in-progress"] is False
    assert {right for job in form["jobs"].values() for right in job["permissions"].items()} == {("contents", "write")}
    assert all(job["timeout-minutes"] <= 15 for job in form["jobs"].values())


def test_pushes_of_the_bot_start_nothing():
    form = yaml.safe_load(made("github")[".github/workflows/gitops-apply.yml"])
    assert form.get("on", form.get(True))["push"]["branches"] == ["main"]


def test_no_push_cancels_an_apply_of_gitea():
    """It cancels what an earlier push started. A merged request starts the apply, in a workflow of its own."""
    files = made("gitea", strategies=True)
    forms = {path: yaml.safe_load(text) for path, text in files.items() if path.startswith(".gitea/workflows/")}
    started = {path.rpartition("/")[2]: form.get("on", form.get(True)) for path, form in forms.items()}
    assert not any("push" in events for events in started.values())
    assert started["gitops-apply.yml"]["pull_request_target"] == {"types": ["closed"], "branches": ["main"]}
    assert started["gitops-apply.yml"].keys() == {"pull_request_target", "workflow_dispatch"}


@pytest.mark.parametrize(("path", "paths"), [("a/b", ["a/b/**", "gitops.yaml", ".gitops/**"]), (".", None)])
def test_merges_that_change_no_cluster_start_no_apply(path, paths):
    form = yaml.safe_load(made(path=path)[".github/workflows/gitops-apply.yml"])
    assert form.get("on", form.get(True))["push"].get("paths") == paths


def test_only_the_jobs_that_use_the_bucket_get_a_token_for_its_role():
    """The credentials of the role are given to the action alone, and a repository without a bucket has none of this."""
    for _, name, _, job in _jobs("github"):
        (use,) = [step for step in job["steps"] if "verb" in step.get("with", {})] or [{}]
        role = [step["with"] for step in job["steps"] if "configure-aws-credentials" in step.get("uses", "")]
        uses = "AWS_ACCESS_KEY_ID" in use.get("env", {})
        assert uses == ("id-token" in job["permissions"]) == bool(role), name
        assert all(given["output-env-credentials"] is False for given in role)
    assert not any(b"id-token" in text or b"AWS_" in text for path, text in made().items() if "/workflows/" in path)


def test_previews_and_drills_get_storage_credentials_that_no_other_job_has():
    """A change request can be previewed and a restore be tried without a job that could write to a live graph."""
    given = {"storage": "s3://bucket/brain", "previews": True, "drills": True}
    readers = {f"gitops-{name}.yml" for name in ("preview", "preview-command", "drill")}
    workflows = {
        path.rpartition("/")[2]: text for path, text in made("github", **given).items() if "/workflows/" in path
    }
    jobs = {name: job for name, text in workflows.items() for job in yaml.safe_load(text)["jobs"].values()}
    at = {name: job["environment"]["name"] for name, job in jobs.items() if "environment" in job}
    assert {name for name, where in at.items() if where == "gitops-read"} == readers
    commands = [jobs[name]["if"].split(" && ")[2:] for name in ("gitops-command.yml", "gitops-preview-command.yml")]
    word = "startsWith(github.event.comment.body, '/gitops preview')"
    assert commands == [["startsWith(github.event.comment.body, '/gitops')", f"!{word}"], [word]]
    gitea = made("gitea", **given)
    named = [f".gitea/workflows/gitops-{name}.yml" for name in ("command", "preview-command")]
    assert [yaml.safe_load(gitea[name])["jobs"]["command"]["if"].split(" && ") for name in named] == commands
    for path, text in gitea.items():
        if "/workflows/" in path:
            assert (b"secrets.READ_AWS_" in text) == (path.rpartition("/")[2] in readers), path
            assert b"secrets.AWS_" not in text or b"secrets.READ_AWS_" not in text, path
    pipelines = {
        n: job
        for p, t in made("gitlab", **given).items()
        if p.startswith(".gitlab/")
        for n, job in yaml.safe_load(t).items()
    }
    scoped = {
        name for name, job in pipelines.items() if job.get("environment") == {"name": "gitops-read", "action": "access"}
    }
    assert scoped == {"gitops-preview", "gitops-drill"}


def test_no_script_of_the_action_holds_an_expression():
    for step in yaml.safe_load(templates()["action.yml"])["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "GITHUB_ENV" not in step.get("run", "")
