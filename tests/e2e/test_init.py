"""`gitops init` on real repositories, and the way from an empty folder to an applied cluster that the pages show."""

from __future__ import annotations

import builtins
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from gitops.cli.main import main
from tests.support.loop import ROOT
from tests.support.prefork import PROGRAM
from tests.support.terminal import on_terminal, shell_blocks


@dataclass(frozen=True)
class Machine:
    """Somebody's machine: a home with a key and a git configuration, `gitops` on the PATH, and a folder to work in."""

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path, **more: str) -> Machine:
        home, programs, work = folder / "home", folder / "bin", folder / "work"
        for place in (home, programs, work):
            place.mkdir()
        program = programs / "gitops"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
        program.chmod(0o755)
        environ = {
            **{k: v for k, v in os.environ.items() if k.startswith("COVERAGE")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
            **more,
        }
        machine = cls(work, environ)
        machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / "key"))
        (home / ".gitconfig").write_text(
            f"[user]\n\tname = ada\n\temail = ada@brain.example\n\tsigningKey = {home / 'key'}\n"
        )
        return machine

    def run(self, *command: str, at: str = ".", check: bool = True) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=self.folder / at,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}"
        return done.returncode, done.stdout

    def init(self, *arguments: str, at: str = "company", check: bool = True) -> tuple[int, str]:
        """Without a terminal."""
        key = self.folder / "bot-key"
        return self.run(
            "gitops", "init", "--cluster", "brain", "--new-bot-key", str(key), *arguments, at=at, check=check
        )

    def files(self, at: str = "company") -> dict[str, bytes]:
        """What is in the work tree."""
        root = self.folder / at
        paths = (p for p in root.rglob("*") if p.is_file() and ".git" not in p.relative_to(root).parts)
        return {str(p.relative_to(root)): p.read_bytes() for p in paths}


_STARTED = "Getting started"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine.of(tmp_path)
    machine.run("git", "init", "-q", "--bare", "-b", "main", "company.git")
    machine.run("git", "clone", "-q", str(machine.folder / "company.git"), "company")
    return machine


@pytest.mark.e2e
@pytest.mark.journey
# About 60 commands: on a busy machine they take longer than one test may by default.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_from_an_empty_folder_to_a_first_approved_delete(tmp_path: Path, object_format: str) -> None:
    """Only what the page says is done."""
    machine = Machine.of(tmp_path, GIT_DEFAULT_HASH=object_format)
    blocks = shell_blocks("README.md", _STARTED)
    page = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"## {_STARTED}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\*\*(\d)\. ", page, re.MULTILINE)
    assert (steps, len(blocks)) == ([str(n) for n in range(1, 9)], 8)
    assert "in eight steps" in page
    shown = on_terminal("".join(blocks), {"Type yes to sign this: ": "yes"}, machine.folder, machine.environ)
    assert "gitops: apply of brain: 4 applied" in shown
    assert "needs approval: graph.drafts" in shown
    assert "Approved: delete graph.drafts, by ben@brain.example" in shown
    # The last two commands are `gitops log --limit 1` and `gitops audit`.
    log = shown[shown.rindex("\nentry ") :]
    assert re.search(r"^  delete graph.drafts  approved by ben@brain.example ", log, re.MULTILINE)
    assert "audit good: brain" in log
    folder = tmp_path / "home" / "gitops-tutorial"
    _, status = machine.run("gitops", "status", "--repo", ".", "--json", at=str(folder / "company-ben"))
    assert set(json.loads(status)["resource_digests"]) & {"graph.notes", "graph.drafts"} == {"graph.notes"}
    assert list(folder.rglob("notes.omni/**/*.lance"))
    assert not list(folder.rglob("drafts.omni/**/*.lance"))
    # The tutorial goes on from here, with two commands that fail.
    script = "".join(shell_blocks("docs/tutorial.md"))
    for failing in ("gitops validate --config cluster\n", "gitops request merge 4\n"):
        script = script.replace(failing, f"! {failing}", 1)
    shown = on_terminal(script, {"Type yes to sign this: ": "yes"}, folder / "company-ben", machine.environ)
    page = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    printed = [
        line
        for block in re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert [line for line in printed if line.strip() not in shown] == []
    assert re.search(r"^  update schema.notes  approved by ben@brain.example ", shown, re.MULTILINE)
    assert "ben@brain.example saw 4 rows" in shown
    assert "audit good: brain" in shown


@pytest.mark.e2e
def test_the_steps_that_it_prints_lead_there(machine: Machine) -> None:
    _, text = machine.init("--json", "--path", "folder of".replace(" ", "-"))
    form = json.loads(text)
    assert form["ok"]
    assert {f["path"] for f in form["files"] if f["made"]} == set(machine.files())
    commands = [command for step in form["next"] for command in step["commands"]]
    _, told = machine.run("bash", "-euc", "\n".join(commands), at="company")
    assert "gitops: apply of brain: 4 applied" in told
    assert "audit good" in told


@pytest.mark.e2e
def test_people_are_listed_before_the_rules_are_in_force(machine: Machine) -> None:
    """With one approver, or without accounts, the first push would lock the rules: that is said before the push."""
    _, text = machine.init("--yes", "--forge", "github", "--approver", f"ben@brain.example={_person(machine, 'ben')}")
    assert (
        "WARN  init_few_approvers gitops.yaml: no account on github is listed for ada@brain.example, ben@brain.example"
        in text
    )
    steps = text.partition("Remaining steps:")[2]
    assert steps.index("add the accounts of ada@brain.example, ben@brain.example") < steps.index("Commit and push")
    machine.run("bash", "-euc", "git clean -qfdx", at="company")
    _, text = machine.init("--yes")
    assert "init_few_approvers" in text
    steps = text.partition("Remaining steps:")[2]
    assert steps.index("add a second person to .gitops/allowed_signers") < steps.index("Commit and push")


def _person(machine: Machine, name: str) -> Path:
    machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name)
    return machine.folder / name


@pytest.mark.e2e
def test_rules_that_nobody_can_change_are_called_that_and_the_page_leads_out(machine: Machine) -> None:
    """The rules in force list one person, who is the author of the change that adds another."""
    _, text = machine.init("--json")
    commands = [command for step in json.loads(text)["next"] for command in step["commands"]]
    machine.run("bash", "-euc", "\n".join(commands), at="company")
    line = f'ben@brain.example namespaces="git" {_person(machine, "ben").with_suffix(".pub").read_text()}'
    signers, rules = (machine.folder / "company" / name for name in (".gitops/allowed_signers", "gitops.yaml"))
    signers.write_text(signers.read_text() + line)
    rules.write_text(rules.read_text().replace("[ada@brain.example]", "[ada@brain.example, ben@brain.example]"))
    add = "git switch -qc ben; git commit -qam 'Add Ben'; git push -q origin ben; gitops request merge 1 --force"
    assert machine.run("bash", "-euc", add, at="company", check=False)[0] == 3
    _, text = machine.run("gitops", "status", "--repo", ".", at="company")
    assert "; no one can approve it under the rules in force: gitops doctor\n" in text
    _, text = machine.run("gitops", "doctor", at="company", check=False)
    assert "ERROR    trust.pending [brain]: keys or rules of the branch differ" in text
    assert (
        "trust.quorum [brain]: by the rules in force, which differ from those of the branch: 1 person can approve"
        in text
    )
    assert "trust.quorum: " not in text
    on_server, as_ben = shell_blocks("docs/recovery.md", "No one can approve")
    machine.run("bash", "-euc", on_server, at="company.git")
    machine.run("git", "clone", "-q", str(machine.folder / "company.git"), "of-ben")
    for name, value in (("user.email", "ben@brain.example"), ("user.signingKey", str(machine.folder / "ben"))):
        machine.run("git", "config", name, value, at="of-ben")
    on_terminal(as_ben, {"Type yes to sign this: ": "yes"}, machine.folder / "of-ben", machine.environ)
    # Ada's clone saw the earlier ledger, and has to accept the new one.
    accept = as_ben.replace("gitops approve cluster.brain\n", "")
    _, text = machine.run("bash", "-euc", f"! gitops status --repo .\n{accept}gitops status --repo .", at="company")
    assert "ledger_diverged" in text
    assert "in sync: yes" in text
    _, text = machine.run("gitops", "doctor", at="company")
    assert "trust.pending" not in text
    assert "trust.quorum: 2 people can approve" in text
    _, text = machine.run("gitops", "audit", at="company")
    assert "follows an earlier ledger: graphs without a ledger: notes" in text


@pytest.mark.e2e
def test_running_it_again_changes_nothing(machine: Machine) -> None:
    machine.init("--yes")
    before, key = machine.files(), (machine.folder / "bot-key").read_bytes()
    code, text = machine.init("--yes")
    assert code == 0
    assert "kept gitops.yaml: it is the same" in text
    assert "made" not in text.partition("What is left")[0]
    assert machine.files() == before
    assert (machine.folder / "bot-key").read_bytes() == key


def _signing(machine: Machine) -> dict[str, str]:
    """The settings of the clone about signatures."""
    _, text = machine.run("git", "config", "--local", "--list", at="company")
    pairs = (line.partition("=")[::2] for line in text.splitlines())
    return {name: value for name, value in pairs if name.startswith(("gpg.", "commit.", "push.", "user."))}


@pytest.mark.e2e
def test_commits_are_signed_from_the_start(machine: Machine) -> None:
    _, text = machine.init("--yes")
    assert "your commits are signed" in text
    assert _signing(machine) == {"gpg.format": "ssh", "commit.gpgsign": "true", "push.gpgsign": "if-asked"}
    machine.run("git", "add", "--all", at="company")
    machine.run("git", "commit", "-q", "-m", "Start", at="company")
    checked = ("git", "-c", "gpg.ssh.allowedSignersFile=.gitops/allowed_signers", "verify-commit", "HEAD")
    assert 'Good "git" signature for ada@brain.example' in machine.run(*checked, at="company")[1]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("before", "words", "after"),
    [
        ({}, ("--no-signing",), {}),
        ({"gpg.format": "openpgp"}, (), {"gpg.format": "openpgp"}),
        (
            {"commit.gpgsign": "false"},
            (),
            {"commit.gpgsign": "false", "gpg.format": "ssh", "push.gpgsign": "if-asked"},
        ),
    ],
)
def test_what_people_have_set_about_signing_stays(
    machine: Machine, before: dict[str, str], words: tuple[str, ...], after: dict[str, str]
) -> None:
    for name, value in before.items():
        machine.run("git", "config", name, value, at="company")
    machine.init("--yes", *words)
    assert _signing(machine) == after


@pytest.mark.e2e
def test_accounts_of_the_forge_are_listed_from_the_start(machine: Machine) -> None:
    _, text = machine.init("--yes", "--forge", "github", "--account", "github:583231")
    assert b'accounts: {"github:583231": ada@brain.example}' in machine.files()["gitops.yaml"]
    assert "add the accounts of" not in text


@pytest.mark.e2e
def test_accounts_that_are_missing_are_a_step_and_wrong_ones_are_refused(machine: Machine) -> None:
    for wrong in ("octocat", "github:0", "ben@brain.example=github:7", 'github:7"}\nx: {"a'):
        code, text = machine.init("--yes", "--forge", "github", "--account", wrong, check=False)
        assert (code, "usage_error" in text) == (2, True)
    assert machine.files() == {}
    _, text = machine.init("--yes", "--forge", "github")
    assert "add the accounts of ada@brain.example to `approvals.accounts`" in text


@pytest.mark.e2e
@pytest.mark.parametrize("flags", [("--yes",), ("--diff",), ("--json",)])
def test_a_file_that_differs_stays_and_fails_the_command(machine: Machine, flags: tuple[str, ...]) -> None:
    machine.init("--yes")
    place = machine.folder / "company/gitops.yaml"
    mine = place.read_bytes() + b"apply:\n  parallel: 2\n"
    place.write_bytes(mine)
    code, text = machine.init(*flags, check=False)
    assert code == (0 if flags == ("--diff",) else 1)
    assert "init_file_differs" in text
    assert place.read_bytes() == mine
    if flags == ("--diff",):
        assert "-  parallel: 2" in text


@pytest.mark.e2e
def test_a_difference_elsewhere_does_not_hold_up_the_rest(machine: Machine) -> None:
    machine.init("--yes")
    signers = machine.folder / "company/.gitops/allowed_signers"
    signers.write_bytes(signers.read_bytes() + b"# the team\n")
    owned = machine.folder / "company/.gitlab-ci.yml"
    owned.write_text("stages: [test]\n")
    code, text = machine.init("--yes", "--forge", "gitlab", check=False)
    assert code == 1
    assert "made .gitlab/gitops.gitlab-ci.yml" in text
    assert "kept .gitops/allowed_signers: the repository has its own" in text
    assert signers.read_bytes().endswith(b"# the team\n")
    # With the line of the remedy, the same command has nothing left to do.
    (include,) = re.findall(r"fix: Include the jobs in .*: (- local: \S+)$", text, re.MULTILINE)
    owned.write_text(f"stages: [test]\ninclude:\n  {include}\n")
    assert machine.init("--yes", "--forge", "gitlab")[0] == 0


@pytest.mark.e2e
def test_an_upgrade_shows_what_a_pipeline_of_gitlab_has_to_include(machine: Machine) -> None:
    machine.init("--yes")
    owned = machine.folder / "company/.gitlab-ci.yml"
    owned.write_text("stages: [test]\n")
    _, text = machine.run("gitops", "init", "--upgrade", "--forge", "gitlab", at="company")
    lines = re.findall(r"^     (include:|  - local: \S+)$", text, re.MULTILINE)
    assert lines, text
    with owned.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    (included,) = yaml.safe_load(owned.read_text())["include"]
    assert included["local"] in machine.files()
    _, text = machine.run("gitops", "init", "--upgrade", "--forge", "gitlab", at="company")
    assert "Remaining steps" not in text


@pytest.mark.e2e
def test_a_job_that_publishes_reports_is_made_only_where_pages_are(machine: Machine) -> None:
    code, text = machine.init("--yes", "--forge", "gitea", "--report", check=False)
    assert (code, "gitops report --output DIR" in text) == (2, True)
    code, text = machine.run("gitops", "init", "--upgrade", "--report", at="company", check=False)
    assert (code, "cannot be combined with --upgrade" in text) == (2, True)
    _, text = machine.init("--yes", "--forge", "github", "--report")
    assert ".github/workflows/gitops-report.yml" in machine.files()
    assert "visibility of the pages (Settings > Pages)" in text


@pytest.mark.e2e
@pytest.mark.parametrize("option", ["--bot-key", "--approver", "--key", "--new-bot-key"])
def test_the_remedy_for_a_key_names_the_option_that_it_is_for(machine: Machine, option: str) -> None:
    good = {"--bot-key": str(machine.folder / "bot.pub"), "--key": str(Path(machine.environ["HOME"]) / "key.pub")}
    machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "bot")
    (machine.folder / "half.pub").write_text("x")
    bad = {"--approver": "ben@x.example=none.pub", "--new-bot-key": str(machine.folder / "half")}.get(
        option, "none.pub"
    )
    chosen = {**good, option: bad}
    if option == "--new-bot-key":
        del chosen["--bot-key"]
    given = [word for pair in chosen.items() for word in pair]
    code, text = machine.run("gitops", "init", "--yes", *given, at="company", check=False)
    (remedy,) = re.findall(r"gitops init --yes .*FILE", text)
    assert (code, "init_key_refused" in text, remedy.count(option), bad in remedy) == (1, True, 1, False)
    free = machine.folder / ("new" if option == "--new-bot-key" else "other.pub")
    if option != "--new-bot-key":
        machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "other")
    machine.run(*remedy.replace("FILE", str(free)).split(), at="company")


@pytest.mark.e2e
def test_diff_writes_nothing(machine: Machine) -> None:
    machine.init("--yes")
    workflow = machine.folder / "company/.github/workflows/gitops-apply.yml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text("name: mine\n")
    before = machine.files()
    _, text = machine.init("--diff", "--forge", "github")
    assert "+++ b/.github/workflows/gitops-apply.yml" in text
    assert "init_file_differs" in text
    assert machine.files() == before


@pytest.mark.e2e
def test_an_upgrade_renews_what_jobs_install_and_nothing_else(machine: Machine) -> None:
    machine.init("--yes", "--forge", "github")
    before = machine.files()
    (wheel,) = [path for path in before if path.endswith(".whl")]
    install = machine.folder / "company/.gitops/install"
    (machine.folder / "company" / wheel).rename(install / "cluster_gitops-0.0.9-py3-none-any.whl")
    (install / "requirements.txt").write_text("./cluster_gitops-0.0.9-py3-none-any.whl\n")
    (machine.folder / "company/.github/actions/gitops/action.yml").write_text("name: gitops\n")
    (machine.folder / "company/gitops.yaml").write_text("mine\n")
    old = machine.files()
    _, text = machine.run("gitops", "init", "--upgrade", "--diff", at="company")
    assert machine.files() == old
    assert f"would make {wheel}" in text
    assert f"binary file {wheel}: {len(before[wheel])} bytes, SHA-256 {sha256(before[wheel]).hexdigest()}" in text
    code, text = machine.init("--yes", "--forge", "github", check=False)
    assert code == 1
    assert "gitops init --upgrade renews it" in text
    assert machine.files() == old
    _, text = machine.run("gitops", "init", "--upgrade", at="company")
    assert "removed .gitops/install/cluster_gitops-0.0.9-py3-none-any.whl" in text
    assert machine.files() == {**before, "gitops.yaml": b"mine\n"}
    _, text = machine.run("gitops", "init", "--upgrade", "--json", at="company")
    form = json.loads(text)
    assert ({file["state"] for file in form["files"]}, form["next"]) == ({"same"}, [])
    (machine.folder / "company/gitops.yaml").write_bytes(before["gitops.yaml"])
    _, text = machine.run("gitops", "init", "--upgrade", "--strategies", at="company")
    assert "made .github/workflows/gitops-strategies.yml" in text
    assert "gh secret set MZ_URL --env gitops" in text
    assert "\npsycopg==" in (install / "requirements.txt").read_text()


@pytest.mark.e2e
def test_the_new_key_is_for_its_owner_alone(machine: Machine) -> None:
    machine.init("--yes")
    assert (machine.folder / "bot-key").stat().st_mode & 0o777 == 0o600
    assert (machine.folder / "bot-key.pub").read_text().split()[1] in machine.files()[
        ".gitops/allowed_signers"
    ].decode()
    assert not any(b"PRIVATE KEY" in content for content in machine.files().values())


@pytest.mark.e2e
@pytest.mark.parametrize("place", ["company/key", "company/.git/key", "company/../company/key", "link/key"])
def test_a_private_key_in_a_repository_is_refused(machine: Machine, place: str) -> None:
    (machine.folder / "link").symlink_to(machine.folder / "company")
    code, text = machine.run(
        "gitops", "init", "--yes", "--new-bot-key", str(machine.folder / place), at="company", check=False
    )
    assert code == 1
    assert "init_key_refused" in text
    assert machine.files() == {}
    assert not list((machine.folder / "company").rglob("key*"))


@pytest.mark.e2e
def test_half_a_pair_is_not_made_whole(machine: Machine) -> None:
    (machine.folder / "bot-key.pub").write_text("ssh-ed25519 AAAA\n")
    code, text = machine.init("--yes", check=False)
    assert code == 1
    assert "only one file of the key pair" in text
    assert not (machine.folder / "bot-key").exists()


@pytest.mark.e2e
def test_private_halves_are_never_opened(machine: Machine) -> None:
    home = Path(machine.environ["HOME"])
    (home / "key").unlink()
    (home / "key").mkdir()
    code, _ = machine.init("--yes")
    assert code == 0


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n", "is not a public SSH key"),
        (b"", "is not a public SSH key"),
        (b"ssh-ed25519 AAAA extra\nssh-ed25519 BBBB\n", "is not a public SSH key"),
        (b"\xff\xfe", "is not a public SSH key"),
    ],
)
def test_what_is_no_public_key_is_refused(machine: Machine, text: bytes, why: str) -> None:
    (machine.folder / "bad.pub").write_bytes(text)
    code, told = machine.init("--yes", "--approver", f"bo@x.example={machine.folder / 'bad.pub'}", check=False)
    assert code == 1
    assert "init_key_refused" in told
    assert why in told
    assert machine.files() == {}


@pytest.mark.e2e
def test_a_certificate_authority_or_a_key_of_another_kind_is_refused(machine: Machine) -> None:
    (machine.folder / "odd.pub").write_text("ssh-dss AAAAB3NzaC1kc3M=\n")
    code, told = machine.init("--yes", "--approver", f"bo@x.example={machine.folder / 'odd.pub'}", check=False)
    assert code == 1
    assert "trust_invalid" in told
    assert machine.files() == {}


@pytest.mark.e2e
@pytest.mark.parametrize("link", [".gitops", "cluster", "gitops.yaml"])
def test_links_are_not_followed(machine: Machine, link: str) -> None:
    elsewhere = machine.folder / "elsewhere"
    elsewhere.mkdir()
    (machine.folder / "company" / link).symlink_to(elsewhere)
    code, told = machine.init("--yes", check=False)
    assert code == 1
    assert "source_unreadable" in told
    assert list(elsewhere.iterdir()) == []


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("at", "arguments", "said"),
    [
        ("company.git", (), "bare repository"),
        ("company/below", (), "is not the root of the repository"),
        (".", (), "not_a_repository"),
        ("company", ("--forge", "github", "--cluster", "a b"), "the cluster 'a b' cannot be used"),
        ("company", ("--approver", "bo"), "PRINCIPAL=FILE"),
        ("company", ("--bot-key", "x"), "use one of them"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    machine: Machine, at: str, arguments: tuple[str, ...], said: str
) -> None:
    (machine.folder / "company/below").mkdir()
    code, told = machine.init("--yes", *arguments, at=at, check=False)
    assert code in (1, 2)
    assert said in told
    assert machine.files() == {}


@pytest.mark.e2e
def test_without_a_key_of_the_bot_nothing_is_made(machine: Machine) -> None:
    code, told = machine.run("gitops", "init", "--yes", at="company", check=False)
    assert code == 1
    assert "init_key_missing" in told
    create, use = "gitops init --yes --new-bot-key FILE", "gitops init --yes --bot-key FILE"
    assert f"fix: create one: {create}; or use an existing one: {use}" in told
    assert machine.files() == {}


@pytest.mark.e2e
def test_the_server_is_configured_with_the_whole_path_of_the_key_of_the_bot(machine: Machine) -> None:
    machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "own-key")
    _, told = machine.run("gitops", "init", "--yes", "--bot-key", "../own-key.pub", at="company")
    assert f"config user.signingKey {machine.folder / 'own-key'}\n" in told


@pytest.mark.e2e
def test_without_an_address_the_forge_must_be_said(machine: Machine) -> None:
    machine.run("git", "remote", "remove", "origin", at="company")
    code, told = machine.init("--yes", check=False)
    assert code == 2
    assert "set --forge to" in told


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("url", "file", "repository"),
    [
        ("https://github.com/brain/clusters.git", ".github/workflows/gitops-apply.yml", "brain/clusters"),
        ("git@gitlab.com:brain/deep/clusters.git", ".gitlab-ci.yml", "brain/deep/clusters"),
        ("ssh://git@codeberg.org/brain/clusters", ".gitea/workflows/gitops-plan.yml", "brain/clusters"),
    ],
)
def test_the_address_says_the_forge(machine: Machine, url: str, file: str, repository: str) -> None:
    machine.run("git", "remote", "set-url", "origin", url, at="company")
    machine.init("--yes")
    assert file in machine.files()
    assert f"repository: {repository}\n".encode() in machine.files()["gitops.yaml"]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("host", "server"), [("github.com", False), ("brain.ghe.com", False), ("work", False), ("git.brain.example", True)]
)
def test_workflows_for_a_github_server_use_only_what_its_manual_has(machine: Machine, host: str, server: bool) -> None:
    machine.run("git", "remote", "set-url", "origin", f"git@{host}:brain/clusters.git", at="company")
    machine.init("--yes", "--forge", "github")
    workflow = machine.files()[".github/workflows/gitops-apply.yml"]
    assert [b"queue:" in workflow, b"deployment:" in workflow] == [not server] * 2


@pytest.mark.e2e
def test_what_is_there_is_declared_and_not_changed(machine: Machine) -> None:
    """Schemas, queries and policies without a cluster.yaml: no sample is added, and the result is a valid cluster."""
    company = machine.folder / "company"
    shutil.copytree(ROOT / "examples/company-brain/knowledge", company / "brain/knowledge")
    shutil.copytree(ROOT / "examples/company-brain/legacy", company / "brain/legacy")
    (company / "brain/policies").mkdir()
    for name in ("knowledge", "other"):
        policy = company / f"brain/policies/{name}.policy.yaml"
        shutil.copy(ROOT / "examples/company-brain/policies/knowledge.policy.yaml", policy)
    before = machine.files()
    code, text = machine.init("--yes", "--path", "brain", "--dry-run")
    assert (code, machine.files()) == (0, before)
    assert "found schemas: brain/knowledge/schema.pg, brain/legacy/schema.pg: declared in cluster.yaml" in text
    assert not (machine.folder / "bot-key").exists()
    _, text = machine.init("--yes", "--path", "brain")
    assert "found policies: brain/policies/knowledge.policy.yaml, brain/policies/other.policy.yaml" in text
    after = machine.files()
    assert {path: after[path] for path in before} == before
    assert {path for path in after.keys() - before.keys() if path.startswith("brain/")} == {
        "brain/cluster.yaml",
        "brain/.gitattributes",
    }
    code, text = machine.run("gitops", "validate", "--config", "brain", at="company")
    assert code == 0, text
    machine.init("--yes", "--path", "brain")
    assert machine.files() == after


@pytest.mark.e2e
@pytest.mark.parametrize("place", [".", "graphs"])
def test_a_cluster_that_is_there_is_used_where_it_is(machine: Machine, place: str) -> None:
    company = machine.folder / "company"
    shutil.copytree(ROOT / "examples/company-brain", company / place, dirs_exist_ok=True)
    before = machine.files()
    machine.init("--yes")
    after = machine.files()
    assert {path: after[path] for path in before} == before
    assert f"path: {place}\n".encode() in after["gitops.yaml"].replace(b'"', b"")
    assert str(Path(place) / ".gitattributes") in after
    assert not any("notes" in path for path in after)


@pytest.mark.e2e
def test_on_a_terminal_it_asks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    answers = iter([str(machine.folder / "asked-key"), "github", "brain", "", "github:583231", "clusters/brain", ""])
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return next(answers)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", answer)
    assert main(["init", str(machine.folder / "company")]) == 0
    capsys.readouterr()
    assert len(asked) == 7
    assert b"github:583231" in machine.files()["gitops.yaml"]
    assert "clusters/brain/cluster.yaml" in machine.files()
    assert ".github/workflows/gitops-apply.yml" in machine.files()
