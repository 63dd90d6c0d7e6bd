"""What a command line that is not accepted says, and colours."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli.commands import COMMANDS
from gitops.cli.main import Parser, main, parse_options
from gitops.cli.shared import coloured
from gitops.render.characters import visible


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["plna"], "plan"),
        (["graph", "lod"], "load"),
        (["plan", "--confg", "."], "--config"),
        (["plan", "--graph-format", "jsn"], "json"),
        (["help", "statsu"], "status"),
        (["statsu", "plan"], "status"),
        (["graph", "lod", "query"], "load"),
    ],
)
def test_a_misspelt_word_exits_2_with_what_was_meant(capsys, words, meant):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert f"did you mean `{meant}`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "one of the arguments RESOURCE --all is required"),
        (["--all", "trust.brain"], "argument RESOURCE: not allowed with argument --all"),
        (["trust.brain", "--all"], "argument --all: not allowed with argument RESOURCE"),
    ],
)
def test_an_approval_of_nothing_and_of_twice_is_a_wrong_command_line(capsys, words, problem):
    with pytest.raises(SystemExit) as end:
        main(["approve", "--json", *words])
    assert end.value.code == 2
    assert f"gitops approve: error: {problem}" in capsys.readouterr().err


def test_a_wrong_command_line_is_not_taken_for_changes(capsys):
    with pytest.raises(SystemExit) as end:
        parse_options(["plan", "--detailed-exitcode", "--nothing-of-the-sort"])
    assert end.value.code == 1
    assert "known: --json, " in capsys.readouterr().err


def test_help_of_a_command_is_its_own_help(capsys):
    printed = []
    for words in (["help", "graph", "query"], ["graph", "query", "--help"]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("usage: gitops graph query ")


@pytest.mark.parametrize("words", [["--help"], ["--help", "plan"], ["-qh"], ["--as", "plan", "-h"], ["help"]])
def test_help_lists_all_commands_whatever_else_is_on_the_line(capsys, words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert {each.name for each in COMMANDS} <= set(capsys.readouterr().out.split())


def test_a_command_line_makes_the_parsers_of_its_own_words(monkeypatch):
    made, real = [], Parser.__init__
    monkeypatch.setattr(Parser, "__init__", lambda self, **named: made.append(named["prog"]) or real(self, **named))
    assert parse_options(["graph", "query", "brain", "find", "--as", "apply"]).query == "find"
    assert sorted(made) == ["gitops", "gitops apply", "gitops graph", "gitops graph query", "gitops query"]


@pytest.mark.parametrize("words", [["--no-color", "status"], ["status", "--no-color"]])
def test_colours_are_switched_off_before_and_after_the_command(words):
    assert parse_options(words).no_color


@given(st.text())
def test_colours_only_add_to_what_a_report_says(text):
    report = f"ERROR x {visible(text)}\n  Create {visible(text)}\n    +{visible(text)}\n{visible(text)}\n"
    assert re.sub(r"\x1b\[\d+m", "", coloured(report)) == report
