"""`--quiet` and `--verbose`: one rule for all commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gitops.cli.commands import COMMANDS
from gitops.cli.commands.arguments import Command
from gitops.cli.main import EVERYWHERE, build_parser, main
from tests.support.cli_page import commands
from tests.support.pages import ROOT


def leaves() -> list[tuple[str, Command]]:
    return [(name, command) for name, command in commands(COMMANDS) if command.handler]


@pytest.mark.parametrize(("name", "command"), leaves(), ids=lambda value: value if isinstance(value, str) else "")
def test_no_command_has_another_meaning_for_an_option_of_all(name, command):
    taken = {each for argument in EVERYWHERE for each in argument.names}
    assert taken.isdisjoint(own for argument in command.arguments for own in argument.names)


@pytest.mark.parametrize("words", [["-q", "-v", "status"], ["status", "--quiet", "--verbose"], ["-v", "status", "-q"]])
def test_both_are_taken_before_and_after_the_command(words):
    options = build_parser().parse_args(words)
    assert options.quiet
    assert options.verbose


@pytest.fixture(scope="module")
def applied(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loudness") / "brain"
    shutil.copytree(ROOT / "examples" / "company-brain", folder)
    for verb in ("import", "apply"):
        assert main([verb, "--config", str(folder), "-q"]) == 0
    return folder


@pytest.fixture
def folder(applied, tmp_path) -> Path:
    return Path(shutil.copytree(applied, tmp_path / "brain"))


def test_a_command_that_acted_or_found_nothing_wrong_is_silent(folder, capsys):
    records = folder / "records.jsonl"
    shutil.copy(folder / "seed.jsonl", records)
    layout = str(folder / "cluster.yaml")
    for words in (
        ["validate"],
        ["plan"],
        ["apply"],
        ["status"],
        ["ready"],
        ["refresh"],
        ["fmt", layout],
        ["graph", "load", "knowledge", str(records)],
        ["graph", "branch", "create", "knowledge", "trial"],
        ["graph", "branch", "delete", "knowledge", "trial"],
        ["graph", "optimize", "knowledge"],
        ["graph", "gc", "knowledge"],
        ["graph", "verify", "knowledge"],
    ):
        code = main([*words, "--config", str(folder), "-q"])
        printed = capsys.readouterr()
        assert (code, printed.out, printed.err) == (0, "", ""), words


def test_what_was_asked_for_is_printed_all_the_same(folder, capsys):
    for words in (["graph", "show", "knowledge"], ["graph", "log", "knowledge"], ["down", "knowledge"]):
        main([*words, "--config", str(folder)])
        full = capsys.readouterr()
        main([*words, "--config", str(folder), "--quiet"])
        assert capsys.readouterr() == full
        assert full.out, words


def test_a_problem_is_printed_all_the_same(folder, capsys):
    (folder / "knowledge" / "schema.pg").write_text("node Broken {\n")
    for words in (["validate"], ["lint"], ["plan"]):
        assert main([*words, "--config", str(folder), "-q"]) == 1
        assert "error" in capsys.readouterr().out.lower()


def test_what_an_approver_is_about_to_sign_is_shown_all_the_same(folder, capsys):
    cluster = folder / "cluster.yaml"
    text = cluster.read_text()
    cluster.write_text(text[: text.index("  legacy:")] + text[text.index("policies:") :])
    assert main(["--as", "ada", "approve", "graph.legacy", "--config", str(folder), "-q"]) == 2
    shown = capsys.readouterr().out
    assert "cluster approve: delete graph.legacy" in shown
    assert "to sign what is shown above, run: gitops approve graph.legacy" in shown


@pytest.mark.parametrize("words", [["apply"], ["fmt", "--check"], ["lint"], ["status"]])
def test_the_document_is_the_same_whatever_is_said(folder, capsys, words):
    documents = []
    for loudness in ("-q", "-v"):
        main([*words, "--config", str(folder), "--json", loudness])
        printed = capsys.readouterr()
        assert printed.err == ""
        documents.append(json.loads(printed.out))
    assert documents[0].keys() == documents[1].keys()
    assert documents[0]["ok"] == documents[1]["ok"]
