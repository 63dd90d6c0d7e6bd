"""What the page on editors gives to copy: it parses, starts the server, and names the files that the server reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "editor.md").read_text("utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def test_helix_starts_the_server_for_each_kind_of_file():
    found = tomllib.loads(block("toml"))
    assert found["language-server"]["gitops"] == {"command": "gitops", "args": ["lsp"]}
    assert [each["name"] for each in found["language"]] == ["pg", "gq", "yaml"]
    assert all("gitops" in each["language-servers"] for each in found["language"])


def test_visual_studio_code_starts_the_server_for_each_kind_of_file():
    package = json.loads(block("json"))
    assert {each["id"] for each in package["contributes"]["languages"]} == {"pg", "gq"}
    script = block("js")
    assert '{ command: "gitops", args: ["lsp"] }' in script
    for named in ('language: "pg"', 'language: "gq"', "**/cluster.yaml", "**/gitops.yaml"):
        assert named in script
    assert f"{package['name']}-{package['version']}.vsix" in PAGE


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_extension_is_a_script(tmp_path: Path):
    (tmp_path / "extension.js").write_text(block("js"), "utf-8")
    subprocess.run(["node", "--check", tmp_path / "extension.js"], check=True, timeout=60)


def test_neovim_starts_the_server_for_each_kind_of_file():
    script = block("lua")
    assert 'cmd = { "gitops", "lsp" }' in script
    assert 'filetypes = { "pg", "gq", "yaml" }' in script
