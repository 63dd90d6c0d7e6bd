"""`gitops lint` and `gitops fmt` on folders on disk: formats kept as files, exit codes, and the check of layout in a clone."""

from __future__ import annotations

import json
import os
import shutil
import stat

import pytest
from jsonschema import Draft7Validator

from gitops.cli.main import main
from gitops.cli.texts import replace_file
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.fmt import FileLayout
from gitops.cluster.session.lint import lint_cluster
from gitops.core.errors import ConflictError
from gitops.render.sarif import sarif_log
from tests.support.cases import read_yaml
from tests.support.lint_cases import DATA, EXAMPLE_NAMES, EXAMPLES, FORMATS, cases, reports, shortened
from tests.support.loop import Loop
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, run

pytestmark = pytest.mark.e2e
beside = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the shared example clusters are not beside this checkout")

SARIF = Draft7Validator(json.loads((ROOT / "tests/data/sarif/sarif-schema-2.1.0.json").read_text("utf-8")))
FAULTS = read_yaml(ROOT / "tests/data/languages/faults.yaml")


@pytest.fixture
def broken(tmp_path, monkeypatch):
    shutil.copytree(DATA / "broken" / "cluster", tmp_path / "cluster")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cluster"


@pytest.mark.parametrize("name", cases())
def test_the_report_on_a_case_is_that_of_its_files(name, tmp_path):
    found = reports(DATA / name / "cluster", tmp_path)
    for form, ending in FORMATS.items():
        assert found[form] == (DATA / name / f"report.{ending}").read_text("utf-8"), (
            "python -m tests.support.lint_cases"
        )


@beside
@pytest.mark.parametrize("name", EXAMPLE_NAMES)
def test_the_report_on_an_example_is_that_of_its_files(name, tmp_path):
    found = shortened(reports(EXAMPLES / name, tmp_path))
    for form, ending in FORMATS.items():
        assert found[form] == (DATA / "examples" / f"{name}.{ending}").read_text("utf-8")


@beside
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault['rule']} {fault['file']}")
def test_a_fault_planted_in_an_example_is_found_at_its_place_and_alone(fault):
    folder = EXAMPLES / "industry-intel"
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    before, found, after = files[fault["file"]].decode().partition(fault["find"])
    assert found
    opening, marked, closing = fault["put"].replace("»", "«").split("«")
    files[fault["file"]] = (before + opening + marked + closing + after).encode()
    outcome = lint_cluster(MemoryTree(files))
    (problem,) = outcome.problems
    assert problem.path == fault["file"]
    grammar, other = ("S-01", "S-01") if problem.path.endswith(".pg") else ("Q000", "Q001")
    assert problem.code in (fault["rule"] or grammar, fault["rule"] or other)
    (result,) = sarif_log(outcome, str)["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    lines = (before + opening).split("\n")
    assert (region["startLine"], region["startColumn"]) == (len(lines), len(lines[-1]) + 1)
    at = region["byteOffset"]
    assert files[fault["file"]][at : at + region["byteLength"]].decode() == marked


def test_exit_codes(broken, capsys):
    good = broken / "good.gq"
    good.write_text("query q() { match { $p: Person } return { $p.slug } }")
    bare = broken / "bare.gq"
    bare.write_text('query q() { delete Person where slug = "a" }')
    schema = ["--schema", str(broken / "books.pg")]
    assert main(["lint", "--config", "cluster"]) == 1
    assert main(["lint", *schema, str(good)]) == 0
    assert main(["lint", *schema, str(bare)]) == 0
    assert main(["lint", "--strict", *schema, str(bare)]) == 1
    assert main(["lint", *schema]) == 2
    assert main(["lint", "--json", "--format", "sarif"]) == 2
    assert main(["lint", "cluster/cluster.yaml"]) == 2
    with pytest.raises(SystemExit) as end:
        main(["lint", "--format", "xml"])
    assert end.value.code == 2
    capsys.readouterr()
    assert main(["lint", "--format", "json", "a\\b.gq"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["code"] == "source_name_unsafe"
    assert main(["lint", "--strict", "--json", *schema, str(bare)]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_paths_are_those_of_the_current_folder_and_the_log_those_of_the_repository(broken, capsys, monkeypatch):
    (broken.parent / ".git").mkdir()
    monkeypatch.chdir(broken / "queries")
    assert main(["lint", "--config", "..", "people.gq"]) == 1
    assert capsys.readouterr().out.startswith("people.gq:3:14: error[T1]")
    assert main(["lint", "--config", "..", "people.gq", "--format", "sarif"]) == 1
    log = json.loads(capsys.readouterr().out)
    results = log["runs"][0]["results"]
    uris = {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in results}
    assert uris == {"cluster/queries/people.gq", "cluster/torn.pg"}
    assert main(["lint", "--schema", "../shelf.pg", "people.gq", "--format", "sarif"]) == 1
    assert "cluster/queries/people.gq" in capsys.readouterr().out


def test_the_log_fits_the_schema_of_the_standard_and_names_no_folder_of_this_machine(broken, capsys, tmp_path):
    (broken / "cluster.yaml").write_bytes((broken / "cluster.yaml").read_bytes() + b"  far: {schema: /nowhere/x.pg}\n")
    for arguments in (["--config", "cluster"], ["cluster/books.pg"], ["--config", "absent"]):
        main(["lint", "--format", "sarif", *arguments])
        told = capsys.readouterr().out
        assert [error.message for error in SARIF.iter_errors(json.loads(told))] == []
        assert str(tmp_path) not in told


def test_hostile_files_are_told_and_change_nothing(broken):
    (broken / "queries" / "people.gq").write_bytes(b'query a\x1b[2J() { "\xe2\x80\xae ##[error]')
    (broken / "queries" / "cut.gq").write_bytes(b"\xff\xfe")
    (broken / "books.pg").unlink()
    (broken / "books.pg").symlink_to("/etc/hostname")
    (broken / "queries" / "big.gq").write_bytes(b" " * (4 * 1024 * 1024 + 1))
    before = sorted(broken.rglob("*"))
    for form in FORMATS:
        command = [*PROGRAM, "lint", "--config", "cluster", "--format", form]
        done = run(command, cwd=broken.parent)
        assert (done.returncode, done.stderr) == (1, "")
        assert all(line.isprintable() for line in done.stdout.split("\n"))
        assert "##[" not in done.stdout
        assert "source_symlink" in done.stdout
        assert "source_too_large" in done.stdout
    assert sorted(broken.rglob("*")) == before


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
    place = f"{os.path.relpath(folder / 'a.pg')}:1:1"
    assert f"ERROR format_needed a.pg: the canonical layout differs from line 1 ({place})" in told
    assert "would format a.pg: digest " in told
    assert main(["fmt", "--check", "--json", *config]) == 1
    assert [d["code"] for d in json.loads(capsys.readouterr().out)["problems"]] == ["format_needed"]
    assert main(["fmt", "--diff", *config]) == 0
    told = capsys.readouterr().out
    assert "-node A{a: String @key} // a\n+node A {\n" in told
    assert (folder / "a.pg").read_bytes() == UGLY

    assert main(["fmt", *config]) == 0
    told = capsys.readouterr().out
    assert "formatted a.pg: digest " in told
    assert "an update of schema.g" in told
    assert "the plan then shows 2 updates: graph.g, schema.g" in told
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
    with pytest.raises(ConflictError, match="changed while it was being rewritten"):
        replace_file(str(folder / "a.pg"), layout)
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
