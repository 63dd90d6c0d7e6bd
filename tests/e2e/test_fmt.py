"""`gitops fmt` on a folder on disk, and the check of layout in the hook of a clone."""

from __future__ import annotations

import json
import stat

import pytest

from gitops.cli.main import main
from gitops.cli.texts import _replace
from gitops.cluster.session.fmt import FileLayout
from gitops.core.errors import ConflictError
from tests.support.loop import Loop

pytestmark = pytest.mark.e2e

UGLY = b"node A{a: String @key} // a\n"
TIDY = b"node A {\n    a: String @key\n} // a\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cluster.yaml").write_bytes(b"version: 1\ngraphs:\n  g:\n    schema: a.pg\n")
    (tmp_path / "a.pg").write_bytes(UGLY)
    return tmp_path


def test_check_and_diff_write_nothing_and_fmt_writes(folder, capsys):
    config = ["--config", str(folder)]
    assert main(["fmt", "--check", *config]) == 1
    told = capsys.readouterr().out
    assert "ERROR format_needed a.pg: the canonical layout differs from line 1 (a.pg:1:1)" in told
    assert "would format a.pg: digest " in told
    assert main(["fmt", "--check", "--json", *config]) == 1
    assert [d["code"] for d in json.loads(capsys.readouterr().out)["diagnostics"]] == ["format_needed"]
    assert main(["fmt", "--diff", *config]) == 0
    told = capsys.readouterr().out
    assert "-node A{a: String @key} // a\n+node A {\n" in told
    assert (folder / "a.pg").read_bytes() == UGLY

    assert main(["fmt", *config]) == 0
    told = capsys.readouterr().out
    assert "formatted a.pg: digest " in told
    assert "an update of schema.g" in told
    assert "the plan then shows 2 update(s): graph.g, schema.g" in told
    assert (folder / "a.pg").read_bytes() == TIDY
    assert main(["fmt", "--check", *config]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a.pg", "cluster.yaml"]


def test_paths_are_those_of_the_current_folder(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert main(["fmt", "--json", f"{folder.name}/a.pg"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert [(f["path"], f["changed"], f["written"]) for f in form["files"]] == [(f"{folder.name}/a.pg", True, True)]
    assert (folder / "a.pg").read_bytes() == TIDY


def test_a_file_that_does_not_parse_is_left_alone_and_the_others_are_not(folder, capsys):
    (folder / "b.pg").write_bytes(b"node B{a: Strin}")
    assert main(["fmt", "--config", str(folder), str(folder)]) == 1
    assert "ERROR schema_parse_error b.pg" in capsys.readouterr().out
    assert (folder / "b.pg").read_bytes() == b"node B{a: Strin}"
    assert (folder / "a.pg").read_bytes() == TIDY


def test_permissions_stay_and_links_are_not_followed(folder, capsys):
    (folder / "a.pg").chmod(0o640)
    (folder / "link.pg").symlink_to("a.pg")
    assert main(["fmt", "--config", str(folder), str(folder / "link.pg")]) == 1
    assert "source_symlink" in capsys.readouterr().out
    assert main(["fmt", "--config", str(folder)]) == 0
    assert stat.S_IMODE((folder / "a.pg").stat().st_mode) == 0o640


def test_a_file_that_changed_meanwhile_stays_as_it_is(folder):
    layout = FileLayout("a.pg", b"node B {}", TIDY)
    with pytest.raises(ConflictError, match="changed while it was being formatted"):
        _replace(str(folder / "a.pg"), layout)
    assert (folder / "a.pg").read_bytes() == UGLY
    assert sorted(path.name for path in folder.iterdir()) == ["a.pg", "cluster.yaml"]


def test_the_hook_of_a_clone_checks_the_layout_where_that_is_asked_for(loop: Loop):
    loop.gitops("alice", "hook", "install")
    schema = loop.clone("alice") / "cluster" / "notes.pg"
    schema.write_bytes(schema.read_bytes().replace(b"{", b"{\n\n"))

    def commit():
        loop.program("alice", "git", "add", "--all")
        return loop.program("alice", "git", "commit", "-q", "-m", "A layout", check=False)

    loop.program("alice", "git", "config", "gitops.formatCheck", "perhaps")
    refused = commit()
    assert refused.code
    assert "gitops.formatCheck must be true or false" in refused.text
    loop.program("alice", "git", "config", "gitops.formatCheck", "true")
    refused = commit()
    assert refused.code
    assert "ERROR format_needed notes.pg" in refused.text
    loop.program("alice", "git", "config", "gitops.formatCheck", "false")
    assert not commit().code
    loop.program("alice", "git", "config", "gitops.formatCheck", "true")
    loop.gitops("alice", "fmt", "--config", "cluster")
    assert not commit().code
