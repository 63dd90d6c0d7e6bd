"""What the operator says of a bare repository, and what a request shows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.core.diagnostics import Severity
from gitops.forge.port import Account, Annotation, CheckState, CommitCheck, Permission
from gitops.git.hooks import install_hooks, remove_hooks
from gitops.git.port import ZERO, RefUpdate
from gitops.repository.wiring.local import LocalRepository
from tests.support.forge_world import LocalWorld
from tests.support.git_fixture import commit, environment, run

YAML = b"""version: 1
clusters:
  - name: library
    path: library
  - name: archive
    path: archive
    branch: release
"""


@pytest.fixture
def world(tmp_path: Path) -> LocalWorld:
    return LocalWorld(path=tmp_path / "far.git")


def configure(world: LocalWorld, key: str, value: str) -> None:
    run("git", f"--git-dir={world.path}", "config", key, value, home=world.path.parent)


def project(world: LocalWorld) -> LocalRepository:
    return LocalRepository(str(world.path), environ=environment(world.path.parent))


def test_only_who_is_named_may_command(world: LocalWorld) -> None:
    forge = project(world).forge()
    assert not forge.features.permissions
    assert forge.permission(Account("ada", "ada")) is Permission.NONE
    configure(world, "gitops.writers", "ada  mira")
    configure(world, "gitops.maintainers", "mira")
    configure(world, "gitops.administrators", "zoe")
    # The configuration is read once, so who opens the repository from now on sees it.
    forge = project(world).forge()
    found = {name: forge.permission(Account(name, name)) for name in ("ada", "mira", "zoe", "mallory", "")}
    assert found == {
        "ada": Permission.WRITE,
        "mira": Permission.MAINTAIN,
        "zoe": Permission.ADMIN,
        "mallory": Permission.NONE,
        "": Permission.NONE,
    }
    assert forge.features.permissions


def test_rules_are_those_of_the_installed_hook(world: LocalWorld) -> None:
    forge = project(world).forge()
    assert forge.branch_rules("main").protected is None
    install_hooks(str(world.path), "server", ("/bin/true",))
    assert forge.features.branch_rules
    assert [forge.branch_rules(name).protected for name in ("main", "release", "gitops/ledger/x")] == [
        True,
        False,
        True,
    ]
    repository = world.repository
    tip = repository.refs("refs/heads/main")["refs/heads/main"]
    new = commit(repository, {"gitops.yaml": YAML}, tip)
    repository.update_refs([RefUpdate("refs/heads/main", tip, new)])
    assert forge.branch_rules("release").protected is True
    assert forge.branch_rules("topic").protected is False
    remove_hooks(str(world.path), "server")
    assert forge.branch_rules("main").protected is None


def test_hooks_that_git_does_not_run_protect_nothing(world: LocalWorld) -> None:
    install_hooks(str(world.path), "server", ("/bin/true",))
    forge = project(world).forge()
    (world.path / "hooks" / "pre-receive").chmod(0o644)
    assert not forge.features.branch_rules
    (world.path / "hooks" / "pre-receive").chmod(0o755)
    configure(world, "core.hooksPath", "/nowhere")
    assert not forge.features.branch_rules


def test_nobody_sees_the_hooks_of_another_repository(world: LocalWorld, tmp_path: Path) -> None:
    install_hooks(str(world.path), "server", ("/bin/true",))
    clone = tmp_path / "clone"
    run("git", "clone", "--quiet", str(world.path), str(clone), home=tmp_path)
    far = LocalRepository(str(clone), environ=environment(tmp_path)).forge()
    assert not far.features.branch_rules


def test_labels_and_checks_are_shown(world: LocalWorld, capsys: pytest.CaptureFixture[str]) -> None:
    number = world.open_request()
    forge = world.forge()
    forge.set_labels(number, add=("gitops/blocked",))
    note = Annotation("library/a.pg", 3, "no such type\x1b[2J", Severity.ERROR)
    forge.set_check(CommitCheck(world.head(number), "gitops/library", CheckState.FAILURE, "1 problem", "", (note,)))
    assert main(["request", "show", str(number), "--repo", str(world.path)]) == 0
    shown = capsys.readouterr().out
    assert "labels: gitops/blocked" in shown
    assert "gitops/library: 1 problem" in shown
    assert "library/a.pg:3: error: no such type" in shown
    assert "\x1b" not in shown
    assert ZERO not in shown
