"""The auditor's machine of these tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.audit_desk import Desk
from tests.support.audited import Life
from tests.support.git_fixture import run


@pytest.fixture
def desk(life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    key = life.keys["ada"]
    (tmp_path / ".gitconfig").write_text(f"[user]\n\tname = ada\n\temail = ada@example.org\n\tsigningKey = {key}\n")
    shutil.copytree(life.home / "life.git", tmp_path / "server.git")
    run("git", "clone", "-q", str(tmp_path / "server.git"), str(tmp_path / "clone"), home=tmp_path)
    return Desk(life, tmp_path, capsys)
