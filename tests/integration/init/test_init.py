"""`init` as a function: files of a request, what is there, and which words it takes; and what the wheel has for it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator

import gitops
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.trust_root import trust_root
from gitops.core.errors import GitopsError, UsageError
from gitops.init.disk import read_templates as templates
from gitops.init.files import (
    CODEOWNERS,
    INSTALL_FOLDER,
    REQUIREMENTS,
    FileState,
    ForgeKind,
    OptionalJobs,
    PublicKey,
    init,
)
from gitops.init.install import dependencies_of_jobs, install_files, pack, released, running_wheel, upgrade
from gitops.init.steps import next_steps, upgrade_steps
from tests.support.actions.scaffolds import INSTALL, KEYS, PINNED, made, request
from tests.support.pages import ROOT

FORGES = [str(kind) for kind in ForgeKind]
TRUST = ("gitops.yaml", ".gitops/allowed_signers")
SOMEBODY = PublicKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIA4S3vR6LVm3JKbXBYm3FqNHwNSzM3lqrRGRbUDXb6Gq")


def errors(outcome):
    """The problems apart from the warning that Ada is alone."""
    assert all(each.code == "init_few_approvers" for each in outcome.diagnostics if each.severity == "warning")
    return [each for each in outcome.diagnostics if each.severity == "error"]


def test_a_key_for_records_turns_recording_on_and_shows_how_to_start_a_server():
    files = made("hooks", record_key=SOMEBODY)
    config = parse_bot_config(files["gitops.yaml"])
    assert (config.serve.record, config.serve.record_keys) == ("counts", (f"{SOMEBODY.kind} {SOMEBODY.blob}",))
    steps = [command for step in next_steps(request("hooks", record_key=SOMEBODY)) for command in step.commands]
    assert "gitops serve --repo SERVER --cluster brain --record-key KEY" in steps
    assert parse_bot_config(made("hooks")["gitops.yaml"]).serve.record == "off"


@pytest.mark.parametrize("forge", FORGES)
@pytest.mark.parametrize("path", ["cluster", ".", "deep/er/folder"])
def test_what_is_made_holds_together(forge, path, tmp_path):
    files = made(forge, path=path, storage="s3://bucket/brain")
    for name, content in files.items():
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    config = parse_bot_config(files["gitops.yaml"])
    assert (config.cluster(None).name, config.cluster(None).path) == ("brain", path)
    root = trust_root({name: files[name] for name in TRUST})
    assert root.ledger_signers == {"bot@brain.example"}
    assert root.approvers == {"ada@brain.example"}
    loaded = load_desired(FolderTree(str(tmp_path / path), confined=True))
    assert not list(loaded.diagnostics)
    assert {"graph.notes", "schema.notes"} <= set(loaded.resources)
    for document in (tmp_path / "gitops.yaml", tmp_path / path / "cluster.yaml"):
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", document.read_text("utf-8"))
        assert named is not None
        schema = (document.parent / named[1]).resolve()
        assert schema == tmp_path / ".gitops/schemas" / f"{document.stem}.json"
        Draft7Validator(json.loads(schema.read_bytes())).validate(yaml.safe_load(document.read_bytes()))


@pytest.mark.parametrize("forge", FORGES)
def test_no_word_is_left_open(forge):
    for given_ in ({}, {"storage": "s3://bucket/brain"}, {"strategies": True}):
        for path, content in made(forge, **given_).items():
            assert not re.search(rb"@[A-Za-z_]+@", content), path


@pytest.mark.parametrize("enterprise", [False, True])
def test_jobs_that_label_requests_may_create_the_labels(enterprise):
    """A label that the repository does not have takes `issues: write`."""
    permissions = [
        job.get("permissions", {})
        for path, content in made("github", enterprise=enterprise).items()
        if path.startswith(".github/workflows/")
        for job in yaml.safe_load(content)["jobs"].values()
    ]
    labels = [each for each in permissions if each.get("pull-requests") == "write"]
    assert len(labels) >= 4
    assert [each.get("issues") for each in labels] == ["write"] * len(labels)


@pytest.mark.parametrize("forge", FORGES)
def test_made_again_nothing_changes(forge):
    # A schema is a copy of what the program has: one of another release is renewed.
    older = init(request(), templates(), INSTALL, {**made(), ".gitops/schemas/policy.json": b"{}"}.get)
    assert {file.path: file.state for file in older.files}[".gitops/schemas/policy.json"] is FileState.RENEWED
    files = made(forge)
    again = init(request(forge), templates(), {} if forge == "hooks" else INSTALL, files.get)
    assert {file.state for file in again.files} == {FileState.SAME}
    assert errors(again) == []


def test_a_file_that_differs_is_named_and_kept():
    files = {**made(), ".github/workflows/gitops-apply.yml": b"name: mine\n"}
    del files["gitops.yaml"]
    outcome = init(request(), templates(), INSTALL, files.get)
    assert {f.path for f in outcome.files if f.state is FileState.NEW} == {"gitops.yaml"}
    (differs,) = [f for f in outcome.files if f.state is FileState.DIFFERS]
    assert (differs.path, differs.before) == (".github/workflows/gitops-apply.yml", b"name: mine\n")
    (problem,) = errors(outcome)
    assert (problem.code, problem.path) == ("init_file_differs", ".github/workflows/gitops-apply.yml")


def test_an_installation_of_another_version_is_kept_as_a_whole():
    files = {path: content for path, content in made().items() if not path.endswith(".whl")}
    outcome = init(request(), templates(), INSTALL, {**files, REQUIREMENTS: b"./old.whl\n"}.get)
    assert not any(file.path.endswith(".whl") for file in outcome.files)
    (problem,) = errors(outcome)
    assert (problem.code, problem.path) == ("init_file_differs", REQUIREMENTS)
    assert "gitops init --upgrade" in problem.message


def test_an_upgrade_renews_the_installation_and_the_copies_of_the_action():
    files = {
        **made(),
        REQUIREMENTS: b"./old.whl\n",
        f"{INSTALL_FOLDER}/old.whl": b"PK",
        ".github/actions/gitops/action.yml": b"name: old\n",
        ".gitops/schemas/cluster.json": b"{}",
    }
    names = [path.rpartition("/")[2] for path in files if path.startswith(INSTALL_FOLDER)]
    outcome = upgrade(INSTALL, templates(), files.get, names)
    states = {file.path.rpartition("/")[2]: str(file.state) for file in outcome.files}
    assert states == {
        ".gitattributes": "same",
        "action.yml": "renewed",
        "cluster.json": "renewed",
        "gitops.json": "same",
        "hosts.json": "same",
        "policy.json": "same",
        "policy-tests.json": "same",
        "tests.json": "same",
        "cluster_gitops-1.2.3-py3-none-any.whl": "same",
        "old.whl": "obsolete",
        "requirements.txt": "renewed",
    }
    again = {file.path: file.content for file in outcome.files if file.content}
    assert {str(file.state) for file in upgrade(INSTALL, templates(), again.get, []).files} == {"same"}


EARLIER = {
    "github": {"storage": "s3://bucket/brain", "strategies": True, "branch": "trunk"},
    "gitea": {"storage": "s3://bucket/brain"},
}
"""What `init` was asked for when it wrote the workflows with several events in `tests/data/init`."""


def with_earlier_jobs(forge):
    """A repository whose workflows start all jobs for each event, and the workflows that `init` makes of the same request."""
    whole = made(forge, **EARLIER[forge])
    folder = f".{forge}/workflows/"
    wanted = {path: text for path, text in whole.items() if path.startswith(folder) and "strategies" not in path}
    rest = {path: text for path, text in whole.items() if path not in wanted}
    earlier = (ROOT / "tests/data/init/several-events" / forge).iterdir()
    return {**rest, **{f"{folder}{path.name}": path.read_bytes() for path in earlier}}, wanted


def split(there):
    """The workflows after an upgrade, what it says about them, and the files of its second run that are not the same."""
    outcome = upgrade(INSTALL, templates(), there.get, [])
    gone = {file.path for file in outcome.files if file.state is FileState.OBSOLETE}
    after = {**there, **{file.path: file.content for file in outcome.files}}
    after = {path: text for path, text in after.items() if path not in gone}
    again = [
        file.path for file in upgrade(INSTALL, templates(), after.get, []).files if file.state is not FileState.SAME
    ]
    jobs = {path: text for path, text in after.items() if "/workflows/" in path and "strategies" not in path}
    return jobs, list(outcome.diagnostics), again


@pytest.mark.parametrize("forge", EARLIER)
def test_an_upgrade_moves_earlier_jobs_to_a_workflow_for_each_event(forge):
    there, wanted = with_earlier_jobs(forge)
    jobs, problems, again = split(there)
    assert (jobs.keys(), problems, again) == (wanted.keys(), [], [])
    # The job of a review only prints a line, and an apply checks out the branch of its event: both are moved as they are.
    moved = {"github": "gitops-review.yml", "gitea": "gitops-apply.yml"}[forge]
    assert [path for path in wanted if jobs[path] != wanted[path]] == [f".{forge}/workflows/{moved}"]


def test_moved_jobs_keep_what_the_repository_changed():
    there, wanted = with_earlier_jobs("github")
    path = ".github/workflows/gitops.yml"
    changes = {
        b'- cron: "17 * * * *"': b'- cron: "17 */6 * * *" # four times a day',
        b'paths: ["cluster/**", ': b'paths: ["cluster/**", "shared/**", ',
        b"'41 4 * * *'": b"'41 5 * * *'",
        b'- cron: "41 4 * * *"': b'- cron: "41 5 * * *"',
        b"    name: apply\n": b"    name: apply\n    env: {HTTPS_PROXY: http://proxy.example}\n",
        b"ubuntu-24.04": b"[self-hosted, graphs]",
        b"vars.GITOPS_PAUSED != 'true'": b"vars.GITOPS_RUNS == 'true'",
    }
    for old, new in changes.items():
        assert old in there[path]
        there[path] = there[path].replace(old, new)
    jobs, problems, _ = split(there)
    assert (jobs.keys(), problems) == (wanted.keys(), [])
    forms = {path.rpartition("-")[2].removesuffix(".yml"): yaml.safe_load(text) for path, text in jobs.items()}
    crons = {name: [each["cron"] for each in forms[name][True]["schedule"]] for name in ("sweep", "drift")}
    assert crons == {"sweep": ["17 */6 * * *"], "drift": ["41 5 * * *"]}
    assert "shared/**" in forms["apply"][True]["push"]["paths"]
    assert forms["apply"]["jobs"]["apply"]["env"] == {"HTTPS_PROXY": "http://proxy.example"}
    assert forms["command"]["jobs"]["command"]["runs-on"] == ["self-hosted", "graphs"]
    assert forms["verify"]["jobs"]["verify"]["if"] == "vars.GITOPS_RUNS == 'true'"


def test_jobs_of_the_first_release_are_moved_too():
    there, wanted = with_earlier_jobs("github")
    first = ROOT / "tests/data/doctor/first-release/gitops.yml"
    there[".github/workflows/gitops.yml"] = first.read_bytes()
    jobs, problems, _ = split(there)
    assert (jobs.keys(), problems) == (wanted.keys(), [])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"\n  apply:\n", b"\n  lint: {runs-on: ubuntu-24.04, steps: [{run: make}]}\n\n  apply:\n", "it has lint"),
        (b"\non:\n", b"\nenv: {DEBUG: 1}\n\non:\n", "it has env"),
        (b"\non:\n", b"\non:\n  release:\n", "it has the trigger release"),
        (b"types: [created]", b"types: [created, edited]", "its trigger issue_comment was changed"),
        (b"  merge_group:\n", b"  merge_group: &here\n", "it cannot be read"),
        (None, b"name: mine\n", ".github/workflows/gitops-sweep.yml exists"),
    ],
)
def test_jobs_that_cannot_be_moved_stay_where_they_are(old, new, said):
    there, _ = with_earlier_jobs("github")
    path = ".github/workflows/gitops.yml"
    if old is None:
        there[".github/workflows/gitops-sweep.yml"] = new
    else:
        assert old in there[path]
        there[path] = there[path].replace(old, new, 1)
    jobs, (problem,), _ = split(there)
    assert jobs == {each: text for each, text in there.items() if "/workflows/" in each and "strategies" not in each}
    assert (problem.code, str(problem.severity), problem.path) == ("init_file_differs", "warning", path)
    assert problem.message.endswith(said)


def test_init_makes_no_jobs_beside_those_of_an_earlier_release():
    there, _ = with_earlier_jobs("github")
    outcome = init(request(**EARLIER["github"]), templates(), INSTALL, there.get)
    assert [file.path for file in outcome.files if "/workflows/" in file.path] == []
    (problem,) = errors(outcome)
    assert (problem.path, problem.fix) == (
        ".github/workflows/gitops.yml",
        "to move its jobs to a file for each event: gitops init --upgrade",
    )


TICKS = {
    "github": ".github/workflows/gitops-strategies.yml",
    "gitea": ".gitea/workflows/gitops-strategies.yml",
    "gitlab": ".gitlab/gitops-strategies.gitlab-ci.yml",
}


@pytest.mark.parametrize("jobs", [OptionalJobs.STRATEGIES, OptionalJobs.PREVIEWS, OptionalJobs.DRILLS])
@pytest.mark.parametrize("forge", TICKS)
@pytest.mark.parametrize("chosen", [{}, {"storage": "s3://bucket/brain"}, {"action": PINNED}, {"enterprise": True}])
def test_optional_jobs_are_added_to_the_others_as_if_they_had_been_made_with_them(jobs, forge, chosen):
    before = made(forge, branch="trunk", **chosen)
    after = {f.path: f for f in upgrade(INSTALL, templates(), before.get, [], optional=[jobs]).files}
    added = {path: file.content for path, file in after.items() if file.state is FileState.NEW}
    whole = made(forge, branch="trunk", **{jobs.value: True}, **chosen)
    assert added == {path: content for path, content in whole.items() if path not in before}
    assert added
    assert {path for path, file in after.items() if file.state is FileState.RENEWED} == set()
    text = "\n".join(step.text for step in upgrade_steps("1.2.3", added))
    plain = "\n".join(step.text for step in upgrade_steps("1.2.3"))
    assert text != plain
    assert ("Let the bot preview requests, in gitops.yaml" in text) == (jobs is OptionalJobs.PREVIEWS)


@pytest.mark.parametrize(
    ("storage", "scratch"),
    [(None, "previews"), ("s3://bucket/brain/", "s3://bucket/brain/previews"), ("data", "previews")],
)
def test_previews_are_on_from_the_start_with_copies_beside_the_graphs(storage, scratch):
    rules = parse_bot_config(made(storage=storage, previews=True)["gitops.yaml"]).preview
    assert (rules.enabled, rules.scratch) == (True, scratch)
    assert not parse_bot_config(made(storage=storage)["gitops.yaml"]).preview.enabled


def test_jobs_of_previews_are_not_made_where_the_rules_have_no_previews():
    """The jobs would only say that previews are off, so the file that differs is named with the way out."""
    there = made()
    outcome = init(request(previews=True), templates(), INSTALL, there.get)
    fixes = {problem.path: problem.fix for problem in errors(outcome)}
    assert (
        fixes["gitops.yaml"] == "to add jobs that work by these rules: gitops init --upgrade --forge github --previews"
    )


def test_jobs_of_ticks_that_somebody_changed_are_kept():
    there = {**made(strategies=True), TICKS["github"]: b"name: mine\n"}
    outcome = upgrade(INSTALL, templates(), there.get, [], optional=[OptionalJobs.STRATEGIES])
    assert [f.path for f in outcome.files if f.state is FileState.DIFFERS] == [TICKS["github"]]


@pytest.mark.parametrize(
    ("without", "fix"),
    [
        ("gitops.yaml", "gitops init --strategies --new-bot-key FILE"),
        (".github/workflows/gitops-apply.yml", "gitops init --upgrade --strategies --forge github|gitlab|gitea"),
    ],
)
def test_ticks_have_no_place_where_there_are_no_other_jobs(without, fix):
    there = {path: content for path, content in made().items() if path != without}
    with pytest.raises(UsageError) as caught:
        upgrade(INSTALL, templates(), there.get, [], optional=[OptionalJobs.STRATEGIES])
    assert caught.value.fix == fix


@pytest.mark.parametrize("forge", TICKS)
@pytest.mark.parametrize(
    "chosen",
    [{}, {"storage": "s3://bucket/brain", "path": "."}, {"strategies": True}, {"previews": True, "drills": True}],
)
def test_rules_without_jobs_get_the_jobs_that_init_makes(forge, chosen):
    whole, bare = made(forge, apply_in_jobs=False, **chosen), made("hooks", **{**chosen, "strategies": False})
    there = {**bare, "gitops.yaml": whole["gitops.yaml"]}
    optional = [each for each in OptionalJobs if each in chosen]
    if optional and forge == "gitea":
        with pytest.raises(UsageError, match=r"the server (runs ticks|previews)"):
            upgrade(INSTALL, templates(), there.get, [], optional=optional, forge=ForgeKind.GITEA)
        return
    outcome = upgrade(INSTALL, templates(), there.get, [], optional=optional, forge=ForgeKind(forge))
    added = {file.path: file.content for file in outcome.files if file.state is FileState.NEW}
    assert added == {path: content for path, content in whole.items() if path not in there and path != CODEOWNERS[0]}
    again = upgrade(INSTALL, templates(), {**there, **added}.get, [], optional=optional, forge=ForgeKind(forge))
    assert {file.state for file in again.files} == {FileState.SAME}


def test_jobs_get_the_driver_of_targets_with_strategies_only_and_keep_it():
    texts = templates()
    plain = dependencies_of_jobs(texts, lambda _: None, strategies=False)
    more = dependencies_of_jobs(texts, lambda _: None, strategies=True)
    assert more == plain + texts["requirements-materialize.txt"]
    assert not re.search(r"^psycopg", plain, re.MULTILINE)
    assert dependencies_of_jobs(texts, {REQUIREMENTS: more.encode()}.get, strategies=False) == more


RELEASE = f"https://forge.example/v1/cluster_gitops-{gitops.__version__}-py3-none-any.whl#sha256={'a' * 64}"


def test_jobs_can_install_the_wheel_of_a_release_which_the_repository_does_not_have():
    files = install_files(released(RELEASE), "six==1.17.0 \\\n    --hash=sha256:0\n")
    assert not any(path.endswith(".whl") for path in files)
    url, _, digest = RELEASE.replace("#", " ").replace("sha256=", "").partition(" ")
    assert f"\ncluster-gitops @ {url} \\\n    --hash=sha256:{digest}\nsix" in files[REQUIREMENTS].decode()


@pytest.mark.parametrize(
    "address",
    [
        RELEASE.replace("https", "http"),
        RELEASE.partition("#")[0],
        RELEASE[:-1],
        RELEASE.replace("v1", "v 1"),
        RELEASE.replace("v1", "v1@x"),
        RELEASE.replace(gitops.__version__, "0.0.9"),
        RELEASE.replace("cluster_gitops-", "other-"),
    ],
)
def test_a_wheel_of_a_release_has_this_version_and_a_hash(address):
    with pytest.raises(UsageError):
        released(address)


@pytest.mark.parametrize("place", CODEOWNERS)
def test_owners_of_a_repository_that_has_some_are_kept(place):
    assert made()[CODEOWNERS[0]].decode().splitlines()[1] == "/gitops.yaml ada@brain.example"
    outcome = init(request(), templates(), INSTALL, {place: b"* @team\n"}.get)
    assert (errors(outcome), [f.path for f in outcome.files if f.path in CODEOWNERS]) == ([], [])
    again = init(request(), templates(), INSTALL, made().get)
    assert {str(file.state) for file in again.files} == {"same"}


def test_the_steps_of_github_make_the_plan_a_required_check():
    """Every command is one that a shell reads; the rules arrive as the API takes them."""
    people = (("ada@brain.example", SOMEBODY), ("ben@brain.example", SOMEBODY))
    steps = next_steps(request(storage="s3://bucket/brain", approvers=people, branch="release/2.x"))
    commands = [command for step in steps for command in step.commands]
    for word in ("AWS_ROLE_ARN", "AWS_REGION", "AWS_SECRET_ACCESS_KEY", "codeowners/errors", "environments/gitops"):
        assert any(word in command for command in commands), word
    (rules,) = [command for command in commands if "/rulesets" in command]
    script = f"gh() {{ [ \"$*\" = 'api --method POST repos/{{owner}}/{{repo}}/rulesets --input -' ] && cat; }}\n{rules}"
    done = subprocess.run(["bash", "-euc", script], capture_output=True, check=True)
    form = json.loads(done.stdout)
    assert form["conditions"]["ref_name"]["include"] == ["refs/heads/release/2.x"]
    checks, reviews = form["rules"]
    assert checks["parameters"]["required_status_checks"] == [{"context": "gitops/plan/brain"}]
    assert reviews["parameters"]["require_code_owner_review"] is True
    assert any("720 runs" in step.text for step in steps)


def test_what_jobs_install_names_the_wheel_by_its_hash():
    text = INSTALL[REQUIREMENTS].decode()
    (name,) = [path.rpartition("/")[2] for path in INSTALL if path.endswith(".whl")]
    digest = sha256(INSTALL[f"{INSTALL_FOLDER}/{name}"]).hexdigest()
    assert f"./{name} \\\n    --hash=sha256:{digest}\n" in text


def test_a_cluster_folder_that_is_there_is_left_alone():
    outcome = init(request(), templates(), INSTALL, {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"}.get)
    states = {f.path: f.state for f in outcome.files if f.path.startswith("cluster/")}
    # So that git changes no line ends of what digests are made of.
    assert states.pop("cluster/.gitattributes") is FileState.NEW
    assert set(states.values()) == {FileState.OWN}
    assert errors(outcome) == []


def test_rules_that_are_there_must_know_the_bot():
    files = {".gitops/allowed_signers": made()[".gitops/allowed_signers"].split(b"\n", 1)[1]}
    codes = {d.code for d in errors(init(request(), templates(), INSTALL, files.get))}
    assert codes == {"init_file_differs", "trust_missing"}


def test_rules_that_are_there_may_keep_their_keys_elsewhere():
    files = made()
    config = files["gitops.yaml"].replace(b".gitops/allowed_signers", b"keys")
    there = {"gitops.yaml": config, "keys": files[".gitops/allowed_signers"]}
    assert errors(init(request(), templates(), INSTALL, there.get)) == []
    codes = [d.code for d in errors(init(request("hooks"), templates(), {}, there.get))]
    assert codes == ["init_file_differs"]


@pytest.mark.parametrize("forge", TICKS)
def test_jobs_are_made_beside_rules_that_say_what_the_request_says(forge):
    rules = {path: content + b"# the team\n" for path, content in made("hooks").items() if path in TRUST}
    outcome = init(request(forge), templates(), INSTALL, rules.get)
    assert {file.path: file.state for file in outcome.files if file.path in TRUST} == dict.fromkeys(
        TRUST, FileState.OWN
    )
    assert errors(outcome) == []


@pytest.mark.parametrize(
    "asked",
    [
        {"branch": "trunk"},
        {"cluster": "brains"},
        {"path": "brain"},
        {"bot_key": SOMEBODY},
        {"bot": "ada@brain.example", "bot_key": KEYS["ada@brain.example"], "approvers": (("b@x.example", SOMEBODY),)},
        {"approvers": (("ada@brain.example", KEYS["ada@brain.example"]), ("ben@brain.example", SOMEBODY))},
        {"accounts": (("github:7", "ada@brain.example"),)},
    ],
)
def test_a_request_that_the_rules_contradict_fails_and_names_the_command_that_works(asked):
    rules = {path: content + b"# the team\n" for path, content in made("hooks").items() if path in TRUST}
    outcome = init(request(**asked), templates(), INSTALL, rules.get)
    differ = {each.path: each.fix for each in errors(outcome) if each.code == "init_file_differs"}
    fix = "to add jobs that work by these rules: gitops init --upgrade --forge github"
    assert differ == dict.fromkeys(TRUST, fix)


CI = b"stages: [test]\n"
INCLUDED = b"include:\n  - local: .gitlab/gitops.gitlab-ci.yml\n"


@pytest.mark.parametrize(("ci", "state"), [(CI, FileState.DIFFERS), (CI + INCLUDED, FileState.OWN)])
def test_a_pipeline_of_its_own_needs_only_the_include(ci, state):
    outcome = init(request("gitlab"), templates(), INSTALL, {".gitlab-ci.yml": ci}.get)
    assert {f.path: f.state for f in outcome.files}[".gitlab-ci.yml"] is state
    fixes = [each.fix for each in errors(outcome)]
    assert fixes == ([] if state is FileState.OWN else [f"{INCLUDE_FIX}: - local: .gitlab/gitops.gitlab-ci.yml"])


INCLUDE_FIX = "Include the jobs in .gitlab-ci.yml, in its list `include` if it has one"


def test_one_key_for_bot_and_approver_is_refused():
    key = KEYS["bot@brain.example"]
    with pytest.raises(GitopsError) as caught:
        init(request(approvers=(("ada@brain.example", key),)), templates(), INSTALL, lambda _: None)
    assert caught.value.code == "trust_invalid"


def test_a_bot_that_approves_is_no_approver():
    with pytest.raises(GitopsError) as caught:
        init(request(approvers=(("bot@brain.example", SOMEBODY),)), templates(), INSTALL, lambda _: None)
    assert caught.value.code == "trust_missing"


UNFIT = {
    "cluster": ["", "1brain", "a b", "a/b", "${{x}}", "a\nb", '"', "brain@x@"],
    "environment": ["", "a b", "$(x)"],
    "path": ["", "/etc", "..", "a/../b", "a//b", ".git", "a/.git", "a b", "a\n", "-x", "${{x}}"],
    "branch": ["", "gitops/x", "a..b", "a.lock", "-x", "a b", 'a"', "a/", "${{x}}", "a\n"],
    "repository": ["", "a b", "-x", "${{x}}", "a\n"],
    "bot": ["", "a b", "*", "a,b", '"', "$(x)", "${{x}}", "-x", "a\n", "@x"],
    "storage": ["ftp://x/y", "s3://", "s3://Bucket_/x\n", "s3://b/@BOT@"],
    "action": ["", "./x", "a/b@main", "a/b@v1", f"a/b@{'0' * 40}\n", f"a b/c@{'0' * 40}"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in UNFIT.items() for text in texts])
def test_a_word_that_could_mean_more_is_refused(name, text):
    with pytest.raises(UsageError):
        init(request(**{name: text}), templates(), INSTALL, lambda _: None)


@given(
    text=st.text(max_size=30) | st.from_regex(r"[A-Za-z0-9_.-]{1,5}", fullmatch=True),
    name=st.sampled_from(sorted(UNFIT)),
)
def test_whatever_is_taken_is_only_a_word(text, name):
    """Law: a request either is refused, or makes documents that have the same shape as ever."""
    try:
        files = made("github", **{name: text})
    except GitopsError:
        return
    usual = made("github", **({"storage": "s3://bucket/x"} if name == "storage" else {}))
    folder = text if name == "path" and text != "." else "" if name == "path" else "cluster"
    files["cluster"] = files[f"{folder}/cluster.yaml".lstrip("/")]
    usual["cluster"] = usual["cluster/cluster.yaml"]
    for path in (".github/workflows/gitops-apply.yml", ".github/workflows/gitops-plan.yml", "gitops.yaml", "cluster"):
        assert _shape(yaml.safe_load(files[path])) == _shape(yaml.safe_load(usual[path])) or name == "action"


def _shape(value):
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    return [_shape(each) for each in value] if isinstance(value, list) else type(value)


def test_yaml_does_not_read_a_name_as_something_else():
    for word in ("yes", "Null", "true", "1", "0x10", "1e3"):
        files = made("hooks", repository=word, bot=word, path=word, branch=word)
        config = parse_bot_config(files["gitops.yaml"])
        rule = config.cluster(None)
        assert (config.repository, config.ledger.signers, rule.path, rule.branch) == (word, (word,), word, word)
    for word in ("yes", "Null", "true", "off"):
        files = made("hooks", cluster=word, environment=word)
        rule = parse_bot_config(files["gitops.yaml"]).cluster(None)
        assert (rule.name, rule.environment) == (word, word)
        assert yaml.safe_load(files["cluster/cluster.yaml"])["metadata"]["name"] == word


@pytest.mark.parametrize("forge", FORGES)
def test_steps_name_what_was_chosen(forge):
    wanted = request(forge, branch="trunk", storage="s3://bucket/brain", strategies=True)
    steps = next_steps(wanted, "/srv/company.git", "/keys/bot key")
    text = "\n".join([*(s.text for s in steps), *(c for s in steps for c in s.commands)])
    assert "bot key" in text
    assert "HEAD:refs/heads/trunk" in text
    assert "s3://bucket/brain" in text
    if forge == "hooks":
        assert "git -C /srv/company.git config user.signingKey '/keys/bot key'" in text
        assert "gitops bot tick --scheduled --repo /srv/company.git" in text
    else:
        assert "MZ_URL" in text


def test_jobs_that_only_read_are_prepared_once_and_a_server_gets_a_timer_for_what_jobs_would_do():
    chosen = {"previews": True, "drills": True, "storage": "s3://bucket/brain"}
    steps = {forge: next_steps(request(forge, **chosen), "/srv/company.git", "/keys/key") for forge in FORGES}
    for forge, word in (
        ("github", "gitops-read`"),
        ("gitlab", "scope gitops-read"),
        ("gitea", "READ_AWS_ACCESS_KEY_ID"),
    ):
        (reader,) = [step for step in steps[forge] if word in step.text]
        assert "can only read the bucket, and write below preview.scratch" in reader.text
    commands = [command for step in steps["hooks"] for command in step.commands]
    assert {f"gitops bot {verb} --repo /srv/company.git" for verb in ("preview", "drill")} <= set(commands)
    served = next_steps(request("gitea", **chosen, apply_in_jobs=False))
    assert "gitops bot drill --repo /srv/brain.git --forge gitea" in [c for step in served for c in step.commands]


def test_who_is_alone_is_told_to_find_another():
    alone = request()
    two = dataclasses.replace(alone, approvers=(*alone.approvers, ("bo@brain.example", SOMEBODY)))
    assert len(next_steps(alone)) == len(next_steps(two)) + 1


def test_a_server_elsewhere_gets_the_key_and_the_way_out_of_a_push_that_was_too_early():
    steps = [step.text for step in next_steps(request("hooks"), None, "/home/ada/bot-key")]
    (copied,) = [place for place, text in enumerate(steps) if "delete /home/ada/bot-key here" in text]
    (configured,) = [place for place, text in enumerate(steps) if text.endswith("gitops bot sweep --repo SERVER")]
    (pushed,) = [place for place, text in enumerate(steps) if text.startswith("Commit and push")]
    assert copied < configured < pushed
    assert not any(
        "delete" in step.text for step in next_steps(request("hooks"), "/srv/company.git", "/home/ada/bot-key")
    )


_ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import gitops
from gitops.core.errors import GitopsError
from gitops.init.install import running_wheel
gitops.__version__ = sys.argv[2] or gitops.__version__
try:
    made = running_wheel()
except GitopsError as error:
    print(json.dumps([str(error.code), error.detail]))
else:
    print(json.dumps([made.name, made.sha256]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, installed by pip into a folder."""
    folder = tmp_path_factory.mktemp("installed")
    made = running_wheel()
    (folder / made.name).write_bytes(made.content)
    (folder / "requirements.txt").write_text(f"./{made.name} --hash=sha256:{made.sha256}\n")
    command = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--isolated",
        "--no-deps",
        "--no-index",
        "--require-hashes",
    )
    options = ("--disable-pip-version-check", "--root-user-action=ignore", "--target", "site", "-r", "requirements.txt")
    subprocess.run((*command, *options), cwd=folder, check=True, timeout=120)
    return folder / "site"


def _ask(site: Path, version: str = "") -> list[str]:
    """Name and hash of the wheel that this installation makes, or the code and the detail of the refusal."""
    done = subprocess.run(
        (sys.executable, "-I", "-c", _ASK, str(site), version), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_its_record_holds_and_it_is_made_alike_twice() -> None:
    made = running_wheel()
    assert made.content == running_wheel().content
    with zipfile.ZipFile(io.BytesIO(made.content)) as archive:
        names = archive.namelist()
        assert len(set(names)) == len(names)
        assert not any(name.startswith("/") or ".." in name or "__pycache__" in name for name in names)
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        assert [row[0] for row in rows] == names
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            assert digest == "sha256=" + urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
            assert int(size) == len(content)
        assert rows[-1] == [record, "", ""]
        assert archive.getinfo("gitops/__init__.py").date_time == (1980, 1, 1, 0, 0, 0)
        assert "gitops/_data/scaffold/requirements.txt" in names


def test_the_order_of_files_does_not_matter() -> None:
    files = {"b.py": b"2", "a.py": b"1", "x-1.dist-info/METADATA": b""}
    assert pack(files, "x-1.dist-info") == pack(dict(reversed(files.items())), "x-1.dist-info")


def test_what_pip_installed_makes_the_same_wheel(installed: Path) -> None:
    made = running_wheel()
    assert _ask(installed) == [made.name, made.sha256]


@pytest.mark.parametrize("name", ["gitops/cli/main.py", "gitops/_data/scaffold/requirements.txt", "gitops/py.typed"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_changed_installation_is_refused(installed: Path, name: str, missing: bool, tmp_path: Path) -> None:
    site = shutil.copytree(installed, tmp_path / "site", copy_function=os.link)
    content = (site / name).read_bytes()
    (site / name).unlink()
    if not missing:
        (site / name).write_bytes(content + b"\n")
    code, detail = _ask(site)
    assert code == "installation_unusable"
    assert name in detail


def test_another_version_is_refused(installed: Path) -> None:
    code, detail = _ask(installed, "9.9")
    assert code == "installation_unusable"
    assert "version 9.9 runs" in detail


def test_a_program_that_is_not_installed_is_refused(installed: Path, tmp_path: Path) -> None:
    site = shutil.copytree(installed, tmp_path / "site")
    (info,) = site.glob("*.dist-info")
    lines = [line for line in (info / "RECORD").read_text().splitlines() if not line.startswith("gitops/")]
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    code, detail = _ask(site)
    assert code == "installation_unusable"
    assert "neither an installation nor a checkout" in detail
