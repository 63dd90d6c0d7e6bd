"""Clones and repositories of other forms: each works, or is refused with the reason and a remedy that is carried out here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gitops.git.port import RefUpdate
from tests.support.loop import LEDGER, Loop, email

pytestmark = pytest.mark.e2e

_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"1" * 64 + b"\nsize 70\n"


def _clone(loop: Loop, *options: str) -> Path:
    place = loop.home("carol") / "other"
    loop.program("bot", "git", "config", "uploadpack.allowFilter", "true", at=loop.server)
    loop.program("carol", "git", "clone", "-q", *options, loop.server.as_uri(), str(place), at=loop.folder)
    return place


def _carry_out_the_fix(loop: Loop, text: str, place: Path) -> None:
    """Run the commands of the remedy exactly as they are printed."""
    (fix,) = re.findall(r"fix: (git .*)", text)
    for command in fix.split("; "):
        loop.program("carol", *shlex.split(command), at=place)


def test_a_partial_clone_is_refused_until_it_is_whole(loop: Loop) -> None:
    place = _clone(loop, "--filter=blob:none")
    refused = loop.gitops("carol", "status", at=place, check=False)
    assert refused.code == 1
    assert "ERROR partial_clone" in refused.text
    assert "partial_clone" in loop.gitops("carol", "audit", at=place, check=False).text
    _carry_out_the_fix(loop, refused.text, place)
    loop.gitops("carol", "status", at=place)
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")


@pytest.mark.parametrize("looked", [False, True])
def test_a_single_branch_clone_learns_to_fetch_ledgers(loop: Loop, *, looked: bool) -> None:
    """Importing the cluster, as it was once told to do, would start a second ledger."""
    place = _clone(loop, "--single-branch")
    if looked:
        loop.gitops("carol", "status", at=place)
    refused = loop.gitops("carol", "audit", at=place, check=False)
    assert refused.code == 1
    assert "ledger_not_fetched" in refused.text
    _carry_out_the_fix(loop, refused.text, place)
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")


def test_a_ledger_that_is_gone_is_not_taken_for_one_that_is_not_fetched(loop: Loop) -> None:
    place = _clone(loop)
    loop.gitops("carol", "audit", at=place)
    loop.store.update_refs([RefUpdate(LEDGER, loop.tip(LEDGER), "0" * 40)])
    loop.program("carol", "git", "fetch", "-q", "--prune", at=place)
    assert "ledger_diverged" in loop.gitops("carol", "audit", at=place, check=False).text


@pytest.mark.parametrize("command", [("status",), ("hook", "install", "--server"), ("bot", "sweep")])
def test_a_repository_of_sha256_ids_is_refused_with_the_reason(loop: Loop, command: tuple[str, ...]) -> None:
    place = loop.folder / "new.git"
    loop.program("bot", "git", "init", "-q", "--bare", "--object-format=sha256", str(place), at=loop.folder)
    refused = loop.gitops("bot", *command, "--repo", str(place), at=loop.folder, check=False)
    assert refused.code in (1, 2)
    assert "repository_unsupported" in refused.text
    assert "SHA-256" in refused.text


def test_a_pointer_of_lfs_is_not_a_schema(loop: Loop) -> None:
    """In the work tree of its author the file looks right: a filter puts the text there."""
    commit = loop.commit("alice", {"cluster/notes.pg": _POINTER}, away=True)
    refused = loop.push("alice", f"{commit}:main", check=False)
    assert refused.code
    assert "source_lfs_pointer" in refused.text
    assert "cluster/notes.pg" in refused.text or "notes.pg is a Git LFS pointer" in refused.text
    assert "schema_parse_error" not in refused.text


def test_a_remote_without_authentication_is_refused_with_the_reason(loop: Loop) -> None:
    place = _clone(loop)
    loop.program("carol", "git", "remote", "set-url", "origin", "git://host.example/company.git", at=place)
    refused = loop.gitops("carol", "status", at=place, check=False)
    assert refused.code == 1
    assert "has no authentication" in refused.text
    assert "git remote set-url" in refused.text
    assert loop.gitops("carol", "audit", at=place).text.startswith("audit good")


def test_line_ends_of_a_work_tree_change_nothing(tmp_path: Path) -> None:
    """With `core.autocrlf` git writes other bytes into a work tree than the commit has: not below our `.gitattributes`."""
    loop = Loop.empty(tmp_path)
    loop.gitops("bot", "hook", "install", "--repo", str(loop.server), at=tmp_path)
    people = [part for who in ("bob", "carol") for part in ("--approver", f"{email(who)}={loop.key(who)}")]
    loop.gitops("alice", "init", "--forge", "hooks", "--cluster", "brain", "--bot-key", str(loop.key("bot")), *people)
    loop.program("alice", "git", "add", "--all")
    loop.program("alice", "git", "commit", "-q", "-m", "Start")
    loop.push("alice", "HEAD:main")
    place = _clone(loop, "-c", "core.autocrlf=true")
    assert b"\r" in (place / "gitops.yaml").read_bytes()
    planned = loop.gitops("carol", "plan", "--config", "cluster", at=place)
    assert "no changes" in planned.text, planned.text
